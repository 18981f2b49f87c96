"""The search in cells finds what a binary search among all ranges finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashring.core.ring import Ring
from hashring.spark import load, moves
from hashring.spark.lookup.range_binary_search import range_search, search_row, search_steps
from hashring.spark.lookup.ring_columns import ring_columns
from tests.spark.range_arrays import found_by_search
from tests.spark.test_owner import random_ring
from tests.spark.test_range_table import TOP, ranges, searched


@given(ranges())
@settings(max_examples=150, deadline=None)
def test_every_boundary_and_its_neighbours_are_found(given_ranges):
    starts, codes = map(np.array, given_ranges)
    # Beside them ranges enough for cells of few bits; of 16 bits a cell and 7 a code make a record.
    starts, at = np.unique(np.append(starts, np.arange(0, TOP, TOP // 2**17)), return_index=True)
    codes = np.append(codes, np.arange(2**17) % 128)[at]
    search = range_search(starts, codes, 32)
    if search is None:  # a cluster
        cells = np.bincount(starts >> 18, minlength=2**14)
        assert cells.max() > 16
        return
    near = np.array(given_ranges[0])[:, None] + np.arange(-2, 3)[None, :]
    numbers = np.clip(near.ravel(), 0, TOP - 1)
    assert (found_by_search(search, numbers) == searched(starts, codes, numbers)).all()


@given(st.integers(0, 2**32), st.integers(1, 2000), st.integers(20, 24))
@settings(max_examples=50, deadline=None)
def test_random_ranges_are_found_at_every_number_nearby(seed, count, bits):
    rng = np.random.default_rng(seed)
    starts = np.unique(np.append(rng.integers(0, 2**bits, count), 0))
    codes = rng.integers(0, 100, len(starts))
    search = range_search(starts, codes, bits)
    numbers = np.clip((starts[:, None] + np.arange(-1, 2)[None, :]).ravel(), 0, 2**bits - 1)
    if search is not None:
        assert (found_by_search(search, numbers) == searched(starts, codes, numbers)).all()
    assert search is not None or count < 100 or bits == 24


@pytest.mark.parametrize("inside", [31, 32])
def test_a_cell_has_32_records_at_most_with_the_range_in_which_it_starts(inside):
    # 1,024 ranges make 64 cells of 2**14 numbers; all but the last cells have few.
    starts = np.unique(
        np.append(np.arange(1024 - inside) * 1000, TOP // 2**12 - 1 - np.arange(inside))
    )
    search = range_search(starts, np.arange(len(starts)) % 3, 20)
    assert (search is not None) == (inside == 31)


def test_a_record_that_takes_more_than_31_bits_is_not_made():
    starts, codes = np.arange(16) * 2**28, np.arange(16)
    assert range_search(starts, codes, 32) is None


@pytest.fixture
def every_ring_is_large(monkeypatch):
    monkeypatch.setattr("hashring.spark.lookup.ring_columns._CACHED_BYTES", 0)


def test_load_and_moves_of_a_large_ring_are_those_of_the_ring(spark, every_ring_is_large):
    # Of this test alone: the columns of a ring are kept.
    before = random_ring(200, 256, seed=91)
    after = before.with_node("n200", range(17, 2**32, 2**25))
    assert ring_columns(spark, before).search is not None
    keys = [f"user:{i}" for i in range(3000)]
    df = spark.createDataFrame([(key,) for key in [*keys, None, ""]], "key string")
    counts = dict.fromkeys(before.nodes, 0) | {None: 2}
    flows: dict[tuple[str, str], int] = {}
    for key in keys:
        was, becomes = before.owner(key), after.owner(key)
        counts[was] += 1
        if was != becomes:
            flows[was, becomes] = flows.get((was, becomes), 0) + 1
    assert {row.node: row["keys"] for row in load(df, before).collect()} == counts
    found = {(row.before, row.after): row["keys"] for row in moves(df, before, after).collect()}
    assert found == flows


def test_points_that_are_not_spread_at_random_have_the_table_alone(spark, every_ring_is_large):
    ring = Ring({"a": range(5000), "b": range(2**31, 2**31 + 5000)})
    columns = ring_columns(spark, ring)
    assert columns.search is None
    df = spark.createDataFrame([("x",), ("y",)], "key string")
    found = {row.node: row["keys"] for row in load(df, ring).collect()}
    assert found == {node: sum(ring.owner(k) == node for k in "xy") for node in "ab"}


def test_a_filter_on_the_code_is_not_pushed_into_the_search(spark, capsys):
    search = range_search(np.arange(2**17) * 2**15, np.arange(2**17) % 2**10, 32)
    frame = spark.range(10).crossJoin(search_row(spark, search))
    frame.select("id", *search_steps("id", search, "code")).where("code = 3").explain()
    plan = capsys.readouterr().out
    assert plan.count("Filter") == 1
    assert len(plan) < 20_000
