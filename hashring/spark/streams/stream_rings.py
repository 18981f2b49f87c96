"""Which ring tagged each batch of a stream, read from its output.

Over Spark Connect the batches are written by a process of the server, and what it counts stays
there. The client sees only Spark's progress and the files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.file_formats import QUOTES_DOUBLED
from hashring.spark.io.local_paths import exactly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import StreamingQueryProgress


class RingsOfBatches:
    """The rings of a stream's batches, as it goes on.

    Attributes:
        changes: how often a batch had another ring than the batch before.
        ring: the fingerprint of the last batch's ring.
    """

    def __init__(self, spark: SparkSession, output: str, format: str) -> None:
        """Of an output of files."""
        self.changes = 0
        self.ring: str | None = None
        self._spark = spark
        self._output = output.rstrip("/")
        self._format = format
        self._last = -1

    def look(self, progress: Sequence[StreamingQueryProgress]) -> Iterator[tuple[int, str]]:
        """The batches since the last look that have another ring than the batch before, with it.

        Reads one row of each new batch.
        """
        for each in progress:
            if each.batchId <= self._last or not each.numInputRows:
                continue
            self._last = each.batchId
            found = self._ring_of(each.batchId)
            if found is None:
                continue
            if self.ring not in (None, found):
                self.changes += 1
                yield each.batchId, found
            self.ring = found

    def _ring_of(self, number: int) -> str | None:
        reader = self._spark.read.format(self._format).option("header", True)
        if self._format == "csv":  # a key may hold quotes and line breaks
            reader = reader.options(multiLine=True, **QUOTES_DOUBLED)
        try:
            row = reader.load(exactly(f"{self._output}/batch={number}")).select("ring").first()
        except SPARK_ERRORS:
            return None  # no row of it fitted the schema, or the files were merged
        return row["ring"] if row else None
