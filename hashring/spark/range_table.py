"""Arrays that answer "which range is this number in": the tables behind every lookup here.

The numbers ``[0, 2**bits)`` are cut into ranges, each with a code (an owner, a pair of owners, a
version). The *rank* of a number is how many ranges begin at or below it, less one; ``codes[rank]``
is the code.

The top bits of a number index a *cell* of the root array. A cell with few boundaries inside packs
into one 64-bit word

    1 << 62 | rank at its start << slots * w | slot | slot | ...

Each slot is ``w`` bits: the offset of a boundary in the root's cell, less one, or all ones for a
slot without a boundary. The rank of a number is the rank at the cell's start plus the slots below
the number's own offset. A cell with more boundaries than slots holds the place of a block in the
next level's array instead, which splits the cell by the next few bits, and so on.

So a lookup is one read of the root, one of each level, a comparison a slot and one read of the
codes. Each array is read in one place of the expression only: Spark copies an array for each place
that reads it. At one level, as for random points, the expression stays small when a filter on the
result is pushed below it. The idea of ranks packed beside a few bits that refine them is that of
succinct data structures (G. Jacobson, "Space-efficient static trees and graphs", 1989).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hashring.core.ring import Ring
from hashring.errors import ConfigError

Longs = npt.NDArray[np.int64]

RESOLVED: Final = 1 << 62
"""Set in a word that holds a rank; a word that holds the place of a block is below 2**31."""
STEP: Final = 4
"""Bits that each level below the root resolves, unless told."""
DEEP_STEP: Final = 8
"""The same for the second level and all below, which only clustered points need: an expression
doubles with each level, and a plan of several lookups has to stay as short as Java compiles."""
MAX_SLOTS: Final = 3
MIN_ROOT_BITS: Final = 12
MAX_RING_ROOT_BITS: Final = 20
"""Above this the root would not fit a processor's cache."""
MAX_ROOT_BITS: Final = 22
_WORD_BITS: Final = 62
MAX_WORDS: Final = 2**27
"""Of the root and the levels together: an array of Java ends at 2**31 bytes."""


@dataclass(frozen=True)
class RangeTable:
    """The arrays and how to read them.

    Attributes:
        root: shape (2**root_bits,), the words of the root's cells.
        levels: for each level below, its words; blocks of ``2**step`` of them.
        codes: shape (ranges,), the code of each rank; ``None`` where it is the rank itself.
        bits: the numbers are in ``[0, 2**bits)``.
        root_bits: how many top bits index the root.
        shifts: for each level, how far a number is shifted before the low bits index a block.
        step_bits: as many low bits, level by level.
        slots: boundaries that a word holds at most.
    """

    root: Longs
    levels: tuple[Longs, ...]
    codes: npt.NDArray[Any] | None
    bits: int
    root_bits: int
    shifts: tuple[int, ...]
    step_bits: tuple[int, ...]
    slots: int

    @property
    def offset_bits(self) -> int:
        """The width of a slot: the bits below the root's."""
        return self.bits - self.root_bits

    @property
    def words(self) -> int:
        """How many words the root and the levels have together."""
        return len(self.root) + sum(map(len, self.levels))

    @property
    def bytes(self) -> int:
        """What all arrays take."""
        return 8 * self.words + (0 if self.codes is None else int(self.codes.nbytes))

    def find(self, numbers: npt.ArrayLike) -> Longs:
        """The code at each number, by the same steps as the Spark expression. For checks.

        Args:
            numbers: integers in ``[0, 2**bits)``, any shape.
        """
        at = np.asarray(numbers, dtype=np.int64)
        words = self.root[at >> self.offset_bits]
        for level, shift, step in zip(self.levels, self.shifts, self.step_bits, strict=True):
            blocks = words < RESOLVED
            below = np.where(blocks, words, 0) + ((at >> shift) & ((1 << step) - 1))
            words = np.where(blocks, level[np.where(blocks, below, 0)], words)
        mask = (1 << self.offset_bits) - 1
        ranks = (words & (RESOLVED - 1)) >> (self.slots * self.offset_bits)
        for slot in range(self.slots):
            ranks = ranks + (((words >> (slot * self.offset_bits)) & mask) < (at & mask))
        found: Longs = ranks if self.codes is None else self.codes[ranks].astype(np.int64)
        return found


def range_table(
    starts: npt.ArrayLike,
    codes: npt.ArrayLike,
    bits: int,
    *,
    max_root_bits: int = MAX_ROOT_BITS,
    deep_step: int = STEP,
) -> RangeTable:
    """The table of ranges that begin at ``starts``, each up to the next, the last to the top.

    Args:
        starts: shape (n,), rising, the first 0, all below ``2**bits``.
        codes: shape (n,), not negative.
        bits: from 1 to 62.
        max_root_bits: a bound of the root's size, unless the ranges need more.
        deep_step: bits that the second level and all below resolve; the first resolves 4.

    Raises:
        ConfigError: the ranges and numbers together need more than a 64-bit word, or the table
            more than 2**27 words.
    """
    where = np.asarray(starts, dtype=np.int64)
    what = np.asarray(codes, dtype=np.int64)
    # Neighbours with one code are one range: fewer boundaries, fewer levels.
    first = np.ones(len(where), dtype=bool)
    first[1:] = what[1:] != what[:-1]
    where, what = where[first], what[first]

    rank_bits = max((len(where) - 1).bit_length(), 1)
    root_bits = min(max(MIN_ROOT_BITS, (len(where) - 1).bit_length() + 1), max_root_bits)
    # At least one slot has to fit.
    root_bits = min(max(root_bits, bits + rank_bits - _WORD_BITS), bits)
    offset_bits = bits - root_bits
    if offset_bits + rank_bits > _WORD_BITS or 1 << root_bits > MAX_WORDS:
        raise ConfigError(
            "starts", len(where), f"too many ranges to look up among 2**{bits} numbers"
        )
    slots = min((_WORD_BITS - rank_bits) // max(offset_bits, 1), MAX_SLOTS)

    levels: list[Longs] = []
    shifts: list[int] = []
    steps: list[int] = []
    cell_starts = np.arange(1 << root_bits, dtype=np.int64) << offset_bits
    left = offset_bits
    size = 0
    while True:
        words, several = _level(
            where, cell_starts, width=left, offset_bits=offset_bits, slots=slots
        )
        levels.append(words)
        size += len(words)
        if not len(several):
            break
        step = min(deep_step if shifts else STEP, left)
        left -= step
        if size + (len(several) << step) > MAX_WORDS:
            raise ConfigError("starts", len(where), "too many boundaries for one table")
        words[several] = np.arange(len(several), dtype=np.int64) << step
        cell_starts = (
            cell_starts[several][:, None] + (np.arange(1 << step, dtype=np.int64) << left)[None, :]
        ).ravel()
        shifts.append(left)
        steps.append(step)
    return RangeTable(
        root=levels[0],
        levels=tuple(levels[1:]),
        codes=_narrow(what),
        bits=bits,
        root_bits=root_bits,
        shifts=tuple(shifts),
        step_bits=tuple(steps),
        slots=slots,
    )


def _narrow(codes: Longs) -> npt.NDArray[Any] | None:
    """The codes in as few bytes as hold them; ``None`` for 0, 1, 2..."""
    if np.array_equal(codes, np.arange(len(codes))):
        return None
    most = int(codes.max())
    kind = np.int16 if most < 2**15 else np.int32 if most < 2**31 else np.int64
    return codes.astype(kind)


def _level(
    starts: Longs, cell_starts: Longs, *, width: int, offset_bits: int, slots: int
) -> tuple[Longs, Longs]:
    """The words of one level, and which of its cells have more boundaries inside than slots."""
    before = np.searchsorted(starts, cell_starts, side="right") - 1
    last = np.searchsorted(starts, cell_starts + ((1 << width) - 1), side="right") - 1
    inside = last - before
    mask = (1 << offset_bits) - 1
    words = RESOLVED | before << (slots * offset_bits)
    for slot in range(slots):
        boundary = starts[np.minimum(before + 1 + slot, len(starts) - 1)]
        # A boundary inside is never at its cell's start, so its offset is at least 1.
        words |= np.where(inside > slot, (boundary & mask) - 1, mask) << (slot * offset_bits)
    return words, np.flatnonzero(inside > slots)


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
