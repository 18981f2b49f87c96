"""When to look at the ring again: at a change of it, or after a while."""

from __future__ import annotations

import time
from typing import Final

from hashring.cli.connection import Connection
from hashring.errors import RetryLater
from hashring.store.interface import Subscription

_RETRY: Final = 1.0  # seconds


class Ticks:
    """Wakes up at every change of a ring, and at least once in ``interval`` seconds.

    While Redis is away, it says so once and keeps trying.

    Args:
        connection: the ring.
        interval: seconds.
    """

    def __init__(self, connection: Connection, interval: float) -> None:
        self._connection = connection
        self._interval = interval
        self._subscription: Subscription | None = None
        self.failure: RetryLater | None = None
        """Why Redis cannot be asked now; ``None`` when it can."""

    def wait(self, interval: float | None = None) -> None:
        """Wait for the next tick.

        Raises:
            RedisRefused: the user may not subscribe to the ring's channel.
        """
        try:
            if self._subscription is None:
                self._subscription = self._connection.subscribe(self._connection.keys.channel)
            self._subscription.wait(interval or self._interval)
        except RetryLater as error:
            self.failed(error)

    def failed(self, error: RetryLater) -> None:
        """Redis did not answer: begin anew, after a moment."""
        self.failure = error
        self.close()
        time.sleep(_RETRY)

    def close(self) -> None:
        """End the subscription."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None
