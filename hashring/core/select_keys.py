"""Many keys at once: which of them lie inside a node's ranges.

One Python call a key costs more than all the rest, so nothing here is done key by key but what
must be. Most keys are decided by the top bits of their points alone: a table tells, for each value
of those bits, whether all such points are inside, or none is, or a boundary lies among them. Only
keys of the last kind are looked up one by one.

The top bits come in one of three ways:

- with numpy, for very many keys: from tables for pairs of bytes
  (:mod:`hashring.core.select_keys_numpy`);
- for a CRC and keys of one length: the CRC of such keys is a constant XOR one table entry for each
  byte of the key. A column of bytes (the third byte of every key, say) goes through its table in
  one ``bytes.translate``, and columns are XORed as integers of many thousand bits. A column in
  which all keys agree costs next to nothing;
- else by one hash a key, called from C.

That a CRC is such a sum of table entries is what every table-driven implementation rests on: see
R. N. Williams, "A painless guide to CRC error detection algorithms", 1993.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import compress, repeat
from typing import Any, Final, NamedTuple, TypeVar, cast

from hashring.core.hashing import RING_SIZE, HashAlgorithm, key_bytes
from hashring.core.keys_as_bytes import MAX_TABLE_BYTES, joined_keys, parts_of_point, points_of

T = TypeVar("T")

OUTSIDE: Final = 0
INSIDE: Final = 1
UNDECIDED: Final = 2
"""The class of a key by the top bits of its point: a boundary lies among the points with these."""


class Near(NamedTuple):
    """What is known of some keys by the top bits of their points.

    Attributes:
        numbers: which of the keys are not outside, rising; ``None`` when ``classes`` is of all.
        classes: the classes of those, or of all.
    """

    numbers: list[int] | None
    classes: bytes


Classify = Callable[[Sequence[Any]], Near | None]
"""What is known of some keys; ``None`` when they must be looked at one by one."""

NUMPY_CHUNK: Final = 16384
"""How many keys at a time are classified with numpy."""

# So many that all that belongs to them stays in the processor's cache, and that their text is
# short enough for the allocator not to ask the system for fresh pages each time.
_CHUNK: Final = 4096
# Below this many keys, one by one is as fast as making a table.
_TABLE_FROM: Final = 64
_COLUMNS_FROM: Final = 512
# Loading numpy takes as long as looking up a million keys without it.
_NUMPY_FROM: Final = 65_536
# With more boundaries most values of a top byte would be undecided.
_MOST_BOUNDS: Final = 80

_UINT32: Final = "I"
_ITEM: Final = array(_UINT32).itemsize
# Where an item of an array has its lowest byte, and the top byte of a point.
_LOWEST: Final = array(_UINT32, [1]).tobytes().index(1)
_TOP: Final = array(_UINT32, [1 << 24]).tobytes().index(1)
_PARITY: Final = bytes((0, 1)) * 128
_IS_UNDECIDED: Final = bytes(number == UNDECIDED for number in range(256))


def select_inside(
    items: Sequence[T],
    key: Callable[[T], str | bytes] | None,
    bounds: tuple[int, ...],
    algorithm: HashAlgorithm,
) -> list[T]:
    """The items whose keys' points are inside the ranges, in their order.

    Args:
        key: the key of an item; the item itself when ``None``.
        bounds: boundaries as made by :func:`hashring.core.ranges.bounds_of`.

    Raises:
        KeyTypeError, KeyValueError: a key has no point; the error tells of the first such key.
    """
    classify, chunk = _classifier(len(items), bounds, algorithm)
    chosen: list[T] = []
    for first in range(0, len(items), chunk):
        part = items[first : first + chunk]
        if not part:
            break  # Somebody took items out of the list meanwhile.
        keys = cast("Sequence[str | bytes]", part if key is None else list(map(key, part)))
        found = classify(keys)
        if found is None:
            chosen += compress(part, _one_by_one(keys, bounds, algorithm))
            continue
        numbers, classes = found
        near = _picked(part, numbers, classes)
        classes = classes.translate(None, bytes((OUTSIDE,)))
        if UNDECIDED in classes:
            near_keys = near if keys is part else _picked(keys, *found)
            chosen += compress(near, _decided(near_keys, classes, bounds, algorithm))
        else:
            chosen += near
    return chosen


def _picked(of: Sequence[T], numbers: list[int] | None, classes: bytes) -> list[T]:
    return list(compress(of, classes) if numbers is None else map(of.__getitem__, numbers))


def _decided(
    keys: Sequence[Any], classes: bytes, bounds: tuple[int, ...], algorithm: HashAlgorithm
) -> Iterable[int]:
    """For each key, none of them outside, 1 when it is inside, else 0."""
    if INSIDE not in classes:
        return _exact(keys, bounds, algorithm)
    undecided = list(compress(keys, classes.translate(_IS_UNDECIDED)))
    exact = iter(_exact(undecided, bounds, algorithm))
    # What the class says, or the next of the exact answers.
    answers: tuple[Iterator[int], ...] = (repeat(0), repeat(1), exact)
    return map(next, map(answers.__getitem__, classes))


def _exact(keys: Sequence[Any], bounds: tuple[int, ...], algorithm: HashAlgorithm) -> bytes:
    points = points_of(keys, algorithm)
    if points is None:
        return bytes(_one_by_one(keys, bounds, algorithm))
    found = array(_UINT32, map(bisect_right, repeat(bounds), points))
    return found.tobytes()[_LOWEST::_ITEM].translate(_PARITY)


def _one_by_one(
    keys: Iterable[str | bytes], bounds: tuple[int, ...], algorithm: HashAlgorithm
) -> list[int]:
    point = algorithm.point_of_bytes
    return [bisect_right(bounds, point(key_bytes(key))) & 1 for key in keys]


def _classifier(
    count: int, bounds: tuple[int, ...], algorithm: HashAlgorithm
) -> tuple[Classify, int]:
    """What classifies, and how many keys at a time."""
    if count < _TABLE_FROM:
        return lambda keys: None, _CHUNK
    if count >= _NUMPY_FROM and (numpy_classifier := _numpy_classifier()) is not None:
        return numpy_classifier(bounds, algorithm), NUMPY_CHUNK
    if len(bounds) > _MOST_BOUNDS:
        return lambda keys: Near(None, _exact(keys, bounds, algorithm)), _CHUNK
    table = class_table(bounds, 8)
    if table.count(INSIDE) < table.count(UNDECIDED):
        # Most of what is not outside is undecided: to look at all of it is less than to sort.
        table = table.replace(bytes((INSIDE,)), bytes((UNDECIDED,)))

    tables = _top_tables(algorithm) if algorithm.affine else None

    def classify(keys: Sequence[Any]) -> Near | None:
        top = _top_by_columns(keys, algorithm, tables) if tables is not None else None
        if top is None:
            points = points_of(keys, algorithm)
            if points is None:
                return None
            top = points.tobytes()[_TOP::_ITEM]
        return Near(None, top.translate(table))

    return classify, _CHUNK


@cache
def _numpy_classifier() -> Callable[[tuple[int, ...], HashAlgorithm], Classify] | None:
    try:
        from hashring.core.select_keys_numpy import NumpyClassifier  # noqa: PLC0415 - slow to load
    except ImportError:
        return None
    return NumpyClassifier


def class_table(bounds: tuple[int, ...], bits: int) -> bytes:
    """The class of the points that begin with each of the values of ``bits`` bits."""
    size = RING_SIZE >> bits
    pieces: list[bytes] = []
    filled = inside = 0
    for bound in bounds:
        value, offset = divmod(bound, size)
        if value > filled:
            pieces.append(bytes((inside,)) * (value - filled))
            filled = value
        if offset and value == filled:
            pieces.append(bytes((UNDECIDED,)))
            filled += 1
        inside ^= 1
    pieces.append(bytes((OUTSIDE,)) * ((1 << bits) - filled))
    return b"".join(pieces)


# What :func:`cells_of` says of a cell, by its class: an answer, or None when the search must tell.
_ANSWERS: Final = (False, True, None)
_FEWEST_CELL_BITS: Final = 8
_MOST_CELL_BITS: Final = 16


def cells_of(bounds: tuple[int, ...]) -> tuple[tuple[bool | None, ...], int]:
    """A table that answers for most single points without a search: the cells, and a shift.

    ``cells[point >> shift]`` says whether the point is inside, or is ``None`` when a boundary
    lies in that cell. There are at least eight times as many cells as boundaries (up to 8,192
    boundaries), so at most one point in eight is left to a search.
    """
    bits = (8 * len(bounds)).bit_length()
    bits = max(_FEWEST_CELL_BITS, min(bits, _MOST_CELL_BITS))
    return tuple(map(_ANSWERS.__getitem__, class_table(bounds, bits))), 32 - bits


# --- by columns -----------------------------------------------------------------------------------


class _TopTables(dict[int, bytes]):
    """What a byte adds to the top byte of an affine point, by how many bytes come after it."""

    def __init__(self, algorithm: HashAlgorithm) -> None:
        self._algorithm = algorithm

    def __missing__(self, behind: int) -> bytes:
        table = bytes(part >> 24 for part in parts_of_point(self._algorithm, behind))
        self[behind] = table
        return table


# Made once in a process; few rings have the same process ask for more than one algorithm.
_top_tables = lru_cache(maxsize=4)(_TopTables)


def _top_by_columns(
    keys: Sequence[Any], algorithm: HashAlgorithm, tables: Mapping[int, bytes]
) -> bytes | None:
    """The top bytes of the keys' points, when all keys have the same length in bytes."""
    count = len(keys)
    if count < _COLUMNS_FROM:
        return None
    text = joined_keys(keys, alike=True)
    if text is None:
        return None
    text += b"\0"
    width, rest = divmod(len(text), count)
    length = width - 1
    if rest or not 0 < length <= MAX_TABLE_BYTES:
        return None
    top = algorithm.point_of_bytes(bytes(length)) >> 24
    varying = 0
    for at in range(length):
        column = text[at::width]
        if 0 in column:
            return None  # What looks like rows are not the keys.
        table = tables[length - 1 - at]
        if column == column[:1] * count:
            top ^= table[column[0]]
        else:
            varying ^= int.from_bytes(column.translate(table), "little")
    varying ^= int.from_bytes(bytes((top,)) * count, "little")
    return varying.to_bytes(count, "little")
