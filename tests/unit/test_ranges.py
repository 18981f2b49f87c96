"""The arithmetic of ranges, held against points one by one."""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hashring.core.hashing import RING_SIZE
from hashring.core.ranges import PointRange, bounds_of, ranges_of_spans, subtract

cuts = st.lists(st.integers(0, 40), unique=True, max_size=12).map(sorted)
ranges = cuts.map(lambda c: tuple(PointRange(s, e) for s, e in zip(c[::2], c[1::2], strict=False)))


def inside(ranges: tuple[PointRange, ...], p: int) -> bool:
    return any(start <= p < end for start, end in ranges)


@given(ranges, ranges)
def test_to_subtract_is_to_keep_what_is_in_one_and_not_in_the_other(
    one: tuple[PointRange, ...], other: tuple[PointRange, ...]
) -> None:
    left = subtract(one, other)
    for p in range(42):
        assert inside(left, p) == (inside(one, p) and not inside(other, p))
    assert all(range_.start < range_.end for range_ in left)
    assert list(left) == sorted(left)


@given(ranges)
def test_one_search_in_the_bounds_says_whether_a_point_is_inside(
    found: tuple[PointRange, ...],
) -> None:
    bounds = bounds_of(found)
    for p in range(42):
        assert bisect_right(bounds, p) % 2 == inside(found, p)


spans = st.lists(st.tuples(st.integers(RING_SIZE - 20, RING_SIZE - 1), st.integers(0, 30)))


@given(spans)
def test_spans_over_the_top_are_rising_ranges_of_the_same_points(
    given_spans: list[tuple[int, int]],
) -> None:
    found = ranges_of_spans(given_spans)
    covered = {(start + i) % RING_SIZE for start, length in given_spans for i in range(length)}
    for p in (*range(32), *range(RING_SIZE - 22, RING_SIZE)):
        assert inside(found, p) == (p in covered)
    assert all(one.end < other.start for one, other in pairwise(found))
