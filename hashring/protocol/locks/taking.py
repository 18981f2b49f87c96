"""Taking locks: which keys a call asks for, and what its answer means for each."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from hashring.protocol.locks.calls_under_way import AskedKey, CallsUnderWay, Take
from hashring.protocol.locks.key_states import NEVER, Key, KeyEvent, KeyState
from hashring.protocol.locks.lock_book_parts import BookParts
from hashring.protocol.locks.releases import Releases
from hashring.store.locks.commands import AcquireAnswer, HeldBefore, HeldByOther, HeldOff, acquire

_S, _E = KeyState, KeyEvent

# Asked of each key of very many: names of modules are found faster than members of an Enum.
_AWAITED = KeyState.AWAITED


class Taking:
    """The calls of one book that take locks.

    Args:
        parts: those that all pieces of the book share.
        calls, releases: the book's.
    """

    def __init__(self, parts: BookParts, calls: CallsUnderWay, releases: Releases) -> None:
        self._names = parts.names
        self._config = parts.config
        self._keys = parts.keys
        self._place = parts.place
        self._limit = parts.limit
        self._hold_off = parts.hold_off
        self._due_calls = parts.due_calls
        self._calls = calls
        self._releases = releases

    def take(self, asked: Sequence[AskedKey], now: float) -> Take | None:
        """What to run to take keys; nothing when none is left to take.

        It keeps places within the limit until :meth:`acquired` or until that is given up, and
        nobody else takes these keys meanwhile.
        """
        kept: dict[bytes, Key] = {}
        own: dict[bytes, Key] = {}
        inherited: dict[bytes, Key] = {}
        held, others, own_bounds = self._keys.held, self._keys.others, self._place.own_bounds
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
        if self._limit.most is not None:
            most = min(most, self._limit.most - self._calls.count + len(kept))
        if self._place.left or most <= 0:
            for each in chosen:
                self._calls.refuse(each.key, each.point, now)
            return None
        session, history = self._place.session, self._hold_off.history
        command = acquire(
            self._names,
            node=self._place.node,
            session=session,
            ttl=self._config.ttl,
            locked=[each.key for each in chosen],
            most=most,
            awaited=len(kept) + len(own),
            kept=len(kept),
            history=history,
        )
        for each in chosen:
            each.until = NEVER
        self._keys.enter(_E.ASKED, *chosen)
        take = Take(command, chosen, most, session, history, now)
        self._calls.takes.append(take)
        return take

    def acquired(
        self, take: Take, answers: Sequence[AcquireAnswer], sent: float, now: float
    ) -> None:
        """The answer to a :meth:`take`."""
        self._calls.refusal = None
        answered = zip(take.keys, answers, strict=True)
        if take.session != self._place.session:
            # The node has begun anew meanwhile: nobody may work on these keys.
            for key, token in _taken(answered):
                self._releases.let_go_of_unknown(take.session, key.key, token, now)
            return
        if take not in self._calls.takes:
            # Given up since, and asked about; but perhaps before it was done.
            self._calls.look_into(_taken(answered), now)
            return
        self._calls.takes.remove(take)
        taken, refused = [], []
        for key, answer in answered:
            if isinstance(answer, int):
                key.hold(answer, sent + self._config.ttl, now)
                taken.append(key)
                self._hold_off.taken(take.history, answer)
            elif isinstance(answer, HeldBefore):
                self._calls.take_anew(key, answer.token, now)
            elif isinstance(answer, HeldByOther) and (
                answer.awaited or not self._place.owns(key.point)
            ):
                self._leave_to_other(key, answer, now)
            else:
                self._keys.enter(_E.NOT_TAKEN, key)
                if not isinstance(answer, HeldOff):
                    refused.append(key)
                elif self._hold_off.answered(answer.seconds, now):
                    self._due_calls.beat_soon()
        self._calls.granted(now, *taken)
        for key in refused:
            self._calls.refuse(key.key, key.point, now)

    def _leave_to_other(self, key: Key, answer: HeldByOther, now: float) -> None:
        key.other = answer.holder
        lasts = answer.expires_in + 0.001
        # The ring may have given the key to another node since it was asked for.
        awaited = answer.awaited and self._place.owns(key.point)
        if not awaited:
            lasts = key.wait = min(2 * key.wait or self._due_calls.retry, lasts)
        # At once, where it was freed before the answer arrived.
        key.until = min(key.until, now + lasts)
        self._keys.enter(_E.WAITED_FOR if awaited else _E.OF_OTHER, key)


def _taken(answered: Iterable[tuple[Key, AcquireAnswer]]) -> list[tuple[Key, int]]:
    """The keys whose locks are the node's by the answer of a call, with their tokens."""
    return [
        (key, answer.token if isinstance(answer, HeldBefore) else answer)
        for key, answer in answered
        if isinstance(answer, int | HeldBefore)
    ]
