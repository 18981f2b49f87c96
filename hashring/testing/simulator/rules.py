"""What must hold in every world, besides the rules of its protocol.

**Hears.** Once faults are over and the promised time to recover has passed, no process listens on a
connection that has died without a sign.
"""

from __future__ import annotations

from typing import Any

from hashring.testing.simulator.engine import Rule, World


class Hears(Rule[Any, Any]):
    name = "hears"

    def healed(self, world: World[Any]) -> None:
        for process in world.alive:
            for loop in process.loops:
                if loop.listener is not None and loop.listener.stands and loop.listener.deaf:
                    raise self.broken(
                        world, f"{process.spec.label} listens on a connection that is dead"
                    )
