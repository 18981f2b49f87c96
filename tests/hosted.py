"""What tests of nodes in processes of every kind use: a process, nodes in it, and what is between.

A plugin of pytest: a test that names one of these fixtures has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from redis import Redis

from hashring.store.embedded_server import RedisServer
from tests.conftest import oldest_and_newest
from tests.hosts import RUNNERS, Host, HostedNode
from tests.proxy import Proxy

RING = "accounts"

Make = Callable[..., HostedNode]


def _adds_nothing(item: pytest.Item) -> bool:
    """Whether it is a test of another kind of process than the first, on an older server."""
    # All kinds send a server the same commands, so one kind shows what another server answers.
    callspec = getattr(item, "callspec", None)
    if callspec is None or callspec.params.get("host", RUNNERS[0]) == RUNNERS[0]:
        return False
    newest = oldest_and_newest()[-1]
    return bool(callspec.params.get("server_program", newest) != newest)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if not _adds_nothing(item)]


ALIKE = ("thread-patched", "greenlet")


def of_some_kinds() -> list[Any]:
    """Every kind of process.

    Only with all tests a patched one whose node runs in a thread, and one with greenlets that is
    not patched: both have what the others have, and tests/contract/test_runners.py has the latter.
    """
    return [
        pytest.param(runner, marks=pytest.mark.long if runner in ALIKE else ())
        for runner in RUNNERS
    ]


@pytest.fixture(scope="module", params=of_some_kinds())
def host(request: pytest.FixtureRequest) -> Iterator[Host]:
    """One process a runner, which outlives the tests."""
    with Host(request.param) as process:
        yield process


@pytest.fixture
def another(host: Host) -> Iterator[Host]:
    """A process of the same kind for one test, which may pause or kill it."""
    with Host(host.runner) as process:
        yield process


@pytest.fixture
def make(host: Host, redis_server: RedisServer) -> Iterator[Make]:
    """Makes nodes, in ``host`` unless told; afterwards nothing has escaped and nothing is left."""
    made: list[HostedNode] = []

    def make(process: Host = host, **settings: Any) -> HostedNode:
        settings.setdefault("url", redis_server.url)
        node = process.node(settings.pop("url"), settings.pop("ring", RING), **settings)
        made.append(node)
        return node

    yield make
    for node in made:
        if node.host is host:
            node.stop()
            node.forget()
    assert host.do("escaped") == []
    with Redis.from_url(redis_server.url) as connection:
        # -1: it never expires. (-2: it has, since it was found.)
        assert [n for n in connection.scan_iter("*:lock:*") if connection.pttl(n) == -1] == []


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Redis]:
    with Redis.from_url(redis_server.url) as connection:
        yield connection


@pytest.fixture
def proxy(redis_server: RedisServer) -> Iterator[Proxy]:
    with Proxy(redis_server.socket) as between:
        yield between
