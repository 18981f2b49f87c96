"""What goes from which node to which when a ring changes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring import Ring
from hashring.spark.ring_columns import pair_columns
from hashring.spark.weight_sums import CODE, counted_by_code

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def moves(
    df: DataFrame, before: Ring, after: Ring, key: str = "key", weight: str | None = None
) -> DataFrame:
    """How many rows, and how much weight, go from which node to which.

    One lookup finds both owners, so this costs what :func:`hashring.spark.load` costs.

    Returns:
        One row a pair of nodes between which anything moves, most rows first: ``before``,
        ``after``, ``keys`` (rows), ``weight``.

    Raises:
        EmptyRingError, ColumnError, ConfigError: as for :func:`hashring.spark.with_move`.
    """
    return (
        flows(df, before, after, key, weight)
        .where(F.col("before") != F.col("after"))
        .orderBy(F.desc("keys"), "before", "after")
    )


def flows(
    df: DataFrame,
    before: Ring,
    after: Ring,
    key: str = "key",
    weight: str | None = None,
) -> DataFrame:
    """As :func:`moves`, in no order, with also what stays (``before = after``).

    One more row, of nulls, is for rows whose key is null or empty. ``bad_weights`` is that of
    :func:`hashring.spark.load`.
    """
    columns = pair_columns(df.sparkSession, before, after)
    counted = counted_by_code(df, columns, key, before.hash_algorithm.name, weight)
    # A filter on a node reads the count, too. Spark would push one that reads the code alone below
    # the count, and compute each point and its code a second time for it.
    code = F.when(F.col("keys") > 0, F.col(CODE))
    return counted.select(
        columns.told("before", code).alias("before"),
        columns.told("after", code).alias("after"),
        "keys",
        "weight",
        "bad_weights",
    )


MOVE: Final = {
    "before": pa.string(),
    "after": pa.string(),
    "keys": pa.int64(),
    "weight": pa.float64(),
}
"""The columns of moves, and of what a :class:`NodeFlow` has."""


class NodeFlow(NamedTuple):
    """What goes from a node to a node, or stays where both are the same."""

    before: str
    after: str
    keys: int
    weight: float


@dataclass(frozen=True)
class NodeFlows:
    """What goes from which node to which, and what stays.

    Attributes:
        flows: without rows that have no owner.
        rows_without_key, bad_weights: rows with a null or empty key; with an unusable weight.
        estimated: how many rows were shared out by points.
    """

    flows: list[NodeFlow]
    rows_without_key: int
    bad_weights: int
    estimated: int = 0
