"""What must hold of the decisions of a partition group, whatever happens.

Each step that a decider commits is checked. Times are true times.

**Decisions.** Every decision has a greater generation than the one before it, speaks of existing
partitions only, and grants under tokens that were never used. The status says where each partition
is.

**Tokens.** The token of a partition rises with every grant, whatever Redis loses, unless its
clock steps back.

**Standbys first.** With a learner, what an owner had that is gone goes to no cold member while
another is warm.

**Needed.** With a learner no partition changes its owner while every member has its share.

**Drained.** A member that is drained by order is granted nothing while another could take it.

**Time to let go.** An owner has ``max_handoff_time`` from the commit on, however long the assignor
took.

**As before.** While there are as many members as when the group was Ready, and its settings are the
same, nothing is handed off.

**Steady.** The same state is decided a few times within a ttl at most, however long handoffs take.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from typing import Any, Final

from hashring.core.assignors import GroupMember, LearnerAssignor, LoadAssignor, RingAssignor
from hashring.core.assignors.quotas import fair_shares, round_down, round_up
from hashring.core.groups import next_state
from hashring.core.groups.group_status import status
from hashring.core.groups.json_codec import load_events
from hashring.core.groups.state import (
    EXCLUSIVE,
    EventKind,
    Facts,
    GroupEvent,
    GroupPhase,
    GroupState,
    Terms,
)
from hashring.store.command import Command
from hashring.store.group.commands import Beat, Committed
from hashring.store.group.reading import Reading, looked_at
from hashring.testing.simulator.groups.process import GroupProcess
from hashring.testing.simulator.groups.world import GroupRule, GroupWorld
from hashring.testing.simulator.virtual_time import NEVER

# While members that come and go, and what they report, change back and forth.
_OFTEN: Final = 8

# Redis time in seconds is a float.
_ROUNDING: Final = 3e-6


@dataclass(frozen=True)
class CommittedStep:
    """A step that a decider committed.

    Attributes:
        before, facts: what it was based on.
        after: what stands now.
        events: what it consists of.
    """

    before: GroupState
    facts: Facts
    after: GroupState
    events: tuple[GroupEvent, ...]


class DecisionRule(GroupRule):
    """One of :class:`DecisionRules`."""

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        """Look at a step."""


class DecisionRules(GroupRule):
    """Has rules look at every step that a decider commits."""

    def __init__(self, *rules: DecisionRule) -> None:
        self._rules = rules
        # What each process has read, or a renewal has brought it, by Redis time.
        self._read: defaultdict[str, dict[str, Reading]] = defaultdict(dict)

    def touched(self, world: GroupWorld, lost: bool) -> None:
        for rule in self._rules:
            rule.touched(world, lost)

    def executed(
        self, world: GroupWorld, process: GroupProcess, command: Command[Any], reply: Any
    ) -> None:
        read = self._read[process.spec.label]
        if isinstance(reply, Beat) and reply.brought is not None:
            brought = world.reading()
            read[looked_at(brought)] = brought
        busy = process.deciding.busy
        if busy is None or busy.command is not command:
            return
        if isinstance(reply, Reading):
            read[looked_at(reply)] = reply
        elif isinstance(reply, Committed) and command.arguments[1] != "":
            reading = read[str(command.arguments[11])]
            read.clear()
            before = reading.standing()
            assert before is not None
            events = load_events(str(command.arguments[6]))
            decision = CommittedStep(before, reading.facts, world.state(), events)
            for rule in self._rules:
                rule.look(world, process, decision)


class Decisions(DecisionRule):
    name = "decisions"

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        if wrong := fault_of(decision.before, decision.after, decision.facts):
            raise self.broken(world, wrong)


class PartitionTokens(DecisionRule):
    name = "tokens"

    def __init__(self) -> None:
        self._tokens: dict[int, int] = {}
        # The latest that Redis' clock has shown at a decision.
        self._latest = NEVER

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        before, after = decision.before, decision.after
        stepped_back = world.redis_time() < self._latest or world.lost_and_set_back
        self._latest = max(self._latest, world.redis_time())
        claimed = {(p, token) for m in decision.facts.members for p, token in m.claims.items()}
        for partition in after.existing:
            token, last = after.tokens[partition], self._tokens.get(partition, 0)
            # What Redis brought back, or a member that returns still has, is not granted anew.
            known = token in before.tokens[partition : partition + 1]
            if after.holder(partition) is None or known or (partition, token) in claimed:
                continue
            if token <= last and not stepped_back:
                raise self.broken(
                    world, f"partition {partition} is granted under {token} after {last}"
                )
            self._tokens[partition] = max(token, last)


def fault_of(before: GroupState, after: GroupState, facts: Facts) -> str:
    """What is wrong with a decision, whatever was decided; empty when nothing is.

    Args:
        before: the state that the decision was based on.
        facts: what it was based on.
    """
    existing = set(after.existing)
    if after.generation <= before.generation:
        return f"generation {before.generation} -> {after.generation}"
    if not existing >= after.free | after.handoffs.keys():
        return f"free {set(after.free)} or handed off {set(after.handoffs)} of {existing}"
    if any(partition < after.terms.partitions for partition in after.draining):
        return f"{sorted(after.draining)} drain, of {after.terms.partitions} partitions"
    claims = {(m.name, p): token for m in facts.members for p, token in m.claims.items()}
    held: dict[str, set[int]] = {}
    for partition, owner in enumerate(after.owners):
        if partition not in existing and owner is not None:
            return f"partition {partition} does not exist, but is {owner}'s"
        if owner is None or partition in after.free:
            continue
        token = after.tokens[partition]
        held.setdefault(owner, set()).add(partition)
        if token <= 0:
            return f"{owner} holds partition {partition} under token {token}"
        same = before.holder(partition) == owner and before.tokens[partition] == token
        if not same and token <= before.token and claims.get((owner, partition)) != token:
            return f"{owner} is granted partition {partition} under a used token {token}"
    seats = {name: seat for name, seat in after.roster.items() if seat.session}
    views = {name: after.view(name, seat.session) for name, seat in seats.items()}
    seen = {name: set(view.held) for name, view in views.items() if view.held}
    if seen != held:
        return f"members are to hold {held}, but their views say {seen}"
    told = status(after, facts)
    shown = sorted([*told.unowned, *(p for m in told.members for p in m.partitions)])
    if shown != sorted(existing):
        return f"partitions {sorted(existing)} exist, but the status says {shown}"
    for partition, handoff in after.handoffs.items():
        if partition not in held.get(handoff.owner, ()):
            return f"{handoff.owner} is to hand off {partition}, and does not hold it"
    return ""


class StandbysFirst(DecisionRule):
    name = "standbys first"

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        assignor, facts, before = process.decider.assignor, decision.facts, decision.before
        if not isinstance(assignor, LearnerAssignor) or before.terms.access == EXCLUSIVE:
            return
        present = {each.name: each for each in facts.members if each.expires > facts.now}
        for event in decision.events:
            partition = event.partition
            if event.kind is not EventKind.GRANTED or partition is None:
                continue
            if partition >= before.terms.partitions or before.owners[partition] in present:
                continue
            warm = [
                each.name
                for each in present.values()
                if not each.goes
                and not each.stalled
                and each.name not in _drained(before, facts.now)
                and each.lags.get(partition, math.inf) <= assignor.acceptable_lag
            ]
            if warm and event.member not in warm and event.why != next_state.HELD_ALREADY:
                raise self.broken(
                    world,
                    f"partition {partition} went to {event.member}, which is cold, though "
                    f"{' and '.join(warm)} is warm",
                )


class Needed(DecisionRule):
    name = "needed"

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        before, facts = decision.before, decision.facts
        asked = [event for event in decision.events if event.kind is EventKind.REVOKED]
        learner = isinstance(process.decider.assignor, LearnerAssignor) and (
            before.terms.access != EXCLUSIVE
        )
        if not asked or not learner or _owners_to_be(before):
            return
        present = [each for each in facts.members if each.expires > facts.now]
        if any(each.goes or each.stalled for each in present) or before.free:
            return
        if before.orders:
            return
        members = [GroupMember(m.name, n, m.weight) for n, m in enumerate(present)]
        fair = fair_shares(members, before.terms.partitions)
        ends = {partition: handoff.to for partition, handoff in before.handoffs.items()}
        owners = [ends.get(p, before.owners[p]) for p in range(before.terms.partitions)]
        if all(name in fair for name in owners) and all(
            round_down(share) <= owners.count(name) <= round_up(share)
            for name, share in fair.items()
        ):
            raise self.broken(
                world,
                f"partition {asked[0].partition} is handed off, though every member has its share",
            )


def _owners_to_be(state: GroupState) -> list[int]:
    """The partitions that a member warms up for that is to own them, and not to keep a copy."""
    return [p for p, name in state.warming.items() if name not in state.standbys.get(p, ())]


def _drained(state: GroupState, now: float) -> set[str]:
    """The members that are drained by order."""
    return {name for name, order in state.orders_at(now).items() if order.drained}


class Drained(DecisionRule):
    name = "drained"

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        before, facts = decision.before, decision.facts
        drained = _drained(before, facts.now)
        takers = [
            each.name
            for each in facts.members
            if each.expires > facts.now
            and not each.goes
            and not each.stalled
            and each.name not in drained
        ]
        for event in decision.events:
            given = event.kind is EventKind.GRANTED and event.why != next_state.HELD_ALREADY
            if given and event.member in drained and takers:
                raise self.broken(
                    world,
                    f"partition {event.partition} went to {event.member}, which is drained, though "
                    f"{' and '.join(takers)} could take it",
                )


class TimeToLetGo(DecisionRule):
    name = "time to let go"

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        after, committed = decision.after, decision.after.committed
        assert committed is not None
        for partition, handoff in after.handoffs.items():
            left = handoff.deadline - committed
            if (
                handoff.generation == after.generation
                and left < after.terms.max_handoff_time - _ROUNDING
            ):
                raise self.broken(
                    world,
                    f"{handoff.owner} has {left:.3f} s to let go of partition {partition}",
                )


class AsBefore(DecisionRule):
    name = "as before"

    def __init__(self) -> None:
        # The members' weights when the group was Ready, while they count.
        self._settled: list[float] | None = None
        self._terms: Terms | None = None

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        after, facts = decision.after, decision.facts
        if decision.before.orders or after.orders or after.terms != self._terms:
            self._settled, self._terms = None, after.terms
            return
        present = [each for each in facts.members if each.expires > facts.now]
        weights = sorted(each.weight for each in present)
        # Nothing moves from a member that cannot be read, so others stand in for it.
        frozen = decision.before.frozen(facts)
        quiet = not frozen and all(not each.goes and not each.stalled for each in present)
        asked = [event for event in decision.events if event.kind is EventKind.REVOKED]
        # To `ring` only names count; and a copy comes before the number of members.
        # To `load` what is reported counts, too.
        rules = (RingAssignor, LoadAssignor)
        places = not isinstance(process.decider.assignor, rules) and not after.standbys
        # A place is taken by a member of the same weight.
        alike = weights == self._settled
        waited = decision.before.phase is not GroupPhase.REBALANCING
        if asked and alike and quiet and places and waited:
            raise self.broken(
                world,
                f"partition {asked[0].partition} is handed off, though there are {len(present)} "
                f"members as before",
            )
        if after.phase is GroupPhase.READY:
            self._settled = weights if quiet else None
        elif after.phase is GroupPhase.REBALANCING:
            self._settled = None
        elif not quiet and any(event.kind is EventKind.GRANTED for event in decision.events):
            # A member that goes hands on what it has, and may be back before that is over.
            self._settled = None

    def touched(self, world: GroupWorld, lost: bool) -> None:
        self._settled = None


class Steady(DecisionRule):
    name = "steady"

    def __init__(self) -> None:
        # What was decided within the last ttl, and when.
        self._latest: deque[tuple[float, GroupState]] = deque()

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        after = replace(decision.after, generation=0, committed=None)
        self._latest.append((world.now, after))
        while self._latest[0][0] < world.now - after.terms.ttl:
            self._latest.popleft()
        times = sum(state == after for _, state in self._latest)
        if times > _OFTEN:
            raise self.broken(world, f"the same was decided {times} times within a ttl")
