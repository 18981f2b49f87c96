"""Options and arguments of the commands that give orders about nodes and members."""

from __future__ import annotations

import os
import re
from typing import Final

import click

from hashring.core.order_checks import checked_by
from hashring.errors import ConfigError
from hashring.running.host_name import host_name

_SPAN: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}

by_option = click.option(
    "--by",
    metavar="WHO",
    callback=lambda context, option, name: name if name is None else checked_by(name),
    help="Who orders it, for the history; this host and process by default.",
)
lasting_option = click.option(
    "--for", "lasting", metavar="TIME", help="End by itself after 90s, 30m, 2h or 1d."
)


def _encodable(context: click.Context, parameter: click.Parameter, node: str) -> str:
    try:
        node.encode()
    except UnicodeEncodeError:
        raise ConfigError("node", node, "cannot be encoded as UTF-8") from None
    return node


node_argument = click.argument("node", callback=_encodable)
"""The node that an order is about. It may have a name that no node of this package can have."""


def _weight_or_own(context: click.Context, parameter: click.Parameter, text: str) -> float | None:
    try:
        return None if text == "own" else float(text)
    except ValueError:
        raise ConfigError("weight", text, "give a number above 0, or own") from None


weight_argument = click.argument("weight", metavar="WEIGHT|own", callback=_weight_or_own)
"""The weight that an order gives; ``None`` for its own."""

WITH_A_WEIGHT: Final = {"ignore_unknown_options": True}
"""The context settings of a command with a weight: -1 is a wrong weight, and no option."""

plan_option = click.option(
    "--plan", "planned", is_flag=True, help="Show what would move, and change nothing."
)


def span(text: str, option: str = "for") -> float:
    """The seconds of a time such as ``90``, ``90s``, ``30m``, ``2h`` or ``1d``.

    Raises:
        ConfigError: it is none; the error names the option.
    """
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        raise ConfigError(option, text, "give a time such as 90s, 30m, 2h or 1d")
    return float(match[1]) * _UNITS[match[2]]


def here(command: str) -> str:
    """Who gives an order, unless the user says: the command on this host, in this process."""
    return f"hashring {command} on {host_name()}:{os.getpid()}"
