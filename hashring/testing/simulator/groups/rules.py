"""What must hold of a partition group, whatever happens.

They are checked by somebody who sees all processes, and Redis, at once. Times are true times.

**Holder.** No two processes count one partition as held, not even one that is paused or cut off,
whatever Redis lost.

**Renewal.** No process counts anything as held later than one ttl after it sent the last renewal
that it knows to have succeeded.

**Once.** What a process has given up, or lost, under a token it never counts as held again under
that token.

**Prompt.** While its connection works, a process is let in one ttl after it asks for a name that
nobody renews. It counts as a member one heartbeat after it joined, however long the assignor takes.
It has left ``leave_timeout`` and ``max_handoff_time`` after it was first asked to hand over.

**Decisions.** Every decision has a greater generation than the one before it, speaks of existing
partitions only, and grants under tokens that were never used. The status says where each partition
is.

**Tokens.** The token of a partition rises with every grant, whatever Redis loses.

**Standbys first.** With a learner, what an owner had that is gone goes to no cold member while
another is warm.

**Needed.** With a learner no partition changes its owner while every member has its share.

**Told.** What an application was given and has not ended is what its process holds, at rest; it is
told in turns that it is active and that it is not, and the last of that is true. If the
application does not end its work in time, it receives ``on_lost``.

**As before.** While there are as many members as when the group was Ready, nothing is handed off.

**Rest.** Once faults are over, within :func:`patience` the group is Ready; every process that runs
is a member; every partition is held by one of them, the one that was decided, and all by one where
access is exclusive; and nothing changes after that, at one call a renewal.
"""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from hashring.core.assignors import Learner, Load, Member, RingOwner, assignor_named
from hashring.core.assignors.quotas import fair_shares, round_down, round_up
from hashring.core.groups import next_decision, reported_loads
from hashring.core.groups.group_status import status
from hashring.core.groups.held_partitions import Holding
from hashring.core.groups.json_codec import load_events
from hashring.core.groups.state import EXCLUSIVE, EventKind, Facts, GroupEvent, GroupState, Phase
from hashring.errors import MemberExists
from hashring.protocol.member_machine import Stage
from hashring.store.command import Command
from hashring.store.group.commands import Beat, Committed, Joined, Reading, looked_at
from hashring.testing.simulator.groups.history import GroupHistory
from hashring.testing.simulator.groups.world import GroupProcess, GroupWorld
from hashring.testing.simulator.network import LATENCY
from hashring.testing.simulator.rules import Hears, Rule
from hashring.testing.simulator.virtual_time import NEVER

GroupRule = Rule[GroupWorld, GroupProcess]

RENEWALS_AT_REST: Final = 4
"""For how many renewals nothing must change at the end."""

# Redis time in seconds is a float, and deadlines go through it.
_ROUNDING: Final = 3e-6


def patience(history: GroupHistory) -> float:
    """Seconds from the end of all faults until the group is at rest at the latest."""
    terms = history.terms
    counts = [int(event.what) for event in history.events if event.kind == "resize"]
    each = terms.max_handoff_time + history.warm_up + 2 * history.interval
    # A learner first moves what it may, and then warms up for the rest.
    moves = 2 * (max([terms.partitions, *counts]) + sum(counts))
    again = ("switch access", "drain", "undrain", "weigh")
    moves *= 1 + sum(event.kind in again for event in history.events)
    waits = 4 * (terms.ttl + terms.rebalance_delay + terms.leave_timeout)
    if reported_loads.looks(assignor_named(terms.assignor)):
        # What was moved for its load within the last minute counts.
        waits += 2 * reported_loads.WINDOW
    return waits + moves * each + 2 * history.drain


class HeldRule(GroupRule):
    """Looks at what a process holds whenever that may have grown."""

    def __init__(self) -> None:
        self._seen: dict[str, Holding] = {}

    def shown(self, world: GroupWorld, process: GroupProcess) -> None:
        # What is held is a frozen picture, of which time only takes away.
        holding = process.machine.membership.holding
        if self._seen.get(process.spec.label) is not holding:
            self._seen[process.spec.label] = holding
            self.look(world, process, process.held())

    def look(self, world: GroupWorld, process: GroupProcess, held: dict[int, int]) -> None:
        """Look at what a process holds."""


class PartitionHolder(HeldRule):
    name = "holder"

    def look(self, world: GroupWorld, process: GroupProcess, held: dict[int, int]) -> None:
        for other in world.processes.values():
            both = held.keys() & other.held().keys() if held and other is not process else ()
            for partition in sorted(both):
                raise self.broken(
                    world,
                    f"partition {partition} is held by {process.spec.label} and {other.spec.label}",
                )


class MemberRenewal(HeldRule):
    name = "renewal"

    def look(self, world: GroupWorld, process: GroupProcess, held: dict[int, int]) -> None:
        until = process.machine.membership.holding.lease_until - process.offset
        # A member that was told of another ttl goes by that.
        ttl = max(world.history.terms.ttl, process.machine.terms.ttl)
        if held and until > process.renewed_sent + ttl + _ROUNDING:
            raise self.broken(
                world,
                f"{process.spec.label} counts partitions as held until {until:.3f}, its last "
                f"renewal was sent at {process.renewed_sent:.3f}",
            )


class Once(HeldRule):
    name = "once"

    def __init__(self) -> None:
        super().__init__()
        self._held: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self._past: dict[str, set[tuple[int, int]]] = defaultdict(set)

    def look(self, world: GroupWorld, process: GroupProcess, held: dict[int, int]) -> None:
        label, now = process.spec.label, set(held.items())
        self._past[label] |= self._held[label] - now
        self._held[label] = now
        if again := now & self._past[label]:
            partition, token = min(again)
            raise self.broken(
                world, f"{label} holds partition {partition} under {token}, which it had given up"
            )


class Prompt(GroupRule):
    name = "prompt"

    def __init__(self) -> None:
        # For each process, which of the bounded parts of its life it is in, and since when.
        self._since: dict[str, tuple[str, float]] = {}
        # For each name the time at which each process last had it in Redis.
        self._named: dict[str, dict[str, float]] = defaultdict(dict)

    def executed(
        self, world: GroupWorld, process: GroupProcess, command: Command[Any], reply: Any
    ) -> None:
        if isinstance(reply, Beat | Joined):
            self._named[process.spec.name][process.spec.label] = world.now

    def shown(self, world: GroupWorld, process: GroupProcess) -> None:
        label, machine = process.spec.label, process.machine
        part = _BOUNDED.get(machine.stage, "") if process.alive else ""
        before, began = self._since.get(label, ("", NEVER))
        gave_up = machine.stage is Stage.FAILED and not process.stopping
        if gave_up and before == "asks to be let in":
            self._look_at_name(world, process, began)
        if part == before:
            return
        self._since[label] = part, world.now
        if part:
            self._look_later(world, process, part, world.now)

    def _look_at_name(self, world: GroupWorld, process: GroupProcess, began: float) -> None:
        machine = process.machine
        named = self._named[process.spec.name]
        others = [at for who, at in named.items() if who != process.spec.label]
        if (
            isinstance(machine.failure, MemberExists)
            and machine.waits_for_name
            and max(others, default=NEVER) < began
        ):
            raise self.broken(
                world, f"{process.spec.label} gave up a name that nobody has renewed meanwhile"
            )

    def _look_later(
        self, world: GroupWorld, process: GroupProcess, part: str, began: float
    ) -> None:
        terms = world.history.terms
        # A loop notices the time when its call has ended.
        call = 4 * LATENCY + 2 * float(process.spec.lag)
        bound = (
            call
            + {
                "asks to be let in": terms.ttl + world.history.interval + call,
                "waits for a decision": world.history.interval,
                "hands over": terms.leave_timeout,
                "leaves": terms.max_handoff_time,
            }[part]
        )

        def look() -> None:
            if not process.alive or self._since[process.spec.label] != (part, began):
                return
            # A call that began in trouble may go on for that much longer.
            trouble = max(process.trouble_until, world.down_until, world.hang_until)
            late = trouble + world.io_timeout + bound
            if world.now < late:
                world.at(late, look)
            else:
                raise self.broken(
                    world, f"{process.spec.label} {part} since {began:.3f}: longer than {bound:g} s"
                )

        world.at(world.now + bound, look)


_BOUNDED: Final = {
    Stage.ENTERING: "asks to be let in",
    Stage.WAITING: "asks to be let in",
    Stage.JOINED: "waits for a decision",
    Stage.HANDING_OVER: "hands over",
    Stage.LEAVING: "leaves",
}
"""The parts of a member's life that are promised to end, and the stages of each."""


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
    """Looks at every step that a decider commits."""

    def __init__(self) -> None:
        # What each process has read, or a renewal has brought it, by Redis time.
        self._read: defaultdict[str, dict[str, Reading]] = defaultdict(dict)

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
            self.look(world, process, CommittedStep(before, reading.facts, world.state(), events))

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        """Look at a step."""


class Decisions(DecisionRule):
    name = "decisions"

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        if wrong := fault_of(decision.before, decision.after, decision.facts):
            raise self.broken(world, wrong)


class PartitionTokens(DecisionRule):
    name = "tokens"

    def __init__(self) -> None:
        super().__init__()
        self._tokens: dict[int, int] = {}

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        after = decision.after
        for partition in after.existing:
            token, last = after.tokens[partition], self._tokens.get(partition, 0)
            if after.holder(partition) is None or token == last:
                continue
            if token < last and world.rolled_back_at == NEVER:
                raise self.broken(world, f"the token of partition {partition} fell to {token}")
            self._tokens[partition] = token


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
    seen = {name: set(view.held) for name, view in after.views().items() if view.held}
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
        if not isinstance(assignor, Learner) or before.terms.access == EXCLUSIVE:
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
                if each.leaving is None
                and not each.stalled
                and each.name not in _drained(before, facts.now)
                and each.lags.get(partition, math.inf) <= assignor.acceptable_lag
            ]
            if warm and event.member not in warm and event.why != next_decision.HELD_ALREADY:
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
        learner = isinstance(process.decider.assignor, Learner) and (
            before.terms.access != EXCLUSIVE
        )
        if not asked or not learner or _owners_to_be(before):
            return
        if before.terms.access == EXCLUSIVE:
            return
        present = [each for each in facts.members if each.expires > facts.now]
        if any(each.leaving is not None or each.stalled for each in present) or before.free:
            return
        if before.orders:
            return
        members = [Member(m.name, n, m.weight) for n, m in enumerate(present)]
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
            and each.leaving is None
            and not each.stalled
            and each.name not in drained
        ]
        for event in decision.events:
            given = event.kind is EventKind.GRANTED and event.why != next_decision.HELD_ALREADY
            if given and event.member in drained and takers:
                raise self.broken(
                    world,
                    f"partition {event.partition} went to {event.member}, which is drained, though "
                    f"{' and '.join(takers)} could take it",
                )


class AsBefore(DecisionRule):
    name = "as before"

    def __init__(self) -> None:
        super().__init__()
        # The members' weights when the group was Ready, while they count.
        self._settled: list[float] | None = None

    def look(self, world: GroupWorld, process: GroupProcess, decision: CommittedStep) -> None:
        after, facts = decision.after, decision.facts
        if decision.before.orders or after.orders:
            self._settled = None
            return
        present = [each for each in facts.members if each.expires > facts.now]
        weights = sorted(each.weight for each in present)
        quiet = all(each.leaving is None and not each.stalled for each in present)
        asked = [event for event in decision.events if event.kind is EventKind.REVOKED]
        # To `ring` only names count; and a copy comes before the number of members.
        # To `load` what is reported counts, too.
        rules = (RingOwner, Load)
        places = not isinstance(process.decider.assignor, rules) and not after.standbys
        # A place is taken by a member of the same weight.
        alike = weights == self._settled
        waited = decision.before.phase is not Phase.REBALANCING
        if asked and alike and quiet and places and waited:
            raise self.broken(
                world,
                f"partition {asked[0].partition} is handed off, though there are {len(present)} "
                f"members as before",
            )
        if after.phase is Phase.READY:
            self._settled = weights if quiet else None
        elif after.phase is Phase.REBALANCING:
            self._settled = None

    def touched(self, world: GroupWorld, lost: bool) -> None:
        self._settled = None


class MemberReports(GroupRule):
    name = "told"

    def shown(self, world: GroupWorld, process: GroupProcess) -> None:
        if process.never_told is not None:
            raise self.broken(
                world,
                f"{process.spec.label} worked on partition {process.never_told} beyond its time, "
                f"and is never told that it was lost",
            )
        told = process.activity
        if any(was is now for was, now in pairwise(told)):
            raise self.broken(world, f"{process.spec.label} is told twice that active={told[-1]}")

    def healed(self, world: GroupWorld) -> None:
        for process in world.alive:
            held, active = process.held(), process.activity[-1:] == [True]
            if process.working != held:
                raise self.broken(
                    world,
                    f"{process.spec.label} works on {sorted(process.working)}, and holds "
                    f"{sorted(held)}",
                )
            if active is not bool(held):
                raise self.broken(
                    world, f"{process.spec.label} was told that active={active}, wrongly"
                )


class GroupRest(GroupRule):
    name = "rest"

    def __init__(self) -> None:
        self._generation = 0
        self._calls: dict[str, int] = {}

    def healed(self, world: GroupWorld) -> None:
        if wrong := unrest(world):
            raise self.broken(world, wrong)
        running = _members(world)
        if running:
            self._generation = world.state().generation
            self._calls = {process.spec.label: process.calls for process in running}

    def finished(self, world: GroupWorld) -> None:
        if not self._calls:
            return
        if world.state().generation != self._generation:
            raise self.broken(world, "something was decided without a reason")
        # An assignor of loads looks at them now and then: the member that decides reads the group,
        # and writes if it moves one.
        history, looks = world.history, 0
        if reported_loads.looks(assignor_named(history.terms.assignor)):
            looks = 1 + int(RENEWALS_AT_REST * history.interval / reported_loads.LOOKED_AT_EVERY)
        for process in world.alive:
            made = process.calls - self._calls.get(process.spec.label, process.calls)
            if made > RENEWALS_AT_REST + 1 + 2 * looks:
                raise self.broken(
                    world,
                    f"{process.spec.label} made {made} calls in {RENEWALS_AT_REST} renewals",
                )


def _members(world: GroupWorld) -> list[GroupProcess]:
    return [
        process
        for process in world.alive
        if process.machine.stage is Stage.MEMBER
        and process.local() < process.machine.membership.holding.lease_until
    ]


def unrest(world: GroupWorld) -> str:
    """Why a group is not at rest; empty when it is."""
    running = _members(world)
    names = {process.spec.name for process in running}
    for process in world.alive:
        if process not in running and process.spec.name not in names:
            return f"{process.spec.label} is {process.machine.stage.value}"
    if not running:
        return ""
    reading = world.reading()
    state = reading.standing() or GroupState.new(world.history.terms)
    if state.phase is not Phase.READY or state.free or state.handoffs or state.draining:
        return (
            f"no rest: {state.phase.value}, free {sorted(state.free)}, handoffs "
            f"{dict(state.handoffs)}, warming {dict(state.warming)}, draining "
            f"{sorted(state.draining)}"
        )
    held: dict[int, list[str]] = {}
    for process in running:
        for partition in process.held():
            held.setdefault(partition, []).append(process.spec.name)
    for partition in state.existing:
        if held.get(partition) != [state.holder(partition)]:
            return (
                f"partition {partition} is {state.holder(partition)}'s, but held by "
                f"{held.get(partition)}"
            )
    owners = {state.holder(partition) for partition in range(state.terms.partitions)}
    if state.terms.access == EXCLUSIVE and len(owners) > 1:
        return f"access is exclusive, but {len(owners)} members have partitions"
    orders = state.orders_at(reading.facts.now)
    drained = {name for name, order in orders.items() if order.drained}
    if not drained >= names and (still := drained & owners):
        return f"{' and '.join(sorted(map(str, still)))} is drained, and still has partitions"
    # That Redis was restarted is noticed by the next step, and nothing makes one due.
    facts = replace(reading.facts, server=state.server)
    again = next_decision.step(state, facts, assignor_named(state.terms.assignor))
    if again.state is state:
        return ""
    changed = [
        field for field, value in vars(again.state).items() if value != getattr(state, field)
    ]
    return f"a step at rest changes {', '.join(changed)}: {again.events}"


def group_rules() -> list[GroupRule]:
    """A fresh instance of each rule."""
    return [
        PartitionHolder(),
        MemberRenewal(),
        Once(),
        Prompt(),
        Decisions(),
        PartitionTokens(),
        StandbysFirst(),
        Needed(),
        AsBefore(),
        Drained(),
        MemberReports(),
        GroupRest(),
        Hears(),
    ]
