"""asyncio cancels a task wherever it waits: a node ends well all the same."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import redis.asyncio
from redis import Redis

from hashring import AsyncRingNode
from hashring.store.embedded import RedisServer
from tests.conftest import PATIENCE


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def started_and_cancelled(client: redis.asyncio.Redis, after: int) -> bool:
    """Whether the node had started before it was cancelled."""
    before = asyncio.all_tasks()
    node = AsyncRingNode(client, "ring")
    start = asyncio.create_task(node.start())
    await turns(after)
    start.cancel()
    with suppress(asyncio.CancelledError):
        await start
    started = not start.cancelled()
    await node.stop()
    assert not node.contains("key")
    assert asyncio.all_tasks() == before
    return started


def test_start_may_be_cancelled_at_any_moment_and_leaves_nothing_behind(
    redis_server: RedisServer,
) -> None:
    async def run() -> int:
        times = after = 0
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            while not await started_and_cancelled(client, after):
                times += 1
                after += 1 + after // 20
        return times

    with Redis.from_url(redis_server.url) as client:
        assert asyncio.run(asyncio.wait_for(run(), PATIENCE)) > 20
        assert client.zcard("ring") == 0


def test_a_stop_that_is_cancelled_is_a_stop(redis_server: RedisServer) -> None:
    async def run() -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            node = AsyncRingNode(client, "ring")
            await node.start()
            stop = asyncio.create_task(node.stop())
            await turns(1)
            stop.cancel()
            with suppress(asyncio.CancelledError):
                await stop
            assert not node.contains("key")
            await node.stop()
            assert node.state.value == "stopped"
            assert await client.zcard("ring") == 0

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


def test_a_block_that_is_cancelled_takes_the_node_off_the_ring(redis_server: RedisServer) -> None:
    async def run() -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            inside = asyncio.Event()

            async def work() -> None:
                async with AsyncRingNode(client, "ring"):
                    inside.set()
                    await asyncio.Event().wait()

            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert await client.zcard("ring") == 0

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
