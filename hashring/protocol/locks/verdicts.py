"""May the node work on a key now? Answers from what the book knows, without Redis."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from enum import Enum

from hashring.protocol.locks.calls_under_way import AskedKey, CallsUnderWay
from hashring.protocol.locks.key_states import NEVER, Key, KeyEvent, KeyState
from hashring.protocol.locks.lock_book_parts import BookParts
from hashring.protocol.locks.releases import Releases

_S, _E = KeyState, KeyEvent

# Asked of each key of very many: names of modules are found faster than members of an Enum.
_HELD, _KEPT = KeyState.HELD, KeyState.KEPT


class Verdict(Enum):
    """The book's answer about a key."""

    NO = "no"
    """Not ours now."""
    YES = "yes"
    """Held."""
    TAKE = "take"
    """Ours if its lock can be taken."""


class Verdicts:
    """The questions that users ask one book.

    Args:
        parts: those that all pieces of the book share.
        calls, releases: the book's.
    """

    def __init__(self, parts: BookParts, calls: CallsUnderWay, releases: Releases) -> None:
        self._config = parts.config
        self._keys = parts.keys
        self._place = parts.place
        self._limit = parts.limit
        self._hold_off = parts.hold_off
        self._calls = calls
        self._releases = releases

    def ask(
        self, key: bytes, point: int, bounds: Sequence[int], until: float, now: float
    ) -> Verdict:
        """Whether the node may work on a key now; see :meth:`.lock_book.LockBook.ask`."""
        ours = bisect_right(bounds, point) & 1 == 1 and now < until
        held = self._keys.held.get(key)
        if held is not None:
            return self._ask_held(held, ours, until, now)
        known = self._keys.others.get(key)
        if not ours or (known is not None and known.state not in (_S.AWAITED, _S.ELSEWHERE)):
            return Verdict.NO
        if now < self._hold_off.until or (known is not None and now < known.until):
            return Verdict.NO
        # What it waits for has its place already.
        if known is None or known.state is _S.ELSEWHERE:
            most = self._limit.most
            if most is not None and self._calls.count >= most:
                self._calls.refuse(key, point, now)
                return Verdict.NO
        if not self._config.locking:
            made = Key(key, point)
            self._keys.enter(_E.ASKED, made)
            made.hold(0, NEVER, now)
            self._calls.granted(now, made)
            return Verdict.YES
        # While Redis does not answer, one caller has waited long enough for it. A caller that was
        # interrupted has waited for nothing: only its own keys are in doubt.
        return Verdict.NO if self._calls.unanswered else Verdict.TAKE

    def _ask_held(self, held: Key, ours: bool, until: float, now: float) -> Verdict:
        if now >= held.deadline or now >= until:
            # Its lock may stand or not: the next renewal says so.
            return Verdict.NO
        if held.state is _KEPT or (ours and held.state is _HELD):
            held.asked = now
            return Verdict.YES
        # The caller's ranges may be older than the book's, by which another works on the key.
        ours_again = held.state is _HELD and self._place.reaches(held.point)
        if held.lease is None and not ours_again:
            # Ours no more. The loop has just been told so, so nobody works on it.
            self._releases.let_go(now, held)
        return Verdict.NO

    def holds(
        self, key: bytes, point: int, bounds: Sequence[int], until: float, now: float
    ) -> bool:
        """Whether the node holds a key, and may work on it; lets nothing go, and takes nothing."""
        held = self._keys.held.get(key)
        if held is None:
            return False
        # Written before the state is read: see Releases.let_go_if_idle.
        held.asked = now
        inside = bisect_right(bounds, point) & 1 == 1
        may = held.state is _KEPT or (inside and held.state is _HELD)
        return may and now < held.deadline and now < until

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
        known = self._keys.held.get
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
            verdict = self.ask(key, point, bounds, until, now)
            if verdict is Verdict.TAKE:
                to_take.append(each)
            elif verdict is Verdict.YES:
                yes.append(each)
        return yes, to_take

    @property
    def _simple(self) -> bool:
        """Whether any key of ours that is not held may be taken."""
        return (
            not self._keys.others
            and not self._calls.unanswered
            and self._hold_off.until == -NEVER
            and self._config.locking
            and self._limit.most is None
        )

    def busy(self, key: bytes) -> bool:
        """Whether a call of this node's about the key is under way, and Redis answers calls."""
        known = self._keys.others.get(key)
        return known is not None and (
            known.state is _S.RELEASING
            or (known.state in (_S.TAKING, _S.DOUBTED) and not self._calls.unanswered)
        )

    def in_doubt(self, key: bytes) -> bool:
        """Whether a call about the key was not answered, and not refused; the loop finds out."""
        known = self._keys.others.get(key)
        return known is not None and known.state is _S.DOUBTED and self._calls.refusal is None

    def holder(self, key: bytes) -> str | None:
        """The node that has a key, when we last looked; ``None`` when none is known to."""
        known = self._keys.others.get(key)
        if known is None or known.state in (_S.TAKING, _S.DOUBTED):
            return None
        return known.other or None
