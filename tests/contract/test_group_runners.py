"""What a member of a partition group promises, whatever runs it: threads, greenlets, tasks.

The member is in a process of that kind; another, in this process, is its peer.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from hashring import PartitionGroup
from hashring.core.groups.state import MemberFacts, Terms
from hashring.store.embedded_server import RedisServer
from hashring.store.group.commands import join
from hashring.store.group.key_names import group_keys
from hashring.store.redis_store import RedisStore
from tests.conftest import PATIENCE, eventually
from tests.hosts import Answer, Host, HostError
from tests.proxy import Proxy

GROUP = "orders"
SETTINGS: dict[str, Any] = {
    "partitions": 4,
    "ttl": 30.0,
    "heartbeat_interval": 0.3,
    "rebalance_delay": 0.0,
    "max_handoff_time": 30.0,
    "handoffs": 4,
}

# Room for a machine that is busy with other things, too.
BURNING: dict[str, Any] = {"ttl": 3.0, "heartbeat_interval": 0.25}
SHORT: dict[str, Any] = {"member": "a", "ttl": 1.0, "heartbeat_interval": 0.25}


class HostedGroup:
    """A member in a host."""

    def __init__(self, host: Host, url: str, number: int, how: str, settings: Any) -> None:
        self.host = host
        self.id = f"group-{number}"
        self.member = self.do("", url=url, name=GROUP, how=how, **settings)

    def ask(self, do: str, **arguments: Any) -> Answer:
        return self.host.ask(f"group_{do}" if do else "group", group=self.id, **arguments)

    def do(self, do: str, **arguments: Any) -> Any:
        return self.ask(do, **arguments).result()

    def start(self) -> HostedGroup:
        self.do("start")
        return self

    @property
    def held(self) -> dict[int, int]:
        return {int(p): token for p, token in self.do("call", method="held").items()}

    @property
    def told(self) -> list[tuple[str, int]]:
        return [(kind, partition) for kind, partition in self.do("told")]


Make = Callable[..., HostedGroup]
Peer = Callable[..., PartitionGroup]


@pytest.fixture
def make(host: Host, redis_server: RedisServer) -> Iterator[Make]:
    made: list[HostedGroup] = []

    def build(member: str | None = "a", how: str = "record", **more: Any) -> HostedGroup:
        url = more.pop("url", redis_server.url)
        settings = SETTINGS | {"member": member} | more
        made.append(HostedGroup(host, url, len(made), how, settings))
        return made[-1]

    yield build
    for group in made:
        group.do("stop")
    assert host.do("escaped") == []


@pytest.fixture
def peer(redis_server: RedisServer) -> Iterator[Peer]:
    made: list[PartitionGroup] = []
    with Redis(unix_socket_path=str(redis_server.socket)) as client:

        def build(member: str = "b", **more: Any) -> PartitionGroup:
            made.append(PartitionGroup(client, GROUP, member=member, **(SETTINGS | more)))
            made[-1].start()
            return made[-1]

        yield build
        for group in made:
            group.stop()


def holds(group: Any, count: int, what: str) -> None:
    eventually(lambda: len(group.held) == count, what)


def test_it_shares_with_others_and_is_told_of_every_change_in_order(make: Make, peer: Peer) -> None:
    a = make().start()
    eventually(lambda: len(a.told) == 4, "a learns of everything")
    tokens = a.held
    b = peer()
    holds(b, 2, "two each")
    assert a.held == {p: t for p, t in tokens.items() if p not in b.held}
    assert all(token > tokens[p] for p, token in b.held.items())
    a.do("stop")
    holds(b, 4, "b has everything")
    kinds = [kind for kind, _ in a.told]
    assert kinds == ["assigned"] * 4 + ["revoked"] * 4
    assert a.held == {}


def test_a_subscription_that_died_in_silence_is_made_anew_though_nothing_happens(
    make: Make, proxy: Proxy, client: Redis
) -> None:
    def listening() -> set[str]:
        found: list[dict[str, str]] = client.client_list(_type="pubsub")  # type: ignore[assignment]
        return {each["id"] for each in found}

    make(url=proxy.url, ttl=3.0).start()
    eventually(lambda: len(listening()) == 1, "it has subscribed")
    before = listening()
    proxy.deafen("pubsub")
    eventually(lambda: listening() - before, "it subscribes anew")


def test_what_stops_it_from_starting_is_raised_and_nothing_is_left_behind(
    make: Make, peer: Peer
) -> None:
    b = peer("a")
    kinds = []
    for settings in ({}, {"member": "c", "partitions": 5}, {"url": "unix:///nonexistent/socket"}):
        with pytest.raises(HostError) as raised:
            make(**settings).start()
        kinds.append(raised.value.kinds[0])
    assert kinds == ["MemberExists", "GroupMismatch", "RedisUnavailable"]
    assert [member.name for member in b.status().members] == ["a"]


def test_it_starts_once_and_again_after_it_was_stopped(make: Make) -> None:
    a = make().start()
    with pytest.raises(HostError, match="runs already"):
        a.start()
    a.do("stop")
    a.do("stop")
    a.start()
    holds(a, 4, "it has everything again")


def test_a_callback_that_raises_counts_as_done(make: Make, peer: Peer) -> None:
    a = make(how="raise").start()
    holds(a, 4, "a has everything")
    b = peer()
    holds(b, 2, "b gets its share")
    assert any("raised" in line for line in a.host.do("logged"))


def test_a_callback_that_never_returns_keeps_nobody_from_anything(make: Make, peer: Peer) -> None:
    quick = {"max_handoff_time": 0.3}
    a = make(how="block", **quick).start()
    holds(a, 4, "a has everything, though its callback hangs")
    b = peer(**quick)
    holds(b, 2, "b gets its share at the deadline")
    assert len(a.held) == 2
    a.do("stop")
    holds(b, 4, "a has left nevertheless")


def test_without_on_revoked_a_callback_that_works_has_the_whole_handoff_time(
    make: Make, peer: Peer
) -> None:
    quick = {"max_handoff_time": 1.0}
    a = make(how="work", **quick).start()
    holds(a, 4, "a has everything, and works on it in on_assigned")
    asked = time.monotonic()
    b = peer(**quick)
    holds(b, 2, "b gets its share at the deadline")
    assert time.monotonic() - asked >= 1.0


def test_stop_in_a_callback_does_not_wait_for_itself(make: Make, peer: Peer) -> None:
    a = make(how="stop").start()
    holds(a, 4, "a has everything")
    b = peer()
    holds(b, 4, "a has left in the callback, and b has everything")


def test_the_iterator_says_the_same_and_ends_with_the_membership(make: Make, peer: Peer) -> None:
    a = make(how="silent").start()
    holds(a, 4, "a has everything")
    said = a.ask("iterate")
    eventually(lambda: a.do("said") == 5, "the iterator has begun with what it has")
    b = peer()
    holds(b, 2, "the iterator lets go of two")
    a.do("stop")
    kinds = [kind for kind, _ in said.result()]
    assert kinds == ["active"] + ["assigned"] * 4 + ["revoked"] * 4 + ["inactive"]
    with pytest.raises(HostError, match="does not run: start it first"):
        a.do("iterate")


# It keeps a core busy in each kind of process.
@pytest.mark.parametrize(
    "host",
    ["thread", "asyncio", pytest.param("greenlet-patched", marks=pytest.mark.long)],
    indirect=True,
)
def test_a_member_that_computes_everywhere_for_two_leases_keeps_what_it_has(
    make: Make, peer: Peer
) -> None:
    a, b = make(**BURNING).start(), peer(**BURNING)
    holds(a, 2, "two each")
    holds(b, 2, "two each")
    eventually(lambda: a.do("phase") == "Ready", "all is at rest")
    tokens, generation = a.held, b.status().generation
    # The answer comes when every thread, greenlet and task has computed for so long.
    a.host.do("burn", seconds=2 * BURNING["ttl"])
    assert a.held == tokens
    assert b.status().generation == generation


def test_after_redis_was_down_it_comes_back_by_itself(host: Host) -> None:
    with RedisServer() as server:
        a = HostedGroup(host, server.url, 100, "record", SETTINGS | SHORT)
        a.start()
        holds(a, 4, "a has everything")
        before = a.held
        server.kill()
        holds(a, 0, "without Redis it holds nothing")
        lost = [("lost", partition) for partition in range(4)]
        eventually(lambda: a.told[-4:] == lost, "it learns of each loss")
        server.start()
        holds(a, 4, "it has everything again")
        assert all(token > before[p] for p, token in a.held.items())
        a.do("stop")


def test_while_redis_does_not_answer_the_application_goes_on(host: Host) -> None:
    with RedisServer() as server:
        a = HostedGroup(host, server.url, 101, "record", SETTINGS | SHORT)
        a.start()
        holds(a, 4, "a has everything")
        process = server.pid
        os.kill(process, signal.SIGSTOP)
        try:
            waiting = a.ask("phase")
            ticks = host.do("tick_count")
            eventually(lambda: host.do("tick_count") > ticks + 50, "others run meanwhile")
            holds(a, 0, "without answers it holds nothing after a ttl")
            eventually(waiting.arrived, "the asking task has waited long enough")
        finally:
            os.kill(process, signal.SIGCONT)
        with pytest.raises(HostError, match=r"[Tt]imeout|did not answer|timed out"):
            waiting.result()
        holds(a, 4, "it has everything again")
        a.do("stop")


def test_a_forked_child_holds_nothing_and_may_not_use_the_parents_name(make: Make) -> None:
    a = make().start()
    holds(a, 4, "a has everything")
    assert a.do("fork") == {"held": 0, "errors": ["MemberForked"] * 2}
    assert len(a.held) == 4


def test_a_member_whose_process_was_killed_has_its_name_again_when_the_lease_has_ended(
    make: Make, redis_server: RedisServer
) -> None:
    keys = group_keys(GROUP)
    terms = {k: v for k, v in SETTINGS.items() if k != "heartbeat_interval"} | {"ttl": 3.0}
    gone = MemberFacts("a", "a" * 16, 0, 0.0)
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        store = RedisStore(client, PATIENCE)
        # What a killed process leaves behind.
        store.run(join(keys, gone, Terms(**terms)))
        with pytest.raises(HostError) as raised:
            make(ttl=3.0).do("start", wait=False)
        assert raised.value.kinds[0] == "MemberExists"
        a = make(ttl=3.0).start()
        holds(a, 4, "it has everything")
        store.close()


def test_a_loop_over_the_changes_ends_in_a_forked_child(make: Make) -> None:
    a = make(how="silent").start()
    holds(a, 4, "a has everything")
    assert a.do("fork_in_changes") == {"error": "", "more": 0}
    assert len(a.held) == 4


def test_starting_and_stopping_leaves_nothing_behind(make: Make) -> None:
    a = make()
    a.start()
    a.do("stop")
    before = a.host.do("resources")
    for _ in range(5):
        a.start()
        a.do("stop")
    eventually(
        lambda: all(count <= before[what] for what, count in a.host.do("resources").items()),
        f"descriptors, threads, greenlets and tasks are {before} again",
    )
