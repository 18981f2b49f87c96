"""What the commands about groups share: to read where one stands, to decide, to show a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from hashring.cli.connection import Connection
from hashring.cli.output import columns
from hashring.core.assignors import Assignor, assignor_named
from hashring.core.groups.group_plan import Foresight
from hashring.core.groups.next_decision import StepOutcome
from hashring.core.groups.state import GroupState
from hashring.core.printable import printable
from hashring.errors import ConfigError
from hashring.protocol.flow import run_flow
from hashring.protocol.group_machine import change
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


def load_assignor(state: GroupState) -> Assignor:
    """The group's assignor.

    Raises:
        ConfigError: it is none of this project's.
    """
    return assignor_named(state.terms.assignor)


def plan_lines(found: Foresight) -> Iterator[str]:
    """A plan in words, and how many partitions each member has before and after."""
    yield from (printable(line) for line in found.lines())
    rows = [
        (str(found.before[name]), str(found.after[name]), printable(name)) for name in found.before
    ]
    yield from columns(("Before", "After", "Member"), rows)
