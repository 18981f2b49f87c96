"""A subscription to a server in memory: what is published in one thread is heard in another."""

from __future__ import annotations

import queue
from collections.abc import Callable
from functools import partial

from hashring.monkey_patching import original, threads_are_greenlets
from hashring.store.interface import Answered, Message, Notice, Subscribed, Unsubscribed
from hashring.store.memory_lua import memory_lock

Hear = Callable[[bytes], None]


class MemorySubscription:
    """A subscription to channels; see :class:`hashring.store.interface.Subscription`.

    Args:
        listen: calls what it is given with each message on a channel; the answer ends it.
        channels: which.
    """

    def __init__(
        self, listen: Callable[[bytes, Hear], Callable[[], None]], channels: tuple[bytes, ...]
    ) -> None:
        self._notices: queue.SimpleQueue[Notice] = original("queue", "SimpleQueue")()
        self._wake: Callable[[], object] | None = None
        self._ends = [listen(channel, self._hear(channel)) for channel in channels]
        for _ in channels:
            self._put(Subscribed())

    def _hear(self, channel: bytes) -> Hear:
        return lambda payload: self._put(Message(channel, payload))

    def _put(self, notice: Notice) -> None:
        self._notices.put(notice)
        # Held, so that the hub of who waits is not gone before it is woken.
        with memory_lock:
            if self._wake is not None:
                self._wake()

    def wait(self, timeout: float) -> Notice | None:
        """The next notice; ``None`` when none came within ``timeout`` seconds."""
        try:
            if not threads_are_greenlets():
                return self._notices.get(timeout=timeout)
            self._wait_in_hub(timeout)
            return self._notices.get_nowait()
        except queue.Empty:
            return None

    def _wait_in_hub(self, timeout: float) -> None:
        """Until there is a notice; other greenlets of this thread run meanwhile."""
        from gevent import get_hub  # noqa: PLC0415 - only a patched program has it for sure
        from gevent.event import Event  # noqa: PLC0415

        there = Event()
        with memory_lock:
            # Nothing of gevent's but this may be called from other threads.
            self._wake = partial(get_hub().loop.run_callback_threadsafe, there.set)
        try:
            if self._notices.empty():
                there.wait(timeout)
        finally:
            with memory_lock:
                self._wake = None

    def ask(self) -> None:
        """Be answered."""
        self._put(Answered())

    def end(self) -> None:
        """Let who waits know that it is over; from any thread."""
        self._put(Unsubscribed())

    def close(self) -> None:
        """Hear nothing more."""
        while self._ends:
            self._ends.pop()()
