"""Counts of a frame, taken while it is read for something else."""

from __future__ import annotations

from contextlib import suppress
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.spark.column_checks import quoted
from hashring.spark.older_pyspark import can_observe, is_told

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_READ = "__hashring_read"


class Counts:
    """Aggregates of all rows of a frame, which the first action on :attr:`frame` takes.

    Spark may find out, in the middle of a query, that a part of it has no rows, and drop that part
    together with what it has counted: a join with an empty side, or a group of rows that a filter
    left none of. Then the counts are taken by a read of their own, as they are over Spark Connect
    of PySpark 4.0.

    Attributes:
        frame: the same rows. The first action on it must read all of them: no limit, no ``take``.
    """

    def __init__(self, df: DataFrame, **aggregates: Column) -> None:
        self._observation = Observation() if can_observe(df.sparkSession) else None
        self._df = df
        self._aggregates = [column.alias(name) for name, column in aggregates.items()]
        self.frame: DataFrame = df
        if self._observation:
            self.frame = df.observe(self._observation, *self._aggregates)

    def get(self) -> dict[str, int]:
        """The value of each aggregate. Waits for the first action, and may read the frame again."""
        found: dict[str, Any] = {}
        if self._observation and is_told(self._df.sparkSession, self._observation):
            # Py4JJavaError is how PySpark without Connect shows that nothing was observed.
            with suppress(Py4JJavaError):
                found = self._observation.get
        if not found:
            # With all columns: a record is malformed by those that are read, and Spark reads no
            # file for its malformed records alone.
            nulls = (F.col(quoted(name)).isNull() for name in self._df.columns)
            read = F.max(reduce(or_, nulls)).alias(_READ)
            (row,) = self._df.agg(*self._aggregates, read).collect()
            found = row.asDict()
            del found[_READ]
        return {name: int(value or 0) for name, value in found.items()}
