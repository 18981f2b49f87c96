"""What would move, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import click

from hashring.cli.common_options import Settings, server_options
from hashring.cli.connection import connected
from hashring.cli.group.assignor_import import imported_assignor
from hashring.cli.group.read_and_commit import members_listed, standing
from hashring.cli.output import columns, document
from hashring.core.assignors import GroupMember
from hashring.core.groups import group_foresight
from hashring.core.groups.group_foresight import GroupForesight, assignor_of
from hashring.core.safe_text import printable
from hashring.errors import ConfigError, GroupMismatch


def plan_lines(found: GroupForesight) -> Iterator[str]:
    """A plan in words, and how many partitions each member has before and after."""
    yield from (printable(line) for line in found.lines())
    rows = [
        (str(found.before[name]), str(found.after[name]), printable(name)) for name in found.before
    ]
    yield from columns(("Before", "After", "Member"), rows)


def _joiner(text: str) -> GroupMember:
    name, sign, weight = text.rpartition("=")
    if not sign:
        return GroupMember(text)
    try:
        value = float(weight)
    except ValueError:
        raise ConfigError("join", text, "give NAME or NAME=WEIGHT") from None
    return GroupMember(name, weight=value)


@click.command("plan")
@click.argument("group")
@click.option(
    "--join", "joins", multiple=True, metavar="NAME[=WEIGHT]", help="Who joins; may be repeated."
)
@click.option(
    "--leave", "leaves", multiple=True, metavar="NAME", help="Who leaves; may be repeated."
)
@click.option("--partitions", type=int, help="The new count.")
@click.option("--access", metavar="TYPE", help="The new access type: exclusive or non-exclusive.")
@click.option(
    "--assignor",
    metavar="MODULE:NAME",
    help="Where the group's assignor can be imported from, if it is one of your own.",
)
@server_options()
@click.pass_obj
def command(
    settings: Settings,
    group: str,
    *,
    joins: tuple[str, ...],
    leaves: tuple[str, ...],
    partitions: int | None,
    access: str | None,
    assignor: str | None,
) -> None:
    """Say what would move, and why.

    Without options, what is moving. It changes nothing.

    \b
    Examples:
      hashring group plan orders
      hashring group plan orders --join d --join e=2 --leave a
      hashring group plan orders --partitions 128 --json
      hashring group plan orders --access non-exclusive
    """
    own = None if assignor is None else imported_assignor(assignor)
    with connected(settings) as connection:
        state, reading = standing(connection, group)
    if own is not None and own.name != state.terms.assignor:
        raise GroupMismatch(group, "assignor", own.name, state.terms.assignor)
    with members_listed(group):
        found = group_foresight.foresee(
            state,
            reading.facts,
            own or assignor_of(state.terms, access),
            join=[_joiner(text) for text in joins],
            leave=leaves,
            partitions=partitions,
            access=access,
        )
    if settings.json:
        document({"group": group, **asdict(found)})
        return
    click.echo("\n".join(plan_lines(found)))
