"""Whether rows that are appended to files can be read together with those that are there.

A reader takes a directory for files of one format, with the columns of one of them. As soon as it
finds directories ``name=value``, it passes over the files beside them. So what is appended in
another form hides what is there, or is never seen.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

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

from hashring.core.safe_text import printable
from hashring.errors import ColumnError, OutputRefused
from hashring.spark.column_checks import quoted
from hashring.spark.directory_columns import addresses
from hashring.spark.input import NO_PATH, exactly
from hashring.spark.key_points import HASHED_BY, KEYED_BY, WEIGHED_BY
from hashring.spark.spark_failures import SPARK_ERRORS

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
_SEEN: Final = "{[^._]*,_*=*}"
"""Names that readers look at, as a pattern of Hadoop's: see :func:`is_seen`."""
_TYPED: Final = ("parquet", "orc")
"""Formats that keep the types of columns. Some types are others in ORC."""
_NAMED: Final = (*_TYPED, "avro", "csv", "json")


def files_there(spark: SparkSession, path: str, local: Path | None) -> list[str]:
    """The files below a directory that readers see, as paths in it, the smallest first.

    Elsewhere than on this machine's file system, the order is Spark's. Empty files are left out
    where their size is known.
    """
    if local is None:
        return list(filter(in_directories_of_columns, _files_of_spark(spark, path)))
    sizes = {}
    entered = set()
    for place, directories, names in os.walk(local, followlinks=True):
        # A link may lead back to where it is.
        if (real := os.path.realpath(place)) in entered:
            directories.clear()
            continue
        entered.add(real)
        directories[:] = filter(is_seen, directories)
        for name in filter(is_seen, names):
            file = os.path.join(place, name)
            with suppress(FileNotFoundError):  # taken away while we looked
                sizes[os.path.relpath(file, local)] = os.stat(file).st_size
    found = filter(in_directories_of_columns, filter(sizes.get, sizes))
    return sorted(found, key=lambda file: (sizes[file], file))


def in_directories_of_columns(file: str) -> bool:
    """Whether readers see it: they pass over the files of other directories."""
    return all("=" in place for place in PurePosixPath(file).parts[:-1])


def is_seen(name: str) -> bool:
    """Whether readers of a directory look at what has this name in it."""
    return not name.startswith(".") and (not name.startswith("_") or "=" in name)


def _files_of_spark(spark: SparkSession, path: str) -> list[str]:
    return sorted(_within(path, address) for address in addresses_there(spark, path))


def addresses_there(spark: SparkSession, path: str) -> list[str]:
    """The addresses of the files of rows below a directory, as Spark writes them."""
    # This format alone is listed without a look into the files.
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", True)
    try:
        found = addresses(reader.load(exactly(path)))
    except SPARK_ERRORS as error:
        if NO_PATH in str(error):
            return []
        raise
    # Spark also lists the summaries of Parquet: _metadata and _common_metadata.
    return [address for address in found if not posixpath.basename(address).startswith("_")]


def _within(path: str, address: str) -> str:
    """The path of a file in a directory.

    Args:
        path: of the directory, as it was given, such as ``a//b`` for what Spark calls ``a/b``.
        address: of the file.

    Raises:
        OutputRefused: the file is not in that directory, as far as the names tell.
    """
    file, place = unquote(_without_scheme(address)), _without_scheme(path)
    if place.startswith("/") or place != path:
        base = posixpath.normpath(f"/{place.lstrip('/')}").rstrip("/")
        if file.startswith(f"{base}/"):
            return file.removeprefix(f"{base}/")
    else:
        # Spark alone knows from where a relative path leads.
        base = re.sub(r"\A(\.\./)+", "", posixpath.normpath(place))
        _, found, rest = file.rpartition(f"/{base}/")
        if found:
            return rest
    raise OutputRefused(
        path, f"Spark finds {printable(address)} there", "name a directory, by its whole address"
    )


def is_empty(spark: SparkSession, path: str) -> bool:
    """Whether nothing is at a path, or a directory that holds nothing, not even hidden files.

    Spark leaves such a directory of a job that failed.
    """
    return not seen_files(spark, exactly(path.rstrip("/"))) and _has_nothing(spark, path)


def has_no_rows(spark: SparkSession, path: str, local: Path | None) -> bool:
    """Whether readers find no name to look at in a directory. A file is no such directory.

    Args:
        local: where the path is on this machine's file system.
    """
    if local is not None:
        return not local.exists() or (local.is_dir() and not any(map(is_seen, os.listdir(local))))
    place = exactly(path.rstrip("/"))
    # The first names what is in a directory, and a file itself.
    return not seen_files(spark, place) and seen_files(spark, f"{place}/{_SEEN}") is None


def is_empty_directory(spark: SparkSession, path: str) -> bool:
    """Whether a directory is at a path, and holds nothing, not even hidden files."""
    return seen_files(spark, exactly(path.rstrip("/"))) == [] and _has_nothing(spark, path)


def _has_nothing(spark: SparkSession, path: str) -> bool:
    # The pattern matches hidden names, too, such as that of what is not committed.
    return seen_files(spark, f"{exactly(path.rstrip('/'))}/*") is None


def seen_files(spark: SparkSession, pattern: str) -> list[str] | None:
    """The files at a path or a pattern, or in such directories, without hidden ones.

    ``None`` if not even a directory is there.
    """
    try:
        return addresses(spark.read.format("binaryFile").load(pattern))
    except SPARK_ERRORS as error:
        if NO_PATH in str(error):
            return None
        raise


def _without_scheme(address: str) -> str:
    return re.sub(r"^[A-Za-z][\w+.-]*:(//[^/]*)?", "", address)


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
