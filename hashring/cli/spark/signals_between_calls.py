"""Signals that come while a call to a Spark Connect server is under way.

The client waits under locks of gRPC's and of ``concurrent.futures``. An error that a handler
raises there may leave one of them locked, and then the next call waits for ever. So a signal takes
effect when the call is over. The server is asked to end the call; a second signal, or a server that
does not answer, ends the waiting. A signal also ends the attempts to reach a server that is gone.
"""

from __future__ import annotations

import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from hashring.held_signals import TERMINATIONS, handled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NUMBERS: Final = (signal.SIGINT, *TERMINATIONS)
_LOOK: Final = signal.SIGURG
"""What the main thread gets from another to look again. Without a handler it does nothing."""
_EVERY: Final = 0.02  # seconds
_BY_ITSELF: Final = 1.5
"""Seconds for which a call may go on before the server is asked to end it."""
_AT_MOST: Final = 10.0
"""Seconds after which a signal takes effect, even in a call."""


@contextmanager
def signals_between_calls(spark: SparkSession) -> Iterator[Callable[[], None]]:
    """Within it, Ctrl-C, SIGTERM and SIGHUP do what they did before, between calls to a server.

    Args:
        spark: a session of Spark Connect. A signal interrupts what this thread runs in it.

    After it, and after a signal, the client of the session does not ask again what failed.

    Yields:
        Lets in a signal that waits, for what makes one short call after the other.
    """
    waiting = _Waiting(spark)
    with waiting.over(), handled(_NUMBERS, waiting.came), handled((_LOOK,), waiting.look):
        yield waiting.let_in


class _Waiting:
    """A signal that waits for the end of a call, if any does."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._tag = f"hashring-{uuid.uuid4().hex}"  # others may use the session, too
        self._handlers = {each: signal.getsignal(each) for each in _NUMBERS}
        self._number: int | None = None
        self._since = 0.0
        # A handler may put into this at any line, but must not start a thread.
        self._woken: SimpleQueue[bool] = SimpleQueue()
        self._main = threading.main_thread().ident
        threading.Thread(target=self._remind, name="hashring signals", daemon=True).start()

    @contextmanager
    def over(self) -> Iterator[None]:
        """At its end, a signal that still waits takes effect."""
        from hashring.spark.engine.interruptible import interrupts_kept  # noqa: PLC0415 - optional

        self._spark.addTag(self._tag)
        try:
            with interrupts_kept():
                yield
        finally:
            self._ask_once()
            self._spark.removeTag(self._tag)
            number, self._number = self._number, None
            self._woken.put(False)
            if number is not None:
                signal.raise_signal(number)

    def came(self, number: int, frame: FrameType | None) -> None:
        """The handler: wait if a call is under way, and no other signal waits."""
        if self._number is None and _in_call(frame):
            self._number, self._since = number, time.monotonic()
            self._woken.put(True)
        else:
            self._handle(number, frame)

    def look(self, _: int, frame: FrameType | None) -> None:
        """The handler of what reminds of the one that waits."""
        if time.monotonic() - self._since > _AT_MOST or not _in_call(frame):
            self.let_in(frame)

    def let_in(self, frame: FrameType | None = None) -> None:
        """Handle the signal that waits, if one does."""
        if self._number is not None:
            self._handle(self._number, frame)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._number = None
        self._ask_once()
        handler = self._handlers[signal.Signals(number)]
        assert callable(handler)  # else `handled` would have left it in its place
        handler(number, frame)

    def _ask_once(self) -> None:
        """Let the client give up at once if the server is gone.

        It would go on to try for ten minutes to release what the server holds of the last call, and
        Python waits for that at its end.
        """
        client: Any = self._spark.client
        for policy in client.get_retry_policies():
            policy.max_retries = 0

    def _remind(self) -> None:
        while self._woken.get():
            asked = False
            while self._number is not None:
                time.sleep(_EVERY)
                if not asked and time.monotonic() - self._since > _BY_ITSELF:
                    asked = True
                    threading.Thread(target=self._ask, daemon=True).start()
                if self._main is not None:
                    signal.pthread_kill(self._main, _LOOK)

    def _ask(self) -> None:
        with suppress(Exception):  # whatever is wrong with the server
            self._spark.interruptTag(self._tag)


def _in_call(frame: FrameType | None) -> bool:
    while frame is not None:
        name: Any = frame.f_globals.get("__name__", "")
        if name.startswith(("grpc.", "concurrent.futures.")):
            return True
        frame = frame.f_back
    return False
