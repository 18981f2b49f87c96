"""The work of a hot key cut into slices of time, so that no task sorts all of it.

What a piece of work has to know of all earlier work on its key is two things: the latest end, with
its node, and the latest end of any other node. So a slice needs two rows of what came before it.
These states combine: the two latest ends, by distinct nodes, of two slices together are among the
four of both.

Keys with few rows are not cut: their work fits into a task, and a state for each of their slices
would be as large as the log.
"""

from __future__ import annotations

import math
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import BinaryType

from hashring.errors import ConfigError
from hashring.spark.engine.arrays_to_spark import frame_of_rows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SLICE_ROWS: Final = 1_000_000
"""Rows of one key that a task sorts with ease."""
_SLICES: Final = 1024
"""Slices of a hot key for each time that it reaches the limit. A sort tells rows of two slices
apart by one number, and compares rows of one slice by key, start and end: so slices are short."""
_ALL_SLICES: Final = 200_000
"""Of all hot keys: the states before them pass through the driver."""
BEFORE: Final = -(2**62)
"""The start of a row that is the state before a slice, in microseconds: before any work."""
SLICE: Final = "__slice"
_FIRST, _WIDTH, _LAST = "__first", "__width", "__last"
_HOT: Final = "__hot"
_HASH: Final = "__hash"
_DRAWN: Final = 2_000
"""Rows of a sample by which a key is found to be at the limit, give or take a twentieth."""


@dataclass(frozen=True)
class _HotKey:
    """A key and its slices: ``last + 1`` of them, ``width`` microseconds each, from ``first``."""

    key: Any
    first: int
    width: int
    last: int


@dataclass(frozen=True)
class Slices:
    """Which keys of a log are cut into slices, and the state before each slice.

    Attributes:
        keys: the hot keys.
        states: key, slice, node and end (microseconds) of the rows before each slice but the
            first: at most two.
        is_binary: whether keys are BINARY instead of STRING.
    """

    keys: tuple[_HotKey, ...]
    states: tuple[tuple[Any, int, int, int], ...]
    is_binary: bool

    def cut(self, work: DataFrame) -> DataFrame:
        """The work with the number of its slice, and the states as rows that start at ``BEFORE``.

        Args:
            work: ``key``, ``node`` INT, ``start`` and ``end`` in microseconds.

        Returns:
            The same and ``__slice`` BIGINT.
        """
        rows = [(key, node, BEFORE, end, number) for key, number, node, end in self.states]
        kinds = {"node": pa.int32(), "start": pa.int64(), "end": pa.int64(), SLICE: pa.int64()}
        states = frame_of_rows(work.sparkSession, {"key": self._kind, **kinds}, rows)
        return _sliced(work, self._frame(work)).select(*states.columns).unionByName(states)

    @property
    def _kind(self) -> pa.DataType:
        return pa.binary() if self.is_binary else pa.string()

    def _frame(self, work: DataFrame) -> DataFrame:
        rows = [(hot.key, _hash(hot.key), hot.first, hot.width, hot.last) for hot in self.keys]
        numbers = dict.fromkeys((_HASH, _FIRST, _WIDTH, _LAST), pa.int64())
        return frame_of_rows(work.sparkSession, {_HOT: self._kind, **numbers}, rows)


def _sliced(work: DataFrame, hot: DataFrame) -> DataFrame:
    # Division rounds towards zero: what starts before the first slice belongs to it.
    number = F.expr(f"(start - {_FIRST}) div {_WIDTH}")
    inside = F.least(F.greatest(number, F.lit(0)), F.col(_LAST))
    # By a number, which Spark looks up sooner than a text.
    joined = work.join(F.broadcast(hot), F.crc32("key") == F.col(_HASH), "left")
    return joined.withColumn(SLICE, F.when(F.col("key") == F.col(_HOT), inside).otherwise(0))


def _hash(key: Any) -> int:
    return zlib.crc32(key.encode() if isinstance(key, str) else key)


def sampled_fraction(rows: int) -> float:
    """The part of a log that shows its keys with more rows than a limit, at least 1."""
    if rows < 1:
        raise ConfigError("rows", rows, "give rows, at least 1")
    return min(1.0, _DRAWN / rows)


def find_slices(
    sample: DataFrame, fraction: float, work: DataFrame, mark: Column, rows: int = SLICE_ROWS
) -> Slices | None:
    """Cut the work of each key that has more rows than a limit. Reads the sample at once.

    Only if there is such a key, it reads the work of these keys.

    Args:
        sample: ``key`` and ``start`` of rows, each drawn with the probability ``fraction``; also
            of rows that are not in ``work``, which may make a key look hotter than it is.
        fraction: above 0, at most 1; :func:`sampled_fraction` gives one that is enough.
        work: ``key`` STRING or BINARY, ``node`` INT, ``start`` and ``end`` in microseconds.
        mark: a value that orders rows by end and node.

    Returns:
        ``None`` if no key has that many rows, by the sample.
    """
    # A hundredth of the rows at each end may lie far from the others.
    ends = F.percentile_approx("start", F.array(F.lit(0.01), F.lit(0.99)), F.lit(1000))
    found = (
        sample.groupBy("key")
        .agg(F.count("*").alias("drawn"), ends.alias("ends"))
        .where(F.col("drawn") > rows * fraction)
        .collect()
    )
    by_hash: dict[int, _HotKey] = {}
    drawn = sum(row["drawn"] for row in found)
    rows_of_slice = max(rows / _SLICES, drawn / fraction / _ALL_SLICES, 1)
    for row in found:
        first, last = row["ends"]
        count = math.ceil(row["drawn"] / fraction / rows_of_slice)
        hot = _HotKey(row["key"], first, (last - first) // count + 1, count - 1)
        # Of two hot keys with one hash only the first is cut.
        by_hash.setdefault(_hash(hot.key), hot)
    if not by_hash:
        return None
    hot_keys = list(by_hash.values())
    made = Slices(tuple(hot_keys), (), isinstance(work.schema["key"].dataType, BinaryType))
    latest = (
        _sliced(work.where(F.col("key").isin([hot.key for hot in hot_keys])), made._frame(work))
        # Of numbers alone, which Spark aggregates without a sort.
        .groupBy("key", SLICE, "node")
        .agg(F.max("end").alias("end"))
        .groupBy("key", SLICE)
        .agg(F.sort_array(F.collect_list(F.struct(mark.alias("mark"), "end", "node")), asc=False))
        .toDF("key", SLICE, "nodes")
        .select("key", SLICE, F.slice("nodes", 1, 2).alias("nodes"))
    )
    ends_of: dict[tuple[Any, int], list[tuple[int, int, int]]] = {
        (_hashable(row["key"]), row[SLICE]): [
            (node["mark"], node["end"], node["node"]) for node in row["nodes"]
        ]
        for row in latest.collect()
    }
    states = []
    for hot in hot_keys:
        before: list[tuple[int, int, int]] = []
        for number in range(hot.last + 1):
            states += [(hot.key, number, node, end) for _, end, node in before]
            before = _two_latest([*before, *ends_of.get((_hashable(hot.key), number), ())])
    return Slices(tuple(hot_keys), tuple(states), made.is_binary)


def _hashable(key: Any) -> Any:
    return key if isinstance(key, str) else bytes(key)


def _two_latest(marks: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """The two latest ends of distinct nodes, of (mark, end, node)."""
    best: dict[int, tuple[int, int, int]] = {}
    for each in marks:
        best[each[2]] = max(each, best.get(each[2], each))
    return sorted(best.values(), reverse=True)[:2]
