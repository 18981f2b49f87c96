"""What a change of a group would do, before it is made. What is foretold is what happens."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from hashring.core.assignors import (
    Assignor,
    BalancedAssignor,
    ContiguousAssignor,
    GroupMember,
    GroupSituation,
    LearnerAssignor,
    LoadAssignor,
    RingAssignor,
    as_assignor,
    assignor_named,
)
from hashring.core.assignors.exclusive import ExclusiveAssignor
from hashring.core.groups import member_orders
from hashring.core.groups.group_foresight import MoveReason, foresee
from hashring.core.groups.reported_loads import LOOKED_AT_EVERY
from hashring.errors import ConfigError, UnknownMemberError
from hashring.testing.simulator.groups.random_histories import ASSIGNORS
from tests.conftest import some

from .desk import Desk, three, trouble


def test_a_plan_touches_nothing() -> None:
    desk = three()
    before, facts = desk.state, desk.facts
    foresee(before, facts, desk.assignor, join=["d"], leave=["a"], partitions=9)
    assert (desk.state, desk.facts) == (before, facts)


def test_a_join_says_what_moves_from_whom_to_whom_and_why() -> None:
    # Solace's diagrams.
    desk = three()
    found = foresee(desk.state, desk.facts, desk.assignor, join=["d"])
    [move] = found.moves
    assert (move.before, move.after, move.reason, move.handoff) == (
        "a",
        "d",
        MoveReason.BALANCE,
        True,
    )
    assert move.why == "a has 3, its fair share is 1.75; d has 0 of 1.75"
    assert (found.rounds, found.delay, found.longest) == (1, 5.0, 3.0)
    assert found.before == {"a": 3, "b": 2, "c": 2, "d": 0}
    assert found.after == {"a": 2, "b": 2, "c": 2, "d": 1}
    assert found.lines()[-1] == (
        "1 move in 1 round, 1 handed off by a live owner; the first begins after 5.0 s, and "
        "owners have 3 s at most"
    )
    # What is left of a holddown that has begun.
    assert "the first begins after 4.1 s, and" in replace(found, delay=4.08675).lines()[-1]


def drain(desk: Desk, name: str, **terms: float) -> Desk:
    """Somebody orders a member to hand over what it has."""
    desk.state = member_orders.drain(desk.state, name, desk.now, "ops", **terms).state
    desk.state = desk.state.stamped(desk.now)
    return desk


@pytest.mark.parametrize("kind", ["drained", "stalled"])
def test_fair_shares_are_of_the_members_that_may_be_given_partitions(kind: str) -> None:
    desk = Desk(12).join("a", "b").join("c", stalled=kind == "stalled").step().settle()
    if kind == "drained":
        drain(desk, "c").step().settle()
    assert desk.sizes == {"a": 6, "b": 6}
    found = foresee(desk.state, desk.facts, desk.assignor, join=["d"])
    assert {move.reason for move in found.moves} == {MoveReason.BALANCE}
    assert {move.why for move in found.moves} == {
        "a has 6, its fair share is 4; d has 0 of 4",
        "b has 6, its fair share is 4; d has 0 of 4",
    }


def test_fair_shares_count_a_member_whose_drain_ends_on_the_way() -> None:
    desk = Desk(12, rebalance_delay=60).join("a", "b", "c").step().settle()
    drain(desk, "c", seconds=70).step().wait(61).settle()
    assert desk.sizes == {"a": 6, "b": 6}
    # The drain ends while the rebalance waits.
    found = foresee(desk.state, desk.facts, desk.assignor, join=["d"])
    assert found.after == {"a": 3, "b": 3, "c": 3, "d": 3}
    assert {move.why for move in found.moves} == {
        f"{before} has 6, its fair share is 3; {after} has 0 of 3"
        for before in "ab"
        for after in "cd"
    }


def test_a_leave_says_who_takes_over() -> None:
    desk = three()
    found = foresee(desk.state, desk.facts, desk.assignor, leave=["a"])
    assert {move.before for move in found.moves} == {None}
    assert {move.reason for move in found.moves} == {MoveReason.GONE}
    assert found.moves[0].why == "a leaves"
    assert found.delay == 5.0
    assert found.rounds == 0
    assert found.before == {"a": 3, "b": 2, "c": 2}
    assert found.after == {"a": 0, "b": 4, "c": 3}


def test_growing_says_who_gets_the_new_partitions() -> None:
    desk = three()
    found = foresee(desk.state, desk.facts, desk.assignor, partitions=9)
    assert [(m.partition, m.before, m.reason) for m in found.moves] == [
        (7, None, MoveReason.NEW),
        (8, None, MoveReason.NEW),
    ]
    assert found.delay == 0.0


def test_shrinking_says_what_is_drained_and_by_whom() -> None:
    desk = three()
    found = foresee(desk.state, desk.facts, desk.assignor, partitions=6)
    assert desk.having["c"] == [4, 6]
    assert [(m.partition, m.before, m.after, m.reason) for m in found.moves] == [
        (2, "a", "c", MoveReason.BALANCE),
        (6, "c", None, MoveReason.REMOVED),
    ]


def test_a_join_with_a_weight_is_planned_with_it() -> None:
    desk = three()
    found = foresee(desk.state, desk.facts, desk.assignor, join=[GroupMember("d", weight=4.0)])
    assert found.after == {"a": 1, "b": 1, "c": 1, "d": 4}


def test_a_plan_of_exclusive_access_gives_it_as_the_reason() -> None:
    desk = three()
    found = foresee(desk.state, desk.facts, ExclusiveAssignor(), access="exclusive")
    assert {move.after for move in found.moves} == {"a"}
    assert {(move.reason, move.why) for move in found.moves} == {
        (MoveReason.RULE, "exclusive access: one member has everything")
    }


def test_a_rule_that_does_not_look_at_counts_is_called_one() -> None:
    desk = Desk(4, ContiguousAssignor()).join("a", "b", "c").step()
    found = foresee(desk.state, desk.facts, desk.assignor, join=["d"])
    assert [(m.partition, m.before, m.after, m.reason) for m in found.moves] == [
        (1, "a", "b", MoveReason.BALANCE),
        (2, "b", "c", MoveReason.RULE),
        (3, "c", "d", MoveReason.RULE),
    ]
    found = foresee(desk.state, desk.facts, desk.assignor, leave=["a"])
    assert [(m.partition, m.before, m.after, m.reason) for m in found.moves] == [
        (0, None, "b", MoveReason.GONE),
        (1, None, "b", MoveReason.GONE),
        (2, "b", "c", MoveReason.RULE),
    ]


@pytest.mark.parametrize("assignor", ["balanced", "contiguous", "learner"])
def test_a_plan_in_which_another_takes_a_members_place_hands_nothing_off(assignor: str) -> None:
    desk = Desk(7, assignor, rebalance_delay=5).join("a").step()
    desk.join("b", "c").step().wait(5).settle()
    had = set(desk.having["a"])
    found = foresee(desk.state, desk.facts, desk.assignor, leave=["a"], join=["d"])
    assert {(m.partition, m.after, m.handoff) for m in found.moves} == {
        (p, "d", False) for p in had
    }
    assert found.delay == 0
    # The same when the place is vacant already.
    desk.leave("a").step()
    found = foresee(desk.state, desk.facts, desk.assignor, join=["d"])
    assert {m.after for m in found.moves} == {"d"}


def test_a_plan_in_which_a_member_comes_back_gives_it_what_it_had() -> None:
    desk = three()
    found = foresee(desk.state, desk.facts, desk.assignor, leave=["a"], join=["a"])
    assert {m.partition for m in found.moves} == set(desk.having["a"])
    assert {m.after for m in found.moves} == {"a"}


def test_a_move_that_waits_for_a_warm_up_says_so() -> None:
    desk = Desk(4, LearnerAssignor(1.0, warmups=1)).join("a").step()
    found = foresee(desk.state, desk.facts, desk.assignor, join=["b"])
    assert [(m.partition, m.warm_up) for m in found.moves] == [(0, True), (1, True)]
    assert found.moves[0].why.endswith("; once b is warm")
    assert found.rounds == 2


def test_a_move_waits_for_a_warm_up_also_once_that_has_begun() -> None:
    desk = Desk(4, LearnerAssignor(1.0)).join("a").step().join("b").step()
    assert desk.state.warming == {0: "b", 1: "b"}
    found = foresee(desk.state, desk.facts, desk.assignor)
    assert [(m.partition, m.warm_up) for m in found.moves] == [(0, True), (1, True)]
    desk.warm("b", 0)
    found = foresee(desk.state, desk.facts, desk.assignor)
    assert [(m.partition, m.warm_up) for m in found.moves] == [(0, False), (1, True)]


def test_a_plan_of_no_change_says_what_is_under_way() -> None:
    desk = three().join("d").step().wait(2).step()
    found = foresee(desk.state, desk.facts, desk.assignor)
    assert found.delay == 3.0
    assert len(found.moves) == 1
    desk.wait(3).step()
    # The handoff has begun: nothing else is to come.
    assert foresee(desk.state, desk.facts, desk.assignor).moves == ()


def test_a_leaving_and_a_stalled_owner_are_named_as_the_reason() -> None:
    desk = three().set("a", leaving=1.0).set("b", stalled=True)
    reasons = {m.before: m.reason for m in foresee(desk.state, desk.facts, desk.assignor).moves}
    assert reasons == {"a": MoveReason.LEAVING, "b": MoveReason.STALLED}


def test_nothing_moves_is_said_in_words() -> None:
    desk = three()
    assert foresee(desk.state, desk.facts, desk.assignor).lines() == ("nothing moves",)


def test_a_plan_without_members_names_the_partitions_that_lose_their_owner() -> None:
    desk = three()
    found = foresee(desk.state, desk.facts, desk.assignor, leave=["a", "b", "c"])
    partitions = desk.state.terms.partitions
    assert found.lines() == (f"no member is left, so nobody owns {partitions} partitions",)


def test_a_plan_for_a_member_that_is_not_there_is_refused() -> None:
    desk = three()
    with pytest.raises(UnknownMemberError, match="'x' is not a member of the group") as raised:
        foresee(desk.state, desk.facts, desk.assignor, leave=["x"])
    assert raised.value.member == "x"


def test_a_plan_for_a_member_that_is_there_already_is_refused() -> None:
    desk = three()
    with pytest.raises(ConfigError, match="join='a': is a member already"):
        foresee(desk.state, desk.facts, desk.assignor, join=["a"])
    with pytest.raises(ConfigError, match="partitions=0"):
        foresee(desk.state, desk.facts, desk.assignor, partitions=0)


@pytest.mark.parametrize(
    "assignor",
    [
        BalancedAssignor(),
        ContiguousAssignor(),
        LearnerAssignor(),
        LearnerAssignor(1.0),
        RingAssignor(16),
    ],
    ids=lambda assignor: assignor.name,
)
@pytest.mark.parametrize("seed", range(20))
def test_what_is_foretold_happens(assignor: Assignor, seed: int) -> None:
    rng = random.Random(seed)
    desk = Desk(rng.randint(1, 20), assignor).join(*"abcd"[: rng.randint(1, 4)]).settle()
    leave = [n for n in desk.members if rng.random() < 0.3]
    join = ["x", "y"][: rng.randint(0 if len(leave) < len(desk.members) else 1, 2)]
    found = foresee(desk.state, desk.facts, assignor, join=join, leave=leave)
    tokens, handoffs = desk.state.tokens, 0
    desk.leave(*leave).join(*join).settle()
    moved = {p for p, token in enumerate(desk.state.tokens) if token != tokens[p]}
    assert moved == {move.partition for move in found.moves}
    assert all(desk.state.holder(m.partition) == m.after for m in found.moves)
    handoffs = sum(move.handoff for move in found.moves)
    assert found.rounds >= handoffs


def test_a_stalled_member_hands_over_one_at_a_time_whatever_the_budget() -> None:
    desk = Desk(8, handoffs=16, max_handoff_time=3).join("a", "b").settle().set("a", stalled=True)
    found = foresee(desk.state, desk.facts, desk.assignor)
    assert (len(found.moves), found.rounds, found.longest) == (4, 4, 12.0)


def test_a_plan_counts_the_minutes_for_which_moves_for_load_wait() -> None:
    desk = Desk(40, LoadAssignor(moves=5), handoffs=20, max_handoff_time=3).join("a").settle()
    found = foresee(desk.state, desk.facts, desk.assignor, join=["b"])
    assert {move.reason for move in found.moves} == {MoveReason.LOAD}
    assert (len(found.moves), found.rounds) == (18, 1)
    assert (found.paced, found.longest) == (180.0, 183.0)
    assert found.lines()[-1].endswith(
        "owners have 3 s at most; the limit of moves for load in a minute adds 3 min at most"
    )
    assert foresee(three().state, three().facts, three().assignor, join=["d"]).paced == 0


def test_a_member_that_joins_joins_under_the_orders_that_stand_about_it() -> None:
    desk = three()
    for order in (
        member_orders.drain(desk.state, "a", desk.now, "ops"),
        member_orders.weigh(desk.state, "b", 4.0, desk.now, "ops"),
    ):
        away = replace(desk.state, orders=order.state.orders)
        (name,) = away.orders
        found = foresee(away, desk.facts, desk.assignor, leave=[name], join=[name])
        assert found.after[name] == (4 if name == "b" else 0)


def test_moves_that_are_urgent_do_not_wait_for_the_rebalance_delay() -> None:
    desk = three()
    drained = member_orders.drain(desk.state, "a", desk.now, "ops").state
    assert foresee(drained, desk.facts, desk.assignor).delay == 0
    # Also if a change of members waits for it.
    desk.join("d").step().wait(1)
    drained = member_orders.drain(desk.state, "a", desk.now, "ops").state
    assert foresee(desk.state, desk.facts, desk.assignor).delay == 4
    assert foresee(drained, desk.facts, desk.assignor).delay == 0


def test_a_new_weight_waits_for_the_rebalance_delay() -> None:
    desk = three()
    weighed = member_orders.weigh(desk.state, "a", 4.0, desk.now, "ops").state
    assert foresee(weighed, desk.facts, desk.assignor).delay == 5


def test_what_a_member_had_waits_for_the_rest_of_the_delay_unless_a_spare_one_takes_it() -> None:
    desk = three().leave("a").step().wait(1)
    assert foresee(desk.state, desk.facts, desk.assignor).delay == 4
    spare = Desk(2, rebalance_delay=5).join("a", "b", "c").step().leave("a")
    found = foresee(spare.state, spare.facts, spare.assignor)
    assert [(move.before, move.after) for move in found.moves] == [(None, "c")]
    assert found.delay == 0


def test_when_everybody_is_about_to_go_nothing_moves() -> None:
    desk = Desk(4, rebalance_delay=5).join("a").step().join("b").step()
    desk.set("a", leaving=desk.now).set("b", leaving=desk.now)
    found = foresee(desk.state, desk.facts, desk.assignor)
    assert (found.moves, found.after) == ((), {"a": 4, "b": 0})


def test_a_removed_partition_that_is_handed_over_first_is_counted_as_a_handoff() -> None:
    desk = Desk(4, max_handoff_time=3).join("a", "b").settle().resize(2).settle()
    found = foresee(desk.state, desk.facts, desk.assignor, access="exclusive")
    assert [(m.partition, m.after, m.handoff, m.why) for m in found.moves] == [
        (1, "a", True, found.moves[0].why),
        (2, None, False, "removed: drains, then it is gone"),
        (3, None, True, "removed: drains at a, then it is gone"),
    ]
    assert (found.rounds, found.longest) == (2, 6.0)


def test_a_plan_for_a_drained_member_that_restarts_waits_for_no_warm_up() -> None:
    desk = Desk(4, LearnerAssignor(1.0)).join("a", "b").settle()
    drained = member_orders.drain(desk.state, "a", desk.now, "ops").state
    found = foresee(drained, desk.facts, desk.assignor, leave=["a"], join=["a"])
    assert [(m.before, m.after, m.warm_up) for m in found.moves] == [(None, "b", False)] * 2


def test_a_partition_at_which_another_stands_in_is_handed_off_after_the_delay() -> None:
    # d takes the place of b at once, and more than its share; c's partitions wait for the delay.
    desk = Desk(7, "contiguous", rebalance_delay=5, max_handoff_time=3).join("a").step()
    desk.join("b", "c").step().wait(5).settle()
    found = foresee(desk.state, desk.facts, desk.assignor, leave=["b", "c"], join=["d"])
    assert [(m.partition, m.before, m.after, m.handoff) for m in found.moves] == [
        (3, None, "a", True),
        (4, None, "d", False),
        (5, None, "d", False),
        (6, None, "d", False),
    ]
    assert found.moves[0].why == "b leaves; d stands in"
    assert (found.rounds, found.delay, found.longest) == (1, 5.0, 3.0)
    assert desk.leave("b", "c").join("d").step().having == {"a": [0, 1, 2], "d": [3, 4]}
    assert desk.wait(5).step().asked == {3: ("d", "a")}


def test_a_stalled_member_is_asked_for_its_next_partition_when_its_time_for_the_last_is_up() -> (
    None
):
    desk = Desk(4, max_handoff_time=3).join("a", "b").settle().set("a", stalled=True).step()
    desk.wait(1).release("a", *desk.asked).step()
    found = foresee(desk.state, desk.facts, desk.assignor)
    assert [(move.before, move.after) for move in found.moves] == [("a", "b")]
    assert found.delay == 2.0


def test_what_a_member_has_that_stops_goes_to_a_spare_member_at_once() -> None:
    desk = Desk(2, rebalance_delay=5, max_handoff_time=3).join("a", "b", "c").step()
    desk.set("a", stopping=True)
    found = foresee(desk.state, desk.facts, desk.assignor)
    assert [(m.before, m.after, m.reason, m.handoff) for m in found.moves] == [
        ("a", "c", MoveReason.LEAVING, True)
    ]
    assert (found.rounds, found.delay, found.longest) == (1, 0.0, 3.0)
    assert found.after == {"c": 1, "b": 1, "a": 0}


def test_loads_that_a_member_took_along_are_evened_out_once_others_report_them() -> None:
    # a gets the busy partition of c before anybody but c can know that it is busy.
    desk = Desk(6, LoadAssignor(), rebalance_delay=5).join("a", "b", "c").settle()
    assert desk.having == {"a": [0, 3], "b": [1, 4], "c": [2, 5]}
    for name, partitions in desk.having.items():
        desk.set(name, loads={p: 4.0 if p == 2 else 1.0 for p in partitions})
    found = foresee(desk.state, desk.facts, desk.assignor, leave=["c"])
    assert [(m.partition, m.before, m.after, m.reason) for m in found.moves] == [
        (0, "a", "b", MoveReason.LOAD),
        (2, None, "a", MoveReason.GONE),
        (5, None, "b", MoveReason.GONE),
    ]
    # The first delay, the next look at loads, and the delay after that.
    assert found.delay == 5 + LOOKED_AT_EVERY + 5


def test_a_plan_ends_when_an_assignor_does_not_come_to_rest() -> None:
    def restless(situation: GroupSituation) -> dict[str, list[int]]:
        a, b = sorted(member.name for member in situation.members)
        first, last = [0], [*range(1, situation.partitions)]
        return {a: first, b: last} if situation.owner_before(0) == b else {a: last, b: first}

    desk = Desk(2, as_assignor(restless)).join("a", "b").step()
    for partitions in (2, 3):
        found = foresee(desk.state, desk.facts, desk.assignor, partitions=partitions)
        assert not found.at_rest
        assert found.lines()[-1] == (
            "the assignor does not come to rest: it goes on moving partitions"
        )
    assert foresee(three().state, three().facts, three().assignor).at_rest


def test_a_member_whose_report_cannot_be_read_keeps_what_it_has_in_a_plan_as_well() -> None:
    desk = three()
    desk.unreadable.add("a")
    found = foresee(desk.state, desk.facts, desk.assignor, join=["d"], leave=["c"])
    assert found.before == {"c": 2, "a": 3, "b": 2, "d": 0}
    assert found.after == {"c": 0, "a": 3, "b": 2, "d": 2}
    desk.join("d").leave("c").settle()
    assert desk.sizes == {"a": 3, "b": 2, "d": 2}


@pytest.mark.parametrize("assignor", ["balanced", "learner"])
def test_what_is_on_its_way_to_a_member_whose_report_cannot_be_read_is_planned_for_another(
    assignor: str,
) -> None:
    desk = Desk(3, assignor).join("a").step().join("b", "c").step()
    desk.warm("b", *desk.state.warming).step()
    (partition,) = [p for p, (_, to) in desk.asked.items() if to == "b"]
    desk.unreadable.add("b")
    found = foresee(desk.state, desk.facts, desk.assignor, leave=["a"])
    move = {move.partition: move for move in found.moves}[partition]
    assert (move.before, move.after, move.reason) == (None, "c", MoveReason.GONE)
    assert found.before == {"a": 3, "b": 0, "c": 0}
    assert found.after == {"a": 0, "b": 0, "c": 3}
    desk.leave("a").settle()
    assert desk.sizes == {"c": 3}


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("seed", some(range(160)))
def test_whatever_is_under_way_there_is_a_plan(seed: int, assignor: str) -> None:
    rng = random.Random(seed)
    names = "abcde"[: rng.randint(2, 5)]
    desk = Desk(rng.randint(2, 12), assignor_named(assignor), handoffs=3).join(*names[:-1])
    desk.step().settle().join(names[-1]).step().warm(names[-1], *desk.state.warming).step()
    trouble(desk, rng)
    if rng.random() < 0.5:
        desk.step()
    there = sorted(desk.state.present(desk.facts))
    leave = rng.sample(there, rng.randint(0, len(there) - 1))
    found = foresee(desk.state, desk.facts, desk.assignor, join=["x"], leave=leave)
    assert found.lines()
    assert sum(found.after.values()) == desk.state.terms.partitions
