"""Somebody sets the clock of Redis' machine back, in histories of every protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hashring.core.groups.lease_challenge import LeaseTable
from hashring.testing.simulator import (
    ChallengeSimulator,
    GroupSimulator,
    RingSimulator,
    random_challenge_history,
    random_group_history,
    random_history,
    random_lock_history,
    with_clock_set_back,
    with_ring_clock_set_back,
)
from hashring.testing.simulator.challenge.history import ChallengeHistory
from hashring.testing.simulator.groups.history import GroupHistory
from hashring.testing.simulator.play import Simulator
from hashring.testing.simulator.ring.history import NodeHistory
from tests.unit.histories import find_fault, none_breaks_a_rule
from tests.unit.planted_scripts import plant

Make = Callable[[int], Any]
BUDGET = 200


def ring(seed: int) -> NodeHistory:
    return with_ring_clock_set_back(random_history(seed))


def locks(seed: int) -> NodeHistory:
    return with_ring_clock_set_back(random_lock_history(seed))


def group(seed: int) -> GroupHistory:
    return with_clock_set_back(random_group_history(seed))


def challenge(seed: int) -> ChallengeHistory:
    return with_clock_set_back(random_challenge_history(seed, faithful=False))


@pytest.mark.parametrize(
    ("simulator", "make"),
    [
        (RingSimulator(), ring),
        (RingSimulator(), locks),
        (GroupSimulator(), group),
        (ChallengeSimulator(), challenge),
    ],
    ids=["ring", "locks", "group", "challenge"],
)
def test_histories_break_no_rule(simulator: Simulator[Any, Any], make: Make) -> None:
    none_breaks_a_rule(simulator, make, range(160))


def test_a_group_without_a_clock_of_its_own_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(
        monkeypatch, ("ahead = math.max(tonumber(ahead), tonumber(latest) - micros)", "ahead = 0")
    )
    find_fault(GroupSimulator(), "rest|prompt|holder", group, BUDGET)


def test_a_group_that_does_not_keep_its_clock_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(
        monkeypatch,
        ("local function keep_clock()\n", "local function keep_clock()\n do return end\n"),
    )
    find_fault(GroupSimulator(), "rest|prompt|holder", group, BUDGET)


def test_a_ring_that_keeps_the_scores_of_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(
        monkeypatch,
        ("local function cut_scores(", "local function cut_scores() end\nlocal function _("),
    )
    find_fault(RingSimulator(), "recovery|takeover|own|one owner", ring, BUDGET)


def test_a_lease_challenge_that_reads_the_times_of_before_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LeaseTable, "at", lambda self, now: self)
    find_fault(ChallengeSimulator(), "nobody|level|deadline", challenge, BUDGET)
