"""Leases: keys that are pinned for as long as work on them lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, Protocol

from hashring.errors import LeaseLost
from hashring.protocol.locks.key_states import NEVER, Key


class Flag(Protocol):
    """What a lease's events can do; the runner's kind of event."""

    def set(self) -> None:
        """Make it happen."""

    def is_set(self) -> bool:
        """Whether it has happened."""


class ThreadEvent(Flag, Protocol):
    """An event that threads or greenlets wait for."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has happened, for so many seconds at most; whether it has."""


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    E = TypeVar("E", bound=Flag, default=ThreadEvent)
else:
    # Python 3.10 knows no defaults of type variables. Only type checkers need them.
    from typing import TypeVar

    E = TypeVar("E")


class KeyLease(Generic[E]):
    """A hold on a key that lasts until it is let go, as given by ``with node.hold(key)``.

    To a type checker, ``KeyLease`` is one of threads, and ``Lease[asyncio.Event]`` one of asyncio.

    Attributes:
        key: the key, as bytes.
        token: the fencing token: greater than all before it for this key. Send it with every
            write, and let the resource refuse older ones (see :mod:`hashring.fencing`).
        revoked: an event: the key belongs to another node now. Finish, and leave the block.
        lost: an event: the lock is not held any more. Stop at once.

    The events are of the kind of the node's runner: of threads, gevent's or asyncio's. Those of
    threads have no lock inside, so a signal handler may stop the node while its thread waits.
    ``lost`` is set when the node's loop notices; a process that was paused may not have noticed
    yet, which is why :meth:`check` looks at the clock as well, and why writes carry the token.
    """

    def __init__(self, held: Key, clock: Callable[[], float], lost: E, revoked: E) -> None:
        self._held = held
        self._clock = clock
        self._ended = -NEVER
        self.key = held.key
        self.token = held.token
        self.lost = lost
        self.revoked = revoked
        self.revoked_at: float | None = None
        self.last = NEVER
        self.pins = 0

    @property
    def deadline(self) -> float:
        """When the lock expires unless it is renewed, in ``time.monotonic()`` seconds.

        After the block it no longer changes, and promises nothing.
        """
        return self._held.deadline if self._held.lease is self else self._ended

    def check(self) -> None:
        """Raise unless the lease lasts, and its lock is still held.

        Raises:
            LeaseLost: the lock is not held, or the last block of this lease has ended. When it does
                not raise, the lock was held at the moment of the check; only the token protects a
                write that comes later.
        """
        # Before `lost`, which the loop sets before it ends the lease.
        left = self._held.lease is not self
        if self.lost.is_set():
            why = "the lease was lost"
        elif left:
            why = "the block of the lease has ended"
        elif self._clock() >= self.deadline:
            why = "the lease has expired"
        else:
            return
        raise LeaseLost(self.key.decode("utf-8", "replace"), self.token, why)

    def end(self) -> Key | None:
        """Leave the key; ``None`` when it was another's before."""
        held = self._held
        if held.lease is not self:
            return None
        self._ended, held.lease = held.deadline, None
        return held
