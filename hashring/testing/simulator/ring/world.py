"""A ring in virtual time: its processes, and a Redis in memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from typing import Any, Final

from hashring.core.hashing import hash_algorithm
from hashring.core.point_placement import points_of_weight
from hashring.core.replica import Replica, parse_replica
from hashring.core.ring import Ring
from hashring.core.ring_change_message import RingChange, parse_change
from hashring.errors import MessageFormatError, ReplicaFormatError
from hashring.protocol.node.node_machine import NodeConfig, NodeMachine, View
from hashring.protocol.node.own_ranges_machine import machine_of
from hashring.store.command import Command
from hashring.store.memory_store import MemoryServer
from hashring.store.ring.commands import BeatReply, Scoring, read_members
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.node_orders import read_drains, read_weights
from hashring.testing.simulator.ring.history import (
    HEARTBEAT,
    TTL,
    LockTerms,
    NodeHistory,
    ProcessSpec,
)
from hashring.testing.simulator.ring.process import RingProcess
from hashring.testing.simulator.rules import Rule
from hashring.testing.simulator.virtual_time import NEVER
from hashring.testing.simulator.world import Fault, World

KEYS: Final = ring_keys("accounts")
SCORING: Final = Scoring.expiry(TTL)
ALGORITHM: Final = hash_algorithm("crc-32")


class RingWorld(World[RingProcess]):
    """A ring in virtual time; arguments as for :class:`hashring.testing.simulator.world.World`.

    Args:
        machine: makes a node's protocol; a test plants its faults here.
    """

    history: NodeHistory
    io_timeout = TTL / 3

    def __init__(
        self,
        history: NodeHistory,
        rules: Sequence[RingRule],
        faults: dict[str, Fault],
        machine: Callable[[NodeConfig, Random], NodeMachine] = machine_of,
        server: Callable[[Callable[[], float]], MemoryServer] = MemoryServer,
        *,
        story: bool = False,
    ) -> None:
        self.tampered_at = NEVER
        """When somebody last changed the ring's members without telling."""
        self.names_lost_at = NEVER
        """When somebody last deleted who has which name and which replicas."""
        self.taken_away: dict[bytes, float] = {}
        """When somebody last took a key's lock away by hand."""
        self._machine = machine
        self._locks: dict[bytes, tuple[int, str, float]] = {}
        self._locks_of = -1
        self._locks_end = NEVER
        self._members: dict[str, frozenset[bytes]] = {}
        self._members_of: frozenset[bytes] = frozenset()
        super().__init__(history, rules, faults, server, story=story)

    def make(self, spec: ProcessSpec) -> RingProcess:
        """A node's process."""
        config = NodeConfig(
            keys=KEYS,
            name=spec.name,
            named=spec.named,
            n_replicas=spec.points,
            ttl=TTL,
            heartbeat_interval=HEARTBEAT,
            io_timeout=self.io_timeout,
            scoring=SCORING,
            algorithm=ALGORITHM,
            placement=spec.placement,
            follow_foreign=False,
            told={},
            locks=self.history.lock_config(spec),
            follow=spec.follow,
        )
        rng = Random(f"{self.history.seed} node {spec.label}")
        return RingProcess(self, spec, self._machine(config, rng))

    @property
    def ring(self) -> Ring:
        """The ring as it is in Redis."""
        return Ring(read_members(self.server.scores(KEYS.ring))[0], ALGORITHM)

    @property
    def lock_terms(self) -> LockTerms:
        """How its nodes lock, in a history with locks."""
        assert self.history.locks is not None
        return self.history.locks

    def locks(self) -> dict[bytes, tuple[int, str, float]]:
        """The locks that stand in Redis now; several rules look at them after each command."""
        if self._locks_of != self.server.calls or self.redis_time() >= self._locks_end:
            self._locks_of, self._locks = self.server.calls, self.server.locks(KEYS)
            self._locks_end = min((end for _, _, end in self._locks.values()), default=math.inf)
        return self._locks

    def members(self) -> dict[str, frozenset[bytes]]:
        """The members that nodes have on the ring in Redis now, by the nodes' names."""
        members = self.server.scores(KEYS.ring)
        if members.keys() != self._members_of:
            found: dict[str, set[bytes]] = {}
            for member in members:
                if (replica := replica_of(member)) is not None:
                    found.setdefault(replica.node, set()).add(member)
            self._members = {name: frozenset(own) for name, own in found.items()}
            self._members_of = frozenset(members)
        return self._members

    def heal(self) -> None:
        """No fault that still waits for its occasion will happen."""
        super().heal()
        for process in self.processes.values():
            if process.user is not None:
                process.user.cancels.clear()

    def set_clock_back(self, seconds: float) -> None:
        """Somebody sets Redis' clock back."""
        self._locks_of = -1
        super().set_clock_back(seconds)

    def touched(self, *, lost: bool) -> None:
        """Somebody changed Redis' data behind everyone's back."""
        self._locks_of = -1
        super().touched(lost=lost)

    def node(self, label: str) -> str:
        """The name of a process' node, whether it runs or not; its label when it never does."""
        process, spec = self.processes.get(label), self._specs.get(label)
        name = spec.name if spec is not None else label
        return name if process is None else process.machine.name

    def order(self, command: Command[Any]) -> None:
        """Somebody gives an order about a node."""
        if self.now >= max(self.down_until, self.hang_until):
            self.server.run(command)
            for rule in self.rules:
                rule.ordered(self)

    def is_to_drain(self, process: RingProcess) -> bool:
        """Whether an order stands in Redis that the process is to obey."""
        machine = process.machine
        entry = self.server.hgetall(KEYS.ring, "orders").get(machine.name.encode())
        if entry is None:
            return False
        order = read_drains([machine.name.encode(), entry]).get(machine.name)
        if order is None or not order.stands(self.redis_time()):
            return False
        return order.session in ("", machine.session)

    def points(self, process: RingProcess) -> int:
        """How many points a process' node is to have: by an order that stands, or its own."""
        machine = process.machine
        name = machine.name.encode()
        entry = self.server.hgetall(KEYS.ring, "orders").get(name)
        order = None if entry is None else read_weights([name, entry]).get(machine.name)
        weight = process.weight
        if order is not None and order.session in ("", machine.session):
            weight = order.weight
        return points_of_weight(process.spec.points, weight)

    def listen(self, hear: Callable[[RingChange], None]) -> None:
        """Be told of every change of the ring, in the moment that Redis makes it."""

        def parse(payload: bytes) -> None:
            try:
                change = parse_change(payload)
            except MessageFormatError:
                return
            hear(change)

        self.server.listen(KEYS.channel, parse)

    def shown(self, process: RingProcess) -> None:
        """A process shows another view."""
        if self.story is not None:
            machine = process.machine
            tag = machine.sight.stamp.tag[:4] if machine.sight.stamp else "-"
            self.say(
                process,
                f"is {machine.state.value} at {tag}, {_seen(process.view)}, "
                f"owns {len(process.view.ranges)} ranges until {process.deadline:.3f}",
            )
        super().shown(process)

    def summary(self, reply: Any) -> str:
        """An answer of Redis' for the story."""
        if isinstance(reply, BeatReply):
            told = f"{reply.status.value} at {reply.stamp.epoch} {reply.stamp.tag[:4]}"
            told += f", {reply.stamp.members} members"
            return told + (f", swept {reply.swept}" if reply.swept else "")
        return super().summary(reply)


@lru_cache(maxsize=2**14)
def replica_of(member: bytes) -> Replica | None:
    """The replica that a member of the ring stands for; ``None`` for what is none."""
    try:
        return parse_replica(member)
    except ReplicaFormatError:
        return None


def _seen(view: View) -> str:
    return f"sees {', '.join(view.ring.nodes)}" if view.ring.node_count else "sees its own ranges"


RingRule = Rule[RingWorld, RingProcess]
