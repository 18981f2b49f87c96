"""How much each node has to do, and the keys that no placement can spread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring import Ring
from hashring.errors import ConfigError, EmptyRingError
from hashring.spark.key_points import check_number, key_point, key_text, quoted
from hashring.spark.owner_columns import with_owner
from hashring.spark.ring_columns import CodeColumns, ring_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CODE = "__hashring_code"
_WEIGHT = "__hashring_weight"
_ROWS = "__hashring_rows"
_TOTAL = "__hashring_total"
_BUCKET = "__hashring_bucket"
_LEAST_BUCKETS = 2**16
_BUCKETS_PER_NODE = 64
_EXAMINED = 256
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
        EmptyRingError, ColumnError: as for :func:`hashring.spark.with_owner`.
    """
    columns = ring_columns(df.sparkSession, ring)
    counted = counted_by_code(df, columns, key, ring.hash_algorithm.name, weight)
    # A row a node from here on: all of them in one row, so that the total and the nodes without
    # keys cost neither a join nor another shuffle.
    if columns.count <= _FEW:
        counted = counted.coalesce(1)
    packed = counted.agg(*columns.once("load packed", _packed))
    absent = (
        f"transform(array_except(sequence(0, {columns.count - 1}), "
        f"transform({_ROWS}, r -> r.{CODE})), c -> named_struct('{CODE}', c, 'keys', 0L, "
        f"'weight', 0D, 'bad_weights', 0L))"
    )
    rows = packed.selectExpr(_TOTAL, f"inline(concat({_ROWS}, {absent}))")
    return rows.select(*columns.once("load", lambda: _of_nodes(columns)))


def _packed() -> tuple[Column, ...]:
    row = f"struct(CAST({CODE} AS INT) AS {CODE}, keys, weight, bad_weights)"
    return (
        F.expr(f"collect_list({row}) AS {_ROWS}"),
        F.expr(f"sum(if({CODE} IS NULL, NULL, weight)) AS {_TOTAL}"),
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


def counted_by_code(
    df: DataFrame,
    columns: CodeColumns,
    key: str,
    algorithm: str,
    weight: str | None,
    *,
    filtered: bool = False,
) -> DataFrame:
    """Rows (``keys``), ``weight`` and ``bad_weights`` for each code (:data:`CODE`).

    Args:
        filtered: whether codes are filtered, which Spark does before it counts.
    """
    weights, total, bad = weighed(df, weight)
    hashed = key_point(df, key, algorithm)
    coded = columns.counted(df, hashed, weights, name=CODE, filtered=filtered)
    return coded.groupBy(CODE).agg(
        F.count("*").alias("keys"), total.alias("weight"), bad.alias("bad_weights")
    )


def weighed(df: DataFrame, weight: str | None) -> tuple[list[Column], Column, Column]:
    """The columns to select for a sum of weights; the sum; how many of the weights are none.

    A weight is none when it is null, no number, negative, infinite, or NaN (which Spark puts above
    all).
    """
    if weight is None:
        return [], F.count("*").cast("double"), F.lit(0).cast("bigint")
    check_number(df, weight)
    given = F.col(quoted(weight)).try_cast("double")
    usable = F.when((given >= 0) & (given < math.inf), given).alias(_WEIGHT)
    return [usable], F.coalesce(F.sum(_WEIGHT), F.lit(0.0)), F.count("*") - F.count(_WEIGHT)


def hot_keys(
    df: DataFrame, ring: Ring, key: str = "key", weight: str | None = None, n: int = 20
) -> DataFrame:
    """The heaviest keys, which no placement of points can spread: one key has one owner.

    Reads the frame twice: first the weight of each of many buckets of keys, then each key of the
    heaviest buckets. So only these keys are shuffled, and what is told of them is exact. There are
    at least 65,536 buckets and 64 a node, of which the heaviest ``256 + 4 n`` are looked into. A
    key that weighs more than each of the other buckets is in the result, or ``n`` heavier ones are.

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
    columns, heavy, _ = weighed(df, weight)
    keyed = df.select(key_text(df, key).alias("key"), *columns).where(F.col("key").isNotNull())
    # By Spark's own CRC-32 for any ring: only the spread matters here.
    buckets = max(_LEAST_BUCKETS, _BUCKETS_PER_NODE * ring.node_count)
    keyed = keyed.withColumn(_BUCKET, F.crc32("key") % F.lit(buckets))
    per_bucket = keyed.groupBy(_BUCKET).agg(heavy.alias("weight"))
    heaviest = per_bucket.orderBy(F.desc("weight"), _BUCKET).limit(_EXAMINED + 4 * n)
    likely = keyed.join(F.broadcast(heaviest.select(_BUCKET)), _BUCKET, "left_semi")
    per_key = likely.groupBy("key").agg(F.count("*").alias("rows"), heavy.alias("weight"))
    total = per_bucket.agg(F.sum("weight").alias("total"))
    top = per_key.orderBy(F.desc("weight"), "key").limit(n).crossJoin(F.broadcast(total))
    share = F.coalesce(F.try_divide(F.col("weight"), F.col("total")), F.lit(0.0))
    shared = top.select(
        "key", "rows", "weight", share.alias("share"), (share * ring.node_count).alias("of_mean")
    )
    return with_owner(shared, ring).orderBy(F.desc("weight"), "key")
