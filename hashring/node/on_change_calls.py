"""The application's ``on_change``: what a node's runs have to tell it, and who calls it.

Each run calls it from a thread (greenlet) of its own, one change at a time, in order; those of a
later run wait until the calls of the one before are over.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from hashring.core.ranges import PointRange, subtract
from hashring.node.node_settings import OnChange
from hashring.running.callback_turns import CallerTurn, CallerTurns
from hashring.running.loop_log import LoopLog
from hashring.running.threads_and_greenlets import Backend, Inbox

logger = LoopLog("hashring")

_NEWS: Final = object()
_END: Final = object()

_MOST: Final = 64
"""Changes that wait for a callback which does not return. Of more, the newest are made one."""

Change = tuple[tuple[PointRange, ...], tuple[PointRange, ...]]
"""The ranges gained, and those lost."""


class RangeChanges:
    """The ranges that a run of the node has had, as far as ``on_change`` is not told of them yet.

    A signal handler may raise between any two lines. So what changed is not handed from one to the
    next: the run notes its ranges after each step, and the callback's own side compares.

    Args:
        before: those before the run.
    """

    def __init__(self, before: tuple[PointRange, ...]) -> None:
        # The first are those that the callback knows.
        self._ranges = deque([before])
        self._said = before

    def note(self, ranges: tuple[PointRange, ...]) -> bool:
        """What the run has now; whether the callback's side is to be woken."""
        if ranges != self._ranges[-1]:
            if len(self._ranges) <= _MOST:
                self._ranges.append(ranges)
            else:  # 64 places behind the two that the callback has now
                self._ranges[-1] = ranges
        return self._ranges[-1] is not self._said

    def said(self) -> None:
        """The callback's side was woken."""
        self._said = self._ranges[-1]

    def next(self) -> Change | None:
        """What is to be told next."""
        if len(self._ranges) == 1:
            return None
        before, after = self._ranges[0], self._ranges[1]
        return subtract(after, before), subtract(before, after)

    def told(self) -> None:
        """Drop the first change: the callback returned, or raised."""
        self._ranges.popleft()


class OnChangeCalls:
    """The calls of one node's ``on_change``, in whatever runs.

    Args:
        on_change: the application's callback. What it raises is logged.
    """

    def __init__(self, on_change: OnChange) -> None:
        self._on_change: Final = on_change
        self._turns = CallerTurns()

    def of_run(self, backend: Backend, label: str, ranges: tuple[PointRange, ...]) -> RunCalls:
        """The calls of a run that begins now.

        Args:
            backend: what the run has its threads (greenlets) from.
            label: what it is called in logs.
            ranges: the node's before the run.
        """
        return RunCalls(self._on_change, self._turns, backend, label, RangeChanges(ranges))

    def abandon(self) -> None:
        """In a forked child: the calls that go on are the parent's."""
        self._turns.abandon()
        self._turns = CallerTurns()


class RunCalls:
    """The calls of ``on_change`` in one run of a node.

    Args:
        on_change: the application's callback.
        turns: of the node's runs, of which an earlier one may be in the callback still.
        backend, label: those of the run.
        changes: what is to be told.
    """

    def __init__(
        self,
        on_change: OnChange,
        turns: CallerTurns,
        backend: Backend,
        label: str,
        changes: RangeChanges,
    ) -> None:
        self._on_change: Final = on_change
        self._turns: Final = turns
        self._backend: Final = backend
        self._label: Final = f"{label} on_change"
        self._changes: Final = changes
        self._inbox: Inbox | None = None
        self._served = False

    def note(self, ranges: tuple[PointRange, ...], *, ended: bool) -> None:
        """Have the callback told what changed, if anything did. Called by the run's loop.

        Args:
            ranges: the node's now.
            ended: whether this is the last word: a node that does not work owns nothing, and will
                not own.
        """
        if self._changes.note(ranges):
            self._inbox = self._inbox or self._backend.inbox()
            self._inbox.put(_NEWS)
            self._changes.said()
        if self._inbox is not None and not self._served:
            self._served = self._serve(self._inbox)
        if self._inbox is not None and ended:
            self._inbox.put(_END)
            self._inbox, self._served = None, False

    def _serve(self, inbox: Inbox) -> bool:
        """Have the callback called from a thread of its own; whether there is one."""
        turns, backend = self._turns, self._backend
        come = backend.latch()

        def serve() -> None:
            try:
                turns.join(turn)
                turn.wait(come)
                self._notify(inbox)
            except BaseException:
                # Its greenlet was killed: another one is to go on.
                self._served = self._served and self._inbox is not inbox
                raise
            finally:
                try:
                    turns.leave(turn)
                finally:
                    turns.leave(turn)

        turn = CallerTurn(come.set, backend.gone)
        try:
            if not backend.greenlets():
                turns.join(turn)
            backend.spawn(serve, self._label)
        except BaseException as error:
            turns.leave(turn)
            # The process may have no more threads; or a signal handler has raised in this greenlet.
            if not isinstance(error, Exception):
                raise
            # What it is to be told waits; the heartbeats do not.
            logger.warning("%s: there is no thread to run in: %s", self._label, error)
            return False
        return True

    def _notify(self, inbox: Inbox) -> None:
        changes, turns = self._changes, self._turns
        word = None
        while word is not _END:
            # In a child that the callback has forked there is nothing to be told.
            while not turns.abandoned and (change := changes.next()) is not None:
                try:
                    self._on_change(*change)
                except BaseException as error:
                    # What a signal handler raised in this greenlet is the main greenlet's.
                    if not self._backend.forward(error):
                        logger.exception("on_change raised")
                finally:
                    changes.told()
            word = _END if turns.abandoned else inbox.get(60.0)
        # A signal handler that raised while this was spawned has made the loop spawn one more.
        inbox.put(_END)
