"""``hashring undrain``: let a drained node own keys again."""

from __future__ import annotations

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.connection import connected
from hashring.cli.order_answers import looked, obeyed, show_drain, show_order_plan
from hashring.cli.order_options import by_option, here, node_argument, plan_option
from hashring.core.safe_text import printable
from hashring.store.ring.node_orders import undrain
from hashring.store.ring.ring_after_orders import undrained_ring


@click.command("undrain")
@node_argument
@by_option
@plan_option
@ring_options()
@click.pass_obj
def command(settings: Settings, node: str, *, by: str | None, planned: bool) -> None:
    """Let a drained node own keys again.

    It joins at the points that it had, with its next heartbeat. A message makes it beat at once.

    With --plan the figures are exact if Redis knows the node's points: if the node has a name of
    its own, and the weight that it had. Otherwise they are an example, the same each time; the
    plan says so.

    \b
    Examples:
      hashring undrain worker-3 --plan
      hashring undrain worker-3 --by alice
    """
    with connected(settings) as connection:
        if planned:
            seen, ring = looked(connection, settings, node)
            note = ""
            if node not in seen.drained:
                why = "is not drained"
                if node in seen.drains:
                    why = "has not obeyed the order yet" if node in ring else "does not run"
                note = f"nothing moves: {printable(node)} {why}"
            after, exact = undrained_ring(seen, ring, node)
            show_order_plan(settings, ring, after, note, exact=exact)
            return
        order = undrain(connection.keys, node=node, by=by or here("undrain"))
        lifted = obeyed(connection, settings, node, connection.order(order))
    name = printable(node)
    text = f"{name} is to be on the ring again" if lifted else f"{name} was not drained"
    show_drain(settings, node, None, text)
