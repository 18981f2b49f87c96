"""Members are drained and weighed by order, and it stands whatever they do."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from hashring.core.assignors import MemberState
from hashring.core.groups import group_foresight, group_status, member_orders, next_state
from hashring.core.groups.group_foresight import MoveReason
from hashring.core.groups.state import EventKind, GroupPhase, MemberOrder
from hashring.errors import ConfigError, UnknownMemberError
from hashring.testing.simulator import GroupSimulator, ordered_group_history
from tests.unit.histories import none_breaks_a_rule

from .desk import Desk


def ordered(desk: Desk, outcome: next_state.StepOutcome) -> Desk:
    if outcome.state is not desk.state:
        desk.state = outcome.state.stamped(desk.now)
    desk.events = list(outcome.events)
    return desk


def drain(desk: Desk, member: str, **how: Any) -> Desk:
    return ordered(desk, member_orders.drain(desk.state, member, desk.now, "ops", **how))


def undrain(desk: Desk, member: str) -> Desk:
    return ordered(desk, member_orders.undrain(desk.state, member, desk.now, "ops"))


def weigh(desk: Desk, member: str, weight: float | None) -> Desk:
    return ordered(desk, member_orders.weigh(desk.state, member, weight, desk.now, "ops"))


def test_nothing_is_left_of_an_order_to_drain_that_is_lifted() -> None:
    drained = MemberOrder("ops", 5.0, drained=True, until=9.0)
    assert drained.undrained() == MemberOrder("", 0.0)
    assert replace(drained, weight=2.0).undrained() == MemberOrder("", 5.0, weight=2.0)


def three(**terms: Any) -> Desk:
    return Desk(6, **terms).join("a", "b", "c").settle()


# --- drain --------------------------------------------------------------------------------------


@pytest.mark.parametrize("assignor", ["balanced", "contiguous", "learner", "load", "ring"])
def test_a_drained_member_hands_over_everything_and_gets_nothing(assignor: str) -> None:
    desk = drain(Desk(24, assignor).join("a", "b", "c").settle(), "a").settle()
    assert "a" not in desk.having
    assert sum(desk.sizes.values()) == 24
    desk.leave("b").settle()
    assert desk.sizes == {"c": 24}


def test_a_drain_waits_for_no_rebalance_delay_and_keeps_to_the_budget() -> None:
    desk = drain(three(rebalance_delay=5.0), "a").step()
    assert desk.phase is GroupPhase.REBALANCING
    assert [(e.member, e.why) for e in desk.events if e.kind is EventKind.REVOKED] == [
        ("a", "is drained")
    ]


def test_what_does_not_move_keeps_its_token() -> None:
    desk = three()
    before = dict(enumerate(desk.state.tokens))
    stays = [*desk.having["b"], *desk.having["c"]]
    drain(desk, "a").settle()
    assert all(desk.state.tokens[p] == before[p] for p in stays)


def test_a_drain_outlasts_a_restart_of_the_member() -> None:
    desk = drain(three(), "a").settle()
    desk.leave("a").settle()
    desk.join("a").settle()
    assert "a" not in desk.having
    assert desk.sizes == {"b": 3, "c": 3}


def test_a_drain_that_is_lifted_gives_the_member_its_share_again() -> None:
    desk = undrain(drain(three(), "a").settle(), "a")
    assert [(e.kind, e.member, e.why) for e in desk.events] == [(EventKind.UNDRAIN, "a", "by ops")]
    assert desk.settle().sizes == {"a": 2, "b": 2, "c": 2}
    assert desk.state.orders == {}


def test_a_drain_ends_by_itself_in_redis_time() -> None:
    desk = drain(three(), "a", seconds=60.0).settle()
    assert desk.due == desk.now + 60
    desk.wait(59).settle()
    assert "a" not in desk.having
    desk.wait(1).step()
    assert [(e.member, e.why) for e in desk.events if e.kind is EventKind.UNDRAIN] == [
        ("a", "its time is up")
    ]
    assert desk.settle().sizes == {"a": 2, "b": 2, "c": 2}


def test_the_later_of_two_orders_counts() -> None:
    desk = drain(drain(three(), "a", seconds=60.0), "a")
    assert desk.state.orders["a"].until is None
    assert [(e.kind, e.why) for e in desk.events] == [(EventKind.DRAIN, "by ops")]


def test_the_last_member_is_not_drained_unless_forced() -> None:
    desk = drain(Desk(4).join("a", "b").settle(), "a").settle()
    with pytest.raises(ConfigError, match=r"drain='b': no other member is left.*: 4 of 4 part"):
        drain(desk, "b")
    drain(desk, "b", force=True).settle()
    # Nobody else may have them.
    assert sum(desk.sizes.values()) == 4
    desk.join("c").settle()
    assert desk.sizes == {"c": 4}


def test_a_drained_member_takes_no_place_of_one_that_is_gone() -> None:
    desk = drain(three(rebalance_delay=5.0), "a").settle()
    desk.leave("b").step().wait(5).settle()
    assert desk.sizes == {"c": 6}


def test_an_order_about_somebody_unknown_is_refused_with_a_near_name() -> None:
    desk = Desk(4).join("worker-1", "worker-2").settle()
    with pytest.raises(UnknownMemberError, match="did you mean 'worker-1'"):
        drain(desk, "worker1")
    for order in (undrain, lambda desk, name: weigh(desk, name, 2.0)):
        with pytest.raises(UnknownMemberError, match="'z' is not a member of the group; its"):
            order(desk, "z")


def test_a_weight_that_no_assignor_could_count_with_is_refused() -> None:
    for weight in (1000.5, 1e308, 0.0009, 5e-324):
        with pytest.raises(ConfigError, match=r"weight=.* must be a number from 0.001 to 1000"):
            weigh(three(), "a", weight)
    assert weigh(three(), "a", 1000.0).state.orders["a"].weight == 1000.0


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf, 1e10, "2h", True])
def test_a_time_that_is_none_is_refused(seconds: Any) -> None:
    with pytest.raises(ConfigError, match=r"seconds=.*: give a positive number of seconds"):
        drain(three(), "a", seconds=seconds)


def test_to_lift_what_does_not_stand_changes_nothing() -> None:
    desk = three()
    assert member_orders.undrain(desk.state, "a", desk.now, "ops").state is desk.state
    assert member_orders.weigh(desk.state, "a", None, desk.now, "ops").state is desk.state


# --- weights ------------------------------------------------------------------------------------


def test_a_member_gets_partitions_by_the_weight_that_was_ordered() -> None:
    desk = weigh(Desk(8).join("a", "b").settle(), "a", 3.0)
    assert [(e.kind, e.why) for e in desk.events] == [(EventKind.WEIGHED, "to 3 by ops")]
    before = desk.having
    desk.settle()
    assert desk.sizes == {"a": 6, "b": 2}
    # The fewest moves: it keeps what it had.
    assert set(before["a"]) < set(desk.having["a"])
    assert weigh(desk, "a", None).settle().sizes == {"a": 4, "b": 4}


def test_a_weight_and_a_drain_stand_side_by_side() -> None:
    desk = undrain(drain(weigh(Desk(8).join("a", "b").settle(), "a", 3.0), "a").settle(), "a")
    assert desk.settle().sizes == {"a": 6, "b": 2}


@pytest.mark.parametrize("weight", [0, -1, math.nan, math.inf, "2", True])
def test_a_weight_that_is_none_is_refused(weight: Any) -> None:
    with pytest.raises(ConfigError, match=r"weight=.*: of member 'a' must be a number from"):
        weigh(three(), "a", weight)


# --- looking ------------------------------------------------------------------------------------


def test_the_plan_of_a_drain_is_that_of_the_ordered_state() -> None:
    desk = three()
    outcome = member_orders.drain(desk.state, "a", desk.now, "ops")
    plan = group_foresight.foresee(outcome.state, desk.facts, desk.assignor)
    assert {(move.reason, move.before, move.why) for move in plan.moves} == {
        (MoveReason.DRAINED, "a", "a is drained")
    }
    assert plan.after["a"] == 0


def test_the_status_shows_orders_also_about_members_that_are_away() -> None:
    desk = drain(three(), "a").settle()
    status = group_status.status(desk.state, desk.facts)
    assert [m.state for m in status.members] == [
        MemberState.DRAINED,
        MemberState.ACTIVE,
        MemberState.ACTIVE,
    ]
    desk.leave("a").settle()
    status = group_status.status(desk.state, desk.facts)
    assert status.orders == {"a": MemberOrder("ops", 1000.0, drained=True)}


# --- histories ----------------------------------------------------------------------------------


def test_no_history_with_orders_breaks_a_rule() -> None:
    none_breaks_a_rule(GroupSimulator(), ordered_group_history, range(60))


def found(rule: str) -> bool:
    simulator = GroupSimulator()
    return any(simulator.broken_rule(ordered_group_history(seed)) == rule for seed in range(200))


def test_a_decision_that_gives_to_drained_members_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    state = next_state.member_state
    monkeypatch.setattr(next_state, "member_state", lambda member, order: state(member, None))
    assert found("drained")


# --- names that were made up ----------------------------------------------------------------------

MADE_UP = "host:17:0a1b2c"


@pytest.mark.parametrize(("name", "orders"), [(MADE_UP, set()), ("worker:3", {"worker:3"})])
def test_a_departure_lifts_the_orders_about_a_name_that_nobody_has_again(
    name: str, orders: set[str]
) -> None:
    desk = weigh(drain(Desk(6).join("a", name).settle(), name), name, 2.0)
    desk.leave(name).step()
    assert desk.state.orders.keys() == orders
    assert desk.told(EventKind.UNDRAIN) == ([] if orders else [(name, None)])


def test_an_order_about_a_made_up_name_outlasts_the_end_of_the_lease() -> None:
    desk = drain(Desk(6).join("a", MADE_UP).settle(), MADE_UP).settle()
    desk.set(MADE_UP, expires=desk.now).settle()
    assert desk.state.roster.keys() == {"a"}
    desk.join(MADE_UP).settle()
    assert MADE_UP not in desk.having


@pytest.mark.parametrize("order", [drain, lambda desk, name: weigh(desk, name, 2.0)])
@pytest.mark.parametrize(
    ("name", "later", "stands"),
    [(MADE_UP, member_orders.DAY - 1, True), (MADE_UP, member_orders.DAY, False), ("w", 1e9, True)],
)
def test_a_later_order_lifts_those_about_made_up_names_a_day_after_they_were_given(
    order: Any, name: str, later: float, stands: bool
) -> None:
    desk = order(Desk(6).join("a", name).settle(), name).settle()
    desk.set(name, expires=desk.now).settle()
    desk.leave(name).wait(later)
    assert name in desk.state.orders
    weigh(desk, "a", 3.0)
    assert (name in desk.state.orders) is stands


def test_an_order_about_a_member_that_is_there_outlasts_a_day() -> None:
    desk = drain(Desk(6).join("a", MADE_UP).settle(), MADE_UP).settle()
    weigh(desk.wait(2 * member_orders.DAY), "a", 3.0)
    assert MADE_UP in desk.state.orders


def test_a_weight_that_is_left_of_two_orders_counts_from_when_it_was_given() -> None:
    desk = weigh(Desk(6).join("a", MADE_UP).settle(), MADE_UP, 2.0)
    undrain(drain(desk, MADE_UP), MADE_UP)
    assert desk.state.orders[MADE_UP] == MemberOrder("", desk.now, weight=2.0, weighed_by="ops")
