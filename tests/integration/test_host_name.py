"""A machine whose name has bytes that are not UTF-8: what is made of it, Redis and its Lua read."""

from __future__ import annotations

import socket

import pytest
from redis import Redis

from hashring import PartitionGroup, RingNode, lease_challenge
from hashring.cli.order_options import here
from hashring.store.embedded_server import RedisServer
from tests.conftest import eventually


@pytest.fixture
def client(redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch) -> Redis:
    monkeypatch.setattr(socket, "gethostname", lambda: "h\udcff")
    return Redis.from_url(redis_server.url)


def test_a_node_has_a_name_made_of_it(client: Redis) -> None:
    with RingNode(client, "r") as node:
        assert node.name.startswith("h\\udcff:")


def test_the_entry_of_a_node_is_read_by_lua(client: Redis) -> None:
    with RingNode(client, "r", name="n"):
        decode = "return cjson.decode(string.sub(redis.call('HGET', KEYS[1], 'n'), 17)).host"
        assert client.eval(decode, 1, "{r}:nodes") == b"h\\udcff"
    assert client.hkeys("{r}:left") == [b"n"]


def test_members_have_names_made_of_it(client: Redis) -> None:
    for member in (PartitionGroup(client, "g", 2), lease_challenge(client, "c", 2)):
        with member:
            assert member.member.startswith("h\\udcff:")
            eventually(lambda: len(member.held) == 2, "it holds both")  # noqa: B023


@pytest.mark.usefixtures("client")
def test_an_order_names_it() -> None:
    assert here("drain").startswith("hashring drain on h\\udcff:")
