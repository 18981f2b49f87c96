"""Threads that the operating system schedules, also where gevent has put greenlets in their place.

What must go on whatever the application does runs in one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

from hashring.monkey_patching import connections_home, original, threads_are_greenlets
from hashring.running.calls_at_once import ThreadsLine
from hashring.running.loop_log import log_home, write_logs_in
from hashring.running.threads_and_greenlets import (
    Inbox,
    Latch,
    QueueInbox,
    QueueLatch,
    event_of_threads,
    queue_of_threads,
)

T = TypeVar("T")

_DESCRIPTORS_OF_A_HUB: Final = 4
"""At most: one to wait with, and one or a pipe to be woken by."""


def start_native_thread(target: Callable[[], None], name: str) -> Latch:
    """Run something in a thread of the operating system's, also when threads are patched.

    It must not keep the process alive. Sockets of the thread's own work there as everywhere; it
    shares none with others, since a patched socket belongs to the thread that made it.

    Returns:
        What is set at the thread's very end. A patched program must not end before that: gevent
        does not bear a thread that is still in its hub when the interpreter goes.

    Raises:
        OSError: patched, there are no file descriptors for the thread's hub.
        RuntimeError: the process may have no more threads.
    """
    ended = native_latch()
    # Patched sockets give each thread that uses them a hub, also where threads are not patched.
    patched = connections_home() is not None
    home = log_home()
    reserved = _reserved_descriptors() if patched else []

    def run() -> None:
        try:
            write_logs_in(home)
            if patched:
                _close(reserved)
                sys.modules["gevent"].get_hub()
            target()
        finally:
            if patched:
                _destroy_hub(sys.modules["gevent"].get_hub())
            ended.set()

    try:
        if threads_are_greenlets():
            original("_thread", "start_new_thread")(run, ())
        else:
            threading.Thread(target=run, name=name, daemon=True).start()
    except BaseException:
        _close(reserved)
        raise
    return ended


def _reserved_descriptors() -> list[int]:
    """Open as many descriptors as a hub takes; close them right before it is made.

    gevent aborts the process if it finds too few.

    Raises:
        OSError: there are too few.
    """
    opened: list[int] = []
    try:
        while len(opened) < _DESCRIPTORS_OF_A_HUB:
            opened += os.pipe()
    except BaseException:
        _close(opened)
        raise
    return opened


def _close(descriptors: list[int]) -> None:
    # At once; gevent's closes at the next turn of the hub, which it makes first.
    close = original("os", "close")
    while descriptors:
        close(descriptors.pop())


def _destroy_hub(hub: Any) -> None:
    """Destroy the hub that patched sockets have given the caller's thread: it holds descriptors."""
    hub.destroy(destroy_loop=True)
    # gevent leaves the hub in the middle of raising LoopExit here. Suspended like that it is never
    # freed, nor is any frame of the thread with what is in it.
    if not hub.dead:
        hub.throw()


class ThreadBackend:
    """Daemon threads. Where gevent has put greenlets in their place, :class:`.GeventBackend` is."""

    def __init__(self) -> None:
        self._line = ThreadsLine()

    def spawn(self, target: Callable[[], None], name: str) -> None:
        start_native_thread(target, name)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        return function(*arguments)

    def call_for_user(self, function: Callable[..., T], *arguments: Any) -> T:
        if connections_home() is not None:
            # Of greenlets in several threads, some might wait here for one that cannot run.
            return function(*arguments)
        return self._line.call(function, arguments)

    def inbox(self) -> Inbox:
        return QueueInbox(queue_of_threads())

    def latch(self) -> Latch:
        return QueueLatch(queue_of_threads())

    def event(self) -> Any:
        return event_of_threads()

    def greenlets(self) -> bool:
        return False

    def current(self) -> object:
        return threading.get_ident()

    def may_wait(self) -> bool:
        return True

    def forward(self, error: BaseException) -> bool:
        return False

    def interrupts(self, error: BaseException) -> bool:
        return False

    def abandon(self) -> None:
        """Threads do not live on in a child."""

    def gone(self) -> bool:
        return False

    def close(self) -> None:
        """There is nothing to close."""


class NativeThreads:
    """What a loop of a thread of the operating system's runs on. Do not wait here in a greenlet.

    Args:
        start: starts one more such thread; what is set at its end.
    """

    def __init__(self, start: Callable[[Callable[[], None], str], Latch]) -> None:
        self._start = start
        self._started: list[Latch] = []

    def inbox(self) -> Inbox:
        """An inbox between threads."""
        return QueueInbox(original("queue", "SimpleQueue"))

    def spawn(self, target: Callable[[], None], name: str) -> None:
        """Start a thread."""
        self._started = [each for each in self._started if not each.wait(0)]
        self._started.append(self._start(target, name))

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Make a call."""
        return function(*arguments)

    def forward(self, error: BaseException) -> bool:
        """Signal handlers run in the main thread alone."""
        return False

    def interrupts(self, error: BaseException) -> bool:
        """The same; and nobody knows of a greenlet here to kill."""
        return False

    def close(self) -> None:
        """Wait until all that was spawned has ended."""
        for each in self._started:
            each.wait()


def native_latch() -> Latch:
    """A latch between threads. Do not wait for it in a greenlet."""
    return QueueLatch(original("queue", "SimpleQueue"))
