"""What a ring would be after a change."""

from __future__ import annotations

import random

import pytest

from hashring import Ring
from hashring.core.ring_plan import planned_ring
from hashring.errors import ConfigError


@pytest.mark.parametrize("what", ["join", "leave"])
def test_one_name_in_the_place_of_a_list_is_refused(what: str) -> None:
    ring = Ring({"a": [1], "b": [2]})
    with pytest.raises(ConfigError, match=f"{what}='ab': give a list of names"):
        planned_ring(ring, rng_for=random.Random, **{what: "ab"})
