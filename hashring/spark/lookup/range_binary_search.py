"""Which range a number is in, by a binary search: for so many ranges that memory is what counts.

The table of :mod:`hashring.spark.lookup.range_table` answers with one or two reads, and takes 8
bytes or more for a range. A million ranges are more than the part of a processor's cache that a
task has, and then each read takes longer than all the arithmetic of a lookup.

Here a range is a *record* of 4 bytes, its start and its code,

    offset of the start in its cell | code

in rising order, and the top bits of a number index a *cell* of 4 bytes:

    place of the record of the range in which the cell starts | that range and those inside

A cell has about 11 records on average, and 32 at most: they lie in one line of the cache or two, so
that the steps of the search find them there. How many a step skips depends on the cell alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.spark.engine.array_types import Ints, Longs
from hashring.spark.engine.arrays_to_spark import one_row
from hashring.spark.engine.column_checks import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_RECORD_BITS: Final = 31
"""Of a record and of a cell: an INT that is not negative."""
_COUNT_BITS: Final = 6
_STEPS: Final = 5
"""Of the search, which finds a range among two to the power of that many."""
_CELLS, _RECORDS = "__hashring_cells", "__hashring_records"
_CELL, _PLACE, _LEFT, _SOUGHT = (
    "__hashring_cell",
    "__hashring_place",
    "__hashring_left",
    "__hashring_sought",
)


@dataclass(frozen=True)
class RangeSearch:
    """The two arrays.

    Attributes:
        cells: shape (2**cell_bits,), the place of the first record of each cell, and how many.
        records: shape (ranges,), where in its cell each range starts, and its code.
        offset_bits: of a number, below those that index a cell.
        code_bits: the width of a code in a record.
    """

    cells: Ints
    records: Ints
    offset_bits: int
    code_bits: int


def range_search(starts: Longs, codes: Longs, bits: int) -> RangeSearch | None:
    """The arrays of ranges that begin at ``starts``, each up to the next, the last to the top.

    Args:
        starts: shape (n,), rising, the first 0, all below ``2**bits``.
        codes: shape (n,), not negative.
        bits: from 1 to 62.

    Returns:
        ``None`` where a cell would have too many ranges, as of points that are not spread at
        random, or a record more than 31 bits.
    """
    cell_bits = min(max((len(starts) - 1).bit_length() - (_STEPS - 1), 0), bits)
    offset_bits = bits - cell_bits
    code_bits = max(int(codes.max()).bit_length(), 1)
    mask = (1 << offset_bits) - 1
    cell_starts = np.arange(1 << cell_bits, dtype=np.int64) << offset_bits
    first = np.searchsorted(starts, cell_starts, side="right") - 1
    count = np.searchsorted(starts, cell_starts + mask, side="right") - first
    if (
        offset_bits + code_bits > _RECORD_BITS
        or int(count.max()) > 1 << _STEPS
        or len(starts) >= 1 << _RECORD_BITS - _COUNT_BITS
    ):
        return None
    return RangeSearch(
        cells=(first << _COUNT_BITS | count).astype(np.int32),
        records=((starts & mask) << code_bits | codes).astype(np.int32),
        offset_bits=offset_bits,
        code_bits=code_bits,
    )


def search_row(spark: SparkSession, search: RangeSearch) -> DataFrame:
    """The arrays as a frame of one row, which is to be broadcast."""
    return F.broadcast(one_row(spark, {_CELLS: search.cells, _RECORDS: search.records}))


def search_steps(number: str, search: RangeSearch, code: str) -> tuple[Column, ...]:
    """The code at a column of numbers, as columns of one ``select`` beside :func:`search_row`.

    Each may name those before it, of which Spark makes a projection a step.

    Args:
        number: a BIGINT column, in ``[0, 2**bits)`` or null.
        code: the name of the last column, INT; null where the number is.
    """
    records, at = F.col(_RECORDS), F.col(quoted(number))
    all_codes = (1 << search.code_bits) - 1
    in_cell = at.bitwiseAND((1 << search.offset_bits) - 1)
    steps = [
        F.get(_CELLS, F.shiftright(at, search.offset_bits).cast("int")).alias(_CELL),
        F.shiftright(_CELL, _COUNT_BITS).alias(f"{_PLACE}0"),
        F.col(_CELL).bitwiseAND((1 << _COUNT_BITS) - 1).alias(f"{_LEFT}0"),
        F.shiftleft(in_cell, search.code_bits).bitwiseOR(all_codes).cast("int").alias(_SOUGHT),
    ]
    for step in range(_STEPS):
        place, left = F.col(f"{_PLACE}{step}"), F.col(f"{_LEFT}{step}")
        half = F.shiftright(left, 1)
        # Without a branch, which a processor would guess wrong half of the time.
        skipped = (F.get(records, place + half) <= F.col(_SOUGHT)).cast("int") * half
        steps += [
            (place + skipped).alias(f"{_PLACE}{step + 1}"),
            (left - half).alias(f"{_LEFT}{step + 1}"),
        ]
    found = F.get(records, F.col(f"{_PLACE}{_STEPS}")).bitwiseAND(all_codes)
    # No filter on the code is pushed below: it would repeat the whole search.
    return *steps, F.when(F.spark_partition_id() >= 0, found).alias(code)
