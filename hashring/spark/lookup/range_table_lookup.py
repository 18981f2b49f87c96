"""A range table as columns: which range each number of a column is in.

There are two ways to bring a table to the rows. Both leave the rows and their partitioning as
they are, and both are generated code without a join on a key.

:func:`code_at` gives one expression, and :func:`with_code` the same as columns of a frame. The
arrays are scalar subqueries, or literals where they are small, so nothing travels with the rows,
filters before and after are pushed as for any column, and a frame may have any number of columns.
Each task receives a copy of the arrays. A filter by the code would be written out where it is
pushed to, with every level as often as it is used, and Spark evaluates each of them, and once more
for the rows that pass. So the code that :func:`with_code` adds passes through an ``explode`` of one
element, below which Spark pushes only filters by other columns.

:func:`look_up` adds columns to a narrow frame. The arrays come as one broadcast row, of which an
executor holds one copy for all its tasks: for tables that are larger than a task should be. The
row must not reach the end of a stage, where it would be copied into every row: each lookup drops
an array in the projection that uses it last. Nothing is pushed through its result either.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from operator import add
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.spark.engine.arrays_to_spark import one_row
from hashring.spark.engine.column_checks import quoted
from hashring.spark.engine.sql_expressions import Sql, SqlFunctions
from hashring.spark.lookup.range_table import RESOLVED, RangeTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_ROOT = "__hashring_root"
_CODES = "__hashring_codes"
_WORD = "__hashring_word"
MOST_REPEATED = 2**13
"""Words of a table that a plan may hold once for each use of a code."""
_NO_BLOCK = 2**31 - 2**8
"""Beyond any array: what is read there is null."""


def table_arrays(table: RangeTable) -> dict[str, Any]:
    """The arrays of a table, by the names that the expressions here give them."""
    arrays = {_ROOT: table.root}
    arrays |= {_level(index): words for index, words in enumerate(table.levels)}
    return arrays if table.codes is None else {**arrays, _CODES: table.codes}


def _level(index: int) -> str:
    return f"__hashring_level{index}"


def code_at(number: Any, table: RangeTable, arrays: Mapping[str, Any], functions: Any = F) -> Any:
    """The code of a number as one expression, null where the number is.

    Args:
        number: BIGINT, in ``[0, 2**table.bits)`` or null.
        arrays: expressions for :func:`table_arrays`, each used once.
        functions: ``pyspark.sql.functions`` for columns, :class:`SqlFunctions` for SQL.

    Returns:
        BIGINT, INT or SMALLINT, as the table's codes are.
    """
    return _walk(number, table, arrays, functions, lambda _, word: word)[-1]


def _walk(
    number: Any,
    table: RangeTable,
    arrays: Mapping[str, Any],
    functions: Any,
    named: Callable[[int, Any], Any],
) -> list[Any]:
    """The words from the root down, and the code. Each but the code reads the next array.

    Args:
        named: gives what stands for a word in the next expression, by its place and itself.
    """
    index = functions.shiftright(number, table.offset_bits).cast("int")
    found = [functions.get(arrays[_ROOT], index)]
    for level, (shift, step) in enumerate(zip(table.shifts, table.step_bits, strict=True)):
        word, array = named(level, found[-1]), arrays[_level(level)]
        found.append(_below(number, word, array, shift=shift, step=step, functions=functions))
    word = named(len(table.levels), found[-1])
    return [*found, _code(number, word, table, arrays, functions)]


def _code(
    number: Any, word: Any, table: RangeTable, arrays: Mapping[str, Any], functions: Any
) -> Any:
    """What a resolved word says of a number."""
    width = table.offset_bits
    mask = (1 << width) - 1
    offset = number.bitwiseAND(mask)
    slots = [
        (functions.shiftright(word, slot * width).bitwiseAND(mask) < offset).cast("int")
        for slot in range(table.slots)
    ]
    if table.code_bits:
        # The code stands as many places above the slots as boundaries are below the number.
        place = reduce(add, slots) * table.code_bits + table.slots * width
        shifted = functions.call_function("shiftright", word, place)
        return shifted.bitwiseAND((1 << table.code_bits) - 1)
    rank = functions.shiftright(word.bitwiseAND(RESOLVED - 1), table.slots * width)
    rank = reduce(add, slots, rank)
    return rank if table.codes is None else functions.get(arrays[_CODES], rank.cast("int"))


def _below(number: Any, word: Any, array: Any, *, shift: int, step: int, functions: Any) -> Any:
    """The word of the next level; the same word where it holds a rank already."""
    # A word with a rank is far beyond the end of the array, where `get` finds null.
    block = functions.least(word, functions.lit(_NO_BLOCK))
    at = block + functions.shiftright(number, shift).bitwiseAND((1 << step) - 1)
    return functions.coalesce(functions.get(array, at.cast("int")), word)


def code_steps(number: str, table: RangeTable, arrays: Mapping[str, Column]) -> tuple[Column, ...]:
    """The expressions of :func:`with_code`, each of the word of the one before.

    Building them takes longer than planning with them: keep them.

    Args:
        number: a BIGINT column, in ``[0, 2**table.bits)`` or null.
        arrays: columns for :func:`table_arrays`.
    """
    at = F.col(quoted(number))
    *words, code = _walk(at, table, arrays, F, lambda level, _: F.col(_word(level)))
    return *(word.alias(_word(level)) for level, word in enumerate(words)), code


def _word(index: int) -> str:
    return f"{_WORD}{index}"


def code_columns(steps: Sequence[Column], code: str) -> tuple[Column, ...]:
    """The steps as columns of one ``select``, which has the number, too; the code is the last.

    Spark makes a projection a level of it, since a column may name those before it. A ``select``
    for each of them would analyse the whole plan as often.

    Args:
        steps: see :func:`code_steps`.
    """
    *words, found = steps
    return *words, found.alias(code)


def with_code(
    df: DataFrame, table: RangeTable, steps: Sequence[Column], code: str, *, filtered: bool = True
) -> DataFrame:
    """Add the code of each number to a frame: :func:`code_at`, with a projection a level.

    So each array is in one place of the plan.

    Args:
        steps: see :func:`code_steps`.
        code: the name of the column to add, an integer; null where the number is.
        filtered: whether somebody may filter by the code or by what is told of it.
    """
    *words, found = steps
    if not filtered:
        out = df.select("*", *code_columns(steps, code))
    else:
        out = df.select("*", *words).select("*", F.explode(F.array(found)).alias(code))
    return out.drop(*(_word(index) for index in range(len(words))))


def look_up(df: DataFrame, number: str, table: RangeTable, code: str) -> DataFrame:
    """Add the code of each number from a broadcast row.

    Args:
        number: a BIGINT column, in ``[0, 2**table.bits)`` or null.
        code: the name of the column to add, BIGINT; null where the number is.

    The rows, their order and their partitioning stay as they are.
    """
    arrays = table_arrays(table)
    kept, left = [quoted(name) for name in df.columns], list(arrays)
    # As text, since each call of a function of columns goes to Java and back.
    names = {name: Sql(name) for name in arrays}
    at = Sql(quoted(number))
    *words, found = _walk(at, table, names, SqlFunctions, lambda *_: Sql(_WORD))
    out = df.crossJoin(F.broadcast(one_row(df.sparkSession, arrays)))
    for word in words:
        del left[0]
        out = out.selectExpr(*kept, *left, f"{word} AS {_WORD}")
    told = f"if(spark_partition_id() >= 0, {found.cast('bigint')}, NULL)"
    return out.selectExpr(*kept, f"{told} AS {quoted(code)}")


def told_of(df: DataFrame, code: str, attributes: Mapping[str, Any]) -> DataFrame:
    """Put what is attributed to a code in its place, from a broadcast row.

    Args:
        code: a BIGINT column, or null.
        attributes: for each column to add, an array (numpy, Arrow or a list) indexed by code.

    The rows, their order and their partitioning stay as they are.
    """
    held = {f"{_CODES}_{name}": array for name, array in attributes.items()}
    row = one_row(df.sparkSession, held)
    index = Sql(quoted(code)).cast("int")
    return df.crossJoin(F.broadcast(row)).selectExpr(
        *(quoted(name) for name in df.columns if name != code),
        *(
            f"{SqlFunctions.get(quoted(array), index)} AS {quoted(name)}"
            for array, name in zip(held, attributes, strict=True)
        ),
    )
