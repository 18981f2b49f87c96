"""The range table finds what a binary search finds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hashring.core.ring import Ring
from hashring.errors import ConfigError
from hashring.spark.lookup.range_binary_search import range_search
from hashring.spark.lookup.range_table import MAX_WORDS, range_table
from hashring.spark.lookup.ring_columns import _CACHED_BYTES, ring_table
from hashring.spark.lookup.ring_ranges import overlay, ring_ranges
from tests.conftest import ROOT
from tests.spark.range_arrays import found_in_table

TOP = 2**32


def searched(starts, codes, numbers):
    return np.asarray(codes)[np.searchsorted(starts, numbers, side="right") - 1]


@st.composite
def ranges(draw, bits=32):
    # Clusters as well as spread: close boundaries are what makes child blocks.
    spread = draw(st.lists(st.integers(0, 2**bits - 1), max_size=40))
    centre = draw(st.integers(0, 2**bits - 1))
    near = draw(st.lists(st.integers(-40, 40), max_size=40))
    starts = sorted({0, *spread, *(min(max(centre + d, 0), 2**bits - 1) for d in near)})
    # Of 7 bits: short enough for the words of 32-bit numbers to hold them.
    codes = draw(st.lists(st.integers(0, 127), min_size=len(starts), max_size=len(starts)))
    return starts, codes


@given(ranges())
@settings(max_examples=150, deadline=None)
def test_every_boundary_and_its_neighbours_are_found(given_ranges):
    starts, codes = given_ranges
    table = range_table(starts, codes, 32)
    near = np.array(starts)[:, None] + np.arange(-2, 3)[None, :]
    numbers = np.clip(near.ravel(), 0, TOP - 1)
    assert (found_in_table(table, numbers) == searched(starts, codes, numbers)).all()


@given(ranges(), st.integers(1, 2**40))
@settings(max_examples=50, deadline=None)
def test_codes_too_long_for_a_word_are_found_too(given_ranges, factor):
    starts, codes = given_ranges
    table = range_table(starts, np.array(codes) * factor, 32)
    numbers = np.array([*starts, *(np.array(starts[1:]) - 1).tolist(), TOP - 1])
    assert (found_in_table(table, numbers) == searched(starts, codes, numbers) * factor).all()


@pytest.mark.parametrize(("nodes", "has_codes"), [(100, False), (1000, False), (10_000, True)])
def test_the_words_of_a_ring_hold_the_codes_of_up_to_a_thousand_nodes(nodes, has_codes):
    # Then one read of memory finds the owner.
    rng = np.random.default_rng(1)
    starts = np.unique(np.append(rng.integers(0, TOP, nodes * 128), 0))
    codes = rng.integers(0, nodes, len(starts))
    table = range_table(starts, codes, 32, max_root_bits=20)
    assert (table.codes is not None) == has_codes
    numbers = np.append(rng.integers(0, TOP, 10_000), starts)
    assert (found_in_table(table, numbers) == searched(starts, codes, numbers)).all()


@pytest.mark.parametrize(("nodes", "points"), [(100, 16), (1000, 128), (10_000, 128)])
def test_the_page_on_spark_has_the_sizes_of_tables(nodes, points):
    drawn = np.random.default_rng(1).integers(0, TOP, (nodes, points)).tolist()
    ring = Ring({f"node-{index}": row for index, row in enumerate(drawn)})
    table, _ = ring_table(ring)
    size = f"{table.words:,} words, {table.bytes / 1e6:.2g} MB"
    page = (ROOT / "docs" / "reference" / "spark.rst").read_text("utf-8")
    assert f"- {nodes:,} nodes with {points} points: {size}\n" in page
    if table.bytes > _CACHED_BYTES:
        search = range_search(*ring_ranges(ring)[:2], 32)
        small = (search.cells.nbytes + search.records.nbytes) / 1e6
        assert f"spread at random: {small:.2g} MB for the last one.\n" in page


@given(ranges(bits=50), st.integers(0, 2**50 - 1))
@settings(max_examples=50, deadline=None)
def test_wider_numbers_are_found_too(given_ranges, number):
    starts, codes = given_ranges
    table = range_table(starts, codes, 50)
    numbers = np.array([*starts, number, 2**50 - 1])
    assert (found_in_table(table, numbers) == searched(starts, codes, numbers)).all()


def test_a_number_space_of_few_bits_has_no_more_cells_than_numbers():
    table = range_table([0, 3, 5], [7, 8, 9], 3)
    assert list(found_in_table(table, range(8))) == [7, 7, 7, 8, 8, 9, 9, 9]
    assert table.words == 8


def test_neighbours_with_one_code_are_one_range():
    many = range_table(np.arange(0, 2**20, 2), np.zeros(2**19, dtype=int), 32)
    assert many.words == 2**12


def test_codes_may_be_any_numbers():
    table = range_table([0, 1], [0, 2**40], 62)
    assert list(found_in_table(table, [0, 1, 2**62 - 1])) == [0, 2**40, 2**40]


@pytest.mark.parametrize("count", [5000, 2500])
def test_a_table_larger_than_an_array_of_java_is_refused(monkeypatch, count):
    # The root alone, and the blocks below it.
    monkeypatch.setattr("hashring.spark.lookup.range_table.MAX_WORDS", 2**13 - 1)
    with pytest.raises(ConfigError, match="too many"):
        range_table(np.arange(count), np.arange(count), 50)


def test_no_array_is_larger_than_java_has():
    # Of 2**28 words, one could not be had: an array ends at 2**31 bytes.
    assert 8 * MAX_WORDS < 2**31


@given(
    st.dictionaries(
        st.sampled_from("abcdefg"), st.lists(st.integers(0, TOP - 1), min_size=1, max_size=9)
    ).filter(bool)
)
@settings(max_examples=100, deadline=None)
def test_the_ranges_of_a_ring_are_its_own(points):
    ring = Ring(points)
    starts, codes, nodes = ring_ranges(ring)
    probes = [p for own in points.values() for q in own for p in (q - 1, q, q + 1) if 0 <= p < TOP]
    for probe in (0, TOP - 1, *probes):
        assert nodes[int(searched(starts, codes, probe))] == ring.owner_of_point(probe)


def test_on_a_shared_point_the_greatest_name_owns():
    starts, codes, nodes = ring_ranges(Ring({"a": [5], "b": [5, 9]}))
    assert [nodes[code] for code in codes] == ["b", "b", "b"]
    assert list(starts) == [0, 5, 9]


@given(ranges(), ranges(), st.integers(0, TOP - 1))
@settings(max_examples=100, deadline=None)
def test_an_overlay_answers_both_tables(first, second, number):
    both = overlay(*(np.array(part) for part in (*first, *second)))
    index = int(searched(both.starts, both.codes, number))
    assert both.before[index] == searched(*first, number)
    assert both.after[index] == searched(*second, number)
