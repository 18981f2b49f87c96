"""hashring remove: the question, and what happens until it is answered."""

from __future__ import annotations

import pytest
from redis import Redis

from hashring.store.embedded_server import RedisServer
from tests.cli.conftest import nodes_on, put
from tests.cli.test_watch import terminal

pytestmark = pytest.mark.one_server

QUESTION = "Remove gone (2 replicas) of ring 'ring'? [y/N]"


def test_a_node_that_came_back_before_the_answer_stays(
    client: Redis, redis_server: RedisServer
) -> None:
    put(client, "gone", 5, 6, expires_in=-5)
    with terminal(redis_server.url, "remove", "gone") as screen:
        screen.shows(QUESTION)
        put(client, "gone", 5, 6)
        screen.types("y")
        assert screen.ends() == 1
        assert "gone has come back: nothing was changed" in screen.text
    assert client.zcard("ring") == 2


def test_a_node_that_left_before_the_answer_was_gone_already(
    client: Redis, redis_server: RedisServer
) -> None:
    with (
        nodes_on(client, "gone", "other", n_replicas=2) as (gone, _),
        terminal(redis_server.url, "remove", "gone") as screen,
    ):
        screen.shows("has not expired", QUESTION)
        gone.stop()
        screen.types("y")
        assert screen.ends() == 0
        assert "was gone already" in screen.text


def test_what_was_shown_is_removed(client: Redis, redis_server: RedisServer) -> None:
    put(client, "gone", 5, 6, expires_in=-5)
    with terminal(redis_server.url, "remove", "gone") as screen:
        screen.shows(QUESTION)
        screen.types("y")
        assert screen.ends() == 0
        assert "removed gone (2 replicas) of ring 'ring'" in screen.text
    assert not client.exists("ring")
