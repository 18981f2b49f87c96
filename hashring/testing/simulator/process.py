"""A process: the loops that run in it, its clock, and how it is stopped, paused and killed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from hashring.errors import RedisUnavailable
from hashring.testing.simulator.network import Call, Networked
from hashring.testing.simulator.simulated_loop import SimulatedCaller, SimulatedLoop
from hashring.testing.simulator.virtual_time import NEVER

if TYPE_CHECKING:
    from hashring.testing.simulator.world import World


class SimulatedSpec(Protocol):
    """What a world must be told of a process.

    Attributes:
        label: what the story calls it.
        monotonic: what its monotonic clock shows at the beginning, in seconds.
        rate: how many seconds that clock goes on in a second.
    """

    @property
    def label(self) -> str:
        """What the story calls it."""

    @property
    def monotonic(self) -> float:
        """What its monotonic clock shows at the beginning, in seconds."""

    @property
    def rate(self) -> float:
        """How many seconds its monotonic clock goes on in a second."""


class Process(Networked):
    """A process; subclasses say what runs in it."""

    def __init__(self, world: World[Any], spec: SimulatedSpec) -> None:
        super().__init__(world, spec)
        self.callers: list[SimulatedCaller[Any]] = []
        self.alive = True
        self.stopping = False
        self.away: float | None = None
        """Seconds after which it is started again once it has left; ``None`` for never."""
        self.paused_until = 0.0
        self.pauses_unsent: list[float] = []
        """Seconds that it is stopped for between a decision to send something and doing so."""
        self.pauses_untold: list[float] = []
        """Seconds that it is stopped for between an answer, with a look at its clock, and more."""
        self.calls = 0
        """How many calls its loops have made."""
        self.missed_at = NEVER
        """True time at which it last missed a message, or could have: when it began to listen."""
        self.late_at = NEVER
        """True time at which Redis last ran a command that had been given up."""

    def local(self) -> float:
        """What its monotonic clock shows."""
        return self.local_at(self.world.now)

    def local_at(self, at: float) -> float:
        """What its monotonic clock shows at a true time."""
        return at * float(self.spec.rate) + float(self.spec.monotonic)

    def true(self, local: float) -> float:
        """The true time at which its monotonic clock shows that."""
        return (local - float(self.spec.monotonic)) / float(self.spec.rate)

    @property
    def paused(self) -> bool:
        """Whether it is stopped like by SIGSTOP; readers in it do nothing either."""
        return self.world.now < self.paused_until

    @property
    def listens(self) -> bool:
        """Whether Redis knows of the subscriptions of all its loops."""
        return all(loop.listener is not None and loop.listener.stands for loop in self.loops)

    @property
    def loops(self) -> list[SimulatedLoop[Any]]:
        """Its loops, in the order in which they were made."""
        return [caller for caller in self.callers if isinstance(caller, SimulatedLoop)]

    # --- what subclasses say ------------------------------------------------------------------

    def start(self) -> None:
        """The process begins."""
        raise NotImplementedError

    def stop(self) -> None:
        """The application wants to leave."""
        raise NotImplementedError

    def show(self, loop: SimulatedLoop[Any]) -> None:
        """A loop's machine may have changed what the application sees."""

    def comes_back(self, begin: Callable[[], None]) -> bool:
        """Whether it left to be started again; if so, ``begin`` is called when it is time."""
        if self.away is None:
            return False
        away, self.away, self.stopping = self.away, None, False
        self.world.late_until = max(self.world.late_until, self.world.now + away)
        self.soon(away, begin)
        return True

    def answered(self, call: Call, outcome: Any) -> None:
        """A loop's machine is about to be told of an answer."""

    def finished(self, loop: SimulatedLoop[Any]) -> None:
        """A loop's machine has nothing more to do."""

    def soon(self, delay: float, do: Callable[[], None]) -> None:
        """Do it in this process: not while it is paused, and never once it is dead."""
        world = self.world

        def run() -> None:
            if not self.alive:
                return
            if self.paused:
                world.at(self.paused_until + 1e-6, run)
            else:
                do()

        world.at(world.now + delay, run)

    # --- what happens to it -------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL. What it has sent may still arrive."""
        self.alive = False
        for loop in self.loops:
            loop.detach()

    def pause(self, seconds: float) -> None:
        """SIGSTOP, for that long."""
        self.paused_until = max(self.paused_until, self.world.now + seconds)
        self.trouble_until = max(self.trouble_until, self.paused_until)
        self.world.late_until = max(self.world.late_until, self.paused_until)
        self.world.at(self.paused_until, self.wake)

    def wake(self) -> None:
        """SIGCONT: go on where it was."""
        if not self.alive or self.paused:
            return
        # One that was about to tell its machine of an answer has the lock of that.
        callers = self.callers[::-1]
        callers.sort(key=lambda caller: not caller.has_answer)
        for caller in callers:
            caller.wake()

    def send(self, call: Call) -> None:
        """Send a command on its way to Redis."""
        if not self.pauses_unsent:
            super().send(call)
            return
        self.pause(self.pauses_unsent.pop())

        def go_on() -> None:
            if self.alive and self.paused:
                self.world.at(self.paused_until, go_on)
            elif self.alive:
                call.sent = self.world.now
                Networked.send(self, call)

        self.world.at(self.paused_until, go_on)

    def reset(self) -> None:
        """Its connections are closed from the other side."""
        error = RedisUnavailable("connection reset")
        for caller in self.callers:
            if caller.busy is not None:
                caller.outcome(caller.busy, error)
        self.unsubscribe()

    def unsubscribe(self) -> None:
        """Its subscriptions are closed from the other side."""
        for loop in self.loops:
            loop.unsubscribe()
