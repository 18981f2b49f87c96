"""``hashring forget``: note that a ring was stopped for good."""

from __future__ import annotations

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.confirmation import confirmed
from hashring.cli.connection import Connection, connected
from hashring.cli.order_options import by_option, here
from hashring.cli.output import document
from hashring.cli.rings_on_server import check_exists
from hashring.core.safe_text import printable
from hashring.errors import RingNotEmpty
from hashring.store.ring.commands import forget


@click.command("forget")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@by_option
@ring_options()
@click.pass_obj
def command(settings: Settings, *, yes: bool, by: str | None) -> int | None:
    """Note that a ring was stopped for good.

    For a ring whose last nodes crashed, and that is not needed any more: it is stopped from then
    on, and no alert fires for it. Expired nodes are removed; the history stays. A node that joins
    starts the ring again.

    Exit status 1: the ring has live nodes; or you did not confirm.

    \b
    Examples:
      hashring forget --ring accounts
      hashring forget --ring accounts --yes --by alice
    """
    with connected(settings) as connection:
        # Refuses what cannot work before anybody is asked.
        _check_empty(connection)
        if not yes and not confirmed("Forget", "forgetting", f"ring {settings.ring!r}"):
            return 1
        noted = connection.order(
            forget(connection.keys, scoring=settings.scoring, by=by or here("forget"))
        )
        if not noted:  # a node came meanwhile
            raise RingNotEmpty(settings.ring, connection.snapshot().live_nodes)
    if settings.json:
        document({"ring": settings.ring, "forgotten": True})
    else:
        click.echo(f"{printable(settings.ring)} was forgotten; a node that joins starts it again")
    return None


def _check_empty(connection: Connection) -> None:
    seen = connection.snapshot()
    if seen.live_nodes:
        raise RingNotEmpty(connection.ring, seen.live_nodes)
    check_exists(connection, seen)
