"""The last hour of a ring or a group, as its watcher saw it: pure, and small however much happens.

A watcher keeps one sample for each half minute: the worst value that it saw in that time. What
was before the service started is not known, and neither is what was while Redis was away.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

SPAN: Final = 30.0
"""Seconds of one sample."""
SAMPLES: Final = 120
"""How many samples make the hour."""


@dataclass(frozen=True)
class Track:
    """One value over the last hour.

    Attributes:
        title: what it is.
        values: one a sample, oldest first, ``None`` where it is not known.
        now: the value as it is.
        bars: whether each value counts what happened in its time.
        unit: behind a value.
        alarm: whether anything above 0 is bad.
    """

    title: str
    values: Sequence[float | None]
    now: float = 0.0
    bars: bool = False
    unit: str = ""
    alarm: bool = False

    @property
    def known(self) -> list[float]:
        """The values that are known."""
        return [value for value in self.values if value is not None]


class LastHour:
    """Samples of some values.

    Args:
        worst: for each value, which of two is to be kept: ``min`` or ``max``.
    """

    def __init__(self, *worst: Callable[[float, float], float]) -> None:
        self._worst = worst
        self._samples: deque[tuple[int, tuple[float, ...]]] = deque(maxlen=SAMPLES)

    def add(self, at: float, *values: float) -> None:
        """Note what was seen at that Redis time, in seconds since 1970."""
        number = span_of(at)
        if self._samples and number < self._samples[-1][0]:
            # Another Redis, with another clock.
            self._samples.clear()
        if self._samples and number == self._samples[-1][0]:
            _, before = self._samples.pop()
            pairs = zip(self._worst, before, values, strict=True)
            values = tuple(worst(one, other) for worst, one, other in pairs)
        self._samples.append((number, values))

    def tracks(self, at: float) -> list[list[float | None]]:
        """The hour up to that time: for each value one a sample, oldest first."""
        known = dict(self._samples)
        last = span_of(at)
        spans = [known.get(number) for number in range(last - SAMPLES + 1, last + 1)]
        return [
            [None if values is None else values[index] for values in spans]
            for index in range(len(self._worst))
        ]


def span_of(at: float) -> int:
    """The number of the sample that a time, in seconds since 1970, belongs to."""
    return int(at // SPAN)


def counted_spans(
    times: Iterable[float], at: float, *, since: float | None = None
) -> list[float | None]:
    """How many of the times are in each sample of the hour up to a time.

    Args:
        since: nothing is known of the time before.
    """
    last = span_of(at)
    counts: list[float | None] = [0.0] * SAMPLES
    for time in times:
        index = SAMPLES - 1 - (last - span_of(time))
        if 0 <= index < SAMPLES:
            counts[index] = (counts[index] or 0.0) + 1
    if since is not None:
        unknown = SAMPLES - 1 - (last - span_of(since))
        counts[: max(0, unknown)] = [None] * max(0, min(unknown, SAMPLES))
    return counts


def differences(values: Sequence[float | None]) -> list[float | None]:
    """How much a counter grew in each sample, by its greatest value in each."""
    found: list[float | None] = []
    before: float | None = None
    for value in values:
        found.append(None if value is None or before is None else max(0.0, value - before))
        before = before if value is None else value
    return found
