"""What runs flows in a process, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from hashring.errors import StoreError
from hashring.protocol.flow import Flow, FlowRun
from hashring.testing.simulator.network import Call
from hashring.testing.simulator.simulated_loop import SimulatedCaller

if TYPE_CHECKING:
    from hashring.testing.simulator.process import Process

P = TypeVar("P", bound="Process")
T = TypeVar("T")


class FlowCaller(SimulatedCaller[P]):
    """Runs flows in a process, one at a time: what its application asks of Redis."""

    def __init__(self, process: P) -> None:
        super().__init__(process)
        self._flow: FlowRun[Any] | None = None

    def run(self, flow: Flow[T], done: Callable[[T], None]) -> None:
        """Run a flow, unless one is under way; ``done`` gets its result."""
        if self.busy is not None:
            return
        self._flow = FlowRun(
            flow, lambda result, now: done(result), lambda error, now: self.failed(error)
        )
        self._flow.begin(self.process.local())
        self._go_on()

    def cancel(self) -> None:
        """Give up a flow where it is: nobody waits for the answer, and Redis may get the call."""
        call, flow = self.busy, self._flow
        if call is not None and flow is not None:
            self.busy = None
            call.given_up = call.executed is None
            flow.end()

    def failed(self, error: Exception) -> None:
        """A flow has raised this."""
        self.process.world.say(self.process, f"could not do it: {error}")

    def _go_on(self) -> None:
        if self._flow is not None and self._flow.step is not None and self.busy is None:
            self.call(self._flow.step.command)

    def completed(self, call: Call, outcome: Any, now: float) -> None:
        """The flow goes on with the answer."""
        process = self.process
        assert self._flow is not None
        assert self._flow.step is not None
        if isinstance(outcome, StoreError):
            self._flow.step.failed(outcome, now)
        else:
            self._flow.step.done(outcome, process.local_at(call.sent), now)
        self._go_on()
