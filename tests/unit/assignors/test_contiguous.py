"""Runnel's rule. Sources: its page "Rebalance" (R), the research notes on rebalancing (N 1)."""

from __future__ import annotations

import pytest

from hashring.core.assignors import BalancedAssignor, ContiguousAssignor, GroupSituation

from .situations import having, members, moves, sizes


def assign(partitions: int, *names: str) -> dict[str, list[int]]:
    return having(ContiguousAssignor().assign(GroupSituation(members(*names), partitions)).owners)


def test_a_single_worker_assigns_itself_every_partition() -> None:
    # R, "A single worker", step 1: 8 partitions.
    assert assign(8, "worker1") == {"worker1": [0, 1, 2, 3, 4, 5, 6, 7]}


def test_a_second_worker_takes_the_upper_half() -> None:
    # R, "A new worker joins", step 5; the page numbers partitions from 1.
    assert assign(8, "worker1", "worker2") == {"worker1": [0, 1, 2, 3], "worker2": [4, 5, 6, 7]}


def test_when_the_first_worker_leaves_the_second_has_everything() -> None:
    # R, "A worker leaves", step 11.
    assert assign(8, "worker2") == {"worker2": [0, 1, 2, 3, 4, 5, 6, 7]}


def test_three_workers_on_eight_partitions() -> None:
    # N 1: three 0-2, 3-5, 6-7.
    assert assign(8, "a", "b", "c") == {"a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7]}


@pytest.mark.parametrize(("workers", "expected"), [(4, [2, 1, 1, 1]), (6, [1, 1, 1, 1, 1, 0])])
def test_the_first_get_one_more_and_surplus_workers_nothing(
    workers: int, expected: list[int]
) -> None:
    # N 1: 5 over 4 members 2,1,1,1; 5 over 6 members 1,1,1,1,1,0.
    situation = GroupSituation(members(*"abcdef"[:workers]), 5)
    assert sizes(situation, ContiguousAssignor().assign(situation)) == expected


def test_the_order_of_joining_decides_not_the_name() -> None:
    assert assign(4, "z", "a") == {"z": [0, 1], "a": [2, 3]}


def test_a_sixteenth_worker_moves_135_of_256_partitions_where_16_would_do() -> None:
    # N 1: the known cost.
    fifteen = GroupSituation(members(*"abcdefghijklmno"), 256)
    sixteen = members(*"abcdefghijklmnop")
    before = ContiguousAssignor().assign(fifteen).owners
    after = ContiguousAssignor().assign(GroupSituation(sixteen, 256, before)).owners
    assert moves(before, after) == 135
    least = BalancedAssignor().assign(GroupSituation(sixteen, 256, before)).owners
    assert moves(before, least) == 16


def test_chunks_are_proportional_to_weights() -> None:
    situation = GroupSituation(members("a", "b", "c", weights=(1, 2, 3)), 6)
    assert having(ContiguousAssignor().assign(situation).owners) == {
        "a": [0],
        "b": [1, 2],
        "c": [3, 4, 5],
    }
