"""Starts and stops that meet each other, or the end of what they run on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import Any, cast

import pytest
import redis.asyncio

from hashring import AsyncPartitionGroup, NodeStateError, RingNode
from hashring.store.embedded_server import RedisServer
from hashring.testing import MemoryStore
from tests.conftest import PATIENCE


def test_a_start_between_two_lines_of_a_stop_is_of_a_node_that_runs() -> None:
    node = RingNode(MemoryStore(), "meeting")
    about, started = threading.Event(), threading.Event()

    def pause(frame: Any, event: str, argument: Any) -> Any:
        if frame.f_code.co_name == "_forget_runner" and event == "line":
            about.set()
            started.wait(0.5)
        return pause

    def stop() -> None:
        sys.settrace(pause)
        node.stop()

    node.start()
    stopping = threading.Thread(target=stop)
    stopping.start()
    about.wait()
    node.start()
    started.set()
    stopping.join()
    with pytest.raises(NodeStateError, match="runs already"):
        node.start()
    node.stop()


# A process of its own: asyncio warns of the tasks of a loop that was closed under them.
_PROGRAM = """
import asyncio, sys
import redis.asyncio
from hashring import AsyncPartitionGroup, AsyncRingNode

async def run(one):
    async with one:
        pass

client = redis.asyncio.Redis.from_url(sys.argv[1])
if sys.argv[2] == "node":
    one = AsyncRingNode(client, "meeting", name="a")
else:
    one = AsyncPartitionGroup(client, "meeting", partitions=4, member="a")
for end in (one.stop(), run(one)):
    if sys.argv[3] == "with its tasks":
        asyncio.run(one.start())
    else:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(one.start())
        loop.close()
    if sys.argv[2] == "node":
        asyncio.run(asyncio.wait_for(end, 60))
        assert not one.get_ranges()
    else:
        end.close()
        asyncio.run(asyncio.wait_for(one.stop(), 60))
        assert not one.held
print("all ended")
"""


@pytest.mark.parametrize("closed", ["with its tasks", "under its tasks"])
@pytest.mark.parametrize("kind", ["node", "group"])
def test_one_whose_event_loop_was_closed_is_stopped_and_started_in_another(
    redis_server: RedisServer, kind: str, closed: str
) -> None:
    program = [sys.executable, "-c", _PROGRAM, redis_server.url, kind, closed]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout == "all ended\n", done.stderr


def test_a_member_whose_event_loop_runs_in_another_thread_is_stopped_from_this_one() -> None:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    member = AsyncPartitionGroup(MemoryStore(), "meeting", 4, on_assigned=lambda *_: None)
    try:
        asyncio.run_coroutine_threadsafe(member.start(), loop).result(PATIENCE)
        asyncio.run(asyncio.wait_for(member.stop(), PATIENCE))
        assert not member.running
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_question_that_outlasts_the_stop_leaves_no_connection(redis_server: RedisServer) -> None:
    class Store:
        """One that answers a question once ``answers`` is set."""

        def __init__(self) -> None:
            self.asked, self.answers, self.closed = asyncio.Event(), asyncio.Event(), 0

        async def run(self, command: object) -> None:
            self.asked.set()
            await self.answers.wait()

        async def close(self) -> None:
            self.closed += 1

    async def main() -> None:
        member = AsyncPartitionGroup(redis.asyncio.Redis.from_url(redis_server.url), "meeting", 4)
        store: Any = Store()
        member._asking = store
        asking = asyncio.create_task(member._ask_redis(cast(Any, None)))
        await store.asked.wait()
        await member._close_asking()
        store.answers.set()
        await asking
        assert store.closed == 2

    asyncio.run(main())
