"""The loop that drives a machine over a sync store, in a thread or in a greenlet.

Where no loop runs, :func:`run_out` drives a machine in the caller's thread.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar, Final

from hashring.errors import HashringError, RedisUnavailable, StoreError
from hashring.protocol.machine_steps import Finished, Machine, Run, Subscribe, Wait
from hashring.protocol.silent_subscription import Silence, Silent
from hashring.running.loop_log import LoopLog
from hashring.running.threads_and_greenlets import Ground
from hashring.store.command import Command
from hashring.store.interface import Message, Store, Subscribed, Subscription, Unsubscribed
from hashring.store.redis_answers import told_failure

logger = LoopLog("hashring")

# Seconds for which a machine receives what has arrived, before it decides its next step.
_SAYING: Final = 0.05

Word = Callable[[float], object]
"""Something that a machine is told, with the time."""


def _nothing(now: float) -> None:
    """What wakes a loop, and says nothing."""


def run_step(step: Run, run: Callable[[Command[Any]], Any], clock: Callable[[], float]) -> None:
    """Run a command in the caller's thread, and tell the machine how it went.

    Raises:
        StoreError: it was not done; the machine knows.
    """
    sent = clock()
    try:
        reply = run(step.command)
    except StoreError as error:
        step.failed(error, clock())
        raise
    step.done(reply, sent, clock())


def run_out(
    next_step: Callable[[float], object],
    run: Callable[[Run], None],
    clock: Callable[[], float],
    failed: Callable[[StoreError], None] | None = None,
) -> None:
    """Drive a machine in the caller's thread for as long as it has commands, and then no more.

    Args:
        next_step: says what to do now.
        run: runs a step, such as by :func:`run_step`.
        failed: called with what could not be done; then it goes on.

    Raises:
        StoreError: something could not be done, and ``failed`` was not given.
    """
    while isinstance(step := next_step(clock()), Run):
        try:
            run(step)
        except StoreError as error:
            if failed is None:
                raise
            failed(error)


class Loop:
    """Drives one machine until it has finished; :meth:`run` is the thread's target.

    Args:
        machine: the protocol.
        make_store: makes a store for one thread.
        ground: what the loop and its listener run on.
        clock: monotonic seconds.
        publish: called after every step, in the loop's thread.
        lock: held around each call of the machine's, where others call it, too.

    ``tell`` may be called by any thread, and in a signal handler.
    """

    listen: ClassVar[float] = 0.2
    """Seconds between two looks of a listener at whether it is over."""

    label: str = ""
    """What names of threads begin with."""

    def __init__(
        self,
        machine: Machine,
        make_store: Callable[[], Store],
        ground: Ground,
        clock: Callable[[], float],
        *,
        publish: Callable[[], None] = lambda: None,
        lock: AbstractContextManager[Any] | None = None,
    ) -> None:
        self.machine = machine
        self.clock = clock
        self.publish = publish
        self._make_store = make_store
        self._ground = ground
        self._lock = nullcontext() if lock is None else lock
        self._inbox = ground.inbox()
        self._subscription: Subscription | None = None
        self._listening = 0

    def tell(self, word: Word) -> None:
        """Have the machine told something, at the next opportunity."""
        self._inbox.put(word)

    def wake(self) -> None:
        """Have the machine asked what to do, at the next opportunity."""
        self._inbox.put(_nothing)

    def run(self) -> None:
        """Drive the machine; returns when it has finished."""
        store = self._make_store()
        try:
            while self._step(store):
                pass
        finally:
            self._drop_subscription()
            store.close()
            self._ground.close()

    # --- turns --------------------------------------------------------------------------------

    def _step(self, store: Store) -> bool:
        """Deliver what has arrived, and take one step; whether there are more."""
        until = self.clock() + _SAYING
        # Messages that arrive faster than the machine reads them must not delay its heartbeat.
        while self.clock() < until and (word := self._inbox.get(0.0)) is not None:
            self._say(word)
        with self._lock:
            step = self.machine.next(self.clock())
        self.publish()
        if isinstance(step, Wait):
            word = self._inbox.get(max(0.0, step.until - self.clock()))
            if word is not None:
                self._say(word)
        elif isinstance(step, Run):
            self._run(step, store)
            self.publish()
        elif isinstance(step, Subscribe):
            self._subscribe(step)
        return not isinstance(step, Finished)

    def _say(self, word: Word) -> None:
        with self._lock:
            word(self.clock())

    def _is_callers(self, error: BaseException) -> bool:
        """Whether an error is for somebody who called the loop, or kills it, and is to end it."""
        return self._ground.interrupts(error)

    def _run(self, step: Run, store: Store) -> HashringError | None:
        """Run a command and tell the machine how it went; what went wrong."""
        sent = self.clock()
        try:
            reply = self._ground.call(store.run, step.command)
        except BaseException as error:
            # Also of another kind than Exception: a credential provider may call anything.
            if self._is_callers(error):
                raise
            failure = told_failure(error, step.command)
            with self._lock:
                step.failed(failure, self.clock())  # type: ignore[arg-type]
            return failure
        with self._lock:
            step.done(reply, sent, self.clock())
        return None

    # --- the subscription ---------------------------------------------------------------------

    def _subscribe(self, step: Subscribe) -> None:
        self._drop_subscription()
        self._listening = step.number
        try:
            self._ground.spawn(lambda: self._listener(step), f"{self.label} listener".lstrip())
        except Exception as raised:  # the process may have no more threads
            if self._is_callers(raised):
                raise
            error = RedisUnavailable(f"there is no thread to listen in: {raised}")
            error.__cause__ = raised
            self._say(lambda now: self._unsubscribed(step.number, error, now))

    def _drop_subscription(self) -> None:
        self._listening = 0
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self._ground.call(subscription.end)

    def _listener(self, step: Subscribe) -> None:
        store = self._make_store()
        try:
            self._listen(step, store)
        finally:
            store.close()

    def _listen(self, step: Subscribe, store: Store) -> None:
        machine, call, number = self.machine, self._ground.call, step.number
        subscription = None
        failure: StoreError | None = None
        try:
            subscription = call(store.subscribe, *machine.channels)
            if self._listening == number:
                self._subscription = subscription
            silence = Silence(step, self.clock())
            while self._listening == number:
                patience = min(self.listen, silence.wait(self.clock()))
                notice = call(subscription.wait, patience)
                if notice is None:
                    silent = silence.nothing(self.clock())
                    if silent is Silent.ASK:
                        call(subscription.ask)
                    elif silent is Silent.LOST:
                        failure = silence.error
                        break
                    continue
                silence.heard(self.clock())
                if isinstance(notice, Subscribed):
                    self.tell(lambda now: machine.subscribed(number, now))
                elif isinstance(notice, Message):
                    self._pass_on(number, notice)
                elif isinstance(notice, Unsubscribed):
                    break
        except StoreError as error:
            failure = error
        except BaseException as raised:
            # At once: cleaning up lets others run.
            if not self._ground.forward(raised):
                logger.exception("hashring: unexpected error while listening")
        finally:
            self.tell(lambda now: self._unsubscribed(number, failure, now))
            if subscription is not None:
                self._close(subscription)

    def _pass_on(self, number: int, notice: Message) -> None:
        told = self.machine.told
        self.tell(lambda now: told(number, notice.channel, notice.payload, now))

    def _unsubscribed(self, number: int, failure: StoreError | None, now: float) -> None:
        self.machine.unsubscribed(number, failure, now)

    def _close(self, subscription: Subscription) -> None:
        self._ground.call(subscription.close)
