"""What a command does when a signal asks it to end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def sigterm_unwinds() -> Iterator[None]:
    """Within it, SIGTERM ends the command as Ctrl-C would: through what is to be put in order."""

    def leave(*_: Any) -> None:
        sys.exit(128 + signal.SIGTERM)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Terminated(KeyboardInterrupt):
    """SIGTERM, for code that puts things in order after Ctrl-C and after no other exception."""


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """As :func:`sigterm_unwinds`, by a :class:`KeyboardInterrupt` up to its own end.

    After any other exception Py4J keeps the connection on which Java still computes the answer,
    and each further question, such as to cancel the job, waits for that answer.
    """

    def interrupt(*_: Any) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except Terminated:
        sys.exit(128 + signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def held_back() -> Iterator[None]:
    """Within it, Ctrl-C and SIGTERM wait; they take effect at its end."""
    came: list[int] = []

    def note(number: int, _: Any) -> None:
        came.append(number)

    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        for number in came[:1]:
            signal.raise_signal(number)
