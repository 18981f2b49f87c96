"""Whatever the application's callbacks and log handlers raise, what calls them goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from functools import partial
from types import CodeType
from typing import Any

import gevent
import pytest
import redis
import redis.asyncio

from hashring import (
    RING_SIZE,
    AsyncPartitionGroup,
    AsyncRingNode,
    PartitionChangeKind,
    PartitionGroup,
    PointRange,
    RingNode,
)
from hashring.core.ranges import subtract
from hashring.running.threads_and_greenlets import GeventBackend
from hashring.store.embedded_server import RedisServer
from hashring.testing import MemoryStore
from tests.conftest import PATIENCE, eventually
from tests.unit.node.raised_into import raised_into

EAGER: Any = getattr(asyncio, "eager_task_factory", None)


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


@pytest.mark.parametrize("plain", [False, True])
def test_a_task_calls_on_change_again_after_it_ended_cancelled(
    redis_server: RedisServer, caplog: pytest.LogCaptureFixture, *, plain: bool
) -> None:
    async def run() -> None:
        calls, again = [], asyncio.Event()
        cancelled = asyncio.get_running_loop().create_future()
        cancelled.cancel()

        def plain_function(gained: object, lost: object) -> None:
            calls.append(gained)
            if len(calls) >= 2:
                again.set()
            cancelled.result()

        async def on_change(gained: object, lost: object) -> None:
            plain_function(gained, lost)

        async with (
            redis.asyncio.Redis(unix_socket_path=str(redis_server.socket)) as client,
            AsyncRingNode(client, "callbacks", on_change=plain_function if plain else on_change),
            AsyncRingNode(client, "callbacks", name="other"),
        ):
            await asyncio.wait_for(again.wait(), 60)

    asyncio.run(run())
    assert "on_change raised" in caplog.text


def test_a_member_stays_in_the_group_after_a_plain_callback_raised_cancelled_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def run() -> None:
        calls, all_called = [], asyncio.Event()

        def on_assigned(partition: int, token: int) -> None:
            calls.append(partition)
            if len(calls) == 4:
                all_called.set()
            raise asyncio.CancelledError

        async with AsyncPartitionGroup(
            MemoryStore(), "callbacks", partitions=4, on_assigned=on_assigned
        ) as group:
            await asyncio.wait_for(all_called.wait(), 60)
            assert len(group.held) == 4

    asyncio.run(run())
    assert "raised" in caplog.text


class _Raises(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise ConnectionError("the log server does not answer")


@pytest.fixture
def _raising_handler(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.INFO, "hashring")
    handler, log = _Raises(), logging.getLogger("hashring")
    log.addHandler(handler)
    yield
    log.removeHandler(handler)


@pytest.mark.usefixtures("_raising_handler")
def test_a_log_handler_that_raises_ends_no_thread_of_a_node(
    capfd: pytest.CaptureFixture[str],
) -> None:
    store, calls = MemoryStore(), []

    def on_change(gained: object, lost: object) -> None:
        calls.append(gained)
        raise ValueError

    timers = {"ttl": 60.0, "heartbeat_interval": 0.05}
    with RingNode(store, "callbacks", on_change=on_change, **timers) as node:
        eventually(lambda: calls, "it is called")
        with RingNode(store, "callbacks", name="other"):
            eventually(lambda: len(calls) >= 2, "it is called for the node that joined")
        beaten = node.status.heartbeats
        eventually(lambda: node.status.heartbeats > beaten, "it goes on beating")
    assert "the log server does not answer" in capfd.readouterr().err


@pytest.mark.usefixtures("_raising_handler")
def test_a_log_handler_that_raises_ends_no_task_of_a_node(redis_server: RedisServer) -> None:
    async def run() -> None:
        calls, again = [], asyncio.Event()

        def on_change(gained: object, lost: object) -> None:
            calls.append(gained)
            if len(calls) >= 2:
                again.set()
            raise ValueError

        timers = {"ttl": 60.0, "heartbeat_interval": 0.05}
        async with (
            redis.asyncio.Redis(unix_socket_path=str(redis_server.socket)) as client,
            AsyncRingNode(client, "callbacks", on_change=on_change, **timers) as node,
            AsyncRingNode(client, "callbacks", name="other"),
        ):
            await asyncio.wait_for(again.wait(), 60)
            beaten = node.status.heartbeats
            while node.status.heartbeats == beaten:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(run(), 120))


@pytest.mark.usefixtures("_raising_handler")
def test_a_log_handler_that_raises_ends_no_member_of_a_group() -> None:
    calls = []

    def on_assigned(partition: int, token: int) -> None:
        calls.append(partition)
        raise ValueError

    with PartitionGroup(MemoryStore(), "callbacks", partitions=4, on_assigned=on_assigned):
        eventually(lambda: len(calls) == 4, "it is called for each")


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


def test_what_a_killed_greenlet_wanted_is_not_done_later() -> None:
    class Busy:
        """A pool of which no thread is free while the greenlet lives."""

        def apply(self, do: Callable[[], Any]) -> None:
            self.do = do
            gevent.sleep(60)

    backend, pool = GeventBackend(), Busy()
    calls: list[int] = []
    backend._users = pool
    greenlet = gevent.spawn(backend.call_for_user, calls.append, 1)
    gevent.sleep(0)
    greenlet.kill()
    pool.do()
    assert (greenlet.dead, calls) == (True, [])


def test_a_greenlets_calls_leave_the_hub_free_though_a_thread_called_first() -> None:
    backend = GeventBackend()
    hub = gevent.get_hub()
    hub.threadpool.apply(backend.call_for_user, (str,))
    assert backend.call_for_user(threading.get_ident) != threading.get_ident()
    backend.close()
    gevent.sleep(0.1)


def test_a_call_after_the_loop_has_ended_leaves_the_hub_free() -> None:
    backend = GeventBackend()
    backend.close()
    assert backend.call_for_user(threading.get_ident) != threading.get_ident()
    gevent.sleep(0.1)


def test_a_call_that_waits_for_a_thread_is_made_though_the_loop_has_ended() -> None:
    backend, released = GeventBackend(), threading.Event()
    # More than there are threads for.
    calls = [gevent.spawn(backend.call_for_user, released.wait) for _ in range(20)]
    gevent.sleep(0.05)
    backend.close()
    gevent.sleep(0.05)
    released.set()
    gevent.joinall(calls, timeout=PATIENCE)
    assert [call.value for call in calls] == [True] * 20


def test_a_member_whose_greenlet_was_killed_leaves() -> None:
    def on_assigned(partition: int, token: int) -> None:
        gevent.getcurrent().throw()

    member = PartitionGroup(MemoryStore(), "callbacks", partitions=4, on_assigned=on_assigned)
    member.gevent_start()
    with gevent.Timeout(PATIENCE):
        while member.running:
            gevent.sleep(0.01)
    assert not member.held
    member.stop()


BETWEEN = {"_call_each", "_called_back", "first", "taken", "get", "tick"}
BETWEEN |= {"_end_work", "_is_over", "_let_go"}


def test_a_member_stays_and_misses_nothing_though_a_handler_raised_between_two_callbacks() -> None:
    """What the handler raised reaches the main greenlet; no callback is called twice."""
    caller: object = None

    def concerns(code: CodeType) -> bool:
        # Others call some of these functions, too.
        ours = "hashring/" in code.co_filename and code.co_name in BETWEEN
        return ours and gevent.getcurrent() is caller

    line, raised_at = 0, "the beginning"
    while raised_at:
        line += 1
        calls: list[tuple[object, ...]] = []
        store, settings = MemoryStore(), {"ttl": 60.0, "rebalance_delay": 0.0}
        member = PartitionGroup(store, "callbacks", 2, on_revoked=partial(_note, calls), **settings)
        member.gevent_start()
        with gevent.Timeout(PATIENCE):
            while len(member.held) < 2 or not member._calling:
                gevent.sleep(0.001)
        caller = member._calling[0].caller
        other = PartitionGroup(store, "callbacks", **settings)
        starting = gevent.spawn(other.gevent_start)
        raised_at = raised_into(line, concerns, partial(_calls, calls, 1))
        with gevent.Timeout(PATIENCE, AssertionError(raised_at)):
            starting.join()
            _calls(calls, 1)
            while not len(member.held) == len(other.held) == 1:
                gevent.sleep(0.001)
        assert member.running, raised_at
        assert len(calls) == 1, raised_at
        other.stop()
        member.stop()
    assert line > 5


def test_on_change_whose_greenlet_was_killed_is_called_again() -> None:
    calls: list[object] = []

    def on_change(gained: object, lost: object) -> None:
        calls.append(gained)
        if len(calls) == 1:
            gevent.getcurrent().throw()

    store = MemoryStore()
    node = RingNode(store, "callbacks", on_change=on_change)
    node.gevent_start()
    with gevent.Timeout(PATIENCE):
        while not calls:
            gevent.sleep(0.01)
        with RingNode(store, "callbacks", name="other"):
            while len(calls) < 2:
                gevent.sleep(0.01)
    node.stop()


def _note(calls: list[Any], *change: object) -> None:
    calls.append(change)


def _calls(calls: list[Any], count: int) -> None:
    with gevent.Timeout(PATIENCE):
        while len(calls) < count:
            gevent.sleep(0.001)
        gevent.sleep(0.001)


PUBLISHING = {"publish", "_publish", "_show", "note", "said"}
CALLING = {"_notify", "next", "told"}


@pytest.mark.parametrize("where", [PUBLISHING, CALLING], ids=["publishing", "calling"])
def test_on_change_misses_nothing_though_a_handler_raised_when_a_change_came(
    where: set[str],
) -> None:
    """Before any line; after some of those at the callback's side, it is called twice."""

    def concerns(code: CodeType) -> bool:
        rooms = ("hashring/node", "hashring/protocol/node")
        return code.co_name in where and any(room in code.co_filename for room in rooms)

    line, raised_at = 0, "the beginning"
    while raised_at:
        line += 1
        calls: list[tuple[tuple[PointRange, ...], tuple[PointRange, ...]]] = []
        note = partial(_note, calls)
        store = MemoryStore()
        node = RingNode(store, "callbacks", name="a", on_change=note)
        node.gevent_start()
        with gevent.Timeout(PATIENCE):
            while not calls:
                gevent.sleep(0.001)
        RingNode(store, "callbacks", name="b").heartbeat()
        raised_at = raised_into(line, concerns, partial(_calls, calls, 2))
        node.update()
        everything = (PointRange(0, RING_SIZE),)
        assert calls[0] == (everything, ()), raised_at
        _calls(calls, 2)
        lost = calls[1][1]
        assert subtract(everything, lost) == node.get_ranges(), raised_at
        assert not raised_at or len(calls) == 2 or where is CALLING, raised_at
        node.stop()
    assert line > 10


def test_each_run_calls_on_change_though_a_handler_raised_when_its_greenlet_was_spawned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The loop has then spawned another, for the same calls; both end with the run."""
    spawn = GeventBackend.spawn
    calls: list[tuple[bool, bool]] = []
    raised: list[str] = []

    def interrupted(self: GeventBackend, target: Callable[[], None], name: str) -> None:
        spawn(self, target, name)
        if name.endswith("on_change") and not raised:
            raised.append(name)
            raise KeyboardInterrupt

    monkeypatch.setattr(GeventBackend, "spawn", interrupted)
    node = RingNode(
        MemoryStore(),
        "callbacks",
        on_change=lambda gained, lost: calls.append((bool(gained), bool(lost))),
    )
    with pytest.raises(KeyboardInterrupt):
        node.gevent_start()
    node.gevent_start()
    node.stop()
    with gevent.Timeout(PATIENCE):
        while len(calls) < 4:
            gevent.sleep(0.01)
    assert calls == [(True, False), (False, True)] * 2


def test_a_node_whose_greenlet_was_killed_leaves_when_it_is_stopped(
    redis_server: RedisServer,
) -> None:
    client = redis.Redis.from_url(redis_server.url)
    node = RingNode(client, "callbacks", lock=True)
    node.gevent_start()
    assert node.contains("key")
    assert node._calls.runner is not None
    node._calls.runner.backend.abandon()  # kills what it has spawned
    node.stop()
    assert client.keys("*callbacks*:lock:*") == []
    assert client.zcard("callbacks") == 0


def test_a_thread_beside_the_hub_loops_over_the_changes() -> None:
    member = PartitionGroup(MemoryStore(), "callbacks", partitions=1)
    assigned: list[int] = []

    def loop() -> None:
        for change in member.changes():
            if change.kind is PartitionChangeKind.ASSIGNED:
                assigned.append(change.partition)

    member.gevent_start()
    looping = gevent.get_hub().threadpool.spawn(loop)
    with gevent.Timeout(PATIENCE):
        while assigned != [0]:
            gevent.sleep(0.01)
        member.resize(2)
        while assigned != [0, 1]:
            gevent.sleep(0.01)
        member.stop()
        looping.get()


@pytest.mark.skipif(EAGER is None, reason="before Python 3.12 no task is eager")
def test_a_callback_in_an_eager_task_stops_its_member() -> None:
    stopped = []

    async def on_assigned(partition: int, token: int) -> None:
        await member.stop()
        stopped.append(partition)

    async def main() -> None:
        asyncio.get_running_loop().set_task_factory(EAGER)
        await member.start()
        await member.stop()

    member = AsyncPartitionGroup(MemoryStore(), "callbacks", 1, on_assigned=on_assigned)
    asyncio.run(main())
    assert stopped == [0]
