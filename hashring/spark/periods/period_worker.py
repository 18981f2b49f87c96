"""A history in parts of the points, and what a worker of Spark makes of a part.

A part is the lives of the replicas at its points, and the owners just below the first of them:
about 25 bytes a replica that the ring ever had. A worker makes the periods of ownership of it, cut
into *pieces* that lie in one cell each (:mod:`hashring.spark.periods.period_pieces`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, Final

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]

from hashring.core.owner_periods import Lives, Period, PointOwners, SweptParts, periods_between
from hashring.spark.engine.array_types import Longs

POINT_BITS: Final = 32
PIECE: Final = {
    "cell": pa.int32(),
    "start": pa.int64(),
    "end": pa.int64(),
    "owner": pa.int32(),
    "since": pa.int32(),
    "until": pa.int32(),
    "before": pa.int32(),
    "after": pa.int32(),
}
"""The columns of a piece: its cell, and those of its period."""
TOLD: Final = {
    "owner": "owner",
    "before": "previous",
    "after": "next",
    "since": "since",
    "until": "until",
}
"""The names of a period's columns in the answer."""
_BATCH: Final = 2**14
"""Periods of a batch: a long one has a piece for each of many cells."""


@dataclass(frozen=True)
class _Part:
    """A row for a worker. Arrays are their bytes, which Python packs and unpacks fastest.

    Attributes:
        start, end: the points ``start <= p < end``.
        versions: how many the ring had.
        points, nodes, since, until: of the lives.
        owned_since, owners: of the points just below the first life.
        slices: the version with which each slice of time begins.
        cells: where the cells of the part begin, as ``slice << 32 | point``, rising.
        numbers: the numbers of these cells.
    """

    start: int
    end: int
    versions: int
    points: bytes
    nodes: bytes
    since: bytes
    until: bytes
    owned_since: bytes
    owners: bytes
    slices: bytes
    cells: bytes
    numbers: bytes


def part_table(
    lives: Lives, swept: SweptParts, *, slices: Longs, cells: Longs, starts: Longs
) -> Any:
    """One row a part of the points.

    Args:
        swept: the sweep of all lives.
        slices: shape (slices,), the version with which each slice of time begins.
        cells: shape (cells,), where they begin, as ``slice << 32 | point``, rising. In each slice
            one begins with each part.
        starts: shape (parts,), the point with which each part begins.
    """
    ends = np.append(starts[1:], 1 << POINT_BITS)
    points = cells & ((1 << POINT_BITS) - 1)
    # A part in which all lives are at one point may have no point; the last of such has all.
    part_of = np.searchsorted(starts, points, side="right") - 1
    order = np.argsort(part_of, kind="stable")
    bounds = np.searchsorted(part_of[order], np.arange(len(starts) + 1))
    rows = []
    for index, (start, end) in enumerate(zip(starts.tolist(), ends.tolist(), strict=True)):
        if start == end:
            continue
        own = lives.part(index * swept.size, (index + 1) * swept.size)
        numbers = order[bounds[index] : bounds[index + 1]]
        below = swept.owners[index]
        rows.append(
            _Part(
                start,
                end,
                swept.versions,
                own.points.tobytes(),
                own.nodes.tobytes(),
                own.since.tobytes(),
                own.until.tobytes(),
                below.since.tobytes(),
                below.nodes.tobytes(),
                slices.tobytes(),
                cells[numbers].tobytes(),
                numbers.astype(np.int32).tobytes(),
            )
        )
    return pa.table(
        {field.name: [getattr(row, field.name) for row in rows] for field in fields(_Part)}
    )


def pieces_of_parts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The pieces of parts, for ``mapInArrow``."""
    for batch in batches:
        for row in batch.to_pylist():
            yield from _pieces(_Part(**row))


def _pieces(part: _Part) -> Iterator[pa.RecordBatch]:
    lives = Lives(
        _array("I", part.points),
        _array("i", part.nodes),
        _array("I", part.since),
        _array("I", part.until),
    )
    owners = PointOwners(_array("i", part.owned_since), _array("i", part.owners))
    slices = np.frombuffer(part.slices, dtype=np.int64)
    cells = np.frombuffer(part.cells, dtype=np.int64)
    numbers = np.frombuffer(part.numbers, dtype=np.int32)
    periods = periods_between(part.start, part.end, lives, owners, part.versions)
    kind = [(name, np.int64) for name in Period._fields]
    while len(found := np.fromiter(islice(periods, _BATCH), dtype=kind)):
        # Each once for every slice that it lasts in, and then for every cell that it reaches into.
        first = np.searchsorted(slices, found["since"], side="right") - 1
        last = np.searchsorted(slices, found["until"] - 1, side="right") - 1
        period, step = repeated(last - first + 1)
        begun = (first[period] + step) << POINT_BITS
        first = np.searchsorted(cells, begun | found["start"][period], side="right") - 1
        last = np.searchsorted(cells, begun | (found["end"][period] - 1), side="right") - 1
        again, step = repeated(last - first + 1)
        period, cell = period[again], numbers[first[again] + step]
        columns = [cell, *(found[name][period] for name in list(PIECE)[1:])]
        for at in range(0, len(cell), _BATCH):
            yield pa.record_batch(
                [
                    pa.array(column[at : at + _BATCH].astype(kind.to_pandas_dtype()))
                    for column, kind in zip(columns, PIECE.values(), strict=True)
                ],
                names=list(PIECE),
            )


def _array(code: str, data: bytes) -> array[int]:
    found = array(code)
    found.frombytes(data)
    return found


def repeated(counts: Longs) -> tuple[Longs, Longs]:
    """For counts (2, 1, 3): the indices (0, 0, 1, 2, 2, 2) and the steps (0, 1, 0, 0, 1, 2)."""
    index = np.repeat(np.arange(len(counts)), counts)
    steps = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return index, steps
