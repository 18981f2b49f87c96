"""Many calls of a node's users at the same moment: some wait, and the node's own calls do not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring import AsyncRingNode
from hashring.running.calls_at_once import CALLS_AT_ONCE, CallsAtOnce
from hashring.store.embedded_server import RedisServer
from hashring.store.ring.commands import owner
from tests.conftest import PATIENCE
from tests.hosts import Host
from tests.proxy import Proxy

pytestmark = pytest.mark.one_server

KEYS = [f"key-{number}" for number in range(200)]
OTHERS = 4
"""Connections of the node's own and of the test's."""


@pytest.fixture(scope="module", params=["thread", "greenlet", "greenlet-patched", "asyncio"])
def crowd(request: pytest.FixtureRequest) -> Iterator[Host]:
    """A process that makes calls to Redis in threads, in greenlets, or in tasks."""
    with Host(request.param) as process:
        yield process


def test_many_calls_at_once_share_few_connections(
    crowd: Host, client: Redis, redis_server: RedisServer, proxy: Proxy
) -> None:
    node = crowd.node(proxy.url, "ring", name="a", lock=True, ttl=30).start()
    # As long as nothing is answered, a call keeps its connection.
    proxy.delay(0.05)
    before = client.info("stats")["total_connections_received"]
    assert node.do("hold_at_once", keys=KEYS) == len(KEYS)
    made = client.info("stats")["total_connections_received"] - before
    assert made <= CALLS_AT_ONCE + OTHERS
    node.stop()


def test_of_many_calls_that_a_silent_redis_leaves_unanswered_most_are_never_sent(
    crowd: Host, proxy: Proxy
) -> None:
    node = crowd.node(proxy.url, "ring", name="a", lock=True, ttl=3, heartbeat_interval=1).start()
    proxy.black_hole()
    assert node.do("hold_at_once", keys=KEYS) == 0
    # Those that have waited for as long as Redis may take are refused.
    assert proxy.count() <= 2 * CALLS_AT_ONCE + OTHERS
    proxy.heal()
    node.stop()


def test_a_node_beats_while_its_users_calls_wait_in_line(redis_server: RedisServer) -> None:
    async def run() -> None:
        async with AsyncRedis.from_url(redis_server.url) as client:
            node = AsyncRingNode(client, "ring", lock=True, ttl=30, heartbeat_interval=0.05)
            await node.start()
            async with AsyncExitStack() as calls:
                for _ in range(CALLS_AT_ONCE):
                    command = owner(node._settings.keys, 0)
                    await calls.enter_async_context(node._line.turn(command))
                waiting = asyncio.create_task(node.select(KEYS))
                beaten = node.status.heartbeats
                while node.status.heartbeats < beaten + 3:
                    await asyncio.sleep(0.01)
                assert not waiting.done()
            assert await waiting == KEYS
            await node.stop()

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_questions_to_a_node_that_does_not_run_share_few_connections(
    client: Redis, proxy: Proxy
) -> None:
    async def run() -> int:
        async with AsyncRedis.from_url(proxy.url) as asking:
            node = AsyncRingNode(asking, "ring")
            node._line = CallsAtOnce(PATIENCE)  # A slow machine answers the last after 5 s.
            questions = [asyncio.create_task(node.fetch_ring()) for _ in KEYS]
            most = 0
            while not all(question.done() for question in questions):
                most = max(most, client.info("clients")["connected_clients"])
                await asyncio.sleep(0.01)
            assert [await question for question in questions]
            return most

    proxy.delay(0.05)
    most = asyncio.run(asyncio.wait_for(run(), PATIENCE))
    # Connections may be closed here a moment before the server knows.
    assert most <= 2 * CALLS_AT_ONCE + OTHERS
