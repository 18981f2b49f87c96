"""Partition groups on a store in memory, as tests of users have them: no Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from hashring import AsyncPartitionGroup, PartitionGroup, lease_challenge
from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.groups.faithful_challenge import FaithfulChallengeSpans, faithful_challenge
from hashring.groups.sync_member import SyncMember
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import read
from hashring.testing import MemoryServer, MemoryStore
from tests.conftest import eventually, shared

SETTINGS: dict[str, Any] = {"partitions": 8, "rebalance_delay": 0.0, "handoffs": 8}


def test_members_on_one_store_share_the_partitions() -> None:
    store = MemoryStore()
    with PartitionGroup(store, "orders", member="a", **SETTINGS) as a:
        with PartitionGroup(store, "orders", member="b", **SETTINGS) as b:
            eventually(lambda: len(a.held) == len(b.held) == 4, "four each")
            assert [member.name for member in a.status().members] == ["a", "b"]
        eventually(lambda: len(a.held) == 8, "a has everything")


def test_threads_and_tasks_share_one_server() -> None:
    server = MemoryServer()

    async def run(a: PartitionGroup) -> None:
        async with AsyncPartitionGroup(MemoryStore(server), "orders", **SETTINGS) as b:
            while not len(a.held) == len(b.held) == 4:
                await asyncio.sleep(0.01)
            assert (await b.status()).partitions == 8
            await b.resize(10)
            assert (await b.plan(leave=["a"])).after["a"] == 0

    with PartitionGroup(MemoryStore(server), "orders", member="a", **SETTINGS) as a:
        asyncio.run(run(a))
        eventually(lambda: len(a.held) == 10, "a has everything")


def test_a_store_that_was_wiped_is_like_a_redis_that_was() -> None:
    store = MemoryStore()
    settings = SETTINGS | {"ttl": 1.0, "heartbeat_interval": 0.1}
    with PartitionGroup(store, "orders", member="a", **settings) as a:
        eventually(lambda: len(a.held) == 8, "a has everything")
        before = a.held
        store.server.wipe()
        command = read(group_keys("orders"))
        eventually(lambda: store.run(command).state is not None, "the group has come back")
        assert a.held == before


RULES = LeaseChallengeRules(ttl=3.0, interval=0.1, max_handoff_time=2.0, residency=0.0)
SPANS = FaithfulChallengeSpans(0.6, 1.8, 0.2, 0.3, 0.02)


@pytest.mark.parametrize(
    "make", [partial(lease_challenge, rules=RULES), partial(faithful_challenge, spans=SPANS)]
)
def test_a_lease_challenge_runs_in_memory(make: Callable[..., SyncMember]) -> None:
    store = MemoryStore()
    with make(store, "work", 4) as a:
        with make(store, "work", 4) as b:
            eventually(shared(a, b, count=4), "two each")
        eventually(shared(a, count=4), "a has everything")
