"""The periods of ownership of a ring's history, as columns; of a long history made on executors.

A period costs the sweep some microseconds of one core. So the circle of a long history is cut into
arcs, a task each. An arc needs the replicas on it and a few behind it, and no other arc.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from hashring.core.owner_periods import Arc, Lives, Period
from hashring.spark.range_table import Longs

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from hashring.core.ring_history import RingHistory

MOST_ON_DRIVER: Final = 500_000
"""Replicas of a history that this process sweeps itself, in two seconds or so: to start Python on
the executors takes as long."""
REPLICAS_OF_A_TASK: Final = 100_000

_LIVES: Final = ("points", "nodes", "since", "until")
_ARC: Final = ("low", "high", "versions")
_FIELDS: Final = ", ".join(f"{name} bigint" for name in Period._fields)


@dataclass(frozen=True)
class PeriodColumns:
    """Periods as columns, shape (periods,) each; the names are those of a ``Period``."""

    start: Longs
    end: Longs
    owner: Longs
    since: Longs
    until: Longs
    before: Longs
    after: Longs


def period_columns(history: RingHistory, spark: SparkSession | None = None) -> PeriodColumns:
    """Every period of ownership of a history; they may be cut at any point.

    Args:
        spark: whose executors sweep a history of more than 500,000 replicas; they need Python with
            this package. Without it this process does.

    Raises:
        ConfigError: a node joined at a point outside the circle.
    """
    replicas = len(history.base) + sum(len(change.points) for change in history.changes)
    if spark is None or replicas <= MOST_ON_DRIVER:
        return _columns(history.arc().periods())
    # A frame each, since Spark cuts a frame's rows into tasks by their number.
    frames = [_frame(spark, arc) for arc in history.arcs(REPLICAS_OF_A_TASK)]
    arcs = reduce(lambda left, right: left.unionAll(right), frames)
    found = arcs.mapInArrow(_swept, _FIELDS).toArrow()
    return PeriodColumns(*(found[name].to_numpy() for name in Period._fields))


def _columns(periods: Iterable[Period]) -> PeriodColumns:
    # One after another into numbers: as objects they would take ten times the memory.
    found = np.fromiter(periods, dtype=[(name, np.int64) for name in Period._fields])
    return PeriodColumns(*(np.ascontiguousarray(found[name]) for name in Period._fields))


def _frame(spark: SparkSession, arc: Arc) -> DataFrame:
    """An arc as a frame of one row."""
    row: dict[str, Any] = {name: pa.array([getattr(arc, name)], pa.int64()) for name in _ARC}
    for part in ("behind", "inside"):
        for name in _LIVES:
            values = pa.array(np.array(getattr(getattr(arc, part), name)), pa.int64())
            row[f"{part}_{name}"] = pa.ListArray.from_arrays(
                pa.array([0, len(values)], pa.int32()), values
            )
    return spark.createDataFrame(pa.table(row))


def _swept(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The periods of each arc; runs on executors."""
    for batch in batches:
        for row in pa.Table.from_batches([batch]).to_pylist():
            behind, inside = (
                Lives(
                    array("I", row[f"{part}_points"]),
                    *(array("i", row[f"{part}_{name}"]) for name in _LIVES[1:]),
                )
                for part in ("behind", "inside")
            )
            arc = Arc(row["low"], row["high"], row["versions"], behind, inside)
            columns = _columns(arc.periods())
            yield pa.RecordBatch.from_pydict(
                {name: getattr(columns, name) for name in Period._fields}
            )
