"""Interrupts a call of a node's before every line of it, as a signal may.

``python -m tests.interrupted URL RUNNER CALL ACTION [whole]``, in a process of its own, since what
it looks for are calls that never return. For the first line of hashring that the call runs in this
thread (in any of its greenlets), then the second, and so on: make a node, call, and there do what
a signal handler would, which is to call ``stop()`` or to raise. After ``stop()``, ask at every line
that follows whether the node owns anything, and at the end whether a lock is left. Prints how many
times it did so.

RUNNER  thread, greenlet, greenlet-patched, thread-patched
CALL    start, stop, poll, heartbeat, select, hold
ACTION  stop, raise, or raise-own, an exception of the application's own (heartbeat: no stop)
whole   every line; else a sample, since some calls have thousands (poll: goes on for ever)
"""

from __future__ import annotations

from tests.interruptions import (
    ACTION,
    CALL,
    PACKAGE,
    PATIENCE,
    RAISED,
    REST,
    RUNNER,
    WHOLE,
    Interrupter,
    eventually,
    interrupt_each,
    running,
)

import os  # isort: skip - nothing may be imported before the patching
import sys  # isort: skip
import threading  # isort: skip
from contextlib import suppress  # isort: skip
from types import FrameType  # isort: skip
from typing import Any  # isort: skip

from redis import Redis  # isort: skip

from hashring import NodeStateError, NotHeld, RingNode  # isort: skip
from hashring.node.start_and_stop import Life  # isort: skip

# Where nothing is done, only computed: an interruption there is one of the line that asked.
PURE = (
    f"{PACKAGE}/core/",
    f"{PACKAGE}/store/ring/commands.py",
    f"{PACKAGE}/store/ring/snapshot.py",
)
RING = f"interrupted-{os.getpid()}"
# A call that goes on until it is stopped is interrupted in so many lines. Of the first in a thread
# every third is interrupted, and of all others every 15th; with all tests each, and every fifth.
MOST = 5000 if REST else 450
EVERY = MOST if REST else 0 if RUNNER != "thread" else 200 if WHOLE else 80
LOCKING = ("select", "hold")
"""The calls that take locks."""


class NodeInterrupter(Interrupter):
    """Stops the node, and asks it at every line that follows whether it owns anything."""

    def __init__(self, line: int, node: RingNode) -> None:
        super().__init__(line)
        self.node = node
        self.owned = ""
        """Where the node owned something although it had been stopped."""

    def concerns(self, path: str) -> bool:
        return not path.startswith(PURE)

    def stop(self) -> None:
        self.node.stop()
        if CALL == "poll" and self.where in EARLY:
            # Nothing had begun that it could have stopped, so the call goes on.
            threading.Timer(0.2, self.node.stop).start()
        if self.where in EARLY or CALL in LOCKING:
            # With locks, asking is an act.
            sys.settrace(None)

    def follow(self, frame: FrameType) -> None:
        if self.node.contains("key") or self.node.get_ranges():
            self.owned = self.owned or f"{frame.f_code.co_filename}:{frame.f_lineno}"


def call(node: RingNode) -> None:
    if CALL == "start":
        node.gevent_start() if RUNNER.startswith("greenlet") else node.start()
    elif CALL == "select":
        node.select([f"key-{number}" for number in range(50)])
    elif CALL == "hold":
        with suppress(NotHeld), node.hold("key"):
            pass
    else:
        getattr(node, CALL)()


def attempt(line: int, redis: Redis) -> bool:
    """Interrupt one call; whether it had that many lines."""
    lock = CALL in LOCKING
    node = RingNode(redis, RING, on_change=lambda *_: None, ttl=8, heartbeat_interval=1, lock=lock)
    if CALL == "stop" or lock:
        node.gevent_start() if RUNNER.startswith("greenlet") else node.start()
    interrupter = NodeInterrupter(line, node)
    outcome = "returned"
    sys.settrace(interrupter)
    try:
        call(node)
    except RAISED:
        outcome = "raised"
    except NodeStateError:
        outcome = "refused"
    finally:
        sys.settrace(None)
    what = f"{CALL}, {ACTION} at {interrupter.where}: {outcome}, then {node.state.value}"
    reached = bool(interrupter.where)
    assert outcome == "raised" or not reached or ACTION != "raise-own", what
    assert not interrupter.owned, f"{what}, but it owned its keys at {interrupter.owned}"
    if reached:
        if node.state.value == "live" and CALL == "start" and ACTION == "stop":
            assert interrupter.where in EARLY, what
            node.stop()
        elif CALL in ("heartbeat", "stop", *LOCKING) and ACTION != "stop":
            # The node lives on, and can be stopped.
            node.stop()
        assert not node.contains("key"), what
        eventually(lambda: redis.zcard(RING) == 0, f"{what}: it is still on the ring")
    # Where it must not wait in a handler, it does now.
    node.stop()
    eventually(lambda: not running(), f"{what}: still running are {running()}")
    locks = list(redis.scan_iter(f"{{{RING}}}:lock:*"))
    assert not locks, f"{what}, and left {locks}"
    # And it is as good as new.
    node.start()
    assert node.contains("key") or lock, what
    node.stop()
    assert redis.zcard(RING) == 0, what
    return reached


def lines_of(function: Any, most: int | None = None) -> set[str]:
    """Where the function's statements are: all, or the first so many."""
    code = function.__code__
    numbers = {number for _, _, number in code.co_lines() if number}
    return {
        f"{code.co_filename}:{number}" for number in sorted(numbers - {code.co_firstlineno})[:most]
    }


# A stop() this early comes before the start has begun, and so may come to nothing.
EARLY = {
    *lines_of(RingNode.start),
    *lines_of(RingNode.gevent_start),
    *lines_of(RingNode.poll),
    *lines_of(Life.start, 1),
    *lines_of(Life.poll, 1),
}


if __name__ == "__main__":
    interrupt_each(attempt, PATIENCE, every=EVERY, stride=3, step=5 if WHOLE else 15, most=MOST)
