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

from tests.interruptions import (
    ACTION,
    CALL,
    PACKAGE,
    PATIENCE,
    RAISED,
    RUNNER,
    WHOLE,
    Interrupter,
    eventually,
    interrupt_each,
    running,
)

import logging  # isort: skip - nothing may be imported before the patching
import os  # isort: skip
import sys  # isort: skip

from redis import Redis  # isort: skip

from hashring import NodeStateError, PartitionGroup  # isort: skip

HOLDINGS = f"{PACKAGE}/core/groups/member_holdings.py"
# Where nothing is done, only computed: an interruption there is one of the line that asked.
PURE = f"{PACKAGE}/core/"
GROUP = f"interrupted-{os.getpid()}"
# What is raised in the hub, gevent writes to stderr.
logging.disable(logging.CRITICAL)


class MemberInterrupter(Interrupter):
    """Stops the member."""

    def __init__(self, line: int, group: PartitionGroup) -> None:
        super().__init__(line)
        self.group = group

    def concerns(self, path: str) -> bool:
        return path == HOLDINGS or not path.startswith(PURE)

    def stop(self) -> None:
        sys.settrace(None)
        self.group.stop()


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


def attempt(line: int, redis: Redis) -> bool:
    """Interrupt one call; whether it had that many lines."""
    group = new_member(redis, line)
    if CALL != "start":
        start(group)
        eventually(lambda: len(told) == 2, f"it begins: {told}")
    interrupter = MemberInterrupter(line, group)
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


if __name__ == "__main__":
    every, step = (100, 3) if WHOLE else (50, 8)
    interrupt_each(attempt, 2 * PATIENCE, every=every, stride=2, step=step, most=float("inf"))
