"""From a column of keys to a column of points: their hash on the ring.

The text that is hashed is that of :mod:`hashring.spark.lookup.key_column`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

import pandas as pd
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import LongType

from hashring.core.hashing import hash_algorithm
from hashring.spark.engine.column_checks import quoted
from hashring.spark.lookup.key_column import key_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

logger = logging.getLogger("hashring.spark")

NATIVE_ALGORITHMS: Final = ("crc-32", "jamcrc")
"""The hash algorithms that Spark computes in generated code; others go through Python."""

HASHED_BY: Final = "hash_algorithm"
KEYED_BY: Final = "key"
WEIGHED_BY: Final = "weight"
"""In the metadata of a column of points: by what they were computed, and of which column. In that
of a histogram's column ``start`` also the column of weights, null for none."""


def key_point(df: DataFrame, key: str, algorithm: str) -> Column:
    """The point of each key of a frame, as by :func:`point`; integers are keys, too."""
    return _hashed(key_text(df, key), algorithm)


def points_of(key: str, algorithm: str) -> dict[str, Any]:
    """The metadata of a column of these points. Parquet keeps it; CSV and JSON do not."""
    return {HASHED_BY: algorithm, KEYED_BY: key}


def has_points_of(df: DataFrame, key: str, algorithm: str) -> bool:
    """Whether a frame has a column ``point`` which is known to be that of this key."""
    found = [field for field in df.schema.fields if field.name == "point"]
    wanted = points_of(key, algorithm).items()
    return (
        len(found) == 1
        and isinstance(found[0].dataType, LongType)
        and wanted <= found[0].metadata.items()
    )


def settings_of_points(df: DataFrame, name: str) -> dict[str, str | None]:
    """By which hash algorithm, and of which columns, a column says that its points were made.

    Empty if it does not say, or is missing.
    """
    made = df.schema[name].metadata if name in df.columns else {}
    settings = (HASHED_BY, KEYED_BY, WEIGHED_BY)
    return {each: made.get(each) for each in settings} if HASHED_BY in made else {}


def point(key: Column | str, algorithm: str = "crc-32") -> Column:
    """The point of each key, a BIGINT in ``[0, 2**32)``; null for a null or empty key.

    With an algorithm outside :data:`NATIVE_ALGORITHMS` the points are computed in Python, a batch
    of rows at a time through Arrow, and the log says so; every worker then needs this package
    (and for xxh32 its own).

    Args:
        key: a column of strings or binaries. Of an integer, cast it to string. Spark refuses
            every other type when it analyses the query.

    Raises:
        MissingDependencyError: the algorithm's package is not installed.
    """
    text = F.col(quoted(key)) if isinstance(key, str) else key
    # Of a string, too, this is the number of bytes.
    held = F.octet_length(text) > 0
    if algorithm not in NATIVE_ALGORITHMS:
        # Spark refuses a CRC-32 of other types. Without ANSI it would cast an integer to its bytes,
        # which are another key than its digits.
        held &= F.crc32(text) >= 0
    return _hashed(F.when(held, text), algorithm)


def _hashed(text: Column, algorithm: str) -> Column:
    if algorithm == "crc-32":
        return F.crc32(text)
    if algorithm == "jamcrc":
        # The complement of CRC-32.
        return F.lit(2**32 - 1) - F.crc32(text)
    hash_algorithm(algorithm)  # fails here, and not on a worker in the middle of the job
    logger.warning(
        "Spark has no %s of its own: points are computed in Python, several times slower", algorithm
    )

    def points(texts: pd.Series) -> pd.Series:
        to_point = hash_algorithm(algorithm).point_of_bytes
        return texts.map(lambda value: None if value is None else to_point(bytes(value))).astype(
            "Int64"
        )

    # As bytes: a string of Spark may hold some that are no UTF-8, which Python's cannot.
    hashed: Column = pandas_udf(points, "bigint")(text.cast("binary"))  # type: ignore[call-overload]
    return hashed
