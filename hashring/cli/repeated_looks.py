"""Look at a ring again and again: at a change of it, or after a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from typing import Final

from hashring.cli import standard_streams
from hashring.cli.connection import Connection
from hashring.errors import RetryLater
from hashring.store.interface import Subscription
from hashring.store.ring.ring_events import EVENTS_KEPT, RingEvent, continued, in_both, newest
from hashring.store.ring.snapshot import Snapshot

INTERVAL: Final = 1.0
"""Seconds between two looks when nothing changes."""
_RETRY: Final = 1.0  # seconds
_KNOWN: Final = 100  # events among which one is looked for that still stands
_PART: Final = 20  # reading the ring may take 1/20 of the time


class LastEvents:
    """The last events of a ring, and those that come.

    Args:
        kept: how many of the last events to keep.

    Raises:
        StoreError: Redis cannot be reached, or refuses.
    """

    def __init__(self, connection: Connection, kept: int) -> None:
        self._connection = connection
        self._kept = kept
        # Of few, a failover may have taken back all: then it is not known what is new.
        self._most = max(kept, _KNOWN)
        self._seen: Sequence[RingEvent] = newest(connection, connection.keys, self._most)
        self._first = self._seen

    @property
    def last(self) -> list[RingEvent]:
        """Those that were read last, and stand."""
        return [*self._seen[max(0, len(self._seen) - self._kept) :]]

    def new(self) -> list[RingEvent]:
        """Read those that came since.

        If none that was read last stands, those since the first reading, as far as it stands.
        """
        connection = self._connection
        stand, new = continued(connection, connection.keys, self._seen, EVENTS_KEPT)
        self._seen = [*stand, *new][-self._most :]
        # Data older than all that are known has the history before them as well.
        return new if stand else new[in_both(self._first, new)[1] :]


class LastLook:
    """What was last seen of a ring.

    Args:
        kept: how many of the last events to keep.

    Raises:
        StoreError: Redis cannot be reached, or refuses.
    """

    def __init__(self, connection: Connection, kept: int) -> None:
        self._connection = connection
        self._events = LastEvents(connection, kept)
        self.snapshot: Snapshot = connection.snapshot()
        self.took = 0.0

    @property
    def events(self) -> list[RingEvent]:
        """The last events."""
        return self._events.last

    def again(self) -> list[RingEvent]:
        """Look; the events that are new."""
        started = time.monotonic()
        # The ring first: an event that changed it is then among the new ones, and shown before it.
        snapshot = self._connection.snapshot()
        new = self._events.new()
        self.snapshot = snapshot
        self.took = time.monotonic() - started
        return new

    def pause(self) -> float:
        """Seconds until the next look: longer on a ring that takes long to read."""
        return max(INTERVAL, _PART * self.took)


def looks(
    connection: Connection,
    look: Callable[[], list[RingEvent]],
    pause: Callable[[], float] = lambda: INTERVAL,
) -> Generator[tuple[list[RingEvent], RetryLater | None], None, None]:
    """The new events that each look finds, at every change of the ring and after every pause.

    While Redis is away there are none, and the error says why; it keeps trying.

    Args:
        look: looks, and returns what is new.
        pause: says for how many seconds to wait at most.

    Raises:
        RedisRefused: the user may not subscribe to the ring's channel, or look.
        BrokenPipeError: nobody reads standard output any more.
    """
    subscription: Subscription | None = None
    try:
        while True:
            listens = True
            try:
                if subscription is None:
                    subscription = connection.subscribe(connection.keys.channel)
                _wait(subscription, pause())
            except RetryLater:
                listens = False  # and yet Redis may answer
            new: list[RingEvent] = []
            failure: RetryLater | None = None
            try:
                new = look()
            except RetryLater as error:
                listens, failure = False, error
            yield new, failure
            if not listens:
                if subscription is not None:
                    subscription.close()
                    subscription = None
                standard_streams.pause(_RETRY)
    finally:
        if subscription is not None:
            subscription.close()


def _wait(subscription: Subscription, seconds: float) -> None:
    """Wait for a message, for so long, while somebody reads standard output."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        standard_streams.pause(0)
        if subscription.wait(min(left, INTERVAL)) is not None:
            return
