"""When a partition group must be at rest after faults, and what it must be like then.

**Rest.** Once faults are over, within :func:`patience` the group is Ready; every process that runs
is a member; every partition is held by one of them, the one that was decided, and all by one where
access is exclusive; and nothing changes after that, at one call a renewal. One member whose
assignor answers is enough.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from hashring.core.assignors import assignor_named
from hashring.core.groups import next_state, reported_loads
from hashring.core.groups.state import EXCLUSIVE, GroupPhase, GroupState
from hashring.protocol.group.base_member_machine import Stage
from hashring.testing.simulator.groups.history import GroupHistory
from hashring.testing.simulator.groups.process import GroupProcess
from hashring.testing.simulator.groups.world import GroupRule, GroupWorld

RENEWALS_AT_REST: Final = 4
"""For how many renewals nothing must change at the end."""


_LOSES: Final = ("wipe", "failover", "rewind", "delete")


def patience(history: GroupHistory) -> float:
    """Seconds from the end of all faults until the group is at rest at the latest."""
    terms = history.terms
    counts = [int(event.what) for event in history.events if event.kind == "resize"]
    each = history.most("max_handoff_time") + history.warm_up + 2 * history.interval
    # A learner first moves what it may, and then warms up for the rest.
    moves = 2 * (max([terms.partitions, *counts]) + sum(counts))
    again = ("switch access", "migrate", "delete", "drain", "undrain", "weigh")
    moves *= 1 + sum(event.kind in again for event in history.events)
    waits = 4 * sum(map(history.most, ("ttl", "rebalance_delay", "leave_timeout")))
    waits += sum(4 * abs(e.lag_and_skew[1]) for e in history.events if e.kind == "failover")
    # The group's clock stands still from the last renewal to the next. If Redis loses it, members
    # hold nothing again until tokens are as great as before.
    loses = any(event.kind in _LOSES or event.what == "empty" for event in history.events)
    waits += history.set_back if loses else min(history.set_back, terms.ttl)
    if history.looks_at_loads:
        # What was moved for its load within the last minute counts.
        waits += 2 * reported_loads.WINDOW
    if any(event.kind == "fail to decide" for event in history.events):
        # Each step may be left to one that cannot take it, and after that to the others.
        each += 2 * history.most("ttl")
    return waits + moves * each + 2 * history.drain


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
        # and writes. If its clock gains, it asks once more, since it was early.
        history, looks = world.history, 0
        if history.looks_at_loads:
            looks = 1 + int(RENEWALS_AT_REST * history.interval / reported_loads.LOOKED_AT_EVERY)
        for process in world.alive:
            made = process.calls - self._calls.get(process.spec.label, process.calls)
            if made > RENEWALS_AT_REST + 1 + 3 * looks:
                raise self.broken(
                    world,
                    f"{process.spec.label} made {made} calls in {RENEWALS_AT_REST} renewals",
                )


def _members(world: GroupWorld) -> list[GroupProcess]:
    return [
        process
        for process in world.alive
        if process.machine.stage is Stage.MEMBER
        and process.local() < process.machine.holdings.holding.lease_until
    ]


def unrest(world: GroupWorld) -> str:
    """Why a group is not at rest; empty when it is."""
    running = _members(world)
    names = {process.spec.name for process in running}
    for process in world.alive:
        if process not in running and process.spec.name not in names:
            return f"{process.spec.label} is {process.machine.stage.value}"
    if not any(process.decides for process in running):
        return ""
    reading = world.reading()
    state = reading.standing() or GroupState.new(world.history.terms)
    if state.phase is not GroupPhase.READY or state.free or state.handoffs or state.draining:
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
    again = next_state.step(state, facts, assignor_named(state.terms.assignor))
    if again.state is state:
        return ""
    changed = [
        field for field, value in vars(again.state).items() if value != getattr(state, field)
    ]
    return f"a step at rest changes {', '.join(changed)}: {again.events}"
