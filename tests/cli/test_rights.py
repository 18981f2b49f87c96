"""The documented rights of an operator are enough for every order and every look."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from redis import Redis

from hashring import PartitionGroup, RingNode
from hashring.store.embedded_server import RedisServer
from tests.cli.conftest import Run
from tests.conftest import ROOT, eventually


@pytest.fixture
def operator(client: Redis, redis_server: RedisServer) -> Iterator[str]:
    """The URL of a user with exactly the documented rights."""
    text = (ROOT / "docs" / "reference" / "redis-layout.rst").read_text()
    [line] = re.findall(r"ACL SETUSER operator .*", text)
    client.execute_command(*line.split())
    yield redis_server.url.replace("//", "//operator:secret@")
    client.acl_deluser("operator")


def test_an_operator_may_give_every_order(client: Redis, operator: str, run: Run) -> None:
    def order(*words: str) -> str:
        return run(*words, url=operator).out

    with (
        RingNode(client, "ring", name="a", lock=True),
        RingNode(client, "ring", name="b", lock=True),
    ):
        with RingNode(client, "other", name="c", lock=True) as holder:
            assert holder.contains("key")
            assert "released" in order("release", "key", "--ring", "other", "--yes")
        order("drain", "a")
        order("undrain", "a")
        order("weight", "a", "2")
        assert order("remove", "a", "--yes").startswith("removed a")
    assert order("forget", "--yes").startswith("ring was forgotten")
    with PartitionGroup(client, "orders", 4, member="m", rebalance_delay=0) as group:
        eventually(lambda: len(group.held) == 4, "the member has the partitions")
        order("group", "drain", "orders", "m", "--force")
        order("group", "undrain", "orders", "m")
        order("group", "weight", "orders", "m", "2")
        order("group", "partitions", "orders", "5", "--yes")
    assert order("group", "forget", "orders", "--yes").startswith("orders was forgotten")


@pytest.mark.parametrize(
    "words",
    [
        ("status",),
        ("nodes",),
        ("print",),
        ("events",),
        ("locks",),
        ("doctor",),
        ("group", "list"),
        ("group", "show", "orders"),
        ("group", "history", "orders"),
    ],
    ids=" ".join,
)
def test_an_operator_may_look_at_everything(
    client: Redis, operator: str, run: Run, words: tuple[str, ...]
) -> None:
    with (
        RingNode(client, "ring", name="a", lock=True),
        PartitionGroup(client, "orders", 1, member="m", rebalance_delay=0) as group,
    ):
        eventually(lambda: len(group.held) == 1, "the member has the partition")
        told = run(*words, url=operator)
    assert "refuses" not in told.out + told.err
