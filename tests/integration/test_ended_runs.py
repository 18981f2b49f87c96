"""A node is started again: the end of its last run does not disturb it, or keep it waiting."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import gevent
import pytest

from hashring import AsyncRingNode, RingNode
from hashring.protocol.node.node_states import NodeState
from hashring.running.threads_and_greenlets import Latch
from hashring.testing import MemoryStore
from tests.conftest import PATIENCE, eventually

pytestmark = pytest.mark.one_server


class _SlowToGoOn:
    """A latch whose setter, once it has let the others go on, is not scheduled for a while."""

    def __init__(self, latch: Latch, may_go_on: threading.Event) -> None:
        self.wait, self.is_set = latch.wait, latch.is_set
        self._latch = latch
        self._may_go_on = may_go_on

    def set(self) -> None:
        self._latch.set()
        self._may_go_on.wait(PATIENCE)


def told() -> tuple[list[str], Any]:
    """A list, and a callback that adds each change to it."""
    words: list[str] = []
    return words, lambda gained, lost: words.append("gained" if gained else "lost")


def test_a_run_says_nothing_once_the_next_may_have_begun() -> None:
    words, on_change = told()
    threads = set(threading.enumerate())
    node = RingNode(MemoryStore(), "again", on_change=on_change)
    node.start()
    runner: Any = node._life._calls.runner
    next_works = threading.Event()
    runner.ended = _SlowToGoOn(runner.ended, next_works)
    node.stop()
    node.start()
    next_works.set()
    eventually(lambda: words == ["gained", "lost", "gained"], "the second run has told")
    node.stop()
    eventually(lambda: set(threading.enumerate()) <= threads, "all threads have ended")
    assert words == ["gained", "lost", "gained", "lost"]


@pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "not stopped"])
def test_what_a_killed_loop_had_is_told_as_lost_before_the_next_run_tells_its_own(
    stopped: bool,
) -> None:
    words, on_change = told()
    node = RingNode(MemoryStore(), "again", on_change=on_change)
    node.gevent_start()
    backend: Any = node._life._calls.runner.backend
    backend._spawned[0].kill()
    if stopped:
        node.gevent_stop()
    node.gevent_start()
    node.gevent_stop()
    with gevent.Timeout(PATIENCE):
        while len(words) < 4:
            gevent.sleep(0.01)
    assert words == ["gained", "lost", "gained", "lost"]


def test_a_stop_that_reaches_a_run_after_its_end_does_not_stop_the_next() -> None:
    async def stop_last_run_late() -> NodeState:
        node = AsyncRingNode(MemoryStore(), "again")
        await node.start()
        last: Any = node._run
        await node.stop()
        await node.start()
        # As by a stop() in another event loop, which looked at the last run before its end.
        await asyncio.to_thread(last.stop)
        await asyncio.sleep(0)
        state = node.state
        await node.stop()
        return state

    assert asyncio.run(stop_last_run_late()) is NodeState.LIVE
