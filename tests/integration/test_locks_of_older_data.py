"""Redis restarts, or another server takes over: with all locks, or without the newest of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from redis import Redis

from hashring import RING_SIZE, RingNode
from hashring.store.embedded_server import RedisServer
from tests.conftest import eventually
from tests.integration.test_locks import RING, RING_KEYS, locks
from tests.proxy import Proxy

LONG = {"ttl": 120.0, "heartbeat_interval": 50.0, "lock": True}
CALM = {"ttl": 120.0, "heartbeat_interval": 0.2, "lock": True}
KEYS = [f"key-{number}" for number in range(60)]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def started(stack: ExitStack, *config: str) -> tuple[RedisServer, Redis]:
    server = stack.enter_context(RedisServer(port=0, config=config))
    return server, stack.enter_context(Redis(port=server.port))


def running(stack: ExitStack, client: Redis, name: str, **settings: Any) -> RingNode:
    return stack.enter_context(RingNode(client, RING, name=name, **settings))


def replicates(primary: RedisServer, replica: Redis) -> None:
    replica.replicaof("127.0.0.1", primary.port)

    def follows() -> bool:
        told = replica.info("replication")
        return told["role"] == "slave" and told["master_link_status"] == "up"

    eventually(follows, "the replica follows")


def end_of_waiting(client: Redis) -> None:
    """Let locks be taken from now on."""
    epoch, tag, began, _ = client.get(RING_KEYS.epoch).split()
    client.set(RING_KEYS.epoch, b" ".join((epoch, tag, began, b"0")))


def shares_nothing(holder: RingNode, other: RingNode) -> None:
    """The other takes no key that the holder, who is cut off, works on."""
    assert [key for key in KEYS if holder.contains(key)] == KEYS
    assert other.select(KEYS) == []
    eventually(lambda: 0 < other.status.held_off <= 120, "it has learnt of it")
    assert other.select(KEYS) == []


@pytest.mark.parametrize("known", [True, False], ids=["a node that was there", "a new node"])
def test_after_a_restart_from_an_older_snapshot_no_key_has_two_holders(
    stack: ExitStack, known: bool
) -> None:
    server, client = started(stack)
    proxy = stack.enter_context(Proxy(("127.0.0.1", server.port)))
    away = stack.enter_context(Redis.from_url(proxy.url))
    holder = running(stack, away, "holder", **LONG)
    if known:
        other = running(stack, client, "other", **LONG)
        eventually(lambda: "other" in holder.ring.nodes, "the holder has learnt of the other")
        other.select(KEYS[:1])
        # It has what is its own, and then the holder has all of it.
        other.stop()
        eventually(lambda: holder.get_ranges() == ((0, RING_SIZE),), "the holder has learnt of it")
    client.save()
    assert holder.select(KEYS) == KEYS
    proxy.black_hole()
    server.kill()
    server.start()
    assert locks(client) == {}
    if known:
        other.start()
    else:
        other = running(stack, client, "other", **LONG)
    shares_nothing(holder, other)
    proxy.heal()


def test_after_a_failover_to_a_replica_that_lagged_no_key_has_two_holders(
    stack: ExitStack,
) -> None:
    primary, first = started(stack, "repl-diskless-sync-delay 0")
    _, second = started(stack)
    proxy = stack.enter_context(Proxy(("127.0.0.1", primary.port)))
    away = stack.enter_context(Redis.from_url(proxy.url))
    replicates(primary, second)
    holder = running(stack, away, "holder", **LONG)
    eventually(lambda: second.exists(RING_KEYS.epoch), "the replica has the ring")
    second.replicaof("NO", "ONE")
    assert holder.select(KEYS) == KEYS
    assert len(locks(first)) == len(KEYS)
    proxy.black_hole()
    assert locks(second) == {}
    shares_nothing(holder, running(stack, second, "other", **LONG))
    proxy.heal()


def test_a_server_that_is_the_primary_again_is_another_one(stack: ExitStack) -> None:
    one, first = started(stack, "repl-diskless-sync-delay 0")
    two, second = started(stack, "repl-diskless-sync-delay 0")
    running(stack, first, "early", **LONG).stop()
    run = first.info("server")["run_id"]
    replicates(one, second)
    second.replicaof("NO", "ONE")
    replicates(two, first)
    proxy = stack.enter_context(Proxy(("127.0.0.1", two.port)))
    away = stack.enter_context(Redis.from_url(proxy.url))
    holder = running(stack, away, "holder", **LONG)
    end_of_waiting(second)
    holder.heartbeat()
    eventually(lambda: first.get(RING_KEYS.epoch) == second.get(RING_KEYS.epoch), "it follows")
    first.replicaof("NO", "ONE")
    assert holder.select(KEYS) == KEYS
    proxy.black_hole()
    assert first.info("server")["run_id"] == run
    shares_nothing(holder, running(stack, first, "other", **LONG))
    proxy.heal()


def test_a_restart_with_everything_saved_costs_a_wait_for_free_locks_alone(
    stack: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    server, client = started(stack, "save 3600 1")
    nodes = [running(stack, client, name, **CALM) for name in ("a", "b")]
    eventually(lambda: all(node.get_node_count() == 2 for node in nodes), "they are two")
    eventually(lambda: sum(len(node.select(KEYS[:40])) for node in nodes) == 40, "all are held")
    held = [node.select(KEYS[:40]) for node in nodes]
    lease = stack.enter_context(nodes[0].hold(held[0][0]))
    before, entries = locks(client), set(client.zrange(RING, 0, -1))
    server.restart()
    eventually(lambda: all(node.status.held_off > 0 for node in nodes), "both have learnt of it")
    assert [node.select(KEYS[:40]) for node in nodes] == held
    lease.check()
    assert locks(client) == before
    assert set(client.zrange(RING, 0, -1)) == entries
    assert [node.select(KEYS[40:]) for node in nodes] == [[], []]
    assert [node.status.losses for node in nodes] == [0, 0]
    assert "Redis restarted, or another server took over" in caplog.text
    end_of_waiting(client)
    eventually(lambda: sum(len(node.select(KEYS)) for node in nodes) == 60, "all are held")
    assert {key: locks(client)[key] for key in before} == before


def test_restarts_one_after_another_lose_no_lock(stack: ExitStack) -> None:
    server, client = started(stack, "save 3600 1")
    node = running(stack, client, "a", **CALM)
    assert node.select(KEYS) == KEYS
    before = locks(client)
    for _ in range(3):
        history = client.get(RING_KEYS.epoch)
        server.restart()
        eventually(lambda old=history: client.get(RING_KEYS.epoch) != old, "it has learnt of it")
        assert node.select(KEYS) == KEYS
    beats = node.status.heartbeats
    eventually(lambda: node.status.heartbeats > beats + 1, "its locks are renewed")
    assert node.select(KEYS) == KEYS
    assert locks(client) == before


def test_a_ring_without_locks_needs_no_info(stack: ExitStack) -> None:
    server, client = started(stack, "save 3600 1")
    client.execute_command("ACL", "SETUSER", "poor", "on", ">x", "~*", "&*", "+@all", "-info")
    poor = stack.enter_context(Redis(port=server.port, username="poor", password="x"))
    node = running(stack, poor, "a", ttl=120.0, heartbeat_interval=0.2)
    eventually(lambda: node.status.heartbeats > 3, "it beats")
    assert node.select(KEYS) == KEYS
    assert not client.exists(RING_KEYS.lock_server)
