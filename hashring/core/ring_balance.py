"""How even a ring is, against how even random points would make it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import sqrt

from hashring.core.expected_loads import ExpectedLoad, expected_loads, expected_peak_to_mean
from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring


@dataclass(frozen=True)
class Balance:
    """The evenness of a ring's shares. A node's fair share is in proportion to its points.

    Attributes:
        peak_to_mean: the greatest ratio of a node's share to its fair share; 1 is perfect.
        cv: coefficient of variation of these ratios: their standard deviation, the mean being 1.
        expected_peak_to_mean, expected_cv: the same on average over rings with as many nodes and
            points, placed at random. Of the second, the root of the mean square.
    """

    peak_to_mean: float
    cv: float
    expected_peak_to_mean: float
    expected_cv: float


@dataclass(frozen=True)
class NodeLoad:
    """A node's load, in its rank among the nodes.

    Attributes:
        node: its name.
        load: its share over the share that its points should have.
        expected: the load of that rank on a ring of random points.
    """

    node: str
    load: float
    expected: ExpectedLoad


def balance(ring: Ring) -> Balance | None:
    """How even the ring is; ``None`` for one without nodes."""
    if not ring.node_count:
        return None
    counts = {node: len(ring.points_of(node)) for node in ring.nodes}
    total = len(ring)
    ratios = node_loads(ring).values()
    cv = sqrt(sum((ratio - 1) ** 2 for ratio in ratios) / len(ratios))
    spread = sum((total - count) / (count * (total + 1)) for count in counts.values())
    return Balance(
        max(ratios),
        cv,
        expected_peak_to_mean(tuple(sorted(Counter(counts.values()).items()))),
        sqrt(spread / len(counts)),
    )


def node_loads(ring: Ring) -> dict[str, float]:
    """The ratio of each node's share to its fair share, in order of the nodes' names."""
    total = len(ring)
    return {
        node: points / RING_SIZE * total / len(ring.points_of(node))
        for node, points in ring.shares.items()
    }


def ranked_loads(ring: Ring) -> tuple[NodeLoad, ...]:
    """Every node's load beside what is expected, from the least to the greatest."""
    ranked = sorted(node_loads(ring).items(), key=lambda item: (item[1], item[0].encode()))
    expected = expected_loads(len(ring.points_of(node)) for node, _ in ranked)
    return tuple(
        NodeLoad(node, load, each) for (node, load), each in zip(ranked, expected, strict=True)
    )
