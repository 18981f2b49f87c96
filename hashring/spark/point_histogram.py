"""Count the rows of each bucket of points: a histogram, made once, that answers for any ring.

:mod:`hashring.spark.histogram_load` and :mod:`hashring.spark.histogram_moves` answer from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.hashing import hash_algorithm as algorithm_of_name
from hashring.errors import ConfigError
from hashring.spark.key_points import WEIGHED_BY, key_point, points_of
from hashring.spark.weight_sums import CODE, weighed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DEFAULT_BUCKETS: Final = 2**16
MOST_BUCKETS: Final = 2**22
_POINT: Final = "__hashring_point"


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

    Histograms of different rows may be put together with ``unionAll``, also of different buckets:
    they answer for all these rows, if all were made with the same key, weight and hash algorithm.

    Returns:
        One row a bucket that has any: ``start`` and ``end`` BIGINT (its points are from ``start``
        up to but without ``end``), ``keys`` (rows), ``weight``, ``bad_weights``. One more, with
        nulls for the points, for rows whose key is null or empty, if there are any. The metadata of
        ``start``, which Parquet keeps, names the hash algorithm, and the columns of keys and
        weights.

    Raises:
        ColumnError: a column is missing, or of a type that it cannot have.
        ConfigError: ``buckets`` is no power of two, or above 4,194,304; or there is no such hash
            algorithm.
    """
    if not 1 <= buckets <= MOST_BUCKETS or buckets & (buckets - 1):
        raise ConfigError("buckets", buckets, f"give a power of two, up to {MOST_BUCKETS:,}")
    shift = 32 - (buckets.bit_length() - 1)
    algorithm = algorithm_of_name(hash_algorithm).name
    weights, total, bad = weighed(df, weight)
    hashed = df.select(key_point(df, key, algorithm).alias(_POINT), *weights)
    counted = hashed.groupBy(F.shiftright(_POINT, shift).alias(CODE)).agg(
        F.count("*").alias("keys"), total.alias("weight"), bad.alias("bad_weights")
    )
    metadata = {**points_of(key, algorithm), WEIGHED_BY: weight}
    return counted.select(
        F.shiftleft(CODE, shift).alias("start", metadata=metadata),
        F.shiftleft(F.col(CODE) + 1, shift).alias("end"),
        "keys",
        "weight",
        "bad_weights",
    )
