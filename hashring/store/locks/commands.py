"""What can be asked of the locks on keys, and what it answers.

All are atomic for all the locks of one call. Callers keep calls to a few thousand locks, so that
no call holds up Redis for long: see :data:`LOCKS_A_CALL`, :data:`RENEWED_A_CALL`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil
from typing import Any, Final

from hashring.errors import KeyValueError
from hashring.store.command import Argument, Command, pairs, text
from hashring.store.lua_scripts import script
from hashring.store.ring.key_names import RingKeys
from hashring.store.ring.ring_events import EVENTS_KEPT

LOCKS_A_CALL: Final = 2000
"""How many locks one call takes, releases or looks at."""

RENEWED_A_CALL: Final = 20_000
"""How many locks one call renews: Redis does nothing else for as long as it takes."""

MAX_LOCKED_KEY_BYTES: Final = 4096
"""A lock's name holds the key, and Redis keeps it in memory: longer keys cannot be locked."""


def check_locked_key(key: bytes) -> bytes:
    """The key itself, when it can be locked.

    Raises:
        KeyValueError: it is too long.
    """
    if len(key) > MAX_LOCKED_KEY_BYTES:
        raise KeyValueError(
            key[:32],
            f"begins a key of {len(key)} bytes; a key that is locked has at most "
            f"{MAX_LOCKED_KEY_BYTES}: lock a digest of it instead",
        )
    return key


@dataclass(frozen=True)
class HeldByOther:
    """The lock is another session's.

    Attributes:
        holder: the node that holds it.
        expires_in: seconds until it expires unless renewed.
        awaited: whether this node waits for it: it gets a message when the lock is freed.
    """

    holder: str
    expires_in: float
    awaited: bool = False


@dataclass(frozen=True)
class HeldBefore:
    """The lock was this session's before the call.

    An earlier call took it, and its answer was lost; or a failover brought back a lock that was let
    go of, and others may have had greater tokens since.

    Attributes:
        token: its fencing token, which need not be the greatest.
    """

    token: int


@dataclass(frozen=True)
class HeldOff:
    """The lock is free, and may not be taken now: Redis lost the locks of the ring.

    Attributes:
        seconds: for how long no lock may be taken; ``None`` when Redis has another history than
            the one that the node knows: the reply to its next heartbeat has the time.
    """

    seconds: float | None


AcquireAnswer = int | HeldBefore | HeldByOther | HeldOff | None
"""The fencing token of a lock that is this session's now; that it was so before; who else has it;
that nobody may take it now; or ``None`` when as many as allowed had been taken, or the session has
ended, and it is free, or this session's since an earlier call."""


def _head(keys: RingKeys) -> tuple[Argument, Argument]:
    return keys.node_channel(""), len(keys.locks)


def _lock_keys(keys: RingKeys, locked: Iterable[bytes]) -> tuple[bytes, ...]:
    prefix = keys.locks
    return (keys.token, keys.epoch, keys.lock_server, *[prefix + key for key in locked])


def acquire(
    keys: RingKeys,
    *,
    node: str,
    session: str,
    ttl: float,
    locked: Sequence[bytes],
    most: int,
    awaited: int,
    kept: int = 0,
    history: str = "",
) -> Command[list[AcquireAnswer]]:
    """Take those of the locks that are free, and wait for others: see ``acquire.lua``.

    If the session has ended, it takes none and waits for none: a call that was long on its way.

    Args:
        ttl: seconds after which a lock expires unless renewed.
        locked: the keys, at most :data:`LOCKS_A_CALL` of them.
        most: how many to take and wait for at most; the first free ones are taken.
        awaited: how many of the keys, the first ones, to wait for when another has them.
        kept: how many of those, the first ones, the node waits for already.
        history: the history of the ring that the node knows: in another none is taken.
    """
    arguments = (*_head(keys), node, session, _milliseconds(ttl), most, awaited, kept, history)
    names = (*_lock_keys(keys, locked), keys.ended)
    return Command(script("locks", "acquire"), names, arguments, _answers)


def _answers(raw: Any) -> list[AcquireAnswer]:
    letters, first, details, left = raw
    # The rule: every lock was free, and is taken.
    if letters.count(b"n") == len(letters):
        return list(range(first, first + len(letters)))
    new, more = count(first), iter(details)
    held_off = HeldOff(left / 1000 if left >= 0 else None)
    return [_answer(letter, new, more, held_off) for letter in letters]


def _answer(
    letter: int, new: Iterator[int], details: Iterator[Any], held_off: HeldOff
) -> AcquireAnswer:
    match chr(letter):
        case "n":
            return next(new)
        case "a":
            return HeldBefore(int(next(details)))
        case "o" | "w" as which:
            return HeldByOther(text(next(details)), max(0, next(details)) / 1000, which == "w")
        case "h":
            return held_off
        case _:
            return None


@dataclass(frozen=True)
class Renewed:
    """How a renewal went, by the locks' numbers in the call.

    Attributes:
        lost: those that are not this session's any more.
        wanted: those that another node waits for, with its name.
        unknown: those that are not there, in another history than the one that the node knows. A
            heartbeat shows that Redis lost the ring; the next renewal puts them back.
    """

    lost: tuple[int, ...]
    wanted: dict[int, str]
    unknown: tuple[int, ...] = ()


def renew(
    keys: RingKeys,
    *,
    session: str,
    ttl: float,
    locked: Sequence[tuple[bytes, int]],
    lasting: Mapping[int, float],
    node: str = "",
    history: str = "",
    put_back: Iterable[int] = (),
) -> Command[Renewed]:
    """Renew locks, and take none that has expired; put back those that Redis lost.

    Args:
        ttl: seconds that each lock shall last from now.
        locked: for each lock its key and its token.
        lasting: the same seconds for the locks, by their numbers, that differ.
        node: the session's node.
        history: the history of the ring that the node knows.
        put_back: the numbers of those locks that may be put back if Redis lost them: they are the
            node's by its own clock, and were not renewed since it read this history.
    """

    def read(raw: Any) -> Renewed:
        lost, wanted, unknown = raw
        return Renewed(
            tuple(int(number) for number in lost),
            {int(number): text(node) for number, node in pairs(wanted)},
            tuple(int(number) for number in unknown),
        )

    # One text of all tokens: an argument each would cost the client more than all the rest.
    tokens = " ".join(str(token) for _, token in locked)
    lost = " ".join(map(str, put_back))
    arguments: list[Argument] = [*_head(keys), session, node, history, lost]
    arguments += (_milliseconds(ttl), tokens)
    for number, seconds in lasting.items():
        arguments += (number, _milliseconds(seconds))
    names = _lock_keys(keys, (key for key, _ in locked))
    return Command(script("locks", "renew"), names, tuple(arguments), read)


def release(keys: RingKeys, *, session: str, locked: Sequence[tuple[bytes, int]]) -> Command[int]:
    """Let go of locks that a session still holds; how many they were.

    Args:
        locked: each key with its token, at most :data:`LOCKS_A_CALL` of them.
    """
    arguments = (*_head(keys), session, *(token for _, token in locked))
    names = _lock_keys(keys, (key for key, _ in locked))
    return Command(script("locks", "release"), names, arguments, int)


def take_away(
    keys: RingKeys,
    *,
    key: bytes,
    by: str,
    token: int | None = None,
) -> Command[bool]:
    """Take a lock away from its holder; whether it was. For people, not for nodes.

    The history records it. A live holder loses the lease at its next heartbeat.

    Args:
        key: the key.
        by: who takes it away.
        token: the token that was seen, which spares a lock taken since; 0 for an entry that no
            node wrote; ``None`` for any entry.
    """
    arguments = (
        "" if token is None else token,
        by,
        EVENTS_KEPT,
        key,
        keys.node_channel(""),
    )
    names = (*keys.script_keys(), keys.lock(key))
    return Command(script("locks", "take_away"), names, arguments, lambda raw: int(raw) == 1)


@dataclass(frozen=True)
class Lock:
    """A lock as it stands in Redis.

    Attributes:
        key: the key.
        token: the fencing token of the holder; 0 when no node wrote what stands there.
        session, node: who holds it.
        waiter: the node that waits for it; empty when none does.
        expires_in: seconds until it expires unless renewed; 0 also for what never does.
        in_history: whether Redis has the history of the ring that the question named, so that it
            did not restart, nor another server take over, since it began.
    """

    key: bytes
    token: int
    session: str
    node: str
    waiter: str
    expires_in: float
    in_history: bool = False

    @property
    def taken_at(self) -> float:
        """Redis time when it was taken, in seconds since 1970; tokens follow that clock."""
        return self.token / 1e6


def look(
    keys: RingKeys, *, locked: Sequence[bytes], history: str | None = None
) -> Command[dict[bytes, Lock]]:
    """The holders of these locks; free locks are left out. Writes nothing.

    Args:
        locked: the keys, at most :data:`LOCKS_A_CALL` of them.
        history: the history of the ring that the node knows, to be told whether it lasts.
    """

    def read(raw: Any) -> dict[bytes, Lock]:
        return {
            key: Lock(
                key,
                int(answer[0]),
                text(answer[1]),
                text(answer[2]),
                text(answer[3]),
                max(0, int(answer[4])) / 1000,
                int(answer[5]) == 1,
            )
            for key, answer in zip(locked, raw, strict=True)
            if answer
        }

    arguments = _head(keys) if history is None else (*_head(keys), history)
    return Command(script("locks", "look"), _lock_keys(keys, locked), arguments, read)


@dataclass(frozen=True)
class LockNews:
    """A message on a node's own channel.

    Attributes:
        key: the key it is about.
        wanted_by: the node that waits for it.
        replaced: whether another node waits for it in this one's place.

    With neither, the lock is free, or ends earlier than Redis said before.
    """

    key: bytes
    wanted_by: str | None = None
    replaced: bool = False


def parse_lock_news(payload: bytes) -> LockNews | None:
    """The news in a message on a node's own channel; ``None`` for anything else."""
    # Neither a kind nor a name holds a line feed; a key may hold anything.
    what, _, key = payload.partition(b"\n")
    kind, _, waiter = what.partition(b":")
    if not key:
        return None
    if kind in (b"freed", b"replaced"):
        return LockNews(key, replaced=kind == b"replaced")
    try:
        return LockNews(key, waiter.decode()) if kind == b"wanted" and waiter else None
    except UnicodeDecodeError:
        return None


def _milliseconds(seconds: float) -> int:
    # Up, so that no lock ends in Redis before its holder thinks so.
    return max(1, ceil(seconds * 1000))
