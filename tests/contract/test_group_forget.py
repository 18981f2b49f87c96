"""Forgetting a partition group that was stopped for good: on each real server, and in memory."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from redis import Redis

from hashring.core.assignors import BalancedAssignor
from hashring.core.groups import group_orders, next_state
from hashring.core.groups.group_status import status
from hashring.core.groups.state import EventKind, GroupState
from hashring.errors import ConfigError, GroupNotEmpty
from hashring.protocol.flow import run_flow
from hashring.protocol.group.group_flows import forget
from hashring.store.command import Command
from hashring.store.embedded_server import RedisServer
from hashring.store.group.commands import Committed, Conflict, Joined, beat, commit, join
from hashring.store.group.commands import forget as forget_at_once
from hashring.store.group.decision_history import read_decision
from hashring.store.group.key_names import GroupKeys
from hashring.store.group.reading import Reading, read
from hashring.store.interface import Message, Store, Subscribed
from hashring.store.redis_store import RedisStore
from tests.conftest import PATIENCE, servers
from tests.contract.test_group_store import (
    TERMS,
    A,
    B,
    beaten,
    expired,
    facts,
    keys,
    own_redis,
    own_store,
    step,
)

__all__ = ["keys", "own_redis", "own_store"]


def crashed(store: Store, keys: GroupKeys, *names: str) -> None:
    """Members that had all partitions, and whose leases have ended."""
    for name in names:
        store.run(join(keys, facts(name), TERMS))
    step(store, keys)
    for name in names:
        store.run(beat(keys, facts(name), 1e-6))


def forgotten(store: Store, keys: GroupKeys, by: str = "ada") -> GroupState:
    return run_flow(store.run, forget("orders", keys, by))


def prepared(store: Store, keys: GroupKeys) -> Command[bool]:
    """What is about to be sent to forget the group as it is now."""
    reading = store.run(read(keys))
    state = reading.standing()
    assert state is not None
    return forget_at_once(keys, reading, group_orders.forget(state, reading.facts), "ada")


def standing(store: Store, keys: GroupKeys) -> tuple[GroupState, Reading]:
    reading = store.run(read(keys))
    state = reading.standing()
    assert state is not None
    return state, reading


def test_what_expired_members_left_is_gone_and_nobody_holds_anything(
    store: Store, keys: GroupKeys
) -> None:
    crashed(store, keys, "a", "b")
    decided = forgotten(store, keys)
    state, reading = standing(store, keys)
    assert state == replace(decided, committed=state.committed)
    found = status(state, reading.facts)
    assert (found.members, found.expired, found.unowned) == ((), (), (0, 1, 2, 3))


def test_a_group_with_a_live_member_is_left_as_it_is(store: Store, keys: GroupKeys) -> None:
    crashed(store, keys, "a", "b")
    store.run(join(keys, facts("c", B), TERMS))
    before = store.run(read(keys))
    with pytest.raises(GroupNotEmpty, match="group 'orders' has 1 live member: 'c'") as raised:
        forgotten(store, keys)
    assert (raised.value.group, raised.value.members) == ("orders", ("c",))
    after = store.run(read(keys))
    assert (after.tag, after.facts.members) == (before.tag, before.facts.members)


def test_a_member_whose_report_cannot_be_read_lives_while_its_lease_stands(
    store: Store, keys: GroupKeys
) -> None:
    joins = join(keys, facts("a"), TERMS)
    store.run(replace(joins, arguments=(*joins.arguments[:3], "no report", *joins.arguments[4:])))
    with pytest.raises(GroupNotEmpty, match="'a'"):
        forgotten(store, keys)


def test_a_report_that_cannot_be_read_goes_with_its_lease(store: Store, keys: GroupKeys) -> None:
    crashed(store, keys, "a")
    renewal = beat(keys, facts("b", B), 1e-6)
    store.run(join(keys, facts("b", B), TERMS))
    store.run(
        replace(renewal, arguments=(*renewal.arguments[:3], "no report", *renewal.arguments[4:]))
    )
    assert store.run(read(keys)).garbage == ("b",)
    forgotten(store, keys)
    reading = store.run(read(keys))
    assert (reading.garbage, reading.facts.unreadable) == ((), ())


def test_a_group_that_never_was_is_an_error(store: Store, keys: GroupKeys) -> None:
    with pytest.raises(ConfigError, match="there is no such group"):
        forgotten(store, keys)
    assert store.run(read(keys)).standing() is None


def test_a_group_that_has_decided_nothing_yet_can_be_forgotten(
    store: Store, keys: GroupKeys
) -> None:
    expired(store, keys, facts("a"))
    assert forgotten(store, keys).generation == 1
    state, reading = standing(store, keys)
    assert (state.generation, state.terms, reading.facts.members) == (1, TERMS, ())


def test_tokens_go_on_from_where_they_were(store: Store, keys: GroupKeys) -> None:
    crashed(store, keys, "a")
    before, _ = standing(store, keys)
    after = forgotten(store, keys)
    assert (after.tokens, after.token) == (before.tokens, before.token)
    store.run(join(keys, facts("b", B), TERMS))
    step(store, keys)
    again, _ = standing(store, keys)
    assert {again.holder(partition) for partition in again.existing} == {"b"}
    assert min(again.tokens) > before.token


def test_a_member_that_was_only_paused_joins_anew_and_the_group_is_back(
    store: Store, keys: GroupKeys
) -> None:
    crashed(store, keys, "a")
    forgotten(store, keys)
    assert store.run(beat(keys, facts("a"), TERMS.ttl)) is None
    assert isinstance(store.run(join(keys, facts("a", B), TERMS, A)), Joined)
    assert isinstance(step(store, keys), Committed)
    view = beaten(store, keys, facts("a", B)).view
    assert view is not None
    assert sorted(view.held) == [0, 1, 2, 3]


def test_a_decision_that_was_under_way_brings_nobody_back(store: Store, keys: GroupKeys) -> None:
    crashed(store, keys, "a")
    state, reading = standing(store, keys)
    store.run(join(keys, facts("b", B), TERMS))
    with_b = store.run(read(keys))
    outcome = next_state.step(state, with_b.facts, BalancedAssignor())
    store.run(beat(keys, facts("b", B), 1e-6))
    forgotten(store, keys)
    assert store.run(commit(keys, with_b, outcome, "b")) == Conflict(left=False)
    after, reading = standing(store, keys)
    assert (after.roster, reading.facts.members) == ({}, ())
    # No part of the decision is left for either.
    for name, session in (("a", A), ("b", B)):
        store.run(join(keys, facts(name, session), TERMS))
        view = beaten(store, keys, facts(name, session)).view
        assert view is not None
        assert not view.held


def test_a_member_that_joins_before_a_group_is_forgotten_is_no_part_of_it(
    store: Store, keys: GroupKeys
) -> None:
    crashed(store, keys, "a")
    about_to = prepared(store, keys)
    store.run(join(keys, facts("b", B), TERMS))
    assert not store.run(about_to)
    assert {member.name for member in store.run(read(keys)).facts.members} == {"a", "b"}


def test_a_decision_before_a_group_is_forgotten_is_not_undone(
    store: Store, keys: GroupKeys
) -> None:
    crashed(store, keys, "a")
    about_to = prepared(store, keys)
    step(store, keys)
    before = store.run(read(keys))
    assert not store.run(about_to)
    assert store.run(read(keys)).state == before.state
    assert forgotten(store, keys).generation == before.state.generation + 1  # type: ignore[union-attr]


def test_no_step_is_due_and_a_member_that_joins_takes_the_next(
    store: Store, keys: GroupKeys
) -> None:
    crashed(store, keys, "a")
    # Its turn to take a step stands, though it is gone.
    store.run(join(keys, facts("c"), TERMS))
    store.run(beat(keys, facts("c"), 1e-6))
    forgotten(store, keys)
    joined = store.run(join(keys, facts("b", B), TERMS))
    assert isinstance(joined, Joined)
    assert joined.due


def test_those_who_watch_are_sent_the_decision(store: Store, keys: GroupKeys) -> None:
    crashed(store, keys, "a")
    with closing(store.subscribe(keys.channel)) as subscription:
        assert isinstance(subscription.wait(PATIENCE), Subscribed)
        forgotten(store, keys)
        told = subscription.wait(PATIENCE)
    assert isinstance(told, Message)
    assert told.payload.decode() == store.run(read(keys)).tag


def test_what_is_known_of_the_state_before_is_brought_up_to_date(
    store: Store, keys: GroupKeys
) -> None:
    crashed(store, keys, "a")
    before = store.run(read(keys))
    forgotten(store, keys)
    after = store.run(read(keys))
    assert store.run(read(keys, before.tag, before.state)).state == after.state


def test_the_history_names_the_members_and_who_forgot_the_group(
    keys: GroupKeys, own_redis: Redis, own_store: RedisStore
) -> None:
    crashed(own_store, keys, "a", "b")
    state = forgotten(own_store, keys)
    found = read_decision(own_redis.xrevrange(keys.control.decode())[0])
    assert (found.generation, found.phase, found.by) == (state.generation, "Ready", "ada")
    assert [(event.kind, event.member) for event in found.events] == [
        (EventKind.EXPIRED, "a"),
        (EventKind.EXPIRED, "b"),
        (EventKind.FORGOTTEN, None),
    ]


def test_nothing_is_left_beside_the_state_and_the_history(
    keys: GroupKeys, own_redis: Redis, own_store: RedisStore
) -> None:
    crashed(own_store, keys, "a", "b")
    own_redis.hset(keys.members.decode(), "x", "nonsense")
    own_redis.hset(keys.views.decode(), "y", "nonsense")
    forgotten(own_store, keys)
    assert sorted(own_redis.keys()) == sorted([keys.state, keys.control])


@pytest.mark.parametrize("program", servers().values(), ids=servers().keys())
def test_a_server_that_is_full_forgets_a_group(keys: GroupKeys, program: Path) -> None:
    with (
        RedisServer(program) as server,
        Redis(unix_socket_path=str(server.socket)) as client,
        closing(RedisStore(client, PATIENCE)) as found,
    ):
        crashed(found, keys, "a")
        client.config_set("maxmemory", 1)
        assert forgotten(found, keys).roster == {}


def test_who_joins_after_it_takes_the_step_that_somebody_was_at(
    store: Store, keys: GroupKeys
) -> None:
    for name in "ab":
        store.run(join(keys, facts(name), TERMS))
    step(store, keys, "a", goes_on=True)
    for name in "ab":
        store.run(beat(keys, facts(name), 1e-6))
    forgotten(store, keys)
    joined = store.run(join(keys, facts("c", B), TERMS))
    assert isinstance(joined, Joined)
    assert joined.due
