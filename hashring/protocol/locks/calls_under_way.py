"""The calls that take locks, from when they are made until it is known what they brought.

A key that is being acquired or released counts against the limit until Redis has answered, so a
node never holds more than its limit, whatever gets lost on the way.

Doubt. Redis did not answer a call, or its caller was interrupted. The loop asks what came of it, in
one call about all such keys, and none of them is taken or held before the answer. When it was Redis
that did not answer, no other lock is taken either: a loop over many keys waits once for a silent
Redis, and not at each key.

A lock of the session that is found need not be what the call took: a failover may have brought back
one that was let go of. It is the call's if it was taken in the history of the ring that lasts.
Otherwise another node may have had the key since, so it is let go of, and taken anew.

The end. Once Redis has executed a ``stop()``, it takes no lock of that session any more, however
late a call arrives. Then the node asks about all keys that a call may have taken of which nobody
knows, and lets go of what it finds. So it need not wait for its callers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hashring.errors import StoreError
from hashring.protocol.locks.key_states import NEVER, Key, KeyEvent, KeyState
from hashring.protocol.locks.lock_book_parts import BookParts
from hashring.protocol.locks.releases import Releases
from hashring.protocol.machine_steps import Run
from hashring.store.command import Command
from hashring.store.locks.commands import LOCKS_A_CALL, AcquireAnswer, Lock, look

_S, _E = KeyState, KeyEvent

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
        history: the history of the ring that the call names.
        began: when, in monotonic seconds.
        given_up: whether the loop has been asked to find out what came of it.
    """

    command: Command[list[AcquireAnswer]]
    keys: tuple[Key, ...]
    places: int
    session: str
    history: str
    began: float
    given_up: bool = False


@dataclass(eq=False)
class Doubt:
    """Keys of which the loop asks what came of a call about them.

    Attributes:
        keys: they are ``doubted``.
        places: how many places within the limit are kept for them.
    """

    keys: tuple[Key, ...]
    places: int


class CallsUnderWay:
    """The calls of one book, and what they bring.

    Args:
        parts: those that all pieces of the book share.
        releases: the book's.

    Attributes:
        takes: the calls under way.
        doubts: those of which nobody knows what came.
        unanswered: whether Redis left one of them unanswered, and has answered none about them
            since.
        refusal: why Redis refuses to take locks, and since when; ``None`` when it does not.
    """

    def __init__(self, parts: BookParts, releases: Releases) -> None:
        self._names = parts.names
        self._config = parts.config
        self._keys = parts.keys
        self._place = parts.place
        self._limit = parts.limit
        self._hold_off = parts.hold_off
        self._due_calls = parts.due_calls
        self._releases = releases
        # By session: keys of which nobody knows whether it had locks when it ended.
        self._unsettled: dict[str, list[bytes]] = {}
        self.forget()

    def forget(self) -> None:
        """No call is under way."""
        self.takes: list[Take] = []
        self.doubts: list[Doubt] = []
        self.unanswered = False
        self.refusal: tuple[StoreError, float] | None = None
        # Keys of calls that were given up, and that had not taken them when Redis was asked. Such a
        # call may be on its way still. Until when its lock may stand, in monotonic seconds.
        self._given_up: dict[bytes, float] = {}

    @property
    def count(self) -> int:
        """How many keys count against the limit."""
        return self._keys.in_places + self._places

    @property
    def _places(self) -> int:
        """How many places are kept for calls whose answers are not known."""
        if not (self.takes or self.doubts):  # as a rule; a full node asks this for each key
            return 0
        takes = sum(take.places for take in self.takes)
        return takes + sum(doubt.places for doubt in self.doubts)

    def refuse(self, key: bytes, point: int, now: float) -> None:
        """There is no place for a key."""
        limit = self._limit
        if limit.most is None or self._place.left:
            return
        if (kept := self._places) and not limit.reached(self.count - kept):
            return  # Places are only kept, for calls that may need fewer: not full yet.
        self._due_calls.stirred = self._due_calls.stirred or not limit.full
        limit.refuse(key, point, own=self._place.owns(point), now=now)

    def granted(self, now: float, *keys: Key) -> None:
        """These keys are the node's now."""
        if not self._place.inherits:
            self._keys.enter(_E.TAKEN, *keys)
        else:
            for key in keys:
                own = not self._place.inherited(key.point)
                self._keys.enter(_E.TAKEN if own else _E.TAKEN_FOR_OWNER, key)
        self._limit.took(keys)
        for key in keys if self._place.left else ():
            self._releases.let_go(now, key)

    def take_anew(self, key: Key, token: int, now: float) -> None:
        """The lock is the node's, and not by the call that asked for it: let go of it first.

        A failover may have brought it back. Then another node may have had the key meanwhile, and
        what is written under this token is refused.
        """
        key.token, key.other = token, ""
        self._keys.enter(_E.STILL_OURS, key)
        self._due_calls.release_soon(now)

    # --- doubt --------------------------------------------------------------------------------

    def acquire_failed(self, take: Take, now: float, refusal: StoreError | None = None) -> None:
        """Redis did not take these locks, as far as is known: the loop asks.

        Until Redis answers that, no other lock is taken.

        Args:
            refusal: why Redis refused the call, if it did: asking who holds them may not be
                refused, and would tell nobody.
        """
        if refusal is not None:
            self.refusal = refusal, now
        self.interrupted(take, now)
        self.unanswered = bool(self.doubts)

    def interrupted(self, take: Take, now: float) -> None:
        """The caller did not wait for the answer, so nobody knows what came: the loop asks.

        This says nothing about Redis, so other locks are taken meanwhile.
        """
        if take in self.takes:
            self.takes.remove(take)
            take.given_up = True
            self._keys.enter(_E.UNANSWERED, *take.keys)
            self._doubt(Doubt(take.keys, take.places), now)
        elif take.session == self._place.session:
            self.look_into([(key, None) for key in take.keys], now)
        elif not take.given_up:
            # Its session ended while it was under way.
            self._unsettle(take.session, [key.key for key in take.keys])
            self._due_calls.resolve_soon(now)

    def look_into(self, late: Sequence[tuple[Key, int | None]], now: float) -> None:
        """Locks may have been taken by a call that was given up, under these tokens if known."""
        free: list[Key] = []
        released: list[Key] = []
        for each, token in late:
            key = self._keys.find(each.key) or each
            if key.state in (_S.FREE, _S.ELSEWHERE):
                key.token = 0
                free.append(key)
            elif key.state is _S.RELEASING and key.token != token:
                released.append(key)
            elif key.state in (_S.AWAITED, _S.TAKING):
                key.until = now
        if self._limit.most is not None:
            # Their places are others' by now: what there is no room for is left to expire.
            room = max(0, self._limit.most - self.count)
            for key in free[room:]:
                self._give_up(key, now)
            free = free[:room]
        if doubtful := (*released, *free):
            self._keys.enter(_E.ANSWERED_LATE, *doubtful)
            self._doubt(Doubt(doubtful, len(doubtful)), now)

    def _doubt(self, doubt: Doubt, now: float) -> None:
        self.doubts.append(doubt)
        self._due_calls.resolve_soon(now)

    def resolve_step(self) -> Run | None:
        """Find out what came of calls whose answers were lost."""
        self._due_calls.resolve_at = NEVER
        doubts: list[Doubt] = []
        locked: list[bytes] = []
        for doubt in self.doubts:
            if doubts and len(locked) + len(doubt.keys) > LOCKS_A_CALL:
                break
            doubts.append(doubt)
            locked += [key.key for key in doubt.keys]
        if not doubts:
            return self._settle_step()

        # As they are when Redis is asked: a heartbeat may find another history before the answer.
        history, given_from = self._hold_off.history, self._hold_off.given_from

        def done(found: dict[bytes, Lock], sent: float, now: float) -> None:
            self.unanswered = False
            for doubt in doubts:
                if doubt in self.doubts:
                    self.doubts.remove(doubt)
                    self._found_out(doubt, found, given_from, sent, now)
            self._resolved(now)

        def failed(retry_at: float) -> None:
            self.unanswered = bool(self.doubts)
            self._due_calls.resolve_at = retry_at

        command = look(self._names, locked=locked, history=history)
        return self._due_calls.run(command, done, failed)

    def _resolved(self, now: float) -> None:
        self._due_calls.resolve_at = now if self.doubts or self._unsettled else NEVER

    def _found_out(
        self,
        doubt: Doubt,
        found: dict[bytes, Lock],
        given_from: float,
        sent: float,
        now: float,
    ) -> None:
        most = self._limit.most
        for key in doubt.keys:
            lock = found.get(key.key)
            if lock is None or lock.session != self._place.session:
                self._give_up(key, now)
                self._keys.enter(_E.NOT_TAKEN, key)
            elif lock.token == key.token:
                self._keys.enter(_E.STILL_OURS, key)
                self._due_calls.release_soon(now)
            elif most is not None and self.count >= most:
                self._give_up(key, now)
                self._keys.enter(_E.NOT_TAKEN, key)
            elif not lock.in_history or lock.token < given_from:
                self.take_anew(key, lock.token, now)
            else:
                # Redis rounds to milliseconds. If its clock was set back, the lock lasts longer.
                lasts = min(lock.expires_in - 0.001, self._config.ttl)
                key.hold(lock.token, sent + lasts, now)
                self.granted(now, key)

    def _give_up(self, key: Key, now: float) -> None:
        """Nobody looks after a key any more that a call may take, or has taken."""
        # The call may be on its way for long, and then its lock lasts a ttl.
        self._given_up[key.key] = now + 2 * self._config.ttl

    # --- the end of the session ---------------------------------------------------------------

    def session_ended(self, now: float) -> bool:
        """Redis takes no lock of this session any more; whether there may be some nobody knows of.

        A caller may have its answer before it, later, or never.
        """
        unknown = {key.key for take in self.takes for key in take.keys}
        unknown.update(key for key, until in self._given_up.items() if now < until)
        # An answer that is on its way may be older than the end.
        unknown.update(key.key for doubt in self.doubts for key in doubt.keys)
        self._unsettle(self._place.session, list(unknown))
        return bool(unknown)

    def _unsettle(self, session: str, keys: list[bytes]) -> None:
        if keys:
            self._unsettled[session] = [*self._unsettled.get(session, ()), *keys]

    def begin(self) -> None:
        """The node gets another session; what its doubtful calls took is still found out."""
        session = self._place.session
        unknown = self._unsettled.pop(session, [])
        unknown += [key.key for doubt in self.doubts for key in doubt.keys]
        at_work = {key.key for key in self._keys.of(_S.FINISHING)}
        self._unsettle(session, [key for key in unknown if key not in at_work])

    @property
    def unsettled(self) -> bool:
        """Whether sessions that ended may have locks that nobody knows of."""
        return bool(self._unsettled)

    def _settle_step(self) -> Run | None:
        """After the end of a session, find its locks that nobody knows of, and let go of them."""
        session = next(iter(self._unsettled), None)
        if session is None:
            return None
        unsettled = self._unsettled[session]

        def done(found: dict[bytes, Lock], sent: float, now: float) -> None:
            for lock in found.values():
                known = self._keys.find(lock.key)
                at_work = known is not None and known.state is _S.FINISHING
                if lock.session == session and not at_work:
                    self._releases.let_go_of_unknown(session, lock.key, lock.token, now)
            if self._unsettled.get(session) is unsettled:
                del unsettled[:LOCKS_A_CALL]
                if not unsettled:
                    del self._unsettled[session]
            self._resolved(now)

        def failed(retry_at: float) -> None:
            self._due_calls.resolve_at = retry_at

        command = look(self._names, locked=unsettled[:LOCKS_A_CALL])
        return self._due_calls.run(command, done, failed)

    # --- in between ---------------------------------------------------------------------------

    def heartbeat(self, now: float) -> None:
        """The node's heartbeat was answered: give up what nobody waits for any more."""
        if self._given_up:
            self._given_up = {key: t for key, t in self._given_up.items() if now < t}
        for take in self.takes[:]:
            # The caller never came back: a greenlet, a signal handler that raised.
            if take.began < now - self._config.ttl:
                self.interrupted(take, now)
        if self.doubts or self._unsettled:
            # The call that asked about them may have been interrupted, too.
            self._due_calls.resolve_at = min(self._due_calls.resolve_at, now)
        if self.refusal is not None and self.refusal[1] < now - self._config.idle:
            self.refusal = None  # Nobody has asked since.

    def forget_doubts(self) -> None:
        """The node leaves, and Redis does not answer: what is in doubt expires."""
        self.doubts.clear()
        self._unsettled.clear()
        self.unanswered = False

    def mend(self) -> None:
        """Make whole again what was raised into: the state of each key is true."""
        under_way = {key for take in self.takes for key in take.keys}
        for key in self._keys.of(_S.TAKING):
            if not self._config.locking:
                self._keys.enter(_E.NOT_TAKEN, key)
            elif key not in under_way:
                # Its lock is the node's, if it has one, and was not let go.
                key.token = 0
                self._keys.enter(_E.UNANSWERED, key)
        doubted = self._keys.of(_S.DOUBTED)
        self.doubts = []
        for first in range(0, len(doubted), LOCKS_A_CALL):
            some = tuple(doubted[first : first + LOCKS_A_CALL])
            self.doubts.append(Doubt(some, len(some)))
        self.unanswered = self.unanswered and bool(doubted)
