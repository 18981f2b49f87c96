"""Nodes without a loop, by calls of ``heartbeat()``, ``update()``, ``stop()``."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
from redis import Redis

from hashring import NodeSuperseded, RedisUnavailable, RingNode
from hashring.core.hashing import RING_SIZE
from hashring.store.embedded_server import RedisServer
from hashring.store.ring.commands import Scoring, snapshot
from hashring.store.ring.key_names import ring_keys
from hashring.testing import MemoryStore
from tests.conftest import eventually


def points_on_ring(store: MemoryStore) -> Counter[str]:
    seen = store.run(snapshot(ring_keys("hand"), scoring=Scoring.expiry(60.0)))
    return Counter(record.replica.node for record in seen.replicas)


@pytest.mark.parametrize("follow", [False, True])
def test_a_node_that_lost_its_name_does_not_come_back_by_a_heartbeat(follow: bool) -> None:
    store = MemoryStore()
    one, two = (RingNode(store, "hand", name="a", follow=follow) for _ in range(2))
    one.heartbeat()
    two.heartbeat()
    with pytest.raises(NodeSuperseded):
        one.heartbeat()
    two.stop()
    with pytest.raises(NodeSuperseded):
        one.heartbeat()
    assert not points_on_ring(store)


@pytest.mark.parametrize("follow", [False, True])
def test_a_heartbeat_renews_though_the_node_looks_where_to_have_more_points(follow: bool) -> None:
    store = MemoryStore()
    other = RingNode(store, "hand", name="b")
    other.heartbeat()
    node = RingNode(store, "hand", name="a", placement="balanced", n_replicas=4, follow=follow)
    node.heartbeat()
    node.weight = 3.0
    for _ in range(2):
        other.weight += 1  # The ring changes between any two heartbeats.
        other.heartbeat()
        began = time.monotonic()
        node.heartbeat()
        beaten = node.status.last_heartbeat
        assert beaten is not None
        assert beaten <= time.monotonic() - began
    assert points_on_ring(store)["a"] == 12


@pytest.mark.parametrize("name", [None, "a"])
@pytest.mark.parametrize("joined", [True, False])
def test_a_heartbeat_after_a_remove_that_failed_is_of_a_node_that_owns(
    name: str | None, joined: bool
) -> None:
    with RedisServer() as server:
        node = RingNode(Redis.from_url(server.url), "hand", name=name)
        if joined:
            node.heartbeat()
        server.kill()
        for call in (node.heartbeat, node.remove):
            with suppress(RedisUnavailable):
                call()
        server.start()
        node.heartbeat()
        assert sum(end - start for start, end in node.get_ranges()) == RING_SIZE
        node.stop()


@pytest.mark.parametrize("ran", [False, True])
@pytest.mark.parametrize(
    "ask",
    [
        lambda node: node.update(),
        lambda node: node.cleanup(),
        lambda node: node.ring,
        lambda node: node.debug_print(),
    ],
    ids=["update", "cleanup", "ring", "debug_print"],
)
def test_stop_closes_the_connections_of_a_node_that_was_only_asked(
    ask: Callable[[RingNode], object], ran: bool
) -> None:
    with RedisServer() as server, Redis.from_url(server.url) as looking:
        others = len(looking.client_list())
        node = RingNode(Redis.from_url(server.url), "hand")
        if ran:
            node.start()
            node.stop()
        ask(node)
        assert len(looking.client_list()) > others
        node.stop()
        eventually(lambda: len(looking.client_list()) == others, "nothing is connected any more")
