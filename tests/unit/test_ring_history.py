"""The history of a ring is what replaying its changes shows."""

from bisect import bisect_right
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashring.core.owner_periods import (
    NOBODY,
    Period,
    owner_periods,
    periods_between,
    swept_parts,
)
from hashring.core.ring import Ring
from hashring.core.ring_change_message import ChangeKind, RingChange, Stamp
from hashring.core.ring_history import ring_history
from hashring.errors import ConfigError, HistoryError

TOP = 2**32
POINTS = st.one_of(st.integers(0, 12), st.integers(TOP - 5, TOP - 1), st.integers(0, TOP - 1))


def change(epoch, kind, nodes, points=(), *, at=None, prev=None):
    prev = prev if prev is not None else ("" if epoch == 1 else f"t{epoch - 1}")
    stamp = Stamp(epoch, f"t{epoch}", 0, epoch * 10 if at is None else at)
    return RingChange(ChangeKind(kind), nodes, tuple(sorted(set(points))), prev, stamp)


@st.composite
def changes(draw):
    found = []
    for epoch in range(1, draw(st.integers(1, 12)) + 1):
        if draw(st.booleans()) or epoch == 1:
            points = draw(st.lists(POINTS, min_size=1, max_size=4))
            found.append(change(epoch, "join", (draw(st.sampled_from("abcd")),), points))
        else:
            nodes = draw(st.lists(st.sampled_from("abcd"), unique=True, max_size=3))
            found.append(change(epoch, "expire", tuple(nodes)))
    return found


def periods_of(history):
    lives, empty = history.lives()
    return owner_periods(lives, len(history.changes) + 1, empty)


def owner(history, ring, point):
    return history.nodes().index(ring.owner_of_point(point)) if ring.node_count else NOBODY


@given(changes(), st.booleans(), st.lists(POINTS, max_size=5))
@settings(max_examples=300, deadline=None)
def test_periods_say_of_every_point_and_version_what_the_ring_says(made, with_base, probes):
    base = Ring({"a": [3, 9], "e": [5]}) if with_base else None
    if with_base:
        made = [change(c.stamp.epoch + 1, c.kind, c.nodes, c.points) for c in made]
    history = ring_history(made, base, base_epoch=1 if with_base else 0)
    rings = list(history.rings())
    periods = list(periods_of(history))
    edges = {p for period in periods for p in (period.start, period.end - 1)}
    for point in {0, TOP - 1, *probes, *edges}:
        own = sorted((p for p in periods if p.start <= point < p.end), key=lambda p: p.since)
        assert (own[0].since, own[0].before) == (0, NOBODY)
        assert (own[-1].until, own[-1].after) == (len(rings), NOBODY)
        for earlier, later in pairwise(own):
            assert earlier.until == later.since
            assert earlier.owner != later.owner
            assert (earlier.after, later.before) == (later.owner, earlier.owner)
        for version, ring in enumerate(rings):
            (holding,) = [p for p in own if p.since <= version < p.until]
            assert holding.owner == owner(history, ring, point)


@given(changes(), st.integers(1, 5), st.lists(POINTS, max_size=5))
@settings(max_examples=200, deadline=None)
def test_periods_of_parts_of_the_points_are_those_of_all_points(made, size, probes):
    history = ring_history(made)
    lives, empty = history.lives()
    versions = len(made) + 1
    swept = swept_parts(lives, versions, empty, size)
    starts = [0, *lives.points[size::size]]
    assert len(swept.owners) == len(starts)
    parts = []
    for index, (start, end) in enumerate(pairwise([*starts, TOP])):
        own = lives.part(index * size, (index + 1) * size)
        found = list(periods_between(start, end, own, swept.owners[index], versions))
        assert all(start <= p.start < p.end <= end for p in found)
        parts += found
    whole = list(periods_of(history))
    for point in {0, TOP - 1, *probes, *lives.points}:

        def at(periods, point=point):
            return sorted(tuple(p)[2:] for p in periods if p.start <= point < p.end)

        assert at(parts) == at(whole)
        last = bisect_right(lives.points, point)
        assert swept.counts[last] == sum(p[0] != NOBODY for p in at(whole))


def test_periods_of_a_node_that_comes_and_goes():
    history = ring_history(
        [
            change(1, "join", ("a",), [0]),
            change(2, "join", ("b",), [100]),
            change(3, "leave", ("b",)),
        ]
    )
    a, b = range(2)
    assert sorted(periods_of(history)) == [
        Period(0, 100, a, 1, 4, NOBODY, NOBODY),
        Period(0, TOP, NOBODY, 0, 1, NOBODY, a),
        Period(100, TOP, a, 1, 2, NOBODY, b),
        Period(100, TOP, a, 3, 4, b, NOBODY),
        Period(100, TOP, b, 2, 3, a, a),
    ]


def test_a_node_that_joins_again_at_the_same_points_goes_on_owning_them():
    history = ring_history(
        [change(1, "join", ("a",), [0, 50]), change(2, "join", ("a",), [0, 50, 70])]
    )
    assert list(periods_of(history)) == [
        Period(0, TOP, NOBODY, 0, 1, NOBODY, 0),
        Period(0, TOP, 0, 1, 3, NOBODY, NOBODY),
    ]


def test_the_ring_at_a_time_is_the_last_version_not_after_it():
    history = ring_history([change(1, "join", ("a",), [0]), change(2, "join", ("b",), [9])])
    assert history.ring_at(9) is None
    assert history.ring_at(10).nodes == history.ring_at(19).nodes == ("a",)
    assert history.ring_at(20).nodes == ("a", "b")


def test_a_clock_that_steps_back_does_not_reorder_versions():
    history = ring_history(
        [change(1, "join", ("a",), [0], at=500), change(2, "join", ("b",), [9], at=400)]
    )
    assert [version.at for version in history.versions()] == [500, 500, 500]


def test_after_redis_came_back_empty_only_those_who_joined_again_are_on_the_ring():
    history = ring_history(
        [
            change(1, "join", ("a",), [0]),
            change(2, "join", ("b",), [9]),
            change(1, "join", ("b",), [9], at=90),
        ]
    )
    assert list(history.rings())[-1].nodes == ("b",)
    assert history.nodes() == ("a", "b")
    assert {p.owner for p in periods_of(history) if p.until == 4} == {history.nodes().index("b")}


def test_after_redis_came_back_empty_nobody_owns_anything_before_a_node_has_joined():
    joined = [change(1, "join", ("a",), [0]), change(2, "join", ("b",), [9])]
    history = ring_history([*joined, change(1, "expire", (), at=90)])
    assert {p.owner for p in periods_of(history) if p.until == 4} == {NOBODY}


def test_events_that_begin_in_the_middle_need_a_base():
    late = [change(7, "join", ("b",), [9])]
    with pytest.raises(HistoryError, match=r"between epoch 0 and epoch 7.*exported before"):
        ring_history(late)
    history = ring_history(late, Ring({"a": [0]}), base_epoch=6, since=60)
    assert [ring.nodes for ring in history.rings()] == [("a",), ("a", "b")]


def test_a_missing_change_in_the_middle_is_an_error():
    broken = [change(1, "join", ("a",), [0]), change(3, "join", ("b",), [9])]
    with pytest.raises(HistoryError, match="between epoch 1 and epoch 3 are missing"):
        ring_history(broken)


def test_another_history_with_the_same_numbers_is_an_error():
    broken = [change(1, "join", ("a",), [0]), change(2, "join", ("b",), [9], prev="other")]
    with pytest.raises(HistoryError):
        ring_history(broken)


def test_changes_that_the_base_has_already_and_repeated_ones_are_skipped():
    first, second = change(1, "join", ("a",), [0]), change(2, "join", ("b",), [9])
    history = ring_history([first, second, second], Ring({"a": [0]}), base_epoch=1, since=15)
    assert history.changes == (second,)


AT_EXPORT = Ring({"a": [0], "b": [9]})
"""The ring after two changes, exported at 25."""


def begun_anew(epoch, node, at):
    """A change of the ring after Redis came back empty: the epochs repeat, the tags do not."""
    found = change(epoch, "join", (node,), [epoch], at=at, prev=f"u{epoch - 1}" * (epoch > 1))
    return replace(found, stamp=replace(found.stamp, tag=f"u{epoch}"))


@pytest.mark.parametrize("tag", ["t2", ""])
@pytest.mark.parametrize("before", [0, 1, 2])
def test_a_ring_that_began_anew_after_the_export_has_nothing_of_the_exported_one(tag, before):
    """Some of the changes before the export may be left in the history."""
    old = [change(1, "join", ("a",), [0]), change(2, "join", ("b",), [9])][2 - before :]
    new = [begun_anew(epoch, node, at=30 + epoch) for epoch, node in enumerate("cde", 1)]
    history = ring_history([*old, *new], AT_EXPORT, base_epoch=2, base_tag=tag, since=25)
    assert history.changes == tuple(new)
    assert [ring.nodes for ring in history.rings()][1:] == [("c",), ("c", "d"), ("c", "d", "e")]


def test_changes_of_another_history_do_not_continue_the_exported_ring():
    lost = [begun_anew(epoch, node, at=30 + epoch) for epoch, node in ((2, "c"), (3, "d"))]
    for changes in (lost, lost[1:]):
        with pytest.raises(HistoryError, match=r"epoch \d does not follow .* at epoch 2.*exported"):
            ring_history(changes, AT_EXPORT, base_epoch=2, base_tag="t2", since=25)


def test_the_exported_ring_s_own_change_tells_where_it_stands_whatever_the_clocks_say():
    """After a failover, the new server's clock may be behind."""
    second, third = change(2, "join", ("b",), [9]), change(3, "join", ("c",), [5], at=22)
    for changes in ([second, third], [second, second, third], [third]):
        history = ring_history(changes, AT_EXPORT, base_epoch=2, base_tag="t2", since=25)
        assert history.changes == (third,)


def test_without_the_time_of_an_export_epochs_tell_what_came_before_it():
    changes = [change(epoch, "join", (node,), [epoch]) for epoch, node in enumerate("abc", 1)]
    assert ring_history(changes, AT_EXPORT, base_epoch=2).changes == (changes[2],)


def test_nothing_at_all_is_no_history():
    with pytest.raises(HistoryError, match="no events"):
        ring_history([])


def test_a_node_is_full_until_it_has_room_or_the_ring_begins_anew():
    history = ring_history(
        [
            change(1, "join", ("a",), [1]),
            change(2, "full", ("a",)),
            change(3, "join", ("b",), [2]),
            change(4, "room", ("a",)),
            change(5, "full", ("b",)),
            change(1, "join", ("a",), [1], at=60),
            change(2, "full", ("a",), at=70),
        ]
    )
    assert list(history.full()) == [("a", 2, 4), ("b", 5, 6), ("a", 7, None)]
    assert [ring.nodes for ring in history.rings()][1:6] == [("a",)] * 2 + [("a", "b")] * 3
    assert {period.owner for period in periods_of(history)} == {NOBODY, 0, 1}


@pytest.mark.parametrize("end", ["leave", "expire"])
def test_a_full_node_that_went_and_came_back_has_room(end):
    history = ring_history(
        [
            change(1, "join", ("a",), [1]),
            change(2, "join", ("b",), [2]),
            change(3, "full", ("a",)),
            change(4, "full", ("b",)),
            change(5, end, ("a",)),
            change(6, "join", ("a",), [1]),
        ]
    )
    # No `room` follows: in Redis, the node was not full any more when it came back.
    assert sorted(history.full()) == [("a", 3, 5), ("b", 4, None)]


def test_a_node_that_is_full_again_after_it_came_back_was_not_full_in_between():
    history = ring_history(
        [
            change(1, "join", ("a",), [1]),
            change(2, "full", ("a",)),
            change(3, "expire", ("a",)),
            change(4, "join", ("a",), [1]),
            change(5, "full", ("a",)),
        ]
    )
    assert list(history.full()) == [("a", 2, 3), ("a", 5, None)]


def test_a_full_node_stays_full_as_others_come_and_go_and_as_it_gets_other_points():
    history = ring_history(
        [
            change(1, "join", ("a",), [1]),
            change(2, "full", ("a",)),
            change(3, "join", ("b",), [2]),
            change(4, "join", ("a",), [1, 3]),
            change(5, "expire", ("b",)),
            change(6, "expire", ()),  # garbage alone
            change(7, "join", ("b",), [2]),
            change(8, "leave", ("b",)),
        ]
    )
    assert list(history.full()) == [("a", 2, None)]


def test_of_nodes_that_expired_together_none_is_full_any_more():
    history = ring_history(
        [
            change(1, "join", ("a",), [1]),
            change(2, "join", ("b",), [2]),
            change(3, "full", ("a",)),
            change(4, "full", ("b",)),
            change(5, "expire", ("b", "a")),
        ]
    )
    assert sorted(history.full()) == [("a", 3, 5), ("b", 4, 5)]


def test_a_point_outside_the_ring_is_an_error():
    with pytest.raises(ConfigError, match="outside the ring"):
        ring_history([change(1, "join", ("a",), [TOP])]).lives()
