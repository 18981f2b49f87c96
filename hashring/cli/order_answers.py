"""What the commands look up and say that give orders about nodes."""

from __future__ import annotations

from collections.abc import Iterable

import click

from hashring.cli.common_options import Settings
from hashring.cli.connection import Connection
from hashring.cli.local_time import local_second
from hashring.cli.output import document
from hashring.cli.plan_text import show_plan
from hashring.core.ring import Ring
from hashring.core.safe_text import printable
from hashring.errors import UnknownNodeError
from hashring.store.ring.node_orders import DrainOrder, OrderStatus, WeightOrder, order_took_effect
from hashring.store.ring.node_reports import ring_algorithm
from hashring.store.ring.ring_after_orders import known_nodes
from hashring.store.ring.snapshot import Snapshot, snapshot


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
