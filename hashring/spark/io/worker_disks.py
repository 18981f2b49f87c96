"""Whether all rows that a job wrote are where the driver sees them.

A path without a scheme names a disk of each worker. Workers on other machines then write where the
driver never looks, and Spark reports success.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException, IllegalArgumentException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.errors import OutputRefused
from hashring.spark.io.file_formats import FILE_FORMATS, QUOTES_DOUBLED
from hashring.spark.io.local_paths import exactly, is_local_by_default, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from hashring.spark.engine.counts_while_read import Counts

PRESENT: Final = {"ignoreMissingFiles": True}
"""An option for readers. The driver may list files that only some of the workers find."""
SHARED: Final = "name a path that all of them share, such as s3a://... or a network disk"
OWN_DISKS: Final = "Spark's workers write to disks of their own"
_OF_READERS: Final = (
    "comment",
    "header",
    "mode",
    "modifiedafter",
    "modifiedbefore",
    "multiline",
    "pathglobfilter",
    "wholetext",
)
"""Options, in small letters, that change how many rows a reader finds, not how many are written."""


def is_on_workers(spark: SparkSession, path: str | None) -> bool:
    """Whether a path is of a disk that each worker may have for itself."""
    if path is None or (scheme := scheme_of(path)) not in (None, "file"):
        return False
    master = spark.conf.get("spark.master", "local") or "local"
    if master.startswith("local") and not master.startswith("local-cluster"):
        return False
    return scheme is not None or is_local_by_default(spark)


def rows_written(written: Counts, on_workers: bool) -> int | None:
    """How many rows a job wrote; ``None`` if they were not counted as they were written.

    If the input has grown, a second read finds more rows, which no other job took away. For disks
    of workers it is made: rows that stay there are lost to all readers.
    """
    found = written.get() if on_workers else written.observed()
    return None if found is None else found["rows"]


def count_of_files(df: DataFrame, name: str) -> int:
    """How many rows are in the files whose names begin so, of those that a worker finds."""
    try:
        # Spark reads no other files.
        return df.where(F.col("_metadata.file_name").contains(name)).count()
    except AnalysisException:  # a table in a format of Hive's
        return df.where(F.input_file_name().contains(name)).count()


def rows_there(
    spark: SparkSession,
    place: str,
    *,
    format: str,
    options: Mapping[str, str] | None = None,
    name: str = "",
) -> int:
    """How many rows a directory has; see :func:`check_whole`."""
    reader = spark.read.format(format).options(header=True, **PRESENT)
    given = dict(options or {})
    if format in FILE_FORMATS:
        # Rows are counted by any schema. To find theirs, Spark would read the files another way,
        # in which brackets of a path are a pattern.
        reader = reader.schema("value string")
        given = {name: value for name, value in given.items() if name.lower() not in _OF_READERS}
    if format == "csv":
        reader = reader.options(multiLine=True, **QUOTES_DOUBLED)
    if format == "json":
        reader = reader.option("lineSep", "\n")  # as the writer's, unless given
    try:
        there = reader.options(**given).load(exactly(place))
        return count_of_files(there, name)
    except AnalysisException:
        return 0  # not a file is there to read the columns from
    except IllegalArgumentException:
        return 0  # writers take encodings that readers do not


def check_whole(
    spark: SparkSession,
    place: str,
    rows: int,
    *,
    format: str,
    path: str,
    options: Mapping[str, str] | None = None,
    name: str = "",
    why: str = OWN_DISKS,
    remedy: str = SHARED,
) -> None:
    """Check that all rows that were written to a directory are there.

    Args:
        place: the directory that was written.
        rows: how many were written.
        path: the output as the user named it.
        options: of the format, with which it was written.
        name: with which the names of the written files begin, where others are there, too.
        why: why some may be missing; empty if it may be that the options hide them from readers.
        remedy: what to do then.

    Raises:
        OutputRefused: some are not there.
    """
    found = rows_there(spark, place, format=format, options=options, name=name)
    # More would be of an option that this reader takes otherwise, and none is lost.
    check_count(min(found, rows), rows, path, why, remedy)


def check_count(  # noqa: PLR0917 - as the error has them
    found: int, rows: int, path: str, why: str, remedy: str, what: str = "rows"
) -> None:
    """Raise ``OutputRefused`` unless as many rows were found as were written."""
    if found != rows:
        told = f"are there: {why}" if why else "could be read back"
        raise OutputRefused(path, f"{found:,} of {rows:,} {what} {told}", remedy)
