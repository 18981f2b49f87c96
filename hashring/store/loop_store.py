"""A store over an asyncio client for threads that run no event loop."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any, TypeVar

from hashring.store.async_redis_store import AsyncRedisStore
from hashring.store.command import Command
from hashring.store.interface import Notice, Subscription, Unsubscribed

T = TypeVar("T")


class LoopStore:
    """Runs commands over an asyncio client, each until it is done, on an event loop of its own.

    So a thread can talk to Redis while the event loop of the application is busy. For one thread
    at a time, and not for one that runs an event loop.

    Args:
        client: an asyncio client of redis-py or valkey-py; connections are made anew.
        timeout: seconds that Redis may take to answer.
    """

    def __init__(self, client: Any, timeout: float) -> None:
        self._client = client
        self._timeout = timeout
        self._opened: tuple[asyncio.AbstractEventLoop, AsyncRedisStore] | None = None

    def _open(self) -> tuple[asyncio.AbstractEventLoop, AsyncRedisStore]:
        if self._opened is None:
            store = AsyncRedisStore(self._client, self._timeout)
            self._opened = asyncio.new_event_loop(), store
        return self._opened

    def run(self, command: Command[T]) -> T:
        """Run a command; see :meth:`hashring.store.interface.Store.run`."""
        loop, store = self._open()
        return loop.run_until_complete(store.run(command))

    def subscribe(self, *channels: bytes) -> Subscription:
        """Begin a subscription; see :meth:`hashring.store.interface.Store.subscribe`."""
        loop, store = self._open()
        return _LoopSubscription(loop, loop.run_until_complete(store.subscribe(*channels)))

    def close(self) -> None:
        """Close all connections; the next call makes new ones."""
        opened, self._opened = self._opened, None
        if opened is not None:
            loop, store = opened
            loop.run_until_complete(store.close())
            loop.close()


class _LoopSubscription:
    def __init__(self, loop: asyncio.AbstractEventLoop, inner: Any) -> None:
        self._loop = loop
        self._inner = inner
        self._ended = False
        self._waiting: asyncio.Task[Notice | None] | None = None

    def wait(self, timeout: float) -> Notice | None:
        if self._ended:
            return Unsubscribed()
        self._waiting = self._loop.create_task(self._inner.wait(timeout))
        try:
            return self._loop.run_until_complete(self._waiting)
        except asyncio.CancelledError:
            return Unsubscribed()

    def ask(self) -> None:
        self._loop.run_until_complete(self._inner.ask())

    def end(self) -> None:
        # The connection is the waiting thread's alone: only its wait is ended from here.
        self._ended = True
        with contextlib.suppress(RuntimeError):  # That thread has ended, and closed its loop.
            self._loop.call_soon_threadsafe(self._wait_no_more)

    def _wait_no_more(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()

    def close(self) -> None:
        self._loop.run_until_complete(self._inner.close())
