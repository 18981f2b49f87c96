"""Whose turn it is to call the application back: one run's at a time, in the order of the runs.

A node or a member may be started again while a callback of its last run goes on. The callbacks of
the new run then wait for their turn; ``start()`` and ``stop()`` do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from hashring.running.threads_and_greenlets import Latch

_LONG: Final = 60.0
"""Seconds between two looks of one that waits. Without any timer gevent's hub gives up."""

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

    def wait(self, come: Latch) -> None:
        """Wait until the turn has come.

        Args:
            come: set by ``go``; or not, when a signal handler has raised in gevent's hub.
        """
        while not self.come and not come.wait(_LONG):
            pass


class CallerTurns:
    """The line of the threads, or greenlets, that call back for one node or member."""

    def __init__(self) -> None:
        # Without a lock: a signal handler that has interrupted its holder may wait for a greenlet,
        # or for a thread. Each step is whole in itself, and may be done again.
        self._line: list[CallerTurn] = []
        self.abandoned = False

    def join(self, turn: CallerTurn) -> None:
        """Stand at the end of the line, if not in it already.

        A thread's place is taken before the thread begins, since a later one may begin first.
        Greenlets begin in order, and one may be killed before it does: each takes its own.
        """
        if turn not in self._line:
            self._line.append(turn)
        self._go_on()

    def standing(self) -> list[CallerTurn]:
        """Those in the line now."""
        return list(self._line)

    def leave(self, turn: CallerTurn) -> None:
        """Let the next go on. Whoever did not wait for its turn leaves the line like any other.

        To be called again if a signal handler has interrupted it.
        """
        if self.abandoned:
            return
        self._remove(turn)
        self._go_on()

    def abandon(self) -> None:
        """In a forked child: those in the line are the parent's."""
        self.abandoned = True

    def _remove(self, turn: CallerTurn) -> None:
        # Another thread may have done so.
        with suppress(ValueError):
            self._line.remove(turn)

    def _go_on(self) -> None:
        while (first := self._next()) is not None:
            first.go()
            first.come = True
            # The hub that it waits in may have been destroyed meanwhile.
            if not first.gone():
                return
            self._remove(first)

    def _next(self) -> CallerTurn | None:
        """The first in the line, if nobody has told it to go on. Two may tell it at once."""
        for turn in self.standing():
            if not turn.gone():
                return None if turn.come else turn
            self._remove(turn)
        return None


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
