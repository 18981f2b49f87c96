"""Whether rows that are appended to files can be read together with those that are there.

A reader takes a directory for files of one format, with the columns of one of them. As soon as it
finds directories ``name=value``, it passes over the files beside them. So what is appended in
another form hides what is there, or is never seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
)

from hashring.errors import ColumnError, OutputRefused
from hashring.spark.engine.column_checks import quoted
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.existing_files import seen_files
from hashring.spark.io.local_paths import exactly
from hashring.spark.lookup.key_points import HASHED_BY, KEYED_BY, WEIGHED_BY

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_ENDINGS: Final = {
    "parquet": "parquet",
    "csv": "csv",
    "json": "json",
    "orc": "orc",
    "avro": "avro",
    "text": "txt",
    "xml": "xml",
}
"""How Spark ends the names of files of each format; of some, the compression follows."""
_LOGS: Final = {"delta": "_delta_log", "hudi": ".hoodie", "iceberg": "metadata/*.metadata.json"}
"""Where tables of formats that are no plain files have their logs, as a pattern."""
_TYPED: Final = ("parquet", "orc")
"""Formats that keep the types of columns. Some types are others in ORC."""
_NAMED: Final = (*_TYPED, "avro", "csv", "json")


def check_no_log(spark: SparkSession, path: str, local: Path | None) -> None:
    """Check that a directory is not a table's that knows its files by a log of its own.

    Raises:
        OutputRefused: it is: readers of the table would not see files beside those of the log.
    """
    for name, log in _LOGS.items():
        if local is not None:
            is_there = next(local.glob(log), None) is not None
        else:
            is_there = seen_files(spark, f"{exactly(path.rstrip('/'))}/{log}") is not None
        if is_there:
            raise OutputRefused(
                path,
                f"it is a table of {name}, whose readers see the files of its log alone",
                f"write to it by the format {name}, or name another place",
            )


def check_form(path: str, files: Iterable[str], format: str, partition_by: Sequence[str]) -> None:
    """Check that files are of a format, in directories named for these columns.

    Args:
        path: of the output, for the error.
        files: as paths in it.

    Raises:
        OutputRefused: some are not.
    """
    wanted = [name.lower() for name in partition_by]
    for file in map(PurePosixPath, files):
        *places, name = file.parts
        other = _formats_of(name) - {format}
        if other and format not in _formats_of(name):
            raise OutputRefused(
                path,
                f"it holds {other.pop()}, and the job writes {format}: nobody could read both",
                "name another place, or the format of the files there",
            )
        columns = [place.partition("=")[0] for place in places]
        if [column.lower() for column in columns] != wanted:
            raise OutputRefused(
                path,
                f"its rows are {_in_directories(columns)}, and the job's would be "
                f"{_in_directories(partition_by)}: readers would see one or the other",
            )


def _formats_of(name: str) -> set[str]:
    parts = name.lower().split(".")[1:]
    return {format for format, ending in _ENDINGS.items() if ending in parts}


def _in_directories(columns: Sequence[str]) -> str:
    if not columns:
        return "in no directories"
    return f"in directories {'/'.join(f'{column}=...' for column in columns)}"


def fitted(  # noqa: PLR0917 - two callers
    df: DataFrame,
    reader: DataFrameReader,
    file: str,
    path: str,
    format: str,
    partition_by: Sequence[str],
) -> DataFrame:
    """The frame with its columns as a file has them, in its order.

    Args:
        reader: with the options of the format.
        file: the address of the file.
        path: of the output, for errors.

    Raises:
        ColumnError: the file has other columns, or others of these types, or of other points.
        OutputRefused: it cannot be read as this format.
    """
    if format not in _NAMED:
        return df
    try:
        there = reader.format(format).load(file).schema
    except SPARK_ERRORS as error:
        raise OutputRefused(path, f"what is there cannot be read as {format}") from error
    parted = {name.lower() for name in partition_by}
    given = {field.name.lower(): field for field in df.schema if field.name.lower() not in parted}
    names = {name.lower() for name in there.names}
    if not names:
        return df  # an empty file
    # JSON leaves out what is null.
    more = [] if format == "json" else set(given) - names
    if more or names - set(given):
        raise ColumnError(
            ", ".join(there.names),
            f"are the columns of {path}; the job writes "
            f"{', '.join(field.name for field in given.values())}: name another",
        )
    if format in _TYPED:
        for field in there:
            _check_alike(field, given[field.name.lower()], path, format)
    in_its_order = [
        *(F.col(quoted(given[name.lower()].name)).alias(name) for name in there.names),
        *(F.col(quoted(field.name)) for name, field in given.items() if name not in names),
    ]
    return df.select(*in_its_order, *map(quoted, partition_by))


def _kept_in_orc(kind: DataType) -> DataType:
    """The type as ORC keeps it: text without its collation, and a user's type as what it holds."""
    if isinstance(kind, UserDefinedType):
        return _kept_in_orc(kind.sqlType())
    if isinstance(kind, StringType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(_kept_in_orc(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(_kept_in_orc(kind.keyType), _kept_in_orc(kind.valueType))
    if isinstance(kind, StructType):
        return StructType([StructField(part.name, _kept_in_orc(part.dataType)) for part in kind])
    return kind


def _check_alike(there: StructField, given: StructField, path: str, format: str) -> None:
    written = _kept_in_orc(given.dataType) if format == "orc" else given.dataType
    kind, given_kind = there.dataType.simpleString(), written.simpleString()
    if kind != given_kind:
        raise ColumnError(there.name, f"is {kind} in {path}; the job writes {given_kind}")
    # Readers have this of one file, and take it for that of all.
    check_points_alike(there, given, path)


def check_points_alike(there: StructField, given: StructField, place: str) -> None:
    """Check that two columns of points are made alike, as far as both say how.

    Args:
        place: the path or table that has the first one.

    Raises:
        ColumnError: they are not.
    """
    if HASHED_BY not in there.metadata or HASHED_BY not in given.metadata:
        return
    for name in (HASHED_BY, KEYED_BY, WEIGHED_BY):
        was, now = there.metadata.get(name), given.metadata.get(name)
        if was != now:
            raise ColumnError(
                there.name,
                f"is made by {name}={was} in {place}; the job makes it by {name}={now}: name "
                f"another output",
            )
