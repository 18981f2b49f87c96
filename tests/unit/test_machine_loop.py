"""The loop that drives a machine: what it must do, whatever messages arrive."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

from hashring.protocol.machine import Finished, Step
from hashring.running.machine_loop import Loop
from hashring.running.threads_and_greenlets import ThreadBackend
from hashring.testing import MemoryStore
from tests.conftest import PATIENCE


class Machine:
    """A machine that ends when it is asked what to do."""

    def next(self, now: float) -> Step:
        return Finished()


def test_a_machine_is_asked_what_to_do_though_it_is_told_things_without_end() -> None:
    over = threading.Event()
    loop = Loop(cast(Any, Machine()), MemoryStore, ThreadBackend(), time.monotonic)

    def word(now: float) -> None:
        if not over.is_set():
            loop.tell(word)

    loop.tell(word)
    thread = threading.Thread(target=loop.run)
    thread.start()
    thread.join(PATIENCE / 6)
    ended = not thread.is_alive()
    over.set()
    thread.join()
    assert ended
