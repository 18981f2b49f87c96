"""Which calls of the node's loop are due, when, and how the last one went."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hashring.errors import StoreError
from hashring.protocol.locks.key_states import NEVER
from hashring.protocol.machine_steps import Run
from hashring.store.command import Command


class DueCalls:
    """The calls of one loop that are due.

    Args:
        retry: seconds until a call that failed is tried again.

    Attributes:
        stirred: whether there is something new to do; reset by what wakes the loop.
        outdated: whether Redis has another history of the ring than the last heartbeat learnt;
            reset by the next heartbeat.
        failure: why the last call failed; ``None`` when it did not.
        resolve_at: when to ask what came of calls, in monotonic seconds.
        release_at: when to release what was let go, if anything was.
    """

    def __init__(self, retry: float) -> None:
        self.retry = retry
        self.forget()

    def forget(self) -> None:
        """There is nothing to do."""
        self.stirred = self.outdated = False
        self.failure: StoreError | None = None
        self.resolve_at = self.release_at = NEVER

    def resolve_soon(self, now: float) -> None:
        """Ask what came of calls."""
        self.resolve_at = min(self.resolve_at, now)
        self.stirred = True

    def release_soon(self, now: float) -> None:
        """Release what was let go."""
        self.release_at = min(self.release_at, now)
        self.stirred = True

    def beat_soon(self) -> None:
        """Send a heartbeat: Redis has another history of the ring."""
        self.outdated = self.stirred = True

    def mend(self) -> None:
        """Look at everything: nobody knows what was asked for."""
        self.release_at = self.resolve_at = -NEVER
        self.stirred = True

    def run(
        self,
        command: Command[Any],
        done: Callable[[Any, float, float], None],
        failed: Callable[[float], None],
    ) -> Run:
        """A call of the loop's.

        Args:
            done: gets the answer, when the call was sent, and the time.
            failed: gets the time at which to try again.
        """

        def answered(reply: Any, sent: float, now: float) -> None:
            self.failure = None
            done(reply, sent, now)

        def unanswered(error: StoreError, now: float) -> None:
            self.failure = error
            failed(now + self.retry)

        return Run(command, answered, unanswered)
