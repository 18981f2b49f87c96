"""hashring forget: a ring whose nodes are gone is stopped, and no other ring."""

from __future__ import annotations

import pytest
from redis import Redis

from hashring.errors import RingNotEmpty
from hashring.store.embedded_server import RedisServer
from tests.cli.conftest import Run, nodes_on, put
from tests.cli.test_watch import terminal

pytestmark = pytest.mark.one_server


def test_a_ring_whose_nodes_expired_is_stopped_until_a_node_joins(client: Redis, run: Run) -> None:
    put(client, "gone", 5, 6, expires_in=-5)
    assert run("status", "--ring", "ring", status=2).lines[-1] == (
        "    to do: start its nodes, or forget the ring: hashring forget --ring ring"
    )
    done = run("forget", "--yes", "--by", "ada").out
    assert done == "ring was forgotten; a node that joins starts it again\n"
    assert not client.exists("ring")
    lines = run("status", "--ring", "ring", status=0).lines
    assert lines[2] == "stopped: ring ring"
    assert lines[3].startswith("  forgotten ")
    assert lines[3].endswith(" by ada")
    *_, event = run("events", "--json").json_lines
    assert (event["kind"], event["by"]) == ("forget", "ada")
    with nodes_on(client, "new", n_replicas=2):
        assert run("status", "--ring", "ring", status=0).lines[0].startswith("healthy")


def test_a_ring_with_a_live_node_is_left_as_it_is(client: Redis, run: Run) -> None:
    put(client, "gone", 5, expires_in=-5)
    with nodes_on(client, "alder", "birch", n_replicas=2):
        line = run("forget", "--yes", status=1).err
        assert line == f"hashring: {RingNotEmpty('ring', ['alder', 'birch'])}\n"
        assert "ring 'ring' has 2 live nodes: 'alder', 'birch'; it can be forgotten once" in line
        assert run("events", "--json").json_lines[-1]["kind"] == "join"
        run("drain", "alder")
        run("drain", "birch", "--force")
        assert "2 live nodes" in run("forget", "--yes", status=1).err


def test_an_entry_of_no_node_is_in_the_way(client: Redis, run: Run) -> None:
    client.zadd("ring", {"no replica": 4e9})
    assert run("forget", "--yes", status=1).err == (
        "hashring: ring 'ring' has entries that are no node's; hashring doctor shows them\n"
    )


def test_a_ring_that_never_was_cannot_be_forgotten(client: Redis, run: Run) -> None:
    assert run("forget", "--ring", "rign", "--yes", status=2).err == (
        "hashring: ring='rign': there is no such ring; hashring status shows those there are\n"
    )
    assert not client.exists("{rign}:events")


def test_a_node_that_joined_before_the_answer_keeps_the_ring(
    client: Redis, redis_server: RedisServer
) -> None:
    put(client, "gone", 5, 6, expires_in=-5)
    with terminal(redis_server.url, "forget") as screen:
        screen.shows("Forget ring 'ring'? [y/N]")
        with nodes_on(client, "new", n_replicas=2):
            screen.types("y")
            assert screen.ends() == 1
            assert "ring 'ring' has 1 live node: 'new'" in screen.text


def test_without_an_answer_nothing_is_changed(client: Redis, redis_server: RedisServer) -> None:
    put(client, "gone", 5, 6, expires_in=-5)
    with terminal(redis_server.url, "forget") as screen:
        screen.shows("Forget ring 'ring'? [y/N]")
        screen.types("n")
        assert screen.ends() == 1
    assert client.zcard("ring") == 2


def test_where_nobody_can_answer_yes_is_needed(client: Redis, run: Run) -> None:
    put(client, "gone", 5, 6, expires_in=-5)
    assert "nobody is there to confirm the forgetting of ring 'ring': give --yes" in (
        run("forget", status=2).err
    )
