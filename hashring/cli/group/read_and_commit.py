"""Read where groups stand, and commit a decision."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from hashring.cli.connection import Connection
from hashring.core.groups.group_status import GroupStatus
from hashring.core.groups.next_state import StepOutcome
from hashring.core.groups.state import GroupState
from hashring.core.safe_text import printable
from hashring.errors import GroupFormatError, UnknownMemberError, WrongKeyType
from hashring.health import Health, command_line, group_health
from hashring.protocol.flow import run_flow
from hashring.protocol.group import group_flows
from hashring.store.discovery import discover
from hashring.store.group.decision_history import newest_decisions
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import Reading, read

_DECISIONS: Final = 5


def standing(connection: Connection, name: str) -> tuple[GroupState, Reading]:
    """Where a group stands.

    Raises:
        ConfigError: there is no such group.
    """
    return run_flow(connection.run, group_flows.standing(name, group_keys(name)))


def without_members(
    connection: Connection, name: str, status: GroupStatus, now: float
) -> Health | None:
    """The verdict on a group that has no members; ``None`` if it has some.

    Args:
        now: Redis time of the reading.

    Raises:
        StoreError: its last decisions cannot be read.
    """
    if status.has_members:
        return None
    decisions = newest_decisions(connection, group_keys(name), _DECISIONS)
    return group_health(status, decisions, group=name, now=now)


Standing = tuple[GroupState, Reading]


def every_standing(
    connection: Connection,
) -> Iterator[tuple[str, Standing | GroupFormatError | WrongKeyType]]:
    """The name of each group, and where it stands, or why that cannot be read.

    Groups come by name, on a Redis Cluster server by server.
    """
    for server in connection.servers():
        for name in sorted({it.name for it in discover(server) if it and it.kind == "group"}):
            try:
                reading = server.run(read(group_keys(name)))
                state = reading.standing()
            except (GroupFormatError, WrongKeyType) as error:
                yield name, error
            else:
                if state is not None:  # else it went away since
                    yield name, (state, reading)


@contextmanager
def members_listed(group: str) -> Iterator[None]:
    """The error about an unknown member names the command that lists those of the group."""
    try:
        yield
    except UnknownMemberError as error:
        command = printable(command_line("group show", group))
        raise UnknownMemberError(error.member, error.members, listed_by=command) from None


def decide(
    connection: Connection, group: str, decision: Callable[[GroupState, float], StepOutcome]
) -> StepOutcome:
    """Commit a decision, unless it decides nothing; what was decided."""
    flow = group_flows.change(group, group_keys(group), "hashring group", decision)
    return run_flow(connection.order, flow)
