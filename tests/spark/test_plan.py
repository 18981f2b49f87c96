"""A plan says what a change would move, and refuses what cannot be."""

import re
from html import unescape

import pytest

from hashring.core.ring import Ring
from hashring.errors import ConfigError, EmptyRingError, UnknownNodeError
from hashring.spark.analysis.plan import plan, planned_ring
from tests.spark.test_owner import random_ring


@pytest.fixture(scope="module")
def keys(spark):
    return spark.range(4000).selectExpr("cast(id as string) as key", "cast(id % 3 as double) as w")


def test_a_joining_node_only_takes(keys):
    found = plan(keys, random_ring(6, 16), join=["new"], weight="w")
    assert {row["after"] for row in found.moves.collect()} == {"new"}
    new = found.nodes.where("node = 'new'").first()
    assert new.keys_before == 0
    assert new.keys_after == new.gained_keys == found.moved_keys > 0
    assert new.fair_share_before is None
    assert found.least_weight == found.moved_weight


def test_a_leaving_node_only_gives(keys):
    found = plan(keys, random_ring(6, 16), leave=["n2"])
    assert {row["before"] for row in found.moves.collect()} == {"n2"}
    gone = found.nodes.where("node = 'n2'").first()
    assert (gone.keys_after, gone.lost_keys) == (0, gone.keys_before)
    assert found.fair_share_moved == pytest.approx(1 / 6)


def test_keys_are_neither_lost_nor_made(keys):
    found = plan(keys, random_ring(6, 16), join=["x", "y"], leave=["n0"], weights={"n1": 2})
    sums = found.nodes.selectExpr("sum(keys_before)", "sum(keys_after)").first()
    assert tuple(sums) == (4000, 4000) == (found.keys, found.keys)


def test_rows_without_a_key_are_counted(spark):
    df = spark.createDataFrame([(None,), ("",), ("a",)], "key string")
    found = plan(df, Ring({"a": [0]}), join=["b"])
    assert (found.keys, found.rows_without_key) == (1, 2)


def test_equal_seeds_plan_equal_rings():
    ring = random_ring(5, 16)
    first, again, other = (planned_ring(ring, join=["x"], seed=s) for s in (1, 1, 2))
    assert first == again != other


def test_a_node_of_weight_1_has_as_many_points_as_most_nodes_unless_told():
    ring = random_ring(5, 128).with_node("big", [4 * i for i in range(256)])
    after = planned_ring(ring, join=["x"], weights={"n1": 2})
    assert [len(after.points_of(node)) for node in ("x", "n1", "n2")] == [128, 256, 128]
    after = planned_ring(ring, join=["x"], weights={"n1": 2}, n_replicas=16)
    assert [len(after.points_of(node)) for node in ("x", "n1", "n2")] == [16, 32, 128]


def test_a_node_that_stays_keeps_its_points_as_far_as_they_go():
    ring = random_ring(5, 16)
    more = planned_ring(ring, weights={"n1": 2})
    less = planned_ring(ring, weights={"n1": 0.5})
    assert len(more.points_of("n1")) == 32
    assert set(ring.points_of("n1")) < set(more.points_of("n1"))
    assert len(less.points_of("n1")) == 8
    assert set(less.points_of("n1")) < set(ring.points_of("n1"))


def test_balanced_placement_evens_the_ring():
    ring = random_ring(20, 16)
    even, rough = (
        planned_ring(ring, join=[f"j{i}" for i in range(20)], placement=p)
        for p in ("balanced", "random")
    )
    assert max(even.shares.values()) < max(rough.shares.values())


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        ({"leave": ["nobody"]}, UnknownNodeError, "node 'nobody' is not on this ring"),
        ({"weights": {"nobody": 2}}, UnknownNodeError, "node 'nobody' is not on this ring"),
        ({"join": ["n1"]}, ConfigError, "join='n1': is on the ring already"),
        ({"join": ["x", "x"]}, ConfigError, "join='x': is on the ring already"),
        ({"join": [""]}, ConfigError, "a node's name is a non-empty str"),
        ({"weights": {"n1": 0}}, ConfigError, "of node 'n1' is no weight"),
        ({"leave": ["n1"], "weights": {"n1": 2}}, ConfigError, "cannot join or get a weight"),
        ({"leave": ["n0", "n1"]}, EmptyRingError, "no node would be left, so no key"),
        ({"join": ["x"], "n_replicas": 0}, ConfigError, "at least one point"),
        ({"join": ["x"], "placement": "best"}, ConfigError, "choose one of random, balanced"),
    ],
)
def test_what_cannot_be_planned_is_said(change, error, text):
    with pytest.raises(error, match=text):
        planned_ring(random_ring(2, 4), **change)


def test_a_plan_shows_itself_in_a_notebook(spark, ring):
    found = plan(spark.range(50), ring, join=["<new>"], key="id")
    frame = found._repr_html_()
    page = unescape(re.fullmatch('<iframe srcdoc="([^"]*)" style="[^"]*"></iframe>', frame)[1])
    assert "<h2>What moves</h2>" in page
    assert "&lt;new&gt;" in page
    assert "<new>" not in page


def test_names_in_a_page_turn_no_text_around(spark, tmp_path):
    names = ["\x00", "\x1b[2J", "\u202e", "</svg>"]
    found = plan(spark.range(50), Ring({n: [i * 2**30] for i, n in enumerate(names)}),
                 leave=["\x00"], key="id")  # fmt: skip
    page = unescape(found._repr_html_())
    assert not {"\x00", "\x1b", "\u202e"} & set(page)
    assert "\\x1b[2J" in page
