"""Standard input, output and error of a command, which may be closed, or on a full disk."""

from __future__ import annotations

import errno
import io
import os
import select
import sys
import time
from contextlib import suppress
from typing import Any, Final

NO_ROOM: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
"""The errors of a standard output that takes no more."""

_NOT_TAKEN: Final = NO_ROOM | {errno.EPIPE}
_LONGEST_POLL: Final = 86_400.0  # seconds; poll takes 24 days at most


def prepare_streams() -> None:
    """Make the standard streams such that what becomes of them can be told, or need not be."""
    _replace_closed_streams()
    _wait_for_input()
    _buffer_output()
    _guard_errors()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A node's name that the terminal's encoding lacks is no reason to die.
            stream.reconfigure(errors="backslashreplace")


def _replace_closed_streams() -> None:
    """Let a standard stream that was closed before the start (``>&-``) be an empty one."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


class _WaitingFile(io.FileIO):
    """A standard stream that is waited for, also if another program has set it not to wait.

    Python takes such an input that has nothing yet for one that has ended.
    """

    def readinto(self, buffer: Any) -> int:
        while (count := super().readinto(buffer)) is None:
            self._wait(select.POLLIN)
        return count

    def write(self, data: Any) -> int:
        while (count := super().write(data)) is None:
            self._wait(select.POLLOUT)
        return count

    def _wait(self, event: int) -> None:
        ready = select.poll()
        ready.register(self, event)
        ready.poll()


def _wait_for_input() -> None:
    stream = sys.stdin
    if stream is sys.__stdin__ and isinstance(stream, io.TextIOWrapper):
        whole = io.BufferedReader(_WaitingFile(stream.fileno(), closefd=False))
        sys.stdin = io.TextIOWrapper(whole, stream.encoding, stream.errors)


def _buffer_output() -> None:
    """Buffer standard output also with ``PYTHONUNBUFFERED``: commands flush it themselves.

    Without a buffer, Python takes a write that a full disk or a reader's end cut short for a whole
    one.
    """
    stream = sys.stdout
    if stream is sys.__stdout__ and isinstance(stream, io.TextIOWrapper):
        stream.flush()
        whole = io.BufferedWriter(_WaitingFile(stream.fileno(), "w", closefd=False))
        sys.stdout = io.TextIOWrapper(whole, stream.encoding, write_through=True)


class _Errors(io.FileIO):
    """Standard error. What it does not take is dropped.

    It has no buffer: Ctrl-C just after a line was written would leave the line in it, to be written
    once more at the end.
    """

    def write(self, data: Any) -> int:
        written = 0
        try:
            # None: a full pipe that must not be waited for.
            while written < len(data) and (part := super().write(data[written:])) is not None:
                written += part
        except OSError as error:
            if error.errno not in _NOT_TAKEN:
                raise
        return len(data)


def _guard_errors() -> None:
    """Let a command do its work, and end with its status, if nobody can be told of it.

    A log on a full disk must not keep anybody from taking a node off the ring.
    """
    stream = sys.stderr
    if stream is sys.__stderr__ and isinstance(stream, io.TextIOWrapper):
        stream.flush()
        whole = _Errors(stream.fileno(), "w", closefd=False)
        sys.stderr = io.TextIOWrapper(whole, stream.encoding, write_through=True)


def discard_output() -> None:
    """Let what is left to write to standard output go nowhere."""
    # Python flushes once more at its exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def pause(seconds: float) -> None:
    """Sleep for as long as somebody can read standard output.

    Raises:
        BrokenPipeError: its reader has gone. The next write, which may be hours away, would fail.
    """
    output = select.poll()
    with suppress(OSError):  # in place of a file there may be an object without one
        output.register(sys.stdout.fileno(), 0)
    deadline = time.monotonic() + seconds
    while True:
        left = max(0.0, deadline - time.monotonic())
        if output.poll(min(left, _LONGEST_POLL) * 1000):
            raise BrokenPipeError
        if left <= _LONGEST_POLL:
            return
