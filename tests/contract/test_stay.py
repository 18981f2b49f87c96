"""A named node that stops to come back, on every store."""

from __future__ import annotations

from typing import Any

import pytest

from hashring.core.change import ChangeKind
from hashring.store.ring.commands import BeatStatus, LeaveStatus, Scoring, park
from tests.contract.places import LONG_AGO, TTL, Listener, Place, replicas

A, B, C = "a" * 16, "b" * 16, "c" * 16

NAMED: dict[str, Any] = {"told": {"named": True, "ranges": ""}}


def stop_to_stay(place: Place, node: str, session: str, *points: int) -> LeaveStatus:
    command = park(
        place.keys,
        node=node,
        session=session,
        scoring=Scoring.expiry(TTL),
        replicas=replicas(node, *points),
    )
    return place.store.run(command)


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
