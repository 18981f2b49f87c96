"""Partition groups of real processes on a real Redis: killed, stopped, cut off, loaded.

Each process writes a line for every change it learns of, and answers questions on its standard
input; nothing here reads a clock to decide whether something held.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from redis import Redis

from hashring import PartitionGroup, lease_challenge
from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.core.groups.state import EventKind
from hashring.errors import GroupNotEmpty
from hashring.protocol.flow import run_flow
from hashring.protocol.group.group_flows import forget
from hashring.store.embedded_server import RedisServer
from hashring.store.group.decision_history import read_decision
from hashring.store.group.key_names import group_keys
from hashring.store.lease_challenge.commands import challenge_keys, read_table
from hashring.store.redis_store import RedisStore
from tests.conftest import PATIENCE, eventually
from tests.proxy import Proxy

MEMBER = """
import json, sys
from redis import Redis
from hashring import PartitionGroup

socket, name, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
group = PartitionGroup(Redis(unix_socket_path=socket), "orders", member=name, **settings)
group.start()

for line in sys.stdin:
    if line == "stop\\n":
        group.stop()
    print(json.dumps({str(p): t for p, t in group.held.items()}), flush=True)
"""


class Process:
    """A member in a process of its own."""

    def __init__(self, server: RedisServer, name: str, **settings: Any) -> None:
        told = {
            "partitions": 8,
            "ttl": 1.5,
            "heartbeat_interval": 0.3,
            "rebalance_delay": 0.0,
            "max_handoff_time": 0.3,
            "handoffs": 4,
        } | settings
        self.name = name
        self.process = subprocess.Popen(
            [sys.executable, "-c", MEMBER, str(server.socket), name, json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def held(self, command: str = "held") -> dict[int, int]:
        """What it counts as held now."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        return {int(p): t for p, t in json.loads(self.process.stdout.readline()).items()}

    def kill(self, number: int) -> None:
        """Send it a signal."""
        os.kill(self.process.pid, number)

    def end(self) -> None:
        """Make it go, whatever state it is in."""
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start(redis_server: RedisServer) -> Iterator[Callable[..., Process]]:
    started: list[Process] = []

    def launch(name: str, **settings: Any) -> Process:
        started.append(Process(redis_server, name, **settings))
        return started[-1]

    yield launch
    for process in started:
        process.end()


def share(*processes: Process, count: int = 8) -> Callable[[], bool]:
    """Whether these have everything between them, evenly."""

    def check() -> bool:
        held = [process.held() for process in processes]
        sizes = [len(each) for each in held]
        together = {partition for each in held for partition in each}
        return len(together) == count == sum(sizes) and max(sizes) - min(sizes) <= 1

    return check


def test_what_a_killed_member_had_is_taken_over(start: Callable[..., Process]) -> None:
    a, b = start("a"), start("b")
    eventually(share(a, b), "four each")
    tokens = a.held()
    a.kill(signal.SIGKILL)
    eventually(share(b), "b has everything")
    assert all(token > tokens[p] for p, token in b.held().items() if p in tokens)


def test_a_member_that_was_stopped_holds_nothing_when_it_wakes_up(
    start: Callable[..., Process],
) -> None:
    a, b = start("a"), start("b")
    eventually(share(a, b), "four each")
    before = a.held()
    a.kill(signal.SIGSTOP)
    eventually(share(b), "b has everything")
    a.kill(signal.SIGCONT)
    # Its very first answer after waking up names none of what b has.
    woken = a.held()
    assert not set(before.items()) & set(woken.items())
    eventually(share(a, b), "four each again")


def test_a_member_that_wakes_up_after_its_group_was_forgotten_starts_it_again(
    start: Callable[..., Process], redis_server: RedisServer
) -> None:
    a = start("a")
    eventually(share(a), "a has everything")
    before = a.held()
    a.kill(signal.SIGSTOP)
    with (
        Redis(unix_socket_path=str(redis_server.socket)) as client,
        closing(RedisStore(client, PATIENCE)) as store,
    ):

        def forgotten() -> bool:
            try:
                run_flow(store.run, forget("orders", group_keys("orders"), "ada"))
            except GroupNotEmpty:
                return False
            return True

        eventually(forgotten, "its lease ends")
    a.kill(signal.SIGCONT)
    # Its very first answer after waking up names none of what it had.
    assert not set(before.items()) & set(a.held().items())
    eventually(share(a), "a has everything again")
    assert all(token > before[partition] for partition, token in a.held().items())


def test_after_redis_lost_everything_members_keep_what_they_hold(
    start: Callable[..., Process], redis_server: RedisServer
) -> None:
    a, b = start("a", ttl=60.0), start("b", ttl=60.0)
    eventually(share(a, b), "four each")
    before = a.held() | b.held()
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        client.flushall()
        eventually(
            lambda: client.zcard(group_keys("orders").leases) == 2,
            "both have come back by themselves",
        )
    eventually(share(a, b), "four each")
    assert a.held() | b.held() == before


def test_after_redis_was_down_the_group_is_right_again() -> None:
    with RedisServer() as server:
        a, b = Process(server, "a"), Process(server, "b")
        try:
            eventually(share(a, b), "four each")
            before = a.held() | b.held()
            server.kill()
            eventually(lambda: not a.held() and not b.held(), "without Redis nobody holds anything")
            server.start()
            eventually(share(a, b), "four each")
            after = a.held() | b.held()
            assert all(after[partition] > before[partition] for partition in before)
        finally:
            a.end()
            b.end()


def test_a_redis_that_forgot_renewals_gives_nobody_what_a_cut_off_member_holds() -> None:
    settings = {"ttl": 4.0, "heartbeat_interval": 0.3, "rebalance_delay": 0.0}
    leases = group_keys("orders").leases.decode()
    with (
        RedisServer() as server,
        Proxy(server.socket) as proxy,
        Redis(unix_socket_path=str(server.socket)) as client,
        PartitionGroup(Redis.from_url(proxy.url), "orders", 4, member="a", **settings) as a,
    ):
        eventually(lambda: len(a.held) == 4, "a has everything")
        before = client.zscore(leases, "a")
        client.save()
        eventually(
            lambda: client.zscore(leases, "a") > before + 2,
            "a has renewed for two seconds that the snapshot does not have",
        )
        proxy.black_hole()
        server.kill()
        server.start()
        both: list[int] = []
        with PartitionGroup(client, "orders", 4, member="b", **settings) as b:

            def taken() -> bool:
                # In this order: what a loses in between is no fault.
                theirs, own = b.held, a.held
                both.extend(theirs.keys() & own.keys())
                return len(theirs) == 4

            eventually(taken, "b has everything")
        assert both == []
        proxy.heal()


def takes_all_and_shares_nothing(b: Any, a: Any) -> None:
    """A member gets all four partitions, and none while the other one still holds it."""
    both: list[int] = []

    def taken() -> bool:
        # In this order: what a loses in between is no fault.
        theirs, own = b.held, a.held
        both.extend(theirs.keys() & own.keys())
        return len(theirs) == 4 and not own

    eventually(taken, "b has everything")
    assert both == []


def test_two_failovers_in_a_row_give_nobody_what_a_cut_off_member_holds() -> None:
    """The first server is the primary again, in its old run, and lacks the last renewals."""
    settings = {"ttl": 4.0, "heartbeat_interval": 0.3, "rebalance_delay": 0.0}
    leases = group_keys("orders").leases.decode()
    with (
        RedisServer(port=0) as first,
        RedisServer(port=0) as second,
        Proxy(second.socket) as replication,
        Proxy(first.socket) as proxy,
        Redis(port=first.port) as one,
        Redis(port=second.port) as two,
        PartitionGroup(Redis.from_url(proxy.url), "orders", 4, member="a", **settings) as a,
    ):
        eventually(lambda: len(a.held) == 4, "a has everything")
        two.replicaof("127.0.0.1", first.port)
        eventually(lambda: two.exists(leases), "the second has the group")
        two.replicaof("NO", "ONE")
        proxy.upstream = second.socket
        one.replicaof("127.0.0.1", replication.port)
        proxy.cut()
        eventually(lambda: one.info("replication")["master_link_status"] == "up", "replicates")
        replication.black_hole()
        before = one.zscore(leases, "a")
        eventually(
            lambda: two.zscore(leases, "a") > before + 2,
            "a has renewed for two seconds that the first does not have",
        )
        proxy.black_hole()
        one.replicaof("NO", "ONE")
        with PartitionGroup(one, "orders", 4, member="b", **settings) as b:
            takes_all_and_shares_nothing(b, a)
        proxy.heal()


def test_an_older_table_of_a_lease_challenge_gives_nobody_what_a_cut_off_member_holds() -> None:
    rules = LeaseChallengeRules(ttl=4.0, interval=0.3, max_handoff_time=3.0)
    keys = challenge_keys("orders")
    with (
        RedisServer() as server,
        Proxy(server.socket) as proxy,
        Redis(unix_socket_path=str(server.socket)) as client,
        lease_challenge(Redis.from_url(proxy.url), "orders", 4, member="a", rules=rules) as a,
    ):
        store = RedisStore(client, PATIENCE)

        def renewed() -> float:
            table = store.run(read_table(keys)).table
            assert table is not None
            return max(table.members.values())

        eventually(lambda: len(a.held) == 4, "a has everything")
        before = renewed()
        client.save()
        eventually(lambda: renewed() > before + 2, "the snapshot lacks renewals of two seconds")
        proxy.black_hole()
        server.kill()
        server.start()
        with lease_challenge(client, "orders", 4, member="b", rules=rules) as b:
            takes_all_and_shares_nothing(b, a)
        proxy.heal()
        store.close()


def test_after_a_restart_with_its_table_a_lease_challenge_keeps_what_its_members_hold() -> None:
    rules = LeaseChallengeRules(ttl=20.0, interval=0.3)
    with (
        RedisServer(config=["save 3600 1"]) as server,
        Redis(unix_socket_path=str(server.socket)) as client,
        lease_challenge(client, "orders", 4, rules=rules) as a,
    ):
        eventually(lambda: len(a.held) == 4, "it has everything")
        before = dict(a.held)
        server.restart()
        table = challenge_keys("orders").table
        run = client.info("server")["run_id"].encode()
        eventually(lambda: client.hget(table, "server").startswith(run), "it has renewed")
        assert a.held == before


def test_after_a_restart_from_a_snapshot_members_keep_what_they_hold() -> None:
    with RedisServer() as server:
        processes = [Process(server, name, ttl=10.0) for name in "ab"]
        try:
            a, b = processes
            eventually(share(a, b), "four each")
            before = a.held() | b.held()
            with Redis(unix_socket_path=str(server.socket)) as client:
                client.save()
            server.kill()
            server.start()
            processes.append(Process(server, "c", ttl=10.0))
            eventually(share(*processes), "c gets its share")
            assert (a.held() | b.held()).items() <= before.items()
        finally:
            for process in processes:
                process.end()


def test_a_member_that_could_not_leave_has_partitions_for_no_longer_than_its_lease(
    redis_server: RedisServer, proxy: Proxy
) -> None:
    terms: dict[str, Any] = {"partitions": 8, "ttl": 1.5, "rebalance_delay": 0.0, "handoffs": 4}
    with (
        closing(Redis.from_url(redis_server.url)) as near,
        closing(Redis.from_url(proxy.url)) as far,
    ):
        stays, leaves = (PartitionGroup(near, "orders", member=name, **terms) for name in "ab")
        ghost = PartitionGroup(far, "orders", **terms)
        for member in (stays, leaves, ghost):
            member.start()
        eventually(lambda: stays.held and leaves.held and ghost.held, "each has its part")
        proxy.black_hole()
        ghost.stop()
        # While the lease of the other still stands, perhaps: then it is given a part of these.
        leaves.stop()
        eventually(lambda: len(stays.held) == terms["partitions"], "what is left has all")
        assert stays.status().expired == ()
        stays.stop()


def test_lost_messages_are_made_up_for_by_the_next_renewal(
    start: Callable[..., Process], redis_server: RedisServer
) -> None:
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        # No member hears of anything: every subscription is refused.
        client.execute_command("ACL", "SETUSER", "default", "-subscribe")
        a, b = start("a"), start("b")
        eventually(share(a, b), "four each")
        b.held("stop")
        eventually(share(a), "a has everything")
        client.execute_command("ACL", "SETUSER", "default", "+subscribe")


def test_one_call_a_heartbeat_is_all_that_a_member_at_rest_asks(redis_server: RedisServer) -> None:
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        groups = [
            PartitionGroup(
                client,
                "orders",
                8,
                member=name,
                ttl=60.0,
                heartbeat_interval=0.1,
                rebalance_delay=0,
            )
            for name in "abc"
        ]
        for group in groups:
            group.start()
        eventually(lambda: sorted(len(g.held) for g in groups) == [2, 3, 3], "an even share each")
        eventually(lambda: groups[0].status().phase.value == "Ready", "it is at rest")
        generation = groups[0].status().generation
        begin = _scripts(client)
        eventually(lambda: _scripts(client) >= begin + 30, "thirty scripts more")
        # A generation that has not moved means that all of them were renewals.
        assert groups[0].status().generation == generation
        for group in groups:
            group.stop()


def _scripts(client: Redis) -> int:
    return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


def test_a_stalled_member_sheds_one_at_a_time_and_gets_nothing_new(
    redis_server: RedisServer,
) -> None:
    settings = {
        "rebalance_delay": 0,
        "handoffs": 8,
        "max_handoff_time": 0.05,
        "ttl": 60.0,
        "heartbeat_interval": 0.5,
    }
    with (
        Redis(unix_socket_path=str(redis_server.socket)) as client,
        PartitionGroup(
            client, "orders", 8, member="a", progress_timeout=0.5, **settings
        ) as stalled,
        PartitionGroup(client, "orders", 8, member="b", **settings) as other,
    ):
        # Nobody calls tick(): it may get its share at first, and then sheds all of it.
        eventually(lambda: len(other.held) == 8, "it has shed everything")
        assert stalled.held == {}
        told = [
            event
            for entry in client.xrange(group_keys("orders").control, "-")
            for event in read_decision(entry).events
        ]
        assert not stalled.status().waits
    asked, since = 0, False
    for event in told:
        since = since or (event.kind is EventKind.REVOKED and event.why == "is stalled")
        if not since or event.member != "a":
            continue
        assert event.kind is not EventKind.GRANTED
        asked += {EventKind.REVOKED: 1, EventKind.RELEASED: -1, EventKind.FORCED: -1}.get(
            event.kind, 0
        )
        assert asked <= 1
    assert since


def test_a_member_that_is_only_late_keeps_what_it_has(redis_server: RedisServer) -> None:
    settings = {"rebalance_delay": 0, "handoffs": 8, "ttl": 4.0, "heartbeat_interval": 0.5}
    with (
        Redis(unix_socket_path=str(redis_server.socket)) as client,
        Proxy(redis_server.socket) as proxy,
        PartitionGroup(Redis.from_url(proxy.url), "orders", 8, member="a", **settings) as late,
        PartitionGroup(client, "orders", 8, member="b", **settings) as other,
    ):
        eventually(lambda: len(late.held) == len(other.held) == 4, "four each")
        eventually(lambda: other.status().phase.value == "Ready", "it is at rest")
        tokens, generation = late.held, other.status().generation
        # Every answer takes a third of a second, ten times as long as anybody else's.
        proxy.delay(0.3)
        begin = client.time()[0]
        eventually(lambda: client.time()[0] >= begin + 9, "two leases have gone by")
        assert late.held == tokens
        assert other.status().generation == generation
