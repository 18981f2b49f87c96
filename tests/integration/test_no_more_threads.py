"""A process that may have no more threads: what needs one waits, and leases are renewed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest
from redis import Redis

from hashring import PartitionGroup, RingNode
from hashring.errors import RedisUnavailable
from tests.conftest import eventually

Refuse = Callable[[str], AbstractContextManager[None]]

pytestmark = pytest.mark.one_server


@contextmanager
def no_more_threads() -> Iterator[None]:
    """No thread that is started by anybody has room for its stack."""
    before = threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(before)


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch) -> Refuse:
    """While inside, there is no thread for what has this word in its name."""
    start = threading.Thread.start

    @contextmanager
    def refuse(word: str) -> Iterator[None]:
        def scarce(thread: threading.Thread) -> None:
            if word in thread.name:
                raise RuntimeError("can't start new thread")
            start(thread)

        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", scarce)
            yield

    return refuse


def listening(client: Redis) -> set[str]:
    found: list[dict[str, str]] = client.client_list(_type="pubsub")  # type: ignore[assignment]
    return {each["id"] for each in found}


def test_what_cannot_start_says_so_and_starts_later(client: Redis) -> None:
    group = PartitionGroup(client, "orders", 4, member="a", rebalance_delay=0.0)
    node = RingNode(client, "accounts", name="a")
    for start in (group.start, node.start):
        with no_more_threads(), pytest.raises(RuntimeError, match="can't start new thread"):
            start()
    with group, node:
        eventually(lambda: len(group.held) == 4, "it has everything")
        assert node.contains("any")


def test_a_group_without_a_thread_to_decide_in_says_so_and_starts_later(
    client: Redis, refuse: Refuse
) -> None:
    group = PartitionGroup(client, "orders", 4, member="a", rebalance_delay=0.0)
    with refuse("decider"), pytest.raises(RuntimeError, match="can't start new thread"):
        group.start()
    with group:
        eventually(lambda: len(group.held) == 4, "it has everything")


def test_a_node_whose_subscription_died_stays_on_the_ring_and_listens_again(client: Redis) -> None:
    with RingNode(client, "accounts", name="a", ttl=2.0, heartbeat_interval=0.3) as node:
        with no_more_threads():
            client.client_kill_filter(_type="pubsub")
            eventually(
                lambda: "no thread to listen in" in (node.status.last_error or ""), "it knows"
            )
            beats = node.status.heartbeats
            eventually(lambda: node.status.heartbeats > beats + 10, "it is renewed")
            assert node.contains("any")
        eventually(lambda: listening(client), "it listens")


def test_a_member_whose_subscription_died_keeps_its_lease_and_listens_again(client: Redis) -> None:
    settings = {"rebalance_delay": 0.0, "ttl": 2.0, "heartbeat_interval": 0.3}
    with PartitionGroup(client, "orders", 4, member="a", **settings) as group:
        eventually(lambda: len(group.held) == 4, "it has everything")
        tokens = group.held
        with no_more_threads():
            client.client_kill_filter(_type="pubsub")
            since = client.time()[0]
            eventually(lambda: client.time()[0] > since + 5, "two leases have gone by")
            assert group.held == tokens
        eventually(lambda: listening(client), "it listens")


def test_a_member_that_cannot_listen_enters_and_listens_later(
    client: Redis, refuse: Refuse
) -> None:
    group = PartitionGroup(client, "orders", 4, member="a", rebalance_delay=0.0)
    with ExitStack() as stack:
        with refuse("listener"):
            stack.enter_context(group)
            eventually(lambda: len(group.held) == 4, "it has everything")
            assert not listening(client)
        eventually(lambda: listening(client), "it listens")


def test_a_node_that_cannot_listen_does_not_start(client: Redis, refuse: Refuse) -> None:
    node = RingNode(client, "accounts", name="a")
    with refuse("listener"), pytest.raises(RedisUnavailable) as raised:
        node.start()
    assert str(raised.value) == "there is no thread to listen in: can't start new thread"
    with node:
        assert node.contains("any")


def test_on_change_is_called_once_there_is_a_thread_for_it(
    client: Redis, refuse: Refuse, caplog: pytest.LogCaptureFixture
) -> None:
    gained = []
    node = RingNode(
        client, "accounts", heartbeat_interval=0.2, on_change=lambda more, less: gained.extend(more)
    )
    with ExitStack() as stack:
        with refuse("on_change"):
            stack.enter_context(node)
            eventually(
                lambda: "on_change: there is no thread to run in" in caplog.text, "it says so"
            )
            assert not gained
        eventually(lambda: gained, "on_change was called with the ranges of the node")
