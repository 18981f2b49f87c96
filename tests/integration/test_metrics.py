"""The metrics of real nodes and members on a real Redis, as Prometheus reads them."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import weakref

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring import (
    AsyncPartitionGroup,
    AsyncRingNode,
    ConfigError,
    PartitionGroup,
    RingNode,
    lease_challenge,
)
from hashring.groups.faithful_challenge import faithful_challenge
from hashring.metrics import FleetCollector, RingReading, register, unregister
from hashring.store.embedded_server import RedisServer
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.ring_events import newest
from hashring.store.ring.snapshot import snapshot
from tests.conftest import ROOT, eventually

RING = "accounts"
# They beat often, and are not given up for a machine that is busy.
BRISK = {"ttl": 10.0, "heartbeat_interval": 0.2}

Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def read(registry: CollectorRegistry) -> Samples:
    found: Samples = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in found, key
            found[key] = sample.value
    return found


def nodes(registry: CollectorRegistry) -> set[str]:
    return {value for _, labels in read(registry) for key, value in labels if key == "node"}


def value(registry: CollectorRegistry, name: str, **labels: str) -> float | None:
    return read(registry).get((name, frozenset(labels.items())))


def test_a_running_node_has_its_numbers(client: Redis, registry: CollectorRegistry) -> None:
    with (
        RingNode(client, RING, name="a", lock=True, limit=2, **BRISK) as node,
        RingNode(client, RING, name="b", **BRISK),
    ):
        register(node, registry)
        eventually(lambda: node.get_node_count() == 2, "they know each other")
        held = [key for key in map(str, range(1000)) if node.contains(key)]
        assert len(held) == 2
        of_a = {"ring": RING, "node": "a"}
        assert value(registry, "hashring_node_state", state="live", **of_a) == 1
        assert value(registry, "hashring_node_state", state="fenced", **of_a) == 0
        assert value(registry, "hashring_node_share_ratio", **of_a) == node.status.share
        assert value(registry, "hashring_node_peers", **of_a) == 1
        assert value(registry, "hashring_node_keys_held", **of_a) == 2
        assert value(registry, "hashring_node_keys_limit", **of_a) == 2
        assert value(registry, "hashring_node_ttl_seconds", **of_a) == 10
        assert value(registry, "hashring_node_changes_total", reason="start", **of_a) == 1
        duration = value(registry, "hashring_node_heartbeat_duration_seconds", **of_a)
        assert duration is not None
        assert 0 < duration < 60
        before = value(registry, "hashring_node_heartbeats_total", **of_a) or 0
        eventually(
            lambda: (value(registry, "hashring_node_heartbeats_total", **of_a) or 0) > before,
            "it beats on",
        )


def test_a_node_that_stopped_has_no_series(client: Redis, registry: CollectorRegistry) -> None:
    node = RingNode(client, RING, name="a", **BRISK)
    register(node, registry)
    assert nodes(registry) == set()
    node.start()
    assert nodes(registry) == {"a"}
    node.stop()
    assert nodes(registry) == set()
    node.start()
    assert nodes(registry) == {"a"}
    node.stop()


def test_a_node_that_is_unregistered_has_no_series(
    client: Redis, registry: CollectorRegistry
) -> None:
    with RingNode(client, RING, name="a", **BRISK) as node:
        register(node, registry)
        unregister(node, registry)
        unregister(node, registry)
        assert nodes(registry) == set()


def test_a_node_that_nobody_has_any_more_is_not_kept(
    client: Redis, registry: CollectorRegistry
) -> None:
    node = RingNode(client, RING, name="a", **BRISK)
    register(node, registry)
    node.start()
    node.stop()
    kept = weakref.ref(node)
    del node
    # The thread that ran it may be about to end.
    eventually(lambda: gc.collect() >= 0 and kept() is None, "nothing keeps it")
    assert nodes(registry) == set()


def test_many_nodes_share_a_registry_and_each_series_is_there_once(
    client: Redis, registry: CollectorRegistry
) -> None:
    with (
        RingNode(client, RING, name="a", **BRISK) as first,
        RingNode(client, RING, name="b", **BRISK) as second,
        RingNode(client, "another", name="a", **BRISK) as third,
    ):
        for node in (first, second, third, first):
            register(node, registry)
        assert nodes(registry) == {"a", "b"}
        states = [name for name, _ in read(registry) if name == "hashring_node_epoch"]
        assert len(states) == 3


def test_nodes_that_a_subclass_calls_equal_are_all_shown(
    client: Redis, registry: CollectorRegistry
) -> None:
    class Equal(RingNode):
        def __eq__(self, other: object) -> bool:
            return isinstance(other, Equal)

        __hash__ = None  # type: ignore[assignment]

    with Equal(client, RING, name="a", **BRISK) as a, Equal(client, RING, name="b", **BRISK) as b:
        register(a, registry)
        register(b, registry)
        assert nodes(registry) == {"a", "b"}
        unregister(b, registry)
        assert nodes(registry) == {"a"}


def test_of_two_objects_with_one_name_the_last_is_shown(
    client: Redis, registry: CollectorRegistry
) -> None:
    first = RingNode(client, RING, name="a", **BRISK)
    register(first, registry)
    first.start()
    second = RingNode(client, RING, name="a", **BRISK)
    register(second, registry)
    second.start()
    eventually(lambda: first.status.state.value == "superseded", "the second has the name")
    assert value(registry, "hashring_node_state", ring=RING, node="a", state="live") == 1
    second.stop()
    # The first ended against its will, so it is still shown.
    assert value(registry, "hashring_node_state", ring=RING, node="a", state="superseded") == 1
    first.stop()


def test_a_node_without_redis_says_so(registry: CollectorRegistry) -> None:
    with RedisServer() as server, Redis.from_url(server.url) as client:
        node = RingNode(client, RING, name="a", ttl=1.0, heartbeat_interval=0.2)
        node.start()
        register(node, registry)
        server.stop()
        of_a = {"ring": RING, "node": "a"}
        eventually(
            lambda: value(registry, "hashring_node_state", state="fenced", **of_a) == 1, "fenced"
        )
        assert (value(registry, "hashring_node_failing_seconds", **of_a) or 0) > 0
        assert (value(registry, "hashring_node_failures_total", **of_a) or 0) > 0
        assert value(registry, "hashring_node_fences_total", **of_a) == 1
        assert value(registry, "hashring_node_share_ratio", **of_a) == 0
        node.stop()


def test_an_asyncio_node_has_its_numbers(
    redis_server: RedisServer, registry: CollectorRegistry
) -> None:
    async def run() -> None:
        async with (
            AsyncRedis.from_url(redis_server.url) as client,
            AsyncRingNode(client, RING, name="a", **BRISK) as node,
        ):
            register(node, registry)
            assert value(registry, "hashring_node_share_ratio", ring=RING, node="a") == 1
        assert nodes(registry) == set()

    asyncio.run(run())


def test_a_member_has_its_numbers_while_it_runs(client: Redis, registry: CollectorRegistry) -> None:
    group = PartitionGroup(client, "orders", 8, member="m", rebalance_delay=0.0)
    register(group, registry)
    assert not read(registry)
    of_m = {"group": "orders", "member": "m"}
    with group:
        eventually(
            lambda: value(registry, "hashring_member_partitions_held", **of_m) == 8, "it has all"
        )
        assert value(registry, "hashring_member_partitions", **of_m) == 8
        assert value(registry, "hashring_member_failing", **of_m) == 0
    assert not read(registry)


def test_an_asyncio_member_has_its_numbers(
    redis_server: RedisServer, registry: CollectorRegistry
) -> None:
    async def run() -> None:
        async with AsyncRedis.from_url(redis_server.url) as client:
            group = AsyncPartitionGroup(client, "orders", 8, member="m", rebalance_delay=0.0)
            register(group, registry)
            async with group:
                of_m = {"group": "orders", "member": "m"}
                assert value(registry, "hashring_member_partitions", **of_m) == 8
            assert not read(registry)

    asyncio.run(run())


def test_a_forked_child_does_not_show_the_nodes_of_its_parent(
    client: Redis, registry: CollectorRegistry
) -> None:
    with (
        RingNode(client, RING, name="a", **BRISK) as node,
        PartitionGroup(client, "orders", 8, member="m") as group,
    ):
        register(node, registry)
        register(group, registry)
        assert read(registry)
        pid = os.fork()
        if pid == 0:
            os._exit(0 if not read(registry) else 1)
        assert os.waitpid(pid, 0)[1] == 0


def test_members_whose_group_has_its_name_as_bytes_are_shown_by_its_text(
    client: Redis, registry: CollectorRegistry
) -> None:
    with (
        PartitionGroup(client, "bücher".encode(), 8, member="m") as group,
        lease_challenge(client, b"work", 4, member="m") as lease,
        faithful_challenge(client, b"race", 4, member="m") as faithful,
    ):
        for member in (group, lease, faithful):
            register(member, registry)
        shown = {value for _, labels in read(registry) for key, value in labels if key == "group"}
    assert shown == {"bücher", "work", "race"}


def test_only_nodes_and_members_can_be_registered(registry: CollectorRegistry) -> None:
    with pytest.raises(ConfigError, match="give a node or a member: a RingNode, a PartitionGroup"):
        register("node", registry)  # type: ignore[arg-type]


def test_a_service_that_reads_a_ring_has_its_numbers(client: Redis) -> None:
    collector = FleetCollector()
    registry = CollectorRegistry()
    registry.register(collector)
    store, keys = RedisStore(client, 5.0), ring_keys(RING)
    scoring = Scoring.expiry(0.0)

    def look() -> None:
        seen = store.run(snapshot(keys, scoring=scoring))
        events = newest(store, keys, 100)
        collector.saw_ring(RingReading.of(RING, seen, events, scoring))

    def is_left(name: str) -> bool:
        look()
        return value(registry, "hashring_ring_node_up", ring=RING, node=name) is None

    look()
    with RingNode(client, RING, name="a", **BRISK) as node:
        program = (
            "import sys, time; from redis import Redis; from hashring import RingNode\n"
            f"RingNode(Redis.from_url(sys.argv[1]), {RING!r}, name='b', ttl=3.0,"
            "heartbeat_interval=0.2).start(); print(flush=True); time.sleep(600)"
        )
        other = subprocess.Popen(
            [sys.executable, "-c", program, client_url(client)], cwd=ROOT, stdout=subprocess.PIPE
        )
        try:
            assert other.stdout is not None
            other.stdout.readline()
            eventually(lambda: not is_left("b") and node.get_node_count() == 2, "both see it")
            shares = [
                value(registry, "hashring_ring_node_share_ratio", ring=RING, node=name) or 0.0
                for name in "ab"
            ]
            assert shares == [node.ring.share("a"), node.ring.share("b")]
        finally:
            other.kill()
            other.communicate()
        eventually(lambda: is_left("b"), "it is taken over")
    look()
    assert value(registry, "hashring_ring_takeover_seconds_count", ring=RING) == 1
    assert value(registry, "hashring_ring_changes_total", ring=RING, reason="expired") == 1
    assert value(registry, "hashring_ring_changes_total", ring=RING, reason="start") == 2
    assert value(registry, "hashring_ring_nodes", ring=RING, state="live") == 0
    store.close()


@pytest.mark.parametrize("metric", ["zone_nodes", "nodes_without_locks"])
def test_nodes_that_are_drained_or_away_do_not_count_among_the_live(
    client: Redis, registry: CollectorRegistry, metric: str
) -> None:
    collector = FleetCollector()
    registry.register(collector)
    scoring = Scoring.expiry(0.0)
    one = RingNode(client, RING, name="locks", lock=True)
    others = [RingNode(client, RING, name=name, zone="z") for name in ("live", "drained", "away")]
    with one, others[0], others[1]:
        others[1].drain()
        others[2].start()
        others[2].stop(stay=True)
        store = RedisStore(client, 5.0)
        seen = store.run(snapshot(ring_keys(RING), scoring=scoring))
        store.close()
        collector.saw_ring(RingReading.of(RING, seen, [], scoring))
    zone = {"zone": "z"} if metric == "zone_nodes" else {}
    assert value(registry, f"hashring_ring_{metric}", ring=RING, **zone) == 1


def client_url(client: Redis) -> str:
    return f"unix://{client.connection_pool.connection_kwargs['path']}"
