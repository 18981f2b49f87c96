"""Threads that the operating system schedules, also where gevent has put greenlets in their place.

What must go on whatever the application does runs in one.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from hashring.monkey_patching import original, threads_are_greenlets
from hashring.running.loop_log import log_home, write_logs_in
from hashring.running.threads_and_greenlets import Inbox, Latch, QueueInbox, QueueLatch

T = TypeVar("T")


def start_native_thread(target: Callable[[], None], name: str) -> Latch:
    """Run something in a thread of the operating system's, also when threads are patched.

    It must not keep the process alive. Sockets of the thread's own work there as everywhere; it
    shares none with others, since a patched socket belongs to the thread that made it.

    Returns:
        What is set at the thread's very end. A patched program must not end before that: gevent
        does not bear a thread that is still in its hub when the interpreter goes.
    """
    ended = native_latch()
    patched = threads_are_greenlets()
    home = log_home()

    def run() -> None:
        try:
            write_logs_in(home)
            target()
        finally:
            if patched:
                _destroy_hub(sys.modules["gevent"].get_hub())
            ended.set()

    if patched:
        original("_thread", "start_new_thread")(run, ())
    else:
        threading.Thread(target=run, name=name, daemon=True).start()
    return ended


def _destroy_hub(hub: Any) -> None:
    """Destroy the hub that patched sockets have given the caller's thread: it holds descriptors."""
    hub.destroy(destroy_loop=True)
    # gevent leaves the hub in the middle of raising LoopExit here. Suspended like that it is never
    # freed, nor is any frame of the thread with what is in it.
    if not hub.dead:
        hub.throw()


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

    def close(self) -> None:
        """Wait until all that was spawned has ended."""
        for each in self._started:
            each.wait()


def native_latch() -> Latch:
    """A latch between threads. Do not wait for it in a greenlet."""
    return QueueLatch(original("queue", "SimpleQueue"))
