"""Which checkpoint the batches in an output are of.

Batches are told apart by their numbers, and each checkpoint counts its own. So an output of two
would lack the batches of the second whose numbers the first has used.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hashring.atomic_writes import replace_text
from hashring.errors import OutputRefused
from hashring.spark.input import exactly
from hashring.spark.spark_failures import SPARK_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NAME: Final = "_checkpoint"
"""Readers of the output pass over it."""


class StreamMark:
    """In an output, the id of the checkpoint whose batches it holds.

    Spark draws the id with the checkpoint's first query. On this machine's file system the mark is
    a file, elsewhere what Spark can write: a directory with a file.
    """

    def __init__(self, output: str, target: Path | None, checkpoint: str) -> None:
        """Of an output, where it is on this machine's file system, and a checkpoint."""
        self._output = output
        self._target = target
        self._checkpoint = checkpoint
        self._is_there = False
        self._id: str | None = None

    def check(self, spark: SparkSession) -> None:
        """Raise ``OutputRefused`` if another checkpoint has written to the output."""
        found = self._read(spark)
        self._is_there = found is not None
        if found is not None and found != self.checkpoint_id(spark):
            raise OutputRefused(
                self._output,
                f"its batches are of another checkpoint than {self._checkpoint}, which uses the "
                f"same numbers",
            )

    def keep(self, spark: SparkSession) -> None:
        """Mark the output, and check it, before a batch is written: an older one has no mark."""
        if self._is_there:
            return
        self.check(spark)
        if not self._is_there:
            self._write(spark)
            self._is_there = True

    def _read(self, spark: SparkSession) -> str | None:
        if self._target is None:
            return _first_line(spark, f"{self._output.rstrip('/')}/{_NAME}")
        try:
            return (self._target / _NAME).read_text(encoding="ascii").strip()
        except FileNotFoundError:
            return None

    def _write(self, spark: SparkSession) -> None:
        found = self.checkpoint_id(spark)
        if self._target is not None:
            replace_text(self._target / _NAME, f"{found}\n")
            return
        line = spark.sql(f"SELECT '{found}' AS value").coalesce(1)
        line.write.mode("overwrite").text(f"{self._output.rstrip('/')}/{_NAME}")

    def checkpoint_id(self, spark: SparkSession) -> str | None:
        """The checkpoint's id. ``None`` before its first query, which draws it.

        A checkpoint that was deleted and made anew at the same path has another one.
        """
        if self._id is None:
            told = _first_line(spark, f"{self._checkpoint.rstrip('/')}/metadata")
            self._id = None if told is None else str(json.loads(told)["id"])
        return self._id


def _first_line(spark: SparkSession, path: str) -> str | None:
    """The first line of a text file, or of the files in a directory, on any file system."""
    try:
        row = spark.read.text(exactly(path)).first()
    except SPARK_ERRORS as error:
        if "PATH_NOT_FOUND" in str(error):
            return None
        raise
    return row["value"] if row else None
