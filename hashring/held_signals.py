"""Signals that ask a program to end, and wait while it does what must not be left half way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

TERMINATIONS: Final = (signal.SIGTERM, signal.SIGHUP)
"""SIGHUP says that the terminal is gone."""


@contextmanager
def handled(numbers: tuple[int, ...], handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Within it, these signals call the handler, except those that are ignored, as by nohup.

    Handlers are called in the main thread alone. In another thread this does nothing.
    """
    is_main = threading.current_thread() is threading.main_thread()
    before = {each: signal.getsignal(each) for each in numbers if is_main}
    # None is a handler that is not Python's, and could not be set again.
    mine = {each: old for each, old in before.items() if old not in (signal.SIG_IGN, None)}

    def put_back() -> None:
        # Ctrl-C last: its handler raises, and people press it twice.
        for each in sorted(mine, key=lambda number: number == signal.SIGINT):
            # A handler may have chosen to ignore what comes again.
            if signal.getsignal(each) is handler:
                signal.signal(each, mine[each])

    try:
        for each in mine:
            signal.signal(each, handler)
        yield
    finally:
        try:
            put_back()
        finally:
            # A signal whose handler is back already, and raises, may have come in between.
            put_back()


@contextmanager
def held_back(*more: int) -> Iterator[Callable[[], None]]:
    """Within it, Ctrl-C, SIGTERM, SIGHUP and ``more`` wait; they take effect at its end.

    Yields:
        Calls the program's own handlers of what has come, where the block may be interrupted. A
        signal that has none, and kills the process, waits for the end.
    """
    numbers = (signal.SIGINT, *TERMINATIONS, *more)
    handlers = {each: signal.getsignal(each) for each in numbers}
    came: dict[int, None] = {}

    def note(number: int, _: Any) -> None:
        came[number] = None

    def let_in() -> None:
        for number in list(came):
            handler = handlers[number]
            if callable(handler):
                del came[number]
                handler(number, None)

    try:
        with handled(numbers, note):
            yield let_in
    finally:
        # The handler of one may raise: the others take effect as well.
        with ExitStack() as signals:
            for number in reversed(came):
                signals.callback(signal.raise_signal, number)
