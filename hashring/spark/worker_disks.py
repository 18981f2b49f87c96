"""Whether all rows that Spark's workers wrote are where the driver sees them.

A path without a scheme names a disk of each worker. Workers on other machines then write where the
driver never looks, and Spark reports success.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException

from hashring.errors import OutputRefused
from hashring.spark.input import QUOTES_DOUBLED, exactly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SHARED = "name a path that all of them share, such as s3a://... or a network disk"


def is_on_workers(spark: SparkSession, path: str | None) -> bool:
    """Whether a path is of a disk that each worker may have for itself."""
    if path is None or (":" in path and not path.startswith("file:")):
        return False
    master = spark.conf.get("spark.master", "local") or "local"
    return master.startswith("local-cluster") or not master.startswith("local")


def check_whole(
    spark: SparkSession,
    place: str,
    rows: int,
    *,
    format: str,
    path: str,
    options: Mapping[str, str] | None = None,
) -> None:
    """Check that all rows that were written to a directory are there.

    Args:
        place: the directory that was written.
        rows: how many were written.
        path: the output as the user named it.
        options: of the format, with which it was written.

    Raises:
        OutputRefused: some are not there.
    """
    reader = spark.read.format(format).option("header", True)
    if format == "csv":
        reader = reader.options(multiLine=True, **QUOTES_DOUBLED)
    try:
        found = reader.options(**(options or {})).load(exactly(place)).count()
    except AnalysisException:
        found = 0  # not a file is there to read the columns from
    # More would be of an option that this reader takes otherwise, and none is lost.
    check_count(min(found, rows), rows, path)


def check_count(
    found: int, rows: int, path: str, what: str = "rows", advice: str = _SHARED
) -> None:
    """Check that as many rows were found as were written.

    Raises:
        OutputRefused: there are not.
    """
    if found != rows:
        raise OutputRefused(
            path,
            f"{found:,} of {rows:,} {what} are there: Spark's workers write to disks of their "
            f"own; {advice}",
        )
