"""How much each node has to do, from a histogram of points."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.errors import EmptyRingError
from hashring.spark.arrays_to_spark import frame_of_rows
from hashring.spark.histogram_counts import histogram_counts
from hashring.spark.range_table_arrays import ring_ranges

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_LOAD: Final = {
    "node": pa.string(),
    "keys": pa.int64(),
    **dict.fromkeys(("weight", "share", "fair_share", "ring_share"), pa.float64()),
    "bad_weights": pa.int64(),
    "estimated": pa.int64(),
}


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
        As :func:`hashring.spark.load`, and ``estimated``: how many of ``keys`` were shared out.

    Raises:
        EmptyRingError: the ring has no nodes.
        ColumnError: a column is missing, or of a type that it cannot have.
        ConfigError: the histogram is of another hash algorithm or weight, or, with the rows, of
            another key.
    """
    if not ring.node_count:
        raise EmptyRingError
    starts, codes, nodes = ring_ranges(ring)
    algorithm = ring.hash_algorithm.name
    found = histogram_counts(histogram, starts, codes, rows, key, weight, algorithm)
    total = float(found.weight.sum())
    shares = ring.shares
    told: list[tuple[Any, ...]] = [
        (
            node,
            keys,
            weight,
            weight / total if total else 0.0,
            len(ring.points_of(node)) / len(ring),
            shares[node] / RING_SIZE,
            bad_weights,
            estimated,
        )
        for node, keys, weight, bad_weights, estimated in zip(
            nodes, found.keys, found.weight, found.bad_weights, found.estimated, strict=True
        )
    ]
    lost, lost_weight, lost_bad = found.without_key
    if lost:
        told.append((None, lost, lost_weight, None, None, None, lost_bad, 0))
    return frame_of_rows(histogram.sparkSession, _LOAD, told)
