"""What a drain of a node promises, whatever runs the node."""

from __future__ import annotations

import pytest
from redis import Redis

from hashring.store.redis_store import RedisStore
from hashring.store.ring import node_orders
from hashring.store.ring.key_names import ring_keys
from tests.conftest import PATIENCE, eventually
from tests.contract.test_runners import KEYS, LONG, SHORT, fails, split
from tests.hosted import RING, Make

FOLLOW = pytest.mark.parametrize("follow", [True, False], ids=["follows", "own ranges"])


@FOLLOW
def test_a_node_drains_itself_and_owns_nothing_from_then_on(make: Make, follow: bool) -> None:
    a, b = (make(follow=follow, **LONG).start() for _ in range(2))
    a.call("drain")
    assert a.state == "drained"
    assert a.owned(KEYS) == set()
    eventually(lambda: split([b]), "the other node has all keys")
    a.call("undrain")
    assert a.state == "live"
    eventually(lambda: a.owned(KEYS) and split([a, b]), "both share the keys again")


@FOLLOW
def test_an_operators_order_is_obeyed_by_a_message_not_by_a_timer(
    make: Make, client: Redis, follow: bool
) -> None:
    a, b = (make(follow=follow, **LONG).start() for _ in range(2))
    store, keys = RedisStore(client, PATIENCE), ring_keys(RING)
    store.run(node_orders.drain(keys, node=a.name, by="alice"))
    eventually(lambda: a.state == "drained" and split([b]), "the node is drained")
    store.run(node_orders.undrain(keys, node=a.name, by="alice"))
    eventually(lambda: a.state == "live" and split([a, b]), "the node is back")


def test_a_named_node_that_starts_again_is_still_drained(make: Make) -> None:
    other = make(**SHORT).start()
    make(name="worker-3", **SHORT).start().call("drain")
    again = make(name="worker-3", **SHORT).start()
    assert again.state == "drained"
    assert other.call("owner", "key") == other.name


def test_a_drain_ends_when_its_time_is_up(make: Make) -> None:
    make(**SHORT).start()
    node = make(**SHORT).start()
    node.call("drain", 0.05)
    eventually(lambda: node.state == "live", "the node is back")


def test_locked_keys_are_handed_over_one_holder_at_a_time(make: Make) -> None:
    a, b = (make(lock=True, **LONG).start() for _ in range(2))
    eventually(lambda: a.status["fingerprint"] == b.status["fingerprint"], "they know each other")
    key = next(key for key in KEYS if a.call("owner", key) == a.name)
    lease = a.hold(key)
    revoked = lease.wait("revoked")
    a.call("drain")
    revoked.result()
    lease.check()
    assert not b.contains(key)
    lease.finish()
    eventually(lambda: b.contains(key), "the other node holds the key")
    assert not a.contains(key)


def test_the_last_node_drains_only_by_force(make: Make) -> None:
    node = make(**LONG).start()
    assert fails(lambda: node.call("drain")).kinds[0] == "ConfigError"
    assert node.state == "live"
    assert fails(lambda: node.call("drain", "soon")).kinds[0] == "ConfigError"
    assert node.state == "live"


def test_a_node_that_does_not_run_gives_no_orders(make: Make) -> None:
    node = make(**LONG)
    for order in ("drain", "undrain"):
        error = fails(lambda order=order: node.call(order))
        assert error.kinds[0] == "NodeStateError"
        assert "start it first" in str(error)


def test_a_node_that_redis_has_just_lost_says_so_when_it_is_to_drain(
    make: Make, client: Redis
) -> None:
    node = make(**LONG).start()
    client.flushall()
    error = fails(lambda: node.call("drain"))
    assert error.kinds[0] == "NodeStateError"
    assert "is not on the ring just now" in str(error)


def test_nothing_happens_when_there_is_no_order_to_lift(make: Make) -> None:
    node = make(**LONG).start()
    node.call("undrain")
    assert node.state == "live"
