"""The hot keys of a frame, which no placement of points can spread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring import Ring
from hashring.errors import ConfigError
from hashring.spark.lookup.key_column import key_text
from hashring.spark.lookup.owner_columns import with_owner
from hashring.spark.lookup.ring_columns import check_ring
from hashring.spark.lookup.weight_sums import weighed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_BUCKET = "__hashring_bucket"
_LEAST_BUCKETS = 2**16
_BUCKETS_PER_NODE = 64
_EXAMINED = 256
_MOST_ROWS = 2**31 - 1
"""That Spark takes for a limit."""


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
        EmptyRingError, ColumnError, ConfigError: as for :func:`with_owner`.
        ConfigError: ``n`` is below 1.
    """
    if n < 1:
        raise ConfigError("n", n, "ask for at least one key")
    check_ring(ring)
    columns, heavy, _ = weighed(df, weight)
    keyed = df.select(key_text(df, key).alias("key"), *columns).where(F.col("key").isNotNull())
    # By Spark's own CRC-32 for any ring: only the spread matters here.
    buckets = max(_LEAST_BUCKETS, _BUCKETS_PER_NODE * ring.node_count)
    keyed = keyed.withColumn(_BUCKET, F.crc32("key") % F.lit(buckets))
    per_bucket = keyed.groupBy(_BUCKET).agg(heavy.alias("weight"))
    heaviest = per_bucket.orderBy(F.desc("weight"), _BUCKET).limit(min(_EXAMINED + 4 * n, buckets))
    likely = keyed.join(F.broadcast(heaviest.select(_BUCKET)), _BUCKET, "left_semi")
    per_key = likely.groupBy("key").agg(F.count("*").alias("rows"), heavy.alias("weight"))
    total = per_bucket.agg(F.sum("weight").alias("total"))
    heavy_keys = per_key.orderBy(F.desc("weight"), "key").limit(min(n, _MOST_ROWS))
    top = heavy_keys.crossJoin(F.broadcast(total))
    share = F.coalesce(F.try_divide(F.col("weight"), F.col("total")), F.lit(0.0))
    shared = top.select(
        "key", "rows", "weight", share.alias("share"), (share * ring.node_count).alias("of_mean")
    )
    return with_owner(shared, ring).orderBy(F.desc("weight"), "key")
