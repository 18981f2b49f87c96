"""Keys as bytes: their points, their joined text, and what each byte adds to a point."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

from hashring.core.hashing import HashAlgorithm

MAX_TABLE_BYTES: Final = 64
"""Longer keys are hashed one by one: their tables would fall out of the processor's cache."""


def points_of(keys: Sequence[Any], algorithm: HashAlgorithm) -> array[int] | None:
    """The points of keys that are all ``str``, or all ``bytes``; ``None`` for any others."""
    try:
        # Whatever is wrong with a key, or with an algorithm of the user's own, is reported where
        # keys are looked at one by one.
        encoded = keys if _are_bytes(keys) else map(str.encode, keys)
        if all(keys):
            return array("I", map(algorithm.point_of_bytes, encoded))
    except (TypeError, ValueError, OverflowError):
        pass
    return None


def joined_keys(keys: Sequence[Any], *, alike: bool = False) -> bytes | None:
    """The keys with a zero byte between any two; ``None`` when that is of no use.

    They must be all ``str``, or all ``bytes``, and a few of them that are looked at must not be
    too long.

    Args:
        alike: whether those few must have one length.
    """
    try:
        lengths = set(map(len, keys[:: len(keys) // 16 or 1]))
        if max(lengths) > MAX_TABLE_BYTES or (alike and len(lengths) > 1):
            return None
        return b"\0".join(keys) if _are_bytes(keys) else "\0".join(keys).encode()
    except (TypeError, UnicodeEncodeError):
        return None


def _are_bytes(keys: Sequence[Any]) -> bool:
    return type(keys[0]) is bytes and set(map(type, keys)) == {bytes}


def parts_of_point(algorithm: HashAlgorithm, behind: int) -> list[int]:
    """What each value of a byte adds (by XOR) to an affine point; zero adds nothing.

    Args:
        behind: how many bytes come after the byte.
    """
    point = algorithm.point_of_bytes
    after = bytes(behind)
    nothing = point(b"\0" + after)
    return [point(bytes((value,)) + after) ^ nothing for value in range(256)]
