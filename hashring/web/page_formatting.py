"""How values are written on a page."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final

from hashring.core import readable
from hashring.core.printable import printable

LONGEST: Final = 300
"""Characters of a text that anybody may have written; more are cut."""


def shown(text: object) -> str:
    """A name or a key for a page: printable, and of bounded length. HTML is escaped elsewhere."""
    value = printable(str(text))
    if value and not value.strip():
        return repr(value)  # of spaces alone nothing would be seen
    return value if len(value) <= LONGEST else value[:LONGEST] + "…"


def field(value: str) -> str:
    """A text for a form's field: whole, but for NUL, which no page can hold."""
    return value.replace("\0", "\ufffd")


def duration(value: float) -> str:
    """Seconds from or until now: ``0.4 s``, ``12 s``, ``5 min``, ``3 h``, ``2 d``."""
    return readable.duration(abs(value))


def clock(at: float, now: float) -> str:
    """A time of day, UTC; with the date when that is not the day of now."""
    return _utc(at).strftime("%H:%M:%S") if _utc(at).date() == _utc(now).date() else day(at)


def day(at: float) -> str:
    """Date and time, UTC."""
    return _utc(at).strftime("%Y-%m-%d %H:%M:%S")


def iso(at: float) -> str:
    """For the ``datetime`` of a ``time`` element."""
    return _utc(at).isoformat(timespec="milliseconds")


def _utc(at: float) -> datetime:
    # A score written by hand may be beyond every calendar.
    return datetime.fromtimestamp(min(max(at, 0.0), 253_402_300_799.0), timezone.utc)


def percent(part: float) -> str:
    """A part of one as ``12.34%``."""
    return f"{100 * part:.2f}%"


def ratio(value: float | None) -> str:
    """``1.42``."""
    return "-" if value is None else f"{value:.2f}"


def spans(numbers: Sequence[int], most: int | None = None) -> str:
    """Rising numbers as ``0-3, 7, 9-11``.

    Args:
        most: how many ranges are written; of more, the end says how many numbers are left out.
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    written = [str(a) if a == b else f"{a}-{b}" for a, b in parts[:most]]
    left = len(numbers) - sum(b - a + 1 for a, b in parts[:most])
    return ", ".join(written) + (f" and {left:,} more" if left else "") or "-"
