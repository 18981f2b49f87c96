"""Requests that cost much work: each has a limit, and only a few run at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final

from flask import abort

AT_ONCE: Final = 2
"""How many costly requests are in work at once."""
WAITING: Final = 4
"""How many more may wait for their turn. Each keeps a thread, and most threads must stay free."""
LONG: Final = 1000
"""An answer with more rows or partitions than that is costly."""


_RETRY_AFTER: Final = 5  # seconds


class Turns:
    """Lets few costly requests work at once, so that everything else is still answered.

    Each request runs in a thread, and the threads share a processor: two costly requests slow
    down a cheap one to a third, fifty would stop it. They share the memory, too: a page of 10,000
    nodes takes 40 MB while it is made.
    """

    def __init__(self) -> None:
        self._turns = threading.BoundedSemaphore(AT_ONCE)
        self._lock = threading.Lock()
        self._asking = 0

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Within it, the request has its turn.

        Raises:
            HTTPException: with status 503, when too many wait already.
        """
        with self._lock:
            if self._asking >= AT_ONCE + WAITING:
                abort(
                    503,
                    "many costly requests are being answered: try again in some seconds",
                    retry_after=_RETRY_AFTER,
                )
            self._asking += 1
        try:
            with self._turns:
                yield
        finally:
            with self._lock:
                self._asking -= 1

    def turn_if_long(self, size: int) -> AbstractContextManager[None]:
        """The same when so many rows or partitions make the answer long; else nothing to wait for.

        Raises:
            HTTPException: as :meth:`turn`.
        """
        return self.turn() if size > LONG else nullcontext()
