"""What a group does until it is at rest, played in virtual time. Nothing is touched.

:func:`rehearse` takes the very steps that members take, :func:`.next_state.step`, on facts that
are supposed: owners let go as soon as they are asked, members warm up at once, and time passes
until the next step is due.

A large group would take thousands of steps. So after :data:`PATIENCE` a rehearsal makes **haste**,
and leaves out what only takes time: all handoffs begin at once, whatever the budget; where an owner
waits for a warm-up, or for the minute of earlier moves for load to be over, it waits no longer.
Members then get as many partitions as they would without haste. Which of them gets which may differ
where the assignor is asked anew after each handoff, and has equal choices.

``learner`` and ``load`` are asked in each step, so their groups are played with patience. Others
are in haste from the start: ``balanced``, ``contiguous`` and ``ring`` are asked once whatever moves
first, and one of a user's own may need seconds for each answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import is_
from typing import Final

from hashring.core.assignors.learner import LearnerAssignor
from hashring.core.assignors.load import LoadAssignor
from hashring.core.assignors.situation import GroupSituation
from hashring.core.assignors.target_assignment import Assignor, TargetAssignment, checked_target
from hashring.core.groups import next_state, reported_loads
from hashring.core.groups.state import (
    Asked,
    EventKind,
    Facts,
    GroupEvent,
    GroupPhase,
    GroupState,
    MemberFacts,
)

PATIENCE: Final = 20_000
"""Partitions that a rehearsal looks at before it makes haste: in each step all of the group."""

_LEAST: Final = 50
"""A step costs as much as one of that many partitions at least."""

MOST_STEPS: Final = 50
"""Steps in haste after which a rehearsal ends. A few are enough if the assignor comes to rest."""


@dataclass
class Rehearsal:
    """What a group did until it was at rest.

    Attributes:
        state: at the end.
        asked: what owners were asked to let go of, in order.
        asked_at: when the first of them was; ``None`` if none was.
        granted_at: when each partition was granted last.
        ended_at: when the last step was taken.
        warmed: the partitions that had to wait for a warm-up, each with the member to warm up.
        warmups: the most warm-ups that are under way at once.
        at_rest: whether the group came to rest at all.
    """

    state: GroupState
    asked: list[GroupEvent] = field(default_factory=list)
    asked_at: float | None = None
    granted_at: dict[int, float] = field(default_factory=dict)
    ended_at: float = 0.0
    warmed: set[tuple[int, str | None]] = field(default_factory=set)
    warmups: int = 0
    at_rest: bool = True

    def note(self, state: GroupState, events: Iterable[GroupEvent], now: float) -> None:
        """Take note of a step."""
        self.state = state
        for event in events:
            if event.kind is EventKind.REVOKED:
                self.asked.append(event)
                if self.asked_at is None:
                    self.asked_at = now
            elif event.kind is EventKind.GRANTED and event.partition is not None:
                self.granted_at[event.partition] = now


def rehearse(
    state: GroupState, facts: Facts, assignor: Assignor, loads: Mapping[int, float]
) -> Rehearsal:
    """Take steps until the group is at rest, or :data:`MOST_STEPS` in haste.

    Args:
        state: as it was committed.
        facts: those that are supposed. Leases last as long as the rehearsal.
        loads: of partitions of which nobody reports the load any more. Their next holders do.

    Raises:
        AssignorError: the assignor gave a wrong answer.
    """
    found = Rehearsal(state)
    answers = _Answers(assignor, found)
    looks = reported_loads.looks(next_state.rule(state.terms, assignor))
    cost = max(_LEAST, state.terms.partitions)
    is_asked_often = isinstance(assignor, LearnerAssignor | LoadAssignor)
    patience = PATIENCE // cost if is_asked_often else 0
    plan, moved_at = None, facts.now
    members = _reports(facts.members, state, state.asked(), loads, warm=False)
    facts = replace(facts, members=members)
    for number in range(patience + MOST_STEPS):
        answers.in_haste = number >= patience
        outcome = next_state.step(state, facts, answers, plan, at_once=answers.in_haste)
        found.ended_at = now = facts.now
        due, plan = outcome.due, outcome.plan
        changed = outcome.state is not state
        settled = _arrived(state, outcome.state)
        if changed:
            moved_at = now
            state = outcome.state.stamped(now)
            found.note(state, outcome.events, now)
        # In haste nobody has to say anything for the next step to take it for done.
        told = {} if answers.in_haste else state.asked()
        members = _reports(facts.members, state, told, loads, warm=not answers.in_haste)
        news = members is not facts.members
        at_rest = state.phase is GroupPhase.READY and due != now
        if at_rest and settled and not news:
            return found
        if (changed or news) and state.phase is not GroupPhase.HOLDDOWN and not (at_rest and looks):
            due = now
        elif looks and now < moved_at + reported_loads.WINDOW:
            due = min(now + reported_loads.LOOKED_AT_EVERY, math.inf if due is None else due)
        if due is None:
            return found
        facts = replace(facts, now=due, members=members)
    found.at_rest = False
    return found


def _arrived(before: GroupState, after: GroupState) -> bool:
    """Whether all that was on its way has gone to the members it was meant for.

    Otherwise the assignor has changed its mind, and may do so again.
    """
    return all(
        partition >= len(after.owners) or after.owners[partition] == handoff.to
        for partition, handoff in before.handoffs.items()
    )


def _reports(
    members: tuple[MemberFacts, ...],
    state: GroupState,
    asked: Mapping[str, Asked],
    loads: Mapping[int, float],
    *,
    warm: bool,
) -> tuple[MemberFacts, ...]:
    """What members report next; the very same tuple if that is nothing new.

    Args:
        asked: what of the state members do at once.
        loads: see :func:`rehearse`.
        warm: whether they report to be warm for what they are asked to be warm for.
    """
    busy: dict[str | None, dict[int, float]] = {}
    for partition, load in loads.items():
        if partition < len(state.owners):
            busy.setdefault(state.holder(partition), {})[partition] = load
    if not (busy or asked or (warm and any(member.lags for member in members))):
        return members
    reports = []
    for member in members:
        seat = state.roster.get(member.name)
        seated = seat is not None and seat.session == member.session
        mine = asked.get(member.name, Asked()) if seated else Asked()
        lags = dict.fromkeys(sorted(mine.warming), 0.0) if warm else member.lags
        words = {**member.released, **{p: state.tokens[p] for p in mine.revoked}}
        known = {**member.loads, **busy.get(member.name, {})}
        if (lags, words, known) == (member.lags, member.released, member.loads):
            reports.append(member)
        else:
            reports.append(replace(member, lags=lags, released=words, loads=known))
    return members if all(map(is_, members, reports)) else tuple(reports)


class _Answers:
    """The assignor, and what is to be known of its answers.

    In haste nothing waits at a live owner once partitions move.
    """

    def __init__(self, assignor: Assignor, found: Rehearsal) -> None:
        self._assignor = assignor
        self._found = found
        self._answer: tuple[GroupSituation, TargetAssignment] | None = None
        self.in_haste = False
        self.name = assignor.name
        self.lasting = getattr(assignor, "lasting", False)

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        """Who should own what.

        Raises:
            AssignorError: the assignor gave a wrong answer.
        """
        # The same is asked when the delay is over as when it began.
        if self._answer is None or self._answer[0] != situation:
            self._answer = situation, checked_target(self._assignor, situation)
        target = self._answer[1]
        if target.settled:
            return target
        self._found.warmups = max(self._found.warmups, len(target.warmups))
        self._found.warmed |= {
            (partition, to)
            for partition, (to, now) in enumerate(zip(target.owners, target.interim, strict=True))
            if to != now and partition not in target.for_load
        }
        if self.in_haste and situation.rebalancing:
            return self._without_waits(target, situation)
        return target

    @staticmethod
    def _without_waits(target: TargetAssignment, situation: GroupSituation) -> TargetAssignment:
        before = situation.owners_before()
        interim = tuple(
            to if now == was else now
            for to, now, was in zip(target.owners, target.interim, before, strict=True)
        )
        # Where another stands in, the warm-up ends with the next step. Copies change no owner.
        warmups = {
            partition: name
            for partition, name in target.warmups.items()
            if name == target.owners[partition] != interim[partition]
        }
        return replace(target, interim=interim, warmups=warmups)
