"""Leases: keys that are pinned for as long as work on them lasts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, Protocol

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

    To a type checker, ``KeyLease`` is one of threads, and ``KeyLease[asyncio.Event]`` is one of
    asyncio.

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
        # By their identities: one that leaves twice has left once.
        self.holders: set[LeaseHolder] = set()
        # The session that took the lock, once the book has forgotten the key; else empty.
        self.former = ""

    @property
    def pins(self) -> int:
        """How many blocks the lease has that go on."""
        return len(self.holders)

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

    @property
    def held(self) -> Key | None:
        """The key, as long as the lease lasts."""
        held = self._held
        return held if held.lease is self else None

    def end(self) -> None:
        """Leave the key, unless it was another's before."""
        if (held := self.held) is not None:
            self._ended, held.lease = held.deadline, None


class LeaseHolder:
    """Holds a key by a lease, perhaps beside others.

    Attributes:
        lease: the lease; ``None`` before the key is held.
    """

    lease: KeyLease[Any] | None = None
