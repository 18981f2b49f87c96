"""What a store does: run commands, and subscribe to channels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from hashring.store.command import Command

T = TypeVar("T")


@dataclass(frozen=True)
class Subscribed:
    """The subscription stands: messages arrive from now on.

    It comes again after the client reconnected by itself, which is a gap.
    """


@dataclass(frozen=True)
class Message:
    """A message on a channel."""

    channel: bytes
    payload: bytes


@dataclass(frozen=True)
class Unsubscribed:
    """The subscription has ended as asked."""


@dataclass(frozen=True)
class Answered:
    """What :meth:`Subscription.ask` asked for has come: the subscription still stands."""


Notice = Subscribed | Message | Unsubscribed | Answered


class Subscription(Protocol):
    """A standing subscription to one or more channels."""

    def wait(self, timeout: float) -> Notice | None:
        """The next notice, or ``None`` when none came within ``timeout`` seconds.

        Raises:
            StoreError: the connection is gone.
        """

    def ask(self) -> None:
        """Ask whether it stands; ``wait`` then returns :class:`Answered`, among messages.

        For the thread that waits.

        Raises:
            StoreError: the connection is gone.
        """

    def end(self) -> None:
        """Ask for the end from another thread; ``wait`` then returns :class:`Unsubscribed`, or
        raises that the connection is gone."""

    def close(self) -> None:
        """Close the connection; for the thread that waits."""


class Store(Protocol):
    """Where a ring lives: Redis, or a server in memory."""

    def run(self, command: Command[T]) -> T:
        """Run a command.

        What is raised into the call from outside comes out as it is. It may have been done then.

        Raises:
            StoreError: it was not done, or its outcome is unknown.
        """

    def subscribe(self, *channels: bytes) -> Subscription:
        """Begin a subscription; a channel's stands once ``wait`` returned :class:`Subscribed`.

        Raises:
            StoreError: the connection cannot be made.
        """

    def close(self) -> None:
        """Close all connections; the store may be used again, with new ones."""


class AsyncSubscription(Protocol):
    """A :class:`Subscription` for tasks of an event loop; a waiting task is ended by a cancel."""

    async def wait(self, timeout: float) -> Notice | None:
        """See :meth:`Subscription.wait`."""

    async def ask(self) -> None:
        """See :meth:`Subscription.ask`."""

    async def close(self) -> None:
        """Close the connection."""


class AsyncStore(Protocol):
    """A :class:`Store` for tasks of an event loop; each call may be cancelled at any moment."""

    async def run(self, command: Command[T]) -> T:
        """See :meth:`Store.run`. Cancelled, it may have been done or not."""

    async def subscribe(self, *channels: bytes) -> AsyncSubscription:
        """See :meth:`Store.subscribe`."""

    async def close(self) -> None:
        """See :meth:`Store.close`."""


class RedisCaller(Protocol):
    """What runs plain Redis commands."""

    def call(self, *arguments: Any) -> Any:
        """Run one.

        Raises:
            StoreError: it was not done.
        """
