"""A group, shown again and again."""

from __future__ import annotations

import time

import click

from hashring.cli.common_options import Settings, server_options
from hashring.cli.connection import connected
from hashring.cli.group.flows import standing
from hashring.cli.group.show import state_document, state_lines
from hashring.cli.output import json_line
from hashring.core.groups import group_status


@click.command("watch")
@click.argument("group")
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="In seconds."
)
@server_options()
@click.pass_obj
def command(settings: Settings, group: str, interval: float) -> None:
    """Show the group again and again, until Ctrl-C.

    With --json, a line of JSON each time.

    \b
    Examples:
      hashring group watch orders
      hashring group watch orders --interval 10 --json | jq -c .phase
    """
    with connected(settings) as connection:
        while True:
            state, reading = standing(connection, group)
            status = group_status.status(state, reading.facts)
            if settings.json:
                json_line(state_document(group, state, status))
            else:
                click.clear()
                click.echo("\n".join(state_lines(group, state, status, reading.facts.now)))
            time.sleep(interval)
