"""The periods of ownership as tables: each is looked up in generated code, without a join.

Periods tile the plane points x versions by rectangles. A range table answers for one number, so the
plane is cut into strips:

1. (cell of the ring, version) -> strip: a cell is a point's top bits, chosen so that about one
   ring point falls into it; a new strip of the cell begins with each version that changed it;
2. (strip, the point's other bits) -> period.

The tables grow with the points that changes touched, not with the size of the ring times the number
of its versions. The driver makes them, in memory of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.owner_periods import NOBODY, Period
from hashring.errors import ConfigError
from hashring.spark.engine.array_types import Longs
from hashring.spark.engine.column_checks import quoted
from hashring.spark.lookup.range_table import DEEP_STEP, RangeTable, range_table
from hashring.spark.lookup.range_table_lookup import look_up, told_of
from hashring.spark.periods.period_worker import TOLD, repeated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_STRIP: Final = "__hashring_strip"
_PERIOD: Final = "__hashring_period"
MOST_IN_TABLES: Final = 2**20
"""Periods of which the driver makes tables: they take 200 MB there, and 150 MB of each executor."""
_MOST_CELLS: Final = 2**24
"""That periods reach into, in all: a long one reaches into many."""


@dataclass(frozen=True)
class PeriodTables:
    """The tables of all periods of a history.

    Attributes:
        owned: how many periods with an owner each point had.
        moves_rows: false, since a lookup leaves rows where they are.
    """

    owned: RangeTable
    _strips: RangeTable
    _periods: RangeTable
    _cell_shift: int
    _version_bits: int
    _attributes: dict[str, Any]
    moves_rows = False

    def located(self, df: DataFrame, point: str, version: str) -> DataFrame:
        """Add a column for :meth:`told`: the number of the period at a point and a version."""
        names = [F.col(quoted(name)) for name in df.columns]
        cell = F.shiftright(F.col(quoted(point)), self._cell_shift)
        placed = df.select(
            *names, (F.shiftleft(cell, self._version_bits) + F.col(version)).alias(_STRIP)
        )
        stripped = look_up(placed, _STRIP, self._strips, _PERIOD)
        inside = F.col(quoted(point)).bitwiseAND((1 << self._cell_shift) - 1)
        within = stripped.select(
            *names, (F.shiftleft(F.col(_PERIOD), self._cell_shift) + inside).alias(_STRIP)
        )
        return look_up(within, _STRIP, self._periods, _PERIOD).drop(_STRIP)

    def told(self, located: DataFrame) -> DataFrame:
        """Put the period's columns in place of its number."""
        return told_of(located, _PERIOD, self._attributes)


def period_tables(periods: Iterable[Period], versions: int, times: Longs) -> PeriodTables:
    """The tables of periods, which are all of a history.

    Args:
        versions: how many versions the ring had.
        times: shape (versions + 1,), when each version began, and the end of open periods.

    Raises:
        ConfigError: they need more than tables take.
    """
    columns = _columns(islice(periods, MOST_IN_TABLES + 1))
    if len(columns["start"]) > MOST_IN_TABLES:
        raise ConfigError("periods", len(columns["start"]), "too many for tables")
    cell_bits = _cell_bits(columns, versions)
    shift = 32 - cell_bits
    version_bits = (versions + 1).bit_length()
    strips, pieces, which = _strips(columns, shift, version_bits)
    return PeriodTables(
        owned=_owned(columns),
        _strips=range_table(
            strips, np.arange(len(strips)), cell_bits + version_bits, deep_step=DEEP_STEP
        ),
        _periods=range_table(
            pieces, which, max(len(strips) - 1, 1).bit_length() + shift, deep_step=DEEP_STEP
        ),
        _cell_shift=shift,
        _version_bits=version_bits,
        _attributes={
            **{told: pa.array(columns[name].astype(np.int32)) for name, told in TOLD.items()},
            "since_at": pa.array(times[columns["since"]]),
            "until_at": pa.array(times[columns["until"]]),
        },
    )


_Columns = dict[str, Longs]
"""Periods as columns, shape (periods,) each; the names are those of a ``Period``."""


def _columns(periods: Iterable[Period]) -> _Columns:
    # One after another into numbers: as objects they would take ten times the memory.
    found = np.fromiter(periods, dtype=[(name, np.int64) for name in Period._fields])
    return {name: np.ascontiguousarray(found[name]) for name in Period._fields}


def _cell_bits(periods: _Columns, versions: int) -> int:
    """Bits of a ring cell, so that at an average time a cell holds about one period."""
    alive = float((periods["until"] - periods["since"]).sum()) / versions
    return min(max(int(alive).bit_length(), 4), 20)


def _strips(periods: _Columns, shift: int, version_bits: int) -> tuple[Longs, Longs, Longs]:
    """Where strips begin, where pieces of strips begin, and the period of each piece.

    A strip's number is its place among the strips, a piece's start ``strip << shift | point's
    low bits``.

    Raises:
        ConfigError: there are too many of them.
    """
    # Each period once for every cell that it reaches into.
    first, last = periods["start"] >> shift, (periods["end"] - 1) >> shift
    owner_of, step = repeated(_checked(last - first + 1))
    cell = first[owner_of] + step
    low = np.maximum(periods["start"][owner_of] - (cell << shift), 0)
    begin = cell << version_bits | periods["since"][owner_of]
    end = cell << version_bits | periods["until"][owner_of]
    # numpy's `unique` hashes, which takes ten times as long for so many.
    strips = np.sort(begin)
    strips = strips[np.append(True, strips[1:] != strips[:-1])]
    # And each of these once for every strip of the cell during which it lasts.
    from_strip = np.searchsorted(strips, begin)
    to_strip = np.searchsorted(strips, end)
    part, step = repeated(_checked(to_strip - from_strip))
    pieces = (from_strip[part] + step) << shift | low[part]
    order = np.argsort(pieces, kind="stable")
    return strips, pieces[order], owner_of[part][order]


def _checked(counts: Longs) -> Longs:
    if counts.sum() > _MOST_CELLS:
        raise ConfigError("periods", len(counts), "they reach into too many cells for one table")
    return counts


def _owned(periods: _Columns) -> RangeTable:
    held = periods["owner"] != NOBODY
    edges = np.concatenate([[0, 2**32], periods["start"][held], periods["end"][held]])
    change = np.concatenate([[0, 0], np.ones(held.sum()), -np.ones(held.sum())]).astype(np.int64)
    starts, place = np.unique(edges, return_inverse=True)
    counts = np.zeros(len(starts), dtype=np.int64)
    np.add.at(counts, place.ravel(), change)
    return range_table(starts[:-1], np.cumsum(counts)[:-1], 32)
