"""Simulated rings are measured as rings are, and the answers are those of the mathematics."""

import re
import sys

import pytest
from pyspark.sql import functions as F  # noqa: N812

from hashring.errors import ConfigError
from hashring.spark.analysis.replicas_for import _peaks, replicas_for
from hashring.spark.analysis.scenarios import Scenario, scenarios
from hashring.spark.analysis.simulate import drawn_within, simulate, summarise
from tests.spark.conftest import rows


def test_equal_seeds_give_equal_rings_and_others_do_not(spark):
    kinds = scenarios([5], [4, 8])
    first, again, other = (
        sorted(rows(simulate(spark, kinds, 3, seed).select("replicas", "ring", "peak_to_mean")))
        for seed in (1, 1, 2)
    )
    assert first == again != other
    assert len({peak for *_, peak in first}) == 6


def test_rings_are_drawn_by_all_cores_of_the_cluster(spark, monkeypatch):
    monkeypatch.setattr(sys.modules[simulate.__module__], "_LEAST_TASKS", 1)
    drawn = simulate(spark, [Scenario(2, 1)], 40).select(F.spark_partition_id()).distinct()
    assert drawn.count() == 4 * spark.sparkContext.defaultParallelism


def test_random_rings_have_the_peaks_that_were_measured_before(spark):
    found = summarise(simulate(spark, scenarios([10, 100], [16, 128]), 100)).collect()
    peaks = {(r.nodes, r.replicas): r.peak_mean for r in found}
    expected = {(10, 16): 1.42, (100, 16): 1.76, (10, 128): 1.14, (100, 128): 1.24}
    assert peaks == pytest.approx(expected, rel=0.03)


def test_one_join_or_leave_moves_the_least_on_average(spark):
    (found,) = summarise(simulate(spark, [Scenario(50)], 200)).collect()
    assert found.join_ratio_mean == pytest.approx(1, abs=0.05)
    assert found.leave_ratio_mean == pytest.approx(1, abs=0.05)
    assert 1.3 < found.join_ratio_p95 < 1.6


def test_balanced_rings_stay_even_through_churn(spark):
    (found,) = summarise(simulate(spark, [Scenario(10, placement="balanced")], 20)).collect()
    assert found.peak_mean < 1.06
    assert found.join_ratio_mean == pytest.approx(1, abs=0.03)
    assert 1.1 < found.peak_after_leave_mean < 1.4


def test_weights_that_are_close_are_told_apart(spark):
    kinds = [Scenario(2, 1, weights=(1.0, weight)) for weight in (2.0, 2.0000001)]
    told = summarise(simulate(spark, kinds, 1)).collect()
    assert [(r.weights, r.rings) for r in told] == [("1,2", 1), ("1,2.0000001", 1)]


def test_a_kind_that_is_given_twice_counts_once(spark):
    (told,) = summarise(simulate(spark, scenarios([2, 2], [1]), 3)).collect()
    assert told.rings == 3


def test_weights_are_fair_shares(spark):
    kind = Scenario(20, 256, weights=(1.0, 3.0))
    (found,) = summarise(simulate(spark, [kind], 20)).collect()
    assert found.weights == "1,3"
    assert found.peak_mean < 1.3


def test_a_limit_cuts_the_peak_and_spills_the_rest(spark):
    kinds = scenarios([20], [16], limits=(None, 1.25))
    found = {r.limit: r for r in summarise(simulate(spark, kinds, 20)).collect()}
    assert found[1.25].peak_p99 <= 1.26 < found[None].peak_mean
    assert 0 < found[1.25].spilled_mean < 0.2
    assert found[None].spilled_mean is None


def test_how_many_replicas_for_a_peak():
    answer = replicas_for(10, 1.5, 0.9)
    tried = dict(answer.tried)
    assert tried[answer.replicas] >= 0.9 > tried[answer.replicas - 1]
    assert answer == replicas_for(10, 1.5, 0.9)


def test_any_integer_is_a_seed_of_how_many_replicas():
    assert replicas_for(10, 1.5, 0.9, seed=-1) == replicas_for(10, 1.5, 0.9, seed=-1)


@pytest.mark.parametrize(
    ("nodes", "replicas", "peak"),
    [
        pytest.param(3, 1, 1.9, marks=pytest.mark.long),
        (10, 16, 1.4),
        pytest.param(50, 8, 2, marks=pytest.mark.long),
    ],
)
def test_peaks_by_their_distribution_are_those_of_drawn_rings(spark, nodes, replicas, peak):
    rings, within = drawn_within(spark, Scenario(nodes, replicas), peak, 1000)
    expected = float((_peaks(nodes, replicas, seed=1) <= peak).mean())
    assert rings == 1000
    # Four deviations of what 1,000 rings tell.
    assert within == pytest.approx(expected, abs=0.064)
    assert 0.1 < within < 0.9


def test_many_points_make_few_rings(spark, monkeypatch):
    monkeypatch.setattr(sys.modules[drawn_within.__module__], "_DRAWN_POINTS", 200)
    assert drawn_within(spark, Scenario(10, 4), 3.0, 1000)[0] == 5


def test_weights_may_be_a_list(spark):
    kinds = scenarios([2], [1], weights=[1.0, 2.0])
    assert [row.weights for row in simulate(spark, kinds, 1).collect()] == ["1,2"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"nodes": 1}, "nodes=1: a ring that a node can leave"),
        ({"nodes": 5, "replicas": 0}, "replicas=0: a node has at least one point"),
        ({"nodes": 5, "placement": "best"}, "choose one of random, balanced"),
        ({"nodes": 5, "weights": (0.0,)}, "give numbers above 0, 1000 at most"),
        ({"nodes": 5, "weights": (1e300,)}, "give numbers above 0, 1000 at most"),
        ({"nodes": 5, "weights": (float("nan"),)}, "give numbers above 0"),
        ({"nodes": 5, "limit": 0.9}, "below it the nodes have not room"),
        ({"nodes": 5, "limit": float("nan")}, "give a number from 1 on"),
        ({"nodes": 5, "limit": float("inf")}, "give a number from 1 on"),
        (
            {"nodes": 10**6, "replicas": 100},
            "more than 5,000,000 points: give fewer nodes",
        ),
    ],
)
def test_what_makes_no_ring_is_refused(arguments, text):
    with pytest.raises(ConfigError, match=text):
        Scenario(**arguments)


def test_a_peak_that_random_points_cannot_reach_is_said_with_the_nearest():
    with pytest.raises(ConfigError, match=r"peak=1.01: out of reach of random points: 64 for") as e:
        replicas_for(20, 1.01, most=64)
    nearest = float(re.search(r"keep 99% of rings within ([\d.]+); ask for", str(e.value))[1])
    assert replicas_for(20, nearest, most=64).replicas <= 64
    # Even the most points that a ring may have.
    with pytest.raises(ConfigError, match=r"2,000 for each of 2,500 nodes keep 50% of rings"):
        replicas_for(2500, 1.01, 0.5)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((20, 1.0), "peak=1.0: a ring of random points is never perfectly even"),
        ((20, float("nan")), "peak=nan"),
        ((20, float("inf")), "peak=inf"),
        ((20, 1.2, 1), "confidence=1: a part of the rings"),
        ((1, 1.2), "nodes=1: a ring that a node can leave"),
    ],
)
def test_a_peak_that_makes_no_sense_is_refused(arguments, text):
    with pytest.raises(ConfigError, match=text):
        replicas_for(*arguments)


def test_nothing_to_draw_is_refused(spark):
    with pytest.raises(ConfigError, match="at least one scenario"):
        simulate(spark, [])
    with pytest.raises(ConfigError, match="at least one ring"):
        simulate(spark, [Scenario(3)], rings=0)
