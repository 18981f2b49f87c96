"""``hashring weight``: give a node another weight while it runs."""

from __future__ import annotations

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.connection import connected
from hashring.cli.order_answers import looked, show_order_plan
from hashring.cli.order_options import (
    WITH_A_WEIGHT,
    by_option,
    here,
    node_argument,
    plan_option,
    weight_argument,
)
from hashring.cli.output import document
from hashring.core.order_checks import checked_ordered_weight
from hashring.core.safe_text import printable
from hashring.errors import UnknownNodeError
from hashring.store.ring.node_orders import weigh
from hashring.store.ring.ring_after_orders import known_nodes, weighed_ring


@click.command("weight", context_settings=WITH_A_WEIGHT)
@node_argument
@weight_argument
@by_option
@plan_option
@ring_options()
@click.pass_obj
def command(
    settings: Settings, node: str, weight: float | None, *, by: str | None, planned: bool
) -> None:
    """Give a node another weight while it runs.

    A node of weight 2 has twice the points of an ordinary one, and about twice the share. It adds
    points to its own, or gives some of them up, in one change. The order stands until another one,
    or until the node's own code assigns node.weight. A node with a name of its own keeps it over
    restarts. With own, the weight counts again that its own code gave it.

    With --plan the figures are exact for a node that gives points up. Points that a node adds are
    an example, the same each time; the plan says so.

    \b
    Examples:
      hashring weight worker-3 2 --plan
      hashring weight worker-3 0.5 --by alice
      hashring weight worker-3 own
    """
    value = None if weight is None else checked_ordered_weight(weight)
    with connected(settings) as connection:
        if planned:
            seen, ring = looked(connection, settings, node)
            after = weighed_ring(seen, ring, {node: value})
            note = "" if node in ring else f"nothing moves: {printable(node)} is not on the ring"
            show_order_plan(settings, ring, after, note)
            return
        reply = connection.order(
            weigh(connection.keys, weights={node: value}, by=by or here("weight"))
        )
        seen = connection.snapshot()
        if reply.unknown is not None:
            raise UnknownNodeError(node, settings.ring, known_nodes(seen))
    if settings.json:
        order = seen.weights.get(node)
        told = None if order is None else order.as_dict()
        document({"ring": settings.ring, "node": node, "weight": told})
        return
    what = "its own weight" if value is None else f"weight {value:g}"
    state = "is to have" if reply.changed else "has"
    click.echo(f"{printable(settings.ring)}: {printable(node)} {state} {what}")
