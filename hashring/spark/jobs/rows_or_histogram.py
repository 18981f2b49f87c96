"""What a question is asked of: rows, a histogram of their points, or both."""

from __future__ import annotations

import posixpath
import re
from typing import Final
from urllib.parse import unquote

from hashring.errors import ConfigError, NoDataError
from hashring.spark.analysis.point_cells import CELL
from hashring.spark.io.input import Input
from hashring.spark.io.listed_files import addresses
from hashring.spark.io.local_paths import exactly
from hashring.spark.lookup.key_points import settings_of_points

SHARED_OUT: Final = "rows shared out by points"
"""The fact that says how many rows of an answer are an estimate."""
_WITHIN: Final = re.compile(rf"(/(owner|{CELL}|batch)=[^/]*)+$")
"""Directories that this package makes within an output. Others may be outputs of their own."""
_SEVERAL: Final = 2


def check_given(source: Input | None, histogram: Input | None) -> Input:
    """What is read first: the histogram if there is one, else the rows.

    Raises:
        ConfigError: there is neither; or files of one of them have points that were not made alike.
    """
    if histogram is not None:
        _check_made_alike("histogram", histogram, "start")
        if source is not None:
            _check_made_alike("input", source, "point")  # beside a histogram, these may be used
        return histogram
    if source is None:
        raise ConfigError("source", None, "give rows, a histogram of their points, or both")
    return source


def _check_made_alike(name: str, given: Input, points: str) -> None:
    """Check that the points of all files were made by the same settings, as far as they say.

    Spark has the metadata of one file. What is appended to an output was checked then, so this
    looks at one file of each.

    Args:
        points: the name of their column.

    Raises:
        ConfigError: they were not.
    """
    if points not in given.frame.columns:
        return
    files = (file for file in addresses(given.frame) if ".parquet" in posixpath.basename(file))
    one_of_each = {_WITHIN.sub("", posixpath.dirname(file)): file for file in files}
    if len(one_of_each) < _SEVERAL:
        return
    read = given.frame.sparkSession.read
    first = ""
    was: dict[str, str | None] = {}
    for place, file in one_of_each.items():
        made = settings_of_points(read.parquet(exactly(unquote(file))), points)
        if not was:
            first, was = place, made
        for setting, value in made.items():
            if value != was[setting]:
                raise ConfigError(
                    name,
                    given.source,
                    f"its points are made by {setting}={was[setting]} in {unquote(first)}, and by "
                    f"{setting}={value} in {unquote(place)}: name what was made alike",
                )


def check_counted(histogram: Input, keys: int) -> None:
    """Raise ``NoDataError`` if a histogram has counted no row that has a key."""
    if not keys:
        raise NoDataError(histogram.source, "counts no row that has a key")
