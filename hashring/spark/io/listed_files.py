"""Which files Spark lists, and which of them it reads.

Of ``day=1/a.parquet`` Spark makes a column ``day``. A file beside ``day=1`` has no such column, and
Spark leaves it out without a word. Where it makes no columns of directories, it reads the files
directly in those that it is given, as often as it is given them, and none in directories within.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import StructType

from hashring.errors import ConfigError
from hashring.spark.engine.session import is_connect
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.local_paths import NO_PATH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

_COLUMN: Final = re.compile(r"/[^/=]+=[^/]*(?=/|$)")
"""A directory that is named for a column."""


class Beside(NamedTuple):
    """A file beside a directory that is named for a column.

    Attributes:
        place: the address of the directory that holds both.
        file, directory: their names.
    """

    place: str
    file: str
    directory: str

    def error(self) -> ConfigError:
        """The error for a file that Spark does not read."""
        place, file, directory = map(unquote, self)
        return ConfigError(
            "input",
            place,
            f"holds the file {file} beside the directory {directory}, and then Spark reads only "
            f"such directories: move the file into one, or name all by a pattern",
        )


def files_beside_columns(addresses: Iterable[str]) -> list[Beside]:
    """The first file of each place that also holds directories of columns."""
    # Directories are few, and files may be a million.
    first: dict[str, str] = {}
    for address in addresses:
        place, _, file = address.rpartition("/")
        if place not in first and is_seen(file):
            first[place] = file
    columns = {
        place[: found.start()]: found[0] for place in first for found in _COLUMN.finditer(place)
    }
    return [
        Beside(place, file, columns[place][1:]) for place, file in first.items() if place in columns
    ]


def is_seen(name: str) -> bool:
    """Whether readers of a directory look at what has this name in it.

    Spark also lists the summaries of Parquet, such as ``_metadata``, and does not read them.
    """
    return not name.startswith(".") and (not name.startswith("_") or "=" in name)


def check_all_read(
    frame: DataFrame, paths: Sequence[str], options: Mapping[str, str] | None
) -> None:
    """Raise ``ConfigError`` if Spark leaves out files that are beside directories of columns.

    Args:
        frame: of these paths and options.
    """
    found = files_beside_columns(addresses(frame))
    # Of files that were given themselves, Spark makes no columns and reads all.
    if found and listed(frame.sparkSession, paths, options).columns:
        raise found[0].error()


def check_each_read_once(
    frame: DataFrame,
    paths: Sequence[str],
    options: Mapping[str, str] | None,
    *,
    may_repeat: bool = False,
) -> None:
    """Check that Spark leaves out no file in directories within others, and reads none twice.

    Args:
        frame: of these paths and options; :func:`check_all_read` has checked it.
        may_repeat: whether several paths may name one file.

    Raises:
        ConfigError: it does.
    """
    spark, read = frame.sparkSession, set(addresses(frame))
    if any(map(_COLUMN.search, read)) and listed(spark, paths, options).columns:
        return  # it reads each file in directories that are named for columns, and once
    for path in paths:
        # Without directories whose names begin with _ or ., which no reader looks into.
        below = f"{path.rstrip('/')}/[^_.]*/*"
        try:
            reader = _files(spark, options).option("recursiveFileLookup", True)
            found = addresses(reader.load(below))
        except SPARK_ERRORS as error:
            if NO_PATH not in str(error):
                raise
            continue
        seen = (file for file in found if is_seen(file.rpartition("/")[2]))
        if left := next((unquote(file) for file in seen if file not in read), None):
            raise ConfigError(
                "input",
                path,
                f"holds {left} in a directory of its own, and Spark reads only what is directly in "
                f"a directory that it is given: name those within by a pattern, or give the option "
                f"recursiveFileLookup=true",
            )
    if may_repeat or len(paths) == 1:
        return
    named = _files(spark, options).load(list(paths)).groupBy("path").count()
    for row in named.where(F.col("count") > 1).take(1):
        raise ConfigError(
            "input",
            list(paths),
            f"names {row['path']} more than once, and Spark would count its rows as often: name it "
            f"once",
        )


def _files(spark: SparkSession, options: Mapping[str, str] | None) -> DataFrameReader:
    """Lists files of any format, without a look into them."""
    return spark.read.format("binaryFile").options(**(options or {}))


def listed(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str] | None
) -> DataFrame:
    """Files that are not looked into, with the columns that Spark makes of directories."""
    reader = spark.read.format("text").options(**(options or {})).schema(StructType([]))
    return reader.load(list(paths))


def addresses(frame: DataFrame) -> list[str]:
    """The addresses of a frame's files, as ``inputFiles`` has them."""
    if is_connect(frame.sparkSession):
        return frame.inputFiles()
    # It asks Java for each address by itself: a million take minutes.
    java: Any = frame.sparkSession.sparkContext._jvm
    joined = java.org.apache.hadoop.util.StringUtils.join("\n", frame._jdf.inputFiles())
    return joined.split("\n") if joined else []
