"""Every store: Redis on each server program of this machine, with a sync and an asyncio client, and
the one in memory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring.store.embedded_server import RedisServer
from hashring.store.interface import Store
from hashring.store.loop_store import LoopStore
from hashring.store.memory_store import MemoryStore
from hashring.store.redis_store import RedisStore
from hashring.store.ring.key_names import ring_keys
from tests.conftest import PATIENCE, servers
from tests.contract.places import Listener, MemoryPlace, Place, RealPlace

REAL = [*servers(), "asyncio"]
STORES = [*REAL, "memory"]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if {"place", "store"} & set(metafunc.fixturenames):
        metafunc.parametrize("_server", STORES, indirect=True, scope="module", ids=str)
    elif "real" in metafunc.fixturenames:
        metafunc.parametrize("_server", REAL, indirect=True, scope="module")


@pytest.fixture(scope="module")
def _server(request: pytest.FixtureRequest) -> Iterator[RedisServer | None]:
    if request.param == "memory":
        yield None
    else:
        with RedisServer(servers().get(request.param)) as server:
            yield server


@pytest.fixture
def _client(_server: RedisServer | None) -> Iterator[Redis | None]:
    if _server is None:
        yield None
        return
    with Redis(unix_socket_path=str(_server.socket)) as client:
        client.flushall()
        yield client


@pytest.fixture
def store(
    _server: RedisServer | None, _client: Redis | None, request: pytest.FixtureRequest
) -> Iterator[Store]:
    """Each of the stores, empty."""
    if _server is None or _client is None:
        yield MemoryStore()
        return
    found: Store = RedisStore(_client, PATIENCE)
    if request.node.callspec.params["_server"] == "asyncio":
        found = LoopStore(AsyncRedis(unix_socket_path=str(_server.socket)), PATIENCE)
    yield found
    found.close()


@pytest.fixture
def place(store: Store, _client: Redis | None, request: pytest.FixtureRequest) -> Place:
    """A ring, in each of the stores."""
    keys = ring_keys(getattr(request, "param", "accounts"))
    return MemoryPlace(keys) if _client is None else RealPlace(keys, _client, store)


@pytest.fixture
def real(_client: Redis) -> Iterator[RealPlace]:
    """A ring on each of the real servers, through the sync store."""
    store = RedisStore(_client, PATIENCE)
    yield RealPlace(ring_keys("accounts"), _client, store)
    store.close()


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[Redis]:
    """A client of a real, empty server."""
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        yield client


@pytest.fixture
def channel(place: Place) -> Iterator[Listener]:
    listener = Listener(place)
    yield listener
    listener.close()
