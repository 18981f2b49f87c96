"""Where a group stands: who has what, and what it waits for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final

import click

from hashring.cli.common_options import Settings, server_options
from hashring.cli.connection import Connection, connected
from hashring.cli.group.read_and_commit import standing, without_members
from hashring.cli.local_time import local_second
from hashring.cli.output import columns, document, seconds
from hashring.core.groups import group_status
from hashring.core.groups.group_status import GroupStatus, WaitKind, Waits
from hashring.core.groups.state import EXCLUSIVE, GroupState, MemberOrder
from hashring.core.readable_numbers import counted, listed, spans
from hashring.core.safe_text import printable
from hashring.health import Health

_HOT_SHOWN: Final = 10


def _wait_line(wait: Waits, now: float) -> str:
    who = printable(wait.member) if wait.member else "nobody"
    one = len(wait.partitions) == 1
    which = f"{'partition' if one else 'partitions'} {spans(wait.partitions)}"
    text = {
        WaitKind.RELEASE: f"for {who} to let go of {which}",
        WaitKind.LEASE: f"for {who}, which does not answer, to let go of {which}",
        WaitKind.WARMUP: f"for {who} to warm up for {which}",
        WaitKind.DRAIN: f"for {who} to drain {which}, which {'was' if one else 'were'} removed",
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


@dataclass(frozen=True)
class SeenGroup:
    """Where a group stands.

    Attributes:
        name: the group's.
        state: what was decided.
        status: what comes of it.
        now: Redis time of the reading.
        idle: the verdict on a group without members; ``None`` if it has some.
    """

    name: str
    state: GroupState
    status: GroupStatus
    now: float
    idle: Health | None


def look(connection: Connection, name: str) -> SeenGroup:
    """Read where a group stands.

    Raises:
        ConfigError: there is no such group.
        StoreError: it cannot be read.
    """
    state, reading = standing(connection, name)
    status, now = group_status.status(state, reading.facts), reading.facts.now
    return SeenGroup(name, state, status, now, without_members(connection, name, status, now))


def state_lines(seen: SeenGroup) -> Iterator[str]:
    """Where a group stands, in lines of text."""
    terms, status = seen.state.terms, seen.status
    phase = "" if seen.idle else f"{status.phase.value}, "
    yield (
        f"{printable(seen.name)}: {phase}generation {status.generation}, "
        f"{counted(status.partitions, 'partition')}, {counted(len(status.members), 'member')}, "
        f"{_sharing(seen.state)}"
    )
    yield (
        f"rebalance delay {terms.rebalance_delay:g} s, max handoff time "
        f"{terms.max_handoff_time:g} s, {counted(terms.handoffs, 'handoff')} at once, "
        f"ttl {terms.ttl:g} s"
    )
    for reason in seen.idle.reasons if seen.idle else ():
        yield f"{reason.state.value}: {printable(reason.text)}"
    for wait in status.waits_together:
        yield _wait_line(wait, seen.now)
    if status.until is not None and status.latest is not None and status.until > seen.now:
        yield (
            f"members wait for that time and act at once; if they stop first, another does within "
            f"{seconds(status.latest - status.until)}"
        )
    if status.unowned:
        yield f"without an owner: {spans(status.unowned)}"
    if status.unreadable:
        yield f"reports that cannot be read: {', '.join(map(printable, status.unreadable))}"
    if status.expired:
        yield f"expired without leaving: {', '.join(map(printable, status.expired))}"
    if status.too_hot:
        yield f"too busy for any member: {listed(status.too_hot, _HOT_SHOWN)}"
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
                    spans(member.partitions),
                )
                for member in status.members
            ],
        )


def _order_text(order: MemberOrder) -> str:
    words = []
    if order.drained:
        until = "lifted" if order.until is None else local_second(order.until)
        since = local_second(order.since)
        words.append(f"is drained since {since} until {until}, by {printable(order.by)}")
    if order.weight is not None:
        words.append(f"has the weight {order.weight:g} by order of {printable(order.weighed_by)}")
    return " and ".join(words)


def state_document(seen: SeenGroup) -> dict[str, Any]:
    """The same as JSON."""
    status = seen.status
    return {
        "group": seen.name,
        **asdict(status),
        "members": [asdict(member) | {"active": member.active} for member in status.members],
        "blocking": status.blocking,
        "terms": asdict(seen.state.terms),
    }


@click.command("show")
@click.argument("group")
@server_options()
@click.pass_obj
def command(settings: Settings, group: str) -> None:
    """Show who has what, and what the group waits for.

    And until when, and who blocks.

    \b
    Examples:
      hashring group show orders
      hashring group show orders --json | jq .waits
    """
    with connected(settings) as connection:
        seen = look(connection, group)
    if settings.json:
        document(state_document(seen))
    else:
        click.echo("\n".join(state_lines(seen)))
