"""A log whose handlers cannot end the loop that writes to it, nor keep it from its work."""

from __future__ import annotations

import logging
import sys
import traceback
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from hashring.core.safe_text import printable
from hashring.monkey_patching import original, threads_are_greenlets

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


# Of a thread of the operating system's in a patched program: the hub that its records go to.
_of_thread: Final = original("_thread", "_local")()


def log_home() -> Any:
    """The hub whose greenlets write what the caller's thread logs; ``None``: it writes itself.

    Log handlers have locks, and patched ones are gevent's: two threads that wait for one may both
    wait for ever.
    """
    if not threads_are_greenlets():
        return None
    # A hub that did not run yet is false, as every such greenlet is.
    home = getattr(_of_thread, "hub", None)
    return sys.modules["gevent"].get_hub() if home is None else home


def write_logs_in(home: Any) -> None:
    """Have what the caller's thread logs written in that hub; see :func:`log_home`."""
    _of_thread.hub = home


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
        """Log a message; print what a handler raises, as ``logging`` does.

        Names may be anybody's: signs that reorder a line, or end it, are escaped.
        """
        args = tuple(printable(each) if isinstance(each, str) else each for each in args)
        home = getattr(_of_thread, "hub", None)
        if home is None:
            self._write(level, msg, *args, **{"stacklevel": 3, **kwargs})
            return
        if kwargs.get("exc_info") is True:
            kwargs["exc_info"] = sys.exc_info()
        write = partial(self._write, level, msg, *args, **kwargs)
        # Of a program that ends the hub may be gone.
        with suppress(Exception):
            home.loop.run_callback_threadsafe(sys.modules["gevent"].spawn, write)

    def _write(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        try:
            super().log(level, msg, *args, **kwargs)
        except Exception:  # noqa: BLE001 - whatever the application's code raises
            if logging.raiseExceptions:
                with suppress(Exception):
                    traceback.print_exc()


def is_logging(logger: logging.Logger) -> bool:
    """Whether the caller is inside a handler of the logger's already, or inside ``logging`` itself.

    A signal handler may find itself so. Another thread that logs waits until it has returned.
    """
    at: logging.Logger | None = logger
    while at is not None:
        if any(map(_is_in, at.handlers)):
            return True
        at = at.parent if at.propagate else None
    # That of logging itself is held where loggers are made, and where levels change.
    return _is_in(logging.lastResort) or _owns(getattr(logging, "_lock", None))


def _is_in(handler: logging.Handler | None) -> bool:
    return handler is not None and _owns(handler.lock)


def _owns(lock: Any) -> bool:
    # Those of logging are reentrant, unless a handler's class has a lock of another kind.
    is_owned = getattr(lock, "_is_owned", None)
    return is_owned is not None and bool(is_owned())
