"""Flows about a partition group that need no member: read, decide, commit; without I/O."""

from __future__ import annotations

from collections.abc import Callable

from hashring.core.groups import group_orders, next_state
from hashring.core.groups.state import Facts, GroupState
from hashring.errors import ConfigError, GroupNotEmpty
from hashring.protocol.flow import Flow, committed
from hashring.store.group import commands
from hashring.store.group.commands import Conflict, commit
from hashring.store.group.key_names import GroupKeys
from hashring.store.group.reading import Reading, read


def standing(name: str, keys: GroupKeys) -> Flow[tuple[GroupState, Reading]]:
    """Where a group stands.

    Raises:
        ConfigError: there is no such group.
    """
    reading: Reading = yield read(keys)
    state = reading.standing()
    if state is None:
        raise ConfigError(
            "group", name, "there is no such group; hashring group list shows those there are"
        )
    return state, reading


def change(
    name: str,
    keys: GroupKeys,
    by: str,
    decide: Callable[[GroupState, float], next_state.StepOutcome],
) -> Flow[next_state.StepOutcome]:
    """Decide something about a group; what was decided, and stands after that.

    Args:
        by: who decides, for the history.
        decide: gets the state of the group, and Redis time.

    Raises:
        ConfigError: there is no such group.
        WriteConflict: others decide all the time.
    """

    def attempt() -> Flow[next_state.StepOutcome | None]:
        state, reading = yield from standing(name, keys)
        outcome = decide(state, reading.facts.now)
        if outcome.state is state:
            return outcome
        due = next_state.StepOutcome(outcome.state, outcome.events, reading.facts.now)
        done = yield commit(keys, reading, due, by, counts_out=False)
        return None if isinstance(done, Conflict) else outcome

    return (yield from committed(f"group {name!r}", attempt))


def forget(name: str, keys: GroupKeys, by: str) -> Flow[GroupState]:
    """Note that a group was stopped for good, and take away what its members left.

    The result is what stands after that.

    Args:
        by: who forgets it, for the history.

    Raises:
        ConfigError: there is no such group.
        GroupNotEmpty: it has members whose leases stand. Nothing was changed.
        WriteConflict: others decide all the time.
    """

    def attempt() -> Flow[GroupState | None]:
        state, reading = yield from standing(name, keys)
        outcome = group_orders.forget(state, reading.facts)
        # Redis looks at the leases first: if its clock was set back, and nobody is left to renew,
        # the group's clock goes on from there.
        if (yield commands.forget(keys, reading, outcome, by)):
            return outcome.state
        check_empty(name, reading.facts)
        return None

    return (yield from committed(f"group {name!r}", attempt))


def check_empty(name: str, facts: Facts) -> None:
    """Check that no lease of a group's members stands.

    Raises:
        GroupNotEmpty: one does.
    """
    if facts.live:
        raise GroupNotEmpty(name, facts.live)
