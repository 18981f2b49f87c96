"""Interrupts a call of a node's before every line of it, as a signal may.

``python -m tests.interrupted URL RUNNER CALL ACTION [whole]``, in a process of its own, since what
it looks for are calls that never return. For the first line of hashring that the call runs in this
thread (in any of its greenlets), then the second, and so on: make a node, call, and there do what
a signal handler would, which is to call ``stop()`` or to raise. After ``stop()``, ask at every line
that follows whether the node owns anything. Prints how many times it did so.

RUNNER  thread, greenlet, greenlet-patched, thread-patched
CALL    start, stop, poll, heartbeat, select
ACTION  stop, raise, or raise-own, an exception of the application's own (heartbeat: no stop)
whole   every line; else a sample, since some calls have thousands (poll: goes on for ever)
"""

from __future__ import annotations

import sys

URL, RUNNER, CALL, ACTION, *WHOLE = sys.argv[1:]
if RUNNER.endswith("-patched"):
    from gevent import monkey

    monkey.patch_all()

import faulthandler  # noqa: E402 - nothing may be imported before the patching
import linecache  # noqa: E402
import os  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from types import FrameType  # noqa: E402
from typing import Any  # noqa: E402

from redis import Redis  # noqa: E402

import hashring  # noqa: E402
from hashring import NodeStateError, RingNode  # noqa: E402

PACKAGE = str(Path(hashring.__file__).parent)
# Where nothing is done, only computed: an interruption there is one of the line that asked.
PURE: tuple[str, ...] = (f"{PACKAGE}/core/", f"{PACKAGE}/store/ring/commands.py")
RING = f"interrupted-{os.getpid()}"
# A call that goes on until it is stopped is interrupted in so many lines: in every one of the first
# in a thread, else in every fifth.
MOST = 5000 if WHOLE else 450
EVERY = MOST if WHOLE else 200 if RUNNER == "thread" else 0
PATIENCE = 30

if RUNNER == "greenlet":
    import gevent

    sleep: Any = gevent.sleep
else:
    sleep = time.sleep


class Interrupt(KeyboardInterrupt):
    """What the handler of Ctrl-C raises."""


class OwnInterrupt(Exception):
    """What a handler of the application's raises."""


RAISED = OwnInterrupt if ACTION == "raise-own" else Interrupt
if ACTION == "raise-own":
    # What is raised while a record is logged is taken for a fault of a log handler's.
    PURE += (f"{PACKAGE}/running/loop_log.py",)


class Interrupter:
    """Acts before the given line, counted over all frames of the package in this thread."""

    def __init__(self, line: int, node: RingNode) -> None:
        self.left = line
        self.node = node
        self.where = ""
        self.owned = ""
        """Where the node owned something although it had been stopped."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE) or path.startswith(PURE):
            return None
        if self.where:
            self._ask(frame)
            return self
        # Python looks for no signal between `try:` and what it guards, nor at the end of `with`.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # A greenlet's first line is before anybody could catch what is raised in it.
        first = frame.f_code.co_name == "target"
        if event == "line" and not first and not text.startswith(("try:", "with ")):
            self.left -= 1
            if self.left == 0:
                self.where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                if ACTION != "stop":
                    sys.settrace(None)
                    raise RAISED
                self.node.stop()
                if CALL == "poll" and self.where in EARLY:
                    # Nothing had begun that it could have stopped, so the call goes on.
                    threading.Timer(0.2, self.node.stop).start()
                if self.where in EARLY or CALL == "select":
                    # With locks, asking is an act.
                    sys.settrace(None)
        return self

    def _ask(self, frame: FrameType) -> None:
        if self.node.contains("key") or self.node.get_ranges():
            self.owned = self.owned or f"{frame.f_code.co_filename}:{frame.f_lineno}"


def call(node: RingNode) -> None:
    if CALL == "start":
        node.gevent_start() if RUNNER.startswith("greenlet") else node.start()
    elif CALL == "select":
        node.select([f"key-{number}" for number in range(50)])
    else:
        getattr(node, CALL)()


def running() -> list[str]:
    return [each.name for each in threading.enumerate() if each.name.startswith("hashring")]


def eventually(holds: Any, what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(what)
        sleep(0.001)


def attempt(line: int, redis: Redis) -> bool:
    """Interrupt one call; whether it had that many lines."""
    lock = CALL == "select"
    node = RingNode(redis, RING, on_change=lambda *_: None, ttl=2, heartbeat_interval=1, lock=lock)
    if CALL in ("stop", "select"):
        node.gevent_start() if RUNNER.startswith("greenlet") else node.start()
    interrupter = Interrupter(line, node)
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
        elif CALL in ("heartbeat", "select", "stop") and ACTION != "stop":
            # The node lives on, and can be stopped.
            node.stop()
        assert not node.contains("key"), what
        eventually(lambda: redis.zcard(RING) == 0, f"{what}: it is still on the ring")
    # Where it must not wait in a handler, it does now.
    node.stop()
    eventually(lambda: not running(), f"{what}: still running are {running()}")
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
    *lines_of(RingNode.poll, 1),
    *lines_of(RingNode._start, 1),
}


def main() -> None:
    redis = Redis.from_url(URL)
    times, line = 0, 1
    while line < MOST:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        if not attempt(line, redis):
            break
        times += 1
        line += 1 if line < EVERY else 5
    faulthandler.cancel_dump_traceback_later()
    print(times)


if __name__ == "__main__":
    main()
