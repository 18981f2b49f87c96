"""Send a command on the user's own client once.

Clients repeat a command whose answer was lost or late: from redis-py 6 on ten times, unless their
user set something else. A command that was done the first time is then done again.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from hashring.errors import ConfigError
from hashring.store.client_kind import client_family, client_module, is_cluster
from hashring.store.connections_in_step import has_ended


class SentOnce:
    """Runs commands on a client's connections, and repeats none.

    The connections, and how they connect, encode, decode and time out, are the client's. The client
    repeats its other commands as before.

    Args:
        client: of redis-py or valkey-py.

    Raises:
        ConfigError: ``client`` is no such client, or is a pipeline.
    """

    def __init__(self, client: Any) -> None:
        package, asynchronous = client_family(client)
        kinds = (kind for kind in type(client).__mro__ if kind.__module__.startswith(package))
        if any(kind.__name__.endswith("Pipeline") for kind in kinds):
            raise ConfigError("redis", type(client), "is a pipeline: pass the client that made it")
        self._of_cluster = is_cluster(client)
        self._client = client
        if not self._of_cluster:
            prefix = client_module(client)
            pool = (_AsyncPool if asynchronous else _Pool)(client.connection_pool, package, prefix)
            kind = "Valkey" if package == "valkey" else "Redis"
            self._client = getattr(importlib.import_module(prefix), kind)(connection_pool=pool)

    def run(self, key: bytes, *command: Any) -> Any:
        """Run a command of a sync client; what Redis answers.

        Args:
            key: one of the command's keys.
        """
        if not self._of_cluster:
            return self._client.execute_command(*command)
        # A client of a cluster repeats a command only if it chose the server itself.
        server = self._client.get_node_from_key(key)
        return self._client.execute_command(*command, target_nodes=server)

    async def run_async(self, key: bytes, *command: Any) -> Any:
        """The same, for an asyncio client."""
        if not self._of_cluster:
            return await self._client.execute_command(*command)
        await self._client.initialize()
        server = self._client.get_node_from_key(key)
        return await self._client.execute_command(*command, target_nodes=server)


class _Pool:
    """A client's pool whose connections have no retries while they are lent.

    To connect comes before anything is sent, and is repeated as the client's user set it.
    """

    def __init__(self, pool: Any, package: str, prefix: str) -> None:
        no_backoff = importlib.import_module(f"{package}.backoff").NoBackoff()
        self._none = importlib.import_module(f"{prefix}.retry").Retry(no_backoff, 0)
        self._pool = pool
        self._lent: dict[Any, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """Lend a connection."""
        return self._lend(self._pool.get_connection(*arguments, **options))

    def release(self, connection: Any) -> Any:
        """Take a connection back."""
        self._take_back(connection)
        if sys.exc_info()[1] is not None:
            # Those of Sentinel stay connected when a signal handler raises while they wait for an
            # answer. The next command, which may be anybody's, would read it as its own.
            connection.disconnect()
        return self._pool.release(connection)

    def _lend(self, connection: Any) -> Any:
        self._lent[connection] = connection.retry
        connection.retry = self._none
        return connection

    def _take_back(self, connection: Any) -> None:
        connection.retry = self._lent.pop(connection)


class _AsyncPool(_Pool):
    """The same, for an asyncio client, whose connections end themselves when a call is left."""

    async def get_connection(self, *arguments: Any, **options: Any) -> Any:
        """Lend a connection."""
        connection = await self._pool.get_connection(*arguments, **options)
        try:
            # asyncio clients leave it to retries that the server has closed a connection meanwhile.
            if has_ended(getattr(connection, "_reader", None)):
                await connection.disconnect()
                await connection.connect()
        except BaseException:
            await self._pool.release(connection)
            raise
        return self._lend(connection)

    async def release(self, connection: Any) -> None:
        """Take a connection back."""
        self._take_back(connection)
        await self._pool.release(connection)
