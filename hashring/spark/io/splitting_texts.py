"""Texts that the format of a table reads back as something else: as two rows, or as null."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import StringType

from hashring.errors import OutputRefused
from hashring.spark.engine.column_checks import quoted
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.catalog_tables import detail_of, options_of, properties_of, provider_of
from hashring.spark.io.encodings import check_table_encoding

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

WHOLE_TEXTS: Final[dict[str, bool | str]] = {"multiLine": True, "lineSep": "\n"}
"""Options of a table of CSV that keeps line breaks. Without the second, Spark takes the first line
break that it meets for the end of all lines, also one in a key."""
_SPLIT: Final = "HASHRING_SPLIT_TEXT"
_LINES_OF_HIVE: Final = ("LazySimpleSerDe", "OpenCSVSerde")
"""The ends of the names of Hive's formats that have a row a line, and no quotes for line breaks."""
_AS_WRITTEN: Final = '"'
"""The escape of OpenCSVSerde, unless told. It writes by it, but then reads by a backslash."""
_CSV: Final = (
    "ALTER TABLE {table} SET SERDEPROPERTIES ('multiLine'='true', 'lineSep'='\\n') lets it keep "
    "line breaks; or name a table of Parquet"
)


def without_splits(df: DataFrame, table: str) -> DataFrame:
    """The frame, which fails as it is written if a table cannot keep one of its texts.

    Write it within :func:`splits_refused`.

    Raises:
        ConfigError: the table is a CSV of an encoding that Spark would split within characters.
    """
    texts = {field.name for field in df.schema if isinstance(field.dataType, StringType)}
    pattern = _split_by(df.sparkSession, table)
    if pattern is None or not texts:
        return df

    def whole(name: str) -> Column:
        text = F.col(quoted(name))
        # Cast, because a text with a collation has no patterns.
        is_split = text.cast("string").rlike(pattern)
        told = F.raise_error(F.lit(f"{_SPLIT}<{name}>"))
        return F.when(is_split, told).otherwise(text).alias(name)

    return df.select(*(whole(name) if name in texts else quoted(name) for name in df.columns))


@contextmanager
def splits_refused(spark: SparkSession, table: str) -> Iterator[None]:
    """Raise ``OutputRefused`` if a table cannot keep a text of :func:`without_splits`."""
    try:
        yield
    except SPARK_ERRORS as error:
        if not (found := re.search(rf"{_SPLIT}<(.*)>", str(error))):
            raise
        is_csv = provider_of(spark, table) == "csv"
        what = "a line break" if is_csv else "a line break, a separator of fields or a backslash"
        raise OutputRefused(
            table,
            f"a text of column {found[1]} holds {what}, or is the table's text for null, and would "
            f"be read back as something else",
            _CSV.format(table=table) if is_csv else "name a table of Parquet",
        ) from error


def _split_by(spark: SparkSession, table: str) -> str | None:
    """A pattern of the texts that a table cannot keep; ``None`` if it keeps all."""
    provider = provider_of(spark, table)
    if provider not in ("csv", "hive"):
        return None
    options = options_of(spark, table)
    if provider == "csv":
        check_table_encoding(options, table)
        null, ends = options.get("nullvalue"), options.get("linesep")
        if options.get("multiline", "").lower() == "true":
            return _pattern("" if ends else "\r", null)
        return _pattern(f"\r\n{ends or ''}", null)
    serde = detail_of(spark, table, "Serde Library") or ""
    if not serde.endswith(_LINES_OF_HIVE):
        return None
    told = properties_of(spark, table) | options  # Hive goes by both
    if serde.endswith("OpenCSVSerde"):
        is_default = told.get("escapechar", _AS_WRITTEN) == _AS_WRITTEN
        return _pattern("\r\n\\" if is_default else "\r\n")
    null = told.get("serialization.null.format")
    if "escape.delim" in told:
        return _pattern("\r\n", null)
    return _pattern(f"\r\n{told.get('field.delim', chr(1))}", null or "\\N")


def _pattern(characters: str, null: str | None = None) -> str | None:
    """A pattern of the texts that hold one of the characters, or are the one for null."""
    either = [f"[{_escaped(characters)}]"] if characters else []
    if null:
        either.append(f"^{_escaped(null)}\\z")
    return "|".join(either) or None


def _escaped(characters: str) -> str:
    return "".join(f"\\x{{{ord(character):x}}}" for character in characters)
