#!/usr/bin/env python
"""What assignors cost and move, and what the lease challenge does under load.

    python scripts/bench/assignors.py
    python scripts/bench/assignors.py --quick      does it work at all?
    python scripts/bench/assignors.py join churn   two of its parts

Times are medians of several runs in this process; moves, pauses and the lease challenge are
computed in virtual time from a fixed seed, so they are the same on every machine.

Beside the project's assignors stands kazoo's rule (``SetPartitioner``: sorted members, every nth
of the sorted partitions), written down as a function. kazoo lets go of everything at every change
of the membership and takes its new set when all have done so; Runnel's rule is ``contiguous``.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import program
from result import Result
from timing import median, seconds

from hashring.core.assignors import (
    Assignor,
    BalancedAssignor,
    ContiguousAssignor,
    FunctionAssignor,
    GroupMember,
    GroupSituation,
    LearnerAssignor,
    LoadAssignor,
    RingAssignor,
)
from hashring.core.groups import next_state
from hashring.core.groups.faithful_challenge import FaithfulChallengeSpans
from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.core.groups.state import Facts, GroupState, MemberFacts, Terms
from hashring.testing.simulator import ChallengeSimulator, Event, GroupSimulator
from hashring.testing.simulator.challenge.history import ChallengeHistory, ChallengerSpec
from hashring.testing.simulator.groups.at_rest_rules import unrest
from hashring.testing.simulator.groups.history import GroupHistory, MemberSpec
from hashring.testing.simulator.groups.process import GroupProcess
from hashring.testing.simulator.groups.world import GroupWorld
from hashring.testing.simulator.rules import Rule


def kazoo(situation: GroupSituation) -> Mapping[str, range]:
    """kazoo.recipe.partitioner.SetPartitioner's default partition_func."""
    names = sorted(member.name for member in situation.members)
    return {
        name: range(place, situation.partitions, len(names)) for place, name in enumerate(names)
    }


QUICK = argparse.Namespace(quick=False)
SIZE = 1000, 10_000
"""Members and partitions of one join."""
TARGETS = {"balanced": "plan-balanced", "learner(balancing_factor=2": "plan-learner"}
KAZOO = FunctionAssignor(kazoo, "kazoo's rule")
ALL: tuple[Assignor, ...] = (
    ContiguousAssignor(),
    BalancedAssignor(),
    LearnerAssignor(),
    LearnerAssignor(1.0, standbys=1),
    LoadAssignor(),
    RingAssignor(),
    KAZOO,
)


def median_ms(do: Callable[[], object]) -> float:
    return median([seconds(do) for _ in range(3 if QUICK.quick else 15)]) * 1000


def members(count: int) -> tuple[GroupMember, ...]:
    return tuple(GroupMember(f"host-{n:04}:4711", n) for n in range(count))


def moved(before: Sequence[object], after: Sequence[object]) -> int:
    return sum(was != now for was, now in zip(before, after, strict=True))


def join(result: Result) -> None:
    """1,000 members x 10,000 partitions, one join."""
    size, partitions = SIZE
    floor = median_ms(lambda: [n % size for n in range(partitions)])
    for assignor in ALL:
        before = assignor.assign(GroupSituation(members(size), partitions))
        joined = GroupSituation(
            members(size + 1), partitions, before.owners, standbys=dict(before.standbys)
        )
        after = assignor.assign(joined)
        took = median_ms(lambda a=assignor, s=joined: a.assign(s))
        result.add(
            f"one join, {assignor.name}: time, moves",
            f"{took:.1f} ms, {moved(before.owners, after.owners)}",
            value=round(took, 1),
            unit="ms",
            target=TARGETS.get(assignor.name.partition(",")[0]),
        )
    result.notes.append(f"One join: a loop over all partitions takes {floor:.2f} ms.")


def decision(result: Result) -> None:
    """The whole decision (core.groups.next_state.step) on the same join, and the next one, when
    members have let go of what they were asked for."""
    size, partitions = SIZE
    for assignor in (BalancedAssignor(), LearnerAssignor(), LoadAssignor(), RingAssignor()):
        terms = Terms(partitions, assignor.name, rebalance_delay=0, handoffs=10)
        facts = tuple(MemberFacts(m.name, m.name, m.joined, 100.0) for m in members(size + 1))
        begun = next_state.step(GroupState.new(terms), Facts(1.0, facts[:size]), assignor).state
        begun = begun.stamped(1.0)
        first = median_ms(lambda a=assignor, f=facts, b=begun: next_state.step(b, Facts(2.0, f), a))
        outcome = next_state.step(begun, Facts(2.0, facts), assignor)
        asked = outcome.state.stamped(2.0)
        words = tuple(released(member, asked) for member in facts)
        following = median_ms(
            lambda a=assignor, w=words, s=asked, plan=outcome.plan: next_state.step(
                s, Facts(2.1, w), a, plan
            )
        )
        what = f"the whole decision on one join, {assignor.name}: the first; the next"
        result.add(what, f"{first:.1f} ms; {following:.1f} ms")


def released(member: MemberFacts, state: GroupState) -> MemberFacts:
    """A member that has let go of what it was asked for."""
    words = {p: state.tokens[p] for p, each in state.handoffs.items() if each.owner == member.name}
    return replace(member, released=words, seen=state.generation)


def joins_and_leaves(count: int) -> list[list[int]]:
    """Who is there at first, and after each of so many joins and leaves."""
    rng = random.Random(7)
    present, history = [0], [[0]]
    for number in range(1, count + 1):
        if len(present) < 16 and (len(present) < 4 or rng.random() < 0.6):
            present = [*present, number]
        else:
            gone = rng.choice(present)
            present = [n for n in present if n != gone]
        history.append(present)
    return history


def churn(result: Result) -> None:
    """The same joins and leaves for everybody, on 256 partitions."""
    history = joins_and_leaves(39)
    least = 0
    for assignor in (
        BalancedAssignor(),
        LearnerAssignor(1.0),
        ContiguousAssignor(),
        RingAssignor(),
        KAZOO,
    ):
        owners: tuple[str | None, ...] = ()
        moves, paused, spread = 0, 0, 0
        for numbers in history:
            everybody = tuple(GroupMember(f"m{n:02}", n) for n in numbers)
            after = assignor.assign(GroupSituation(everybody, 256, owners)).owners
            counts = [after.count(m.name) for m in everybody]
            spread = max(spread, max(counts) - min(counts))
            if owners:
                changed = moved(owners, after)
                moves += changed
                paused += 256 if assignor is KAZOO else changed
            owners = after
        if isinstance(assignor, BalancedAssignor):
            least = moves
        result.add(
            f"{len(history) - 1} joins and leaves, {assignor.name}: moves, pauses, unevenness",
            f"{moves}, {paused}, {spread}",
            value=round(moves / least, 2),
        )


class Pauses(Rule[GroupWorld, GroupProcess]):
    """Measures for how long partitions have no member."""

    def __init__(self) -> None:
        self._holding: dict[str, set[int]] = {}
        self._since: dict[int, float] = {}
        self.longest = 0.0
        self.last = 0.0

    def shown(self, world: GroupWorld, process: GroupProcess) -> None:
        """What a process holds may have changed."""
        held, had = set(process.held()), self._holding.get(process.spec.label, set())
        self._holding[process.spec.label] = held
        for partition in had - held:
            self._since[partition] = world.now
        for partition in held - had:
            self.last = world.now
            self.longest = max(self.longest, world.now - self._since.pop(partition, world.now))


def pauses(result: Result) -> None:
    """1 -> 2 -> 16 members: how long it takes, and how long partitions pause.

    A message takes 0.2 to 30 ms, mostly less than 1, and it takes up to 2 ms to let go. What is not
    moved keeps its token, and pauses for 0 ms.
    """
    specs = tuple(MemberSpec(f"p{number:02}", f"m{number:02}") for number in range(16))
    starts = [0.0, 5.0, *[25.0] * 14]
    events = [Event(at, "start", spec.label) for at, spec in zip(starts, specs, strict=True)]
    for name in ("balanced", "contiguous"):
        for handoffs in (1, 16):
            terms = Terms(256, name, rebalance_delay=0, handoffs=handoffs)
            history = GroupHistory(1, specs, tuple(events), terms, handoff=0.002)
            measured = Pauses()
            world = GroupSimulator(rules=lambda rule=measured: [rule]).world(history)
            for size, begin in ((2, 5.0), (16, 25.0)):
                world.run(begin - 0.01)
                before, measured.longest = world.state(), 0.0
                world.run(begin + 19.0)
                if wrong := unrest(world):
                    raise RuntimeError(wrong)
                after = world.state()
                result.add(
                    f"{name}, {handoffs} at once, to {size} members: settled; moves, partitions "
                    "not touched; longest pause",
                    f"{measured.last - begin:.2f} s; {moved(before.owners, after.owners)}, "
                    f"{256 - moved(before.tokens, after.tokens)}; {measured.longest * 1000:.1f} ms",
                )


def challenges(result: Result) -> None:
    """The faithful challenge and the lease challenge: 16 partitions, 4 members, one of them late by
    0 to twice the mean."""
    hours = 2 if QUICK.quick else 20
    for late in (0.0, 0.15, 0.5, 1.0, 2.0):
        for name, terms in (
            ("faithful", FaithfulChallengeSpans()),
            ("lease", LeaseChallengeRules()),
        ):
            specs = [ChallengerSpec("loaded", late), *map(ChallengerSpec, "bcd")]
            events = [Event(0.0, "start", spec.label) for spec in specs]
            history = ChallengeHistory(1, tuple(specs), tuple(events), terms, 16)
            world = ChallengeSimulator().world(history)
            world.run(1800)
            world.measure_anew()
            world.run(1800 + hours * 3600)
            world.measure_time()
            found = world.measured
            result.add(
                f"{late:g} s late on the mean, {name} challenge: moves an hour; partition-seconds "
                "an hour with no owner, with two; partitions of each member at the end",
                f"{found.moves / hours:.0f}; {found.unowned / hours:.0f}, "
                f"{found.doubled / hours:.0f}; {'/'.join(map(str, world.counts().values()))}",
            )


PARTS: dict[str, Callable[[Result], None]] = {
    "join": join,
    "decision": decision,
    "churn": churn,
    "pauses": pauses,
    "challenges": challenges,
}


if __name__ == "__main__":
    asked = program.parser(__doc__)
    asked.add_argument("--quick", action="store_true", help="fewer runs, fewer hours")
    program.play(asked, PARTS, QUICK)
