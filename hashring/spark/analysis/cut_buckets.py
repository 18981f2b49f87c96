"""Buckets of points in which the owner changes, shared out by the points of each owner.

A histogram does not say where in a bucket its rows are. So of such a bucket an owner has between
none and all of its rows, and :meth:`CutBuckets.errors` sums up by how much that may be wrong.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hashring.core.hashing import RING_SIZE
from hashring.spark.engine.array_types import Floats, Longs


@dataclass(frozen=True)
class CutBuckets:
    """The parts of buckets. Those of one bucket follow each other.

    Attributes:
        bucket, code: shape (parts,): the index of the bucket, and the code that has the part.
        keys, weight, bad_weights: what of the bucket's rows was given to the part.
    """

    bucket: Longs
    code: Longs
    keys: Longs
    weight: Floats
    bad_weights: Longs

    # Weights that sum up to more than a DOUBLE holds are refused where they are shown.
    @np.errstate(over="ignore", invalid="ignore")
    def errors(self, groups: Longs, count: int) -> tuple[Longs, Floats]:
        """By how much the rows and the weight of each group of codes may be wrong, at most.

        Args:
            groups: the group of each code; -1 for a code of none.
            count: how many groups there are.
        """
        buckets = int(self.bucket.max(initial=-1)) + 1
        of_bucket = np.bincount(self.bucket, minlength=buckets)
        group = groups[self.code]
        inside = np.flatnonzero(group >= 0)
        both, at = np.unique(self.bucket[inside] * count + group[inside], return_inverse=True)
        bucket, owner = both // max(count, 1), both % max(count, 1)
        cut = np.bincount(at, minlength=len(both)) < of_bucket[bucket]
        found = []
        for values in (self.keys, self.weight):
            total = np.bincount(self.bucket, weights=values, minlength=buckets)
            given = np.bincount(at, weights=values[inside], minlength=len(both))
            too_many, too_few = np.zeros(count), np.zeros(count)
            np.add.at(too_many, owner[cut], given[cut])
            np.add.at(too_few, owner[cut], (total[bucket] - given)[cut])
            found.append(np.maximum(too_many, too_few))
        return found[0].astype(np.int64), found[1]


def shared_out(  # noqa: PLR0917 - the columns of buckets, and of ranges
    low: Longs, high: Longs, keys: Longs, weight: Floats, bad: Longs, starts: Longs, codes: Longs
) -> CutBuckets:
    """Share out buckets by the number of points that each code has in them.

    Args:
        low, high: the points of each bucket, from ``low`` up to but without ``high``.
        keys, weight, bad: its rows, their weight, and how many of the weights are unusable.
        starts, codes: where each range begins, rising from 0, and its code.
    """
    first = np.searchsorted(starts, low, side="right") - 1
    last = np.searchsorted(starts, high - 1, side="right") - 1
    parts = last - first + 1
    bucket = np.repeat(np.arange(len(low)), parts)
    at = np.arange(len(bucket)) + np.repeat(first - (np.cumsum(parts) - parts), parts)
    ends = np.append(starts[1:], RING_SIZE)
    width = (high - low)[bucket]
    up_to = (np.minimum(ends[at], high[bucket]) - low[bucket]) / width
    before = (np.maximum(starts[at], low[bucket]) - low[bucket]) / width

    def whole(values: Longs) -> Longs:
        # Rounded at the edges, the parts add up.
        rounded: Floats = np.rint(up_to * values[bucket]) - np.rint(before * values[bucket])
        return rounded.astype(np.int64)

    weights = (up_to - before) * weight[bucket]
    return CutBuckets(bucket, codes[at], whole(keys), weights, whole(bad))
