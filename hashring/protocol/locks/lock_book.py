"""The locks and the limit of one node.

A :class:`LockBook` knows which keys its node holds, which it lets go, and which it waits for. It
is asked by users (``ask``, ``take``, ``acquired``) and by the node's loop (``step``, ``heartbeat``,
``see``). :mod:`.key_states` has the life of a key in it; :mod:`.limit`, :mod:`.renewal` and
:mod:`.lease` have what their names say. One call at a time:
:mod:`hashring.node.shared_lock_book` is for several threads.

A key that is being acquired or released counts against the limit until Redis has answered, so a
node never holds more than its limit, whatever gets lost on the way.

Doubt. Nobody knows what came of a call that Redis did not answer, or whose caller was interrupted.
The loop asks, in one call about all such keys, and none of them is taken or held before the
answer. When it was Redis that did not answer, no other lock is taken either: a loop over many keys
waits once for a silent Redis, and not at each key.

Overflow. A node at its limit that had to refuse a key is **full**, and says so on the ring. The
others treat the ring as if it had left: each of its keys goes to the node that would inherit it.
The full node keeps what it holds. An inheritor that finds such a lock held asks for it again after
ever longer waits: the holder may keep it, or may not have let go yet of what the ring took from it,
and no message tells an inheritor. The node has **room** again when a tenth of its limit is free
(one key at least), or when nobody has asked it for more than it holds for ``idle`` seconds.

What overflowed comes back key by key, and only as fast as there is room: the owner asks for the
lock, and keeps a place for it until it has it; only that makes the holder let go, once its loop
asks for the key again, and leave it to the owner for a ttl. Nobody but its owner waits for a key,
so a key never goes round.

Loss. When Redis comes back empty, or is emptied, the locks are gone, and their holders do not know
yet. A call that takes locks names the history of the ring that the node knows, and none is taken in
another, or where there is none. The first heartbeat of a node that knew an earlier history holds
everybody off for as long as a lock lasts; each node puts back what it still holds by its own clock.
When that time is over, a lock that nobody put back is one in which nobody believes any more.
It is the same when Redis restarts, or another server takes over: its data may lack the newest
locks, so the first heartbeat that finds another server begins another history.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from hashring.core.ring import Ring
from hashring.errors import StoreError
from hashring.protocol.locks.key_states import HOLDING, NEVER, Key, KeyEvent, KeysByState, KeyState
from hashring.protocol.locks.lease import KeyLease
from hashring.protocol.locks.limit import Limit
from hashring.protocol.locks.renewal import Renewal
from hashring.protocol.machine import Run
from hashring.store.command import Command
from hashring.store.locks.commands import (
    LOCKS_A_CALL,
    AcquireAnswer,
    HeldBefore,
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
from hashring.store.ring.key_names import RingKeys

_S, _E = KeyState, KeyEvent

# Asked of each key of very many: names of modules are found faster than members of an Enum.
_HELD, _KEPT = KeyState.HELD, KeyState.KEPT
_RELEASING, _AWAITED = KeyState.RELEASING, KeyState.AWAITED


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


class Surroundings(Protocol):
    """What the book asks of the ring: a :class:`Ring`, or what a node knows that follows none."""

    def __contains__(self, node: object) -> bool:
        """Whether a node may be on the ring."""

    def owner_of_point(self, point: int) -> str:
        """The node that owns a point; empty when that is not known."""

    def nearer(self, point: int, node: str, other: str) -> bool:
        """Whether a node would own a point before another one."""


class Verdict(Enum):
    """The book's answer about a key."""

    NO = "no"
    """Not ours now."""
    YES = "yes"
    """Held."""
    TAKE = "take"
    """Ours if its lock can be taken."""


AskedKey = tuple[bytes, int, int]
"""A key, its point, and the caller's own number. A plain tuple: there are very many of them."""


@dataclass(eq=False)
class Take:
    """Locks to be taken.

    Attributes:
        command: what takes them.
        keys: their keys, in the order of the answers.
        places: how many places within the limit are kept for them.
        session: the session that they are taken under.
        began: when, in monotonic seconds.
    """

    command: Command[list[AcquireAnswer]]
    keys: tuple[Key, ...]
    places: int
    session: str
    began: float


@dataclass(eq=False)
class Doubt:
    """Keys of which the loop asks what came of a call about them.

    Attributes:
        keys: they are ``doubted``.
        places: how many places within the limit are kept for them.
        began: when the call began, in monotonic seconds.
    """

    keys: tuple[Key, ...]
    places: int
    began: float = -NEVER


class LockBook:
    """See the module's text.

    Args:
        keys: the ring's keys in Redis.
        config: how the node locks.
        retry: seconds until a renewal or release that failed is tried again.

    Attributes:
        held: the keys that the node holds. ``contains`` reads it whatever else goes on.
        limit: how many they may be.
        left: whether the node has begun to leave.
        stirred: whether there is something new for the loop to do; reset by what wakes the loop.
        outdated: whether Redis has another history of the ring than the last heartbeat learnt;
            reset by the next heartbeat.
    """

    def __init__(self, keys: RingKeys, config: LockConfig, retry: float) -> None:
        self.config = config
        self.limit = Limit(config.limit, config.idle, locking=config.locking)
        self._store_keys = keys
        self._retry = retry
        self._keys = KeysByState()
        self.held = self._keys.held
        self._renewal = Renewal(config.ttl)
        self._leases: set[Key] = set()
        self._ring: Surroundings = Ring()
        self._bounds: tuple[int, ...] = ()
        self._own_bounds: tuple[int, ...] = ()
        self._forget("", "")

    def _forget(self, node: str, session: str) -> None:
        self._node, self._session = node, session
        self.left = self.stirred = self.outdated = False
        # Calls under way, and those of which nobody knows what came.
        self._takes: list[Take] = []
        self._doubts: list[Doubt] = []
        # Whether Redis left one of those calls unanswered, and has answered none about them since.
        self._unanswered = False
        # Whether the loop's last step found out about doubts: then other work goes first.
        self._resolved = False
        # Why the last of the loop's calls failed; and why Redis refuses to take locks, since when.
        self._failure: StoreError | None = None
        self._refusal: tuple[StoreError, float] | None = None
        # The history of the ring that is known, and until when no lock may be taken in it.
        self._history = ""
        self._held_off_until = -NEVER
        # Whether something may have been missed that a change of the ring asks for.
        self._mended = False
        self._resolve_at = self._release_at = NEVER
        self._renewal.forget()
        self.limit.forget()

    # --- asked by users -----------------------------------------------------------------------

    def ask(
        self, key: bytes, point: int, bounds: Sequence[int], until: float, now: float
    ) -> Verdict:
        """Whether the node may work on a key now.

        Args:
            bounds: boundaries of the ranges in which it may take keys.
            until: the node's own deadline; past it, it holds nothing.

        After a ``TAKE`` the key may be among those given to :meth:`take`.
        """
        ours = bisect_right(bounds, point) & 1 == 1 and now < until
        held = self.held.get(key)
        if held is not None:
            return self._ask_held(held, ours, until, now)
        known = self._keys.others.get(key)
        if not ours or (known is not None and known.state not in (_AWAITED, _S.ELSEWHERE)):
            return Verdict.NO
        if now < self._held_off_until or (known is not None and now < known.until):
            return Verdict.NO
        # What it waits for has its place already.
        if known is None or known.state is _S.ELSEWHERE:
            most = self.limit.most
            if most is not None and self.count >= most:
                self._refuse(key, point, now)
                return Verdict.NO
        if not self.config.locking:
            made = Key(key, point)
            self._keys.enter(_E.ASKED, made)
            made.hold(0, NEVER, now)
            self._granted(now, made)
            return Verdict.YES
        # While Redis does not answer, one caller has waited long enough for it. A caller that was
        # interrupted has waited for nothing: only its own keys are in doubt.
        return Verdict.NO if self._unanswered else Verdict.TAKE

    def _ask_held(self, held: Key, ours: bool, until: float, now: float) -> Verdict:
        if now >= held.deadline or now >= until:
            # Its lock may stand or not: the next renewal says so.
            return Verdict.NO
        if held.state is _KEPT or (ours and held.state is _HELD):
            held.asked = now
            return Verdict.YES
        if held.lease is None:
            # Ours no more. The loop has just been told so, so nobody works on it.
            self._let_go(held, now)
        return Verdict.NO

    def ask_many(
        self,
        asked: Iterable[AskedKey],
        bounds: Sequence[int],
        until: float,
        now: float,
    ) -> tuple[list[AskedKey], list[AskedKey]]:
        """:meth:`ask` about many keys: those with the verdict ``YES``, and those with ``TAKE``."""
        yes: list[AskedKey] = []
        to_take: list[AskedKey] = []
        known = self.held.get
        # As a rule no key is in another state than held: then only its range decides.
        simple = self._simple and now < until
        for each in asked:
            key, point, _ = each
            held = known(key)
            inside = bisect_right(bounds, point) & 1
            if held is None:
                if not inside:
                    continue
                if simple:
                    to_take.append(each)
                    continue
            elif (
                (held.state is _KEPT or (inside and held.state is _HELD))
                and now < held.deadline
                and now < until
            ):
                held.asked = now
                yes.append(each)
                continue
            # This class' own method: a subclass that locks has locked already.
            verdict = LockBook.ask(self, key, point, bounds, until, now)
            if verdict is Verdict.TAKE:
                to_take.append(each)
            elif verdict is Verdict.YES:
                yes.append(each)
        return yes, to_take

    def take(self, asked: Sequence[AskedKey], now: float) -> Take | None:
        """What to run to take keys whose verdict was ``TAKE``; nothing when none is left to take.

        It keeps places within the limit until :meth:`acquired` or :meth:`acquire_failed`, and
        nobody else takes these keys meanwhile.
        """
        kept: dict[bytes, Key] = {}
        own: dict[bytes, Key] = {}
        inherited: dict[bytes, Key] = {}
        held, others, own_bounds = self.held, self._keys.others, self._own_bounds
        for key, point, _ in asked:
            known = held.get(key) or others.get(key)
            if known is not None and known.state is _AWAITED:
                kept[key] = known
            elif known is None or known.state is _S.ELSEWHERE:
                chosen_from = own if bisect_right(own_bounds, point) & 1 else inherited
                # Another thread may have been faster; and a key may be wanted twice.
                if key not in chosen_from:
                    chosen_from[key] = known or Key(key, point)
        # Its own first: they have the places, and for them it waits. Those that it waits for
        # keep theirs: their holders let go of them for this node.
        chosen = (*kept.values(), *own.values(), *inherited.values())
        most = len(chosen)
        if self.limit.most is not None:
            most = min(most, self.limit.most - self.count + len(kept))
        if self.left or most <= 0:
            for each in chosen:
                self._refuse(each.key, each.point, now)
            return None
        command = acquire(
            self._store_keys,
            node=self._node,
            session=self._session,
            ttl=self.config.ttl,
            locked=[each.key for each in chosen],
            most=most,
            awaited=len(kept) + len(own),
            kept=len(kept),
            history=self._history,
        )
        for each in chosen:
            each.until = NEVER
        self._keys.enter(_E.ASKED, *chosen)
        take = Take(command, chosen, most, self._session, now)
        self._takes.append(take)
        return take

    def acquired(
        self, take: Take, answers: Sequence[AcquireAnswer], sent: float, now: float
    ) -> None:
        """The answer to a :meth:`take`."""
        self._refusal = None
        if take.session != self._session:
            return  # The name was lost meanwhile; these locks expire.
        answered = zip(take.keys, answers, strict=True)
        if take not in self._takes:
            # Given up since, and asked about; but perhaps before it was done.
            self._look_into(take, [(k, t) for k, a in answered if (t := _token(a))], now)
            return
        self._takes.remove(take)
        taken, refused = [], []
        for key, answer in answered:
            if isinstance(answer, int):
                key.hold(answer, sent + self.config.ttl, now)
                taken.append(key)
            elif isinstance(answer, HeldBefore):
                self._take_anew(key, answer.token, now)
            elif isinstance(answer, HeldByOther) and (answer.awaited or not self._own(key.point)):
                self._leave_to_other(key, answer, now)
            else:
                self._keys.enter(_E.NOT_TAKEN, key)
                if isinstance(answer, HeldOff):
                    self._hold_off(answer.seconds, now)
                else:
                    refused.append(key)
        self._granted(now, *taken)
        for key in refused:
            self._refuse(key.key, key.point, now)

    def acquire_failed(self, take: Take, now: float, refusal: StoreError | None = None) -> None:
        """Redis did not take these locks, as far as is known: the loop asks.

        Until Redis answers that, no other lock is taken.

        Args:
            refusal: why Redis refused the call, if it did: asking who holds them may not be
                refused, and would tell nobody.
        """
        if refusal is not None:
            self._refusal = refusal, now
        self.interrupted(take, now)
        self._unanswered = bool(self._doubts)

    def interrupted(self, take: Take, now: float) -> None:
        """The caller did not wait for the answer, so nobody knows what came: the loop asks.

        This says nothing about Redis, so other locks are taken meanwhile.
        """
        if take in self._takes:
            self._takes.remove(take)
            self._keys.enter(_E.UNANSWERED, *take.keys)
            self._doubt(Doubt(take.keys, take.places, take.began), now)
        elif take.session == self._session:
            self._look_into(take, [(key, None) for key in take.keys], now)

    def _look_into(self, take: Take, late: Sequence[tuple[Key, int | None]], now: float) -> None:
        """Locks may have been taken by a call that was given up, under these tokens if known."""
        free: list[Key] = []
        released: list[Key] = []
        for each, token in late:
            key = self._keys.find(each.key) or each
            if key.state in (_S.FREE, _S.ELSEWHERE):
                key.token = 0
                free.append(key)
            elif key.state is _RELEASING and key.token != token:
                released.append(key)
            elif key.state in (_AWAITED, _S.TAKING):
                key.until = now
        if self.limit.most is not None:
            # Their places are others' by now: what there is no room for is left to expire.
            free = free[: max(0, self.limit.most - self.count)]
        if doubtful := (*released, *free):
            self._keys.enter(_E.ANSWERED_LATE, *doubtful)
            self._doubt(Doubt(doubtful, len(doubtful), take.began), now)

    def _doubt(self, doubt: Doubt, now: float) -> None:
        self._doubts.append(doubt)
        self._resolve_at = min(self._resolve_at, now)
        self.stirred = True

    def busy(self, key: bytes) -> bool:
        """Whether a call of this node's about the key is under way, and Redis answers calls."""
        known = self._keys.others.get(key)
        return known is not None and (
            known.state is _RELEASING
            or (known.state in (_S.TAKING, _S.DOUBTED) and not self._unanswered)
        )

    def in_doubt(self, key: bytes) -> bool:
        """Whether a call about the key was not answered, and not refused; the loop finds out."""
        known = self._keys.others.get(key)
        return known is not None and known.state is _S.DOUBTED and self._refusal is None

    def holder(self, key: bytes) -> str | None:
        """The node that has a key, when we last looked; ``None`` when none is known to."""
        known = self._keys.others.get(key)
        if known is None or known.state in (_S.TAKING, _S.DOUBTED):
            return None
        return known.other or None

    def pin(
        self, key: bytes, clock: Callable[[], float], event: Callable[[], Any]
    ) -> KeyLease[Any] | None:
        """A lease on a key that is held; the same one again inside itself."""
        held = self.held.get(key)
        if held is None or (now := clock()) >= held.deadline:
            return None
        if held.lease is None:
            if held.state is _S.WANTED:
                return None
            if held.state is _HELD and bisect_right(self._bounds, held.point) & 1 == 0:
                # It moved since it was asked about, and only leases that stand are revoked.
                self._let_go(held, now)
                return None
            held.lease = KeyLease(held, clock, event(), event())
            self._leases.add(held)
        held.lease.pins += 1
        return held.lease

    def pin_again(self, key: bytes, now: float) -> KeyLease[Any] | None:
        """The lease that a key is held by already; ``None`` when there is none."""
        held = self.held.get(key)
        if held is None or held.lease is None or now >= held.deadline:
            return None
        held.lease.pins += 1
        return held.lease

    def unpin(self, lease: KeyLease[Any], now: float) -> bool:
        """Leave a lease; whether the key is to be let go now."""
        lease.pins -= 1
        if lease.pins or (held := lease.end()) is None:
            return False
        self._leases.discard(held)
        held.asked = now
        if held.state is _S.FINISHING:
            # The node has left meanwhile, and the lock stood until the work was done.
            self._keys.enter(_E.WORK_DONE, held)
            self._release_soon(now)
        elif lease.revoked_at is None:
            return False
        else:
            self._let_go(held, now)
        return True

    @property
    def count(self) -> int:
        """How many keys count against the limit."""
        count = len(self.held) + self._keys.count(_RELEASING) + self._keys.count(_AWAITED)
        return count + self._places

    @property
    def _places(self) -> int:
        """How many places are kept for calls whose answers are not known."""
        takes = sum(take.places for take in self._takes)
        return takes + sum(doubt.places for doubt in self._doubts)

    @property
    def error(self) -> StoreError | None:
        """Why Redis did not do what was last asked of it about locks; ``None`` when it did."""
        return self._failure or (self._refusal[0] if self._refusal else None)

    @property
    def waiting(self) -> int:
        """How many keys of ours another node still holds."""
        return self._keys.count(_AWAITED)

    def abandon(self) -> None:
        """In a forked child: the locks, and the leases on them, are the parent's."""
        for held in list(self.held.values()):
            held.deadline = -NEVER

    def mend(self) -> None:
        """Make whole again what was raised into, between any two lines, by a signal handler.

        The state of each key is taken for true. What may have been missed of it is found out: the
        loop asks Redis about locks that may have been taken, and looks over the leases.
        """
        self._keys.index()
        self._mend_takes()
        for key in self._keys.of(_RELEASING) if not self.config.locking else ():
            self._keys.enter(_E.RELEASED, key)
        known = (*self.held.values(), *self._keys.others.values())
        self._leases = {key for key in known if key.lease is not None}
        for key in known:
            if key.state is _S.IDLE:
                self._keys.enter(_E.ASKED, key)
            if (lease := key.lease) is not None and lease.revoked_at is not None:
                key.deadline = min(key.deadline, lease.last)
                lease.revoked.set()
        self._release_at = self._resolve_at = -NEVER
        self._mended = self.stirred = True

    def _mend_takes(self) -> None:
        under_way = {key for take in self._takes for key in take.keys}
        for key in self._keys.of(_S.TAKING):
            if not self.config.locking:
                self._keys.enter(_E.NOT_TAKEN, key)
            elif key not in under_way:
                # Its lock is the node's, if it has one, and was not let go.
                key.token = 0
                self._keys.enter(_E.UNANSWERED, key)
        doubted = self._keys.of(_S.DOUBTED)
        self._doubts = []
        for first in range(0, len(doubted), LOCKS_A_CALL):
            some = tuple(doubted[first : first + LOCKS_A_CALL])
            self._doubts.append(Doubt(some, len(some)))
        self._unanswered = self._unanswered and bool(doubted)

    # --- told by the node's loop --------------------------------------------------------------

    def begin(self, node: str, session: str) -> None:
        """The node has this name and session from now on; what another session held is lost."""
        lost = (*self.held.values(), *self._keys.of(_S.FINISHING))
        self._end_leases(*lost)
        self._keys.enter(_E.LOST, *lost)
        self._keys.enter(_E.FORGOTTEN, *self._keys.others.values())
        self._forget(node, session)

    def drain(self) -> None:
        """Keep no key for an owner that is full: what is held is to be handed over.

        Told before :meth:`see`, which is told that nothing is the node's own.
        """
        for held in self.held.values():
            if held.state in (_KEPT, _S.WANTED):
                held.other = ""
                self._keys.enter(_E.DRAINED, held)

    def see(
        self, ring: Surroundings, bounds: tuple[int, ...], own_bounds: tuple[int, ...], now: float
    ) -> None:
        """The ring as it is now.

        Args:
            bounds: of the ranges in which the node may take keys, those of full nodes included.
            own_bounds: of the ranges that are its own.
        """
        changed = ring is not self._ring
        self._ring, self._bounds, self._own_bounds = ring, bounds, own_bounds
        if bounds is not own_bounds:
            # Held for an owner that is full now: kept, until the owner asks for it.
            for held in self.held.values():
                if held.state is _HELD and self._inherited(held.point):
                    self._keys.enter(_E.OWNER_FULL, held)
        for held in self._leases:
            if held.state is _HELD and bisect_right(bounds, held.point) & 1 == 0:
                self._revoke(held, now)
        if self._keys.count(_S.WANTED):
            for held in self.held.values():
                if held.state is _S.WANTED and not self._nearer(held.other, held.point):
                    # The node that waited has gone.
                    held.other = ""
                    self._keys.enter(_E.OWNER_GONE, held)
        for key in self._keys.of(_AWAITED, _S.ELSEWHERE, _RELEASING):
            self._see_others(key, changed, now)

    def _see_others(self, key: Key, changed: bool, now: float) -> None:
        own, gone = self._own(key.point), key.other not in self._ring
        if key.state is _AWAITED:
            if not own:
                self._keys.enter(_E.FORGOTTEN, key)
            elif gone:
                key.until = now
        elif own or gone:
            if key.state is _S.ELSEWHERE:
                self._keys.enter(_E.FORGOTTEN, key)
            key.other = ""
        elif changed and self._ring.owner_of_point(key.point) != key.other:
            # It may not have it for much longer.
            key.until, key.wait = min(key.until, now + self._retry), self._retry

    def heartbeat(
        self, everyone_full: bool, now: float, history: str = "", held_off: float = 0.0
    ) -> None:
        """The node's heartbeat was answered: renew, and look after what nobody asks for.

        Args:
            everyone_full: whether every node of the ring is full, this one included.
            history: the ring's, in Redis.
            held_off: seconds for which no lock may be taken in it.
        """
        if self._mended:
            self._mended = False
            self.see(self._ring, self._bounds, self._own_bounds, now)
        if self.config.locking:
            self._follow(history, held_off, now)
        idle = now - self.config.idle
        for held in list(self.held.values()):
            if held.asked < idle and held.lease is None:
                self._let_go_if_idle(held, idle, now)
        for key in self._keys.of(_AWAITED, _S.ELSEWHERE):
            if key.until < idle:
                self._keys.enter(_E.FORGOTTEN, key)
        for take in self._takes[:]:
            # The caller never came back: a greenlet, a signal handler that raised.
            if take.began < now - self.config.ttl:
                self.interrupted(take, now)
        if self._doubts:
            # Whoever asked about them may have been interrupted, too.
            self._resolve_at = min(self._resolve_at, now)
        if self._refusal is not None and self._refusal[1] < idle:
            self._refusal = None  # Nobody has asked since.
        self.limit.recount(self._own, everyone_full, now)
        self.limit.settle(self.count, now)
        if self.config.locking:
            self._renewal.all(self.held.values(), now)

    def _follow(self, history: str, held_off: float, now: float) -> None:
        if history != self._history:
            # The locks that it waited for may be gone, and its name in them is.
            self._ask_again(now, _AWAITED)
            self._renewal.may_be_lost(self.held.values())
        if not held_off:
            self._renewal.may_be_lost(())
        self._history = history
        self._held_off_until = now + held_off if held_off else -NEVER

    def _hold_off(self, seconds: float | None, now: float) -> None:
        """No lock may be taken for so long; ``None``: the next heartbeat learns for how long."""
        if seconds is None:
            self._held_off_until = NEVER
            self.outdated = self.stirred = True
        else:
            self._held_off_until = max(self._held_off_until, now + seconds)

    def held_off_for(self, now: float) -> float:
        """Seconds for which no lock may be taken, because Redis lost the ring's locks."""
        return max(0.0, self._held_off_until - now)

    def listening(self, now: float) -> None:
        """The node's channel is heard from now on: what was freed before, nobody has told."""
        self._ask_again(now, _AWAITED, _S.TAKING)

    def news(self, news: LockNews, now: float) -> None:
        """A message on the node's own channel."""
        if news.wanted_by is not None:
            held = self.held.get(news.key)
            if held is not None:
                self._want(held, news.wanted_by, now)
            return
        known = self._keys.others.get(news.key)
        # The message and the answer that it is waited for come by two connections.
        if known is not None and known.state in (_AWAITED, _S.TAKING):
            known.until = now

    def due(self) -> float:
        """When :meth:`step` has something to do, in monotonic seconds."""
        due = min(self._resolve_at, self._renewal.due, self.limit.look_at)
        if self._keys.count(_RELEASING):
            due = min(due, self._release_at)
        return min([due, *(held.deadline for held in self._leases)])

    def step(self, now: float) -> Run | None:
        """What the loop has to run now, if anything."""
        for held in [held for held in self._leases if now >= held.deadline]:
            # Its time is over by this clock; Redis may count a moment longer.
            self._end_leases(held)
            if held.state is _S.FINISHING:
                self._keys.enter(_E.LOST, held)
            else:
                self._let_go(held, now)
        # By turns: callers that are interrupted all the time must not keep locks from renewal.
        first = now >= self._resolve_at and not self._resolved
        if first and (step := self._resolve_step()) is not None:
            self._resolved = True
            return step
        self._resolved = False
        step = self._other_step(now)
        if step is None and now >= self._resolve_at:
            step = self._resolve_step()
        return step

    def _other_step(self, now: float) -> Run | None:
        if now >= self._release_at and self._keys.count(_RELEASING):
            return self._release_step()
        if now >= self._renewal.due and (step := self._renew_step(now)) is not None:
            return step
        return self._look_step() if now >= self.limit.look_at else None

    def leave(self, now: float) -> Run | None:
        """The node leaves: let go of everything that nobody works on, a call at a time.

        Leases are lost, but their locks stay until the work is done or they expire.
        """
        self.left = True
        for held in list(self.held.values()):
            if held.lease is not None:
                self._revoke(held, now)
                held.lease.lost.set()
                self._keys.enter(_E.NODE_LEFT, held)
            else:
                self._let_go(held, now)
        self.limit.forget()
        self._renewal.forget()
        step = self._resolve_step()
        return step or (self._release_step() if self._keys.count(_RELEASING) else None)

    def forget_releases(self) -> bool:
        """Redis does not answer, and the node leaves: what is not released expires.

        Returns:
            Whether there was any, that nobody has forgotten before.
        """
        if not self.left:
            return False  # It has begun anew.
        found = [*self._keys.of(_S.DOUBTED, _RELEASING)]
        self._keys.enter(_E.FORGOTTEN, *found)
        self._doubts.clear()
        self._unanswered = False
        return bool(found)

    # --- steps --------------------------------------------------------------------------------

    def _run(
        self,
        command: Command[Any],
        done: Callable[[Any, float, float], None],
        failed: Callable[[float], None],
    ) -> Run:
        def answered(reply: Any, sent: float, now: float) -> None:
            self._failure = None
            done(reply, sent, now)

        def unanswered(error: StoreError, now: float) -> None:
            self._failure = error
            failed(now + self._retry)

        return Run(command, answered, unanswered)

    def _resolve_step(self) -> Run | None:
        """Find out what came of calls whose answers were lost."""
        self._resolve_at = NEVER
        doubts: list[Doubt] = []
        locked: list[bytes] = []
        for doubt in self._doubts:
            if doubts and len(locked) + len(doubt.keys) > LOCKS_A_CALL:
                break
            doubts.append(doubt)
            locked += [key.key for key in doubt.keys]
        if not doubts:
            return None

        def done(found: dict[bytes, Lock], sent: float, now: float) -> None:
            self._unanswered = False
            for doubt in doubts:
                if doubt in self._doubts:
                    self._doubts.remove(doubt)
                    self._found_out(doubt, found, sent, now)
            self._resolve_at = now if self._doubts else NEVER

        def failed(retry_at: float) -> None:
            self._unanswered = bool(self._doubts)
            self._resolve_at = retry_at

        return self._run(look(self._store_keys, locked=locked), done, failed)

    def _found_out(self, doubt: Doubt, found: dict[bytes, Lock], sent: float, now: float) -> None:
        most = self.limit.most
        for key in doubt.keys:
            lock = found.get(key.key)
            if lock is None or lock.session != self._session:
                self._keys.enter(_E.NOT_TAKEN, key)
            elif lock.token == key.token:
                self._keys.enter(_E.STILL_OURS, key)
                self._release_soon(now)
            elif most is not None and self.count >= most:
                self._keys.enter(_E.NOT_TAKEN, key)
            elif lock.age > now - doubt.began:
                self._take_anew(key, lock.token, now)
            else:
                # Redis rounds to milliseconds.
                key.hold(lock.token, sent + lock.expires_in - 0.001, now)
                self._granted(now, key)

    def _release_step(self) -> Run:
        chosen = [(key, key.token) for key in self._keys.of(_RELEASING)[:LOCKS_A_CALL]]

        def done(_: int, sent: float, now: float) -> None:
            for key, token in chosen:
                if key.state is _RELEASING and key.token == token:
                    key.token = 0
                    self._keys.enter(_E.PASSED_ON if key.other else _E.RELEASED, key)
            self._release_at = now if self._keys.count(_RELEASING) else NEVER
            self.limit.settle(self.count, now)

        def failed(retry_at: float) -> None:
            self._release_at = retry_at

        locked = [(key.key, token) for key, token in chosen]
        command = release(self._store_keys, session=self._session, locked=locked)
        return self._run(command, done, failed)

    def _renew_step(self, now: float) -> Run | None:
        batch = self._renewal.next(now)
        if batch is None:
            return None

        def done(reply: Renewed, sent: float, now: float) -> None:
            if reply.unknown:
                # Redis lost the ring since the heartbeat: the next one learns of it.
                self.outdated = True
            for key in self._renewal.done(batch, reply, sent, now):
                if key.state in HOLDING:
                    self._end_leases(key)
                    self._keys.enter(_E.LOST, key)
            for number, waiter in reply.wanted.items():
                self._want(batch.keys[number], waiter, now)
            self.limit.settle(self.count, now)

        command = renew(
            self._store_keys,
            session=self._session,
            ttl=self.config.ttl,
            locked=[(key.key, key.token) for key in batch.keys],
            lasting=batch.lasting,
            node=self._node,
            history=self._history,
            put_back=batch.put_back,
        )
        return self._run(command, done, lambda retry_at: self._renewal.failed(batch, retry_at))

    def _look_step(self) -> Run | None:
        """Find out how many of the refused keys nobody holds."""
        sample = self.limit.sample()
        if not sample:
            return None

        def done(found: dict[bytes, Lock], sent: float, now: float) -> None:
            self.limit.found(len(found), len(sample))

        return self._run(look(self._store_keys, locked=sample), done, lambda _: None)

    # --- small things -------------------------------------------------------------------------

    def _own(self, point: int) -> bool:
        return bisect_right(self._own_bounds, point) & 1 == 1

    def _inherited(self, point: int) -> bool:
        if self._bounds is self._own_bounds:
            return False
        return bisect_right(self._bounds, point) & 1 == 1 and not self._own(point)

    @property
    def _simple(self) -> bool:
        """Whether any key of ours that is not held may be taken."""
        return (
            not self._keys.others
            and not self._unanswered
            and self._held_off_until == -NEVER
            and self.config.locking
            and self.limit.most is None
        )

    def _ask_again(self, now: float, *states: KeyState) -> None:
        for key in self._keys.of(*states):
            key.until = now

    def _granted(self, now: float, *keys: Key) -> None:
        if self._bounds is self._own_bounds:
            self._keys.enter(_E.TAKEN, *keys)
        else:
            for key in keys:
                own = not self._inherited(key.point)
                self._keys.enter(_E.TAKEN if own else _E.TAKEN_FOR_OWNER, key)
        self.limit.took(keys)
        for key in keys if self.left else ():
            self._let_go(key, now)

    def _take_anew(self, key: Key, token: int, now: float) -> None:
        """The lock is the node's, and not by the call that asked for it: let go of it first.

        A failover may have brought it back. Then another node may have had the key meanwhile, and
        what is written under this token is refused.
        """
        key.token, key.other = token, ""
        self._keys.enter(_E.STILL_OURS, key)
        self._release_soon(now)

    def _leave_to_other(self, key: Key, answer: HeldByOther, now: float) -> None:
        key.other = answer.holder
        lasts = answer.expires_in + 0.001
        if not answer.awaited:
            lasts = key.wait = min(2 * key.wait or self._retry, lasts)
        # At once, where it was freed before the answer arrived.
        key.until = min(key.until, now + lasts)
        self._keys.enter(_E.WAITED_FOR if answer.awaited else _E.OF_OTHER, key)

    def _let_go(self, held: Key, now: float) -> None:
        if held.other:
            # Its turn; else this node's loop would be back for the key before the waiter's.
            held.wait = self.config.ttl
            held.until = now + held.wait
        self._keys.enter(_E.LET_GO, held)
        if self.config.locking:
            self._release_soon(now)
        else:
            self._keys.enter(_E.RELEASED, held)

    def _let_go_if_idle(self, held: Key, idle: float, now: float) -> None:
        if held.state is not _S.WANTED:
            # `contains` asks in other threads: it writes `asked` and then reads the state, and
            # here it is the other way round, so one of the two sees what the other wrote. Else a
            # key might be let go that the loop was told to work on in that very moment.
            kept = held.state is _KEPT
            self._keys.enter(_E.NOT_ASKED, held)
            if held.asked >= idle:
                self._keys.enter(_E.ASKED, held)
                if kept:
                    self._keys.enter(_E.OWNER_FULL, held)
                return
        self._let_go(held, now)

    def _release_soon(self, now: float) -> None:
        self._release_at = min(self._release_at, now)
        self.stirred = True

    def _end_leases(self, *keys: Key) -> None:
        for key in keys:
            if key.lease is not None:
                key.lease.lost.set()
                key.lease.end()
                self._leases.discard(key)

    def _revoke(self, held: Key, now: float) -> None:
        lease = held.lease
        if lease is None or lease.revoked_at is not None:
            return
        lease.revoked_at, lease.last = now, now + self.config.max_handoff_time
        if held.deadline > lease.last:
            # Here before in Redis, which is told next: whatever gets lost, the lease is never
            # thought to last longer than the lock.
            held.deadline = lease.last
            self._renewal.soon(held, now)
        lease.revoked.set()

    def _want(self, held: Key, waiter: str, now: float) -> None:
        if held.state in (_KEPT, _S.WANTED) and self._nearer(waiter, held.point):
            held.other = waiter
            self._keys.enter(_E.OWNER_WAITS, held)
            self._revoke(held, now)

    def _nearer(self, node: str, point: int) -> bool:
        """Whether a node would own the point before this one."""
        return node != self._node and self._ring.nearer(point, node, self._node)

    def _refuse(self, key: bytes, point: int, now: float) -> None:
        if self.limit.most is None or self.left:
            return
        if (kept := self._places) and not self.limit.reached(self.count - kept):
            return  # Places are only kept, for calls that may need fewer: not full yet.
        self.stirred = self.stirred or not self.limit.full
        self.limit.refuse(key, point, own=self._own(point), now=now)


def _token(answer: AcquireAnswer) -> int | None:
    """The token of a lock that is the node's, by the answer of a call that was to take it."""
    if isinstance(answer, HeldBefore):
        return answer.token
    return answer if isinstance(answer, int) else None
