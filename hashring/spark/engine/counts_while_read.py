"""Counts of a frame, taken while it is read for something else."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.spark.engine.column_checks import quoted
from hashring.spark.engine.older_pyspark import can_observe
from hashring.spark.engine.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_READ = "__hashring_read"
_PATIENCE: Final = 600_000
"""Milliseconds in which Spark reports what an action observed."""


class Counts:
    """Aggregates of all rows of a frame, which the first action on :attr:`frame` takes.

    Spark may find out, in the middle of a query, that a part of it has no rows, and drop that part
    together with what it has counted: a join with an empty side, or a group of rows that a filter
    left none of. Then the counts are taken by a read of their own, as they are over Spark Connect
    of PySpark 4.0. So they are after an action that did not read the frame: a sink may leave out
    rows that it has.

    Attributes:
        frame: the same rows. The first action on it must read all of them: no limit, no ``take``.
            It must not sort them, or repartition them by range: PySpark 4.0 reads them twice then,
            and counts them twice.
    """

    def __init__(self, df: DataFrame, **aggregates: Column) -> None:
        self._observation = Observation() if can_observe(df.sparkSession) else None
        self._df = df
        self._aggregates = [column.alias(name) for name, column in aggregates.items()]
        self.frame: DataFrame = df
        if self._observation:
            self.frame = df.observe(self._observation, *self._aggregates)

    def get(self) -> dict[str, int]:
        """The value of each aggregate. Ask after the first action; may read the frame again."""
        return _whole(self._observed() or self._read)

    def observed(self) -> dict[str, int] | None:
        """The value of each aggregate as the first action took it, or ``None``; reads nothing."""
        found = self._observed()
        return _whole(found) if found else None

    def taken(self) -> dict[str, int] | None:
        """The value of each aggregate, or ``None`` if the first action has not read the frame.

        Over Spark Connect, and of PySpark 4.0, it is ``None`` also if Spark dropped the counted
        part of the query because it has no rows.
        """
        found = self._observed()
        return None if found is None else _whole(found or self._read)

    def _observed(self) -> dict[str, Any] | None:
        """What the first action observed: empty if that was dropped, ``None`` if nothing read."""
        spark = self._df.sparkSession
        if self._observation is None:
            return None
        if is_connect(spark):
            return self._observation.get or None
        if not _is_complete(spark, self._observation):
            return None
        # Py4JJavaError is how PySpark without Connect shows that nothing was observed.
        with suppress(Py4JJavaError):
            return self._observation.get
        return {}

    @cached_property
    def _read(self) -> dict[str, Any]:
        # With all columns: a record is malformed by those that are read, and Spark reads no
        # file for its malformed records alone.
        nulls = (F.col(quoted(name)).isNull() for name in self._df.columns)
        read = F.max(reduce(or_, nulls)).alias(_READ)
        (row,) = self._df.agg(*self._aggregates, read).collect()
        found: dict[str, Any] = row.asDict()
        del found[_READ]
        return found


def _whole(found: dict[str, Any]) -> dict[str, int]:
    return {name: int(value or 0) for name, value in found.items()}


def _is_complete(spark: SparkSession, observation: Observation) -> bool:
    """Whether Spark has said what the first action observed, so that asking does not wait.

    Of an action that did not read the frame it never says anything.
    """
    future = observation._jo.future()  # type: ignore[union-attr]
    if not future.isCompleted():
        # A message on this bus completes it.
        with suppress(Py4JJavaError):  # other messages have been on it for too long
            spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty(_PATIENCE)
    return bool(future.isCompleted())
