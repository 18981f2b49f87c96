"""Tag a stream of rows with their owners while the ring changes.

Each micro-batch is tagged by one ring: the one that was current when the batch began (or at most
``refresh`` seconds older). Its rows say by which, in the column ``ring``: a fingerprint.

Nothing is lost or doubled over a restart from the checkpoint. Spark writes down what a batch holds
before it runs it, and runs the very same batch again when it cannot know that it ended; each batch
goes to a directory ``batch=<number>`` of its own, which gets its name only when it is whole, and a
batch whose directory is there is not written again.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring import Ring
from hashring.errors import ConfigError, OutputExists
from hashring.files import check_new
from hashring.spark.datasource import live_ring
from hashring.spark.failures import SPARK_ERRORS
from hashring.spark.files import local_path
from hashring.spark.keys import check_free, key_text
from hashring.spark.owner import with_owner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

RingNow = Callable[["SparkSession"], Ring]
"""The ring as it is now."""


def fixed_ring(ring: Ring) -> RingNow:
    """A ring that does not change."""
    return lambda _: ring


def followed_ring(url: str, name: str, refresh: float = 1.0) -> RingNow:
    """A live ring, read anew when what is known is older than ``refresh`` seconds.

    Raises:
        ConfigError: ``refresh`` is negative.
    """
    if refresh < 0:
        raise ConfigError("refresh", refresh, "give seconds; 0 reads the ring for every batch")
    known: tuple[float, Ring] | None = None

    def now(spark: SparkSession) -> Ring:
        nonlocal known
        # Before the reading: what is read is no older than this.
        at = time.monotonic()
        if known is None or at - known[0] >= refresh:
            known = at, live_ring(spark, url, name)
        return known[1]

    return now


def _is_whole(spark: SparkSession, directory: str) -> bool:
    """Whether Spark has finished what it wrote to a directory, on any file system."""
    try:
        spark.read.text(f"{directory}/_SUCCESS").isEmpty()
    except SPARK_ERRORS as error:
        if "PATH_NOT_FOUND" in str(error):
            return False
        raise
    return True


def tag_stream(
    rows: DataFrame,
    ring: RingNow,
    output: str,
    checkpoint: str,
    *,
    key: str = "key",
    interval: str | None = None,
) -> StreamingQuery:
    """Start to write the rows of a stream, with their owners, as Parquet.

    Args:
        rows: a streaming frame.
        ring: see :func:`followed_ring`.
        output: a directory; each batch is a directory ``batch=<number>`` in it.
        checkpoint: a directory of Spark's, kept together with the output.
        interval: time between batches, such as ``"10 seconds"``; ``None`` for all there is now,
            and then the end.

    Returns:
        The query. A batch fails, and the query with it, when the ring has no nodes or cannot be
        read: started again, it goes on with that batch.

    Raises:
        ColumnError: the key's column is missing or of no type of a key, or ``point``, ``owner`` or
            ``ring`` is there already.
        OutputExists: there is an output without its checkpoint: what is in it cannot be told
            from what is to come.
        OutputRefused: the output or the checkpoint cannot be written there. A checkpoint that is a
            file raises OutputExists.
        ConfigError: ``interval`` is no length of time.
    """
    key_text(rows, key)
    check_free(rows, "point", "owner", "ring", "batch")
    spark = rows.sparkSession
    target = local_path(spark, output)
    place = local_path(spark, checkpoint)
    if place is not None and not place.is_dir():
        check_new(place)
    if target is not None:
        if not target.exists():
            check_new(target)
        elif place is not None and not (place / "offsets").exists():
            raise OutputExists(output)
        for left in target.glob(".batch=*"):  # of a process that was killed as it wrote
            shutil.rmtree(left, ignore_errors=True)

    def write(batch: DataFrame, number: int) -> None:
        session = batch.sparkSession
        if target is not None and (target / f"batch={number}").exists():
            return
        current = ring(session)
        owned = with_owner(batch, current, key).withColumn("ring", F.lit(current.fingerprint))
        if target is None:
            place = f"{output.rstrip('/')}/batch={number}"
            # What is there without its mark is of a process that was killed as it wrote.
            if not _is_whole(session, place):
                owned.write.mode("overwrite").parquet(place)
            return
        aside = target / f".batch={number}"
        owned.write.mode("overwrite").parquet(f"file://{aside}")
        aside.rename(target / f"batch={number}")

    writer = rows.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    if interval is None:
        writer = writer.trigger(availableNow=True)
    else:
        try:
            writer = writer.trigger(processingTime=interval)
        except SPARK_ERRORS as error:
            raise ConfigError(
                "interval", interval, "is no length of time; say '10 seconds'"
            ) from error
    return writer.start()
