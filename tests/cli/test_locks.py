"""``hashring locks`` and ``hashring release``."""

from __future__ import annotations

import json

import pytest
from redis import Redis

from hashring import RingNode
from hashring.store.embedded_server import RedisServer
from tests.cli.conftest import SESSION, Run
from tests.conftest import eventually


def test_locks_are_listed_with_holder_and_limit(redis_server: RedisServer, run: Run) -> None:
    redis = Redis.from_url(redis_server.url)
    with RingNode(redis, "r*[1]", name="worker", lock=True, limit=2) as node:
        assert len(node.select(["a", "b", "c"])) == 2
        told = json.loads(run("locks", "--ring", "r*[1]", "--json").out)
        assert [lock["key"] for lock in told["locks"]] == ["a", "b"]
        assert {lock["node"] for lock in told["locks"]} == {"worker"}
        assert all(0 < lock["ttl"] <= 60 for lock in told["locks"])
        assert told["nodes"] == {"worker": {"held": 2, "limit": 2}}
        text = run("locks", "--ring", "r*[1]").out
        assert text.endswith("2 locks\n")
    assert run("locks", "--ring", "r*[1]").out == "no locks on ring 'r*[1]'\n"


@pytest.mark.parametrize("limit", ["1e999", "NaN", '"\\u001b[31m"', "[1]", "-3"])
def test_a_limit_that_is_none_is_not_listed(client: Redis, run: Run, limit: str) -> None:
    with RingNode(client, "ring", name="worker", lock=True) as node:
        assert node.contains("a")
        entry = client.hget("{ring}:nodes", "worker")[: len(SESSION)] + b'{"limit":%s}'
        client.hset("{ring}:nodes", "worker", entry % limit.encode())
        told = json.loads(run("locks", "--json").out, parse_constant=pytest.fail)
        assert told["nodes"] == {"worker": {"held": 1, "limit": None}}
        assert "   1      -  worker" in run("locks").lines


def test_release_takes_the_lock_away_and_says_who_did(redis_server: RedisServer, run: Run) -> None:
    redis = Redis.from_url(redis_server.url)
    with (
        RingNode(redis, "r", lock=True, ttl=60, heartbeat_interval=0.2) as node,
        node.hold("account-7") as lease,
    ):
        done = run("release", "account-7", "--ring", "r", "--yes")
        assert done.out == "released 'account-7' of ring 'r'\n"
        eventually(lease.lost.is_set, "the holder learns of it")
        event = json.loads(run("events", "--ring", "r", "--json").out.splitlines()[-1])
        assert event["kind"] == "release"
        assert event["by"].startswith("hashring release on ")


def test_a_key_of_any_bytes_is_listed_and_can_be_released(
    redis_server: RedisServer, run: Run
) -> None:
    redis = Redis.from_url(redis_server.url)
    key = b"\xff \xc3\xbc"
    with RingNode(redis, "r", lock=True) as node:
        assert node.contains(key)
        (lock,) = run("locks", "--ring", "r", "--json").json["locks"]
        assert lock["key"] == "\\xff ü"
        # As the shell gives it, and Python reads it.
        typed = key.decode("utf-8", "surrogateescape")
        done = run("release", typed, "--ring", "r", "--yes", "--json")
        assert done.json == {"ring": "r", "key": "\\xff ü", "released": True}
    assert run("release", typed, "--ring", "r", status=1).out == (
        "nobody holds '\\xff ü' of ring 'r'\n"
    )


def test_release_of_a_key_that_nobody_holds_changes_nothing(
    redis_server: RedisServer, run: Run
) -> None:
    done = run("release", "account-7", "--ring", "r", "--yes", status=1)
    assert done.out == "nobody holds 'account-7' of ring 'r'\n"


def test_release_asks_and_without_anybody_to_answer_refuses(
    redis_server: RedisServer, run: Run
) -> None:
    redis = Redis.from_url(redis_server.url)
    with RingNode(redis, "r", lock=True) as node, node.hold("account-7") as lease:
        done = run("release", "account-7", "--ring", "r", status=2)
        assert "give --yes" in done.err
        lease.check()
        assert redis.exists("{r}:lock:account-7")


def test_what_no_node_wrote_in_a_lock_is_shown_as_such_and_can_be_taken_away(
    redis_server: RedisServer, run: Run
) -> None:
    redis = Redis.from_url(redis_server.url)
    redis.set("{r}:lock:text", "garbage")
    redis.hset("{r}:lock:hash", "a", "b")
    with RingNode(redis, "r", lock=True) as node:
        assert node.select(["text", "hash", "own"]) == ["own"]
        rows = [line.split() for line in run("locks", "--ring", "r").out.splitlines()]
        assert ["0", "-", "-", "?", "-", "text"] in rows
        for key in ("text", "hash"):
            done = run("release", key, "--ring", "r", "--yes")
            assert done.out == f"released '{key}' of ring 'r'\n"
            assert "was written by no node, and keeps all of them out" in done.err
        run("release", "text", "--ring", "r", "--yes", status=1)
