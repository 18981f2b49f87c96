"""``hashring remove``: take a node off the ring."""

from __future__ import annotations

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.confirmation import confirmed
from hashring.cli.connection import connected
from hashring.cli.order_options import here
from hashring.cli.output import document
from hashring.core.readable_numbers import counted
from hashring.core.safe_text import printable
from hashring.errors import UnknownNodeError
from hashring.store.ring.commands import LeaveStatus, leave


@click.command("remove")
@click.argument("node")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@ring_options()
@click.pass_obj
def command(settings: Settings, node: str, yes: bool) -> int | None:
    """Take a node off the ring.

    The others take over at once. For a node that is known to be dead, when its ttl is too long to
    wait for. A node that lives comes back with its next heartbeat: stop its process instead.

    \b
    Examples:
      hashring remove worker-3
      hashring remove mbp.local:80721 --yes
    """
    with connected(settings) as connection:
        snapshot = connection.snapshot()
        replicas = snapshot.replicas_of(node)
        had, alive = bool(replicas), node in snapshot.live_nodes
        if not replicas and node not in snapshot.nodes:
            known = {record.replica.node for record in snapshot.replicas} | set(snapshot.nodes)
            raise UnknownNodeError(node, settings.ring, sorted(known))
        shown = f"{printable(node)} ({counted(len(replicas), 'replica')}) of ring {settings.ring!r}"
        if alive:
            click.echo(
                f"hashring: {printable(node)} has not expired: if its process lives, "
                "it comes back with its next heartbeat",
                err=True,
            )
        if not yes:
            if not confirmed("Remove", "removal", shown):
                return 1
            # The answer may come late, and is about the node that was shown.
            snapshot = connection.snapshot()
            replicas = snapshot.replicas_of(node)
            if node in snapshot.live_nodes and not alive:
                click.echo(f"{printable(node)} has come back: nothing was changed", err=True)
                return 1
        status = connection.order(
            leave(
                connection.keys, node=node, replicas=replicas, reason="removed", by=here("remove")
            )
        )
    # A node without replicas was no more than an entry about it, which is gone now.
    removed = status is LeaveStatus.OK or not had
    if settings.json:
        document({"ring": settings.ring, "node": node, "removed": removed})
    else:
        click.echo(f"removed {shown}" if removed else f"{shown} was gone already")
    return None
