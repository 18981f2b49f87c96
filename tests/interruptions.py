"""What the programs have in common that interrupt a call before every line of it, as a signal may.

To be imported first: it patches before anything else is imported. See :mod:`tests.interrupted` and
:mod:`tests.interrupted_member`, whose arguments begin alike: ``URL RUNNER CALL ACTION``.
"""

from __future__ import annotations

import sys

URL, RUNNER, CALL, ACTION, *REST = sys.argv[1:]
if RUNNER.endswith("-patched"):
    from gevent import monkey

    monkey.patch_all()

import faulthandler  # noqa: E402 - nothing may be imported before the patching
import linecache  # noqa: E402
import os  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from types import FrameType  # noqa: E402
from typing import Any  # noqa: E402

from redis import Redis  # noqa: E402

import hashring  # noqa: E402
from tests.finalizers import in_finalizer  # noqa: E402

PACKAGE = str(Path(hashring.__file__).parent)
PATIENCE = 30
WHOLE = bool(REST) or os.environ.get("LONG_TESTS") == "1"

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
# What is raised while a record is logged is taken for a fault of a log handler's.
LOGGING = (f"{PACKAGE}/running/loop_log.py",) if ACTION == "raise-own" else ()
# These only look at handlers.
LOOKING = ("is_logging", "_is_in", "_owns")


class Interrupter:
    """Acts before the given line, counted over all frames of the package in this thread."""

    def __init__(self, line: int) -> None:
        self.left = line
        self.where = ""

    def concerns(self, path: str) -> bool:
        """Whether lines of a file of the package's are interrupted."""
        raise NotImplementedError

    def stop(self) -> None:
        """Call ``stop()``, as the handler."""
        raise NotImplementedError

    def follow(self, frame: FrameType) -> None:
        """A line after the interruption."""

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        path, name = frame.f_code.co_filename, frame.f_code.co_name
        logs = path.startswith(LOGGING) and name not in LOOKING
        if not path.startswith(PACKAGE) or logs or not self.concerns(path):
            return None
        if self.where:
            self.follow(frame)
            return self
        # Python looks for no signal between `try:` and what it guards, nor at the end of `with`.
        text = linecache.getline(path, frame.f_lineno).strip()
        # A greenlet's first line is before anybody could catch what is raised in it.
        first = name == "target"
        if event == "line" and not first and not text.startswith(("try:", "with ")):
            self.left -= 1
            if self.left == 0 and ACTION != "stop" and in_finalizer(frame):
                self.left = 1  # Python drops what is raised there: the next line outside of it
            elif self.left == 0:
                self.where = f"{path}:{frame.f_lineno}"
                if ACTION != "stop":
                    sys.settrace(None)
                    raise RAISED
                self.stop()
        return self


def running() -> list[str]:
    """The threads of hashring's that run."""
    return [each.name for each in threading.enumerate() if each.name.startswith("hashring")]


def eventually(holds: Callable[[], object], what: str) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        if time.monotonic() > deadline:
            raise AssertionError(what)
        sleep(0.001)


def interrupt_each(
    attempt: Callable[[int, Redis], bool],
    patience: float,
    *,
    every: int,
    stride: int,
    step: int,
    most: float,
) -> None:
    """Interrupt line after line, until a call has fewer; print how many.

    Args:
        attempt: interrupts one call; whether it had that many lines.
        patience: seconds that it may take.
        every: of so many lines one in ``stride`` is interrupted, and each if all tests run. Each
            action begins with another line.
        step: of those that follow, one in so many is.
        most: ends it, with calls that go on for ever.
    """
    redis = Redis.from_url(URL)
    if WHOLE:
        stride = 1
    times, line = 0, 1 + ("stop", "raise", "raise-own").index(ACTION) % stride
    while line < most:
        faulthandler.dump_traceback_later(patience, exit=True)
        if not attempt(line, redis):
            break
        times += 1
        line += stride if line < every else step
    faulthandler.cancel_dump_traceback_later()
    print(times)
