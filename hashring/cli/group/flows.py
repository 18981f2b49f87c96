"""Read where a group stands, and commit a decision."""

from __future__ import annotations

from collections.abc import Callable

from hashring.cli.connection import Connection
from hashring.core.groups.next_decision import StepOutcome
from hashring.core.groups.state import GroupState
from hashring.errors import ConfigError
from hashring.protocol.flow import run_flow
from hashring.protocol.group_changes import change
from hashring.store.group.commands import Reading, group_keys, read


def standing(connection: Connection, name: str) -> tuple[GroupState, Reading]:
    """Where a group stands.

    Raises:
        ConfigError: there is no such group.
    """
    reading = connection.run(read(group_keys(name)))
    state = reading.standing()
    if state is None:
        raise ConfigError(
            "group", name, "there is no such group; hashring group list shows those there are"
        )
    return state, reading


def decide(
    connection: Connection, group: str, decision: Callable[[GroupState, float], StepOutcome]
) -> GroupState:
    """Commit a decision, unless it decides nothing; what stands then."""
    flow = change(group, group_keys(group), "hashring group", decision)
    return run_flow(connection.run, flow)
