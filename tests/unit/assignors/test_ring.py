"""Partition -> ring owner. Source: the README of redis-hashring: a key belongs to the replica
whose range it falls into."""

from __future__ import annotations

from typing import Any

import pytest

from hashring.core.assignors import GroupMember, GroupSituation, RingAssignor
from hashring.core.assignors import ring as rule
from hashring.core.assignors.ring import _points
from hashring.core.ring import Ring
from hashring.errors import ConfigError
from tests.conftest import calls

from .situations import members, sizes


def test_a_partition_belongs_to_the_owner_of_its_number_as_a_key() -> None:
    ring = Ring({name: _points(name, 8) for name in ("a", "b", "c")})
    target = RingAssignor(replicas=8).assign(GroupSituation(members("a", "b", "c"), 50))
    assert target.owners == tuple(ring.owner(str(partition)) for partition in range(50))


def test_nothing_but_names_and_weights_decides() -> None:
    first = GroupSituation((GroupMember("a", 0), GroupMember("b", 1)), 30)
    second = GroupSituation((GroupMember("b", 5), GroupMember("a", 9)), 30, ("b",) * 30)
    assert RingAssignor().assign(first) == RingAssignor().assign(second)


def test_points_are_the_same_everywhere() -> None:
    assert _points("a", 2) == (633187205, 1831205017)


def test_a_low_weight_still_gets_a_point() -> None:
    situation = GroupSituation(members("heavy", "light", weights=(1.0, 0.001)), 2000)
    heavy, light = sizes(situation, RingAssignor(replicas=16).assign(situation))
    assert light > 0
    assert heavy > light


def test_heavy_members_have_no_more_points_together_than_a_ring_may_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rule, "MOST_POINTS", 1000, raising=False)
    heavy = members("a", "b", "c", weights=(1000.0, 1000.0, 500.0))
    situation = GroupSituation(heavy, 2000)
    assert calls(lambda: RingAssignor().assign(situation)) < 10_000
    a, b, c = sizes(situation, RingAssignor().assign(situation))
    assert 2000 * 0.15 < c < 2000 * 0.25 < min(a, b)


def test_a_member_has_at_least_one_point() -> None:
    with pytest.raises(ConfigError, match="replicas=0"):
        RingAssignor(replicas=0)


@pytest.mark.parametrize("replicas", [2.5, "3", True])
def test_points_are_counted_in_whole_numbers(replicas: Any) -> None:
    with pytest.raises(ConfigError, match=r"replicas=.*: must be a whole number"):
        RingAssignor(replicas)
