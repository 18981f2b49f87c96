"""``hashring print``: the ring as two tables."""

from __future__ import annotations

from dataclasses import asdict

import click

from hashring.cli.connection import connected
from hashring.cli.output import counted, document
from hashring.cli.settings import Settings, ring_options
from hashring.store.facts import node_facts
from hashring.store.tables import replica_rows, ring_tables


@click.command("print")
@ring_options()
@click.pass_obj
def command(settings: Settings) -> None:
    """Print the ring's replicas and nodes.

    Delay is the time since a node's last heartbeat. What has expired is marked (EXPIRED): it
    owns nothing, and goes with the next heartbeat of any node.

    \b
    Examples:
      hashring print
      hashring print --ring accounts --url redis://redis.internal:6379/0
      hashring print --json
    """
    with connected(settings) as connection:
        snapshot = connection.snapshot()
    if settings.json:
        ring = snapshot.ring()
        document(
            {
                "ring": settings.ring,
                "at": snapshot.now,
                "epoch": snapshot.stamp.epoch,
                "fingerprint": ring.fingerprint,
                "replicas": [asdict(row) for row in replica_rows(snapshot, settings.scoring)],
                "nodes": [facts.as_dict() for facts in node_facts(snapshot, settings.scoring)],
                "garbage": [
                    {"member": member.decode("utf-8", "backslashreplace"), "why": why}
                    for member, why in snapshot.garbage
                ],
            }
        )
        return
    click.echo("\n".join(ring_tables(settings.ring, snapshot, settings.scoring)))
    if snapshot.garbage:
        click.echo(
            f"hashring: {counted(len(snapshot.garbage), 'member')} of the ring not shown, "
            "being no replica: hashring doctor says why",
            err=True,
        )
