"""The loop that runs a node in a task of an event loop, beside users who ask it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from hashring.asyncio_cancellation import call_back, callback_over
from hashring.core.ranges import PointRange
from hashring.errors import HashringError, StoreError
from hashring.node.key_answers import monotonic
from hashring.node.node_log import NodeLog
from hashring.node.node_settings import OnChange
from hashring.node.on_change_calls import RangeChanges
from hashring.protocol.locks.calls_under_way import AskedKey
from hashring.protocol.machine_steps import Run
from hashring.protocol.node.node_machine import NodeMachine
from hashring.protocol.node.node_states import AT_WORK, RENEWING, NodeState
from hashring.running.async_machine_loop import AsyncLoop
from hashring.running.callback_turns import TaskTurn, TaskTurns
from hashring.running.loop_log import LoopLog
from hashring.store.interface import AsyncStore
from hashring.store.locks.commands import LOCKS_A_CALL

logger = LoopLog("hashring")

_INTERRUPTS: Final = (asyncio.CancelledError, KeyboardInterrupt, SystemExit)


class AsyncRunner(AsyncLoop):
    """One run of a node's protocol, from ``start()`` to its end.

    Args:
        machine: the protocol; only this runner drives it while it runs.
        store: where the ring lives; closed at the end.
        show: shows readers the machine's view; the node's ranges in it.
        take: takes locks, as many as one call of Redis does.
        ranges: those that were shown last.
        on_change: the application's callback, a plain function or a coroutine function.
        turns: of the node's runs, of which an earlier one may be in the callback still.

    Attributes:
        settled: set when the node is on the ring and knows its ranges, or will never be.
        ended: whether the protocol has, so that connections are closed.
        abandoned: whether this is a forked child, and the node the parent's.
        task: runs the protocol; done when the node has left.
    """

    machine: NodeMachine

    def __init__(
        self,
        machine: NodeMachine,
        store: AsyncStore,
        *,
        show: Callable[[], tuple[PointRange, ...]],
        take: Callable[[list[AskedKey]], Awaitable[None]],
        ranges: tuple[PointRange, ...],
        on_change: OnChange | None,
        turns: TaskTurns,
    ) -> None:
        super().__init__(machine, store, monotonic, publish=self._publish)
        self.label = f"hashring {machine.name}"
        self._show = show
        self._take = take
        self._on_change = on_change
        self._turns = turns
        self._log = NodeLog(machine)
        self._published = asyncio.Event()
        self._callback: asyncio.Task[None] | None = None
        self._changes = RangeChanges(ranges)
        self._words: asyncio.Queue[bool] = asyncio.Queue()
        self._wanted: dict[bytes, AskedKey] = {}
        self._taker: asyncio.Task[None] | None = None
        self._taker_due = False
        self.settled = asyncio.Event()
        self.ended = False
        self.abandoned = False
        self.task = self.home.create_task(self.run(), name=self.label)

    def stop(self, *, stay: bool = False) -> None:
        """Make the node leave. Any thread may call it."""

        def word(now: float) -> None:
            # From another thread it may come late, and then the next run may drive the machine.
            if not self.task.done():
                self.machine.stop(stay=stay)

        self.tell(word)

    @property
    def over(self) -> bool:
        """Whether nothing runs any more: it has ended, or its event loop was closed."""
        return self.task.done() or self.home.is_closed()

    async def beaten_since(self, moment: float) -> None:
        """Beat now, and wait for the answer to a heartbeat that was sent after that moment."""
        machine = self.machine
        machine.beat_at_once(moment)
        self.wake()
        while machine.state in RENEWING and machine.deadline < moment + machine.config.ttl:
            self._published.clear()
            await self._published.wait()

    def take_soon(self, wanted: AskedKey) -> None:
        """Take a lock at the next turn of the event loop, together with others.

        Any thread may call it.
        """
        locks = self.machine.config.locks
        limit = locks.limit if locks else None
        if limit is not None and len(self._wanted) >= max(limit, LOCKS_A_CALL):
            return  # Far more than there can be places for: the rest is asked for again.
        self._wanted[wanted[0]] = wanted
        if self._taker is None and not self._taker_due:
            self._taker_due = True
            self.do(self._begin_to_take)

    def _begin_to_take(self) -> None:
        self._taker_due = False
        if self._taker is None and not self.task.done():
            self._taker = self.home.create_task(self._take_wanted())

    async def _take_wanted(self) -> None:
        try:
            while self._wanted:
                await asyncio.sleep(0)
                wanted, self._wanted = list(self._wanted.values()), {}
                for first in range(0, len(wanted), LOCKS_A_CALL):
                    await self._take(wanted[first : first + LOCKS_A_CALL])
        except Exception:
            logger.exception("hashring %s: unexpected error in taking locks", self.machine.name)
        finally:
            self._taker = None

    # --- the task -----------------------------------------------------------------------------

    async def run(self) -> None:
        """The loop. Returns when the node has left."""
        if self._on_change is not None:
            turn = self._turns.join()
            self._callback = asyncio.create_task(self._call_back(self._on_change, turn))
            turn.task = self._callback
        interrupt: BaseException | None = None
        try:
            while not self.abandoned:
                try:
                    if not await self._turn():
                        break
                except _INTERRUPTS as error:
                    # Cancelled with all that runs, when the event loop is closed; or a signal
                    # handler has raised. It leaves the ring first, unless that comes again.
                    if interrupt is not None or self.abandoned:
                        raise
                    interrupt = error
                    self.stop()
                self._log.state()
                if self.machine.state is not NodeState.JOINING:
                    self.settled.set()
        finally:
            self.ended = True
            self.settled.set()
            self.publish()
            self._log.state()
            self._words.put_nowait(False)
            if self._taker is not None:
                self._wanted.clear()
                await asyncio.wait([self._taker])
            await self._drop_subscription()
            await self.store.close()
        if interrupt is not None and not isinstance(interrupt, asyncio.CancelledError):
            raise interrupt

    async def _turn(self) -> bool:
        try:
            return await self._step()
        except Exception as error:
            # A fault of this package. The node must live on, or fence itself: try again after
            # a while, and say so.
            logger.exception("%s: unexpected error in the node's loop", self.label)
            self.machine.give_up_if_strict(error)
        if self.machine.state in AT_WORK:
            await asyncio.sleep(self.machine.config.io_timeout)
            return True
        # Leave, if that works; the same fault again is the end.
        with suppress(Exception):
            while await self._step():
                pass
        return False

    async def _run(self, step: Run) -> HashringError | None:
        failing = self.machine.failing
        error = await super()._run(step)
        self._log.outcome(failing, error)
        return error

    def _publish(self) -> None:
        ranges = self._show()
        self._published.set()
        if self._callback is not None and self._changes.note(ranges):
            self._words.put_nowait(True)
            self._changes.said()

    async def _call_back(self, on_change: OnChange, turn: TaskTurn) -> None:
        await turn.come()
        while await self._words.get() and not turn.passed:
            while not turn.passed and (change := self._changes.next()) is not None:
                try:
                    result = call_back(on_change, *change)
                    if inspect.isawaitable(result):
                        turn.callback = asyncio.ensure_future(result)
                        await callback_over(turn.callback)
                except Exception:
                    logger.exception("on_change raised")
                finally:
                    self._changes.told()

    def _unsubscribed(self, number: int, failure: StoreError | None, now: float) -> None:
        failing = self.machine.failed_since is not None
        super()._unsubscribed(number, failure, now)
        if failure is not None:
            self._log.outcome(failing, failure)
