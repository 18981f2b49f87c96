"""How many calls of its users a node makes to Redis at once; of more, some wait in a line.

Each call under way takes a connection, and so a file descriptor here and a client of the server.
The node's own calls, such as heartbeats and renewals, do not stand in the line.
"""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import cycle
from time import monotonic
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

from hashring.errors import RedisUnavailable
from hashring.monkey_patching import native_lock, original
from hashring.store.command import Command
from hashring.store.redis_answers import described

T = TypeVar("T")

CALLS_AT_ONCE: Final = 32
"""Calls of users that are under way at once in one event loop, in one hub of gevent's, or in the
threads of one node."""


def refuse_late(command: Command[Any], waited: float, timeout: float) -> None:
    """Refuse a call that has waited in the line for longer than Redis may take to answer.

    If Redis is silent, so are refused all that wait, soon after the first calls.

    Args:
        waited: seconds for which it has waited.
        timeout: seconds that Redis may take to answer.

    Raises:
        RedisUnavailable: it has waited for too long, and was not sent.
    """
    if waited > timeout:
        raise RedisUnavailable(
            f"{described(command)}: not sent: Redis did not answer earlier calls of this node "
            f"within {timeout:g} s"
        )


class CallsAtOnce:
    """The line of an asyncio node's users; each event loop has its own.

    Args:
        timeout: seconds that Redis may take to answer.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._of_loop: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = (
            WeakKeyDictionary()
        )

    @asynccontextmanager
    async def turn(self, command: Command[Any]) -> AsyncIterator[None]:
        """Wait for the call's turn.

        Raises:
            RedisUnavailable: it has come too late.
        """
        joined = monotonic()
        async with self._places:
            refuse_late(command, monotonic() - joined, self._timeout)
            yield

    @property
    def _places(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        return self._of_loop.setdefault(loop, asyncio.Semaphore(CALLS_AT_ONCE))


class ThreadsLine:
    """The line of a node's users in threads.

    A signal handler may call while its thread is in a call or in the line, and may raise at any
    line of either. So a place is a lock that its thread may take again, held by ``with`` and by
    nothing else.
    """

    def __init__(self) -> None:
        self._free: queue.SimpleQueue[Any] = original("queue", "SimpleQueue")()
        places = [native_lock() for _ in range(CALLS_AT_ONCE)]
        for place in places:
            self._free.put(place)
        # Where to wait when none is free.
        self._turns = cycle(places)

    def call(self, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        """Make a call in its turn."""
        try:
            place, found = self._free.get_nowait(), True
        except queue.Empty:
            place, found = next(self._turns), False
        try:
            with place:
                return function(*arguments)
        finally:
            if found:
                self._free.put(place)
