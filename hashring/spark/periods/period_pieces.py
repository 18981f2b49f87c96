"""The periods of ownership as rows that Spark's workers make, for histories too long for tables.

Work is joined with the periods of its *cell*, a range of points during a *slice* of time: a dozen
pieces of periods, of which one holds the point and the version. Cells are as narrow as the ring's
points lie close during the slice, and a slice has as many changes as the ring has points. So there
are about as many pieces as changes touched points, at any place and time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.owner_periods import Lives, SweptParts, swept_parts
from hashring.spark.engine.array_types import Longs
from hashring.spark.engine.arrays_to_spark import frame_of, one_row
from hashring.spark.engine.column_checks import quoted
from hashring.spark.lookup.range_table import DEEP_STEP, RangeTable, range_table
from hashring.spark.lookup.range_table_lookup import look_up
from hashring.spark.periods.period_worker import (
    PIECE,
    POINT_BITS,
    TOLD,
    part_table,
    pieces_of_parts,
    repeated,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PART_LIVES: Final = 2**15
"""Replicas in a part of the points, of which one task makes the periods in a second or so."""
CELL_POINTS: Final = 8
"""Ring points in a cell: with more, work meets more pieces; with fewer, there are more pieces."""
SLICE_CHANGES: Final = 2**8
"""Replicas that come or go in a slice of time, at least: each slice has cells of its own."""
_CELL, _SLICE, _NUMBER = "__hashring_cell", "__hashring_slice", "__hashring_number"
_TIMES: Final = "__hashring_times"


@dataclass(frozen=True)
class PeriodPieces:
    """What workers need to make all periods of a history, and work to find its own.

    Attributes:
        owned: how many periods with an owner each point had.
        moves_rows: true, since a join shuffles both of its sides.
    """

    owned: RangeTable
    _times: Longs
    _slices: RangeTable
    _cells: RangeTable
    _parts: Any
    moves_rows = True

    def located(self, df: DataFrame, point: str, version: str) -> DataFrame:
        """Add columns for :meth:`told`: the period at a point and a version."""
        names = [F.col(quoted(name)) for name in df.columns]
        at, when = F.col(quoted(point)), F.col(version)
        number = F.shiftleft(F.col(_SLICE), POINT_BITS).bitwiseOR(at)
        sliced = look_up(df, version, self._slices, _SLICE)
        celled = look_up(sliced.select(*names, number.alias(_NUMBER)), _NUMBER, self._cells, _CELL)
        work = celled.select(*names, F.col(_CELL).cast("int").alias(_CELL))
        kinds = {name: "INT" if kind == pa.int32() else "BIGINT" for name, kind in PIECE.items()}
        pieces = frame_of(df.sparkSession, self._parts).mapInArrow(
            pieces_of_parts, ", ".join(f"`{name}` {kind}" for name, kind in kinds.items())
        )
        # A broadcast would bring all pieces to the driver.
        pieces = pieces.toDF(*map(_piece, PIECE)).hint("merge")
        found = (
            (F.col(_CELL) == F.col(_piece("cell")))
            & (F.col(_piece("start")) <= at)
            & (at < F.col(_piece("end")))
            & (F.col(_piece("since")) <= when)
            & (when < F.col(_piece("until")))
        )
        return work.join(pieces, found, "left").select(*names, *map(_piece, TOLD))

    def told(self, located: DataFrame) -> DataFrame:
        """Name the period's columns, and add its times."""
        row = one_row(located.sparkSession, {_TIMES: self._times})
        found = list(map(_piece, TOLD))
        ends = {"since_at": "since", "until_at": "until"}
        return located.crossJoin(F.broadcast(row)).select(
            *(F.col(quoted(name)) for name in located.columns if name not in found),
            *(F.col(_piece(name)).alias(told) for name, told in TOLD.items()),
            *(F.get(_TIMES, F.col(_piece(of))).alias(name) for name, of in ends.items()),
        )


def _piece(name: str) -> str:
    return f"__hashring_piece_{name}"


def period_pieces(lives: Lives, versions: int, empty: int, times: Longs) -> PeriodPieces:
    """Prepare the periods of a history: a sweep of its lives, which takes seconds a million.

    Args:
        lives: all that the ring ever had.
        versions: how many versions the ring had.
        empty: how many of them had no replica.
        times: shape (versions + 1,), when each version began, and the end of open periods.

    Raises:
        ConfigError: they need more than tables take.
    """
    swept = swept_parts(lives, versions, empty, PART_LIVES)
    points, since, until = (
        np.frombuffer(column, dtype=np.uint32).astype(np.int64)
        for column in (lives.points, lives.since, lives.until)
    )
    slices = _slices(since, until, versions)
    starts = np.append(0, points[PART_LIVES::PART_LIVES])
    cells = _cells(points, since, until, slices, starts)
    return PeriodPieces(
        owned=_owned(points, swept),
        _times=times,
        _slices=range_table(slices, np.arange(len(slices)), versions.bit_length()),
        _cells=range_table(
            cells,
            np.arange(len(cells)),
            POINT_BITS + (len(slices) - 1).bit_length(),
            deep_step=DEEP_STEP,
        ),
        _parts=part_table(lives, swept, slices=slices, cells=cells, starts=starts),
    )


def _slices(since: Longs, until: Longs, versions: int) -> Longs:
    """The version with which each slice of time begins."""
    born = np.bincount(since, minlength=versions + 1)
    died = np.bincount(until, minlength=versions + 1)
    alive = np.cumsum(born - died).tolist()
    changes = (born + died).tolist()
    found, room = [0], max(alive[0], SLICE_CHANGES)
    for version in range(1, versions):
        room -= changes[version]
        if room < 0:
            found.append(version)
            room = max(alive[version], SLICE_CHANGES)
    return np.array(found, dtype=np.int64)


def _cells(points: Longs, since: Longs, until: Longs, slices: Longs, parts: Longs) -> Longs:
    """Where cells begin, as ``slice << 32 | point``, rising. One begins with each part."""
    first = np.searchsorted(slices, since, side="right") - 1
    last = np.searchsorted(slices, until - 1, side="right") - 1
    life, step = repeated(last - first + 1)
    numbers = np.sort((first[life] + step) << POINT_BITS | points[life])
    numbers = numbers[np.diff(numbers, prepend=-1) > 0]
    begun = (np.arange(len(slices)) << POINT_BITS)[:, None] | parts[None, :]
    return np.union1d(numbers[::CELL_POINTS], begun.ravel())


def _owned(points: Longs, swept: SweptParts) -> RangeTable:
    starts = np.append(0, points)
    # Of lives at one point the last one tells.
    last = np.append(starts[1:] != starts[:-1], True)
    counts = np.frombuffer(swept.counts, dtype=np.uint32)
    return range_table(starts[last], counts[last], POINT_BITS)
