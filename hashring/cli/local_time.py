"""When something was, as commands print it."""

from __future__ import annotations

from datetime import datetime

from hashring.core.readable_numbers import in_calendar


def local_time(at: float) -> str:
    """Seconds since 1970 as this machine's local time, to the millisecond."""
    return datetime.fromtimestamp(in_calendar(at)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def local_second(at: float) -> str:
    """Seconds since 1970 as this machine's local time, to the second, rounded down."""
    return local_time(at)[:-4]
