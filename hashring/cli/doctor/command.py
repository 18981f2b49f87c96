"""The command: it collects the findings and shows them."""

from __future__ import annotations

from collections.abc import Iterator

import click

from hashring.cli.common_options import Settings, ring_options
from hashring.cli.connection import Connection, connected
from hashring.cli.doctor.findings import Finding, Level, problem
from hashring.cli.doctor.group_checks import group_members, member_drains, member_reports
from hashring.cli.doctor.ring_checks import ring_checks
from hashring.cli.doctor.server_checks import server_checks
from hashring.cli.group.read_and_commit import every_standing
from hashring.cli.output import document
from hashring.cli.rings_on_server import rings_instead
from hashring.core.groups import group_status
from hashring.core.groups.group_status import GroupStatus
from hashring.core.readable_numbers import counted
from hashring.core.safe_text import printable
from hashring.errors import HashringError, RedisRefused, WrongKeyType
from hashring.health import long_drained_members
from hashring.store.ring.node_reports import locking_nodes
from hashring.store.ring.ring_events import RingEvent, newest

_EVENTS = 1000
_COLORS = {Level.OK: "green", Level.NOTE: "cyan", Level.UNKNOWN: "yellow", Level.PROBLEM: "red"}


@click.command("doctor")
@ring_options()
@click.pass_obj
def command(settings: Settings) -> int | None:
    """Say what is wrong, and what to do.

    It looks at the server, at the ring, and at the members of all groups. It changes nothing on
    the ring. The exit status is 1 when a problem was found.

    \b
    Examples:
      hashring doctor
      hashring doctor --json | jq '.findings[] | select(.level == "problem")'
    """
    with connected(settings) as connection:
        connection.locate()
        parts = {
            "server": list(
                server_checks(
                    connection, mixed=settings.wire is not None, locking=_locking(connection)
                )
            ),
            "ring": list(_ring_findings(settings, connection)),
            "groups": list(_group_findings(connection)),
        }
        url = connection.shown_url
    problems = [f for part in parts.values() for f in part if f.level is Level.PROBLEM]
    if settings.json:
        document(
            {
                "url": url,
                "ring": settings.ring,
                "problems": len(problems),
                "findings": [
                    {"about": about, **finding.as_dict()}
                    for about, findings in parts.items()
                    for finding in findings
                ],
            }
        )
    else:
        _show(f"server {printable(url)}", parts["server"])
        _show(f"ring {settings.ring!r}", parts["ring"])
        _show("partition groups", parts["groups"])
        click.echo(
            f"{counted(len(problems), 'problem')} found" if problems else "no problems found"
        )
    return 1 if problems else None


def _locking(connection: Connection) -> bool:
    try:
        return bool(locking_nodes(connection.snapshot()))
    except RedisRefused:
        return False  # for the checks to tell


def _ring_findings(settings: Settings, connection: Connection) -> Iterator[Finding]:
    try:
        snapshot = connection.snapshot(index=True)
    except WrongKeyType as error:
        yield problem("type", str(error), "choose another ring name")
        return
    except RedisRefused as error:
        yield problem("reading", str(error), "see the server's rights and role above")
        return
    events: list[RingEvent] = []
    try:
        events = newest(connection, connection.keys, _EVENTS)
    except RedisRefused as error:
        yield Finding("history", Level.UNKNOWN, str(error))
    yield from ring_checks(
        snapshot,
        events,
        settings.scoring,
        mixed=settings.wire is not None,
        instead="" if settings.json else rings_instead(connection, snapshot),
    )


def _group_findings(connection: Connection) -> Iterator[Finding]:
    statuses: dict[str, GroupStatus] = {}
    drained: dict[str, list[str]] = {}
    unknown: list[Finding] = []
    try:
        for name, standing in every_standing(connection):
            if isinstance(standing, HashringError):
                text = f"group {printable(name)}: {standing}"
                unknown.append(Finding("drains", Level.UNKNOWN, text))
                continue
            state, reading = standing
            statuses[name] = group_status.status(state, reading.facts)
            drained[name] = long_drained_members(statuses[name], reading.facts.now)
    except RedisRefused as error:
        yield from unknown
        yield Finding("drains", Level.UNKNOWN, str(error))
        return
    yield group_members(statuses)
    yield member_reports(statuses)
    yield from unknown
    yield member_drains(drained)


def _show(title: str, findings: list[Finding]) -> None:
    click.echo(title)
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        # The sign carries the meaning; the colour, where there is one, repeats it.
        sign = click.style(f"{finding.level.value:8}", fg=_COLORS[finding.level])
        click.echo(f"  {sign} {finding.check:{width}}  {finding.text}")
        for detail in finding.details:
            click.echo(f"  {'':8} {'':{width}}    {detail}")
        if finding.remedy:
            click.echo(f"  {'':8} {'':{width}}  -> {finding.remedy}")
    click.echo()
