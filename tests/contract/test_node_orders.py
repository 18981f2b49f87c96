"""Orders to drain a ring's node, on every store."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hashring.errors import ConfigError, UnknownNodeError
from hashring.store.ring import node_orders
from hashring.store.ring.commands import BeatStatus, LeaveStatus, Scoring, forget, park
from hashring.store.ring.node_orders import OrderStatus
from tests.contract.places import AVAILABLE, LONG_AGO, Listener, Place, replicas

A, B, C, D = "a" * 16, "b" * 16, "c" * 16, "d" * 16
NAMED: Any = {"told": {"named": True}}
ENDED = json.dumps({"drain": {"by": "alice", "since": "5", "ends": "6"}}).encode()
"""An order to drain whose time is up."""


def drain(place: Place, node: str, **options: Any) -> OrderStatus:
    return place.store.run(node_orders.drain(place.keys, node=node, by="alice", **options))


def undrain(place: Place, node: str) -> OrderStatus:
    return place.store.run(node_orders.undrain(place.keys, node=node, by="bob"))


def two(place: Place) -> None:
    place.join("a", A, 10, 20, **NAMED)
    place.join("b", B, 30, **NAMED)


def test_a_node_that_is_to_drain_leaves_the_ring_with_its_next_heartbeat(place: Place) -> None:
    two(place)
    assert drain(place, "a") is OrderStatus.OK
    assert place.ring().nodes == ("a", "b")
    reply = place.beat("a", A, 10, 20, **NAMED)
    assert reply.status is BeatStatus.DRAINED
    assert reply.soonest is None
    assert place.ring().nodes == ("b",)
    assert len(place.index()) == 1


def test_nothing_is_left_of_where_a_drained_node_was(place: Place) -> None:
    two(place)
    drain(place, "a")
    place.beat("a", A, 10, 20, **NAMED)
    assert place.placed() == {b"b": b"30"}


def test_nobody_has_the_former_name_of_a_drained_node(place: Place) -> None:
    two(place)
    place.join("a-before", C, 40)
    drain(place, "a")
    place.beat("a", A, 10, 20, drop=replicas("a-before", 40), **NAMED)
    assert place.look().nodes.keys() == {"a", "b"}


@pytest.mark.parametrize("named", [True, False])
def test_where_a_drained_node_was_is_remembered_if_it_has_a_name_of_its_own(
    place: Place, named: bool
) -> None:
    told = {"told": {"named": named}}
    place.join("a", A, 10, 20, **told)
    place.join("b", B, 30)
    drain(place, "a")
    assert place.beat("a", A, 10, 20, **told).status is BeatStatus.DRAINED
    assert place.look("a").remembered == ((10, 20) if named else ())


def test_a_node_with_another_order_is_one_that_may_take_over(place: Place) -> None:
    two(place)
    place.store.run(node_orders.weigh(place.keys, weights={"b": 2.0}, by="alice"))
    assert drain(place, "a") is OrderStatus.OK


def test_the_others_are_told_that_it_drained(place: Place) -> None:
    two(place)
    listener = Listener(place)
    drain(place, "a")
    place.beat("a", A, 10, 20, **NAMED)
    (change,) = listener.changes()
    assert (change.kind.value, change.nodes, change.reason) == ("leave", ("a",), "drained")
    place.beat("a", A, 10, 20, **NAMED)
    assert listener.changes() == []


def test_a_neighbour_that_follows_no_ring_is_told_its_new_range(place: Place) -> None:
    place.join("a", A, 10, **NAMED)
    place.join("b", B, 30, told={"ranges": ""}, digest="")
    listener = Listener(place, "b")
    drain(place, "a")
    place.beat("a", A, 10, **NAMED)
    ((node, news),) = listener.nearby()
    assert (node, [tuple(reach) for reach in news.reaches]) == ("b", [(30, 2**32, 2**32)])


def test_the_node_is_told_alone_to_beat(place: Place) -> None:
    two(place)
    listener = Listener(place, "a", "b")
    drain(place, "a")
    undrain(place, "a")
    assert listener.told_alone() == [("a", b"order"), ("a", b"order")]


def test_a_drained_node_is_no_node_of_the_ring_and_is_seen(place: Place) -> None:
    two(place)
    drain(place, "a")
    assert place.beat("a", A, 10, 20, **NAMED).nodes == 1
    seen = place.look()
    assert list(seen.drained) == ["a"]
    assert 0 < seen.drained["a"] <= AVAILABLE.lead
    assert "a" in seen.nodes
    assert seen.drains["a"].by == "alice"
    assert seen.drains["a"].until is None
    place.sweep()
    assert "a" in place.look().nodes


def test_it_is_back_at_its_points_once_the_order_is_lifted(place: Place) -> None:
    two(place)
    drain(place, "a")
    place.beat("a", A, 10, 20, **NAMED)
    assert undrain(place, "a") is OrderStatus.OK
    assert place.beat("a", A, 10, 20, **NAMED).status is BeatStatus.OK
    assert place.ring().points_of("a") == (10, 20)
    seen = place.look()
    assert (dict(seen.drains), dict(seen.drained)) == ({}, {})
    changes = [event.change.reason for event in place.events() if event.change]
    assert changes == ["start", "start", "drained", "undrained"]


def test_the_history_has_both_orders_with_their_authors(place: Place) -> None:
    two(place)
    drain(place, "a", seconds=7200)
    drain(place, "a")
    undrain(place, "a")
    told = [(e.kind, e.nodes, e.by, e.reason) for e in place.events() if e.change is None]
    assert told == [
        ("drain", ("a",), "alice", "for 7200 s"),
        ("drain", ("a",), "alice", ""),
        ("undrain", ("a",), "bob", ""),
    ]


def test_a_drain_ends_by_itself_when_its_time_is_up(place: Place) -> None:
    two(place)
    drain(place, "a", seconds=3600)
    place.beat("a", A, 10, 20, **NAMED)
    order = place.look().drains["a"]
    assert order.until is not None
    assert order.until - order.since == pytest.approx(3600)
    place.order("a", ENDED)
    assert place.beat("a", A, 10, 20, **NAMED).status is BeatStatus.OK
    assert dict(place.look().drains) == {}
    assert ("undrain", "its time was up") in [(e.kind, e.reason) for e in place.events()]


def test_the_next_order_forgets_one_whose_time_is_up_about_a_node_that_is_gone(
    place: Place,
) -> None:
    two(place)
    place.order("gone", ENDED)
    drain(place, "a")
    assert drain(place, "gone") is OrderStatus.UNKNOWN


@pytest.mark.parametrize(
    ("node", "session", "days", "stands"),
    [("h:1", C, 2, False), ("h:1", C, 0.5, True), ("b", B, 2, True), ("named", "", 2, True)],
    ids=["crashed", "just crashed", "running", "named"],
)
def test_the_next_order_lifts_an_old_one_about_a_crashed_process_with_a_made_up_name(
    place: Place, node: str, session: str, days: float, stands: bool
) -> None:
    two(place)
    since = str(int((place.now() - days * 86400) * 1e6))
    old = {"by": "alice", "since": since} | ({"session": session} if session else {})
    place.order(node, json.dumps({"drain": old, "weight": {**old, "weight": "2"}}).encode())
    assert drain(place, "a", force=True) is OrderStatus.OK
    seen = place.look()
    assert set(seen.drains) == {"a"} | ({node} if stands else set())
    assert set(seen.weights) == ({node} if stands else set())


def test_an_order_about_a_weight_lifts_such_an_old_drain_too(place: Place) -> None:
    two(place)
    since = str(int((place.now() - 2 * 86400) * 1e6))
    old = {"by": "alice", "since": since, "session": C}
    place.order("h:1", json.dumps({"drain": old}).encode())
    place.store.run(node_orders.weigh(place.keys, weights={"a": 2.0}, by="bob"))
    assert dict(place.look().drains) == {}


def crashed(place: Place) -> None:
    """Two nodes, and a process with a made-up name that crashed with orders about it."""
    two(place)
    place.join("h:1", C, 50)
    drain(place, "h:1")
    place.store.run(node_orders.weigh(place.keys, weights={"h:1": 2.0}, by="bob"))
    place.age("h:1")
    place.sweep()
    assert place.look().standing_drains.keys() == {"h:1"}


def test_a_second_drain_about_a_process_that_crashed_is_about_that_process_too(
    place: Place,
) -> None:
    crashed(place)
    assert drain(place, "h:1", seconds=60) is OrderStatus.OK
    order = place.look().drains["h:1"]
    assert (order.until is not None, order.session) == (True, C)


@pytest.mark.parametrize(("weight", "left"), [(3.0, [(3.0, C)]), (None, [])])
def test_a_second_weight_of_a_process_that_crashed_is_about_that_process_too(
    place: Place, weight: float | None, left: list[tuple[float, str]]
) -> None:
    crashed(place)
    place.store.run(node_orders.weigh(place.keys, weights={"h:1": weight}, by="bob"))
    found = place.look().weights.values()
    assert [(order.weight, order.session) for order in found] == left


def test_an_order_about_a_name_that_others_may_have_is_about_whoever_starts_under_it(
    place: Place,
) -> None:
    two(place)
    place.leave("a", A, 10, 20)
    before = {"by": "alice", "since": str(int(place.now() * 1e6)), "session": C}
    place.order("a", json.dumps({"drain": before}).encode())
    assert drain(place, "a", seconds=60) is OrderStatus.OK
    assert place.look().drains["a"].session == ""


def test_an_order_about_a_process_that_crashed_long_ago_is_refused(place: Place) -> None:
    two(place)
    since = str(int((place.now() - 2 * 86400) * 1e6))
    old = json.dumps({"drain": {"by": "alice", "since": since, "session": C}}).encode()
    place.order("h:1", old)
    assert drain(place, "h:1") is OrderStatus.UNKNOWN
    place.order("h:1", old)
    weigh = node_orders.weigh(place.keys, weights={"h:1": 2.0}, by="bob")
    assert place.store.run(weigh).unknown == "h:1"


def test_a_drain_about_a_made_up_name_binds_only_the_process_that_had_the_name(
    place: Place,
) -> None:
    two(place)
    place.join("h:1", C, 50)
    drain(place, "h:1")
    drain(place, "a")
    assert set(place.look().binding_drains) == {"a", "h:1"}
    place.beat("h:1", C, 50)
    place.age_drained("h:1")
    place.sweep()
    # The process crashed, or may be back: the order stands, and binds nobody now.
    assert set(place.look().standing_drains) == {"a", "h:1"}
    assert set(place.look().binding_drains) == {"a"}


def test_a_named_node_that_starts_again_is_drained(place: Place) -> None:
    two(place)
    drain(place, "a")
    place.beat("a", A, 10, 20, **NAMED)
    place.leave("a", A, 10, 20)
    assert dict(place.look().drained) == {}
    assert place.look("a").remembered == (10, 20)
    assert place.join("a", C, 10, 20, **NAMED).status is BeatStatus.DRAINED
    assert place.ring().nodes == ("b",)


def test_a_drained_node_that_stops_to_come_back_is_drained_when_it_is_back(place: Place) -> None:
    two(place)
    drain(place, "a")
    place.beat("a", A, 10, 20, **NAMED)
    parked = park(
        place.keys, node="a", session=A, scoring=AVAILABLE, replicas=replicas("a", 10, 20)
    )
    # It has nothing on the ring that could stay there.
    assert place.store.run(parked) is LeaveStatus.ABSENT
    assert place.join("a", C, 10, 20, take_from=A, **NAMED).status is BeatStatus.DRAINED
    assert place.ring().nodes == ("b",)
    undrain(place, "a")
    assert place.beat("a", C, 10, 20, **NAMED).status is BeatStatus.OK
    assert place.ring().points_of("a") == (10, 20)


def test_a_named_node_that_was_away_may_be_drained_before_it_starts(place: Place) -> None:
    two(place)
    place.leave("a", A, 10, 20)
    assert drain(place, "a") is OrderStatus.OK
    assert place.join("a", C, 10, 20, **NAMED).status is BeatStatus.DRAINED


def test_an_order_about_a_named_node_outlasts_a_process_that_gave_up_its_start(
    place: Place,
) -> None:
    two(place)
    place.leave("a", A, 10, 20)
    drain(place, "a")
    # Its join has not come.
    assert place.leave("a", D, 10, 20) is LeaveStatus.ABSENT
    assert place.join("a", C, 10, 20, **NAMED).status is BeatStatus.DRAINED


def test_an_order_about_a_made_up_name_counts_for_the_process_that_has_it(place: Place) -> None:
    place.join("h:1", A, 10)
    place.join("b", B, 30)
    drain(place, "h:1")
    assert place.beat("h:1", A, 10).status is BeatStatus.DRAINED
    place.age_drained("h:1")
    place.beat("b", B, 30)
    assert place.beat("h:1", A, 10).status is BeatStatus.DRAINED
    place.age_drained("h:1")
    assert place.join("h:1", C, 10).status is BeatStatus.OK
    assert dict(place.look().drains) == {}


def test_an_order_about_a_made_up_name_goes_with_its_process(place: Place) -> None:
    place.join("h:1", A, 10)
    place.join("b", B, 30)
    drain(place, "h:1")
    place.leave("h:1", A, 10, reason="removed")
    assert "h:1" in place.look().drains
    place.leave("h:1", A, 10, reason="stop")
    assert dict(place.look().drains) == {}


def test_a_drained_node_that_stops_beating_is_forgotten_and_its_order_is_not(place: Place) -> None:
    two(place)
    drain(place, "a")
    place.beat("a", A, 10, 20, **NAMED)
    place.age_drained("a")
    place.beat("b", B, 30, **NAMED)
    seen = place.look()
    assert (list(seen.nodes), list(seen.drained), list(seen.drains)) == (["b"], [], ["a"])
    assert place.beat("a", A, 10, 20, **NAMED).status is BeatStatus.DRAINED


def test_another_process_takes_a_drained_nodes_name(place: Place) -> None:
    two(place)
    drain(place, "a")
    place.beat("a", A, 10, 20, **NAMED)
    reply = place.join("a", C, 40, take_from=A, **NAMED)
    assert reply.status is BeatStatus.DRAINED
    assert place.beat("a", A, 10, 20, **NAMED).status is BeatStatus.SUPERSEDED


@pytest.mark.parametrize("others", ["none", "drained"])
def test_the_last_node_is_drained_only_by_force(place: Place, others: str) -> None:
    place.join("a", A, 10, **NAMED)
    if others == "drained":
        place.join("b", B, 30, **NAMED)
        assert drain(place, "b") is OrderStatus.OK
    assert drain(place, "a") is OrderStatus.LAST
    assert place.beat("a", A, 10, **NAMED).status is BeatStatus.OK
    assert drain(place, "a", force=True) is OrderStatus.OK
    assert place.beat("a", A, 10, **NAMED).status is BeatStatus.DRAINED
    # The time of an order that stands may be changed.
    assert drain(place, "a", seconds=60) is OrderStatus.OK


def test_beside_a_node_that_expired_a_node_is_the_last(place: Place) -> None:
    two(place)
    for replica in place.look().replicas:
        if replica.replica.node == "b":
            place.zadd(replica.replica.member, LONG_AGO)
    assert drain(place, "a") is OrderStatus.LAST


def test_beside_nodes_that_stopped_to_come_back_a_node_is_the_last(place: Place) -> None:
    two(place)
    place.store.run(
        park(place.keys, node="b", session=B, scoring=AVAILABLE, replicas=replicas("b", 30))
    )
    assert drain(place, "a") is OrderStatus.LAST
    # Whatever is ordered about such a node, another one that beats takes over.
    assert drain(place, "b") is OrderStatus.OK
    assert drain(place, "a") is OrderStatus.LAST
    place.join("c", C, 50, **NAMED)
    assert drain(place, "a") is OrderStatus.OK


def test_beside_nodes_of_redis_hashring_a_node_is_not_the_last(place: Place) -> None:
    form = Scoring.last_heartbeat(60.0)
    place.join("a:1", A, 10, scoring=form)
    assert drain(place, "a:1", lag=form.lag) is OrderStatus.LAST
    place.zadd(b"30:b:1:x", place.now())
    assert drain(place, "a:1", lag=form.lag) is OrderStatus.OK
    assert place.beat("a:1", A, 10, scoring=form).status is BeatStatus.DRAINED
    assert place.ring().nodes == ("b:1",)


def test_what_is_unknown_is_not_ordered(place: Place) -> None:
    two(place)
    assert drain(place, "c") is OrderStatus.UNKNOWN
    assert undrain(place, "c") is OrderStatus.UNKNOWN
    assert undrain(place, "a") is OrderStatus.NONE
    # It is remembered where b was.
    place.leave("b", B, 30)
    assert undrain(place, "b") is OrderStatus.NONE
    assert [event.kind for event in place.events()] == ["join", "join", "leave"]


@pytest.mark.parametrize(
    "garbage", [b"", b"x", b"[]", b"{}", b'{"drain": 1}', b'{"drain": {"ends": "soon"}}']
)
def test_an_order_that_nobody_gave_drains_nobody(place: Place, garbage: bytes) -> None:
    two(place)
    place.order("a", garbage)
    assert place.beat("a", A, 10, 20, **NAMED).status is BeatStatus.OK
    assert dict(place.look().drains) == {}
    assert drain(place, "a") is OrderStatus.OK
    assert place.beat("a", A, 10, 20, **NAMED).status is BeatStatus.DRAINED


def test_a_ring_with_a_drained_node_is_not_forgotten(place: Place) -> None:
    place.join("a", A, 10, **NAMED)
    drain(place, "a", force=True)
    place.beat("a", A, 10, **NAMED)
    assert not place.store.run(forget(place.keys, scoring=AVAILABLE, by="alice"))
    place.leave("a", A, 10)
    assert place.store.run(forget(place.keys, scoring=AVAILABLE, by="alice"))


def test_a_ring_with_as_many_drained_nodes_as_members_is_not_forgotten(place: Place) -> None:
    two(place)
    drain(place, "a")
    place.beat("a", A, 10, 20, **NAMED)
    assert not place.store.run(forget(place.keys, scoring=AVAILABLE, by="alice"))


def test_a_full_node_that_drains_is_not_full_any_more(place: Place) -> None:
    two(place)
    place.beat("a", A, 10, 20, full=True, **NAMED)
    drain(place, "a")
    place.beat("a", A, 10, 20, full=True, **NAMED)
    assert place.beat("b", B, 30, fetch=True, **NAMED).full == frozenset()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), float("inf"), True, "2h", 1e10])
def test_a_drains_time_is_a_number_of_seconds(place: Place, seconds: Any) -> None:
    with pytest.raises(ConfigError, match="give a positive number of seconds"):
        drain(place, "a", seconds=seconds)


def test_an_order_that_was_refused_says_why() -> None:
    with pytest.raises(UnknownNodeError, match="did you mean 'worker-1'"):
        node_orders.order_took_effect(OrderStatus.UNKNOWN, "worker-l", "accounts", ["worker-1"])
    with pytest.raises(ConfigError, match="every key of the ring would be unserved"):
        node_orders.order_took_effect(OrderStatus.LAST, "worker-1", "accounts")
    assert node_orders.order_took_effect(OrderStatus.OK, "worker-1", "accounts")
    assert not node_orders.order_took_effect(OrderStatus.NONE, "worker-1", "accounts")
