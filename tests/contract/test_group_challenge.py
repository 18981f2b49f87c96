"""The lease challenge and the faithful one on a real server."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring import async_lease_challenge, lease_challenge
from hashring.core.groups.faithful_challenge import FaithfulChallengeSpans
from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.errors import ConfigError, GroupMismatch
from hashring.groups.faithful_challenge import async_faithful_challenge, faithful_challenge
from hashring.groups.sync_member import SyncMember
from hashring.store.embedded_server import RedisServer
from hashring.testing import MemoryStore
from tests.conftest import PATIENCE, eventually, shared

RULES = LeaseChallengeRules(ttl=30.0, interval=0.1, max_handoff_time=2.0, residency=0.0)
SPANS = FaithfulChallengeSpans(
    normal_lease=0.6, max_lease=1.8, max_shutdown=0.2, min_grab=0.3, held_delay=0.02
)
CHALLENGES: list[dict[str, Any]] = [{"rules": RULES}, {"spans": SPANS}]
every_challenge = pytest.mark.parametrize("terms", CHALLENGES, ids=["lease", "faithful"])

Make = Callable[..., SyncMember]


@pytest.fixture
def make(redis: Redis) -> Iterator[Make]:
    made: list[SyncMember] = []

    def build(name: str, partitions: int = 8, **more: Any) -> SyncMember:
        maker = faithful_challenge if "spans" in more else lease_challenge
        made.append(maker(redis, "work", partitions, member=name, **more))
        made[-1].start()
        return made[-1]

    yield build
    for member in made:
        member.stop()


@every_challenge
def test_members_share_the_partitions_without_anybody_assigning_them(
    make: Make, terms: dict[str, Any]
) -> None:
    a = make("a", **terms)
    eventually(shared(a), "a has everything")
    b = make("b", **terms)
    eventually(shared(a, b), "four each")
    a.stop()
    eventually(shared(b), "b has everything")


def test_what_is_level_stays_where_it_is(make: Make) -> None:
    a, b = make("a", rules=RULES), make("b", rules=RULES)
    eventually(shared(a, b), "four each")
    held = a.held | b.held
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        assert a.held | b.held == held


def test_a_partition_is_taken_only_when_its_callback_has_returned(make: Make) -> None:
    told: list[tuple[str, int]] = []
    b: list[SyncMember] = []

    def end(partition: int, deadline: float) -> None:
        told.append(("revoked", partition))
        assert not b or partition not in b[0].held

    a = make("a", rules=RULES, on_revoked=end)
    eventually(shared(a), "a has everything")
    tokens = a.held
    b.append(make("b", rules=RULES))
    eventually(shared(a, b[0]), "four each")
    assert len(told) == 4
    assert all(token > tokens[partition] for partition, token in b[0].held.items())


def test_without_on_revoked_a_partition_is_not_taken_while_on_assigned_works(make: Make) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def work(partition: int, token: int) -> None:
        begun.set()
        assert may_end.wait(PATIENCE)

    long = LeaseChallengeRules(ttl=300.0, interval=0.1, max_handoff_time=100.0, residency=0.0)
    a, b = make("a", 1, rules=long, on_assigned=work), make("b", 1, rules=long)
    assert begun.wait(PATIENCE)
    leaving = threading.Thread(target=a.stop)
    leaving.start()
    eventually(lambda: a._machine.holdings.closing, "a begins to leave")
    time.sleep(0.3)
    assert a.owns(0)
    assert b.held == {}
    may_end.set()
    leaving.join(PATIENCE)
    eventually(shared(b, count=1), "b has it")


def test_after_a_loss_members_keep_what_they_hold(make: Make, redis: Redis) -> None:
    a, b = make("a", rules=RULES), make("b", rules=RULES)
    eventually(shared(a, b), "four each")
    held = a.held | b.held
    redis.flushall()
    eventually(lambda: redis.exists("{work}:challenge:table"), "the table is back")
    end = time.monotonic() + 0.5
    while time.monotonic() < end:
        assert a.held | b.held == held


def test_two_processes_of_one_name_are_two_members(make: Make) -> None:
    a, b = make("same", rules=RULES), make("same", rules=RULES)
    eventually(shared(a, b), "four each")
    assert not a.held.keys() & b.held.keys()


def test_members_must_agree_on_the_count(make: Make) -> None:
    make("a", 8, rules=RULES)
    with pytest.raises(GroupMismatch, match="has partitions=8, this member partitions=9"):
        make("b", 9, rules=RULES)


def test_members_must_agree_on_the_ttl_as_long_as_one_is_there(make: Make) -> None:
    a = make("a", rules=RULES)
    other = replace(RULES, ttl=1.5, max_handoff_time=1.0)
    said = "has ttl=30.0, this member ttl=1.5: give all members the same; to change it, stop all"
    with pytest.raises(GroupMismatch, match=said):
        make("b", rules=other)
    a.stop()
    eventually(shared(make("c", rules=other)), "c has everything")


def test_once_nobody_is_there_the_next_members_may_agree_on_another_count(make: Make) -> None:
    a = make("a", 8, rules=RULES)
    eventually(shared(a), "a has everything")
    tokens = a.held
    a.stop()
    b, c = make("b", 5, rules=RULES), make("c", 5, rules=RULES)
    eventually(shared(b, c, count=5), "b and c share what there is now")
    assert min((b.held | c.held).values()) > max(tokens.values())
    with pytest.raises(GroupMismatch, match="has partitions=5, this member partitions=8"):
        make("d", 8, rules=RULES)


def test_a_member_that_is_started_again_over_a_loss_takes_nothing_that_another_holds(
    make: Make, redis: Redis
) -> None:
    slow = LeaseChallengeRules(ttl=300.0, interval=100.0, residency=300.0)
    a = make("a", rules=slow)
    eventually(shared(a), "a has everything")
    b = make("b", rules=slow)
    redis.flushall()
    b.stop()
    b.start()
    assert b.held == {}
    assert len(a.held) == 8


def test_an_asyncio_member_that_is_started_again_over_a_loss_takes_nothing_either(
    redis: Redis, redis_server: RedisServer
) -> None:
    async def main() -> None:
        client = AsyncRedis(unix_socket_path=str(redis_server.socket))
        member = async_lease_challenge(client, "work", 8, rules=RULES)
        await member.start()
        await member.stop()
        redis.flushall()
        async with member:
            assert member.held == {}
        await client.aclose()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"rules": SPANS}, "rules=FaithfulChallengeSpans("),
        ({"spans": RULES}, "spans=LeaseChallengeRules("),
        ({"partitions": 0}, "partitions=0: must be from 1 to 1000000"),
        ({"rules": 0}, "rules=0: give hashring.LeaseChallengeRules(...), or leave it out"),
        ({"rules": "x"}, "rules='x': give hashring.LeaseChallengeRules(...), or leave it out"),
        ({"spans": 0}, "spans=0: give FaithfulChallengeSpans(...), or leave it out"),
    ],
)
def test_arguments_that_cannot_work_are_refused(make: Make, settings: Any, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        make("a", **settings)
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64])
def test_numbers_of_numpy_are_numbers(make: Make, kind: Any) -> None:
    rules = LeaseChallengeRules(
        ttl=kind(30), interval=kind(1), max_handoff_time=kind(2), residency=kind(0)
    )
    lease = make("a", kind(8) if kind is np.int64 else 8, rules=rules)
    eventually(shared(lease), "it has everything")
    assert lease.error is None
    lease.stop()
    spans = {"normal_lease": kind(3), "max_lease": kind(6), "max_shutdown": kind(1)}
    faithful = make("a", spans=FaithfulChallengeSpans(**spans, min_grab=kind(2), held_delay=0.02))
    eventually(lambda: faithful.held, "it has something")
    assert faithful.error is None


@every_challenge
def test_threads_and_tasks_share_the_partitions(
    make: Make, redis_server: RedisServer, terms: dict[str, Any]
) -> None:
    a = make("a", **terms)
    eventually(shared(a), "a has everything")
    begun: set[int] = set()

    async def begin(partition: int, token: int) -> None:
        begun.add(partition)

    async def run() -> None:
        client = AsyncRedis(unix_socket_path=str(redis_server.socket))
        maker = async_faithful_challenge if "spans" in terms else async_lease_challenge
        async with maker(client, "work", 8, on_assigned=begin, **terms) as b:
            # Not how evenly: leases of moments, which are raced for, hardly come to rest when
            # the machine is busy with other things.
            while not (a.held and b.held and begun and len(a.held) + len(b.held) == 8):
                await asyncio.sleep(0.01)
        await client.aclose()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
    eventually(shared(a), "a has everything again")


def test_each_kind_of_client_has_its_function() -> None:
    with pytest.raises(ConfigError, match="is an asyncio client: use async_lease_challenge"):
        lease_challenge(AsyncRedis(), "work", 4)
    with pytest.raises(ConfigError, match="is not an asyncio client: use lease_challenge"):
        async_lease_challenge(Redis(), "work", 4)
    with pytest.raises(ConfigError, match="is an asyncio client: use async_faithful_challenge"):
        faithful_challenge(AsyncRedis(), "work", 4)
    with pytest.raises(ConfigError, match="is not an asyncio client: use faithful_challenge"):
        async_faithful_challenge(Redis(), "work", 4)


def test_a_coroutine_function_is_no_callback_of_a_sync_challenge() -> None:
    async def callback(*_: object) -> None: ...

    with pytest.raises(ConfigError, match=r"on_lost=.*function: use async_lease_challenge"):
        lease_challenge(MemoryStore(), "work", 4, on_lost=callback)
    async_lease_challenge(MemoryStore(), "work", 4, on_lost=callback)
