"""Locks, limit and overflow on real processes, a real Redis and real faults, in every runner.

Short timers where a fault must be over in moments; long ones where only a message, or only the
asking itself, can be what did it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from redis import Redis

from hashring.store.embedded_server import RedisServer
from hashring.store.ring.key_names import ring_keys
from tests.conftest import eventually
from tests.hosted import RING, Make
from tests.hosts import Host, HostedNode, HostError
from tests.proxy import Proxy
from tests.transitions import Transitions

RING_KEYS = ring_keys(RING)
SHORT = {"ttl": 2.0, "heartbeat_interval": 0.2, "lock": True}
LONG = {"ttl": 120.0, "heartbeat_interval": 50.0, "lock": True}
CALM = {"ttl": 120.0, "idle": 600.0, "heartbeat_interval": 0.2, "lock": True}
"""Heartbeats as fast as may be, and nothing that time alone would let go of."""
LASTING = CALM | {"ttl": 3.0, "lock_ttl": 120.0}
"""The same, and after a second a silent Redis has failed."""
SOON = 60_000
"""In milliseconds: a lock that ends so soon is renewed by a calm node, and outlasts any test."""
KEYS = [f"key-{number}" for number in range(60)]


def locks(client: Redis) -> dict[str, tuple[int, str]]:
    """Token and node of each lock that stands."""
    found = {}
    for name in client.scan_iter(RING_KEYS.locks + b"*"):
        value = client.get(name)
        if value is not None:
            token, _, node = value.partition(b"\n")[0].decode().split(" ", 2)
            found[name[len(RING_KEYS.locks) :].decode()] = int(token), node
    return found


def held(*nodes: HostedNode, keys: list[str] = KEYS) -> list[list[str]]:
    """What each node says it may work on, asked once; no key twice."""
    answers = [node.call("select", keys) for node in nodes]
    for first, second in pairwise(answers):
        assert not set(first) & set(second)
    return answers


def all_held(*nodes: HostedNode, keys: list[str] = KEYS) -> bool:
    return sum(map(len, held(*nodes, keys=keys))) == len(keys)


def fails(call: Callable[[], Any]) -> HostError:
    with pytest.raises(HostError) as caught:
        call()
    return caught.value


# --- taking, keeping, letting go ----------------------------------------------------------------


def test_contains_takes_a_key_holds_it_and_stop_lets_go(make: Make, client: Redis) -> None:
    node, other = make(name="a", **LONG).start(), make(name="b", **LONG).start()
    mine = [key for key in KEYS if node.call("owner", key) == "a"]
    # With asyncio a plain call cannot wait for Redis: what it asked for is held the next time. And
    # before it receives the other's join, the node takes the other's keys as well.
    eventually(lambda: node.owned(KEYS) == set(mine), "each own key is held")
    assert other.owned(mine) == set()
    eventually(
        lambda: (
            {key: holder for key, (_, holder) in locks(client).items()} == dict.fromkeys(mine, "a")
        ),
        "each own key is locked, and no other",
    )
    node.stop()
    assert locks(client) == {}
    assert node.owned(KEYS) == set()


def test_select_answers_in_order_in_one_call(make: Make, client: Redis) -> None:
    node = make(**LONG).start()
    assert node.call("select", KEYS[:1]) == KEYS[:1]
    before = node.status
    client.config_resetstat()
    assert node.call("select", KEYS[::-1]) == KEYS[::-1]
    assert node.call("select", KEYS) == KEYS
    calls = client.info("commandstats")["cmdstat_evalsha"]["calls"]
    after = node.status
    assert after["held"] == len(KEYS)
    # A busy machine may confirm the subscription late, and the node then looks once more.
    besides = sum(after[name] - before[name] for name in ("heartbeats", "fetches"))
    assert 1 <= calls <= 1 + besides


def test_heartbeats_keep_what_is_held_and_asked_for(make: Make, client: Redis) -> None:
    node = make(**CALM).start()
    node.call("select", KEYS[:10])
    tokens = locks(client)
    names = [RING_KEYS.lock(key.encode()) for key in KEYS[:5]]
    for name in names:
        client.pexpire(name, SOON)
    node.do("long_ago", keys=KEYS[5:10])
    eventually(lambda: min(map(client.pttl, names)) > SOON, "the locks are renewed")
    eventually(lambda: len(locks(client)) == 5, "the others are let go")
    assert {key: locks(client)[key] for key in KEYS[:5]} == {key: tokens[key] for key in KEYS[:5]}
    assert set(locks(client)) == set(KEYS[:5])
    assert node.status["held"] == 5


def test_a_join_hands_over_by_messages_alone(make: Make, client: Redis) -> None:
    first = make(name="a", **LONG).start()
    assert first.call("select", KEYS) == KEYS
    before = locks(client)
    second = make(name="b", **LONG).start()
    moved = {key for key in KEYS if second.call("owner", key) == "b"}
    eventually(
        lambda: all_held(first, second) and second.status["held"] == len(moved),
        "every key is held again, by its owner",
    )
    after = locks(client)
    assert {key for key in KEYS if after[key][1] == "b"} == moved
    for key in KEYS:
        # A key that moved has a greater token, all others the one that they had.
        assert (after[key][0] > before[key][0]) is (key in moved)
    first.stop()
    eventually(lambda: all_held(second), "the other has all of them")


def test_what_a_killed_process_held_is_held_again(make: Make, another: Host) -> None:
    survivor, victim = make(**SHORT).start(), make(another, **SHORT).start()
    eventually(lambda: all_held(survivor, victim), "every key is held")
    another.kill()
    eventually(lambda: all_held(survivor), "the survivor has them all")


# --- leases -------------------------------------------------------------------------------------


def test_a_lease_has_a_token_a_deadline_and_events(make: Make, client: Redis) -> None:
    node = make(name="a", **CALM).start()
    lease = node.hold("k")
    assert lease.token == locks(client)["k"][0]
    inner = node.hold("k")
    assert inner.host.do("same", first=inner.id, second=lease.id)
    lost, revoked = lease.wait("lost"), lease.wait("revoked")
    client.pexpire(RING_KEYS.lock(b"k"), SOON)
    eventually(lambda: client.pttl(RING_KEYS.lock(b"k")) > SOON, "the lease is renewed")
    lease.check()
    assert 0 < lease.state["left"] <= 120.0
    assert not lost.arrived()
    assert not revoked.arrived()
    inner.finish()
    # Somebody takes the lock away: the waiting code learns of it at the next heartbeat.
    client.delete(RING_KEYS.lock(b"k"))
    eventually(lost.arrived, "the lease is lost")
    error = fails(lease.check)
    assert error.kinds[0] == "LeaseLost"
    lease.finish()
    second = node.hold("k")
    assert second.token > lease.token
    assert not revoked.arrived()
    node.stop()
    assert second.state["lost"]
    second.finish()
    eventually(lambda: locks(client) == {}, "nothing is held any more")


def test_a_lease_says_that_the_last_of_its_blocks_has_ended(make: Make) -> None:
    node = make(**LONG).start()
    lease, beside = node.hold("k"), node.hold("k")
    lease.finish()
    beside.check()
    beside.finish()
    assert "the block of the lease has ended" in str(fails(beside.check))
    later = node.hold("k")
    later.check()
    assert fails(lease.check).kinds[0] == "LeaseLost"
    later.finish()


def test_a_lease_on_a_key_that_moves_is_asked_to_finish_and_handed_over(
    make: Make, client: Redis
) -> None:
    node = make(name="a", **LONG).start()
    leases = {key: node.hold(key) for key in KEYS[:20]}
    other = make(name="b", **LONG).start()
    moved = [key for key in KEYS[:20] if other.call("owner", key) == "b"]
    waits = [leases[key].wait("revoked") for key in moved]
    eventually(lambda: all(wait.arrived() for wait in waits), "the moved ones are asked to finish")
    for key, lease in leases.items():
        lease.check()
        assert lease.state["revoked"] is (key in moved)
    assert other.call("select", moved) == []
    error = fails(lambda: other.hold(moved[0], timeout=0.05))
    assert error.kinds[:2] == ["HoldTimeout", "NotHeld"]
    assert str(error) == f"key '{moved[0]}' is not held: a still held it after 0.05 s"
    error = fails(lambda: other.hold(moved[0]))
    assert str(error) == f"key '{moved[0]}' is not held: a holds it"
    waiting = other.ask("hold", lease="waiting", key=moved[0], timeout=60)
    assert not waiting.arrived()
    for lease in leases.values():
        lease.finish()
    assert waiting.result() > leases[moved[0]].token
    other.host.do("finish", lease="waiting")
    eventually(lambda: other.call("select", moved) == moved, "it has what is its own")
    error = fails(lambda: node.hold(moved[0]))
    text = f"key '{moved[0]}' is not held: another node owns it"
    assert (error.kinds[0], str(error)) == ("NotHeld", text)


def test_a_lease_that_does_not_finish_ends_with_the_handoff_time(make: Make, client: Redis) -> None:
    node = make(name="a", max_handoff_time=0.5, **LONG).start()
    leases = {key: node.hold(key) for key in KEYS}
    other = make(name="b", **LONG).start()
    moved = next(key for key in KEYS if other.call("owner", key) == "b")
    eventually(lambda: moved in other.call("select", [moved]), "the other gets it nevertheless")
    lease = leases[moved]
    assert fails(lease.check).kinds[0] == "LeaseLost"
    eventually(lambda: lease.state["lost"], "the loop tells")
    for each in leases.values():
        each.finish()
    assert other.call("select", [moved]) == [moved]


def test_a_hold_across_stop_keeps_its_lock_until_it_is_done(make: Make, client: Redis) -> None:
    node = make(name="a", **LONG).start()
    lease = node.hold("k")
    node.call("select", KEYS)
    lost = lease.wait("lost")
    node.stop()
    eventually(lost.arrived, "the lease is lost")
    assert set(locks(client)) == {"k"}
    other = make(name="b", **LONG).start()
    assert other.call("select", ["k"]) == []
    lease.finish()
    eventually(lambda: other.call("select", ["k"]) == ["k"], "the lock is free")


def test_what_runs_beside_a_hold_that_ends_after_stop_goes_on_while_redis_is_silent(
    make: Make, host: Host, redis_server: RedisServer
) -> None:
    node = make(**LONG).start()
    lease = node.hold("key")
    node.stop()
    os.kill(redis_server.pid, signal.SIGSTOP)
    try:
        asked, before = host.ask("finish", lease=lease.id), host.do("tick_count")
        eventually(lambda: host.do("tick_count") > before + 20, "it ticks")
        # Had the end kept everybody waiting, it would be over by now.
        assert not asked.arrived()
    finally:
        os.kill(redis_server.pid, signal.SIGCONT)
    asked.result()


def test_a_node_that_does_not_run_holds_nothing_and_says_so(make: Make) -> None:
    node = make(**LONG)
    assert str(fails(lambda: node.hold("k"))) == (
        "key 'k' is not held: this node is new, and owns nothing"
    )
    node.start()
    node.stop()
    assert str(fails(lambda: node.hold("k"))) == (
        "key 'k' is not held: this node is stopped, and owns nothing"
    )


# --- limit and overflow -------------------------------------------------------------------------


def test_a_full_node_leaves_the_rest_to_the_next_and_gets_it_back(
    make: Make, client: Redis
) -> None:
    full, other = make(name="a", limit=5, **CALM).start(), make(name="b", **CALM).start()
    eventually(lambda: full.call("get_node_count") == 2, "they know each other")
    own = [key for key in KEYS if full.call("owner", key) == "a"]
    assert len(own) > 7
    eventually(lambda: all_held(full, other), "every key is held")
    mine = held(full)[0]
    assert len(mine) == 5
    assert full.status["full"]
    assert client.smembers(RING_KEYS.full) == {b"a"}
    # Two of its keys are not asked for any more; two others come back, and no more than that.
    rest = [key for key in KEYS if key not in mine[:2]]
    before = locks(client)
    full.do("long_ago", keys=mine[:2])
    eventually(lambda: full.status["held"] == 3, "it lets go of them")
    eventually(
        lambda: all_held(full, other, keys=rest) and len(held(full, keys=rest)[0]) == 5,
        "it is at its limit again",
    )
    after = locks(client)
    moved = [key for key in rest if before[key] != after[key]]
    assert len(moved) == 2
    assert {after[key][1] for key in moved} == {"a"}
    beats = other.status["heartbeats"], full.status["heartbeats"]
    eventually(
        lambda: (
            all_held(full, other, keys=rest)
            and other.status["heartbeats"] > beats[0] + 5
            and full.status["heartbeats"] > beats[1] + 5
        ),
        "some heartbeats",
    )
    assert locks(client) == after


def test_with_every_node_full_the_rest_is_counted_and_told(make: Make, client: Redis) -> None:
    nodes = [make(name=name, limit=10, **CALM).start() for name in "ab"]
    eventually(
        lambda: (
            [len(answer) for answer in held(*nodes)] == [10, 10]
            and sum(node.status["unserved"] for node in nodes) == len(KEYS) - 20
        ),
        "all that is unserved is counted",
    )
    assert len(locks(client)) == 20

    def told(*kinds: bytes) -> dict[bytes, bytes]:
        """The last of these kinds of events, by node."""
        events = [fields for _, fields in client.xrange(RING_KEYS.events)]
        return {each[b"by"]: each[b"kind"] for each in events if each[b"kind"] in kinds}

    eventually(lambda: held(*nodes) and told(b"unserved"), "the history tells")
    # The first may have had room once more when the second came.
    assert told(b"full", b"room") == {b"a": b"full", b"b": b"full"}
    third = make(name="c", **CALM).start()
    eventually(lambda: all_held(*nodes, third), "a third has room for the rest")
    eventually(lambda: held(*nodes) and sum(node.status["unserved"] for node in nodes) == 0, "none")


# --- Redis is away ------------------------------------------------------------------------------


def test_while_redis_is_silent_nothing_is_taken_and_all_is_right_again_after(
    make: Make, proxy: Proxy
) -> None:
    node = make(url=proxy.url, **SHORT).start()
    eventually(lambda: node.owned(KEYS[:5]) == set(KEYS[:5]), "some are held")
    proxy.black_hole()
    assert node.owned(KEYS) <= set(KEYS[:5])
    eventually(lambda: node.state == "fenced", "it owns nothing")
    assert node.owned(KEYS) == set()
    proxy.heal()
    eventually(lambda: node.owned(KEYS) == set(KEYS), "it holds all of them")
    eventually(lambda: node.status["last_error"] is None, "nothing is wrong any more")


def test_a_lost_answer_leaves_no_lock_behind_that_nobody_knows(
    make: Make, proxy: Proxy, client: Redis
) -> None:
    node = make(url=proxy.url, limit=10, name="a", **LASTING).start()
    # Redis has the script from now on: else the lost answer is that it does not know it.
    node.call("select", KEYS[:1])
    proxy.deafen("commands", new=False)
    node.call("select", KEYS)
    taken = locks(client)
    assert len(taken) == 10
    eventually(lambda: len(node.call("select", KEYS)) == 10, "it holds as many again")
    assert set(locks(client)) == set(node.call("select", KEYS))
    assert len(locks(client)) == 10


def test_a_connection_that_is_cut_in_the_middle_costs_no_lock(
    make: Make, proxy: Proxy, client: Redis
) -> None:
    node = make(url=proxy.url, **LASTING).start()
    node.call("select", KEYS)
    tokens = locks(client)
    for _ in range(5):
        proxy.cut()
        node.call("select", KEYS)
    eventually(lambda: node.call("select", KEYS) == KEYS, "it holds all of them")
    assert locks(client) == tokens


def test_locks_are_put_back_after_redis_came_back_empty(make: Make) -> None:
    with RedisServer() as own_server:
        nodes = [make(url=own_server.url, name=name, **CALM).start() for name in "ab"]
        eventually(lambda: nodes[0].call("get_node_count") == 2, "they know each other")
        eventually(lambda: all_held(*nodes), "every key is held")
        lease = None
        for node in nodes:
            if node.call("select", ["k"]):
                lease = node.hold("k")
        assert lease is not None
        with Redis.from_url(own_server.url) as connection:
            before = locks(connection)
        own_server.kill()
        own_server.start()
        with Redis.from_url(own_server.url) as connection:

            def all_put_back() -> bool:
                after = locks(connection)
                return all(after.get(key) == before[key] for key in KEYS)

            eventually(all_put_back, "every key has its holder and its token again")
        assert not lease.state["lost"]
        lease.finish()
        for node in nodes:
            node.stop()


# --- a paused process ---------------------------------------------------------------------------


def test_a_paused_holder_wakes_up_and_knows_that_it_lost_its_keys(
    make: Make, another: Host, client: Redis
) -> None:
    paused = make(another, name="a", **SHORT).start()
    lease = paused.hold("k")
    eventually(lambda: paused.call("select", KEYS) == KEYS, "it holds all of them")
    other = make(name="b", **SHORT).start()
    another.pause()
    eventually(lambda: all_held(other, keys=[*KEYS, "k"]), "the other has taken over")
    another.resume()
    assert fails(lease.check).kinds[0] == "LeaseLost"
    eventually(lambda: lease.state["lost"], "the loop tells")
    assert locks(client)["k"][0] > lease.token
    lease.finish()
    eventually(lambda: all_held(paused, other), "they share the keys again")


# --- many at once -------------------------------------------------------------------------------


def test_many_workers_of_many_nodes_never_break_a_rule(
    make: Make, another: Host, redis_server: RedisServer, proxy: Proxy
) -> None:
    settings = {**SHORT, "idle": 0.5, "max_handoff_time": 0.3}
    first = make(name="a", limit=12, **settings).start()
    second = make(another, name="b", limit=20, url=proxy.url, **settings).start()
    third = make(name="c", **settings)
    load: dict[str, Any] = {"keys": KEYS, "workers": 4, "rounds": 150, "enough": 20}
    with Transitions(redis_server, RING_KEYS) as transitions:
        asked = [node.ask("hammer", seed=seed, **load) for seed, node in enumerate((first, second))]
        # The ring changes, and connections break, as long as they are at work.
        turns = 0
        while not all(each.arrived() for each in asked):
            third.start()
            proxy.cut("commands")
            third.call("select", KEYS)
            third.stop()
            turns += 1
        results = [each.result() for each in asked]
        eventually(lambda: held(first, second) and len(locks_of(first)) <= 12, "it settles")
    assert turns
    transitions.check({"a": 12, "b": 20, "c": None})
    assert results[0][1] <= 12
    assert results[1][1] <= 20
    spans = sorted(
        (key, start, end, token, number)
        for number, (found, _) in enumerate(results)
        for key, token, start, end in found
    )
    assert {number for *_, number in spans} == {0, 1}
    for (key, _, end, token, number), (next_key, start, _, next_token, other) in pairwise(spans):
        if key == next_key and number != other:
            # Two nodes at one key: one after the other, and under a greater token.
            assert end < start
            assert token < next_token


def locks_of(node: HostedNode) -> list[str]:
    found: list[str] = node.call("select", KEYS)
    return found
