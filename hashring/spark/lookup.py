"""A cell table as columns: which range each number of a column is in.

The table travels as one broadcast row that holds the array; the lookup is a projection a level.

Two properties of Spark's optimizer shape the code. It substitutes a column's definition for
every use of the column when it pushes a filter down, and each level uses the level above three
times, so a filter on the result would grow exponentially in the levels. The result is therefore
wrapped in an expression that is formally nondeterministic (always true), through which nothing
is pushed: a filter on the result costs what any filter costs. And a column that holds the array
must not reach the end of a stage, where it would be copied into every row: each lookup drops it
in the projection that uses it last.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from hashring.spark.keys import quoted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from hashring.spark.cells import CellTable

_CELLS = "__hashring_cells"
_WORD = "__hashring_word"
_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
}


def one_row(spark: SparkSession, arrays: Mapping[str, Any]) -> DataFrame:
    """A frame of one row whose columns hold these whole arrays.

    Without a null inside, the array is declared so, which spares a check in every lookup.
    """
    columns, fields = {}, []
    for name, values in arrays.items():
        flat = pa.array(values)
        columns[name] = pa.ListArray.from_arrays(pa.array([0, len(flat)], pa.int32()), flat)
        items = ArrayType(_SPARK_TYPES[flat.type], containsNull=flat.null_count > 0)
        fields.append(StructField(name, items, nullable=False))
    return spark.createDataFrame(pa.table(columns), schema=StructType(fields))


def look_up(
    df: DataFrame,
    number: str,
    table: CellTable,
    code: str,
    attributes: Mapping[str, Any] | None = None,
    *,
    keep_code: bool = True,
) -> DataFrame:
    """Add the code of each number, and what is attributed to it.

    Args:
        number: a BIGINT column, in ``[0, 2**table.bits)`` or null.
        code: the name of the column to add, BIGINT; null where the number is.
        attributes: for each column to add, an array (numpy, Arrow or a list) indexed by code.
        keep_code: whether the code itself stays in the result.

    The rows, their order and their partitioning stay as they are.
    """
    attributes = dict(attributes or {})
    row = one_row(
        df.sparkSession,
        {_CELLS: table.cells, **{f"{_CELLS}_{n}": a for n, a in attributes.items()}},
    )
    kept = [quoted(name) for name in df.columns]
    held = [quoted(f"{_CELLS}_{name}") for name in attributes]
    at, code_bits = quoted(number), table.code_bits
    mask = (1 << code_bits) - 1

    # As text, since each call of a function of columns goes to Java and back.
    out = df.crossJoin(F.broadcast(row)).selectExpr(
        *kept, *held, _CELLS, f"{_get(_CELLS, f'shiftright({at}, {table.offset_bits})')} AS {_WORD}"
    )
    for shift, step in zip(table.shifts, table.step_bits, strict=True):
        below = f"(shiftright({at}, {shift}) & {(1 << step) - 1}) - {_WORD}"
        out = out.selectExpr(
            *kept, *held, _CELLS, f"if({_WORD} < 0, {_get(_CELLS, below)}, {_WORD}) AS {_WORD}"
        )
    after = f"({at} & {(1 << table.offset_bits) - 1}) >= shiftright({_WORD}, {2 * code_bits})"
    found = f"if({after}, shiftright({_WORD}, {code_bits}), {_WORD}) & {mask}"
    out = out.selectExpr(
        *kept, *held, f"if(spark_partition_id() >= 0, {found}, NULL) AS {quoted(code)}"
    )
    if not attributes:
        return out
    told = (
        f"{_get(array, quoted(code))} AS {quoted(name)}"
        for array, name in zip(held, attributes, strict=True)
    )
    return out.selectExpr(*kept, *([quoted(code)] if keep_code else []), *told)


def _get(array: str, index: str) -> str:
    return f"get({array}, CAST({index} AS INT))"
