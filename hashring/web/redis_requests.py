"""Redis for requests: only some of them wait for it at once, so that others have threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, Final, TypeVar

from hashring.errors import StoreError
from hashring.store.command import Command
from hashring.store.redis_store import RedisStore

T = TypeVar("T")

AT_ONCE: Final = 8
"""How many requests may wait for Redis at once: half of the threads."""

_PATIENCE: Final = 0.5  # seconds that one more request waits for its turn


class RedisIsSlow(StoreError):
    """As many requests as may wait for Redis do so already. This one has not asked it."""


class RedisRequests:
    """Asks Redis on behalf of requests.

    When Redis hangs, each call takes its thread until its time is over. It may take seconds until
    the service knows that Redis hangs.
    """

    _turns: ClassVar = threading.BoundedSemaphore(AT_ONCE)  # of all servers: they share the threads

    def __init__(self, store: RedisStore) -> None:
        self._store = store

    def run(self, command: Command[T]) -> T:
        """Run a command.

        Raises:
            RedisIsSlow: too many requests wait already.
            StoreError: as :meth:`RedisStore.run`.
        """
        with self._turn():
            return self._store.run(command)

    def call(self, *arguments: Any) -> Any:
        """A plain Redis command.

        Raises:
            RedisIsSlow, StoreError: as :meth:`run`.
        """
        with self._turn():
            return self._store.call(*arguments)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if not self._turns.acquire(timeout=_PATIENCE):
            raise RedisIsSlow(
                f"{AT_ONCE} requests wait for Redis already, so this one did not ask it: "
                "try again in some seconds"
            )
        try:
            yield
        finally:
            self._turns.release()
