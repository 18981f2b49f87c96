"""What the kinds of events do that are not the same for a lease challenge as for every world."""

from __future__ import annotations

from typing import Any, Final

from hashring.testing.simulator.fault_effects import FAULTS
from hashring.testing.simulator.history import Event
from hashring.testing.simulator.world import Fault


def _wipe(world: Any, event: Event) -> None:
    if world.may_lose():
        FAULTS["wipe"](world, event)


def _failover(world: Any, event: Event) -> None:
    # Its copy may be from before there was a table.
    if world.may_lose():
        FAULTS["failover"](world, event)


def _down(world: Any, event: Event) -> None:
    if event.what != "empty" or world.may_lose():
        FAULTS["down"](world, event)


CHALLENGE_FAULTS: Final[dict[str, Fault]] = {
    **FAULTS,
    "wipe": _wipe,
    "down": _down,
    "failover": _failover,
}
