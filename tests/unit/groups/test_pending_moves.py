"""Pending moves that follow the owners: the same as if everything was looked at."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hashring.core.groups.partition_column import BUCKET, Column
from hashring.core.groups.pending_moves import PendingMoves, Queue

names = st.sampled_from([None, "a", "b", "c"])
sizes = st.sampled_from([1, 2, BUCKET - 1, BUCKET, BUCKET + 1, 3 * BUCKET])
columns = sizes.flatmap(lambda n: st.lists(names, min_size=n, max_size=n)).map(Column)


@given(st.data(), columns)
def test_pending_moves_that_follow_are_as_ones_made_anew(
    data: st.DataObject, owners: Column[str | None]
) -> None:
    size = data.draw(st.integers(1, len(owners)))
    # Few, so that each moves several times: there, back, and astray.
    places = st.sampled_from(
        data.draw(st.lists(st.integers(0, len(owners) - 1), min_size=1, max_size=2))
    )
    others = st.dictionaries(places, names)
    some = others.map(lambda changes: [*owners.with_(changes)][:size])
    start, wanted = data.draw(some), data.draw(some)
    pending_moves = PendingMoves(start, wanted, owners)
    for _ in range(6):
        owners = owners.with_(data.draw(others))
        pending_moves.follow(owners)
        anew = PendingMoves(start, wanted, owners)
        granted = data.draw(st.dictionaries(places, names.filter(bool), max_size=3))
        assert (pending_moves.apart, pending_moves.routes) == (anew.apart, anew.routes)
        assert +pending_moves.counts == +anew.counts
        assert pending_moves.strays(granted) == any(
            owner not in (start[at], wanted[at])
            for at, owner in enumerate([granted.get(p, owners[p]) for p in range(size)])
        )


@given(st.lists(st.integers(0, 20), unique=True).map(sorted), st.sets(st.integers(0, 20)))
def test_a_queue_gives_what_is_not_passed_in_order(partitions: list[int], passed: set[int]) -> None:
    assert [*Queue(partitions, passed)] == [p for p in partitions if p not in passed]
