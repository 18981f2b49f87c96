"""What scripts do in memory when something ends, on a clock that a test moves."""

from __future__ import annotations

from typing import Any

import pytest

from hashring.core.groups.state import MemberFacts, Terms
from hashring.core.replica import Replica
from hashring.store.group.commands import Joined, Taken, beat, join
from hashring.store.group.key_names import GroupKeys, group_keys
from hashring.store.locks.commands import AcquireAnswer, HeldByOther, HeldOff, acquire, look
from hashring.store.memory_store import MemoryServer
from hashring.store.ring import commands as ring
from hashring.store.ring import node_orders
from hashring.store.ring.key_names import RingKeys, ring_keys
from hashring.testing import ManualClock

TTL = 10.0
A, B = "a" * 16, "b" * 16
TERMS = Terms(4, ttl=TTL)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000_000.0)


@pytest.fixture
def server(clock: ManualClock) -> MemoryServer:
    return MemoryServer(clock)


def member(session: str) -> MemberFacts:
    return MemberFacts("a", session, 0, 0.0)


def heartbeat(
    server: MemoryServer, keys: RingKeys, node: str, session: str, point: int, **more: Any
) -> ring.BeatReply:
    return server.run(
        ring.beat(
            keys,
            node=node,
            session=session,
            scoring=ring.Scoring.expiry(TTL),
            replicas=[Replica(point, node, "1")],
            **{"told": {}, "joining": True, **more},
        )
    )


def test_a_members_lease_has_ended_at_its_end(server: MemoryServer, clock: ManualClock) -> None:
    keys: GroupKeys = group_keys("orders")
    assert isinstance(server.run(join(keys, member(A), TERMS)), Joined)
    clock.advance(TTL - 1e-3)
    assert server.run(join(keys, member(B), TERMS)) == Taken(pytest.approx(1e-3, abs=1e-6))
    clock.advance(1e-3)
    assert server.run(beat(keys, member(A), TTL, "?")) is None
    assert isinstance(server.run(join(keys, member(B), TERMS)), Joined)


def test_a_lock_has_ended_at_its_end(server: MemoryServer, clock: ManualClock) -> None:
    keys: RingKeys = ring_keys("accounts")

    def take(session: str) -> object:
        command = acquire(
            keys, node=session, session=session, ttl=TTL, locked=[b"k"], most=1, awaited=0
        )
        [answer] = server.run(command)
        return answer

    assert isinstance(take(A), int)
    clock.advance(TTL - 1)
    assert take(B) == HeldByOther(A, 1.0)
    assert server.run(look(keys, locked=[b"k"]))[b"k"].expires_in == 1.0
    clock.advance(1)
    assert server.run(look(keys, locked=[b"k"])) == {}
    assert isinstance(take(B), int)


def test_a_node_is_on_the_ring_up_to_its_expiry(server: MemoryServer, clock: ManualClock) -> None:
    keys = ring_keys("accounts")

    heartbeat(server, keys, "a", A, 7)
    clock.advance(TTL)
    assert heartbeat(server, keys, "b", B, 8).swept == 0
    clock.advance(1e-3)
    assert heartbeat(server, keys, "b", B, 8).swept == 1


def test_a_node_owns_up_to_its_expiry(server: MemoryServer, clock: ManualClock) -> None:
    keys = ring_keys("accounts")
    heartbeat(server, keys, "a", A, 7)
    clock.advance(TTL)
    assert server.run(ring.owner(keys, 9)) == "a"
    clock.advance(1e-3)
    assert server.run(ring.owner(keys, 9)) is None


def test_a_heartbeat_says_when_the_next_node_expires(
    server: MemoryServer, clock: ManualClock
) -> None:
    keys = ring_keys("accounts")
    heartbeat(server, keys, "a", A, 7)
    clock.advance(4)
    assert heartbeat(server, keys, "b", B, 8).soonest == TTL - 4


def test_a_score_is_cut_that_is_more_than_a_millisecond_too_high(server: MemoryServer) -> None:
    keys = ring_keys("accounts")
    heartbeat(server, keys, "a", A, 7, told={"ttl": TTL})
    now = 1_000_000.0
    for high, left in ((0.001, 0.001), (0.002, 0.0), (3600.0, 0.0)):
        server.zadd(keys.ring, b"7:a:1", now + TTL + high)
        heartbeat(server, keys, "b", B, 8)
        assert server.scores(keys.ring)[b"7:a:1"] - now - TTL == pytest.approx(left, abs=1e-6)


def test_a_drain_ends_when_its_time_is_up(server: MemoryServer, clock: ManualClock) -> None:
    keys = ring_keys("accounts")
    heartbeat(server, keys, "a", A, 7)
    server.run(node_orders.drain(keys, node="a", by="ops", seconds=5.0, force=True))
    clock.advance(5 - 1e-3)
    assert heartbeat(server, keys, "a", A, 7).status is ring.BeatStatus.DRAINED
    clock.advance(1e-3)
    assert heartbeat(server, keys, "a", A, 7).status is ring.BeatStatus.OK


def test_a_session_has_ended_for_an_hour(server: MemoryServer, clock: ManualClock) -> None:
    keys = ring_keys("accounts")
    history = heartbeat(server, keys, "a", A, 7, locking=True).history
    for session in (A, B):
        gone = ring.leave(keys, node="a", session=session, replicas=[], reason="stop")
        server.run(gone)
        clock.advance(1)
    clock.advance(3600 - 2 - 1e-3)
    assert heartbeat(server, keys, "a", A, 7).status is ring.BeatStatus.SUPERSEDED
    assert taken(server, keys, A, history) is None
    clock.advance(1e-3)
    assert isinstance(taken(server, keys, A, history), int)
    assert heartbeat(server, keys, "a", A, 7).status is ring.BeatStatus.OK


@pytest.mark.parametrize(("names", "looks"), [(256, False), (257, True)])
def test_above_256_names_those_are_forgotten_that_went_more_than_a_day_ago(
    server: MemoryServer, clock: ManualClock, names: int, looks: bool
) -> None:
    keys = ring_keys("accounts")
    come_and_go(server, keys, "a day and a second ago")
    clock.advance(1)
    come_and_go(server, keys, "a day ago")
    for number in range(names - 4):
        come_and_go(server, keys, f"name {number}")
    clock.advance(43200)
    come_and_go(server, keys, "half a day ago")
    clock.advance(43200)
    come_and_go(server, keys, "last")
    assert (b"a day and a second ago" in remembered(server, keys)) is not looks
    assert b"a day ago" in remembered(server, keys)


def test_names_are_looked_at_once_an_hour(server: MemoryServer, clock: ManualClock) -> None:
    keys = ring_keys("accounts")
    for number in range(257):
        come_and_go(server, keys, f"name {number}")
    clock.advance(86400 + 1 - 3600)
    come_and_go(server, keys, "looks")
    clock.advance(3600 - 1)
    come_and_go(server, keys, "looks not")
    assert len(remembered(server, keys) - {b""}) == 259
    clock.advance(1)
    come_and_go(server, keys, "looks again")
    assert remembered(server, keys) == {b"", b"looks", b"looks not", b"looks again"}


def come_and_go(server: MemoryServer, keys: RingKeys, node: str) -> None:
    heartbeat(server, keys, node, A, 7, told={"named": True})
    replicas = [Replica(7, node, "1")]
    server.run(ring.leave(keys, node=node, session=A, replicas=replicas, reason="removed"))


def remembered(server: MemoryServer, keys: RingKeys) -> set[bytes]:
    return set(server.hgetall(keys.ring, "left"))


def test_an_order_about_a_crashed_process_stands_for_a_day(
    server: MemoryServer, clock: ManualClock
) -> None:
    keys = ring_keys("accounts")
    heartbeat(server, keys, "h:1", A, 7)
    server.run(node_orders.weigh(keys, weights={"h:1": 2.0}, by="ops"))
    clock.advance(TTL + 1)
    server.run(ring.sweep(keys, scoring=ring.Scoring.expiry(TTL), by="ops"))
    again = node_orders.weigh(keys, weights={"h:1": 2.0}, by="ops")
    clock.advance(86400 - TTL - 1)
    assert server.run(again).unknown is None
    clock.advance(1)
    assert server.run(again).unknown == "h:1"


def taken(server: MemoryServer, keys: RingKeys, session: str, history: str = "") -> AcquireAnswer:
    command = acquire(
        keys, node="a", session=session, ttl=TTL, locked=[b"k"], most=1, awaited=0, history=history
    )
    [answer] = server.run(command)
    return answer


def test_a_lock_may_be_taken_from_the_millisecond_on_at_which_a_wait_ends(
    server: MemoryServer, clock: ManualClock
) -> None:
    keys = ring_keys("accounts")
    locking: Any = {"locking": True, "lock_ttl": 8.0}
    before = heartbeat(server, keys, "a", A, 7, **locking).history
    clock.advance(1)
    server.wipe()
    now = heartbeat(server, keys, "a", A, 7, history=before, **locking).history
    assert taken(server, keys, A, now) == HeldOff(8.0)
    clock.advance(8 - 1e-3)
    assert taken(server, keys, A, now) == HeldOff(0.001)
    clock.advance(0.5e-3)
    assert taken(server, keys, A, now) == HeldOff(0.001)
    clock.advance(0.5e-3)
    assert isinstance(taken(server, keys, A, now), int)


def test_no_lock_is_taken_for_as_long_as_a_lost_one_may_be_believed_in(
    server: MemoryServer, clock: ManualClock
) -> None:
    keys = ring_keys("accounts")
    before = heartbeat(server, keys, "a", A, 7).history
    clock.advance(1)
    server.wipe()
    reply = heartbeat(server, keys, "a", A, 7, history=before, lock_ttl=0.5)
    assert reply.held_off == 0.5
    clock.advance(0.5)
    assert heartbeat(server, keys, "a", A, 7, history=before, lock_ttl=0.5).held_off == 0
