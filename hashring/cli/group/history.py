"""The last decisions of a group."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict

import click

from hashring.cli.common_options import Settings, server_options
from hashring.cli.connection import connected
from hashring.cli.group.read_and_commit import standing
from hashring.cli.local_time import local_time
from hashring.cli.output import json_line
from hashring.core.groups.state import GroupEvent
from hashring.core.safe_text import printable
from hashring.store.group.commands import DECISIONS_KEPT
from hashring.store.group.decision_history import Decision, newest_decisions
from hashring.store.group.key_names import group_keys


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


@click.command("history")
@click.argument("group")
@click.option(
    "--count",
    "-n",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    help=f"How many of the last decisions. The group keeps about {DECISIONS_KEPT}, of large ones "
    "fewer.",
)
@server_options()
@click.pass_obj
def command(settings: Settings, group: str, count: int) -> None:
    """Show the last decisions, and what each consists of.

    The newest come last. With --json, a line of JSON for each.

    \b
    Examples:
      hashring group history orders
      hashring group history orders -n 100 --json
    """
    with connected(settings) as connection:
        standing(connection, group)
        # Redis takes no larger number.
        decisions = newest_decisions(connection, group_keys(group), min(count, sys.maxsize))
    for decision in reversed(decisions):
        if settings.json:
            json_line(asdict(decision))
        else:
            click.echo("\n".join(_decision_lines(decision)))
