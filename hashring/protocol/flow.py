"""One way to write what takes several commands: a generator of commands.

A flow yields a command, is sent its reply, and returns its result. It raises what it raises; the
error of a command is raised where the command was yielded, so a flow may handle it. A flow does no
I/O and waits for nothing else. Those who run it are :func:`run_flow` for sync stores,
:func:`run_flow_async` for asyncio ones, and :class:`FlowRun` inside a machine, and so in the
simulator.

A flow does not wait between two tries. It is one try, and its result says for how long to wait. Its
caller waits, and runs the next try.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import closing
from typing import Any, Final, Generic, TypeVar

from hashring.errors import StoreError, WriteConflict
from hashring.protocol.machine_steps import Run
from hashring.store.command import Command

T = TypeVar("T")

Flow = Generator[Command[Any], Any, T]

TRIES: Final = 100
"""How often a decision is tried against others who change the same thing."""


def committed(what: str, attempt: Callable[[], Flow[T | None]], tries: int = TRIES) -> Flow[T]:
    """The result of an attempt to read, decide and commit; tried again when others were faster.

    Each try that fails is one in which somebody else's commit stands, so nothing waits in between.

    Args:
        what: what is changed, for the error: ``"group 'orders'"``.
        attempt: one try; ``None`` when the commit found something newer than what was read.

    Raises:
        WriteConflict: no try succeeded. Nothing was written.
    """
    for _ in range(tries):
        result = yield from attempt()
        if result is not None:
            return result
    raise WriteConflict(what, tries)


def run_flow(run: Callable[[Command[Any]], Any], flow: Flow[T]) -> T:
    """The result of a flow whose commands ``run`` runs.

    Raises:
        StoreError: a command failed, and the flow did not handle it.
    """
    with closing(flow):
        try:
            command = next(flow)
            while True:
                try:
                    reply = run(command)
                except BaseException as error:  # noqa: BLE001 - raised in the flow
                    command = flow.throw(error)
                else:
                    command = flow.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result


async def run_flow_async(run: Callable[[Command[Any]], Awaitable[Any]], flow: Flow[T]) -> T:
    """The result of a flow whose commands ``run`` runs on an event loop.

    Raises:
        StoreError: a command failed, and the flow did not handle it.
    """
    with closing(flow):
        try:
            command = next(flow)
            while True:
                try:
                    reply = await run(command)
                except BaseException as error:  # noqa: BLE001 - raised in the flow
                    command = flow.throw(error)
                else:
                    command = flow.send(reply)
        except StopIteration as end:
            result: T = end.value
            return result


class FlowRun(Generic[T]):
    """A flow under way in a machine.

    Args:
        flow: what to run.
        done: called with the result and the time.
        failed: called with what the flow raised and the time.

    Attributes:
        sent: before the last command was sent, in monotonic seconds.
        now: when its reply or its error was there.
        step: the next step; ``None`` when the flow has ended.
    """

    def __init__(
        self,
        flow: Flow[T],
        done: Callable[[T, float], None],
        failed: Callable[[Exception, float], None],
    ) -> None:
        self._flow = flow
        self._done = done
        self._failed = failed
        self.sent = self.now = float("-inf")
        self.step: Run | None = None

    def begin(self, now: float) -> None:
        """Run up to the first command."""
        self.sent = self.now = now
        self._go_on(lambda: next(self._flow))

    def end(self) -> None:
        """Give up where it is: a command under way is not heard of any more."""
        self.step = None
        self._flow.close()

    def _go_on(self, go_on: Callable[[], Command[Any]]) -> None:
        self.step = None
        try:
            command = go_on()
        except StopIteration as end:
            self._done(end.value, self.now)
        except Exception as error:  # noqa: BLE001 - the machine decides what it means
            self._failed(error, self.now)
        else:
            self.step = Run(command, self._answered, self._refused)

    def _answered(self, reply: Any, sent: float, now: float) -> None:
        if self.step is not None:
            self.sent, self.now = sent, now
            self._go_on(lambda: self._flow.send(reply))

    def _refused(self, error: StoreError, now: float) -> None:
        if self.step is not None:
            self.now = now
            self._go_on(lambda: self._flow.throw(error))
