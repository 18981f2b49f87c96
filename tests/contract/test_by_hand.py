"""Nodes without a loop, by calls of ``heartbeat()``, ``update()``, ``stop()``."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import pytest
from redis import Redis

from hashring import NodeSuperseded, RedisUnavailable, RingNode
from hashring.core.hashing import RING_SIZE
from hashring.store.embedded_server import RedisServer
from hashring.store.ring.commands import Scoring, snapshot
from hashring.store.ring.key_names import ring_keys
from hashring.testing import MemoryStore
from tests.conftest import PATIENCE


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


class _Paused(MemoryStore):
    """A store in which the command of that number waits until it may go on."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.left = number
        self.entered, self.go_on = threading.Event(), threading.Event()

    def run(self, command: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            self.entered.set()
            self.go_on.wait(PATIENCE)
        return super().run(command)


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("second", ["heartbeat", "update", "remove", "stop", "start"])
@pytest.mark.parametrize("lock", [False, True])
def test_calls_by_hand_of_several_threads_are_made_one_after_the_other(
    number: int, second: str, lock: bool
) -> None:
    store = _Paused(number)
    node = RingNode(store, "hand", name="a", n_replicas=4, lock=lock)
    with ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(node.heartbeat)]
        assert store.entered.wait(PATIENCE)
        calls.append(threads.submit(getattr(node, second)))
        wait(calls[1:], timeout=0.2)  # in which it may do wrong
        store.go_on.set()
        for call in calls:
            call.result(PATIENCE)
    assert points_on_ring(store)["a"] == (0 if second in ("remove", "stop") else 4)
    node.stop()
    assert not points_on_ring(store)
