"""The commands of Redis that the scripts call, on data in memory: a method for each.

A method knows the forms of its command that the scripts use, and no other. The contract tests hold
the scripts on these commands to what they do on real servers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from math import inf, nextafter
from typing import Any, Final, TypeVar

T = TypeVar("T")

Value = bytes | int | float
"""An argument, as Lua passes it."""

Elements = set[bytes]
"""A set of Redis."""

LISTS: Final = frozenset(
    {"hgetall", "hkeys", "smembers", "time", "zmscore", "zrange", "zrangebyscore"}
    | {"zrevrangebyscore"}
)
"""The commands whose answer is a list."""


@dataclass
class SortedSet:
    """Members by score, then by name.

    Attributes:
        scores: the members with their scores.
        ranked: scores and members, the lowest first.
    """

    scores: dict[bytes, float] = field(default_factory=dict)
    ranked: list[tuple[float, bytes]] = field(default_factory=list)

    def put(self, member: bytes, score: float) -> None:
        """Add a member, or give it another score."""
        if member in self.scores:
            self.remove(member)
        self.scores[member] = score
        entry = score, member
        # As a rule it is a lease that was renewed: it ends after all others.
        if self.ranked and entry < self.ranked[-1]:
            insort(self.ranked, entry)
        else:
            self.ranked.append(entry)

    def remove(self, member: bytes) -> bool:
        """Take a member away; whether it was there."""
        score = self.scores.pop(member, None)
        if score is None:
            return False
        del self.ranked[bisect_left(self.ranked, (score, member))]
        return True

    def between(self, lowest: Value, highest: Value) -> tuple[int, int]:
        """Where the members with such scores begin in ``ranked``, and where they end."""
        if not self.ranked:
            return 0, 0
        begin = bisect_left(self.ranked, (_above(lowest, b"("),))
        if highest == b"+inf":
            return begin, len(self.ranked)
        return begin, bisect_left(self.ranked, (_above(highest, b""),))


@dataclass
class Stream:
    """Entries, oldest first, under ids that only grow: milliseconds, then a count within them.

    As in Redis, an id is never given twice, not when older entries are gone, nor when the clock
    went back.
    """

    entries: list[tuple[bytes, dict[bytes, bytes]]] = field(default_factory=list)
    last: tuple[int, int] = (0, 0)


class Keyspace:
    """All data of a server in memory.

    Args:
        publish: sends a payload to a channel; to how many that listen.

    Attributes:
        now: the server's time, in seconds since 1970; set before each use.
        run: names the run of the server and the history of its data, as ``run_id`` and
            ``master_replid`` do in Redis.
    """

    def __init__(self, publish: Callable[[bytes, bytes], int]) -> None:
        self._values: dict[bytes, Any] = {}
        self._ends: dict[bytes, float] = {}
        self.publish = publish
        self.now = 0.0
        self.run = 0

    def read(self, key: bytes, kind: type[T]) -> T | None:
        """What is in a key; ``None`` when there is nothing."""
        if key in self._ends and self._ends[key] <= self.now:
            self.delete(key)
        value: T | None = self._values.get(key)
        return value

    def ending(self, prefix: bytes) -> list[tuple[bytes, Any, float]]:
        """The keys that end by themselves and begin like this, what is in them, and their ends."""
        now, values = self.now, self._values
        return [
            (key, values[key], end)
            for key, end in self._ends.items()
            if end > now and key.startswith(prefix)
        ]

    def delete(self, *keys: bytes) -> int:
        """Delete keys; how many there were."""
        for key in keys:
            self._ends.pop(key, None)
        return sum(self._values.pop(key, None) is not None for key in keys)

    def wipe(self) -> None:
        """Forget everything."""
        self._values.clear()
        self._ends.clear()

    def copy(self) -> object:
        """All data as it is now, for :meth:`restore`."""
        return deepcopy((self._values, self._ends))

    def restore(self, copy: Any, *, same_run: bool) -> None:
        """Go back to a copy, in another run of the server or in the same."""
        self._values, self._ends = deepcopy(copy)
        self.run += not same_run

    def _write(self, key: bytes, kind: Callable[[], T]) -> T:
        """What is in a key; made when there is nothing."""
        found = self.read(key, object)
        if found is None:
            found = self._values[key] = kind()
        return found  # type: ignore[return-value]

    def _drop_empty(self, key: bytes, value: Any) -> None:
        if not value:
            self.delete(key)

    def _end(self, key: bytes, seconds: float) -> int:
        if self.read(key, object) is None:
            return 0
        self._ends[key] = self.now + seconds
        return 1


# What stands for a key that is not there. Nothing is ever added to them.
_NO_FIELDS: Final[dict[bytes, bytes]] = {}
_NO_ELEMENTS: Final[Elements] = set()
_NO_MEMBERS: Final = SortedSet()


class Commands(Keyspace):
    """The commands, each under its name in Redis. ``False`` stands for nil."""

    # --- strings, and keys of any kind ------------------------------------------------------------

    def get(self, key: bytes) -> bytes | bool:
        value = self.read(key, bytes)
        return False if value is None else value

    def set(self, key: bytes, value: Value, *options: Value) -> bytes | bool:
        if b"NX" in options and self.read(key, object) is not None:
            return False
        if b"KEEPTTL" not in options:
            self._ends.pop(key, None)
        self._values[key] = _bytes(value)
        if b"PX" in options:
            self.pexpire(key, options[options.index(b"PX") + 1])
        return b"OK"

    def expire(self, key: bytes, seconds: Value) -> int:
        return self._end(key, int(seconds))

    def pexpire(self, key: bytes, milliseconds: Value) -> int:
        return self._end(key, int(milliseconds) / 1000)

    def pttl(self, key: bytes) -> int:
        if self.read(key, object) is None:
            return -2
        return int((self._ends[key] - self.now) * 1000) if key in self._ends else -1

    # --- hashes -----------------------------------------------------------------------------------

    def hget(self, key: bytes, name: bytes) -> bytes | bool:
        return self._hash(key).get(name, False)

    def hgetall(self, key: bytes) -> list[bytes]:
        return [part for item in self._hash(key).items() for part in item]

    def hkeys(self, key: bytes) -> list[bytes]:
        return list(self._hash(key))

    def hlen(self, key: bytes) -> int:
        return len(self._hash(key))

    def hset(self, key: bytes, *pairs: Value) -> int:
        written: dict[bytes, bytes] = self._write(key, dict)
        before = len(written)
        written.update(_pairs(pairs))
        return len(written) - before

    def hdel(self, key: bytes, *names: bytes) -> int:
        found = self._hash(key)
        removed = sum(found.pop(name, None) is not None for name in names)
        self._drop_empty(key, found)
        return removed

    def _hash(self, key: bytes) -> dict[bytes, bytes]:
        return self.read(key, dict) or _NO_FIELDS

    # --- sets -------------------------------------------------------------------------------------

    def scard(self, key: bytes) -> int:
        return len(self._set(key))

    def sismember(self, key: bytes, member: bytes) -> int:
        return int(member in self._set(key))

    def smembers(self, key: bytes) -> list[bytes]:
        # In an order that is the same in each process: a history is a function of its seed.
        return sorted(self._set(key))

    def sadd(self, key: bytes, member: bytes) -> int:
        members: Elements = self._write(key, set)
        before = len(members)
        members.add(member)
        return len(members) - before

    def srem(self, key: bytes, member: bytes) -> int:
        members = self._set(key)
        before = len(members)
        members.discard(member)
        self._drop_empty(key, members)
        return before - len(members)

    def _set(self, key: bytes) -> Elements:
        return self.read(key, set) or _NO_ELEMENTS

    # --- sorted sets ------------------------------------------------------------------------------

    def zadd(self, key: bytes, *arguments: Value) -> int:
        """``XX`` and ``CH``: only members that are there, and how many got another score."""
        only_renewed = arguments[:2] == (b"XX", b"CH")
        given = arguments[2 * only_renewed :]
        members = self._write(key, SortedSet)
        scores, added, changed = members.scores, 0, 0
        for i in range(0, len(given), 2):
            score, member = float(given[i]), _bytes(given[i + 1])
            before = scores.get(member)
            if before == score or (before is None and only_renewed):
                continue
            added += before is None
            changed += before is not None
            members.put(member, score)
        self._drop_empty(key, scores)
        return changed if only_renewed else added

    def zrem(self, key: bytes, *names: bytes) -> int:
        members = self._members(key)
        removed = sum(map(members.remove, names))
        self._drop_empty(key, members.scores)
        return removed

    def zcard(self, key: bytes) -> int:
        return len(self._members(key).scores)

    def zscore(self, key: bytes, member: bytes) -> bytes | bool:
        score = self._members(key).scores.get(member)
        return False if score is None else _decimal(score)

    def zmscore(self, key: bytes, *members: bytes) -> list[bytes | bool]:
        return [self.zscore(key, member) for member in members]

    def zcount(self, key: bytes, lowest: Value, highest: Value) -> int:
        begin, end = self._members(key).between(lowest, highest)
        return max(0, end - begin)

    def zrange(self, key: bytes, first: Value, last: Value, *options: Value) -> list[bytes]:
        ranked = self._members(key).ranked
        begin, end = int(first), int(last) + 1
        if begin < 0:
            begin = max(0, begin + len(ranked))
        if int(last) < 0:
            end = max(0, end + len(ranked))
        return _listed(ranked[begin:end], options)

    def zrangebyscore(
        self, key: bytes, lowest: Value, highest: Value, *options: Value
    ) -> list[bytes]:
        members = self._members(key)
        begin, end = members.between(lowest, highest)
        if b"LIMIT" in options:
            end = min(end, begin + int(options[-1]))
        return _listed(members.ranked[begin:end], options)

    def zrevrangebyscore(
        self, key: bytes, highest: Value, lowest: Value, *options: Value
    ) -> list[bytes]:
        members = self._members(key)
        begin, end = members.between(lowest, highest)
        if b"LIMIT" in options:
            begin = max(begin, end - int(options[-1]))
        return _listed(reversed(members.ranked[begin:end]), options)

    def _members(self, key: bytes) -> SortedSet:
        return self.read(key, SortedSet) or _NO_MEMBERS

    # --- streams ----------------------------------------------------------------------------------

    def xlen(self, key: bytes) -> int:
        found = self.read(key, Stream)
        return 0 if found is None else len(found.entries)

    def xadd(self, key: bytes, *arguments: Value) -> bytes:
        """``MAXLEN ~ n *``, then the fields: the newest ``n`` entries stay."""
        _, _, keep, _, *fields = arguments
        stream = self._write(key, Stream)
        milliseconds, count = stream.last
        at = round(self.now * 1e6) // 1000
        stream.last = (at, 0) if at > milliseconds else (milliseconds, count + 1)
        name = b"%d-%d" % stream.last
        stream.entries.append((name, _pairs(fields)))
        del stream.entries[: max(0, len(stream.entries) - int(keep))]
        return name

    # --- the server -------------------------------------------------------------------------------

    def time(self) -> list[bytes]:
        return [b"%d" % part for part in divmod(round(self.now * 1e6), 1_000_000)]

    def info(self, section: bytes) -> bytes:
        name = {b"server": b"run_id", b"replication": b"master_replid"}[section]
        return b"%s:%040x\r\n" % (name, self.run)


def _above(bound: Value, prefix: bytes) -> float:
    """The bound of a range; with this prefix, the first number above it."""
    exclusive = isinstance(bound, bytes) and bound.startswith(b"(")
    score = float(bound[1:] if exclusive else bound)  # type: ignore[index]
    return nextafter(score, inf) if exclusive == bool(prefix) else score


def _bytes(value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    return b"%d" % value if isinstance(value, int) else b"%.17g" % value


def _pairs(parts: Iterable[Value]) -> dict[bytes, bytes]:
    texts = map(_bytes, parts)
    return dict(zip(texts, texts, strict=True))


def _decimal(score: float) -> bytes:
    return b"%d" % score if score.is_integer() else repr(score).encode()


def _listed(entries: Iterable[tuple[float, bytes]], options: tuple[Value, ...]) -> list[bytes]:
    if b"WITHSCORES" in options:
        return [part for score, member in entries for part in (member, _decimal(score))]
    return [member for _, member in entries]
