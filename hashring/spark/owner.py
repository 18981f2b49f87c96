"""Who owns what: the owner of every key, the load of every node, and what moves between rings."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.errors import ConfigError, EmptyRingError
from hashring.spark.cells import CellTable, cell_table, overlay, ring_ranges
from hashring.spark.keys import check_free, check_number, key_text, point, quoted
from hashring.spark.lookup import look_up, one_row

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RING_BITS: Final = 32
RING_STEP: Final = 2
"""A ring is looked up for every key there is: its table had better fit the processor's caches."""

_POINT = "__hashring_point"
_CODE = "__hashring_code"
_WEIGHT = "__hashring_weight"
_ROWS = "__hashring_rows"
_TOTAL = "__hashring_total"
_NAMES = "__hashring_names"


@lru_cache(maxsize=2)
def ring_table(ring: Ring) -> tuple[CellTable, tuple[str, ...]]:
    """The table of a ring's owners, and the nodes its codes stand for.

    Raises:
        EmptyRingError: the ring has no nodes.
    """
    if not ring.node_count:
        raise EmptyRingError
    starts, owners, nodes = ring_ranges(ring)
    return cell_table(starts, owners, RING_BITS, step=RING_STEP), nodes


def with_owner(df: DataFrame, ring: Ring, key: str = "key") -> DataFrame:
    """Add the point and the owner of each row's key.

    Args:
        df: any frame, batch or streaming.
        key: a column of strings, binaries or integers.

    Returns:
        The frame with ``point`` BIGINT and ``owner`` STRING; both null where the key is null or
        empty. The same owner as ``ring.owner(key)``.

    Raises:
        EmptyRingError: the ring has no nodes.
        ColumnError: no such column, no type of a key, or ``point`` or ``owner`` is there already.
    """
    table, nodes = ring_table(ring)
    check_free(df, "point", "owner")
    hashed = df.withColumn("point", point(df, key, ring.hash_algorithm.name))
    return look_up(
        hashed, "point", table, _CODE, {"owner": pa.array(nodes, pa.string())}, keep_code=False
    )


def with_move(df: DataFrame, before: Ring, after: Ring, key: str = "key") -> DataFrame:
    """Add the point of each row's key and its owner on two rings, in one lookup.

    Returns:
        The frame with ``point`` BIGINT, ``before`` and ``after`` STRING; null where the key is
        null or empty. A row moves where ``before <> after``.

    Raises:
        EmptyRingError, ColumnError: as for :func:`with_owner`.
        ConfigError: the rings hash keys differently.
    """
    table, old, new = _pair_table(before, after)
    check_free(df, "point", "before", "after")
    hashed = df.withColumn("point", point(df, key, before.hash_algorithm.name))
    attributes = {"before": old, "after": new}
    return look_up(hashed, "point", table, _CODE, attributes, keep_code=False)


@lru_cache(maxsize=2)
def _pair_table(before: Ring, after: Ring) -> tuple[CellTable, pa.Array, pa.Array]:
    if before.hash_algorithm.name != after.hash_algorithm.name:
        raise ConfigError(
            "after",
            after.hash_algorithm.name,
            f"the other ring hashes with {before.hash_algorithm.name}; every key would move, so "
            f"compare rings of one algorithm",
        )
    if not before.node_count or not after.node_count:
        raise EmptyRingError
    old_starts, old_codes, old_nodes = ring_ranges(before)
    new_starts, new_codes, new_nodes = ring_ranges(after)
    pairs = overlay(old_starts, old_codes, new_starts, new_codes)
    return (
        cell_table(pairs.starts, pairs.codes, RING_BITS, step=RING_STEP),
        pa.array(old_nodes, pa.string()).take(pa.array(pairs.before)),
        pa.array(new_nodes, pa.string()).take(pa.array(pairs.after)),
    )


def load(df: DataFrame, ring: Ring, key: str = "key", weight: str | None = None) -> DataFrame:
    """What each node has to do: its rows and their weight, against its share of the ring.

    Args:
        df: one row a key; for a log, one row a piece of work.
        weight: a numeric column; without it each row weighs 1. Null, NaN, infinite and negative
            weights count as 0 and are counted in ``bad_weights``.

    Returns:
        One row a node of the ring, also for a node without keys: ``node``, ``keys`` (rows),
        ``weight``, ``share`` (of all weight on the ring, 0 when there is none), ``fair_share``
        (its points over all points: what its weight entitles it to), ``ring_share`` (the part of
        the ring it owns), ``bad_weights``. One more row, with a null node and null shares, for
        rows whose key is null or empty, if there are any.

    Raises:
        EmptyRingError, ColumnError: as for :func:`with_owner`.
    """
    table, _ = ring_table(ring)
    counted = _counted(df, table, key, ring.hash_algorithm.name, weight)
    known = df.sparkSession.createDataFrame(_known(ring))
    unknown = (f"CAST(NULL AS {kind}) AS {name}" for name, kind in _OF_A_NODE.items())
    # From here on it is a row a node: one task, without another shuffle or join.
    sums = (
        counted.selectExpr("*", *unknown)
        .union(known)
        .coalesce(1)
        .groupBy(_CODE)
        .agg(
            *(F.sum(name).alias(name) for name in ("keys", "weight", "bad_weights")),
            *(F.max(name).alias(name) for name in _OF_A_NODE),
        )
    )
    packed = sums.selectExpr(
        f"collect_list(struct(*)) AS {_ROWS}",
        f"sum(if({_CODE} IS NULL, NULL, weight)) AS {_TOTAL}",
    )
    return packed.selectExpr(_TOTAL, f"inline({_ROWS})").selectExpr(
        "node",
        "keys",
        "weight",
        f"if({_CODE} IS NULL, NULL, coalesce(try_divide(weight, {_TOTAL}), 0D)) AS share",
        "fair_share",
        "ring_share",
        "bad_weights",
    )


_OF_A_NODE: Final = {"node": "STRING", "fair_share": "DOUBLE", "ring_share": "DOUBLE"}


@lru_cache(maxsize=2)
def _known(ring: Ring) -> pa.Table:
    """A row a node, as :func:`_counted` has it, without a key; and what is known of the node."""
    nodes, shares = ring.nodes, ring.shares
    return pa.table(
        {
            _CODE: pa.array(range(len(nodes)), pa.int64()),
            "keys": pa.array([0] * len(nodes), pa.int64()),
            "weight": pa.array([0.0] * len(nodes)),
            "bad_weights": pa.array([0] * len(nodes), pa.int64()),
            "node": pa.array(nodes, pa.string()),
            "fair_share": pa.array([len(ring.points_of(n)) / len(ring) for n in nodes]),
            "ring_share": pa.array([shares[n] / RING_SIZE for n in nodes]),
        }
    )


def _counted(
    df: DataFrame, table: CellTable, key: str, algorithm: str, weight: str | None
) -> DataFrame:
    """Rows and weight for each code of the table."""
    columns, total, bad = _weighed(df, weight)
    hashed = df.select(point(df, key, algorithm).alias(_POINT), *columns)
    return (
        look_up(hashed, _POINT, table, _CODE)
        .groupBy(_CODE)
        .agg(F.count("*").alias("keys"), total.alias("weight"), bad.alias("bad_weights"))
    )


def _weighed(df: DataFrame, weight: str | None) -> tuple[list[Column], Column, Column]:
    """The columns to select for a sum of weights; the sum; how many of the weights are none.

    A weight is none when it is null, negative, infinite, or NaN (which Spark puts above all).
    """
    if weight is None:
        return [], F.count("*").cast("double"), F.lit(0).cast("bigint")
    check_number(df, weight)
    given = F.col(quoted(weight)).cast("double")
    usable = F.when((given >= 0) & (given < math.inf), given).alias(_WEIGHT)
    return [usable], F.coalesce(F.sum(_WEIGHT), F.lit(0.0)), F.count("*") - F.count(_WEIGHT)


def hot_keys(
    df: DataFrame, ring: Ring, key: str = "key", weight: str | None = None, n: int = 20
) -> DataFrame:
    """The heaviest keys, which no placement of points can spread: one key has one owner.

    Returns:
        At most ``n`` rows, heaviest first, ties by key: ``key`` (in the form that is hashed),
        ``rows``, ``weight``, ``share`` (of all weight), ``of_mean`` (the weight over the mean
        weight of a node; above 1 the key alone is more than a node's fair share), ``point``,
        ``owner``.

    Raises:
        EmptyRingError, ColumnError: as for :func:`with_owner`.
        ConfigError: ``n`` is below 1.
    """
    if n < 1:
        raise ConfigError("n", n, "ask for at least one key")
    if not ring.node_count:
        raise EmptyRingError
    columns, heavy, _ = _weighed(df, weight)
    per_key = (
        df.select(key_text(df, key).alias("key"), *columns)
        .where(F.col("key").isNotNull())
        .groupBy("key")
        .agg(F.count("*").alias("rows"), heavy.alias("weight"))
    )
    total = per_key.agg(F.sum("weight").alias("total"))
    top = per_key.orderBy(F.desc("weight"), "key").limit(n).crossJoin(F.broadcast(total))
    share = F.coalesce(F.try_divide(F.col("weight"), F.col("total")), F.lit(0.0))
    shared = top.select(
        "key", "rows", "weight", share.alias("share"), (share * ring.node_count).alias("of_mean")
    )
    return with_owner(shared, ring).orderBy(F.desc("weight"), "key")


def moves(
    df: DataFrame, before: Ring, after: Ring, key: str = "key", weight: str | None = None
) -> DataFrame:
    """How many rows, and how much weight, go from which node to which.

    One lookup finds both owners, so this costs what :func:`load` costs.

    Returns:
        One row a pair of nodes between which anything moves, most rows first: ``before``,
        ``after``, ``keys`` (rows), ``weight``.

    Raises:
        EmptyRingError, ColumnError, ConfigError: as for :func:`with_move`.
    """
    return (
        flows(df, before, after, key, weight)
        .where(F.col("before") != F.col("after"))
        .orderBy(F.desc("keys"), "before", "after")
    )


def flows(
    df: DataFrame, before: Ring, after: Ring, key: str = "key", weight: str | None = None
) -> DataFrame:
    """As :func:`moves`, in no order, with also what stays (``before = after``), and one row of
    nulls for rows whose key is null or empty; its column ``bad_weights`` is that of :func:`load`.
    """
    table, old, new = _pair_table(before, after)
    counted = _counted(df, table, key, before.hash_algorithm.name, weight)
    pairs = df.sparkSession.createDataFrame(
        pa.table({_CODE: pa.array(np.arange(len(old))), "before": old, "after": new})
    )
    return counted.join(F.broadcast(pairs), _CODE, "left").select(
        "before", "after", "keys", "weight", "bad_weights"
    )


def partition_by_owner(df: DataFrame, ring: Ring, key: str = "key") -> DataFrame:
    """As :func:`with_owner`, with all rows of a node in one Spark partition of their own.

    Partition ``i`` holds the rows of ``ring.nodes[i]``; rows without an owner are in partition 0
    as well. Written with ``.write.partitionBy("owner").parquet(path)``, each node's keys are in
    ``path/owner=<node>``, which that node can read alone. Spark writes some characters of a name
    as in a URL: the directory of ``host:17`` is ``owner=host%3A17``.

    Raises:
        EmptyRingError, ColumnError: as for :func:`with_owner`.
    """
    table, nodes = ring_table(ring)
    check_free(df, "point", "owner")
    hashed = df.withColumn("point", point(df, key, ring.hash_algorithm.name))
    placed = look_up(hashed, "point", table, _CODE).repartitionById(
        len(nodes), F.col(_CODE).cast("int")
    )
    # The names come after the shuffle: their numbers are less to move.
    names = one_row(df.sparkSession, {_NAMES: pa.array(nodes, pa.string())})
    return placed.crossJoin(F.broadcast(names)).select(
        *(F.col(quoted(name)) for name in hashed.columns),
        F.get(_NAMES, F.col(_CODE).cast("int")).alias("owner"),
    )
