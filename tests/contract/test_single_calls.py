"""Nodes without a loop, by calls of ``heartbeat()``, ``update()``, ``stop()``."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from typing import Any

import pytest
from redis import Redis

from hashring import EmptyRingError, NodeSuperseded, RedisUnavailable, RingNode
from hashring.core.hashing import RING_SIZE
from hashring.store.embedded_server import RedisServer
from hashring.store.interface import Subscription
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.snapshot import snapshot
from hashring.testing import ManualClock, MemoryServer, MemoryStore
from tests.conftest import PATIENCE, eventually


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
def test_a_heartbeat_finds_what_others_changed_since_the_one_before(follow: bool) -> None:
    store = MemoryStore()
    one, two = (RingNode(store, "hand", follow=follow) for _ in range(2))
    for node in (one, two, one):
        node.heartbeat()
    keys = [f"key-{number}" for number in range(200)]
    owners = Counter(key for node in (one, two) for key in node.select(keys))
    assert owners == Counter(keys)


class _Watched(MemoryStore):
    """A store that looks at what a node owns before each command."""

    def __init__(self) -> None:
        super().__init__()
        self.node: RingNode | None = None
        self.owned: list[bool] = []

    def run(self, command: Any) -> Any:
        if self.node is not None:
            self.owned.append(self.node.status.owns)
        return super().run(command)


@pytest.mark.parametrize("follow", [False, True])
def test_a_node_past_its_ttl_owns_nothing_until_it_has_read_what_happened_meanwhile(
    follow: bool,
) -> None:
    store = _Watched()
    node = RingNode(store, "hand", ttl=0.1, heartbeat_interval=0.05, follow=follow)
    other = RingNode(store, "hand")
    node.heartbeat()
    time.sleep(0.1)
    eventually(lambda: points_on_ring(store)[node.name] == 0 or other.cleanup(), "it has expired")
    other.heartbeat()
    store.node = node
    node.heartbeat()
    assert store.owned
    assert not any(store.owned)
    assert node.status.fences == 1


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("told", ["{", "{}", f'{{"started":{"9" * 400}}}'])
def test_a_node_takes_its_name_back_from_an_entry_that_no_process_wrote(
    redis: Redis, follow: bool, told: str
) -> None:
    node = RingNode(redis, "hand", name="a", follow=follow)
    node.heartbeat()
    redis.hset("{hand}:nodes", "a", 16 * "f" + told)
    node.heartbeat()
    assert sum(end - start for start, end in node.get_ranges()) == RING_SIZE
    node.stop()


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


@pytest.mark.parametrize("follow", [False, True])
@pytest.mark.parametrize("end", [RingNode.stop, RingNode.remove])
def test_a_node_that_was_on_the_ring_before_it_was_lost_holds_everybody_off_when_it_is_back(
    end: Callable[[RingNode], None], follow: bool
) -> None:
    store = MemoryStore()
    holder, other = (RingNode(store, "hand", lock=True, follow=follow) for _ in range(2))
    holder.heartbeat()
    other.heartbeat()
    keys = [f"key-{number}" for number in range(50)]
    held = holder.select(keys)
    store.server.wipe()
    end(other)
    other.heartbeat()
    assert held
    assert other.select(keys) == []
    assert 0 < other.status.held_off <= other.ttl
    holder.heartbeat()
    assert holder.select(held)


def test_a_node_without_locks_that_is_back_first_after_a_loss_holds_everybody_off() -> None:
    store = MemoryStore()
    plain = RingNode(store, "hand")
    holder, newcomer = (RingNode(store, "hand", lock=True) for _ in range(2))
    for node in (plain, holder):
        node.heartbeat()
    keys = [f"key-{number}" for number in range(50)]
    held = holder.select(keys)
    store.server.wipe()
    plain.heartbeat()
    newcomer.heartbeat()
    assert held
    assert newcomer.select(keys) == []
    assert 0 < newcomer.status.held_off <= plain.ttl


def test_a_node_that_is_back_long_after_a_ring_was_begun_anew_holds_nobody_off() -> None:
    clock = ManualClock(1_700_000_000.0)
    store = MemoryStore(MemoryServer(clock))
    here, away = (RingNode(store, "hand", lock=True, ttl=60.0) for _ in range(2))
    for node in (here, away):
        node.heartbeat()
    away.stop()
    store.server.wipe()
    here.heartbeat()
    clock.advance(61.0)
    away.heartbeat()
    assert away.status.held_off == 0.0
    assert away.select(["a", "b", "c"]) == ["a", "b", "c"]


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


class _Deaf(MemoryStore):
    """A store without subscriptions."""

    def subscribe(self, *channels: bytes) -> Subscription:
        raise RedisUnavailable("nobody can subscribe")


@pytest.mark.parametrize("name", [None, "a"])
@pytest.mark.parametrize("follow", [False, True])
def test_a_start_that_fails_takes_the_node_of_earlier_heartbeats_off_the_ring(
    name: str | None, follow: bool
) -> None:
    store = _Deaf()
    node = RingNode(store, "hand", name=name, follow=follow)
    node.heartbeat()
    with pytest.raises(RedisUnavailable, match="nobody can subscribe"):
        node.start()
    assert not points_on_ring(store)


def test_a_start_that_fails_lets_go_of_the_locks_that_were_taken_by_hand() -> None:
    store = _Deaf()
    node = RingNode(store, "hand", name="a", lock=True)
    node.heartbeat()
    assert node.select(["b"]) == ["b"]
    with pytest.raises(RedisUnavailable):
        node.start()
    assert not store.server.locks(ring_keys("hand"))


def test_a_node_that_is_started_takes_anew_the_locks_that_it_took_by_hand() -> None:
    node = RingNode(MemoryStore(), "hand", name="a", lock=True, lock_ttl=10 * PATIENCE)
    node.heartbeat()
    assert node.select(["b"]) == ["b"]
    with node:
        eventually(lambda: node.select(["b"]) == ["b"], "the lock is the node's again")


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


def test_a_ring_whose_nodes_all_expired_has_no_owner() -> None:
    clock = ManualClock()
    store = MemoryStore(MemoryServer(clock))
    node, reader = (RingNode(store, "hand", name=name, ttl=60.0) for name in "ab")
    node.heartbeat()
    assert (reader.owner("k"), reader.ring.owner("k")) == ("a", "a")
    clock.advance(60.1)
    for ask in (reader.owner, reader.ring.owner):
        with pytest.raises(EmptyRingError):
            ask("k")


@pytest.mark.parametrize("follow", [False, True])
def test_a_running_node_that_is_removed_by_hand_comes_back_without_a_warning(
    redis: Redis, caplog: pytest.LogCaptureFixture, follow: bool
) -> None:
    node = RingNode(redis, "hand", name="a", follow=follow)
    with caplog.at_level("INFO"), node:
        node.remove()
        eventually(lambda: node.status.owns, "it is back")
    assert not [record for record in caplog.records if record.levelno > logging.INFO]
