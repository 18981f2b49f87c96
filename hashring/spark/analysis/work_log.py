"""A work log: its columns, its times, and which of its rows can be judged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import FloatType, NumericType, StringType, TimestampNTZType, TimestampType

from hashring.errors import ColumnError
from hashring.spark.engine.arrays_to_spark import frame_of_rows
from hashring.spark.engine.column_checks import check_unpadded, column_type, quoted
from hashring.spark.lookup.key_column import key_text
from hashring.spark.periods.owner_at_time import AsOf

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

REJECTIONS: Final = (
    "no key",
    "no node",
    "no time",
    "end before start",
    "unknown node",
    "before the history",
)
"""Why a row of the log could not be judged, in the order in which they are looked for."""

REASON: Final = "__reason"
"""The column that says why a row cannot be judged; null if it can."""


def micros(df: DataFrame, name: str) -> Column:
    """A column of times, in microseconds since 1970; null where a number is no time.

    Raises:
        ColumnError: the column is missing or of a type it cannot have.
    """
    kind = column_type(df, name)
    column = F.col(quoted(name))
    if isinstance(kind, TimestampType):
        return F.unix_micros(column)
    if isinstance(kind, FloatType):
        raise ColumnError(
            name,
            "is float; its steps are minutes, too coarse for a time: give DOUBLE or TIMESTAMP in "
            "the schema, or write the log anew",
        )
    if isinstance(kind, NumericType):
        seconds = column.cast("double")
        # Beyond the years 0 to 9999 a number is no time.
        sane = (seconds > -62_135_596_800.0) & (seconds < 253_402_300_800.0)
        return F.when(sane, F.round(seconds * 1e6).cast("bigint"))
    if isinstance(kind, TimestampNTZType):
        raise ColumnError(
            name,
            "is timestamp_ntz, a time without a zone: with TIMESTAMP in the schema, those of "
            "Parquet are UTC; if they are not, cast the column, which takes the session's zone",
        )
    raise ColumnError(
        name,
        f"is {kind.simpleString()}; a time is TIMESTAMP or a number of seconds since 1970: "
        f"cast it; of CSV and JSON, give its type in the schema",
    )


def with_reasons(
    work: DataFrame,
    asof: AsOf,
    *,
    key: str = "key",
    node: str = "node",
    start: str = "start",
    end: str = "end",
) -> DataFrame:
    """Every row of the log with what is needed of it, and why it cannot be judged, if so.

    Raises:
        ColumnError: a column is missing or of a type it cannot have.
    """
    if not isinstance(column_type(work, node), StringType):
        raise ColumnError(
            node,
            f"is {column_type(work, node).simpleString()}; a node's name is a string: give its "
            f"type in the schema, such as of directories {node}=007",
        )
    check_unpadded(work, node)
    for column in work.columns:
        column_type(work, column)  # which is there once
    numbered = [(name, number) for number, name in enumerate(asof.nodes)]
    kinds = {"__name": pa.string(), "__number": pa.int32()}
    known = frame_of_rows(work.sparkSession, kinds, numbered)
    name = F.col(quoted(node))
    text = key_text(work, key)
    began, ended = micros(work, start), micros(work, end)
    checked = work.select(
        F.struct(*(F.col(quoted(column)) for column in work.columns)).alias("__row"),
        text.alias("__key"),
        F.collate(name, "UTF8_BINARY").alias("__node"),
        began.alias("__start"),
        ended.alias("__end"),
    ).join(F.broadcast(known), F.col("__node") == F.col("__name"), "left")
    why = {
        "no key": F.col("__key").isNull(),
        "no node": F.coalesce(F.col("__node"), F.lit("")) == "",
        "no time": F.col("__start").isNull() | F.col("__end").isNull(),
        "end before start": F.col("__end") < F.col("__start"),
        "unknown node": F.col("__number").isNull(),
        "before the history": F.col("__start") < asof.begins,
    }
    reason = F.coalesce(*(F.when(why[text_], F.lit(text_)) for text_ in REJECTIONS))
    return checked.withColumn(REASON, reason)


def judgeable(reasoned: DataFrame) -> DataFrame:
    """The rows that can be judged.

    Returns:
        ``key``, ``node`` (its place in the history's nodes), ``start`` and ``end`` in microseconds.
    """
    return reasoned.where(F.col(REASON).isNull()).select(
        F.col("__key").alias("key"),
        F.col("__number").alias("node"),
        F.col("__start").alias("start"),
        F.col("__end").alias("end"),
    )
