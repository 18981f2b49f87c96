"""Who owned a point at a time: a ring's history as three cell tables, looked up one after another.

A history is a tiling of the plane points x versions by rectangles, the periods of ownership. A
cell table answers for one number, so the plane is cut into strips:

1. time -> version;
2. (cell of the ring, version) -> strip: a cell is a point's top bits, chosen so that about one
   ring point falls into it; a new strip of the cell begins with each version that changed it;
3. (strip, the point's other bits) -> period.

Each is one lookup in generated code: no join, no shuffle, nothing that grows with the log but
the rows themselves. The tables grow with the points that changes touched, not with the size of
the ring times the number of its versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.owner_periods import NOBODY, Period
from hashring.core.ring_history import RingHistory, Version
from hashring.errors import ConfigError, HistoryError
from hashring.spark.array_types import Longs
from hashring.spark.column_checks import quoted
from hashring.spark.range_lookup_columns import (
    look_up,
    told_of,
)
from hashring.spark.range_table_arrays import DEEP_STEP, RangeTable, range_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEVER: Final = 2**63 - 1
"""The end of a period that is still open, in microseconds: no work lasts longer."""
_VERSION = "__hashring_version"
_STRIP = "__hashring_strip"
_PERIOD = "__hashring_period"
_AT = "__hashring_at"


@dataclass(frozen=True)
class AsOf:
    """A history, ready to be looked up.

    Attributes:
        nodes: every node the ring ever had; its index is its number.
        versions: ``versions[i].index == i``.
        begins, ends: Redis time of the first and the last version, in microseconds.
        algorithm: the name of the ring's hash algorithm.
        owned: how many periods with an owner each point had.
    """

    nodes: tuple[str, ...]
    versions: tuple[Version, ...]
    begins: int
    ends: int
    algorithm: str
    owned: RangeTable
    _full: RangeTable | None
    _times: RangeTable
    _strips: RangeTable
    _periods: RangeTable
    _cell_shift: int
    _version_bits: int
    _attributes: dict[str, Any]

    def with_period(self, df: DataFrame, point: str, at: str) -> DataFrame:
        """Add the period of ownership that held at a point and a time.

        Args:
            point: a BIGINT column of points.
            at: a BIGINT column, microseconds since 1970.

        Returns:
            The frame with ``owner``, ``previous``, ``next`` (numbers of nodes, or
            :data:`NOBODY`), ``since``, ``until`` (versions; ``until`` is the number of versions
            for an open period), ``since_at`` and ``until_at`` (microseconds; :data:`NEVER` for an
            open period). All null for a null point or time and for a time before the history.
            And ``full`` BOOLEAN: whether the owner held as many keys as it may.
        """
        return self.told(self.located(df, point, at))

    def located(self, df: DataFrame, point: str, at: str) -> DataFrame:
        """The first half of :meth:`with_period`: add columns that :meth:`told` reads.

        Both halves in one stage of Spark make a method longer than Java compiles: what can be
        between them, such as a window, speeds up both.

        Args:
            point, at: as for :meth:`with_period`.
        """
        names = [F.col(quoted(name)) for name in df.columns]
        offset = F.least(F.col(quoted(at)), F.lit(self.ends)) - F.lit(self.begins)
        timed = df.select(*names, F.when(offset >= 0, offset).alias(_AT))
        versioned = look_up(timed, _AT, self._times, _VERSION).drop(_AT)
        cell = F.shiftright(F.col(quoted(point)), self._cell_shift)
        kept = [*names, F.col(_VERSION)] if self._full else names
        placed = versioned.select(
            *kept,
            (F.shiftleft(cell, self._version_bits) + F.col(_VERSION)).alias(_STRIP),
        )
        stripped = look_up(placed, _STRIP, self._strips, _PERIOD)
        inside = F.col(quoted(point)).bitwiseAND((1 << self._cell_shift) - 1)
        within = stripped.select(
            *kept, (F.shiftleft(F.col(_PERIOD), self._cell_shift) + inside).alias(_STRIP)
        )
        return look_up(within, _STRIP, self._periods, _PERIOD).drop(_STRIP)

    def told(self, located: DataFrame) -> DataFrame:
        """The second half of :meth:`with_period`: the period's columns in place of its number."""
        found = told_of(located, _PERIOD, self._attributes)
        if self._full is None:
            return found.withColumn("full", F.lit(False))
        held = F.when(
            F.col("owner") != NOBODY,
            F.shiftleft(F.col("owner").cast("bigint"), self._version_bits) + F.col(_VERSION),
        )
        told = look_up(found.withColumn(_STRIP, held), _STRIP, self._full, _PERIOD)
        full = F.coalesce(F.col(_PERIOD) == 1, F.lit(False))
        return told.withColumn("full", full).drop(_STRIP, _PERIOD, _VERSION)


def as_of(history: RingHistory) -> AsOf:
    """The tables of a history.

    Needs memory for 150 to 250 bytes a period; a change of a node with r points makes about r of
    them.

    Raises:
        HistoryError: the history is too long for the tables.
        ConfigError: a point is outside the circle.
    """
    nodes = history.nodes()
    versions = tuple(history.versions())
    periods = _columns(history.periods())
    times = np.array([version.at for version in versions], dtype=np.int64)

    # Of versions at one time the last counts.
    last = np.append(times[1:] != times[:-1], True)
    begins, ends = int(times[0]), int(times[-1])
    cell_bits = _cell_bits(periods, len(versions))
    shift = 32 - cell_bits
    version_bits = (len(versions) + 1).bit_length()
    strips, pieces, which = _strips(periods, shift, version_bits)
    try:
        time_table = range_table(
            times[last] - begins,
            np.flatnonzero(last),
            max((ends - begins).bit_length(), 1),
            deep_step=DEEP_STEP,
        )
        strip_table = range_table(
            strips, np.arange(len(strips)), cell_bits + version_bits, deep_step=DEEP_STEP
        )
        period_table = range_table(
            pieces, which, max(len(strips) - 1, 1).bit_length() + shift, deep_step=DEEP_STEP
        )
    except ConfigError as error:
        raise HistoryError(
            f"{len(versions) - 1:,} changes make {len(periods.start):,} periods of ownership, more "
            "than the tables of one audit take: audit shorter spans of the log, each with the ring "
            "at its beginning and the events of its time"
        ) from error

    ends_at = np.append(times, NEVER)
    return AsOf(
        nodes=nodes,
        versions=versions,
        begins=begins,
        ends=ends,
        algorithm=history.base.hash_algorithm.name,
        owned=_owned(periods),
        _full=_full(history, nodes, version_bits),
        _times=time_table,
        _strips=strip_table,
        _periods=period_table,
        _cell_shift=shift,
        _version_bits=version_bits,
        _attributes={
            "owner": pa.array(periods.owner.astype(np.int32)),
            "previous": pa.array(periods.before.astype(np.int32)),
            "next": pa.array(periods.after.astype(np.int32)),
            "since": pa.array(periods.since.astype(np.int32)),
            "until": pa.array(periods.until.astype(np.int32)),
            "since_at": pa.array(times[periods.since]),
            "until_at": pa.array(ends_at[periods.until]),
        },
    )


@dataclass(frozen=True)
class _Columns:
    """Periods as columns, shape (periods,) each; the names are those of a ``Period``."""

    start: Longs
    end: Longs
    owner: Longs
    since: Longs
    until: Longs
    before: Longs
    after: Longs


def _columns(periods: Iterable[Period]) -> _Columns:
    # One after another into numbers: as objects they would take ten times the memory.
    found = np.fromiter(periods, dtype=[(name, np.int64) for name in Period._fields])
    return _Columns(*(np.ascontiguousarray(found[name]) for name in Period._fields))


def _cell_bits(periods: _Columns, versions: int) -> int:
    """Bits of a ring cell, so that at an average time a cell holds about one period."""
    alive = float((periods.until - periods.since).sum()) / versions
    return min(max(int(alive).bit_length(), 4), 20)


def _strips(periods: _Columns, shift: int, version_bits: int) -> tuple[Longs, Longs, Longs]:
    """Where strips begin, where pieces of strips begin, and the period of each piece.

    A strip's number is its place among the strips, a piece's start ``strip << shift | point's
    low bits``.
    """
    # Each period once for every cell that it reaches into.
    first, last = periods.start >> shift, (periods.end - 1) >> shift
    owner_of, step = _repeated(last - first + 1)
    cell = first[owner_of] + step
    low = np.maximum(periods.start[owner_of] - (cell << shift), 0)
    begin = cell << version_bits | periods.since[owner_of]
    end = cell << version_bits | periods.until[owner_of]
    # numpy's `unique` hashes, which takes ten times as long for so many.
    strips = np.sort(begin)
    strips = strips[np.append(True, strips[1:] != strips[:-1])]
    # And each of these once for every strip of the cell during which it lasts.
    from_strip = np.searchsorted(strips, begin)
    to_strip = np.searchsorted(strips, end)
    part, step = _repeated(to_strip - from_strip)
    pieces = (from_strip[part] + step) << shift | low[part]
    order = np.argsort(pieces, kind="stable")
    return strips, pieces[order], owner_of[part][order]


def _repeated(counts: Longs) -> tuple[Longs, Longs]:
    """For counts (2, 1, 3): the indices (0, 0, 1, 2, 2, 2) and the steps (0, 1, 0, 0, 1, 2)."""
    index = np.repeat(np.arange(len(counts)), counts)
    steps = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return index, steps


def _owned(periods: _Columns) -> RangeTable:
    held = periods.owner != NOBODY
    edges = np.concatenate([[0, 2**32], periods.start[held], periods.end[held]])
    change = np.concatenate([[0, 0], np.ones(held.sum()), -np.ones(held.sum())]).astype(np.int64)
    starts, place = np.unique(edges, return_inverse=True)
    counts = np.zeros(len(starts), dtype=np.int64)
    np.add.at(counts, place.ravel(), change)
    return range_table(starts[:-1], np.cumsum(counts)[:-1], 32)


def _full(history: RingHistory, nodes: Sequence[str], version_bits: int) -> RangeTable | None:
    """For (node, version) 1 when the node was full then; ``None`` when none ever was."""
    number = {node: i for i, node in enumerate(nodes)}
    edges = {0: 0}
    for node, since, until in history.full():
        if node in number:
            first = number[node] << version_bits
            edges[first + since] = 1
            edges[first + (1 << version_bits if until is None else until)] = 0
    if len(edges) == 1:
        return None
    starts = sorted(edges)
    bits = version_bits + len(number).bit_length()
    return range_table(starts, [edges[start] for start in starts], bits)
