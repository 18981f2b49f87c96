"""The locks and the limit of one node, without I/O.

A :class:`LockBook` knows which keys its node holds, which it lets go, and which it waits for. It
is asked by the user's threads (``ask``, ``acquired``) and by the node's loop (``step``,
``heartbeat``, ``see``); each call is short, holds one lock, and does no I/O.

The life of a key in the book::

    asked, and ours ---- acquire ----> held ---- let go: moved away, not asked for, wanted ----.
         |                  |            |                                                     |
         |                  | other's    | renewed with every heartbeat, or lost               v
         |                  v            |                                                 releasing
         |               waiting         '---- expired ---.                                    |
         |                  |                              v                                   |
         '<-- freed, or its time is up                   asked anew          released: gone <--'

A key that is being acquired or released counts against the limit until Redis has answered, so a
node never holds more than its limit, whatever gets lost on the way.

Overflow. A node at its limit that had to refuse a key is **full**, and says so on the ring. The
others treat the ring as if it had left: each of its keys goes to the node that would inherit it.
What the full node holds it keeps; the inheritors find those locks held, and ask for them again
after ever longer waits: their holders may keep them, or may just not have come round to letting
go of what the ring took from them, and nobody tells an inheritor. It has **room** again when a
tenth of its limit is free (one key at least), or when nobody has asked it for more than it holds
for ``idle`` seconds.

What overflowed comes back key by key, and only as fast as there is room: the owner asks for the
lock, and keeps a place for it until it has it; only that makes the holder let go, once its loop
asks for the key again, and leave it to the owner for a ttl. Nobody but its owner waits for a key,
so a key never goes round.

Loss. When Redis comes back empty, or is emptied, the locks are gone, and their holders do not know
yet. A call that takes locks names the history of the ring that the node knows, and none is taken in
another, or where there is none. The first heartbeat of a node that knew an earlier history holds
everybody off for as long as a lock lasts; each node puts back what it still holds by its own clock.
When that time is over, a lock that nobody put back is one in which nobody believes any more.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from hashring.core.ring import Ring
from hashring.errors import LeaseLost, StoreError
from hashring.protocol.machine import Run
from hashring.store.command import Command
from hashring.store.keys import RingKeys
from hashring.store.locks.commands import (
    LOCKS_A_CALL,
    RENEWED_A_CALL,
    Answer,
    HeldByOther,
    HeldOff,
    Lock,
    LockNews,
    Renewed,
    acquire,
    look,
    release,
    renew,
)

REFUSED_COUNTED: Final = 65_536
"""Refused keys are counted up to this many."""

_NEVER: Final = float("inf")


class Event(Protocol):
    """What a lease's events can do; the runner's kind of event."""

    def set(self) -> None:
        """Make it happen."""

    def is_set(self) -> bool:
        """Whether it has happened."""


@dataclass(frozen=True)
class LockConfig:
    """How a node locks.

    Attributes:
        locking: whether keys are locked in Redis; else only the limit is kept, in this process.
        limit: how many keys the node may hold; ``None`` for any number.
        ttl: seconds that a lock lasts unless renewed.
        idle: seconds after which a key that is not asked for is let go.
        max_handoff_time: seconds that a lease may go on after it was asked to finish.
    """

    locking: bool
    limit: int | None
    ttl: float
    idle: float
    max_handoff_time: float


class Held:
    """A key that the node holds."""

    __slots__ = (
        "asked",
        "deadline",
        "key",
        "lease",
        "overflow",
        "point",
        "token",
        "waiter",
        "wanted",
    )

    def __init__(self, key: bytes, point: int, token: int, deadline: float, asked: float) -> None:
        self.key = key
        self.point = point
        self.token = token
        self.deadline = deadline
        self.asked = asked
        self.overflow = False
        """Held for a full owner, until the owner asks for it."""
        self.wanted = False
        """To be let go as soon as nobody works on it."""
        self.waiter = ""
        """The node that is nearer to it, and waits for it."""
        self.lease: Lease | None = None


class Lease:
    """A hold on a key that lasts until it is let go, as given by ``with node.hold(key)``.

    Attributes:
        key: the key, as bytes.
        token: the fencing token: greater than all before it for this key. Send it with every
            write, and let the resource refuse older ones (see :mod:`hashring.fencing`).
        revoked: an event: the key belongs to another node now. Finish, and leave the block.
        lost: an event: the lock is not held any more. Stop at once.

    The events are of the kind of the node's runner: ``threading.Event``, gevent's or asyncio's.
    ``lost`` is set when the node's loop notices; a process that was paused may not have noticed
    yet, which is why :meth:`check` looks at the clock as well, and why writes carry the token.
    """

    def __init__(
        self,
        held: Held,
        session: str,
        clock: Callable[[], float],
        lost: Event,
        revoked: Event,
    ) -> None:
        self._held = held
        self.session = session
        self._clock = clock
        self.key = held.key
        self.token = held.token
        self.lost = lost
        self.revoked = revoked
        self.revoked_at: float | None = None
        self.pins = 0

    @property
    def deadline(self) -> float:
        """When the lock expires unless it is renewed, in ``time.monotonic()`` seconds."""
        return self._held.deadline

    def check(self) -> None:
        """Raise unless the lock is still held.

        Raises:
            LeaseLost: it is not. When it does not raise, the lock was held at the moment of the
                check; only the token protects a write that comes later.
        """
        if self.lost.is_set():
            why = "the lease was lost"
        elif self._clock() >= self.deadline:
            why = "the lease has expired"
        else:
            return
        raise LeaseLost(self.key.decode("utf-8", "replace"), self.token, why)


class Verdict(Enum):
    """The book's answer about a key."""

    NO = "no"
    """Not ours now."""
    YES = "yes"
    """Held."""
    TAKE = "take"
    """Ours if its lock can be taken."""


class Wanted(NamedTuple):
    """A key that may be taken.

    Attributes:
        key, point: the key and its point.
        number: the caller's own, to know it by.
    """

    key: bytes
    point: int
    number: int = 0


Asked = tuple[bytes, int, int]
"""A key, its point, and the caller's own number. A plain tuple: there are very many of them."""


@dataclass(eq=False)
class Take:
    """Locks to be taken.

    Attributes:
        command: what takes them.
        wanted: the keys, in the order of the answers.
        places: how many places within the limit are kept for them.
        session: the session that they are taken under.
        began: when, in monotonic seconds.
        failed: whether nobody knows what came of it.
        freed: those of the keys that were freed before the answer arrived, which then says that
            another node holds them.
    """

    command: Command[list[Answer]]
    wanted: tuple[Wanted, ...]
    places: int
    session: str
    began: float
    failed: bool = False

    def __post_init__(self) -> None:
        self.keys = frozenset(each.key for each in self.wanted)
        self.freed: set[bytes] = set()


class _Other(NamedTuple):
    """A key that another node has.

    Attributes:
        until: when to ask again, in monotonic seconds.
        holder: the node.
        point: the key's point.
        wait: after how many seconds that was to be.
    """

    until: float
    holder: str
    point: int
    wait: float


class LockBook:
    """See the module's text.

    Args:
        keys: the ring's keys in Redis.
        config: how the node locks.
        retry: seconds until a renewal or release that failed is tried again.
    """

    def __init__(self, keys: RingKeys, config: LockConfig, retry: float) -> None:
        self.config = config
        self.held: dict[bytes, Held] = {}
        """Read without the lock by ``contains``; changed only under it."""
        self.full = False
        self.refused = 0
        """Keys of the node's own that it refused in the last ``idle`` seconds."""
        self.unserved = 0
        """Of those, the ones that nobody holds, when every node is full."""
        self.stirred = False
        """Whether there is something new for the loop to do; whoever wakes the loop resets it."""
        self.outdated = False
        """Whether Redis has another history of the ring than the last heartbeat learnt; who makes
        the next one resets it."""
        self._keys = keys
        self._retry = retry
        self._guard = threading.RLock()
        self._node = ""
        self._session = ""
        self._left = False
        self._takes: list[Take] = []
        self._releasing: dict[bytes, int] = {}
        # Keys of its own, of which Redis tells this node when they are freed: each has its place.
        self._waiting: dict[bytes, _Other] = {}
        # Keys that another node has, and may keep.
        self._elsewhere: dict[bytes, _Other] = {}
        self._leases: dict[bytes, Held] = {}
        self._to_renew: list[Held] = []
        self._refused: dict[int, float] = {}
        self._refused_keys: dict[int, bytes] = {}
        self._refused_at = -_NEVER
        # Why the last of the loop's calls failed; and why Redis refuses to take locks, since when.
        self._failure: StoreError | None = None
        self._refusal: tuple[StoreError, float] | None = None
        # The history of the ring that is known, and until when no lock may be taken in it.
        self._history = ""
        self._held_off_until = -_NEVER
        # What Redis may have lost of what is held: put back by the next renewal.
        self._lost: set[Held] = set()
        self._ring = Ring()
        self._bounds: tuple[int, ...] = ()
        self._own_bounds: tuple[int, ...] = ()
        self._resolve_at = self._release_at = self._renew_at = self._look_at = _NEVER

    # --- asked by the user's threads ----------------------------------------------------------

    def ask(
        self, key: bytes, point: int, bounds: Sequence[int], until: float, now: float
    ) -> Verdict:
        """Whether the node may work on a key now.

        Args:
            bounds: boundaries of the ranges in which it may take keys.
            until: the node's own deadline; past it, it holds nothing.

        After a ``TAKE`` the key may be among those given to :meth:`take`.
        """
        with self._guard:
            return self._ask(key, point, bounds, until, now)

    def ask_many(
        self,
        asked: Iterable[Asked],
        bounds: Sequence[int],
        until: float,
        now: float,
    ) -> tuple[list[Asked], list[Wanted]]:
        """:meth:`ask` about many keys: those with the verdict ``YES``, and those with ``TAKE``."""
        yes: list[Asked] = []
        to_take: list[Wanted] = []
        with self._guard:
            known = self.held.get
            # Mostly nothing but its owner speaks against a key, and nothing is looked up.
            simple = self._simple and now < until
            for each in asked:
                key, point, number = each
                held = known(key)
                inside = bisect_right(bounds, point) & 1
                if held is None:
                    if not inside:
                        continue
                    if simple:
                        to_take.append(Wanted(key, point, number))
                        continue
                elif (
                    (inside or held.overflow)
                    and now < held.deadline
                    and now < until
                    and not held.wanted
                ):
                    held.asked = now
                    yes.append(each)
                    continue
                verdict = self._ask(key, point, bounds, until, now)
                if verdict is Verdict.TAKE:
                    to_take.append(Wanted(key, point, number))
                elif verdict is Verdict.YES:
                    yes.append(each)
        return yes, to_take

    def _ask(
        self, key: bytes, point: int, bounds: Sequence[int], until: float, now: float
    ) -> Verdict:
        ours = bisect_right(bounds, point) & 1 == 1 and now < until
        held = self.held.get(key)
        if held is not None:
            if now >= held.deadline:
                # Its lock may stand or not: the next renewal says so.
                return Verdict.NO
            if now < until and not held.wanted and (ours or held.overflow):
                held.asked = now
                return Verdict.YES
            if held.lease is None and now < until:
                # Ours no more. The loop has just been told so, so nobody works on it.
                self._let_go(held, now)
            return Verdict.NO
        if not ours or key in self._releasing or self._being_taken(key):
            return Verdict.NO
        waiting = self._waiting.get(key)
        other = waiting or self._elsewhere.get(key)
        if now < self._held_off_until or (other is not None and now < other.until):
            return Verdict.NO
        # What it waits for has its place already.
        if waiting is None and self.config.limit is not None and self.count >= self.config.limit:
            self._refuse(key, point, now)
            return Verdict.NO
        if not self.config.locking:
            self.held[key] = Held(key, point, 0, _NEVER, now)
            return Verdict.YES
        # While Redis does not answer, one caller at a time has waited long enough for it.
        return Verdict.NO if self._uncertain else Verdict.TAKE

    def take(self, wanted: Sequence[Wanted], now: float) -> Take | None:
        """What to run to take keys whose verdict was ``TAKE``; nothing when none is left to take.

        It keeps places within the limit until :meth:`acquired` or :meth:`acquire_failed`, and
        nobody else takes these keys meanwhile.
        """
        with self._guard:
            kept: dict[bytes, Wanted] = {}
            own: dict[bytes, Wanted] = {}
            inherited: dict[bytes, Wanted] = {}
            if self._simple:
                held, bounds = self.held, self._own_bounds
                own = {
                    each[0]: each
                    for each in wanted
                    if each[0] not in held and bisect_right(bounds, each[1]) & 1
                }
            # Mostly that is all; else each is looked at.
            for each in wanted if len(own) < len(wanted) else ():
                key = each.key
                # Another thread may have been faster; and a key may be wanted twice.
                if key in self.held or key in self._releasing or self._being_taken(key):
                    continue
                if self._waiting and self._waiting.pop(key, None) is not None:
                    kept[key] = each
                elif not kept or key not in kept:
                    (own if self._own(each.point) else inherited)[key] = each
            # Its own first: they have the places, and for them it waits. Those that it waits for
            # keep theirs: whoever has them lets go of them for this node.
            chosen = (*kept.values(), *own.values(), *inherited.values())
            most = len(chosen)
            if self.config.limit is not None:
                most = min(most, self.config.limit - self.count)
            if self._left or most <= 0:
                for each in chosen:
                    self._refuse(each.key, each.point, now)
                return None
            command = acquire(
                self._keys,
                node=self._node,
                session=self._session,
                ttl=self.config.ttl,
                locked=[each.key for each in chosen],
                most=most,
                awaited=len(kept) + len(own),
                kept=len(kept),
                history=self._history,
            )
            take = Take(command, chosen, most, self._session, now)
            self._takes.append(take)
            return take

    def acquired(self, take: Take, answers: Sequence[Answer], sent: float, now: float) -> None:
        """The answer to a :meth:`take`."""
        with self._guard:
            self._refusal = None
            if take.session != self._session:
                self._drop(take)
                return  # The name was lost meanwhile; these locks expire.
            if not self._drop(take):
                self._answered_late(take, answers, now)
                return
            refused = []
            deadline = sent + self.config.ttl
            held = self.held
            # Nothing is known of any of them but that it is ours.
            simple = self._bounds is self._own_bounds and not (
                self._releasing or self._elsewhere or self._refused or self._left
            )
            for wanted, answer in zip(take.wanted, answers, strict=True):
                if isinstance(answer, int):
                    key, point, _ = wanted
                    if simple and key not in held:
                        held[key] = Held(key, point, answer, deadline, now)
                    else:
                        self._grant(wanted, answer, deadline, now)
                    continue
                before = self._elsewhere.pop(wanted.key, None)
                if isinstance(answer, HeldOff):
                    self._hold_off(answer.seconds, now)
                    continue
                if not isinstance(answer, HeldByOther):
                    refused.append(wanted)
                    continue
                lasts = 0.0 if wanted.key in take.freed else answer.expires_in + 0.001
                if answer.awaited:
                    other = _Other(now + lasts, answer.holder, wanted.point, lasts)
                    self._waiting[wanted.key] = other
                elif self._own(wanted.point):
                    refused.append(wanted)
                else:
                    wait = min(2 * before.wait if before else self._retry, lasts)
                    other = _Other(now + wait, answer.holder, wanted.point, wait)
                    self._elsewhere[wanted.key] = other
            for each in refused:
                self._refuse(each.key, each.point, now)

    def acquire_failed(self, take: Take, now: float, refusal: StoreError | None = None) -> None:
        """Nobody knows whether these locks were taken: the loop asks.

        Args:
            refusal: why Redis refused the call, if it did: asking who holds them may not be
                refused, and would tell nobody.
        """
        with self._guard:
            self._drop(take)
            if refusal is not None:
                self._refusal = refusal, now
            if take.session == self._session:
                self._doubt(take, now)

    def busy(self, key: bytes) -> bool:
        """Whether a call of this node's about the key is under way."""
        with self._guard:
            return key in self._releasing or (self._being_taken(key) and not self._uncertain)

    def holder(self, key: bytes) -> str | None:
        """The node that has a key, when we last looked; ``None`` when none is known to."""
        other = self._waiting.get(key) or self._elsewhere.get(key)
        return other.holder if other else None

    def pin(self, key: bytes, clock: Callable[[], float], event: Callable[[], Any]) -> Lease | None:
        """A lease on a key that is held; the same one again inside itself."""
        with self._guard:
            held = self.held.get(key)
            if held is None or clock() >= held.deadline:
                return None
            if held.lease is None:
                if held.wanted:
                    return None
                held.lease = Lease(held, self._session, clock, event(), event())
                self._leases[key] = held
            held.lease.pins += 1
            return held.lease

    def pin_again(self, key: bytes, now: float) -> Lease | None:
        """The lease that a key is held by already; ``None`` when there is none."""
        with self._guard:
            held = self.held.get(key)
            if held is None or held.lease is None or now >= held.deadline:
                return None
            held.lease.pins += 1
            return held.lease

    def unpin(self, lease: Lease, now: float) -> bool:
        """Leave a lease; whether the key is to be let go now."""
        with self._guard:
            lease.pins -= 1
            if lease.pins:
                return False
            held = lease._held
            held.lease = None
            held.asked = now
            if self._leases.get(lease.key) is held:
                del self._leases[lease.key]
            if self.held.get(lease.key) is held:
                if lease.revoked_at is None:
                    return False
                self._let_go(held, now)
            elif self._left and lease.session == self._session:
                # The node has left meanwhile, and the lock stood until the work was done.
                self._releasing[lease.key] = lease.token
                self._release_at = now
                self.stirred = True
            return True

    @property
    def count(self) -> int:
        """How many keys count against the limit."""
        count = len(self.held) + len(self._releasing) + len(self._waiting)
        return count + sum(take.places for take in self._takes) if self._takes else count

    @property
    def error(self) -> StoreError | None:
        """Why Redis did not do what was last asked of it about locks; ``None`` when it did."""
        return self._failure or (self._refusal[0] if self._refusal else None)

    @property
    def waiting(self) -> int:
        """How many keys of ours another node still holds."""
        return len(self._waiting)

    @property
    def left(self) -> bool:
        """Whether the node has begun to leave."""
        return self._left

    @property
    def entered(self) -> bool:
        """Whether the caller is inside the book already: a signal handler may find itself so."""
        guard: Any = self._guard
        return bool(guard._is_owned())

    def abandon(self) -> None:
        """In a forked child: the locks, and the leases on them, are the parent's."""
        # Without the guard, which another thread of the parent may have held for ever.
        for held in list(self.held.values()):
            held.deadline = -_NEVER

    # --- told by the node's loop --------------------------------------------------------------

    def begin(self, node: str, session: str) -> None:
        """The node has this name and session from now on; what another session held is lost."""
        with self._guard:
            for held in list(self.held.values()):
                self._forget(held)
            self._takes = [take for take in self._takes if not take.failed]
            for known in (
                self._releasing,
                self._waiting,
                self._elsewhere,
                self._refused,
                self._refused_keys,
            ):
                known.clear()
            self._to_renew = []
            self._node, self._session = node, session
            self._left = self.full = False
            self.refused = self.unserved = 0
            self._failure = self._refusal = None
            self._history, self._held_off_until, self.outdated = "", -_NEVER, False
            self._resolve_at = self._release_at = self._renew_at = self._look_at = _NEVER

    def see(
        self, ring: Ring, bounds: tuple[int, ...], own_bounds: tuple[int, ...], now: float
    ) -> None:
        """The ring as it is now.

        Args:
            bounds: of the ranges in which the node may take keys, those of full nodes included.
            own_bounds: of the ranges that are its own.
        """
        with self._guard:
            changed = ring is not self._ring
            self._ring, self._bounds, self._own_bounds = ring, bounds, own_bounds
            if bounds is not own_bounds:
                # Held for an owner that is full now: kept, until the owner asks for it.
                for held in self.held.values():
                    held.overflow = held.overflow or self._inherited(held.point)
            for held in self._leases.values():
                if not held.overflow and bisect_right(bounds, held.point) & 1 == 0:
                    self._revoke(held, now)
            for key, other in list(self._waiting.items()):
                if not self._own(other.point):
                    del self._waiting[key]
                elif other.holder not in ring:
                    self._waiting[key] = other._replace(until=now)
            for key, other in list(self._elsewhere.items()):
                if self._own(other.point) or other.holder not in ring:
                    del self._elsewhere[key]
                elif changed and ring.owner_of_point(other.point) != other.holder:
                    # It may not have it for much longer.
                    until = min(other.until, now + self._retry)
                    self._elsewhere[key] = other._replace(until=until, wait=self._retry)
            for held in self.held.values():
                if held.waiter and not self._nearer(held.waiter, held.point):
                    # Whoever waited has gone.
                    held.waiter, held.wanted = "", False

    def heartbeat(
        self, everyone_full: bool, now: float, history: str = "", held_off: float = 0.0
    ) -> None:
        """The node's heartbeat was answered: renew, and look after what nobody asks for.

        Args:
            everyone_full: whether every node of the ring is full, this one included.
            history: the ring's, in Redis.
            held_off: seconds for which no lock may be taken in it.
        """
        with self._guard:
            if self.config.locking:
                self._follow(history, held_off, now)
            idle = now - self.config.idle
            for held in list(self.held.values()):
                if held.asked < idle and held.lease is None:
                    self._let_go_if_idle(held, idle, now)
            for key, other in list(self._waiting.items()):
                if other.until < idle:
                    del self._waiting[key]
            for key, other in list(self._elsewhere.items()):
                if other.until < idle:
                    del self._elsewhere[key]
            for take in self._takes[:]:
                # Whoever took it never came back: a greenlet, a signal handler that raised.
                if not take.failed and take.began < now - self.config.ttl:
                    self.acquire_failed(take, now)
            if self._refusal is not None and self._refusal[1] < idle:
                self._refusal = None  # Nobody has asked since.
            self._count_refused(idle, everyone_full, now)
            self._settle_full(now)
            if self.config.locking:
                self._to_renew = list(self.held.values())
                self._renew_at = now

    def _follow(self, history: str, held_off: float, now: float) -> None:
        if history != self._history:
            # The locks that it waited for may be gone, and its name in them is.
            self._ask_again_for_waiting(now)
            self._lost = set(self.held.values())
        if not held_off:
            self._lost = set()
        self._history = history
        self._held_off_until = now + held_off if held_off else -_NEVER

    def _hold_off(self, seconds: float | None, now: float) -> None:
        """No lock may be taken for so long; ``None``: the next heartbeat learns for how long."""
        if seconds is None:
            self._held_off_until = _NEVER
            self.outdated = self.stirred = True
        else:
            self._held_off_until = max(self._held_off_until, now + seconds)

    def held_off_for(self, now: float) -> float:
        """Seconds for which no lock may be taken, because Redis lost the ring's locks."""
        return max(0.0, self._held_off_until - now)

    def listening(self, now: float) -> None:
        """The node's channel is heard from now on: what was freed before, nobody has told."""
        with self._guard:
            self._ask_again_for_waiting(now)
            for take in self._takes:
                take.freed |= take.keys

    def news(self, news: LockNews, now: float) -> None:
        """A message on the node's own channel."""
        with self._guard:
            if news.wanted_by is None:
                waiting = self._waiting.get(news.key)
                if waiting is not None:
                    self._waiting[news.key] = waiting._replace(until=now)
                # The message and the answer that it is waited for come by two connections.
                for take in self._takes:
                    if news.key in take.keys:
                        take.freed.add(news.key)
                return
            held = self.held.get(news.key)
            if held is not None:
                self._want(held, news.wanted_by, now)

    def due(self) -> float:
        """When :meth:`step` has something to do, in monotonic seconds."""
        with self._guard:
            due = min(self._resolve_at, self._renew_at, self._look_at)
            if self._releasing:
                due = min(due, self._release_at)
            for held in self._leases.values():
                due = min(due, held.deadline)
            return due

    def step(self, now: float) -> Run | None:
        """What the loop has to run now, if anything."""
        with self._guard:
            for held in list(self._leases.values()):
                if now >= held.deadline:
                    self._expire(held, now)
            if now >= self._resolve_at and (step := self._resolve_step()) is not None:
                return step
            if now >= self._release_at and self._releasing:
                return self._release_step()
            if now >= self._renew_at and (step := self._renew_step(now)) is not None:
                return step
            return self._look_step() if now >= self._look_at else None

    def leave(self, now: float) -> Run | None:
        """The node leaves: let go of everything that nobody works on, a call at a time.

        Leases are lost, but their locks stay until the work is done or they expire.
        """
        with self._guard:
            self._left = True
            for held in list(self.held.values()):
                if held.lease is not None:
                    self._revoke(held, now)
                    held.lease.lost.set()
                    del self.held[held.key]
                else:
                    self._let_go(held, now)
            self._refused.clear()
            self._refused_keys.clear()
            self.full = False
            self.refused = self.unserved = 0
            self._to_renew = []
            self._renew_at = self._look_at = _NEVER
            step = self._resolve_step()
            return step or (self._release_step() if self._releasing else None)

    def forget_releases(self) -> None:
        """Redis does not answer, and the node leaves: what is not released expires."""
        with self._guard:
            if not self._left:
                return  # It has begun anew.
            self._takes = [take for take in self._takes if not take.failed]
            self._releasing.clear()

    # --- steps --------------------------------------------------------------------------------

    def _run(
        self,
        command: Command[Any],
        done: Callable[[Any, float, float], None],
        failed: Callable[[float], None],
    ) -> Run:
        def answered(reply: Any, sent: float, now: float) -> None:
            with self._guard:
                self._failure = None
                done(reply, sent, now)

        def unanswered(error: StoreError, now: float) -> None:
            with self._guard:
                self._failure = error
                failed(now + self._retry)

        return Run(command, answered, unanswered)

    def _resolve_step(self) -> Run | None:
        """Find out what came of a call whose answer was lost."""
        self._resolve_at = _NEVER
        take = next((take for take in self._takes if take.failed), None)
        if take is None:
            return None

        def done(found: dict[bytes, Lock], sent: float, now: float) -> None:
            self._resolve_at = now
            if not self._drop(take):
                return
            for wanted in take.wanted:
                lock = found.get(wanted.key)
                if wanted.key not in self.held and self.count == self.config.limit:
                    continue
                if lock is not None and lock.session == take.session == self._session:
                    # Redis rounds to milliseconds.
                    self._grant(wanted, lock.token, sent + lock.expires_in - 0.001, now)

        def failed(retry_at: float) -> None:
            self._resolve_at = retry_at

        return self._run(look(self._keys, locked=[w.key for w in take.wanted]), done, failed)

    def _release_step(self) -> Run:
        chosen = list(islice(self._releasing.items(), LOCKS_A_CALL))

        def done(_: int, sent: float, now: float) -> None:
            for key, token in chosen:
                if self._releasing.get(key) == token:
                    del self._releasing[key]
            self._release_at = now if self._releasing else _NEVER
            self._settle_full(now)

        def failed(retry_at: float) -> None:
            self._release_at = retry_at

        return self._run(release(self._keys, session=self._session, locked=chosen), done, failed)

    def _renew_step(self, now: float) -> Run | None:
        self._renew_at = _NEVER
        config = self.config
        chosen: list[Held] = []
        shorter: dict[int, float] = {}
        while self._to_renew and len(chosen) < RENEWED_A_CALL:
            held = self._to_renew.pop()
            if self.held.get(held.key) is not held:
                continue
            if held.lease is not None and held.lease.revoked_at is not None:
                lasting = held.lease.revoked_at + config.max_handoff_time - now
                if lasting <= 0:
                    continue
                if lasting < config.ttl:
                    shorter[len(chosen)] = lasting
            chosen.append(held)
        if not chosen:
            return None

        def done(reply: Renewed, sent: float, now: float) -> None:
            lost, unknown = set(reply.lost), set(reply.unknown)
            if unknown:
                # Redis lost the ring since the heartbeat: the next one learns of it.
                self.outdated = True
            for number, held in enumerate(chosen):
                if number in lost:
                    self._forget(held)
                    continue
                if number in unknown:
                    continue
                self._lost.discard(held)
                held.deadline = sent + shorter.get(number, config.ttl)
                if held.lease is not None and held.lease.revoked_at is not None:
                    last = held.lease.revoked_at + config.max_handoff_time
                    held.deadline = min(held.deadline, last)
            for number, waiter in reply.wanted.items():
                self._want(chosen[number], waiter, now)
            if self._to_renew:
                self._renew_at = now
            self._settle_full(now)

        def failed(retry_at: float) -> None:
            self._to_renew += chosen
            self._renew_at = retry_at

        command = renew(
            self._keys,
            session=self._session,
            ttl=config.ttl,
            locked=[(held.key, held.token) for held in chosen],
            lasting=shorter,
            node=self._node,
            history=self._history,
            put_back=[
                number
                for number, held in enumerate(chosen if self._lost else ())
                if held in self._lost and now < held.deadline
            ],
        )
        return self._run(command, done, failed)

    def _look_step(self) -> Run | None:
        """Find out how many of the refused keys nobody holds."""
        self._look_at = _NEVER
        sample = list(self._refused_keys.values())
        if not sample:
            return None

        def done(found: dict[bytes, Lock], sent: float, now: float) -> None:
            # Of more than were looked up, the same part is taken to be held.
            self.unserved = round(self.refused * (1 - len(found) / len(sample)))

        return self._run(look(self._keys, locked=sample), done, lambda _: None)

    # --- small things, under the guard --------------------------------------------------------

    def _own(self, point: int) -> bool:
        return bisect_right(self._own_bounds, point) & 1 == 1

    def _inherited(self, point: int) -> bool:
        if self._bounds is self._own_bounds:
            return False
        return bisect_right(self._bounds, point) & 1 == 1 and not self._own(point)

    @property
    def _simple(self) -> bool:
        """Whether any key of ours that is not held may be taken."""
        special = self._takes or self._releasing or self._waiting or self._elsewhere
        return (
            not special
            and self._held_off_until == -_NEVER
            and self.config.locking
            and self.config.limit is None
        )

    def _ask_again_for_waiting(self, now: float) -> None:
        for key, other in self._waiting.items():
            self._waiting[key] = other._replace(until=now)

    def _being_taken(self, key: bytes) -> bool:
        return bool(self._takes) and any(key in take.keys for take in self._takes)

    @property
    def _uncertain(self) -> bool:
        return bool(self._takes) and any(take.failed for take in self._takes)

    def _drop(self, take: Take) -> bool:
        if take not in self._takes:
            return False
        self._takes.remove(take)
        return True

    def _doubt(self, take: Take, now: float) -> None:
        take.failed = True
        self._takes.append(take)
        self._resolve_at = min(self._resolve_at, now)
        self.stirred = True

    def _answered_late(self, take: Take, answers: Sequence[Answer], now: float) -> None:
        """An answer to what was given up, and asked about; but perhaps before it was done."""
        unknown = tuple(
            wanted
            for wanted, answer in zip(take.wanted, answers, strict=True)
            if isinstance(answer, int) and not self._knows(wanted.key, answer)
        )
        places = len(unknown)
        if self.config.limit is not None:
            # Its places are others' by now: what there is no room for is left to expire.
            places = min(places, self.config.limit - self.count)
        if places > 0:
            self._doubt(Take(take.command, unknown, places, take.session, take.began), now)

    def _knows(self, key: bytes, token: int) -> bool:
        held = self.held.get(key)
        return (held is not None and held.token >= token) or self._releasing.get(key) == token

    def _grant(self, wanted: Wanted, token: int, deadline: float, now: float) -> None:
        key, point, _ = wanted
        if self._releasing.get(key) == token:
            return
        known = self.held.get(key)
        if known is not None:
            # Two calls about one key, of which one was given up before its answer came.
            if known.token >= token:
                return
            self._forget(known)
        if self._refused:
            self._refused.pop(point, None)
            self._refused_keys.pop(point, None)
        if self._elsewhere:
            self._elsewhere.pop(key, None)
        held = self.held[key] = Held(key, point, token, deadline, now)
        held.overflow = self._inherited(point)
        if self._left:
            self._let_go(held, now)

    def _let_go(self, held: Held, now: float) -> None:
        if self.held.get(held.key) is not held:
            return
        del self.held[held.key]
        if held.waiter:
            # Its turn; else this node's loop would be back for the key before the waiter's.
            wait = self.config.ttl
            self._elsewhere[held.key] = _Other(now + wait, held.waiter, held.point, wait)
        if self.config.locking:
            self._releasing[held.key] = held.token
            self._release_at = min(self._release_at, now)
            self.stirred = True

    def _let_go_if_idle(self, held: Held, idle: float, now: float) -> None:
        # `contains` asks without the guard: it writes `asked` and then reads `wanted`, and here
        # it is the other way round, so one of the two sees what the other wrote. Else a key might
        # be let go that the loop was told to work on in that very moment.
        was, held.wanted = held.wanted, True
        if held.asked >= idle:
            held.wanted = was
        else:
            self._let_go(held, now)

    def _forget(self, held: Held) -> None:
        """The lock is gone, whatever we do."""
        if self.held.get(held.key) is held:
            del self.held[held.key]
        if held.lease is not None:
            held.lease.lost.set()
        if self._leases.get(held.key) is held:
            del self._leases[held.key]

    def _expire(self, held: Held, now: float) -> None:
        """A lease's time is over, by this clock; Redis may count a moment longer."""
        if self.held.get(held.key) is held:
            self._let_go(held, now)
        self._forget(held)

    def _revoke(self, held: Held, now: float) -> None:
        lease = held.lease
        if lease is None or lease.revoked_at is not None:
            return
        lease.revoked_at = now
        last = now + self.config.max_handoff_time
        if held.deadline > last:
            # Here before in Redis, which is told next: whatever gets lost, the lease is never
            # thought to last longer than the lock.
            held.deadline = last
            self._to_renew.append(held)
            self._renew_at = min(self._renew_at, now)
        lease.revoked.set()

    def _want(self, held: Held, waiter: str, now: float) -> None:
        if not held.overflow or self.held.get(held.key) is not held:
            return
        if self._nearer(waiter, held.point):
            held.waiter, held.wanted = waiter, True
            self._revoke(held, now)

    def _nearer(self, node: str, point: int) -> bool:
        """Whether a node would own the point before this one."""
        nearest = (each for each in self._ring.successors(point) if each in (node, self._node))
        return next(nearest, self._node) == node != self._node

    def _refuse(self, key: bytes, point: int, now: float) -> None:
        limit = self.config.limit
        if limit is None or self._left:
            return
        if self._takes and self.count - sum(take.places for take in self._takes) < limit:
            return  # Places are only kept, for calls that may need fewer: not full yet.
        self._refused_at = now
        self.stirred = self.stirred or not self.full
        self.full = True
        if self._own(point) and (point in self._refused or len(self._refused) < REFUSED_COUNTED):
            self._refused[point] = now
            if self.config.locking and len(self._refused_keys) < LOCKS_A_CALL:
                self._refused_keys[point] = key

    def _count_refused(self, idle: float, everyone_full: bool, now: float) -> None:
        self._refused = {p: at for p, at in self._refused.items() if at >= idle and self._own(p)}
        self._refused_keys = {p: k for p, k in self._refused_keys.items() if p in self._refused}
        self.refused = len(self._refused)
        self._look_at = _NEVER
        if not self.config.locking:
            self.unserved = self.refused  # Nobody else takes them.
        elif not everyone_full or not self._refused_keys:
            self.unserved = 0
        else:
            self._look_at = now

    def _settle_full(self, now: float) -> None:
        limit = self.config.limit
        if not self.full or limit is None:
            return
        if self.count <= limit - max(1, limit // 10) or self._refused_at < now - self.config.idle:
            self.full = False
