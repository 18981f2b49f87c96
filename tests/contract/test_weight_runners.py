"""What another weight of a node promises, whatever runs the node."""

from __future__ import annotations

import pytest
from redis import Redis

from hashring.store.redis_store import RedisStore
from hashring.store.ring import node_orders
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import ring_keys
from hashring.store.ring.snapshot import snapshot
from tests.conftest import PATIENCE, eventually
from tests.contract.test_runners import KEYS, LONG, SHORT, fails, split
from tests.hosted import RING, Make

FOLLOW = pytest.mark.parametrize("follow", [True, False], ids=["follows", "own ranges"])


def points(client: Redis, name: str) -> set[bytes]:
    """The members that a node has on the ring."""
    return {
        member
        for member in client.zrange(RING, 0, -1)
        if member.partition(b":")[2].rpartition(b":")[0] == name.encode()
    }


@FOLLOW
@pytest.mark.parametrize("placement", ["random", "balanced"])
def test_a_node_gives_itself_another_weight_and_keeps_its_points(
    make: Make, client: Redis, follow: bool, placement: str
) -> None:
    a, b = (make(follow=follow, placement=placement, **LONG).start() for _ in range(2))
    eventually(lambda: split([a, b]), "both share the keys")
    had = points(client, a.name)
    a.do("assign", attribute="weight", value=2.0)
    assert a.call("weight") == 2.0
    eventually(lambda: len(points(client, a.name)) == 32, "the node has twice the points")
    assert points(client, a.name) > had
    eventually(lambda: split([a, b]), "both share the keys again")
    had = points(client, a.name)
    a.do("assign", attribute="weight", value=0.5)
    eventually(lambda: len(points(client, a.name)) == 8, "the node has half of its points")
    assert points(client, a.name) < had
    eventually(lambda: split([a, b]), "both share the keys then, too")


@FOLLOW
def test_an_operators_order_is_obeyed_by_a_message_not_by_a_timer(
    make: Make, client: Redis, follow: bool
) -> None:
    a, b = (make(follow=follow, **LONG).start() for _ in range(2))
    store, keys = RedisStore(client, PATIENCE), ring_keys(RING)
    store.run(node_orders.weigh(keys, weights={a.name: 3.0}, by="alice"))
    eventually(lambda: a.call("weight") == 3.0, "the node has heard of the order")
    eventually(lambda: len(points(client, a.name)) == 48, "the node obeys")
    a.do("assign", attribute="weight", value=1.0)
    eventually(lambda: len(points(client, a.name)) == 16, "its own code was later")
    eventually(lambda: split([a, b]), "both share the keys")


def test_a_named_node_that_starts_again_has_the_weight_that_was_ordered(
    make: Make, client: Redis
) -> None:
    make(**SHORT).start()
    node = make(name="worker-3", **SHORT).start()
    store, keys = RedisStore(client, PATIENCE), ring_keys(RING)
    store.run(node_orders.weigh(keys, weights={"worker-3": 2.0}, by="alice"))
    eventually(lambda: len(points(client, "worker-3")) == 32, "the node obeys")
    node.stop()
    again = make(name="worker-3", **SHORT).start()
    assert len(points(client, "worker-3")) == 32
    assert again.call("weight") == 2.0


def test_keys_that_another_weight_moves_are_handed_over_one_holder_at_a_time(make: Make) -> None:
    a, b = (make(lock=True, follow=True, **LONG).start() for _ in range(2))
    eventually(lambda: a.status["fingerprint"] == b.status["fingerprint"], "they know each other")
    mine = [key for key in KEYS if a.call("owner", key) == a.name]
    leases = {key: a.hold(key) for key in mine}
    b.do("assign", attribute="weight", value=4.0)
    eventually(lambda: b.status["share"] > 0.5, "the other node has more")
    moved = next(key for key in mine if a.call("owner", key) == b.name)
    leases[moved].wait("revoked").result()
    leases[moved].check()
    assert not b.contains(moved)
    leases[moved].finish()
    eventually(lambda: b.contains(moved), "the other node holds the key")
    for key, lease in leases.items():
        if key != moved:
            lease.finish()


def test_a_weight_that_is_assigned_before_the_start_is_the_one_it_starts_with(
    make: Make, client: Redis
) -> None:
    node = make(**LONG)
    node.do("assign", attribute="weight", value=2.0)
    node.start()
    assert len(points(client, node.name)) == 32


@FOLLOW
def test_the_next_heartbeat_carries_the_load_that_was_assigned(
    make: Make, client: Redis, follow: bool
) -> None:
    node = make(follow=follow, **SHORT).start()
    store, keys = RedisStore(client, PATIENCE), ring_keys(RING)

    def told() -> object:
        scoring = Scoring.expiry(1.0)
        return store.run(snapshot(keys, scoring=scoring)).nodes[node.name].told.get("load")

    assert told() is None
    node.do("assign", attribute="load", value=0.8)
    assert node.call("load") == 0.8
    eventually(lambda: told() == 0.8, "the ring reports the load")
    node.do("assign", attribute="load", value=None)
    eventually(lambda: told() is None, "the ring reports no load")


@pytest.mark.parametrize("load", [-1, 1e15, "heavy", True, float("inf"), float("nan")])
def test_a_load_that_is_none_is_refused(make: Make, load: object) -> None:
    node = make(**LONG)
    error = fails(lambda: node.do("assign", attribute="load", value=load))
    assert error.kinds[0] == "ConfigError"
    assert "give a number of at least 0 and below 1e+15" in str(error)
    assert node.call("load") is None


@pytest.mark.parametrize("weight", [0, -1, "heavy", True])
def test_a_weight_that_is_none_is_refused(make: Make, weight: object) -> None:
    node = make(**LONG).start()
    error = fails(lambda: node.do("assign", attribute="weight", value=weight))
    assert error.kinds[0] == "ConfigError"
    assert node.call("weight") == 1.0
