"""The loop that drives a machine in a thread of its own."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Final

from hashring.errors import StoreError
from hashring.protocol.machine import Finished, Machine, Run, Subscribe, Wait
from hashring.running.backend import Latch, native_queue
from hashring.store.interface import Store, Subscribed, Subscription, Told, Unsubscribed

logger = logging.getLogger("hashring")

Word = Callable[[float], object]
"""A call of the machine, with the time."""

_LISTEN: Final = 0.2
"""Seconds between two looks of a listener at whether it is over."""

_LONGEST_WAIT: Final = 3600.0


def _nothing(now: float) -> None:
    """What wakes a loop, and says nothing."""


@dataclass(eq=False)
class Loop:
    """Drives one machine until it has finished; :meth:`run` is the thread's target.

    Args:
        machine: the protocol.
        make_store: makes a store for one thread.
        spawn: runs a function in another thread of the same kind; what is set at its end.
        clock: monotonic seconds.
        publish: called after every step, in the loop's thread.
        lock: held around each call of the machine's, where others call it, too.

    ``tell`` may be called by any thread, and in a signal handler.
    """

    machine: Machine
    make_store: Callable[[], Store]
    spawn: Callable[[Callable[[], None], str], Latch]
    clock: Callable[[], float]
    publish: Callable[[], None] = lambda: None
    lock: AbstractContextManager[Any] = field(default_factory=nullcontext)

    def __post_init__(self) -> None:
        self._inbox: queue.SimpleQueue[Word] = native_queue()
        self._subscription: Subscription | None = None
        self._listening = 0
        self._listeners: list[Latch] = []
        self._store: Store | None = None

    def tell(self, word: Word) -> None:
        """Have the machine told something, at the next opportunity."""
        self._inbox.put(word)

    def wake(self) -> None:
        """Have the machine asked what to do, at the next opportunity."""
        self._inbox.put(_nothing)

    def run(self) -> None:
        """Drive the machine; returns when it has finished."""
        self._store = store = self.make_store()
        try:
            while self._turn(store):
                pass
        finally:
            self._drop_subscription()
            store.close()
            for listener in self._listeners:
                listener.wait()

    def _turn(self, store: Store) -> bool:
        while (word := self._hear(0.0)) is not None:
            self._say(word)
        with self.lock:
            step = self.machine.next(self.clock())
        self.publish()
        if isinstance(step, Wait):
            word = self._hear(step.until - self.clock())
            if word is not None:
                self._say(word)
        elif isinstance(step, Run):
            self._run(step, store)
            self.publish()
        elif isinstance(step, Subscribe):
            self._subscribe(step.number)
        return not isinstance(step, Finished)

    def _hear(self, timeout: float) -> Word | None:
        try:
            return self._inbox.get(timeout=min(max(0.0, timeout), _LONGEST_WAIT))
        except queue.Empty:
            return None

    def _say(self, word: Word) -> None:
        with self.lock:
            word(self.clock())

    def _run(self, step: Run, store: Store) -> None:
        sent = self.clock()
        try:
            reply = store.run(step.command)
        except Exception as error:  # noqa: BLE001 - also an answer that nobody understands
            failure = error
            with self.lock:
                step.failed(failure, self.clock())  # type: ignore[arg-type]
        else:
            with self.lock:
                step.done(reply, sent, self.clock())

    # --- the subscription ---------------------------------------------------------------------

    def _subscribe(self, number: int) -> None:
        self._drop_subscription()
        self._listening = number
        self._listeners = [each for each in self._listeners if not each.wait(0)]
        self._listeners.append(self.spawn(lambda: self._listen(number), "listener"))

    def _drop_subscription(self) -> None:
        self._listening = 0
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.end()

    def _listen(self, number: int) -> None:
        machine, store = self.machine, self.make_store()
        failure: StoreError | None = None
        try:
            subscription = store.subscribe(*machine.channels)
            try:
                if self._listening == number:
                    self._subscription = subscription
                while self._listening == number:
                    notice = subscription.wait(_LISTEN)
                    if isinstance(notice, Unsubscribed):
                        break
                    if isinstance(notice, Subscribed):
                        self.tell(lambda now: machine.subscribed(number, now))
                    elif isinstance(notice, Told):
                        self._pass_on(number, notice)
            finally:
                subscription.close()
        except StoreError as error:
            failure = error
        except Exception:
            logger.exception("hashring: unexpected error while listening")
        finally:
            self.tell(lambda now: machine.unsubscribed(number, failure, now))
            store.close()

    def _pass_on(self, number: int, notice: Told) -> None:
        told = self.machine.told
        self.tell(lambda now: told(number, notice.channel, notice.payload, now))
