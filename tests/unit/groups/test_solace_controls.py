"""When a rebalance may begin. Sources: Solace, "Partition Rebalancing" (S), "rebalance delay",
"rebalance max-handoff-time" and "Partition Rebalancing Status"; the research notes on
rebalancing, section 3 (N 3)."""

from __future__ import annotations

import random

import pytest

from hashring.core.groups import group_orders, next_state
from hashring.core.groups.state import EventKind, GroupPhase

from .desk import Desk

WITH_PLACES = ["balanced", "contiguous", "learner"]
"""Assignors that look at who had what, or at places; ``ring`` looks at names alone."""


def balanced_trio() -> Desk:
    """Seven partitions, three flows, as in the first diagram; a rebalance delay of 5 s."""
    desk = Desk(7, rebalance_delay=5, ttl=1000).join("a").step()
    desk.join("b", "c").step().wait(5).settle()
    assert desk.phase is GroupPhase.READY
    assert desk.sizes == {"a": 3, "b": 2, "c": 2}
    return desk


def test_a_new_consumer_waits_out_the_rebalance_delay() -> None:
    desk = balanced_trio().join("d").step()
    assert desk.phase is GroupPhase.HOLDDOWN
    assert desk.due == desk.now + 5
    desk.wait(4.9).step()
    assert desk.asked == {}
    desk.wait(0.2).step()
    assert desk.phase is GroupPhase.REBALANCING
    assert len(desk.asked) == 1


def test_the_history_tells_of_the_wait_and_of_its_end() -> None:
    desk = balanced_trio().join("d").step()
    assert [(e.kind, e.why) for e in desk.events] == [
        (EventKind.JOINED, ""),
        (EventKind.HOLDDOWN, "for 5 s"),
    ]
    desk.wait(5).step().release("a", *desk.asked).step()
    assert desk.events[-1].kind is EventKind.READY


def test_a_wait_that_somebody_ends_is_over_at_once() -> None:
    desk = balanced_trio().join("d").step()
    outcome = group_orders.hasten(desk.state, desk.now, "an operator")
    assert [(event.kind, event.why) for event in outcome.events] == [
        (EventKind.ASKED, "by an operator")
    ]
    desk.state = outcome.state.stamped(desk.now)
    assert desk.step().phase is GroupPhase.REBALANCING


def test_the_diagrams_rebalance_is_one_handoff() -> None:
    # S, second and third diagram; N 3.
    desk = balanced_trio().join("d").step().wait(5).step()
    assert list(desk.asked.values()) == [("a", "d")]
    desk.settle()
    assert desk.sizes == {"a": 2, "b": 2, "c": 2, "d": 1}
    assert desk.phase is GroupPhase.READY


def test_later_changes_do_not_put_the_deadline_off() -> None:
    # S: the delay is the maximum between the first and the last change.
    desk = balanced_trio().join("d").step().wait(3).join("e").step()
    assert desk.phase is GroupPhase.HOLDDOWN
    desk.wait(2).step()
    assert desk.phase is GroupPhase.REBALANCING


def test_the_deadline_survives_the_member_that_began_it() -> None:
    # N 3: store the deadline.
    desk = balanced_trio().join("d", "e").step()
    assert desk.state.holddown is not None
    until = desk.state.holddown.until
    desk.wait(2).leave("d").step()
    assert desk.state.holddown is not None
    assert desk.state.holddown.until == until


def test_a_consumer_that_comes_and_goes_within_the_delay_moves_nothing() -> None:
    # S: if the number returns to its previous state, no partition handoffs occur.
    desk = balanced_trio()
    before = desk.state.tokens
    desk.join("d").step().wait(4).leave("d").step()
    assert desk.phase is GroupPhase.READY
    assert [(e.kind, e.why) for e in desk.events] == [
        (EventKind.LEFT, ""),
        (EventKind.CANCELLED, "nothing is left to move"),
    ]
    assert desk.wait(10).step().state.tokens == before


def test_a_consumer_that_leaves_and_returns_within_the_delay_gets_what_it_had() -> None:
    # N 3: leave and return within the delay: no move.
    desk = balanced_trio()
    before = desk.having
    desk.leave("b").step()
    assert desk.phase is GroupPhase.HOLDDOWN
    assert desk.having == {"a": before["a"], "c": before["c"]}
    desk.wait(4).join("b").step()
    assert desk.having == before
    assert desk.phase is GroupPhase.READY


@pytest.mark.parametrize("assignor", ["contiguous", "balanced", "learner", "ring"])
def test_a_return_to_the_previous_members_moves_nothing_whatever_the_assignor(
    assignor: str,
) -> None:
    desk = Desk(24, assignor, rebalance_delay=5).join("a").step()
    desk.join("b", "c").step().wait(5).settle()
    before = desk.having
    stayed = [p for name in "ac" for p in before.get(name, [])]
    tokens = [desk.state.tokens[p] for p in stayed]
    desk.leave("b").step().wait(3).join("b").settle()
    assert desk.having == before
    assert [desk.state.tokens[p] for p in stayed] == tokens
    assert desk.phase is GroupPhase.READY


def test_another_consumer_in_the_place_of_one_that_left_takes_its_load_at_once() -> None:
    # S: "if the number of consumers returns to its previous state".
    desk = balanced_trio()
    tokens = {p: t for p, t in enumerate(desk.state.tokens) if p not in desk.having["c"]}
    desk.leave("c").step().wait(1).join("d").step()
    assert desk.sizes == {"a": 3, "b": 2, "d": 2}
    assert desk.phase is GroupPhase.READY
    assert {p: desk.state.tokens[p] for p in tokens} == tokens


@pytest.mark.parametrize("assignor", WITH_PLACES)
def test_a_consumer_under_a_new_name_takes_over_at_once_what_the_one_it_replaces_had(
    assignor: str,
) -> None:
    # S: "no partition handoffs occur"; 3, 2 and 2 partitions, and whichever of them goes.
    for gone in "abc":
        desk = Desk(7, assignor, rebalance_delay=5).join("a").step()
        desk.join("b", "c").step().wait(5).settle()
        before = desk.having
        desk.leave(gone).step().wait(1).join("d").step()
        assert desk.having.pop("d") == before.pop(gone)
        assert {name: desk.having[name] for name in before} == before
        assert desk.phase is GroupPhase.READY


@pytest.mark.parametrize("assignor", WITH_PLACES)
def test_it_does_so_as_well_when_it_came_before_the_other_went(assignor: str) -> None:
    desk = Desk(7, assignor, rebalance_delay=5).join("a").step()
    desk.join("b", "c").step().wait(5).settle()
    before = desk.having
    desk.join("d").step().wait(1).leave("a").step()
    assert desk.having == {"b": before["b"], "c": before["c"], "d": before["a"]}
    assert desk.phase is GroupPhase.READY


@pytest.mark.parametrize("assignor", WITH_PLACES)
@pytest.mark.parametrize("seed", range(25))
def test_when_the_number_of_consumers_returns_within_the_delay_nothing_is_handed_off(
    assignor: str, seed: int
) -> None:
    # S; some leave and as many come, under new names or old ones, in any order.
    rng = random.Random(seed)
    size = rng.randint(2, 6)
    names = [f"m{number}" for number in range(size)]
    desk = Desk(rng.randint(1, 24), assignor, rebalance_delay=60).join(names[0]).step()
    desk.join(*names[1:]).step().wait(60).settle()
    before, tokens = desk.having, desk.state.tokens
    leaving = rng.sample(names, rng.randint(1, size - 1))
    coming = [name if rng.random() < 0.3 else f"new-{name}" for name in leaving]
    changes = [(desk.leave, name) for name in leaving] + [(desk.join, name) for name in coming]
    rng.shuffle(changes)
    # Whoever comes back has left before. And within its factor a learner may come to rest with
    # more consumers than there were, which are then the number to return to.
    changes.sort(
        key=lambda change: (
            change[0] == desk.join and (change[1] in leaving or assignor == "learner")
        )
    )
    for change, name in changes:
        change(name)
        desk.wait(1)
        if rng.random() < 0.7:
            desk.step()
            assert desk.asked == {}
    desk.step()
    assert desk.asked == {}
    assert desk.phase is GroupPhase.READY
    staying = [name for name in before if name not in leaving]
    assert [desk.having[name] for name in staying] == [before[name] for name in staying]
    assert all(desk.state.tokens[p] == tokens[p] for name in staying for p in before[name])
    assert sorted(desk.having.values()) == sorted(before.values())


def test_a_consumer_of_another_weight_takes_nobodys_place() -> None:
    desk = balanced_trio().leave("a").step().join("d", weight=0.1).step()
    assert desk.sizes.get("d", 0) == 0


def test_a_spare_consumer_has_the_place_of_the_one_it_takes_over_from() -> None:
    # Otherwise every consumer after the one that went would hand its partition on.
    desk = Desk(5, "contiguous", rebalance_delay=60).join(*"abcdef").step()
    assert desk.having == {"a": [0], "b": [1], "c": [2], "d": [3], "e": [4]}
    desk.leave("b").step()
    assert desk.having == {"a": [0], "c": [2], "d": [3], "e": [4], "f": [1]}
    assert desk.phase is GroupPhase.READY


def test_a_spare_consumer_takes_over_immediately() -> None:
    # S: if there are excess consumers, one of them becomes active immediately.
    desk = Desk(2, rebalance_delay=60).join("a", "b", "c", "d").step()
    assert desk.having == {"a": [0], "b": [1]}
    desk.leave("a").step()
    assert desk.having == {"b": [1], "c": [0]}
    assert desk.phase is GroupPhase.READY


def test_a_consumer_beyond_the_partitions_triggers_nothing() -> None:
    # S: if there are already excess consumers, a new consumer bind does not trigger rebalancing.
    desk = Desk(2, rebalance_delay=60).join("a", "b").step().join("c").step()
    assert desk.phase is GroupPhase.READY
    assert desk.told(EventKind.HOLDDOWN) == []


def test_no_distinction_is_made_between_a_leave_and_a_disconnect() -> None:
    # S: "No distinction is made between an unbind signaled by the client application and an
    # unbind resulting from a disconnect."
    left = balanced_trio().leave("b").step()
    lost = balanced_trio()
    lost.set("b", expires=lost.now).step()
    assert left.phase is lost.phase is GroupPhase.HOLDDOWN
    assert left.having == lost.having


def test_a_count_change_starts_at_once_even_while_holding_down() -> None:
    # S: "If the partition count changes, the rebalance is started immediately."
    desk = balanced_trio().join("d").step()
    assert desk.phase is GroupPhase.HOLDDOWN
    desk.resize(8).step()
    assert desk.phase is GroupPhase.REBALANCING
    assert desk.sizes == {"a": 3, "b": 2, "c": 2, "d": 1}
    assert list(desk.asked.values()) == [("a", "d")]


def test_handoffs_go_one_at_a_time() -> None:
    # S, steps 5 and 6.
    desk = Desk(8, rebalance_delay=5).join("a").step().join("b").step().wait(5).step()
    for number in range(4):
        assert len(desk.asked) == 1
        desk.release("a", *desk.asked).step()
        assert len(desk.having["b"]) == number + 1
    assert desk.phase is GroupPhase.READY


def test_the_broker_waits_no_longer_than_the_max_handoff_time() -> None:
    # S, "rebalance max-handoff-time".
    desk = Desk(2, rebalance_delay=5, max_handoff_time=3).join("a").step().join("b").step()
    desk.wait(5).step().set("a", seen=desk.state.generation)
    assert desk.wait(2.9).step().sizes == {"a": 2}
    assert desk.wait(0.2).step().sizes == {"a": 1, "b": 1}


def test_without_a_delay_changes_take_effect_at_once() -> None:
    desk = Desk(2, rebalance_delay=0).join("a").step().join("b").step()
    assert desk.phase is GroupPhase.REBALANCING


def test_changes_during_a_rebalance_take_effect_at_once() -> None:
    desk = balanced_trio().join("d").step().wait(5).step()
    assert desk.phase is GroupPhase.REBALANCING
    desk.leave("b").step()
    assert sum(desk.sizes.values()) == 7


def test_when_more_came_than_left_the_rest_waits_for_the_delay() -> None:
    desk = balanced_trio().leave("c").step().wait(1).join("d", "e").step()
    # What c had is taken over at once; evening out has to wait.
    assert sum(desk.sizes.values()) == 7
    assert desk.sizes["a"] == 3
    held = desk.state.tokens
    desk.wait(4).settle()
    assert sorted(desk.sizes.values()) == [1, 2, 2, 2]
    assert desk.state.tokens != held


def test_an_old_decision_cannot_be_mistaken_for_a_new_one() -> None:
    desk = balanced_trio()
    outcome = next_state.step(desk.state, desk.join("d").facts, desk.assignor)
    assert outcome.state.generation == desk.state.generation + 1
    assert outcome.state.committed is None


def test_with_exclusive_access_one_consumer_has_everything_and_the_next_takes_over_at_once() -> (
    None
):
    desk = Desk(7, rebalance_delay=60, access="exclusive").join("a", "b", "c").step()
    assert desk.sizes == {"a": 7}
    assert desk.phase is GroupPhase.READY
    desk.leave("a").step()
    assert desk.sizes == {"b": 7}
    assert desk.phase is GroupPhase.READY
    # Who returns stands by.
    assert desk.join("a").step().wait(60).step().sizes == {"b": 7}
    assert desk.asked == {}


def test_a_switch_from_exclusive_to_non_exclusive_starts_at_once_even_while_holding_down() -> None:
    # S: "if the parent queue access type changes from exclusive to non-exclusive".
    desk = Desk(7, rebalance_delay=60, access="exclusive").join("a", "b", "c").step()
    desk.migrate(access="non-exclusive").step()
    assert desk.phase is GroupPhase.REBALANCING
    assert len(desk.asked) == 1
    assert sorted(desk.settle().sizes.values()) == [2, 2, 3]
    desk.migrate(access="exclusive").settle()
    assert sorted(desk.sizes.values()) == [7]
