"""``hashring nodes``: who is on the ring."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.connection import connected
from hashring.cli.local_time import local_second
from hashring.cli.order_answers import drain_line, weight_line
from hashring.cli.output import columns, document, seconds
from hashring.cli.rings_on_server import rings_instead
from hashring.core.readable_numbers import counted, percent
from hashring.core.safe_text import printable
from hashring.store.ring.node_reports import NodeFacts, live_nodes_of_zones, node_facts

HEADER = ("Share", "Replicas", "Heartbeat", "Expires", "Sees", "Since", "Node")


def node_line(facts: NodeFacts) -> tuple[str, ...]:
    """The node as cells below :data:`HEADER`."""
    return (
        "drained" if facts.drained else percent(facts.share),
        str(facts.replicas),
        "away" if facts.away else f"{seconds(facts.delay)} ago",
        "EXPIRED" if facts.expired else f"in {seconds(facts.expires_in)}",
        facts.sees.value,
        local_second(facts.started) if facts.started else "-",
        printable(facts.name),
    )


def zone_line(zones: Counter[str], nodes: Sequence[NodeFacts]) -> str:
    """How many live nodes each zone has."""
    parts = [
        f"{printable(zone)}: {counted(number, 'node')}" for zone, number in sorted(zones.items())
    ]
    if without := sum(facts.live for facts in nodes) - zones.total():
        parts.append(f"no zone: {counted(without, 'node')}")
    return "; ".join(parts)


@click.command("nodes")
@ring_options()
@click.pass_obj
def command(settings: Settings) -> None:
    """List the nodes and how they are.

    Sees says which ring a node saw at its last heartbeat: current, older (it has sent no heartbeat
    since the last change, or missed it), another (hashring doctor says why), or - (not reported).
    A node that stopped to come back is away; other nodes take over when it expires. Below the table
    are the orders to drain nodes, or to give them another weight.

    \b
    Examples:
      hashring nodes
      hashring nodes --json | jq -r '.nodes[].name'
    """
    with connected(settings) as connection:
        snapshot = connection.snapshot()
        instead = "" if settings.json else rings_instead(connection, snapshot)
    nodes = node_facts(snapshot, settings.scoring)
    zones = live_nodes_of_zones(nodes)
    drains = snapshot.standing_drains
    if settings.json:
        document(
            {
                "ring": settings.ring,
                "nodes": [facts.as_dict() for facts in nodes],
                "zones": dict(sorted(zones.items())),
                "drains": {name: order.as_dict() for name, order in sorted(drains.items())},
                "weights": {n: order.as_dict() for n, order in sorted(snapshot.weights.items())},
            }
        )
    elif not (nodes or drains or snapshot.weights):
        click.echo("; ".join(filter(None, (f"no nodes on ring {settings.ring!r}", instead))))
    else:
        zoned = any(facts.zone for facts in nodes)
        loads = any(facts.load is not None for facts in nodes)
        header = (*(("Zone",) if zoned else ()), *(("Load",) if loads else ()), *HEADER)
        rows = [
            (
                *((printable(facts.zone or "-"),) if zoned else ()),
                *(("-" if facts.load is None else f"{facts.load:.3g}",) if loads else ()),
                *node_line(facts),
            )
            for facts in nodes
        ]
        click.echo("\n".join(columns(header, rows)))
        if zones:
            click.echo(f"\n{zone_line(zones, nodes)}")
        lines = [drain_line(name, order) for name, order in sorted(drains.items())]
        lines += [weight_line(name, order) for name, order in sorted(snapshot.weights.items())]
        if lines:
            click.echo("\n" + "\n".join(lines))
