"""Redis in memory: it runs the scripts that ship, without a server.

Users' tests and the simulator play histories on it that would take hours on a real server. The
contract tests hold it to what the real servers do. It knows the scripts, and no other command of
Redis.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from typing import Final, TypeVar

from hashring.store.command import Command
from hashring.store.interface import Subscription
from hashring.store.memory_commands import Commands, SortedSet, Stream
from hashring.store.memory_lua import lua, memory_lock
from hashring.store.memory_subscription import MemorySubscription
from hashring.store.ring.key_names import RingKeys, ring_keys
from hashring.store.ring.node_entries import holder_of

T = TypeVar("T")

_keys: Final = cache(ring_keys)
# The epoch key as the scripts write it: number, tag, and when the history began.
_EPOCH: Final = re.compile(rb"[0-9]+ ([0-9a-f]+)(?: ([0-9]+) [0-9]+)?")


class _Channels:
    """The channels of a server.

    The scripts publish on them by way of Lua, into which Python's collector does not see. So these
    do not refer to the server: it would never be freed.
    """

    def __init__(self) -> None:
        self._listeners: dict[bytes, list[Callable[[bytes], None]]] = {}

    def listen(self, channel: bytes, hear: Callable[[bytes], None]) -> Callable[[], None]:
        with memory_lock:
            self._listeners.setdefault(channel, []).append(hear)

        def end() -> None:
            with memory_lock:
                self._listeners[channel].remove(hear)

        return end

    def publish(self, channel: bytes, payload: bytes) -> int:
        with memory_lock:
            listeners = list(self._listeners.get(channel, ()))
            for hear in listeners:
                hear(payload)
            return len(listeners)


class MemoryServer:
    """A server in memory that any number of stores share.

    A forked child has a copy of it.

    Args:
        clock: the server's time in seconds since 1970; the machine's clock unless given.

    Raises:
        MissingDependencyError: lupa is not installed.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._channels = _Channels()
        self._data = Commands(self._channels.publish)
        with memory_lock:
            self._commands = lua().commands(self._data)
        self.calls = 0

    def wipe(self) -> None:
        """Forget everything, as after FLUSHALL or a restart without persistence."""
        with memory_lock:
            self._data.wipe()

    def zadd(self, ring: bytes, member: bytes, score: float, *, part: str = "ring") -> None:
        """Put a member into one of the ring's sorted sets behind everyone's back, for tests.

        Args:
            part: the name of a field of :class:`hashring.store.ring.key_names.RingKeys`: ``"ring"``
                for its replicas, or ``"drained"``, where a drained node's name is.
        """
        with memory_lock:
            self._data.zadd(_key(ring, part), score, member)

    def zrem(self, ring: bytes, member: bytes, *, part: str = "ring") -> None:
        """Take a member out of one of the ring's sorted sets; see :meth:`zadd`."""
        with memory_lock:
            self._data.zrem(_key(ring, part), member)

    def scores(self, ring: bytes, part: str = "ring") -> Mapping[bytes, float]:
        """The members of one of the ring's sorted sets, with their scores; see :meth:`zadd`."""
        members = self._data.read(_key(ring, part), SortedSet)
        return members.scores if members else {}

    def set_epoch(self, ring: bytes, value: bytes) -> None:
        """Write a ring's epoch key behind everyone's back."""
        with memory_lock:
            self._data.set(_key(ring, "epoch"), value)

    def hset(self, ring: bytes, node: str, entry: bytes, *, part: str = "nodes") -> None:
        """Write a node's field of one of the ring's hashes behind its back.

        Args:
            part: ``"nodes"``, what it reports, ``"left"``, where it was, ``"places"``, where it is,
                or ``"orders"``, what was ordered about it.
        """
        with memory_lock:
            self._data.hset(_key(ring, part), node.encode(), entry)

    def hgetall(self, ring: bytes, part: str) -> Mapping[bytes, bytes]:
        """One of the ring's hashes; see :meth:`hset`."""
        with memory_lock:
            self._data.now = self._clock()
            return self._data.read(_key(ring, part), dict) or {}

    def delete(self, ring: bytes, *parts: str) -> None:
        """Delete keys of a ring.

        Args:
            ring: its name.
            parts: names of fields of :class:`hashring.store.ring.key_names.RingKeys`.
        """
        self.drop(*(_key(ring, part) for part in parts))

    def drop(self, *names: bytes) -> None:
        """Delete keys behind everyone's back, by their names in Redis."""
        with memory_lock:
            self._data.delete(*names)

    def edit(self, name: bytes, field: bytes, edit: Callable[[bytes], bytes | None]) -> None:
        """Change a field of a hash behind everyone's back, by the hash's name in Redis.

        Args:
            edit: what stands there instead of what it is given; ``None`` for nothing. It is not
                asked if nothing stands there.
        """
        with memory_lock:
            self._data.now = self._clock()
            before = self._data.hget(name, field)
            if isinstance(before, bytes):
                after = edit(before)
                if after is None:
                    self._data.hdel(name, field)
                else:
                    self._data.hset(name, field, after)

    def copy(self) -> object:
        """All data as it is now, for :meth:`restore`."""
        with memory_lock:
            return self._data.copy()

    def restore(self, copy: object, *, same_run: bool = False) -> None:
        """Go back to a copy: what a failover to a replica that lagged behind does.

        Args:
            same_run: the server's ``run_id`` and ``master_replid`` stay: older keys were put back
                with ``RESTORE``, or a primary that was cut off during a failover, and was never a
                replica, is the primary again.
        """
        with memory_lock:
            self._data.restore(copy, same_run=same_run)

    def tag(self, ring: bytes) -> str:
        """The tag of the ring's last change."""
        return self._stamp(ring)[0]

    def history(self, ring: bytes) -> str:
        """Names the ring's history: another one after the ring was lost."""
        return self._stamp(ring)[1]

    def holder(self, ring: bytes, node: str) -> str:
        """The session that holds a node's name; empty when none does."""
        entries = self._data.read(_key(ring, "nodes"), dict)
        return holder_of(entries.get(node.encode(), b"")) if entries else ""

    def events(self, ring: bytes) -> list[tuple[bytes, dict[bytes, bytes]]]:
        """The history of a ring as raw stream entries, oldest first."""
        found = self._data.read(_key(ring, "events"), Stream)
        return list(found.entries) if found else []

    def listen(self, channel: bytes, hear: Callable[[bytes], None]) -> Callable[[], None]:
        """Call ``hear`` with each message on the channel; the answer ends it."""
        return self._channels.listen(channel, hear)

    def publish(self, channel: bytes, payload: bytes) -> int:
        """Send a message to all who listen; how many they are."""
        return self._channels.publish(channel, payload)

    def run(self, command: Command[T]) -> T:
        """Run a command, atomically."""
        with memory_lock:
            self.calls += 1
            self._data.now = self._clock()
            raw = lua().run(self._commands, command.script, command.keys, command.arguments)
        return command.read(raw)

    def locks(self, ring: RingKeys) -> dict[bytes, tuple[int, str, float]]:
        """The locks of a ring that stand now: token, session and when they expire, by key."""
        found = {}
        with memory_lock:
            self._data.now = self._clock()
            for name, value, expires in self._data.ending(ring.locks):
                token, session = _token_and_session(value)
                found[name.removeprefix(ring.locks)] = token, session, expires
        return found

    def _stamp(self, ring: bytes) -> tuple[str, str]:
        written = _EPOCH.fullmatch(self._data.read(_key(ring, "epoch"), bytes) or b"")
        return (written[1].decode(), (written[2] or b"").decode()) if written else ("", "")


def _key(ring: bytes, part: str) -> bytes:
    key: bytes = getattr(_keys(ring), part)
    return key


@lru_cache(maxsize=2**14)
def _token_and_session(lock: bytes) -> tuple[int, str]:
    token, session, _ = lock.split(b" ", 2)
    return int(token), session.decode()


class MemoryStore:
    """A store on a :class:`MemoryServer`.

    Args:
        server: the server; a private one unless given.

    Raises:
        MissingDependencyError: lupa is not installed.
    """

    def __init__(self, server: MemoryServer | None = None) -> None:
        self.server = server or MemoryServer()

    def run(self, command: Command[T]) -> T:
        """Run a command; see :meth:`hashring.store.interface.Store.run`."""
        return self.server.run(command)

    def subscribe(self, *channels: bytes) -> Subscription:
        """Begin a subscription; see :meth:`hashring.store.interface.Store.subscribe`."""
        return MemorySubscription(self.server.listen, channels)

    def close(self) -> None:
        """Nothing to close."""
