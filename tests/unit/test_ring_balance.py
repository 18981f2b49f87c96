"""How even a ring is, against how even random points make one."""

from __future__ import annotations

import random
from collections import Counter
from math import sqrt
from statistics import fmean

import pytest

from hashring.core.expected_loads import expected_loads, expected_peak_to_mean
from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.core.ring_balance import (
    balance,
    node_loads,
    ranked_loads,
)


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


@pytest.mark.parametrize("counts", [[16] * 10, [1] * 5, [16] * 5 + [48] * 3, [64] * 10])
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


def test_the_loads_of_every_node_are_told() -> None:
    loads = node_loads(Ring({"b": [0], "a": [3 * 2**30]}))
    assert list(loads.items()) == [("a", 0.5), ("b", 1.5)]


@pytest.mark.parametrize("counts", [[16] * 10, [4] * 30, [8, 8, 8, 32]])
def test_nine_of_ten_random_rings_peak_where_expected(counts: list[int]) -> None:
    rng = random.Random(2013)
    peak = expected_loads(counts)[-1]
    rings = [balance(random_ring(rng, counts)) for _ in range(400)]
    assert (
        335 <= sum(peak.low <= found.peak_to_mean <= peak.high for found in rings if found) <= 385
    )


def test_every_rank_of_a_random_ring_has_the_load_expected_of_it() -> None:
    rng = random.Random(2013)
    counts = [16] * 10
    ranked = [sorted(node_loads(random_ring(rng, counts)).values()) for _ in range(400)]
    for rank, load in enumerate(expected_loads(counts)):
        values = [loads[rank] for loads in ranked]
        assert fmean(values) == pytest.approx(load.mean, rel=0.03)
        assert 330 <= sum(load.low <= value <= load.high for value in values) <= 390


def test_loads_are_ranked_beside_what_their_rank_is_expected_to_have() -> None:
    ring = Ring({"b": [0], "a": [3 * 2**30]})
    assert [(each.node, each.load) for each in ranked_loads(ring)] == [("a", 0.5), ("b", 1.5)]
    assert tuple(each.expected for each in ranked_loads(ring)) == expected_loads([1, 1])
