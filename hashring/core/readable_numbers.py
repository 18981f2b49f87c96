"""Numbers, durations and lists as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_LAST_DAY: Final = 253_402_214_400.0  # the end of 9999-12-30: the year is 9999 in every time zone


def counted(number: int, thing: str, things: str = "") -> str:
    """``1 node``, ``1,000 nodes``; ``things`` is a plural that is not made by an s."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def listed(things: Sequence[object], most: int) -> str:
    """``a, b, c and 5 more``: the first of many, and how many more there are."""
    more = len(things) - most
    return ", ".join(map(str, things[:most])) + (f" and {more:,} more" if more > 0 else "")


def percent(part: float) -> str:
    """A part of one as ``12.34%``."""
    return f"{100 * part:.2f}%"


def duration(value: float) -> str:
    """Seconds to a tenth, and from ten on in whole units: ``0.4 s``, ``12 s``, ``5 min``."""
    return f"{value:.1f} s" if abs(value) < 9.95 else whole_duration(value)


def whole_duration(value: float) -> str:
    """Seconds in whole units: ``4 s``, ``12 s``, ``5 min``, ``3 h``, ``2 d``."""
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if abs(value) < limit:
            return f"{value / divisor:.0f} {unit}"
    return f"{value / 86_400:.0f} d"


def in_calendar(at: float) -> float:
    """Seconds since 1970, no later than the calendar goes: what is written by hand may be."""
    return min(max(at, 0.0), _LAST_DAY)


def spans(numbers: Sequence[int], most: int | None = None) -> str:
    """Rising numbers as ``0-3, 7, 9-11``; ``-`` for none.

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
