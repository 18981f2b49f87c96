"""How arrays come into a query: the cells of a ring as a subquery, small arrays as literals."""

import pytest

from hashring.core.ring import Ring
from hashring.spark.engine.arrays_to_spark import array_columns
from hashring.spark.lookup.range_table_lookup import table_arrays
from hashring.spark.lookup.ring_columns import ring_table
from tests.spark.test_owner import random_ring


def subqueries(spark, arrays):
    """The names of the arrays that are subqueries; the values of all are checked."""
    found = set()
    for name, column in array_columns(spark, arrays).items():
        frame = spark.range(1).select(column.alias(name))
        assert frame.first()[name] == list(arrays[name])
        if "scalar-subquery" in frame._jdf.queryExecution().analyzed().toString():
            found.add(name)
    return found


def test_arrays_of_up_to_1024_elements_are_literals(spark):
    assert subqueries(spark, {"few": list(range(1024)), "many": list(range(1025))}) == {"many"}


@pytest.mark.parametrize(
    ("ring", "literals"),
    [(Ring({"a": [0]}), set()), (random_ring(100, 16), {"__hashring_level0"})],
    ids=["one point", "finer blocks"],
)
def test_the_cells_of_a_ring_are_a_subquery_and_few_finer_blocks_are_a_literal(
    spark, ring, literals
):
    arrays = table_arrays(ring_table(ring)[0])
    assert set(arrays) - subqueries(spark, arrays) == literals
