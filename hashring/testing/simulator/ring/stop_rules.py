"""What must hold of nodes that stop, in histories with locks and without.

**Goodbye.** A node that stops while Redis answers it has no entry and no point there when it has
ended; one that stops to come back has its points only. So a stop cannot be taken for a crash.
Excepted is what Redis lost, or brought back, meanwhile. If somebody deleted the names since its
last heartbeat, one that stops to come back cannot say so: its points expire with that heartbeat.

**Stops.** See :mod:`hashring.testing.simulator.rules`; within :data:`STOPPED`.
"""

from __future__ import annotations

from typing import Final

from hashring.protocol.node.node_states import NodeState
from hashring.testing.simulator.ring.history import TTL
from hashring.testing.simulator.ring.process import RingProcess
from hashring.testing.simulator.ring.world import KEYS, RingRule, RingWorld
from hashring.testing.simulator.rules import Stops

STOPPED: Final = TTL / 3
"""Seconds until a node has stopped at the latest: as long as one call may take."""

_ENDED: Final = (NodeState.STOPPED, NodeState.SUPERSEDED, NodeState.FAILED)


def node_stops() -> Stops:
    """The rule that a node's stop ends."""
    return Stops(STOPPED, lambda process: process.machine.state in _ENDED)


class Goodbye(RingRule):
    name = "goodbye"

    def __init__(self) -> None:
        self._began: dict[str, float] = {}

    def asked_to_stop(self, world: RingWorld, process: RingProcess) -> None:
        self._began[process.spec.label] = world.now

    def shown(self, world: RingWorld, process: RingProcess) -> None:
        machine, label = process.machine, process.spec.label
        if machine.state is not NodeState.STOPPED or label not in self._began:
            return
        began = self._began.pop(label)
        if max(process.trouble_until, world.lost_at, world.tampered_at) >= began:
            return
        if world.server.holder(KEYS.ring, machine.name) == machine.session:
            raise self.broken(world, f"{label} has stopped, and Redis has its entry")
        stays = machine.name.encode() in world.server.hgetall(KEYS.ring, "nodes")
        stays = stays or (process.stays and world.names_lost_at >= process.renewed_at)
        left = process.renewed & world.members().get(machine.name, frozenset())
        if left and not stays:
            raise self.broken(world, f"{label} has stopped, and {sorted(left)} is on the ring")
