"""The twin of Redis in memory: the same commands, the same answers, no server.

The contract tests hold it to what the real servers do. Users' tests and the simulator play
histories on it that would take hours on a real server. It knows the scripts, and no other command
of Redis.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Final, TypeVar

from hashring.store.command import Command
from hashring.store.group.twin import GroupTwin
from hashring.store.interface import (
    Answered,
    Message,
    Notice,
    Subscribed,
    Subscription,
    Unsubscribed,
)
from hashring.store.lease_challenge.twin import ChallengeTwin
from hashring.store.locks.twin import LocksData, LocksTwin
from hashring.store.ring.key_names import RingKeys, ring_keys
from hashring.store.ring.node_entries import holder_of
from hashring.store.ring.twin import RingData, RingTwin
from hashring.store.ring.twin_point_index import Index
from hashring.store.twin_keyspace import Keyspace, Twin

T = TypeVar("T")

# The twins of the scripts, by protocol; each has a method for each action.
TWINS: Final[dict[str, type[Twin]]] = {
    "ring": RingTwin,
    "locks": LocksTwin,
    "group": GroupTwin,
    "lease_challenge": ChallengeTwin,
}


@cache
def _epoch_key(ring: bytes) -> bytes:
    return ring_keys(ring).epoch


class MemoryServer:
    """A server in memory that any number of stores share.

    Args:
        clock: the server's time in seconds since 1970; the machine's clock unless given.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._keyspace = Keyspace()
        self._listeners: dict[bytes, list[Callable[[bytes], None]]] = {}
        self.calls = 0

    def wipe(self) -> None:
        """Forget everything, as after FLUSHALL or a restart without persistence."""
        with self._lock:
            self._keyspace.wipe()

    def zadd(self, ring: bytes, member: bytes, score: float, *, part: str = "members") -> None:
        """Put a member into the ring's ZSET behind everyone's back: garbage, for tests.

        Args:
            part: ``"members"``, or ``"drained"``, where a drained node's name is.
        """
        with self._lock:
            getattr(self._ring(ring), part)[member] = score

    def zrem(self, ring: bytes, member: bytes) -> None:
        """Take a member out of the ring's ZSET behind everyone's back."""
        with self._lock:
            self._ring(ring).members.pop(member, None)

    def set_epoch(self, ring: bytes, value: bytes) -> None:
        """Write a ring's epoch key behind everyone's back."""
        with self._lock:
            self._ring(ring).set_epoch(value)

    def hset(self, ring: bytes, node: str, entry: bytes, *, part: str = "nodes") -> None:
        """Write a node's field of one of the ring's hashes behind its back.

        Args:
            part: ``"nodes"``, what it reports, ``"left"``, where it was, ``"places"``, where it is,
                or ``"orders"``, what was ordered about it.
        """
        with self._lock:
            getattr(self._ring(ring), part)[node.encode()] = entry

    def hkeys(self, ring: bytes, part: str) -> list[bytes]:
        """The fields of one of the ring's hashes; see :meth:`hset`."""
        with self._lock:
            return list(getattr(self._ring(ring), part))

    def hgetall(self, ring: bytes, part: str) -> dict[bytes, bytes]:
        """One of the ring's hashes; see :meth:`hset`."""
        with self._lock:
            return dict(getattr(self._ring(ring), part))

    def delete(self, ring: bytes, *parts: str) -> None:
        """Delete keys of a ring.

        Args:
            ring: its name.
            parts: names of fields of :class:`hashring.store.ring.key_names.RingKeys`.
        """
        with self._lock:
            for part in parts:
                self._ring(ring).delete(part)

    def drop(self, *names: bytes) -> None:
        """Delete locks and token counters behind everyone's back, by their names in Redis."""
        with self._lock:
            held = self._keyspace.of(LocksData)
            for name in names:
                held.locks.pop(name, None)
                held.tokens.pop(name, None)

    def copy(self) -> object:
        """All data as it is now, for :meth:`restore`."""
        with self._lock:
            return self._keyspace.copy()

    def restore(self, copy: object, *, same_run: bool = False) -> None:
        """Go back to a copy: what a failover to a replica that lagged behind does.

        Args:
            same_run: the server's ``run_id`` stays: older keys were put back with ``RESTORE``, or
                a primary that was cut off during a failover is the primary again.
        """
        with self._lock:
            self._keyspace.restore(copy, same_run=same_run)

    def members(self, ring: bytes) -> Mapping[bytes, float]:
        """The ring's ZSET as it is now: the members with their scores."""
        return self._ring(ring).members

    def index(self, ring: bytes) -> Index:
        """The ring's members by their points."""
        return self._ring(ring).index

    def tag(self, ring: bytes) -> str:
        """The tag of the ring's last change."""
        return self._ring(ring).tag

    def history(self, ring: bytes) -> str:
        """Names the ring's history: another one after the ring was lost."""
        return self._ring(ring).began

    def holder(self, ring: bytes, node: str) -> str:
        """The session that holds a node's name; empty when none does."""
        return holder_of(self._ring(ring).nodes.get(node.encode(), b""))

    def orders(self, ring: bytes) -> Mapping[bytes, bytes]:
        """What was ordered about the ring's nodes, as JSON."""
        return self._ring(ring).orders

    def drained(self, ring: bytes) -> Mapping[bytes, float]:
        """The nodes that obey an order to drain, and when they expire."""
        return self._ring(ring).drained

    def events(self, ring: bytes) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """The history of a ring as raw stream entries, oldest first."""
        with self._lock:
            return list(self._ring(ring).events.entries)

    def listen(self, channel: bytes, hear: Callable[[bytes], None]) -> Callable[[], None]:
        """Call ``hear`` with each message on the channel; the answer ends it."""
        with self._lock:
            self._listeners.setdefault(channel, []).append(hear)

        def end() -> None:
            with self._lock:
                self._listeners[channel].remove(hear)

        return end

    def publish(self, channel: bytes, payload: bytes) -> int:
        """Send a message to all who listen; how many they are."""
        with self._lock:
            listeners = list(self._listeners.get(channel, ()))
            for hear in listeners:
                hear(payload)
            return len(listeners)

    def run(self, command: Command[T]) -> T:
        """Run a command, atomically."""
        with self._lock:
            self.calls += 1
            script, now = command.script, self._clock()
            twin = TWINS[script.protocol](self._keyspace, command.keys, now, self.publish)
            raw = getattr(twin, script.action)(*command.arguments)
        return command.read(raw)

    def locks(self, ring: RingKeys) -> dict[bytes, tuple[int, str, float]]:
        """The locks of a ring that stand now: token, session and when they expire, by key."""
        with self._lock:
            now = self._clock()
            return {
                name[len(ring.locks) :]: (lock.token, lock.session.decode(), lock.expires)
                for name, lock in self._keyspace.of(LocksData).locks.items()
                if lock.expires > now and name.startswith(ring.locks)
            }

    def _ring(self, name: bytes) -> RingData:
        return self._keyspace.of(RingData, _epoch_key(name))


class MemoryStore:
    """A store on a :class:`MemoryServer`.

    Args:
        server: the server; a private one unless given.
    """

    def __init__(self, server: MemoryServer | None = None) -> None:
        self.server = server or MemoryServer()

    def run(self, command: Command[T]) -> T:
        """Run a command; see :meth:`hashring.store.interface.Store.run`."""
        return self.server.run(command)

    def subscribe(self, *channels: bytes) -> Subscription:
        """Begin a subscription; see :meth:`hashring.store.interface.Store.subscribe`."""
        return _MemorySubscription(self.server, channels)

    def close(self) -> None:
        """Nothing to close."""


class _MemorySubscription:
    def __init__(self, server: MemoryServer, channels: tuple[bytes, ...]) -> None:
        self._notices: queue.SimpleQueue[Notice] = queue.SimpleQueue()
        self._ends = [server.listen(channel, self._hear(channel)) for channel in channels]
        for _ in channels:
            self._notices.put(Subscribed())

    def _hear(self, channel: bytes) -> Callable[[bytes], None]:
        return lambda payload: self._notices.put(Message(channel, payload))

    def wait(self, timeout: float) -> Notice | None:
        try:
            return self._notices.get(timeout=timeout)
        except queue.Empty:
            return None

    def ask(self) -> None:
        self._notices.put(Answered())

    def end(self) -> None:
        self._notices.put(Unsubscribed())

    def close(self) -> None:
        while self._ends:
            self._ends.pop()()
