"""Flows about a partition group that need no member: read, decide, commit; without I/O."""

from __future__ import annotations

from collections.abc import Callable

from hashring.core.groups import next_state
from hashring.core.groups.state import GroupState
from hashring.errors import ConfigError
from hashring.protocol.flow import Flow, committed
from hashring.store.group.commands import Conflict, GroupKeys, Reading, commit, read


def standing(name: str, keys: GroupKeys) -> Flow[tuple[GroupState, Reading]]:
    """Where a group stands.

    Raises:
        ConfigError: there is no such group.
    """
    reading: Reading = yield read(keys)
    state = reading.standing()
    if state is None:
        raise ConfigError("name", name, "there is no such group: no member ever joined")
    return state, reading


def change(
    name: str,
    keys: GroupKeys,
    by: str,
    decide: Callable[[GroupState, float], next_state.StepOutcome],
) -> Flow[GroupState]:
    """Decide something about a group; what stands after that.

    Args:
        by: who decides, for the history.
        decide: gets the state of the group, and Redis time.

    Raises:
        ConfigError: there is no such group.
        WriteConflict: others decide all the time.
    """

    def attempt() -> Flow[GroupState | None]:
        state, reading = yield from standing(name, keys)
        outcome = decide(state, reading.facts.now)
        if outcome.state is state:
            return state
        due = next_state.StepOutcome(outcome.state, outcome.events, reading.facts.now)
        done = yield commit(keys, reading, due, by, counts_out=False)
        return None if isinstance(done, Conflict) else outcome.state

    return (yield from committed(f"group {name!r}", attempt))
