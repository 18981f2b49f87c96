"""What the commands share that give orders about nodes and members."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable
from typing import Final

import click

from hashring.cli.common_options import Settings
from hashring.cli.connection import Connection
from hashring.cli.local_time import local_second
from hashring.cli.output import document
from hashring.cli.plan_text import show_plan
from hashring.core.order_checks import checked_by
from hashring.core.ring import Ring
from hashring.core.safe_text import printable
from hashring.errors import ConfigError, UnknownNodeError
from hashring.store.ring.node_orders import DrainOrder, OrderStatus, WeightOrder, order_took_effect
from hashring.store.ring.node_reports import ring_algorithm
from hashring.store.ring.ring_after_orders import known_nodes
from hashring.store.ring.snapshot import Snapshot, snapshot

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
    return f"hashring {command} on {socket.gethostname()}:{os.getpid()}"


def drain_line(node: str, order: DrainOrder) -> str:
    """An order to drain for people, on one line; printable."""
    since = local_second(order.since)
    until = "" if order.until is None else f", until {local_second(order.until)}"
    return printable(f"{node}: drained since {since} by {order.by}{until}")


def weight_line(node: str, order: WeightOrder) -> str:
    """An order about a node's weight for people, on one line; printable."""
    since = local_second(order.since)
    return printable(f"{node}: weight {order.weight:g} since {since} by {order.by}")


def looked(connection: Connection, settings: Settings, node: str) -> tuple[Snapshot, Ring]:
    """What stands about a node that an order may be about, and the ring as it is.

    Raises:
        UnknownNodeError: there is no such node, and none of that name was there within a day.
    """
    look = snapshot(connection.keys, scoring=settings.scoring, remembered=node)
    seen = connection.run(look)
    known = known_nodes(seen)
    if node not in known and not seen.remembered:
        raise UnknownNodeError(node, settings.ring, known)
    return seen, seen.ring(ring_algorithm(seen, wire=settings.wire))


def show_order_plan(
    settings: Settings, ring: Ring, after: Ring, note: str = "", *, exact: bool | None = None
) -> None:
    """Write what an order would do.

    Args:
        note: what to say to people instead of the plan.
        exact: see :func:`hashring.core.ring_plan.ring_plan`.
    """
    if note and not settings.json:
        click.echo(note)
    else:
        show_plan(settings, ring, after, exact=exact)


def obeyed(connection: Connection, settings: Settings, node: str, status: OrderStatus) -> bool:
    """Whether an order changed anything.

    Raises:
        UnknownNodeError, ConfigError: see :func:`order_took_effect`.
    """
    names: Iterable[str] = ()
    if status is OrderStatus.UNKNOWN:
        names = known_nodes(connection.snapshot())
    return order_took_effect(status, node, settings.ring, names)


def show_drain(settings: Settings, node: str, order: DrainOrder | None, text: str) -> None:
    """Write what stands about a node after an order."""
    if settings.json:
        drain = None if order is None else order.as_dict()
        document({"ring": settings.ring, "node": node, "drain": drain})
    else:
        click.echo(f"{printable(settings.ring)}: {text}")
