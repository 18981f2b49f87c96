"""What kind of client the user passes in: of which package, asyncio or not, of a cluster or not."""

from __future__ import annotations

from typing import Any

from hashring.errors import ConfigError


def client_family(client: Any) -> tuple[str, bool]:
    """The package of a client, and whether it is an asyncio client.

    Raises:
        ConfigError: it is no client of redis-py or valkey-py.
    """
    if hasattr(client, "connection_pool") or is_cluster(client):
        for base in type(client).__mro__:
            package = base.__module__.partition(".")[0]
            if package in ("redis", "valkey"):
                return package, ".asyncio" in base.__module__
    raise ConfigError(
        "redis",
        # A pool shows its password.
        client if client is None or isinstance(client, str) else type(client),
        "not a client of redis-py or valkey-py: pass redis.Redis(...) or the like; of a Sentinel "
        "or a ConnectionPool, pass sentinel.master_for(name) or redis.Redis(connection_pool=pool)",
    )


def client_module(client: Any) -> str:
    """Where the classes of a client's kind are: ``redis``, ``valkey.asyncio``.

    Raises:
        ConfigError: it is no client of redis-py or valkey-py.
    """
    package, asynchronous = client_family(client)
    return f"{package}.asyncio" if asynchronous else package


def is_async(client: Any) -> bool:
    """Whether it is an asyncio client.

    Raises:
        ConfigError: it is no client of redis-py or valkey-py.
    """
    return client_family(client)[1]


def is_cluster(client: Any) -> bool:
    """Whether it is a client of a Redis Cluster."""
    return hasattr(client, "nodes_manager")
