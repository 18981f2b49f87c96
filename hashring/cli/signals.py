"""What a command does when a signal asks it to end."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from hashring.held_signals import TERMINATIONS, handled


def _hear_once(number: int) -> None:
    # Of one end of a terminal both the shell and the kernel tell: no reason to leave half way
    # what is being put in order.
    if number == signal.SIGHUP:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)


@contextmanager
def termination_unwinds() -> Iterator[None]:
    """Within it, SIGTERM and SIGHUP end the command as Ctrl-C would.

    So it passes through what is to be put in order.
    """

    def leave(number: int, _: Any) -> None:
        _hear_once(number)
        sys.exit(128 + number)

    with handled(TERMINATIONS, leave):
        yield


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP, for code that puts things in order after Ctrl-C and nothing else.

    Attributes:
        number: the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def termination_interrupts() -> Iterator[None]:
    """As :func:`termination_unwinds`, by a :class:`KeyboardInterrupt` up to its own end.

    After any other exception Py4J keeps the connection on which Java still computes the answer,
    and each further question, such as to cancel the job, waits for that answer.
    """

    def interrupt(number: int, _: Any) -> None:
        _hear_once(number)
        raise Terminated(number)

    try:
        with handled(TERMINATIONS, interrupt):
            yield
    except Terminated as ended:
        sys.exit(128 + ended.number)


@contextmanager
def around_a_stop(leave: Callable[[], None], enter: Callable[[], None]) -> Iterator[None]:
    """Within it, Ctrl-Z calls ``leave``, stops the command, and calls ``enter`` when it goes on.

    The signal may come between any two lines: :func:`hashring.held_signals.held_back` keeps it from
    those that must not be interrupted by these calls.
    """

    def stop(number: int, _: Any) -> None:
        leave()
        # The default is to stop, here, until the shell lets the command go on.
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)
        signal.signal(number, stop)
        enter()

    with handled((signal.SIGTSTP,), stop):
        yield
