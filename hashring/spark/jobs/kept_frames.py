"""Frames whose rows Spark keeps, for a job that uses them several times."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


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
