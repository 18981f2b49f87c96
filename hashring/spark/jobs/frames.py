"""What the jobs do with their frames: look for a key, and keep rows for several uses."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

from hashring.errors import NoDataError
from hashring.spark.column_checks import quoted
from hashring.spark.input import Input
from hashring.spark.key_points import key_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def check_keys(source: Input, key: str) -> None:
    """Check that there is a key at all. Looks at rows only until it has found one.

    Raises:
        NoDataError: there is no row, or every key is null or empty.
        ColumnError: no such column, or no type of a key.
    """
    df = source.frame
    if df.where(key_text(df, key).isNotNull()).isEmpty():
        # With the key, since Spark reads no file for its malformed records alone.
        if not df.select(quoted(key)).take(1):
            raise NoDataError(source.source, "holds no row that fits the schema")
        raise NoDataError(source.source, f"every key in column {key!r} is null or empty")


@contextmanager
def kept(*frames: DataFrame) -> Iterator[None]:
    """Within it, Spark keeps the rows of these frames once they are computed."""
    for frame in frames:
        frame.cache()
    interrupted = False
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        interrupted = True
        raise
    finally:
        for frame in frames:
            # A signal within a call to Java leaves its answer unread, and the next call reads that.
            with suppress(Exception) if interrupted else nullcontext():
                frame.unpersist()
