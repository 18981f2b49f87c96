"""How reported loads reach the assignor, and how often partitions move for them."""

from __future__ import annotations

import math
from typing import Any

import pytest

from hashring.core.assignors import LoadAssignor
from hashring.core.groups import group_foresight, group_status, next_state
from hashring.core.groups.group_foresight import MoveReason
from hashring.core.groups.member_holdings import MemberHoldings
from hashring.core.groups.reported_loads import LOOKED_AT_EVERY, check_load, reported
from hashring.core.groups.state import EventKind, GroupPhase, MemberFacts, MemberView
from hashring.errors import ConfigError

from .desk import Desk


def busy(**terms: Any) -> Desk:
    """Two members with three partitions each; those of the first are ten times as busy."""
    desk = Desk(6, "load", **terms).join("a", "b").settle()
    assert desk.sizes == {"a": 3, "b": 3}
    desk.set("a", loads=dict.fromkeys(desk.having["a"], 10.0))
    return desk.set("b", loads=dict.fromkeys(desk.having["b"], 1.0))


def test_partitions_move_when_members_report_uneven_loads() -> None:
    desk = busy().settle()
    loads = {0: 0.0} | desk.members["a"].loads | desk.members["b"].loads
    levels = {name: sum(loads[p] for p in own) for name, own in desk.having.items()}
    assert sorted(levels.values()) == [13.0, 20.0]


def test_loads_count_of_all_partitions_that_the_group_has() -> None:
    member = MemberFacts("a", "5", 1, 0.0, loads={-1: 1.0, 0: 2.0, 1: 3.0, 2: 4.0})
    assert reported([member], lambda partition: "a", partitions=2) == {0: 2.0, 1: 3.0}


def test_a_move_for_load_waits_for_the_rebalance_delay() -> None:
    desk = busy(rebalance_delay=5.0).wait(10).step()
    assert desk.phase is GroupPhase.HOLDDOWN
    assert desk.asked == {}
    desk.wait(5).step()
    assert [e.why for e in desk.events if e.kind is EventKind.REBALANCING] == ["loads are uneven"]
    assert [e.why for e in desk.events if e.kind is EventKind.REVOKED] == ["for its load"]


def test_at_most_so_many_moves_a_minute_whoever_decides() -> None:
    desk = Desk(40, LoadAssignor(moves=2), handoffs=9).join("a").settle()
    desk.join("b").settle()
    assert desk.sizes == {"a": 38, "b": 2}
    assert desk.phase is GroupPhase.REBALANCING
    desk.wait(59).settle()
    assert desk.sizes == {"a": 38, "b": 2}
    desk.wait(1).settle()
    assert desk.sizes == {"a": 36, "b": 4}


@pytest.mark.parametrize("moves", [3, 1000])
def test_moves_for_load_go_on_until_all_levels_are_within_the_inner_bounds(moves: int) -> None:
    desk = Desk(64, LoadAssignor(moves=moves)).join(*"abcd").settle()
    load = {p: 10.0 if desk.state.owners[p] == "a" else 5.0 for p in range(64)}

    def report() -> list[float]:
        levels = []
        for name, own in desk.having.items():
            desk.set(name, loads={p: load[p] for p in own})
            levels.append(sum(load[p] for p in own))
        return [4 * level / sum(levels) for level in levels]

    assert max(report()) > 1.25
    for _ in range(10):
        desk.settle().wait(61)
        report()
    assert desk.step().phase is GroupPhase.READY
    assert max(report()) <= 1.125
    assert min(report()) >= 0.875


def test_the_last_holders_report_counts_until_the_next_one_reports() -> None:
    desk = busy().settle()
    (moved,) = set(desk.having["b"]) & set(desk.members["a"].loads)
    # b has not reported it yet: without a's word it would count as the mean.
    at_rest = desk.having
    assert desk.wait(70).settle().having == at_rest
    desk.set("b", loads={**desk.members["b"].loads, moved: 0.0})
    assert desk.settle().having != at_rest


def test_loads_are_looked_at_now_and_then() -> None:
    assert busy().settle().due == pytest.approx(1000 + LOOKED_AT_EVERY)
    assert Desk(6).join("a", "b").settle().due is None


def test_the_plan_and_the_status_name_loads() -> None:
    desk = busy()
    plan = group_foresight.foresee(desk.state, desk.facts, desk.assignor)
    assert {(move.reason, move.warm_up) for move in plan.moves} == {(MoveReason.LOAD, False)}
    assert plan.moves[0].why == "evens out loads; its own is 10"
    assert group_status.status(desk.state, desk.facts).too_hot == ()
    desk.set("b", loads=dict.fromkeys(desk.having["b"], 1.0) | {desk.having["b"][0]: 99.0})
    assert group_status.status(desk.state, desk.facts).too_hot == (desk.having["b"][0],)


def test_another_assignor_ignores_loads() -> None:
    desk = Desk(6).join("a", "b").settle()
    desk.set("a", loads=dict.fromkeys(desk.having["a"], 1e9))
    assert next_state.step(desk.state, desk.facts, desk.assignor).state is desk.state
    assert group_status.status(desk.state, desk.facts).too_hot == ()


# --- the member ---------------------------------------------------------------------------------


def holding(*partitions: int, generation: int = 1) -> MemberView:
    held = {p: 10 * generation + p for p in partitions}
    return MemberView(generation, GroupPhase.READY, held, seated=True)


def test_a_member_reports_what_it_holds_and_for_a_minute_what_it_held() -> None:
    one = MemberHoldings(ttl=100)
    assert not one.load(1, 5.0)
    one.heard(holding(1, 2), 0.0, 1000.0, 0.0)
    assert one.load(1, 5.0)
    assert one.load(2, 7.0)
    assert one.words().loads == {1: 5.0, 2: 7.0}
    one.heard(MemberView(2, GroupPhase.READY, {2: 12}, seated=True), 1.0, 1001.0, 1.0)
    assert one.words().loads == {1: 5.0, 2: 7.0}
    one.heard(MemberView(3, GroupPhase.READY, {2: 12}, seated=True), 61.0, 1061.0, 61.0)
    assert one.words().loads == {2: 7.0}


def test_a_load_may_be_nothing_at_all() -> None:
    assert check_load(0) == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -1, 1e15, "5", True, None])
def test_what_is_no_load_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"load=.*: give a finite number from 0 to 1e15"):
        check_load(value)
