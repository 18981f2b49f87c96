"""Orders about the weights of a ring's nodes, on every store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hashring.core.point_placement import MAX_POINTS, points_of_weight
from hashring.errors import ConfigError
from hashring.store.ring import node_orders
from hashring.store.ring.commands import BeatReply, BeatStatus, Scoring, look
from hashring.store.ring.node_orders import WeighReply
from hashring.store.ring.node_reports import node_shapes
from tests.contract.places import Listener, Place, replicas

A, B, C = "a" * 16, "b" * 16, "c" * 16
NAMED: Any = {"told": {"named": True}}


def weigh(place: Place, by: str = "alice", why: str = "", **weights: float | None) -> WeighReply:
    return place.store.run(node_orders.weigh(place.keys, weights=weights, by=by, reason=why))


def weight_of(reply: BeatReply) -> float | None:
    return reply.ordered.weight if reply.ordered else None


def two(place: Place) -> None:
    place.join("a", A, 10, 20, **NAMED)
    place.join("b", B, 30, **NAMED)


def told(place: Place) -> list[tuple[str, tuple[str, ...], str, str]]:
    return [(e.kind, e.nodes, e.by, e.reason) for e in place.events() if e.kind == "weight"]


def test_the_next_heartbeat_is_answered_with_the_order(place: Place) -> None:
    two(place)
    assert place.beat("a", A, 10, 20, **NAMED).ordered is None
    assert weigh(place, a=2) == WeighReply(None, ("a",))
    assert weight_of(place.beat("a", A, 10, 20, **NAMED)) == 2.0
    assert weight_of(place.beat("b", B, 30, **NAMED)) is None
    order = place.look().weights["a"]
    assert (order.weight, order.by, order.session) == (2.0, "alice", "")
    assert order.since == pytest.approx(place.now(), abs=60)


def test_the_node_is_called_to_beat_at_once(place: Place) -> None:
    two(place)
    listener = Listener(place, "a")
    weigh(place, a=2)
    assert listener.told_alone() == [("a", node_orders.ORDERED)]


def test_points_that_come_and_go_are_one_change(place: Place) -> None:
    two(place)
    listener = Listener(place)
    place.beat("a", A, 10, 15, 25, resizes=True, drop=replicas("a", 20), **NAMED)
    (change,) = listener.changes()
    assert (change.kind.value, change.nodes, change.points) == ("join", ("a",), (10, 15, 25))
    assert (change.reason, change.was, change.stamp.members) == ("weight", 3, 4)
    assert place.ring().points_of("a") == (10, 15, 25)
    assert len(place.index()) == 4


def test_a_neighbour_that_follows_no_ring_is_told_its_new_range(place: Place) -> None:
    place.join("a", A, 10, **NAMED)
    place.join("b", B, 30, told={"ranges": ""}, digest="")
    listener = Listener(place, "b")
    place.beat("a", A, 10, 50, resizes=True, **NAMED)
    ((_, news),) = listener.nearby()
    assert [(reach.point, reach.own) for reach in news.reaches] == [(30, 20)]


def test_a_heartbeat_that_comes_after_one_with_other_points_does_nothing(place: Place) -> None:
    two(place)
    place.beat("a", A, 10, 20, placed=1, **NAMED)
    place.beat("a", A, 10, placed=2, drop=replicas("a", 20), **NAMED)
    listener = Listener(place)
    late = place.beat("a", A, 10, 20, placed=1, drop=replicas("b", 30), **NAMED)
    assert late.status is BeatStatus.SUPERSEDED
    assert listener.changes() == []
    assert place.ring().points_of("a") == (10,)
    assert place.ring().points_of("b") == (30,)
    assert place.beat("a", A, 10, placed=2, **NAMED).status is BeatStatus.OK


def test_a_late_join_does_not_undo_the_joins_that_came_after_it(place: Place) -> None:
    place.join("a", A, 10, placed=2)
    assert place.join("a", A, 20, placed=1).status is BeatStatus.SUPERSEDED
    assert place.ring().points_of("a") == (10,)


def test_another_session_counts_its_points_from_the_beginning(place: Place) -> None:
    place.join("a", A, 10, placed=7, **NAMED)
    assert place.join("a", C, 10, take_from=A, placed=1, **NAMED).status is BeatStatus.OK


def test_what_came_back_while_the_entry_was_lost_goes_with_the_next_heartbeat(
    place: Place,
) -> None:
    two(place)
    place.beat("a", A, 10, placed=2, drop=replicas("a", 20), **NAMED)
    place.hset("a", b"nobody wrote this")
    place.beat("a", A, 10, 20, placed=1, **NAMED)
    listener = Listener(place)
    place.beat("a", A, 10, placed=2, **NAMED)
    (change,) = listener.changes()
    assert (change.nodes, change.points, change.was) == (("a",), (10,), 3)
    assert place.ring().points_of("a") == (10,)
    assert len(place.index()) == 2
    place.beat("a", A, 10, placed=2, **NAMED)
    assert listener.changes() == []


def test_at_the_points_of_a_process_whose_entry_was_lost_the_next_of_the_name_is_alone(
    place: Place,
) -> None:
    two(place)
    place.hset("a", b"nobody wrote this")
    place.zadd(b"10:a:before", place.now() + 60.0)
    place.index_alone(b"10:a:before", 10)
    place.join("a", C, 10, 20, **NAMED)
    assert len(place.index()) == 3
    assert place.ring().points_of("a") == (10, 20)


def test_a_drained_node_leaves_nothing_that_came_back(place: Place) -> None:
    two(place)
    place.beat("a", A, 10, placed=2, drop=replicas("a", 20), **NAMED)
    place.hset("a", b"nobody wrote this")
    place.beat("a", A, 10, 20, placed=1, **NAMED)
    place.store.run(node_orders.drain(place.keys, node="a", by="alice", force=True))
    assert place.beat("a", A, 10, placed=2, **NAMED).status is BeatStatus.DRAINED
    assert place.ring().nodes == ("b",)


def test_how_often_it_had_other_points_is_nothing_that_a_node_reports(place: Place) -> None:
    place.join("a", A, 10, placed=7, **NAMED)
    assert dict(place.look().nodes["a"].told) == {"named": True}


def test_the_later_of_two_orders_counts_and_the_history_has_both(place: Place) -> None:
    two(place)
    weigh(place, a=2)
    weigh(place, by="bob", why="it is slow", a=0.5)
    assert weigh(place, by="carol", a=0.5).changed == ()
    assert weight_of(place.beat("a", A, 10, 20, **NAMED)) == 0.5
    assert weigh(place, a=None).changed == ("a",)
    assert place.beat("a", A, 10, 20, **NAMED).ordered is None
    assert told(place) == [
        ("weight", ("a",), "alice", "2"),
        ("weight", ("a",), "bob", "0.5, it is slow"),
        ("weight", ("a",), "alice", "its own"),
    ]


def test_what_the_node_assigned_lifts_the_order_that_it_knew(place: Place) -> None:
    two(place)
    weigh(place, a=2)
    order = place.beat("a", A, 10, 20, **NAMED).ordered
    assert order is not None
    mine = {"told": {"named": True, "weight": 3}}
    assert place.beat("a", A, 10, 20, own_weight=order.id, **mine).ordered is None
    # The answer was lost: nothing happens the second time.
    place.beat("a", A, 10, 20, own_weight=order.id, **mine)
    assert dict(place.look().weights) == {}
    assert told(place)[1:] == [("weight", ("a",), "a", "3")]


def test_what_the_node_assigned_does_not_lift_an_order_that_it_did_not_know(place: Place) -> None:
    two(place)
    weigh(place, a=2)
    order = place.beat("a", A, 10, 20, **NAMED).ordered
    assert order is not None
    weigh(place, a=4)
    mine = {"told": {"named": True, "weight": 3}}
    assert weight_of(place.beat("a", A, 10, 20, own_weight=order.id, **mine)) == 4.0
    assert weight_of(place.beat("a", A, 10, 20, own_weight="", **mine)) == 4.0


def test_an_order_about_a_name_outlasts_the_process(place: Place) -> None:
    two(place)
    weigh(place, a=2)
    place.leave("a", A, 10, 20)
    assert place.look("a").weights["a"].weight == 2.0
    found = place.store.run(look(place.keys, node="a"))
    assert found.ordered is not None
    assert found.ordered.weight == 2.0
    assert weight_of(place.join("a", C, 10, 20, **NAMED)) == 2.0


def test_an_order_about_a_made_up_name_counts_for_its_process(place: Place) -> None:
    place.join("h:1", A, 10)
    weigh(place, **{"h:1": 2})
    assert weight_of(place.beat("h:1", A, 10)) == 2.0
    assert weight_of(place.join("h:1", C, 10, take_from=A)) is None
    weigh(place, **{"h:1": 3})
    place.leave("h:1", C, 10)
    assert dict(place.look().weights) == {}


def test_an_order_about_a_process_that_has_just_crashed_outlasts_orders_about_others(
    place: Place,
) -> None:
    place.join("h:1", A, 10)
    place.join("h:2", B, 30)
    weigh(place, **{"h:1": 2})
    place.age("h:1")
    place.sweep()
    weigh(place, **{"h:2": 3})
    assert set(place.look().weights) == {"h:1", "h:2"}


@pytest.mark.parametrize(
    ("node", "session", "stands"),
    [("h:1", C, False), ("h:2", B, True), ("named", "", True)],
    ids=["crashed", "running", "named"],
)
def test_of_old_orders_only_those_about_crashed_made_up_names_are_lifted(
    place: Place, node: str, session: str, stands: bool
) -> None:
    place.join("h:2", B, 30)
    place.join("h:3", A, 50)
    since = str(int((place.now() - 2 * 86400) * 1e6))
    old = {"weight": "2", "by": "alice", "since": since} | ({"session": session} if session else {})
    place.order(node, json.dumps({"weight": old}).encode())
    weigh(place, **{"h:3": 3})
    assert set(place.look().weights) == {"h:3"} | ({node} if stands else set())


def test_a_drained_node_hears_of_its_weight(place: Place) -> None:
    two(place)
    place.store.run(node_orders.drain(place.keys, node="a", by="alice"))
    weigh(place, a=2)
    reply = place.beat("a", A, 10, 20, **NAMED)
    assert (reply.status, weight_of(reply)) == (BeatStatus.DRAINED, 2.0)
    place.store.run(node_orders.undrain(place.keys, node="a", by="alice"))
    assert weight_of(place.beat("a", A, 10, 20, **NAMED)) == 2.0


def test_nothing_is_ordered_when_one_node_is_unknown(place: Place) -> None:
    two(place)
    assert weigh(place, a=2, c=2) == WeighReply("c", ())
    assert dict(place.look().weights) == {}
    assert told(place) == []


def test_nodes_in_the_form_of_redis_hashring_have_weights_too(place: Place) -> None:
    form = Scoring.last_heartbeat(60.0)
    place.join("a:1", A, 10, scoring=form)
    weigh(place, **{"a:1": 2})
    assert weight_of(place.beat("a:1", A, 10, scoring=form)) == 2.0
    reply = place.beat("a:1", A, 10, 20, resizes=True, scoring=form)
    assert (reply.status, reply.stamp.members) == (BeatStatus.OK, 2)


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"x",
        b"[]",
        b'{"weight": 1}',
        b'{"weight": {}}',
        b'{"weight": {"weight": "inf", "by": "x", "since": "1"}}',
        b'{"weight": {"weight": "-2", "by": "x", "since": "1"}}',
        b'{"weight": {"weight": "2", "by": "x", "since": 1e999}}',
        b'{"weight": {"weight": "2", "by": "\xff", "since": "soon"}, "drain": 1e999}',
    ],
)
def test_an_order_that_nobody_gave_changes_nothing(place: Place, garbage: bytes) -> None:
    two(place)
    place.order("a", garbage)
    assert place.beat("a", A, 10, 20, **NAMED).ordered is None
    assert dict(place.look().weights) == {}
    weigh(place, a=2)
    assert weight_of(place.beat("a", A, 10, 20, **NAMED)) == 2.0


@pytest.mark.parametrize("weight", [0, -1, float("nan"), float("inf"), True, "2", 1001])
def test_a_weight_that_is_none_is_refused(place: Place, weight: Any) -> None:
    with pytest.raises(ConfigError, match=r"weight=.*give a number above 0, 1000 at most"):
        weigh(place, a=weight)


def test_of_a_weight_that_nobody_wrote_here_the_number_of_points_is_guessed(place: Place) -> None:
    place.join("a", A, 10)
    place.hset("a", A.encode() + b'{"weight": 5e-324}')
    shape = node_shapes(place.look())["a"]
    assert points_of_weight(shape.n_replicas, 1.0) == MAX_POINTS
