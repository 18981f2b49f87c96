"""The ranges of a ring as arrays, and those of two rings laid over each other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hashring.core.ring import Ring
from hashring.spark.engine.array_types import Longs


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
    flat = np.asarray(codes, dtype=np.int64).ravel()
    return Pairs(starts, flat, pairs // width, pairs % width)
