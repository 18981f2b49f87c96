"""How even a ring is, against how even random points make one."""

from __future__ import annotations

import random
from collections import Counter
from math import sqrt
from statistics import fmean

import pytest

from hashring.core.balance import balance, expected_peak_to_mean
from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring


def random_ring(rng: random.Random, counts: list[int]) -> Ring:
    return Ring(
        {
            f"n{number}": [rng.randrange(RING_SIZE) for _ in range(count)]
            for number, count in enumerate(counts)
        }
    )


def test_a_ring_without_nodes_has_no_balance() -> None:
    assert balance(Ring()) is None


def test_one_node_is_perfectly_even_and_expected_to_be() -> None:
    found = balance(Ring({"a": [7, 9]}))
    assert found is not None
    assert (found.peak_to_mean, found.cv) == (1.0, 0.0)
    assert (found.expected_peak_to_mean, found.expected_cv) == (1.0, 0.0)


def test_the_peak_is_against_the_share_that_a_nodes_points_should_have() -> None:
    # a has a quarter of the points and half of the ring.
    quarter = RING_SIZE // 4
    found = balance(Ring({"a": [0], "b": [2 * quarter, 2 * quarter + 1, 3 * quarter]}))
    assert found is not None
    assert found.peak_to_mean == pytest.approx(2.0)
    assert found.cv == pytest.approx(sqrt((1 + (1 / 3) ** 2) / 2))


def test_two_nodes_of_one_point_peak_at_one_and_a_half() -> None:
    # The greater of two parts of a stick broken at random is three quarters on average.
    assert expected_peak_to_mean(((1, 2),)) == pytest.approx(1.5, abs=1e-3)


@pytest.mark.parametrize("counts", [[16] * 10, [1] * 5, [16] * 5 + [48] * 3, [64] * 40])
def test_what_is_expected_is_what_random_rings_have_on_average(counts: list[int]) -> None:
    rng = random.Random(7)
    rings = [balance(random_ring(rng, counts)) for _ in range(400)]
    peaks = [found.peak_to_mean for found in rings if found]
    squares = [found.cv**2 for found in rings if found]
    expected = expected_peak_to_mean(tuple(Counter(counts).items()))
    assert fmean(peaks) == pytest.approx(expected, rel=0.03)
    assert rings[0] is not None
    assert sqrt(fmean(squares)) == pytest.approx(rings[0].expected_cv, rel=0.04)
    assert rings[0].expected_peak_to_mean == pytest.approx(expected)
