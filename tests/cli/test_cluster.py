"""The commands on a Redis Cluster: given any of its servers, they find the one with the ring."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing
from hashlib import sha1

import pytest
from redis import Redis, RedisCluster
from redis.crc import key_slot

from hashring import PartitionGroup, RedisUnavailable, RingNode, WrongServer
from hashring.cli import connection
from hashring.cli.common_options import Settings
from hashring.store.command import Command
from hashring.store.embedded_server import RedisServer
from hashring.store.lua_scripts import Script
from tests.cli.conftest import Run, ending, finished, line_with, nodes_on, spawn, until
from tests.proxy import Proxy

RING = "accounts"


def place(cluster: list[RedisServer]) -> int:
    """Which of the servers has the ring."""
    return key_slot(RING.encode()) // 5462


@pytest.fixture
def other(cluster: list[RedisServer]) -> str:
    """The URL of a server that has not got the ring."""
    return cluster[place(cluster) - 1].url


@pytest.fixture
def client(cluster: list[RedisServer]) -> Iterator[RedisCluster]:
    connected = RedisCluster(host="127.0.0.1", port=cluster[0].port)
    with ExitStack() as stack:
        stack.callback(connected.close)
        yield connected
        for name in connected.keys(f"*{RING}*", target_nodes=RedisCluster.PRIMARIES):
            connected.delete(name)


@pytest.mark.parametrize("command", ["print", "nodes", "owner hello", "events"])
def test_the_ring_is_read_from_the_server_that_has_it(
    client: RedisCluster, cluster: list[RedisServer], run: Run, command: str
) -> None:
    with nodes_on(client, "alder", ring=RING):
        for server in cluster:
            done = run(*command.split(), "--ring", RING, "--json", url=server.url)
            assert "alder" in done.out


def test_locks_are_listed_and_released_on_the_server_that_has_them(
    client: RedisCluster, other: str, run: Run
) -> None:
    keys = ["one", "two", "three"]
    with RingNode(client, RING, name="alder", lock=True) as node:
        assert node.select(keys) == keys
        found = run("locks", "--ring", RING, "--json", url=other).json
        assert sorted(lock["key"] for lock in found["locks"]) == sorted(keys)
        run("release", "--ring", RING, "--yes", "two", url=other)
        found = run("locks", "--ring", RING, "--json", url=other).json
        assert sorted(lock["key"] for lock in found["locks"]) == ["one", "three"]


def spread(cluster: list[RedisServer]) -> list[str]:
    """Names of which each server has one."""
    names = [f"{RING}-{number}" for number in range(100)]
    places = [key_slot(name.encode()) // 5462 for name in names]
    return sorted(names[places.index(each)] for each in range(len(cluster)))


def test_status_asks_all_servers(
    client: RedisCluster, cluster: list[RedisServer], run: Run
) -> None:
    names = spread(cluster)
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(RingNode(client, name))
        told = run("status", "--json", url=cluster[0].url).json
    assert {verdict["ring"] for verdict in told["verdicts"]} >= set(names)


def test_group_list_and_doctor_ask_all_servers(
    client: RedisCluster, cluster: list[RedisServer], run: Run
) -> None:
    names = spread(cluster)
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(PartitionGroup(client, name, partitions=1))
        told = run("group", "list", "--json", url=cluster[0].url).json
        found = run("doctor", "--ring", RING, "--json", url=cluster[0].url).json["findings"]
    assert [group["name"] for group in told["groups"]] == names
    assert found[-1]["text"] == "no drain of a member was forgotten (3 groups)"


def test_status_says_when_it_may_ask_one_server_only(
    client: RedisCluster, cluster: list[RedisServer], run: Run
) -> None:
    server = cluster[0]
    with Redis.from_url(server.url) as there:
        there.acl_setuser(
            "shy", enabled=True, nopass=True, keys="*", commands=["+@all", "-cluster"]
        )
        told = run("status", url=server.url.replace("//", "//shy:x@"))
        there.acl_deluser("shy")
    assert told.err.startswith(
        f"hashring: only what is on {server.url.replace('//', '//shy:***@')}, not on the other "
    )


def test_doctor_looks_at_the_server_that_has_the_ring(
    cluster: list[RedisServer], client: RedisCluster, other: str, run: Run
) -> None:
    server = cluster[place(cluster)]
    with nodes_on(client, "alder", ring=RING), Redis.from_url(server.url) as there:
        there.config_set("maxmemory", "1gb")
        there.config_set("maxmemory-policy", "allkeys-lru")
        try:
            done = run("doctor", "--ring", RING, "--json", url=other, status=1)
        finally:
            there.config_set("maxmemory", 0)
            there.config_set("maxmemory-policy", "noeviction")
    assert done.json["url"] == server.url
    problems = [found["check"] for found in done.json["findings"] if found["level"] == "problem"]
    assert problems == ["eviction"]


def test_a_node_is_removed_and_watched(client: RedisCluster, other: str, run: Run) -> None:
    with (
        RingNode(client, RING, name="alder") as node,
        ending(spawn("hashring", "watch", "--ring", RING, "--json", url=other)) as process,
    ):
        assert json.loads(line_with(process, '"ring"'))["shares"] == {"alder": 1.0}
        run("remove", "alder", "--ring", RING, "--yes", url=other)
        assert json.loads(line_with(process, '"event"'))["kind"] == "leave"
        until(lambda: node.contains("key"), "it comes back")
        process.send_signal(signal.SIGINT)
        assert finished(process)[0] == 130


def test_a_demo_plays_on_the_server_that_has_its_ring(client: RedisCluster, other: str) -> None:
    with ending(spawn("hashring", "demo", "--ring", RING, url=other)) as process:
        line_with(process, "birch joins")
        process.send_signal(signal.SIGINT)
        assert finished(process)[0] == 130
    assert client.exists(RING) == 0


def test_a_client_of_one_server_is_told_to_be_one_of_the_cluster(other: str) -> None:
    with Redis.from_url(other) as single:
        node = RingNode(single, RING)
        with pytest.raises(WrongServer, match=r"MOVED .* use a client of the cluster") as caught:
            node.start()
        assert "this server is one of a Redis Cluster" in str(caught.value)


@pytest.mark.parametrize("command", ["status", "group list", "nodes"])
def test_a_cluster_that_serves_no_slots_is_down(run: Run, command: str) -> None:
    with RedisServer(port=0, config=["cluster-enabled yes"]) as server:
        error = run(*command.split(), url=server.url, status=3).err
    assert "CLUSTERDOWN" in error
    assert error.endswith("the cluster does not cover all slots: look at its nodes\n")


def test_watch_goes_back_to_the_given_server_when_that_with_the_ring_is_gone() -> None:
    config = ["cluster-enabled yes", "cluster-require-full-coverage no"]
    with (
        RedisServer(port=0, config=config) as given,
        RedisServer(port=0, config=config) as gone,
        Redis.from_url(given.url) as client,
        Redis.from_url(gone.url) as there,
    ):
        slot = key_slot(RING.encode())
        there.execute_command("CLUSTER ADDSLOTS", slot)
        client.execute_command("CLUSTER ADDSLOTS", *(n for n in range(16384) if n != slot))
        client.execute_command("CLUSTER MEET", "127.0.0.1", gone.port)
        until(lambda: there.execute_command("CLUSTER INFO")["cluster_state"] == "ok", "it is up")
        until(lambda: str(gone.port) in str(client.execute_command("CLUSTER SLOTS")), "both know")
        with ending(spawn("hashring", "watch", "--ring", RING, url=given.url)) as process:
            assert "0 nodes" in line_with(process, "")
            gone.kill()
            # As its replica would, had it one.
            client.execute_command("CLUSTER SETSLOT", slot, "NODE", client.cluster("MYID"))
            with nodes_on(client, "alder", ring=RING):
                line_with(process, "1 node: 100.00% alder")


def test_an_order_whose_answer_was_lost_is_not_given_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "_PATIENCE", 1.0)
    config = ["cluster-enabled yes"]
    text = "return redis.call('INCR', KEYS[1])"
    script = Script("tests", "count", text, sha1(text.encode()).hexdigest())
    order = Command(script, (f"{{{RING}}}:count".encode(),), (), int)
    with (
        RedisServer(port=0, config=config) as given,
        RedisServer(port=0, config=config) as there,
        Redis.from_url(given.url) as client,
        Redis.from_url(there.url) as owner,
        Proxy(("127.0.0.1", int(there.port or 0))) as proxy,
    ):
        slot = key_slot(RING.encode())
        owner.execute_command("CLUSTER ADDSLOTS", slot)
        client.execute_command("CLUSTER ADDSLOTS", *(n for n in range(16384) if n != slot))
        client.execute_command("CLUSTER MEET", "127.0.0.1", there.port)
        owner.config_set("cluster-announce-port", proxy.port)
        until(lambda: owner.execute_command("CLUSTER INFO")["cluster_state"] == "ok", "it is up")
        until(lambda: str(proxy.port) in str(client.execute_command("CLUSTER SLOTS")), "known")
        with closing(connection.Connection(Settings(ring=RING), given.url)) as connected:
            assert connected.order(order) == 1
            proxy.deafen()
            with pytest.raises(RedisUnavailable, match="it may have been done: check before"):
                connected.order(order)
            assert owner.get(f"{{{RING}}}:count") == b"2"
            # What changes nothing is asked again.
            proxy.deafen()
            assert connected.call("GET", f"{{{RING}}}:count") == b"2"


def test_a_repeated_command_ends_when_no_server_of_the_cluster_has_the_ring(run: Run) -> None:
    config = ["cluster-enabled yes"]
    with RedisServer(port=0, config=config) as one, Redis.from_url(one.url) as client:
        # The server that has the ring announces the address of the other.
        wrong = [*config, f"cluster-announce-port {one.port}"]
        with RedisServer(port=0, config=wrong) as other, Redis.from_url(other.url) as there:
            slot = key_slot(RING.encode())
            client.execute_command("CLUSTER ADDSLOTS", *(n for n in range(16384) if n != slot))
            there.execute_command("CLUSTER ADDSLOTS", slot)
            client.execute_command("CLUSTER MEET", "127.0.0.1", other.port)
            until(
                lambda: client.execute_command("CLUSTER INFO")["cluster_state"] == "ok", "it is up"
            )
            command = ("balance", "--apply", "--every", "1s", "--ring", RING)
            url = one.url
            done = run(*command, url=url, status=3)
    assert done.err == (
        f"hashring: ring '{RING}': no server of the Redis Cluster has it. Each named another "
        f"(MOVED): {', '.join([url] * 5)}; redis-cli --cluster check shows what is wrong\n"
    )


def test_a_slot_that_is_moving_is_waited_for(cluster: list[RedisServer]) -> None:
    slot, there = key_slot(RING.encode()), cluster[place(cluster)]
    with Redis.from_url(there.url) as single, Redis.from_url(cluster[place(cluster) - 1].url) as to:
        goal = to.cluster("MYID")
        single.execute_command("CLUSTER SETSLOT", slot, "MIGRATING", goal)
        try:
            with pytest.raises(RedisUnavailable, match=r"ASK .* slots are moving: wait"):
                RingNode(single, RING).start()
        finally:
            single.execute_command("CLUSTER SETSLOT", slot, "STABLE")
