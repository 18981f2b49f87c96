"""What the application raises into a call to Redis comes out of it, and says nothing about Redis.

A signal handler may raise anywhere: a task queue's soft time limit does. gevent raises in a
greenlet what it is killed with. Here a connection raises in its place, while a call waits for its
answer; or Python's tracing does, at a line of the client's.
"""

from __future__ import annotations

import asyncio
import linecache
import sys
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from hashlib import sha1
from pathlib import Path
from threading import get_ident
from types import FrameType
from typing import Any

import pytest
import redis
import redis.asyncio

from hashring import AsyncPartitionGroup, AsyncRingNode, PartitionGroup, RingNode
from hashring.errors import StoreError
from hashring.fencing import AsyncRedisFence, RedisFence
from hashring.protocol.node.node_states import NodeState
from hashring.store import connections_in_step
from hashring.store.async_redis_store import AsyncRedisStore
from hashring.store.command import Command
from hashring.store.embedded_server import RedisServer
from hashring.store.lua_scripts import Script
from hashring.store.redis_store import RedisStore
from tests.conftest import PATIENCE, eventually
from tests.finalizers import in_finalizer
from tests.unit.node.raised_into import Interrupt

CALM = {"ttl": 600.0, "heartbeat_interval": 60.0}
SOON = {"ttl": 600.0, "heartbeat_interval": 0.05}


class SoftTimeLimit(Exception):
    """Raised by the application."""


class NoCredentials(Exception):
    """Raised by another library, in a client that asks it for a password."""


class Panic(BaseException):
    """Raised by a library in another language, or as gevent's timeout."""


limits: ContextVar[list[Exception]] = ContextVar("limits")
"""What is raised in this thread, or task, instead of the next answers to commands."""

broken: list[type[BaseException]] = []
"""What every call of every client raises, if anything."""

connecting: ContextVar[bool] = ContextVar("connecting", default=False)
"""Whether this task makes a connection of asyncio's, whose errors are the client's own."""


def _read() -> None:
    for error in broken[:1]:
        if not connecting.get():
            raise error
    if coming := limits.get([]):
        raise coming.pop()


@contextmanager
def _no_limit() -> Iterator[None]:
    token = limits.set([])
    try:
        yield
    finally:
        limits.reset(token)


class Connection(redis.UnixDomainSocketConnection):
    """No answer is there yet when it is looked whether a connection is free for the next call."""

    def connect(self) -> None:
        with _no_limit():
            super().connect()

    def read_response(self, *args: Any, **options: Any) -> Any:
        _read()
        return super().read_response(*args, **options)

    def can_read(self, timeout: float = 0, **options: Any) -> bool:
        return bool(timeout) and super().can_read(timeout, **options)


class AsyncConnection(redis.asyncio.UnixDomainSocketConnection):
    """The same for asyncio, whose client makes another error of what is raised in a connect."""

    async def connect(self) -> None:
        token = connecting.set(True)
        try:
            with _no_limit():
                await super().connect()
        finally:
            connecting.reset(token)

    async def read_response(self, *args: Any, **options: Any) -> Any:
        _read()
        return await super().read_response(*args, **options)

    async def can_read(self) -> bool:
        return False

    can_read_destructive = can_read  # before redis-py 8


def client_at(socket: str, **settings: Any) -> Any:
    pool: Any = redis.ConnectionPool(connection_class=Connection, path=socket, **settings)
    return redis.Redis(connection_pool=pool)


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Any]:
    with client_at(str(redis_server.socket)) as found:
        yield found
    found.connection_pool.disconnect()


def async_client(server: RedisServer, **settings: Any) -> Any:
    path = str(server.socket)
    pool: Any = redis.asyncio.ConnectionPool(
        connection_class=AsyncConnection, path=path, **settings
    )
    return redis.asyncio.Redis.from_pool(pool)


@contextmanager
def limit() -> Iterator[None]:
    """The limit comes while the block waits for Redis, and comes out."""
    token = limits.set([SoftTimeLimit()])
    try:
        with pytest.raises(SoftTimeLimit):
            yield
    finally:
        limits.reset(token)


def run(work: Coroutine[Any, Any, None]) -> None:
    # Hundreds of calls.
    asyncio.run(asyncio.wait_for(work, 10 * PATIENCE))


# --- in the caller's thread ---------------------------------------------------------------------


def hold(node: RingNode, key: str) -> None:
    with node.hold(key):
        pass


QUESTIONS: dict[str, Callable[[RingNode], object]] = {
    "contains": lambda node: node.contains("a"),
    "select": lambda node: node.select(["a"]),
    "hold": lambda node: hold(node, "a"),
    "owner": lambda node: node.owner("a"),
    "ring": lambda node: node.ring,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_to_a_node_lets_out_what_the_application_raises_in_it(
    client: Any, question: str
) -> None:
    with RingNode(client, "ring", lock=True, **CALM) as node:
        with limit():
            QUESTIONS[question](node)
        # Redis is not thought to be silent, and no answer is taken for that of another question.
        assert node.contains("b")
        assert node.owner("c") == node.name
        hold(node, "a")
        assert node.status.failures == 0


async def async_hold(node: AsyncRingNode, key: str) -> None:
    async with node.hold(key):
        pass


ASYNC_QUESTIONS: dict[str, Callable[[AsyncRingNode], Coroutine[Any, Any, object]]] = {
    "select": lambda node: node.select(["a"]),
    "hold": lambda node: async_hold(node, "a"),
    "fetch_owner": lambda node: node.fetch_owner("a"),
    "fetch_ring": lambda node: node.fetch_ring(),
}


@pytest.mark.parametrize("question", ASYNC_QUESTIONS)
def test_a_question_to_an_asyncio_node_lets_out_what_the_application_raises_in_it(
    redis_server: RedisServer, question: str
) -> None:
    async def check() -> None:
        async with (
            async_client(redis_server) as client,
            AsyncRingNode(client, "ring", lock=True, **CALM) as node,
        ):
            with limit():
                await ASYNC_QUESTIONS[question](node)
            assert await node.select(["b"]) == ["b"]
            assert await node.fetch_owner("c") == node.name
            await async_hold(node, "a")
            assert node.status.failures == 0

    run(check())


def test_a_question_to_a_group_lets_out_what_the_application_raises_in_it(client: Any) -> None:
    with PartitionGroup(client, "group", 4) as group:
        with limit():
            group.status()
        assert group.status().partitions == 4


def test_a_question_to_an_asyncio_group_lets_out_what_the_application_raises_in_it(
    redis_server: RedisServer,
) -> None:
    async def check() -> None:
        async with (
            async_client(redis_server) as client,
            AsyncPartitionGroup(client, "group", 4) as group,
        ):
            with limit():
                await group.status()
            assert (await group.status()).partitions == 4

    run(check())


def test_a_fenced_write_lets_out_what_the_application_raises_in_it(client: Any) -> None:
    with limit():
        RedisFence(client).write("{a}", 1, ["SET", "{a}:x", "1"])


def test_an_asyncio_fenced_write_lets_out_what_the_application_raises_in_it(
    redis_server: RedisServer,
) -> None:
    async def check() -> None:
        async with async_client(redis_server) as client:
            with limit():
                await AsyncRedisFence(client).write("{a}", 1, ["SET", "{a}:x", "1"])

    run(check())


def test_poll_lets_out_what_the_application_raises_in_a_call_of_its_loop(client: Any) -> None:
    node = RingNode(client, "ring", **SOON)
    with limit():
        node.poll()
    assert node.state is NodeState.STOPPED


# --- at any line of the client ------------------------------------------------------------------

CLIENT = (str(Path(redis.__file__).parent), connections_in_step.__file__)

# A signal handler may raise what a client raises, too.
ERRORS = [SoftTimeLimit, OSError, ValueError, TimeoutError]


class Raiser:
    """Raises before the given line of the client's, or the next where it can."""

    def __init__(self, line: int, error: type[BaseException]) -> None:
        self.left = line
        self.error = error
        self.raised = False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(CLIENT):
            return None
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # Python looks for no signal at the end of `with`, nor between `try:` and what it guards.
        looks = not text.startswith(("async with ", "with ", "try:"))
        if event == "line" and looks and not self.raised:
            self.left -= 1
            if self.left <= 0 and not in_finalizer(frame):
                self.raised = True
                raise self.error
        return self


def lines(error: type[BaseException], every: int = 1) -> Iterator[Raiser]:
    """For each line of a call one that raises there; the call must be over when they are.

    Args:
        every: how many lines it is from one to the next.
    """
    line, before = 1, sys.gettrace()
    while True:
        raiser = Raiser(line, error)
        sys.settrace(raiser)
        try:
            yield raiser
        finally:
            sys.settrace(before)
        if not raiser.raised:
            assert line > 20, "it was not the client's call that was interrupted"
            return
        line += every


ECHO = Script("tests", "echo", "return ARGV[1]", sha1(b"return ARGV[1]").hexdigest())


def echo(text: str) -> Command[bytes]:
    return Command(ECHO, (b"{ring}:x",), (text,), bytes)


def check_each_line(client: Any, error: type[Exception]) -> None:
    store = RedisStore(client, PATIENCE)
    assert store.run(echo("first")) == b"first"
    for number, raiser in enumerate(lines(error)):
        try:
            store.run(echo(f"left {number}"))
        except (error, StoreError):
            assert raiser.raised
        finally:
            sys.settrace(None)
        assert store.run(echo(f"next {number}")) == b"next %d" % number


@pytest.mark.parametrize("error", ERRORS)
def test_whatever_line_of_the_client_is_left_the_next_call_gets_its_own_answer(
    client: Any, error: type[Exception]
) -> None:
    check_each_line(client, error)


def check_another_thread(
    client: Any, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    store, release, caller = RedisStore(client, PATIENCE), redis.ConnectionPool.release, get_ident()
    assert store.run(echo("first")) == b"first"
    with ThreadPoolExecutor(1) as thread:

        def released(pool: Any, connection: Any) -> None:
            release(pool, connection)
            if get_ident() == caller:
                # The connection is in the pool, and the call on it is not over.
                other = thread.submit(store.run, echo("other"))
                assert other.result(PATIENCE) == b"other"

        monkeypatch.setattr(redis.ConnectionPool, "release", released)
        for raiser in lines(error):
            try:
                store.run(echo("left"))
            except error:
                assert raiser.raised
            finally:
                sys.settrace(None)


def test_whatever_line_of_the_client_is_left_another_thread_gets_its_own_answer(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_another_thread(client, SoftTimeLimit, monkeypatch)


def test_whatever_line_of_a_client_of_a_cluster_is_left_another_thread_gets_its_own_answer(
    cluster: list[RedisServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    # No answer is there yet, as in Connection.
    monkeypatch.setattr(redis.Connection, "can_read", lambda *_, **__: False)
    with redis.RedisCluster.from_url(cluster[0].url) as client:
        # After an error of any other kind, this client disconnects by itself.
        check_another_thread(client, Interrupt, monkeypatch)


async def check_each_asyncio_line(client: Any, error: type[Exception]) -> None:
    store = AsyncRedisStore(client, PATIENCE)
    assert await store.run(echo("first")) == b"first"
    for number, raiser in enumerate(lines(error)):
        try:
            await store.run(echo(f"left {number}"))
        except (error, StoreError):
            assert raiser.raised
        finally:
            sys.settrace(None)
        assert await store.run(echo(f"next {number}")) == b"next %d" % number
    await store.close()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("error", ERRORS)
def test_whatever_line_of_an_asyncio_client_is_left_the_next_call_gets_its_own_answer(
    redis_server: RedisServer, error: type[Exception]
) -> None:
    async def check() -> None:
        async with async_client(redis_server) as client:
            await check_each_asyncio_line(client, error)

    run(check())


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_whatever_line_of_an_asyncio_client_of_a_cluster_is_left_the_next_call_gets_its_answer(
    cluster: list[RedisServer],
) -> None:
    async def check() -> None:
        async with redis.asyncio.RedisCluster.from_url(cluster[0].url) as client:
            await check_each_asyncio_line(client, OSError)

    run(check())


COUNT = "return redis.call('DBSIZE')"
KEYS_THERE = Command(
    Script("tests", "count", COUNT, sha1(COUNT.encode()).hexdigest()), (b"{ring}:x",), (), int
)


def test_wherever_a_call_that_connects_is_left_the_next_is_in_its_database(
    redis_server: RedisServer, client: Any
) -> None:
    client.set("in the first database", 1)
    with client_at(str(redis_server.socket), db=1) as there:
        store = RedisStore(there, PATIENCE)
        store.run(KEYS_THERE)
        store.close()
        for raiser in lines(OSError, every=5):
            try:
                store.run(KEYS_THERE)
            except (OSError, StoreError):
                assert raiser.raised
            finally:
                sys.settrace(None)
            assert store.run(KEYS_THERE) == 0
            store.close()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
def test_wherever_an_asyncio_call_that_connects_is_left_the_next_is_in_its_database(
    redis_server: RedisServer, client: Any
) -> None:
    client.set("in the first database", 1)

    async def check() -> None:
        async with async_client(redis_server, db=1) as there:
            store = AsyncRedisStore(there, PATIENCE)
            await store.run(KEYS_THERE)
            await store.close()
            for raiser in lines(OSError, every=5):
                try:
                    await store.run(KEYS_THERE)
                except (OSError, StoreError):
                    assert raiser.raised
                finally:
                    sys.settrace(None)
                assert await store.run(KEYS_THERE) == 0
                await store.close()

    run(check())


# --- in the library's own threads and tasks -----------------------------------------------------


@contextmanager
def every_call_raises(error: type[BaseException]) -> Iterator[None]:
    broken.append(error)
    try:
        yield
    finally:
        broken.clear()


LIBRARIES = pytest.mark.parametrize("error", [NoCredentials, Panic])


@LIBRARIES
def test_a_loop_in_a_thread_goes_on_whatever_a_client_raises(
    client: Any, error: type[BaseException]
) -> None:
    with RingNode(client, "ring", **SOON) as node:
        with every_call_raises(error):
            eventually(lambda: error.__name__ in (node.status.last_error or ""), "it fails")
            failures = node.status.failures
            eventually(lambda: node.status.failures > failures, "it tries again")
        eventually(lambda: node.status.failing_for is None, "it beats again")
        assert node.contains("a")


@LIBRARIES
def test_a_loop_in_a_task_goes_on_whatever_a_client_raises(
    redis_server: RedisServer, error: type[BaseException]
) -> None:
    async def check() -> None:
        async with (
            async_client(redis_server) as client,
            AsyncRingNode(client, "ring", **SOON) as node,
        ):
            with every_call_raises(error):
                while error.__name__ not in (node.status.last_error or ""):
                    await asyncio.sleep(0.01)
                failures = node.status.failures
                while node.status.failures <= failures:
                    await asyncio.sleep(0.01)
            while node.status.failing_for is not None:
                await asyncio.sleep(0.01)
            assert node.contains("a")

    run(check())
