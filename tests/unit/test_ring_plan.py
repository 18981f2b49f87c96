"""What a ring would be after a change."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring import Ring
from hashring.core.point_placement import (
    PLACEMENTS,
    balanced_points,
    kept_points,
    more_points,
    points_of_weight,
    random_points,
)
from hashring.core.replica_ranges import replica_lengths
from hashring.core.ring_plan import (
    NodeShape,
    planned_counts,
    planned_ring,
    reweighed_ring,
    ring_plan,
    usual_replicas,
)
from hashring.errors import ConfigError
from tests.conftest import calls


@pytest.mark.parametrize("what", ["join", "leave"])
def test_one_name_in_the_place_of_a_list_is_refused(what: str) -> None:
    ring = Ring({"a": [1], "b": [2]})
    with pytest.raises(ConfigError, match=f"{what}='ab': give a list of names"):
        planned_ring(ring, rng_for=random.Random, **{what: "ab"})


@pytest.mark.parametrize(("n_replicas", "weight"), [(20_001, 1), (1000, 21)])
def test_a_node_that_cannot_start_with_so_many_points_cannot_join_a_plan(
    n_replicas: int, weight: float
) -> None:
    text = f"n_replicas={n_replicas}: times weight {weight} is more than 20000 points, for node"
    with pytest.raises(ConfigError, match=text):
        planned_ring(
            Ring({"a": [1]}),
            join=["b"],
            weights={"b": weight},
            n_replicas=n_replicas,
            rng_for=random.Random,
        )


def test_the_node_whose_share_changes_most_comes_first() -> None:
    plan = ring_plan(Ring({"a": [0], "b": [10], "c": [30]}), Ring({"a": [0], "b": [11], "c": [70]}))
    assert [node.name for node in plan.nodes] == ["c", "b", "a"]


@pytest.mark.parametrize(("weight", "points"), [(2.0, 8), (0.5, 2), (None, 12)])
def test_a_live_node_has_the_ordered_weight_or_else_its_own(
    weight: float | None, points: int
) -> None:
    shapes = {"a": NodeShape(4, own_weight=3.0)}
    after = reweighed_ring(Ring({"a": [0, 10], "b": [5]}), {"a": weight}, shapes, random.Random)
    assert len(after.points_of("a")) == points


def test_a_node_that_stays_has_the_points_of_its_shape_one_that_joins_those_of_the_plan() -> None:
    ring = Ring({"fat": range(0, 64, 2), "b": [1]})
    counts = planned_counts(
        ring,
        join=["new"],
        weights={"fat": 2.0, "b": 3.0, "new": 2.0},
        n_replicas=5,
        shapes={"fat": NodeShape(32)},
    )
    assert counts == {"fat": 64, "b": 15, "new": 10}


@pytest.mark.parametrize("weight", [1.0, 2.0, 0.5])
def test_a_plan_of_another_weight_is_what_an_order_of_it_does(weight: float) -> None:
    ring = Ring({"a": [0, 10, 20], "b": [5, 15]})
    shapes = {"a": NodeShape(3, placement="balanced"), "b": NodeShape(2)}
    planned = planned_ring(ring, weights={"a": weight}, shapes=shapes, rng_for=random.Random)
    assert planned == reweighed_ring(ring, {"a": weight}, shapes, random.Random)


class Crowding(random.Random):
    """Often draws points where others are."""

    def randrange(self, *arguments: Any) -> int:
        drawn = super().randrange(*arguments)
        return drawn % 32 if self.random() < 0.5 else drawn


def resized_ring(ring: Ring, node: str, count: int, rng: random.Random, placement: str) -> Ring:
    """The ring after one of its nodes has another number of points, as a live node does it."""
    points = ring.points_of(node)
    if count < len(points):
        return ring.with_node(node, kept_points(replica_lengths(ring, node), count))
    return ring.with_node(
        node, [*points, *more_points(ring, node, count - len(points), rng, placement)]
    )


NAMES = ("a", "b", "c", "\uffee", "\U0001f600")
POINTS = st.one_of(
    st.integers(0, 31), st.integers(0, 2**32 - 1), st.integers(2**32 - 32, 2**32 - 1)
)


@given(
    st.dictionaries(st.sampled_from(NAMES), st.sets(POINTS, min_size=1, max_size=8), min_size=1),
    st.permutations(NAMES),
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.floats(0.1, 4.0)),
            st.integers(1, 8),
            st.sampled_from(PLACEMENTS),
        ),
        max_size=len(NAMES),
    ),
)
def test_orders_about_many_nodes_do_what_one_after_the_other_does(
    points: Mapping[str, set[int]],
    names: list[str],
    ordered: list[tuple[float | None, int, str]],
) -> None:
    ring = after = Ring(points)
    weights = {name: weight for name, (weight, _, _) in zip(names, ordered, strict=False)}
    shapes = {
        name: NodeShape(n_replicas, 1.5, placement)
        for name, (_, n_replicas, placement) in zip(names, ordered, strict=False)
    }
    for name, weight in weights.items():
        if name in ring:
            count = points_of_weight(shapes[name].n_replicas, 1.5 if weight is None else weight)
            after = resized_ring(after, name, count, Crowding(name), shapes[name].placement)
    found = reweighed_ring(ring, weights, shapes, Crowding)
    assert found == after
    assert list(found.replicas()) == list(after.replicas())
    assert found.fingerprint == after.fingerprint


@given(
    st.dictionaries(st.sampled_from(NAMES), st.sets(POINTS, min_size=1, max_size=8)),
    st.permutations(NAMES),
    st.integers(1, 8),
    st.sampled_from(PLACEMENTS),
)
def test_a_plan_of_many_joins_does_what_one_after_the_other_does(
    points: Mapping[str, set[int]], names: list[str], n_replicas: int, placement: str
) -> None:
    place = balanced_points if placement == "balanced" else random_points
    ring = after = Ring(points)
    join = [name for name in names if name not in ring]
    for name in join:
        after = after.with_node(name, place(after, name, n_replicas, Crowding(name)))
    found = planned_ring(
        ring, join=join, n_replicas=n_replicas, placement=placement, rng_for=Crowding
    )
    assert found == after
    assert found.fingerprint == after.fingerprint


def ring_of(nodes: int) -> Ring:
    """A ring of random points."""
    draw = random.Random(nodes)
    return Ring({f"n{number}": draw.sample(range(2**32), 16) for number in range(nodes)})


def calls_to_reweigh(nodes: int, placement: str) -> int:
    """How many calls it takes to reweigh all of so many nodes."""
    draw, ring = random.Random(nodes), ring_of(nodes)
    weights = {node: draw.choice([0.5, 1.5]) for node in ring.nodes}
    shapes = dict.fromkeys(ring.nodes, NodeShape(16, placement=placement))
    return calls(lambda: reweighed_ring(ring, weights, shapes, random.Random))


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_orders_about_twice_as_many_nodes_are_about_twice_as_much_work(placement: str) -> None:
    assert calls_to_reweigh(200, placement) < 2.5 * calls_to_reweigh(100, placement)


def calls_to_join(nodes: int) -> int:
    """How many calls it takes to let as many nodes join a ring of so many."""
    ring, join = ring_of(nodes), [f"joiner{number}" for number in range(nodes)]
    return calls(lambda: planned_ring(ring, join=join, placement="balanced", rng_for=random.Random))


def test_twice_as_many_joins_to_twice_as_many_nodes_are_about_twice_as_much_work() -> None:
    assert calls_to_join(200) < 2.5 * calls_to_join(100)


def test_a_plan_refuses_for_a_node_that_stays_a_weight_that_no_order_may_give() -> None:
    with pytest.raises(ConfigError, match="of node 'a' is too much: 1000 at most"):
        planned_ring(Ring({"a": [1]}), weights={"a": 1000.5}, rng_for=random.Random)


def test_the_usual_number_of_points_is_the_one_that_most_nodes_on_the_ring_have() -> None:
    shapes = {"a": NodeShape(64), "b": NodeShape(32), "c": NodeShape(64), "gone": NodeShape(32)}
    shapes["gone too"] = NodeShape(32)
    assert usual_replicas(Ring({"a": [1], "b": [2], "c": [3]}), shapes) == 64
    assert usual_replicas(Ring({}), shapes) == 16


@pytest.mark.parametrize("wrong", ["2", None, True, math.nan, 10**30, []])
def test_a_plan_names_what_is_no_weight_and_no_number_of_points(wrong: Any) -> None:
    for change, setting in (
        ({"weights": {"a": wrong}}, "weights"),
        ({"join": ["b"], "weights": {"b": wrong}}, "weights"),
        ({"join": ["b"], "n_replicas": wrong}, "n_replicas"),
    ):
        with pytest.raises(ConfigError) as caught:
            planned_ring(Ring({"a": [1]}), rng_for=random.Random, **change)  # type: ignore[arg-type]
        assert caught.value.setting == setting


def test_a_plan_takes_numbers_of_numpy() -> None:
    ring = Ring({"a": [1]})
    weights = {"a": np.float32(1.5), "b": np.int64(2)}
    found = planned_ring(
        ring, join=["b"], weights=weights, n_replicas=np.int64(4), rng_for=random.Random
    )
    assert [len(found.points_of(node)) for node in "ab"] == [6, 8]
