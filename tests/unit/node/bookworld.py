"""Lock books of several nodes around a Redis in memory, in time that stands still.

Nothing happens but what a test does: each ask, call, answer and message is made by hand, and may
be lost. A key's name tells its point: node ``a`` owns ``a0``, ``a1``, ... as long as it is on
the ring.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

from hashring.core.ranges import bounds_of
from hashring.core.replica import Replica
from hashring.core.ring import Ring
from hashring.errors import RedisUnavailable, StoreError
from hashring.protocol.locks.calls_under_way import AskedKey, Take
from hashring.protocol.locks.key_lease import KeyLease, LeaseHolder
from hashring.protocol.locks.lock_book import LockBook
from hashring.protocol.locks.lock_config import LockConfig
from hashring.protocol.locks.verdicts import Verdict
from hashring.protocol.machine_steps import Run
from hashring.store.command import Command
from hashring.store.locks.commands import LockNews, parse_lock_news
from hashring.store.memory_store import MemoryServer
from hashring.store.ring.commands import Scoring, beat
from hashring.store.ring.key_names import ring_keys

KEYS = ring_keys("accounts")
SPAN = 1000
NODES = "abcdefgh"
RETRY = 0.5
START = 1_700_000_000.0


def point(key: bytes) -> int:
    return NODES.index(chr(key[0])) * SPAN + int(key[1:])


def keys_of(node: str, count: int) -> list[bytes]:
    return [f"{node}{number}".encode() for number in range(count)]


class World:
    """One Redis, and nodes on one ring."""

    def __init__(self, *names: str) -> None:
        self.now = 100.0
        self.server = MemoryServer(lambda: START + self.now)
        self.ring = Ring({name: [NODES.index(name) * SPAN] for name in names})
        self.full: set[str] = set()
        self.nodes: dict[str, Node] = {}
        self.commands: list[str] = []

    def node(self, name: str, **options: Any) -> Node:
        node = self.nodes[name] = Node(self, name, **options)
        node.see()
        return node

    def set_ring(self, *names: str, tell: Iterable[str] = NODES) -> None:
        """Change the ring, and let these nodes know."""
        self.ring = Ring({name: [NODES.index(name) * SPAN] for name in names})
        self.full &= set(names)
        for node in self.nodes.values():
            if node.name in tell:
                node.see()

    def locks(self) -> dict[bytes, str]:
        """The holder of each lock that stands."""
        sessions = {node.session: node.name for node in self.nodes.values()}
        return {
            key: sessions.get(session, "?")
            for key, (_, session, _) in self.server.locks(KEYS).items()
        }

    def token(self, key: bytes) -> int:
        return self.server.locks(KEYS)[key][0]

    def lock_ttl(self, key: bytes) -> float:
        return self.server.locks(KEYS)[key][2] - START - self.now

    def calls(self, kind: str = "") -> int:
        """How many calls about locks reached Redis."""
        return sum(kind in name for name in self.commands)


class Node:
    """One node's book, and the runner around it."""

    sessions = 0

    def __init__(
        self,
        world: World,
        name: str,
        *,
        locking: bool = True,
        limit: int | None = None,
        ttl: float = 60.0,
        idle: float = 60.0,
        max_handoff_time: float = 60.0,
    ) -> None:
        self.world = world
        self.name = name
        config = LockConfig(locking, limit, ttl, idle, max_handoff_time)
        self.book = LockBook(KEYS, config, RETRY)
        self.until = float("inf")
        self.bounds: tuple[int, ...] = ()
        self.history = ""
        """The history of the ring that the last :meth:`beat` found."""
        self.inbox: list[LockNews | None] = []
        self.silent = False
        """Whether this node's messages are lost."""
        self.holders: list[LeaseHolder] = []
        self._end: Callable[[], None] | None = None
        self.begin()

    def begin(self) -> None:
        Node.sessions += 1
        self.session = f"{Node.sessions:016x}"
        self.book.begin(self.name, self.session)
        if self._end is None:
            channel = KEYS.node_channel(self.name)
            self._end = self.world.server.listen(channel, self._hear)

    def _hear(self, payload: bytes) -> None:
        if not self.silent:
            self.inbox.append(parse_lock_news(payload))

    def see(self) -> None:
        """Learn the ring as it is now; what the machine's view does."""
        world = self.world
        ranges = world.ring.node_ranges(self.name) if self.name in world.ring else ()
        own = bounds = bounds_of(ranges)
        others = world.full - {self.name}
        if others and self.book.config.locking and ranges:
            bounds = bounds_of(world.ring.without_nodes(*others).node_ranges(self.name))
        self.bounds = bounds
        self.book.see(world.ring, bounds, own, world.now)

    # --- the user -------------------------------------------------------------------------------

    def ask(self, key: bytes) -> Verdict:
        return self.book.ask(key, point(key), self.bounds, self.until, self.world.now)

    def take(self, *keys: bytes) -> Take | None:
        """Begin to take; the answer is for :meth:`arrive`, :meth:`cut` and the like."""
        asked = [(key, point(key), number) for number, key in enumerate(keys)]
        return self.book.take(asked, self.world.now)

    def run(self, command: Command[Any]) -> Any:
        """The call reaches Redis."""
        self.world.commands.append(command.script.name)
        return self.world.server.run(command)

    def arrive(self, take: Take | None) -> None:
        """The call is made, and its answer arrives."""
        if take is not None:
            now = self.world.now
            self.book.acquired(take, self.run(take.command), now, now)

    def fail(self, take: Take | None, *, reached: bool, refusal: StoreError | None = None) -> None:
        """The call fails; it may have been done all the same."""
        assert take is not None
        if reached:
            self.run(take.command)
        self.book.acquire_failed(take, self.world.now, refusal)

    def interrupt(self, take: Take | None, *, reached: bool) -> None:
        """The caller is cancelled; the call may have been done all the same."""
        assert take is not None
        if reached:
            self.run(take.command)
        self.book.interrupted(take, self.world.now)

    def contains(self, key: bytes) -> bool:
        verdict = self.ask(key)
        if verdict is Verdict.TAKE:
            self.arrive(self.take(key))
            verdict = self.ask(key) if key in self.book.held else Verdict.NO
        return verdict is Verdict.YES

    def select(self, keys: Iterable[bytes]) -> list[bytes]:
        asked = [(key, point(key), number) for number, key in enumerate(keys)]
        _, wanted = self.ask_many(asked)
        self.arrive(self.book.take(wanted, self.world.now))
        return [key for key, _, _ in self.ask_many(a for a in asked if a[0] in self.book.held)[0]]

    def ask_many(self, asked: Iterable[AskedKey]) -> tuple[list[AskedKey], list[AskedKey]]:
        return self.book.ask_many(asked, self.bounds, self.until, self.world.now)

    def pin(self, key: bytes) -> KeyLease:
        assert self.contains(key)
        lease = self.book.pin(key, lambda: self.world.now, threading.Event, self._holder())
        assert lease is not None
        return lease

    def pin_again(self, key: bytes) -> KeyLease | None:
        return self.book.pin_again(key, self.world.now, self._holder())

    def _holder(self) -> LeaseHolder:
        holder = LeaseHolder()
        self.holders.append(holder)
        return holder

    def unpin(self, lease: KeyLease) -> bool:
        """One of those that hold the lease leaves it."""
        holder = next(each for each in self.holders if each.lease is lease)
        self.holders.remove(holder)
        return self.book.unpin(holder, self.world.now)

    @property
    def held(self) -> set[bytes]:
        return set(self.book.held)

    # --- the loop -------------------------------------------------------------------------------

    def heartbeat(self, *, renewed: bool = True) -> None:
        """A heartbeat that is answered, and by default all that follows from it."""
        self.until = self.until if self.until == float("inf") else self.world.now + 60.0
        self.book.heartbeat(self.world.full >= set(self.world.ring.nodes), self.world.now)
        if renewed:
            self.loop()

    def beat(self) -> float:
        """A heartbeat that finds the history of the ring in Redis, as a node's that locks keys.

        The ring of Redis has one node, which stands for all of them.

        Returns:
            For how long no lock may be taken, in seconds.
        """
        command = beat(
            KEYS,
            node="all",
            session="f" * 16,
            replicas=[Replica(0, "all", "0")],
            scoring=Scoring.expiry(60.0),
            told={},
            joining=True,
            history=self.history,
            lock_ttl=self.book.config.ttl,
            locking=True,
        )
        reply = self.world.server.run(command)
        self.history = reply.history
        self.book.heartbeat(False, self.world.now, reply.history, reply.held_off)
        return reply.held_off

    def deliver(self) -> None:
        """Hear the messages."""
        inbox, self.inbox = self.inbox, []
        for news in inbox:
            assert news is not None
            self.book.news(news, self.world.now)

    def step(self) -> Run | None:
        return self.book.step(self.world.now)

    def loop(self) -> list[str]:
        """Hear, do all that is due, and tell the ring whether the node is full; what was done."""
        self.deliver()
        done = []
        while (step := self.step()) is not None:
            done.append(step.command.script.name)
            step.done(self.run(step.command), self.world.now, self.world.now)
        self.announce()
        return done

    def announce(self) -> None:
        world = self.world
        if self.book.limit.full != (self.name in world.full) and self.name in world.ring:
            (world.full.add if self.book.limit.full else world.full.discard)(self.name)
            for node in world.nodes.values():
                node.see()

    def lose(self, *, reached: bool) -> str:
        """One step of the loop whose answer is lost; what it was."""
        step = self.step()
        assert step is not None
        if reached:
            self.run(step.command)
        step.failed(RedisUnavailable("lost"), self.world.now)
        return step.command.script.name
