"""Whatever a node's ``on_change`` ends with, the node goes on calling it."""

from __future__ import annotations

import asyncio

import gevent
import pytest
import redis.asyncio

from hashring import AsyncRingNode, RingNode
from hashring.running.threads_and_greenlets import GeventBackend
from hashring.store.embedded_server import RedisServer
from hashring.testing import MemoryStore
from tests.conftest import eventually


@pytest.mark.parametrize("ended_by", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_thread_calls_on_change_again_after_it_wanted_to_end_the_program(
    ended_by: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    store, calls = MemoryStore(), []

    def on_change(gained: object, lost: object) -> None:
        calls.append(gained)
        raise ended_by

    with RingNode(store, "callbacks", on_change=on_change):
        eventually(lambda: calls, "it is called")
        with RingNode(store, "callbacks", name="other"):
            eventually(lambda: len(calls) >= 2, "it is called for the node that joined")
    assert "on_change raised" in caplog.text


def test_a_task_calls_on_change_again_after_it_ended_cancelled(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        calls, again = [], asyncio.Event()

        async def on_change(gained: object, lost: object) -> None:
            calls.append(gained)
            if len(calls) >= 2:
                again.set()
            raise asyncio.CancelledError

        async with (
            redis.asyncio.Redis(unix_socket_path=str(redis_server.socket)) as client,
            AsyncRingNode(client, "callbacks", on_change=on_change),
            AsyncRingNode(client, "callbacks", name="other"),
        ):
            await asyncio.wait_for(again.wait(), 60)

    asyncio.run(run())
    assert "on_change raised" in caplog.text


def test_a_greenlet_that_is_killed_while_it_calls_ends() -> None:
    backend, calls = GeventBackend(), []

    def call() -> None:
        while True:
            try:
                calls.append(1)
                gevent.sleep(60)
            except BaseException as error:  # noqa: BLE001 - as those that call callbacks do
                if not backend.forward(error):
                    calls.append(error)

    greenlet = gevent.spawn(call)
    gevent.sleep(0)
    greenlet.kill()
    assert (greenlet.dead, calls) == (True, [1])
    backend.close()
    gevent.sleep(0.01)
