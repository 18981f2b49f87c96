"""The weight of rows, from a column of numbers, and its sum for each code."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import StringType

from hashring.errors import ColumnError
from hashring.spark.engine.column_checks import char_type, check_number, column_type, quoted
from hashring.spark.lookup.key_points import NATIVE_ALGORITHMS, key_point
from hashring.spark.lookup.ring_columns import POINT, CodeColumns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

CODE = "__hashring_code"
_WEIGHT = "__hashring_weight"


def counted_by_code(
    df: DataFrame,
    columns: CodeColumns,
    key: str,
    algorithm: str,
    weight: str | None,
) -> DataFrame:
    """Rows (``keys``), ``weight`` and ``bad_weights`` for each code (:data:`CODE`)."""
    weights: list[Column] = []

    def sums() -> tuple[Column, ...]:
        weights[:], total, bad = weighed(df, weight)
        return F.count("*").alias("keys"), total.alias("weight"), bad.alias("bad_weights")

    def hashed() -> tuple[Column, ...]:
        return (key_point(df, key, algorithm).alias(POINT),)

    counted = sums() if weight else columns.once("rows", sums)
    # Of another algorithm, the log tells each time that it is slow.
    is_native = algorithm in NATIVE_ALGORITHMS
    which = ("point", key, column_type(df, key), char_type(df.schema[key]))
    points = columns.once(which, hashed) if is_native else hashed()
    coded = columns.counted(df, [*points, *weights], name=CODE)
    return coded.groupBy(CODE).agg(*counted)


def check_sum(weight: str | None, total: float) -> None:
    """Raise ``ColumnError`` for a sum of weights that is more than a DOUBLE holds."""
    if not math.isfinite(total):
        raise ColumnError(str(weight), "sums up to more than a DOUBLE holds: give smaller numbers")


def weighed(df: DataFrame, weight: str | None) -> tuple[list[Column], Column, Column]:
    """The columns to select for a sum of weights; the sum; how many of the weights are none.

    A weight is none when it is null, no number, negative, infinite, or NaN (which Spark puts above
    all).
    """
    if weight is None:
        return [], F.count("*").cast("double"), F.lit(0).cast("bigint")
    check_number(df, weight)
    column = F.col(quoted(weight))
    if isinstance(column_type(df, weight), StringType):
        # To Java `1d`, `2f` and `0x1p3` are numbers as well.
        text = F.collate(column, "UTF8_BINARY")
        column = F.when(~text.rlike("[dDfFxX]"), text)
    given = column.try_cast("double")
    usable = F.when((given >= 0) & (given < math.inf), given).alias(_WEIGHT)
    return [usable], F.coalesce(F.sum(_WEIGHT), F.lit(0.0)), F.count("*") - F.count(_WEIGHT)
