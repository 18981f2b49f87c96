"""Even counts, fewest moves. Sources: Solace, "Partition Rebalancing" (S); the research notes on
rebalancing, sections 2 and 3 (N 2, N 3)."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.assignors import BalancedAssignor, GroupMember, GroupSituation, Owners
from hashring.core.assignors.quotas import counts, fair_shares, round_down, round_up

from .situations import having, members, moves, owners, sizes


def assign(partitions: int, before: Owners, *names: str) -> Owners:
    return BalancedAssignor().assign(GroupSituation(members(*names), partitions, before)).owners


def test_seven_partitions_and_three_flows_get_two_or_three_each() -> None:
    # S, the first diagram.
    situation = GroupSituation(members("a", "b", "c"), 7)
    assert sizes(situation, BalancedAssignor().assign(situation)) == [3, 2, 2]


def test_a_fourth_flow_gets_one_partition_in_one_move() -> None:
    # S, the second and third diagram; N 3: {3,2,2} + 1 -> {2,2,2,1} in one move.
    before = owners(a=[0, 1, 2], b=[3, 4], c=[5, 6])
    after = assign(7, before, "a", "b", "c", "d")
    assert having(after) == {"a": [0, 1], "d": [2], "b": [3, 4], "c": [5, 6]}
    assert moves(before, after) == 1


def test_new_partitions_go_to_the_flows_that_have_fewest() -> None:
    # S, step 2.
    before = owners(a=[0, 1, 2], b=[3, 4], c=[5, 6])
    assert having(assign(9, before, "a", "b", "c")) == {
        "a": [0, 1, 2],
        "b": [3, 4, 7],
        "c": [5, 6, 8],
    }


def test_a_surplus_flow_changes_nothing() -> None:
    # S: a consumer that binds where flows already exceed partitions triggers nothing; N 3.
    before = owners(a=[0], b=[1])
    assert assign(2, before, "a", "b", "c", "d") == before


def test_a_surplus_flow_takes_over_the_load_of_one_that_left() -> None:
    # S: if there are excess consumers, one of them takes over; N 3.
    assert having(assign(2, owners(a=[0], b=[1]), "b", "c", "d")) == {"c": [0], "b": [1]}


def test_shrinking_removes_the_highest_numbers_and_keeps_the_rest() -> None:
    # N 3.
    before = owners(a=[0, 1, 2, 3], b=[4, 5, 6, 7])
    assert having(assign(6, before, "a", "b")) == {"a": [0, 1, 2], "b": [3, 4, 5]}


def test_exactly_one_partition_moves_to_a_new_member() -> None:
    # N 2: p1{0,2} p2{1} + new p3: exactly one of 0, 2 moves.
    before = owners(p1=[0, 2], p2=[1])
    after = assign(3, before, "p1", "p2", "p3")
    assert having(after) == {"p1": [0], "p2": [1], "p3": [2]}


@pytest.mark.parametrize(
    ("weights", "partitions", "expected"),
    [((1, 2, 3), 6, [1, 2, 3]), ((6, 3), 9, [6, 3]), ((0.1, 0.2), 3, [1, 2])],
)
def test_counts_follow_weights(
    weights: tuple[float, ...], partitions: int, expected: list[int]
) -> None:
    # N 2: 6 partitions over weights 1/2/3: 1/2/3. 9 over 6/3: 6/3.
    situation = GroupSituation(members(*"abc"[: len(weights)], weights=weights), partitions)
    assert sizes(situation, BalancedAssignor().assign(situation)) == expected


def test_an_empty_member_evens_out_seven_to_four_and_three() -> None:
    # N 2: 7 partitions + an empty member: 4/3.
    before = owners(a=[0, 1, 2, 3, 4, 5, 6])
    assert having(assign(7, before, "a", "b")) == {"a": [0, 1, 2, 3], "b": [4, 5, 6]}


def test_counts_that_differ_by_one_are_left_alone() -> None:
    before = owners(a=[0, 3], b=[1, 4], c=[2])
    assert assign(5, before, "a", "b", "c") == before


@given(
    before=st.lists(st.sampled_from([None, "a", "b", "c", "gone"]), min_size=1, max_size=6),
    weights=st.tuples(*[st.sampled_from([1.0, 1.0, 2.0, 3.5])] * 3),
)
def test_no_assignment_within_the_quotas_needs_fewer_moves(
    before: list[str | None], weights: tuple[float, ...]
) -> None:
    situation = GroupSituation(members("a", "b", "c", weights=weights), len(before), tuple(before))
    mine = moves(situation.previous, BalancedAssignor().assign(situation).owners)
    shares = fair_shares(situation.members, situation.partitions)
    least = min(
        moves(situation.previous, other)
        for other in product("abc", repeat=len(before))
        if all(
            round_down(share) <= counts(other).get(name, 0) <= round_up(share)
            for name, share in shares.items()
        )
    )
    assert mine == least


@given(partitions=st.integers(1, 300), changes=st.lists(st.booleans(), max_size=12))
def test_with_equal_weights_a_change_of_one_member_moves_at_most_one_share(
    partitions: int, changes: list[bool]
) -> None:
    present = [GroupMember("m0", 0)]
    assignment = BalancedAssignor().assign(GroupSituation(tuple(present), partitions)).owners
    for number, join in enumerate(changes, 1):
        larger = len(present)
        if join or len(present) == 1:
            present.append(GroupMember(f"m{number}", number))
            larger += 1
        else:
            del present[len(present) // 2]
        after = (
            BalancedAssignor().assign(GroupSituation(tuple(present), partitions, assignment)).owners
        )
        assert moves(assignment, after) <= round_up(partitions / larger)
        assignment = after
