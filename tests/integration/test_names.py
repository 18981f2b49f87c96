"""Names and the points that go with them; many nodes that join at once."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
from redis import Redis

from hashring import NodeState, RingNode
from hashring.core.hashing import RING_SIZE
from hashring.store.discovery import Found, discover
from hashring.store.embedded_server import RedisServer
from hashring.store.redis_store import RedisStore
from tests.conftest import eventually, know_their_ranges
from tests.hosts import Host

PLACEMENTS = ("random", "balanced")
LONG = {"ttl": 60.0, "heartbeat_interval": 20.0}


def points_of(client: Redis, name: str) -> set[int]:
    found = set()
    for member in client.zrange("ring", 0, -1):
        point, rest = member.decode().split(":", 1)
        if rest.rpartition(":")[0] == name:
            found.add(int(point))
    return found


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_named_node_that_left_takes_its_points_back(client: Redis, placement: str) -> None:
    with _running(client, placement):
        node = RingNode(client, "ring", name="worker", placement=placement, **LONG)
        node.start()
        before = points_of(client, "worker")
        node.stop()
        assert points_of(client, "worker") == set()
        node = RingNode(client, "ring", name="worker", placement=placement, **LONG)
        with node:
            assert points_of(client, "worker") == before
            assert len(before) == 16


@pytest.mark.parametrize("placement", PLACEMENTS)
@pytest.mark.parametrize("expired", [False, True])
def test_a_named_node_that_crashed_takes_its_points_back(
    client: Redis, redis_server: RedisServer, placement: str, expired: bool
) -> None:
    times = {"ttl": 1.0, "heartbeat_interval": 0.2} if expired else LONG
    with _running(client, placement, times=times):
        with Host("thread") as host:
            host.node(redis_server.url, "ring", name="worker", placement=placement, **times).start()
            before = points_of(client, "worker")
        if expired:
            eventually(lambda: not points_of(client, "worker"), "its points have expired")
        with RingNode(client, "ring", name="worker", placement=placement, **times):
            assert points_of(client, "worker") == before
            assert len(before) == 16


class _running:  # noqa: N801 - read as a phrase
    """A neighbour that runs in the block, so that a balanced join has something to cut."""

    def __init__(
        self, client: Redis, placement: str, times: dict[str, float] | None = None
    ) -> None:
        self._node = RingNode(client, "ring", placement=placement, **(times or LONG))

    def __enter__(self) -> None:
        self._node.start()

    def __exit__(self, *_: object) -> None:
        self._node.stop()


@pytest.mark.parametrize("follow", [False, True])
def test_a_name_that_is_taken_in_another_database_is_the_nodes_still(
    redis_server: RedisServer, client: Redis, follow: bool
) -> None:
    timers = {"ttl": 60.0, "heartbeat_interval": 0.2}
    with Redis(unix_socket_path=str(redis_server.socket), db=1) as elsewhere:

        def node(redis: Redis) -> RingNode:
            return RingNode(redis, "ring", name="a", follow=follow, **timers)

        with node(client) as here, node(elsewhere) as crashed, node(elsewhere):
            eventually(lambda: crashed.state is NodeState.SUPERSEDED, "its name was taken")
            beaten = here.status.heartbeats
            eventually(lambda: here.status.heartbeats > beaten + 3, "it goes on")
            assert sum(end - start for start, end in here.get_ranges()) == RING_SIZE
            assert client.xlen("{ring}:events") == 1
        elsewhere.flushdb()


def test_whatever_happens_to_a_name_in_another_database_its_locks_stay(
    redis_server: RedisServer, client: Redis
) -> None:
    timers = {"ttl": 60.0, "heartbeat_interval": 20.0}
    with Redis(unix_socket_path=str(redis_server.socket), db=1) as elsewhere, ExitStack() as there:

        def start(name: str) -> RingNode:
            return there.enter_context(RingNode(elsewhere, "ring", name=name, **timers))

        with RingNode(client, "ring", name="a", lock=True, **timers) as here:
            assert here.contains("key")
            lock = client.get("{ring}:lock:key")
            crashed, beaten = start("a"), here.status.heartbeats
            start("b")  # each message of theirs may be taken for the newest
            start("a")
            eventually(lambda: crashed.state is NodeState.SUPERSEDED, "its name was taken")
            eventually(lambda: here.status.heartbeats > beaten, "it asks whether that was here")
            assert client.get("{ring}:lock:key") == lock
            assert here.contains("key")
        there.close()
        elsewhere.flushdb()


def test_two_that_start_under_one_name_at_once_end_as_one(client: Redis) -> None:
    nodes = [RingNode(client, "ring", name="worker", **LONG) for _ in range(2)]
    errors: list[BaseException] = []

    def start(node: RingNode) -> None:
        try:
            node.start()
        except Exception as error:  # noqa: BLE001 - the one that lost may be told so here
            errors.append(error)

    threads = [threading.Thread(target=start, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    eventually(
        lambda: (
            sum(node.contains("key") for node in nodes) == 1
            and [node.state for node in nodes].count(NodeState.LIVE) == 1
        ),
        "one of them has the name",
    )
    eventually(lambda: len(points_of(client, "worker")) == 16, "and only its points")
    assert all(type(error).__name__ == "NodeSuperseded" for error in errors)
    for node in nodes:
        node.stop()
    assert client.zcard("ring") == 0


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_thirty_that_start_at_once_all_join_and_share_no_point(
    client: Redis, placement: str
) -> None:
    nodes = [RingNode(client, "ring", placement=placement, **LONG) for _ in range(30)]
    threads = [threading.Thread(target=node.start) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert nodes[0].ring.node_count == 30
    eventually(lambda: know_their_ranges(nodes), "all know their ranges")
    points = [int(member.split(b":")[0]) for member in client.zrange("ring", 0, -1)]
    assert len(points) == len(set(points)) == 30 * 16
    shares = [sum(end - start for start, end in node.get_ranges()) for node in nodes]
    assert sum(shares) == RING_SIZE
    worst = max(shares) * 30 / RING_SIZE
    print(f"{placement}: busiest / fair = {worst:.3f}")
    if placement == "balanced":
        assert worst <= 1.15
    for node in nodes:
        node.stop()


def test_a_key_of_one_name_is_not_taken_for_another_name(client: Redis) -> None:
    for key in ("{team}:epoch", "{team}:lock:x:epoch", "{team}:a:epoch", "{acc}:epoch"):
        client.set(key, "1 ab")
    for key in ("{team}:orders:group:state", "{team}:lock:x:group:state"):
        client.hset(key, "a", "b")
    assert {found for found in discover(RedisStore(client, 5.0)) if found} == {
        Found("ring", "team"),
        Found("ring", "{team}:a"),
        Found("ring", "acc"),
        Found("group", "{team}:orders"),
    }
