"""``hashring group``: partition groups."""

from __future__ import annotations

import importlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any, Final

import click

from hashring.cli import group_orders
from hashring.cli.common_options import Settings, server_options
from hashring.cli.connection import connected
from hashring.cli.group_state import decide, plan_lines, standing
from hashring.cli.output import (
    columns,
    confirmed,
    document,
    json_line,
    local_time,
    seconds,
)
from hashring.core.assignors import Assignor, Member, as_assignor, assignor_named
from hashring.core.groups import group_plan, group_status, next_decision
from hashring.core.groups.group_status import GroupStatus, GroupWait, WaitKind
from hashring.core.groups.state import (
    EXCLUSIVE,
    NON_EXCLUSIVE,
    GroupEvent,
    GroupState,
    MemberOrder,
)
from hashring.core.printable import printable
from hashring.core.readable import counted
from hashring.errors import ConfigError, GroupFormatError, GroupMismatch, WrongKeyType
from hashring.store.discovery import discover
from hashring.store.group.commands import (
    DECISIONS_KEPT,
    Decision,
    group_keys,
    read,
    read_decision,
)

_HOT_SHOWN: Final = 10


@click.group("group")
def group_group() -> None:
    """Look at partition groups, and plan what they would do.

    \b
    Examples:
      hashring group list
      hashring group show orders
      hashring group plan orders --join d --leave a
      hashring group partitions orders 128
    """


command = group_group
"""What the command line loads."""


# --- list -------------------------------------------------------------------------------------


@group_group.command("list")
@server_options()
@click.pass_obj
def list_groups(settings: Settings) -> int | None:
    """List the groups on this Redis.

    A group whose keys hold something else is named with what is wrong, and the exit status is 1.
    On a Redis Cluster: those of the server that is asked.

    \b
    Examples:
      hashring group list
      hashring group list --json | jq -r '.groups[].name'
    """
    found: list[tuple[str, GroupStatus, str]] = []
    unreadable: dict[str, str] = {}
    with connected(settings) as connection:
        names = {found.name for found in discover(connection) if found and found.kind == "group"}
        for name in sorted(names):
            try:
                reading = connection.run(read(group_keys(name)))
                state = reading.standing()
            except (GroupFormatError, WrongKeyType) as error:
                unreadable[name] = str(error)
                continue
            if state is not None:  # else it went away since
                status = group_status.status(state, reading.facts)
                found.append((name, status, state.terms.assignor))
    if settings.json:
        document(
            {
                "groups": [
                    {
                        "name": name,
                        "phase": status.phase.value,
                        "members": len(status.members),
                        "partitions": status.partitions,
                        "assignor": assignor,
                    }
                    for name, status, assignor in found
                ],
                "unreadable": [{"name": name, "error": unreadable[name]} for name in unreadable],
            }
        )
        return 1 if unreadable else None
    if found:
        rows = [
            (
                s.phase.value,
                str(len(s.members)),
                str(s.partitions),
                str(s.generation),
                f"{printable(name)}  ({assignor})",
            )
            for name, s, assignor in found
        ]
        head = ("Phase", "Members", "Partitions", "Generation", "Group")
        click.echo("\n".join(columns(head, rows)))
    elif not unreadable:
        click.echo("no groups")
    for name, why in unreadable.items():
        click.echo(f"{printable(name)}: {why}", err=True)
    return 1 if unreadable else None


# --- show and watch ---------------------------------------------------------------------------


def _ranges(partitions: tuple[int, ...]) -> str:
    """``0-3, 7, 9-11``."""
    parts: list[list[int]] = []
    for partition in partitions:
        if parts and partition == parts[-1][1] + 1:
            parts[-1][1] = partition
        else:
            parts.append([partition, partition])
    return ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in parts) or "-"


def _wait_line(wait: GroupWait, now: float) -> str:
    who = printable(wait.member) if wait.member else "nobody"
    text = {
        WaitKind.RELEASE: f"for {who} to let go of partition {wait.partition}",
        WaitKind.LEASE: f"for {who}, which does not answer, to let go of partition "
        f"{wait.partition}",
        WaitKind.WARMUP: f"for {who} to warm up for partition {wait.partition}",
        WaitKind.DRAIN: f"for {who} to drain partition {wait.partition}, which was removed",
        WaitKind.CHANGES: "for the members to come to rest",
        WaitKind.RETURN: "for members to say what they hold, since Redis has lost it",
    }[wait.kind]
    return f"waits {text}" + (f", {_left(wait.until, now)}" if wait.until is not None else "")


def _left(until: float, now: float) -> str:
    return f"{seconds(until - now)} more at most" if until > now else "which is over"


def _sharing(state: GroupState) -> str:
    if state.terms.access == EXCLUSIVE:
        return "exclusive access: one member has everything"
    return f"assignor {state.terms.assignor}"


def _show(name: str, state: GroupState, status: GroupStatus, now: float) -> Iterator[str]:
    terms = state.terms
    yield (
        f"{printable(name)}: {status.phase.value}, generation {status.generation}, "
        f"{counted(status.partitions, 'partition')}, {counted(len(status.members), 'member')}, "
        f"{_sharing(state)}"
    )
    yield (
        f"rebalance delay {terms.rebalance_delay:g} s, max handoff time "
        f"{terms.max_handoff_time:g} s, {counted(terms.handoffs, 'handoff')} at once, "
        f"ttl {terms.ttl:g} s"
    )
    for wait in status.waits:
        yield _wait_line(wait, now)
    if status.until is not None and status.latest is not None:
        yield (
            f"members wait for that time and act at once; if they stop first, another does within "
            f"{seconds(status.latest - status.until)}"
        )
    if status.unowned:
        yield f"without an owner: {_ranges(status.unowned)}"
    if status.too_hot:
        shown = ", ".join(map(str, status.too_hot[:_HOT_SHOWN]))
        more = len(status.too_hot) - _HOT_SHOWN
        yield f"too busy for any member: {shown}" + (f" and {more} more" if more > 0 else "")
    for member_name, order in status.orders.items():
        yield f"{printable(member_name)} {_order_text(order)}"
    if status.members:
        yield ""
        yield from columns(
            ("Count", "Active", "State", "Lease", "Member", "Partitions"),
            [
                (
                    str(len(member.partitions)),
                    "yes" if member.active else "no",
                    member.state.value,
                    seconds(member.expires_in),
                    printable(member.name),
                    _ranges(member.partitions),
                )
                for member in status.members
            ],
        )


def _order_text(order: MemberOrder) -> str:
    words = []
    if order.drained:
        until = "lifted" if order.until is None else local_time(order.until)[:-4]
        since = local_time(order.since)[:-4]
        words.append(f"is drained since {since} until {until}, by {printable(order.by)}")
    if order.weight is not None:
        words.append(f"has the weight {order.weight:g} by order of {printable(order.weighed_by)}")
    return " and ".join(words)


def _document(name: str, state: GroupState, status: GroupStatus) -> dict[str, Any]:
    return {
        "group": name,
        **asdict(status),
        "members": [asdict(member) | {"active": member.active} for member in status.members],
        "blocking": status.blocking,
        "terms": asdict(state.terms),
    }


@group_group.command("show")
@click.argument("group")
@server_options()
@click.pass_obj
def show(settings: Settings, group: str) -> None:
    """Show who has what, and what the group waits for.

    And until when, and who blocks.

    \b
    Examples:
      hashring group show orders
      hashring group show orders --json | jq .waits
    """
    with connected(settings) as connection:
        state, reading = standing(connection, group)
    status = group_status.status(state, reading.facts)
    if settings.json:
        document(_document(group, state, status))
    else:
        click.echo("\n".join(_show(group, state, status, reading.facts.now)))


@group_group.command("watch")
@click.argument("group")
@click.option(
    "--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="In seconds."
)
@server_options()
@click.pass_obj
def watch(settings: Settings, group: str, interval: float) -> None:
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
                json_line(_document(group, state, status))
            else:
                click.clear()
                click.echo("\n".join(_show(group, state, status, reading.facts.now)))
            time.sleep(interval)


# --- plan -------------------------------------------------------------------------------------


def _joiner(text: str) -> Member:
    name, sign, weight = text.rpartition("=")
    if not sign:
        return Member(text)
    try:
        value = float(weight)
    except ValueError:
        raise ConfigError("join", text, "give NAME or NAME=WEIGHT") from None
    return Member(name, weight=value)


def _imported(text: str) -> Assignor:
    module, _, name = text.partition(":")
    # As `python -m` would: what is in the directory one stands in can be imported.
    sys.path.insert(0, os.getcwd())
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:
        raise ConfigError(
            "assignor", text, f"cannot be imported ({error}): give MODULE:NAME"
        ) from error
    finally:
        sys.path.pop(0)
    return as_assignor(found)


@group_group.command("plan")
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
def plan(
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
    own = None if assignor is None else _imported(assignor)
    with connected(settings) as connection:
        state, reading = standing(connection, group)
    if own is not None and own.name != state.terms.assignor:
        raise GroupMismatch(group, "assignor", own.name, state.terms.assignor)
    found = group_plan.foresee(
        state,
        reading.facts,
        own or assignor_named(state.terms.assignor),
        join=[_joiner(text) for text in joins],
        leave=leaves,
        partitions=partitions,
        access=access,
    )
    if settings.json:
        document({"group": group, **asdict(found)})
        return
    click.echo("\n".join(plan_lines(found)))


# --- history ----------------------------------------------------------------------------------


def _event_line(event: GroupEvent) -> str:
    words = [event.kind.value]
    if event.partition is not None:
        words.append(f"partition {event.partition}")
    if event.member is not None:
        words.append(printable(event.member))
    if event.to is not None:
        words.append(f"for {printable(event.to)}")
    if event.why:
        words.append(f"({printable(event.why)})")
    return " ".join(words)


def _decision_lines(decision: Decision) -> Iterator[str]:
    head = f"{local_time(decision.at)}  {decision.generation}  {decision.phase}"
    yield f"{head}, decided by {printable(decision.by)}"
    for event in decision.events:
        yield f"    {_event_line(event)}"


@group_group.command("history")
@click.argument("group")
@click.option(
    "--count",
    "-n",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help=f"How many of the last decisions. The group keeps about {DECISIONS_KEPT}.",
)
@server_options()
@click.pass_obj
def history(settings: Settings, group: str, count: int) -> None:
    """Show the last decisions, and what each consists of.

    The newest come last. With --json, a line of JSON for each.

    \b
    Examples:
      hashring group history orders
      hashring group history orders -n 100 --json
    """
    with connected(settings) as connection:
        standing(connection, group)
        control = group_keys(group).control
        entries = connection.call("XREVRANGE", control, "+", "-", "COUNT", count)
    for entry in reversed(entries):
        decision = read_decision(entry)
        if settings.json:
            json_line(asdict(decision))
        else:
            click.echo("\n".join(_decision_lines(decision)))


# --- access and partitions -----------------------------------------------------------------------


@group_group.command("partitions")
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
    with connected(settings) as connection:
        state, _ = standing(connection, group)
        before = state.terms.partitions
        # Refuses a count that cannot work before anybody is asked.
        next_decision.resize(state, count)
        what = f"{printable(group)!r} from {before} to {counted(count, 'partition')}"
        if not yes and not confirmed("Change", "change", what):
            click.echo("nothing was changed", err=True)
            return 1
        decide(connection, group, lambda state, now: next_decision.resize(state, count))
    if settings.json:
        document({"group": group, "before": before, "after": count})
    else:
        click.echo(f"{printable(group)}: {before} -> {counted(count, 'partition')}")
    return None


@group_group.command("access")
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
    with connected(settings) as connection:
        state, _ = standing(connection, group)
        before = state.terms.access
        what = f"{printable(group)!r} from {before} to {access} access"
        if not yes and not confirmed("Change", "change", what):
            click.echo("nothing was changed", err=True)
            return 1
        decide(
            connection,
            group,
            lambda state, now: next_decision.migrate(state, replace(state.terms, access=access)),
        )
    if settings.json:
        document({"group": group, "before": before, "after": access})
    else:
        click.echo(f"{printable(group)}: {before} -> {access} access")
    return None


for _command in group_orders.COMMANDS:
    group_group.add_command(_command)
