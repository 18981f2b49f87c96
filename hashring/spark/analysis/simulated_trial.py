"""One trial of a simulation: draw a ring, measure it, let a node join, and let one leave."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pandas as pd

from hashring.core.hashing import RING_SIZE
from hashring.core.point_placement import balanced_points
from hashring.core.ring import Ring
from hashring.spark.engine.array_types import Floats, Longs

KEYS_PER_NODE: Final = 1000
"""How many random keys a node are spread to see what a limit does."""
CHURN: Final = 1
"""A balanced ring is built by joins, then by as many leaves and joins as this times its nodes, so
that what is measured is a fleet in use and not one freshly built."""

MEASURES: Final = (
    "peak_to_mean",
    "cv",
    "join_moved",
    "join_least",
    "leave_moved",
    "leave_least",
    "peak_after_leave",
    "spilled",
    "join_moved_keys",
)


@dataclass(frozen=True)
class _Points:
    """A ring as arrays, both of shape (points,): rising points and the node of each."""

    points: Longs
    owners: Longs

    @classmethod
    def of(cls, points: Longs, owners: Longs) -> _Points:
        order = np.lexsort((owners, points))
        return cls(points[order], owners[order])

    def shares(self, nodes: int) -> Floats:
        """The part of the ring each node owns, 0 to 1."""
        arcs = np.diff(self.points, append=self.points[0] + RING_SIZE)
        return np.bincount(self.owners, arcs, nodes) / RING_SIZE

    def without(self, node: int) -> _Points:
        kept = self.owners != node
        return _Points(self.points[kept], self.owners[kept])

    def joined(self, node: int, points: Longs) -> _Points:
        return _Points.of(
            np.concatenate([self.points, points]),
            np.concatenate([self.owners, np.full(len(points), node)]),
        )


def trial(row: Any, seed: int) -> tuple[float | None, ...]:
    """Draw and measure one ring.

    Args:
        row: the scenario and the number of the ring; see :func:`hashring.spark.simulate`.
        seed: of the simulation.

    Returns:
        The values of :data:`MEASURES`.
    """
    limit = None if pd.isna(row.limit) else float(row.limit)
    # The stream of one ring depends on its scenario and number alone.
    text = f"{seed}:{row.nodes}:{row.replicas}:{row.placement}:{row.weights}:{row.ring}"
    chance = random.Random(text)
    rng = np.random.Generator(np.random.PCG64(chance.getrandbits(64)))
    pattern = [float(weight) for weight in row.weights.split(",")]
    weights = np.array([pattern[i % len(pattern)] for i in range(row.nodes)])
    counts = np.maximum(1, np.rint(weights * row.replicas)).astype(np.int64)
    if row.placement == "balanced":
        ring, joined = _balanced(counts, row.replicas, chance)
    else:
        ring = _Points.of(
            rng.integers(0, RING_SIZE, counts.sum()), np.repeat(np.arange(row.nodes), counts)
        )
        joined = ring.joined(row.nodes, rng.integers(0, RING_SIZE, row.replicas))

    fair = weights / weights.sum()
    gone = int(rng.integers(row.nodes))
    shares = ring.shares(row.nodes)
    rest = np.delete(ring.without(gone).shares(row.nodes), gone)
    rest_fair = np.delete(fair, gone) / (1 - fair[gone])
    relative = shares / fair
    spilled = moved_keys = None
    if limit is not None:
        keys = np.sort(rng.integers(0, RING_SIZE, KEYS_PER_NODE * row.nodes))
        served, spilled = _served(ring, keys, fair, limit)
        fair_after = np.append(weights, 1.0) / (weights.sum() + 1)
        served_after, _ = _served(joined, keys, fair_after, limit)
        moved_keys = float((served != served_after).mean())
        relative = np.bincount(served, minlength=row.nodes) / len(keys) / fair
    return (
        float(relative.max()),
        float(relative.std()),
        float(joined.shares(row.nodes + 1)[row.nodes]),
        1 / (float(weights.sum()) + 1),
        float(shares[gone]),
        float(fair[gone]),
        float((rest / rest_fair).max()),
        spilled,
        moved_keys,
    )


def _balanced(counts: Longs, replicas: int, chance: random.Random) -> tuple[_Points, _Points]:
    ring = Ring()
    width = len(str(len(counts)))
    names = [f"{i:0{width}d}" for i in range(len(counts) + 1)]
    for name, count in zip(names, counts, strict=False):
        ring = ring.with_node(name, balanced_points(ring, name, int(count), chance))
    for _ in range(CHURN * len(counts)):
        node = chance.randrange(len(counts))
        ring = ring.without_nodes(names[node])
        points = balanced_points(ring, names[node], int(counts[node]), chance)
        ring = ring.with_node(names[node], points)
    joined = ring.with_node(names[-1], balanced_points(ring, names[-1], replicas, chance))
    return _points_of(ring), _points_of(joined)


def _points_of(ring: Ring) -> _Points:
    pairs = [(point, int(node)) for point, node in ring.replicas()]
    points, owners = zip(*pairs, strict=True)
    return _Points.of(np.array(points, dtype=np.int64), np.array(owners, dtype=np.int64))


def _served(ring: _Points, keys: Longs, fair: Floats, limit: float) -> tuple[Longs, float]:
    """The node that serves each key when nodes refuse what is above their limit, and the part of
    the keys that are not served by their owner."""
    replica = np.searchsorted(ring.points, keys, side="right") - 1
    owner = ring.owners[replica]
    room = np.ceil(np.minimum(limit * fair, 1.0) * len(keys)).astype(np.int64)
    # Which of its keys a full node refuses is the same before and after a change: the last ones.
    order = np.argsort(owner, kind="stable")
    counts = np.bincount(owner, minlength=len(fair))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = np.arange(len(keys)) - np.repeat(np.cumsum(counts) - counts, counts)
    refused = np.flatnonzero(rank >= room[owner])
    served = owner.copy()
    left = room - np.minimum(counts, room)
    for index in refused:
        at = int(replica[index])
        while left[ring.owners[at]] == 0:
            at = (at - 1) % len(ring.owners)  # as if that node had left
        served[index] = ring.owners[at]
        left[ring.owners[at]] -= 1
    return served, len(refused) / len(keys)
