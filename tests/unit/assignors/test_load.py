"""Even loads by few moves. The rule is that of Slicer's weighted move, with the differences that
the assignor's module names."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.assignors import GroupMember, GroupSituation, LoadAssignor, assignor_named
from hashring.core.assignors.load import _Holder, _Levels, too_hot
from hashring.core.assignors.situation import Owners
from hashring.errors import ConfigError
from tests.conftest import calls

from .situations import members, moves, owners

UNLIMITED = 10**6


def levels(situation: GroupSituation, assignment: Owners) -> dict[str, float]:
    """The load that each member has for its weight, when every load is reported."""
    return {
        member.name: math.fsum(
            situation.loads[p] for p, owner in enumerate(assignment) if owner == member.name
        )
        / member.weight
        for member in situation.members
    }


def mean(situation: GroupSituation) -> float:
    """The mean level, without what is too hot and a member of the greatest weight for each."""
    hot = too_hot(situation, 1.25)
    weights = [member.weight for member in situation.members]
    left = math.fsum(load for p, load in situation.loads.items() if p not in hot)
    return left / (math.fsum(weights) - len(hot) * max(weights))


@st.composite
def loaded(draw: st.DrawFn, weights: tuple[float, ...] = (0.5, 1.0, 1.0, 3.0)) -> GroupSituation:
    """Every partition has an owner, and a load that counts."""
    size = draw(st.integers(2, 6))
    everybody = tuple(
        GroupMember(name, joined, draw(st.sampled_from(weights)))
        for joined, name in enumerate("abcdef"[:size])
    )
    count = draw(st.integers(1, 20))
    loads = draw(st.lists(st.integers(5, 100), min_size=count, max_size=count))
    held = draw(st.lists(st.sampled_from("abcdef"[:size]), min_size=count, max_size=count))
    return GroupSituation(everybody, count, tuple(held), loads=dict(enumerate(map(float, loads))))


# --- worked examples ----------------------------------------------------------------------------


def test_the_busiest_member_gives_the_partition_that_evens_out_best() -> None:
    before = owners(a=[0, 1, 2], b=[3, 4])
    loads = {0: 50.0, 1: 30.0, 2: 20.0, 3: 10.0, 4: 10.0}
    target = LoadAssignor().assign(GroupSituation(members("a", "b"), 5, before, loads=loads))
    # 100 to 20, mean 60. After 50 goes: 50 to 70, which is above 1.125 times the mean; after 10
    # comes back: 60 to 60.
    assert target.owners == ("b", "a", "a", "a", "b")
    assert target.for_load == {0, 3}


def test_within_the_factor_nothing_moves() -> None:
    before = owners(a=[0, 1, 4], b=[2, 3])
    loads = {0: 70.0, 1: 44.0, 2: 40.0, 3: 36.0, 4: 10.0}
    situation = GroupSituation(members("a", "b"), 5, before, loads=loads)
    assert levels(situation, before) == {"a": 124.0, "b": 76.0}
    assert LoadAssignor().assign(situation).owners == before
    assert LoadAssignor(1.2).assign(situation).owners != before


def test_a_partition_that_is_too_hot_stays_and_its_member_sheds_the_others() -> None:
    before = owners(a=[0, 1, 2, 3], b=[4], c=[5])
    loads = {0: 300.0, 1: 30.0, 2: 30.0, 3: 30.0, 4: 30.0, 5: 30.0}
    situation = GroupSituation(members("a", "b", "c"), 6, before, loads=loads)
    after = LoadAssignor().assign(situation).owners
    assert [p for p, owner in enumerate(after) if owner == "a"] == [0]
    assert too_hot(situation, 1.25) == (0,)


def test_a_partition_is_too_hot_only_if_it_is_so_for_the_member_of_the_greatest_weight() -> None:
    loads = {0: 60.0, 1: 20.0}
    assert too_hot(GroupSituation(members("a", "b"), 2, loads=loads), 1.25) == (0,)
    weighed = members("a", "b", weights=(1.0, 3.0))
    assert too_hot(GroupSituation(weighed, 2, loads=loads), 1.25) == ()
    assert too_hot(GroupSituation(members("a"), 2, loads=loads), 1.25) == ()


def test_a_member_that_has_nothing_gets_its_share() -> None:
    before = tuple("abcdefghij"[p // 10] for p in range(100))
    situation = GroupSituation(
        members(*"abcdefghijk"), 100, before, loads=dict.fromkeys(range(100), 1.0)
    )
    after = LoadAssignor(moves=UNLIMITED).assign(situation).owners
    assert after.count("k") == 8
    assert moves(before, after) == 8


def test_unknown_loads_count_as_the_mean_and_idle_ones_a_little() -> None:
    # Nothing is known: even counts.
    fresh = LoadAssignor().assign(GroupSituation(members("a", "b"), 6)).owners
    assert (fresh.count("a"), fresh.count("b")) == (3, 3)
    # Idle partitions are spread as well.
    idle = LoadAssignor().assign(
        GroupSituation(members("a", "b"), 8, loads=dict.fromkeys(range(8), 0.0))
    )
    assert (idle.owners.count("a"), idle.owners.count("b")) == (4, 4)


def test_more_than_so_many_moves_a_minute_wait() -> None:
    before = ("a",) * 20 + ("b",)
    situation = GroupSituation(members("a", "b"), 21, before, loads=dict.fromkeys(range(21), 1.0))
    assignor = LoadAssignor(moves=3)
    target = assignor.assign(situation)
    assert moves(before, target.interim) == 3
    assert not target.settled
    assert moves(before, assignor.assign(replace(situation, recent_moves=2)).interim) == 1
    assert moves(before, assignor.assign(replace(situation, recent_moves=9)).interim) == 0


def test_partitions_without_an_owner_do_not_wait() -> None:
    situation = GroupSituation(members("a", "b"), 20, loads=dict.fromkeys(range(20), 1.0))
    target = LoadAssignor(moves=1).assign(replace(situation, recent_moves=1))
    assert target.interim.count("a") == target.interim.count("b") == 10
    assert target.for_load == frozenset()


# --- rules --------------------------------------------------------------------------------------


@given(loaded())
def test_members_end_within_the_factor_or_no_single_move_helps(situation: GroupSituation) -> None:
    after = LoadAssignor(moves=UNLIMITED).assign(situation).owners
    level, fair = levels(situation, after), mean(situation)
    weight = {member.name: member.weight for member in situation.members}
    for partition, owner in enumerate(after):
        assert owner is not None
        hottest = max(situation.loads[p] for p, name in enumerate(after) if name == owner)
        if level[owner] <= fair * 1.25 or hottest > 1.25 * fair * weight[owner]:
            continue
        load = situation.loads[partition]
        for taker in level.keys() - {owner}:
            lightest = min(level[name] for name in level if weight[name] == weight[taker])
            too_much = load > 1.25 * fair * weight[taker] and weight[taker] <= weight[owner]
            if level[taker] == lightest and not too_much:
                left = level[owner] - load / weight[owner]
                assert max(left, level[taker] + load / weight[taker]) >= level[owner] * 0.999999


@given(loaded())
def test_the_busiest_is_never_busier_than_before(situation: GroupSituation) -> None:
    before, after = situation.previous, LoadAssignor(moves=UNLIMITED).assign(situation).owners
    assert max(levels(situation, after).values()) <= max(levels(situation, before).values()) * (
        1 + 1e-9
    )


@given(loaded(weights=(1.0,)), st.data())
def test_noise_within_the_hysteresis_moves_nothing(
    situation: GroupSituation, data: st.DataObject
) -> None:
    settled = LoadAssignor(moves=UNLIMITED).assign(situation).owners
    level, fair = levels(situation, settled), mean(situation)
    if not all(fair * 0.875 <= each <= fair * 1.125 for each in level.values()):
        return
    noise = st.floats(0.95, 1.05)
    noisy = {p: load * data.draw(noise) for p, load in situation.loads.items()}
    after = replace(situation, previous=settled, loads=noisy)
    assert LoadAssignor().assign(after).owners == settled


@given(loaded(), st.integers(1, 5), st.integers(0, 6))
def test_no_more_moves_than_are_left_of_this_minute(
    situation: GroupSituation, most: int, recent: int
) -> None:
    target = LoadAssignor(moves=most).assign(replace(situation, recent_moves=recent))
    assert moves(situation.previous, target.interim) <= max(0, most - recent)
    changed = {p for p, owner in enumerate(target.interim) if owner != situation.previous[p]}
    assert target.for_load >= changed
    assert len(changed) == min(len(target.for_load), max(0, most - recent))


@given(loaded())
def test_the_unit_of_the_loads_does_not_matter(situation: GroupSituation) -> None:
    # By a power of two, so that no rounding differs.
    scaled = replace(situation, loads={p: load * 2**40 for p, load in situation.loads.items()})
    assert LoadAssignor().assign(scaled) == LoadAssignor().assign(situation)


# --- settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"factor": 1}, "factor=1: give a number above 1, such as 1.25"),
        ({"factor": math.nan}, "factor=nan: give a number above 1, such as 1.25"),
        ({"factor": "2"}, "factor='2': give a number above 1, such as 1.25"),
        ({"moves": 0}, "moves=0: give a number of moves a minute, at least 1"),
        ({"moves": 1.5}, "moves=1.5: give a number of moves a minute, at least 1"),
    ],
)
def test_a_setting_that_cannot_work_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        LoadAssignor(**settings)
    assert str(refused.value) == message


def test_its_name_tells_its_settings() -> None:
    assert LoadAssignor().name == "load"
    assert LoadAssignor(1.5, 4).name == "load(factor=1.5, moves=4)"
    known = assignor_named("load(factor=1.5, moves=4)")
    assert isinstance(known, LoadAssignor)
    assert (known.factor, known.moves) == (1.5, 4)


@given(st.data())
def test_the_best_move_is_the_one_that_a_look_at_every_partition_finds(data: st.DataObject) -> None:
    loads = data.draw(st.lists(st.sampled_from([0.1, 0.2, 0.3, 1.0, 7.0]), min_size=1, max_size=12))
    weights = data.draw(st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=2, max_size=4))
    group = tuple(GroupMember(f"m{n}", n, weight) for n, weight in enumerate(weights))
    owners: list[str | None] = [
        data.draw(st.sampled_from([member.name for member in group])) for _ in loads
    ]
    levels = _Levels(group, loads, owners, 1.25)
    giver, *takers = levels._holders.values()
    most = levels._mean * 1.25

    def levels_after(partition: int, taker: _Holder) -> float:
        load = loads[partition]
        after = (giver.load - load) / giver.member.weight
        return max(after, (taker.load + load) / taker.member.weight)

    choices = [
        (levels_after(partition, taker), partition, taker.order)
        for taker in takers
        for partition, owner in enumerate(owners)
        if owner == giver.member.name
        if loads[partition] <= most * taker.member.weight
        or taker.member.weight > giver.member.weight
    ]
    expected = min((c for c in choices if c[0] < giver.level * (1 - 1e-9)), default=None)
    found = levels._best(giver, takers)
    assert (found and (found[0], found[2].order)) == (expected and expected[1:])


def move_by_looking_at_all(levels: _Levels, factor: float) -> tuple[int, int, int] | None:
    """The next move that the rule makes: its partition, and the orders of giver and taker."""
    inner, everybody = (factor - 1) / 2, list(levels._holders.values())

    def best(giver: _Holder, takers: list[_Holder]) -> tuple[int, int, int] | None:
        found = levels._best(giver, takers)
        return found and (found[0], found[1].order, found[2].order)

    above = [holder for holder in everybody if levels._above(holder, inner) > 0]
    for giver in sorted(above, key=lambda h: (-levels._above(h, inner), h.order)):
        takers = [
            min(
                (h for h in everybody if h is not giver and h.member.weight == weight),
                key=lambda h: (h.level, h.order),
                default=None,
            )
            for weight in {holder.member.weight for holder in everybody}
        ]
        if (found := best(giver, [taker for taker in takers if taker])) is not None:
            return found
    least = levels._mean * (1 - inner) * (1 - 1e-9)
    calm = [holder for holder in everybody if not levels._is_hot(holder)]
    below = [holder for holder in everybody if holder.level < least]
    for taker in sorted(below, key=lambda h: (h.level, h.order)) if calm else ():
        giver = max(calm, key=lambda h: (h.level, -h.order))
        if giver is not taker and (found := best(giver, [taker])) is not None:
            return found
    return None


@given(loaded(), st.sampled_from([1.05, 1.25, 2.0]))
def test_each_move_is_the_one_that_a_look_at_every_member_finds(
    situation: GroupSituation, factor: float
) -> None:
    loads = [situation.loads[partition] for partition in range(situation.partitions)]
    made: list[tuple[int, int, int]] = []

    class Watched(_Levels):
        def _move(self, partition: int, giver: _Holder, taker: _Holder) -> None:
            move = (partition, giver.order, taker.order)
            assert move == move_by_looking_at_all(self, factor)
            made.append(move)
            super()._move(partition, giver, taker)

    levels = Watched(situation.members, loads, list(situation.previous), factor)
    levels.even_out(begun=True)
    assert move_by_looking_at_all(levels, factor) is None
    assert len({partition for partition, _, _ in made}) == len(levels.moved)


def calls_to_even_out(members: int, weights: Callable[[int], float] = lambda order: 1.0) -> int:
    """How many calls it takes to place a group anew in which a quarter of the members is new.

    Args:
        weights: of each member, by its place.
    """
    draw, partitions = random.Random(members), 10 * members
    situation = GroupSituation(
        tuple(GroupMember(f"m{order}", order, weights(order)) for order in range(members)),
        partitions,
        tuple(f"m{partition % (members * 3 // 4)}" for partition in range(partitions)),
        loads={partition: draw.uniform(0.5, 2.0) for partition in range(partitions)},
    )
    return calls(lambda: LoadAssignor().assign(situation))


def test_twice_as_many_members_and_partitions_are_about_twice_as_much_work() -> None:
    assert calls_to_even_out(80) < 2.5 * calls_to_even_out(40)


def test_members_of_a_weight_each_are_a_few_times_as_much_work_as_equal_ones() -> None:
    assert calls_to_even_out(80, lambda order: 1 + order / 1000) < 5 * calls_to_even_out(80)
