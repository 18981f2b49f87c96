"""Warm up before taking over. Sources: the Kafka Streams notes on learner tasks (K); the research
notes on rebalancing, section 2 (N 2). Workers and tasks keep their names S1.. and T1.. there."""

from __future__ import annotations

import math
import random
import sys
from dataclasses import replace
from typing import Any

import pytest

from hashring.core.assignors import (
    GroupMember,
    GroupSituation,
    LearnerAssignor,
    MemberState,
    Owners,
    TargetAssignment,
)
from hashring.core.assignors.quotas import fair_shares, round_down, round_up
from hashring.errors import ConfigError
from tests.conftest import calls, some

from .situations import follow, having, members, moves, owners, sizes

STABLE = owners(1, S1=[1, 2], S2=[3, 4], S3=[5])


def tasks(having_: dict[str, list[int]]) -> dict[str, list[int]]:
    return dict(sorted(having_.items()))


def learning(target: TargetAssignment) -> dict[int, str]:
    return {partition + 1: name for partition, name in target.warmups.items()}


def warm(**ready: list[int]) -> dict[str, dict[int, float]]:
    """Who said ready(T)."""
    return {name: {task - 1: 0.0 for task in own} for name, own in ready.items()}


# --- the seed's own story ---------------------------------------------------------------------


def test_when_s4_joins_nobody_moves_and_s4_learns_t1() -> None:
    # K, "Scale-down stream applications", first rebalance.
    target = LearnerAssignor().assign(GroupSituation(members("S1", "S2", "S3", "S4"), 5, STABLE))
    assert target.interim == STABLE
    assert learning(target) == {1: "S4"}


def test_when_s1_dies_while_s4_is_unready_t1_goes_to_its_learner_and_t2_to_s3() -> None:
    # K, second rebalance.
    target = LearnerAssignor().assign(
        GroupSituation(members("S2", "S3", "S4"), 5, STABLE, warming={0: "S4"})
    )
    assert tasks(having(target.interim, 1)) == {"S2": [3, 4], "S3": [2, 5], "S4": [1]}
    assert target.settled


def test_when_s4_is_ready_it_takes_t1() -> None:
    # K, priority 1.
    target = LearnerAssignor().assign(
        GroupSituation(
            members("S1", "S2", "S3", "S4"), 5, STABLE, warming={0: "S4"}, lags=warm(S4=[1])
        )
    )
    assert tasks(having(target.interim, 1)) == {"S1": [2], "S2": [3, 4], "S3": [5], "S4": [1]}
    assert target.settled


def test_when_s5_joins_with_s4_unready_t1_returns_to_s1_and_s4_keeps_learning() -> None:
    # N 2, "More".
    target = LearnerAssignor().assign(
        GroupSituation(members("S1", "S2", "S3", "S4", "S5"), 5, STABLE, warming={0: "S4"})
    )
    assert target.interim == STABLE
    assert learning(target) == {1: "S4", 3: "S5"}


def test_a_leaving_member_keeps_its_tasks_while_others_learn_them() -> None:
    # N 2: S2 leaving: S1 learns 3, S3 learns 4.
    target = LearnerAssignor().assign(
        GroupSituation(members("S1", "S2", "S3", leaving="S2"), 5, STABLE)
    )
    assert target.interim == STABLE
    assert learning(target) == {3: "S1", 4: "S3"}


def test_each_task_leaves_as_soon_as_its_learner_is_ready() -> None:
    # N 2: S3 ready -> S3[4,5] S2[3]; S1 ready -> S1[1,2,3], and S2 exits.
    trio = members("S1", "S2", "S3", leaving="S2")
    first = LearnerAssignor().assign(
        GroupSituation(trio, 5, STABLE, warming={2: "S1", 3: "S3"}, lags=warm(S3=[4]))
    )
    assert tasks(having(first.interim, 1)) == {"S1": [1, 2], "S2": [3], "S3": [4, 5]}
    second = LearnerAssignor().assign(
        GroupSituation(trio, 5, first.interim, warming=first.warmups, lags=warm(S1=[3]))
    )
    assert tasks(having(second.interim, 1)) == {"S1": [1, 2, 3], "S3": [4, 5]}
    assert second.settled


def test_when_the_leaver_is_gone_its_learners_become_active_at_once() -> None:
    # N 2: if its leave timeout fires, learners become active at once.
    target = LearnerAssignor().assign(
        GroupSituation(members("S1", "S3"), 5, STABLE, warming={2: "S1", 3: "S3"})
    )
    assert tasks(having(target.interim, 1)) == {"S1": [1, 2, 3], "S3": [4, 5]}


# --- KIP-441's scenarios ----------------------------------------------------------------------


def test_nine_partitions_two_warmups_one_standby() -> None:
    # N 2: c1 active on all, c2 nearly caught up, c3 cold: totals 9/9/2 and "more to come".
    everything = range(9)
    situation = GroupSituation(
        members("c1", "c2", "c3"),
        9,
        owners(c1=list(everything)),
        standbys=dict.fromkeys(everything, ("c2",)),
        lags={"c1": dict.fromkeys(everything, 0.0), "c2": dict.fromkeys(everything, 10.0)},
    )
    target = LearnerAssignor(1.0, warmups=2, standbys=1, acceptable_lag=11).assign(situation)
    assert totals(target) == {"c1": 9, "c2": 9, "c3": 2}
    assert not target.settled


def test_with_no_lag_limit_the_nine_are_spread_at_once() -> None:
    # N 2: with no lag limit 6/6/6 and done.
    everything = range(9)
    situation = GroupSituation(
        members("c1", "c2", "c3"),
        9,
        owners(c1=list(everything)),
        standbys=dict.fromkeys(everything, ("c2",)),
    )
    target = LearnerAssignor(1.0, warmups=1, standbys=1, acceptable_lag=math.inf).assign(situation)
    assert totals(target) == {"c1": 6, "c2": 6, "c3": 6}
    assert target.settled


def totals(target: TargetAssignment) -> dict[str, int]:
    """Everything a member has to do with: owned, standby, warming up."""
    found: dict[str, int] = {}
    everything = [*target.interim, *target.warmups.values()]
    for name in everything + [n for names in target.standbys.values() for n in names]:
        assert name is not None
        found[name] = found.get(name, 0) + 1
    return found


@pytest.mark.parametrize(
    ("weights", "partitions", "expected"), [((1, 2, 3), 6, [1, 2, 3]), ((6, 3), 9, [6, 3])]
)
def test_counts_follow_weights(
    weights: tuple[float, ...], partitions: int, expected: list[int]
) -> None:
    # N 2.
    situation = GroupSituation(members(*"abc"[: len(weights)], weights=weights), partitions)
    assert sizes(situation, LearnerAssignor().assign(situation)) == expected


def test_with_one_warmup_the_owner_keeps_four_and_the_newcomer_warms_one() -> None:
    # N 2: 4 on c1, c2 empty, one warm-up.
    before = owners(c1=[0, 1, 2, 3])
    target = LearnerAssignor(warmups=1).assign(GroupSituation(members("c1", "c2"), 4, before))
    assert having(target.interim) == {"c1": [0, 1, 2, 3]}
    assert target.warmups == {0: "c2"}


def test_exactly_one_partition_is_to_move_to_a_new_member() -> None:
    # N 2: p1{0,2} p2{1} + new p3: exactly one of 0, 2 moves.
    before = owners(p1=[0, 2], p2=[1])
    target = LearnerAssignor(1.0).assign(GroupSituation(members("p1", "p2", "p3"), 3, before))
    assert moves(before, target.owners) == 1
    assert target.owners[1] == "p2"


def test_an_empty_member_evens_out_seven_to_four_and_three() -> None:
    # N 2.
    situation = GroupSituation(members("a", "b"), 7, owners(a=[0, 1, 2, 3, 4, 5, 6]))
    assert sizes(situation, LearnerAssignor(1.0).assign(situation)) == [4, 3]


# --- how many rounds --------------------------------------------------------------------------


def rounds(assignor: LearnerAssignor, names: list[str], partitions: int, before: Owners) -> int:
    """How often everybody has to warm up before nothing is left to do."""
    present = tuple(GroupMember(name, int(name[1:])) for name in names)
    situation = GroupSituation(present, partitions, before)
    for number in range(10 * partitions):
        target = assignor.assign(situation)
        if target.settled:
            return number
        situation = GroupSituation(
            present,
            partitions,
            target.interim,
            dict(target.warmups),
            target.standbys,
            {name: {p: 0.0 for p, n in target.warmups.items() if n == name} for name in names},
        )
    return -1


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_growing_from_one_to_two_members_takes_at_most_seven_rounds(factor: float) -> None:
    # N 2: 13 partitions, 2 warm-ups.
    needed = rounds(LearnerAssignor(factor, warmups=2), ["m0", "m1"], 13, ("m0",) * 13)
    assert 0 < needed <= 7


@pytest.mark.parametrize("factor", [1.0, 2.0])
def test_dropping_one_of_seven_takes_at_most_eight_rounds(factor: float) -> None:
    # N 2.
    assignor = LearnerAssignor(factor, warmups=2)
    names = [f"m{n}" for n in range(7)]
    before = assignor.assign(
        GroupSituation(tuple(GroupMember(n, int(n[1:])) for n in names), 13)
    ).owners
    for gone in names:
        assert 0 <= rounds(assignor, [n for n in names if n != gone], 13, before) <= 8


@pytest.mark.parametrize("factor", [1.0, 1.3, 2.0])
@pytest.mark.parametrize("seed", some(range(10)))
def test_random_churn_settles_within_two_rounds_a_partition(factor: float, seed: int) -> None:
    # N 2: random churn <= 2 x partitions.
    rng = random.Random(seed)
    assignor = LearnerAssignor(factor, warmups=rng.randint(1, 4), standbys=rng.randint(0, 2))
    partitions = rng.randint(1, 30)
    present: list[str] = ["m0"]
    before: Owners = ("m0",) * partitions
    for number in range(1, 12):
        if rng.random() < 0.6 or len(present) == 1:
            present.append(f"m{number}")
        else:
            present.remove(rng.choice(present))
        assert 0 <= rounds(assignor, present, partitions, before) <= 2 * partitions
        everyone = tuple(GroupMember(n, int(n[1:])) for n in present)
        before = assignor.assign(GroupSituation(everyone, partitions, before)).owners


# --- properties -------------------------------------------------------------------------------


def random_situation(rng: random.Random) -> GroupSituation:
    names = [f"m{n}" for n in range(rng.randint(1, 6))]
    partitions = rng.randint(1, 20)
    numbers = range(partitions)
    return GroupSituation(
        tuple(GroupMember(name, place) for place, name in enumerate(names)),
        partitions,
        tuple(rng.choice([*names, "gone", None]) for _ in numbers),
        {p: rng.choice(names) for p in numbers if rng.random() < 0.2},
        {},
        {n: {p: rng.choice([0.0, 50.0]) for p in numbers if rng.random() < 0.3} for n in names},
    )


def with_copies(rng: random.Random) -> GroupSituation:
    """Members that keep copies, of which some are warm, some leave, and some are stalled."""
    names = [f"m{n}" for n in range(rng.randint(1, 6))]
    numbers = range(rng.randint(1, 12))
    states = [MemberState.ACTIVE] * 6 + [MemberState.LEAVING, MemberState.STALLED]
    everyone = tuple(
        GroupMember(name, place, rng.choice([1.0, 1.0, 2.0]), rng.choice(states))
        for place, name in enumerate(names)
    )
    owned = tuple(rng.choice(names) for _ in numbers)
    copies = {
        p: tuple(n for n in rng.sample(names, min(2, len(names))) if n != owned[p]) for p in numbers
    }
    lags = {n: {p: 0.0 for p in numbers if owned[p] != n and rng.random() < 0.5} for n in names}
    return GroupSituation(everyone, len(numbers), owned, {}, copies, lags)


def caught_up(target: TargetAssignment) -> dict[str, dict[int, float]]:
    """Everybody is warm for what it was to warm up for, and for nothing else."""
    found: dict[str, dict[int, float]] = {}
    asked = [*target.warmups.items()]
    asked += [(p, name) for p, names in target.standbys.items() for name in names]
    for partition, name in asked:
        found.setdefault(name, {})[partition] = 0.0
    return found


@pytest.mark.parametrize("seed", some(range(300)))
def test_whatever_copies_there_are_the_same_is_answered_to_its_own_answer_and_it_ends(
    seed: int,
) -> None:
    rng = random.Random(seed)
    assignor = LearnerAssignor(
        rng.choice([1.0, 1.5]), rng.choice([1, 2, 4]), standbys=rng.choice([1, 2])
    )
    situation = with_copies(rng)
    last: TargetAssignment | None = None
    for _ in range(200):
        target = assignor.assign(situation)
        lags = situation.lags
        if target == last:
            if target.settled and lags == caught_up(target):
                return
            # Nothing more comes of itself, so members catch up.
            lags = caught_up(target)
        situation = replace(follow(target, situation), lags=lags)
        last = target
    pytest.fail("it never comes to rest")


def beside_a(state: MemberState, *weights: float) -> tuple[GroupMember, ...]:
    """Member a, which must go, and those after it in the alphabet."""
    others = enumerate(zip("bcde", weights, strict=True), 1)
    return (
        GroupMember("a", 0, 1, state),
        *(GroupMember(name, place, weight) for place, (name, weight) in others),
    )


@pytest.mark.parametrize(
    ("assignor", "situation"),
    [
        # A warm-up under way and a standby changed places again and again,
        (
            LearnerAssignor(10, warmups=1, standbys=1),
            GroupSituation(
                beside_a(MemberState.DRAINED, 2, 1, 1, 0.5), 5, ("a", "a", "e", "a", "d"), {1: "c"},
                {0: ("d",), 1: ("b",), 2: ("c",), 3: ("b",), 4: ("b",)},
                {"e": {0: 0.0, 1: 0.0, 3: 0.0, 4: 3.0}},
            ),
        ),
        (
            LearnerAssignor(10, warmups=2, standbys=1),
            GroupSituation(
                beside_a(MemberState.STALLED, 1, 1, 3.3, 3.3), 3, ("a", "a", "a"),
                {1: "b", 2: "c"}, {2: ("e",)}, {"b": {0: 3.0, 1: 0.0}, "c": {0: 0.0, 2: 0.0}},
            ),
        ),
        # or a second copy came and went of a partition that waits for its turn.
        (
            LearnerAssignor(2, warmups=1, standbys=1),
            GroupSituation(
                beside_a(MemberState.DRAINED, 1, 1, 0.5, 1), 4, ("a", "a", "a", "b"), {2: "d"},
                {0: ("b",), 2: ("c", "d"), 3: ("e",)},
            ),
        ),
    ],
)  # fmt: skip
def test_while_an_owner_that_must_go_waits_for_others_the_answer_comes_to_rest(
    assignor: LearnerAssignor, situation: GroupSituation
) -> None:
    last: TargetAssignment | None = None
    for _ in range(20):
        target = assignor.assign(situation)
        if target == last:
            return
        last = target
        situation = follow(target, situation)
    pytest.fail("it never comes to rest")


@pytest.mark.parametrize("seed", some(range(200)))
def test_nothing_with_a_live_owner_is_given_to_a_cold_member(seed: int) -> None:
    situation = random_situation(random.Random(seed))
    target = LearnerAssignor().assign(situation)
    alive = {member.name for member in situation.members}
    for partition, (was, now) in enumerate(zip(situation.previous, target.interim, strict=True)):
        if was != now and was in alive:
            assert now is not None
            assert situation.lags[now][partition] == 0.0


@pytest.mark.parametrize("seed", some(range(200)))
def test_warmups_stay_within_the_budget_and_are_for_where_a_partition_should_end(
    seed: int,
) -> None:
    rng = random.Random(seed)
    situation = random_situation(rng)
    budget = rng.randint(1, 3)
    target = LearnerAssignor(warmups=budget).assign(situation)
    assert len(target.warmups) <= budget
    for partition, name in target.warmups.items():
        assert target.owners[partition] == name != target.interim[partition]


@pytest.mark.parametrize("seed", some(range(200)))
def test_warmups_under_way_use_the_budget_first(seed: int) -> None:
    situation = random_situation(random.Random(seed))
    target = LearnerAssignor(warmups=2).assign(situation)
    waiting = {
        p
        for p, (now, end) in enumerate(zip(target.interim, target.owners, strict=True))
        if now != end
    }
    under_way = {p for p in waiting if situation.warming.get(p) == target.owners[p]}
    assert len(under_way & set(target.warmups)) == min(2, len(under_way))


@pytest.mark.parametrize("seed", some(range(200)))
def test_when_everybody_is_warm_the_interim_is_the_target(seed: int) -> None:
    situation = random_situation(random.Random(seed))
    everywhere = {
        m.name: dict.fromkeys(range(situation.partitions), 0.0) for m in situation.members
    }
    target = LearnerAssignor().assign(replace(situation, lags=everywhere))
    assert target.interim == target.owners
    assert target.settled


@pytest.mark.parametrize("seed", some(range(200)))
@pytest.mark.parametrize("factor", [1.0, 1.5, 2.0, 4.0])
def test_counts_stay_within_the_balancing_factor(seed: int, factor: float) -> None:
    # K: "within the range of 0.5 ~ 2 times of the expected number of tasks", by default.
    situation = replace(random_situation(random.Random(seed)), warming={})
    fair = situation.partitions / len(situation.members)
    for size in sizes(situation, LearnerAssignor(factor).assign(situation)):
        assert math.floor(fair / factor) <= size <= math.ceil(fair * factor)


@pytest.mark.parametrize("seed", some(range(20)))
def test_the_greatest_balancing_factor_bounds_nothing(seed: int) -> None:
    situation = random_situation(random.Random(seed))
    greatest = LearnerAssignor(sys.float_info.max)
    assert greatest.assign(situation) == LearnerAssignor(1e6).assign(situation)


@pytest.mark.parametrize("factor", [1.0, 1.5, 2.0])
def test_no_assignment_within_the_balancing_factor_needs_fewer_moves(factor: float) -> None:
    rng = random.Random(5)
    for _ in range(3000):
        weights = tuple(rng.choice([0.5, 1.0, 1.0, 2.0, 5.0]) for _ in range(rng.randint(2, 5)))
        group = members(*"abcde"[: len(weights)], weights=weights)
        holders = "abcde"[: rng.randint(1, len(weights))]
        before = tuple(rng.choices(holders, k=rng.randint(2, 30)))
        situation = GroupSituation(group, len(before), before)
        after = LearnerAssignor(factor, acceptable_lag=math.inf).assign(situation).owners
        lacking = beyond = 0
        for name, fair in fair_shares(group, len(before)).items():
            has = before.count(name)
            lacking += max(0, min(round_down(fair), round_up(fair / factor)) - has)
            beyond += max(0, has - max(round_up(fair), round_down(fair * factor)))
        assert moves(before, after) == max(lacking, beyond)


def test_a_member_with_a_warm_standby_is_chosen_to_take_over_at_once() -> None:
    # K, learner rule 4: the standby task will convert to learner task immediately.
    before = owners(a=[0, 1], b=[2, 3], c=[4, 5])
    situation = GroupSituation(
        members("b", "c"), 6, before, standbys={0: ("c",), 1: ("c",)}, lags={"c": {0: 0, 1: 0}}
    )
    target = LearnerAssignor(standbys=1).assign(situation)
    assert having(target.interim) == {"b": [2, 3], "c": [0, 1, 4, 5]}


# --- standbys come first (KIP-441) ------------------------------------------------------------


def test_a_warm_standby_is_moved_before_a_cold_one_is_begun_whichever_member_has_to_give() -> None:
    # c is to get one. It is warm for b's partition 4; a, which joined first, has as many.
    before = owners(a=[0, 1, 2], b=[3, 4, 5])
    situation = GroupSituation(
        members("a", "b", "c"), 6, before, standbys={4: ("c",)}, lags={"c": {4: 0.0}}
    )
    target = LearnerAssignor(standbys=1).assign(situation)
    assert having(target.interim) == {"a": [0, 1, 2], "b": [3, 5], "c": [4]}


def test_the_copies_of_what_one_member_has_are_with_all_others() -> None:
    names = "abcdef"
    target = LearnerAssignor(standbys=1).assign(GroupSituation(members(*names), 60))
    for owner in names:
        copies = [target.standbys[p] for p, name in enumerate(target.owners) if name == owner]
        assert {name for (name,) in copies} == {*names} - {owner}


def calls_to_move_copies(partitions: int) -> int:
    """How many calls it takes to answer when one of two members has all, and the other copies."""
    situation = GroupSituation(
        members("a", "b"),
        partitions,
        ("a",) * partitions,
        standbys=dict.fromkeys(range(partitions), ("b",)),
    )
    return calls(lambda: LearnerAssignor(standbys=1).assign(situation))


def test_twice_as_many_copies_are_about_twice_as_much_work() -> None:
    assert calls_to_move_copies(400) < 2.5 * calls_to_move_copies(200)


def test_a_standby_that_lags_is_warmed_up_before_a_cold_member_begins() -> None:
    before = owners(a=[0, 1, 2], b=[3, 4, 5])
    situation = GroupSituation(
        members("a", "b", "c"), 6, before, standbys={4: ("c",)}, lags={"c": {4: 70.0}}
    )
    target = LearnerAssignor(warmups=1).assign(situation)
    assert target.interim == before
    assert target.warmups == {4: "c"}


def test_with_the_owner_gone_the_lagging_standby_takes_over_before_a_cold_member() -> None:
    # b is cold and has the least; c lags behind on what a had.
    before = owners(a=[0], c=[1, 2])
    situation = GroupSituation(
        members("b", "c"), 3, before, standbys={0: ("c",)}, lags={"c": {0: 70.0}}
    )
    assert LearnerAssignor().assign(situation).interim[0] == "c"


def test_of_two_copies_the_one_that_lags_less_takes_over() -> None:
    before = owners(a=[0], b=[1], c=[2])
    situation = GroupSituation(members("b", "c"), 3, before, lags={"b": {0: 70.0}, "c": {0: 60.0}})
    assert LearnerAssignor().assign(situation).interim[0] == "c"


def test_with_the_owner_gone_a_warm_standby_takes_over_before_the_learner() -> None:
    before = owners(a=[0], c=[1, 2])
    situation = GroupSituation(
        members("b", "c"), 3, before, {0: "b"}, standbys={0: ("c",)}, lags={"c": {0: 0.0}}
    )
    assert LearnerAssignor().assign(situation).interim[0] == "c"


def test_a_standby_without_room_takes_over_until_its_target_is_warm() -> None:
    # KIP-441: the copy works at once, and the balanced target follows when it is warm.
    before = owners(a=[0, 1], b=[2, 3])
    standbys = dict.fromkeys((0, 1), ("b",))
    lags = {"b": {0: 0.0, 1: 0.0}}
    present = members("b", "c")
    first = LearnerAssignor(1.0).assign(
        GroupSituation(present, 4, before, standbys=standbys, lags=lags)
    )
    assert having(first.interim) == {"b": [0, 1, 2, 3]}
    assert set(first.warmups.values()) == {"c"}
    ready = {"c": dict.fromkeys(first.warmups, 0.0)}
    second = LearnerAssignor(1.0).assign(
        GroupSituation(present, 4, first.interim, first.warmups, lags=ready)
    )
    assert sizes(GroupSituation(present, 4), second) == [2, 2]
    assert second.settled


def test_a_warm_up_under_way_for_a_leaver_is_not_given_up_for_a_copy_that_lags_less() -> None:
    # Two copies that overtake each other would otherwise take turns for ever.
    situation = GroupSituation(
        members("a", "b", "c", leaving="a"),
        1,
        owners(a=[0]),
        {0: "b"},
        lags={"b": {0: 70.0}, "c": {0: 60.0}},
    )
    assert LearnerAssignor().assign(situation).warmups == {0: "b"}


@pytest.mark.parametrize("factor", [1.0, 2.0])
@pytest.mark.parametrize("seed", some(range(200)))
def test_what_has_no_owner_goes_to_the_warm_before_copies_and_to_copies_before_the_cold(
    seed: int, factor: float
) -> None:
    situation = random_situation(random.Random(seed))
    target = LearnerAssignor(factor).assign(situation)
    alive = {member.name for member in situation.members}
    for partition, (was, now) in enumerate(zip(situation.previous, target.interim, strict=True)):
        if was in alive:
            continue
        copies = {name for name, lags in situation.lags.items() if partition in lags}
        warm = {name for name in copies if not situation.lags[name][partition]}
        assert now in (warm or copies or alive)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("balancing_factor", 0.5),
        ("balancing_factor", math.nan),
        ("warmups", 0),
        ("standbys", -1),
        ("acceptable_lag", -1.0),
        ("acceptable_lag", math.nan),
        ("balancing_factor", "2"),
        ("balancing_factor", math.inf),
        ("warmups", 1.5),
        ("warmups", "2"),
        ("standbys", True),
        ("acceptable_lag", "9"),
    ],
)
def test_a_setting_that_cannot_work_is_refused_by_name(setting: str, value: Any) -> None:
    with pytest.raises(ConfigError) as raised:
        LearnerAssignor(**{setting: value})
    assert raised.value.setting == setting
    assert setting in str(raised.value)
