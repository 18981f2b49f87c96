"""What a history says of ownership: when a key had two owners, when it had none. Pure.

Only what is sure counts (see :func:`tests.chaos.history.known`): two owners are two nodes that
both surely claim the key, none is every node surely not claiming it. So what is reported did
happen, and what lasted for less than one round of questions may be missed.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.chaos.history import Cut, Hold, Known, Life, Write, known

NEVER = float("inf")


@dataclass(frozen=True)
class Window:
    """A key was in some state from ``start`` to ``end``, in seconds."""

    key: int
    start: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True)
class Exposure:
    """What a history says of ownership between two moments.

    Attributes:
        double: windows in which a key had two owners or more.
        none: windows in which a key had none.
    """

    double: tuple[Window, ...]
    none: tuple[Window, ...]
    until: float

    def recovered_after(self, moment: float, *, edge: float = 1e-6) -> float:
        """Seconds from the moment until every key has one owner and keeps it; ``NEVER`` if not."""
        ends = [w.end for w in (*self.double, *self.none) if w.end > moment]
        if not ends:
            return 0.0
        return max(ends) - moment if max(ends) < self.until - edge else NEVER


def key_seconds(windows: Iterable[Window]) -> float:
    return sum(window.seconds for window in windows)


def longest(windows: Iterable[Window]) -> float:
    return max((window.seconds for window in windows), default=0.0)


def exposure(lives: Sequence[Life], keys: int, start: float, end: float) -> Exposure:
    """Windows with two owners and with none, within ``[start, end]``."""
    everything = (1 << keys) - 1
    double, none = _Windows(end), _Windows(end)
    now: list[Known] = [Known(float("-inf"), 0, everything) for _ in lives]
    for at, changes in _moments(lives, everything):
        for number, state in changes:
            now[number] = state
        ones = twos = 0
        nobody = everything
        for state in now:
            twos |= ones & state.yes
            ones |= state.yes
            nobody &= state.no
        moment = max(at, start)
        if moment >= end:
            break
        double.now(twos, moment)
        none.now(nobody, moment)
    return Exposure(double.closed(), none.closed(), end)


def _moments(
    lives: Sequence[Life], everything: int
) -> Iterator[tuple[float, list[tuple[int, Known]]]]:
    """Every moment at which something changes, with all that changes then."""

    def of(number: int) -> Iterator[tuple[float, int, Known]]:
        before: Known | None = None
        for state in known(lives[number], everything):
            if before is None or (state.yes, state.no) != (before.yes, before.no):
                yield state.since, number, state
            before = state

    at, changes = float("-inf"), list[tuple[int, Known]]()
    for since, number, state in heapq.merge(
        *(of(number) for number in range(len(lives))), key=lambda each: each[0]
    ):
        if since > at and changes:
            yield at, changes
            changes = []
        at = since
        changes.append((number, state))
    if changes:
        yield at, changes


class _Windows:
    """Collects windows from a set of keys that changes over time."""

    def __init__(self, end: float) -> None:
        self._end = end
        self._keys = 0
        self._since: dict[int, float] = {}
        self._found: list[Window] = []

    def now(self, keys: int, moment: float) -> None:
        changed = keys ^ self._keys
        self._keys = keys
        while changed:
            low = changed & -changed
            changed ^= low
            key = low.bit_length() - 1
            if keys & low:
                self._since[key] = moment
            elif (since := self._since.pop(key)) < moment:
                self._found.append(Window(key, since, moment))

    def closed(self) -> tuple[Window, ...]:
        self.now(0, self._end)
        return tuple(sorted(self._found, key=lambda window: (window.start, window.key)))


def fence_breaks(writes: Iterable[Write]) -> list[str]:
    """What accepted writes show that fencing forbids: an older token after a newer one, or one
    token in two hands. ``writes`` are in the resource's order."""
    newest: dict[str, int] = defaultdict(int)
    holders: dict[tuple[str, int], str] = {}
    found = []
    for write in writes:
        if write.token < newest[write.key]:
            found.append(
                f"{write.key}: {write.node} wrote with {write.token} after {newest[write.key]}"
            )
        newest[write.key] = max(newest[write.key], write.token)
        holder = holders.setdefault((write.key, write.token), write.node)
        if holder != write.node:
            found.append(f"{write.key}: {holder} and {write.node} both wrote with {write.token}")
    return found


def lock_breaks(holds: Iterable[Hold]) -> list[str]:
    """What holds show that locks forbid: a key held by two at once, or a token that is not greater
    than that of the holder before."""
    found = []
    last: dict[str, Hold] = {}
    for hold in sorted(holds, key=lambda hold: hold.begun):
        before = last.get(hold.key)
        if before is not None and before.node != hold.node:
            if hold.begun < before.ended:
                seconds = min(hold.ended, before.ended) - hold.begun
                found.append(
                    f"{hold.key}: {before.node} and {hold.node} both held it for {seconds:.3f} s"
                )
            if hold.token <= before.token:
                found.append(
                    f"{hold.key}: {hold.node} held it with {hold.token} after {before.token}"
                )
        if before is None or hold.ended > before.ended:
            last[hold.key] = hold
    return found


def longest_silence(life: Life, end: float) -> float:
    """The longest that a running node did not answer, up to ``end``, in seconds.

    A round's time counts, and the time since the last one: a call may never return.
    """
    answers = [sweep.ended for sweep in life.sweeps if life.since < sweep.ended < end]
    begun = life.since if life.since != float("-inf") else min(answers, default=end)
    moments = [begun, *answers, end]
    return max(
        later - earlier - sum(_overlap(cut, earlier, later) for cut in life.cuts)
        for earlier, later in pairwise(moments)
    )


def _overlap(cut: Cut, begin: float, end: float) -> float:
    return max(0.0, min(cut[1], end) - max(cut[0], begin))
