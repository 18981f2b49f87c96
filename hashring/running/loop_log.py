"""A log whose handlers cannot end the loop that writes to it."""

from __future__ import annotations

import logging
import traceback
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


class LoopLog(_Adapter):
    """Writes to a log, and lets nothing out that the application's handlers and filters raise.

    ``logging`` leaves that to each handler. One that sends records over a network may raise
    while the network is down, which is when Redis does not answer either.

    Args:
        name: the log's.
    """

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger(name), {})

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message; print what a handler raises, as ``logging`` does."""
        try:
            super().log(level, msg, *args, **{"stacklevel": 2, **kwargs})
        except Exception:  # noqa: BLE001 - whatever the application's code raises
            if logging.raiseExceptions:
                with suppress(Exception):
                    traceback.print_exc()
