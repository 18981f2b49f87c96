"""A group, shown again and again."""

from __future__ import annotations

from typing import Final

import click

from hashring.cli import standard_streams
from hashring.cli.common_options import NumberRange, Settings, server_options
from hashring.cli.connection import connected
from hashring.cli.group.show import SeenGroup, look, state_document, state_lines
from hashring.cli.output import can_redraw, json_line
from hashring.core.order_checks import LONGEST
from hashring.errors import ConfigError, HashringError, RetryLater

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
        _show(settings, look(connection, group))
        away: HashringError | None = None
        while True:
            standard_streams.pause(interval)
            try:
                found = look(connection, group)
            except (RetryLater, ConfigError) as error:
                if type(error) is not type(away):
                    click.echo(f"hashring: {error}", err=True)
                away = error
                continue
            if away is not None:
                back = "Redis answers" if isinstance(away, RetryLater) else "the group is there"
                click.echo(f"hashring: {back} again", err=True)
            away = None
            _show(settings, found)


def _show(settings: Settings, seen: SeenGroup) -> None:
    if settings.json:
        json_line(state_document(seen))
    else:
        if can_redraw():
            click.echo(_CLEAR, nl=False, color=True)
        click.echo("\n".join(state_lines(seen)))
