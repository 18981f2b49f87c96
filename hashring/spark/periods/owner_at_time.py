"""Who owned a point at a time: a ring's history, looked up.

A time is looked up in a range table of the ring's versions. The period of ownership at a point and
a version comes from tables that the driver makes (:mod:`hashring.spark.periods.period_tables`). If
a history is too long for these, Spark's workers make the periods, and the rows are joined with
them (:mod:`hashring.spark.periods.period_pieces`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.owner_periods import NOBODY, Lives, owner_periods
from hashring.core.ring_history import RingHistory, Version
from hashring.errors import ConfigError, HistoryError
from hashring.spark.engine.array_types import Longs
from hashring.spark.engine.column_checks import quoted
from hashring.spark.lookup.range_table import DEEP_STEP, RangeTable, range_table
from hashring.spark.lookup.range_table_lookup import look_up
from hashring.spark.lookup.ring_columns import check_algorithm
from hashring.spark.periods.period_pieces import PeriodPieces, period_pieces
from hashring.spark.periods.period_tables import MOST_IN_TABLES, PeriodTables, period_tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NEVER: Final = 2**63 - 1
"""The end of a period that is still open, in microseconds: no work lasts longer."""
_VERSION = "__hashring_version"
_HELD = "__hashring_held"
_FULL = "__hashring_full"
_AT = "__hashring_at"


@dataclass(frozen=True)
class AsOf:
    """A history, ready to be looked up.

    Attributes:
        nodes: every node the ring ever had; its index is its number.
        versions: ``versions[i].index == i``.
        begins, ends: Redis time of the first and the last version, in microseconds.
        algorithm: the name of the ring's hash algorithm.
    """

    nodes: tuple[str, ...]
    versions: tuple[Version, ...]
    begins: int
    ends: int
    algorithm: str
    _full: RangeTable | None
    _times: RangeTable
    _version_bits: int
    _periods: PeriodTables | PeriodPieces

    @property
    def owned(self) -> RangeTable:
        """How many periods with an owner each point had."""
        return self._periods.owned

    @property
    def moves_rows(self) -> bool:
        """Whether :meth:`located` shuffles the rows."""
        return self._periods.moves_rows

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
        moment = F.col(quoted(at))
        # `least` passes over a null.
        offset = F.least(moment, F.lit(self.ends)) - F.lit(self.begins)
        timed = df.select(*names, F.when(moment >= self.begins, offset).alias(_AT))
        versioned = look_up(timed, _AT, self._times, _VERSION).drop(_AT)
        located = self._periods.located(versioned, point, _VERSION)
        return located if self._full else located.drop(_VERSION)

    def told(self, located: DataFrame) -> DataFrame:
        """The second half of :meth:`with_period`: the period's columns in place of its number."""
        found = self._periods.told(located)
        if self._full is None:
            return found.withColumn("full", F.lit(False))
        held = F.when(
            F.col("owner") != NOBODY,
            F.shiftleft(F.col("owner").cast("bigint"), self._version_bits) + F.col(_VERSION),
        )
        told = look_up(found.withColumn(_HELD, held), _HELD, self._full, _FULL)
        full = F.coalesce(F.col(_FULL) == 1, F.lit(False))
        return told.withColumn("full", full).drop(_HELD, _FULL, _VERSION)


def as_of(history: RingHistory) -> AsOf:
    """A history, ready to be looked up.

    The driver needs memory for 150 to 250 bytes a period of ownership, of up to a million periods;
    a change of a node with r points makes one or two periods for each of them. Workers make the
    periods of a longer history; then the driver needs up to 250 bytes a replica that the ring ever
    had.

    Raises:
        HistoryError: the history is too long for that, too.
        ConfigError: a point is outside the circle, or the ring hashes keys by a function of the
            user's own.
    """
    check_algorithm(history.base.hash_algorithm)
    nodes = history.nodes()
    versions = tuple(history.versions())
    times = np.array([version.at for version in versions], dtype=np.int64)

    # Of versions at one time the last counts.
    last = np.append(times[1:] != times[:-1], True)
    begins, ends = int(times[0]), int(times[-1])
    version_bits = (len(versions) + 1).bit_length()
    lives, empty = history.lives()
    try:
        return AsOf(
            nodes=nodes,
            versions=versions,
            begins=begins,
            ends=ends,
            algorithm=history.base.hash_algorithm.name,
            _full=_full(history, nodes, version_bits),
            _times=range_table(
                times[last] - begins,
                np.flatnonzero(last),
                max((ends - begins).bit_length(), 1),
                deep_step=DEEP_STEP,
            ),
            _version_bits=version_bits,
            _periods=_periods(lives, len(versions), empty, np.append(times, NEVER)),
        )
    except ConfigError as error:
        raise HistoryError(
            f"{len(versions) - 1:,} changes of {len(lives):,} replicas are more than one audit "
            "takes: audit shorter spans of the log, each with the ring at its beginning and the "
            "events of its time"
        ) from error


def _periods(lives: Lives, versions: int, empty: int, times: Longs) -> PeriodTables | PeriodPieces:
    """All periods, as tables if they are not too many."""
    if len(lives) <= MOST_IN_TABLES:  # nearly all have periods of their own
        with suppress(ConfigError):
            return period_tables(owner_periods(lives, versions, empty), versions, times)
    return period_pieces(lives, versions, empty, times)


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
