"""The protocol of nodes that know only their own ranges, on the engine of :mod:`simulated`.

Of a ring of very many nodes a sample runs. A change concerns as many nodes in a sample as in the
whole ring: the owners of the points next to it. The others are there as the part of Redis' time
that their heartbeats take: by so much slower it does all else.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Any

from simulated import KEYS, Node, NotesEarly, SimulatedSpec, node_config

from hashring.core.own_ranges import OwnRanges
from hashring.protocol.node.own_ranges_machine import OwnRangesMachine
from hashring.store.ring.commands import Scoring
from hashring.testing.simulator.history import History
from hashring.testing.simulator.network import Call
from hashring.testing.simulator.simulated_loop import SimulatedLoop
from hashring.testing.simulator.virtual_time import EPOCH
from hashring.testing.simulator.world import World as Engine

DOWN = 1.0
"""Seconds for which a node that restarts is down."""


@dataclass(frozen=True)
class OwnCosts:
    """Seconds of Redis for each of these, as measured with as many nodes; ``travel`` of the
    network, one way."""

    beat: float = 0.0
    join: float = 0.0
    leave: float = 0.0
    stay: float = 0.0
    back: float = 0.0
    travel: float = 0.0005


class OwnMachine(NotesEarly, OwnRangesMachine):
    """The protocol of a node that knows only its own ranges."""


class OwnNode(Node):
    """A process with such a node.

    Attributes:
        changed: when it came to know other ranges.
        stayed: whether one of its name stopped to come back.
    """

    world: OwnWorld

    def __init__(self, world: OwnWorld, spec: SimulatedSpec, machine: OwnMachine) -> None:
        super().__init__(world, spec, machine, 1)
        self.near, self.changed = OwnRanges(), 0.0
        self.stayed = False

    def latency(self) -> float:
        """How long the next message takes to it, in seconds."""
        return self.world.costs.travel + max(0.0, self.world.free_at - self.world.now)

    def show(self, loop: SimulatedLoop[Any]) -> None:
        """The node may know other ranges."""
        if self.machine.near.ranges != self.near.ranges:
            self.near, self.changed = self.machine.near, self.world.now


class OwnWorld(Engine[OwnNode]):
    """A ring of so many nodes, of which a sample runs.

    Args:
        nodes: all of them.
        sample: how many run.
        costs: of Redis.
        heartbeat: seconds between heartbeats; the ttl is six of them.

    Attributes:
        load: the part of Redis' time that all heartbeats take.
        changes: seconds of Redis for joins, departures and restarts.
        extra: heartbeats of live nodes that came before they were due.
    """

    def __init__(
        self, nodes: int, sample: int, costs: OwnCosts, heartbeat: float, seed: int = 7
    ) -> None:
        super().__init__(History(seed, (), ()), (), {})
        self.costs, self.heartbeat = costs, heartbeat
        self.load = nodes / heartbeat * costs.beat
        self.free_at = self.changes = 0.0
        self.extra = 0
        self.running: list[OwnNode] = []
        self._made = 0
        rng = random.Random(seed)
        for _ in range(sample):
            self.at(rng.random() * heartbeat, self.add)
        self.run(3 * heartbeat)

    def add(self, name: str = "") -> OwnNode:
        """A node starts; under a name that stopped to come back, when it is given."""
        self._made += 1
        config = node_config(name or f"node-{self._made}", named=True, follow=False)
        config = replace(config, heartbeat_interval=self.heartbeat, ttl=6 * self.heartbeat)
        config = replace(config, scoring=Scoring.expiry(config.ttl))
        machine = OwnMachine(config, random.Random(f"{self._made}"))
        node = OwnNode(self, SimulatedSpec(config.name), machine)
        node.stayed = bool(name)
        self.running.append(node)
        node.start()
        return node

    def crash(self, node: OwnNode) -> float:
        """A node ends, and says nothing; when its time is up."""
        expires = self.server.scores(KEYS.ring)[node.machine.replicas[0].member]
        node.kill()
        self.running.remove(node)
        return float(expires) - EPOCH

    def restart(self, node: OwnNode) -> None:
        """A node stops to come back, and does."""
        node.loop.tell(lambda: node.machine.stop(stay=True))
        self.run(self.now + DOWN)
        self.running.remove(node)
        self.add(node.machine.name)
        self.run(self.now + DOWN)

    def ranges(self) -> dict[str, Any]:
        """What each node owns."""
        return {node.machine.name: node.machine.near.ranges for node in self.running}

    # --- Redis --------------------------------------------------------------------------------

    def arrive(self, node: OwnNode, call: Call) -> None:
        """A call is there: it is done when all before it are."""
        seconds = self._cost(node, call)
        self.free_at = max(self.now, self.free_at) + seconds / (1.0 - self.load)
        self.at(self.free_at, lambda: self.execute(node, call))

    def _cost(self, node: OwnNode, call: Call) -> float:
        name, costs = call.command.script.name, self.costs
        flags = str(call.command.arguments[2])
        finds_nothing = "b" in flags and not node.stayed
        if name == "beat" and ("j" not in flags or finds_nothing):
            return costs.beat
        # What a look costs is in what a join does.
        joins = costs.back if node.stayed else costs.join
        seconds = {"leave": costs.leave, "park": costs.stay, "beat": joins}.get(name, 0.0)
        self.changes += seconds
        return seconds

    def execute(self, process: OwnNode, call: Call) -> None:
        """Redis runs a command, and tells the neighbours of the changes that it makes."""
        reply: Any = self.server.run(call.command)
        answered = max(self.now, self.free_at) + self.costs.travel
        self.at(answered, lambda: call.arrived(call, reply))


@dataclass(frozen=True)
class Found:
    """What a ring in virtual time shows.

    Attributes:
        rest: the part of its time that Redis is busy at rest.
        join, crash: seconds until the last node that it concerns knows of a join, from its start;
            and of a crash, from the end of the ttl.
        extra: heartbeats besides the regular ones that a crash takes.
        restart: seconds of Redis for a restart of all nodes in place.
    """

    rest: float
    join: float
    crash: float
    extra: int
    restart: float


def play(nodes: int, sample: int, costs: OwnCosts, heartbeat: float) -> Found:
    """Joins, a crash, and restarts in place, on a ring at rest.

    Raises:
        ValueError: Redis has no time for the heartbeats.
        RuntimeError: a restart in place moved a key.
    """
    if nodes / heartbeat * costs.beat >= 1.0:
        raise ValueError(f"one Redis has no time for the heartbeats of {nodes:,} nodes")
    world = OwnWorld(nodes, sample, costs, heartbeat)
    waits = []
    for _ in range(5):
        began = world.now
        world.add()
        world.run(world.now + 1)
        waits.append(max(node.changed for node in world.running) - began)
    expires = world.crash(world.running[0])
    world.run(expires - 0.01)
    before = world.extra
    world.run(world.now + 1.01)
    extra, took = world.extra - before, max(node.changed for node in world.running) - expires
    owned, tag, changes = world.ranges(), world.server.tag(KEYS.ring), world.changes
    restarted = list(world.running[:10])
    for node in restarted:
        world.restart(node)
    if world.ranges() != owned or world.server.tag(KEYS.ring) != tag:
        raise RuntimeError("a restart in place changed the ring")
    used = (world.changes - changes) / len(restarted) * nodes
    return Found(world.load, max(waits), took, extra, used)
