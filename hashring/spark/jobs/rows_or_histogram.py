"""What a question is asked of: rows, a histogram of their points, or both."""

from __future__ import annotations

from typing import Final

from hashring.errors import ConfigError, NoDataError
from hashring.spark.io.input import Input

SHARED_OUT: Final = "rows shared out by points"
"""The fact that says how many rows of an answer are an estimate."""


def check_given(source: Input | None, histogram: Input | None) -> Input:
    """What is read first: the histogram if there is one, else the rows.

    Raises:
        ConfigError: there is neither.
    """
    given = source if histogram is None else histogram
    if given is None:
        raise ConfigError("source", None, "give rows, a histogram of their points, or both")
    return given


def check_counted(histogram: Input, keys: int) -> None:
    """Raise ``NoDataError`` if a histogram has counted no row that has a key."""
    if not keys:
        raise NoDataError(histogram.source, "counts no row that has a key")
