"""Columns and what is kept up to date from them: the same as if everything was looked at."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.groups.partition_column import BUCKET, Column, Draft
from hashring.core.groups.target_progress import Ledger, Queue

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


@given(st.data(), columns)
def test_a_ledger_that_follows_is_as_one_made_anew(
    data: st.DataObject, owners: Column[str | None]
) -> None:
    size = data.draw(st.integers(1, len(owners)))
    some = st.lists(names, min_size=size, max_size=size)
    start, wanted = data.draw(some), data.draw(some)
    ledger = Ledger(start, wanted, owners)
    for _ in range(4):
        places = st.integers(0, len(owners) - 1)
        owners = owners.with_(data.draw(st.dictionaries(places, names, max_size=9)))
        ledger.follow(owners)
        anew = Ledger(start, wanted, owners)
        granted = data.draw(st.dictionaries(places, names.filter(bool), max_size=3))
        assert (ledger.apart, ledger.routes) == (anew.apart, anew.routes)
        assert +ledger.counts == +anew.counts
        assert ledger.strays(granted) == any(
            owner not in (start[at], wanted[at])
            for at, owner in enumerate([granted.get(p, owners[p]) for p in range(size)])
        )


@given(st.lists(st.integers(0, 20), unique=True).map(sorted), st.sets(st.integers(0, 20)))
def test_a_queue_gives_what_is_not_passed_in_order(partitions: list[int], passed: set[int]) -> None:
    assert [*Queue(partitions, passed)] == [p for p in partitions if p not in passed]
