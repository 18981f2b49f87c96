"""Plays histories that must break no rule, and those that must show a planted fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from hashring.testing.simulator.play import H, Simulator
from tests.conftest import some


def none_breaks_a_rule(
    simulator: Simulator[Any, Any], make: Callable[[int], Any], seeds: range
) -> None:
    """Fail with the story of the first history of some of these seeds that breaks a rule."""
    failing = simulator.find(some(seeds), make)
    if failing is not None:
        pytest.fail(simulator.story(failing), pytrace=False)


def find_fault(
    simulator: Simulator[H, Any],
    rules: str,
    histories: Callable[[int], H],
    budget: int,
    late: Iterable[int] = (),
) -> H:
    """The first history in which a rule is broken; a rule not among these is another fault.

    Args:
        rules: the names of the rules that may be broken, with ``|`` between them.
        histories: the history of a seed.
        budget: how many histories are played before the fault counts as not found.
        late: seeds that found a fault late when they were chosen; they only save time.
    """
    for seed in (*late, *range(budget)):
        history = histories(seed)
        rule = simulator.broken_rule(history)
        if rule is not None:
            assert rule in rules.split("|"), simulator.story(history)
            return history
    pytest.fail(f"not found in {budget} histories")


def tells_a_short_story(
    simulator: Simulator[H, Any], history: H, rules: str, most: int = 8
) -> None:
    """Fail unless the story of a broken rule has been made smaller, to a few events.

    Args:
        rules: the names of the rules that may be broken, with ``|`` between them. With fewer
            events another of them may be the first to break.
        most: how many events the story may have.
    """
    story = simulator.story(history)
    assert any(f"BROKEN {rule}:" in story for rule in rules.split("|")), story
    events = [line for line in story.splitlines() if line.endswith("<--")]
    assert 1 <= len(events) <= most, story
