"""Change the terms of a group: how many partitions, and whether one member has everything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from hashring.cli.common_options import Settings, server_options
from hashring.cli.confirmation import confirmed
from hashring.cli.connection import connected
from hashring.cli.group.read_and_commit import decide, standing
from hashring.cli.output import document
from hashring.core.groups import group_orders
from hashring.core.groups.next_state import StepOutcome
from hashring.core.groups.state import EXCLUSIVE, NON_EXCLUSIVE, GroupState
from hashring.core.readable_numbers import counted
from hashring.core.safe_text import printable
from hashring.errors import ConfigError
from hashring.protocol.group.partitions_in_time import why_too_many


@click.command("partitions")
@click.argument("group")
@click.argument("count", type=int)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@server_options()
@click.pass_obj
def partitions(settings: Settings, group: str, count: int, yes: bool) -> int | None:
    """Change the number of partitions of a group.

    New partitions get owners at once. Removed ones, the highest numbers, stay with theirs until
    the application says that they are drained.

    \b
    Examples:
      hashring group partitions orders 128
      hashring group partitions orders 128 --yes
    """
    return _change(settings, group, "partitions", count, counted(count, "partition"), yes=yes)


@click.command("access")
@click.argument("group")
@click.argument("access", type=click.Choice([EXCLUSIVE, NON_EXCLUSIVE]))
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@server_options()
@click.pass_obj
def access(settings: Settings, group: str, access: str, yes: bool) -> int | None:
    """Change whether one member has everything.

    With exclusive access one member has all partitions, and the others stand by. With
    non-exclusive access the assignor shares them out. The partitions move at once. Members that
    start later must be made with the same access type.

    \b
    Examples:
      hashring group access orders exclusive
      hashring group access orders non-exclusive --yes
    """
    return _change(settings, group, "access", access, f"{access} access", yes=yes)


def _change(
    settings: Settings, group: str, term: str, value: Any, shown: str, *, yes: bool
) -> int | None:
    """Give one of a group's terms another value; the exit status."""

    def changed(state: GroupState) -> StepOutcome:
        return group_orders.migrate(state, replace(state.terms, **{term: value}))

    with connected(settings) as connection:
        state, _ = standing(connection, group)
        before = asked = getattr(state.terms, term)
        # Refuses what cannot work before anybody is asked.
        terms = changed(state).state.terms
        if term == "partitions" and (warning := why_too_many(terms.partitions, terms.ttl)):
            click.echo(f"hashring: {printable(group)}: {warning}", err=True)
        what = f"{group!r} from {before} to {shown}"
        if not yes and before != value and not confirmed("Change", "change", what):
            return 1

        def confirmed_change(state: GroupState, _: float) -> StepOutcome:
            nonlocal before
            before = getattr(state.terms, term)
            if not yes and before != asked:
                raise ConfigError(
                    term, value, f"it is {before} by now, not {asked}: give the command again"
                )
            return changed(state)

        decide(connection, group, confirmed_change)
    if settings.json:
        document({"group": group, "before": before, "after": value})
    elif before == value:
        click.echo(f"{printable(group)}: has {shown} already")
    else:
        click.echo(f"{printable(group)}: {before} -> {shown}")
    return None
