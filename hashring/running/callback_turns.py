"""Whose turn it is to call the application back: one run's at a time, in the order of the runs.

A node or a member may be started again while a callback of its last run goes on. The callbacks of
the new run then wait for their turn; ``start()`` and ``stop()`` do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from hashring.monkey_patching import native_lock

_LOOK: Final = 0.01
"""Seconds between two looks whether a task of another event loop is done."""


@dataclass(eq=False)
class CallerTurn:
    """A place in the line of those that call back.

    Attributes:
        go: called when the turn has come. Any thread may be the caller.
        gone: whether what runs its callbacks is no more, and will never leave the line.
        come: whether ``go`` was called.
    """

    go: Callable[[], object]
    gone: Callable[[], bool]
    come: bool = False


class CallerTurns:
    """The line of the threads, or greenlets, that call back for one node or member."""

    def __init__(self) -> None:
        # Reentrant: a signal handler may start what it has interrupted here.
        self._lock = native_lock()
        self._line: list[CallerTurn] = []
        self.abandoned = False

    def join(self, turn: CallerTurn) -> None:
        """Stand at the end of the line. If the call is interrupted, leave it."""
        with self._lock:
            self._line.append(turn)
        self._go_on()

    def leave(self, turn: CallerTurn) -> None:
        """Let the next go on. Whoever did not wait for its turn leaves the line like any other."""
        if self.abandoned:
            # Of the parent's threads one may have held the lock when the process forked.
            return
        self._remove(turn)
        self._go_on()

    def abandon(self) -> None:
        """In a forked child: those in the line are the parent's."""
        self.abandoned = True

    def _remove(self, turn: CallerTurn) -> None:
        with self._lock:
            if turn in self._line:
                self._line.remove(turn)

    def _go_on(self) -> None:
        while (first := self._next()) is not None:
            try:
                first.go()
                first.come = True
                return
            except Exception:  # noqa: BLE001 - the hub that it waits in may have been destroyed
                self._remove(first)

    def _next(self) -> CallerTurn | None:
        """The first in the line, if nobody has told it to go on."""
        with self._lock:
            for gone in [turn for turn in self._line if turn.gone()]:
                self._remove(gone)
            return None if not self._line or self._line[0].come else self._line[0]


@dataclass(eq=False)
class TaskTurn:
    """A place in the line of the tasks that call back.

    Attributes:
        home: the event loop of the task.
        before: those that come first.
        task: calls back.
        callback: what it has called last, and may have been cancelled without.
        passed: whether another event loop did not wait, since this one did not run. Then the task
            must not call back any more: others have done so since.
    """

    home: asyncio.AbstractEventLoop
    before: list[TaskTurn]
    task: asyncio.Future[Any] | None = None
    callback: asyncio.Future[Any] | None = None
    passed: bool = False

    async def come(self) -> None:
        """Wait until those before it are over."""
        while self.before:
            first = self.before[0]
            while not first.is_over():
                if first.home is self.home:
                    await asyncio.wait(first.under_way())
                else:
                    await asyncio.sleep(_LOOK)
            self.before.remove(first)

    def under_way(self) -> list[asyncio.Future[Any]]:
        """What is not done yet."""
        return [each for each in (self.task, self.callback) if each is not None and not each.done()]

    def is_over(self) -> bool:
        """Whether there is nothing to wait for: in an event loop that stands still nothing ends."""
        self.passed = self.passed or not self.home.is_running()
        return self.passed or (self.task is not None and not self.under_way())


@dataclass(eq=False)
class TaskTurns:
    """The line of the tasks that call back for one node or member, in whatever event loops."""

    _line: list[TaskTurn] = field(default_factory=list)

    def join(self) -> TaskTurn:
        """Stand at the end of the line, for a task of the running event loop that is made next."""
        for over in [turn for turn in self._line if turn.is_over()]:
            self._line.remove(over)
        turn = TaskTurn(asyncio.get_running_loop(), list(self._line))
        self._line.append(turn)
        return turn
