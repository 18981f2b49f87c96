"""What runs commands on Redis: over a sync client, and over an asyncio one.

Both turn every failure of the client or the server into a :class:`hashring.errors.StoreError`,
and let nothing else out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from hashring.errors import StoreError
from hashring.store.client import derive
from hashring.store.commands import Command
from hashring.store.failures import translate

T = TypeVar("T")


@dataclass(frozen=True)
class Subscribed:
    """The subscription stands: what changes from now on is told.

    It comes again after the client reconnected by itself, which is a gap.
    """


@dataclass(frozen=True)
class Told:
    """A message on a channel."""

    channel: bytes
    payload: bytes


@dataclass(frozen=True)
class Unsubscribed:
    """The subscription has ended as asked."""


Notice = Subscribed | Told | Unsubscribed


def _notice(message: dict[str, Any] | None) -> Notice | None:
    kind = message["type"] if message else None
    if kind == "subscribe":
        return Subscribed()
    if kind == "unsubscribe":
        return Unsubscribed()
    if message is None or kind != "message":
        return None
    return Told(_bytes(message["channel"]), _bytes(message["data"]))


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


class Subscription(Protocol):
    """A standing subscription to one or more channels."""

    def wait(self, timeout: float) -> Notice | None:
        """The next notice, or ``None`` when none came within ``timeout`` seconds.

        Raises:
            StoreError: the connection is gone.
        """

    def end(self) -> None:
        """Ask for the end from another thread; ``wait`` then returns :class:`Unsubscribed`."""

    def close(self) -> None:
        """Close the connection; for the thread that waits."""


class Store(Protocol):
    """Where a ring lives: Redis, or its twin in memory."""

    def run(self, command: Command[T]) -> T:
        """Run a command.

        Raises:
            StoreError: it was not done, or nobody knows whether it was.
        """

    def subscribe(self, *channels: bytes) -> Subscription:
        """Begin a subscription; a channel's stands once ``wait`` has told :class:`Subscribed`.

        Raises:
            StoreError: the connection cannot be made.
        """

    def close(self) -> None:
        """Close all connections; the store may be used again, with new ones."""


class _RedisSubscription:
    def __init__(self, client: Any, channels: tuple[bytes, ...]) -> None:
        self._doing = f"subscription to {channels[0].decode('utf-8', 'replace')!r}"
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

    def end(self) -> None:
        try:
            self._pubsub.unsubscribe()
        except Exception:  # noqa: BLE001
            # The connection is gone, which the waiting thread learns by itself.
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
        self._client = derive(client, timeout)

    def run(self, command: Command[T]) -> T:
        """Run a command; see :meth:`Store.run`."""
        script = command.script
        rest = (len(command.keys), *command.keys, *command.arguments)
        try:
            try:
                raw = self._client.execute_command("EVALSHA", script.sha, *rest)
            except Exception as error:
                if not _is_unknown_script(error):
                    raise
                raw = self._client.execute_command("EVAL", script.text, *rest)
        except Exception as error:
            raise _failure(error, command) from error
        return command.read(raw)

    def subscribe(self, *channels: bytes) -> Subscription:
        """Begin a subscription; see :meth:`Store.subscribe`."""
        return _RedisSubscription(self._client, channels)

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
        """Close all connections."""
        self._client.close()


class _AsyncRedisSubscription:
    def __init__(self, client: Any, channels: tuple[bytes, ...]) -> None:
        self._doing = f"subscription to {channels[0].decode('utf-8', 'replace')!r}"
        self._channels = channels
        self._pubsub = client.pubsub()

    async def open(self) -> None:
        try:
            await self._pubsub.subscribe(*self._channels)
        except Exception as error:
            await self.close()
            raise translate(error, self._doing) from error

    async def wait(self, timeout: float) -> Notice | None:
        try:
            return _notice(await self._pubsub.get_message(timeout=timeout))
        except Exception as error:
            raise translate(error, self._doing) from error

    async def close(self) -> None:
        try:
            await self._pubsub.aclose()
        except Exception:  # noqa: BLE001
            # What cannot be closed is closed already.
            return


class AsyncRedisStore:
    """Runs commands over an asyncio client of redis-py or valkey-py.

    Args:
        client: where Redis is; the store makes connections of its own.
        timeout: seconds that Redis may take to answer.
    """

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = derive(client, timeout)

    async def run(self, command: Command[T]) -> T:
        """Run a command.

        Raises:
            StoreError: it was not done, or nobody knows whether it was.
        """
        script = command.script
        rest = (len(command.keys), *command.keys, *command.arguments)
        try:
            try:
                raw = await self._client.execute_command("EVALSHA", script.sha, *rest)
            except Exception as error:
                if not _is_unknown_script(error):
                    raise
                raw = await self._client.execute_command("EVAL", script.text, *rest)
        except Exception as error:
            raise _failure(error, command) from error
        return command.read(raw)

    async def subscribe(self, *channels: bytes) -> _AsyncRedisSubscription:
        """Begin a subscription.

        Raises:
            StoreError: the connection cannot be made.
        """
        subscription = _AsyncRedisSubscription(self._client, channels)
        await subscription.open()
        return subscription

    async def close(self) -> None:
        """Close all connections."""
        await self._client.aclose()
        await self._client.connection_pool.disconnect()


def _is_unknown_script(error: Exception) -> bool:
    return type(error).__name__ == "NoScriptError" or str(error).startswith("NOSCRIPT")


def _failure(error: Exception, command: Command[Any]) -> StoreError:
    ring = command.keys[0].decode("utf-8", "replace")
    return translate(error, f"{command.script.name} of ring {ring!r}")
