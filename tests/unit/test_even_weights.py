"""Which weights even out the loads that nodes report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.even_weights import EvenTerms, Weighed, even_weights
from hashring.core.order_checks import GREATEST_WEIGHT, checked_ordered_weight
from hashring.errors import ConfigError

FINE = 10_000
"""Points of weight 1: so many that weights are hardly rounded."""

nodes = st.builds(
    Weighed,
    weight=st.floats(0.5, 2.0),
    load=st.one_of(st.just(0.0), st.floats(0.01, 1000.0)),
    n_replicas=st.just(FINE),
)
fleets = st.lists(nodes, min_size=1, max_size=12).map(
    lambda found: {f"n{number}": node for number, node in enumerate(found)}
)


def fleet(*loads: float, **settings: Any) -> dict[str, Weighed]:
    return {f"n{i}": Weighed(1.0, load, **settings) for i, load in enumerate(loads)}


@given(fleets)
def test_a_step_is_bounded_and_the_peak_never_rises(found: dict[str, Weighed]) -> None:
    terms = EvenTerms()
    made = even_weights(found, terms)
    for name, weight in made.weights.items():
        node = found[name]
        assert node.weight / terms.step * 0.99 <= weight <= node.weight * terms.step * 1.01
        assert weight >= node.own_weight / terms.reach * 0.99
        assert weight <= node.own_weight * terms.reach * 1.01
        assert float(f"{weight:.3g}") == weight
    assert set(made.loads) == set(found)
    total = sum(node.load for node in found.values())
    assert sum(made.loads.values()) == pytest.approx(total)
    if made.before is not None:
        assert made.after is not None
        # Three digits of a weight may cost half a percent, and an idle node counts as not idle.
        assert made.after <= made.before * 1.02


@given(fleets)
def test_a_step_moves_a_fifth_of_the_ring_at_most(found: dict[str, Weighed]) -> None:
    made = even_weights(found)
    before = {name: node.weight for name, node in found.items()}
    after = before | made.weights
    gained = [
        after[name] / sum(after.values()) - weight / sum(before.values())
        for name, weight in before.items()
    ]
    # With the greatest steps up and down, 0.4 of the ring becomes 0.6; three digits cost a little.
    assert sum(part for part in gained if part > 0) <= 0.2 + 0.005


@given(fleets, st.floats(0.1, 100.0))
def test_the_unit_of_loads_does_not_matter(found: dict[str, Weighed], unit: float) -> None:
    scaled = {name: replace(node, load=node.load * unit) for name, node in found.items()}
    mine, theirs = even_weights(found).weights, even_weights(scaled).weights
    for name in mine.keys() & theirs.keys():
        assert mine[name] == pytest.approx(theirs[name], rel=0.02)


@given(st.lists(st.floats(0.4, 2.5), min_size=2, max_size=10))
def test_steps_end_where_loads_are_within_the_tolerance(speeds: list[float]) -> None:
    # What a node must do for each unit of weight; work is split by weight.
    found = {f"n{i}": Weighed(1.0, speed, n_replicas=FINE) for i, speed in enumerate(speeds)}
    for _ in range(12):
        made = even_weights(found, EvenTerms(reach=16.0))
        if not made.weights:
            break
        found = {
            name: replace(node, weight=made.weights.get(name, node.weight), load=made.loads[name])
            for name, node in found.items()
        }
    assert made.before is not None
    assert made.before <= 1.12


def test_loads_within_the_tolerance_change_nothing() -> None:
    made = even_weights(fleet(1.0, 1.05, 0.95))
    assert (made.weights, made.before) == ({}, made.after)
    assert made.before == pytest.approx(1.05)


def test_the_busy_gives_to_the_idle() -> None:
    made = even_weights(fleet(4.0, 1.0, 1.0, 0.0, n_replicas=16))
    assert made.weights["n0"] < 1 < made.weights["n1"] < made.weights["n3"] * 1.01
    assert made.after is not None
    assert made.before is not None
    assert made.after < made.before


def test_a_change_that_makes_no_other_points_is_left_out() -> None:
    assert even_weights(fleet(1.3, 0.85, 0.85, n_replicas=1)).weights == {}


def test_a_weight_stays_near_the_nodes_own() -> None:
    found = {"a": Weighed(3.9, 0.1, own_weight=1.0), "b": Weighed(1.0, 9.0)}
    assert even_weights(found).weights["a"] == 4.0
    # An operator's weight beyond is not taken back.
    found["a"] = Weighed(8.0, 0.1, own_weight=1.0)
    assert "a" not in even_weights(found).weights


@given(
    st.lists(
        st.builds(
            Weighed,
            weight=st.floats(0.01, 5000.0),
            load=st.floats(0.0, 1000.0),
            own_weight=st.floats(0.01, 5000.0),
        ),
        max_size=6,
    )
)
def test_each_weight_may_be_ordered(found: list[Weighed]) -> None:
    for weight in even_weights({f"n{i}": node for i, node in enumerate(found)}).weights.values():
        assert checked_ordered_weight(weight) == weight


@pytest.mark.parametrize(
    ("weight", "load", "then"),
    [
        (800.0, 1.0, GREATEST_WEIGHT),
        (1400.0, 99.0, 933.0),  # a step below the greatest
        (1234.5, 1.0, None),
        (2000.0, 99.0, None),  # one step down is still beyond
    ],
)
def test_a_weight_beyond_the_greatest_is_not_ordered(
    weight: float, load: float, then: float | None
) -> None:
    found = {"a": Weighed(weight, load, own_weight=weight), "b": Weighed(1.0, 10.0)}
    assert even_weights(found, EvenTerms(damping=1.0)).weights.get("a") == then


@pytest.mark.parametrize(
    "found", [{}, fleet(0.0, 0.0), fleet(5e-324, 0.0, 0.0), fleet(1e-310, 0.0)]
)
def test_without_any_load_there_is_nothing_to_even_out(found: dict[str, Weighed]) -> None:
    made = even_weights(found)
    assert (made.weights, made.before, made.after) == ({}, None, None)


@pytest.mark.parametrize(
    "settings", [{"tolerance": 0.9}, {"damping": 0}, {"damping": 2}, {"step": 1}, {"reach": 0.5}]
)
def test_terms_that_cannot_work_are_refused(settings: dict[str, float]) -> None:
    (name,) = settings
    with pytest.raises(ConfigError, match=f"{name}=.*give a number"):
        EvenTerms(**settings)
