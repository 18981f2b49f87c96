"""Numbers and durations as people read them."""

from __future__ import annotations


def counted(number: int, thing: str) -> str:
    """``1 node``, ``2 nodes``, ``1,000 nodes``."""
    return f"{number:,} {thing}" + ("" if number == 1 else "s")


def duration(value: float) -> str:
    """Seconds to a tenth, and from ten on in whole units: ``0.4 s``, ``12 s``, ``5 min``."""
    return f"{value:.1f} s" if abs(value) < 9.95 else whole_duration(value)


def whole_duration(value: float) -> str:
    """Seconds in whole units: ``4 s``, ``12 s``, ``5 min``, ``3 h``, ``2 d``."""
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if abs(value) < limit:
            return f"{value / divisor:.0f} {unit}"
    return f"{value / 86_400:.0f} d"
