"""A table of ranges as arrays, which answer "which range is this number in" for the lookups here.

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

Where the codes are short, as many as the slots and one more fit into the word in place of the rank:

    1 << 62 | code | code | code | slot | slot

The number of slots below the number's offset then selects the code, and there is no array of codes
to read: of a large ring, each read waits for memory longer than all the arithmetic takes.

So a lookup is one read of the root, one of each level, a comparison a slot and perhaps one read of
the codes. Each array is read in one place of the expression only: Spark copies an array for each
place that reads it. At one level, as for random points, the expression stays small when a filter on
the result is pushed below it. The idea of ranks packed beside a few bits that refine them is that
of succinct data structures (G. Jacobson, "Space-efficient static trees and graphs", 1989).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hashring.errors import ConfigError
from hashring.spark.engine.array_types import Longs

RESOLVED: Final = 1 << 62
"""Set in a word that holds a rank or codes; one with the place of a block is below 2**31."""
STEP: Final = 3
"""Bits that the first level below the root resolves: more would make it larger than a cache."""
LAST_STEP: Final = 4
"""As many where no other level is needed then."""
DEEP_STEP: Final = 8
"""Bits that the second level and all below resolve at most. A small ring or a random one needs few
of them, and clustered points many: an expression doubles with each level, and a plan of several
lookups has to stay as short as Java compiles."""
MAX_SLOTS: Final = 3
MIN_ROOT_BITS: Final = 12
MAX_RING_ROOT_BITS: Final = 20
"""Above this the root would not fit a processor's cache."""
MAX_ROOT_BITS: Final = 22
_LEAST_SLOTS: Final = 2
"""Of a word that holds codes: with one slot, too many cells would need a block."""
_WORD_BITS: Final = 62
MAX_WORDS: Final = 2**27
"""Of the root and the levels together: an array of Java ends at 2**31 bytes."""


@dataclass(frozen=True)
class RangeTable:
    """The arrays and how to read them.

    Attributes:
        root: shape (2**root_bits,), the words of the root's cells.
        levels: for each level below, its words; blocks of ``2**step`` of them.
        codes: shape (ranges,), the code of each rank; ``None`` where it is the rank itself, or
            where the words hold codes.
        code_bits: the width of a code in a word; 0 where words hold ranks.
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
    code_bits: int = 0

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


def range_table(
    starts: npt.ArrayLike,
    codes: npt.ArrayLike,
    bits: int,
    *,
    max_root_bits: int = MAX_ROOT_BITS,
    deep_step: int = LAST_STEP,
) -> RangeTable:
    """The table of ranges that begin at ``starts``, each up to the next, the last to the top.

    Args:
        starts: shape (n,), rising, the first 0, all below ``2**bits``.
        codes: shape (n,), not negative.
        bits: from 1 to 62.
        max_root_bits: a bound of the root's size, unless the ranges need more.
        deep_step: bits that the second level and all below resolve at most.

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

    by_rank = _narrow(what)
    root_bits, slots, code_bits = _layout(
        len(where), bits, max_root_bits, 0 if by_rank is None else int(what.max()).bit_length()
    )
    offset_bits = bits - root_bits

    levels: list[Longs] = []
    shifts: list[int] = []
    steps: list[int] = []
    cell_starts = np.arange(1 << root_bits, dtype=np.int64) << offset_bits
    left = offset_bits
    size = 0
    while True:
        words, several = _level(
            where,
            what if code_bits else None,
            cell_starts,
            width=left,
            offset_bits=offset_bits,
            slots=slots,
            code_bits=code_bits,
        )
        levels.append(words)
        size += len(words)
        if not len(several):
            break
        usual, most = (deep_step, deep_step) if shifts else (STEP, LAST_STEP)
        if size + (len(several) << min(most, left)) > MAX_WORDS:
            raise ConfigError("starts", len(where), "too many boundaries for one table")
        crowded = cell_starts[several]
        step = _last_step(where, crowded, left, slots=slots, most=most) or min(usual, left)
        words[several] = np.arange(len(several), dtype=np.int64) << step
        left -= step
        cell_starts = _split(crowded, left, step)
        shifts.append(left)
        steps.append(step)
    return RangeTable(
        root=levels[0],
        levels=tuple(levels[1:]),
        codes=None if code_bits else by_rank,
        bits=bits,
        root_bits=root_bits,
        shifts=tuple(shifts),
        step_bits=tuple(steps),
        slots=slots,
        code_bits=code_bits,
    )


def _layout(count: int, bits: int, max_root_bits: int, code_bits: int) -> tuple[int, int, int]:
    """The root's bits, the slots of a word, and the width of a code in it (0 for a rank).

    Args:
        count: of ranges.
        code_bits: of the largest code; 0 where the rank is the code.
    """
    roomy = min(max(MIN_ROOT_BITS, (count - 1).bit_length() + 1), max_root_bits, bits)
    if code_bits:
        # A smaller root stays longer in a processor's cache.
        for root_bits in (max(roomy - 1, min(MIN_ROOT_BITS, bits)), roomy):
            slots = (_WORD_BITS - code_bits) // (bits - root_bits + code_bits)
            if slots >= _LEAST_SLOTS:
                return root_bits, min(slots, MAX_SLOTS), code_bits
    rank_bits = max((count - 1).bit_length(), 1)
    # At least one slot has to fit.
    root_bits = min(max(roomy, bits + rank_bits - _WORD_BITS), bits)
    offset_bits = bits - root_bits
    if offset_bits + rank_bits > _WORD_BITS or 1 << root_bits > MAX_WORDS:
        raise ConfigError("starts", count, f"too many ranges to look up among 2**{bits} numbers")
    return root_bits, min((_WORD_BITS - rank_bits) // max(offset_bits, 1), MAX_SLOTS), 0


def _narrow(codes: Longs) -> npt.NDArray[Any] | None:
    """The codes in as few bytes as hold them; ``None`` for 0, 1, 2..."""
    if np.array_equal(codes, np.arange(len(codes))):
        return None
    most = int(codes.max())
    kind = np.int16 if most < 2**15 else np.int32 if most < 2**31 else np.int64
    return codes.astype(kind)


def _split(cell_starts: Longs, width: int, step: int) -> Longs:
    """Where the ``2**step`` parts of each cell start, each ``width`` bits wide."""
    parts = np.arange(1 << step, dtype=np.int64) << width
    split: Longs = (cell_starts[:, None] + parts[None, :]).ravel()
    return split


def _last_step(
    starts: Longs, cell_starts: Longs, left: int, *, slots: int, most: int
) -> int | None:
    """The least bits that split each cell into parts without too many boundaries, if any do.

    Args:
        left: the width of a cell, in bits.
        most: bits to split it by at most.
    """
    for step in range(1, min(most, left) + 1):
        _, inside = _inside(starts, _split(cell_starts, left - step, step), left - step)
        if int(inside.max()) <= slots:
            return step
    return None


def _inside(starts: Longs, cell_starts: Longs, width: int) -> tuple[Longs, Longs]:
    """The rank at the start of each cell, and how many boundaries are inside it."""
    before = np.searchsorted(starts, cell_starts, side="right") - 1
    last = np.searchsorted(starts, cell_starts + ((1 << width) - 1), side="right") - 1
    return before, last - before


def _level(
    starts: Longs,
    codes: Longs | None,
    cell_starts: Longs,
    *,
    width: int,
    offset_bits: int,
    slots: int,
    code_bits: int,
) -> tuple[Longs, Longs]:
    """The words of one level, and which of its cells have more boundaries inside than slots."""
    before, inside = _inside(starts, cell_starts, width)
    mask = (1 << offset_bits) - 1
    top = len(starts) - 1
    if codes is None:
        values = before
    else:
        values = np.zeros_like(before)
        for place in range(slots + 1):
            values |= codes[np.minimum(before + place, top)] << (place * code_bits)
    words = RESOLVED | values << (slots * offset_bits)
    for slot in range(slots):
        boundary = starts[np.minimum(before + 1 + slot, top)]
        # A boundary inside is never at its cell's start, so its offset is at least 1.
        words |= np.where(inside > slot, (boundary & mask) - 1, mask) << (slot * offset_bits)
    return words, np.flatnonzero(inside > slots)
