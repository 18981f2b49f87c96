"""Virtual time: what happens next, and when. No time passes between two things that happen."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any, Final

from hashring.testing.simulator.rules import Violation

EPOCH: Final = 1_700_000_000.0
"""Redis time at the beginning."""


NEVER: Final = float("-inf")


class VirtualTime:
    """Runs what is to happen, in order of time; ``now`` is seconds from the beginning."""

    def __init__(self) -> None:
        self.now = 0.0
        self.skew = 0.0
        """How far the clock of Redis' machine is off that of the first one, since a failover."""
        self.set_back = 0.0
        """By how many seconds somebody has set Redis' clock back so far."""
        self.set_back_at = NEVER
        """When somebody did so last."""
        self._queue: list[tuple[float, int, Callable[[], Any]]] = []
        self._number = 0

    def at(self, when: float, what: Callable[[], Any]) -> None:
        """Do it then; things of one time in the order in which they were asked for."""
        self._number += 1
        heapq.heappush(self._queue, (when, self._number, what))

    def redis_time(self) -> float:
        """What Redis' clock shows."""
        return EPOCH + self.skew - self.set_back + self.now

    def true_time(self, redis_time: float) -> float:
        """When Redis' clock will show this time, or did, if it is not set back again."""
        return redis_time - EPOCH - self.skew + self.set_back

    def run(self, until: float) -> None:
        """Let time pass.

        Raises:
            Violation: a rule was broken.
        """
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, what = heapq.heappop(queue)
            try:
                what()
            except Violation:
                raise
            except Exception as error:
                raise Violation("nothing escapes", repr(error), self.now) from error
        self.now = until
