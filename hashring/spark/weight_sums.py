"""The weight of rows, from a column of numbers, and its sum for each code."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import StringType

from hashring.errors import ColumnError
from hashring.spark.column_checks import check_number, column_type, quoted
from hashring.spark.key_points import key_point
from hashring.spark.ring_columns import CodeColumns

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
    weights, total, bad = weighed(df, weight)
    hashed = key_point(df, key, algorithm)
    coded = columns.counted(df, hashed, weights, name=CODE)
    return coded.groupBy(CODE).agg(
        F.count("*").alias("keys"), total.alias("weight"), bad.alias("bad_weights")
    )


def check_sum(weight: str | None, total: float) -> None:
    """Check that a sum of weights is a number, of which parts can be told.

    Raises:
        ColumnError: it is more than a DOUBLE holds.
    """
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
