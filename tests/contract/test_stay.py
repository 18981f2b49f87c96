"""A named node that stops to come back, on every store."""

from __future__ import annotations

from hashlib import sha1
from typing import Any

import pytest

from hashring.core.own_ranges import OwnRanges
from hashring.core.ring_change_message import ChangeKind
from hashring.store.ring import node_orders
from hashring.store.ring.commands import BeatReply, BeatStatus, LeaveStatus, Scoring, park
from hashring.store.ring.node_entries import AWAY
from tests.contract.places import AVAILABLE, LONG_AGO, TTL, Listener, Place, replicas

A, B, C = "a" * 16, "b" * 16, "c" * 16

NAMED: dict[str, Any] = {"told": {"named": True, "ranges": ""}}


def stop_to_stay(
    place: Place,
    node: str,
    session: str,
    *points: int,
    told: tuple[str, str] = ("", ""),
    scoring: Scoring = AVAILABLE,
) -> LeaveStatus:
    command = park(
        place.keys,
        node=node,
        session=session,
        scoring=scoring,
        replicas=replicas(node, *points),
        told=told,
    )
    return place.store.run(command)


def come_back(place: Place, node: str, session: str, scoring: Scoring = AVAILABLE) -> BeatReply:
    """Join as a process that knows its name and no more."""
    return place.join(node, session, back=True, digest="", scoring=scoring, **NAMED)


def test_a_node_that_stays_is_on_the_ring_for_one_ttl_more_and_nobody_is_told(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10, 20, **NAMED)
    place.join("m", B, 30)
    channel.changes()
    for member in (b"10:n:id10", b"20:n:id20"):
        place.zadd(member, place.now() + 1)
    assert stop_to_stay(place, "n", A, 10, 20) is LeaveStatus.OK
    seen = place.look()
    assert [r.replica.point for r in seen.replicas] == [10, 20, 30]
    assert min(r.expires_in for r in seen.replicas) > TTL / 2
    assert (seen.nodes["n"].session, seen.nodes["n"].away) == ("", True)
    assert channel.payloads() == []


def test_it_comes_back_without_a_change(place: Place, channel: Listener) -> None:
    place.join("n", A, 10, 20, **NAMED)
    before = place.index()
    stop_to_stay(place, "n", A, 10, 20)
    channel.changes()
    reply = place.join("n", B, 10, 20, **NAMED)
    assert (reply.status, reply.before) == (BeatStatus.OK, reply.stamp.tag)
    assert channel.payloads() == []
    assert place.index() == before
    seen = place.look().nodes["n"]
    assert (seen.session, seen.away) == (B, False)
    assert [event.kind for event in place.events()] == ["join", "stay", "back"]


def test_a_node_that_does_not_come_back_expires_and_is_remembered(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10, 20, **NAMED)
    place.join("m", B, 30)
    stop_to_stay(place, "n", A, 10, 20)
    channel.changes()
    place.age("n")
    place.beat("m", B, 30)
    (change,) = channel.changes()
    assert (change.kind, change.nodes) == (ChangeKind.EXPIRE, ("n",))
    assert place.look("n").remembered == (10, 20)


def test_a_full_node_that_stays_has_room_so_that_nobody_takes_its_keys(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10, full=True, **NAMED)
    channel.changes()
    stop_to_stay(place, "n", A, 10)
    (change,) = channel.changes()
    assert (change.kind, change.nodes) == (ChangeKind.ROOM, ("n",))
    assert place.index() == {b"10:n:id10": (10, False)}


def test_a_name_that_another_session_has_is_left_alone(place: Place) -> None:
    place.join("n", A, 10, **NAMED)
    place.join("n", B, 10, take_from=A, **NAMED)
    assert stop_to_stay(place, "n", A, 10) is LeaveStatus.SUPERSEDED
    assert place.look().nodes["n"].session == B


@pytest.mark.parametrize("entry", [True, False])
def test_a_node_that_is_not_on_the_ring_does_not_stay(place: Place, entry: bool) -> None:
    if entry:
        place.join("n", A, 10, **NAMED)
        place.zrem(b"10:n:id10")
    assert stop_to_stay(place, "n", A, 10) is LeaveStatus.ABSENT
    assert place.zset() == {}


def test_only_replicas_that_are_on_the_ring_stay(place: Place) -> None:
    place.join("n", A, 10, 20, **NAMED)
    place.zrem(b"10:n:id10")
    assert stop_to_stay(place, "n", A, 10, 20) is LeaveStatus.OK
    assert come_back(place, "n", B).stayed == tuple(replicas("n", 20))


def test_a_process_that_gave_up_its_start_takes_nothing_along(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10, 20, **NAMED)
    stop_to_stay(place, "n", A, 10, 20)
    channel.changes()
    # Its join, which is still on its way, has one of the replicas that it saw.
    assert place.leave("n", B, 10) is LeaveStatus.SUPERSEDED
    assert place.join("n", B, 10, **NAMED).status is BeatStatus.SUPERSEDED
    assert come_back(place, "n", C).stayed == tuple(replicas("n", 10, 20))
    assert channel.payloads() == []


@pytest.mark.parametrize("displaced", [False, True])
def test_a_process_that_did_not_hear_where_it_is_back_leaves_all_there(
    place: Place, channel: Listener, displaced: bool
) -> None:
    place.join("n", A, 10, 20, **NAMED)
    place.join("m", C, 15)
    stop_to_stay(place, "n", A, 10, 20)
    channel.changes()
    assert come_back(place, "n", B).status is BeatStatus.OK
    if displaced:
        place.displace()
    for member in (b"10:n:id10", b"20:n:id20"):
        place.zadd(member, place.now() + 1)
    assert stop_to_stay(place, "n", B) is LeaveStatus.OK
    seen = place.look()
    assert (seen.nodes["n"].session, seen.nodes["n"].away) == ("", True)
    assert min(r.expires_in for r in seen.replicas) > TTL / 2
    assert come_back(place, "n", C).stayed == tuple(replicas("n", 10, 20))
    assert channel.payloads() == []


def test_so_it_does_on_a_ring_that_has_no_index(place: Place) -> None:
    shared = Scoring.last_heartbeat(TTL)
    place.join("n", A, 10, 20, scoring=shared, **NAMED)
    stop_to_stay(place, "n", A, 10, 20, scoring=shared)
    come_back(place, "n", B, scoring=shared)
    assert stop_to_stay(place, "n", B, scoring=shared) is LeaveStatus.OK
    assert come_back(place, "n", C, scoring=shared).stayed == tuple(replicas("n", 10, 20))


def test_a_drained_node_that_did_not_hear_it_has_nothing_to_stay(place: Place) -> None:
    place.join("n", A, 10, **NAMED)
    place.join("m", C, 15)
    stop_to_stay(place, "n", A, 10)
    place.store.run(node_orders.drain(place.keys, node="n", by="somebody"))
    assert come_back(place, "n", B).status is BeatStatus.DRAINED
    assert stop_to_stay(place, "n", B) is LeaveStatus.ABSENT
    assert place.look().nodes.keys() == {"m"}


def test_a_process_that_wakes_up_does_not_change_what_is_there(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10, 20, **NAMED)
    stop_to_stay(place, "n", A, 10, 20)
    channel.changes()
    # It had the name before, and expired.
    assert place.beat("n", B, 30, **NAMED).status is BeatStatus.SUPERSEDED
    assert come_back(place, "n", B).stayed == tuple(replicas("n", 10, 20))
    assert channel.payloads() == []


def test_somebody_removes_a_node_that_stopped_to_come_back(place: Place) -> None:
    place.join("n", A, 10, 20, **NAMED)
    stop_to_stay(place, "n", A, 10, 20)
    assert place.leave("n", "", 10, 20, reason="removed") is LeaveStatus.OK
    assert (place.zset(), dict(place.look().nodes)) == ({}, {})


def test_a_join_that_saw_the_node_before_it_stopped_looks_again(place: Place) -> None:
    place.join("n", A, 10, **NAMED)
    stop_to_stay(place, "n", A, 10)
    reply = place.join("n", B, 11, take_from=A, drop=replicas("n", 10), **NAMED)
    assert reply.status is BeatStatus.MOVED
    assert set(place.zset()) == {b"10:n:id10"}


def test_replicas_that_expired_before_it_was_back_are_a_join_like_any_other(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10, **NAMED)
    stop_to_stay(place, "n", A, 10)
    place.zadd(b"10:n:id10", place.now() + LONG_AGO)
    channel.changes()
    place.join("n", B, 10, **NAMED)
    assert [change.reason for change in channel.changes()] == ["expired", "start"]


# --- back with one call -----------------------------------------------------------------------


def statement(reply: BeatReply) -> tuple[str, str]:
    assert reply.ranges is not None
    return reply.stamp.tag, OwnRanges("n", reply.ranges).text


@pytest.mark.parametrize("told", [True, False])
def test_a_process_that_knows_its_name_alone_is_back_with_replicas_and_ranges(
    place: Place, channel: Listener, told: bool
) -> None:
    place.join("m", C, 30, **NAMED)
    before = place.join("n", A, 10, 20, digest="", **NAMED)
    index = place.index()
    stop_to_stay(place, "n", A, 10, 20, told=statement(before) if told else ("", ""))
    channel.changes()
    reply = come_back(place, "n", B)
    assert reply.status is BeatStatus.OK
    assert reply.stayed == tuple(replicas("n", 10, 20))
    assert reply.ranges == before.ranges
    assert reply.soonest is not None
    assert channel.payloads() == []
    assert place.index() == index
    entry = place.look().nodes["n"]
    assert (entry.session, entry.away) == (B, False)
    assert entry.told["started"] == pytest.approx(reply.stamp.at / 1e6, abs=1e-5)
    assert [event.kind for event in place.events()][-2:] == ["stay", "back"]


def test_a_node_of_one_point_is_back_as_a_process_that_started_then(place: Place) -> None:
    place.join("n", A, 10, **NAMED)
    stop_to_stay(place, "n", A, 10)
    reply = come_back(place, "n", B)
    assert place.look().nodes["n"].told["started"] == pytest.approx(reply.stamp.at / 1e6, abs=1e-5)


def test_ranges_that_changed_meanwhile_are_stated_anew(place: Place) -> None:
    before = place.join("n", A, 10, 20, digest="", **NAMED)
    stop_to_stay(place, "n", A, 10, 20, told=statement(before))
    place.join("m", C, 15)
    reply = come_back(place, "n", B)
    assert [reach.own for reach in reply.ranges or ()] == [5, 2**32 - 10]


def test_its_heartbeat_stands_for_all_its_replicas(place: Place, channel: Listener) -> None:
    place.join("n", A, 10, 20, **NAMED)
    stop_to_stay(place, "n", A, 10, 20)
    come_back(place, "n", B)
    channel.changes()
    place.zadd(b"20:n:id20", place.now() + LONG_AGO)
    place.beat("n", B, 10, **NAMED)
    (change,) = channel.changes()
    # One of its replicas expired, and the node did not.
    assert (change.kind, change.nodes) == (ChangeKind.EXPIRE, ())


@pytest.mark.parametrize("session", ["", A])
def test_nothing_was_left_there_by_a_node_that_did_not_stop_to_come_back(
    place: Place, channel: Listener, session: str
) -> None:
    if session:
        place.join("n", A, 10, **NAMED)
        channel.changes()
    reply = come_back(place, "n", B)
    assert (reply.status, reply.stayed) == (BeatStatus.ABSENT, ())
    assert channel.payloads() == []
    assert [record.session for record in place.look().nodes.values()] == [session] * bool(session)


def test_nothing_was_left_there_once_it_has_expired(place: Place) -> None:
    place.join("n", A, 10, **NAMED)
    stop_to_stay(place, "n", A, 10)
    place.age("n")
    assert come_back(place, "n", B).status is BeatStatus.ABSENT
    assert place.zset() == {}


def test_replicas_that_somebody_removed_are_put_back_and_told(
    place: Place, channel: Listener
) -> None:
    before = place.join("n", A, 10, 20, digest="", **NAMED)
    stop_to_stay(place, "n", A, 10, 20, told=statement(before))
    place.zrem(b"20:n:id20")
    channel.changes()
    reply = come_back(place, "n", B)
    assert reply.ranges == before.ranges
    assert set(place.zset()) == {b"10:n:id10", b"20:n:id20"} == set(place.index())
    assert [change.kind for change in channel.changes()] == [ChangeKind.JOIN]


def test_a_node_that_was_to_drain_meanwhile_is_back_off_the_ring(place: Place) -> None:
    place.join("m", C, 30, **NAMED)
    place.join("n", A, 10, 20, **NAMED)
    stop_to_stay(place, "n", A, 10, 20)
    place.store.run(node_orders.drain(place.keys, node="n", by="somebody"))
    reply = come_back(place, "n", B)
    assert (reply.status, reply.stayed) == (BeatStatus.DRAINED, tuple(replicas("n", 10, 20)))
    assert set(place.zset()) == {b"30:m:id30"}


SUM = sha1(b"n 20:n:id20").hexdigest().encode()
"""What goes with the list of the one replica of a node."""

GARBAGE = {
    "no list": b'"stays":7',
    "no members": b'"stays":{"members":[]}',
    "no texts": b'"stays":{"members":[7]}',
    "another's": b'"stays":{"members":["10:m:id10"]}',
    "no replica": b'"stays":{"members":["nonsense"]}',
    "no text among texts": b'"stays":{"members":["20:n:id20",[]]}',
    "without its digest": b'"stays":{"members":["20:n:id20"]}',
    "others than were digested": b'"stays":{"members":["21:n:id21"],"sum":"%s"}' % SUM,
    "no JSON": b'"stays":',
}


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE)
def test_garbage_in_its_entry_is_nothing_to_come_back_to(place: Place, garbage: bytes) -> None:
    place.join("m", C, 10, **NAMED)
    place.join("n", A, 20, **NAMED)
    place.hset("n", AWAY + b"{" + garbage + b"}")
    assert come_back(place, "n", B).status is BeatStatus.ABSENT


@pytest.mark.parametrize("ranges", [b"[]", b'"nonsense"', b'"1 2"', b'"10 99999999999 1"'])
def test_garbage_for_its_ranges_makes_it_own_nothing_until_its_next_heartbeat(
    place: Place, ranges: bytes
) -> None:
    reply = place.join("n", A, 20, digest="", **NAMED)
    stays = b'"stays":{"members":["20:n:id20"],"sum":"%s","tag":"%s","ranges":%s}'
    place.hset("n", AWAY + b"{" + stays % (SUM, reply.stamp.tag.encode(), ranges) + b"}")
    back = come_back(place, "n", B)
    assert back.status is BeatStatus.OK
    assert back.ranges in ((), reply.ranges)
    assert place.beat("n", B, 20, digest="", **NAMED).ranges == reply.ranges
