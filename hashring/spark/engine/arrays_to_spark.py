"""Whole arrays brought to Spark: as one row of a frame, as scalar subqueries, as literals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.int16(): ShortType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
}
_MOST_LITERAL = 2**10
"""Fewer elements than the cells of any ring. Names of nodes and finer blocks may be literals."""
MOST_BYTES = 2**25
"""Of an array that goes to a task as it is; Spark refuses messages of 128 MB."""
_PIECE = "__hashring_piece"


def frame_of(spark: SparkSession, table: Any) -> DataFrame:
    """A frame of a table of Arrow, which may have no row: Spark Connect then needs the types.

    A large table goes to Spark in pieces.
    """
    fields = [StructField(field.name, _SPARK_TYPES[field.type]) for field in table.schema]
    step = max(1, MOST_BYTES * table.num_rows // max(table.nbytes, 1))
    frames = (
        spark.createDataFrame(table.slice(at, step), schema=StructType(fields))
        for at in range(0, max(table.num_rows, 1), step)
    )
    return reduce(lambda left, right: left.unionAll(right), frames)


def frame_of_rows(
    spark: SparkSession, kinds: Mapping[str, Any], rows: Sequence[Sequence[Any]]
) -> DataFrame:
    """A frame of these rows, of columns of these types of Arrow."""
    columns = {name: [row[i] for row in rows] for i, name in enumerate(kinds)}
    return frame_of(spark, pa.table({n: pa.array(columns[n], kind) for n, kind in kinds.items()}))


def one_row(spark: SparkSession, arrays: Mapping[str, Any]) -> DataFrame:
    """A frame of one row whose columns hold these whole arrays.

    Without a null inside, the array is declared so, which spares a check in every lookup. A large
    array goes to the executors in pieces, and is put together there.
    """
    flat = {name: pa.array(values) for name, values in arrays.items()}
    small = {name: array for name, array in flat.items() if array.nbytes <= MOST_BYTES}
    frames = [_row_of(spark, small)] if small else []
    frames += [_pieces(spark, name, flat[name]) for name in flat if name not in small]
    return reduce(lambda left, right: left.crossJoin(right), frames).select(*flat)


def _row_of(spark: SparkSession, arrays: Mapping[str, Any]) -> DataFrame:
    columns, fields = {}, []
    for name, flat in arrays.items():
        columns[name] = pa.ListArray.from_arrays(pa.array([0, len(flat)], pa.int32()), flat)
        items = ArrayType(_SPARK_TYPES[flat.type], containsNull=flat.null_count > 0)
        fields.append(StructField(name, items, nullable=False))
    return spark.createDataFrame(pa.table(columns), schema=StructType(fields))


def _pieces(spark: SparkSession, name: str, array: Any) -> DataFrame:
    """One row of a large array. As one value it would have to fit into one message to a task."""
    step = max(1, MOST_BYTES * len(array) // array.nbytes)
    rows = [
        _row_of(spark, {name: array[at : at + step]}).select(F.lit(at).alias(_PIECE), name)
        for at in range(0, len(array), step)
    ]
    # A frame each, since Spark cuts a frame's rows into tasks by their number, not by their size.
    gathered = reduce(lambda left, right: left.unionAll(right), rows).agg(
        F.array_sort(F.collect_list(F.struct(_PIECE, name))).alias(_PIECE)
    )
    return gathered.select(F.flatten(F.col(_PIECE)[name]).alias(name))


def array_columns(spark: SparkSession, arrays: Mapping[str, Any]) -> dict[str, Column]:
    """Whole arrays as columns: small ones as literals, others as scalar subqueries.

    A literal holds an object for each element, so each read looks at one more place in memory, and
    Spark writes out all elements with each plan. Of a few elements this costs less than planning a
    subquery, which is a small query.
    """
    found = {}
    for name, values in arrays.items():
        flat = pa.array(values)
        if len(flat) <= _MOST_LITERAL and not flat.null_count:
            found[name] = _literal(flat)
        else:
            # A frame each: the optimizer would copy what it selects from a wider one.
            found[name] = one_row(spark, {name: flat}).scalar()
    return found


def _literal(array: Any) -> Column:
    """An array as one text: for a call of Java an element would take long."""
    texts = [str(value) for value in array.to_pylist()]
    between = next(mark for mark in map(chr, range(1, 0x110000)) if mark not in "".join(texts))
    column = F.split(F.lit(between.join(texts)), f"\\Q{between}\\E")
    # Of a text that is no number, a cast gives null where `spark.sql.ansi.enabled` is off: there
    # Spark refuses the type of an array without nulls.
    return column.cast(ArrayType(_SPARK_TYPES[array.type]))
