"""Load and moves from a histogram of points: in the same time for any number of keys.

A histogram counts the rows of each bucket of points. Made once a day, it answers for any ring: a
bucket whose points have one owner counts for that owner as a whole. A bucket in which the owner
changes is counted by a second look at the rows themselves, or shared out by the points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.hashing import RING_SIZE
from hashring.core.ranges import Range
from hashring.core.ring import Ring
from hashring.errors import ColumnError, ConfigError, EmptyRingError
from hashring.spark.column_checks import column_type, quoted
from hashring.spark.key_points import key_point
from hashring.spark.range_filter import MOST_RANGES, within
from hashring.spark.range_lookup import array_columns, code_steps, table_arrays, with_code
from hashring.spark.range_table import Longs, Pairs, overlay, ring_ranges
from hashring.spark.ring_columns import check_pair, points_table
from hashring.spark.weight_sums import CODE, weighed

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

DEFAULT_BUCKETS: Final = 2**16
MOST_BUCKETS: Final = 2**22
_POINT: Final = "__hashring_point"
_COLUMNS: Final = ("start", "end", "keys", "weight", "bad_weights")

Floats = npt.NDArray[np.float64]


def point_histogram(
    df: DataFrame,
    key: str = "key",
    weight: str | None = None,
    *,
    hash_algorithm: str = "crc-32",
    buckets: int = DEFAULT_BUCKETS,
) -> DataFrame:
    """How many rows, and how much weight, each bucket of points has.

    Args:
        weight: as for :func:`hashring.spark.load`.
        hash_algorithm: that of the ring.
        buckets: a power of two. With more, fewer rows are in buckets where an owner changes.

    Returns:
        One row a bucket that has any: ``start`` and ``end`` BIGINT (its points are from ``start``
        up to but without ``end``), ``keys`` (rows), ``weight``, ``bad_weights``. One more, with
        nulls for the points, for rows whose key is null or empty, if there are any.

    Raises:
        ColumnError: a column is missing, or of a type that it cannot have.
        ConfigError: ``buckets`` is no power of two, or above 4,194,304.
    """
    if not 1 <= buckets <= MOST_BUCKETS or buckets & (buckets - 1):
        raise ConfigError("buckets", buckets, f"give a power of two, up to {MOST_BUCKETS:,}")
    shift = 32 - (buckets.bit_length() - 1)
    weights, total, bad = weighed(df, weight)
    hashed = df.select(key_point(df, key, hash_algorithm).alias(_POINT), *weights)
    counted = hashed.groupBy(F.shiftright(_POINT, shift).alias(CODE)).agg(
        F.count("*").alias("keys"), total.alias("weight"), bad.alias("bad_weights")
    )
    return counted.select(
        F.shiftleft(CODE, shift).alias("start"),
        F.shiftleft(F.col(CODE) + 1, shift).alias("end"),
        "keys",
        "weight",
        "bad_weights",
    )


@dataclass(frozen=True)
class _CountedKeys:
    """Rows, weight and unusable weights for each code; rows of it that were shared out."""

    keys: Longs
    weight: Floats
    bad_weights: Longs
    estimated: Longs
    without_key: tuple[int, float, int]


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
        histogram: see :func:`point_histogram`.
        rows: the rows that the histogram counted. Those in buckets where the owner changes are
            counted again, for which Spark reads their column ``point``, if they have it, or their
            keys. Without the rows, such a bucket is shared out by the number of its points.

    Returns:
        As :func:`hashring.spark.load`, and ``estimated``: how many of ``keys`` were shared out.

    Raises:
        EmptyRingError: the ring has no nodes.
        ColumnError: a column is missing, or of a type that it cannot have.
    """
    if not ring.node_count:
        raise EmptyRingError
    starts, codes, nodes = ring_ranges(ring)
    algorithm = ring.hash_algorithm.name
    found = _counted(histogram, starts, codes, rows, key, weight, algorithm)
    total = float(found.weight.sum())
    shares = ring.shares
    columns: dict[str, Any] = {
        "node": list(nodes),
        "keys": found.keys.tolist(),
        "weight": found.weight.tolist(),
        "share": (found.weight / total if total else np.zeros(len(nodes))).tolist(),
        "fair_share": [len(ring.points_of(node)) / len(ring) for node in nodes],
        "ring_share": [shares[node] / RING_SIZE for node in nodes],
        "bad_weights": found.bad_weights.tolist(),
        "estimated": found.estimated.tolist(),
    }
    lost, lost_weight, lost_bad = found.without_key
    if lost:
        last = (None, lost, lost_weight, None, None, None, lost_bad, 0)
        for column, value in zip(columns.values(), last, strict=True):
            column.append(value)
    kinds = (pa.string(), pa.int64(), *(pa.float64(),) * 4, pa.int64(), pa.int64())
    table = {
        name: pa.array(values, kind)
        for (name, values), kind in zip(columns.items(), kinds, strict=True)
    }
    return histogram.sparkSession.createDataFrame(pa.table(table))


def moves_of_histogram(  # noqa: PLR0917 - as those of moves
    histogram: DataFrame,
    before: Ring,
    after: Ring,
    rows: DataFrame | None = None,
    key: str = "key",
    weight: str | None = None,
) -> DataFrame:
    """What goes from which node to which, from a histogram of points.

    Computed at once. The arguments are those of :func:`load_of_histogram`. Buckets are counted
    again only at the bounds of what moves; of up to 64 such buckets and with a column ``point``,
    Spark reads only what may hold them.

    Returns:
        As :func:`hashring.spark.moves`, and ``estimated``: how many of ``keys`` were shared out.

    Raises:
        EmptyRingError, ConfigError: as for :func:`hashring.spark.moves`.
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
    found = _counted(histogram, pairs.starts[first], codes[first], rows, key, weight, algorithm)
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
    names = ("before", "after", "keys", "weight", "estimated")
    kinds = (pa.string(), pa.string(), pa.int64(), pa.float64(), pa.int64())
    table = {
        name: pa.array([move[i] for move in told], kind)
        for i, (name, kind) in enumerate(zip(names, kinds, strict=True))
    }
    return histogram.sparkSession.createDataFrame(pa.table(table))


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
    found = _counted(histogram, pairs.starts, pairs.codes, rows, key, weight, algorithm)
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


def _counted(  # noqa: PLR0917 - the parts of a question
    histogram: DataFrame,
    starts: Longs,
    codes: Longs,
    rows: DataFrame | None,
    key: str,
    weight: str | None,
    algorithm: str,
) -> _CountedKeys:
    for name in _COLUMNS:
        if name not in histogram.columns:
            raise ColumnError(name, "is missing: make the histogram with point_histogram")
    told = histogram.select(*_COLUMNS).toArrow()
    known = told.filter(pc.is_valid(told["start"]))
    lost = told.filter(pc.is_null(told["start"]))
    without = (
        sum(lost["keys"].to_pylist()),
        sum(lost["weight"].to_pylist()),
        sum(lost["bad_weights"].to_pylist()),
    )
    low, high, keys, heavy, bad = (known[name].to_numpy() for name in _COLUMNS)
    first = np.searchsorted(starts, low, side="right") - 1
    last = np.searchsorted(starts, high - 1, side="right") - 1
    whole = first == last
    size = int(codes.max()) + 1
    found = _CountedKeys(
        keys=np.zeros(size, np.int64),
        weight=np.zeros(size),
        bad_weights=np.zeros(size, np.int64),
        estimated=np.zeros(size, np.int64),
        without_key=without,
    )
    for total, values in ((found.keys, keys), (found.weight, heavy), (found.bad_weights, bad)):
        np.add.at(total, codes[first[whole]], values[whole])
    split = np.flatnonzero(~whole)
    if not len(split):
        return found
    if rows is None:
        for i in split.tolist():
            _share_out(found, starts, codes, int(low[i]), int(high[i]), keys[i], heavy[i], bad[i])
        return found
    edges = [Range(int(low[i]), int(high[i])) for i in split[np.argsort(low[split])]]
    for row in _second_look(rows, edges, starts, codes, key, weight, algorithm).collect():
        if row[CODE]:
            found.keys[row[CODE] - 1] += row["keys"]
            found.weight[row[CODE] - 1] += row["weight"]
            found.bad_weights[row[CODE] - 1] += row["bad_weights"]
    return found


def _share_out(  # noqa: PLR0917 - one bucket
    found: _CountedKeys,
    starts: Longs,
    codes: Longs,
    low: int,
    high: int,
    keys: int,
    weight: float,
    bad: int,
) -> None:
    """Count a bucket for its owners by the number of points that each has in it."""
    inside = slice(*np.searchsorted(starts, [low, high]))
    edges = np.concatenate([[low], starts[inside], [high]])
    owners = codes[np.searchsorted(starts, edges[:-1], side="right") - 1]
    up_to = (edges - low) / (high - low)
    for total, amount in ((found.keys, keys), (found.bad_weights, bad)):
        # Rounded at the edges, the parts add up.
        np.add.at(total, owners, np.diff(np.rint(up_to * int(amount)).astype(np.int64)))
    np.add.at(found.weight, owners, np.diff(up_to) * weight)
    np.add.at(found.estimated, owners, np.diff(np.rint(up_to * int(keys)).astype(np.int64)))


def _second_look(  # noqa: PLR0917 - as _counted
    rows: DataFrame,
    edges: list[Range],
    starts: Longs,
    codes: Longs,
    key: str,
    weight: str | None,
    algorithm: str,
) -> DataFrame:
    """The rows of some buckets, by one more than their codes; those of others by 0."""
    has_point = "point" in rows.columns
    if has_point:
        column_type(rows, "point")
        # Of many, what lies between them is most of the ring.
        if len(edges) <= MOST_RANGES:
            rows = rows.where(within(F.col("point"), edges))
    at: Column = F.col(quoted("point")) if has_point else key_point(rows, key, algorithm)
    bounds = sorted({0, *(edge.start for edge in edges), *(edge.end for edge in edges)})
    flags_at = np.array([bound for bound in bounds if bound < RING_SIZE], np.int64)
    starts_of = {edge.start for edge in edges}
    flags = np.array([int(bound in starts_of) for bound in flags_at.tolist()], np.int64)
    both = overlay(flags_at, flags, starts, codes)
    told = np.where(both.before == 1, both.after + 1, 0)
    table = points_table(both.starts, told[both.codes])
    weights, total, bad = weighed(rows, weight)
    hashed = rows.select(at.alias(_POINT), *weights).where(F.col(_POINT).isNotNull())
    arrays = array_columns(rows.sparkSession, table_arrays(table))
    return (
        with_code(hashed, table, code_steps(_POINT, table, arrays), CODE, filtered=False)
        .groupBy(CODE)
        .agg(F.count("*").alias("keys"), total.alias("weight"), bad.alias("bad_weights"))
    )
