"""A filter of few ranges covers all that it stands for."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hashring.core.ranges import PointRange
from hashring.spark.lookup.range_filter import joined

ranges = st.lists(st.integers(0, 2**32), min_size=2, max_size=40, unique=True).map(
    lambda ends: [PointRange(a, b) for a, b in zip(*[iter(sorted(ends))] * 2, strict=False)]
)


@given(ranges, st.integers(1, 12))
def test_joined_ranges_cover_all_and_are_few(found, most):
    few = joined(found, most)
    assert len(few) == min(most, len(found))
    assert all(any(a.start <= r.start and r.end <= a.end for a in few) for r in found)
    assert {a.start for a in few} <= {r.start for r in found}
    assert {a.end for a in few} <= {r.end for r in found}
