"""Interrupts a call of a group member's before every line of it, as a signal may.

``python -m tests.interrupted_member URL RUNNER CALL ACTION``, in a process of its own, since what
it looks for are calls that never return. For the first line of hashring that the call runs in this
thread (in any of its greenlets, and in gevent's hub), then the second, and so on: make a member,
call, and there do what a signal handler would, which is to call ``stop()`` or to raise. The member
must leave then, and a new start must bring its partitions and its callbacks. Prints how many times
it did so.

RUNNER  thread, greenlet, greenlet-patched, thread-patched
CALL    start, stop, changes, release, status
ACTION  stop, raise, or raise-own, an exception of the application's own
"""

from __future__ import annotations

import sys

URL, RUNNER, CALL, ACTION = sys.argv[1:]
if RUNNER.endswith("-patched"):
    from gevent import monkey

    monkey.patch_all()

import faulthandler  # noqa: E402 - nothing may be imported before the patching
import linecache  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from pathlib import Path  # noqa: E402
from types import FrameType  # noqa: E402
from typing import Any  # noqa: E402

from redis import Redis  # noqa: E402

import hashring  # noqa: E402
from hashring import NodeStateError, PartitionGroup  # noqa: E402

PACKAGE = str(Path(hashring.__file__).parent)
MEMBERSHIP = f"{PACKAGE}/core/groups/membership.py"
# Where nothing is done, only computed: an interruption there is one of the line that asked.
PURE: tuple[str, ...] = (f"{PACKAGE}/core/",)
GROUP = f"interrupted-{os.getpid()}"
# Of the lines so many are interrupted one by one, and of those that follow every third.
EVERY = 100
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
# What is raised in the hub, gevent writes to stderr.
logging.disable(logging.CRITICAL)


class Interrupter:
    """Acts before the given line, counted over all frames of the package in this thread."""

    def __init__(self, line: int, group: PartitionGroup) -> None:
        self.left = line
        self.group = group
        self.where = ""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        path = frame.f_code.co_filename
        if not path.startswith(PACKAGE) or (path.startswith(PURE) and path != MEMBERSHIP):
            return None
        # Python looks for no signal between `try:` and what it guards, nor at the end of `with`.
        text = linecache.getline(path, frame.f_lineno).strip()
        # A greenlet's first line is before anybody could catch what is raised in it.
        first = frame.f_code.co_name == "target"
        if event == "line" and not first and not text.startswith(("try:", "with ")):
            self.left -= 1
            if self.left == 0:
                self.where = f"{path}:{frame.f_lineno}"
                sys.settrace(None)
                if ACTION != "stop":
                    raise RAISED
                self.group.stop()
        return self


told: list[int] = []
"""The partitions that callbacks were told of."""


def new_member(redis: Redis, line: int) -> PartitionGroup:
    return PartitionGroup(
        redis,
        f"{GROUP}-{line}",
        2,
        ttl=6,
        rebalance_delay=0,
        max_handoff_time=0.1,
        on_assigned=lambda partition, token: told.append(partition),
    )


def start(group: PartitionGroup) -> None:
    group.gevent_start() if RUNNER.startswith("greenlet") else group.start()


def call(group: PartitionGroup) -> None:
    if CALL == "start":
        start(group)
    elif CALL == "release":
        group.release(0)
    elif CALL == "changes":
        for change in group.changes():
            if change.partition == 1:
                break
    else:
        getattr(group, CALL)()


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
    group = new_member(redis, line)
    if CALL != "start":
        start(group)
        eventually(lambda: len(told) == 2, f"it begins: {told}")
    interrupter = Interrupter(line, group)
    outcome = "returned"
    sys.settrace(interrupter)
    try:
        call(group)
    except RAISED:
        outcome = "raised"
    except NodeStateError:
        # It was stopped before it was asked.
        outcome = "refused"
    finally:
        sys.settrace(None)
    what = f"{CALL}, {ACTION} at {interrupter.where}: {outcome}"
    group.stop()
    eventually(lambda: not redis.exists(f"{{{group.name}}}:group:members"), f"{what}: it stays")
    # Where it must not wait in a handler, it does now.
    group.stop()
    eventually(lambda: not running(), f"{what}: still running are {running()}")
    # And it is as good as new.
    told.clear()
    start(group)
    eventually(lambda: sorted(told) == [0, 1], f"{what}: callbacks after a new start: {told}")
    group.stop()
    assert not redis.exists(f"{{{group.name}}}:group:members"), what
    told.clear()
    return bool(interrupter.where)


def main() -> None:
    redis = Redis.from_url(URL)
    times, line = 0, 1
    while True:
        faulthandler.dump_traceback_later(2 * PATIENCE, exit=True)
        if not attempt(line, redis):
            break
        times += 1
        line += 1 if line < EVERY else 3
    faulthandler.cancel_dump_traceback_later()
    print(times)


if __name__ == "__main__":
    main()
