"""Locks and limits where one runner is enough: what they cost, and what users do to them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring import (
    AsyncRingNode,
    ConfigError,
    HoldTimeout,
    KeyTypeError,
    KeyValueError,
    LeaseLost,
    NotHeld,
    RingNode,
)
from hashring.node.node_settings import NodeSettings
from hashring.protocol.locks.key_states import KeyState
from hashring.store.embedded_server import RedisServer
from hashring.store.locks.commands import LOCKS_A_CALL
from tests.conftest import PATIENCE, ROOT, eventually, know_their_ranges
from tests.integration.test_locks import RING, RING_KEYS, locks
from tests.programs import python
from tests.proxy import Proxy

LONG = {"ttl": 120.0, "heartbeat_interval": 50.0, "lock": True}
CALM = {"ttl": 120.0, "heartbeat_interval": 0.2, "lock": True}
"""Heartbeats as fast as may be, and nothing that time alone would let go of."""
KEYS = [f"key-{number}" for number in range(60)]

Make = Callable[..., RingNode]


@pytest.fixture
def make(client: Redis) -> Iterator[Make]:
    """Makes nodes that have started; they are stopped in the end."""
    made: list[RingNode] = []

    def make(*, start: bool = True, redis: Any = client, **settings: Any) -> RingNode:
        node = RingNode(redis, settings.pop("ring", RING), **settings)
        made.append(node)
        if start:
            node.start()
        return node

    yield make
    for node in made:
        node.stop()


def calls(client: Redis) -> int:
    """How many scripts ran since the last ``config_resetstat``."""
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval"))


# --- what it costs ------------------------------------------------------------------------------


def test_asking_again_costs_nothing_and_a_heartbeat_one_call(make: Make, client: Redis) -> None:
    node = make(**LONG)
    assert node.select(KEYS) == KEYS
    lock = RING_KEYS.lock(KEYS[0].encode())
    client.pexpire(lock, 60_000)
    node.heartbeat()
    eventually(lambda: client.pttl(lock) > 60_000, "Redis has the script that renews")
    client.config_resetstat()
    for _ in range(50):
        assert all(node.contains(key) for key in KEYS)
        assert node.select(KEYS) == KEYS
    assert calls(client) == 0
    node.heartbeat()
    eventually(lambda: calls(client) >= 2, "the heartbeat, and the renewal of all locks")
    assert calls(client) == 2


def test_many_keys_held_by_another_cost_one_call_until_they_are_freed(
    make: Make, client: Redis
) -> None:
    holder = make(name="a", **LONG)
    keys = [f"key-{number}" for number in range(1000)]
    assert holder.select(keys) == keys
    newcomer = make(name="b", **LONG)
    moved = [key for key in keys if newcomer.owner(key) == "b"]
    newcomer.select(KEYS[:1])
    client.config_resetstat()
    for _ in range(50):
        assert newcomer.select(keys) == []
    # One call waits for all of them; what follows asks nothing of Redis.
    assert calls(client) == 1
    assert newcomer.status.waiting == len(moved)
    client.config_resetstat()
    eventually(lambda: len(holder.select(keys)) == len(keys) - len(moved), "it lets go")
    eventually(lambda: calls(client) >= 1, "in one call")
    told = client.info("commandstats")["cmdstat_publish"]["calls"]
    assert told == len(moved)  # One message a key, to the one who waits.
    eventually(lambda: newcomer.select(keys) == moved, "and all of them are taken")


# --- asking, in each way --------------------------------------------------------------------------


ASKING: dict[str, Callable[[RingNode, str], bool]] = {
    "contains": lambda node, key: node.contains(key),
    "contains of bytes": lambda node, key: node.contains(key.encode()),
    "select": lambda node, key: node.select([key]) == [key],
}


@pytest.mark.parametrize("asks", ASKING.values(), ids=ASKING)
def test_a_key_is_not_held_past_its_locks_deadline(
    make: Make, asks: Callable[[RingNode, str], bool]
) -> None:
    node = make(**LONG)
    assert asks(node, "k")
    book = node._machine.book
    assert book is not None
    # The node itself could renew; of the lock it does not know.
    book.held[b"k"].deadline = time.monotonic()
    assert not asks(node, "k")
    node.heartbeat()
    eventually(lambda: asks(node, "k"), "the renewal has found it")


@pytest.mark.parametrize("asks", ASKING.values(), ids=ASKING)
def test_a_key_is_not_held_past_its_nodes_deadline(
    make: Make, asks: Callable[[RingNode, str], bool]
) -> None:
    node = make(**LONG)
    assert asks(node, "k")
    lease = node._lease
    assert lease is not None
    lease[1], until = time.monotonic(), lease[1]
    assert not asks(node, "k")
    lease[1] = until
    assert asks(node, "k")


@pytest.mark.parametrize("asks", ASKING.values(), ids=ASKING)
def test_a_key_that_is_to_be_let_go_is_let_go_when_it_is_asked_for(
    make: Make, client: Redis, asks: Callable[[RingNode, str], bool]
) -> None:
    node = make(**LONG)
    assert asks(node, "k")
    before = locks(client)
    book = node._machine.book
    assert book is not None
    book.held[b"k"].state = KeyState.WANTED
    assert not asks(node, "k")
    eventually(lambda: asks(node, "k"), "the lock is free, and taken anew")
    assert locks(client)["k"] > before["k"]


@pytest.mark.parametrize("asks", ASKING.values(), ids=ASKING)
def test_a_key_that_moved_is_let_go_when_it_is_asked_for(
    make: Make, client: Redis, asks: Callable[[RingNode, str], bool]
) -> None:
    node = make(name="a", **LONG)
    assert all(asks(node, key) for key in KEYS)
    other = make(name="b", weight=500, **LONG)
    eventually(lambda: know_their_ranges([node]), "the node has received the join")
    moved = next(key for key in KEYS if other.owner(key) == "b")
    assert not asks(node, moved)
    eventually(lambda: asks(other, moved), "the other has it")
    assert not asks(node, moved)


# --- very many keys and a small limit -------------------------------------------------------------

MANY = 200_000
"""Enough to need several calls. ``scripts/bench/locks.py`` measures a million."""

FEW_CALLS = 30
"""One for each key that is taken; and the heartbeat that tells of a full node, and what follows."""


def many() -> Iterator[str]:
    return (f"account-{number}" for number in range(MANY))


def measured(work: Callable[[], object]) -> int:
    """How many bytes more there are after the work than before."""
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    work()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before


@pytest.mark.long  # Selected, and asked for in a task, they are as few.
@pytest.mark.one_server
def test_very_many_keys_asked_for_one_by_one_with_a_limit_of_ten(make: Make, client: Redis) -> None:
    node = make(limit=10, **LONG)
    node.contains("warm-up")
    client.config_resetstat()
    found: list[str] = []
    grown = measured(lambda: found.extend(key for key in many() if node.contains(key)))
    assert len(found) == 9
    assert calls(client) <= FEW_CALLS
    assert grown < 32_000_000  # The refused ones are counted up to 65,536.
    assert len(locks(client)) == 10
    node.heartbeat()
    assert node.status.refused == 65_536
    assert client.dbsize() < 20


@pytest.mark.one_server
def test_very_many_keys_selected_with_a_limit_of_ten(make: Make, client: Redis) -> None:
    node = make(limit=10, **LONG)
    keys = list(many())
    node.select(keys[:1])
    client.config_resetstat()
    assert node.select(keys) == keys[:10]
    assert calls(client) <= FEW_CALLS
    assert client.dbsize() < 20


@pytest.mark.one_server
def test_very_many_keys_asked_for_in_a_task_with_a_limit_of_ten(redis_server: RedisServer) -> None:
    async def run() -> None:
        async with (
            AsyncRedis.from_url(redis_server.url) as redis,
            AsyncRingNode(redis, RING, limit=10, **LONG) as node,
        ):
            loop = node._run
            assert loop is not None
            assert sum(node.contains(key) for key in many()) == 0  # Not yet: it cannot wait.
            assert len(loop._wanted) <= LOCKS_A_CALL
            while node.status.held != 10:
                await asyncio.sleep(0.01)
            assert sum(map(node.contains, many())) == 10

    asyncio.run(run())


# --- what is left in Redis ------------------------------------------------------------------------


def test_nothing_lasts_in_redis_but_counters_and_history(make: Make, client: Redis) -> None:
    nodes = [make(name=name, limit=15, **CALM) for name in "abc"]
    beats = [node.status.heartbeats for node in nodes]
    eventually(
        lambda: (
            [node.select(KEYS) for node in nodes]
            and all(n.status.heartbeats > b + 5 for n, b in zip(nodes, beats, strict=True))
        ),
        "some heartbeats",
    )
    for node in nodes[:2]:
        node.stop()
    assert set(nodes[2].select(KEYS)) == set(locks(client))
    nodes[2].stop()
    lasting = {name for name in client.scan_iter("*") if client.pttl(name) == -1}
    assert lasting == {
        RING_KEYS.token,
        RING_KEYS.lock_server,
        RING_KEYS.epoch,
        RING_KEYS.events,
    }
    assert locks(client) == {}


# --- limit without lock ---------------------------------------------------------------------------


def test_a_limit_without_locks_is_kept_within_the_node_alone(make: Make, client: Redis) -> None:
    node = make(name="a", limit=10, ttl=120.0, heartbeat_interval=0.2, idle=0.5)
    other = make(name="b", ttl=120.0, heartbeat_interval=0.2)
    eventually(lambda: know_their_ranges([node, other]), "they know each other")
    own = [key for key in KEYS if node.owner(key) == "a"]
    held = [key for key in KEYS if node.contains(key)]
    assert held == own[:10]
    assert node.select(KEYS) == held
    assert locks(client) == {}
    assert not [key for key in own if other.contains(key)]
    eventually(
        lambda: node.select(KEYS) == held and node.status.unserved == len(own) - 10,
        "what nobody serves is counted",
    )
    # What is not asked for any more makes room.
    eventually(lambda: node.select(own[5:15]) == own[5:15], "others take the places")
    with pytest.raises(ConfigError, match="holding a key needs a node with lock=True"):
        node.hold(own[5]).__enter__()


# --- keys and items -------------------------------------------------------------------------------


def test_select_takes_any_iterable_of_str_and_bytes_and_of_items_with_a_key(make: Make) -> None:
    node = make(**LONG)
    mixed: list[str | bytes] = ["a", b"a", "ä", "ä".encode(), b"\xff", bytearray(b"b")]  # type: ignore[list-item]
    assert node.select(iter(mixed)) == mixed
    assert node.status.held == 4
    items = [{"id": number, "key": f"k{number}"} for number in range(5)]
    assert node.select((item for item in items), key=lambda item: item["key"]) == items
    assert node.select([]) == []


@pytest.mark.parametrize("key", ["", b"", "\ud800", 5, None, 1.5, ("a",)])
def test_a_key_that_is_none_is_refused_everywhere_alike(make: Make, key: Any) -> None:
    node = make(**LONG)
    kinds = (KeyValueError, KeyTypeError)
    asks: list[Callable[[Any], Any]] = [
        node.contains,
        lambda key: node.select([key]),
        lambda key: node.hold(key).__enter__(),
    ]
    for ask in asks:
        with pytest.raises(kinds):
            ask(key)
    assert node.contains("good")


def test_a_key_of_a_megabyte_cannot_be_locked_but_counts_without_locks(
    make: Make, client: Redis
) -> None:
    key = "x" * 1_000_000
    node = make(**LONG)
    with pytest.raises(KeyValueError, match="begins a key of 1000000 bytes"):
        node.contains(key)
    assert node.owner(key) == node.name
    with pytest.raises(KeyValueError, match="lock a digest of it instead"):
        node.select(["a", key, "b"])
    assert node.contains("b")
    assert make(ring="other", limit=1).contains(key)
    assert len(client.keys("*:lock:*")) <= 2


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"limit": 0}, "limit=0: a node that may hold no key should not be started"),
        ({"limit": -3}, "limit=-3: a node that may hold no key should not be started"),
        ({"limit": "5"}, "limit='5': give a number of keys, or None for any number"),
        ({"limit": True}, "limit=True: give a number of keys, or None for any number"),
        ({"limit": 1.5}, "limit=1.5: give a number of keys, or None for any number"),
        (
            {"lock": True, "lock_ttl": 19},
            (
                "lock_ttl=19.0: is less than two heartbeats of 10 s: one late heartbeat would lose "
                "every lock; use at least 20"
            ),
        ),
        (
            {"lock": True, "lock_ttl": 0},
            "lock_ttl=0: give a positive number of seconds below 1000000000",
        ),
        ({"lock": True, "idle": -1}, "idle=-1: give a positive number of seconds below 1000000000"),
        (
            {"lock": True, "idle": float("nan")},
            "idle=nan: give a positive number of seconds below 1000000000",
        ),
        (
            {"lock": True, "max_handoff_time": "1"},
            "max_handoff_time='1': give a positive number of seconds below 1000000000",
        ),
        ({"lock_ttl": 90}, "lock_ttl=90: is for a node with locks: pass lock=True too"),
        (
            {"limit": 5, "max_handoff_time": 9},
            "max_handoff_time=9: is for a node with locks: pass lock=True too",
        ),
        ({"idle": 9}, "idle=9: is for a node with locks or a limit: pass one too"),
    ],
)
def test_settings_that_cannot_work_are_refused_by_name(
    client: Redis, settings: dict[str, Any], text: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        RingNode(client, RING, **settings)
    assert str(caught.value) == text


@pytest.mark.parametrize("timeout", [-1, float("nan"), "1", None, True])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(make: Make, timeout: Any) -> None:
    node = make(**LONG)
    with pytest.raises(ConfigError, match="timeout="):
        node.hold("k", timeout=timeout).__enter__()


# --- holding --------------------------------------------------------------------------------------


@pytest.mark.parametrize("follow", [False, True])
def test_why_a_key_cannot_be_held_is_said_with_who_has_it(make: Make, follow: bool) -> None:
    node = make(name="a", limit=2, follow=follow, **LONG)
    other = make(name="b", **LONG)
    eventually(lambda: node.ring.node_count == 2, "they know each other")
    eventually(lambda: know_their_ranges([node, other]), "and what is whose")
    own = [key for key in KEYS if node.owner(key) == "a"]
    foreign = next(key for key in KEYS if node.owner(key) == "b")
    with pytest.raises(NotHeld) as caught:
        node.hold(foreign).__enter__()
    # A node that knows only its own ranges would have to ask Redis who it is.
    owner = "b" if follow else None
    assert str(caught.value) == f"key '{foreign}' is not held: {owner or 'another node'} owns it"
    assert (caught.value.key, caught.value.holder) == (foreign, owner)
    node.select(own)
    with pytest.raises(NotHeld, match="this node is at its limit of 2 keys"):
        node.hold(own[5]).__enter__()
    with other.hold(foreign, timeout=1):
        pass


def test_a_node_that_is_not_on_the_ring_just_now_holds_nothing(make: Make, client: Redis) -> None:
    # Beaten by hand: one that runs would be on the ring again before it is asked. And one that
    # follows: others find it out by a heartbeat, which puts them back.
    node = make(start=False, follow=True, **LONG)
    node.heartbeat()
    client.delete(RING)
    node.update()
    assert node.select(KEYS) == []
    with (
        pytest.raises(NotHeld, match=r"^key 'k' is not held: this node is not on the ring just"),
        node.hold("k", timeout=1),
    ):
        pass


def test_an_error_of_the_block_comes_through_and_the_lease_is_left(
    make: Make, client: Redis
) -> None:
    node = make(**LONG)
    with pytest.raises(ZeroDivisionError), node.hold("k"):
        raise ZeroDivisionError
    book = node._machine.book
    assert book is not None
    assert not book._leases.keys
    assert node.contains("k")


def test_two_threads_of_one_node_hold_a_key_by_one_lease(make: Make) -> None:
    node = make(**LONG)
    inside = threading.Barrier(8)
    found: list[Any] = []

    def work() -> None:
        with node.hold("k") as lease:
            inside.wait()  # All of them at once.
            found.append(lease)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(map(id, found))) == 1
    assert found[0].pins == 0


def test_hold_waits_until_another_node_lets_go(make: Make) -> None:
    first = make(name="a", **LONG)
    with first.hold("k"):
        second = make(name="b", **LONG)
        first.stop()
        eventually(lambda: know_their_ranges([second]), "the key is its own")
        with pytest.raises(HoldTimeout) as caught:
            second.hold("k", timeout=0.05).__enter__()
        assert (caught.value.key, caught.value.holder) == ("k", "a")
        assert isinstance(caught.value, TimeoutError)
        waited: list[int] = []

        def wait() -> None:
            with second.hold("k", timeout=60) as lease:
                waited.append(lease.token)

        thread = threading.Thread(target=wait)
        thread.start()
    thread.join()
    assert waited


def test_keys_that_were_freed_while_nobody_listened_are_not_waited_for_until_their_ttl(
    redis_server: RedisServer, client: Redis, make: Make
) -> None:
    with Proxy(redis_server.socket) as proxy, Redis.from_url(proxy.url) as redis:
        first = make(name="a", **LONG)
        assert first.select(KEYS) == KEYS
        second = make(redis=redis, name="b", **LONG)
        eventually(lambda: know_their_ranges([first]), "the first has heard of the second")
        moved = [key for key in KEYS if second.owner(key) == "b"]
        assert second.select(KEYS) == []
        assert second.status.waiting == len(moved)
        proxy.lose_messages()
        assert set(first.select(KEYS)).isdisjoint(moved)
        eventually(lambda: locks(client).keys().isdisjoint(moved), "they are freed")
        assert second.select(KEYS) == []
        proxy.heal()
        proxy.cut("pubsub")
        eventually(lambda: second.select(KEYS) == moved, "the second has them")


def test_stop_ends_a_hold_that_waits(make: Make) -> None:
    first = make(name="a", **LONG)
    with first.hold("k"):
        second = make(name="b", **LONG)
        first.stop()
        eventually(lambda: know_their_ranges([second]), "the key is its own")
        failed: list[Exception] = []

        def wait() -> None:
            try:
                second.hold("k", timeout=600).__enter__()
            except NotHeld as error:
                failed.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: second.status.waiting == 1, "it waits")
        second.stop()
        thread.join()
        assert "this node is stopped, and owns nothing" in str(failed[0])


# --- Redis refuses --------------------------------------------------------------------------------


def test_a_user_who_may_not_touch_locks_is_told_in_the_status(
    make: Make, client: Redis, redis_server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    # Every key that a heartbeat needs, and no lock.
    keys = (*RING_KEYS.script_keys(), RING_KEYS.lock_server, RING_KEYS.token)
    allowed = [f"~{key.decode()}" for key in keys]
    client.execute_command(
        *("ACL", "SETUSER", "poor", "reset", "on", ">x", "+@all", "&*", *allowed)
    )
    with Redis.from_url(redis_server.url, username="poor", password="x") as poor:
        node = make(redis=poor, **CALM)
        assert node.select(KEYS) == []
        assert not node.contains("k")
        eventually(lambda: node.status.last_error, "the status tells")
        assert "NOPERM" in str(node.status.last_error) or "ermission" in str(node.status.last_error)
        assert node.state.value == "live"
        beats = node.status.heartbeats
        eventually(lambda: node.status.heartbeats > beats + 5, "it goes on")
        warnings = [record for record in caplog.records if record.levelname == "WARNING"]
        assert len(warnings) == 1  # Said once, and not with each try.
        client.execute_command("ACL", "SETUSER", "poor", "allkeys")
        eventually(lambda: node.select(KEYS) == KEYS, "all is well again")
        eventually(lambda: node.status.last_error is None, "and the status says so")
        node.stop()
    client.execute_command("ACL", "DELUSER", "poor")


def test_a_counter_of_another_type_is_told_in_the_status(
    make: Make, client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    node = make(**CALM)
    client.lpush(RING_KEYS.token, "somebody's")
    assert node.select(KEYS) == []
    # The heartbeats go well, and so does every question but those that take locks.
    beats = node.status.heartbeats
    eventually(lambda: node.status.heartbeats > beats + 3 and not node.contains("k"), "it goes on")
    assert "WRONGTYPE" in str(node.status.last_error)
    warnings = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(warnings) == 1
    client.delete(RING_KEYS.token)
    eventually(lambda: node.select(KEYS) == KEYS, "all is well again")
    eventually(lambda: node.status.last_error is None, "and the status says so")


def test_stop_lets_go_of_what_was_taken_while_redis_was_silent(
    make: Make, client: Redis, redis_server: RedisServer
) -> None:
    with Proxy(redis_server.socket) as proxy, Redis.from_url(proxy.url) as redis:
        node = make(redis=redis, ttl=3.0, heartbeat_interval=0.2, lock=True, lock_ttl=120.0)
        node.select(KEYS[:1])  # Redis has the script from now on
        proxy.deafen("commands")
        node.select(KEYS)
        assert len(locks(client)) == len(KEYS)
        proxy.heal()
        proxy.cut("commands")
        node.stop()
        assert locks(client) == {}


# --- by hand --------------------------------------------------------------------------------------


def test_a_node_run_by_hand_takes_renews_and_lets_go(make: Make, client: Redis) -> None:
    node = make(start=False, name="a", **LONG)
    assert not node.contains("k")
    node.heartbeat()
    assert node.contains("k")
    client.pexpire(RING_KEYS.lock(b"k"), 5000)
    node.heartbeat()
    assert client.pttl(RING_KEYS.lock(b"k")) > 60_000
    with node.hold("k") as lease:
        lease.check()
    node.stop()
    assert locks(client) == {}
    assert client.zcard(RING) == 0
    assert not node.contains("k")


def test_a_node_removed_by_hand_lets_go_of_its_locks(make: Make, client: Redis) -> None:
    node = make(start=False, name="a", **LONG)
    node.heartbeat()
    assert node.select(KEYS) == KEYS
    node.remove()
    assert locks(client) == {}
    assert client.zcard(RING) == 0
    assert node.state.value == "stopped"
    node.heartbeat()
    assert node.select(KEYS) == KEYS
    node.stop()
    assert locks(client) == {}


def test_a_node_that_is_stopped_right_after_it_was_removed_lets_go_of_its_locks(
    make: Make, client: Redis
) -> None:
    node = make(name="a", **LONG)
    assert node.select(KEYS) == KEYS
    node.remove()
    node.stop()
    assert locks(client) == {}


# --- names and processes --------------------------------------------------------------------------


def test_a_node_whose_name_was_taken_holds_nothing_and_its_locks_expire(
    make: Make, client: Redis
) -> None:
    settings = {"ttl": 3.0, "heartbeat_interval": 0.2, "lock": True}
    first = make(name="a", ring="r", **settings)
    assert first.select(KEYS) == KEYS
    lease = first.hold("k")
    entered = lease.__enter__()
    second = make(name="a", ring="r", **settings)
    eventually(lambda: first.state.value == "superseded", "it learns of it")
    assert not any(first.contains(key) for key in KEYS)
    eventually(entered.lost.is_set, "its leases are lost")
    with pytest.raises(LeaseLost):
        entered.check()
    lease.__exit__(None, None, None)
    eventually(lambda: len(second.select([*KEYS, "k"])) == len(KEYS) + 1, "the other has all")


CHILD = """
import os, sys
from contextlib import ExitStack
from redis import Redis
from hashring import LeaseLost, NodeForked, RingNode

redis = Redis.from_url(sys.argv[1])
settings = {"lock": True, "ttl": 20, "heartbeat_interval": 5}
node = RingNode(redis, "accounts", name="a", **settings)
node.start()
keys = [f"k{number}" for number in range(50)]
with ExitStack() as stack:
    leases = {key: stack.enter_context(node.hold(key)) for key in keys}
    other = RingNode(redis, "accounts", name="b", **settings)
    other.start()
    # One key stays, another is asked to finish, which lets go of it at the end of the block.
    moved = next(key for key in keys if other.owner(key) == "b")
    kept = next(key for key in keys if other.owner(key) == "a")
    leases[moved].revoked.wait()
    if os.fork() == 0:
        results = []
        for call in (
            lambda: node.contains(kept),
            lambda: node.contains(moved),
            lambda: node.contains("new"),
            lambda: node.select([kept]),
            lambda: node.hold(kept).__enter__(),
            lambda: leases[moved].check(),
        ):
            try:
                results.append(call())
            except (NodeForked, LeaseLost) as error:
                results.append(type(error).__name__)
        print(*results, flush=True)
        sys.exit(7)  # Through the block of the lease.
    _, status = os.wait()
    assert os.waitstatus_to_exitcode(status) == 7
    leases[moved].check()
    assert node.contains(kept)
    print(redis.exists(*("{accounts}:lock:" + key for key in keys)), flush=True)
node.stop()
other.stop()
"""


@pytest.mark.one_server
def test_a_forked_child_has_none_of_the_locks_and_lets_go_of_none(
    redis_server: RedisServer,
) -> None:
    done = python("-W", "ignore", "-c", CHILD, redis_server.url)
    assert done.stdout.splitlines() == [" ".join(["NodeForked"] * 5 + ["LeaseLost"]), "50"]
    assert done.stderr == ""
    assert done.returncode == 0


SIGNALLED = """
import signal, sys
from redis import Redis
from hashring import RingNode

node = RingNode(
    Redis.from_url(sys.argv[1]), "accounts", lock=True, limit=1, ttl=20, heartbeat_interval=5
)
keys = [f"k{number}" for number in range(1000)]
stopped = False

def stop(*_):
    global stopped
    node.stop()
    stopped = True

signal.signal(signal.SIGTERM, stop)
for turn in range(30):
    node.start()
    print("running", flush=True)
    while not stopped:
        for key in keys:
            node.contains(key)
    stopped = False
    while node.state.value != "stopped":
        pass
    node.stop()
    print("stopped", flush=True)
"""


@pytest.mark.one_server
def test_stop_in_a_signal_handler_never_waits_for_the_question_it_interrupted(
    redis_server: RedisServer, client: Redis
) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SIGNALLED, redis_server.url], stdout=subprocess.PIPE, cwd=ROOT
    ) as process:
        assert process.stdout
        try:
            for _ in range(30):
                assert process.stdout.readline() == b"running\n"
                os.kill(process.pid, signal.SIGTERM)
                assert process.stdout.readline() == b"stopped\n"
            assert process.wait() == 0
        finally:
            process.kill()
    assert locks(client) == {}
    assert client.zcard(RING) == 0


@pytest.mark.one_server
def test_stop_while_others_ask_leaves_no_lock_behind(make: Make, client: Redis) -> None:
    for turn in range(20):
        node = make(name=f"n{turn}", **LONG)
        done = threading.Event()
        trouble: list[Exception] = []

        def ask(
            node: RingNode = node,
            done: threading.Event = done,
            trouble: list[Exception] = trouble,
        ) -> None:
            number = 0
            while not done.is_set():
                number += 1
                try:
                    node.contains(f"k{number}")
                    node.select([f"s{number}", f"t{number}"])
                except Exception as error:  # noqa: BLE001
                    trouble.append(error)

        threads = [threading.Thread(target=ask) for _ in range(3)]
        for thread in threads:
            thread.start()
        eventually(lambda node=node: (node.status.held or 0) > 20, "it works")
        node.stop()
        done.set()
        for thread in threads:
            thread.join()
        assert trouble == []
        assert locks(client) == {}


@pytest.mark.one_server
def test_holds_that_end_together_after_stop_all_let_go(make: Make, client: Redis) -> None:
    together = threading.Barrier(17)

    def work(node: RingNode, key: str) -> None:
        with node.hold(key):
            together.wait()  # All are held.
            together.wait()  # The node has stopped.

    for turn in range(10):
        node = make(name=f"n{turn}", **LONG)
        threads = [threading.Thread(target=work, args=(node, key)) for key in KEYS[:16]]
        for thread in threads:
            thread.start()
        together.wait()
        node.stop()
        assert len(locks(client)) == 16
        together.wait()
        for thread in threads:
            thread.join()
        assert locks(client) == {}


def test_an_asyncio_node_that_stops_right_after_a_question_leaves_nothing(
    redis_server: RedisServer, client: Redis
) -> None:
    uncaught: list[Any] = []

    async def run() -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: uncaught.append(context)
        )
        async with AsyncRedis.from_url(redis_server.url) as redis:
            for turn in range(20):
                node = AsyncRingNode(redis, RING, name=f"n{turn}", **LONG)
                await node.start()
                for key in KEYS:
                    node.contains(key)
                    node.contains(key)
                for _ in range(turn % 5):
                    await asyncio.sleep(0)
                await node.stop()
                assert not any(node.contains(key) for key in KEYS)
                assert len(asyncio.all_tasks()) == 1

    asyncio.run(run())
    assert uncaught == []
    assert locks(client) == {}


def test_a_cancelled_select_leaves_the_node_right(redis_server: RedisServer, client: Redis) -> None:
    async def run() -> None:
        async with (
            AsyncRedis.from_url(redis_server.url) as redis,
            AsyncRingNode(redis, RING, limit=10, **LONG) as node,
        ):
            for turn in range(20):
                task = asyncio.create_task(node.select(KEYS))
                for _ in range(turn % 6):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
            while len(await node.select(KEYS)) != 10:
                await asyncio.sleep(0.01)
            assert set(locks(client)) == set(await node.select(KEYS))

    asyncio.run(run())


def test_an_asyncio_node_that_does_not_run_refuses_to_hold(redis_server: RedisServer) -> None:
    async def run() -> None:
        async with AsyncRedis.from_url(redis_server.url) as redis:
            node = AsyncRingNode(redis, RING, **LONG)
            with pytest.raises(NotHeld, match="this node is new, and owns nothing"):
                async with node.hold("k"):
                    pass
            assert await node.select(KEYS) == []
            assert not node.contains("k")

    asyncio.run(run())


DELAYS = (2.0, 8.0, 30.0)
"""Seconds for which Redis is asked, longer each time: another node joins meanwhile."""


@pytest.fixture
def _patient_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NodeSettings, "io_timeout", PATIENCE)


@pytest.mark.usefixtures("_patient_nodes")
def test_what_goes_while_select_waits_for_redis_is_not_among_its_answer(
    redis_server: RedisServer, make: Make
) -> None:
    """Redis is asked for some keys; meanwhile others, held already, move to a node that joins."""
    first, more = KEYS[:30], KEYS[30:]

    def meanwhile(delay: float, proxy: Proxy, slow: Redis) -> bool:
        """Whether the other was quick enough to join while Redis was asked."""
        ring = f"ring-{delay}"
        node = make(redis=slow, ring=ring, **LONG)
        assert node.select(first) == first
        proxy.delay(delay, "commands")
        answer: list[str] = []
        asking = threading.Thread(target=lambda: answer.extend(node.select(first + more)))
        asking.start()
        other = make(ring=ring, weight=20, **LONG)
        eventually(lambda: know_their_ranges([node, other]), "the node hears of it")
        in_time = asking.is_alive()
        asking.join()
        proxy.heal()
        assert other.name in map(other.owner, first)
        if in_time:
            assert [key for key in answer if other.owner(key) == other.name] == []
        return in_time

    with Proxy(redis_server.socket) as proxy, Redis.from_url(proxy.url) as slow:
        assert any(meanwhile(delay, proxy, slow) for delay in DELAYS)


@pytest.mark.usefixtures("_patient_nodes")
def test_what_goes_while_an_asyncio_select_waits_is_not_among_its_answer(
    redis_server: RedisServer, make: Make
) -> None:
    first, more = KEYS[:30], KEYS[30:]

    async def meanwhile(delay: float, proxy: Proxy, client: AsyncRedis) -> bool:
        ring = f"ring-{delay}"
        async with AsyncRingNode(client, ring, **LONG) as node:
            assert await node.select(first) == first
            proxy.delay(delay, "commands")
            asking = asyncio.create_task(node.select(first + more))
            other = await asyncio.to_thread(lambda: make(ring=ring, weight=20, **LONG))
            while node.get_ranges() != other.ring.node_ranges(node.name):
                await asyncio.sleep(0.01)
            in_time = not asking.done()
            answer = await asking
            proxy.heal()
            assert other.name in map(other.owner, first)
            if in_time:
                assert [key for key in answer if other.owner(key) == other.name] == []
            return in_time

    async def run(proxy: Proxy) -> None:
        async with AsyncRedis.from_url(proxy.url) as client:
            for delay in DELAYS:
                if await meanwhile(delay, proxy, client):
                    return
        pytest.fail("the other never joined while Redis was asked")

    with Proxy(redis_server.socket) as proxy:
        asyncio.run(run(proxy))


# --- Redis loses the locks ------------------------------------------------------------------------


def test_after_flushall_holders_put_back_their_locks_and_nobody_takes_another(
    make: Make, client: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = make(**CALM, name="first"), make(**CALM, name="second")
    eventually(lambda: know_their_ranges([first, second]), "they are two")
    mine, others = first.select(KEYS), second.select(KEYS)
    assert sorted(mine + others) == sorted(KEYS)
    free = mine.pop()
    key = free.encode()
    before = locks(client)
    client.flushall()
    eventually(lambda: first.status.losses == second.status.losses == 1, "both have learnt of it")
    eventually(lambda: locks(client).items() == before.items(), "all locks are as they were")
    assert first.select(KEYS) == [*mine, free]
    assert second.select(KEYS) == others
    first.heartbeat()
    client.delete(RING_KEYS.lock(key))
    eventually(lambda: first.status.held == len(mine), "it has learnt that one was taken away")
    assert not any(node.contains(free) for node in (first, second))
    said = r"Redis lost the locks of the ring.*: try again in \d"
    with pytest.raises(NotHeld, match=said), first.hold(free):
        pass
    assert 0 < first.status.held_off <= 120
    assert "Redis lost the ring; its nodes put back themselves and their locks" in caplog.text
    assert "nobody takes another lock for 1" in caplog.text


def test_a_node_that_is_started_again_over_a_loss_takes_nothing_that_another_holds(
    make: Make, client: Redis
) -> None:
    holder, other = make(**LONG), make(**LONG)
    key = next(key for key in KEYS if holder.contains(key))
    with holder.hold(key) as lease:
        client.flushall()
        other.stop()
        other.start()
        assert other.select(KEYS) == []
        assert 0 < other.status.held_off <= 120
        lease.check()


def test_a_node_without_locks_does_not_warn_of_lost_ones_when_others_begin_to_lock(
    make: Make, caplog: pytest.LogCaptureFixture
) -> None:
    without = make(ttl=120.0, heartbeat_interval=50.0)
    first = make(**LONG)
    for _ in range(2):  # What the first finds is logged before the second is answered.
        without.update()
    assert first.status.held_off == 0.0
    first.update()
    assert first.status.held_off > 100.0
    assert "locks" not in caplog.text


def test_hold_waits_while_nobody_may_take_a_lock(make: Make, client: Redis) -> None:
    node = make(**CALM)
    assert node.contains("held")
    client.flushall()
    eventually(lambda: node.status.held_off > 0, "it has learnt of the loss")
    with pytest.raises(NotHeld), node.hold("free", timeout=0.3):
        pass
    epoch, tag, began, _ = client.get(RING_KEYS.epoch).split()
    client.set(RING_KEYS.epoch, b" ".join((epoch, tag, began, b"0")))
    with node.hold("free", timeout=60) as lease:
        assert lease.token


def test_asyncio_nodes_put_back_their_locks_too(client: Redis, redis_server: RedisServer) -> None:
    async def main() -> None:
        redis = AsyncRedis(unix_socket_path=str(redis_server.socket))
        async with AsyncRingNode(redis, RING, **CALM) as node:
            assert await node.select(KEYS) == KEYS
            before = locks(client)
            client.flushall()
            while locks(client) != before:
                await asyncio.sleep(0.01)
            assert await node.select(KEYS) == KEYS
        await redis.aclose()

    asyncio.run(main())


def test_an_asyncio_node_that_is_started_again_over_a_loss_takes_nothing_either(
    client: Redis, redis_server: RedisServer
) -> None:
    async def main() -> None:
        redis = AsyncRedis(unix_socket_path=str(redis_server.socket))
        node = AsyncRingNode(redis, RING, **LONG)
        await node.start()
        await node.stop()
        client.flushall()
        async with node:
            assert await node.select(KEYS) == []
            assert 0 < node.status.held_off <= 120
        await redis.aclose()

    asyncio.run(main())


class AsyncCounting(AsyncRingNode):
    """Overrides what its users call, and reaches the library's own."""

    asked = 0

    def contains(self, key: str | bytes) -> bool:
        self.asked += 1
        return super().contains(key)


@pytest.mark.parametrize("options", [{"lock": True}, {"limit": 1}, {}], ids=["lock", "limit", ""])
@pytest.mark.parametrize("kind", [AsyncCounting, AsyncRingNode])
def test_contains_of_an_asyncio_node_is_one_method_that_subclasses_override_and_reach(
    client: Redis, redis_server: RedisServer, kind: type[AsyncRingNode], options: dict[str, Any]
) -> None:
    async def main() -> None:
        redis = AsyncRedis(unix_socket_path=str(redis_server.socket))
        async with kind(redis, RING, **(CALM | {"lock": False} | options)) as node:
            # Asked for the first time, a key that has to be locked is not held yet.
            assert AsyncRingNode.contains(node, "a") is not options.get("lock", False)
            assert await node.select(["a", b"b"]) == ["a", b"b"][: options.get("limit")]
            held = [key for key in ("a", b"b") if AsyncRingNode.contains(node, key)]
            assert held == ["a", b"b"][: options.get("limit")]
            assert [key for key in ("a", b"b") if node.contains(key)] == held
            assert getattr(node, "asked", 2) == 2
            assert len(locks(client)) == (2 if "lock" in options else 0)
        assert not AsyncRingNode.contains(node, "a")
        await redis.aclose()

    asyncio.run(main())
