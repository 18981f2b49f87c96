"""What every store must do: the scripts on each real server of this machine, and in memory.

Nothing here waits for time to pass: what must be expired gets its score written by hand.
"""

from __future__ import annotations

import contextlib
import json
import random
import threading
from itertools import pairwise
from typing import Any

import pytest

from hashring import RingNode
from hashring.core.replica import Replica, parse_replica
from hashring.core.ring import Ring
from hashring.core.ring_change_message import ChangeKind, RingChange, parse_change
from hashring.core.ring_history import ring_history
from hashring.errors import MessageFormatError, ReplicaFormatError, WrongKeyType
from hashring.store.interface import Answered, Message, Notice, Subscribed, Unsubscribed
from hashring.store.ring import commands, node_orders
from hashring.store.ring.commands import (
    BeatReply,
    BeatStatus,
    LeaveStatus,
    Scoring,
    SweepReply,
    beat,
    forget,
    look,
    owner,
    park,
    read_members,
)
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.snapshot import snapshot
from tests.conftest import PATIENCE, some
from tests.contract.places import (
    AVAILABLE,
    LONG_AGO,
    TTL,
    Listener,
    MemoryPlace,
    Place,
    RealPlace,
    replicas,
)

A, B, C = "a" * 16, "b" * 16, "c" * 16


# --- joining and refreshing -------------------------------------------------------------------


def test_a_join_puts_each_replica_on_the_ring_scored_by_its_expiry(place: Place) -> None:
    before = place.now()
    reply = place.join("n", A, 10, 20)
    after = place.now()
    assert reply.status is BeatStatus.OK
    assert set(place.zset()) == {b"10:n:id10", b"20:n:id20"}
    for score in place.zset().values():
        assert before + TTL <= score <= after + TTL + 1e-6


def test_a_join_is_told_with_its_points_its_session_and_its_place_in_history(
    place: Place, channel: Listener
) -> None:
    reply = place.join("n", A, 20, 10)
    (change,) = channel.changes()
    assert change == RingChange(
        ChangeKind.JOIN, ("n",), (10, 20), "", reply.stamp, session=A, reason="start", was=0
    )
    assert reply.before == ""
    assert reply.stamp.epoch == 1
    assert reply.stamp.members == 2


def test_a_refresh_tells_nobody_and_moves_only_the_expiry(place: Place, channel: Listener) -> None:
    place.join("n", A, 10)
    place.zadd(b"10:n:id10", place.now() + 1)
    channel.changes()
    stamp = place.look().stamp
    reply = place.beat("n", A, 10)
    assert channel.payloads() == []
    assert reply.status is BeatStatus.OK
    assert (reply.stamp.epoch, reply.stamp.tag, reply.before) == (stamp.epoch, stamp.tag, stamp.tag)
    assert place.zset()[b"10:n:id10"] > place.now() + TTL / 2


def test_each_change_continues_the_one_before_and_counts_the_members(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10, 20)
    place.join("m", B, 30)
    place.leave("n", A, 10, 20)
    changes = channel.changes()
    assert [change.stamp.epoch for change in changes] == [1, 2, 3]
    assert [(change.was, change.stamp.members) for change in changes] == [(0, 2), (2, 3), (3, 1)]
    assert changes[0].prev == ""
    assert all(later.prev == earlier.stamp.tag for earlier, later in pairwise(changes))
    assert place.look().stamp.tag == changes[-1].stamp.tag


def test_the_same_change_has_another_tag_each_time(place: Place) -> None:
    tags = set()
    for _ in range(5):
        tags.add(place.join("n", A, 10).stamp.tag)
        place.leave("n", A, 10, reason="removed")
        place.set_epoch(b"")
    assert len(tags) == 5


def test_the_members_come_only_when_asked_for(place: Place) -> None:
    assert place.join("n", A, 10).members is None
    assert place.beat("n", A, 10, fetch=True).members == (b"10:n:id10",)


def test_a_node_that_lost_members_comes_back_as_a_change(place: Place, channel: Listener) -> None:
    place.join("n", A, 10, 20)
    place.zrem(b"10:n:id10")
    channel.changes()
    reply = place.beat("n", A, 10, 20)
    (change,) = channel.changes()
    assert (change.kind, change.points, change.reason) == (ChangeKind.JOIN, (10, 20), "return")
    assert reply.before == change.prev
    assert reply.stamp == change.stamp


def test_new_points_replace_the_old_in_one_step(place: Place, channel: Listener) -> None:
    place.join("n", A, 10, 20)
    channel.changes()
    place.join("n", A, 20, 30, drop=replicas("n", 10))
    (change,) = channel.changes()
    assert (change.points, change.reason) == ((20, 30), "resize")
    assert (change.was, change.stamp.members) == (2, 2)
    assert set(place.zset()) == {b"20:n:id20", b"30:n:id30"}


def test_dropping_what_is_not_there_is_no_change(place: Place, channel: Listener) -> None:
    place.join("n", A, 10)
    channel.changes()
    place.beat("n", A, 10, drop=replicas("n", 99))
    assert channel.payloads() == []


def test_the_soonest_expiry_is_told_in_seconds(place: Place) -> None:
    place.join("n", A, 10)
    place.join("m", B, 20)
    place.zadd(b"20:m:id20", place.now() + TTL / 2)
    soonest = place.beat("n", A, 10).soonest
    assert soonest is not None
    assert TTL / 4 < soonest <= TTL / 2


def test_an_empty_ring_has_no_soonest_expiry(place: Place) -> None:
    place.hset("n", (A + "{}").encode())
    assert place.join("n", B, 10).soonest is None


# --- whose name it is -------------------------------------------------------------------------


def test_a_join_does_not_take_a_name_that_is_in_use(place: Place, channel: Listener) -> None:
    place.join("n", A, 10)
    channel.changes()
    assert place.join("n", B, 20).status is BeatStatus.TAKEN
    assert set(place.zset()) == {b"10:n:id10"}
    assert place.look().nodes["n"].session == A
    assert channel.payloads() == []


def test_a_join_takes_the_name_from_the_session_that_it_saw(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10)
    channel.changes()
    assert place.join("n", B, 10, take_from=A).status is BeatStatus.OK
    (change,) = channel.changes()
    assert (change.session, change.reason) == (B, "restart")
    assert place.look().nodes["n"].session == B


def test_who_takes_a_name_takes_away_what_its_holder_put_there_since(place: Place) -> None:
    place.join("n", A, 10)
    join = beat(
        place.keys,
        node="n",
        session=B,
        scoring=AVAILABLE,
        told={},
        replicas=[Replica(10, "n", "other")],
        joining=True,
        take_from=A,
    )
    assert place.store.run(join).status is BeatStatus.OK
    assert set(place.zset()) == {b"10:n:other"}


def test_a_join_does_not_take_the_name_from_a_session_that_it_did_not_see(place: Place) -> None:
    place.join("n", A, 10)
    place.join("n", B, 10, take_from=A)
    assert place.join("n", C, 10, take_from=A).status is BeatStatus.TAKEN
    assert place.look().nodes["n"].session == B


def test_a_session_that_lost_its_name_is_told_and_changes_nothing(place: Place) -> None:
    place.join("n", A, 10)
    place.join("n", B, 20, take_from=A, drop=replicas("n", 10))
    before = place.zset()
    assert place.beat("n", A, 10).status is BeatStatus.SUPERSEDED
    assert place.zset() == before


def test_a_name_is_free_once_its_holder_has_expired(place: Place, channel: Listener) -> None:
    place.join("n", A, 10)
    place.age("n")
    channel.changes()
    assert place.join("n", B, 20).status is BeatStatus.OK
    assert [change.kind for change in channel.changes()] == [ChangeKind.EXPIRE, ChangeKind.JOIN]
    assert set(place.zset()) == {b"20:n:id20"}


def test_a_name_is_free_once_its_holder_has_left(place: Place) -> None:
    place.join("n", A, 10)
    place.leave("n", A, 10)
    assert place.join("n", B, 10).status is BeatStatus.OK


@pytest.mark.parametrize(
    "entry", [b"", b"{}", b"\xff\xfe", b"short{}", (A + "x{}").encode(), A.encode(), b"a b" * 9]
)
def test_an_entry_that_no_node_wrote_holds_no_name(place: Place, entry: bytes) -> None:
    place.hset("n", entry)
    assert place.look().nodes["n"].session == ""
    assert place.join("n", A, 10).status is BeatStatus.OK
    place.hset("n", entry)
    assert place.beat("n", A, 10).status is BeatStatus.OK
    assert place.look().nodes["n"].session == A


def test_what_a_node_tells_is_what_readers_see(place: Place) -> None:
    place.join("n", A, 10, told={"host": "höst", "weight": 1.5, "named": True})
    assert place.look().nodes["n"].told == {"host": "höst", "weight": 1.5, "named": True}
    place.beat("n", A, 10, told={"weight": 2})
    assert place.look().nodes["n"].told == {"weight": 2}


# --- joining on the very ring that was looked at ----------------------------------------------


def test_a_join_on_the_expected_ring_is_made(place: Place) -> None:
    tag = place.join("n", A, 10).stamp.tag
    assert place.join("m", B, 20, expect=tag).status is BeatStatus.OK


def test_a_join_on_another_ring_than_expected_changes_nothing(
    place: Place, channel: Listener
) -> None:
    tag = place.join("n", A, 10).stamp.tag
    place.join("m", B, 20)
    channel.changes()
    reply = place.join("o", C, 30, expect=tag)
    assert reply.status is BeatStatus.MOVED
    assert channel.payloads() == []
    assert "o" not in place.look().nodes
    assert b"30:o:id30" not in place.zset()


def test_of_two_joins_that_expect_an_empty_history_one_is_made(place: Place) -> None:
    assert place.join("n", A, 10, expect="").status is BeatStatus.OK
    assert place.join("m", B, 20, expect="").status is BeatStatus.MOVED


def test_what_expired_since_the_look_moved_the_ring(place: Place) -> None:
    tag = place.join("n", A, 10).stamp.tag
    place.age("n")
    assert place.join("m", B, 20, expect=tag).status is BeatStatus.MOVED
    assert place.look().stamp.tag != tag


# --- full nodes -------------------------------------------------------------------------------


def test_a_node_that_becomes_full_and_has_room_again_says_so_once_each(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10)
    channel.changes()
    for full in (True, True, False, False):
        place.beat("n", A, 10, full=full)
    changes = channel.changes()
    assert [(c.kind, c.nodes, c.points, c.was, c.stamp.members) for c in changes] == [
        (ChangeKind.FULL, ("n",), (), 1, 1),
        (ChangeKind.ROOM, ("n",), (), 1, 1),
    ]


def test_who_is_full_comes_with_the_members(place: Place) -> None:
    place.join("n", A, 10, full=True)
    place.join("m", B, 20)
    assert place.beat("m", B, 20).full == frozenset()
    assert place.beat("m", B, 20, fetch=True).full == {"n"}


@pytest.mark.parametrize("end", ["leave", "expire"])
def test_a_node_that_went_is_not_full_any_more(place: Place, end: str) -> None:
    place.join("n", A, 10, full=True)
    if end == "leave":
        place.leave("n", A, 10)
    else:
        place.age("n")
    assert place.join("m", B, 20, fetch=True).full == frozenset()


@pytest.mark.parametrize("end", ["leave", "remove", "expire", "drain", "stay"])
def test_the_events_tell_when_a_node_that_went_and_came_back_was_full(
    place: Place, end: str
) -> None:
    place.join("m", B, 20)
    place.join("n", A, 10, full=True)
    if end == "leave":
        place.leave("n", A, 10)
    elif end == "remove":
        place.leave("n", "", 10, reason="removed", by="alice")
    elif end == "expire":
        place.age("n")
    elif end == "drain":
        place.store.run(node_orders.drain(place.keys, node="n", by="alice"))
        assert place.beat("n", A, 10, full=True).status is BeatStatus.DRAINED
        place.store.run(node_orders.undrain(place.keys, node="n", by="alice"))
    else:
        stay = park(place.keys, node="n", session=A, replicas=replicas("n", 10), scoring=AVAILABLE)
        assert place.store.run(stay) is LeaveStatus.OK
    session = A if end == "drain" else C
    assert place.join("n", session, 10, fetch=True).full == frozenset()
    place.join("o", "o" * 16, 30)
    history = ring_history(event.change for event in place.events() if event.change)
    assert history.changes[2].kind is ChangeKind.FULL
    assert list(history.full()) == [("n", 3, 4)]
    assert len(history.changes) > 4


# --- leaving ----------------------------------------------------------------------------------


def test_a_departure_takes_the_node_off_and_is_told(place: Place, channel: Listener) -> None:
    place.join("n", A, 10, 20)
    place.join("m", B, 30)
    channel.changes()
    assert place.leave("n", A, 10, 20, reason="stop") is LeaveStatus.OK
    (change,) = channel.changes()
    assert (change.kind, change.nodes, change.points) == (ChangeKind.LEAVE, ("n",), ())
    assert change.reason == "stop"
    assert set(place.zset()) == {b"30:m:id30"}
    assert set(place.look().nodes) == {"m"}


def test_a_departure_takes_off_what_was_given_up_and_remembers_the_rest(place: Place) -> None:
    place.join("n", A, 10, 20, 40, told={"named": True})
    place.join("m", B, 30)
    assert place.leave("n", A, 10, 40, drop=replicas("n", 20)) is LeaveStatus.OK
    assert set(place.zset()) == {b"30:m:id30"}
    assert place.look("n").remembered == (10, 40)


@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("others", [True, False])
def test_a_name_that_a_node_had_before_is_freed_with_its_last_member(
    place: Place, leaves: bool, others: bool
) -> None:
    place.join("n", A, 10, 20)
    left_behind = replicas("n", 99) if others else replicas("n", 10, 20)
    if leaves:
        place.leave("n.1", B, drop=left_behind)
    else:
        place.join("n.1", B, 30, drop=left_behind)
    names = ({"n"} if others else set()) | (set() if leaves else {"n.1"})
    assert set(place.look().nodes) == names == {name.decode() for name in place.placed()}


def test_a_departure_of_nobody_is_no_change(place: Place, channel: Listener) -> None:
    place.join("m", B, 30)
    channel.changes()
    assert place.leave("n", A, 10) is LeaveStatus.ABSENT
    assert channel.payloads() == []


def test_a_session_that_lost_its_name_cannot_take_the_new_holder_off(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10)
    place.join("n", B, 10, take_from=A)
    channel.changes()
    assert place.leave("n", A, 10) is LeaveStatus.SUPERSEDED
    assert channel.payloads() == []
    assert set(place.zset()) == {b"10:n:id10"}


def test_somebody_else_may_take_a_node_off_whatever_its_session(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10)
    channel.changes()
    assert place.leave("n", "", 10, reason="removed", by="operator") is LeaveStatus.OK
    assert [change.reason for change in channel.changes()] == ["removed"]
    assert place.events()[-1].by == "operator"


# --- sweeping ---------------------------------------------------------------------------------


def test_a_heartbeat_sweeps_what_expired_and_tells_whom(place: Place, channel: Listener) -> None:
    place.join("n", A, 10, 20)
    place.join("m", B, 30)
    place.age("n")
    channel.changes()
    reply = place.beat("m", B, 30)
    (change,) = channel.changes()
    assert reply.swept == 2
    assert (change.kind, change.nodes) == (ChangeKind.EXPIRE, ("n",))
    assert (change.was, change.stamp.members) == (3, 1)
    assert change.stamp == reply.stamp
    assert set(place.zset()) == {b"30:m:id30"}
    assert set(place.look().nodes) == {"m"}
    assert place.events()[-1].by == "m"


def test_a_node_that_expired_itself_is_swept_and_comes_back_in_one_heartbeat(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10)
    place.age("n")
    channel.changes()
    reply = place.beat("n", A, 10)
    expired, returned = channel.changes()
    assert (expired.kind, expired.nodes) == (ChangeKind.EXPIRE, ("n",))
    assert (returned.kind, returned.reason) == (ChangeKind.JOIN, "return")
    assert reply.before == returned.prev == expired.stamp.tag


def test_several_nodes_that_expired_are_told_in_one_change(place: Place, channel: Listener) -> None:
    place.join("n", A, 10)
    place.join("m", B, 30)
    place.age("n", "m")
    channel.changes()
    assert place.sweep() == SweepReply(members=2, stray=0)
    (change,) = channel.changes()
    assert set(change.nodes) == {"n", "m"}
    assert place.zset() == {}


def test_a_node_lives_while_members_of_an_earlier_session_of_its_name_expire(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10, told={"named": True})
    for earlier in (b"10:n:old", b"20:n:old"):
        place.zadd(earlier, place.now() + LONG_AGO)
    channel.changes()
    reply = place.beat("n", A, 10, told={"named": True})
    (change,) = channel.changes()
    assert (change.kind, change.nodes, change.stamp.members) == (ChangeKind.EXPIRE, (), 1)
    assert reply.swept == 2
    assert place.look("n").nodes["n"].session == A
    assert place.look("n").remembered == ()


def test_a_sweep_of_nothing_is_no_change(place: Place, channel: Listener) -> None:
    place.join("n", A, 10)
    channel.changes()
    assert place.sweep() == SweepReply(members=0, stray=0)
    assert channel.payloads() == []


def test_a_sweep_forgets_entries_of_nodes_that_are_not_on_the_ring(place: Place) -> None:
    place.join("n", A, 10)
    place.hset("ghost", (B + "{}").encode())
    assert place.sweep() == SweepReply(members=0, stray=1)
    assert set(place.look().nodes) == {"n"}


def test_a_ring_is_forgotten_once_no_node_is_on_it_and_that_is_no_change(
    place: Place, channel: Listener
) -> None:
    command = forget(place.keys, scoring=AVAILABLE, by="ada")
    place.join("n", A, 10)
    assert not place.store.run(command)
    place.age("n")
    assert place.store.run(command)
    assert [event.kind for event in place.events()] == ["join", "expire", "forget"]
    assert (place.events()[-1].by, place.events()[-1].change) == ("ada", None)
    assert [change.kind for change in channel.changes()] == [ChangeKind.JOIN, ChangeKind.EXPIRE]
    place.join("n", A, 10)
    assert place.events()[-1].kind == "join"


# --- reading ----------------------------------------------------------------------------------


def test_a_look_sees_everything_in_order_and_what_is_expired(place: Place) -> None:
    place.join("n", A, 30, 10)
    place.join("m", B, 20)
    place.age("m")
    seen = place.look()
    assert [(r.replica.point, r.replica.node, r.expired) for r in seen.replicas] == [
        (10, "n", False),
        (20, "m", True),
        (30, "n", False),
    ]
    assert seen.ring() == Ring({"n": [10, 30]})
    assert seen.replicas_of("m") == (Replica(20, "m", "id20"),)
    assert seen.stamp.members == 3
    for record in seen.replicas:
        assert record.expires_in == pytest.approx(record.score - seen.now)


def test_a_look_writes_nothing(place: Place, channel: Listener) -> None:
    nothing = place.look("n")
    assert (nothing.stamp.epoch, nothing.stamp.tag, nothing.replicas) == (0, "", ())
    place.join("n", A, 10)
    place.age("n")
    stamp = place.look().stamp
    channel.changes()
    after = place.look("n").stamp
    assert (after.epoch, after.tag, after.members) == (stamp.epoch, stamp.tag, stamp.members)
    assert channel.payloads() == []
    assert set(place.zset()) == {b"10:n:id10"}


def test_a_stream_that_takes_no_entry_any_more_is_begun_anew_with_the_next(real: RealPlace) -> None:
    last = "18446744073709551615-18446744073709551615"
    real.client.xadd(real.keys.events, {"abc": "abc"}, id=last)
    real.join("n", A, 10)
    ((_, fields),) = real.client.xrange(real.keys.events)
    assert fields[b"kind"] == b"join"


@pytest.mark.slow
def test_the_history_keeps_fewer_events_where_these_are_large(real: RealPlace) -> None:
    for number in range(600):
        real.client.xadd(real.keys.events, {"kind": "old", "number": number})
    real.join("few", A, 10)
    assert real.client.xlen(real.keys.events) == 601
    real.join("many", B, *range(4_000_000_000, 4_000_030_000))
    assert 100 <= real.client.xlen(real.keys.events) < 400


# --- points that are remembered ---------------------------------------------------------------


def test_a_named_node_that_left_is_remembered_until_it_is_back(place: Place) -> None:
    place.join("n", A, 20, 10, told={"named": True})
    place.leave("n", A, 20, 10)
    assert place.look("n").remembered == (10, 20)
    place.join("n", B, 10, 20, told={"named": True})
    assert place.look("n").remembered == ()


def test_a_named_node_that_expired_is_remembered(place: Place) -> None:
    place.join("n", A, 20, 10, told={"named": True})
    place.age("n")
    place.sweep()
    assert place.look("n").remembered == (10, 20)


def test_names_that_went_long_ago_are_looked_for_once_an_hour(place: Place) -> None:
    names = [f"name-{number}" for number in range(300)]

    def come_and_go() -> set[bytes]:
        place.remember(b'{"points": [1], "at": "1"}', *names)
        place.join("n", A, 10, told={"named": True})
        place.leave("n", A, 10, reason="removed")
        return place.remembered()

    assert come_and_go() == {b"n", b""}
    assert len(come_and_go()) == len(names) + 2
    for looked in (b"%d" % (place.now() - 3601), b"%d" % (place.now() + 99), b"never"):
        place.remember(looked, "")
        assert come_and_go() == {b"n", b""}


def test_an_epoch_has_twelve_digits_at_most(place: Place) -> None:
    place.set_epoch(b"999999999999 abcdef")
    assert place.look().stamp.epoch == 999_999_999_999
    place.set_epoch(b"1000000000000 abcdef")
    assert place.look().stamp.epoch == 0


def test_a_tag_has_sixteen_characters(place: Place) -> None:
    assert len(place.join("n", A, 10).stamp.tag) == 16


def test_a_named_node_without_replicas_leaves_nothing_to_remember(place: Place) -> None:
    place.join("n", A, 10, told={"named": True})
    place.leave("n", A)
    assert place.remembered() == set()


@pytest.mark.parametrize("told", [{}, {"named": False}, {"named": 1}])
def test_a_node_with_a_made_up_name_is_not_remembered(place: Place, told: dict[str, Any]) -> None:
    place.join("n", A, 10, told=told)
    place.leave("n", A, 10)
    place.join("n", A, 10, told=told)
    place.age("n")
    place.sweep()
    assert place.look("n").remembered == ()


def test_a_node_is_remembered_whatever_number_it_tells(place: Place) -> None:
    place.join("n", A, 10, told={"named": True, "limit": 10**30})
    place.leave("n", A, 10)
    assert place.look("n").remembered == (10,)


NO_POINTS = ["5000000000", "-1", "1.5", "true", "Infinity", "1e300", "1e999", '"1"', "null", "{}"]


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("wrong", NO_POINTS)
def test_a_node_does_not_join_with_what_is_remembered_of_it_and_is_no_point(
    place: Place, wrong: str, follow: bool
) -> None:
    place.remember(b'{"points": [10, %b], "at": "1"}' % wrong.encode(), "n")
    assert place.look("n").remembered == ()
    redis = place.client if isinstance(place, RealPlace) else place.store
    node = RingNode(redis, "accounts", name="n", n_replicas=3, follow=follow)
    node.heartbeat()
    seen = place.look()
    assert (len(seen.replicas_of("n")), seen.garbage) == (3, ())
    assert node.ring.nodes == ("n",)
    node.stop()


def test_only_the_asked_for_name_is_remembered_in_a_look(place: Place) -> None:
    place.join("n", A, 10, told={"named": True})
    place.leave("n", A, 10)
    assert place.look().remembered == ()
    assert place.look("m").remembered == ()


def test_what_somebody_did_without_telling_shows_in_the_next_change(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10)
    place.hset("phantom", b"nobody wrote this")
    place.zadd(b"20:phantom:x", place.now() + TTL)
    place.join("m", B, 30)
    changes = channel.changes()
    assert [(change.was, change.stamp.members) for change in changes] == [(0, 1), (2, 3)]


def test_keys_that_nobody_serves_begin_and_end_as_events(place: Place) -> None:
    place.join("n", A, 10)
    for unserved in (0, 1, 5, 0):
        place.beat("n", A, 10, told={"unserved": unserved})
    assert [event.kind for event in place.events()] == ["join", "unserved", "unserved"]


# --- the history ------------------------------------------------------------------------------


def test_every_change_is_an_event_with_the_words_of_the_message(
    place: Place, channel: Listener
) -> None:
    before = place.now()
    place.join("n", A, 10)
    place.join("m", B, 20)
    place.leave("n", A, 10)
    place.age("m")
    place.sweep()
    events = place.events()
    assert [event.change for event in events] == channel.changes()
    assert [event.kind for event in events] == ["join", "join", "leave", "expire"]
    assert [event.by for event in events] == ["n", "m", "n", "somebody"]
    ids = [tuple(map(int, event.id.split("-"))) for event in events]
    assert ids == sorted(set(ids))
    for event in events:
        assert before - 1 <= event.at <= place.now() + 1


def test_the_history_keeps_about_as_many_events_as_asked(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "EVENTS_KEPT", 20)
    for _ in range(200):
        place.join("n", A, 10)
        place.leave("n", A, 10, reason="removed")
    events = place.events()
    # Redis trims whole nodes of its stream, 100 entries each.
    assert 20 <= len(events) <= 220
    assert events[-1].change is not None
    assert events[-1].change.stamp.epoch == 400


# --- garbage ----------------------------------------------------------------------------------

GARBAGE = [
    b"",
    b"abc",
    b"12:only",
    b"12::id",
    b"12:n:",
    b":n:id",
    b"012:n:id",
    b"4294967296:n:id",
    b"99999999999999999999:n:id",
    b"-1:n:id",
    b"1e3:n:id",
    b" 12:n:id",
    b"12:n\xff:id",
    b"12:\xc3:id",
    b"\xff\xfe:n:id",
    b'"[]{},\\ / \\u0041\n\r\t\0\x1f\x7f',
    b"\xed\xa0\x80 is no letter",
    "\u2028 \U0001f600".encode(),
]


def test_garbage_on_the_ring_is_counted_and_skipped(place: Place) -> None:
    place.join("n", A, 10)
    for member in GARBAGE:
        place.zadd(member, place.now() + TTL)
    members = place.beat("n", A, 10, fetch=True).members
    assert members is not None
    assert sorted(members) == sorted([b"10:n:id10", *GARBAGE])
    assert read_members(members) == ({"n": [10]}, len(GARBAGE))
    seen = place.look()
    assert seen.ring() == Ring({"n": [10]})
    assert {member for member, _ in seen.garbage} == set(GARBAGE)
    assert seen.stamp.members == 1 + len(GARBAGE)


def test_a_ring_without_members_is_fetched_as_one(place: Place) -> None:
    place.join("n", A, 10)
    place.zrem(b"10:n:id10")
    assert place.beat("n", B, fetch=True).members == ()


def test_garbage_that_expires_takes_no_node_with_it(place: Place, channel: Listener) -> None:
    place.join("n", A, 10)
    for member in GARBAGE:
        place.zadd(member, place.now() + LONG_AGO)
    channel.changes()
    reply = place.beat("n", A, 10)
    (change,) = channel.changes()
    assert reply.swept == len(GARBAGE)
    assert (change.kind, change.nodes, change.stamp.members) == (ChangeKind.EXPIRE, (), 1)
    assert place.look().nodes["n"].session == A


def test_garbage_and_a_node_that_expire_together_tell_of_the_node(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10)
    place.join("m", B, 20)
    place.age("n")
    for member in GARBAGE:
        place.zadd(member.replace(b"n", b"m"), place.now() + LONG_AGO)
    channel.changes()
    place.beat("m", B, 20)
    (change,) = channel.changes()
    assert change.nodes == ("n",)


def test_a_sweep_names_the_nodes_of_exactly_those_members_that_are_replicas(
    place: Place, channel: Listener
) -> None:
    rng = random.Random(7)
    whole = ["a", ":", "9", "\0", "\n", "é", "߿", "ࠀ", "€", "퟿", "\ue000", "\U00010000", "😀"]
    # Cut sequences, overlong ones, surrogates, and what is beyond the last character.
    broken = [b"\x80", b"\xc3", b"\xe2\x82", b"\xc0\xaf", b"\xe0\x80\xaf", b"\xed\xa0\x80"]
    broken += [b"\xf0\x80\x80\xaf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff"]
    pieces = [text.encode() for text in whole] * 3 + broken
    points = [b"5", b"4294967295", b"4294967296", b"05", b"0", b"-5", b"", b"9" * 11, b"5x"]
    members = {
        rng.choice(points[:2] * 9 + points)
        + b":"
        + b"".join(rng.choices(pieces, k=rng.randrange(5)))
        + rng.choice([b":x"] * 9 + [b"", b":", b":\xff", b":x:"])
        for _ in range(3000)
    }
    nodes = set()
    for member in members:
        place.zadd(member, place.now() + LONG_AGO)
        try:
            nodes.add(parse_replica(member).node)
        except ReplicaFormatError:
            continue
    assert 300 < len(nodes) < len(members) - 300
    assert place.sweep().members == len(members)
    told = [node for change in channel.changes() for node in change.nodes]
    assert set(told) == nodes


@pytest.mark.parametrize(
    "value",
    [b"", b"abc", b"12", b"12 ", b"12 zz", b"-1 ab", b"\xff", b"12 ab\n", b"9" * 20 + b" abcd"],
)
def test_an_epoch_that_no_script_wrote_begins_a_new_history(
    place: Place, channel: Listener, value: bytes
) -> None:
    place.join("n", A, 10)
    channel.changes()
    place.set_epoch(value)
    assert (place.look().stamp.epoch, place.look().stamp.tag) == (0, "")
    reply = place.beat("n", A, 10)
    (change,) = channel.changes()
    assert (change.prev, change.points, change.stamp) == ("", (10,), reply.stamp)
    assert reply.stamp.epoch == 1
    assert reply.stamp.tag != ""
    assert place.beat("n", A, 10).stamp.tag == reply.stamp.tag


def test_a_wiped_server_gets_the_ring_back_from_the_heartbeats(
    place: Place, channel: Listener
) -> None:
    place.join("n", A, 10, told={"named": True})
    place.join("m", B, 20)
    place.leave("m", B, 20)
    channel.changes()
    place.wipe()
    assert place.look("m").remembered == ()
    reply = place.beat("n", A, 10, fetch=True)
    (change,) = channel.changes()
    assert (change.prev, change.reason, change.stamp.epoch) == ("", "return", 1)
    assert reply.members == (b"10:n:id10",)
    assert [event.kind for event in place.events()] == ["join"]


def test_what_others_say_on_the_channel_is_passed_on(place: Place, channel: Listener) -> None:
    for payload in (b"*", b"\xff\x00", b""):
        place.publish(payload)
    payloads = channel.payloads()
    assert payloads == [b"*", b"\xff\x00", b""]
    for payload in payloads:
        with pytest.raises(MessageFormatError):
            parse_change(payload)


def test_two_rings_do_not_hear_each_other(place: Place, channel: Listener) -> None:
    other = ring_keys("accounts2")
    place.store.run(
        beat(
            other,
            node="n",
            session=A,
            scoring=AVAILABLE,
            replicas=replicas("n", 5),
            told={},
            joining=True,
        )
    )
    assert channel.payloads() == []
    assert place.zset() == {}


# --- names ------------------------------------------------------------------------------------

NAMES = [
    "host:1234",
    "[::1]:8080",
    "a:b:c:d",
    "ünïcødé-節点-😀",
    'quote " back \\ slash / {brace}',
    "%s %d ^ $ ( ) . [ ] * + - ?",
    "n" * 512,
]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_joins_is_taken_over_is_swept_and_leaves(
    place: Place, channel: Listener, name: str
) -> None:
    place.join(name, A, 10, told={"named": True})
    place.join(name, B, 10, take_from=A, told={"named": True})
    assert place.look().ring() == Ring({name: [10]})
    assert place.look().nodes[name].session == B
    place.age(name)
    place.sweep()
    assert place.look(name).remembered == (10,)
    place.join(name, B, 10)
    assert place.leave(name, B, 10) is LeaveStatus.OK
    changes = channel.changes()
    assert [change.reason for change in changes] == ["start", "restart", "expired", "start", "stop"]
    assert {change.nodes for change in changes} == {(name,)}


@pytest.mark.parametrize(
    "place", ["accounts", "{team}:accounts", "konten-ä", "a b:c"], indirect=True
)
def test_any_ring_name_holds_a_ring(place: Place, channel: Listener) -> None:
    place.join("n", A, 10)
    assert place.look().ring() == Ring({"n": [10]})
    assert [change.nodes for change in channel.changes()] == [("n",)]


def test_a_ring_is_in_the_keys_that_the_documentation_names(real: RealPlace) -> None:
    real.join("n", A, 10, told={"named": True})
    real.join("m", B, 20, full=True)
    real.leave("n", A, 10)
    assert set(real.client.keys("*")) == {
        b"accounts",
        b"{accounts}:epoch",
        b"{accounts}:nodes",
        b"{accounts}:events",
        b"{accounts}:left",
        b"{accounts}:full",
        b"{accounts}:full-points",
        b"{accounts}:places",
        b"{accounts}:ended",
    }
    real.join("n", C, 10)
    assert b"{accounts}:points" in real.client.keys("*")


# --- size -------------------------------------------------------------------------------------


def _expired_garbage(place: Place, count: int) -> None:
    expired = place.now() + 2 * LONG_AGO
    for number in range(count):
        place.zadd(b"garbage %d" % number, expired)


def test_of_thousands_that_expired_a_heartbeat_takes_some_and_says_that_there_are_more(
    place: Place, channel: Listener
) -> None:
    for node, session, points in (("m", B, (3,)), ("n", A, (10, 20, 30)), ("o", C, (40,))):
        place.join(node, session, *points)
    _expired_garbage(place, 1998)
    place.age("n")
    place.zadd(b"40:o:id40", place.now() + LONG_AGO / 2)
    channel.changes()
    # What one heartbeat wrote expires together, and goes together.
    first = place.beat("m", B, 3)
    assert (first.swept, first.soonest is not None and first.soonest < 0) == (2001, True)
    second = place.beat("m", B, 3)
    assert (second.swept, second.soonest is not None and second.soonest > 0) == (1, True)
    assert [change.nodes for change in channel.changes()] == [("n",), ("o",)]


def test_a_sweep_by_hand_takes_all_that_expired(place: Place) -> None:
    place.join("m", B, 3)
    _expired_garbage(place, 4100)
    assert place.sweep().members == 4100
    assert place.zset().keys() == {b"3:m:id3"}


@pytest.mark.slow
def test_a_node_of_nine_thousand_replicas_is_one_change_at_a_time(
    place: Place, channel: Listener
) -> None:
    points = [7 * i for i in range(9000)]
    place.join("m", B, 3)
    place.join("n", A, *points)
    members = place.beat("n", A, *points, fetch=True).members
    assert members is not None
    assert len(members) == 9001
    place.join("n", A, 1, drop=replicas("n", *points))
    place.join("n", A, *points, drop=replicas("n", 1))
    place.leave("n", A, *points)
    place.join("n", C, *points)
    place.age("n")
    assert place.beat("m", B, 3).swept == 9000
    changes = channel.changes()
    assert [change.reason for change in changes] == [
        "start",
        "start",
        "resize",
        "resize",
        "stop",
        "start",
        "expired",
    ]
    assert [change.stamp.members for change in changes] == [1, 9001, 2, 9001, 1, 9001, 1]
    assert changes[1].points == tuple(points)


# --- the scores of redis-hashring -------------------------------------------------------------


def test_scores_of_redis_hashring_are_the_time_of_the_heartbeat(place: Place) -> None:
    scoring = Scoring.last_heartbeat(TTL)
    before = place.now()
    reply = place.join("h:1", A, 10, scoring=scoring)
    after = place.now()
    (score,) = place.zset().values()
    assert before - 1e-6 <= score <= after + 1e-6
    assert reply.soonest == pytest.approx(TTL, abs=1e-3)
    (record,) = place.look(scoring=scoring).replicas
    assert TTL / 2 < record.expires_in <= TTL


def test_with_scores_of_redis_hashring_a_node_expires_a_timeout_after_its_heartbeat(
    place: Place,
) -> None:
    scoring = Scoring.last_heartbeat(TTL)
    place.join("h:1", A, 10, scoring=scoring)
    place.zadd(b"20:h:2:x", place.now() - TTL / 2)
    place.zadd(b"30:h:3:x", place.now() - TTL - 5)
    assert [r.expired for r in place.look(scoring=scoring).replicas] == [False, False, True]
    assert place.beat("h:1", A, 10, scoring=scoring).swept == 1
    assert set(place.zset()) == {b"10:h:1:id10", b"20:h:2:x"}


# --- keys of the wrong type -------------------------------------------------------------------


@pytest.mark.parametrize("key", ring_keys("accounts").script_keys(), ids=bytes.decode)
def test_a_key_of_the_wrong_type_is_an_error_and_nothing_is_changed(
    real: RealPlace, key: bytes
) -> None:
    real.join("n", A, 10, told={"named": True})
    real.join("m", B, 20, told={"named": True})
    real.age("m")
    real.client.delete(key)
    if key == real.keys.epoch:
        real.client.lpush(key, "not ours")
    else:
        real.client.set(key, "not ours")
    before = _dump(real)
    rare = (
        park(real.keys, node="n", session=A, scoring=AVAILABLE, replicas=replicas("n", 10)),
        look(real.keys, node="n", whole=9),
        owner(real.keys, 5),
        node_orders.drain(real.keys, node="n", by="ops", force=True),
        node_orders.undrain(real.keys, node="n", by="ops"),
        node_orders.weigh(real.keys, weights={"n": 2.0}, by="ops"),
        forget(real.keys, scoring=AVAILABLE, by="ops"),
    )
    for attempt in (
        lambda: real.beat("n", A, 10, 11),
        lambda: real.join("o", C, 30),
        lambda: real.leave("n", A, 10),
        real.sweep,
        lambda: real.look("m"),
        *(lambda command=command: real.store.run(command) for command in rare),
    ):
        with pytest.raises(WrongKeyType, match="another name"):
            attempt()
    assert _dump(real) == before


def _dump(real: RealPlace) -> dict[bytes, Any]:
    return {key: real.client.dump(key) for key in real.client.keys("*")}


# --- the same answers everywhere --------------------------------------------------------------


def _random_deed(rng: random.Random, place: Place, sessions: dict[str, str]) -> Any:
    node = rng.choice(["a", "b:1", "ç"])
    points = [int.from_bytes(node.encode(), "big") % 50 + i for i in range(rng.choice((1, 2, 3)))]
    session = rng.choice([A, B])
    told = {"named": rng.random() < 0.5, **rng.choice(({}, {"ranges": "x"}))}
    options: dict[str, Any] = {"told": told, "full": rng.random() < 0.3}
    options["digest"] = rng.choice((None, "", ""))
    match rng.randrange(11):
        case 0 | 1:
            seen = rng.choice(["", A, B])
            drop = replicas(node, *range(points[-1] + 1, points[0] + 3))
            return place.join(
                node, session, *points, take_from=seen, drop=drop, fetch=True, **options
            )
        case 2 | 3:
            return place.beat(node, session, *points, fetch=rng.random() < 0.5, **options)
        case 4:
            return place.leave(node, rng.choice(["", session]), *points)
        case 5:
            place.age(node)
        case 6:
            place.zadd(rng.choice(GARBAGE), place.now() + rng.choice([LONG_AGO, TTL]))
        case 7:
            return place.sweep()
        case 8:
            place.set_epoch(rng.choice([b"7 abc", b"junk"]))
        case 9:
            place.unindex(replicas(node, points[0])[0].member)
            place.index_alone(b"%d:x:x" % points[-1], points[-1])
        case 10:
            return place.store.run(owner(place.keys, points[0]))
    return None


def _timeless(answer: Any) -> Any:
    """An answer without what differs from run to run: tags, times."""
    if isinstance(answer, BeatReply):
        members = None if answer.members is None else sorted(answer.members)
        return (
            answer.status,
            answer.stamp.epoch,
            answer.stamp.members,
            answer.swept,
            members,
            answer.full,
            answer.nodes,
            answer.all_full,
            answer.ranges,
            answer.soonest is not None and round(answer.soonest, -2),
        )
    return answer


def _play(seed: int, place: Place) -> list[Any]:
    rng = random.Random(seed)
    listener = Listener(place)
    near = Listener(place, "a", "b:1", "ç")
    told: list[Any] = []
    for _ in range(40):
        answer = _random_deed(rng, place, {})
        seen = place.look("a")
        told.append(
            (
                _timeless(answer),
                [
                    (change.kind, set(change.nodes), change.points, change.session, change.reason)
                    for change in listener.changes()
                ],
                sorted((record.replica, record.expired) for record in seen.replicas),
                sorted(seen.garbage),
                {name: (record.session, record.told) for name, record in seen.nodes.items()},
                seen.remembered,
                seen.stamp.epoch,
                {(node, news.reaches, news.change.kind) for node, news in near.nearby()},
                place.index(),
                seen.unindexed,
                sorted(record.replica for record in seen.unvouched),
            )
        )
    listener.close()
    near.close()
    return told


@pytest.mark.parametrize("seed", some(range(10)))
def test_the_scripts_answer_in_memory_as_on_the_server(real: RealPlace, seed: int) -> None:
    assert _play(seed, real) == _play(seed, MemoryPlace(real.keys))


@pytest.mark.parametrize("seed", some(range(3)))
def test_whoever_follows_the_changes_has_the_ring_that_is_fetched(
    place: Place, channel: Listener, seed: int
) -> None:
    rng = random.Random(seed)
    ring, tag = Ring(), ""
    for _ in range(60):
        name = rng.choice("nmopq")
        points = sorted(rng.sample(range(100), rng.choice((1, 2, 5))))
        match rng.randrange(4):
            case 0:
                held = [r.replica for r in place.look().replicas if r.replica.node == name]
                drop = [replica for replica in held if replica.point not in points]
                seen = place.look().nodes.get(name)
                session = rng.choice([A, B])
                take_from = seen.session if seen else ""
                place.join(name, session, *points, take_from=take_from, drop=drop)
            case 1:
                held = [r.replica.point for r in place.look().replicas if r.replica.node == name]
                if held:
                    place.leave(name, "", *held)
            case 2:
                place.age(name)
                place.sweep()
            case 3:
                place.age(name, rng.choice("nmopq"))
                place.beat("z", C, 1000)
        for change in channel.changes():
            assert change.prev == tag
            ring, tag = change.apply(ring), change.stamp.tag
        assert ring == place.ring()
        assert place.look().stamp.tag == tag


def test_a_subscription_answers_when_it_is_asked_and_loses_no_message(place: Place) -> None:
    with contextlib.closing(place.store.subscribe(place.keys.channel)) as subscription:
        assert subscription.wait(PATIENCE) == Subscribed()
        subscription.ask()
        place.publish(b"news")
        subscription.ask()
        heard = [subscription.wait(PATIENCE) for _ in range(3)]
    assert heard.count(Answered()) == 2
    assert Message(place.keys.channel, b"news") in heard


def test_a_message_is_json_of_version_1(place: Place) -> None:
    listener = Listener(place)
    place.join("n", A, 10)
    (payload,) = listener.payloads()
    listener.close()
    body = json.loads(payload)
    assert body["v"] == 1
    assert set(body) >= {"kind", "nodes", "points", "epoch", "prev", "tag", "at", "members"}


def test_the_end_of_a_subscription_ends_the_wait_for_it_in_another_thread(place: Place) -> None:
    subscription = place.store.subscribe(place.keys.channel)
    assert isinstance(subscription.wait(PATIENCE), Subscribed)
    notices: list[Notice | None] = []
    # Not within the time of this test by itself.
    waiting = threading.Thread(
        target=lambda: notices.append(subscription.wait(3600.0)), daemon=True
    )
    waiting.start()
    subscription.end()
    waiting.join(PATIENCE)
    assert notices == [Unsubscribed()]
    subscription.close()


def test_a_reading_that_knows_the_members_of_the_one_before_is_as_a_fresh_one(
    place: Place,
) -> None:
    parsed: dict[bytes, Replica] = {}
    again = snapshot(place.keys, scoring=AVAILABLE, parsed=parsed)
    place.join("a", A, 10, 20)
    place.join("b", B, 15)
    first = place.store.run(again)
    place.leave("b", B, 15)
    place.join("c", C, 5)
    place.zadd(b"no replica", 1.0)
    second, fresh = place.store.run(again), place.look()
    points = [(r.replica.point, r.replica.node) for r in second.replicas]
    assert points == [(r.replica.point, r.replica.node) for r in fresh.replicas]
    assert second.garbage == fresh.garbage
    assert set(parsed) == {r.replica.member for r in fresh.replicas}
    assert second.replicas[1].replica is first.replicas[0].replica


# --- when the clock of Redis' machine was set back ------------------------------------------------


def test_a_node_that_crashed_expires_a_ttl_after_the_clock_was_set_back(place: Place) -> None:
    place.join("long", A, 10, scoring=Scoring.expiry(5 * TTL), told={"ttl": 5 * TTL})
    place.join("crashed", B, 20, told={"ttl": TTL})
    before = place.now()
    for member, score in place.zset().items():
        if b":long:" not in member:
            place.zadd(member, score + 100 * TTL)
    place.join("other", C, 40)
    scores = {member.split(b":")[1]: score for member, score in place.zset().items()}
    assert before + TTL - 1 <= scores[b"crashed"] <= place.now() + TTL
    # It has the ttl that it tells, which the others need not have.
    assert before + 5 * TTL - 1 <= scores[b"long"] <= before + 5 * TTL


def test_what_does_not_tell_its_ttl_is_left_as_it_is(place: Place) -> None:
    place.join("silent", A, 10)
    ((member, score),) = place.zset().items()
    place.zadd(member, score + 100 * TTL)
    place.join("other", B, 20)
    assert place.zset()[member] == pytest.approx(score + 100 * TTL, abs=1e-3)


def test_what_may_be_as_late_as_it_is_hides_nothing_that_is_too_late(place: Place) -> None:
    place.join("silent", A, 10)
    place.join("crashed", B, 20, told={"ttl": TTL})
    garbage, late = b"no replica", place.now() + 100 * TTL
    place.zadd(b"20:crashed:id20", late)
    place.zadd(b"10:silent:id10", late + TTL)
    place.zadd(garbage, late + 2 * TTL)
    place.join("other", C, 40)
    assert place.zset()[b"20:crashed:id20"] <= place.now() + TTL
    # That is nobody's, and expires like what the others write now.
    assert place.zset()[garbage] <= place.now() + TTL


def test_a_drained_node_that_crashed_is_forgotten_a_ttl_after_the_clock_was_set_back(
    real: RealPlace,
) -> None:
    real.join("other", A, 10)
    real.join("crashed", B, 20, told={"ttl": TTL})
    real.store.run(node_orders.drain(real.keys, node="crashed", by="somebody"))
    real.beat("crashed", B, 20, told={"ttl": TTL})
    real.client.zincrby(real.keys.drained, 100 * TTL, "crashed")
    real.beat("other", A, 10)
    assert real.client.zscore(real.keys.drained, "crashed") <= real.now() + TTL


def test_heartbeats_of_redis_hashring_are_none_of_later_than_now(place: Place) -> None:
    scoring = Scoring.last_heartbeat(TTL)
    place.join("crashed", A, 10, scoring=scoring)
    ((member, score),) = place.zset().items()
    place.zadd(member, score + 3600)
    place.join("other", B, 20, scoring=scoring)
    assert score <= place.zset()[member] <= place.now()
