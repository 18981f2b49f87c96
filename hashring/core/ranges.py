"""Ranges of points: what one is, and the arithmetic of many.

Many ranges are rising and disjoint, unless a function says otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha1
from typing import NamedTuple

from hashring.core.hashing import RING_SIZE


class PointRange(NamedTuple):
    """Points ``start <= p < end``. Never wraps: a range over the top is two ranges."""

    start: int
    end: int


@dataclass(frozen=True)
class RangeMove:
    """A range whose owner differs between two rings.

    Attributes:
        start, end: the points ``start <= p < end``.
        before, after: the owners; ``None`` where the ring had no nodes.
    """

    start: int
    end: int
    before: str | None
    after: str | None

    @property
    def points(self) -> int:
        """How many points move."""
        return self.end - self.start


def bounds_of(ranges: Iterable[PointRange]) -> tuple[int, ...]:
    """The flat boundaries ``start, end, start, end, ...`` of rising, disjoint ranges.

    A point is inside exactly when ``bisect_right(bounds, point)`` is odd: one search decides.
    """
    return tuple(bound for range_ in ranges for bound in range_)


def subtract(ranges: Iterable[PointRange], removed: Iterable[PointRange]) -> tuple[PointRange, ...]:
    """The points of ``ranges`` that are not in ``removed``; both rising and disjoint."""
    out: list[PointRange] = []
    cuts = list(removed)
    at = 0
    for start, end in ranges:
        position = start
        while at < len(cuts) and cuts[at].end <= position:
            at += 1
        look = at
        while look < len(cuts) and cuts[look].start < end:
            if cuts[look].start > position:
                out.append(PointRange(position, cuts[look].start))
            position = max(position, cuts[look].end)
            look += 1
        if position < end:
            out.append(PointRange(position, end))
    return tuple(out)


def ranges_of_spans(spans: Iterable[tuple[int, int]]) -> tuple[PointRange, ...]:
    """Spans of the ring as rising, disjoint ranges, neighbours merged.

    Args:
        spans: start and length of each, in points; in any order. One that goes over the top of the
            ring goes on at point 0.
    """
    parts: list[tuple[int, int]] = []
    for start, length in spans:
        end = start + length
        parts.append((start, min(end, RING_SIZE)))
        if end > RING_SIZE:
            parts.append((0, end - RING_SIZE))
    found: list[PointRange] = []
    for start, end in sorted(parts):
        if start == end:
            continue
        if found and start <= found[-1].end:
            found[-1] = PointRange(found[-1].start, max(end, found[-1].end))
        else:
            found.append(PointRange(start, end))
    return tuple(found)


def ranges_fingerprint(ranges: Iterable[PointRange]) -> str:
    """16 hex digits that are equal for equal ranges."""
    return sha1(",".join(f"{start}-{end}" for start, end in ranges).encode()).hexdigest()[:16]
