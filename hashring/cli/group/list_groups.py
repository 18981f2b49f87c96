"""Which groups there are."""

from __future__ import annotations

import click

from hashring.cli.common_options import Settings, server_options
from hashring.cli.connection import connected
from hashring.cli.group.read_and_commit import every_standing, without_members
from hashring.cli.output import columns, document
from hashring.core.groups import group_status
from hashring.core.groups.group_status import GroupStatus
from hashring.core.safe_text import printable
from hashring.errors import GroupFormatError, HashringError, WrongKeyType


@click.command("list")
@server_options()
@click.pass_obj
def command(settings: Settings) -> int | None:
    """List the groups on this Redis.

    Instead of a phase, a group without members shows whether it is stopped or down.

    A group whose keys hold something else is named with what is wrong, and the exit status is 1.
    On a Redis Cluster it asks all servers.

    \b
    Examples:
      hashring group list
      hashring group list --json | jq -r '.groups[].name'
    """
    found: list[tuple[str, GroupStatus, str, str]] = []
    unreadable: dict[str, str] = {}
    with connected(settings) as connection:
        for name, standing in every_standing(connection):
            if isinstance(standing, HashringError):
                unreadable[name] = str(standing)
                continue
            state, reading = standing
            status = group_status.status(state, reading.facts)
            try:
                idle = without_members(connection, name, status, reading.facts.now)
            except (GroupFormatError, WrongKeyType) as error:
                unreadable[name] = str(error)
                continue
            how = idle.state.value if idle else status.phase.value
            found.append((name, status, state.terms.assignor, how))
    found.sort(key=lambda group: group[0])
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
                    for name, status, assignor, _ in found
                ],
                "unreadable": [{"name": name, "error": unreadable[name]} for name in unreadable],
            }
        )
        return 1 if unreadable else None
    if found:
        rows = [
            (
                how,
                str(len(s.members)),
                str(s.partitions),
                str(s.generation),
                f"{printable(name)}  ({assignor})",
            )
            for name, s, assignor, how in found
        ]
        head = ("Phase", "Members", "Partitions", "Generation", "Group")
        click.echo("\n".join(columns(head, rows)))
    elif not unreadable:
        click.echo("no groups")
    for name, why in unreadable.items():
        click.echo(f"{printable(name)}: {why}", err=True)
    return 1 if unreadable else None
