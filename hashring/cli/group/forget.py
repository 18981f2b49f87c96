"""Note that a group was stopped for good."""

from __future__ import annotations

import click

from hashring.cli.common_options import Settings, server_options
from hashring.cli.confirmation import confirmed
from hashring.cli.connection import connected
from hashring.cli.group.read_and_commit import standing
from hashring.cli.order_options import by_option, here
from hashring.cli.output import document
from hashring.core.safe_text import printable
from hashring.protocol.flow import run_flow
from hashring.protocol.group.group_flows import check_empty, forget
from hashring.store.group.key_names import group_keys


@click.command("forget")
@click.argument("group")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@by_option
@server_options()
@click.pass_obj
def command(settings: Settings, group: str, *, yes: bool, by: str | None) -> int | None:
    """Note that a group was stopped for good.

    For a group whose last members crashed, and that is not needed any more: it is stopped from
    then on, and no alert fires for it. What the members left in Redis is removed; history, settings
    and fencing tokens stay. A member that joins starts the group again.

    Exit status 1: the group has live members; or you did not confirm.

    \b
    Examples:
      hashring group forget orders
      hashring group forget orders --yes --by alice
    """
    with connected(settings) as connection:
        if not yes:
            # Refuses what cannot work before anybody is asked.
            check_empty(group, standing(connection, group)[1].facts)
            if not confirmed("Forget", "forgetting", f"group {group!r}"):
                return 1
        flow = forget(group, group_keys(group), by or here("group forget"))
        state = run_flow(connection.order, flow)
    if settings.json:
        document({"group": group, "generation": state.generation})
    else:
        click.echo(f"{printable(group)} was forgotten; a member that joins starts it again")
    return None
