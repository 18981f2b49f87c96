"""Look at a ring again and again: at a change of it, or after a while."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from typing import Final

from hashring.cli.connection import Connection
from hashring.errors import RetryLater
from hashring.store.interface import Subscription
from hashring.store.ring.ring_events import RingEvent

INTERVAL: Final = 1.0
"""Seconds between two looks when nothing changes."""
_RETRY: Final = 1.0  # seconds


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
    """
    subscription: Subscription | None = None
    try:
        while True:
            listens = True
            try:
                if subscription is None:
                    subscription = connection.subscribe(connection.keys.channel)
                subscription.wait(pause())
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
                time.sleep(_RETRY)
    finally:
        if subscription is not None:
            subscription.close()
