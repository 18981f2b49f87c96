"""``hashring nodes``: who is on the ring."""

from __future__ import annotations

import click

from hashring.cli.connection import connected
from hashring.cli.output import columns, document, local_time, percent, seconds
from hashring.cli.settings import Settings, ring_options
from hashring.store.facts import NodeFacts, node_facts
from hashring.store.tables import printable

HEADER = ("Share", "Replicas", "Heartbeat", "Expires", "Sees", "Since", "Node")


def node_line(facts: NodeFacts) -> tuple[str, ...]:
    """The node as cells below :data:`HEADER`."""
    return (
        percent(facts.share),
        str(facts.replicas),
        f"{seconds(facts.delay)} ago",
        "EXPIRED" if facts.expired else f"in {seconds(facts.expires_in)}",
        facts.sees.value,
        local_time(facts.started)[:-4] if facts.started else "-",
        printable(facts.name),
    )


@click.command("nodes")
@ring_options()
@click.pass_obj
def command(settings: Settings) -> None:
    """List the nodes and how they are.

    Sees says which ring a node saw at its last heartbeat: current, older (it has not beaten since
    the last change, or missed it), another (hashring doctor says why), or - (it does not tell).

    \b
    Examples:
      hashring nodes
      hashring nodes --json | jq -r '.nodes[].name'
    """
    with connected(settings) as connection:
        snapshot = connection.snapshot()
    nodes = node_facts(snapshot, settings.scoring)
    if settings.json:
        document({"ring": settings.ring, "nodes": [facts.as_dict() for facts in nodes]})
    elif not nodes:
        click.echo(f"no nodes on ring {printable(settings.ring)!r}")
    else:
        click.echo("\n".join(columns(HEADER, [node_line(facts) for facts in nodes])))
