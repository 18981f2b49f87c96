"""What runs commands on Redis: over a sync client, and over an asyncio one.

Both turn every failure of the client or the server into a :class:`hashring.errors.StoreError`,
and let nothing else out.
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from hashring.errors import GroupFormatError, ReadOnlyReplica, RedisRefused, StoreError
from hashring.store.asyncio_cancellation import outcome
from hashring.store.client_errors import translate
from hashring.store.command import Command
from hashring.store.interface import (
    Answered,
    Message,
    Notice,
    Subscribed,
    Subscription,
    Unsubscribed,
)
from hashring.store.own_connections import (
    aclose,
    close,
    derive,
    derive_subscriber,
    remind,
    servers_of,
)

T = TypeVar("T")

# A client keeps to its timeouts, but a call may have many: of each sentinel, each node of a
# cluster, each step of a handshake. After this many timeouts, a call of an asyncio client
# is given up.
_GIVE_UP: Final = 10


def _notice(message: dict[str, Any] | None) -> Notice | None:
    kind = message["type"] if message else None
    if kind == "subscribe":
        return Subscribed()
    if kind == "unsubscribe":
        return Unsubscribed()
    if kind == "pong":
        return Answered()
    if message is None or kind != "message":
        return None
    return Message(_bytes(message["channel"]), _bytes(message["data"]))


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class _RedisSubscription:
    def __init__(self, client: Any, channels: tuple[bytes, ...]) -> None:
        self._doing = _doing(channels)
        self._pubsub = client.pubsub()
        try:
            self._pubsub.subscribe(*channels)
        except Exception as error:
            self.close()
            raise translate(error, self._doing) from error

    def wait(self, timeout: float) -> Notice | None:
        try:
            return _notice(self._pubsub.get_message(timeout=timeout))
        except Exception as error:
            raise translate(error, self._doing) from error

    def ask(self) -> None:
        try:
            self._pubsub.ping()
        except Exception as error:
            raise translate(error, self._doing) from error

    def end(self) -> None:
        try:
            self._pubsub.unsubscribe()
        except Exception:  # noqa: BLE001
            # The connection is gone; the waiting thread gets an error of its own.
            return

    def close(self) -> None:
        try:
            self._pubsub.close()
        except Exception:  # noqa: BLE001
            # What cannot be closed is closed already.
            return


class RedisStore:
    """Runs commands over a sync client of redis-py or valkey-py.

    Safe to use from several threads at once.

    Args:
        client: where Redis is; the store makes connections of its own.
        timeout: seconds that Redis may take to answer.
    """

    def __init__(self, client: Any, timeout: float) -> None:
        self._given = client
        self._timeout = timeout
        self._derived: Any = None
        self._servers: dict[str, Any] = {}
        # Reentrant: a signal handler may stop the node in the middle of its first call.
        self._deriving = threading.RLock()

    @property
    def _client(self) -> Any:
        # Made at the first call and not before: the client of a cluster asks for its nodes.
        with self._deriving:
            if self._derived is None:
                self._derived = derive(self._given, self._timeout)
                self._servers = servers_of(self._derived)
            return self._derived

    def run(self, command: Command[T]) -> T:
        """Run a command; see :meth:`Store.run`."""
        script = command.script
        rest = (len(command.keys), *command.keys, *command.arguments)
        try:
            client = self._client
            try:
                raw = client.execute_command("EVALSHA", script.sha, *rest)
            except Exception as error:
                if not _is_unknown_script(error):
                    raise
                raw = client.execute_command("EVAL", script.text, *rest)
        except Exception as error:
            remind(self._derived, self._servers)
            failure = _failure(error, command)
            if isinstance(failure, ReadOnlyReplica):
                # The primary has become a replica: what finds the primary (a name,
                # Sentinel) is asked again only by a new connection.
                self.close()
            raise failure from error
        return _read(raw, command)

    def subscribe(self, *channels: bytes) -> Subscription:
        """Begin a subscription; see :meth:`Store.subscribe`."""
        try:
            client = self._client
        except Exception as error:
            raise translate(error, _doing(channels)) from error
        return _RedisSubscription(client, channels)

    def call(self, *arguments: Any) -> Any:
        """A plain Redis command, for tools that look around.

        Raises:
            StoreError: it was not done.
        """
        try:
            return self._client.execute_command(*arguments)
        except Exception as error:
            raise translate(error, str(arguments[0])) from error

    def close(self) -> None:
        """Close all connections; the next call makes new ones."""
        if self._derived is not None:
            close(self._derived)


class _AsyncRedisSubscription:
    def __init__(self, client: Any, channels: tuple[bytes, ...], patience: float) -> None:
        self._doing = _doing(channels)
        self._channels = channels
        self._client = client
        self._patience = patience
        self._own: Any = None
        self._pubsub: Any = None

    async def open(self) -> None:
        try:
            await outcome(self._open(), self._patience)
        except BaseException as error:
            await self.close()
            if not isinstance(error, Exception):
                raise
            raise translate(error, self._doing) from error

    async def _open(self) -> None:
        subscriber = await derive_subscriber(self._client, self._channels[0])
        self._own = subscriber if subscriber is not self._client else None
        self._pubsub = subscriber.pubsub()
        await self._pubsub.subscribe(*self._channels)

    async def wait(self, timeout: float) -> Notice | None:
        """The next notice, or ``None`` when none came within ``timeout`` seconds."""
        try:
            message = self._pubsub.get_message(timeout=timeout)
            return _notice(await outcome(message, timeout + self._patience))
        except Exception as error:
            raise translate(error, self._doing) from error

    async def ask(self) -> None:
        """Ask whether it stands; ``wait`` then returns :class:`Answered`, among messages."""
        try:
            await outcome(self._pubsub.ping(), self._patience)
        except Exception as error:
            raise translate(error, self._doing) from error

    async def close(self) -> None:
        await _closed(self._close(), self._patience)

    async def _close(self) -> None:
        if self._pubsub is not None:
            await self._pubsub.aclose()
        if self._own is not None:
            await aclose(self._own)


class AsyncRedisStore:
    """Runs commands over an asyncio client of redis-py or valkey-py.

    A call may be cancelled at any moment: see :func:`hashring.store.asyncio_cancellation.over`.

    Args:
        client: where Redis is; the store makes connections of its own.
        timeout: seconds that Redis may take to answer.
    """

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = derive(client, timeout)
        self._servers = servers_of(self._client)
        self._patience = _GIVE_UP * timeout

    async def run(self, command: Command[T]) -> T:
        """Run a command.

        Raises:
            StoreError: it was not done, or its outcome is unknown.
        """
        try:
            raw = await outcome(self._evaluate(command), self._patience)
        except Exception as error:
            remind(self._client, self._servers)
            failure = _failure(error, command)
            if isinstance(failure, ReadOnlyReplica):
                await self.close()  # see RedisStore.run
            raise failure from error
        return _read(raw, command)

    async def _evaluate(self, command: Command[Any]) -> Any:
        script = command.script
        rest = (len(command.keys), *command.keys, *command.arguments)
        try:
            return await self._client.execute_command("EVALSHA", script.sha, *rest)
        except Exception as error:
            if not _is_unknown_script(error):
                raise
        return await self._client.execute_command("EVAL", script.text, *rest)

    async def subscribe(self, *channels: bytes) -> _AsyncRedisSubscription:
        """Begin a subscription.

        Raises:
            StoreError: the connection cannot be made.
        """
        subscription = _AsyncRedisSubscription(self._client, channels, self._patience)
        await subscription.open()
        return subscription

    async def close(self) -> None:
        """Close all connections; the next call makes new ones."""
        await _closed(aclose(self._client), self._patience)


async def _closed(closing: Coroutine[Any, Any, None], patience: float) -> None:
    try:
        await outcome(closing, patience)
    except Exception:  # noqa: BLE001
        # What cannot be closed is closed already.
        return


def _doing(channels: tuple[bytes, ...]) -> str:
    return f"subscription to {channels[0].decode('utf-8', 'replace')!r}"


def _is_unknown_script(error: Exception) -> bool:
    return type(error).__name__ == "NoScriptError" or str(error).startswith("NOSCRIPT")


def _read(raw: Any, command: Command[T]) -> T:
    try:
        return command.read(raw)
    except GroupFormatError:
        raise  # the clearer error: another version wrote what stands in Redis
    except Exception as error:
        shown = repr(raw)
        shown = shown if len(shown) <= 80 else shown[:80] + "..."
        raise RedisRefused(
            f"{_described(command)}: the answer {shown} cannot be understood: "
            f"is this a Redis or Valkey server, with nothing in between that changes answers?"
        ) from error


def _described(command: Command[Any]) -> str:
    key = command.keys[0].decode("utf-8", "replace")
    # A ring's ZSET has the ring's name; for other scripts, their first key in Redis is named.
    return f"{command.script.name} of {'key' if key.startswith('{') else 'ring'} {key!r}"


def _failure(error: Exception, command: Command[Any]) -> StoreError:
    return translate(error, _described(command))
