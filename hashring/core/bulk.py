"""Many keys at once: which of them lie inside a node's ranges."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from hashring.core.hashing import HashAlgorithm, key_bytes


def inside(
    keys: Sequence[str | bytes], bounds: tuple[int, ...], algorithm: HashAlgorithm
) -> Sequence[int]:
    """For each key 1 when its point is inside the ranges, else 0.

    Args:
        bounds: boundaries as made by :func:`hashring.core.ring.bounds_of`.

    Raises:
        KeyTypeError, KeyValueError: a key has no point.
    """
    point = algorithm.point_of_bytes
    return [bisect_right(bounds, point(key_bytes(key))) & 1 for key in keys]
