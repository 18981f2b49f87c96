"""The key column of a frame: its text as the fleet hashes it, and whether it holds a key at all.

A node hashes the UTF-8 bytes of a ``str`` and ``bytes`` as they are. So a string column is hashed
as UTF-8, a binary column as it is, and an integer column as its decimal digits (Python's
``str(n)``). Everything else is refused: there are many ways to write a float, a date or a
decimal, and a job that picks another one than the fleet sends every key to the wrong node.

A null or empty key has no point, and so no owner (``Ring.owner`` refuses both). Text that holds
a lone surrogate cannot be stored by Spark, which replaces it before this code sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
    StringType,
    TimestampType,
)

from hashring.errors import ColumnError
from hashring.spark.engine.column_checks import check_unpadded, column_type, quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TEXTS: Final = ("csv", "json", "xml")
"""Formats of text, whatever the types of columns."""
_INTEGERS: Final = (ByteType, ShortType, IntegerType, LongType)


def key_text(df: DataFrame, key: str) -> Column:
    """The key in the form that is hashed: string or binary, and null where it has no point.

    Raises:
        ColumnError: the column is missing, of a type that has no one text form, or padded.
    """
    kind = column_type(df, key)
    column = F.col(quoted(key))
    if isinstance(kind, _INTEGERS):
        return column.cast("string")
    if isinstance(kind, StringType):
        check_unpadded(df, key)
        if kind.collation != "UTF8_BINARY":
            # A collated column groups keys that have different bytes, and so different owners.
            column = F.collate(column, "UTF8_BINARY")
        return F.when(F.octet_length(column) > 0, column)
    if isinstance(kind, BinaryType):
        return F.when(F.octet_length(column) > 0, column)
    raise ColumnError(
        key,
        f"is {kind.simpleString()}; a key is string, binary or an integer: cast it to string "
        f"the way the fleet writes it{_example(kind)}",
    )


def _example(kind: DataType) -> str:
    if isinstance(kind, DateType | TimestampType):
        return ", for example with date_format"
    if isinstance(kind, NumericType):
        return ", for example with format_string (Spark writes 1e7 as 1.0E7, Python as 10000000.0)"
    return ""


def check_kept(df: DataFrame, key: str, format: str | None) -> None:
    """Raise ``ColumnError`` if a format holds a binary key as text, which is another key."""
    if format in TEXTS and isinstance(column_type(df, key), BinaryType):
        raise ColumnError(
            key,
            f"is binary, which {format} holds as a text that is another key: write Parquet; if "
            f"others need {format}, write hex({key}) of that",
        )
