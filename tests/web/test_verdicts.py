"""The verdict on everything is no better than what the service knows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from redis import Redis
from werkzeug.test import Client, TestResponse

from hashring.web import Access, Service, create_app
from hashring.web.several_servers import Site, create_sites
from tests.conftest import eventually
from tests.web.conftest import Visitor, put
from tests.web.test_change_plans import words

pytestmark = pytest.mark.one_server


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def visitor_of(service: Service) -> Visitor:
    return Visitor(service, create_app(service, redis_shown="redis://test"))


@pytest.mark.parametrize("started", [False, True])
def test_of_a_redis_that_has_never_responded_nothing_is_healthy(
    stack: ExitStack, started: bool
) -> None:
    service = Service(Redis(host="127.0.0.1", port=1))
    if started:
        service.start()
        stack.callback(service.stop)
        eventually(lambda: service.failure is not None, "it has asked Redis")
    visitor = visitor_of(service)
    told = visitor.json("/api/status")
    assert (told["state"], told["exit_status"]) == ("unknown", 2)
    assert told["reasons"]
    assert "nothing is known" in words(visitor.page("/"))
    several = Client(create_sites([Site("eu", service, "x")], access=Access()), TestResponse)
    told = several.get("/api/status").json
    assert (told["state"], told["exit_status"]) == ("unknown", 2)
    assert told["servers"]["eu"]["state"] == "unknown"


def test_a_redis_user_that_may_not_scan_makes_the_verdict_unknown_and_says_so(
    redis: Redis, stack: ExitStack
) -> None:
    put(redis, "a", 0, told={"ttl": 900})
    redis.acl_setuser(
        "watcher", enabled=True, nopass=True, keys="*", channels="*", categories=["+@all"],
        commands=["-scan"],
    )  # fmt: skip
    stack.callback(redis.acl_deluser, "watcher")
    path = redis.connection_pool.connection_kwargs["path"]
    client = stack.enter_context(Redis(unix_socket_path=path, username="watcher", password="x"))
    service = Service(client, rings=["ring"])
    service.start()
    stack.callback(service.stop)
    visitor = visitor_of(service)
    assert visitor.json("/api/ring", ring="ring")["status"]["state"] == "healthy"
    eventually(lambda: service.search_failure is not None, "it has looked for rings")
    told = visitor.json("/api/status")
    assert (told["state"], told["exit_status"]) == ("unknown", 2)
    assert "rings and groups cannot be looked for" in told["reasons"][0]["text"]
    ready = visitor.json("/readyz", 503)
    assert "scan" in ready["fault"].lower()
    page = words(visitor.page("/"))
    assert "It is not known whether these are all rings and groups." in page
    assert "let its Redis user call SCAN" in page
