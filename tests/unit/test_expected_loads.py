"""The expected loads of a random ring, held against what is known of it in closed form."""

from __future__ import annotations

from fractions import Fraction
from math import comb
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.expected_loads import expected_loads, expected_peak_to_mean, share_likelihood
from hashring.errors import ConfigError


def test_two_nodes_of_one_point_peak_at_one_and_a_half() -> None:
    # The greater of two parts of a stick broken at random is three quarters on average.
    assert expected_peak_to_mean(((1, 2),)) == pytest.approx(1.5, abs=1e-3)


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


def test_a_peak_of_nodes_with_few_points_and_with_very_many_is_as_near() -> None:
    # By a sum of 60,000 strips instead of 256 parts.
    assert expected_peak_to_mean(((1, 1), (1000, 2))) == pytest.approx(1.37934, abs=1e-3)


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


@given(data=st.data(), points=st.integers(1, 20), others=st.integers(1, 80))
def test_how_likely_a_share_is(data: st.DataObject, points: int, others: int) -> None:
    total = points + others
    share = data.draw(st.floats(0, 1))
    # A share of v points is above s if fewer than v of the other cuts lie within a part s.
    part = Fraction(share)
    cuts = total - 1
    above = sum(
        (comb(cuts, k) * part**k * (1 - part) ** (cuts - k) for k in range(points)), Fraction(0)
    )
    exact = float(above if share > points / total else 1 - above)
    assert share_likelihood(points, total, share) == pytest.approx(exact, rel=1e-9, abs=1e-300)


def test_the_only_node_has_the_whole_ring() -> None:
    assert share_likelihood(16, 16, 1.0) == 1.0
