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

Overflow. A node at its limit that had to refuse a key of its own is **full**, and says so on the
ring. The others treat the ring as if it had left: each of its keys goes to the node that would
inherit it. What the full node holds it keeps; the inheritors find those locks held, and wait.
It has **room** again when a tenth of its limit is free (one key at least), or when nobody has
asked it for more than it holds for ``idle`` seconds.

What overflowed comes back key by key, and only as fast as there is room: the owner asks for the
lock, and only that makes the holder let go, once its loop asks for the key again. Of two nodes
that want a key the one nearer to it in the order of inheritance wins, so a key never goes round.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol

from hashring.core.ring import Ring
from hashring.errors import LeaseLost, StoreError
from hashring.node.steps import Run
from hashring.store.commands import Command
from hashring.store.keys import RingKeys
from hashring.store.lock_commands import (
    LOCKS_A_CALL,
    Answer,
    Granted,
    HeldByOther,
    Lock,
    LockNews,
    Renewed,
    acquire,
    look,
    release,
    renew,
)

REFUSED_COUNTED: Final = 65_536
"""Refused keys are counted up to this many a heartbeat."""

_LOOKED_UP: Final = 4_096
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

    __slots__ = ("asked", "deadline", "key", "lease", "overflow", "point", "token", "wanted")

    def __init__(self, key: bytes, point: int, token: int, deadline: float, asked: float) -> None:
        self.key = key
        self.point = point
        self.token = token
        self.deadline = deadline
        self.asked = asked
        self.overflow = False
        """Held for a full owner, until the owner asks for it."""
        self.wanted = False
        """A node that is nearer to it waits for it."""
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
        self.holder: str | None = None

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
            raise LeaseLost(self.key, self.token, self.holder, "the lease was lost")
        if self._clock() >= self.deadline:
            raise LeaseLost(self.key, self.token, self.holder, "the lease has expired")


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


@dataclass(frozen=True)
class Take:
    """Locks to be taken.

    Attributes:
        command: what takes them.
        wanted: the keys, in the order of the answers.
        places: how many places within the limit are kept for them.
        session: the session that they are taken under.
    """

    command: Command[list[Answer]]
    wanted: tuple[Wanted, ...]
    places: int
    session: str


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
        """Keys of the node's own that it refused between the last two heartbeats."""
        self.unserved = 0
        """Of those, the ones that nobody holds, when every node is full."""
        self._keys = keys
        self._retry = retry
        self._guard = threading.RLock()
        self._node = ""
        self._session = ""
        self._releasing: dict[bytes, None] = {}
        self._reserved = 0
        self._waiting: dict[bytes, tuple[float, str]] = {}
        self._leases: dict[bytes, Held] = {}
        self._refused_now: dict[int, bytes] = {}
        self._refused_keys: tuple[bytes, ...] = ()
        self._refused_at = -_NEVER
        self._ring = Ring()
        self._own_bounds: tuple[int, ...] = ()
        self._renew_at = _NEVER
        self._release_at = _NEVER
        self._look_at = _NEVER
        self.stirred = False
        """Whether there is something new for the loop to do; whoever wakes the loop resets it."""

    # --- asked by the user's threads ----------------------------------------------------------

    def ask(
        self, key: bytes, point: int, bounds: Sequence[int], until: float, now: float
    ) -> Verdict:
        """Whether the node may work on a key now.

        Args:
            bounds: boundaries of the ranges in which it may take keys.
            until: the node's own deadline; past it, it holds nothing.

        After a ``TAKE`` the key may be among those given to :meth:`take_command`.
        """
        with self._guard:
            ours = bisect_right(bounds, point) & 1 == 1 and now < until
            held = self.held.get(key)
            if held is not None and now < held.deadline:
                if now < until and not held.wanted and (ours or held.overflow):
                    held.asked = now
                    return Verdict.YES
                if held.lease is None and now < until:
                    # Ours no more. The loop has just been told so, so nobody works on it.
                    self._let_go(held, now)
                return Verdict.NO
            if not ours or key in self._releasing:
                return Verdict.NO
            if held is not None:
                self._forget(held, None)
            waiting = self._waiting.get(key)
            if waiting is not None and now < waiting[0]:
                return Verdict.NO
            if self.config.limit is not None and self.count >= self.config.limit:
                self._refuse(key, point, now)
                return Verdict.NO
            if not self.config.locking:
                self.held[key] = Held(key, point, 0, _NEVER, now)
                return Verdict.YES
            return Verdict.TAKE

    def take(self, wanted: Sequence[Wanted]) -> Take:
        """What to run to take keys whose verdict was ``TAKE``.

        It keeps places within the limit until :meth:`acquired` or :meth:`acquire_failed`.
        """
        with self._guard:
            most = len(wanted)
            if self.config.limit is not None:
                most = max(0, min(most, self.config.limit - self.count))
            self._reserved += most
            command = acquire(
                self._keys,
                node=self._node,
                session=self._session,
                ttl=self.config.ttl,
                locked=[each.key for each in wanted],
                most=most,
            )
            return Take(command, tuple(wanted), most, self._session)

    def acquired(
        self, take: Take, answers: Sequence[Answer], sent: float, now: float
    ) -> list[Wanted]:
        """The answer to a :meth:`take`; those that are held now."""
        granted = []
        with self._guard:
            self._reserved -= take.places
            if take.session != self._session:
                return []  # The name was lost meanwhile; these locks expire.
            for wanted, answer in zip(take.wanted, answers, strict=True):
                key, point, _ = wanted
                if isinstance(answer, Granted):
                    self._waiting.pop(key, None)
                    held = Held(key, point, answer.token, sent + self.config.ttl, now)
                    held.overflow = bisect_right(self._own_bounds, point) & 1 == 0
                    self.held[key] = held
                    granted.append(wanted)
                elif isinstance(answer, HeldByOther):
                    self._waiting[key] = (now + answer.expires_in + 0.001, answer.holder)
                else:
                    self._refuse(key, point, now)
        return granted

    def acquire_failed(self, take: Take, now: float) -> None:
        """Nobody knows whether these locks were taken: let them go, to be sure."""
        with self._guard:
            self._reserved -= take.places
            if take.session != self._session:
                return
            for each in take.wanted:
                if each.key not in self.held:
                    self._releasing[each.key] = None
            self._release_at = min(self._release_at, now + self._retry)
            self.stirred = True

    def holder(self, key: bytes) -> str | None:
        """The node that held a key we wait for, when we last looked."""
        waiting = self._waiting.get(key)
        return waiting[1] if waiting else None

    def pin(self, key: bytes, clock: Callable[[], float], event: Callable[[], Any]) -> Lease | None:
        """A lease on a key that is held; the same one again inside itself."""
        with self._guard:
            held = self.held.get(key)
            if held is None or held.wanted:
                return None
            if held.lease is None:
                held.lease = Lease(held, self._session, clock, event(), event())
                self._leases[key] = held
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
            self._leases.pop(lease.key, None)
            if self.held.get(lease.key) is held:
                if lease.revoked_at is None:
                    return False
                self._let_go(held, now)
            elif lease.session == self._session and lease.key not in self.held:
                # Left, or thought lost: if the lock stands all the same, nobody needs it.
                self._releasing[lease.key] = None
                self._release_at = now
                self.stirred = True
            return True

    @property
    def count(self) -> int:
        """How many keys count against the limit."""
        return len(self.held) + self._reserved + len(self._releasing)

    @property
    def waiting(self) -> int:
        """How many keys of ours another node still holds."""
        return len(self._waiting)

    # --- told by the node's loop --------------------------------------------------------------

    def begin(self, node: str, session: str) -> None:
        """The node has this name and session from now on; what another session held is lost."""
        with self._guard:
            for held in list(self.held.values()):
                self._forget(held, None)
            self._releasing.clear()
            self._waiting.clear()
            self._node, self._session = node, session
            self._renew_at = self._release_at = self._look_at = _NEVER

    def see(
        self, ring: Ring, bounds: tuple[int, ...], own_bounds: tuple[int, ...], now: float
    ) -> None:
        """The ring as it is now.

        Args:
            bounds: of the ranges in which the node may take keys, those of full nodes included.
            own_bounds: of the ranges that are its own.
        """
        with self._guard:
            self._ring, self._own_bounds = ring, own_bounds
            if bounds is not own_bounds:
                # Held for an owner that is full now: kept, until the owner asks for it.
                for held in self.held.values():
                    if bisect_right(own_bounds, held.point) & 1 == 0:
                        held.overflow = True
            for held in self._leases.values():
                if not held.overflow and bisect_right(bounds, held.point) & 1 == 0:
                    self._revoke(held, now)

    def heartbeat(self, everyone_full: bool, now: float) -> None:
        """The node's heartbeat was answered: renew, and look after what nobody asks for.

        Args:
            everyone_full: whether every node of the ring is full, this one included.
        """
        with self._guard:
            idle = now - self.config.idle
            for held in list(self.held.values()):
                if held.asked < idle and held.lease is None:
                    self._let_go_if_idle(held, idle, now)
            for key, (retry_at, _) in list(self._waiting.items()):
                if retry_at < idle:
                    del self._waiting[key]
            self.refused = len(self._refused_now)
            self._refused_keys = tuple(islice(self._refused_now.values(), _LOOKED_UP))
            self._refused_now = {}
            self._settle_full(now)
            if self.held and self.config.locking:
                self._renew_at = now
            if everyone_full and self._refused_keys and self.config.locking:
                self._look_at = now
            else:
                self._look_at = _NEVER
                self.unserved = self.refused if everyone_full else 0

    def news(self, news: LockNews, now: float) -> None:
        """A message on the node's own channel."""
        with self._guard:
            if news.wanted_by is None:
                waiting = self._waiting.get(news.key)
                if waiting is not None:
                    self._waiting[news.key] = (now, waiting[1])
                return
            held = self.held.get(news.key)
            if held is not None:
                self._want(held, news.wanted_by, now)

    def due(self) -> float:
        """When :meth:`step` has something to do, in monotonic seconds."""
        with self._guard:
            due = min(self._renew_at, self._look_at)
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
                    self._forget(held, None)
            if now >= self._release_at and self._releasing:
                return self._release_step()
            if now >= self._renew_at:
                return self._renew_step(now)
            if now >= self._look_at:
                return self._look_step()
            return None

    def leave(self, now: float) -> Run | None:
        """The node leaves: let go of everything that nobody works on, a call at a time.

        Leases are lost, but their locks stay until the work is done or they expire.
        """
        with self._guard:
            for held in list(self.held.values()):
                if held.lease is not None:
                    self._revoke(held, now)
                    held.lease.lost.set()
                    del self.held[held.key]
                else:
                    self._let_go(held, now)
            self._renew_at = self._look_at = _NEVER
            return self._release_step() if self._releasing else None

    def forget_releases(self) -> None:
        """Redis does not answer, and the node leaves: what is not released expires."""
        with self._guard:
            self._releasing.clear()

    # --- steps --------------------------------------------------------------------------------

    def _release_step(self) -> Run:
        keys = tuple(self._releasing)[:LOCKS_A_CALL]

        def done(_: int, sent: float, now: float) -> None:
            with self._guard:
                for key in keys:
                    self._releasing.pop(key, None)
                self._release_at = now if self._releasing else _NEVER
                self._settle_full(now)

        def failed(_: StoreError, now: float) -> None:
            with self._guard:
                self._release_at = now + self._retry

        return Run(release(self._keys, session=self._session, locked=keys), done, failed)

    def _renew_step(self, now: float) -> Run | None:
        self._renew_at = _NEVER
        config = self.config
        chosen: list[Held] = []
        locked: list[tuple[bytes, int, float]] = []
        for held in self.held.values():
            lasting = config.ttl
            if held.lease is not None and held.lease.revoked_at is not None:
                lasting = min(lasting, held.lease.revoked_at + config.max_handoff_time - now)
                if lasting <= 0:
                    continue
            chosen.append(held)
            locked.append((held.key, held.token, lasting))
        if not chosen:
            return None

        def done(reply: Renewed, sent: float, now: float) -> None:
            with self._guard:
                lost = {chosen[number] for number in reply.lost}
                for held, (_, _, lasting) in zip(chosen, locked, strict=True):
                    if held in lost:
                        if self.held.get(held.key) is held:
                            self._forget(held, None)
                    else:
                        held.deadline = sent + lasting
                for number, waiter in reply.wanted.items():
                    self._want(chosen[number], waiter, now)

        def failed(_: StoreError, now: float) -> None:
            with self._guard:
                self._renew_at = now + self._retry

        return Run(renew(self._keys, session=self._session, locked=locked), done, failed)

    def _look_step(self) -> Run:
        self._look_at = _NEVER
        keys = self._refused_keys

        def done(found: dict[bytes, Lock], sent: float, now: float) -> None:
            # Of more than were looked up, the same part is taken to be held.
            self.unserved = round(self.refused * (1 - len(found) / len(keys)))

        return Run(look(self._keys, locked=keys), done, lambda _error, _now: None)

    # --- small things, under the guard --------------------------------------------------------

    def _let_go(self, held: Held, now: float) -> None:
        if self.held.get(held.key) is not held:
            return
        del self.held[held.key]
        if self.config.locking:
            self._releasing[held.key] = None
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

    def _forget(self, held: Held, holder: str | None) -> None:
        """The lock is gone, whatever we do."""
        if self.held.get(held.key) is held:
            del self.held[held.key]
        if held.lease is not None:
            held.lease.holder = holder
            held.lease.lost.set()
            self._leases.pop(held.key, None)

    def _revoke(self, held: Held, now: float) -> None:
        lease = held.lease
        if lease is not None and lease.revoked_at is None:
            lease.revoked_at = now
            lease.revoked.set()

    def _want(self, held: Held, waiter: str, now: float) -> None:
        if not held.overflow or self.held.get(held.key) is not held:
            return
        for node in self._ring.successors(held.point):
            if node == self._node:
                return  # We are nearer.
            if node == waiter:
                held.wanted = True
                self._revoke(held, now)
                return

    def _refuse(self, key: bytes, point: int, now: float) -> None:
        self._refused_at = now
        self.stirred = self.stirred or not self.full
        self.full = True
        if (
            len(self._refused_now) < REFUSED_COUNTED
            and bisect_right(self._own_bounds, point) & 1 == 1
        ):
            self._refused_now[point] = key

    def _settle_full(self, now: float) -> None:
        limit = self.config.limit
        if not self.full or limit is None:
            return
        if self.count <= limit - max(1, limit // 10) or self._refused_at < now - self.config.idle:
            self.full = False
