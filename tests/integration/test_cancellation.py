"""asyncio cancels a task wherever it waits: a node ends well nevertheless."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import closing, suppress
from itertools import count
from typing import Any

import pytest
import redis.asyncio
from redis import Redis

from hashring import AsyncPartitionGroup, AsyncRingNode, RedisUnavailable
from hashring import asyncio_cancellation as tasks
from hashring.asyncio_cancellation import outcome, over
from hashring.fencing import AsyncRedisFence
from hashring.store.embedded_server import RedisServer
from tests.conftest import PATIENCE
from tests.programs import python

KEYS = [f"key {number}" for number in range(10)]


async def turns(number: int) -> None:
    for _ in range(number):
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


# --- wherever it is cancelled -------------------------------------------------------------------


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, PATIENCE))


def moments() -> Iterator[int]:
    """After how many turns of the event loop to cancel."""
    after = 0
    while True:
        yield after
        after += 1 + after // 20


async def cancelled(work: Coroutine[Any, Any, Any], after: int) -> bool:
    """Whether it was cancelled, and not done before."""
    return await cancelled_task(asyncio.ensure_future(work), after)


async def cancelled_task(task: asyncio.Task[Any], after: int) -> bool:
    """Whether a task was cancelled, and not done before."""
    await turns(after)
    asked = task.cancel()
    await asyncio.wait([task])
    assert task.cancelled() is asked, "it was cancelled, and went on"
    return asked


async def every_moment(start: Callable[[], Awaitable[Coroutine[Any, Any, Any]]]) -> int:
    """Cancel at ever later moments, until it is done before; how often it was cancelled."""
    for times, after in enumerate(moments()):
        if not await cancelled(await start(), after):
            return times
    raise AssertionError


def test_a_question_that_is_cancelled_is_over_at_whatever_moment(redis_server: RedisServer) -> None:
    async def check() -> None:
        async with (
            redis.asyncio.Redis.from_url(redis_server.url) as client,
            AsyncPartitionGroup(client, "group", partitions=4),
        ):
            asking = AsyncPartitionGroup(client, "group", partitions=4)

            async def ask() -> Coroutine[Any, Any, Any]:
                return asking.status()

            before = asyncio.all_tasks()
            assert await every_moment(ask) > 5
            assert asyncio.all_tasks() == before

    run(check())


def test_taking_locks_may_be_cancelled_at_any_moment(redis_server: RedisServer) -> None:
    async def check() -> None:
        async with (
            redis.asyncio.Redis.from_url(redis_server.url) as client,
            AsyncRingNode(client, "ring", lock=True) as node,
        ):
            numbers = count()

            async def ask() -> Coroutine[Any, Any, Any]:
                # What became of those that were cancelled is found out first.
                while await node.select(KEYS) != KEYS:
                    await asyncio.sleep(0.001)
                return node.select([f"another {next(numbers)}"])

            assert await every_moment(ask) > 1

    run(check())


@pytest.mark.parametrize("timeout", [0, 60])
def test_a_hold_that_is_cancelled_at_any_moment_refuses_nobody_else(
    redis_server: RedisServer, timeout: float
) -> None:
    async def check() -> None:
        async with (
            redis.asyncio.Redis.from_url(redis_server.url) as client,
            AsyncRingNode(client, "ring", lock=True, ttl=600.0, heartbeat_interval=60.0) as node,
        ):
            numbers = count()

            async def hold(key: str) -> None:
                async with node.hold(key, timeout=timeout):
                    pass

            async def ask() -> Coroutine[Any, Any, Any]:
                return hold(f"cancelled {next(numbers)}")

            for after in moments():
                was_cancelled = await cancelled(await ask(), after)
                # Nothing has been found out yet about the one that was cancelled.
                number = next(numbers)
                await hold(f"another {number}")
                keys = [f"one more {number}"]
                assert await node.select(keys) == keys
                await hold(f"cancelled {number - 1}")
                if not was_cancelled:
                    break
            assert node.status.failures == 0

    run(check())


def test_a_node_that_leaves_lets_go_of_what_a_question_took_that_is_cancelled_meanwhile(
    redis_server: RedisServer,
) -> None:
    async def leaving(client: redis.asyncio.Redis, after: int) -> bool:
        """Whether the question was cancelled before it was answered."""
        node = AsyncRingNode(client, "ring", lock=True, ttl=600.0, heartbeat_interval=60.0)
        await node.start()
        asking = asyncio.create_task(node.select(KEYS))
        await turns(2)  # It is on its way.
        stop = asyncio.create_task(node.stop())
        was_cancelled = await cancelled_task(asking, after)
        await stop
        until = time.monotonic() + PATIENCE / 2
        while locks := await client.keys("{ring}:lock:*"):
            assert time.monotonic() < until, f"nobody lets go of {locks}"
            await asyncio.sleep(0.001)
        return was_cancelled

    async def check() -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            before = asyncio.all_tasks()
            for after in moments():
                if not await leaving(client, after):
                    break
            assert after > 5
            while asyncio.all_tasks() != before:
                await asyncio.sleep(0.001)

    run(check())


def test_a_fenced_write_that_is_cancelled_is_over_at_whatever_moment(
    redis_server: RedisServer,
) -> None:
    async def check() -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            fence = AsyncRedisFence(client)
            tokens = count(1)

            async def write() -> Coroutine[Any, Any, Any]:
                return fence.write("{a}", next(tokens), ["SET", "{a}:x", "1"])

            before = asyncio.all_tasks()
            for _ in range(20):
                assert await every_moment(write) > 1
            assert asyncio.all_tasks() == before
            assert await fence.write("{a}", next(tokens), ["GET", "{a}:x"]) == [b"1"]

    run(check())


def test_a_fenced_write_is_cancelled_although_its_client_swallows_that(
    redis_server: RedisServer,
) -> None:
    class Deaf(redis.asyncio.ConnectionPool):
        async def get_connection(self, *arguments: Any, **options: Any) -> Any:
            await deaf(1)

    async def check() -> None:
        client = redis.asyncio.Redis(connection_pool=Deaf.from_url(redis_server.url))
        assert await cancelled(AsyncRedisFence(client).write("{a}", 1, ["SET", "{a}:x", "1"]), 3)

    run(check())


def test_a_node_stops_at_any_moment_of_subscribing_anew(redis_server: RedisServer) -> None:
    async def subscribing(client: redis.asyncio.Redis, after: int) -> bool:
        """Whether the subscription did not stand yet when the node was stopped."""
        node = AsyncRingNode(client, "ring")
        await node.start()
        loop = node._run
        assert loop is not None
        old = loop._listener
        await client.client_kill_filter(_type="pubsub")
        while loop._listener is old:
            await asyncio.sleep(0)
        stood = node._machine.counters.subscriptions
        await turns(after)
        stands = node._machine.counters.subscriptions > stood
        await node.stop()
        return not stands

    async def check() -> None:
        before = asyncio.all_tasks()
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            for after in moments():
                if not await subscribing(client, after):
                    break
                assert asyncio.all_tasks() == before
            assert after > 5

    run(check())


def test_the_end_of_an_event_loop_ends_a_node_at_any_moment_of_a_heartbeat(
    redis_server: RedisServer,
) -> None:
    async def beating(client: redis.asyncio.Redis, after: int) -> bool:
        """Whether the heartbeat was not over when everything was cancelled."""
        before = asyncio.all_tasks()
        node = AsyncRingNode(client, "ring")
        await node.start()
        beats = node._machine.counters.heartbeats
        node._machine._at.beat = time.monotonic()
        node._poke()
        await turns(after)
        left = asyncio.all_tasks() - before
        for task in left:
            task.cancel()  # once, as asyncio.run does
        over_in_time, _ = await asyncio.wait(left, timeout=PATIENCE / 2)
        assert over_in_time == left
        return node._machine.counters.heartbeats == beats

    async def check() -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            for after in moments():
                if not await beating(client, after):
                    break
            assert after > 1

    run(check())


# --- Redis says nothing -------------------------------------------------------------------------


@pytest.fixture
def silent() -> Iterator[int]:
    """A port that accepts connections, and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=100)) as server:
        yield server.getsockname()[1]


def test_a_node_ends_at_whatever_moment_when_redis_never_answers(silent: int) -> None:
    async def check() -> None:
        before = asyncio.all_tasks()
        async with redis.asyncio.Redis(port=silent) as client:
            for after in range(12):
                node = AsyncRingNode(client, "ring", ttl=1.0, heartbeat_interval=0.2)
                assert await cancelled(node.start(), after)
                await node.stop()
                assert asyncio.all_tasks() == before
            with pytest.raises(RedisUnavailable):
                await AsyncRingNode(client, "ring", ttl=1.0, heartbeat_interval=0.2).start()
            assert asyncio.all_tasks() == before

    run(check())


def test_a_node_stops_when_redis_has_gone_silent() -> None:
    async def check() -> None:
        with RedisServer() as server:
            async with redis.asyncio.Redis.from_url(server.url) as client:
                node = AsyncRingNode(client, "ring", ttl=3.0, heartbeat_interval=0.2, lock=True)
                await node.start()
                assert await node.select(["k"]) == ["k"]
                before = asyncio.all_tasks()
                os.kill(server.pid, signal.SIGSTOP)
                await node.stop()
                os.kill(server.pid, signal.SIGCONT)
                assert asyncio.all_tasks() < before

    run(check())


# --- a library that swallows cancels ------------------------------------------------------------


async def deaf(times: int) -> str:
    """Swallow so many cancels, and go on."""
    for _ in range(times):
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
    await asyncio.Event().wait()
    return "over"


def test_a_cancel_that_was_swallowed_comes_again() -> None:
    async def check() -> None:
        before = asyncio.all_tasks()
        assert await cancelled(outcome(deaf(1), PATIENCE), 2)
        assert asyncio.all_tasks() == before
        with pytest.raises(TimeoutError, match=r"not done within 0\.01 s"):
            await outcome(deaf(1), 0.01)
        assert asyncio.all_tasks() == before

    run(check())


def test_nobody_waits_for_ever_for_what_swallows_every_cancel(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tasks, "_AGAIN", 0.01)
    monkeypatch.setattr(tasks, "_PATIENCE", 0.05)

    async def check() -> None:
        stubborn = asyncio.create_task(deaf(1000))
        assert await cancelled(over(stubborn), 2)
        assert not await over(stubborn, 0.01)
        while not stubborn.done():
            stubborn.cancel()
            await asyncio.sleep(0)

    run(check())


def test_what_is_cancelled_and_not_by_its_caller_is_an_error_to_the_caller() -> None:
    async def check() -> None:
        shared: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def work() -> str:
            return await shared

        waits = asyncio.create_task(outcome(work(), PATIENCE))
        await turns(2)
        shared.cancel()
        with pytest.raises(ConnectionAbortedError, match="not by its caller"):
            await waits

    run(check())


def test_what_ends_in_the_moment_of_the_cancel_is_cancelled_for_the_caller() -> None:
    async def check() -> None:
        ends: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        waits = asyncio.create_task(outcome(ends, PATIENCE))
        await turns(2)
        ends.set_exception(ValueError)
        assert waits.cancel()
        await asyncio.wait([waits])
        assert waits.cancelled()

    run(check())


def test_a_member_whose_callback_swallows_a_cancel_leaves(redis_server: RedisServer) -> None:
    async def check() -> None:
        async with redis.asyncio.Redis.from_url(redis_server.url) as client:
            before = asyncio.all_tasks()
            called = asyncio.Event()

            async def on_assigned(partition: int, token: int) -> None:
                called.set()
                await deaf(1)

            group = AsyncPartitionGroup(
                client,
                "group",
                partitions=1,
                ttl=3.0,
                max_handoff_time=0.1,
                on_assigned=on_assigned,
            )
            await group.start()
            await called.wait()
            await group.stop()
            assert asyncio.all_tasks() == before

    run(check())


def test_a_node_that_is_cancelled_with_all_else_leaves_the_ring_first(
    redis_server: RedisServer,
) -> None:
    """As ``asyncio.run`` does at its end, and at Ctrl-C before Python 3.11."""

    async def forgetful() -> None:
        client = redis.asyncio.Redis.from_url(redis_server.url)
        await AsyncRingNode(client, "ring").start()
        await client.aclose()

    asyncio.run(forgetful())
    with redis.Redis.from_url(redis_server.url) as client:
        assert client.zcard("ring") == 0


INTERRUPTED = """
import asyncio, os, signal, sys, time
from redis.asyncio import Redis
from hashring import AsyncRingNode

_, url, raised, during = sys.argv
signals = [signal.SIGTERM]

def handler(*_):
    raise {"SystemExit": SystemExit, "KeyboardInterrupt": KeyboardInterrupt}[raised]

def interrupted(function):
    def call(*arguments):
        while signals:
            os.kill(os.getpid(), signals.pop())
        return function(*arguments)
    return call

async def main():
    node = AsyncRingNode(Redis.from_url(url), "ring", lock=True)
    await node.start()
    assert await node.select(["key"])
    if during == "step":
        node._machine.next = interrupted(node._machine.next)
    else:
        client = node._run.store._client
        client.execute_command = interrupted(client.execute_command)
    node._machine._at.beat = time.monotonic()
    node._poke()
    await asyncio.Event().wait()

signal.signal(signal.SIGTERM, handler)
asyncio.run(main())
"""


@pytest.mark.parametrize("raised", ["SystemExit", "KeyboardInterrupt"])
@pytest.mark.parametrize("during", ["step", "call"])
def test_a_node_leaves_in_whose_task_a_signal_handler_raises(
    redis_server: RedisServer, raised: str, during: str
) -> None:
    """As ``sys.exit`` in a handler of SIGTERM, and as Ctrl-C before Python 3.11."""
    ended = python("-c", INTERRUPTED, redis_server.url, raised, during)
    assert (ended.returncode == 0) is (raised == "SystemExit"), ended.stderr
    with Redis.from_url(redis_server.url) as client:
        assert client.keys("*lock:*") == []
        assert client.zcard("ring") == 0
