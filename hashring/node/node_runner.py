"""The loop that runs a node on threads or greenlets, beside users who ask it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from hashring.errors import HashringError, StoreError
from hashring.node.node_log import NodeLog
from hashring.protocol.machine_steps import Run, Subscribe
from hashring.protocol.node.node_machine import NodeMachine
from hashring.protocol.node.node_states import AT_WORK, NodeState
from hashring.running.loop_log import LoopLog
from hashring.running.machine_loop import Loop
from hashring.running.threads_and_greenlets import Backend, Latch
from hashring.store.client_errors import is_of_libraries
from hashring.store.interface import Store, Subscription

logger = LoopLog("hashring")

_LOOK: Final = 1.0
"""Seconds between two looks of one who waits whether the loop can still end."""


@dataclass
class Request:
    """Something the user asks of a running loop.

    Attributes:
        latch: set when it is done.
        error: what went wrong.
    """

    latch: Latch
    error: Exception | None = None


class Runner(Loop):
    """Runs one machine until it has finished.

    It lets nothing out but what a signal handler raises in the caller's thread, if it runs there.

    Args:
        machine: the protocol; only this runner touches it while it runs.
        store: where the ring lives.
        backend: threads or greenlets.
        clock: monotonic seconds.
        label: for the names of threads and the log.

    Attributes:
        settled: set when the node is on the ring and knows its ranges, or will never be.
        ended: set when the loop has ended.
    """

    # Ending a subscription wakes its listener at once, except where the connection is dead: then
    # it notices after this long.
    listen: ClassVar[float] = 5.0
    machine: NodeMachine

    def __init__(
        self,
        machine: NodeMachine,
        store: Store,
        backend: Backend,
        clock: Callable[[], float],
        label: str,
    ) -> None:
        super().__init__(machine, lambda: store, backend, clock)
        self.store = store
        self.backend = backend
        self.label = label
        self.settled = backend.latch()
        self.ended = backend.latch()
        self._maker = backend.current()
        self._self: Any = None
        self._abandoned = False
        self._cancelled = False
        self._log = NodeLog(machine)

    def stop(self, *, stay: bool = False) -> None:
        """Have the node leave; see :meth:`hashring.protocol.node.node_machine.NodeMachine.stop`."""
        self.tell(lambda now: self.machine.stop(stay=stay))

    def ask(self, make: Callable[[], Run]) -> Request:
        """Have a step run, made by the loop, since only it may touch the machine."""
        request = Request(self.backend.latch())

        def word(now: float) -> None:
            try:
                request.error = self._run(make(), self.store)
            except Exception as error:
                request.error = error
                raise
            else:
                # Before the latch opens: the caller that waits on it then reads the new snapshot.
                self.publish()
            finally:
                request.latch.set()

        self.tell(word)
        return request

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

    def gone(self) -> bool:
        """Whether the loop will never go on, nor end: its greenlet's thread or hub is no more."""
        return self.backend.gone() and not self.ended.wait(0)

    def wait(self) -> None:
        """Wait until the loop has ended, or will never go on."""
        while not self.gone() and not self.ended.wait(_LOOK):
            pass

    def bury(self) -> None:
        """In place of a loop that never goes on, or never begins: let go those who wait for it."""
        self._listening = 0
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.end()
        self.settled.set()
        self.ended.set()

    def cancel(self) -> bool:
        """Keep the loop from beginning; false when it has begun."""
        # The loop says that it begins before it looks whether it may.
        self._cancelled = True
        return self._self is None

    def abandon(self) -> None:
        """In a forked child: let go without a word, for everything is the parent's."""
        self._abandoned = True
        self._listening = 0
        # Where the hub has found an answer for it, its greenlet goes on before it is killed.
        self.publish = lambda: None
        self.backend.abandon()

    def run(self) -> None:
        """The loop. Returns when the machine has finished."""
        begun = False
        try:
            self._self = self.backend.current()
            begun = not self._cancelled
            if begun:
                self._turns()
        finally:
            try:
                if begun and not self._abandoned:
                    self._drop_subscription()
                    self.backend.call(self.store.close)
                self._set_all(last_word=begun)
            finally:
                # Again: whatever a signal handler raises here, nobody may wait for ever.
                self._set_all(last_word=begun)
            if not self._abandoned:
                self.backend.close()

    def _set_all(self, *, last_word: bool) -> None:
        # Once it has ended, another run may drive the machine.
        if last_word and not self._abandoned and not self.ended.is_set():
            self.publish()
        self.settled.set()
        self.ended.set()

    def _turns(self) -> None:
        while not self._abandoned:
            try:
                # Between two turns a signal handler may raise as well.
                while self._turn() and not self._abandoned:
                    pass
                return
            except BaseException as error:
                # What it raised, in a greenlet that happens to be the loop's.
                if self._self == self._maker or not self.backend.forward(error):
                    raise

    def _turn(self) -> bool:
        """One step, and all that follows from it; whether there are more."""
        try:
            alive = self._step(self.store)
            self.publish()
            self._log.state()
            if self.machine.state is not NodeState.JOINING:
                self.settled.set()
        except Exception as error:
            if self._is_callers(error):
                raise
            # A fault of this package. The node must live on, or fence itself: try the next
            # heartbeat as after a failure, and say so.
            logger.exception("%s: unexpected error in the node's loop", self.label)
            self.machine.give_up_if_strict(error)
            return self._pause()
        return alive

    def _pause(self) -> bool:
        """After a fault: wait a while; whether the loop goes on."""
        if self.machine.state in AT_WORK:
            word = self._inbox.get(self.machine.config.io_timeout)
            if word is None:
                return True
            with suppress(Exception):
                self._say(word)
        if self.machine.state in AT_WORK:
            return True
        # Leave, if that works; the same fault again is the end.
        with suppress(Exception):
            while self._step(self.store):
                pass
        return False

    def _is_callers(self, error: BaseException) -> bool:
        if self._self == self._maker:
            # In poll() the loop runs where it was made, as the application's signal handlers do.
            return not (isinstance(error, Exception) and is_of_libraries(error))
        return super()._is_callers(error)

    def _run(self, step: Run, store: Store) -> HashringError | None:
        failing = self.machine.failing
        error = super()._run(step, store)
        if not self._abandoned:
            self._log.outcome(failing, error)
        return error

    # --- the subscription ---------------------------------------------------------------------

    def _listener(self, step: Subscribe) -> None:
        self._listen(step, self.store)

    def _unsubscribed(self, number: int, failure: StoreError | None, now: float) -> None:
        failing = self.machine.failed_since is not None
        super()._unsubscribed(number, failure, now)
        if failure is not None and number == self._listening:
            self._log.outcome(failing, failure)

    def _close(self, subscription: Subscription) -> None:
        if not self._abandoned:
            super()._close(subscription)
