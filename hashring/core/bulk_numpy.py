"""The classes of very many keys, with numpy.

For a CRC the top 16 bits of a key's point are a constant for the key's length XOR one table entry
for each pair of its bytes, counted from the key's end. So keys of all lengths share the tables: the
first pair of a key of odd length begins with the zero byte before the key, which adds nothing.
See :mod:`hashring.core.bulk`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hashring.core.bulk import (
    MAX_TABLE_BYTES,
    NUMPY_CHUNK,
    class_table,
    joined,
    parts_of_point,
    points_of,
)
from hashring.core.hashing import HashAlgorithm

Cells = npt.NDArray[np.uint16]
"""The top 16 bits of points."""

# Two bytes as they follow each other in memory, whatever the machine.
_PAIR: Final = np.dtype("<u2")


class NumpyClassifier:
    """Gives the classes of keys; see :data:`hashring.core.bulk.Classify`."""

    def __init__(self, bounds: tuple[int, ...], algorithm: HashAlgorithm) -> None:
        self._algorithm = algorithm
        self._classes = np.frombuffer(class_table(bounds, 16), np.uint8)
        self._tables = _PairTables(algorithm) if algorithm.affine else None

    def __call__(self, keys: Sequence[Any]) -> bytes | None:  # noqa: D102 - the class says it
        cells = self._tables.cells(keys) if self._tables else None
        if cells is None:
            points = points_of(keys, self._algorithm)
            if points is None:
                return None
            cells = (np.asarray(points) >> 16).astype(np.uint16)
        return self._classes.take(cells).tobytes()


class _PairTables:
    def __init__(self, algorithm: HashAlgorithm) -> None:
        self._algorithm = algorithm
        # The joined keys; before them a zero byte, as between any two, and room for what is read
        # before a short first key. Written again and again: fresh memory would cost more than
        # all that is done with it.
        self._text = bytearray(MAX_TABLE_BYTES + NUMPY_CHUNK * (MAX_TABLE_BYTES + 1))
        self._bytes = np.frombuffer(self._text, np.uint8)
        self._zero = np.empty(len(self._text), np.bool_)

    def cells(self, keys: Sequence[Any]) -> Cells | None:
        """The cells of keys' points; ``None`` for keys that must be hashed one by one."""
        text = joined(keys)
        end = MAX_TABLE_BYTES + len(text or b"")
        if text is None or end > len(self._text):
            return None
        self._text[MAX_TABLE_BYTES:end] = text
        count = len(keys)
        first = MAX_TABLE_BYTES - 1
        zero = np.equal(self._bytes[first:end], 0, out=self._zero[first:end])
        if np.count_nonzero(zero) != count:
            return None  # A key holds a zero byte.
        width, rest = divmod(len(zero), count)
        if not rest and 1 < width <= MAX_TABLE_BYTES + 1 and zero[::width].all():
            return self._of_one_length(width - 1, count)
        starts = np.flatnonzero(zero)
        lengths = np.diff(starts, append=len(zero)) - 1
        if not 0 < lengths.min() <= lengths.max() <= MAX_TABLE_BYTES:
            return None
        return self._of_many_lengths(starts, lengths)

    def _of_one_length(self, length: int, count: int) -> Cells:
        pairs = (length + 1) // 2
        cells = np.full(count, _constants(self._algorithm)[length], np.uint16)
        # A row for each pair, the first pair first.
        grid = np.ndarray(
            (pairs, count),
            _PAIR,
            self._text,
            MAX_TABLE_BYTES + length - 2 * pairs,
            (2, length + 1),
        )
        for pair in range(pairs):
            cells ^= _pair_table(self._algorithm, pair).take(grid[pairs - 1 - pair])
        return cells

    def _of_many_lengths(
        self, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
    ) -> Cells:
        # Longest first: the keys that have a certain pair of bytes are then the first so many.
        order = np.argsort(lengths.astype(np.uint8), kind="stable")[::-1]
        ordered = lengths.take(order)
        pairs = (int(ordered[0]) + 1) // 2
        # The last bytes of every key, as many as the longest has.
        size = 2 * pairs
        windows = np.ndarray((len(self._text) - size + 1,), f"V{size}", self._text, 0, (1,))
        at = starts.take(order) + ordered + (MAX_TABLE_BYTES - size)
        grid = windows[at].view(_PAIR).reshape(len(order), pairs)
        # How many keys are at least so long.
        at_least = np.bincount(lengths)[::-1].cumsum()[::-1]
        cells = _constants(self._algorithm).take(ordered)
        for pair in range(pairs):
            having = at_least[2 * pair + 1]
            column = grid[:having, pairs - 1 - pair]
            cells[:having] ^= _pair_table(self._algorithm, pair).take(column)
        found = np.empty_like(cells)
        found[order] = cells
        return found


@lru_cache(maxsize=16)
def _constants(algorithm: HashAlgorithm) -> Cells:
    """The cells of zero bytes, by how many they are."""
    point = algorithm.point_of_bytes
    return np.array([point(bytes(n)) >> 16 for n in range(MAX_TABLE_BYTES + 1)], np.uint16)


@lru_cache(maxsize=2 * MAX_TABLE_BYTES)
def _pair_table(algorithm: HashAlgorithm, pair: int) -> Cells:
    """What the two bytes before the last ``2 * pair`` ones add, by their value as one number."""
    last, before = (
        np.array(parts_of_point(algorithm, behind), np.uint32) >> 16
        for behind in (2 * pair, 2 * pair + 1)
    )
    added: Cells = np.bitwise_xor.outer(last, before).astype(np.uint16).ravel()
    return added
