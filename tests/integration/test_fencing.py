"""A holder that was paused past its ttl wakes up and writes: refused."""

from __future__ import annotations

import asyncio
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring import (
    ConfigError,
    KeyTypeError,
    KeyValueError,
    PermissionDenied,
    RedisRefused,
    RingNode,
    StaleToken,
)
from hashring.fencing import AsyncRedisFence, Fence, RedisFence
from hashring.store.embedded_server import RedisServer
from tests.conftest import eventually

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
