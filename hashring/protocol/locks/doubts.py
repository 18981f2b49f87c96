"""Doubt: calls of which nobody knows what came.

Redis did not answer them, or their callers were interrupted. The loop asks, in one call about all
such keys, and none of them is taken or held before the answer. When it was Redis that did not
answer, no other lock is taken either: a loop over many keys waits once for a silent Redis, and not
at each key.
"""

from __future__ import annotations

from collections.abc import Sequence

from hashring.errors import StoreError
from hashring.protocol.locks.calls_under_way import CallsUnderWay, Doubt, Take
from hashring.protocol.locks.due_calls import DueCalls
from hashring.protocol.locks.key_states import NEVER, Key, KeyEvent, KeysByState, KeyState
from hashring.protocol.locks.limit import Limit
from hashring.protocol.locks.lock_config import LockConfig
from hashring.protocol.locks.ring_place import RingPlace
from hashring.protocol.machine import Run
from hashring.store.locks.commands import LOCKS_A_CALL, Lock, look
from hashring.store.ring.key_names import RingKeys

_S, _E = KeyState, KeyEvent


class Doubts:
    """The doubts of one book.

    Args:
        names: the ring's keys in Redis.
        config: how the node locks.
        keys: the book's keys.
        place: the node's place on the ring.
        calls, limit, due_calls: the book's.
    """

    def __init__(
        self,
        *,
        names: RingKeys,
        config: LockConfig,
        keys: KeysByState,
        place: RingPlace,
        calls: CallsUnderWay,
        limit: Limit,
        due_calls: DueCalls,
    ) -> None:
        self._names = names
        self._config = config
        self._keys = keys
        self._place = place
        self._calls = calls
        self._limit = limit
        self._due_calls = due_calls

    def acquire_failed(self, take: Take, now: float, refusal: StoreError | None = None) -> None:
        """Redis did not take these locks, as far as is known: the loop asks.

        Until Redis answers that, no other lock is taken.

        Args:
            refusal: why Redis refused the call, if it did: asking who holds them may not be
                refused, and would tell nobody.
        """
        if refusal is not None:
            self._calls.refusal = refusal, now
        self.interrupted(take, now)
        self._calls.unanswered = bool(self._calls.doubts)

    def interrupted(self, take: Take, now: float) -> None:
        """The caller did not wait for the answer, so nobody knows what came: the loop asks.

        This says nothing about Redis, so other locks are taken meanwhile.
        """
        if take in self._calls.takes:
            self._calls.takes.remove(take)
            self._keys.enter(_E.UNANSWERED, *take.keys)
            self._doubt(Doubt(take.keys, take.places, take.began), now)
        elif take.session == self._place.session:
            self.look_into(take, [(key, None) for key in take.keys], now)

    def look_into(self, take: Take, late: Sequence[tuple[Key, int | None]], now: float) -> None:
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
            free = free[: max(0, self._limit.most - self._calls.count)]
        if doubtful := (*released, *free):
            self._keys.enter(_E.ANSWERED_LATE, *doubtful)
            self._doubt(Doubt(doubtful, len(doubtful), take.began), now)

    def _doubt(self, doubt: Doubt, now: float) -> None:
        self._calls.doubts.append(doubt)
        self._due_calls.resolve_soon(now)

    def resolve_step(self) -> Run | None:
        """Find out what came of calls whose answers were lost."""
        self._due_calls.resolve_at = NEVER
        doubts: list[Doubt] = []
        locked: list[bytes] = []
        for doubt in self._calls.doubts:
            if doubts and len(locked) + len(doubt.keys) > LOCKS_A_CALL:
                break
            doubts.append(doubt)
            locked += [key.key for key in doubt.keys]
        if not doubts:
            return None

        def done(found: dict[bytes, Lock], sent: float, now: float) -> None:
            self._calls.unanswered = False
            for doubt in doubts:
                if doubt in self._calls.doubts:
                    self._calls.doubts.remove(doubt)
                    self._found_out(doubt, found, sent, now)
            self._due_calls.resolve_at = now if self._calls.doubts else NEVER

        def failed(retry_at: float) -> None:
            self._calls.unanswered = bool(self._calls.doubts)
            self._due_calls.resolve_at = retry_at

        return self._due_calls.run(look(self._names, locked=locked), done, failed)

    def _found_out(self, doubt: Doubt, found: dict[bytes, Lock], sent: float, now: float) -> None:
        most = self._limit.most
        for key in doubt.keys:
            lock = found.get(key.key)
            if lock is None or lock.session != self._place.session:
                self._keys.enter(_E.NOT_TAKEN, key)
            elif lock.token == key.token:
                self._keys.enter(_E.STILL_OURS, key)
                self._due_calls.release_soon(now)
            elif most is not None and self._calls.count >= most:
                self._keys.enter(_E.NOT_TAKEN, key)
            elif lock.age > now - doubt.began:
                self._calls.take_anew(key, lock.token, now)
            else:
                # Redis rounds to milliseconds.
                key.hold(lock.token, sent + lock.expires_in - 0.001, now)
                self._calls.granted(now, key)

    def heartbeat(self, now: float) -> None:
        """The node's heartbeat was answered: give up what nobody waits for any more."""
        for take in self._calls.takes[:]:
            # The caller never came back: a greenlet, a signal handler that raised.
            if take.began < now - self._config.ttl:
                self.interrupted(take, now)
        if self._calls.doubts:
            # The call that asked about them may have been interrupted, too.
            self._due_calls.resolve_at = min(self._due_calls.resolve_at, now)
        if self._calls.refusal is not None and self._calls.refusal[1] < now - self._config.idle:
            self._calls.refusal = None  # Nobody has asked since.

    def forget(self) -> None:
        """The node leaves, and Redis does not answer: what is in doubt expires."""
        self._calls.doubts.clear()
        self._calls.unanswered = False

    def mend(self) -> None:
        """Make whole again what was raised into: the state of each key is true."""
        under_way = {key for take in self._calls.takes for key in take.keys}
        for key in self._keys.of(_S.TAKING):
            if not self._config.locking:
                self._keys.enter(_E.NOT_TAKEN, key)
            elif key not in under_way:
                # Its lock is the node's, if it has one, and was not let go.
                key.token = 0
                self._keys.enter(_E.UNANSWERED, key)
        doubted = self._keys.of(_S.DOUBTED)
        self._calls.doubts = []
        for first in range(0, len(doubted), LOCKS_A_CALL):
            some = tuple(doubted[first : first + LOCKS_A_CALL])
            self._calls.doubts.append(Doubt(some, len(some)))
        self._calls.unanswered = self._calls.unanswered and bool(doubted)
