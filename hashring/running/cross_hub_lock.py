"""One caller at a time, threads and greenlets together, where a call may wait for I/O."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from hashring.monkey_patching import connections_home
from hashring.running.callback_turns import CallerTurn, CallerTurns
from hashring.running.threads_and_greenlets import Latch, latch_here

T = TypeVar("T")

_LOOK: Final = 1.0
"""Seconds between two looks of one that waits whether the one before it can still end."""


class CrossHubLock(Protocol):
    """Lets in one caller at a time; in a call of its own, and in a signal handler there, again."""

    def run(self, do: Callable[[], T]) -> T:
        """Make a call; the others wait until it has returned."""


def cross_hub_lock() -> CrossHubLock:
    """What lets in one caller at a time in this program."""
    return _AmongThreads() if connections_home() is None else _AmongGreenlets()


class _AmongThreads:
    def __init__(self) -> None:
        # Reentrant: a signal handler may run anywhere.
        self._lock = threading.RLock()

    def run(self, do: Callable[[], T]) -> T:
        with self._lock:
            return do()


class _Greenlet(CallerTurn):
    """A place in the line of a greenlet, or of a thread, which is one to gevent."""

    def __init__(self, current: Any) -> None:
        self.current = current
        self.latch: Latch
        self.latch, over = latch_here()
        super().__init__(self.latch.set, lambda: current.dead or over())


class _AmongGreenlets:
    # A lock of gevent's does not do: between two threads one may wait for it for ever. A native
    # lock does not, either: who waits for it keeps the hub from running, and so the holder.
    def __init__(self) -> None:
        self._line = CallerTurns()

    def run(self, do: Callable[[], T]) -> T:
        if sys.is_finalizing():
            # Nobody else runs, and gevent is gone.
            return do()
        current = sys.modules["gevent"].getcurrent()
        for turn in self._line.standing():
            if isinstance(turn, _Greenlet) and turn.current is current:
                # A signal handler goes on in the turn of the greenlet that it has interrupted.
                self._wait(turn)
                return do()
        turn = _Greenlet(current)
        try:
            try:
                self._wait(turn)
                return do()
            finally:
                self._line.leave(turn)
        finally:
            # Once more: a signal handler may have raised before the line above.
            self._line.leave(turn)

    def _wait(self, turn: _Greenlet) -> None:
        self._line.join(turn)
        while not turn.come and not turn.latch.wait(_LOOK):
            # The thread, or the hub, of the one before may be no more.
            self._line.join(turn)
