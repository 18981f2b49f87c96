"""What goes from which node to which when a ring changes, from rows or from a histogram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring import Ring
from hashring.spark.arrays_to_spark import frame_of_rows
from hashring.spark.point_histogram import histogram_counts
from hashring.spark.ring_columns import check_pair, pair_columns
from hashring.spark.ring_ranges import Pairs, overlay, ring_ranges
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


def moves_of_histogram(  # noqa: PLR0917 - as those of moves
    histogram: DataFrame,
    before: Ring,
    after: Ring,
    rows: DataFrame | None = None,
    key: str = "key",
    weight: str | None = None,
) -> DataFrame:
    """What goes from which node to which, from a histogram of points.

    Computed at once. The arguments are those of :func:`hashring.spark.load_of_histogram`. Buckets
    are counted again only at the bounds of what moves; of up to 64 such buckets and with a column
    ``point`` of :func:`hashring.spark.with_owner`, Spark reads only what may hold them.

    Returns:
        As :func:`hashring.spark.moves`, and ``estimated``: how many of ``keys`` were shared out.

    Raises:
        EmptyRingError: as for :func:`hashring.spark.moves`.
        ConfigError: so, too; and as for :func:`hashring.spark.load_of_histogram`.
        ColumnError: a column is missing, or of a type that it cannot have.
    """
    pairs, old_nodes, new_nodes = _overlaid(before, after)
    moving = np.array(
        [
            old_nodes[b] != new_nodes[a]
            for b, a in zip(pairs.before.tolist(), pairs.after.tolist(), strict=True)
        ]
    )
    # Whatever stays is one range, so only the bounds of what moves are looked at again.
    codes = np.where(moving[pairs.codes], pairs.codes + 1, 0)
    first = np.ones(len(codes), dtype=bool)
    first[1:] = codes[1:] != codes[:-1]
    algorithm = after.hash_algorithm.name
    found = histogram_counts(
        histogram, pairs.starts[first], codes[first], rows, key, weight, algorithm
    )
    told = [
        (
            old_nodes[pairs.before[code - 1]],
            new_nodes[pairs.after[code - 1]],
            int(found.keys[code]),
            float(found.weight[code]),
            int(found.estimated[code]),
        )
        for code in range(1, len(found.keys))
        if found.keys[code]
    ]
    told.sort(key=lambda move: (-move[2], move[0], move[1]))
    return frame_of_rows(histogram.sparkSession, {**MOVE, "estimated": pa.int64()}, told)


def flows_of_histogram(  # noqa: PLR0917 - as those of moves
    histogram: DataFrame,
    before: Ring,
    after: Ring,
    rows: DataFrame | None = None,
    key: str = "key",
    weight: str | None = None,
) -> NodeFlows:
    """What goes from which node to which and what stays, from a histogram of points.

    The arguments and the errors are those of :func:`moves_of_histogram`. Buckets are counted again
    wherever the owner changes on either ring.
    """
    pairs, old_nodes, new_nodes = _overlaid(before, after)
    algorithm = after.hash_algorithm.name
    found = histogram_counts(histogram, pairs.starts, pairs.codes, rows, key, weight, algorithm)
    flows = [
        NodeFlow(
            old_nodes[pairs.before[code]],
            new_nodes[pairs.after[code]],
            int(found.keys[code]),
            float(found.weight[code]),
        )
        for code in np.flatnonzero(found.keys).tolist()
    ]
    lost, _, lost_bad = found.without_key
    bad = int(found.bad_weights.sum()) + lost_bad
    return NodeFlows(flows, lost, bad, int(found.estimated.sum()))


def _overlaid(before: Ring, after: Ring) -> tuple[Pairs, tuple[str, ...], tuple[str, ...]]:
    """The ranges of two rings as pairs of owners, and the nodes of each."""
    check_pair(before, after)
    old_starts, old_codes, old_nodes = ring_ranges(before)
    new_starts, new_codes, new_nodes = ring_ranges(after)
    return overlay(old_starts, old_codes, new_starts, new_codes), old_nodes, new_nodes
