"""What is known of very many keys, with numpy.

For a CRC the top 16 bits of a key's point are a constant for the key's length XOR one table entry
for each pair of its bytes, counted from the key's end. So keys of all lengths share the tables. The
first pair of a key of odd length begins with the zero byte before the key, which adds nothing.
See :mod:`hashring.core.select_keys`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hashring.core.hashing import HashAlgorithm
from hashring.core.keys_as_bytes import MAX_TABLE_BYTES, joined_keys, parts_of_point, points_of
from hashring.core.select_keys import NUMPY_CHUNK, Near, class_table

Cells = npt.NDArray[np.uint16]
"""The top 16 bits of points."""

# Two bytes as they follow each other in memory, whatever the machine.
_PAIR: Final = np.dtype("<u2")
# How many times more it costs to pick by number than to pass over a key.
_FEW: Final = 8


class NumpyClassifier:
    """Classify keys in bulk: a :data:`hashring.core.select_keys.Classify`."""

    def __init__(self, bounds: tuple[int, ...], algorithm: HashAlgorithm) -> None:
        self._algorithm = algorithm
        self._classes = np.frombuffer(class_table(bounds, 16), np.uint8)
        self._tables = _pair_tables(algorithm) if algorithm.affine else None
        # The joined keys. Before them a zero byte, as between any two, and before that room for
        # what is read before a short first key.
        self._text = bytearray(MAX_TABLE_BYTES + NUMPY_CHUNK * (MAX_TABLE_BYTES + 1))
        self._bytes = np.frombuffer(self._text, np.uint8)
        self._zero = np.empty(len(self._text), np.bool_)

    def __call__(self, keys: Sequence[Any]) -> Near | None:  # noqa: D102 - the class says it
        cells = self._affine_cells(keys, self._tables) if self._tables is not None else None
        if cells is None:
            points = points_of(keys, self._algorithm)
            if points is None:
                return None
            cells = (np.asarray(points) >> 16).astype(np.uint16)
        classes = self._classes.take(cells)
        numbers = np.flatnonzero(classes)
        if len(numbers) * _FEW > len(keys):
            return Near(None, classes.tobytes())
        return Near(numbers.tolist(), classes.take(numbers).tobytes())

    def _affine_cells(self, keys: Sequence[Any], tables: _PairTables) -> Cells | None:
        """The cells of keys' points; ``None`` for keys that must be hashed one by one."""
        end = self._write(keys)
        if end is None:
            return None
        first = MAX_TABLE_BYTES - 1
        zero = np.equal(self._bytes[first:end], 0, out=self._zero[first:end])
        width, rest = divmod(len(zero), len(keys))
        if not rest and 1 < width <= MAX_TABLE_BYTES + 1 and zero[::width].all():
            if np.count_nonzero(zero) != len(keys):
                return None  # A key holds a zero byte.
            return self._cells_of_one_length(width - 1, len(keys), tables)
        starts = np.flatnonzero(zero)
        if len(starts) != len(keys):
            return None
        ends = np.empty_like(starts)
        ends[:-1] = starts[1:]
        ends[-1] = len(zero)
        lengths = ends - starts
        lengths -= 1
        shortest, longest = int(lengths.min()), int(lengths.max())
        if not 0 < shortest <= longest <= MAX_TABLE_BYTES:
            return None
        # The last bytes of every key, as many as the longest has, and what stands before others.
        pairs = (longest + 1) // 2
        size = 2 * pairs
        windows = np.ndarray((len(self._text) - size + 1,), f"V{size}", self._text, 0, (1,))
        ends += first - size
        grid = windows[ends].view(_PAIR).reshape(len(keys), pairs)
        cells = tables.constants.take(lengths)
        part = np.empty_like(cells)
        for pair in range(pairs):
            # No two bytes are beyond their table: to clip is to take without looking for it.
            tables[pair].take(grid[:, pairs - 1 - pair], out=part, mode="clip")
            if 2 * pair >= shortest:
                part *= lengths > 2 * pair  # Nothing from before a shorter key.
            cells ^= part
        return cells

    def _cells_of_one_length(self, length: int, count: int, tables: _PairTables) -> Cells:
        pairs = (length + 1) // 2
        # A row for each pair, the first one first.
        grid = np.ndarray(
            (pairs, count),
            _PAIR,
            self._text,
            MAX_TABLE_BYTES + length - 2 * pairs,
            (2, length + 1),
        )
        cells = np.full(count, tables.constants[length], np.uint16)
        part = np.empty_like(cells)
        for pair in range(pairs):
            column = grid[pairs - 1 - pair]
            if column[0] == column[-1] and (column == column[0]).all():
                cells ^= tables[pair][column[0]]
            else:
                cells ^= tables[pair].take(column, out=part, mode="clip")
        return cells

    def _write(self, keys: Sequence[Any]) -> int | None:
        """Write the joined keys; where they end, or ``None`` when that is of no use."""
        text, first = self._text, MAX_TABLE_BYTES
        joint = joined_keys(keys)
        if joint is None or first + len(joint) > len(text):
            return None
        end = first + len(joint)
        text[first:end] = joint
        return end


class _PairTables(dict[int, Cells]):
    """What two bytes add to an affine cell, by how many pairs come after them.

    Each table goes by the value of the two bytes as one number.

    Attributes:
        constants: the cells of zero bytes, by how many they are.
    """

    def __init__(self, algorithm: HashAlgorithm) -> None:
        self._algorithm = algorithm
        point = algorithm.point_of_bytes
        zeros = [point(bytes(length)) >> 16 for length in range(MAX_TABLE_BYTES + 1)]
        self.constants: Cells = np.array(zeros, np.uint16)

    def __missing__(self, pair: int) -> Cells:
        last, before = (
            np.array(parts_of_point(self._algorithm, behind), np.uint32) >> 16
            for behind in (2 * pair, 2 * pair + 1)
        )
        table: Cells = np.bitwise_xor.outer(last, before).astype(np.uint16).ravel()
        self[pair] = table
        return table


# Made once in a process, up to 4 MB for an algorithm.
_pair_tables = lru_cache(maxsize=4)(_PairTables)
