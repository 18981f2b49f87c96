"""``hashring group drain``, ``undrain`` and ``weight``: orders about members."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import click

from hashring.cli.common_options import Settings, server_options
from hashring.cli.connection import Connection, connected
from hashring.cli.group.plan import plan_lines
from hashring.cli.group.read_and_commit import decide, members_listed, standing
from hashring.cli.local_time import local_second
from hashring.cli.order_options import (
    WITH_A_WEIGHT,
    by_option,
    here,
    lasting_option,
    plan_option,
    span,
    weight_argument,
)
from hashring.cli.output import document
from hashring.core.groups import group_foresight, member_orders
from hashring.core.groups.group_foresight import assignor_of
from hashring.core.groups.next_state import StepOutcome
from hashring.core.groups.state import GroupState
from hashring.core.order_checks import checked_lasting
from hashring.core.safe_text import printable

Order = Callable[[GroupState, float], StepOutcome]


@click.command("drain")
@click.argument("group")
@click.argument("member")
@lasting_option
@click.option("--force", is_flag=True, help="Also if no other member is left to take over.")
@by_option
@plan_option
@server_options()
@click.pass_obj
def drain(
    settings: Settings,
    group: str,
    member: str,
    *,
    lasting: str | None,
    force: bool,
    by: str | None,
    planned: bool,
) -> None:
    """Let a member hand over all it has.

    It gets nothing new until the order is lifted or its time is up, also after a restart under
    the same name. Its partitions move at once, within the group's budget of handoffs, and no
    partition has two owners meanwhile.

    \b
    Examples:
      hashring group drain orders worker-3 --plan
      hashring group drain orders worker-3 --for 2h --by alice
    """
    seconds = None if lasting is None else checked_lasting(span(lasting), "for")
    who = by or here("group drain")

    def order(state: GroupState, now: float) -> StepOutcome:
        if planned and not settings.json and member_orders.is_last(state, member, now):
            click.echo("no other member is left: drained ones keep the partitions until one joins")
        return member_orders.drain(state, member, now, who, seconds=seconds, force=force or planned)

    _give(settings, group, order, f"{member} is to hand over what it has", planned=planned)


@click.command("undrain")
@click.argument("group")
@click.argument("member")
@by_option
@plan_option
@server_options()
@click.pass_obj
def undrain(settings: Settings, group: str, member: str, *, by: str | None, planned: bool) -> None:
    """Let a drained member have partitions again.

    \b
    Examples:
      hashring group undrain orders worker-3
    """
    who = by or here("group undrain")

    def order(state: GroupState, now: float) -> StepOutcome:
        return member_orders.undrain(state, member, now, who)

    _give(
        settings,
        group,
        order,
        f"{member} is to have partitions again",
        f"{member} was not drained",
        planned=planned,
    )


@click.command("weight", context_settings=WITH_A_WEIGHT)
@click.argument("group")
@click.argument("member")
@weight_argument
@by_option
@plan_option
@server_options()
@click.pass_obj
def weigh(
    settings: Settings,
    group: str,
    member: str,
    weight: float | None,
    *,
    by: str | None,
    planned: bool,
) -> None:
    """Give a member another weight.

    It stands until it is changed, also after a restart under the same name. With own, the weight
    counts again that the member started with.

    \b
    Examples:
      hashring group weight orders worker-3 2 --plan
      hashring group weight orders worker-3 own
    """
    who = by or here("group weight")

    def order(state: GroupState, now: float) -> StepOutcome:
        return member_orders.weigh(state, member, weight, now, who)

    what = "its own weight" if weight is None else f"the weight {weight:g}"
    is_to_have, has = f"{member} is to have {what}", f"{member} has {what}"
    _give(settings, group, order, is_to_have, has, planned=planned)


def _give(
    settings: Settings,
    group: str,
    order: Order,
    what: str,
    unchanged: str = "",
    *,
    planned: bool,
) -> None:
    """Give an order, or show what it would do.

    Args:
        what: what to say once it is given.
        unchanged: what to say when it changes nothing.
    """
    with connected(settings) as connection, members_listed(group):
        if planned:
            _show_plan(settings, connection, group, order)
            return
        outcome = decide(connection, group, order)
    orders = outcome.state.orders
    what = what if outcome.events else unchanged
    if settings.json:
        document({"group": group, "orders": {n: asdict(o) for n, o in orders.items()}})
    else:
        click.echo(f"{printable(group)}: {printable(what)}")
        for name, found in orders.items():
            if found.until is not None:
                click.echo(f"{printable(name)} is drained until {local_second(found.until)}")


def _show_plan(settings: Settings, connection: Connection, group: str, order: Order) -> None:
    state, reading = standing(connection, group)
    after = order(state, reading.facts.now).state
    found = group_foresight.foresee(after, reading.facts, assignor_of(state.terms))
    if settings.json:
        document({"group": group, **asdict(found)})
    else:
        click.echo("\n".join(plan_lines(found)))
