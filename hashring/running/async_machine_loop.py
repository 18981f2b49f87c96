"""The loop that drives a machine over an asyncio store, in a task of an event loop.

It has the shape of :class:`hashring.running.machine_loop.Loop`. The event loop is its inbox:
messages and other news reach the machine in the event loop's thread, also while a call is under
way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from hashring.errors import HashringError, StoreError
from hashring.protocol.machine_steps import Finished, Machine, Run, Subscribe, Wait
from hashring.protocol.silent_subscription import Silence, Silent
from hashring.running.loop_log import LoopLog
from hashring.running.machine_loop import Word
from hashring.store.interface import AsyncStore, Message, Subscribed, Unsubscribed
from hashring.store.redis_answers import told_failure

logger = LoopLog("hashring")

_LONGEST_WAIT: Final = 3600.0
"""Seconds. A timer for centuries is refused; waking up once an hour for nothing is free."""

_OF_THE_TASK: Final = (asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, SystemExit)
"""What ends a task from outside, or is a signal handler's."""


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop that runs the caller; ``None`` when none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


class AsyncLoop:
    """Drives one machine until it has finished; :meth:`run` is the task's coroutine.

    Args:
        machine: the protocol; only this loop drives it while it runs.
        store: what its commands run in; closed at the end.
        clock: monotonic seconds.
        publish: called after every step, and after all news that reaches the machine.

    Attributes:
        home: the event loop, which is the one that runs the caller.

    ``tell`` and ``wake`` may be called by any thread.
    """

    label: str = "hashring"
    """What its messages in the log begin with."""

    def __init__(
        self,
        machine: Machine,
        store: AsyncStore,
        clock: Callable[[], float],
        *,
        publish: Callable[[], None] = lambda: None,
    ) -> None:
        self.machine = machine
        self.store = store
        self.clock = clock
        self.publish = publish
        self.home = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None

    def tell(self, word: Word) -> None:
        """Have the machine told something: now, or soon where another thread says so."""
        self.do(lambda: self._say(word))

    def wake(self) -> None:
        """Have the machine asked what to do, at the next opportunity."""
        self.do(self._woken.set)

    def do(self, what: Callable[[], object]) -> None:
        """Do something in the event loop: now, or soon where another thread is the caller."""
        if running_loop() is self.home:
            what()
            return
        # A closed event loop does nothing.
        with suppress(RuntimeError):
            self.home.call_soon_threadsafe(what)

    async def run(self) -> None:
        """Drive the machine; returns when it has finished."""
        try:
            while await self._step():
                pass
        finally:
            await self._drop_subscription()
            await self.store.close()

    # --- turns --------------------------------------------------------------------------------

    async def _step(self) -> bool:
        """Take one step; whether there are more."""
        # Messages that have arrived go first.
        await asyncio.sleep(0)
        self._woken.clear()
        step = self.machine.next(self.clock())
        self.publish()
        if isinstance(step, Wait):
            await self._wait(step.until)
        elif isinstance(step, Run):
            await self._run(step)
        elif isinstance(step, Subscribe):
            await self._subscribe(step)
        elif isinstance(step, Finished):
            return False
        self.publish()
        return True

    def _say(self, word: Word) -> None:
        word(self.clock())
        # The task may be waiting for an answer of Redis: readers need not.
        self.publish()
        self._woken.set()

    async def _wait(self, until: float) -> None:
        timeout = max(0.0, min(until - self.clock(), _LONGEST_WAIT))
        handle = self.home.call_later(timeout, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            handle.cancel()

    async def _run(self, step: Run) -> HashringError | None:
        """Run a command and tell the machine how it went; what went wrong."""
        sent = self.clock()
        try:
            reply = await self.store.run(step.command)
        except _OF_THE_TASK:
            raise
        except BaseException as error:  # noqa: BLE001 - whatever it is, the call has failed
            failure = told_failure(error, step.command)
            step.failed(failure, self.clock())  # type: ignore[arg-type]
            return failure
        step.done(reply, sent, self.clock())
        return None

    # --- the subscription ---------------------------------------------------------------------

    async def _subscribe(self, step: Subscribe) -> None:
        await self._drop_subscription()
        self._listener = asyncio.create_task(self._listen(step))

    async def _drop_subscription(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            await asyncio.wait([listener])

    async def _listen(self, step: Subscribe) -> None:
        machine, number = self.machine, step.number
        subscription = None
        failure: StoreError | None = None
        try:
            subscription = await self.store.subscribe(*machine.channels)
            silence = Silence(step, self.clock())
            while True:
                notice = await subscription.wait(silence.wait(self.clock()))
                if notice is None:
                    silent = silence.nothing(self.clock())
                    if silent is Silent.ASK:
                        await subscription.ask()
                    elif silent is Silent.LOST:
                        failure = silence.error
                        break
                    continue
                silence.heard(self.clock())
                if isinstance(notice, Message):
                    self._pass_on(number, notice)
                elif isinstance(notice, Subscribed):
                    self._say(lambda now: machine.subscribed(number, now))
                elif isinstance(notice, Unsubscribed):
                    break
        except StoreError as error:
            failure = error
        except _OF_THE_TASK:
            raise
        except BaseException:
            logger.exception("%s: unexpected error while listening", self.label)
        finally:
            self._unsubscribed(number, failure, self.clock())
            self._woken.set()
            if subscription is not None:
                await subscription.close()

    def _pass_on(self, number: int, notice: Message) -> None:
        told = self.machine.told
        self._say(lambda now: told(number, notice.channel, notice.payload, now))

    def _unsubscribed(self, number: int, failure: StoreError | None, now: float) -> None:
        self.machine.unsubscribed(number, failure, now)
