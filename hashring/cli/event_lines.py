"""The ring's history as it is shown, and the wait for more of it."""

from __future__ import annotations

import time
from typing import Final

from hashring.cli.connection import Connection
from hashring.cli.output import local_time
from hashring.core.printable import printable
from hashring.errors import RetryLater
from hashring.store.interface import Subscription
from hashring.store.ring.ring_events import RingEvent

_RETRY: Final = 1.0  # seconds


def event_line(event: RingEvent) -> str:
    """The event for people, on one line."""
    words = []
    change = event.change
    if change is None:
        words += [*event.nodes, _keys_of(event), event.reason]
        words.append(f"by {event.by}" if event.by and event.by not in event.nodes else "")
    else:
        words.append(", ".join(change.nodes) or "garbage")
        about = [change.reason] if change.reason and change.reason != "expired" else []
        if change.points:
            about.append(f"{len(change.points)} points")
        if event.by and event.by not in change.nodes:
            about.append(f"by {event.by}")
        about.append(f"epoch {change.stamp.epoch}")
        words.append(f"({', '.join(about)})")
    what = " ".join(word for word in words if word)
    return printable(f"{local_time(event.at)}  {event.kind:6}  {what}").rstrip()


def _keys_of(event: RingEvent) -> str:
    if event.kind != "unserved":
        return event.keys
    return "no keys any more" if event.keys == "0" else f"{event.keys} keys"


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
