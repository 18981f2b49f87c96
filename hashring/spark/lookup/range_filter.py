"""Whether a point is in some ranges: filters that Spark pushes down to files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ranges import PointRange
from hashring.core.ring import Ring
from hashring.errors import EmptyRingError
from hashring.spark.engine.column_checks import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column

MOST_RANGES: Final = 64
"""The most parts of a filter, which Spark compiles; above it, neighbouring ranges are joined."""


def may_move(before: Ring, after: Ring, point: str = "point") -> Column:
    """Whether a point may have another owner, as BETWEENs that Spark pushes down to files.

    True for every point that moves. Of more than 64 ranges that move, those close to each other
    are joined, and it is true for some points between them, too.

    Raises:
        ConfigError: the rings hash keys differently.
        EmptyRingError: the second has no nodes.
    """
    if not after.node_count:
        raise EmptyRingError
    ranges = joined([PointRange(m.start, m.end) for m in before.moves(after)], MOST_RANGES)
    return within(F.col(quoted(point)), ranges)


def within(point: Column, ranges: Iterable[PointRange]) -> Column:
    """Whether a point is in one of the ranges."""
    parts = [point.between(start, end - 1) for start, end in ranges]
    while len(parts) > 1:  # a balanced tree: Spark descends into it by recursion
        parts = [reduce(lambda a, b: a | b, parts[i : i + 2]) for i in range(0, len(parts), 2)]
    return parts[0] if parts else F.lit(False)


def joined(ranges: Sequence[PointRange], most: int) -> list[PointRange]:
    """At most ``most`` ranges, as tight as can be, that cover these rising, disjoint ones."""
    if not ranges:
        return []
    gaps = sorted(
        range(1, len(ranges)), key=lambda i: ranges[i].start - ranges[i - 1].end, reverse=True
    )
    cuts = sorted(gaps[: most - 1])
    firsts, lasts = [0, *cuts], [*cuts, len(ranges)]
    return [
        PointRange(ranges[a].start, ranges[b - 1].end) for a, b in zip(firsts, lasts, strict=True)
    ]
