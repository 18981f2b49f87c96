"""A store whose patience goes with a ttl that may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from hashring.store.command import Command
from hashring.store.interface import Store, Subscription

T = TypeVar("T")


class TimelyStore:
    """A store of one loop: it waits for an answer as long as the ttl of now allows.

    It is made by the first call. So if it cannot be made, that is a failed call, which the loop
    tries again.

    Args:
        make: a store whose commands may take so many seconds.
        timeout: how many seconds they may take now.
    """

    def __init__(self, make: Callable[[float], Store], timeout: Callable[[], float]) -> None:
        self._make = make
        self._timeout = timeout
        self._patience = 0.0
        self._store: Store | None = None

    def _current(self) -> Store:
        patience = self._timeout()
        if self._store is None or patience != self._patience:
            self.close()
            self._store, self._patience = self._make(patience), patience
        return self._store

    def run(self, command: Command[T]) -> T:
        """Run a command; see :meth:`Store.run`."""
        return self._current().run(command)

    def subscribe(self, *channels: bytes) -> Subscription:
        """Begin a subscription; see :meth:`Store.subscribe`."""
        return self._current().subscribe(*channels)

    def close(self) -> None:
        """Close all connections; the next call makes new ones."""
        store, self._store = self._store, None
        if store is not None:
            store.close()
