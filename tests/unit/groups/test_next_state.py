"""How any target is carried out: revoke first, grant only what nobody holds."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hashring.core.assignors import (
    BalancedAssignor,
    GroupSituation,
    LearnerAssignor,
    TargetAssignment,
    assignor_named,
)
from hashring.core.groups import group_orders, member_orders, next_state
from hashring.core.groups.state import EventKind, GroupPhase, GroupState, Terms
from hashring.errors import AssignorError, ConfigError
from hashring.testing.simulator.groups.random_histories import ASSIGNORS
from tests.conftest import calls, some

from .desk import Desk, trouble


def test_the_first_member_gets_everything_at_once() -> None:
    desk = Desk(3, rebalance_delay=5).join("a").step()
    assert desk.having == {"a": [0, 1, 2]}
    assert desk.phase is GroupPhase.READY


def test_a_step_on_the_same_facts_decides_nothing_more() -> None:
    desk = Desk(7).join("a", "b").step().join("c").step()
    before = desk.state
    assert desk.step().state is before
    assert desk.events == []


def test_a_partition_is_granted_only_once_its_owner_has_let_go() -> None:
    desk = Desk(2).join("a").step().join("b").step()
    assert desk.having == {"a": [0, 1]}
    assert desk.asked == {1: ("a", "b")}
    desk.release("a", 1).step()
    assert desk.having == {"a": [0], "b": [1]}


def test_what_stays_with_its_owner_is_not_touched() -> None:
    desk = Desk(8).join("a").step()
    tokens = desk.state.tokens
    desk.join("b").settle()
    assert desk.having == {"a": [0, 1, 2, 3], "b": [4, 5, 6, 7]}
    assert desk.state.tokens[:4] == tokens[:4]


def test_every_grant_has_a_greater_token() -> None:
    desk = Desk(2).join("a").step()
    first = desk.state.tokens[1]
    desk.join("b").settle()
    second = desk.state.tokens[1]
    desk.leave("b").step()
    assert first < second < desk.state.tokens[1]


def test_a_word_about_an_older_grant_changes_nothing() -> None:
    desk = Desk(2).join("a").step().join("b").step()
    desk.set("a", released={1: desk.state.tokens[1] - 1}).step()
    assert desk.having == {"a": [0, 1]}


def test_the_history_has_that_a_partition_was_let_go() -> None:
    desk = Desk(2).join("a").step().join("b").step()
    (partition,) = desk.state.handoffs
    desk.set("a", released={partition: desk.state.tokens[partition]}).step()
    assert desk.told(EventKind.RELEASED) == [("a", partition)]


def test_nobody_can_give_away_what_another_holds() -> None:
    desk = Desk(2).join("a", "b").step()
    desk.set("b", released={0: desk.state.tokens[0]}).step()
    assert desk.having == {"a": [0], "b": [1]}


@pytest.mark.parametrize("handoffs", [1, 3, 100])
def test_no_more_handoffs_are_under_way_than_the_budget_allows(handoffs: int) -> None:
    desk = Desk(12, handoffs=handoffs).join("a").step().join("b").step()
    assert len(desk.asked) == min(handoffs, 6)


def test_the_member_with_most_hands_to_the_one_with_least_first() -> None:
    # Solace, step 5.
    desk = Desk(12).join("a", weight=2.0).join("b").step()
    assert desk.sizes == {"a": 8, "b": 4}
    desk.set("a", weight=1.0).join("c", "d").step()
    order = []
    while desk.asked:
        order.extend(desk.asked.values())
        desk.release(order[-1][0], *desk.asked).step()
    assert order[:4] == [("a", "c"), ("a", "d"), ("a", "c"), ("a", "d")]
    assert sorted(order[4:]) == [("a", "c"), ("b", "d")]


# --- an owner that gives no word --------------------------------------------------------------


def test_an_owner_that_saw_the_handoff_loses_the_partition_at_the_deadline() -> None:
    desk = Desk(2, max_handoff_time=3).join("a").step().join("b").step()
    desk.set("a", seen=desk.state.generation).wait(2.9).step()
    assert desk.having == {"a": [0, 1]}
    desk.wait(0.2).step()
    assert desk.having == {"a": [0], "b": [1]}
    assert desk.told(EventKind.FORCED) == [("a", 1)]


def test_an_owner_that_has_not_heard_keeps_it_until_the_lease_it_had_has_ended() -> None:
    desk = Desk(2, max_handoff_time=3, ttl=10).join("a").step().join("b").step()
    asked_at = desk.now
    desk.wait(9.9).step()
    assert desk.having == {"a": [0, 1]}
    desk.wait(0.2).step()
    assert desk.now > asked_at + 10
    assert desk.having == {"a": [0], "b": [1]}


def test_a_handoff_longer_than_the_lease_is_waited_for_as_well() -> None:
    desk = Desk(2, max_handoff_time=30, ttl=10).join("a").step().join("b").step()
    desk.wait(20).step()
    assert desk.having == {"a": [0, 1]}


def test_the_next_step_is_due_when_the_wait_is_over() -> None:
    desk = Desk(2, max_handoff_time=3, ttl=10).join("a").step().join("b").step()
    assert desk.due == desk.now + 3
    desk.wait(3).step()
    assert desk.due == desk.now + 7


def test_no_step_is_due_for_leases_that_are_renewed() -> None:
    assert Desk(4, ttl=10).join("a", "b").step().due is None


# --- members that go --------------------------------------------------------------------------


def test_what_a_member_had_whose_lease_ended_is_granted_at_once() -> None:
    desk = Desk(4).join("a", "b").step()
    desk.set("a", expires=desk.now).step()
    assert desk.having == {"b": [0, 1, 2, 3]}
    assert desk.told(EventKind.EXPIRED) == [("a", None)]


def test_a_member_that_left_is_told_apart_from_one_that_expired() -> None:
    desk = Desk(4).join("a", "b").step().leave("a").step()
    assert desk.told(EventKind.LEFT) == [("a", None)]


def test_a_name_that_comes_back_as_another_session_holds_nothing_of_before() -> None:
    desk = Desk(2).join("a").step()
    token, session = desk.state.token, desk.members["a"].session
    desk.join("a").step()
    assert desk.having == {"a": [0, 1]}
    assert min(desk.state.tokens) > token
    assert desk.state.view("a", session).held == {}


def test_when_the_receiver_dies_during_a_handoff_the_partition_goes_to_somebody_else() -> None:
    desk = Desk(2).join("a").step().join("b").step().leave("b").step()
    assert desk.asked == {1: ("a", "b")}
    desk.release("a", 1).step()
    assert desk.having == {"a": [0, 1]}
    assert desk.phase is GroupPhase.READY


def test_when_the_owner_dies_during_a_handoff_the_receiver_gets_the_partition() -> None:
    desk = Desk(2).join("a").step().join("b").step().leave("a").step()
    assert desk.having == {"b": [0, 1]}


def test_without_members_partitions_wait_for_one() -> None:
    desk = Desk(2).join("a").step().leave("a").step()
    assert desk.having == {}
    assert desk.join("b").step().having == {"b": [0, 1]}


# --- leaving and stalled ----------------------------------------------------------------------


def test_a_leaving_member_hands_over_one_by_one_and_gets_nothing_new() -> None:
    desk = Desk(4).join("a", "b").step().set("a", leaving=1000.0).step()
    assert desk.asked == {0: ("a", "b")}
    desk.settle()
    assert desk.having == {"b": [0, 1, 2, 3]}
    desk.leave("b").step()
    assert desk.having == {}


def test_a_member_whose_time_to_leave_is_over_is_asked_for_everything() -> None:
    desk = Desk(6, LearnerAssignor(), leave_timeout=10).join("a", "b").step()
    desk.set("a", leaving=desk.now).step()
    assert desk.asked == {}
    desk.wait(10).step()
    assert sorted(desk.asked) == desk.having["a"]
    assert desk.settle().having == {"b": [0, 1, 2, 3, 4, 5]}


def test_a_time_to_leave_that_is_over_has_no_budget() -> None:
    desk = Desk(6, handoffs=1, leave_timeout=10, max_handoff_time=60).join("a", "b").step()
    desk.set("a", leaving=desk.now).step()
    assert len(desk.asked) == 1
    desk.wait(10).step()
    assert sorted(desk.asked) == desk.having["a"]


def test_a_stalled_member_sheds_one_at_a_time() -> None:
    desk = Desk(6, handoffs=5, max_handoff_time=3).join("a", "b").step()
    desk.set("a", stalled=True).step()
    assert len(desk.asked) == 1
    desk.release("a", *desk.asked).step()
    # The next only once the first has had all its time.
    assert desk.asked == {}
    assert desk.due == desk.now + 3
    desk.wait(3).step()
    assert len(desk.asked) == 1


def test_a_stalled_member_sheds_one_after_the_other_whoever_takes_them() -> None:
    desk = Desk(6).join("a").step().join("b", "c").set("a", stalled=True)
    shed = []
    while desk.step().asked:
        shed += desk.asked
        desk.release("a", *desk.asked).step().wait(desk.state.terms.max_handoff_time)
    assert set(desk.having) >= {"b", "c"}
    assert shed == sorted(shed)


@pytest.mark.parametrize(
    ("facts", "why"),
    [({}, ""), ({"leaving": 1000.0}, "is leaving"), ({"stalled": True}, "is stalled")],
)
def test_what_is_revoked_says_what_is_wrong_with_its_owner(
    facts: dict[str, object], why: str
) -> None:
    desk = Desk(4).join("a").step().join("b").set("a", **facts).step()
    assert {event.why for event in desk.events if event.kind is EventKind.REVOKED} == {why}


def test_a_stalled_member_gets_nothing_new() -> None:
    desk = Desk(6).join("a", "b", "c").step()
    before = desk.having["a"]
    desk.set("a", stalled=True).leave("c").step()
    assert desk.having["a"] == before
    assert desk.sizes == {"a": 2, "b": 4}


def test_a_member_that_goes_on_keeps_what_it_has_left() -> None:
    desk = Desk(4, rebalance_delay=5, max_handoff_time=3).join("a", "b").step()
    desk.wait(5).settle().set("a", stalled=True).step()
    desk.release("a", *desk.asked).step().set("a", stalled=False).step()
    assert desk.sizes == {"a": 1, "b": 3}
    assert desk.settle().sizes == {"a": 2, "b": 2}


# --- growing and shrinking --------------------------------------------------------------------


def test_new_partitions_are_granted_at_once_even_during_a_holddown() -> None:
    # Solace: if the partition count changes, the rebalance is started immediately.
    desk = Desk(2, rebalance_delay=60).join("a").step().join("b").step()
    assert desk.phase is GroupPhase.HOLDDOWN
    desk.resize(4).step()
    assert desk.having == {"a": [0, 1], "b": [2, 3]}
    assert desk.phase is GroupPhase.READY


def test_a_new_partition_has_no_token_before_its_first_grant() -> None:
    desk = Desk(2).join("a").step().resize(4)
    assert desk.state.tokens[2:] == (0, 0)


def test_nobody_warms_up_for_a_partition_that_was_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk(5, LearnerAssignor()).join("a").settle().join("b").step()
    assert desk.state.warming == {0: "b", 1: "b"}
    asked: list[GroupSituation] = []
    assign = LearnerAssignor.assign

    def noted(self: LearnerAssignor, situation: GroupSituation) -> TargetAssignment:
        asked.append(situation)
        return assign(self, situation)

    monkeypatch.setattr(LearnerAssignor, "assign", noted)
    desk.resize(1).step()
    assert asked[0].warming == {0: "b"}
    assert 1 not in desk.state.warming


def test_a_removed_partition_stays_with_its_owner_until_it_is_drained() -> None:
    desk = Desk(4).join("a", "b").step().resize(2).step()
    assert desk.having == {"a": [0, 2], "b": [1, 3]}
    assert desk.state.view("b", desk.members["b"].session).draining == {3}
    desk.set("b", drained={3: desk.state.tokens[3]}).step()
    assert desk.having == {"a": [0, 2], "b": [1]}
    assert desk.told(EventKind.DRAINED) == [("b", 3)]
    assert len(desk.state.owners) == 3


def test_a_removed_partition_whose_owner_dies_is_drained_by_another() -> None:
    desk = Desk(4).join("a", "b").step().resize(2).step().leave("b").step()
    assert desk.having == {"a": [0, 1, 2, 3]}
    assert desk.state.draining == {2, 3}


def calls_to_give_away_what_drains(size: int) -> int:
    """How many calls it takes when others have joined than had the partitions that drain."""
    names = [f"m{number}" for number in range(size)]
    desk = Desk(2 * size, handoffs=size).join(*names).step().resize(size).leave(*names)
    desk.join(*(f"n{number}" for number in range(size)))
    facts, assignor = desk.facts, desk.assignor
    return calls(lambda: next_state.step(desk.state, facts, assignor))


def test_twice_as_many_members_and_partitions_that_drain_are_about_twice_as_much_work() -> None:
    assert calls_to_give_away_what_drains(200) < 2.5 * calls_to_give_away_what_drains(100)


def calls_to_ask_owners(size: int) -> int:
    """How many calls it takes to ask so many owners for a partition each."""
    desk = Desk(4 * size, handoffs=size).join(*(f"m{number}" for number in range(size))).step()
    desk.join(*(f"n{number}" for number in range(size // 3)))
    facts, assignor = desk.facts, desk.assignor
    found = calls(lambda: next_state.step(desk.state, facts, assignor))
    assert len(desk.step().asked) == size
    return found


def test_to_ask_twice_as_many_owners_at_once_is_about_twice_as_much_work() -> None:
    assert calls_to_ask_owners(300) < 2.5 * calls_to_ask_owners(150)


def test_with_exclusive_access_what_drains_is_with_the_one_that_has_everything() -> None:
    desk = Desk(4, access="exclusive").join("a", "b", "c").settle().resize(2).settle()
    assert desk.having == {"a": [0, 1, 2, 3]}
    assert desk.leave("a").settle().having == {"b": [0, 1, 2, 3]}
    assert desk.migrate(access="non-exclusive").settle().sizes == {"b": 3, "c": 1}
    assert desk.migrate(access="exclusive").settle().having == {"b": [0, 1, 2, 3]}


def test_a_leaving_member_hands_over_what_it_drains() -> None:
    desk = Desk(4).join("a", "b").step().resize(2).step()
    assert desk.set("b", leaving=desk.now).settle().having == {"a": [0, 1, 2, 3]}


def test_while_removed_partitions_are_handed_over_others_may_join() -> None:
    desk = Desk(4, handoffs=4).join("a", "b").step().resize(2).step()
    desk.set("a", leaving=desk.now).step()
    assert desk.asked == {0: ("a", "b"), 2: ("a", "b")}
    # One each of those that count.
    assert desk.join("c").step().settle().sizes == {"b": 3, "c": 1}


def test_a_removed_partition_comes_back_to_life_when_the_count_grows() -> None:
    desk = Desk(4).join("a", "b").step()
    tokens = desk.state.tokens
    desk.resize(2).step().resize(5).step()
    assert desk.state.draining == frozenset()
    assert desk.state.tokens[:4] == tokens
    assert desk.sizes == {"a": 3, "b": 2}


def test_a_drained_partition_comes_back_as_one_that_nobody_holds() -> None:
    desk = Desk(2).join("a").step().resize(1).step()
    before = desk.state.tokens[1]
    desk.set("a", drained={1: before}).step().resize(2).step()
    assert desk.having == {"a": [0, 1]}
    assert desk.state.tokens[1] > before


def test_a_word_that_a_partition_is_drained_counts_as_let_go_when_the_count_grew_again() -> None:
    desk = Desk(2).join("a").step()
    before = desk.state.tokens[1]
    desk.resize(1).step().resize(2).step().set("a", drained={1: before}).step()
    assert desk.told(EventKind.RELEASED) == [("a", 1)]
    assert desk.having == {"a": [0, 1]}
    assert desk.state.tokens[1] > before


def test_a_drained_partition_is_nobodys_while_a_higher_one_still_drains() -> None:
    desk = Desk(3).join("a").step().resize(1).step()
    token = desk.state.tokens[1]
    desk.set("a", drained={1: token}).step()
    assert desk.state.draining == {2}
    view = desk.state.view("a", desk.members["a"].session)
    assert sorted(view.held) == [0, 2]
    # The same name in another process: its own grants, and no others.
    desk.join("a").step()
    view = desk.state.view("a", desk.members["a"].session)
    assert sorted(view.held) == [0, 2]
    assert min(view.held.values()) > token
    assert desk.resize(3).join("b").settle().sizes == {"a": 2, "b": 1}


def test_redis_back_from_before_a_drain_grants_nothing_that_was_removed() -> None:
    desk = Desk(3, ttl=10).join("a").step().resize(1).step()
    desk.set("a", drained={1: desk.state.tokens[1]}).step()
    assert desk.state.draining == {2}
    # Members have seen a later decision than the one that Redis still has.
    desk.join("a", seen=desk.state.generation + 1).step()
    assert desk.having == {}
    assert desk.state.view("a", desk.members["a"].session).held == {}
    desk.wait(10).step()
    assert desk.having == {"a": [0, 2]}
    assert sorted(desk.state.view("a", desk.members["a"].session).held) == [0, 2]


@pytest.mark.parametrize(
    "decide",
    [
        lambda state: group_orders.resize(state, 4),
        lambda state: group_orders.migrate(state, replace(state.terms, handoffs=2)),
        lambda state: group_orders.hasten(state, 1000.0, "an operator"),
        lambda state: member_orders.drain(state, "a", 1000.0, "an operator"),
        lambda state: member_orders.weigh(state, "a", 2.0, 1000.0, "an operator"),
    ],
    ids=["resize", "migrate", "hasten", "drain", "weigh"],
)
def test_what_is_decided_by_hand_is_the_next_generation(
    decide: Callable[[GroupState], next_state.StepOutcome],
) -> None:
    desk = Desk(2).join("a", "b").step()
    assert decide(desk.state).state.generation == desk.state.generation + 1


def test_terms_can_be_migrated_and_what_is_held_stays_held() -> None:
    desk = Desk(2).join("a").step()
    terms = replace(desk.state.terms, partitions=3, assignor="ring(64)", handoffs=4)
    outcome = group_orders.migrate(desk.state, terms)
    assert outcome.state.terms == terms
    assert outcome.state.generation == desk.state.generation + 1
    assert outcome.state.tokens[:2] == desk.state.tokens
    assert [event.why for event in outcome.events] == [
        "from 2 to 3 partitions",
        "assignor from 'balanced' to 'ring(64)', handoffs from 1 to 4",
    ]
    assert group_orders.migrate(desk.state, desk.state.terms).state is desk.state


def test_a_grant_says_whose_the_partition_was() -> None:
    desk = Desk(2).join("a").step()
    assert {event.why for event in desk.events if event.kind is EventKind.GRANTED} == {""}
    desk.leave("a").join("b").step()
    assert {event.why for event in desk.events if event.kind is EventKind.GRANTED} == {"was a's"}


def test_what_falls_free_is_granted_to_no_member_that_stops() -> None:
    desk = Desk(6).join("a", "b", "c").settle().set("a", stopping=True).leave("c").step()
    assert desk.having == {"a": [0, 3], "b": [1, 2, 4, 5]}


def test_what_a_member_that_stops_lets_go_of_is_anothers_at_once() -> None:
    desk = Desk(4).join("a", "b").settle().set("a", stopping=True).release("a", 2).step()
    assert desk.having == {"a": [0], "b": [1, 2, 3]}


def test_a_member_that_stops_ends_no_holddown_for_it_may_be_back() -> None:
    desk = Desk(4, rebalance_delay=60).join("a", "b").step().wait(60).settle()
    desk.set("a", stopping=True).step().release("a", 0).step()
    assert (desk.phase, desk.asked) == (GroupPhase.HOLDDOWN, {})
    desk.leave("a").step().join("a").step()
    assert desk.having == {"a": [0, 2], "b": [1, 3]}


def test_when_all_stop_nothing_is_granted() -> None:
    desk = Desk(2).join("a", "b").settle()
    desk.set("a", stopping=True).set("b", stopping=True).release("a", 0).step()
    assert desk.having == {"b": [1]}


@pytest.mark.parametrize("assignor", ["balanced", "contiguous", "learner", "load", "ring"])
@pytest.mark.parametrize("goes", [{"leaving": 1000.0}, {"stopping": True}])
def test_when_all_go_nobody_is_asked_for_what_nobody_may_take(
    assignor: str, goes: dict[str, Any]
) -> None:
    desk = Desk(8, assignor, handoffs=8, rebalance_delay=60).join("a").step().join("b").step()
    desk.set("a", **goes).set("b", **goes).step()
    assert desk.asked == {}
    assert desk.settle().having == {"a": [0, 1, 2, 3, 4, 5, 6, 7]}


def test_when_all_go_copies_end_and_nothing_more_is_decided() -> None:
    desk = Desk(4, LearnerAssignor(1.0, standbys=2)).join("a", "b", "c").step().settle()
    for name in "abc":
        desk.set(name, leaving=desk.now)
    desk.step().leave("c").step()
    assert desk.state.free
    assert (desk.state.standbys, desk.state.warming) == ({}, {})
    decided = desk.state
    assert desk.step().state is decided


@pytest.mark.parametrize("partitions", [2, 3, 8])
@pytest.mark.parametrize("goes", [{"leaving": 900.0}, {"stopping": True}])
def test_a_join_while_an_owner_that_must_go_has_not_let_go_yet_is_decided_on_once(
    goes: dict[str, Any], partitions: int
) -> None:
    desk = Desk(partitions, LearnerAssignor(standbys=1), handoffs=8).join("a").step()
    desk.join("b").settle().set("a", **goes).step().step()
    desk.join("z").step().step()
    assert desk.asked
    decided = desk.state
    assert desk.step().state is decided


@pytest.mark.parametrize("assignor", ASSIGNORS)
@pytest.mark.parametrize("seed", some(range(40)))
def test_whatever_becomes_of_its_members_a_group_comes_to_rest(seed: int, assignor: str) -> None:
    rng = random.Random(seed)
    delay, names = rng.choice([0.0, 60.0]), "abcde"[: rng.randint(1, 5)]
    desk = Desk(rng.randint(1, 12), assignor_named(assignor), rebalance_delay=delay, handoffs=3)
    desk.join(*names).step().wait(60).settle()
    trouble(desk, rng)
    desk.settle().wait(60).settle()


def test_a_longer_ttl_of_before_counts_until_nobody_can_have_such_a_lease() -> None:
    desk = Desk(2, ttl=100.0).join("a").step().migrate(ttl=10.0)
    for seconds, longest in ((199, 100.0), (1, 10.0)):
        desk.wait(seconds).join(str(seconds)).step()
        assert desk.state.longest_lease == longest


def test_that_nobody_can_have_a_longer_lease_any_more_is_no_decision() -> None:
    desk = Desk(2, ttl=100.0).join("a").step().migrate(ttl=10.0).step()
    before = desk.wait(1000).state
    assert desk.step().state is before


def test_terms_that_do_not_change_the_access_do_not_end_a_holddown() -> None:
    desk = Desk(2, rebalance_delay=60).join("a").step().join("b").step()
    assert desk.phase is GroupPhase.HOLDDOWN
    migrated = group_orders.migrate(desk.state, replace(desk.state.terms, handoffs=4)).state
    assert migrated.phase is GroupPhase.HOLDDOWN
    assert migrated.holddown == desk.state.holddown is not None


def test_terms_with_another_access_end_a_holddown() -> None:
    desk = Desk(2, rebalance_delay=60).join("a").step().join("b").step()
    migrated = group_orders.migrate(desk.state, replace(desk.state.terms, access="exclusive")).state
    assert (migrated.phase, migrated.holddown) == (GroupPhase.REBALANCING, None)


def test_to_resize_to_the_present_count_decides_nothing() -> None:
    desk = Desk(2).join("a").step()
    assert group_orders.resize(desk.state, 2).state is desk.state


@pytest.mark.parametrize("count", [0, -1, 1_000_001, 2.0, "2", True])
def test_a_count_that_cannot_work_is_refused(count: object) -> None:
    with pytest.raises(ConfigError, match=r"^partitions="):
        group_orders.resize(Desk(2).state, count)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"^partitions="):
        Terms(count)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("ttl", 0),
        ("ttl", float("inf")),
        ("rebalance_delay", -1),
        ("max_handoff_time", float("nan")),
        ("leave_timeout", -0.1),
        ("handoffs", 0),
        ("access", "shared"),
    ],
)
def test_terms_that_cannot_work_are_refused_by_name(setting: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"^{setting}="):
        Terms(4, **{setting: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"partitions": 1},
        {"partitions": 1_000_000},
        {"ttl": 0.1},
        {"rebalance_delay": 0, "max_handoff_time": 0, "leave_timeout": 0},
        {"handoffs": 1},
        {"access": "exclusive"},
    ],
)
def test_terms_at_the_edge_of_what_can_work_stand(settings: dict[str, Any]) -> None:
    terms = Terms(**{"partitions": 4, **settings})
    assert {name: getattr(terms, name) for name in settings} == settings


# --- the learner ------------------------------------------------------------------------------


def test_a_partition_waits_at_its_owner_until_the_next_one_is_warm() -> None:
    desk = Desk(4, LearnerAssignor(warmups=1)).join("a").step().join("b").step()
    assert desk.having == {"a": [0, 1, 2, 3]}
    assert desk.state.warming == {0: "b"}
    assert desk.asked == {}
    desk.warm("b", 0).step()
    assert desk.asked == {0: ("a", "b")}
    desk.release("a", 0).step()
    assert desk.having == {"a": [1, 2, 3], "b": [0]}


def test_a_member_stays_warm_while_a_handoff_to_it_waits_for_another_one() -> None:
    rule = LearnerAssignor(1.0, warmups=2)
    desk = Desk(4, rule, handoffs=1).join("a").settle().join("b").step().warm("b", 0, 1).step()
    assert desk.asked == {0: ("a", "b")}
    view = desk.state.view("b", desk.members["b"].session)
    assert view.warming == {0, 1}
    assert desk.release("a", 0).step().asked == {1: ("a", "b")}
    assert desk.told(EventKind.WARMUP) == []


def test_a_member_is_to_keep_the_copies_that_the_group_has_at_it() -> None:
    desk = Desk(4, LearnerAssignor(1.0, standbys=1), handoffs=4).join("a", "b").settle()
    copies = {p: names for p, names in desk.state.standbys.items() if names}
    assert len(copies) == 4
    for partition, names in copies.items():
        for name in names:
            seen = desk.state.view(name, desk.members[name].session)
            assert partition in seen.warming


def test_a_group_that_shrinks_has_no_copy_of_what_is_removed() -> None:
    desk = Desk(8, LearnerAssignor(1.0, standbys=1), handoffs=8).join("a", "b").settle()
    assert sorted(desk.state.standbys) == [*range(8)]
    desk.resize(4).step()
    assert sorted(desk.state.standbys) == [*range(4)]


def test_a_copy_stays_while_a_handoff_to_its_member_waits_for_another_one() -> None:
    rule = LearnerAssignor(1.0, standbys=1)
    desk = Desk(4, rule, handoffs=1).join("a", "b").settle()
    copies = desk.having["a"]
    assert [desk.state.standbys[p] for p in copies] == [("b",), ("b",)]
    desk.warm("b", *copies).set("a", leaving=desk.now).step()
    assert len(desk.asked) == 1
    assert desk.state.view("b", desk.members["b"].session).warming >= {*copies}


def test_what_a_drained_member_had_before_it_restarted_waits_for_nobody_to_be_warm() -> None:
    desk = Desk(4, LearnerAssignor(1.0, warmups=1)).join("a", "b").settle()
    order = member_orders.drain(desk.state, "a", desk.now, "ops")
    desk.state = order.state.stamped(desk.now)
    desk.step()
    assert desk.sizes == {"a": 2, "b": 2}
    # It may not have again what it had, and nobody is to wait for it.
    desk.leave("a").join("a").step()
    assert desk.sizes == {"b": 4}


@pytest.mark.parametrize("facts", [{"leaving": 1000.0}, {"stalled": True}])
def test_warm_ups_for_a_member_that_must_hand_over_do_not_wait_for_the_delay(
    facts: dict[str, Any],
) -> None:
    desk = Desk(2, LearnerAssignor(1.0), rebalance_delay=60).join("a", "b").settle()
    desk.set("a", **facts).step()
    assert desk.phase is GroupPhase.REBALANCING
    assert desk.state.warming == {0: "b"}


def test_a_member_stays_warm_while_the_handoff_to_it_is_under_way() -> None:
    desk = Desk(4, LearnerAssignor(warmups=1)).join("a").step().join("b").step().warm("b", 0).step()
    assert desk.state.view("b", desk.members["b"].session).warming == {0}


def test_warmups_wait_for_the_end_of_the_holddown() -> None:
    desk = Desk(4, LearnerAssignor(), rebalance_delay=5).join("a").step().join("b").step()
    assert desk.phase is GroupPhase.HOLDDOWN
    assert desk.state.warming == {}
    desk.wait(5).step()
    assert desk.state.warming == {0: "b"}


def test_copies_follow_at_once_where_a_spare_member_ends_the_holddown() -> None:
    # In a holddown no copies are placed, and nothing else would make a step due.
    desk = Desk(2, LearnerAssignor(standbys=1), rebalance_delay=60).join("a", "b", "c").step()
    desk.warm("c", 0, 1).step().leave("a").step()
    assert desk.phase is GroupPhase.READY
    assert desk.due == desk.now
    before = desk.state.standbys
    assert desk.step().state.standbys != before
    assert desk.due is None


def test_a_handoff_whose_owner_is_gone_goes_to_a_member_that_is_warm_meanwhile() -> None:
    desk = Desk(2, LearnerAssignor(), handoffs=2).join("a").step().join("b", "c")
    # Its time to leave is over, and nobody is warm.
    desk.set("a", leaving=0.0).step()
    assert desk.asked == {0: ("a", "b"), 1: ("a", "c")}
    desk.warm("c", 0).leave("a").step()
    assert desk.state.holder(0) == "c"


def test_what_a_member_that_must_go_hands_over_ends_at_its_receiver_also_if_another_is_warm() -> (
    None
):
    desk = Desk(2, LearnerAssignor(warmups=1)).join("a").step()
    desk.set("a", leaving=0.0).step().join("b").step().join("c").step()
    assert desk.asked == {0: ("a", "b"), 1: ("a", "b")}
    assert desk.state.warming == {0: "c"}
    assert desk.warm("c", 1).step().state.warming == {1: "b"}


def test_a_handoff_goes_to_the_member_that_is_preferred_for_its_copy_meanwhile() -> None:
    # Its owner takes its time. Members that are to be warm for something are so at once.
    rule = LearnerAssignor(1.0, warmups=1, standbys=1)
    desk = Desk(6, rule, handoffs=2).join("a").step().join("b")
    warm_until_at_rest(desk)
    assert desk.asked == {0: ("a", "b"), 3: ("a", "b")}
    began = desk.state.handoffs
    desk.join("c")
    warm_until_at_rest(desk)
    assert desk.asked == {0: ("a", "c"), 3: ("a", "b")}
    assert replace(desk.state.handoffs[0], to="b") == began[0]
    assert 0 in desk.state.view("c", desk.members["c"].session).warming
    assert desk.release("a", 0).step().having["c"] == [0]


@pytest.mark.parametrize("standbys", [0, 1])
@pytest.mark.parametrize("facts", [{"leaving": 1000.0}, {"stalled": True}])
def test_an_owner_need_not_warm_up_for_what_it_is_asked_for(
    facts: dict[str, Any], standbys: int
) -> None:
    rule = LearnerAssignor(1.0, warmups=1, standbys=standbys)
    desk = Desk(6, rule, handoffs=2).join("a").step().join("b")
    warm_until_at_rest(desk)
    desk.set("b", **facts)
    warm_until_at_rest(desk)
    first = min(desk.asked)
    desk.release("a", first).step()
    assert desk.told(EventKind.GRANTED) == [("a", first)]


def test_a_member_to_hand_over_to_stays_warm_though_the_owner_is_to_have_the_copy_then() -> None:
    desk = Desk(8, LearnerAssignor(warmups=2, standbys=1), handoffs=1).join("a").step()
    for name in "bc":
        desk.join(name)
        warm_until_at_rest(desk)
    assert desk.asked == {0: ("a", "b")}
    assert (desk.state.warming[2], desk.state.standbys[2]) == ("c", ("a",))


def warm_until_at_rest(desk: Desk) -> None:
    """Members are warm for what they are asked to, until nothing is decided any more."""
    for _ in range(12):
        before = desk.state
        for name, asked in before.asked().items():
            desk.warm(name, *asked.warming)
        if desk.step().state is before:
            return
    raise AssertionError("it never rests")


# --- wrong answers and lost decisions ---------------------------------------------------------


def test_an_assignor_with_a_wrong_answer_leaves_the_group_as_it_was() -> None:
    class Wrong:
        name = "balanced"

        def assign(self, situation: GroupSituation) -> TargetAssignment:
            return TargetAssignment.at_once(["nobody"] * situation.partitions)

    desk = Desk(2).join("a").step()
    before = desk.state
    desk.assignor = Wrong()
    with pytest.raises(AssignorError, match="not a member"):
        desk.join("b").step()
    assert desk.state is before


def test_when_redis_comes_back_empty_members_keep_what_they_hold() -> None:
    desk = Desk(4).join("a", "b").step()
    generation, tokens = desk.state.generation, desk.state.tokens
    lost = Desk(4, ttl=10)
    lost.join("a", seen=generation, claims={0: tokens[0], 2: tokens[2]}).step()
    assert lost.having == {"a": [0, 2]}
    assert sorted(lost.told(EventKind.GRANTED)) == [("a", 0), ("a", 2)]
    assert lost.state.generation > generation
    # Nothing else is granted while the other owner may still be about to return.
    lost.wait(9).step()
    assert lost.having == {"a": [0, 2]}
    lost.join("b", seen=generation, claims={1: tokens[1], 3: tokens[3]}).step()
    assert lost.having == {"a": [0, 2], "b": [1, 3]}
    assert lost.state.tokens == tokens
    assert lost.wait(1.1).step().phase is GroupPhase.READY


def test_when_redis_lost_decisions_alone_members_keep_what_they_hold_as_well() -> None:
    desk = Desk(4, ttl=10).join("a", "b").step()
    tokens, seen = desk.state.tokens, desk.state.generation
    desk.set("b", seen=seen).leave("a")
    desk.state = GroupState.new(desk.state.terms)
    # One is back and says what it holds. The report of the other one is from before the loss.
    desk.join("a", seen=seen, claims={0: tokens[0], 2: tokens[2]}).step()
    assert desk.having == {"a": [0, 2]}
    assert "b" not in desk.members
    desk.join("b", seen=seen, claims={1: tokens[1], 3: tokens[3]}).step()
    assert desk.having == {"a": [0, 2], "b": [1, 3]}
    assert desk.state.tokens == tokens


def test_what_nobody_claims_is_granted_once_every_lease_of_before_has_ended() -> None:
    lost = Desk(2, ttl=10).join("a", seen=7, claims={0: 5}).step()
    assert lost.due == lost.now + 10
    assert lost.wait(10).step().having == {"a": [0, 1]}


def test_a_lost_decision_that_raised_the_ttl_is_waited_for_as_long_as_its_leases_last() -> None:
    # The member that was cut off had taken up 60 s as well; another member reports that.
    lost = Desk(2, ttl=10).join("a", seen=7, claims={0: 5}, lease=60.0).step()
    assert lost.wait(11).step().having == {"a": [0]}
    assert lost.wait(50).settle().having == {"a": [0, 1]}


def test_a_raised_ttl_that_is_reported_later_is_waited_for_as_well() -> None:
    lost = Desk(3, ttl=10).join("a", seen=7, claims={0: 5}).step().wait(5)
    lost.join("b", seen=7, claims={1: 6}, lease=60.0).step().wait(11).step()
    assert lost.having == {"a": [0], "b": [1]}


def test_of_two_claims_the_one_with_the_greater_token_counts() -> None:
    lost = Desk(1).join("a", seen=7, claims={0: 5}).join("b", seen=7, claims={0: 6}).step()
    assert lost.having == {"b": [0]}


def test_a_claim_that_was_taken_up_once_counts_no_second_time() -> None:
    lost = Desk(1, ttl=10).join("a", seen=7, claims={0: 5}).step()
    lost.leave("a").step()
    assert lost.having == {}
    lost.join("a", seen=lost.state.generation, claims={0: 5}).step()
    assert lost.having == {}


def test_a_claim_that_came_after_another_got_the_partition_is_no_loss_and_counts_for_nothing() -> (
    None
):
    desk = Desk(2).join("a", "b").step()
    late = dict(enumerate(desk.state.tokens))
    desk.leave("a").settle()
    assert desk.having == {"b": [0, 1]}
    newer = desk.state.tokens
    desk.join("a", claims={0: late[0]}).step()
    assert desk.having == {"b": [0, 1]}
    assert desk.state.tokens == newer
    assert not desk.told(EventKind.RECOVERING)


def test_in_a_loss_a_claim_under_an_older_token_than_is_known_counts_for_nothing() -> None:
    desk = Desk(2).join("a", "b").step()
    late = dict(enumerate(desk.state.tokens))
    desk.leave("a").settle()
    newer = desk.state.tokens[0]
    desk.join("a", seen=99, claims={0: late[0]}).step()
    assert 0 not in desk.having.get("a", [])
    desk.join("b", claims={0: newer}).step()
    assert desk.having == {"b": [0]}
    assert desk.state.tokens[0] == newer


def test_members_that_do_not_return_after_a_loss_lose_their_places() -> None:
    desk = Desk(2, ttl=10)
    desk.server = "first"
    desk.join("a", "b").step()
    tokens = desk.state.tokens
    desk.server = "second"
    desk.step().join("b", claims={1: tokens[1]}).step()
    assert set(desk.state.roster) == {"a", "b"}
    assert set(desk.wait(10).settle().state.roster) == {"b"}


def test_decisions_older_than_what_members_have_seen_are_not_relied_on() -> None:
    desk = Desk(2).join("a", "b").step()
    assert desk.having == {"a": [0], "b": [1]}
    # Since then a handed partition 0 to b, and Redis has forgotten it.
    desk.join("b", seen=99, claims={0: desk.state.token + 5}).step()
    assert desk.having == {"b": [0]}
    assert desk.state.generation == 100


def test_another_run_of_redis_grants_nothing_before_members_have_told_what_they_hold() -> None:
    desk = Desk(4, ttl=10)
    desk.server = "first"
    desk.join("a", "b").step()
    tokens = desk.state.tokens
    assert desk.having == {"a": [0, 2], "b": [1, 3]}
    # It may be older than what members were told: nobody is recorded as a holder any more, and
    # they all have to join anew.
    desk.server = "second"
    desk.step()
    assert desk.members == {}
    assert desk.told(EventKind.RECOVERING) == [(None, None)]
    desk.join("b", claims={1: tokens[1]}).join("c").step()
    assert desk.having == {"b": [1]}
    assert desk.wait(9).step().having == {"b": [1]}
    assert desk.wait(1).settle().sizes == {"b": 2, "c": 2}
    assert desk.state.tokens[1] == tokens[1]


def test_a_run_of_redis_that_is_unknown_is_no_other_one() -> None:
    desk = Desk(2).join("a").step()
    desk.server = "first"
    desk.step()
    assert desk.told(EventKind.RECOVERING) == []
    desk.server = ""
    assert desk.step().events == []
    assert desk.having == {"a": [0, 1]}


def test_after_another_run_of_redis_members_have_their_places_again() -> None:
    desk = Desk(4, "contiguous", ttl=10)
    desk.server = "first"
    desk.join("a", "b").step()
    having, tokens = desk.having, desk.state.tokens
    desk.server = "second"
    desk.step().join("b", claims={p: tokens[p] for p in (2, 3)}).step()
    desk.join("a", claims={p: tokens[p] for p in (0, 1)}).step().wait(10).settle()
    assert desk.having == having == {"a": [0, 1], "b": [2, 3]}
    assert desk.state.tokens == tokens


def test_a_member_that_still_holds_what_it_had_proves_that_redis_lost_it() -> None:
    desk = Desk(2, ttl=10).join("a").step()
    tokens = desk.state.tokens
    # Its lease ended too early here, since Redis came back without the last renewal.
    desk.leave("a").join("b").join("a", claims={0: tokens[0], 1: tokens[1]}).step()
    assert desk.having == {"a": [0, 1]}
    assert desk.state.tokens == tokens
    # The other one knows nothing of that.
    assert sorted(desk.members) == ["a"]


def test_who_saw_what_came_after_the_first_decision_stays_when_redis_lost_it() -> None:
    desk = Desk(2, ttl=10).join("a").step()
    assert desk.state.generation == 1
    desk.set("a", seen=2).step()
    assert desk.told(EventKind.RECOVERING) == [(None, None)]
    assert sorted(desk.members) == ["a"]


def test_an_old_claim_of_a_member_that_has_a_seat_counts_no_more() -> None:
    desk = Desk(2, ttl=10).join("a", seen=7, claims={0: 5}).step()
    assert desk.having == {"a": [0]}
    desk.set("a", released={0: 5}).step()
    assert desk.having == {}
    assert desk.step().having == {}


def test_what_a_loss_makes_doubtful_is_forgotten() -> None:
    desk = Desk(5, LearnerAssignor(standbys=1), ttl=10).join("a").settle().join("b").step()
    assert desk.state.warming
    # "a" has seen a decision that Redis has lost.
    desk.set("a", seen=desk.state.generation + 1)
    desk.set("b", seen=desk.state.generation + 1).step()
    assert desk.told(EventKind.RECOVERING) == [(None, None)]
    assert (desk.state.warming, desk.state.standbys) == ({}, {})
    desk = Desk(2, ttl=10).join("a").step().join("b").step()
    assert desk.asked
    desk.set("a", seen=desk.state.generation + 1).step()
    assert desk.asked == {}


def test_in_a_holddown_a_copy_comes_before_the_one_in_the_owners_place() -> None:
    desk = Desk(6, LearnerAssignor(standbys=1), rebalance_delay=60).join("a", "b", "x").settle()
    for _ in range(4):
        desk.wait(61).settle()
    copies = {p: names for p, names in desk.state.standbys.items() if p in desk.having["a"]}
    assert copies == {0: ("b",), 3: ("x",)}
    desk.leave("a", "x").join("c").step()
    assert desk.phase is GroupPhase.HOLDDOWN
    assert desk.having == {"b": [1, 4], "c": [3]}


def test_only_members_with_a_lease_are_deputies() -> None:
    desk = Desk(3).join("a", "b", "c").step().set("b", expires=1000.0)
    assert next_state.deputies(desk.facts, desk.state, "a") == ("c",)


def test_an_uncommitted_handoff_is_never_forced() -> None:
    desk = Desk(2).join("a").step().join("b").step()
    handoff = replace(desk.state.handoffs[1], lease_end=None)
    assert handoff.ends_by(handoff.generation - 1) is None
    assert handoff.ends_by(handoff.generation) == handoff.deadline


def test_after_the_ttl_was_lowered_a_silent_owner_has_the_lease_it_had() -> None:
    desk = Desk(2, max_handoff_time=3.0).join("a").settle()
    desk.state = group_orders.migrate(desk.state, replace(desk.state.terms, ttl=5.0)).state.stamped(
        desk.now
    )
    # The owner renewed for 100 s before that, and has not heard of anything since.
    desk.join("b").step()
    assert desk.asked == {1: ("a", "b")}
    for seconds, held in ((50.0, 2), (49.0, 2), (1.0, 1)):
        desk.now += seconds
        desk.set("b", expires=desk.now + 5.0)
        desk.set("a", expires=desk.now + 1.0)
        desk.step()
        assert desk.sizes["a"] == held


def test_an_assignor_is_not_asked_again_while_its_answer_is_carried_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[GroupSituation] = []
    assign = BalancedAssignor.assign

    def counted(self: BalancedAssignor, situation: GroupSituation) -> TargetAssignment:
        asked.append(situation)
        return assign(self, situation)

    monkeypatch.setattr(BalancedAssignor, "assign", counted)
    group = Desk(16).join("a").settle().join("b")
    plan, state, before = None, group.state, len(asked)
    for _ in range(4):
        outcome = next_state.step(state, group.facts, BalancedAssignor(), plan)
        plan, group.state = outcome.plan, outcome.state.stamped(group.now)
        for partition in group.asked:
            group.release("a", partition)
        state = group.state
    assert len(asked) == before + 1
    next_state.step(state, group.join("c").facts, BalancedAssignor(), plan)
    assert len(asked) == before + 2


def test_several_handoffs_at_once_come_from_the_busiest_in_turn() -> None:
    desk = Desk(12, handoffs=2).join("a", "b").settle().join("c").step()
    assert sorted(owner for owner, _ in desk.asked.values()) == ["a", "b"]


def test_of_owners_that_have_as_much_the_one_that_joined_first_gives_first() -> None:
    desk = Desk(12).join("b").settle().join("a").settle().join("c").step()
    assert [owner for owner, _ in desk.asked.values()] == ["b"]


def test_several_handoffs_at_once_go_to_the_least_loaded_in_turn() -> None:
    desk = Desk(12, "contiguous", handoffs=2).join("a").settle().join("b", "c").step()
    assert sorted(to for _, to in desk.asked.values()) == ["b", "c"]


def test_after_a_loss_members_join_anew_and_nobody_counts_as_one_that_left() -> None:
    desk = Desk(4).join("a", "b").settle()
    desk.set("a", seen=desk.state.generation + 1).step()
    assert desk.told(EventKind.JOINED) == [("a", None)]
    assert desk.told(EventKind.LEFT) == []
    assert desk.state.roster["b"].place == 1


def test_a_recovery_lasts_one_lease_from_its_commit() -> None:
    # A member may renew between the reading and the commit, and then not again.
    desk = Desk(2, ttl=10).join("a").step()
    desk.server = "another"
    outcome = next_state.step(replace(desk.state, server="one"), desk.facts, desk.assignor)
    assert outcome.due == desk.now + 10
    assert outcome.state.stamped(desk.now + 0.2).recovering == desk.now + 10.2


def test_a_recovery_lasts_the_longest_lease_of_which_a_member_tells_from_its_commit() -> None:
    desk = Desk(2, ttl=10).join("a").step()
    desk.join("b", seen=desk.state.generation + 1, lease=40.0)
    outcome = next_state.step(desk.state, desk.facts, desk.assignor)
    assert outcome.state.stamped(desk.now + 0.2).recovering == desk.now + 40.2


# --- a member whose report cannot be read ------------------------------------------------------


def unreadable(desk: Desk, name: str) -> Desk:
    desk.unreadable.add(name)
    return desk


def test_a_member_whose_report_cannot_be_read_keeps_what_it_has_and_gets_nothing() -> None:
    desk = Desk(6).join("a", "b", "c").step()
    had = desk.having
    unreadable(desk, "a").step()
    assert desk.having == had
    assert desk.told(EventKind.LEFT) == []
    desk.leave("c").settle()
    assert desk.having == {"a": had["a"], "b": sorted(had["b"] + had["c"])}
    assert desk.phase is GroupPhase.READY


@pytest.mark.parametrize("standbys", [1, 2])
@pytest.mark.parametrize("members", ["abc", "abcd"])
def test_copies_of_what_a_member_with_an_unreadable_report_has_stay(
    members: str, standbys: int
) -> None:
    desk = Desk(8, LearnerAssignor(1.0, standbys=standbys)).join(*members).step().settle()
    having, before = desk.having, desk.state.standbys
    unreadable(desk, "a").settle()
    assert (desk.phase, desk.having) == (GroupPhase.READY, having)
    for partition in having["a"]:
        assert desk.state.standbys[partition] == before[partition]
    desk.unreadable.clear()
    assert desk.settle().having == having


def test_nobody_is_asked_for_what_a_member_with_an_unreadable_report_has() -> None:
    desk = unreadable(Desk(6).join("a").step(), "a").join("b").step()
    assert desk.asked == {}
    assert desk.having == {"a": [0, 1, 2, 3, 4, 5]}
    desk.unreadable.clear()
    desk.settle()
    assert desk.sizes == {"a": 3, "b": 3}


def test_the_end_of_the_lease_frees_what_a_member_with_an_unreadable_report_has() -> None:
    desk = unreadable(Desk(2).join("a", "b").step(), "a")
    desk.set("a", expires=desk.now).step()
    assert desk.having == {"b": [0, 1]}
    assert desk.told(EventKind.EXPIRED) == [("a", None)]


def test_another_session_whose_report_cannot_be_read_has_nothing_of_the_one_before() -> None:
    # But the process may be the one before, and holds what it had until that lease ends.
    desk = Desk(2, ttl=10).join("a", "b").step()
    tokens = desk.state.tokens
    unreadable(desk.join("a"), "a").step()
    assert desk.having == {}
    desk.join("b", seen=desk.state.generation, claims={1: tokens[1]}).step()
    assert desk.having == {"b": [1]}
    desk.wait(9.0).step()
    assert desk.having == {"b": [1]}
    desk.wait(2.0).step()
    assert desk.having == {"b": [0, 1]}


def test_such_a_session_prolongs_a_recovery_by_its_lease() -> None:
    desk = Desk(2, ttl=10).join("a", "b").step()
    desk.state = replace(desk.state, recovering=desk.now + 1.0)
    unreadable(desk.join("a"), "a").step()
    assert desk.state.recovering == desk.now + 10
    # Once.
    desk.wait(5.0).step()
    assert desk.state.recovering == desk.now + 5


def test_a_handoff_ends_though_the_owners_report_cannot_be_read_any_more() -> None:
    desk = Desk(2, ttl=10.0, max_handoff_time=3.0).join("a").step().join("b").step()
    assert desk.asked == {1: ("a", "b")}
    unreadable(desk, "a").wait(3.1).step()
    assert desk.having == {"a": [0, 1]}
    desk.wait(7.0).step()
    assert desk.having == {"a": [0], "b": [1]}


def test_a_group_of_which_no_report_can_be_read_stays_as_it_is() -> None:
    desk = Desk(4).join("a", "b").step()
    had = desk.having
    unreadable(unreadable(desk, "a"), "b").step()
    assert desk.having == had


@pytest.mark.parametrize("access", ["exclusive", "non-exclusive"])
@pytest.mark.parametrize("name", ["balanced", "contiguous", "learner", "ring", "load"])
def test_whatever_the_assignor_a_frozen_member_keeps_what_it_has(name: str, access: str) -> None:
    desk = Desk(8, name, access=access).join("a", "b").settle()
    had = desk.having
    unreadable(desk, "a").join("c", "d").wait(1.0).settle()
    assert desk.having.get("a") == had.get("a")
    desk.leave("b", "c").wait(1.0).settle()
    assert desk.having.get("a") == had.get("a")
    assert sum(desk.sizes.values()) == 8


@pytest.mark.parametrize("seconds", [-1.0, 0.0, 1.0])
def test_one_that_comes_back_during_a_recovery_keeps_what_it_still_holds(seconds: float) -> None:
    desk = Desk(4).join("a", "b").step()
    desk.state = replace(desk.state, recovering=desk.now + seconds)
    claims = {0: desk.state.tokens[0]}
    desk.join("a", claims=claims).step()
    assert desk.state.holder(0) == "a"
    assert desk.state.tokens[0] == claims[0]
    assert desk.state.holder(1) != "a" or desk.state.tokens[1] > claims[0]
