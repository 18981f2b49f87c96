"""What goes from which node to which when a ring changes, from rows or from a histogram."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring import Ring
from hashring.spark.analysis.point_histogram import histogram_counts
from hashring.spark.engine.arrays_to_spark import frame_of_rows
from hashring.spark.lookup.ring_columns import check_pair, pair_columns
from hashring.spark.lookup.ring_ranges import Pairs, overlay, ring_ranges
from hashring.spark.lookup.weight_sums import CODE, counted_by_code

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
        .select(*MOVE)
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
        moved_keys_error, moved_weight_error: by how much the rows that move, and their weight, are
            wrong at most.
        keys_error: by how much any one number of rows is wrong at most: of a node before or after,
            of what it gains or loses, of what goes from a node to a node.
    """

    flows: list[NodeFlow]
    rows_without_key: int
    bad_weights: int
    estimated: int = 0
    moved_keys_error: int = 0
    moved_weight_error: float = 0.0
    keys_error: int = 0


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
        As :func:`hashring.spark.moves`, and ``estimated``: how many of ``keys`` were shared out;
        ``keys_error`` and ``weight_error``: by how much ``keys`` and ``weight`` are wrong at most.
        Also a row for each pair of nodes between which anything may move, even if ``keys`` is 0.

    Raises:
        EmptyRingError: as for :func:`hashring.spark.moves`.
        ConfigError: so, too; and as for :func:`hashring.spark.load_of_histogram`.
        ColumnError: a column is missing, or of a type that it cannot have.
    """
    pairs, old_nodes, new_nodes = _overlaid(before, after)
    moving = _moving(pairs, old_nodes, new_nodes)
    # Whatever stays is one range, so only the bounds of what moves are looked at again.
    codes = np.where(moving[pairs.codes], pairs.codes + 1, 0)
    algorithm = after.hash_algorithm.name
    found = histogram_counts(histogram, pairs.starts, codes, rows, key, weight, algorithm)
    keys_error, weight_error = found.cut.errors(np.arange(len(found.keys)), len(found.keys))
    told = [
        (
            old_nodes[pairs.before[code - 1]],
            new_nodes[pairs.after[code - 1]],
            int(found.keys[code]),
            float(found.weight[code]),
            int(found.estimated[code]),
            int(keys_error[code]),
            float(weight_error[code]),
        )
        for code in range(1, len(found.keys))
        # Rows that were shared out are rounded, and may be none where their weight is some.
        if found.keys[code] or found.weight[code] or keys_error[code] or weight_error[code]
    ]
    told.sort(key=lambda move: (-move[2], move[0], move[1]))
    errors = {"estimated": pa.int64(), "keys_error": pa.int64(), "weight_error": pa.float64()}
    return frame_of_rows(histogram.sparkSession, {**MOVE, **errors}, told)


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
        # Rows that were shared out are rounded, and may be none where their weight is some.
        for code in np.flatnonzero((found.keys != 0) | (found.weight != 0)).tolist()
    ]
    lost, _, lost_bad = found.without_key
    bad = int(found.bad_weights.sum()) + lost_bad
    moving = _moving(pairs, old_nodes, new_nodes)
    moved_keys, moved_weight = found.cut.errors(np.where(moving, 0, -1), 1)
    each = (
        (np.arange(len(moving)), len(moving)),
        (pairs.before, len(old_nodes)),
        (pairs.after, len(new_nodes)),
        (np.where(moving, pairs.before, -1), len(old_nodes)),
        (np.where(moving, pairs.after, -1), len(new_nodes)),
    )
    return NodeFlows(
        flows,
        lost,
        bad,
        int(found.estimated.sum()),
        int(moved_keys[0]),
        float(moved_weight[0]),
        max(int(found.cut.errors(*groups)[0].max()) for groups in each),
    )


def _moving(
    pairs: Pairs, old_nodes: tuple[str, ...], new_nodes: tuple[str, ...]
) -> npt.NDArray[np.bool_]:
    """Whether what has each pair of owners moves."""
    owners = zip(pairs.before.tolist(), pairs.after.tolist(), strict=True)
    return np.array([old_nodes[b] != new_nodes[a] for b, a in owners])


def _overlaid(before: Ring, after: Ring) -> tuple[Pairs, tuple[str, ...], tuple[str, ...]]:
    """The ranges of two rings as pairs of owners, and the nodes of each."""
    check_pair(before, after)
    old_starts, old_codes, old_nodes = ring_ranges(before)
    new_starts, new_codes, new_nodes = ring_ranges(after)
    return overlay(old_starts, old_codes, new_starts, new_codes), old_nodes, new_nodes
