"""What a live node promises, whatever runs it: real processes, a real Redis, real faults.

Short timers, so that a fault takes moments; long ones where only a message can be what did it.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from redis import Redis

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.store.embedded_server import RedisServer
from hashring.store.ring.key_names import ring_keys
from tests.conftest import eventually
from tests.hosted import RING, Make
from tests.hosts import RUNNERS, Host, HostedNode, HostError
from tests.proxy import Proxy

SHORT = {"ttl": 3.0, "heartbeat_interval": 0.2}
LONG = {"ttl": 120.0, "heartbeat_interval": 50.0}
CALM = {"ttl": 120.0, "heartbeat_interval": 0.2}
"""Heartbeats as fast as may be, and no ttl that a busy machine could let pass."""
KEYS = [f"key-{number}" for number in range(200)]


KINDS = [
    *((runner, True) for runner in RUNNERS),
    *((runner, False) for runner in ("thread", "greenlet", "asyncio")),
]
"""What runs the nodes, and whether they follow the ring or know only their own ranges."""
ALIKE = [("thread-patched", True), ("greenlet", False), ("asyncio", False)]
"""Kinds of which nothing is their own: a thread, patched, and ranges are tested with others."""


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(
            (runner, follow),
            id=f"{runner}{'' if follow else '-own-ranges'}",
            marks=pytest.mark.long if (runner, follow) in ALIKE else (),
        )
        for runner, follow in KINDS
    ],
)
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """One process a kind, which outlives the tests."""
    with Host(request.param[0]) as process:
        yield process


@pytest.fixture
def follow(request: pytest.FixtureRequest) -> bool:
    """Whether the nodes follow the ring."""
    followed: bool = request.node.callspec.params["host"][1]
    return followed


@pytest.fixture
def make(make: Make, follow: bool) -> Make:
    """Makes nodes of the kind."""

    def make_of_kind(*process: Host, **settings: Any) -> HostedNode:
        return make(*process, **{"follow": follow, **settings})

    return make_of_kind


def split(nodes: Iterable[HostedNode]) -> bool:
    """Whether every key is owned by exactly one of the nodes."""
    owned = [key for node in nodes for key in node.owned(KEYS)]
    return sorted(owned) == sorted(KEYS)


def agree(*nodes: HostedNode) -> None:
    """Every key gets exactly one owner among the nodes, and all that follow have the same ring."""

    def one_ring() -> bool:
        # A node that knows only its own ranges has no fingerprint of the ring.
        return len({node.status["fingerprint"] for node in nodes} - {""}) <= 1

    eventually(
        lambda: split(nodes) and one_ring(),
        f"{len(nodes)} nodes agree on every key",
    )


def fails(call: Callable[[], Any]) -> HostError:
    with pytest.raises(HostError) as caught:
        call()
    return caught.value


# --- joining and leaving ------------------------------------------------------------------------


def test_start_returns_when_the_node_is_on_the_ring_and_knows_its_ranges(
    make: Make, client: Redis
) -> None:
    node = make(**LONG).start()
    assert node.ranges == [(0, RING_SIZE)]
    assert node.owned(KEYS) == set(KEYS)
    assert client.zcard(RING) == 16
    assert node.state == "live"


def counted(node: HostedNode, count: int, *, follow: bool) -> bool:
    """Whether the node counts so many nodes; without following, as of its last heartbeat."""
    found = node.call("get_node_count")
    return found == count if follow else 1 <= found <= count


def test_what_a_node_answers_about_keys_is_what_the_ring_in_redis_says(
    make: Make, client: Redis, follow: bool
) -> None:
    nodes = [make(**LONG).start() for _ in range(3)]
    agree(*nodes)
    points: dict[str, list[int]] = {}
    for member in client.zrange(RING, 0, -1):
        point, rest = member.decode().split(":", 1)
        points.setdefault(rest.rpartition(":")[0], []).append(int(point))
    ring = Ring(points)
    for node in nodes:
        assert node.owned(KEYS) == {key for key in KEYS if ring.owner(key) == node.name}
        assert node.ranges == [tuple(each) for each in ring.node_ranges(node.name)]
        assert node.call("owner", "hello") == ring.owner("hello")
        assert node.call("key_as_ring_point", "hello") == 907060870
        assert counted(node, 3, follow=follow)


def test_a_join_and_a_leave_are_seen_by_a_message_not_by_a_timer(make: Make) -> None:
    first = make(**LONG).start()
    second = make(**LONG).start()
    agree(first, second)
    second.stop()
    agree(first)


def test_a_node_owns_nothing_once_stopped_and_comes_back_when_started_again(
    make: Make, client: Redis
) -> None:
    node = make(**LONG).start()
    node.stop()
    assert node.owned(KEYS) == set()
    assert node.ranges == []
    assert node.state == "stopped"
    assert client.zcard(RING) == 0
    node.start()
    assert node.owned(KEYS) == set(KEYS)


def test_start_of_a_running_node_is_refused_and_changes_nothing(make: Make) -> None:
    node = make(name="worker-1", **LONG).start()
    error = fails(node.start)
    assert error.kinds[0] == "NodeStateError"
    assert str(error) == "node 'worker-1' runs already: call stop() before starting it again"
    assert node.owned(KEYS) == set(KEYS)


def test_stop_may_be_called_before_start_and_twice(make: Make) -> None:
    node = make(**LONG)
    node.stop()
    node.start()
    node.stop()
    node.stop()
    assert node.state == "stopped"


def test_several_nodes_of_one_process_are_nodes_of_their_own(
    make: Make, host: Host, follow: bool
) -> None:
    nodes = [make(**LONG).start() for _ in range(3)]
    assert len({node.name for node in nodes}) == 3
    agree(*nodes)
    assert counted(nodes[0], 3, follow=follow)


# --- being told ---------------------------------------------------------------------------------


def replay(changes: list[Any]) -> set[tuple[int, int]]:
    """The ranges after the changes told to on_change, as unit pieces between all boundaries."""
    edges = sorted({edge for change in changes for side in change for r in side for edge in r})
    pieces: set[tuple[int, int]] = set()

    def cut(ranges: list[list[int]]) -> set[tuple[int, int]]:
        return {
            (low, high)
            for low, high in pairwise(edges)
            if any(start <= low and high <= end for start, end in ranges)
        }

    for gained, lost in changes:
        assert cut(lost) <= pieces
        assert not cut(gained) & pieces
        pieces = pieces - cut(lost) | cut(gained)
    return pieces


def size(pieces: Iterable[tuple[int, int]]) -> int:
    return sum(end - start for start, end in pieces)


def test_on_change_tells_each_range_gained_and_lost_in_order(make: Make) -> None:
    node, other = make(**LONG).start(), make(**LONG)
    for turn in (other.start, other.stop, other.start):
        turn()
    agree(node, other)
    eventually(
        lambda: size(replay(node.do("changes"))) == size(node.ranges), "the last change is reported"
    )
    node.stop()
    eventually(lambda: replay(node.do("changes")) == set(), "the end is reported")


def test_an_on_change_that_raises_is_logged_and_called_again(make: Make, host: Host) -> None:
    node = make(on_change="raise", **LONG).start()
    other = make(**LONG).start()
    agree(node, other)
    eventually(lambda: len(node.do("changes")) >= 2, "it is called again")
    assert "ERROR on_change raised ValueError" in host.do("logged")


def test_an_on_change_that_never_returns_does_not_stop_the_node(
    make: Make, another: Host, redis_server: RedisServer
) -> None:
    node = another.node(redis_server.url, RING, on_change="block", **SHORT).start()
    eventually(lambda: node.do("changes"), "it is called")
    beats = node.status["heartbeats"]
    other = make(**SHORT).start()
    agree(node, other)
    eventually(lambda: node.status["heartbeats"] > beats + 4, "heartbeats go on")
    node.stop()
    agree(other)


def test_status_says_what_the_node_sees_and_does(make: Make) -> None:
    node = make(name="worker-1", **CALM)
    assert node.status["state"] == "new"
    node.start()
    eventually(lambda: node.status["heartbeats"] > 2, "heartbeats")
    status = node.status
    assert {
        "state": "live",
        "name": "worker-1",
        "ring": RING,
        "owns": True,
        "share": 1.0,
        "node_count": 1,
        "failing_for": None,
        "last_error": None,
        "failures": 0,
        "garbage": 0,
        "bad_messages": 0,
        "fences": 0,
        "losses": 0,
    }.items() <= status.items()
    assert 0 < status["expires_in"] <= 120.0
    node.stop()
    assert (node.status["state"], node.status["owns"], node.status["share"]) == (
        "stopped",
        False,
        0.0,
    )


# --- crashes ------------------------------------------------------------------------------------


def test_the_keys_of_a_killed_process_are_owned_again(
    make: Make, another: Host, redis_server: RedisServer
) -> None:
    survivors = [make(**SHORT).start() for _ in range(2)]
    victim = another.node(redis_server.url, RING, **SHORT).start()
    agree(*survivors, victim)
    another.kill()
    agree(*survivors)


def test_a_paused_process_owns_nothing_when_it_wakes_until_redis_renews_it(
    make: Make, another: Host, proxy: Proxy
) -> None:
    survivor = make(**SHORT).start()
    paused = another.node(proxy.url, RING, **SHORT).start()
    agree(survivor, paused)
    another.pause()
    agree(survivor)
    # So that waking up and being renewed are two different moments.
    proxy.black_hole()
    another.resume()
    assert paused.owned(KEYS) == set()
    assert paused.ranges == []
    proxy.heal()
    agree(survivor, paused)


# The test before this one shows that it comes back, after a wake-up without Redis.
@pytest.mark.long
def test_a_paused_process_comes_back_by_itself_and_is_seen(
    make: Make, another: Host, redis_server: RedisServer
) -> None:
    survivor = make(**SHORT).start()
    paused = another.node(redis_server.url, RING, **SHORT).start()
    agree(survivor, paused)
    another.pause()
    agree(survivor)
    another.resume()
    agree(survivor, paused)


# --- Redis loses its data -----------------------------------------------------------------------


def test_nodes_come_back_when_redis_was_restarted_empty(make: Make) -> None:
    with RedisServer() as redis_server:
        _restart_empty(make, redis_server)


def _restart_empty(make: Make, redis_server: RedisServer) -> None:
    nodes = [make(url=redis_server.url, **SHORT).start() for _ in range(2)]
    agree(*nodes)
    redis_server.kill()
    eventually(lambda: not any(node.status["owns"] for node in nodes), "without Redis, no owner")
    eventually(lambda: {node.state for node in nodes} == {"fenced"}, "both say so")
    redis_server.start()
    agree(*nodes)
    eventually(lambda: {node.state for node in nodes} == {"live"}, "both live")
    for node in nodes:
        node.stop()


@pytest.mark.parametrize("command", ["FLUSHALL", f"DEL {RING}", f"DEL {{{RING}}}:epoch"])
def test_nodes_come_back_when_the_ring_is_deleted(make: Make, client: Redis, command: str) -> None:
    nodes = [make(**SHORT).start() for _ in range(2)]
    agree(*nodes)
    client.execute_command(*command.split())
    eventually(lambda: client.zcard(RING) == 32, "both are on the ring again")
    agree(*nodes)
    third = make(**SHORT).start()
    agree(*nodes, third)


def has_beaten(node: HostedNode, times: int) -> bool:
    return bool(node.status["heartbeats"] >= times)


def test_no_owner_changes_when_another_key_of_the_ring_is_deleted(
    make: Make, client: Redis
) -> None:
    nodes = [make(**SHORT).start() for _ in range(2)]
    agree(*nodes)
    owned = [node.owned(KEYS) for node in nodes]
    for name, key in vars(ring_keys(RING)).items():
        if name in ("ring", "locks"):
            continue
        client.delete(key)
        for node in nodes:
            # Of two heartbeats one was sent after the key was deleted.
            enough = node.status["heartbeats"] + 2
            eventually(partial(has_beaten, node, enough), "it has sent a heartbeat")
        assert [node.owned(KEYS) for node in nodes] == owned, name
        assert client.zcard(RING) == 32
    assert all(node.status["fences"] == 0 for node in nodes)


def test_a_ring_key_of_another_type_is_reported_and_healed_from(make: Make, client: Redis) -> None:
    node = make(**SHORT).start()
    client.delete(RING)
    client.set(RING, "somebody else's")
    eventually(lambda: node.state == "fenced", "it owns nothing while it cannot renew")
    assert node.owned(KEYS) == set()
    told = "choose another name, or remove the key"
    eventually(lambda: told in (node.status["last_error"] or ""), "it says why, and what to do")
    assert "WRONGTYPE" in node.status["last_error"]
    client.delete(RING)
    agree(node)
    eventually(lambda: node.status["last_error"] is None, "nothing is wrong any more")


# --- the network --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["normal", "pubsub"])
def test_connections_that_redis_kills_are_made_anew(make: Make, client: Redis, kind: str) -> None:
    nodes = [make(**CALM).start() for _ in range(2)]
    agree(*nodes)
    seen = [node.status["subscriptions"] for node in nodes]
    assert client.client_kill_filter(_type=kind, skipme=True) >= 2
    if kind == "pubsub":
        eventually(
            lambda: all(
                node.status["subscriptions"] > before
                for node, before in zip(nodes, seen, strict=True)
            ),
            "each subscribes again",
        )
    third = make(**CALM).start()
    agree(*nodes, third)
    assert all(node.status["fences"] == 0 for node in nodes)


def test_a_node_behind_a_black_hole_owns_nothing_and_comes_back(make: Make, proxy: Proxy) -> None:
    cut_off, other = make(url=proxy.url, **SHORT).start(), make(**SHORT).start()
    agree(cut_off, other)
    proxy.black_hole()
    eventually(lambda: cut_off.state == "fenced", "it knows that it cannot have renewed")
    assert cut_off.owned(KEYS) == set()
    told = "did not answer in time"
    eventually(lambda: told in (cut_off.status["last_error"] or ""), "it says why")
    agree(other)
    proxy.heal()
    agree(cut_off, other)


def test_a_node_survives_that_redis_refuses_connections(make: Make, proxy: Proxy) -> None:
    node = make(url=proxy.url, **SHORT).start()
    proxy.refuse()
    eventually(lambda: node.state == "fenced", "it owns nothing")
    proxy.heal()
    agree(node)


def test_a_subscription_that_died_in_silence_is_made_anew_though_nothing_happens(
    make: Make, proxy: Proxy
) -> None:
    deaf = make(url=proxy.url, **SHORT).start()
    before = deaf.status["subscriptions"]
    proxy.deafen("pubsub")
    eventually(lambda: deaf.status["subscriptions"] > before, "it subscribes anew")
    other = make(**SHORT).start()
    agree(deaf, other)


def test_a_subscription_that_answers_is_kept_however_long_nothing_happens(
    make: Make, client: Redis
) -> None:
    node = make(ttl=60.0, heartbeat_interval=0.05).start()
    before = node.status["subscriptions"], _pings(client)
    eventually(lambda: _pings(client) >= before[1] + 5, "it is asked again and again")
    assert node.status["subscriptions"] == before[0]


def _pings(client: Redis) -> int:
    counted: dict[str, Any] = client.info("commandstats")  # type: ignore[assignment]
    return int(counted.get("cmdstat_ping", {"calls": 0})["calls"])


def test_a_lost_message_is_noticed_at_the_heartbeat(make: Make, proxy: Proxy) -> None:
    node = make(url=proxy.url, **CALM).start()
    proxy.lose_messages()
    other = make(**CALM).start()
    agree(node, other)
    other.stop()
    agree(node)
    assert node.status["gaps"] >= 1


def test_a_slow_redis_is_no_dead_redis(make: Make, proxy: Proxy) -> None:
    node = make(url=proxy.url, **CALM).start()
    proxy.delay(0.25)
    beats = node.status["heartbeats"]
    eventually(lambda: node.status["heartbeats"] > beats + 3, "heartbeats go on")
    assert node.status["fences"] == 0
    assert node.owned(KEYS) == set(KEYS)


# --- not starting -------------------------------------------------------------------------------


def test_start_raises_what_stopped_it_and_leaves_nothing_behind(
    make: Make, proxy: Proxy, host: Host, client: Redis
) -> None:
    node = make(url=proxy.url, **SHORT)
    before = host.do("resources")
    proxy.refuse()
    error = fails(node.start)
    assert error.kinds[:2] == ["RedisUnavailable", "RetryLater"]
    assert "StoreError" in error.kinds
    # A busy machine may not even be told in time that nobody listens.
    nobody = "check host, port and that Redis runs"
    hung_up = (
        "check that it runs, and its maxclients; "
        "if the port is one with TLS, give rediss:// in the URL"
    )
    assert str(error).endswith((nobody, hung_up, "Redis did not answer in time"))
    assert node.state == "failed"
    proxy.heal()
    proxy.black_hole()
    assert fails(node.start).kinds[0] == "RedisUnavailable"
    proxy.heal()
    eventually(lambda: fewer(host.do("resources"), before), "it holds nothing any more")
    node.start()
    agree(node)
    eventually(lambda: node.status["last_error"] is None, "nothing is wrong any more")


def test_stop_returns_though_redis_is_silent_and_the_ring_forgets_the_node(
    make: Make, proxy: Proxy
) -> None:
    silent, other = make(url=proxy.url, **SHORT).start(), make(**SHORT).start()
    agree(silent, other)
    proxy.black_hole()
    silent.stop()
    assert silent.state == "stopped"
    agree(other)


# --- names --------------------------------------------------------------------------------------


def test_a_name_belongs_to_who_joined_last_and_the_other_says_so(
    make: Make, another: Host, redis_server: RedisServer
) -> None:
    old = make(name="worker-1", **LONG).start()
    new = another.node(redis_server.url, RING, name="worker-1", **LONG).start()
    eventually(lambda: old.state == "superseded", "the older one learns of it")
    assert old.owned(KEYS) == set()
    assert old.status["last_error"] == (
        "another process joined the ring as 'worker-1' and took its points; "
        "give each process a name of its own"
    )
    agree(new)
    old.stop()
    agree(new)


# --- garbage ------------------------------------------------------------------------------------

GARBAGE = [
    b"abc",
    b"12:only",
    b"",
    b":::",
    b"4294967296:host:1:aa",
    b"-1:host:1:aa",
    b"12::aa",
    b"12:host:",
    b"\xff\xfe:host:1:aa",
    b"99999999999999999999999:host:1:aa",
    "\uff11\uff12:host:1:aa".encode(),
]

MESSAGES = [
    b"*",
    b"",
    b"\xff\xfe",
    b"[" * 100_000,
    b"null",
    b'{"v":1}',
    b'{"v":1,"kind":"join","epoch":-1}',
    json.dumps(
        {"v": 1, "kind": "join", "nodes": ["\ud800"], "points": [1], "epoch": 1, "prev": "",
         "tag": "a", "members": 1, "at": "1"}
    ).encode(),
    b'{"v":2,"kind":"join"}',
]  # fmt: skip


def test_garbage_in_the_ring_is_skipped_counted_and_fatal_to_nobody(
    make: Make, client: Redis, follow: bool
) -> None:
    # A node that does not read the ring has nothing to count there.
    count = len(GARBAGE) if follow else 0
    node = make(**SHORT).start()
    seconds = client.time()[0]
    client.zadd(RING, dict.fromkeys(GARBAGE, seconds + 3600))
    newcomer = make(**SHORT).start()
    agree(node, newcomer)
    assert newcomer.status["garbage"] == count
    eventually(lambda: node.status["garbage"] == count, "the other counts it, too")
    client.zadd(RING, dict.fromkeys(GARBAGE, seconds - 3600))
    eventually(lambda: client.zcard(RING) == 32, "it is swept once it has expired")
    agree(node, newcomer)


def test_garbage_on_the_channel_is_skipped_counted_and_fatal_to_nobody(
    make: Make, client: Redis, follow: bool
) -> None:
    nodes = [make(**LONG).start() for _ in range(2)]
    agree(*nodes)
    own = [f"{{{RING}}}:to:{node.name}" for node in nodes]
    for channel in [RING] if follow else own:
        for message in MESSAGES:
            client.publish(channel, message)
    eventually(
        lambda: all(node.status["bad_messages"] == len(MESSAGES) for node in nodes),
        "each message is counted",
    )
    third = make(**LONG).start()
    agree(*nodes, third)


def test_a_forged_change_is_corrected_at_the_heartbeat(make: Make, client: Redis) -> None:
    nodes = [make(**SHORT).start() for _ in range(2)]
    agree(*nodes)
    epoch, tag, *_ = client.get(f"{{{RING}}}:epoch").decode().split()
    forged = {
        "v": 1, "kind": "leave", "nodes": [nodes[0].name], "epoch": int(epoch) + 1, "prev": tag,
        "tag": "f" * 16, "members": 16, "at": "1",
    }  # fmt: skip
    client.publish(RING, json.dumps(forged))
    agree(*nodes)


# --- leaks --------------------------------------------------------------------------------------


def fewer(now: dict[str, int], before: dict[str, int]) -> bool:
    return all(now[kind] <= before[kind] for kind in before)


def test_a_hundred_starts_and_stops_leak_nothing(make: Make, host: Host, client: Redis) -> None:
    node = make(**LONG)
    node.do("cycles", count=3)
    connections = client.info("clients")["connected_clients"]
    before = host.do("resources")
    node.do("cycles", count=100)
    now: dict[str, int] = {}

    def no_more() -> bool:
        now.update(host.do("resources"))
        return fewer(now, before)

    try:
        eventually(no_more, "no more descriptors, threads, greenlets and tasks")
    finally:
        print(f"{before} became {now}")
    eventually(
        lambda: client.info("clients")["connected_clients"] <= connections, "no more connections"
    )
    assert client.zcard(RING) == 0
    assert client.hlen(f"{{{RING}}}:nodes") == 0


def test_a_stopped_node_has_no_connection(make: Make, client: Redis) -> None:
    # Not how many there are: those of a test before may be closing still.
    before = {each["id"] for each in client.client_list()}

    def fresh() -> int:
        return len({each["id"] for each in client.client_list()} - before)

    node = make(**LONG).start()
    assert fresh() == 2
    node.stop()
    eventually(lambda: fresh() == 0, "all are closed")


def test_questions_to_a_node_that_runs_share_its_connections(make: Make, client: Redis) -> None:
    node = make(follow=False, **LONG).start()
    connected = client.info("stats")["total_connections_received"]
    for _ in range(20):
        node.call("owner", "hello")
    # A heartbeat may need one beside.
    assert client.info("stats")["total_connections_received"] <= connected + 2


# --- signals ------------------------------------------------------------------------------------


def test_stop_in_a_signal_handler_takes_the_node_off_the_ring(
    another: Host, redis_server: RedisServer, client: Redis
) -> None:
    node = another.node(redis_server.url, RING, **LONG).start()
    node.do("stop_on_signal")
    os.kill(another.pid, signal.SIGTERM)

    def has_left() -> bool:
        # Python runs no handler of a signal that came just before its thread began to wait for a
        # request: the next one wakes it.
        another.do("tick_count")
        return client.zcard(RING) == 0

    eventually(has_left, "it has left")
    eventually(lambda: node.state == "stopped", "it is stopped")


# --- the loop is never blocked ------------------------------------------------------------------


def test_what_runs_beside_the_node_goes_on_while_redis_is_silent(
    make: Make, host: Host, redis_server: RedisServer
) -> None:
    # The ticks are counted by a thread, a greenlet or a task beside the node's.
    node = make(**LONG)
    for call in ("start", "stop"):
        os.kill(redis_server.pid, signal.SIGSTOP)
        try:
            asked, before = node.ask(call), host.do("tick_count")
            eventually(lambda: host.do("tick_count") > before + 20, "it ticks")  # noqa: B023
            # Had the call kept everybody waiting, it would be over by now.
            assert not asked.arrived()
        finally:
            os.kill(redis_server.pid, signal.SIGCONT)
        asked.result()
