"""The loop that runs a node in a task of an event loop, beside users who ask it."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Awaitable, Callable

from hashring.core.ranges import PointRange
from hashring.errors import StoreError
from hashring.node.key_answers import monotonic
from hashring.node.node_log import NodeLog
from hashring.node.node_machine import NodeMachine
from hashring.node.on_change_calls import RangeChanges
from hashring.node.settings import OnChange
from hashring.node.states import RENEWING, NodeState
from hashring.protocol.locks.calls_under_way import AskedKey
from hashring.protocol.machine import Finished, Run, Subscribe, Wait
from hashring.protocol.silent_subscription import Silence, Silent
from hashring.running.callback_turns import TaskTurn, TaskTurns
from hashring.running.loop_log import LoopLog
from hashring.store.asyncio_cancellation import call_back, callback_over
from hashring.store.interface import Answered, AsyncStore, Message
from hashring.store.locks.commands import LOCKS_A_CALL
from hashring.store.redis_answers import told_failure

logger = LoopLog("hashring")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs the caller; ``None`` when none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class AsyncRunner:
    """One run of a node's protocol, from ``start()`` to its end.

    Args:
        machine: the protocol; only this runner drives it while it runs.
        store: where the ring lives; closed at the end.
        publish: shows readers the machine's view; the node's ranges in it.
        take: takes locks, as many as one call of Redis does.
        ranges: those that were shown last.
        on_change: the application's callback, a plain function or a coroutine function.
        turns: of the node's runs, of which an earlier one may be in the callback still.

    Attributes:
        home: the event loop.
        settled: set when the node is on the ring and knows its ranges, or will never be.
        task: runs the protocol; done when the node has left.
    """

    def __init__(
        self,
        machine: NodeMachine,
        store: AsyncStore,
        *,
        publish: Callable[[], tuple[PointRange, ...]],
        take: Callable[[list[AskedKey]], Awaitable[None]],
        ranges: tuple[PointRange, ...],
        on_change: OnChange | None,
        turns: TaskTurns,
    ) -> None:
        self._machine = machine
        self._config = machine.config
        self.store = store
        self._show = publish
        self._take = take
        self._on_change = on_change
        self._turns = turns
        self._log = NodeLog(machine)
        self._woken = asyncio.Event()
        self._published = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None
        self._callback: asyncio.Task[None] | None = None
        self._changes = RangeChanges(ranges)
        self._words: asyncio.Queue[bool] = asyncio.Queue()
        self._wanted: dict[bytes, AskedKey] = {}
        self._taker: asyncio.Task[None] | None = None
        self._taker_due = False
        self.settled = asyncio.Event()
        self.home = asyncio.get_running_loop()
        self.task = self.home.create_task(self._main(), name=f"hashring {machine.name}")

    def tell(self, word: Callable[[], object]) -> None:
        """Have something done in the event loop: now, or soon where another thread says so."""
        if running_loop() is self.home:
            word()
            return
        # A closed event loop does nothing.
        with contextlib.suppress(RuntimeError):
            self.home.call_soon_threadsafe(word)

    def stop(self, *, stay: bool = False) -> None:
        """Make the node leave."""
        self._machine.stop(stay=stay)
        self._woken.set()

    @property
    def over(self) -> bool:
        """Whether nothing runs any more: it has ended, or its event loop was closed."""
        return self.task.done() or self.home.is_closed()

    def wake(self) -> None:
        """Make the loop ask the machine what to do. Any thread may call it."""
        self.tell(self._woken.set)

    def beat_soon(self) -> None:
        """Send the next heartbeat now. Any thread may call it."""
        self.tell(lambda: self._machine.beat_at_once(monotonic()))
        self.wake()

    async def beaten_since(self, moment: float) -> None:
        """Beat now, and wait for the answer to a heartbeat that was sent after that moment."""
        machine = self._machine
        machine.beat_at_once(moment)
        self.wake()
        while machine.state in RENEWING and machine.deadline < moment + self._config.ttl:
            self._published.clear()
            await self._published.wait()

    def take_soon(self, wanted: AskedKey) -> None:
        """Take a lock at the next turn of the event loop, together with others.

        Any thread may call it.
        """
        limit = self._config.locks.limit if self._config.locks else None
        if limit is not None and len(self._wanted) >= max(limit, LOCKS_A_CALL):
            return  # Far more than there can be places for: the rest is asked for again.
        self._wanted[wanted[0]] = wanted
        if self._taker is None and not self._taker_due:
            self._taker_due = True
            self.tell(self._begin_to_take)

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
            logger.exception("hashring %s: unexpected error in taking locks", self._machine.name)
        finally:
            self._taker = None

    async def _main(self) -> None:
        if self._on_change is not None:
            turn = self._turns.join()
            self._callback = asyncio.create_task(self._call_back(self._on_change, turn))
            turn.task = self._callback
        cancelled = False
        try:
            while True:
                try:
                    if not await self._try_step():
                        break
                except asyncio.CancelledError:
                    # With all that runs, when the event loop is closed; before Python 3.11, that
                    # is also what Ctrl-C does. It leaves the ring first, unless cancelled again.
                    if cancelled:
                        raise
                    cancelled = True
                    self.stop()
                self._log.state()
                if self._machine.state is not NodeState.JOINING:
                    self.settled.set()
        finally:
            self.settled.set()
            self._publish()
            self._log.state()
            self._words.put_nowait(False)
            if self._taker is not None:
                self._wanted.clear()
                await asyncio.wait([self._taker])
            await self._drop_listener()
            await self.store.close()

    async def _try_step(self) -> bool:
        try:
            return await self._step()
        except Exception:
            # A fault of this package. The node must live on, or fence itself: try again after
            # a while, and say so.
            logger.exception("hashring %s: unexpected error in the node's loop", self._machine.name)
            await asyncio.sleep(self._config.io_timeout)
            return True

    async def _step(self) -> bool:
        # Messages that have arrived go first.
        await asyncio.sleep(0)
        self._woken.clear()
        step = self._machine.next(monotonic())
        self._publish()
        if isinstance(step, Wait):
            await self._wait(step.until)
        elif isinstance(step, Run):
            await self._run(step)
        elif isinstance(step, Subscribe):
            await self._drop_listener()
            self._listener = asyncio.create_task(self._listen(step))
        elif isinstance(step, Finished):
            return False
        self._publish()
        return True

    async def _wait(self, until: float) -> None:
        timeout = max(0.0, min(until - monotonic(), 3600.0))
        handle = asyncio.get_running_loop().call_later(timeout, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            handle.cancel()

    async def _run(self, step: Run) -> None:
        sent = monotonic()
        failing = self._machine.failing
        try:
            reply = await self.store.run(step.command)
        except Exception as error:  # noqa: BLE001 - whatever it is, the call has failed
            failure = told_failure(error, step.command)
            step.failed(failure, monotonic())  # type: ignore[arg-type]
            self._log.failure(failing, failure)
            return
        step.done(reply, sent, monotonic())
        self._log.success(failing)

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

    # --- the subscription ---------------------------------------------------------------------

    async def _listen(self, step: Subscribe) -> None:
        machine, number = self._machine, step.number
        subscription = None
        error: StoreError | None = None
        try:
            subscription = await self.store.subscribe(*machine.channels)
            silence = Silence(step, monotonic())
            while True:
                notice = await subscription.wait(silence.wait(monotonic()))
                if notice is None:
                    silent = silence.nothing(monotonic())
                    if silent is Silent.ASK:
                        await subscription.ask()
                    elif silent is Silent.LOST:
                        error = silence.error
                        break
                    continue
                silence.heard(monotonic())
                if isinstance(notice, Answered):
                    continue
                if isinstance(notice, Message):
                    machine.told(number, notice.channel, notice.payload, monotonic())
                else:
                    machine.subscribed(number, monotonic())
                # The main task may be waiting for an answer of Redis: readers need not.
                self._publish()
                self._woken.set()
        except StoreError as failure:
            error = failure
        except Exception:
            logger.exception("hashring %s: unexpected error while listening", self._machine.name)
        finally:
            failing = machine.failed_since is not None
            machine.unsubscribed(number, error, monotonic())
            if error is not None:
                self._log.failure(failing, error)
            self._woken.set()
            if subscription is not None:
                await subscription.close()

    async def _drop_listener(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            await asyncio.wait([listener])
