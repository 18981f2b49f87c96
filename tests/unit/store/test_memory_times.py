"""What scripts do in memory when something ends, on a clock that a test moves."""

from __future__ import annotations

from typing import Any

import pytest

from hashring.core.groups.state import MemberFacts, Terms
from hashring.core.replica import Replica
from hashring.store.group.commands import Joined, Taken, beat, join
from hashring.store.group.key_names import GroupKeys, group_keys
from hashring.store.locks.commands import HeldByOther, acquire, look
from hashring.store.memory_store import MemoryServer
from hashring.store.ring import commands as ring
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
            told={},
            joining=True,
            **more,
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
