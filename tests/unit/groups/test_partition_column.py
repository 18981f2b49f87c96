"""Columns: the same as if everything was looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.groups.partition_column import BUCKET, Column, Draft

names = st.sampled_from([None, "a", "b", "c"])
sizes = st.sampled_from([1, 2, BUCKET - 1, BUCKET, BUCKET + 1, 3 * BUCKET])
columns = sizes.flatmap(lambda n: st.lists(names, min_size=n, max_size=n)).map(Column)


@st.composite
def edits(draw: st.DrawFn) -> tuple[Column[str | None], dict[int, str | None]]:
    column = draw(columns)
    places = st.integers(0, len(column) - 1)
    return column, draw(st.dictionaries(places, names, max_size=9))


@given(edits())
def test_a_column_with_other_values_is_as_a_tuple_with_them(
    given_: tuple[Column[str | None], dict[int, str | None]],
) -> None:
    column, values = given_
    expected = tuple(values.get(at, value) for at, value in enumerate(column))
    draft = Draft(column)
    for at, value in values.items():
        draft[at] = value
    assert column.with_(values) == draft.column == expected == tuple(draft)
    assert all(draft[at] == value for at, value in enumerate(expected))
    assert draft[1:] == expected[1:]


@given(columns)
def test_a_column_is_read_from_either_end_as_a_tuple_is(column: Column[str | None]) -> None:
    size, values = len(column), tuple(column)
    assert [column[at] for at in range(-size, size)] == [*values, *values]
    for beyond in (size, -size - 1):
        with pytest.raises(IndexError):
            column[beyond]


@given(columns, sizes, names)
def test_a_column_of_another_size_is_cut_or_filled(
    column: Column[str | None], size: int, value: str | None
) -> None:
    resized = column.sized(size, value)
    assert resized == (*column, *[value] * size)[:size]
    assert Column.of(resized.buckets) == resized


@given(columns, columns)
def test_columns_differ_where_their_values_do(
    one: Column[str | None], other: Column[str | None]
) -> None:
    most = max(len(one), len(other))
    padded = [(*column, *["?"] * (most - len(column))) for column in (one, other)]
    places = [at for at, (x, y) in enumerate(zip(*padded, strict=True)) if x != y]
    assert one.differing(other) == places
    assert {at // BUCKET for at in places} <= {*one.other_buckets(other)}
    assert one.differing(one) == one.other_buckets(one) == []


def test_what_did_not_change_is_shared() -> None:
    column = Column(range(10 * BUCKET))
    assert column.other_buckets(column.with_({3 * BUCKET: -1})) == [3]


@pytest.mark.parametrize("sizes", [(BUCKET - 1, 1), (BUCKET, 0), (BUCKET + 1,)])
def test_buckets_of_other_sizes_are_refused(sizes: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="other sizes"):
        Column.of((0,) * size for size in sizes)
