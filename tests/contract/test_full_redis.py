"""A Redis that is full: what keeps or frees what stands goes on; what is new is refused whole.

Nodes go on whatever their heartbeats have to put right besides, and so do locks, groups and both
challenges.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from hashring.core.assignors import BalancedAssignor
from hashring.core.groups import member_orders, next_state
from hashring.core.groups.lease_challenge import LeaseTable, PartitionLease
from hashring.core.groups.state import GroupState, MemberFacts, Terms
from hashring.errors import OutOfMemory, StaleToken
from hashring.fencing import RedisFence
from hashring.protocol.flow import run_flow
from hashring.protocol.group import group_flows
from hashring.store.faithful_challenge import commands as faithful
from hashring.store.group import commands as group
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import Reading, read
from hashring.store.lease_challenge.commands import (
    begin_table,
    challenge_keys,
    read_table,
    write_table,
)
from hashring.store.locks.commands import Renewed, take_away
from hashring.store.ring import node_orders
from hashring.store.ring.commands import BeatStatus, forget
from hashring.store.ring.node_orders import OrderStatus
from tests.contract.places import AVAILABLE, TTL, RealPlace
from tests.contract.test_locks import KEYS, let_go, lost, put_back, seen, take, token
from tests.contract.test_stay import stop_to_stay

A, B = "a" * 16, "b" * 16
TOLD: Any = {"told": {"named": True, "ttl": TTL}}
ORDERS = {
    "drain": {"by": "alice", "since": "5", "ends": "6"},
    "weight": {"by": "alice", "since": "5", "weight": "2"},
}
"""Two orders about a node; the time of the first is up."""


@contextmanager
def full(place: RealPlace) -> Iterator[None]:
    """Redis refuses whatever may need memory."""
    place.client.config_set("maxmemory", 1)
    try:
        yield
    finally:
        place.client.config_set("maxmemory", 0)


def set_back(place: RealPlace) -> None:
    """Make all scores those from before the clock was set back."""
    for member, score in place.zset().items():
        place.zadd(member, score + 100 * TTL)


def test_a_node_renews_itself_after_the_clock_was_set_back(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    set_back(real)
    with full(real):
        assert real.beat("n", A, 10, **TOLD).status is BeatStatus.OK
    assert real.zset()[b"10:n:id10"] <= real.now() + TTL


def test_a_drained_node_renews_itself_after_the_clock_was_set_back(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    real.store.run(node_orders.drain(real.keys, node="n", by="alice", force=True))
    real.beat("n", A, 10, **TOLD)
    real.client.zincrby(real.keys.drained, 100 * TTL, "n")
    with full(real):
        assert real.beat("n", A, 10, **TOLD).status is BeatStatus.DRAINED
    assert real.client.zscore(real.keys.drained, "n") <= real.now() + TTL


def test_a_sweep_cuts_what_the_clock_left_too_high(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    set_back(real)
    with full(real):
        real.sweep()
    assert real.zset()[b"10:n:id10"] <= real.now() + TTL


def test_a_node_renews_itself_beside_what_is_no_replica(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    real.zadd(b"no replica", real.now() + TTL)
    with full(real):
        assert real.beat("n", A, 10, **TOLD).status is BeatStatus.OK
    assert real.index()[b"no replica"] == (-1, False)


def test_a_node_is_back_when_its_drain_has_ended_though_its_weight_is_ordered(
    real: RealPlace,
) -> None:
    real.join("n", A, 10, **TOLD)
    real.order("n", json.dumps(ORDERS).encode())
    with full(real):
        assert real.beat("n", A, 10, **TOLD).status is BeatStatus.OK
    found = real.look()
    assert (list(found.drains), list(found.weights)) == ([], ["n"])


def test_a_drain_is_lifted_though_a_weight_is_ordered(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    real.order("n", json.dumps(ORDERS).encode())
    with full(real):
        status = real.store.run(node_orders.undrain(real.keys, node="n", by="alice"))
    assert status is OrderStatus.OK
    assert list(real.look().weights) == ["n"]


@pytest.mark.parametrize("follow", [False, True])
def test_a_node_that_stopped_to_come_back_is_back(real: RealPlace, follow: bool) -> None:
    real.join("n", A, 10, **TOLD)
    stop_to_stay(real, "n", A, 10)
    with full(real):
        reply = real.join("n", B, 10, **TOLD) if follow else real.join("n", B, back=True, **TOLD)
    assert reply.status is BeatStatus.OK
    assert real.look().nodes["n"].session == B


def test_no_node_joins(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    with full(real), pytest.raises(OutOfMemory):
        real.join("m", B, 20, **TOLD)
    assert real.ring().nodes == ("n",)


@pytest.mark.parametrize("goes", ["leave", "crash"])
def test_a_node_takes_over_from_one_that_goes(real: RealPlace, goes: str) -> None:
    real.join("n", A, 10, **TOLD)
    real.join("m", B, 20, **TOLD)
    if goes == "crash":
        real.zadd(b"20:m:id20", real.now() - TTL)
    with full(real):
        if goes == "leave":
            real.leave("m", B, 20)
        assert real.beat("n", A, 10, **TOLD).status is BeatStatus.OK
    assert real.ring().nodes == ("n",)


def test_a_ring_is_forgotten(real: RealPlace) -> None:
    real.join("n", A, 10, **TOLD)
    real.leave("n", A, 10)
    with full(real):
        assert real.store.run(forget(real.keys, scoring=AVAILABLE, by="alice"))
    assert [event.kind for event in real.events()][-1] == "forget"


# --- locks ----------------------------------------------------------------------------------------


def test_locks_that_redis_lost_are_put_back_and_those_after_them_renewed(real: RealPlace) -> None:
    _, tokens, history = lost(real)
    first, second = zip(KEYS, tokens, strict=False)
    put_back(real, A, history, second, numbers=[0])
    real.client.pexpire(real.keys.lock(second[0]), 100_000)
    with full(real):
        assert put_back(real, A, history, first, second, numbers=[0]) == Renewed((), {})
    found = seen(real, *KEYS[:2])
    assert {key: lock.token for key, lock in found.items()} == dict([first, second])
    assert all(lock.expires_in > TTL / 2 for lock in found.values())


def test_locks_are_let_go_of_and_taken_away(real: RealPlace) -> None:
    held, other = token(real, A, b"held"), token(real, A, b"other")
    with full(real):
        assert let_go(real, A, (b"held", held)) == 1
        assert real.store.run(take_away(real.keys, key=b"other", by="alice", token=other))
    assert seen(real, b"held", b"other") == {}


def test_no_lock_is_taken(real: RealPlace) -> None:
    with full(real), pytest.raises(OutOfMemory):
        take(real, A, b"k", b"l")
    assert real.client.keys() == []


# --- fenced writes --------------------------------------------------------------------------------


@pytest.mark.parametrize("forget_after", [None, 100])
def test_a_fenced_write_that_frees_memory_goes_on(
    real: RealPlace, forget_after: int | None
) -> None:
    fence = RedisFence(real.client, forget_after=forget_after)
    fence.write("{r}", 5, ["SET", "{r}:x", "1"], ["SET", "{r}:y", "1"])
    with full(real):
        assert fence.write("{r}", 6, ["GET", "{r}:x"], ["DEL", "{r}:x"], ["GET", "{r}:x"]) == [
            b"1",
            1,
            None,
        ]
        with pytest.raises(StaleToken):
            fence.write("{r}", 5, ["DEL", "{r}:y"])
    assert real.client.get("{r}:fence") == b"6"
    assert (real.client.ttl("{r}:fence") > 0) is (forget_after is not None)


@pytest.mark.parametrize(
    "commands",
    [(["SET", "{r}:x", "2"],), (["GET", "{r}:x"], ["SET", "{r}:x", "2"]), (["GET", "{r}:x"],), ()],
    ids=["a write", "a write after a look", "a look", "nothing"],
)
def test_a_fenced_write_that_needs_memory_is_refused_whole(
    real: RealPlace, commands: Sequence[Sequence[str]]
) -> None:
    fence = RedisFence(real.client)
    fence.write("{r}", 5, ["SET", "{r}:x", "1"])
    with full(real), pytest.raises(OutOfMemory) as refused:
        fence.write("{r}", 6, *commands)
    assert str(refused.value) == (
        "fenced write to '{r}': OOM command not allowed when used memory > 'maxmemory'; "
        "raise maxmemory, or free memory"
    )
    assert real.client.mget("{r}:fence", "{r}:x") == [b"5", b"1"]


# --- groups ---------------------------------------------------------------------------------------

GROUP = group_keys("orders")
GROUP_TERMS = Terms(4, ttl=1000.0, rebalance_delay=0.0)


def facts(name: str, session: str = A, **more: Any) -> MemberFacts:
    return MemberFacts(name, session, 0, 0.0, **more)


def group_state(place: RealPlace) -> tuple[GroupState, Reading]:
    reading = place.store.run(read(GROUP))
    state = reading.standing()
    assert state is not None
    return state, reading


def step(place: RealPlace) -> GroupState:
    state, reading = group_state(place)
    outcome = next_state.step(state, reading.facts, BalancedAssignor())
    done = place.store.run(group.commit(GROUP, reading, outcome, "a", goes_on=True))
    assert isinstance(done, group.Committed)
    return done.state


def members(place: RealPlace, *names: str) -> None:
    for name in names:
        place.store.run(group.join(GROUP, facts(name), GROUP_TERMS))
    step(place)


def beat(place: RealPlace, member: MemberFacts, ttl: float = 1000.0) -> group.Beat | None:
    return place.store.run(group.beat(GROUP, member, ttl))


def test_a_group_takes_a_step_that_decides_nothing(real: RealPlace) -> None:
    members(real, "a")
    with full(real):
        beat(real, facts("a", seen=1, stalled=True))
        beat(real, facts("a", seen=1))
        before = group_state(real)[0]
        assert step(real).generation == before.generation


def test_a_group_gives_away_what_a_member_had_whose_lease_ended(real: RealPlace) -> None:
    members(real, "a", "b")
    with full(real):
        beat(real, facts("b"), 1e-6)
        state = step(real)
    assert {state.holder(partition) for partition in state.existing} == {"a"}
    assert real.client.hkeys(GROUP.members) == [b"a"]


def test_a_group_gives_away_what_a_member_had_that_left(real: RealPlace) -> None:
    members(real, "a", "b")
    with full(real):
        assert real.store.run(group.leave(GROUP, "b", A)) is not None
        state = step(real)
    assert {state.holder(partition) for partition in state.existing} == {"a"}


def test_a_handoff_of_a_group_comes_to_its_end(real: RealPlace) -> None:
    members(real, "a")
    real.store.run(group.join(GROUP, facts("b"), GROUP_TERMS))
    handed = step(real).handoffs
    assert handed
    with full(real):
        state = group_state(real)[0]
        released = {partition: state.tokens[partition] for partition in handed}
        beat(real, facts("a", seen=state.generation, released=released))
        state = step(real)
    assert {state.holder(partition) for partition in handed} == {"b"}


def test_the_order_to_drain_a_member_is_lifted(real: RealPlace) -> None:
    members(real, "a", "b")
    change = group_flows.change
    run_flow(
        real.store.run,
        change("orders", GROUP, "alice", lambda s, now: member_orders.drain(s, "b", now, "alice")),
    )
    with full(real):
        run_flow(
            real.store.run,
            change(
                "orders", GROUP, "alice", lambda s, now: member_orders.undrain(s, "b", now, "alice")
            ),
        )
    assert group_state(real)[0].orders == {}


@pytest.mark.parametrize(
    "session", [A, B], ids=["its answer was lost", "Redis lost decisions that it knows"]
)
def test_a_member_whose_lease_stands_joins_again(real: RealPlace, session: str) -> None:
    members(real, "a")
    with full(real):
        joined = real.store.run(group.join(GROUP, facts("a", session), GROUP_TERMS, A))
    assert isinstance(joined, group.Joined)
    assert real.store.run(read(GROUP)).facts.members[0].session == session


@pytest.mark.parametrize("lost", ["the last writes", "everything"])
def test_a_member_that_was_there_is_back_after_a_loss(real: RealPlace, lost: str) -> None:
    members(real, "a")
    claims = {0: group_state(real)[0].tokens[0]}
    real.client.hset(GROUP.state, "server", "another run")
    with full(real):
        if lost == "everything":
            real.client.flushall()
        else:
            # Another server may lack them, so the group asks its members what they hold.
            step(real)
        assert beat(real, facts("a", seen=1)) is None
        joined = real.store.run(group.join(GROUP, facts("a", B, claims=claims), GROUP_TERMS, A))
        assert isinstance(joined, group.Joined)
        assert step(real).holder(0) == "a"


@pytest.mark.parametrize("others", [True, False])
def test_nobody_joins_a_group(real: RealPlace, others: bool) -> None:
    if others:
        members(real, "a")
    before = real.client.hgetall(GROUP.state)
    with full(real), pytest.raises(OutOfMemory):
        real.store.run(group.join(GROUP, facts("b"), GROUP_TERMS))
    assert real.client.hgetall(GROUP.state) == before
    assert real.client.hkeys(GROUP.members) == [b"a"] * others


# --- challenges -----------------------------------------------------------------------------------


def test_the_table_of_a_lease_challenge_is_begun_once_more_after_a_restart(
    real: RealPlace,
) -> None:
    keys = challenge_keys("work")
    held = LeaseTable(2, {0: PartitionLease("a", 3, 7.5, 1.25)}, {"a": 9.0}, token=3)
    assert real.store.run(write_table(keys, real.store.run(read_table(keys)), held, ()))
    real.client.hset(keys.table, "server", "another run")
    with full(real):
        assert real.store.run(begin_table(keys))
        assert real.store.run(write_table(keys, real.store.run(read_table(keys)), held, ()))


def test_the_table_of_a_lease_challenge_is_begun_after_a_loss(real: RealPlace) -> None:
    keys = challenge_keys("work")
    with full(real):
        assert real.store.run(begin_table(keys))
        assert real.store.run(
            write_table(keys, real.store.run(read_table(keys)), LeaseTable(2), ())
        )


def test_a_faithful_challenge_goes_on(real: RealPlace) -> None:
    keys = faithful.faithful_keys("work")
    with full(real):
        assert real.store.run(faithful.race(keys, 1, "a")) == (True, "")
        assert real.store.run(faithful.begin(keys, 1, "a"))
        assert real.store.run(faithful.open_again(keys, 1, "a"))
        assert real.store.run(faithful.race(keys, 1, "a")) == (True, "a")
        real.store.run(faithful.signal(keys, 1, clear=False))
        real.store.run(faithful.end(keys, 1, "a"))
        real.store.run(faithful.signal(keys, 1, clear=True))
        assert real.store.run(faithful.look(keys)) == ({}, {})
