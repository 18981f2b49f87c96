"""The loop that runs a node's protocol over a sync store, on threads or greenlets."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from hashring.errors import StoreError
from hashring.node.log import NodeLog
from hashring.node.machine import NodeMachine
from hashring.node.states import NodeState
from hashring.protocol.machine import Finished, Run, Subscribe, Wait
from hashring.running.backend import Backend, Latch
from hashring.store.interface import Store, Subscribed, Subscription, Told, Unsubscribed

logger = logging.getLogger("hashring")

# How long one wait for a message lasts, in seconds. Ending a subscription wakes it at once,
# except where the connection is dead: then it notices after this long.
_LISTEN = 5.0


@dataclass
class Request:
    """Something the user asks of a running loop.

    Attributes:
        step: what to run; made by the loop, since only it may touch the machine.
        latch: set when it is done.
        error: what went wrong.
    """

    step: Callable[[], Run]
    latch: Latch
    error: Exception | None = None


@dataclass(frozen=True)
class Stop:
    """The user wants the node to leave."""


WAKE = object()
"""Put into the inbox, makes the loop ask the machine what to do."""


@dataclass(frozen=True)
class _Heard:
    number: int
    notice: Subscribed | Told


@dataclass(frozen=True)
class _Lost:
    number: int
    error: StoreError | None


@dataclass(eq=False, repr=False)
class Runner:
    """Runs one machine until it has finished.

    Args:
        machine: the protocol; only this runner touches it while it runs.
        store: where the ring lives.
        backend: threads or greenlets.
        clock: monotonic seconds.
        publish: called after every step, to show readers the new view.
        label: for the names of threads and the log.
    """

    machine: NodeMachine
    store: Store
    backend: Backend
    clock: Callable[[], float]
    publish: Callable[[], None]
    label: str

    inbox: Any = field(init=False)
    settled: Latch = field(init=False)
    """Set when the node is on the ring and knows its ranges, or will never be."""
    ended: Latch = field(init=False)
    """Set when the loop has ended."""

    def __post_init__(self) -> None:
        self._maker = self.backend.current()
        self._self: Any = None
        self._abandoned = False
        self._cancelled = False
        self.inbox = self.backend.inbox()
        self.settled = self.backend.latch()
        self.ended = self.backend.latch()
        self._subscription: Subscription | None = None
        self._listening = 0
        self._log = NodeLog(self.machine)

    def may_wait(self) -> bool:
        """Whether the caller may wait for the end, and the end does not wait for the caller.

        A signal handler may run anywhere in the main thread: in the loop itself (that of
        ``poll()``, or any greenlet), or where the loop was made and is not running yet.
        """
        current = self.backend.current()
        if self._self is None:
            # Nobody can tell a greenlet that is about to begin the loop from any other.
            return not self.backend.greenlets() and current != self._maker
        return current != self._self and self.backend.may_wait()

    def cancel(self) -> bool:
        """Keep the loop from beginning; false when it has begun."""
        # The loop says that it begins before it looks whether it may.
        self._cancelled = True
        return self._self is None

    def abandon(self) -> None:
        """In a forked child: let go without a word, for everything is the parent's."""
        self._abandoned = True
        self._listening = 0
        self.backend.abandon()

    def run(self) -> None:
        """The loop. Returns when the machine has finished; lets nothing out."""
        begun = False
        try:
            self._self = self.backend.current()
            begun = not self._cancelled
            while begun and not self._abandoned and self._turn():
                pass
        finally:
            try:
                if begun and not self._abandoned:
                    self._drop_subscription()
                    self.backend.call(self.store.close)
                    self.publish()
            finally:
                # Whatever else a signal handler raises here, nobody may wait for ever.
                try:
                    self._set_all()
                finally:
                    # Again: the first time may be what was interrupted.
                    self._set_all()
            if not self._abandoned:
                self.backend.close()

    def _set_all(self) -> None:
        self.settled.set()
        self.ended.set()

    def _turn(self) -> bool:
        """One step, and all that follows from it; whether there are more."""
        try:
            alive = self._step()
            self.publish()
            self._log.state()
            if self.machine.state is not NodeState.JOINING:
                self.settled.set()
        except Exception:
            # A fault of this package. The node must live on, or fence itself: try the next
            # heartbeat as after a failure, and say so.
            logger.exception("%s: unexpected error in the node's loop", self.label)
            return self._pause()
        except BaseException as error:
            # What a signal handler raised, in a greenlet that happens to be the loop's.
            if self._self == self._maker or not self.backend.forward(error):
                raise
            return True
        return alive

    def _step(self) -> bool:
        machine, clock = self.machine, self.clock
        while (item := self.inbox.get(0)) is not None:
            self._hear(item)
        step = machine.next(clock())
        self.publish()
        if isinstance(step, Wait):
            item = self.inbox.get(step.until - clock())
            if item is not None:
                self._hear(item)
        elif isinstance(step, Run):
            self._run(step)
        elif isinstance(step, Subscribe):
            self._subscribe(step.number)
        elif isinstance(step, Finished):
            return False
        return True

    def _pause(self) -> bool:
        item = self.inbox.get(self.machine.config.io_timeout)
        if isinstance(item, Stop):
            self.machine.stop()
            # Leave, if that works; the same fault again is the end.
            with suppress(Exception):
                while self._step():
                    pass
            return False
        if item is not None:
            self.inbox.put(item)
        return True

    def _run(self, step: Run) -> StoreError | None:
        sent = self.clock()
        failing = self.machine.failing
        try:
            reply = self.backend.call(self.store.run, step.command)
        except StoreError as error:
            step.failed(error, self.clock())
            self._log.failure(failing, error)
            return error
        step.done(reply, sent, self.clock())
        self._log.success(failing)
        return None

    def _hear(self, item: Any) -> None:
        now = self.clock()
        if isinstance(item, _Heard):
            if isinstance(item.notice, Told):
                self.machine.told(item.number, item.notice.channel, item.notice.payload, now)
            else:
                self.machine.subscribed(item.number, now)
        elif isinstance(item, _Lost):
            failing = self.machine.failed_since is not None
            self.machine.unsubscribed(item.number, item.error, now)
            if item.error is not None and item.number == self._listening:
                self._log.failure(failing, item.error)
        elif isinstance(item, Stop):
            self.machine.stop()
        elif isinstance(item, Request):
            try:
                item.error = self._run(item.step())
            finally:
                item.latch.set()

    # --- the subscription ---------------------------------------------------------------------

    def _subscribe(self, number: int) -> None:
        self._drop_subscription()
        self._listening = number
        self.backend.spawn(lambda: self._listen(number), f"{self.label} listener")

    def _drop_subscription(self) -> None:
        self._listening = 0
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            self.backend.call(subscription.end)

    def _listen(self, number: int) -> None:
        subscription = None
        error: StoreError | None = None
        try:
            subscription = self.backend.call(self.store.subscribe, *self.machine.channels)
            if self._listening == number:
                self._subscription = subscription
            stands = False
            while self._listening == number:
                notice = self.backend.call(
                    subscription.wait, _LISTEN if stands else self.machine.config.io_timeout
                )
                if isinstance(notice, Unsubscribed) or (notice is None and not stands):
                    break
                if notice is not None:
                    stands = True
                    self.inbox.put(_Heard(number, notice))
        except StoreError as failure:
            error = failure
        except Exception:
            logger.exception("%s: unexpected error while listening", self.label)
        except BaseException as raised:
            # As in the loop, and at once: cleaning up lets others run.
            if not self.backend.forward(raised):
                raise
        finally:
            self.inbox.put(_Lost(number, error))
            if subscription is not None and not self._abandoned:
                self.backend.call(subscription.close)
