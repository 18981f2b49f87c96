"""The steps that a protocol asks its loop to take, and what every protocol has in common.

A machine is a protocol without I/O, clock, threads or randomness of its own. Its loop asks
:meth:`Machine.next` what to do, does that, and reports how it went. So the same code runs in a
thread, in a greenlet, under asyncio, and in :mod:`hashring.testing.simulator`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol

from hashring.errors import StoreError
from hashring.store.command import Command

_LONGEST_SILENCE: Final = 5.0


def io_timeout(ttl: float) -> float:
    """Seconds after which a Redis that is silent counts as failed; less for short ttls."""
    return min(_LONGEST_SILENCE, ttl / 3)


@dataclass(frozen=True)
class Wait:
    """Wait for something to be told, until then at most (monotonic seconds)."""

    until: float


@dataclass(frozen=True)
class Run:
    """Run the command, then call ``done(reply, sent, now)`` or ``failed(error, now)``."""

    command: Command[Any]
    done: Callable[[Any, float, float], None]
    failed: Callable[[StoreError, float], None]


@dataclass(frozen=True)
class Subscribe:
    """Drop any subscription and make a new one. Every report about it carries its number.

    How long it may be silent is :class:`hashring.protocol.silent_subscription.Silence`'s to apply.

    Attributes:
        number: names the subscription.
        ask_after: seconds without a message after which Redis is asked whether it stands.
        patience: seconds that Redis may take to confirm it, and to answer.
    """

    number: int
    ask_after: float
    patience: float


@dataclass(frozen=True)
class Finished:
    """Nothing more to do, ever."""


Step = Wait | Run | Subscribe | Finished


class Machine(Protocol):
    """A protocol without I/O. Times are monotonic seconds; only one loop may drive it."""

    @property
    def channels(self) -> tuple[bytes, ...]:
        """What to subscribe to."""

    def next(self, now: float) -> Step:
        """What to do now."""

    def subscribed(self, number: int, now: float) -> None:
        """The subscription stands (again)."""

    def unsubscribed(self, number: int, error: StoreError | None, now: float) -> None:
        """The subscription is gone, or could not be made; without an error, in silence."""

    def told(self, number: int, channel: bytes, payload: bytes, now: float) -> None:
        """A message on one of :attr:`channels`."""
