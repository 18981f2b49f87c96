"""What members are told of a decision leads from the part they had to the part they have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hashring.core.assignors import assignor_named
from hashring.core.groups import next_state
from hashring.core.groups.json_codec import dump_view_change, load_view_change
from hashring.core.groups.pending_moves import PendingMoves
from hashring.core.groups.state import GroupPhase, MemberView
from hashring.core.groups.view_changes import ViewChange, changed_view, changed_views
from hashring.testing.simulator import GroupSimulator, random_group_history
from hashring.testing.simulator.groups.world import GroupWorld


@pytest.mark.slow
def test_a_part_and_its_changes_are_the_part_that_stands() -> None:
    told = 0
    for seed in range(12):
        world: GroupWorld = GroupSimulator().world(random_group_history(seed))
        before = world.state()
        parts: dict[str, MemberView] = {}
        for moment in range(1, 120):
            world.run(0.5 * moment)
            after = world.state()
            for name, change in changed_views(before, after).items():
                nothing = MemberView(0, GroupPhase.READY)
                part = nothing if change.fresh else parts[name]
                written = load_view_change(dump_view_change(change))
                parts[name] = changed_view(part, [written], after.generation, after.phase)
                told += 1
            for name, seat in after.roster.items():
                if seat.session:
                    view = after.view(name, seat.session)
                    part = changed_view(parts[name], [], after.generation, after.phase)
                    assert part == view, (seed, moment, name)
            before = after
    assert told > 200


def test_of_a_partition_that_comes_and_goes_the_last_change_counts() -> None:
    nothing = MemberView(1, GroupPhase.READY)
    comes, goes = ViewChange(held={5: 7}), ViewChange(not_held=(5,))
    assert dict(changed_view(nothing, [comes, goes], 2, GroupPhase.READY).held) == {}
    assert dict(changed_view(nothing, [goes, comes], 2, GroupPhase.READY).held) == {5: 7}


def test_what_is_to_be_emptied_and_then_not_is_in_the_part_until_then() -> None:
    part = changed_view(
        MemberView(1, GroupPhase.READY), [ViewChange(draining=(3, 4))], 2, GroupPhase.READY
    )
    assert part.draining == {3, 4}
    part = changed_view(part, [ViewChange(not_draining=(3,))], 3, GroupPhase.READY)
    assert part.draining == {4}


@pytest.mark.slow
def test_a_plan_that_was_followed_decides_as_one_that_is_looked_at_anew() -> None:
    served = 0
    for seed in range(12):
        world = GroupSimulator().world(random_group_history(seed, "balanced"))
        plan = None
        for moment in range(1, 120):
            world.run(0.5 * moment)
            reading = world.reading()
            state = reading.standing()
            if state is None:
                continue
            assignor = assignor_named(state.terms.assignor)
            anew = plan
            if plan is not None and len(state.owners) >= len(plan.situation.previous):
                start, wanted = plan.situation.previous, plan.target.interim
                anew = replace(plan, pending_moves=PendingMoves(start, wanted, state.owners))
            expected = next_state.step(state, reading.facts, assignor, anew)
            outcome = next_state.step(state, reading.facts, assignor, plan)
            assert (outcome.state, outcome.events) == (expected.state, expected.events)
            served += outcome.plan is plan
            plan = outcome.plan
    assert served > 100
