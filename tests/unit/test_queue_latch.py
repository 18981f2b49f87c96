"""A latch between threads."""

from __future__ import annotations

import queue
from typing import Any

from hashring.running.threads_and_greenlets import QueueLatch


def test_who_has_waited_sees_it_set_though_the_one_that_sets_it_was_interrupted() -> None:
    seen: list[tuple[bool, bool]] = []

    class Interrupted(queue.SimpleQueue[Any]):
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            super().put(item)
            if not seen:
                seen.append((False, False))  # and this is not done again within the wait
                seen[0] = (latch.wait(0), latch.is_set())

    latch = QueueLatch(Interrupted)
    latch.set()
    assert seen == [(True, True)]
