"""The node's protocol against a Redis that takes its time: virtual time, many nodes.

The protocol is the real :class:`hashring.node.machine.NodeMachine`, Redis' data its twin in
memory. What is modelled is time: a network that takes a moment each way, and a Redis that does
one thing after another, each as long as it was measured to take on a real one.

Of a ring of very many nodes a sample runs; the others are there as the time that Redis spends on
them: whatever a node of the sample asks, it asks for as many nodes as it stands for, it receives
a change as late as if all were there, and an answer with the ring takes as long as with all of it.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hashring.core.hashing import hash_algorithm
from hashring.node.machine import NodeConfig, NodeMachine
from hashring.node.states import NodeState
from hashring.protocol.machine import Run as RunStep
from hashring.protocol.machine import Subscribe, Wait
from hashring.store.keys import ring_keys
from hashring.store.memory_store import MemoryServer
from hashring.store.ring.commands import Scoring

KEYS = ring_keys("simulated")
TTL, HEARTBEAT = 60.0, 10.0
POINTS = 16
START = 1_700_000_000.0


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


@dataclass
class Node:
    """A process with a node's protocol."""

    machine: NodeMachine
    weight: float
    number: int = -1
    listening: bool = False
    busy: bool = False
    alarm: int = 0
    alive: bool = True
    saw: dict[int, float] = field(default_factory=dict)


class World:
    """A ring of so many nodes, of which a sample runs.

    Args:
        nodes: all of them.
        sample: how many run.
        costs: of Redis.
    """

    def __init__(self, nodes: int, sample: int, costs: Costs, seed: int = 7) -> None:
        self.now = 0.0
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
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.server = MemoryServer(lambda: START + self.now)
        self.running: list[Node] = []
        self._made = 0
        self._publishing: list[bytes] = []
        self.server.listen(KEYS.channel, self._publishing.append)
        for _ in range(sample):
            self.at(self.rng.random() * HEARTBEAT, lambda: self.add(nodes / sample))

    # --- time ---------------------------------------------------------------------------------

    def at(self, when: float, what: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._queue, (max(when, self.now), self._count, what))

    def run(self, seconds: float) -> None:
        """Let time pass."""
        until = self.now + seconds
        while self._queue and self._queue[0][0] <= until:
            self.now, _, what = heapq.heappop(self._queue)
            what()
        self.now = until

    def settle(self) -> None:
        """Let all come, which costs nothing; from then on Redis takes its time."""
        self.run(2.5 * HEARTBEAT)
        self.costs, self.busy = self._costs, 0.0
        self.run(HEARTBEAT)

    # --- nodes --------------------------------------------------------------------------------

    def add(self, weight: float) -> Node:
        """A node starts."""
        self._made += 1
        config = NodeConfig(
            keys=KEYS,
            name=f"host-{self._made}:1",
            named=False,
            points=POINTS,
            ttl=TTL,
            heartbeat_interval=HEARTBEAT,
            io_timeout=5.0,
            scoring=Scoring.expiry(TTL),
            algorithm=hash_algorithm("crc-32"),
            placement="random",
            follow_foreign=False,
            told={"host": "host", "pid": 1},
        )
        node = Node(NodeMachine(config, random.Random(f"{self._made}")), weight)
        self.running.append(node)
        node.machine.start(self.now, strict=False)
        self.turn(node)
        return node

    def crash(self, node: Node) -> None:
        """A node ends, and says nothing."""
        node.alive = node.listening = False
        self.running.remove(node)

    def expires(self, node: Node) -> float:
        """When the node's time is up, in Redis."""
        return self.server.members(KEYS.ring)[node.machine.replicas[0].member] - START

    def turn(self, node: Node) -> None:
        """The node's loop, until it waits."""
        while node.alive and not node.busy:
            early = node.machine.state is NodeState.LIVE and self.now < node.machine._at.beat
            step = node.machine.next(self.now)
            if isinstance(step, Wait):
                self._wait(node, step.until)
                return
            if isinstance(step, Subscribe):
                node.number, node.listening = step.number, True
                for _ in node.machine.channels:
                    node.machine.subscribed(step.number, self.now)
            elif isinstance(step, RunStep):
                node.busy = True
                sent = self.now
                self.extra += node.weight if early else 0.0
                self.at(
                    self.now + self.costs.travel,
                    lambda step=step, sent=sent: self._arrive(node, step, sent),
                )
                return
            else:
                return

    def _wait(self, node: Node, until: float) -> None:
        node.alarm += 1
        alarm = node.alarm

        def ring() -> None:
            if alarm == node.alarm:
                self.turn(node)

        self.at(until + 1e-9, ring)

    # --- Redis --------------------------------------------------------------------------------

    def _arrive(self, node: Node, step: RunStep, sent: float) -> None:
        """A call is there: it is done when all before it are."""
        begin = max(self.now, self.free_at)
        # A node that has just come stands for itself, whatever others of the sample stand for.
        weight = 1.0 if node.machine.state is NodeState.JOINING else node.weight
        seconds = self.costs.beat * weight
        flags = step.command.arguments[2] if step.command.script.name == "beat" else ""
        if "s" in str(flags) or step.command.script.name == "snapshot":
            seconds += self.costs.fetch * POINTS * self.nodes * weight
        self._serve(begin + seconds, seconds)
        self.at(begin + seconds, lambda: self._execute(node, step, sent))

    def _serve(self, until: float, seconds: float) -> None:
        self.free_at = until
        self.busy += seconds

    def _execute(self, node: Node, step: RunStep, sent: float) -> None:
        reply: Any = self.server.run(step.command)
        told, self._publishing[:] = list(self._publishing), []
        for payload in told:
            self._tell(payload)
        self.at(
            max(self.now, self.free_at) + self.costs.travel,
            lambda: self._reply(node, step, reply, sent),
        )

    def _tell(self, payload: bytes) -> None:
        """The change goes to each subscriber in turn, which takes Redis its time."""
        begin = max(self.now, self.free_at)
        listening = [node for node in self.running if node.listening]
        for place, node in enumerate(self.rng.sample(listening, len(listening))):
            at = begin + self.costs.tell * self.nodes * (place + 1) / len(listening)
            self.at(
                at + self.costs.travel,
                lambda node=node, number=node.number: self._hear(node, number, payload),
            )
        seconds = self.costs.tell * self.nodes
        self._serve(begin + seconds, seconds)
        self.told += len(payload) * self.nodes

    def _hear(self, node: Node, number: int, payload: bytes) -> None:
        if node.alive:
            node.machine.told(number, KEYS.channel, payload, self.now)
            self._note(node)
            self.turn(node)

    def _reply(self, node: Node, step: RunStep, reply: Any, sent: float) -> None:
        node.busy = False
        if node.alive:
            step.done(reply, sent, self.now)
            self._note(node)
            self.turn(node)

    def _note(self, node: Node) -> None:
        if node.machine.stamp is not None:
            node.saw.setdefault(node.machine.stamp.epoch, self.now)
