"""What a loop runs on: threads, or greenlets of gevent.

With gevent not monkey-patched, a call that waits for Redis would stop every greenlet of the
process; such calls go to threads of gevent's own pool, and the hub stays free. Monkey-patched,
sockets wait in the hub by themselves, and calls are made directly.

What must go on whatever the application does runs beside both: see
:mod:`hashring.running.native_threads`.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar, cast

from hashring.errors import MissingDependencyError
from hashring.monkey_patching import connections_home, original, threads_are_greenlets
from hashring.running.calls_at_once import CALLS_AT_ONCE

T = TypeVar("T")

# queue.get refuses a timeout of centuries; waking up once an hour for nothing is free.
_LONGEST_WAIT: Final = 3600.0

# Seconds between two looks whether a latch is set: whom a signal handler has raised in may have
# taken what lets the others go on.
_LOOK_AGAIN: Final = 1.0


class Inbox(Protocol):
    """The inbox of a loop. ``put`` never blocks, and is safe in a signal handler."""

    def put(self, item: Any) -> None:
        """Add an item; any thread may. Nobody gets it where a hub was destroyed."""

    def get(self, timeout: float) -> Any:
        """The next item; ``None`` when none came within ``timeout`` seconds."""


class Latch(Protocol):
    """Set once, by any thread; waited for by any number, also from a signal handler."""

    def set(self) -> None:
        """Let all who wait, and all who come later, go on."""

    def is_set(self) -> bool:
        """Whether it is set."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, ``timeout`` seconds at most; whether it is."""


class Ground(Protocol):
    """What a loop runs on."""

    def inbox(self) -> Inbox:
        """A new inbox, from which a loop reads."""

    def spawn(self, target: Callable[[], None], name: str) -> object:
        """Run something beside the caller; it must not keep the process alive."""

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Make a call of the loop's that may wait for I/O."""

    def forward(self, error: BaseException) -> bool:
        """Raise in the main greenlet what a signal handler raised in another; whether it could.

        A signal interrupts whatever greenlet runs; its exception is for the user's code. What
        ends a greenlet that is killed is raised again, and ends it.
        """

    def interrupts(self, error: BaseException) -> bool:
        """Whether an exception in a call may be a signal handler's, or kill the caller."""

    def close(self) -> None:
        """The loop has ended: let go what it ran on."""


class Backend(Ground, Protocol):
    """The same for a loop beside users, who ask it and stop it."""

    def call_for_user(self, function: Callable[..., T], *arguments: Any) -> T:
        """Make a call that may wait for I/O; however many there are, the loop's do not wait."""

    def latch(self) -> Latch:
        """A new latch."""

    def event(self) -> Any:
        """A new event, of the kind that the user's own code waits for."""

    def greenlets(self) -> bool:
        """Whether what is spawned are greenlets of the caller's thread."""

    def current(self) -> object:
        """What runs the caller: its thread, or its greenlet."""

    def may_wait(self) -> bool:
        """Whether the caller may wait here: not in gevent's hub."""

    def abandon(self) -> None:
        """In a forked child: end what was spawned and lives on here, before it does anything."""

    def gone(self) -> bool:
        """Whether the thread or the hub of the greenlets has ended: they will never go on."""


class QueueInbox:
    """An inbox between threads, by a queue of the kind that is given."""

    def __init__(self, kind: type[queue.SimpleQueue[Any]]) -> None:
        # SimpleQueue.put is reentrant: a signal handler may interrupt a put with a put.
        self._queue: queue.SimpleQueue[Any] = kind()
        self.put = self._queue.put

    def get(self, timeout: float) -> Any:
        try:
            if timeout <= 0:
                return self._queue.get_nowait()
            return self._queue.get(timeout=min(timeout, _LONGEST_WAIT))
        except queue.Empty:
            return None


class QueueLatch:
    """A latch between threads, by a queue of the kind that is given."""

    # threading.Event has a lock inside: a signal handler that waits or sets while the main thread
    # is between two lines of Event's code would wait for itself. A SimpleQueue has no such lock.
    def __init__(self, kind: type[queue.SimpleQueue[Any]]) -> None:
        self._queue: queue.SimpleQueue[None] = kind()
        self._is_set = False

    def set(self) -> None:
        if not self._is_set:
            self._queue.put(None)
            self._is_set = True

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float | None = None) -> bool:
        until = float("inf") if timeout is None else time.monotonic() + timeout
        # Looked at first: a signal handler may wait while the wait that it interrupted has taken
        # the item and not put it back yet.
        while not self._is_set:
            left = max(0.0, until - time.monotonic())
            try:
                self._queue.get(timeout=min(left, _LOOK_AGAIN))
            except queue.Empty:
                if left <= _LOOK_AGAIN:
                    return self._is_set
            else:
                self._queue.put(None)
                # The thread that sets it may have put the item, and have done no more yet.
                self._is_set = True
        return True


def queue_of_threads() -> type[queue.SimpleQueue[Any]]:
    """The kind of queue that threads share with the application's own."""
    # gevent may have patched queues, and no threads.
    if threads_are_greenlets():
        return queue.SimpleQueue
    return cast("type[queue.SimpleQueue[Any]]", original("queue", "SimpleQueue"))


def event_of_threads() -> Any:
    """An event in a program of threads, which gevent may have patched."""
    # Gevent's has no lock inside, either.
    return threading.Event() if threads_are_greenlets() else QueueLatch(queue_of_threads())


def _outside_hub(gevent: Any) -> bool:
    return gevent.getcurrent() is not gevent.get_hub()


def _forwarding(backend: Backend, body: Callable[[], None]) -> None:
    try:
        body()
    except BaseException as error:
        if not backend.forward(error):
            raise


def _forward(gevent: Any, error: BaseException) -> bool:
    if isinstance(error, gevent.GreenletExit):
        raise error
    if not isinstance(error, KeyboardInterrupt | SystemExit):
        return False
    gevent.get_hub().handle_system_error(type(error), error)
    return True


class GeventBackend:
    """Greenlets of the calling thread's hub; other threads may put into its inboxes."""

    def __init__(self) -> None:
        try:
            import gevent.event  # noqa: PLC0415 - gevent is loaded only by those who use it
            import gevent.lock  # noqa: PLC0415
            import gevent.monkey  # noqa: PLC0415
            import gevent.queue  # noqa: PLC0415
            import gevent.threadpool  # noqa: PLC0415
        except ImportError as error:
            raise MissingDependencyError("gevent_start()", "gevent") from error

        self._gevent = gevent
        self._home = _Home(gevent)
        self._spawned: list[Any] = []
        self._patched = gevent.monkey.is_module_patched("socket")
        # Of greenlets of the same hub alone, which it serves in their order.
        self._line = gevent.lock.Semaphore(CALLS_AT_ONCE)
        # One thread listens, one beats, one closes.
        self._pool = None if self._patched else gevent.threadpool.ThreadPool(3)
        self._users: Any = None
        self._users_calls = 0
        self._closed = False

    def spawn(self, target: Callable[[], None], name: str) -> None:
        greenlet = self._gevent.spawn(_forwarding, self, target)
        greenlet.name = name
        self._spawned = [each for each in self._spawned if not each.dead]
        self._spawned.append(greenlet)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        return self._call(self._pool, function, arguments)

    def call_for_user(self, function: Callable[..., T], *arguments: Any) -> T:
        if self._home.is_elsewhere():
            return function(*arguments)
        if self._patched:
            with self._line:
                return function(*arguments)
        if self._closed:
            # What the loop ran on is being let go.
            return self._call(self._gevent.get_hub().threadpool, function, arguments)
        if self._users is None:
            self._users = self._gevent.threadpool.ThreadPool(_USER_THREADS)
        self._users_calls += 1
        try:
            return self._call(self._users, function, arguments)
        finally:
            self._users_calls -= 1

    def _call(self, pool: Any, function: Callable[..., T], arguments: tuple[Any, ...]) -> T:
        if pool is None or self._home.is_elsewhere():
            return function(*arguments)
        wanted = True

        def do() -> tuple[T | None, BaseException | None]:
            return _outcome(function, arguments) if wanted else (None, None)

        try:
            # The outcome comes back as a value: what a pool's task raises, gevent prints.
            result, error = pool.apply(do)
        except BaseException:
            # The greenlet was killed. A lock that a thread of the pool takes only after that would
            # be one that nobody knows of.
            wanted = False
            raise
        if error is not None:
            raise error
        return cast(T, result)

    def inbox(self) -> Inbox:
        if self._home.is_elsewhere():
            return QueueInbox(self._home.native_queue)
        return _GeventInbox(self._gevent, self._home)

    def latch(self) -> Latch:
        return _GeventLatch(self._gevent, self._home)

    def event(self) -> Any:
        return self._gevent.event.Event()

    def greenlets(self) -> bool:
        return True

    def current(self) -> object:
        return self._gevent.getcurrent()

    def may_wait(self) -> bool:
        return self._home.is_elsewhere() or _outside_hub(self._gevent)

    def forward(self, error: BaseException) -> bool:
        return _forward(self._gevent, error)

    def interrupts(self, error: BaseException) -> bool:
        return isinstance(error, self._gevent.GreenletExit | KeyboardInterrupt | SystemExit)

    def abandon(self) -> None:
        # They do not live on where their thread or hub was over before, and cannot be killed.
        if self.gone():
            return
        for greenlet in self._spawned:
            self._gevent.kill(greenlet)

    def gone(self) -> bool:
        return self._home.is_gone()

    def close(self) -> None:
        self._closed = True
        if not self._patched:
            # Later, when nobody is waiting for a call on the pools any more.
            self._gevent.spawn(self._end)

    def _end(self) -> None:
        self._gevent.joinall(self._spawned)
        while self._users_calls:
            self._gevent.sleep(_LOOK)
        for pool in (self._pool, self._users):
            if pool is not None:
                pool.kill()


# Calls of the user's greenlets that may wait for Redis at once.
_USER_THREADS: Final = 8

# Seconds between two looks whether these calls are over.
_LOOK: Final = 0.05


class _Home:
    """The thread, and the hub, of a loop that runs on greenlets."""

    def __init__(self, gevent: Any) -> None:
        # Under monkey-patching every greenlet has an identity of its own.
        self._thread_ident = original("_thread", "get_ident")
        self._thread = self._thread_ident()
        self._owner = threading.current_thread()
        # What the thread began as is over once the thread is, also one that gevent has not patched.
        self._first = gevent.getcurrent()
        while self._first.parent is not None:
            self._first = self._first.parent
        self._loop = gevent.get_hub().loop
        self.native_queue: type[queue.SimpleQueue[Any]] = original("queue", "SimpleQueue")

    def is_elsewhere(self) -> bool:
        """Whether the caller is in another thread."""
        return bool(self._thread_ident() != self._thread)

    def is_gone(self) -> bool:
        """Whether the hub was destroyed, or the thread is known to have ended."""
        if not self._loop.ptr or self._first.dead:
            return True
        # Patched, it is a greenlet's, which ends before the hub.
        if threads_are_greenlets() or self._owner.is_alive():
            return False
        # The main thread counts as ended when the program does, and its hub still runs then.
        return threading.current_thread() is not self._owner

    def tell(self, function: Callable[..., Any], *arguments: Any) -> None:
        """Call it in this thread; from another one in the hub. Nothing, if the hub is gone.

        Args:
            function: one of gevent's own, which are compiled. A signal handler may raise at any
                line of Python in the hub, and gevent runs nothing twice.
        """
        try:
            if self.is_elsewhere():
                # Nothing of gevent's but this may be called from other threads.
                self._loop.run_callback_threadsafe(function, *arguments)
            else:
                function(*arguments)
        except (AttributeError, ValueError):
            # The hub may be destroyed at any moment, also after a look at it. Where it was the
            # caller's own, gevent finds that it has no loop. Nothing waits there any more.
            if not self.is_gone():
                raise


def _outcome(
    function: Callable[..., T], arguments: tuple[Any, ...]
) -> tuple[T | None, BaseException | None]:
    try:
        return function(*arguments), None
    except BaseException as error:  # noqa: BLE001 - raised again where the call was made
        return None, error


class _GeventLatch:
    def __init__(self, gevent: Any, home: _Home) -> None:
        self._home = home
        self._event = gevent.event.Event()
        self._elsewhere = QueueLatch(home.native_queue)

    def set(self) -> None:
        self._elsewhere.set()
        self._home.tell(self._event.set)

    def is_set(self) -> bool:
        return self._elsewhere.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        # Do not wait for one that is set. While gevent wakes those that wait for an event, another
        # that begins to wait for it would wait, too, and might never be woken.
        if self.is_set():
            return True
        latch = self._elsewhere if self._home.is_elsewhere() else self._event
        return bool(latch.wait(timeout))


def where_it_may_wait(do: Callable[[], object]) -> None:
    """Do something that may wait: here, or in a greenlet where gevent's hub is the caller.

    A signal handler may find itself there. What it has asked for is done once it has returned.
    """
    # At the end of the interpreter gevent may be gone.
    gevent = None if sys.is_finalizing() else sys.modules.get("gevent")
    if gevent is None or connections_home() is None or _outside_hub(gevent):
        do()
    else:
        gevent.spawn(do)


def latch_here() -> tuple[Latch, Callable[[], bool]]:
    """In a program that gevent has patched: a latch for the caller, in whatever thread it is.

    Returns:
        Also what says whether the caller's hub was destroyed.
    """
    import gevent.event  # noqa: PLC0415 - see above

    home = _Home(gevent)
    return _GeventLatch(gevent, home), home.is_gone


class _GeventInbox:
    def __init__(self, gevent: Any, home: _Home) -> None:
        self._home = home
        self._queue = gevent.queue.Queue()
        self._empty = gevent.queue.Empty

    def put(self, item: Any) -> None:
        self._home.tell(self._queue.put_nowait, item)

    def get(self, timeout: float) -> Any:
        try:
            if timeout <= 0:
                return self._queue.get_nowait()
            return self._queue.get(timeout=min(timeout, _LONGEST_WAIT))
        except self._empty:
            return None
