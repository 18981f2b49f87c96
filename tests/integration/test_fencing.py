"""A holder that was paused past its ttl wakes up and writes: refused."""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from threading import Timer
from typing import Any

import pytest
from redis import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio import RedisCluster as AsyncRedisCluster
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from hashring import (
    ConfigError,
    KeyTypeError,
    KeyValueError,
    OutOfMemory,
    PermissionDenied,
    RedisRefused,
    RedisUnavailable,
    RingNode,
    StaleToken,
)
from hashring.fencing import AsyncRedisFence, Fence, RedisFence
from hashring.store.embedded_server import RedisServer
from tests.conftest import ROOT, eventually
from tests.proxy import Proxy

HOLDER = """
import sqlite3, sys
from redis import Redis
from hashring import RingNode, StaleToken
from hashring.fencing import RedisFence
from tests.integration.test_fencing import save

path, table = sys.argv[1:]
redis = Redis(unix_socket_path=path)
node = RingNode(redis, "paused", lock=True, ttl=3.0, heartbeat_interval=0.2)
node.start()
with node.hold("account-7") as lease:
    RedisFence(redis).write("{account-7}", lease.token, ["SET", "{account-7}:state", "first"])
    with sqlite3.connect(table) as database:
        save(database, 7, "first", lease.token)
    print("written", flush=True)
    sys.stdin.readline()  # paused here, for longer than the lock lasts
    refused = []
    try:
        RedisFence(redis).write("{account-7}", lease.token, ["SET", "{account-7}:state", "late"])
    except StaleToken:
        refused.append("redis")
    try:
        with sqlite3.connect(table) as database:
            save(database, 7, "late", lease.token)
    except StaleToken:
        refused.append("sql")
    print(*refused, flush=True)
node.stop()
"""


def save(database: sqlite3.Connection, account: int, state: str, token: int) -> None:
    """The pattern of docs/howto/fencing.rst."""
    done = database.execute(
        "UPDATE accounts SET state = ?, token = ? WHERE id = ? AND token <= ?",
        (state, token, account, token),
    )
    if done.rowcount == 0:
        row = database.execute("SELECT token FROM accounts WHERE id = ?", (account,)).fetchone()
        raise StaleToken(account, token, row[0])


def test_a_paused_holder_that_wakes_is_refused(redis_server: RedisServer, tmp_path: Path) -> None:
    table = tmp_path / "accounts.sqlite"
    with sqlite3.connect(table) as database:
        database.execute("CREATE TABLE accounts (id INTEGER, state TEXT, token INTEGER)")
        database.execute("INSERT INTO accounts VALUES (7, '', 0)")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(redis_server.socket), str(table)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert holder.stdin
    assert holder.stdout
    try:
        assert holder.stdout.readline() == "written\n"
        os.kill(holder.pid, signal.SIGSTOP)
        redis = Redis(unix_socket_path=str(redis_server.socket), decode_responses=True)
        with RingNode(redis, "paused", lock=True, ttl=60.0, heartbeat_interval=0.2) as node:
            eventually(lambda: node.contains("account-7"), "the other takes over")
            with node.hold("account-7") as lease:
                fence = RedisFence(redis)
                fence.write("{account-7}", lease.token, ["SET", "{account-7}:state", "second"])
                with sqlite3.connect(table) as database:
                    save(database, 7, "second", lease.token)
                os.kill(holder.pid, signal.SIGCONT)
                holder.stdin.write("\n")
                holder.stdin.flush()
                assert holder.stdout.readline() == "redis sql\n"
            assert redis.get("{account-7}:state") == "second"
        with sqlite3.connect(table) as database:
            assert database.execute("SELECT state FROM accounts").fetchone() == ("second",)
        holder.stdin.close()
        assert holder.wait(60) == 0
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()


def test_after_the_documented_deletion_of_a_ring_tokens_still_rise(
    redis_server: RedisServer,
) -> None:
    text = (ROOT / "docs" / "reference" / "redis-layout.rst").read_text()
    [pattern] = re.findall(r"--scan --pattern '(.*)' \|", text)
    [key] = re.findall(r"redis-cli DEL (.*)", text)
    with Redis(unix_socket_path=str(redis_server.socket)) as redis:
        tokens = []
        for _ in range(2):
            with RingNode(redis, "accounts", lock=True) as node, node.hold("key") as lease:
                tokens.append(lease.token)
            redis.delete(key, *redis.scan_iter(pattern))
            assert redis.keys("*accounts*") == []
    assert tokens[1] > tokens[0]


def test_all_commands_of_a_write_are_done_and_answered(redis_server: RedisServer) -> None:
    redis = Redis(unix_socket_path=str(redis_server.socket))
    answers = RedisFence(redis).write("{a}", 5, ["SET", "{a}:x", "1"], ["INCR", "{a}:x"])
    assert answers == [b"OK", 2]


def test_a_key_given_as_bytes_is_the_key_that_redis_is_told_of(redis_server: RedisServer) -> None:
    with Redis(unix_socket_path=str(redis_server.socket)) as admin:
        admin.execute_command("ACL SETUSER writer on >x resetkeys ~{a}:* +@all")
    with Redis(unix_socket_path=str(redis_server.socket), username="writer", password="x") as redis:
        fence = RedisFence(redis)
        assert fence.write("{a}", 5, ["SET", b"{a}:x", "1"]) == [b"OK"]
        assert fence.write("{a}", 5, ["INCR", "{a}:x"], keys=[b"{a}:x"]) == [2]
        with pytest.raises(PermissionDenied):
            fence.write("{a}", 5, ["SET", b"{b}:x", "1"])
        assert redis.get("{a}:fence") == b"5"
    with Redis(unix_socket_path=str(redis_server.socket)) as admin:
        admin.execute_command("ACL DELUSER writer")


def test_a_resource_as_bytes_is_the_same_as_its_text(redis_server: RedisServer) -> None:
    fence = RedisFence(Redis.from_url(redis_server.url))
    fence.write(b"{a}", 7, ["SET", "{a}:x", "1"])
    with pytest.raises(StaleToken):
        fence.write("{a}", 6, ["SET", "{a}:x", "2"])


@pytest.mark.parametrize(
    ("resource", "error"), [(None, KeyTypeError), (7, KeyTypeError), ("\udcff", KeyValueError)]
)
def test_what_names_no_resource_is_refused_before_anything_is_done(
    redis_server: RedisServer, resource: Any, error: type[Exception]
) -> None:
    redis = Redis.from_url(redis_server.url)
    with pytest.raises(error):
        RedisFence(redis).write(resource, 5, ["SET", "{a}:x", "1"])
    assert redis.keys("*") == []


@pytest.mark.parametrize("keys", ["account:state", b"account:state", 5])
def test_what_are_no_keys_is_refused_before_anything_is_done(
    redis_server: RedisServer, keys: Any
) -> None:
    with Redis.from_url(redis_server.url) as client:
        # The letters of a text would be its keys, in whatever slots.
        with pytest.raises(ConfigError, match=r"keys=.*give a sequence of keys: \['k'\]"):
            RedisFence(client).write("account", 5, ["SET", "account:state", "1"], keys=keys)
        assert client.keys("*") == []


def test_a_refused_write_does_nothing_and_names_both_tokens(redis_server: RedisServer) -> None:
    redis = Redis(unix_socket_path=str(redis_server.socket))
    fence = RedisFence(redis)
    fence.write("{a}", 1795256807726822, ["SET", "{a}:x", "new"])
    with pytest.raises(StaleToken, match="1795256807726821 refused: token 1795256807726822"):
        fence.write("{a}", 1795256807726821, ["SET", "{a}:x", "old"], ["SET", "{a}:y", "old"])
    assert redis.get("{a}:x") == b"new"
    assert redis.get("{a}:y") is None


@pytest.mark.parametrize("value", ["", "abc", "-3", "12.5", "1" + 24 * "0"])
def test_what_is_no_token_in_the_place_of_one_is_said_and_nothing_is_done(
    redis_server: RedisServer, value: str
) -> None:
    redis = Redis(unix_socket_path=str(redis_server.socket))
    redis.set("{a}:fence", value)
    with pytest.raises(RedisRefused, match="a}:fence is no fencing token"):
        RedisFence(redis).write("{a}", 5, ["SET", "{a}:x", "1"])
    assert (redis.get("{a}:fence"), redis.get("{a}:x")) == (value.encode(), None)


def test_writers_whose_clients_encode_otherwise_share_the_newest_token(
    redis_server: RedisServer,
) -> None:
    redis = Redis(unix_socket_path=str(redis_server.socket))
    other = Redis(unix_socket_path=str(redis_server.socket), encoding="latin-1")
    RedisFence(redis).write("{ä}", 5, ["SET", "x", "1"], keys=[])
    with pytest.raises(StaleToken):
        RedisFence(other).write("{ä}", 4, ["SET", "x", "2"], keys=[])


def test_tokens_are_compared_as_numbers(redis_server: RedisServer) -> None:
    fence = RedisFence(Redis(unix_socket_path=str(redis_server.socket)))
    fence.write("{a}", 9, ["SET", "{a}:x", "1"])
    fence.write("{a}", 10, ["SET", "{a}:x", "2"])
    with pytest.raises(StaleToken):
        fence.write("{a}", 9, ["SET", "{a}:x", "3"])


def test_a_forgotten_token_expires(redis_server: RedisServer) -> None:
    redis = Redis(unix_socket_path=str(redis_server.socket))
    RedisFence(redis, forget_after=100).write("{a}", 1, ["SET", "{a}:x", "1"])
    assert 0 < redis.ttl("{a}:fence") <= 100
    RedisFence(redis).write("{a}", 2, ["SET", "{a}:x", "1"])
    assert redis.ttl("{a}:fence") == -1


@pytest.mark.parametrize("token", [0, -1, True, "5", None, 1.5])
def test_what_is_no_token_is_refused_by_name(token: object) -> None:
    with pytest.raises(ConfigError, match="token="):
        Fence().admit("a", token)  # type: ignore[arg-type]


def test_a_fence_in_this_process_admits_the_newest_and_the_same() -> None:
    fence = Fence()
    fence.admit("a", 2)
    fence.admit("a", 2)
    fence.admit("b", 1)
    with pytest.raises(StaleToken) as caught:
        fence.admit("a", 1)
    assert (caught.value.resource, caught.value.token, caught.value.newest) == ("a", 1, 2)


def test_a_write_of_a_task_is_admitted_or_refused_alike(redis_server: RedisServer) -> None:
    async def run() -> None:
        async with AsyncRedis.from_url(redis_server.url) as redis:
            fence = AsyncRedisFence(redis, forget_after=100)
            answers = await fence.write("{a}", 5, ["SET", "{a}:x", "1"], ["INCR", "{a}:x"])
            assert answers == [b"OK", 2]
            with pytest.raises(StaleToken, match="4 refused: token 5"):
                await fence.write("{a}", 4, ["SET", "{a}:x", "late"])
            assert await redis.get("{a}:x") == b"2"
            with pytest.raises(RedisRefused, match=r"fenced write to '\{a\}'"):
                await fence.write("{a}", 6, ["NO-SUCH-COMMAND", "{a}:x"])

    asyncio.run(run())


def test_a_fence_of_the_other_kind_of_client_is_refused_by_name(redis_server: RedisServer) -> None:
    with pytest.raises(ConfigError, match="is an asyncio client: use AsyncRedisFence"):
        RedisFence(AsyncRedis.from_url(redis_server.url))
    with pytest.raises(ConfigError, match="is not an asyncio client: use RedisFence"):
        AsyncRedisFence(Redis.from_url(redis_server.url))
    with pytest.raises(ConfigError):
        RedisFence("redis://localhost")


@pytest.mark.parametrize("seconds", [0, -1, True, 1.5, "5"])
def test_what_is_no_time_to_forget_after_is_refused(
    redis_server: RedisServer, seconds: object
) -> None:
    with pytest.raises(ConfigError, match="forget_after="):
        RedisFence(Redis.from_url(redis_server.url), forget_after=seconds)  # type: ignore[arg-type]


@pytest.mark.parametrize("command", ["SET x 1", b"SET", [], (), 5, None])
def test_what_is_no_command_is_refused_before_anything_is_done(
    redis_server: RedisServer, command: object
) -> None:
    redis = Redis.from_url(redis_server.url)
    with pytest.raises(ConfigError, match=r"give a sequence of words: \['SET', 'k', 'v'\]"):
        RedisFence(redis).write("{a}", 5, ["SET", "{a}:x", "1"], command)  # type: ignore[arg-type]
    assert redis.keys("*") == []


@pytest.mark.parametrize("word", [None, True, ["x"], object()])
def test_a_word_that_no_client_sends_is_the_callers_mistake(
    redis_server: RedisServer, word: Any
) -> None:
    with Redis.from_url(redis_server.url) as redis:
        fence = RedisFence(redis)
        wrong = r"Invalid input of type: '\w+'\. Convert to a bytes, string, int or float first"
        with pytest.raises(ConfigError, match=rf"^commands=.*: {wrong}"):
            fence.write("{a}", 5, ["SET", "{a}:x", word])
        with pytest.raises(ConfigError, match=rf"^commands, keys=.*: {wrong}"):
            fence.write("{a}", 5, ["SET", "{a}:x", "1"], keys=[word])
        assert redis.keys("*") == []


def test_asyncio_a_word_that_no_client_sends_is_the_callers_mistake(
    redis_server: RedisServer,
) -> None:
    async def write() -> None:
        async with AsyncRedis.from_url(redis_server.url) as redis:
            await AsyncRedisFence(redis).write("{a}", 5, ["SET", "{a}:x", None])  # type: ignore[list-item]

    with pytest.raises(ConfigError, match=r"^commands=.*: Invalid input of type: 'NoneType'"):
        asyncio.run(write())


# --- an answer that is lost ---------------------------------------------------------------------


@contextmanager
def cluster_behind_a_proxy() -> Iterator[tuple[Proxy, Redis]]:
    """A Redis Cluster of one server, which its clients know by the proxy's port; a way past it."""
    config = ["cluster-enabled yes"]
    with (
        RedisServer(port=0, config=config) as server,
        Redis.from_url(server.url) as admin,
        Proxy(("127.0.0.1", int(server.port or 0))) as proxy,
    ):
        admin.config_set("cluster-announce-port", proxy.port)
        admin.execute_command("CLUSTER ADDSLOTSRANGE", 0, 16383)
        eventually(
            lambda: (
                admin.execute_command("CLUSTER INFO")["cluster_state"] == "ok"
                and str(proxy.port) in str(admin.execute_command("CLUSTER SLOTS"))
            ),
            "it is up",
        )
        yield proxy, admin


@pytest.mark.parametrize("package", ["redis", "valkey"])
def test_a_write_whose_answer_is_lost_is_sent_once(redis_server: RedisServer, package: str) -> None:
    library = pytest.importorskip(package)
    kind = library.Redis if package == "redis" else library.Valkey
    retry = importlib.import_module(f"{package}.retry").Retry
    backoff = importlib.import_module(f"{package}.backoff").NoBackoff
    with (
        Proxy(redis_server.socket) as proxy,
        kind(
            port=proxy.port,
            socket_timeout=0.5,
            retry=retry(backoff(), 10),
            retry_on_error=[library.TimeoutError, library.ConnectionError],
        ) as client,
    ):
        fence = RedisFence(client)
        assert fence.write("{a}", 5, ["INCR", "{a}:x"]) == [1]
        proxy.deafen()
        with pytest.raises(RedisUnavailable, match="it may have been done: check before"):
            fence.write("{a}", 5, ["INCR", "{a}:x"])
        assert client.get("{a}:x") == b"2"
        # For other commands the client repeats what its user told it to repeat.
        proxy.deafen()
        assert client.get("{a}:x") == b"2"


def test_a_write_whose_connection_breaks_is_sent_once(redis_server: RedisServer) -> None:
    with (
        Proxy(redis_server.socket) as proxy,
        Redis(port=proxy.port, retry=Retry(NoBackoff(), 10)) as client,
        Redis.from_url(redis_server.url) as admin,
        ThreadPoolExecutor() as threads,
    ):
        fence = RedisFence(client)
        assert fence.write("{a}", 5, ["INCR", "{a}:x"]) == [1]
        proxy.deafen()
        write = threads.submit(fence.write, "{a}", 5, ["INCR", "{a}:x"])
        eventually(lambda: admin.get("{a}:x") == b"2", "it is done")
        proxy.cut()
        with pytest.raises(RedisUnavailable, match="it may have been done: check before"):
            write.result(30)
        assert admin.get("{a}:x") == b"2"


@pytest.mark.parametrize("package", ["redis", "valkey"])
def test_a_write_of_a_task_whose_answer_is_lost_is_sent_once(
    redis_server: RedisServer, package: str
) -> None:
    library = pytest.importorskip(package)
    asynchronous = importlib.import_module(f"{package}.asyncio")
    kind = asynchronous.Redis if package == "redis" else asynchronous.Valkey

    async def run(proxy: Proxy) -> None:
        retry = importlib.import_module(f"{package}.asyncio.retry").Retry
        backoff = importlib.import_module(f"{package}.backoff").NoBackoff
        async with kind(
            port=proxy.port,
            socket_timeout=0.5,
            retry=retry(backoff(), 10),
            retry_on_error=[library.TimeoutError, library.ConnectionError],
        ) as client:
            fence = AsyncRedisFence(client)
            assert await fence.write("{a}", 5, ["INCR", "{a}:x"]) == [1]
            proxy.deafen()
            with pytest.raises(RedisUnavailable, match="it may have been done"):
                await fence.write("{a}", 5, ["INCR", "{a}:x"])
            assert await client.get("{a}:x") == b"2"
            proxy.deafen()
            assert await client.get("{a}:x") == b"2"

    with Proxy(redis_server.socket) as proxy:
        asyncio.run(run(proxy))


@pytest.mark.parametrize("package", ["redis", "valkey"])
def test_a_connection_that_ended_before_a_write_is_replaced(
    redis_server: RedisServer, package: str
) -> None:
    name = package.capitalize()
    asynchronous = importlib.import_module(f"{package}.asyncio")

    async def run(proxy: Proxy) -> None:
        async with getattr(asynchronous, name)(port=proxy.port) as client:
            fence = AsyncRedisFence(client)
            assert await fence.write("{b}", 5, ["INCR", "{b}:x"]) == [1]
            proxy.cut()
            for _ in range(10):
                await asyncio.sleep(0)  # The loop reads the end of the connection.
            assert await fence.write("{b}", 5, ["INCR", "{b}:x"]) == [2]

    with Proxy(redis_server.socket) as proxy:
        with getattr(pytest.importorskip(package), name)(port=proxy.port) as client:
            fence = RedisFence(client)
            assert fence.write("{a}", 5, ["INCR", "{a}:x"]) == [1]
            proxy.cut()
            assert fence.write("{a}", 5, ["INCR", "{a}:x"]) == [2]
        asyncio.run(run(proxy))


@pytest.mark.parametrize("package", ["redis", "valkey"])
@pytest.mark.one_server
def test_a_write_to_a_cluster_whose_answer_is_lost_is_sent_once(package: str) -> None:
    library = pytest.importorskip(package)
    name = "RedisCluster" if package == "redis" else "ValkeyCluster"
    asynchronous = importlib.import_module(f"{package}.asyncio")

    async def run(proxy: Proxy) -> None:
        async with getattr(asynchronous, name)(
            host="127.0.0.1", port=proxy.port, socket_timeout=0.5
        ) as client:
            fence = AsyncRedisFence(client)
            assert await fence.write("{b}", 5, ["INCR", "{b}:x"]) == [1]
            proxy.deafen()
            with pytest.raises(RedisUnavailable, match="it may have been done"):
                await fence.write("{b}", 5, ["INCR", "{b}:x"])

    with cluster_behind_a_proxy() as (proxy, admin):
        with getattr(library, name)(
            host="127.0.0.1", port=proxy.port, socket_timeout=0.5
        ) as client:
            fence = RedisFence(client)
            assert fence.write("{a}", 5, ["INCR", "{a}:x"]) == [1]
            proxy.deafen()
            with pytest.raises(RedisUnavailable, match="it may have been done"):
                fence.write("{a}", 5, ["INCR", "{a}:x"])
            assert admin.get("{a}:x") == b"2"
        asyncio.run(run(proxy))
        assert admin.get("{b}:x") == b"2"


@pytest.mark.one_server
def test_a_write_under_sentinel_whose_answer_is_lost_is_sent_once() -> None:
    with (
        RedisServer(port=0) as server,
        Proxy(("127.0.0.1", int(server.port or 0))) as proxy,
        RedisServer(port=0, config=[f"sentinel monitor ours 127.0.0.1 {proxy.port} 1"]) as sentinel,
        Redis.from_url(server.url) as admin,
    ):
        finder = Sentinel([("127.0.0.1", sentinel.port)], socket_timeout=5)
        client = finder.master_for("ours", socket_timeout=0.5, retry=Retry(NoBackoff(), 10))
        fence = RedisFence(client)
        assert fence.write("{a}", 5, ["INCR", "{a}:x"]) == [1]
        proxy.deafen()
        with pytest.raises(RedisUnavailable, match="it may have been done"):
            fence.write("{a}", 5, ["INCR", "{a}:x"])
        assert fence.write("{a}", 5, ["GET", "{a}:x"]) == [b"2"]
        assert admin.get("{a}:x") == b"2"
        client.close()
        for each in finder.sentinels:
            each.close()


def test_a_write_that_was_refused_or_not_sent_is_not_called_perhaps_done(
    redis_server: RedisServer,
) -> None:
    with Redis.from_url(redis_server.url) as redis:
        redis.config_set("maxmemory", 1)
        try:
            with pytest.raises(OutOfMemory) as refused:
                RedisFence(redis).write("{a}", 5, ["SET", "{a}:x", "1"])
        finally:
            redis.config_set("maxmemory", 0)
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        fence = RedisFence(Redis(port=deaf.getsockname()[1], retry=Retry(NoBackoff(), 0)))
        with pytest.raises(RedisUnavailable) as unmet:
            fence.write("{a}", 5, ["SET", "{a}:x", "1"])
    assert "may have been done" not in f"{refused.value} {unmet.value}"


@pytest.mark.parametrize("pool", ["ConnectionPool", "BlockingConnectionPool"])
@pytest.mark.parametrize("package", ["redis", "valkey"])
def test_a_write_without_a_free_connection_is_not_called_perhaps_done(
    redis_server: RedisServer, package: str, pool: str
) -> None:
    library = pytest.importorskip(package)
    asynchronous = importlib.import_module(f"{package}.asyncio")
    name, write = package.capitalize(), ("{a}", 5, ["SET", "{a}:x", "1"])
    settings: dict[str, Any] = {"max_connections": 1}
    if pool.startswith("Blocking"):
        settings["timeout"] = 0.01
    full = pytest.raises(RedisUnavailable, match=r"raise its max_connections$")

    async def run() -> None:
        connections = getattr(asynchronous, pool).from_url(redis_server.url, **settings)
        client = getattr(asynchronous, name)(connection_pool=connections)
        async with client, client.pubsub() as pubsub:
            await pubsub.subscribe("takes the only one")
            with full:
                await AsyncRedisFence(client).write(*write)
        await connections.disconnect()

    connections = getattr(library, pool).from_url(redis_server.url, **settings)
    client = getattr(library, name)(connection_pool=connections)
    with client, client.pubsub() as pubsub:
        pubsub.subscribe("takes the only one")
        with full:
            RedisFence(client).write(*write)
    connections.disconnect()
    asyncio.run(run())


class SoftTimeLimit(Exception):
    """Raised by a signal handler of the application's."""


@pytest.mark.one_server
def test_a_write_under_sentinel_that_a_signal_ends_leaves_no_answer_to_the_next_command() -> None:
    def handler(*_: object) -> None:
        raise SoftTimeLimit

    before = signal.signal(signal.SIGALRM, handler)
    with (
        RedisServer(port=0) as server,
        RedisServer(port=0, config=[f"sentinel monitor a 127.0.0.1 {server.port} 1"]) as sentinel,
    ):
        finder = Sentinel([("127.0.0.1", sentinel.port)], socket_timeout=5)
        client = finder.master_for("a", socket_timeout=60)
        fence = RedisFence(client)
        try:
            assert fence.write("{a}", 5, ["SET", "{a}:x", "1"]) == [b"OK"]
            os.kill(server.pid, signal.SIGSTOP)
            # The answer comes after the next command was sent.
            later = Timer(1.0, os.kill, (server.pid, signal.SIGCONT))
            later.start()
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(SoftTimeLimit):
                fence.write("{a}", 5, ["INCR", "{a}:n"])
            assert client.get("{a}:x") == b"1"
            later.join()
        finally:
            signal.signal(signal.SIGALRM, before)
            client.close()
            for each in finder.sentinels:
                each.close()


def test_a_write_finds_the_server_of_a_cluster_that_has_its_resource(
    cluster: list[RedisServer],
) -> None:
    resources = [f"{{{name}}}" for name in "abcdef"]

    async def run() -> None:
        async with AsyncRedisCluster.from_url(cluster[0].url) as client:
            fence = AsyncRedisFence(client)
            for resource in resources:
                assert await fence.write(resource, 6, ["INCR", f"{resource}:x"]) == [2]
                with pytest.raises(StaleToken):
                    await fence.write(resource, 5, ["INCR", f"{resource}:x"])

    with RedisCluster.from_url(cluster[0].url) as client:
        fence = RedisFence(client)
        for resource in resources:
            assert fence.write(resource, 5, ["INCR", f"{resource}:x"]) == [1]
            with pytest.raises(StaleToken):
                fence.write(resource, 4, ["INCR", f"{resource}:x"])
        # What the client knew of the slots is wrong: it is sent on, and the write is done once.
        slots = client.nodes_manager.slots_cache
        slots.update(dict(zip(slots, [slots[n] for n in reversed(list(slots))], strict=True)))
        for resource in resources:
            assert fence.write(resource, 5, ["INCR", f"{resource}:x"]) == [2]
            assert fence.write(resource, 5, ["DECR", f"{resource}:x"]) == [1]
    asyncio.run(run())


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_pipeline_is_refused_by_name(redis_server: RedisServer, asynchronous: bool) -> None:
    kind, fence = (AsyncRedis, AsyncRedisFence) if asynchronous else (Redis, RedisFence)
    pipeline: Any = kind.from_url(redis_server.url).pipeline()
    with pytest.raises(ConfigError, match="is a pipeline: pass the client"):
        fence(pipeline)


def test_a_pipeline_of_a_cluster_is_refused_by_name(cluster: list[RedisServer]) -> None:
    with (
        RedisCluster.from_url(cluster[0].url) as client,
        pytest.raises(ConfigError, match="is a pipeline: pass the client"),
    ):
        RedisFence(client.pipeline())

    async def run() -> None:
        async with AsyncRedisCluster.from_url(cluster[0].url) as client:
            with pytest.raises(ConfigError, match="redis="):
                AsyncRedisFence(client.pipeline())

    asyncio.run(run())


def test_answers_are_decoded_as_the_client_decodes(redis_server: RedisServer) -> None:
    with Redis.from_url(redis_server.url, decode_responses=True, encoding="latin-1") as redis:
        answers = RedisFence(redis).write("{a}", 5, ["SET", "{a}:x", "ä"], ["GET", "{a}:x"])
        assert answers == ["OK", "ä"]
    with Redis.from_url(redis_server.url) as redis:
        assert redis.get("{a}:x") == "ä".encode("latin-1")


def test_a_write_uses_a_connection_of_the_clients_pool(redis_server: RedisServer) -> None:
    pool = BlockingConnectionPool.from_url(redis_server.url, max_connections=1, timeout=5)
    with Redis(connection_pool=pool) as redis:
        for _ in range(3):
            assert RedisFence(redis).write("{a}", 5, ["SET", "{a}:x", "1"]) == [b"OK"]
            assert redis.get("{a}:x") == b"1"
    pool.disconnect()


def test_a_command_of_more_words_than_fit_is_refused_before_anything_is_done(
    redis_server: RedisServer,
) -> None:
    redis = Redis.from_url(redis_server.url)
    fence = RedisFence(redis)
    most = ["SADD", "{a}:s", *map(str, range(7_995))]
    assert fence.write("{a}", 5, ["SET", "{a}:x", "1"], most, most) == [b"OK", 7_995, 0]
    with pytest.raises(
        ConfigError, match=r"command=.*'SADD' and 7997 more words.*: a command has at most 7997"
    ):
        fence.write("{a}", 6, ["SET", "{a}:x", "2"], [*most, "one more"])
    assert (redis.get("{a}:x"), redis.get("{a}:fence")) == (b"1", b"5")


class Recorded(RedisFence):
    """Keeps its writes, so that a test can let them arrive a second time."""

    def __init__(self, redis: Any) -> None:
        super().__init__(redis)
        self.writes: list[tuple[Any, ...]] = []

    def write(self, *arguments: Any, **named: Any) -> list[Any]:
        self.writes.append(arguments)
        return super().write(*arguments, **named)


@pytest.mark.parametrize("decode_responses", [False, True])
def test_the_documented_payment_counts_once_however_often_and_late_it_arrives(
    redis_server: RedisServer, decode_responses: bool
) -> None:
    page = (ROOT / "docs/howto/fencing.rst").read_text()
    blocks = re.findall(r"\.\. code:: python\n\n((?:   .*\n|\n)+)", page)
    [block] = [dedent(block) for block in blocks if "payment-31" in block]
    with (
        Redis.from_url(redis_server.url, decode_responses=decode_responses) as redis,
        RingNode(redis, "accounts", lock=True) as node,
    ):
        fence = Recorded(redis)
        names: dict[str, Any] = {"redis": redis, "node": node, "RedisFence": lambda _: fence}

        def account() -> dict[Any, Any]:
            keys = [key for key in redis.keys("{account-7}:*") if "fence" not in str(key)]
            return {key: redis.dump(key) for key in keys}

        exec(block, names)
        late = list(fence.writes)
        exec(block.replace("payment-31", "payment-32"), names)
        paid = account()
        exec(block, names)
        assert account() == paid, "sent again"
        for write in late:
            RedisFence(redis).write(*write)
        assert account() == paid, "arrived late, under a token that is still the newest"
        assert names["balance"] == 20
