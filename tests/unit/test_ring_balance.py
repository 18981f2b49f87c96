"""How even a ring is, against how even random points make one."""

from __future__ import annotations

import random
from collections import Counter
from math import sqrt
from statistics import fmean

import pytest

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.core.ring_balance import (
    balance,
    expected_loads,
    expected_peak_to_mean,
    node_loads,
    ranked_loads,
)
from hashring.errors import ConfigError


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


@pytest.mark.parametrize(("nodes", "mean"), [(2, 1.5), (3, 11 / 6), (5, 137 / 60)])
def test_the_greatest_of_single_points_has_the_harmonic_mean(nodes: int, mean: float) -> None:
    # The longest of n pieces of a circle cut at random has 1/n (1 + 1/2 + ... + 1/n) of it.
    assert expected_loads([1] * nodes)[-1].mean == pytest.approx(mean, rel=1e-3)
    assert expected_peak_to_mean(((1, nodes),)) == pytest.approx(mean, rel=1e-3)


@pytest.mark.parametrize(
    ("points", "nodes", "peak"), [(16, 10, 1.42), (64, 100, 1.34), (512, 1000, 1.15)]
)
def test_known_rings(points: int, nodes: int, peak: float) -> None:
    assert expected_peak_to_mean(((points, nodes),)) == pytest.approx(peak, abs=0.005)


def test_the_loads_of_all_ranks_add_up() -> None:
    assert fmean(load.mean for load in expected_loads([16] * 50)) == pytest.approx(1, abs=1e-4)


def test_fewer_than_two_nodes_are_expected_to_be_even() -> None:
    assert expected_loads([]) == ()
    assert [load.mean for load in expected_loads([16])] == [1.0]


@pytest.mark.parametrize("counts", [[1, 20_000], [20_000] * 3, [1] * 200])
def test_extreme_weights_give_sane_numbers(counts: list[int]) -> None:
    peak = expected_loads(counts)[-1]
    assert 1 <= peak.low <= peak.mean <= peak.high < max(counts) + len(counts)


@pytest.mark.parametrize("nodes", [2, 10, 200])
def test_the_least_of_single_points_has_one_part_in_their_number(nodes: int) -> None:
    # The shortest of n pieces of a circle cut at random has 1/n^2 of it: L. Devroye, chapter V.
    least = expected_loads([1] * nodes)[0]
    assert least.mean == pytest.approx(1 / nodes, rel=0.05)
    assert 0 < least.low < least.mean < least.high


def test_a_node_without_points_is_refused() -> None:
    with pytest.raises(ConfigError, match="a node on a ring has at least one point"):
        expected_loads([16, 0])


def test_loads_are_ranked_beside_what_their_rank_is_expected_to_have() -> None:
    ring = Ring({"b": [0], "a": [3 * 2**30]})
    assert [(each.node, each.load) for each in ranked_loads(ring)] == [("a", 0.5), ("b", 1.5)]
    assert tuple(each.expected for each in ranked_loads(ring)) == expected_loads([1, 1])
