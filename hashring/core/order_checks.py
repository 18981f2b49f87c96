"""What orders about nodes and members may say: who gives one, for how long, and which weight."""

from __future__ import annotations

from typing import Any, Final

from hashring.core.value_checks import check_node_name, is_number, plain_number
from hashring.errors import ConfigError

LONGEST: Final = 1e9
"""Seconds for which a drain may be ordered at most; without an end it lasts longer."""

GREATEST_WEIGHT: Final = 1000.0
"""The greatest weight that a ring's node may have by order; see also
:data:`hashring.core.point_placement.MAX_POINTS`."""

LONGEST_NAME: Final = 100
"""How many characters the name of a person who gives an order may have."""

SHORTEST_TOKEN: Final = 16
"""Characters that the token of those who may act has at least."""


def checked_lasting(seconds: Any, setting: str = "seconds") -> float | None:
    """For how many seconds an order stands; ``None`` is without an end.

    Args:
        setting: what the caller's user knows the argument by.

    Raises:
        ConfigError: it may not stand for so long.
    """
    if seconds is None:
        return None
    plain = plain_number(seconds)
    if plain is None or not 0 < plain <= LONGEST:
        raise ConfigError(
            setting, seconds, f"give a positive number of seconds, {LONGEST:.0f} at most"
        )
    return plain


def checked_ordered_weight(weight: Any) -> float:
    """The weight itself, when a node may have it by order.

    Raises:
        ConfigError: it may not.
    """
    if not is_number(weight) or not 0 < weight <= GREATEST_WEIGHT:
        raise ConfigError(
            "weight",
            weight,
            f"give a number above 0, {GREATEST_WEIGHT:.0f} at most; 1 is an ordinary node, and "
            "hashring drain lets a node own nothing",
        )
    return float(weight)


def checked_by(name: str) -> str:
    """Who gives an order, as the history will have it: the name without spaces around it.

    Raises:
        ConfigError: it is empty, too long, or holds a control character.
    """
    if len(name) > LONGEST_NAME:
        raise ConfigError("by", f"{name[:40]}…", f"give {LONGEST_NAME} characters at most")
    try:
        return check_node_name(name.strip())
    except ConfigError:
        raise ConfigError("by", name, "give your name: the history shows who acted") from None


def checked_token(token: str, setting: str = "token") -> str:
    """The token of those who may act, without the white space around it.

    A secret that a file or ``echo`` made often ends with a line feed, which no header can carry.

    Raises:
        ConfigError: it is too short, or no HTTP header can carry it. The error does not show it.
    """
    bare = token.strip()
    hidden = "*" * len(bare)
    if len(bare) < SHORTEST_TOKEN:
        raise ConfigError(
            setting, hidden, f"actions need a token of {SHORTEST_TOKEN} characters or more"
        )
    if not (bare.isascii() and bare.isprintable()):
        raise ConfigError(setting, hidden, "make a token of printable ASCII characters alone")
    return bare
