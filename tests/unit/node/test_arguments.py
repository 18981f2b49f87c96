"""What a node is made of: whatever cannot work is refused where it is said, with a remedy."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.sentinel

from hashring import AsyncRingNode, ConfigError, EmptyRingError, NodeState, RingNode
from hashring.store.ring.key_names import ring_keys
from hashring.testing import MemoryStore

NAN, INFINITY = float("nan"), float("inf")


async def told(*_: object) -> None:
    """Receive something."""


class Told:
    """What is called, and called by a name, with something to receive."""

    async def __call__(self, *_: object) -> None:
        """Receive something."""

    told = __call__


LONE = "\ud800"  # half a character, which UTF-8 cannot encode


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ring": ""}, "ring='': a ring's name is a non-empty str"),
        ({"ring": 5}, "ring=5: a ring's name is a non-empty str"),
        ({"ring": None}, "ring=None: a ring's name is a non-empty str"),
        ({"ring": LONE}, "ring='\\ud800': cannot be encoded as UTF-8"),
        ({"ring": "{}x"}, "ring='{}x': braces in a ring's name mark a Redis Cluster hash tag"),
        ({"ring": "{acc}"}, "ring='{acc}': would have the keys of the ring 'acc'; leave out the"),
        *(
            ({"n_replicas": value}, f"n_replicas={value!r}: a node needs at least one replica")
            for value in (0, -1, 1.5, "3", True, None)
        ),
        *(
            ({"zone": value}, f"zone={value!r}: a zone is a non-empty str, as in 'eu-1a'")
            for value in ("", 3, b"eu")
        ),
        ({"zone": "eu\n1"}, "zone='eu\\n1': holds a control character; use printable text"),
        ({"n_replicas": 10**9}, "n_replicas=1000000000: times weight 1.0 is more than 100000"),
        ({"weight": 1e5}, "n_replicas=16: times weight 100000.0 is more than 100000 points"),
        *(
            ({"weight": value}, f"weight={value!r}: give a positive number; 1 is an ordinary node")
            for value in (0, -1, NAN, INFINITY, "2", True, None)
        ),
        *(
            ({setting: value}, f"{setting}={value!r}: give a positive number of seconds")
            for setting in ("ttl", "heartbeat_interval", "idle", "max_handoff_time")
            for value in (0, -1, NAN, INFINITY, "5", True)
        ),
        ({"ttl": 10, "heartbeat_interval": 6}, "ttl=10.0: is less than two heartbeats of 6 s"),
        ({"lock": True, "lock_ttl": 1}, "lock_ttl=1.0: is less than two heartbeats of 10 s"),
        ({"lock": "no"}, "lock='no': say True or False"),
        ({"limit": 0}, "limit=0: a node that may hold no key should not be started"),
        ({"limit": "5"}, "limit='5': give a number of keys, or None for any number"),
        *(
            ({"hash_algorithm": value}, f"hash_algorithm={value!r}: unknown; choose one of crc-32,")
            for value in ("md5", "", 5)
        ),
        *(
            ({"placement": value}, f"placement={value!r}: unknown; choose one of random, balanced")
            for value in ("best", "", None)
        ),
        *(({"name": value}, f"name={value!r}: a node's name is a non-") for value in ("", 5, b"a")),
        ({"name": LONE}, "name='\\ud800': cannot be encoded as UTF-8"),
        ({"name": "a\nb"}, "name='a\\nb': holds a control character; use printable text"),
        ({"name": "x" * 513}, "name="),
        ({"on_change": 5}, "on_change=5: give a callable of (gained, lost)"),
        *(
            ({"on_change": value}, f"on_change={value!r}: is a coroutine function: use AsyncRingN")
            for value in (told, partial(told, None), Told(), partial(Told(), None), Told().told)
        ),
        ({"follow": "yes"}, "follow='yes': say True or False"),
        (
            {"wire": "redis-hashring", "follow": False},
            "follow=False: a ring that is shared with redis-hashring has no index",
        ),
        ({"wire": "v1"}, "wire='v1': unknown; leave it out, or say 'redis-hashring'"),
        ({"wire": "redis-hashring", "name": "a"}, "name='a': on a ring shared with redis-hashring"),
        ({"key": "other"}, "key='other': ring is given as well: leave out one of the two"),
        ({"conn": 5}, "conn=5: redis is given as well: leave out one of the two"),
        ({"redis": None}, "redis=None: not a client of redis-py or valkey-py: pass redis.Redis"),
        ({"redis": "redis://localhost"}, "redis='redis://localhost': not a client of redis-py"),
    ],
)
def test_what_cannot_work_is_refused_by_name_and_value(
    arguments: dict[str, Any], message: str
) -> None:
    given = {"redis": MemoryStore(), "ring": "ring", **arguments}
    with pytest.raises(ConfigError) as caught:
        RingNode(given.pop("redis"), given.pop("ring"), **given)
    assert str(caught.value).startswith(message)
    assert caught.value.setting in arguments or caught.value.setting == "n_replicas"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("kind", "client", "remedy"),
    [
        (RingNode, redis.asyncio.Redis, "is an asyncio client: use AsyncRingNode"),
        (AsyncRingNode, redis.Redis, "is not an asyncio client: use RingNode"),
    ],
)
def test_a_client_of_the_other_kind_is_sent_to_the_other_node(
    kind: Any, client: Any, remedy: str
) -> None:
    with pytest.raises(ConfigError, match=f"{client.__name__}'>: {remedy}"):
        kind(client(), "ring")


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (RingNode, redis.sentinel.Sentinel([("localhost", 26379)])),
        (RingNode, redis.ConnectionPool(password="secret")),
        (AsyncRingNode, redis.asyncio.Sentinel([("localhost", 26379)])),
        (AsyncRingNode, redis.asyncio.ConnectionPool(password="secret")),
    ],
)
def test_what_a_client_is_made_of_is_no_client(kind: Any, given: Any) -> None:
    with pytest.raises(ConfigError, match=r"pass sentinel\.master_for\(name\) or redis\.Redis\("):
        kind(given, "ring")


@pytest.mark.parametrize("name", ["worker:1", "[2001:db8::1]:80", "::1", "knoten-ü", "節点", "a b"])
def test_names_may_hold_colons_addresses_and_any_printable_text(name: str) -> None:
    store = MemoryStore()
    with (
        RingNode(store, "ring", name=name, n_replicas=3) as node,
        RingNode(store, "ring", name="other", n_replicas=3) as other,
    ):
        other.update()
        assert sorted(other.ring.nodes) == sorted([name, "other"])
        assert node.name == name
        assert node.state is NodeState.LIVE


def test_a_very_long_value_is_not_shown_whole() -> None:
    with pytest.raises(ConfigError) as caught:
        RingNode(MemoryStore(), list(range(10**5)))  # type: ignore[arg-type]
    assert str(caught.value).startswith("ring=[0, 1, 2,")
    assert str(caught.value).endswith("…: a ring's name is a non-empty str")


def test_the_client_and_the_ring_have_the_names_that_redis_hashring_gives_them() -> None:
    node = RingNode(conn=MemoryStore(), key="accounts")
    assert repr(node).endswith("on ring 'accounts': new>")


def test_a_node_that_has_left_the_ring_knows_no_ring() -> None:
    server = MemoryStore()
    first = RingNode(server, "accounts", name="first", follow=True)
    with RingNode(server, "accounts", name="second"):
        first.heartbeat()
        assert first.get_node_count() == 2
        first.remove()
        assert first.get_node_count() == 0
        with pytest.raises(EmptyRingError):
            first.owner("key")


def test_unless_it_follows_a_node_asks_redis_for_the_owner_and_for_the_ring() -> None:
    server = MemoryStore()
    asking = RingNode(server, "accounts")
    with pytest.raises(EmptyRingError):
        asking.owner("key")
    with RingNode(server, "accounts", name="a"), RingNode(server, "accounts", name="b"):
        assert asking.ring.nodes == ("a", "b")
        assert asking.owner("key") == asking.ring.owner("key")


def test_update_brings_a_node_that_does_not_follow_up_to_date() -> None:
    server = MemoryStore()
    first, second = (RingNode(server, "accounts", name=name) for name in "ab")
    first.heartbeat()
    second.heartbeat()
    first.update()
    ring = second.ring
    assert [node.get_ranges() for node in (first, second)] == [
        ring.node_ranges("a"),
        ring.node_ranges("b"),
    ]
    first.remove()
    second.remove()


def test_on_a_ring_of_redis_hashring_a_node_follows() -> None:
    server = MemoryStore()
    reader = RingNode(server, "accounts", wire="redis-hashring")
    with RingNode(server, "accounts", wire="redis-hashring") as node:
        reader.update()
        assert reader.ring.nodes == (node.name,)
        node.stop()
        assert reader.ring.node_count == 1


def test_a_node_that_only_read_the_ring_forgets_it_when_it_is_removed() -> None:
    server = MemoryStore()
    reader = RingNode(server, "accounts")
    with RingNode(server, "accounts", name="second"):
        reader.update()
        assert reader.get_node_count() == 1
        reader.remove()
        assert reader.get_node_count() == 0


class Counting(RingNode):
    """Overrides what its users call, and reaches the library's own."""

    asked = 0

    def contains(self, key: str | bytes) -> bool:
        self.asked += 1
        return super().contains(key)


@pytest.mark.parametrize("options", [{"lock": True}, {"limit": 1}, {}], ids=["lock", "limit", ""])
@pytest.mark.parametrize("kind", [Counting, RingNode])
def test_contains_is_one_method_that_subclasses_override_and_reach(
    kind: type[RingNode], options: dict[str, Any]
) -> None:
    store = MemoryStore()
    with kind(store, "accounts", **options) as node:
        held = [key for key in ("a", b"b") if RingNode.contains(node, key)]
        assert held == (["a"] if "limit" in options else ["a", b"b"])
        assert [key for key in ("a", b"b") if node.contains(key)] == held
        assert getattr(node, "asked", 2) == 2
        assert len(store.server.locks(ring_keys("accounts"))) == (2 if "lock" in options else 0)
    assert not RingNode.contains(node, "a")


@pytest.mark.parametrize("items", ["account-7", b"account-7"])
@pytest.mark.parametrize("settings", [{}, {"lock": True}])
def test_one_key_in_the_place_of_a_list_is_refused(
    items: str | bytes, settings: dict[str, Any]
) -> None:
    node = RingNode(MemoryStore(), "ring", **settings)
    with pytest.raises(ConfigError, match=r"account-7'?: give a list of keys; contains\(\) asks"):
        node.select(items)
