"""Which files are at a path already, and whether anything is."""

from __future__ import annotations

import os
import posixpath
import re
from contextlib import suppress
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from hashring.core.safe_text import printable
from hashring.errors import OutputRefused
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.listed_files import addresses, is_seen
from hashring.spark.io.local_paths import NO_PATH, exactly

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_SEEN: Final = "{[^._]*,_*=*}"
"""Names that readers look at, as a pattern of Hadoop's: see ``is_seen``."""


def files_there(spark: SparkSession, path: str, local: Path | None) -> list[str]:
    """The files below a directory that readers see, as paths in it, the smallest first.

    Elsewhere than on this machine's file system, the order is Spark's. Empty files are left out
    where their size is known.
    """
    if local is None:
        found = (_within(path, address) for address in addresses_there(spark, path))
        return sorted(filter(in_directories_of_columns, found))
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
    seen = filter(in_directories_of_columns, filter(sizes.get, sizes))
    return sorted(seen, key=lambda file: (sizes[file], file))


def in_directories_of_columns(file: str) -> bool:
    """Whether readers see it: they pass over the files of other directories."""
    return all("=" in place for place in PurePosixPath(file).parts[:-1])


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
