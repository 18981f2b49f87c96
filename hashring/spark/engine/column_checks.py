"""Whether a frame has the columns that it must have, of the right types; and their names quoted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql.types import DataType, NumericType, StringType

from hashring.core.safe_text import printable
from hashring.errors import ColumnError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

_SHOWN_NAMES: Final = 40
_SHOWN_NAME: Final = 60
_OWN: Final = "__hashring"


def quoted(name: str) -> str:
    """A column's name as Spark reads it, whatever dots and backticks it holds."""
    return "`" + name.replace("`", "``") + "`"


def column_type(df: DataFrame, name: str) -> DataType:
    """The type of a column. Raise ``ColumnError`` if there is none of that name, or several."""
    found = [field.dataType for field in df.schema.fields if field.name == name]
    if not found:
        raise ColumnError(name, f"is missing; the columns are {_names(df)}")
    if len(found) > 1:
        raise ColumnError(name, "is there more than once: rename one of them")
    return found[0]


def char_type(field: StructField) -> str | None:
    """The type of a column of CHAR, such as ``char(8)``; in a frame it is STRING. Else ``None``."""
    told: str = field.metadata.get("__CHAR_VARCHAR_TYPE_STRING", "")
    return told if told.startswith("char(") else None


def check_unpadded(df: DataFrame, name: str) -> None:
    """Raise ``ColumnError`` for a column of CHAR, which Spark pads with blanks to its length."""
    if told := char_type(df.schema[name]):
        raise ColumnError(
            name,
            f"is {told}, which Spark pads with blanks, and so another text: give rtrim({name}) "
            f"under a name, or make the column VARCHAR or STRING",
        )


def _names(df: DataFrame) -> str:
    shown = [printable(column)[:_SHOWN_NAME] for column in df.columns[:_SHOWN_NAMES]]
    more = len(df.columns) - len(shown)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])]) or "none"


def check_free(df: DataFrame, *names: str) -> None:
    """Raise ``ColumnError`` if a column about to be added is there, whatever its case."""
    present = {column.lower() for column in df.columns}
    for name in names:
        if name.lower() in present:
            raise ColumnError(name, "is there already, and would be hidden: rename or drop it")


def check_not_own(df: DataFrame) -> None:
    """Raise ``ColumnError`` for a name that Spark would take for a column of a lookup."""
    for name in df.columns:
        if name.lower().startswith(_OWN):
            raise ColumnError(name, f"begins with {_OWN}, as columns of the lookup do: rename it")


def check_number(df: DataFrame, name: str) -> None:
    """Raise ``ColumnError`` unless a column is there, of numbers, or of text as in a CSV."""
    kind = column_type(df, name)
    if not isinstance(kind, NumericType | StringType):
        raise ColumnError(name, f"is {kind.simpleString()}; a weight is a number: cast it")


def check_distinct(df: DataFrame) -> None:
    """Raise ``ColumnError`` for columns of one name, whatever its case: no file holds both."""
    seen: set[str] = set()
    for name in df.columns:
        if name.lower() in seen:
            raise ColumnError(name, "is there more than once: rename one of them")
        seen.add(name.lower())
