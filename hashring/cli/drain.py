"""``hashring drain``: let a node run and own nothing."""

from __future__ import annotations

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.connection import connected
from hashring.cli.local_time import local_second
from hashring.cli.order_answers import looked, obeyed, show_drain, show_order_plan
from hashring.cli.order_options import (
    by_option,
    here,
    lasting_option,
    node_argument,
    plan_option,
    span,
)
from hashring.core.order_checks import checked_lasting
from hashring.core.safe_text import printable
from hashring.store.ring.node_orders import drain
from hashring.store.ring.ring_after_orders import drained_ring


@click.command("drain")
@node_argument
@lasting_option
@click.option("--force", is_flag=True, help="Also if no other node is left to take over.")
@by_option
@plan_option
@ring_options()
@click.pass_obj
def command(
    settings: Settings,
    node: str,
    *,
    lasting: str | None,
    force: bool,
    by: str | None,
    planned: bool,
) -> None:
    """Let a node run on and own nothing.

    Its keys go to the other nodes at once; with locks, each key once its holder has let go of it.
    The order stands until hashring undrain lifts it or its time is up. A node with a name of its
    own stays drained over restarts.

    \b
    Examples:
      hashring drain worker-3 --plan
      hashring drain worker-3 --for 2h --by alice
    """
    seconds = None if lasting is None else checked_lasting(span(lasting), "for")
    with connected(settings) as connection:
        given = drain(
            connection.keys,
            node=node,
            by=by or here("drain"),
            seconds=seconds,
            force=force,
            lag=settings.scoring.lag,
        )
        if planned:
            seen, ring = looked(connection, settings, node)
            after, note = drained_ring(seen, ring, node), ""
            if not after.node_count and ring.node_count:
                note = f"nobody would own anything: no node but {printable(node)} is left"
            elif node not in ring:
                note = f"nothing moves: {printable(node)} is not on the ring"
            show_order_plan(settings, ring, after, note)
            return
        obeyed(connection, settings, node, connection.order(given))
        order = connection.snapshot().drains.get(node)
    text = f"{printable(node)} is to drain"
    if order is not None and order.until is not None:
        text += f" until {local_second(order.until)}"
    show_drain(settings, node, order, text)
