"""What a node is made of: whatever cannot work is refused where it is said, with a remedy."""

from __future__ import annotations

import asyncio
import gc
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from hashlib import sha1
from typing import Any
from zlib import adler32, crc32

import numpy as np
import pytest
import redis
import redis.asyncio
import redis.sentinel

from hashring import (
    AsyncRingNode,
    ConfigError,
    EmptyRingError,
    HashAlgorithm,
    KeyTypeError,
    MissingDependencyError,
    NodeState,
    PartitionGroup,
    RingNode,
    lease_challenge,
)
from hashring.core.ring_change_message import Stamp
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


@dataclass
class Salted:
    """A hash function that is not hashable."""

    salt: bytes

    def __call__(self, key: bytes) -> int:
        return crc32(self.salt + key)


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
            (
                {"n_replicas": value},
                f"n_replicas={value!r}: give a whole number, at least 1: a node",
            )
            for value in (0, -1, 1.5, "3", True, None)
        ),
        *(
            ({"zone": value}, f"zone={value!r}: a zone is a non-empty str, as in 'eu-1a'")
            for value in ("", 3, b"eu")
        ),
        ({"zone": "eu\n1"}, "zone='eu\\n1': holds a control character; use printable text"),
        ({"n_replicas": 10**400}, f"n_replicas=1{'0' * 199}…: times weight 1.0 is more than"),
        ({"n_replicas": 10**9}, "n_replicas=1000000000: times weight 1.0 is more than 20000"),
        ({"weight": 1e5}, "n_replicas=16: times weight 100000.0 is more than 20000 points"),
        *(
            (
                {"weight": value},
                f"weight={value!r}: give a positive number below 1000000; 1 is an ordinary node",
            )
            for value in (0, -1, 1e6, NAN, INFINITY, "2", True, None)
        ),
        *(
            (
                {setting: value},
                f"{setting}={value!r}: give a positive number of seconds below 1000000000",
            )
            for setting in ("ttl", "heartbeat_interval", "idle", "max_handoff_time")
            for value in (0, -1, 1e9, NAN, INFINITY, "5", True)
        ),
        *(
            ({setting: 1e-9, "heartbeat_interval": 1e-10}, f"{setting}=1e-09: must be at least 0.1")
            for setting in ("ttl", "lock_ttl")
        ),
        (
            {"heartbeat_interval": 1e-9},
            "heartbeat_interval=1e-09: must be at least 0.01 s: shorter ones only keep Redis busy",
        ),
        ({"ttl": 10, "heartbeat_interval": 6}, "ttl=10.0: is less than two heartbeats of 6 s"),
        ({"lock": True, "lock_ttl": 1}, "lock_ttl=1.0: is less than two heartbeats of 10 s"),
        ({"lock": "no"}, "lock='no': say True or False"),
        ({"limit": 0}, "limit=0: a node that may hold no key should not be started"),
        ({"limit": "5"}, "limit='5': give a number of keys, or None for any number"),
        (
            {"limit": 10**15},
            "limit=1000000000000000: give less than 1e+15 keys, or None for any number",
        ),
        *(
            ({"hash_algorithm": value}, f"hash_algorithm={value!r}: unknown; choose one of crc-32,")
            for value in ("md5", "", 5)
        ),
        *(
            (
                {"hash_algorithm": HashAlgorithm("own", function)},
                f"hash_algorithm='own': its function gives {shown}",
            )
            for function, shown in (
                (lambda data: int.from_bytes(sha1(data).digest()[:8], "big"), ""),
                (lambda data: int.from_bytes(sha1(data).digest()[:4], "big", signed=True), "-"),
                (lambda data: 5.0, "5.0 for the key 'key-0': return an int in [0, 4294967296)"),
                (lambda data: None, "None for the key 'key-0'"),
            )
        ),
        *(
            (
                {"hash_algorithm": HashAlgorithm(name, adler32)},
                f"hash_algorithm={name!r}: is the name of another algorithm, which readers",
            )
            for name in ("crc-32", "CRC32")
        ),
        (
            {"hash_algorithm": HashAlgorithm("own", Salted(b"a"))},
            "hash_algorithm='own': its function is not hashable, so a node cannot find",
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
    ids=lambda value: value.partition("=")[0] if isinstance(value, str) else "",
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


def test_numbers_of_numpy_are_numbers() -> None:
    times = {"ttl": np.float64(30), "heartbeat_interval": np.float32(5), "idle": np.int64(60)}
    store, nine = MemoryStore(), np.int64(9)
    node = RingNode(store, "ring", n_replicas=nine, weight=np.int64(2), limit=nine, **times)  # type: ignore[arg-type]
    with node:
        node.load = np.int64(3)  # type: ignore[assignment]
        node.drain(np.int64(60), force=True)  # type: ignore[arg-type]
        assert (node.n_replicas, node.status.limit, node.load) == (9, 9, 3.0)


def test_without_gevent_a_start_in_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gevent.event", None)
    starts: list[Callable[[], None]] = [
        RingNode(MemoryStore(), "ring").gevent_start,
        PartitionGroup(MemoryStore(), "group", 4).gevent_start,
        lease_challenge(MemoryStore(), "work", 4).gevent_start,
    ]
    for start in starts:
        with pytest.raises(MissingDependencyError, match="pip install gevent"):
            start()


def test_the_weight_of_a_member_is_not_assigned() -> None:
    group = PartitionGroup(MemoryStore(), "group", 4, weight=2)
    with pytest.raises(AttributeError):
        group.weight = 5.0  # type: ignore[misc]
    assert group.weight == 2.0


def test_an_own_hash_function_that_only_knows_keys_of_some_form_is_taken() -> None:
    by_number = HashAlgorithm("by number", lambda data: int(data) << 20)
    with RingNode(MemoryStore(), "ring", hash_algorithm=by_number) as node:
        assert node.contains("17")
        assert node.select(["17"]) == ["17"]


class Encodes:
    """Is no text, and has an encode()."""

    def encode(self) -> bytes:
        return b"abc"


class Shouts(str):
    """A text that encodes as another one."""

    __slots__ = ()

    def encode(self, *arguments: Any) -> bytes:
        return self.upper().encode(*arguments)


NO_KEYS = [None, 5, True, Encodes(), [], ["a"], np.array([1, 2]), np.array(["a", "b"])]


@pytest.mark.parametrize("options", [{}, {"lock": True}], ids=["", "lock"])
@pytest.mark.parametrize("key", NO_KEYS, ids=lambda key: type(key).__name__)
def test_contains_and_select_refuse_what_is_no_key_alike(key: Any, options: Any) -> None:
    with RingNode(MemoryStore(), "ring", **options) as node:
        for ask in (node.contains, lambda key: node.select([key]), node.key_as_ring_point):
            with pytest.raises(KeyTypeError) as caught:
                ask(key)
            assert caught.value.key is key


def test_a_text_is_hashed_as_its_own_utf8_however_it_would_encode_itself() -> None:
    key = Shouts("a")
    with RingNode(MemoryStore(), "ring") as node:
        assert node.key_as_ring_point(key) == node.key_as_ring_point("a")
        assert node.contains(key)


async def nothing() -> AsyncIterator[str]:
    yield "a"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((None,), "items=None: give a list of keys"),
        ((5,), "items=5: give a list of keys"),
        ((nothing(),), "is asynchronous: collect its items in a list first"),
        ((bytearray(b"ab"),), "items=bytearray(b'ab'): give a list of keys; contains() asks"),
        ((["a"], "id"), "key='id': give a function that returns the key of an item"),
    ],
)
@pytest.mark.parametrize("options", [{}, {"lock": True}], ids=["", "lock"])
def test_what_is_no_list_of_items_is_refused(arguments: Any, message: str, options: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        RingNode(MemoryStore(), "ring", **options).select(*arguments)
    assert message in str(caught.value)

    async def run() -> None:
        await AsyncRingNode(MemoryStore(), "ring", **options).select(*arguments)

    with pytest.raises(ConfigError):
        asyncio.run(run())


def test_an_error_of_the_items_themselves_is_theirs() -> None:
    def items() -> Iterator[str]:
        raise TypeError("theirs")
        yield "a"

    with pytest.raises(TypeError, match="theirs"):
        RingNode(MemoryStore(), "ring").select(items())


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


class Closing(RingNode):
    """Ends what is its own when it is stopped."""

    closed = False

    def stop(self, *, stay: bool = False) -> None:
        super().stop(stay=stay)
        self.closed = True


def test_a_subclass_is_stopped_its_own_way_under_either_name() -> None:
    node = Closing(MemoryStore(), "accounts")
    node.start()
    node.gevent_stop()
    assert node.closed


@pytest.mark.parametrize("items", ["account-7", b"account-7"])
@pytest.mark.parametrize("settings", [{}, {"lock": True}])
def test_one_key_in_the_place_of_a_list_is_refused(
    items: str | bytes, settings: dict[str, Any]
) -> None:
    node = RingNode(MemoryStore(), "ring", **settings)
    with pytest.raises(ConfigError, match=r"account-7'?: give a list of keys; contains\(\) asks"):
        node.select(items)


def test_a_made_up_name_is_free_at_once_when_nobody_needs_its_node_any_more() -> None:
    def name_of_one() -> str:
        node = RingNode(MemoryStore(), "freed")
        node.heartbeat()
        node.remove()
        return node.name

    gc.disable()  # What refers to itself would wait for it.
    try:
        assert name_of_one() == name_of_one()
    finally:
        gc.enable()


class Forgetful:
    """What a node knows of the ring, which its loop forgets after a reader's first look."""

    garbage = 0

    def __init__(self, stamp: Stamp | None) -> None:
        self._looks = iter([stamp])

    @property
    def stamp(self) -> Stamp | None:
        return next(self._looks, None)


def test_a_status_may_be_read_while_the_node_ends() -> None:
    node = RingNode(MemoryStore(), "accounts")
    node.heartbeat()
    sight: Any = Forgetful(node._machine.sight.stamp)
    node._machine.sight = sight
    assert node.status.epoch == 1
    assert node.status.epoch is None
