"""Plays histories that must break no rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from hashring.testing.simulator.play import Simulator


def none_breaks_a_rule(
    simulator: Simulator[Any, Any], make: Callable[[int], Any], seeds: Iterable[int]
) -> None:
    """Fail with the story of the first history of these seeds that breaks a rule."""
    failing = simulator.find(seeds, make)
    if failing is not None:
        pytest.fail(simulator.story(failing), pytrace=False)
