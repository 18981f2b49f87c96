"""Whether a value that comes from a caller, from JSON or from Redis is a number, a point or a name.

To Python a bool is an int. Nobody who gives one means a number, so none of these takes it for one.
"""

from __future__ import annotations

import inspect
import math
from functools import partial
from numbers import Integral, Real
from operator import index
from typing import Any, Final, TypeGuard

from hashring.core.hashing import RING_SIZE
from hashring.errors import ConfigError

MAX_NAME_BYTES: Final = 512
"""A name travels in every replica and every message, so it is kept short."""

LEAST_TTL: Final = 0.1
"""Seconds. Renewals cross the network and wait for the interpreter; a lease must outlast a few."""

TOO_LARGE: Final = 1e15
"""Nodes and members report no number as large. Their readers take one for garbage."""

LEAST_INTERVAL: Final = LEAST_TTL / 10
"""Seconds between two renewals: not even the shortest lease needs more of them."""

# A union of types is made anew each time, and a group's step asks this of every member.
_NUMBERS: Final = (int, float)


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether it is a number; infinity and NaN are."""
    return isinstance(value, _NUMBERS) and not isinstance(value, bool)


def is_finite(value: object) -> TypeGuard[int | float]:
    """Whether it is a number that a float can hold, and neither infinite nor NaN."""
    if not isinstance(value, _NUMBERS) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def is_coroutine_function(value: Any) -> bool:
    """Whether a call of it only makes a coroutine, so that nothing runs until that is awaited."""
    while isinstance(value, partial):
        value = value.func
    if not callable(value):
        return False
    return any(map(inspect.iscoroutinefunction, (value, type(value).__call__)))


def is_whole(value: object) -> TypeGuard[int]:
    """Whether it is a whole number, as an int."""
    return isinstance(value, int) and not isinstance(value, bool)


def plain_number(value: object) -> int | float | None:
    """The value as an int or a float of Python's own; ``None`` unless it is a finite number.

    numpy's numbers are numbers, too. But their ``repr()``, which clients send to Redis, is no
    number, and comparing them gives values that JSON does not know.
    """
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    try:
        number = index(value) if isinstance(value, Integral) else float(value)
        return number if math.isfinite(number) else None
    except OverflowError:
        return None


def plain_whole(value: object) -> int | None:
    """The value as an int of Python's own; ``None`` unless it is a whole number."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        return None
    return index(value)


def checked_whole(setting: str, value: object) -> int:
    """The value as an int of Python's own.

    Raises:
        ConfigError: it is no whole number, or of more than 64 bits.
    """
    whole = plain_whole(value)
    if whole is None:
        raise ConfigError(setting, value, "must be a whole number")
    if not -(2**63) <= whole < 2**63:
        # Python writes none of more than 4,300 digits, and others read it as a float.
        raise ConfigError(setting, value, "must be a whole number of 64 bits")
    return whole


def checked_seconds(name: str, value: float, *, may_be_0: bool = False) -> float:
    """A time span, as a number of Python's own.

    Raises:
        ConfigError: it is no finite number, or not above 0; with ``may_be_0`` below 0.
    """
    seconds = plain_number(value)
    if seconds is None or seconds < 0 or (seconds == 0 and not may_be_0):
        range_ = ", 0 or more" if may_be_0 else " above 0"
        raise ConfigError(name, value, f"must be a finite number of seconds{range_}")
    return seconds


def checked_ttl(value: float) -> float:
    """How long a lease may last; see :data:`LEAST_TTL`.

    Raises:
        ConfigError: it is no finite number, or so small that no member could keep its lease.
    """
    return check_least_ttl("ttl", checked_seconds("ttl", value))


def check_least_ttl(setting: str, ttl: float) -> float:
    """The ttl itself, when whoever has it can renew in time; see :data:`LEAST_TTL`.

    Raises:
        ConfigError: it is too short.
    """
    if ttl < LEAST_TTL:
        raise ConfigError(
            setting,
            ttl,
            f"must be at least {LEAST_TTL:g} s: a shorter lease ends while its renewal is on the "
            f"way",
        )
    return ttl


def check_least_interval(interval: float) -> float:
    """The heartbeat interval itself, when it leaves time between two renewals.

    Raises:
        ConfigError: it is shorter than :data:`LEAST_INTERVAL`.
    """
    if interval < LEAST_INTERVAL:
        raise ConfigError(
            "heartbeat_interval",
            interval,
            f"must be at least {LEAST_INTERVAL:g} s: shorter ones only keep Redis busy",
        )
    return interval


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


def check_node_name(name: str) -> str:
    """The name, when a node may have it; of a subclass of ``str``, such as an enum, its text.

    Raises:
        ConfigError: it is not text, empty, too long, not encodable as UTF-8, or holds a control
            character (which would garble every table and log line that shows it).
    """
    return _checked_text("name", name, "a node's name is a non-empty str")


def check_member_name(name: str) -> str:
    """The name, when a member of a group may have it; its text, as for a node's name.

    Raises:
        ConfigError: as :func:`check_node_name`.
    """
    return _checked_text("member", name, "a member's name is a non-empty str; leave it out")


def check_zone(zone: str) -> str:
    """The zone, when a node may report it; its text, as for a name.

    Raises:
        ConfigError: as :func:`check_node_name`.
    """
    return _checked_text("zone", zone, "a zone is a non-empty str, as in 'eu-1a'; leave it out")


def _checked_text(setting: str, text: str, remedy: str) -> str:
    if not isinstance(text, str) or not text:
        raise ConfigError(setting, text, remedy)
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise ConfigError(setting, text, "cannot be encoded as UTF-8") from None
    if len(encoded) > MAX_NAME_BYTES:
        raise ConfigError(
            setting,
            text[:40] + "…",
            f"{len(encoded)} bytes long; at most {MAX_NAME_BYTES} are allowed",
        )
    if any(ord(character) < 32 or ord(character) == 127 for character in text):
        raise ConfigError(setting, text, "holds a control character; use printable text")
    # Formatted, an enum of texts has another text than encoded.
    return encoded.decode()


def check_wire(wire: str | None) -> None:
    """Raise ``ConfigError`` unless it is ``None`` or ``"redis-hashring"``."""
    if wire not in (None, "redis-hashring"):
        raise ConfigError("wire", wire, "unknown; leave it out, or say 'redis-hashring'")
