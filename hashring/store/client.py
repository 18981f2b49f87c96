"""Connections of the ring's own, made from the client that the user passes in.

The user's client decides where Redis is and how to get in (TCP, unix socket, TLS, Sentinel,
cluster; redis-py or valkey-py). Its other habits would break promises: without a socket timeout
a black-holed connection blocks a heartbeat for ever; ``decode_responses`` makes one undecodable
member an exception inside the parser; a retry policy of its own sleeps past the ttl. So the ring
takes the address and the credentials, and sets the rest itself.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Final

from hashring.errors import ConfigError

# Belong to the pool they came from, or are what a new pool derives by itself.
_NOT_OURS: Final = (
    "maint_notifications_pool_handler",
    "orig_host_address",
    "orig_socket_timeout",
    "orig_socket_connect_timeout",
    "event_dispatcher",
    "himport_registry",
    "connection_pool",
    "cache",
    "client_cache",
)


def _family(client: Any) -> tuple[str, bool]:
    """The package of a client, and whether it is an asyncio client."""
    for base in type(client).__mro__:
        package = base.__module__.partition(".")[0]
        if package in ("redis", "valkey"):
            return package, ".asyncio" in base.__module__
    raise ConfigError(
        "redis", client, "not a client of redis-py or valkey-py: pass redis.Redis(...) or the like"
    )


def is_async(client: Any) -> bool:
    """Whether it is an asyncio client.

    Raises:
        ConfigError: it is no client of redis-py or valkey-py at all.
    """
    return _family(client)[1]


def _settings(given: dict[str, Any], package: str, prefix: str, timeout: float) -> dict[str, Any]:
    retry = importlib.import_module(f"{prefix}.retry").Retry
    no_backoff = importlib.import_module(f"{package}.backoff").NoBackoff
    kept = {name: value for name, value in given.items() if name not in _NOT_OURS}
    for name in ("socket_timeout", "socket_connect_timeout"):
        wanted = kept.get(name)
        kept[name] = timeout if wanted is None else min(float(wanted), timeout)
    kept.update(
        decode_responses=False,
        retry=retry(no_backoff(), 0),
        retry_on_error=[],
        health_check_interval=0,
    )
    kept.pop("retry_on_timeout", None)
    return kept


def derive(client: Any, timeout: float) -> Any:
    """A client with connections of its own to where ``client`` connects.

    Args:
        timeout: seconds that a connect or an answer may take at most; a shorter one of the
            client's stays.

    Raises:
        ConfigError: ``client`` is no client of redis-py or valkey-py.
    """
    package, asynchronous = _family(client)
    prefix = f"{package}.asyncio" if asynchronous else package
    if hasattr(client, "nodes_manager"):
        return _derive_cluster(client, package, prefix, timeout)
    pool = client.connection_pool
    settings = _settings(pool.connection_kwargs, package, prefix, timeout)
    if hasattr(pool, "sentinel_manager"):
        sentinel_pool = importlib.import_module(f"{prefix}.sentinel").SentinelConnectionPool
        settings.pop("connection_pool", None)
        own = sentinel_pool(
            pool.service_name,
            pool.sentinel_manager,
            is_master=pool.is_master,
            connection_class=pool.connection_class,
            **settings,
        )
    else:
        if "path" in settings or "socket_connect_timeout" not in _parameters(pool):
            settings.pop("socket_connect_timeout", None)
        connection = importlib.import_module(f"{prefix}.connection")
        own = connection.ConnectionPool(connection_class=pool.connection_class, **settings)
    plain = "Valkey" if package == "valkey" else "Redis"
    return getattr(importlib.import_module(f"{prefix}.client"), plain)(connection_pool=own)


def _parameters(pool: Any) -> set[str]:
    names: set[str] = set()
    for base in pool.connection_class.__mro__:
        names.update(inspect.signature(base.__init__).parameters)
    return names


def _derive_cluster(client: Any, package: str, prefix: str, timeout: float) -> Any:
    manager = client.nodes_manager
    given = dict(getattr(manager, "connection_kwargs", None) or client.connection_kwargs)
    settings = _settings(given, package, prefix, timeout)
    cluster = importlib.import_module(f"{prefix}.cluster")
    for name in ("host", "port", "path", "db", "cluster", "retry_on_error", "connection_class"):
        settings.pop(name, None)
    accepted = inspect.signature(type(client).__init__).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        settings = {name: value for name, value in settings.items() if name in accepted}
    nodes = [
        cluster.ClusterNode(node.host, node.port)
        for node in (manager.startup_nodes or manager.nodes_cache).values()
    ]
    kind = next(
        base for base in type(client).__mro__ if base.__module__.startswith(f"{prefix}.cluster")
    )
    return kind(startup_nodes=nodes, **settings)
