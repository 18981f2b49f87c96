"""What every assignor must hold to. A new one is added to ``ASSIGNORS`` below, and passes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import cycle
from operator import ne
from typing import Any

import pytest
from hypothesis import given, note
from hypothesis import strategies as st

from hashring.core.assignors import (
    ASSIGNORS,
    Assignor,
    BalancedAssignor,
    FunctionAssignor,
    GroupMember,
    GroupSituation,
    LearnerAssignor,
    MemberState,
    RingAssignor,
    as_assignor,
    checked_target,
)
from hashring.core.assignors.exclusive import ExclusiveAssignor
from hashring.core.assignors.quotas import fair_shares, quotas, round_down, round_up
from tests.unit.assignors.situations import follow


def striped(situation: GroupSituation) -> Mapping[str, range]:
    """A user's own assignor: every nth partition."""
    members = situation.candidates()
    return {
        member.name: range(place, situation.partitions, len(members))
        for place, member in enumerate(members)
    }


ALL: list[Assignor] = [
    *(as_assignor(name) for name in ASSIGNORS),
    LearnerAssignor(balancing_factor=1.0),
    LearnerAssignor(balancing_factor=1.5, standbys=1),
    LearnerAssignor(standbys=2, warmups=5),
    RingAssignor(replicas=3),
    FunctionAssignor(striped),
    ExclusiveAssignor(),
]
EVEN: list[Assignor] = [
    as_assignor("contiguous"),
    BalancedAssignor(),
    LearnerAssignor(balancing_factor=1.0),
    LearnerAssignor(balancing_factor=1.0, standbys=1),
    FunctionAssignor(striped),
]
FAIR: list[Assignor] = [a for a in EVEN if not isinstance(a, FunctionAssignor)]
STICKY: list[Assignor] = [
    BalancedAssignor(),
    LearnerAssignor(),
    LearnerAssignor(balancing_factor=1.0),
    RingAssignor(),
    ExclusiveAssignor(),
]
HEIRS: list[Assignor] = [a for a in ALL if not isinstance(a, RingAssignor)]
"""Those for whom a member may stand in for another; to ``ring`` only names count."""

LASTING: list[Assignor] = [a for a in ALL if getattr(a, "lasting", False)]

every_assignor = pytest.mark.parametrize("assignor", ALL, ids=lambda a: a.name)


MOST = 24
# Strategies that are made anew for each example take longer than all else in these tests.
NAMES = st.lists(st.sampled_from("abcdefgh"), unique=True, min_size=1)
STATES = st.sampled_from(MemberState)
ACTIVE = st.just(MemberState.ACTIVE)
WEIGHTS = st.sampled_from([0.1, 0.5, 1.0, 1.0, 2.0, 7.25])
COUNTS = st.integers(1, MOST)
NUMBERS = st.integers(0, MOST - 1)
ANYONE = st.sampled_from("abcdefgh")
KNOWN = st.lists(st.none() | ANYONE, max_size=MOST)
HAVING = st.dictionaries(NUMBERS, ANYONE, max_size=4)
LAGS = st.dictionaries(ANYONE, st.dictionaries(NUMBERS, st.sampled_from([0.0, 9.0])))


@st.composite
def situations(
    draw: st.DrawFn, weights: st.SearchStrategy[float] = WEIGHTS, active_only: bool = False
) -> GroupSituation:
    """Situations as untidy as they come: ghosts, warm-ups, standbys, lags, grown counts."""
    names = draw(NAMES)
    states = ACTIVE if active_only else STATES
    members = tuple(
        GroupMember(name, joined, draw(weights), draw(states)) for joined, name in enumerate(names)
    )
    partitions = draw(COUNTS)
    anyone = dict(zip("abcdefgh", cycle([*names, "ghost"]), strict=False))
    return GroupSituation(
        members,
        partitions,
        tuple(who and anyone[who] for who in draw(KNOWN)[:partitions]),
        {number % partitions: anyone[who] for number, who in draw(HAVING).items()},
        {number % partitions: (anyone[who],) for number, who in draw(HAVING).items()},
        {
            anyone[who]: {number % partitions: lag for number, lag in lags.items()}
            for who, lags in draw(LAGS).items()
        },
        rebalancing=draw(st.booleans()),
    )


def on_each(
    assignors: Sequence[Assignor], **strategies: st.SearchStrategy[Any]
) -> Callable[[Callable[..., None]], Callable[[], None]]:
    """Test each of these assignors on every example: to make one up takes longer than to assign."""

    def decorate(test: Callable[..., None]) -> Callable[[], None]:
        def on_all(**drawn: Any) -> None:
            for assignor in assignors:
                note(f"{assignor.name}: {assignor!r}")
                test(assignor, **drawn)

        on_all.__name__, on_all.__qualname__ = test.__name__, test.__qualname__
        on_all.__doc__ = test.__doc__
        return given(**strategies)(on_all)

    return decorate


@on_each(ALL, situation=situations())
def test_every_partition_has_exactly_one_member(
    assignor: Assignor, situation: GroupSituation
) -> None:
    target = checked_target(assignor, situation)
    names = {member.name for member in situation.members}
    for owners in (target.owners, target.interim):
        assert len(owners) == situation.partitions
        assert names.issuperset(owners)


@on_each(ALL, situation=situations(), seed=st.integers(0, 2**32))
def test_the_answer_does_not_depend_on_any_order(
    assignor: Assignor, situation: GroupSituation, seed: int
) -> None:
    rng = random.Random(seed)

    def shuffled(mapping: Mapping) -> dict:
        items = list(mapping.items())
        rng.shuffle(items)
        return dict(items)

    other = replace(
        situation,
        members=tuple(rng.sample(situation.members, len(situation.members))),
        warming=shuffled(situation.warming),
        standbys=shuffled(situation.standbys),
        lags=shuffled({m: shuffled(lags) for m, lags in situation.lags.items()}),
    )
    assert assignor.assign(other) == assignor.assign(situation)


@on_each(ALL, situation=situations())
def test_it_comes_to_rest_and_stays_there(assignor: Assignor, situation: GroupSituation) -> None:
    # A member that is to warm up is warm by the next round.
    for _ in range(2 * situation.partitions + 2):
        target = checked_target(assignor, situation)
        if target.settled:
            break
        lags = {member.name: {} for member in situation.members} | {
            member: dict(lag) for member, lag in situation.lags.items()
        }
        for partition, member in target.warmups.items():
            lags[member][partition] = 0.0
        situation = replace(follow(target, situation), lags=lags)
    assert target.settled
    settled = follow(target, situation)
    again = checked_target(assignor, settled)
    assert again.owners == target.owners
    # Standbys may still follow the owners once; then nothing moves at all.
    assert checked_target(assignor, follow(again, settled)).owners == again.owners


@on_each(ALL, situation=situations())
def test_members_that_leave_or_stall_get_nothing_new(
    assignor: Assignor, situation: GroupSituation
) -> None:
    target = checked_target(assignor, situation)
    takers = {member.name for member in situation.candidates()}
    for partition, owner in enumerate(target.interim):
        assert owner in takers or owner == situation.owner_before(partition)
    assert takers.issuperset(target.owners)
    assert takers.issuperset(target.warmups.values())


@on_each(ALL, situation=situations())
def test_a_partition_waits_only_at_its_live_owner_or_at_a_copy(
    assignor: Assignor, situation: GroupSituation
) -> None:
    target = checked_target(assignor, situation)
    alive = {member.name for member in situation.members}
    for partition, (now, finally_) in enumerate(zip(target.interim, target.owners, strict=True)):
        if now != finally_ and situation.owner_before(partition) in alive:
            assert now == situation.owner_before(partition)
        elif now != finally_:
            # The owner is gone: a member with a copy stands in until the target is warm.
            assert now is not None
            standbys = situation.standbys.get(partition, ())
            assert now in standbys or partition in situation.lags.get(now, {})


@on_each(EVEN, situation=situations(weights=st.just(1.0), active_only=True))
def test_equal_members_differ_by_at_most_one(assignor: Assignor, situation: GroupSituation) -> None:
    # A warm-up under way and a warm member may hold one more; without them it is exact.
    bare = replace(situation, warming={}, standbys={}, lags={})
    count = Counter(assignor.assign(bare).owners)
    sizes = [count[member.name] for member in bare.members]
    assert max(sizes) - min(sizes) <= 1


@on_each(FAIR, situation=situations(active_only=True))
def test_a_members_count_is_its_fair_share_rounded(
    assignor: Assignor, situation: GroupSituation
) -> None:
    bare = replace(situation, warming={}, standbys={}, lags={})
    count = Counter(assignor.assign(bare).owners)
    for name, share in fair_shares(bare.members, bare.partitions).items():
        assert round_down(share) <= count[name] <= round_up(share)


@on_each(STICKY, situation=situations(weights=st.just(1.0), active_only=True))
def test_a_join_moves_partitions_only_to_the_joiner(
    assignor: Assignor, situation: GroupSituation
) -> None:
    bare = replace(situation, warming={}, standbys={}, lags={})
    before = assignor.assign(bare).owners
    joined = replace(
        bare, members=(*bare.members, GroupMember("joiner", joined=99)), previous=before
    )
    after = assignor.assign(joined).owners
    moved = {(was, now) for was, now in zip(before, after, strict=True) if was != now}
    assert {now for _, now in moved} <= {"joiner"}


def _short_after_a_leave(assignor: Assignor, rest: GroupSituation) -> int:
    """How many partitions members lack to their lower bounds, which the leaver did not free.

    Only with a balancing factor above 1 may some have so many more than others that the bound,
    which rises with each leave, asks for more than what the leaver had.
    """
    if not isinstance(assignor, LearnerAssignor):
        return 0
    having = Counter(rest.previous)
    lacking = 0
    for name, fair in fair_shares(rest.members, rest.partitions).items():
        least = min(round_down(fair), round_up(fair / assignor.balancing_factor))
        lacking += max(0, least - having.pop(name, 0))
    return max(0, lacking - having.total())


@on_each(STICKY, situation=situations(weights=st.just(1.0), active_only=True))
def test_a_leave_moves_only_what_the_leaver_had(
    assignor: Assignor, situation: GroupSituation
) -> None:
    bare = replace(situation, warming={}, standbys={}, lags={})
    before = assignor.assign(bare).owners
    gone = bare.members[0].name
    rest = replace(bare, members=bare.members[1:], previous=before)
    if not rest.members:
        return
    after = assignor.assign(rest).owners
    moved = [was for was, now in zip(before, after, strict=True) if was not in (now, gone)]
    assert len(moved) == _short_after_a_leave(assignor, rest)


@on_each(HEIRS, situation=situations(active_only=True))
def test_a_member_in_the_place_of_one_that_is_gone_gets_what_that_one_had_and_nothing_else_moves(
    assignor: Assignor, situation: GroupSituation
) -> None:
    bare = replace(situation, warming={}, standbys={}, lags={})
    before = assignor.assign(bare).owners
    gone = bare.members[0]
    replaced = replace(
        bare,
        members=(replace(gone, name="heir"), *bare.members[1:]),
        previous=before,
        heirs={gone.name: "heir"},
    )
    expected = tuple("heir" if owner == gone.name else owner for owner in before)
    assert assignor.assign(replaced).interim == expected


@on_each(LASTING, situation=situations(), data=st.data())
def test_a_lasting_answer_needs_no_more_moves_when_a_part_of_it_is_carried_out(
    assignor: Assignor, situation: GroupSituation, data: st.DataObject
) -> None:
    situation = replace(situation, heirs={}, warming={}, standbys={})
    target = checked_target(assignor, situation).owners
    before = (*situation.previous, *[None] * situation.partitions)[: situation.partitions]
    done = data.draw(st.sets(st.integers(0, situation.partitions - 1)))
    now = tuple(target[p] if p in done else before[p] for p in range(situation.partitions))
    afresh = checked_target(assignor, replace(situation, previous=now)).owners
    assert sum(map(ne, now, target)) == sum(map(ne, now, afresh))
    assert Counter(afresh) == Counter(target)


@given(situation=situations(active_only=True))
def test_quotas_add_up_to_all_partitions(situation: GroupSituation) -> None:
    members = situation.candidates()
    shares = fair_shares(members, situation.partitions)
    quota = quotas(members, situation.partitions)
    assert sum(quota.values()) == situation.partitions
    for name, share in shares.items():
        assert round_down(share) <= quota[name] <= round_up(share)


@every_assignor
def test_without_members_no_partition_has_an_owner(assignor: Assignor) -> None:
    assert checked_target(assignor, GroupSituation((), 3)).owners == (None, None, None)


@every_assignor
def test_a_single_member_gets_everything(assignor: Assignor) -> None:
    assert assignor.assign(GroupSituation((GroupMember("a"),), 3)).interim == ("a", "a", "a")


@every_assignor
def test_when_everybody_leaves_everybody_keeps_something(assignor: Assignor) -> None:
    members = tuple(
        GroupMember(name, joined, state=MemberState.LEAVING) for joined, name in enumerate("ab")
    )
    owners = set(checked_target(assignor, GroupSituation(members, 40)).owners)
    assert owners == ({"a"} if isinstance(assignor, ExclusiveAssignor) else {"a", "b"})


def test_a_member_below_its_bound_comes_before_one_that_lacks_to_its_quota() -> None:
    # b may keep its four. Once a is gone, everybody else is to have two, and g and h have one.
    before, after = "bbbbaaccddeeffgh", "bbbbghccddeeffgh"
    members = tuple(GroupMember(name, joined) for joined, name in enumerate("bcdefgh"))
    assert LearnerAssignor().assign(GroupSituation(members, 16, tuple(before))).owners == tuple(
        after
    )
