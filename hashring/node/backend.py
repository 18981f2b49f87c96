"""What a node's loop runs on: threads, or greenlets of gevent.

With gevent not monkey-patched, a call that waits for Redis would stop every greenlet of the
process; such calls go to threads of gevent's own pool, and the hub stays free. Monkey-patched,
sockets wait in the hub by themselves, and calls are made directly.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast

T = TypeVar("T")

# queue.get refuses a timeout of centuries; waking up once an hour for nothing is free.
_LONGEST_WAIT: Final = 3600.0


class Inbox(Protocol):
    """Where a loop is told things. ``put`` never blocks, and is safe in a signal handler."""

    def put(self, item: Any) -> None:
        """Add an item."""

    def get(self, timeout: float) -> Any:
        """The next item; ``None`` when none came within ``timeout`` seconds."""


class Latch(Protocol):
    """Set once, waited for by any number, also from a signal handler."""

    def set(self) -> None:
        """Let all who wait, and all who come later, go on."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, ``timeout`` seconds at most; whether it is."""


class Backend(Protocol):
    """What a loop needs of the world besides Redis and a clock."""

    def spawn(self, target: Callable[[], None], name: str) -> None:
        """Run something beside the caller; it must not keep the process alive."""

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Make a call that may wait for I/O."""

    def inbox(self) -> Inbox:
        """A new inbox."""

    def latch(self) -> Latch:
        """A new latch."""

    def event(self) -> Any:
        """A new event, of the kind that the user's own code waits for."""

    def may_wait(self) -> bool:
        """Whether the caller may wait here: not in gevent's hub."""

    def close(self) -> None:
        """The loop has ended: let go what it ran on."""


class _QueueInbox:
    def __init__(self) -> None:
        # SimpleQueue.put is reentrant: a signal handler may interrupt a put with a put.
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.put = self._queue.put

    def get(self, timeout: float) -> Any:
        try:
            if timeout <= 0:
                return self._queue.get_nowait()
            return self._queue.get(timeout=min(timeout, _LONGEST_WAIT))
        except queue.Empty:
            return None


class _QueueLatch:
    # threading.Event has a lock inside: a signal handler that waits or sets while the main thread
    # is between two lines of Event's code would wait for itself. A SimpleQueue has no such lock.
    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[None] = queue.SimpleQueue()
        self.set = lambda: self._queue.put(None)

    def wait(self, timeout: float | None = None) -> bool:
        try:
            self._queue.get(timeout=timeout)
        except queue.Empty:
            return False
        self._queue.put(None)
        return True


class ThreadBackend:
    """Daemon threads. Under monkey-patching they are greenlets, like everybody's."""

    def spawn(self, target: Callable[[], None], name: str) -> None:
        """See :class:`Backend`."""
        threading.Thread(target=target, name=name, daemon=True).start()

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """See :class:`Backend`."""
        return function(*arguments)

    def inbox(self) -> Inbox:
        """See :class:`Backend`."""
        return _QueueInbox()

    def latch(self) -> Latch:
        """See :class:`Backend`."""
        return _QueueLatch()

    def event(self) -> Any:
        """See :class:`Backend`."""
        return threading.Event()

    def may_wait(self) -> bool:
        """See :class:`Backend`."""
        return True

    def close(self) -> None:
        """See :class:`Backend`."""


class GeventBackend:
    """Greenlets of the calling thread's hub."""

    def __init__(self) -> None:
        import gevent.event  # noqa: PLC0415 - gevent is loaded only by those who use it
        import gevent.monkey  # noqa: PLC0415
        import gevent.queue  # noqa: PLC0415
        import gevent.threadpool  # noqa: PLC0415

        self._gevent = gevent
        self._spawned: list[Any] = []
        # One thread listens, one beats, one closes or serves a call of the user's.
        self._pool = (
            None if gevent.monkey.is_module_patched("socket") else gevent.threadpool.ThreadPool(3)
        )

    def spawn(self, target: Callable[[], None], name: str) -> None:
        """See :class:`Backend`."""
        greenlet = self._gevent.spawn(target)
        greenlet.name = name
        self._spawned.append(greenlet)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """See :class:`Backend`."""
        if self._pool is None:
            return function(*arguments)
        # The outcome comes back as a value: what a pool's task raises, gevent prints.
        outcome: tuple[T | None, BaseException | None] = self._pool.apply(
            _outcome, (function, arguments)
        )
        result, error = outcome
        if error is not None:
            raise error
        return cast(T, result)

    def inbox(self) -> Inbox:
        """See :class:`Backend`."""
        return _GeventInbox(self._gevent)

    def latch(self) -> Latch:
        """See :class:`Backend`."""
        return _GeventLatch(self._gevent)

    def event(self) -> Any:
        """See :class:`Backend`."""
        return self._gevent.event.Event()

    def may_wait(self) -> bool:
        """See :class:`Backend`."""
        return self._gevent.getcurrent() is not self._gevent.get_hub()

    def close(self) -> None:
        """See :class:`Backend`."""
        if self._pool is not None:
            # Later, when nobody is waiting for a call on the pool any more.
            self._gevent.spawn(self._end, self._pool)

    def _end(self, pool: Any) -> None:
        self._gevent.joinall(self._spawned)
        pool.kill()


def _outcome(
    function: Callable[..., T], arguments: tuple[Any, ...]
) -> tuple[T | None, BaseException | None]:
    try:
        return function(*arguments), None
    except BaseException as error:  # noqa: BLE001 - raised again where the call was made
        return None, error


class _GeventLatch:
    def __init__(self, gevent: Any) -> None:
        self._event = gevent.event.Event()
        self.set: Callable[[], None] = self._event.set

    def wait(self, timeout: float | None = None) -> bool:
        return bool(self._event.wait(timeout))


class _GeventInbox:
    def __init__(self, gevent: Any) -> None:
        self._queue = gevent.queue.Queue()
        self._empty = gevent.queue.Empty
        self.put = self._queue.put_nowait

    def get(self, timeout: float) -> Any:
        try:
            if timeout <= 0:
                return self._queue.get_nowait()
            return self._queue.get(timeout=min(timeout, _LONGEST_WAIT))
        except self._empty:
            return None
