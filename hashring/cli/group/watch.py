"""A group, shown again and again."""

from __future__ import annotations

import time
from typing import Final

import click

from hashring.cli.common_options import NumberRange, Settings, server_options
from hashring.cli.connection import connected
from hashring.cli.group.read_and_commit import standing
from hashring.cli.group.show import state_document, state_lines
from hashring.cli.output import can_redraw, json_line
from hashring.core.groups import group_status
from hashring.core.groups.state import GroupState
from hashring.core.order_checks import LONGEST
from hashring.errors import ConfigError, HashringError, RetryLater
from hashring.store.group.commands import Reading

_CLEAR: Final = "\x1b[2J\x1b[1;1H"


@click.command("watch")
@click.argument("group")
@click.option(
    "--interval",
    type=NumberRange(min=0.1, max=LONGEST),
    default=1.0,
    show_default=True,
    help="In seconds.",
)
@server_options()
@click.pass_obj
def command(settings: Settings, group: str, interval: float) -> None:
    """Show the group again and again, until Ctrl-C.

    It continues when Redis returns after an outage, also without data: then it waits for the
    members to make the group again. With --json, a line of JSON each time.

    \b
    Examples:
      hashring group watch orders
      hashring group watch orders --interval 10 --json | jq -c .phase
    """
    with connected(settings) as connection:
        _show(settings, group, *standing(connection, group))
        away: HashringError | None = None
        while True:
            time.sleep(interval)
            try:
                found = standing(connection, group)
            except (RetryLater, ConfigError) as error:
                if type(error) is not type(away):
                    click.echo(f"hashring: {error}", err=True)
                away = error
                continue
            if away is not None:
                back = "Redis answers" if isinstance(away, RetryLater) else "the group is there"
                click.echo(f"hashring: {back} again", err=True)
            away = None
            _show(settings, group, *found)


def _show(settings: Settings, group: str, state: GroupState, reading: Reading) -> None:
    status = group_status.status(state, reading.facts)
    if settings.json:
        json_line(state_document(group, state, status))
    else:
        if can_redraw():
            click.echo(_CLEAR, nl=False, color=True)
        click.echo("\n".join(state_lines(group, state, status, reading.facts.now)))
