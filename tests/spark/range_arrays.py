"""What Spark's expressions read in the arrays of a table, read by numpy in the same steps."""

import numpy as np

from hashring.spark.lookup.range_binary_search import _COUNT_BITS, _STEPS, RangeSearch
from hashring.spark.lookup.range_table import RESOLVED, RangeTable


def found_in_table(table: RangeTable, numbers):
    """The code at each number, integers in ``[0, 2**bits)`` of any shape."""
    at = np.asarray(numbers, dtype=np.int64)
    words = table.root[at >> table.offset_bits]
    for level, shift, step in zip(table.levels, table.shifts, table.step_bits, strict=True):
        blocks = words < RESOLVED
        below = np.where(blocks, words, 0) + ((at >> shift) & ((1 << step) - 1))
        words = np.where(blocks, level[np.where(blocks, below, 0)], words)
    mask = (1 << table.offset_bits) - 1
    below = np.zeros_like(words)
    for slot in range(table.slots):
        below += ((words >> (slot * table.offset_bits)) & mask) < (at & mask)
    values = words >> (table.slots * table.offset_bits)
    rank = (values & ((RESOLVED >> (table.slots * table.offset_bits)) - 1)) + below
    if table.code_bits:
        return (values >> (below * table.code_bits)) & ((1 << table.code_bits) - 1)
    return rank if table.codes is None else table.codes[rank]


def found_by_search(search: RangeSearch, numbers):
    """The same, of the arrays of a search."""
    at = np.asarray(numbers, dtype=np.int64)
    cell = search.cells[at >> search.offset_bits].astype(np.int64)
    place, left = cell >> _COUNT_BITS, cell & ((1 << _COUNT_BITS) - 1)
    offset = at & ((1 << search.offset_bits) - 1)
    sought = offset << search.code_bits | ((1 << search.code_bits) - 1)
    for _ in range(_STEPS):
        half = left >> 1
        place = place + (search.records[place + half] <= sought) * half
        left = left - half
    return search.records[place].astype(np.int64) & ((1 << search.code_bits) - 1)
