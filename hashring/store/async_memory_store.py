"""A store in memory for tasks of an event loop."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from hashring.asyncio_cancellation import outcome
from hashring.store.async_redis_store import AsyncRedisStore
from hashring.store.command import Command
from hashring.store.interface import Answered, AsyncStore, Message, Notice, Subscribed
from hashring.store.memory_store import MemoryServer, MemoryStore

T = TypeVar("T")


class _AsyncMemorySubscription:
    def __init__(self, server: MemoryServer, channels: tuple[bytes, ...]) -> None:
        self._notices: asyncio.Queue[Notice] = asyncio.Queue()
        self._soon = asyncio.get_running_loop().call_soon_threadsafe
        self._ends = [server.listen(channel, self._hear(channel)) for channel in channels]
        for _ in channels:
            self._notices.put_nowait(Subscribed())

    def _hear(self, channel: bytes) -> Callable[[bytes], None]:
        def hear(payload: bytes) -> None:
            # Who publishes may be another thread, and the event loop may have been closed.
            with contextlib.suppress(RuntimeError):
                self._soon(self._notices.put_nowait, Message(channel, payload))

        return hear

    async def wait(self, timeout: float) -> Notice | None:
        try:
            return await outcome(self._notices.get(), timeout)
        except TimeoutError:
            return None

    async def ask(self) -> None:
        self._notices.put_nowait(Answered())

    async def close(self) -> None:
        while self._ends:
            self._ends.pop()()


class AsyncMemoryStore:
    """What a :class:`hashring.testing.MemoryStore` is to an event loop.

    See :class:`hashring.store.interface.AsyncStore`.
    """

    def __init__(self, store: MemoryStore) -> None:
        self._store = store

    async def run(self, command: Command[T]) -> T:
        """Run a command."""
        return self._store.run(command)

    async def subscribe(self, *channels: bytes) -> _AsyncMemorySubscription:
        """Begin a subscription."""
        return _AsyncMemorySubscription(self._store.server, channels)

    async def close(self) -> None:
        """Nothing to close."""


def async_store(redis: Any, timeout: float) -> AsyncStore:
    """A store over what the application gave: a client for asyncio, or a store in memory.

    Args:
        timeout: seconds that a call to Redis may take.
    """
    if isinstance(redis, MemoryStore):
        return AsyncMemoryStore(redis)
    return AsyncRedisStore(redis, timeout)
