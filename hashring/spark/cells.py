"""One array that answers "which range is this number in": the table behind every lookup here.

The numbers ``[0, 2**bits)`` are cut into ranges, each with a code (an owner, a pair of owners, a
version). The top bits of a number index a *cell* of the root block. A cell with at most one
boundary inside packs into one 64-bit word

    offset of the boundary << 2c | code from the boundary on << c | code before it

where ``c`` is the width of a code, and ``offset`` the boundary's bits below the root's. A cell
with more boundaries holds the negative position of a child block, which splits it by the next
few bits, and so on until no cell has more than one.

So a lookup is an array read a level, a shift, a mask and a comparison: all of it is generated
code in Spark, with no Python per row, no join and no search.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hashring.core.ring import Ring
from hashring.errors import ConfigError

Longs = npt.NDArray[np.int64]

STEP: Final = 4
"""Bits that each level below the root resolves, unless told."""
MIN_ROOT_BITS: Final = 12
MAX_ROOT_BITS: Final = 22
_WORD_BITS: Final = 63  # a packed word is never negative: the sign tells child blocks apart
_MAX_CELLS: Final = 2**28


@dataclass(frozen=True)
class CellTable:
    """The array and how to read it.

    Attributes:
        cells: shape (n,), the words.
        bits: the numbers are in ``[0, 2**bits)``.
        root_bits: how many top bits index the root block, which is the first ``2**root_bits``.
        shifts: for each level below the root, how far a number is shifted before the low bits
            (``step_bits`` of them) index the child block.
        step_bits: as many low bits, level by level.
        code_bits: the width of a code in a word.
    """

    cells: Longs
    bits: int
    root_bits: int
    shifts: tuple[int, ...]
    step_bits: tuple[int, ...]
    code_bits: int

    @property
    def offset_bits(self) -> int:
        """The width of a boundary's offset: the bits below the root's."""
        return self.bits - self.root_bits

    def find(self, numbers: npt.ArrayLike) -> Longs:
        """The code at each number, by the same steps as the Spark expression. For checks.

        Args:
            numbers: integers in ``[0, 2**bits)``, any shape.
        """
        at = np.asarray(numbers, dtype=np.int64)
        words = self.cells[at >> self.offset_bits]
        for shift, step in zip(self.shifts, self.step_bits, strict=True):
            children = words < 0
            below = np.where(children, -words, 0) + ((at >> shift) & ((1 << step) - 1))
            words = np.where(children, self.cells[np.where(children, below, 0)], words)
        mask = (1 << self.code_bits) - 1
        after = (at & ((1 << self.offset_bits) - 1)) >= words >> (2 * self.code_bits)
        found: Longs = np.where(after, (words >> self.code_bits) & mask, words & mask)
        return found


def cell_table(
    starts: npt.ArrayLike, codes: npt.ArrayLike, bits: int, *, step: int = STEP
) -> CellTable:
    """The table of ranges that begin at ``starts``, each up to the next, the last to the top.

    Args:
        starts: shape (n,), rising, the first 0, all below ``2**bits``.
        codes: shape (n,), not negative.
        bits: from 1 to 62.
        step: bits that each level below the root resolves: fewer make a smaller table of more
            levels.

    Raises:
        ConfigError: the codes and numbers together need more than a 64-bit word, or the table
            more than 2**28 words.
    """
    where = np.asarray(starts, dtype=np.int64)
    what = np.asarray(codes, dtype=np.int64)
    # Neighbours with one code are one range: fewer boundaries, fewer levels.
    first = np.ones(len(where), dtype=bool)
    first[1:] = what[1:] != what[:-1]
    where, what = where[first], what[first]

    code_bits = max(int(what.max()).bit_length(), 1)
    # Half as many boundaries as cells: few need a second look, and the root stays small, which
    # counts for more where it does not fit a processor's cache.
    root_bits = min(max(MIN_ROOT_BITS, (len(where) - 1).bit_length() + 1), MAX_ROOT_BITS)
    root_bits = min(max(root_bits, bits + 2 * code_bits - _WORD_BITS), bits)
    offset_bits = bits - root_bits
    if offset_bits + 2 * code_bits > _WORD_BITS or 1 << root_bits > _MAX_CELLS:
        raise ConfigError(
            "codes", int(what.max()), f"too many to look up among 2**{bits} numbers in one table"
        )

    blocks: list[Longs] = []
    shifts: list[int] = []
    steps: list[int] = []
    cell_starts = np.arange(1 << root_bits, dtype=np.int64) << offset_bits
    left = offset_bits
    size = 0
    while True:
        words, several = _level(
            where, what, cell_starts, width=left, offset_bits=offset_bits, code_bits=code_bits
        )
        size += len(words)
        blocks.append(words)
        if not len(several):
            break
        width = min(step, left)
        left -= width
        if size + (len(several) << width) > _MAX_CELLS:
            raise ConfigError("starts", len(where), "too many boundaries for one table")
        words[several] = -(size + (np.arange(len(several), dtype=np.int64) << width))
        cell_starts = (
            cell_starts[several][:, None] + (np.arange(1 << width, dtype=np.int64) << left)[None, :]
        ).ravel()
        shifts.append(left)
        steps.append(width)
    return CellTable(
        np.concatenate(blocks), bits, root_bits, tuple(shifts), tuple(steps), code_bits
    )


def _level(
    starts: Longs, codes: Longs, cell_starts: Longs, *, width: int, offset_bits: int, code_bits: int
) -> tuple[Longs, Longs]:
    """The words of one level, and which of its cells have more than one boundary inside."""
    before = np.searchsorted(starts, cell_starts, side="right") - 1
    last = np.searchsorted(starts, cell_starts + ((1 << width) - 1), side="right") - 1
    inside = last - before
    after = np.minimum(before + 1, last)
    offset = np.where(inside > 0, starts[after] & ((1 << offset_bits) - 1), 0)
    words = offset << (2 * code_bits) | codes[after] << code_bits | codes[before]
    return words, np.flatnonzero(inside > 1)


def ring_ranges(ring: Ring) -> tuple[Longs, Longs, tuple[str, ...]]:
    """The ranges of a ring as arrays: their starts, the owner's index in the nodes, the nodes."""
    nodes = ring.nodes
    index = {node: i for i, node in enumerate(nodes)}
    points, owners = [], []
    for point, node in ring.replicas():
        points.append(point)
        owners.append(index[node])
    where = np.array(points, dtype=np.int64)
    what = np.array(owners, dtype=np.int64)
    # On a shared point the owner comes last.
    last = np.ones(len(where), dtype=bool)
    last[:-1] = where[1:] != where[:-1]
    where, what = where[last], what[last]
    if where[0] != 0:
        # From zero to the first point the last replica's range goes on.
        where = np.concatenate([np.zeros(1, dtype=np.int64), where])
        what = np.concatenate([what[-1:], what])
    return where, what, nodes


@dataclass(frozen=True)
class Pairs:
    """The distinct pairs that overlaying two tables of ranges gives.

    Attributes:
        starts: shape (n,), where either has a boundary.
        codes: shape (n,), the index of the pair.
        before, after: shape (pairs,), the codes of the two.
    """

    starts: Longs
    codes: Longs
    before: Longs
    after: Longs


def overlay(
    starts_before: Longs, codes_before: Longs, starts_after: Longs, codes_after: Longs
) -> Pairs:
    """Two tables of ranges as one, whose codes are pairs: one lookup answers both."""
    starts = np.union1d(starts_before, starts_after)
    old = codes_before[np.searchsorted(starts_before, starts, side="right") - 1]
    new = codes_after[np.searchsorted(starts_after, starts, side="right") - 1]
    width = int(codes_after.max()) + 1
    pairs, codes = np.unique(old * width + new, return_inverse=True)
    return Pairs(starts, _flat(codes), pairs // width, pairs % width)


def _flat(values: Any) -> Longs:
    return np.asarray(values, dtype=np.int64).ravel()
