"""The node's protocol against a Redis that takes its time: virtual time, many nodes.

The world is the simulator's (:mod:`hashring.testing.simulator.world`): nodes are the machines
that ship, Redis' data a server in memory. What is modelled here is time: a network that takes a
moment each way, and a Redis that does one thing after another, each as long as it was measured to
take on a real one.

Of a ring of very many nodes a sample runs; the others are there as the time that Redis spends on
them: whatever a node of the sample asks, it asks for as many nodes as it stands for, it receives
a change as late as if all were there, and an answer with the ring takes as long as with all of it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hashring.core.hashing import hash_algorithm
from hashring.protocol.machine_steps import Step
from hashring.protocol.node.node_machine import NodeConfig, NodeMachine
from hashring.protocol.node.node_states import NodeState
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.testing.simulator.history import History
from hashring.testing.simulator.network import Call
from hashring.testing.simulator.process import Process
from hashring.testing.simulator.simulated_loop import SimulatedLoop
from hashring.testing.simulator.virtual_time import EPOCH
from hashring.testing.simulator.world import World as Engine

KEYS = ring_keys("simulated")
TTL, HEARTBEAT = 60.0, 10.0
POINTS = 16


@dataclass(frozen=True)
class Costs:
    """Seconds of Redis, as measured with as many nodes.

    Attributes:
        beat: a heartbeat.
        fetch: what each member of the ring adds, when the answer holds the ring.
        tell: a change, for each of the nodes that get its message.
        travel: seconds of the network, one way.
    """

    beat: float
    fetch: float
    tell: float
    travel: float = 0.0005


def node_config(name: str, *, named: bool, follow: bool) -> NodeConfig:
    """What a simulated node is made with."""
    return NodeConfig(
        keys=KEYS,
        name=name,
        named=named,
        n_replicas=POINTS,
        ttl=TTL,
        heartbeat_interval=HEARTBEAT,
        io_timeout=5.0,
        scoring=Scoring.expiry(TTL),
        algorithm=hash_algorithm("crc-32"),
        placement="random",
        follow_foreign=False,
        follow=follow,
        told={"host": "host", "pid": 1},
    )


class NotesEarly:
    """Beside a node's protocol: notes whether it asks before its heartbeat is due."""

    early = False

    def next(self, now: float) -> Step:
        """What to do now."""
        self.early = self.state is NodeState.LIVE and now < self._at.beat
        return super().next(now)


class Machine(NotesEarly, NodeMachine):
    """The protocol of a node that follows the ring."""


@dataclass(frozen=True)
class SimulatedSpec:
    """What a process is called, and what its clock shows at the beginning."""

    label: str
    monotonic: float = 0.0
    rate: float = 1.0


class Node(Process):
    """A process with a node; it stands for ``weight`` of them."""

    world: World

    def __init__(self, world: World, spec: SimulatedSpec, machine: Machine, weight: float) -> None:
        super().__init__(world, spec)
        self.machine = machine
        self.weight = weight
        self.loop: SimulatedLoop[Node] = SimulatedLoop(self, machine, asynchronous=True)
        self.saw: dict[int, float] = {}

    def latency(self) -> float:
        """How long the next message takes to it, in seconds."""
        return next(self.world.ways)

    def start(self) -> None:
        """The node starts."""
        self.machine.start(self.local(), strict=False)
        self.loop.begin()

    def show(self, loop: SimulatedLoop[Any]) -> None:
        """The node may know of another change of the ring."""
        if self.machine.sight.stamp is not None:
            self.saw.setdefault(self.machine.sight.stamp.epoch, self.world.now)

    def send(self, call: Call) -> None:
        """A call is on its way to Redis."""
        world = self.world
        world.extra += self.weight if self.machine.early else 0.0
        world.at(world.now + world.costs.travel, lambda: world.arrive(self, call))


class World(Engine[Node]):
    """A ring of so many nodes, of which a sample runs.

    Args:
        nodes: all of them.
        sample: how many run.
        costs: of Redis.
    """

    def __init__(self, nodes: int, sample: int, costs: Costs, seed: int = 7) -> None:
        super().__init__(History(seed, (), ()), (), {})
        self._costs = costs
        self.costs = Costs(0.0, 0.0, 0.0, costs.travel)
        self.nodes = nodes
        self.rng = random.Random(seed)
        self.free_at = 0.0
        """When Redis has done all that it was asked."""
        self.busy = 0.0
        """Seconds that Redis has worked."""
        self.extra = 0.0
        """Heartbeats of live nodes that came before they were due: to sweep, or to fetch."""
        self.told = 0.0
        """Bytes told to subscribers."""
        self.running: list[Node] = []
        self.ways = self._travel()
        """How long each next message takes."""
        self._made = 0
        # Before all nodes: what follows is how each of them hears of it.
        self.server.listen(KEYS.channel, self._tell)
        for _ in range(sample):
            self.at(self.rng.random() * HEARTBEAT, lambda: self.add(nodes / sample))

    def settle(self) -> None:
        """Let all come, which costs nothing; from then on Redis takes its time."""
        self.run(self.now + 2.5 * HEARTBEAT)
        self.costs, self.busy = self._costs, 0.0
        self.run(self.now + HEARTBEAT)

    def add(self, weight: float) -> Node:
        """A node starts."""
        self._made += 1
        config = node_config(f"host-{self._made}:1", named=False, follow=True)
        machine = Machine(config, random.Random(f"{self._made}"))
        node = Node(self, SimulatedSpec(config.name), machine, weight)
        self.running.append(node)
        node.start()
        return node

    def crash(self, node: Node) -> None:
        """A node ends, and says nothing."""
        node.kill()
        self.running.remove(node)

    def expires(self, node: Node) -> float:
        """When the node's time is up, in Redis."""
        return self.server.scores(KEYS.ring)[node.machine.replicas[0].member] - EPOCH

    # --- Redis --------------------------------------------------------------------------------

    def arrive(self, node: Node, call: Call) -> None:
        """A call is there: it is done when all before it are."""
        begin = max(self.now, self.free_at)
        # A node that has just come stands for itself, whatever others of the sample stand for.
        weight = 1.0 if node.machine.state is NodeState.JOINING else node.weight
        seconds = self.costs.beat * weight
        flags = call.command.arguments[2] if call.command.script.name == "beat" else ""
        if "s" in str(flags) or call.command.script.name == "snapshot":
            seconds += self.costs.fetch * POINTS * self.nodes * weight
        self._serve(begin + seconds, seconds)
        self.at(begin + seconds, lambda: self.execute(node, call))

    def _serve(self, until: float, seconds: float) -> None:
        self.free_at = until
        self.busy += seconds

    def execute(self, process: Node, call: Call) -> None:
        """Redis runs a command, and tells of the changes that it makes."""
        reply: Any = self.server.run(call.command)
        self.ways = self._travel()
        answered = max(self.now, self.free_at) + self.costs.travel
        self.at(answered, lambda: call.arrived(call, reply))

    def _travel(self) -> Iterator[float]:
        while True:
            yield self.costs.travel

    def _tell(self, payload: bytes) -> None:
        """The change goes to each subscriber in turn, which takes Redis its time."""
        begin, seconds = max(self.now, self.free_at), self.costs.tell * self.nodes
        self._serve(begin + seconds, seconds)
        self.told += len(payload) * self.nodes
        count = len(self.running)
        places = self.rng.sample(range(1, count + 1), count)
        first = begin - self.now + self.costs.travel
        self.ways = iter([first + seconds * place / count for place in places])
