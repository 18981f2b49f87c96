"""A plan is what a group does: moves, handoffs, delay and time, for random groups and changes.

The group is played by other means than the plan: its own budgets and assignor, owners that answer
at once or not at all, warm-ups one after the other, and every look at loads.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest

from hashring.core.assignors import (
    BalancedAssignor,
    ContiguousAssignor,
    GroupMember,
    LearnerAssignor,
    LoadAssignor,
    RingAssignor,
    as_assignor,
)
from hashring.core.groups import member_orders, next_state, rehearsal, reported_loads
from hashring.core.groups.group_foresight import GroupForesight, MoveReason, foresee
from hashring.core.groups.next_state import Rebalance
from hashring.core.groups.state import EXCLUSIVE, NON_EXCLUSIVE, EventKind, GroupPhase
from tests.conftest import LONG

from .desk import Desk


def by_name(situation: Any) -> dict[str, list[int]]:
    """An assignor of a user's own: partitions go round, by the names of members."""
    names = sorted(member.name for member in situation.candidates())
    return {n: [*range(i, situation.partitions, len(names))] for i, n in enumerate(names)}


ASSIGNORS = {
    "balanced": BalancedAssignor(),
    "contiguous": ContiguousAssignor(),
    "learner": LearnerAssignor(),
    "learner of one warm-up": LearnerAssignor(1.0, warmups=1),
    "learner with standbys": LearnerAssignor(1.0, standbys=1),
    "load": LoadAssignor(moves=3),
    "ring": RingAssignor(16),
    "a function": as_assignor(by_name),
}


KINDS = "join", "leave", "return", "stall", "go", "drain", "weigh", "resize", "access", "release"
"""What happens to a group."""


@dataclass
class Course:
    """What a group did until it was at rest: when owners were asked, and when who was granted."""

    asked: dict[int, float] = field(default_factory=dict)
    granted: dict[int, float] = field(default_factory=dict)

    @property
    def first_asked(self) -> float:
        return min(self.asked.values())


class Group(Desk):
    """A group whose members do as they are asked, and how busy its partitions are."""

    loads: dict[int, float]
    plan: Rebalance | None = None

    def step(self) -> Group:
        outcome = next_state.step(self.state, self.facts, self.assignor, self.plan)
        self.events, self.due, self.plan = list(outcome.events), outcome.due, outcome.plan
        if outcome.state is not self.state:
            self.state = outcome.state.stamped(self.now)
        return self

    def report(self, *, late: bool, warm: bool = True) -> None:
        """Everybody reports what there is, but a late owner no release.

        Args:
            warm: whether members are warm for what they were asked to be warm for.
        """
        for name, facts in self.members.items():
            view = self.state.view(name, facts.session)
            if not late:
                self.release(name, *view.revoked)
            # Who is warm stays so, while a late owner keeps the partition.
            if warm:
                self.warm(name, *view.warming, *(facts.lags if late else ()))
            self.set(name, seen=self.state.generation)
        self.report_loads()

    def report_loads(self) -> None:
        having = self.having
        for name, facts in self.members.items():
            busy = {p: self.loads[p] for p in having.get(name, ()) if p in self.loads}
            self.set(name, loads={**facts.loads, **busy})

    def play(self, *, late: bool = False) -> Course:
        """Time passes until nothing is left to do.

        Args:
            late: whether owners let go at their deadlines only.
        """
        course, looked = Course(), False
        for turn in range(1000):
            self.report(late=late, warm=turn > 0)
            before = self.state
            self.step()
            for event in self.events:
                if event.kind is EventKind.REVOKED and event.partition is not None:
                    course.asked.setdefault(event.partition, self.now)
                if event.kind is EventKind.GRANTED and event.partition is not None:
                    course.granted[event.partition] = self.now
            moving = self.state is not before and self.phase is not GroupPhase.READY
            if moving or (turn == 0 and self.state.warming):
                looked = False
                continue
            if self.due is None or (self.phase is GroupPhase.READY and self.due != self.now):
                # Loads are looked at once more.
                if looked or not self.loads or self.due is None:
                    return course
                looked = True
            self.now = self.due
            self.wait(0)
        raise AssertionError("it never rests")

    @property
    def holders(self) -> dict[int, str | None]:
        """Who has each partition, once handoffs under way are done, as far as it is there."""
        seats = {name: seat.session for name, seat in self.state.roster.items()}
        there = {n for n, facts in self.members.items() if seats.get(n) == facts.session}
        found = {p: self.state.holder(p) for p in range(len(self.state.owners))}
        found |= {p: handoff.to for p, handoff in self.state.handoffs.items()}
        return {p: name if name in there else None for p, name in found.items()}


def random_group(rng: random.Random, name: str) -> Group:
    """A group of any past, at rest or in the middle of something."""
    group = Group(
        rng.randint(1, 16),
        ASSIGNORS[name],
        rebalance_delay=rng.choice([0, 5]),
        max_handoff_time=3,
        handoffs=rng.choice([1, 1, 2, 16]),
        access=EXCLUSIVE if rng.random() < 0.1 else NON_EXCLUSIVE,
    )
    group.loads = {}
    if name == "load":
        group.loads = {p: rng.choice([1.0, 1.0, 2.0, 5.0]) for p in range(rng.choice([0, 16]))}
    for member in "abcd"[: rng.randint(0, 4)]:
        group.join(member, weight=rng.choice([1.0, 1.0, 2.0]))
    group.play()
    for _ in range(rng.choice([0, 0, 1, 2, 3])):
        change(rng, group)
        for _ in range(rng.randint(0, 3)):
            group.step()
        group.wait(rng.choice([0.0, 1.0, 6.0]))
    # What nobody has reported so far, no plan can know.
    group.report_loads()
    reported = {partition for facts in group.members.values() for partition in facts.loads}
    group.loads = {p: load for p, load in group.loads.items() if p in reported}
    return group


def change(rng: random.Random, group: Group) -> None:
    """Something happens to a group."""
    name = rng.choice(sorted(group.members)) if group.members else ""
    kind = rng.choice(KINDS)
    if kind == "join":
        group.join(f"n{len(group.members)}{group.now}", weight=rng.choice([1.0, 1.0, 0.5]))
    elif kind == "resize":
        group.resize(rng.randint(1, 16))
    elif kind == "access":
        group.migrate(access=rng.choice([EXCLUSIVE, NON_EXCLUSIVE]))
    elif not name:
        return
    elif kind == "leave":
        group.leave(name)
    elif kind == "return":
        group.leave(name).join(name)
    elif kind == "stall":
        group.set(name, stalled=True)
    elif kind == "go":
        group.set(name, leaving=group.now)
    elif kind == "release":
        group.release(name, *(p for p, h in group.state.handoffs.items() if h.owner == name))
    elif name in group.state.roster:
        outcome = (
            member_orders.drain(
                group.state, name, group.now, "ops", seconds=rng.choice([None, 99]), force=True
            )
            if kind == "drain"
            else member_orders.weigh(group.state, name, rng.choice([0.5, 3.0]), group.now, "ops")
        )
        if outcome.state is not group.state:
            group.state = outcome.state.stamped(group.now)


@dataclass
class Change:
    """What is planned, and done then."""

    leave: list[str]
    join: list[GroupMember]
    terms: dict[str, Any]

    @classmethod
    def random(cls, rng: random.Random, group: Group) -> Change:
        leave = [name for name in group.members if rng.random() < 0.2]
        join = [GroupMember(f"x{n}", 0, rng.choice([1.0, 2.0])) for n in range(rng.randint(0, 2))]
        join += [GroupMember(name) for name in leave if rng.random() < 0.2]
        terms: dict[str, Any] = {}
        if rng.random() < 0.2:
            terms["partitions"] = rng.randint(1, 16)
        if rng.random() < 0.1:
            terms["access"] = rng.choice([EXCLUSIVE, NON_EXCLUSIVE])
        return cls(leave, join, terms)

    def foreseen(self, group: Group) -> GroupForesight:
        return foresee(
            group.state, group.facts, group.assignor, join=self.join, leave=self.leave, **self.terms
        )

    def do(self, group: Group) -> None:
        group.leave(*self.leave)
        for member in self.join:
            group.join(member.name, weight=member.weight)
        if self.terms:
            group.migrate(**self.terms)


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("seed", range(60 if LONG else 30))
def test_a_plan_is_what_the_group_does(name: str, seed: int) -> None:
    rng = random.Random(f"{name} {seed}")
    group = random_group(rng, name)
    planned = Change.random(rng, group)
    had = {p: None if owner in planned.leave else owner for p, owner in group.holders.items()}
    paced = reported_loads.recent(group.state.load_moves, group.now)
    began = group.now
    plan = planned.foreseen(group)
    planned.do(group)
    course = group.play()
    state = group.state
    has = {p: state.holder(p) for p in range(state.terms.partitions)}
    moves = {m.partition: m for m in plan.moves if m.reason is not MoveReason.REMOVED}
    assert {p: (m.before, m.after) for p, m in moves.items()} == {
        p: (had.get(p), to) for p, to in has.items() if to not in (None, had.get(p))
    }
    # What is handed over for nothing comes back.
    moving = {m.partition for m in plan.moves}
    assert {m.partition for m in plan.moves if m.handoff} == course.asked.keys() & moving
    assert moving - moves.keys() == state.draining
    assert sum(plan.after.values()) == sum(to is not None for to in has.values())
    assert plan.at_rest
    if course.asked:
        assert paced or plan.delay == course.first_asked - began
    else:
        granted = [course.granted[p] - began for p in moving & course.granted.keys()]
        assert plan.delay == max(granted, default=0)


@pytest.mark.parametrize("name", sorted(ASSIGNORS.keys() - {"load"}))
@pytest.mark.parametrize("seed", range(20))
def test_owners_that_take_all_their_time_take_no_longer_than_a_plan_says(
    name: str, seed: int
) -> None:
    rng = random.Random(f"{name} {seed}")
    group = random_group(rng, name)
    # What is under way already is no part of a plan.
    while group.state.handoffs:
        group.report(late=False)
        group.step()
    planned = Change.random(rng, group)
    plan = planned.foreseen(group)
    planned.do(group)
    course = group.play(late=True)
    if course.asked:
        assert max(course.granted.values()) - course.first_asked <= plan.longest


@pytest.mark.parametrize("name", ["learner", "learner of one warm-up"])
@pytest.mark.parametrize("seed", range(20))
def test_a_plan_in_haste_gives_members_as_many_partitions_as_one_with_patience(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(f"{name} {seed}")
    group = random_group(rng, name)
    planned = Change.random(rng, group)
    patient = planned.foreseen(group)
    monkeypatch.setattr(rehearsal, "PATIENCE", 0)
    hasty = planned.foreseen(group)
    assert (hasty.after, hasty.delay, hasty.at_rest) == (patient.after, patient.delay, True)


def test_a_rehearsal_of_many_moves_takes_few_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0

    def counted(*given: Any, **more: Any) -> next_state.StepOutcome:
        nonlocal steps
        steps += 1
        return step(*given, **more)

    step = next_state.step
    monkeypatch.setattr(next_state, "step", counted)
    for name, most in (("balanced", 3), ("learner", 20)):
        group = Group(2000, ASSIGNORS[name], rebalance_delay=5).join("a", "b").settle()
        steps = 0
        plan = foresee(group.state, group.facts, group.assignor, join=["c", "d"])
        assert (len(plan.moves) >= 500, steps <= most) == (True, True)
