"""What is ordered about a group as a whole, without any delay: its terms, haste, and its end.

Each is a pure function from the state to the next; what follows from it, the next step does. Orders
about one member are in :mod:`.member_orders`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace

from hashring.core.groups.next_state import StepOutcome
from hashring.core.groups.state import (
    PHASES,
    EventKind,
    Facts,
    GroupEvent,
    GroupPhase,
    GroupState,
    Holddown,
    PhaseTurn,
    Terms,
    check_partitions,
)


def resize(state: GroupState, partitions: int) -> StepOutcome:
    """Change the number of partitions, without any delay.

    New partitions are granted by the next step. Removed ones, the highest numbers, stay with
    their owners until these have drained them, and come back to life when the count grows again.

    Raises:
        ConfigError: the count cannot work.
    """
    before = state.terms.partitions
    partitions = check_partitions(partitions)
    if partitions == before:
        return StepOutcome(state, (), None)
    draining = (state.draining | set(range(partitions, before))) - set(range(partitions))
    size = max(draining, default=partitions - 1) + 1
    changed = replace(
        state,
        terms=replace(state.terms, partitions=partitions),
        generation=state.generation + 1,
        phase=PHASES.after(state.phase, PhaseTurn.ORDERED),
        holddown=None,
        owners=state.owners.sized(size, None),
        tokens=state.tokens.sized(size, 0),
        # A number that was removed and drained comes back as a partition that nobody holds.
        free=frozenset(state.free | set(range(before, partitions)) - state.draining),
        draining=frozenset(draining),
        committed=None,
    )
    why = f"from {before} to {partitions} partitions"
    return StepOutcome(changed, (GroupEvent(EventKind.RESIZED, why=why),), None)


def migrate(state: GroupState, terms: Terms) -> StepOutcome:
    """Change what the members have to agree on; the partition count as :func:`resize` does.

    Another access type takes effect without any delay, like another count.
    """
    outcome = resize(state, terms.partitions)
    if outcome.state.terms == terms:
        return outcome
    changed = [
        f"{name} from {was!r} to {now!r}"
        for name, now in asdict(terms).items()
        if now != (was := getattr(outcome.state.terms, name))
    ]
    event = GroupEvent(EventKind.MIGRATED, why=", ".join(changed))
    migrated = replace(
        outcome.state,
        terms=terms,
        generation=state.generation + 1,
        committed=None,
        longest_ttl=state.longest_lease,
        longest_until=math.inf,
    )
    if terms.access != state.terms.access:
        phase = PHASES.after(migrated.phase, PhaseTurn.ORDERED)
        migrated = replace(migrated, phase=phase, holddown=None)
    return StepOutcome(migrated, (*outcome.events, event), None)


def hasten(state: GroupState, now: float, by: str) -> StepOutcome:
    """Let what waits for the rebalance delay begin now; a note in the history in any case.

    Args:
        now: Redis time.
        by: who asks.
    """
    holddown = state.holddown
    if holddown is not None:
        holddown = Holddown(holddown.began, min(now, holddown.until))
    changed = replace(state, generation=state.generation + 1, holddown=holddown, committed=None)
    return StepOutcome(changed, (GroupEvent(EventKind.ASKED, why=f"by {by}"),), now)


def forget(state: GroupState, facts: Facts) -> StepOutcome:
    """Note that a group was stopped for good. A member that joins later starts it again.

    Its members hold nothing any more, and the group waits for none of them. Tokens, terms and
    orders stay, and so does a recovery: members may return that hold what Redis has lost.

    Args:
        facts: without a member whose lease stands.
    """
    expired = {member.name for member in (*facts.members, *facts.unreadable)}
    events = [
        GroupEvent(EventKind.EXPIRED if name in expired else EventKind.LEFT, name)
        for name, seat in state.roster.items()
        if seat.session
    ]
    phase = state.phase
    if state.recovering is None and phase is not GroupPhase.READY:
        phase = PHASES.after(phase, PhaseTurn.NOTHING_LEFT)
    forgotten = replace(
        state,
        generation=state.generation + 1,
        phase=phase,
        holddown=None,
        roster={},
        settled=0,
        free=frozenset(state.existing),
        handoffs={},
        warming={},
        standbys={},
        committed=None,
    )
    return StepOutcome(forgotten, (*events, GroupEvent(EventKind.FORGOTTEN)), None)
