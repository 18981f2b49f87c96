"""Whether all rows that a job wrote are where the driver sees them.

A path without a scheme names a disk of each worker. Workers on other machines then write where the
driver never looks, and Spark reports success.

Jobs of Spark that append to one directory at the same time keep what they have not committed in one
place. The first that ends commits what others have there by then, and takes away the rest. So
another may lose rows, and Spark may report success.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.errors import OutputRefused
from hashring.spark.input import FILE_FORMATS, QUOTES_DOUBLED, exactly, is_local_by_default

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FILE_NAME: Final = "mapreduce.output.basename"
"""The setting, or the option of a format of files, with which the names of files begin."""
PRESENT: Final = {"ignoreMissingFiles": True}
"""An option for readers. The driver may list files that only some of the workers find."""
_SHARED: Final = "name a path that all of them share, such as s3a://... or a network disk"
OWN_DISKS: Final = "Spark's workers write to disks of their own"
ANOTHER: Final = "another job appended at the same time"
_PROTOCOL: Final = "spark.sql.sources.commitProtocolClass"
_NAMING_PROTOCOLS: Final = ("SQLHadoopMapReduceCommitProtocol", "PathOutputCommitProtocol")
"""Those of Spark, which name files as they are told. A platform's own may not."""


def is_on_workers(spark: SparkSession, path: str | None) -> bool:
    """Whether a path is of a disk that each worker may have for itself."""
    if path is None or (":" in path and not path.startswith("file:")):
        return False
    master = spark.conf.get("spark.master", "local") or "local"
    if master.startswith("local") and not master.startswith("local-cluster"):
        return False
    return ":" in path or is_local_by_default(spark)


def new_file_name(spark: SparkSession) -> str:
    """A beginning of files' names that no other job gives; empty if Spark cannot be told one."""
    protocol = spark.conf.get(_PROTOCOL, None) or _NAMING_PROTOCOLS[0]
    return f"part-{uuid.uuid4().hex[:8]}" if protocol.endswith(_NAMING_PROTOCOLS) else ""


def beside_another(name: str) -> str:
    """The remedy for rows missing of those appended in files whose names begin so."""
    return f"append those that are not in files {name}*"


def count_of_files(df: DataFrame, name: str) -> int:
    """How many rows are in the files whose names begin so, of those that a worker finds."""
    try:
        # Spark reads no other files.
        return df.where(F.col("_metadata.file_name").contains(name)).count()
    except AnalysisException:  # a table in a format of Hive's
        return df.where(F.input_file_name().contains(name)).count()


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
    remedy: str = _SHARED,
) -> None:
    """Check that all rows that were written to a directory are there.

    Args:
        place: the directory that was written.
        rows: how many were written.
        path: the output as the user named it.
        options: of the format, with which it was written.
        name: with which the names of the written files begin, where others are there, too.
        why: why some may be missing.
        remedy: what to do then.

    Raises:
        OutputRefused: some are not there.
    """
    reader = spark.read.format(format).options(header=True, **PRESENT)
    if format in FILE_FORMATS:
        # Rows are counted by any schema. To find theirs, Spark would read the files another way,
        # in which brackets of a path are a pattern.
        reader = reader.schema("value string")
    if format == "csv":
        reader = reader.options(multiLine=True, **QUOTES_DOUBLED)
    try:
        there = reader.options(**(options or {})).load(exactly(place))
        found = count_of_files(there, name)
    except AnalysisException:
        found = 0  # not a file is there to read the columns from
    # More would be of an option that this reader takes otherwise, and none is lost.
    check_count(min(found, rows), rows, path, why, remedy)


def check_count(  # noqa: PLR0917 - as the error has them
    found: int, rows: int, path: str, why: str, remedy: str, what: str = "rows"
) -> None:
    """Raise ``OutputRefused`` unless as many rows were found as were written."""
    if found != rows:
        raise OutputRefused(path, f"{found:,} of {rows:,} {what} are there: {why}", remedy)
