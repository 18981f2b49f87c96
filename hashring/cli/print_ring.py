"""``hashring print``: the ring as two tables, or as a picture."""

from __future__ import annotations

from dataclasses import asdict

import click

from hashring.cli.common_options import NewPath, Settings, ring_options
from hashring.cli.connection import connected
from hashring.cli.output import document, write_text
from hashring.core.readable_numbers import counted
from hashring.drawing.ring_picture import ring_picture
from hashring.store.ring.node_reports import node_facts
from hashring.store.ring.replica_and_node_tables import replica_rows, ring_tables
from hashring.store.ring.snapshot import Snapshot, points_by_node


@click.command("print")
@click.option(
    "--svg",
    "picture",
    type=NewPath(allow_dash=True),
    metavar="FILE",
    help="Draw the ring into a file; - for stdout.",
)
@ring_options()
@click.pass_obj
def command(settings: Settings, picture: str | None) -> None:
    """Print the ring's replicas and nodes.

    Range is the part of the ring from a replica to the next. Delay is the time since a node's last
    heartbeat. What has expired is marked (EXPIRED): it owns nothing, whatever its range, and goes
    with the next heartbeat of any node.

    With --svg the ring is drawn instead: a circle of the replicas, one of the nodes' shares, and
    the names. A browser shows it, and the name of what the mouse points at.

    \b
    Examples:
      hashring print
      hashring print --ring accounts --url redis://redis.internal:6379/0
      hashring print --json
      hashring print --svg ring.svg
    """
    if picture is not None and settings.json:
        raise click.UsageError("--svg draws and --json writes: give one of them")
    with connected(settings) as connection:
        snapshot = connection.snapshot()
    if picture is not None:
        write_text("--svg", picture, _drawn(settings.ring, snapshot))
        return
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


def _drawn(name: str, snapshot: Snapshot) -> str:
    expired = points_by_node(record for record in snapshot.replicas if record.expired)
    return ring_picture(snapshot.ring(), title=name, expired=expired, legend=True) + "\n"
