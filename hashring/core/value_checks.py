"""Whether a value that comes from a caller, from JSON or from Redis is a number, a point or a name.

To Python a bool is an int. Nobody who gives one means a number, so none of these takes it for one.
"""

from __future__ import annotations

import math
from typing import Any, Final, TypeGuard

from hashring.core.hashing import RING_SIZE

# A union of types is made anew each time, and a group's step asks this of every member.
_NUMBERS: Final = (int, float)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number; infinity and NaN are."""
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[int | float]:
    """Whether it is a number, and neither infinite nor NaN."""
    return isinstance(value, _NUMBERS) and not isinstance(value, bool) and math.isfinite(value)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number, as an int."""
    return isinstance(value, int) and not isinstance(value, bool)


def checked_count(value: Any) -> int:
    """The value, if it is a whole number from 0 up.

    Raises:
        ValueError: it is none.
    """
    if not is_whole(value) or value < 0:
        raise ValueError(f"{value!r} is no count")
    return value


def checked_point(value: Any) -> int:
    """The value, if it is a point of a ring.

    Raises:
        ValueError: it is none.
    """
    if not is_whole(value) or not 0 <= value < RING_SIZE:
        raise ValueError(f"{value!r} is no point")
    return value


def checked_name(value: Any) -> str:
    """The value, if it is a text of one character or more that has an encoding.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is no name")
    value.encode()  # a lone surrogate from a JSON escape is no name; UnicodeEncodeError
    return value
