"""The ring's twin in memory: the same commands, the same answers, no Redis.

It is held to the same contract tests as the real server, so that tests of users, and the
simulator, can play histories on it that would take hours on a real one. It knows the scripts of
the ring and nothing else of Redis.
"""

from __future__ import annotations

import hashlib
import json
import math
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

from hashring.core.replica import parse_replica
from hashring.errors import ReplicaFormatError
from hashring.store.commands import SESSION_LENGTH, Command, holder_of, told_of
from hashring.store.executor import Notice, Subscribed, Subscription, Told, Unsubscribed
from hashring.store.group_memory import GroupCall, GroupData, TableCall
from hashring.store.keys import RingKeys
from hashring.store.stream_memory import Stream

T = TypeVar("T")

_FORGET_AFTER: Final = 86_400
_FORGET_ABOVE: Final = 256
_LAST_EPOCH: Final = 999_999_999_999

# The epoch key as the scripts write it; they go by the same form.
_EPOCH: Final = re.compile(rb"([0-9]{1,12}) ([0-9A-Fa-f]+)(?: ([0-9]+) ([0-9]+))?")

# The keys of a ring, and where the twin keeps what is in them.
_PARTS: Final = {
    "ring": ("members",),
    "epoch": ("epoch", "tag", "began", "till"),
    "nodes": ("nodes",),
    "events": ("events",),
    "left": ("left",),
    "full": ("full",),
}


@dataclass
class _LockState:
    token: int
    session: bytes
    node: bytes
    expires: float
    waiter: bytes = b""


@dataclass
class _RingState:
    members: dict[bytes, float] = field(default_factory=dict)
    epoch: int = 0
    tag: str = ""
    began: str = ""
    till: int = 0
    nodes: dict[bytes, bytes] = field(default_factory=dict)
    events: Stream = field(default_factory=Stream)
    left: dict[bytes, bytes] = field(default_factory=dict)
    full: set[bytes] = field(default_factory=set)


class MemoryServer:
    """A server in memory that any number of stores share.

    Args:
        clock: the server's time in seconds since 1970; the machine's clock unless given.
    """

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        self._rings: dict[bytes, _RingState] = {}
        # By their epoch keys, which is what scripts about locks know of a ring.
        self._ring_names: dict[bytes, bytes] = {}
        self._groups: dict[bytes, GroupData] = {}
        self._tables: dict[bytes, tuple[bytes, bytes]] = {}
        self._tokens: dict[bytes, int] = {}
        self._locks: dict[bytes, _LockState] = {}
        self._restored = 0
        self._listeners: dict[bytes, list[Callable[[bytes], None]]] = {}
        self.calls = 0

    def wipe(self) -> None:
        """Forget everything, as after FLUSHALL or a restart without persistence."""
        with self._lock:
            for data in self._data:
                data.clear()

    @property
    def _data(self) -> tuple[dict[bytes, Any], ...]:
        return self._rings, self._groups, self._tables, self._tokens, self._locks

    def zadd(self, ring: bytes, member: bytes, score: float) -> None:
        """Put a member into the ring's ZSET behind everyone's back: garbage, for tests."""
        with self._lock:
            self._ring(ring).members[member] = score

    def zrem(self, ring: bytes, member: bytes) -> None:
        """Take a member out of the ring's ZSET behind everyone's back."""
        with self._lock:
            self._ring(ring).members.pop(member, None)

    def set_epoch(self, ring: bytes, value: bytes) -> None:
        """Write a ring's epoch key behind everyone's back."""
        written = _EPOCH.fullmatch(value)
        with self._lock:
            state = self._ring(ring)
            state.epoch = int(written[1]) if written else 0
            state.tag = written[2].decode() if written else ""
            state.began = written[3].decode() if written and written[3] else ""
            state.till = int(written[4]) if written and written[4] else 0

    def hset(self, ring: bytes, node: str, entry: bytes, *, part: str = "nodes") -> None:
        """Write a node's field of one of the ring's hashes behind its back.

        Args:
            part: ``"nodes"``, what it tells of itself, or ``"left"``, where it was.
        """
        with self._lock:
            getattr(self._ring(ring), part)[node.encode()] = entry

    def hkeys(self, ring: bytes, part: str) -> list[bytes]:
        """The fields of one of the ring's hashes; see :meth:`hset`."""
        with self._lock:
            return list(getattr(self._ring(ring), part))

    def delete(self, ring: bytes, *parts: str) -> None:
        """Delete keys of a ring, by their names in :class:`hashring.store.keys.RingKeys`."""
        with self._lock:
            state, fresh = self._ring(ring), _RingState()
            for part in parts:
                for name in _PARTS[part]:
                    setattr(state, name, getattr(fresh, name))

    def drop(self, *names: bytes) -> None:
        """Delete locks and token counters behind everyone's back, by their names in Redis."""
        with self._lock:
            for name in names:
                self._locks.pop(name, None)
                self._tokens.pop(name, None)

    def copy(self) -> object:
        """All data as it is now, for :meth:`restore`."""
        with self._lock:
            return deepcopy(self._data)

    def restore(self, copy: object) -> None:
        """Go back to a copy: what a failover to a replica that lagged behind does."""
        with self._lock:
            self._restored += 1
            copies = deepcopy(cast("tuple[dict[bytes, Any], ...]", copy))
            for data, saved in zip(self._data, copies, strict=True):
                data.clear()
                data.update(saved)

    def members(self, ring: bytes) -> Mapping[bytes, float]:
        """The ring's ZSET as it is now: the members with their scores."""
        return self._ring(ring).members

    def tag(self, ring: bytes) -> str:
        """The tag of the ring's last change."""
        return self._ring(ring).tag

    def history(self, ring: bytes) -> str:
        """Names the ring's history: another one after the ring was lost."""
        return self._ring(ring).began

    def holder(self, ring: bytes, node: str) -> str:
        """The session that holds a node's name; empty when nobody does."""
        return holder_of(self._ring(ring).nodes.get(node.encode(), b""))

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

    def publish(self, channel: bytes, payload: bytes) -> None:
        """Send a message to all who listen."""
        with self._lock:
            for hear in list(self._listeners.get(channel, ())):
                hear(payload)

    def run(self, command: Command[T]) -> T:
        """Run a command, atomically."""
        with self._lock:
            self.calls += 1
            now = self._clock()
            name = command.keys[0]
            call: _Call | _LockCall | GroupCall | TableCall
            if command.script.name.startswith("group_"):
                control = command.keys[-1]
                data = self._groups.setdefault(control, GroupData())
                server = b"%x" % self._restored
                call = GroupCall(data, now, server, lambda tag: self.publish(control, tag))
            elif command.script.name.startswith("challenge_"):
                call = TableCall(self._tables, command.keys, now, self.publish)
            elif command.script.name.startswith("locks_"):
                call = _LockCall(self, self._of_epoch(command.keys[1]), command.keys, now)
            else:
                self._ring_names[command.keys[1]] = name
                call = _Call(self, self._ring(name), name, now, command.keys[6:])
            raw = getattr(call, command.script.name)(*command.arguments)
        return command.read(raw)

    def locks(self, ring: RingKeys) -> dict[bytes, tuple[int, str, float]]:
        """The locks of a ring that stand now: token, session and when they expire, by key."""
        with self._lock:
            now = self._clock()
            return {
                name[len(ring.locks) :]: (lock.token, lock.session.decode(), lock.expires)
                for name, lock in self._locks.items()
                if lock.expires > now and name.startswith(ring.locks)
            }

    def _lock_of(self, name: bytes) -> _LockState | None:
        """A lock that has not expired."""
        lock = self._locks.get(name)
        if lock is not None and lock.expires <= self._clock():
            del self._locks[name]
            return None
        return lock

    def _of_epoch(self, epoch: bytes) -> _RingState:
        """The ring that has this epoch key."""
        name = self._ring_names.get(epoch)
        return _RingState() if name is None else self._ring(name)

    def _ring(self, name: bytes) -> _RingState:
        return self._rings.setdefault(name, _RingState())


class _Call:
    """One run of a script: a method for each, with the script's ARGV."""

    def __init__(
        self,
        server: MemoryServer,
        ring: _RingState,
        name: bytes,
        now: float,
        more: tuple[bytes, ...],
    ) -> None:
        self._server = server
        self._ring = ring
        self._name = name
        self._now = now
        self._more = more

    # --- the scripts --------------------------------------------------------------------------

    def beat(  # noqa: PLR0917 - ARGV of the script, in its order
        self,
        node: str,
        session: str,
        flags: str,
        take_from: str,
        lead: float,
        lag: float,
        expect: str,
        told: str,
        history: int,
        known: str,
        lock_ttl: float,
        dropping: int,
        *members: bytes,
    ) -> list[Any]:
        ring, name = self._ring, node.encode()
        swept = self._sweep(self._now - lag, node, history)
        before = ring.tag
        joining = "j" in flags
        entry = ring.nodes.get(name)
        holder = holder_of(entry or b"")
        other = holder not in ("", session)
        status = "ok"
        if other and not joining:
            status = "superseded"
        elif other and holder != take_from:
            status = "taken"
        elif expect not in ("", f"={before}"):
            status = "moved"
        if status == "ok":
            dropped = [ring.members.pop(member, None) for member in members[:dropping]]
            own = members[dropping:]
            before_own = len(ring.members)
            for member in own:
                ring.members[member] = round(self._now + lead, 6)
            added = len(ring.members) - before_own
            lost = sum(score is not None for score in dropped)
            unserved = _unserved(told)
            before_unserved = _unserved(entry[SESSION_LENGTH:]) if entry else 0
            if (unserved > 0) != (before_unserved > 0):
                self._log({b"kind": b"unserved", b"by": name, b"keys": b"%d" % unserved}, history)
            ring.nodes[name] = session.encode() + told.encode()
            if added or lost or other or not before:
                reason = "return"
                if other:
                    reason = "restart"
                elif joining:
                    reason = "resize" if entry is not None else "start"
                self._announce(
                    {
                        "kind": "join",
                        "nodes": [node],
                        "points": [parse_replica(member).point for member in own],
                        "session": session,
                        "reason": reason,
                    },
                    added - lost,
                    node,
                    history,
                )
                ring.left.pop(name, None)
            full = "f" in flags
            if full != (name in ring.full):
                (ring.full.add if full else ring.full.discard)(name)
                kind = "full" if full else "room"
                self._announce({"kind": kind, "nodes": [node]}, 0, node, history)
            self._hold_off(known, lock_ttl)
        soonest = min(ring.members.values(), default=None)
        reply: list[Any] = [
            status.encode(),
            ring.epoch,
            ring.tag.encode(),
            before.encode(),
            len(ring.members),
            self._at(),
            b"" if soonest is None else b"%.6f" % (soonest + lag - self._now),
            swept,
            ring.began.encode(),
            b"%.6f" % (max(0, ring.till - int(self._at())) / 1e6),
        ]
        if "s" in flags:
            by_score = sorted(ring.members, key=lambda member: (ring.members[member], member))
            texts = [member.decode("utf-8", "surrogateescape") for member in by_score]
            written = json.dumps(texts, ensure_ascii=False)
            reply.append(written.encode("utf-8", "surrogateescape"))
            reply.append(sorted(ring.full))
        return reply

    def _hold_off(self, known: str, lock_ttl: float) -> None:
        """No lock may be taken for a while, if the node knew an earlier history."""
        ring = self._ring
        if known not in ("", ring.began) and ring.began and lock_ttl > 0:
            lost_at = int(ring.began if int(ring.began) > int(known) else self._at())
            ring.till = max(ring.till, lost_at + int(lock_ttl * 1e6))

    def leave(
        self, node: str, session: str, reason: str, by: str, history: int, *members: bytes
    ) -> list[Any]:
        ring, name = self._ring, node.encode()
        entry = ring.nodes.get(name)
        if session and holder_of(entry or b"") not in ("", session):
            return [b"superseded", 0]
        removed = sum(ring.members.pop(member, None) is not None for member in members)
        if members and told_of(entry or b"").get("named") is True:
            self._remember(name, [parse_replica(member).point for member in members])
        ring.nodes.pop(name, None)
        ring.full.discard(name)
        if not removed:
            return [b"absent", 0]
        self._announce({"kind": "leave", "nodes": [node], "reason": reason}, -removed, by, history)
        return [b"ok", removed]

    def sweep(self, lag: float, by: str, history: int) -> list[int]:
        ring = self._ring
        swept = self._sweep(self._now - lag, by, history)
        present = {_node_of(member) for member in ring.members}
        stray = [name for name in ring.nodes if name not in present]
        for name in stray:
            del ring.nodes[name]
        return [swept, len(stray)]

    def snapshot(self, remembered: str) -> list[Any]:
        ring = self._ring
        memory = ring.left.get(remembered.encode())
        members = sorted(ring.members, key=lambda member: (ring.members[member], member))
        return [
            ring.epoch,
            ring.tag.encode(),
            self._at(),
            [part for member in members for part in (member, b"%.6f" % ring.members[member])],
            [part for item in ring.nodes.items() for part in item],
            memory or b"",
        ]

    def take_away(self, token: str | int, by: str, history: int, key: bytes, channel: bytes) -> int:
        (name,) = self._more
        lock = self._server._lock_of(name)
        if lock is None or token not in ("", lock.token):
            return 0
        del self._server._locks[name]
        self._log({b"kind": b"release", b"by": by.encode(), b"keys": key}, history)
        if lock.waiter:
            self._server.publish(channel + lock.waiter, b"freed\n" + key)
        return 1

    # --- what the scripts share ---------------------------------------------------------------

    def _at(self) -> bytes:
        return b"%d" % round(self._now * 1e6)

    def _announce(self, body: dict[str, Any], growth: int, by: str, history: int) -> None:
        ring = self._ring
        prev = ring.tag
        ring.epoch = ring.epoch % _LAST_EPOCH + 1
        body |= {
            "v": 1,
            "epoch": ring.epoch,
            "prev": prev,
            "at": self._at().decode(),
            "members": len(ring.members),
            "was": len(ring.members) - growth,
        }
        digest = hashlib.sha1(prev.encode() + json.dumps(body).encode())
        ring.tag = body["tag"] = digest.hexdigest()[:16]
        ring.began = ring.began or self._at().decode()
        message = json.dumps(body).encode()
        self._server.publish(self._name, message)
        self._log(
            {
                b"kind": body["kind"].encode(),
                b"epoch": b"%d" % ring.epoch,
                b"by": by.encode(),
                b"data": message,
            },
            history,
        )

    def _log(self, fields: dict[bytes, bytes], history: int) -> None:
        self._ring.events.add(self._now, fields, history)

    def _remember(self, name: bytes, points: list[int]) -> None:
        left = self._ring.left
        left[name] = json.dumps({"points": points, "at": str(int(self._now))}).encode()
        if len(left) > _FORGET_ABOVE:
            oldest = int(self._now) - _FORGET_AFTER
            for old in [name for name, memory in left.items() if not _left_at(memory) >= oldest]:
                del left[old]

    def _sweep(self, horizon: float, by: str, history: int) -> int:
        ring = self._ring
        expired = sorted(
            (member for member, score in ring.members.items() if score < horizon),
            key=lambda member: (ring.members[member], member),
        )
        if not expired:
            return 0
        points: dict[bytes, list[int]] = {}
        since = None
        for member in expired:
            node = _node_of(member)
            if node is not None:
                points.setdefault(node, []).append(int(member.partition(b":")[0]))
                since = since or f"{ring.members[member]:.6f}"
            del ring.members[member]
        gone = []
        for node, own in points.items():
            told = told_of(ring.nodes.get(node, b""))
            anchor = told.get("anchor")
            if isinstance(anchor, str) and anchor.encode() in ring.members:
                continue
            gone.append(node)
            if told.get("named") is True:
                self._remember(node, own)
            ring.nodes.pop(node, None)
            ring.full.discard(node)
        body: dict[str, Any] = {"kind": "expire", "reason": "expired", "since": since}
        if gone:
            body["nodes"] = [node.decode() for node in gone]
        self._announce(body, -len(expired), by, history)
        return len(expired)


class _LockCall:
    """One run of a script about locks: a method for each, with the script's ARGV."""

    def __init__(
        self, server: MemoryServer, ring: _RingState, keys: tuple[bytes, ...], now: float
    ) -> None:
        self._server = server
        self._ring = ring
        self._counter, _, *self._names = keys
        self._now = now

    def locks_acquire(  # noqa: PLR0917 - ARGV of the script, in its order
        self,
        channel: bytes,
        prefix: int,
        node: str,
        session: str,
        ttl: int,
        room: int,
        awaited: int,
        kept: int,
        history: str,
    ) -> list[Any]:
        server, own = self._server, session.encode()
        held_off = self._held_off() if history == self._ring.began else -1
        last = server._tokens.get(self._counter, 0)
        first = max(last + 1, round(self._now * 1e6))
        token = first
        letters = bytearray()
        details: list[Any] = []
        others: list[tuple[int, bytes, _LockState]] = []
        expires = self._now + ttl / 1000

        def wait(number: int, name: bytes, lock: _LockState) -> None:
            letters[number] = ord("w")
            if lock.waiter != node.encode():
                lock.waiter = node.encode()
                self._tell(channel, lock.node, b"wanted:" + lock.waiter, name[prefix:])

        for number, name in enumerate(self._names):
            lock = server._lock_of(name)
            if lock is None and held_off:
                letters += b"h"
            elif lock is None and room > 0:
                room -= 1
                server._locks[name] = _LockState(token, own, node.encode(), expires)
                token += 1
                letters += b"n"
            elif lock is None or (lock.session == own and room <= 0):
                letters += b"f"
            elif lock.session == own:
                room -= 1
                lock.expires = expires
                letters += b"a"
                details.append(b"%d" % lock.token)
            else:
                letters += b"o"
                details += (lock.node, self._left(lock))
                if number < kept and room > 0:
                    room -= 1
                    wait(number, name, lock)
                elif number < awaited:
                    others.append((number, name, lock))
        if token > first:
            server._tokens[self._counter] = token - 1
        for other in others[: max(0, room)]:
            wait(*other)
        return [bytes(letters), first, details, held_off]

    def locks_renew(  # noqa: PLR0917 - ARGV of the script, in its order
        self,
        channel: bytes,
        prefix: int,
        session: str,
        node: str,
        history: str,
        put_back: str,
        ttl: int,
        tokens: str,
        *rest: int,
    ) -> list[Any]:
        server, own = self._server, session.encode()
        lasting = dict(zip(rest[::2], rest[1::2], strict=True))
        known = history == self._ring.began
        may_put_back = known and self._held_off() > 0
        lost_locks = set(map(int, put_back.split()))
        lost: list[int] = []
        wanted: list[Any] = []
        unknown: list[int] = []
        for number, (name, text) in enumerate(zip(self._names, tokens.split(), strict=True)):
            token, lock = int(text), server._lock_of(name)
            expires = self._now + lasting.get(number, ttl) / 1000
            if lock is not None and (lock.token, lock.session) == (token, own):
                lock.expires = expires
                if lock.waiter:
                    wanted += [number, lock.waiter]
            elif lock is None and may_put_back and number in lost_locks:
                server._locks[name] = _LockState(token, own, node.encode(), expires)
                last = server._tokens.get(self._counter, 0)
                server._tokens[self._counter] = max(last, token)
            else:
                (unknown if lock is None and not known else lost).append(number)
        return [lost, wanted, unknown]

    def locks_release(self, channel: bytes, prefix: int, session: str, *tokens: int) -> int:
        released = 0
        for name, token in zip(self._names, tokens, strict=True):
            lock = self._server._lock_of(name)
            if lock is not None and (lock.token, lock.session) == (token, session.encode()):
                del self._server._locks[name]
                released += 1
                if lock.waiter:
                    self._tell(channel, lock.waiter, b"freed", name[prefix:])
        return released

    def locks_look(self, channel: bytes, prefix: int) -> list[Any]:
        found = [self._server._lock_of(name) for name in self._names]
        return [
            [
                b"%d" % lock.token,
                lock.session,
                lock.node,
                lock.waiter,
                self._left(lock),
            ]
            if lock
            else []
            for lock in found
        ]

    def _held_off(self) -> int:
        """For how many milliseconds no lock may be taken."""
        return max(0, math.ceil((self._ring.till - round(self._now * 1e6)) / 1000))

    def _left(self, lock: _LockState) -> int:
        return int((lock.expires - self._now) * 1000)

    def _tell(self, channel: bytes, node: bytes, what: bytes, key: bytes) -> None:
        self._server.publish(channel + node, what + b"\n" + key)


class MemoryStore:
    """A store on a :class:`MemoryServer`.

    Args:
        server: the server; a private one unless given.
    """

    def __init__(self, server: MemoryServer | None = None) -> None:
        self.server = server or MemoryServer()

    def run(self, command: Command[T]) -> T:
        """Run a command; see :meth:`hashring.store.executor.Store.run`."""
        return self.server.run(command)

    def subscribe(self, *channels: bytes) -> Subscription:
        """Begin a subscription; see :meth:`hashring.store.executor.Store.subscribe`."""
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
        return lambda payload: self._notices.put(Told(channel, payload))

    def wait(self, timeout: float) -> Notice | None:
        try:
            return self._notices.get(timeout=timeout)
        except queue.Empty:
            return None

    def end(self) -> None:
        self._notices.put(Unsubscribed())

    def close(self) -> None:
        while self._ends:
            self._ends.pop()()


def _node_of(member: bytes) -> bytes | None:
    try:
        return parse_replica(member).node.encode()
    except ReplicaFormatError:
        return None


def _left_at(memory: bytes) -> float:
    """When a name's points were remembered; 0 for what was not written here."""
    try:
        return float(json.loads(memory)["at"])
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return 0.0


def _unserved(told: str | bytes) -> int:
    try:
        info = json.loads(told)
    except (ValueError, RecursionError):
        return 0
    count = info.get("unserved") if isinstance(info, dict) else None
    if isinstance(count, bool) or not isinstance(count, int | float):
        return 0
    return int(count) if 0 < count < 2**53 else 0
