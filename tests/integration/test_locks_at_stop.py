"""When ``stop()`` has returned, no lock of the node is left, whatever goes on in its calls.

Calls wait where a test wants them to: before Redis gets them, or before their answers are read.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring import AsyncRingNode, NotHeld, RingNode
from hashring.store.command import Command
from hashring.store.embedded_server import RedisServer
from tests.conftest import PATIENCE, eventually
from tests.integration.test_locks import RING, locks

pytestmark = pytest.mark.one_server

LONG = {"ttl": 120.0, "heartbeat_interval": 50.0, "lock": True}
KEYS = ["k1", "k2", "k3"]


def contains(node: RingNode) -> object:
    return node.contains(KEYS[0])


def select(node: RingNode) -> object:
    return node.select(KEYS)


def hold(node: RingNode) -> object:
    try:
        with node.hold(KEYS[0]):
            return True
    except NotHeld:
        return False


ASKS = [contains, select, hold]


class Waiting:
    """A store in which a call that takes locks waits until it may go on.

    Args:
        store: runs the calls.
        look: called when Redis has executed such a call.
        sent: whether it waits for the answer to be read, and not for the call to be sent.
    """

    def __init__(self, store: Any, look: Callable[[], Any], *, sent: bool) -> None:
        self._store = store
        self._look = look
        self._sent = sent
        self.waits = threading.Event()
        self.go_on = threading.Event()
        self.seen: Any = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def run(self, command: Command[Any]) -> Any:
        if command.script.name != "locks_acquire":
            return self._store.run(command)
        if not self._sent:
            self._wait()
        reply = self._store.run(command)
        self.seen = self._look()
        if self._sent:
            self._wait()
        return reply

    def _wait(self) -> None:
        self.waits.set()
        assert self.go_on.wait(PATIENCE)


@contextmanager
def asked(
    client: Redis, node: RingNode, ask: Callable[[RingNode], object], *, sent: bool
) -> Iterator[Waiting]:
    """Another thread asks the node, and its call waits; it goes on at the end of the block."""
    store = Waiting(node._calls.store, partial(locks, client), sent=sent)
    node._calls._store = store  # type: ignore[assignment]
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(ask(node)))
    thread.start()
    try:
        assert store.waits.wait(PATIENCE)
        yield store
    finally:
        store.go_on.set()
        thread.join()
    assert not any(answers)


def of_a_loop(client: Redis) -> RingNode:
    node = RingNode(client, RING, name="a", **LONG)
    node.start()
    return node


def by_hand(client: Redis) -> RingNode:
    node = RingNode(client, RING, name="a", **LONG)
    node.heartbeat()
    return node


def stop_to_stay(node: RingNode) -> None:
    node.stop(stay=True)


ENDS = [
    pytest.param(make, end, id=f"{make.__name__}-{end.__name__}")
    for make, end in (
        (of_a_loop, RingNode.stop),
        (of_a_loop, stop_to_stay),
        (by_hand, RingNode.stop),
        (by_hand, stop_to_stay),
        (by_hand, RingNode.remove),
    )
]


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize(("make", "end"), ENDS)
def test_what_a_call_has_taken_whose_answer_nobody_has_read_is_let_go(
    client: Redis,
    make: Callable[[Redis], RingNode],
    end: Callable[[RingNode], None],
    ask: Callable[[RingNode], object],
) -> None:
    node = make(client)
    with asked(client, node, ask, sent=True) as store:
        assert store.seen
        end(node)
        assert locks(client) == {}
    assert locks(client) == {}
    node.stop()


@pytest.mark.parametrize("ask", ASKS)
@pytest.mark.parametrize(("make", "end"), ENDS)
def test_a_call_that_comes_to_redis_later_takes_no_lock(
    client: Redis,
    make: Callable[[Redis], RingNode],
    end: Callable[[RingNode], None],
    ask: Callable[[RingNode], object],
) -> None:
    node = make(client)
    with asked(client, node, ask, sent=False) as store:
        end(node)
    assert store.seen == {}
    assert locks(client) == {}
    node.stop()


def test_a_node_that_was_removed_just_before_it_stopped_leaves_no_lock(client: Redis) -> None:
    node = of_a_loop(client)
    with asked(client, node, select, sent=True) as store:
        assert store.seen
        node.remove()
        node.stop()
        assert locks(client) == {}


class Raised(Exception):
    """What a signal handler raises, or what a greenlet is killed with."""


@pytest.mark.parametrize("stay", [False, True])
def test_what_a_call_took_that_was_given_up_and_overtaken_is_let_go(
    client: Redis, stay: bool
) -> None:
    """The node has asked what came of the call before that came to Redis."""
    node = of_a_loop(client)
    given_up: list[Command[Any]] = []

    class Overtaken(Waiting):
        def run(self, command: Command[Any]) -> Any:
            if command.script.name != "locks_acquire":
                return self._store.run(command)
            given_up.append(command)
            raise Raised

    store = node._calls.store
    node._calls._store = Overtaken(store, lambda: None, sent=True)  # type: ignore[assignment]
    with suppress(Raised):
        node.select(KEYS)
    book = node._machine.book
    assert book is not None
    eventually(lambda: not book._calls.doubts, "it has asked Redis about the call")
    store.run(given_up.pop())
    assert set(locks(client)) == set(KEYS)
    node.stop(stay=stay)
    assert locks(client) == {}


# --- asyncio --------------------------------------------------------------------------------------


class AsyncWaiting:
    """The same for asyncio. A call to Redis goes on although its caller is cancelled."""

    def __init__(self, store: Any, look: Callable[[], Any], *, sent: bool) -> None:
        self._store = store
        self._look = look
        self._sent = sent
        self.waits = asyncio.Event()
        self.go_on = asyncio.Event()
        self.seen: Any = None
        self.call: asyncio.Task[Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, command: Command[Any]) -> Any:
        if command.script.name != "locks_acquire":
            return await self._store.run(command)
        self.call = asyncio.ensure_future(self._run(command))
        return await asyncio.shield(self.call)

    async def _run(self, command: Command[Any]) -> Any:
        if not self._sent:
            self.waits.set()
            await self.go_on.wait()
        reply = await self._store.run(command)
        self.seen = self._look()
        if self._sent:
            self.waits.set()
            await self.go_on.wait()
        return reply


async def async_select(node: AsyncRingNode) -> object:
    return await node.select(KEYS)


async def async_hold(node: AsyncRingNode) -> object:
    try:
        async with node.hold(KEYS[0]):
            return True
    except NotHeld:
        return False


@pytest.mark.parametrize("cancelled", [False, True], ids=["", "cancelled"])
@pytest.mark.parametrize("sent", [True, False], ids=["executed before", "executed later"])
@pytest.mark.parametrize("ask", [async_select, async_hold])
def test_an_asyncio_node_that_stops_in_the_middle_of_a_call_leaves_no_lock(
    redis_server: RedisServer, client: Redis, ask: Callable[..., Any], sent: bool, cancelled: bool
) -> None:
    async def main() -> None:
        async with AsyncRedis.from_url(redis_server.url) as redis:
            node = AsyncRingNode(redis, RING, name="a", **LONG)
            await node.start()
            run = node._run
            assert run is not None
            run.store = store = AsyncWaiting(run.store, lambda: locks(client), sent=sent)  # type: ignore[assignment]
            asking = asyncio.create_task(ask(node))
            await store.waits.wait()
            if cancelled:
                asking.cancel()
                await asyncio.wait([asking])
            await node.stop()
            assert locks(client) == {}
            store.go_on.set()
            await asyncio.wait([asking])
            assert cancelled or not asking.result()
            assert store.call is not None
            await store.call
            assert sent or store.seen == {}
            assert locks(client) == {}

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_what_an_asyncio_call_took_that_was_cancelled_and_overtaken_is_let_go(
    redis_server: RedisServer, client: Redis
) -> None:
    async def main() -> None:
        async with AsyncRedis.from_url(redis_server.url) as redis:
            node = AsyncRingNode(redis, RING, name="a", **LONG)
            await node.start()
            run, book = node._run, node._machine.book
            assert run is not None
            assert book is not None
            run.store = store = AsyncWaiting(run.store, lambda: locks(client), sent=False)  # type: ignore[assignment]
            asking = asyncio.create_task(node.select(KEYS))
            await store.waits.wait()
            asking.cancel()
            await asyncio.wait([asking])
            while book._calls.doubts:
                await asyncio.sleep(0.01)
            store.go_on.set()
            assert store.call is not None
            await store.call
            assert set(store.seen) == set(KEYS)
            await node.stop()
            assert locks(client) == {}

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


class Leaving:
    """A store in which questions end in the middle of the node's leave.

    Attributes:
        closed: whether it was closed before the leave was answered.
    """

    def __init__(self, store: Any) -> None:
        self._store = store
        self.leaves = asyncio.Event()
        self._left = False
        self.asked = asyncio.Event()
        self.over = asyncio.Event()
        self.closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def run(self, command: Command[Any]) -> Any:
        if command.script.name == "owner":
            self.asked.set()
            await self.leaves.wait()
        elif command.script.name == "leave":
            self.leaves.set()
            await self.over.wait()
            self._left = True
        return await self._store.run(command)

    async def close(self) -> None:
        self.closed = self.closed or not self._left
        await self._store.close()


@pytest.mark.parametrize("cancelled", [False, True], ids=["", "cancelled"])
def test_a_question_that_ends_while_an_asyncio_node_leaves_closes_none_of_its_connections(
    redis_server: RedisServer, cancelled: bool
) -> None:
    """A client of a cluster closes those in use as well."""

    async def main() -> None:
        async with AsyncRedis.from_url(redis_server.url) as redis:
            node = AsyncRingNode(redis, RING, name="a", **LONG)
            await node.start()
            run = node._run
            assert run is not None
            run.store = store = Leaving(run.store)  # type: ignore[assignment]
            asking = asyncio.create_task(node.fetch_owner("k"))
            await store.asked.wait()
            stopping = asyncio.create_task(node.stop())
            if cancelled:
                await store.leaves.wait()
                asking.cancel()
            await asyncio.wait([asking])
            store.over.set()
            await stopping
            assert not store.closed

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


# --- a call that was given up before the node started ---------------------------------------------


class SoftTimeLimit(BaseException):
    """What a signal handler raises."""


def test_a_start_after_calls_by_hand_lets_go_of_what_a_call_took_that_was_raised_into(
    client: Redis,
) -> None:
    node = by_hand(client)
    store = node._calls.store

    class Raised:
        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        def run(self, command: Command[Any]) -> Any:
            store.run(command)
            raise SoftTimeLimit

    node._calls._store = Raised()  # type: ignore[assignment]
    with suppress(SoftTimeLimit):
        node.contains(KEYS[0])
    node._calls._store = store
    before = locks(client)
    assert set(before) == {KEYS[0]}
    node.start()
    try:
        with node.hold(KEYS[0], timeout=PATIENCE) as lease:
            assert locks(client) != before
            lease.check()
    finally:
        node.stop()
    assert locks(client) == {}


# --- a hold that outlives its node's session ------------------------------------------------------


def test_a_hold_over_a_stop_and_a_start_lets_go_of_its_lock_with_the_last_of_its_blocks(
    client: Redis,
) -> None:
    node = of_a_loop(client)
    with node.hold("k"):
        with node.hold("k") as lease:
            before = locks(client)
            node.stop()
            node.start()
            assert lease.lost.is_set()
            assert not node.contains("k")
        assert locks(client) == before
    eventually(lambda: node.contains("k"), "the node has let go of it, and takes it anew")
    assert locks(client)["k"] > before["k"]
    node.stop()
    assert locks(client) == {}


def test_a_hold_over_a_stop_and_heartbeats_by_hand_lets_go_of_its_lock_at_its_end(
    client: Redis,
) -> None:
    node = by_hand(client)
    with node.hold("k"):
        node.stop()
        node.heartbeat()
        assert set(locks(client)) == {"k"}
    assert locks(client) == {}
    node.stop()


def test_a_hold_of_a_node_that_has_lost_its_name_lets_go_of_its_lock_at_its_end(
    client: Redis,
) -> None:
    first = of_a_loop(client)
    with first.hold("k") as lease:
        second = of_a_loop(client)
        eventually(lambda: first.state.value == "superseded", "it has lost its name")
        assert lease.lost.is_set()
        assert set(locks(client)) == {"k"}
    assert locks(client) == {}
    for node in (first, second):
        node.stop()


def test_an_asyncio_hold_over_a_stop_and_a_start_lets_go_of_its_lock_at_its_end(
    redis_server: RedisServer, client: Redis
) -> None:
    async def main() -> None:
        async with AsyncRedis.from_url(redis_server.url) as redis:
            node = AsyncRingNode(redis, RING, name="a", **LONG)
            await node.start()
            async with node.hold("k"):
                await node.stop()
                await node.start()
                assert set(locks(client)) == {"k"}
            while locks(client):
                await asyncio.sleep(0.01)
            await node.stop()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_an_asyncio_hold_that_ends_as_the_node_starts_again_lets_go_of_its_lock(
    redis_server: RedisServer, client: Redis
) -> None:
    async def main() -> None:
        async with AsyncRedis.from_url(redis_server.url) as redis:
            node = AsyncRingNode(redis, RING, name="a", **LONG)
            await node.start()
            entered, leave = asyncio.Event(), asyncio.Event()

            async def work() -> None:
                async with node.hold("k"):
                    entered.set()
                    await leave.wait()

            working = asyncio.create_task(work())
            await entered.wait()
            await node.stop()
            assert len(locks(client)) == 1
            leave.set()
            # In which the block ends, and its lock is about to be released.
            await asyncio.sleep(0)
            await node.start()
            await working
            await node.stop()

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    assert locks(client) == {}
