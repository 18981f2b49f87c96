"""Raises, or acts, between two lines of the code under test, as a signal handler may."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any


class Interrupt(KeyboardInterrupt):
    """What the signal handler raises."""


def interrupt() -> None:
    """What it does as a rule."""
    raise Interrupt


def raised_into(
    line: int,
    concerns: Callable[[CodeType], bool],
    call: Callable[[], object],
    act: Callable[[], object] = interrupt,
) -> str:
    """Make a call, and raise, or act, before one of its lines.

    Args:
        line: which, counted from 1 over all frames of code that it concerns.

    Returns:
        File and number of that line; empty when the call has fewer.
    """
    left, where = line, ""

    def trace(frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left, where
        if not concerns(frame.f_code):
            return None
        # Python looks for no signal between `try:` and what it guards, nor at the end of `with`.
        text = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and not where and not text.startswith(("try:", "with ")):
            left -= 1
            if left == 0:
                where = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                sys.settrace(None)
                act()
        return trace

    sys.settrace(trace)
    try:
        with suppress(Interrupt):
            call()
    finally:
        sys.settrace(None)
    return where
