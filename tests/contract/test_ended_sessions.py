"""Heartbeats of sessions that have ended, on every store."""

from __future__ import annotations

from typing import Any

import pytest

from hashring.store.locks.commands import AcquireAnswer, HeldByOther, acquire, look
from hashring.store.ring import node_orders
from hashring.store.ring.commands import BeatStatus, LeaveStatus, Scoring, park
from tests.contract.places import TTL, Place, RealPlace, replicas

A, B, C = "a" * 16, "b" * 16, "c" * 16
NAMED: Any = {"told": {"named": True}}
WIRES = pytest.mark.parametrize(
    "scoring", [Scoring.expiry(TTL), Scoring.last_heartbeat(TTL)], ids=["own", "redis-hashring"]
)


def stop_to_stay(place: Place, session: str, *points: int) -> LeaveStatus:
    command = park(
        place.keys,
        node="n",
        session=session,
        scoring=Scoring.expiry(TTL),
        replicas=replicas("n", *points),
    )
    return place.store.run(command)


@WIRES
@pytest.mark.parametrize("joining", [True, False], ids=["join", "heartbeat"])
def test_a_heartbeat_that_comes_after_its_node_left_does_nothing(
    place: Place, scoring: Scoring, joining: bool
) -> None:
    place.join("m", B, 30, scoring=scoring)
    place.join("n", A, 10, 20, scoring=scoring)
    place.leave("n", A, 10, 20)
    before = place.zset()
    late = place.beat("n", A, 10, 20, joining=joining, scoring=scoring)
    assert late.status is BeatStatus.SUPERSEDED
    assert (place.zset(), set(place.look().nodes)) == (before, {"m"})


def test_a_heartbeat_that_comes_after_a_drained_node_stopped_to_come_back_does_nothing(
    place: Place,
) -> None:
    place.join("m", B, 30)
    place.join("n", A, 10, **NAMED)
    place.store.run(node_orders.drain(place.keys, node="n", by="alice"))
    assert place.beat("n", A, 10, **NAMED).status is BeatStatus.DRAINED
    assert stop_to_stay(place, A, 10) is LeaveStatus.ABSENT
    assert place.beat("n", A, 10, **NAMED).status is BeatStatus.SUPERSEDED
    look = place.look()
    assert (set(look.nodes), dict(look.drained)) == ({"m"}, {})


def test_a_join_that_comes_after_its_start_was_given_up_does_nothing(place: Place) -> None:
    assert place.leave("n", A, 10) is LeaveStatus.ABSENT
    assert place.join("n", A, 10).status is BeatStatus.SUPERSEDED
    assert place.zset() == {}


@WIRES
def test_the_next_process_of_the_name_is_not_hindered(place: Place, scoring: Scoring) -> None:
    place.join("n", A, 10, scoring=scoring, **NAMED)
    place.leave("n", A, 10)
    for joining in (True, False):
        reply = place.beat("n", B, 10, joining=joining, scoring=scoring, **NAMED)
        assert reply.status is BeatStatus.OK
    assert place.beat("n", A, 10, scoring=scoring, **NAMED).status is BeatStatus.SUPERSEDED
    assert place.look().nodes["n"].session == B


def test_a_node_that_an_operator_removed_is_back_with_its_next_heartbeat(place: Place) -> None:
    place.join("n", A, 10)
    for session in ("", A):
        place.leave("n", session, 10, reason="removed")
        assert place.beat("n", A, 10).status is BeatStatus.OK


def test_a_heartbeat_that_comes_after_its_node_stopped_to_come_back_takes_no_name(
    place: Place,
) -> None:
    place.join("n", A, 10, **NAMED)
    stop_to_stay(place, A, 10)
    entry = place.look().nodes["n"]
    assert entry.away
    assert place.beat("n", A, 10, **NAMED).status is BeatStatus.SUPERSEDED
    assert place.look().nodes["n"] == entry
    back = place.join("n", B, back=True, digest="", told={"named": True, "ranges": ""})
    assert [replica.point for replica in back.stayed] == [10]


def test_a_process_that_comes_back_and_ends_before_its_join_arrives_is_not_back(
    place: Place,
) -> None:
    place.join("n", A, 10, **NAMED)
    stop_to_stay(place, A, 10)
    assert stop_to_stay(place, B) is LeaveStatus.ABSENT
    late = place.join("n", B, back=True, digest="", **NAMED)
    assert late.status is BeatStatus.SUPERSEDED


def test_a_session_that_lost_its_name_does_not_get_it_back_when_the_other_has_gone(
    place: Place,
) -> None:
    place.join("n", A, 10, **NAMED)
    place.join("n", B, 20, take_from=A, **NAMED)
    place.leave("n", B, 20)
    assert place.beat("n", A, 10, **NAMED).status is BeatStatus.SUPERSEDED
    assert place.zset() == {}


def test_a_late_heartbeat_of_a_drained_node_that_left_is_no_drained_node(place: Place) -> None:
    place.join("m", B, 30, **NAMED)
    place.join("n", A, 10, **NAMED)
    place.store.run(node_orders.drain(place.keys, node="n", by="alice"))
    assert place.beat("n", A, 10, **NAMED).status is BeatStatus.DRAINED
    place.leave("n", A, 10)
    assert place.beat("n", A, 10, **NAMED).status is BeatStatus.SUPERSEDED
    seen = place.look()
    assert (set(seen.drained), set(seen.nodes)) == (set(), {"m"})
    assert set(seen.drains) == {"n"}


def lock(place: Place, session: str, history: str, *keys: bytes) -> list[AcquireAnswer]:
    command = acquire(
        place.keys,
        node="n",
        session=session,
        ttl=TTL,
        locked=keys,
        most=len(keys),
        awaited=len(keys),
        history=history,
    )
    return place.store.run(command)


@pytest.mark.parametrize("stays", [True, False], ids=["to come back", "for good"])
def test_a_call_that_comes_after_its_node_stopped_takes_no_lock(place: Place, stays: bool) -> None:
    history = place.join("n", A, 10, locking=True, **NAMED).history
    (token,) = lock(place, A, history, b"own")
    if stays:
        stop_to_stay(place, A, 10)
    else:
        place.leave("n", A, 10)
    (others,) = lock(place, B, history, b"other's")
    assert isinstance(others, int)
    assert lock(place, A, history, b"own", b"free") == [None, None]
    # Nor does it wait for what another has.
    (found,) = lock(place, A, history, b"other's")
    assert isinstance(found, HeldByOther)
    assert not found.awaited
    seen = place.store.run(look(place.keys, locked=[b"own", b"free", b"other's"]))
    assert {key: (lock.session, lock.token) for key, lock in seen.items()} == {
        b"own": (A, token),
        b"other's": (B, others),
    }


def test_a_node_that_an_operator_removed_goes_on_taking_locks(place: Place) -> None:
    history = place.join("n", A, 10, locking=True).history
    place.leave("n", A, 10, reason="removed")
    (token,) = lock(place, A, history, b"k")
    assert isinstance(token, int)


def test_ended_sessions_are_forgotten(real: RealPlace) -> None:
    real.leave("n", A, 10)
    assert 0 < real.client.ttl(real.keys.ended) <= 3600
    real.client.zadd(real.keys.ended, {A: real.now() - 1})
    assert real.join("n", A, 10).status is BeatStatus.OK
    real.leave("n", C, 10)
    assert real.client.zrange(real.keys.ended, 0, -1) == [C.encode()]


@pytest.mark.parametrize("stays", [True, False], ids=["to come back", "for good"])
def test_a_full_redis_lets_a_node_leave(real: RealPlace, stays: bool) -> None:
    real.join("n", A, 10, **NAMED)
    real.client.config_set("maxmemory", 1)
    try:
        status = stop_to_stay(real, A, 10) if stays else real.leave("n", A, 10)
        again = real.leave("m", B, 20)
    finally:
        real.client.config_set("maxmemory", 0)
    assert (status, again) == (LeaveStatus.OK, LeaveStatus.ABSENT)
