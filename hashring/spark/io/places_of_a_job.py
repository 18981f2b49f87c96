"""Which places of one job lie in another of its places."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterable, Iterator
from glob import iglob
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from hashring.spark.io.existing_files import in_directories_of_columns
from hashring.spark.io.local_paths import exactly, local_path, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHOICE: Final = re.compile(r"((?:[^\\{]|\\.)*)\{([^{}]*)\}(.*)", re.DOTALL)
"""A pattern of Hadoop's, cut before and after its first choice, such as ``{a,b}``."""


def is_in(spark: SparkSession, place: str, directory: str) -> bool:
    """Whether a place is a directory or is below it.

    Elsewhere than on this machine's file system, this compares the two addresses as they are
    written.
    """
    here, there = local_path(spark, place), local_path(spark, directory)
    if here is not None and there is not None:
        return here.is_relative_to(there)
    if here is not None or there is not None:
        return False
    (system, path), (other, top) = _parts(place), _parts(directory)
    return system == other and path.is_relative_to(top)


def _parts(address: str) -> tuple[str, PurePosixPath]:
    """The file system that an address names, and the path there."""
    scheme = scheme_of(address)
    if scheme is None:
        return "", PurePosixPath(posixpath.normpath(address))
    host, path = re.fullmatch(r"(?://([^/]*))?(.*)", address[len(scheme) + 1 :], re.DOTALL).groups()  # type: ignore[union-attr] # it matches any text
    whole = posixpath.normpath(f"/{path.lstrip('/')}")
    return f"{scheme.lower()}://{host or ''}", PurePosixPath(whole)


def reads(spark: SparkSession, path: str, directory: str) -> bool:
    """Whether a path or pattern names a directory, or anything in it."""
    if is_in(spark, path, directory):
        return True
    there = local_path(spark, directory)
    if there is None:
        return False
    # The directory may not be there yet.
    return any(there.match(plain) for plain in _plain_patterns(spark, path)) or any(
        found.is_relative_to(there) for found in _matches(spark, path)
    )


def is_below(spark: SparkSession, path: str | Path, directory: Path) -> bool:
    """Whether a path or pattern names anything in a directory of this machine, links resolved.

    Args:
        path: as Spark's readers take it; or a file of this machine.
    """
    named = [Path(os.path.realpath(path))] if isinstance(path, Path) else _matches(spark, path)
    return any(found != directory and found.is_relative_to(directory) for found in named)


def _matches(spark: SparkSession, path: str) -> Iterator[Path]:
    """What a path or pattern names on this machine's file system, also if it is not there."""
    local = local_path(spark, path)
    if local is None:
        return
    yield local
    if exactly(path) != path:
        for plain in _plain_patterns(spark, path):
            yield from (Path(os.path.realpath(found)) for found in iglob(plain))


def _plain_patterns(spark: SparkSession, path: str) -> Iterator[str]:
    """A pattern of Hadoop's as those of Python's, which have no choices."""
    local = local_path(spark, path)
    if local is None:
        return
    for plain in _without_choices(str(local)):
        # A backslash makes the next character one of the name.
        yield re.sub(r"\\(.)", r"[\1]", plain.replace("[^", "[!"))


def _without_choices(pattern: str) -> Iterator[str]:
    found = _CHOICE.fullmatch(pattern)
    if found is None:
        yield pattern
        return
    before, choices, after = found.groups()
    for choice in choices.split(","):
        yield from _without_choices(f"{before}{choice}{after}")


def read_apart(addresses: Iterable[str], directory: Path) -> Path | None:
    """A directory below another whose files are read, but not as the rows of that other.

    Args:
        addresses: of the files that are read, as Spark writes them.
    """
    places = {posixpath.dirname(address) for address in addresses if scheme_of(address) == "file"}
    for place in sorted(places):
        found = Path(os.path.realpath(unquote("/" + place.removeprefix("file:").lstrip("/"))))
        if found.is_relative_to(directory) and not in_directories_of_columns(
            str(found.relative_to(directory) / "file")
        ):
            return found
    return None
