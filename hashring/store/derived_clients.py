"""Clients derived from the one that the user passes in: they have connections of the ring's own.

The user's client decides where Redis is and how to get in (TCP, unix socket, TLS, Sentinel,
cluster; redis-py or valkey-py). Its other habits would break promises: without a socket timeout
a black-holed connection blocks a heartbeat for ever; ``decode_responses`` makes one undecodable
member an exception inside the parser; another ``encoding`` gives a name other bytes than the ring's
other nodes do; a retry policy of its own sleeps past the ttl. So the ring takes the address and the
credentials, and sets the rest itself.
"""

from __future__ import annotations

import asyncio
import copy
import importlib
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from hashring.monkey_patching import native_lock, threads_are_greenlets
from hashring.store.client_kind import client_family, client_module, is_cluster
from hashring.store.connections_in_step import in_step

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

_CONNECTIONS: Final = 1 << 31
"""As many as are wanted: redis-py 8 allows 100, and a service of 100 rings needs more. How many the
user's client may have is for the user's own commands."""


def _settings(given: dict[str, Any], package: str, prefix: str, timeout: float) -> dict[str, Any]:
    retry = importlib.import_module(f"{prefix}.retry").Retry
    no_backoff = importlib.import_module(f"{package}.backoff").NoBackoff
    kept = {name: value for name, value in given.items() if name not in _NOT_OURS}
    for name in ("socket_timeout", "socket_connect_timeout"):
        wanted = kept.get(name)
        kept[name] = timeout if wanted is None else min(float(wanted), timeout)
    kept.update(
        decode_responses=False,
        encoding="utf-8",
        encoding_errors="strict",
        retry=retry(no_backoff(), 0),
        retry_on_error=[],
        health_check_interval=0,
        max_connections=_CONNECTIONS,
    )
    kept.pop("retry_on_timeout", None)
    errors = importlib.import_module(f"{package}.exceptions")
    if (provider := kept.get("credential_provider")) is not None:
        kept["credential_provider"] = _Credentials(provider, errors.ConnectionError)
    if (connected := kept.get(f"{package}_connect_func")) is not None:
        kept[f"{package}_connect_func"] = _on_connect(connected, package, errors)
    return kept


def _on_connect(function: Callable[[Any], Any], package: str, errors: Any) -> Callable[[Any], Any]:
    """What the user's client calls once it is connected, with the client's errors alone.

    Its other errors are translated for the same reason as those of :class:`_Credentials`.
    """

    # What the server refused, or the end of the connection, stays as it is.
    own = getattr(errors, f"{package.capitalize()}Error")
    translated = partial(_translated, f"{package}_connect_func", errors.ConnectionError, own)

    if inspect.iscoroutinefunction(function):

        async def connected_async(connection: Any) -> None:
            with translated():
                await function(connection)

        return connected_async

    def connected(connection: Any) -> None:
        with translated():
            function(connection)

    return connected


@contextmanager
def _translated(what: str, failed: type[Exception], *own: type[Exception]) -> Iterator[None]:
    """Raise ``failed`` in place of an error of the user's code, unless it is one of ``own``."""
    try:
        yield
    except own:
        raise
    except Exception as error:
        raise failed(f"{what} failed: {type(error).__name__}: {error}") from error


class _Credentials:
    """The user's credential provider, whose errors are the client's.

    A provider asks a service of its own, with errors of its own. Those would be taken for something
    that was raised into the call from outside, and would end what runs the node.

    Args:
        provider: the user's.
        failed: the class of error of a connection that could not be made.
    """

    def __init__(self, provider: Any, failed: type[Exception]) -> None:
        self._provider = provider
        self._translated = partial(_translated, "the credential provider", failed)

    @property  # type: ignore[misc] # clients ask for some kinds of providers
    def __class__(self) -> type[Any]:
        return type(self._provider)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._provider, name)

    def get_credentials(self) -> Any:
        """As the user's."""
        with self._translated():
            return self._provider.get_credentials()

    async def get_credentials_async(self) -> Any:
        """As the user's."""
        with self._translated():
            return await self._provider.get_credentials_async()


def _without_maintenance(package: str, maker: Any) -> dict[str, Any]:
    """The setting with which connections are not told of a server's maintenance.

    With such notifications, a client does not look whether an idle connection has data or was
    closed.
    """
    name = "maint_notifications_config"
    if name not in inspect.signature(maker).parameters:
        return {}
    module = importlib.import_module(f"{package}.maint_notifications")
    return {name: module.MaintNotificationsConfig(enabled=False)}


def derive(client: Any, timeout: float) -> Any:
    """A client with connections of its own to where ``client`` connects.

    For a sync client of a cluster, this asks the cluster for its nodes.

    Args:
        timeout: seconds that a connect or an answer may take at most; a shorter one of the
            client's stays.

    Raises:
        ConfigError: ``client`` is no client of redis-py or valkey-py.
    """
    package, asynchronous = client_family(client)
    prefix = client_module(client)
    if is_cluster(client):
        return _derive_cluster(client, package, prefix, timeout)
    pool = client.connection_pool
    connection = importlib.import_module(f"{prefix}.connection")
    settings = _settings(pool.connection_kwargs, package, prefix, timeout)
    settings.update(_without_maintenance(package, connection.ConnectionPool))
    if hasattr(pool, "sentinel_manager"):
        own = _derive_sentinel_pool(pool, prefix, settings, timeout)
    else:
        if "path" in settings or "socket_connect_timeout" not in _parameters(pool):
            settings.pop("socket_connect_timeout", None)
        own = connection.ConnectionPool(
            connection_class=in_step(pool.connection_class, prefix), **settings
        )
    if not asynchronous:
        _lock_below_gevent(own)
    return _plain(package, prefix)(connection_pool=own)


def _plain(package: str, prefix: str) -> Any:
    name = "Valkey" if package == "valkey" else "Redis"
    return getattr(importlib.import_module(f"{prefix}.client"), name)


def _parameters(pool: Any) -> set[str]:
    names: set[str] = set()
    for base in pool.connection_class.__mro__:
        names.update(inspect.signature(base.__init__).parameters)
    return names


def _derive_sentinel_pool(pool: Any, prefix: str, settings: dict[str, Any], timeout: float) -> Any:
    # The sentinels' own clients need a timeout as well: a black-holed sentinel would block the
    # heartbeat before there is any Redis to talk to.
    manager = copy.copy(pool.sentinel_manager)
    manager.sentinels = [derive(each, timeout) for each in manager.sentinels]
    return importlib.import_module(f"{prefix}.sentinel").SentinelConnectionPool(
        pool.service_name,
        manager,
        is_master=pool.is_master,
        connection_class=in_step(pool.connection_class, prefix),
        **settings,
    )


def _derive_cluster(client: Any, package: str, prefix: str, timeout: float) -> Any:
    manager = client.nodes_manager
    given = dict(getattr(manager, "connection_kwargs", None) or client.connection_kwargs)
    settings = _settings(given, package, prefix, timeout)
    if "SSL" in getattr(given.get("connection_class"), "__name__", ""):
        settings["ssl"] = True
    for name in ("host", "port", "path", "db", "cluster", "retry_on_error", "connection_class"):
        settings.pop(name, None)
    kind = next(
        base for base in type(client).__mro__ if base.__module__.startswith(f"{prefix}.cluster")
    )
    settings.update(_without_maintenance(package, kind))
    accepted = inspect.signature(kind).parameters
    if not any(p.kind is p.VAR_KEYWORD for p in accepted.values()):
        settings = {name: value for name, value in settings.items() if name in accepted}
    if hasattr(client, "cluster_error_retry_attempts"):
        # From redis-py 6 on, the retry policy alone decides.
        settings["cluster_error_retry_attempts"] = 0
    if getattr(manager, "address_remap", None):
        settings["address_remap"] = manager.address_remap
    nodes = list(known_servers(client).values())
    # A ring lives in one slot, and does not care whether others are served.
    own = kind(startup_nodes=nodes, require_full_coverage=False, **settings)
    if client_family(client)[1]:
        _keep_async_nodes_in_step(own, prefix)
    else:
        _keep_nodes_in_step(own, prefix)
        _lock_below_gevent(own, own.nodes_manager)
    return own


def _keep_nodes_in_step(client: Any, prefix: str) -> None:
    # A client of a cluster makes those of its nodes, also of later ones, with classes of its own.
    manager = client.nodes_manager
    name = f"create_{prefix}_node"
    create = getattr(manager, name)

    def create_in_step(*args: Any, **settings: Any) -> Any:
        made = create(*args, **settings)
        pool = made.connection_pool
        pool.connection_class = in_step(pool.connection_class, prefix)
        _lock_below_gevent(pool)
        return made

    setattr(manager, name, create_in_step)
    # It has asked the first ones already. It makes their clients anew.
    for node in (*manager.startup_nodes.values(), *client.get_nodes()):
        if (asked := getattr(node, f"{prefix}_connection")) is not None:
            asked.close()
            setattr(node, f"{prefix}_connection", None)


def _keep_async_nodes_in_step(client: Any, prefix: str) -> None:
    manager = client.nodes_manager
    for node in manager.startup_nodes.values():
        node.connection_class = in_step(node.connection_class, prefix)
        manager.connection_kwargs["connection_class"] = node.connection_class


def _lock_below_gevent(*owners: Any) -> None:
    """Give a sync client's parts locks that a signal handler cannot leave locked.

    With gevent in the place of threads, a lock is Python code, and what a signal handler raises
    inside leaves it locked for ever. The client is used in one thread only, and does not switch to
    another greenlet where such a lock matters.
    """
    if not threads_are_greenlets():
        return
    for owner in owners:
        for name in ("_lock", "_fork_lock", "_initialization_lock"):
            if hasattr(owner, name):
                setattr(owner, name, native_lock())
        if (dispatcher := getattr(owner, "_event_dispatcher", None)) is not None:
            _lock_below_gevent(dispatcher)


def known_servers(client: Any) -> dict[str, Any]:
    """The servers that a client of a cluster knows or was given; none for any other client.

    Each is one to begin at, without the connections of the client.
    """
    if not is_cluster(client):
        return {}
    node = importlib.import_module(f"{client_module(client)}.cluster").ClusterNode
    manager = client.nodes_manager
    known = {**manager.startup_nodes, **manager.nodes_cache}
    return {name: node(each.host, each.port) for name, each in known.items()}


def servers_of(client: Any) -> dict[str, Any]:
    """The servers at which a client of a cluster begins; none for any other client."""
    return dict(client.nodes_manager.startup_nodes) if is_cluster(client) else {}


def remind(client: Any, servers: dict[str, Any]) -> None:
    """Tell a client of a cluster again at which servers to begin.

    Before redis-py 8, and in valkey-py, it strikes out each that it could not reach. Once all are
    struck out, as after a restart of the whole cluster, it would never find one again. Unless told
    otherwise it also forgets those that it was given, once the cluster has told of its own.
    """
    for name, server in servers.items():
        client.nodes_manager.startup_nodes.setdefault(name, server)


async def derive_subscriber(client: Any, channel: bytes) -> Any:
    """For a derived asyncio client, the client to subscribe with.

    Most versions of the asyncio cluster clients cannot subscribe, so a plain client of the node
    that serves the channel's slot does; the caller closes it. Any other client does it itself.
    """
    if not is_cluster(client):
        return client
    package, _ = client_family(client)
    prefix = client_module(client)
    await client.initialize()
    node = client.get_node_from_key(channel)
    settings = {
        name: value for name, value in node.connection_kwargs.items() if name not in _NOT_OURS
    }
    connection = importlib.import_module(f"{prefix}.connection")
    settings.update(_without_maintenance(package, connection.ConnectionPool))
    pool = connection.ConnectionPool(connection_class=node.connection_class, **settings)
    return _plain(package, prefix)(connection_pool=pool)


def close(client: Any) -> None:
    """Close the unused connections of a derived client; it can make new ones.

    One in use belongs to another thread, which may be reading from it: closed under its hands,
    its descriptor could be another connection's by the time of the next read. A subscription
    closes its own.
    """
    for pool in _pools(client):
        pool.disconnect(inuse_connections=False)


async def aclose(client: Any) -> None:
    """The same, for an asyncio client. One of a cluster closes those in use as well."""
    if is_cluster(client):
        await client.aclose()
        return
    for pool in _pools(client):
        # Out of the pool meanwhile: to close takes turns of the event loop, in which another task
        # may take a connection.
        unused, pool._available_connections = pool._available_connections, []
        try:
            closing = (connection.disconnect() for connection in unused)
            await asyncio.gather(*closing, return_exceptions=True)
        finally:
            pool._available_connections += unused


def _pools(client: Any) -> list[Any]:
    if is_cluster(client):
        name = "valkey_connection" if client_family(client)[0] == "valkey" else "redis_connection"
        clients = [getattr(node, name) for node in client.get_nodes()]
        return [each.connection_pool for each in clients if each is not None]
    pool = client.connection_pool
    sentinels = getattr(getattr(pool, "sentinel_manager", None), "sentinels", ())
    return [pool, *(each.connection_pool for each in sentinels)]
