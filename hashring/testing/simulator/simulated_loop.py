"""What makes calls in a process: the loop of a machine, or the application itself.

A loop goes through the same motions as those of :mod:`hashring.running`: it hears what has
arrived, asks its machine what to do, does it, and reports how that went.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from hashring.errors import RedisUnavailable, StoreError
from hashring.protocol.machine_steps import Machine, Run, Subscribe, Wait
from hashring.store.command import Command
from hashring.testing.simulator.network import Call
from hashring.testing.simulator.rules import Violation
from hashring.testing.simulator.simulated_subscription import SimulatedSubscription

if TYPE_CHECKING:
    from hashring.testing.simulator.process import Process

P = TypeVar("P", bound="Process")

# A loop that takes this many turns without time passing will never wait.
_TURNS: Final = 200


class SimulatedCaller(Generic[P]):
    """What makes one call at a time in a process: a loop, or the application itself."""

    def __init__(self, process: P) -> None:
        self.process = process
        self.busy: Call | None = None
        process.callers.append(self)

    def call(self, command: Command[Any]) -> None:
        """Send a command; :meth:`completed` comes later, unless the process ends before."""
        self.busy = call = Call(command, self.process.world.now, self.outcome)
        self.process.send(call)

    def outcome(self, call: Call, outcome: Any) -> None:
        """The answer, or an error, has reached the process."""
        process = self.process
        if call is not self.busy or not process.alive or call.ended is not None:
            return
        # Of an answer and a timeout during a pause the one or the other is seen first.
        if not call.outcome or process.rng.random() < 0.5:
            call.outcome = [outcome]
        if not process.paused:
            self._complete(call)

    def wake(self) -> None:
        """The process goes on where it was."""
        if self.busy is not None and self.busy.outcome:
            self._complete(self.busy)

    @property
    def has_answer(self) -> bool:
        """Whether it has read an answer, and was stopped before it did more."""
        return self.busy is not None and self.busy.ended is not None

    def _complete(self, call: Call) -> None:
        process = self.process
        if call.ended is None:
            call.ended = process.local()
            if process.pauses_untold:
                process.pause(process.pauses_untold.pop())
                return
        self.busy = None
        self.completed(call, process.read(call), call.ended)

    def completed(self, call: Call, outcome: Any, now: float) -> None:
        """A call has ended with this answer, or this :class:`hashring.errors.StoreError`.

        Args:
            now: what the process' clock showed then.
        """
        raise NotImplementedError


class SimulatedLoop(SimulatedCaller[P]):
    """Drives one machine in a process.

    Args:
        asynchronous: run as under asyncio, where messages are heard while a call is under way;
            else as in a thread, where they wait.
    """

    def __init__(self, process: P, machine: Machine, *, asynchronous: bool = False) -> None:
        super().__init__(process)
        self.machine = machine
        self.listener: SimulatedSubscription | None = None
        self._over = False
        self._asynchronous = asynchronous
        self._step: Run | None = None
        self._inbox: deque[Callable[[], None]] = deque()
        self._alarm = 0

    def begin(self) -> None:
        """Its machine was started, perhaps again."""
        self._over = False
        self.turn()

    def hear(self, number: int, channel: bytes, payload: bytes) -> None:
        """A message has arrived."""
        self.tell(lambda: self.machine.told(number, channel, payload, self.process.local()))

    def tell(self, what: Callable[[], None]) -> None:
        """Something for the machine has arrived."""
        process = self.process
        if not process.alive:
            return
        self._inbox.append(what)
        if process.paused:
            return
        if self._asynchronous and self.busy is not None:
            self._empty_inbox()
            process.show(self)
        else:
            self.turn()

    def turn(self) -> None:
        """Take turns of the loop until it waits."""
        process = self.process
        for _ in range(_TURNS):
            if not process.alive or process.paused or self.busy is not None or self._over:
                return
            self._empty_inbox()
            step = self.machine.next(process.local())
            process.show(self)
            if isinstance(step, Wait):
                self._wait(step.until)
                return
            if isinstance(step, Run):
                self._step = step
                process.calls += 1
                self.call(step.command)
            elif isinstance(step, Subscribe):
                self._subscribe(step)
            else:
                self._over = True
                self.detach()
                process.finished(self)
                return
        raise Violation(
            "a loop waits", f"{process.spec.label} turns round and round", process.world.now
        )

    def wake(self) -> None:
        """The process goes on where it was."""
        call = self.busy
        if call is not None and call.outcome:
            self._complete(call)
        elif call is not None and self._asynchronous:
            self._empty_inbox()
            self.process.show(self)
        else:
            self.turn()

    def detach(self) -> None:
        """Redis knows of no subscription of this loop's any more."""
        if self.listener is not None:
            self.listener.detach()

    def completed(self, call: Call, outcome: Any, now: float) -> None:
        """Pass the outcome of a call on to the machine."""
        process, step = self.process, self._step
        assert step is not None
        self._step = None
        if isinstance(outcome, StoreError):
            step.failed(outcome, now)
        else:
            process.answered(call, outcome)
            step.done(outcome, process.local_at(call.sent), now)
        process.show(self)
        self.turn()

    def _empty_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    def _wait(self, until: float) -> None:
        self._alarm += 1
        alarm = self._alarm
        if until == math.inf:
            return
        process = self.process
        # A hair later, since adding and subtracting the offset of its clock may lose a bit.
        at = max(process.true(until), process.world.now) + 1e-9

        def ring() -> None:
            if alarm == self._alarm:
                self.turn()

        process.world.at(at, ring)

    # --- the subscription ---------------------------------------------------------------------

    def _subscribe(self, step: Subscribe) -> None:
        self.detach()
        self.listener = SimulatedSubscription(self, step)
        self.listener.begin()

    def subscribed(self, number: int) -> None:
        """The subscription of that number stands."""
        for _ in self.machine.channels:
            self.machine.subscribed(number, self.process.local())

    def unsubscribe(self) -> None:
        """Its subscription is closed from the other side."""
        if self.listener is not None:
            self.listener.lose(RedisUnavailable("connection closed"))
