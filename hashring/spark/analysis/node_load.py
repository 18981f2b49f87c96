"""How much each node has to do, from rows or from a histogram of points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.spark.analysis.point_histogram import histogram_counts
from hashring.spark.engine.arrays_to_spark import frame_of_rows
from hashring.spark.lookup.ring_columns import CodeColumns, check_ring, ring_columns
from hashring.spark.lookup.ring_ranges import ring_ranges
from hashring.spark.lookup.weight_sums import CODE, counted_by_code

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_TOTAL = "__hashring_total"
_LOAD: Final = {
    "node": pa.string(),
    "keys": pa.int64(),
    **dict.fromkeys(("weight", "share", "fair_share", "ring_share"), pa.float64()),
    "bad_weights": pa.int64(),
    "estimated": pa.int64(),
    "keys_error": pa.int64(),
    "weight_error": pa.float64(),
}
_FEW = 2**10
"""Nodes whose counts one task adds up: quicker than to shuffle the sums once more."""


def load(df: DataFrame, ring: Ring, key: str = "key", weight: str | None = None) -> DataFrame:
    """What each node has to do: its rows and their weight, against its share of the ring.

    Args:
        df: one row a key; for a log, one row a piece of work.
        weight: a column of numbers, or of text that holds them; without it each row weighs 1.
            Null, NaN, infinite and negative weights, and text that is no number, count as 0 and
            are counted in ``bad_weights``.

    Returns:
        One row a node of the ring, also for a node without keys: ``node``, ``keys`` (rows),
        ``weight``, ``share`` (of all weight on the ring, 0 when there is none), ``fair_share``
        (its points over all points: what its weight entitles it to), ``ring_share`` (the part of
        the ring it owns), ``bad_weights``. One more row, with a null node and null shares, for
        rows whose key is null or empty, if there are any.

    Raises:
        EmptyRingError, ColumnError, ConfigError: as for :func:`hashring.spark.with_owner`.
    """
    columns = ring_columns(df.sparkSession, ring)
    counted = counted_by_code(df, columns, key, ring.hash_algorithm.name, weight)
    # A row a node from here on: all of them in one row, so that the total and the nodes without
    # keys cost neither a join nor another shuffle.
    if columns.count <= _FEW:
        counted = counted.coalesce(1)
    rows = counted.agg(*columns.once("load rows", lambda: _rows(columns.count)))
    return rows.select(*columns.once("load", lambda: _of_nodes(columns)))


def _rows(count: int) -> tuple[Column, ...]:
    """The total and a row a node, also for those of ``count`` nodes that have no keys."""
    code = f"CAST({CODE} AS INT)"
    counted = f"collect_list(struct({code} AS {CODE}, keys, weight, bad_weights))"
    absent = (
        f"transform(array_except(sequence(0, {count - 1}), collect_list({code})), "
        f"c -> named_struct('{CODE}', c, 'keys', 0L, 'weight', 0D, 'bad_weights', 0L))"
    )
    return (
        F.expr(f"sum(if({CODE} IS NULL, NULL, weight)) AS {_TOTAL}"),
        F.expr(f"inline(concat({counted}, {absent}))"),
    )


def _of_nodes(columns: CodeColumns) -> tuple[Column, ...]:
    code = F.col(CODE)
    share = F.expr(f"if({CODE} IS NULL, NULL, coalesce(try_divide(weight, {_TOTAL}), 0D))")
    return (
        columns.told("node", code).alias("node"),
        F.col("keys"),
        F.col("weight"),
        share.alias("share"),
        columns.told("fair_share", code).alias("fair_share"),
        columns.told("ring_share", code).alias("ring_share"),
        F.col("bad_weights"),
    )


def load_of_histogram(
    histogram: DataFrame,
    ring: Ring,
    rows: DataFrame | None = None,
    key: str = "key",
    weight: str | None = None,
) -> DataFrame:
    """The load of each node, from a histogram of points.

    Computed at once. The arguments and the result are those of :func:`hashring.spark.load`.

    Args:
        histogram: see :func:`hashring.spark.point_histogram`.
        rows: the rows that the histogram counted. Those in buckets where the owner changes are
            counted again, for which Spark reads their column ``point``, if its metadata says that
            :func:`hashring.spark.with_owner` computed it of this key, or their keys. Without the
            rows, such a bucket is shared out by the number of its points.

    Returns:
        As :func:`hashring.spark.load`, and ``estimated``: how many of ``keys`` were shared out;
        ``keys_error`` and ``weight_error``: by how much ``keys`` and ``weight`` are wrong at most.
        All three are 0 with the rows, and for a node at whose boundaries no bucket is cut.

    Raises:
        EmptyRingError, ConfigError: as for :func:`hashring.spark.load`.
        ColumnError: a column is missing, or of a type that it cannot have.
        ConfigError: the histogram is of another hash algorithm or weight, or, with the rows, of
            another key; or a row of it is no bucket.
    """
    check_ring(ring)
    starts, codes, nodes = ring_ranges(ring)
    algorithm = ring.hash_algorithm.name
    found = histogram_counts(histogram, starts, codes, rows, key, weight, algorithm)
    total = float(found.weight.sum())
    shares = ring.shares
    errors = found.cut.errors(np.arange(len(nodes)), len(nodes))
    told: list[tuple[Any, ...]] = [
        (
            node,
            keys,
            weight,
            # Numpy's own number would warn of what is infinite, and refused where it is shown.
            float(weight) / total if total else 0.0,
            len(ring.points_of(node)) / len(ring),
            shares[node] / RING_SIZE,
            bad_weights,
            estimated,
            keys_error,
            weight_error,
        )
        for node, keys, weight, bad_weights, estimated, keys_error, weight_error in zip(
            nodes,
            found.keys,
            found.weight,
            found.bad_weights,
            found.estimated,
            *errors,
            strict=True,
        )
    ]
    lost, lost_weight, lost_bad = found.without_key
    if lost:
        told.append((None, lost, lost_weight, None, None, None, lost_bad, 0, 0, 0.0))
    return frame_of_rows(histogram.sparkSession, _LOAD, told)
