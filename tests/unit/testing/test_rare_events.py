"""Histories with what is rare: pauses between two lines, commands sent twice, clocks that gain."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hashring.testing.simulator import (
    ChallengeSimulator,
    GroupSimulator,
    RingSimulator,
    ordered_group_history,
    own_ranges,
    random_challenge_history,
    random_history,
    random_lock_history,
    with_drains,
    with_rare_events,
    with_rare_group_events,
    with_rare_ring_events,
    with_weights,
)
from hashring.testing.simulator.groups import random_histories as of_groups
from hashring.testing.simulator.play import Simulator
from hashring.testing.simulator.random_events import RARE
from tests.programs import python
from tests.unit.histories import none_breaks_a_rule

Make = Callable[[int], Any]


def ring(seed: int) -> Any:
    return with_rare_ring_events(random_history(seed))


def ordered(seed: int) -> Any:
    return with_rare_ring_events(with_weights(with_drains(own_ranges(random_history(seed)))))


def locks(seed: int) -> Any:
    return with_rare_ring_events(with_drains(random_lock_history(seed)))


def groups(seed: int) -> Any:
    return with_rare_group_events(ordered_group_history(seed))


def challenge(seed: int) -> Any:
    return with_rare_events(random_challenge_history(seed))


WORLDS: dict[str, tuple[Simulator[Any, Any], Make, int]] = {
    "ring": (RingSimulator(), ring, 50),
    "ordered": (RingSimulator(), ordered, 30),
    "locks": (RingSimulator(), locks, 20),
    "groups": (GroupSimulator(), groups, 10),
    "challenge": (ChallengeSimulator(), challenge, 10),
}


@pytest.mark.parametrize(("simulator", "make", "count"), WORLDS.values(), ids=WORLDS)
def test_no_history_with_rare_events_breaks_a_rule(
    simulator: Simulator[Any, Any], make: Make, count: int
) -> None:
    none_breaks_a_rule(simulator, make, range(count))


@pytest.mark.parametrize(("simulator", "make", "count"), WORLDS.values(), ids=WORLDS)
def test_every_rare_kind_comes_up_and_is_played_again_by_its_options(
    simulator: Simulator[Any, Any], make: Make, count: int
) -> None:
    histories = [make(seed) for seed in range(200)]
    drawn = {event.kind for history in histories for event in history.events}
    assert drawn >= RARE.keys()
    assert "--rare " in simulator.again(histories[0])
    if make is groups:
        assert drawn >= of_groups.RARE.keys()


def test_rare_events_are_played_from_the_command_line() -> None:
    done = python(
        "-m", "hashring.testing.simulator", "--groups", "--drains", "--rare", "--seed", "3"
    )
    assert done.returncode == 0, done.stdout + done.stderr
