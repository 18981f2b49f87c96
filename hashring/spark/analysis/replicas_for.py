"""How many points a node needs for a ring of random points to be even enough."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np

from hashring.errors import ConfigError
from hashring.spark.analysis.scenarios import MOST_POINTS, Scenario
from hashring.spark.engine.array_types import Floats

_SHARES: Final = 1_000_000
_LEAST_RINGS: Final = 1000
_MOST_RINGS: Final = 20_000


@dataclass(frozen=True)
class ReplicasAnswer:
    """How many points a node needs.

    Attributes:
        replicas: the least number with which enough rings stay within the peak.
        tried: for each number tried, the part of the rings that stay within it; rising numbers.
    """

    replicas: int
    tried: tuple[tuple[int, float], ...]


def replicas_for(
    nodes: int,
    peak: float,
    confidence: float = 0.99,
    *,
    seed: int = 0,
    most: int = 16_384,
) -> ReplicasAnswer:
    """The least number of randomly placed points with which ``confidence`` of rings stay within
    ``peak`` times the mean.

    Doubles, then halves the interval. No point is drawn: the shares of nodes with ``r`` random
    points each are distributed as Gamma(``r``) variables divided by their sum
    (:mod:`hashring.core.expected_loads`), so this takes seconds whatever the answer. It is as exact
    as the sample of 1,000 to 20,000 rings: at 50 nodes to about two points in a hundred.
    :func:`hashring.spark.drawn_within` puts it to the test.

    Args:
        nodes: how many, all of weight 1.
        most: no more points than these are tried, nor rings of more than 5 million in all.

    Raises:
        ConfigError: not even ``most`` points do; or an argument makes no sense.
    """
    Scenario(nodes, 1)
    if not 1 < peak < math.inf:
        raise ConfigError("peak", peak, "a ring of random points is never perfectly even; say 1.2")
    if not 0 < confidence < 1:
        raise ConfigError("confidence", confidence, "a part of the rings, such as 0.99")
    tried: dict[int, float] = {}

    def enough(replicas: int) -> bool:
        tried[replicas] = float((_peaks(nodes, replicas, seed) <= peak).mean())
        return tried[replicas] >= confidence

    most = min(most, MOST_POINTS // nodes)
    if not enough(most):
        nearest = float(np.quantile(_peaks(nodes, most, seed), confidence, method="higher"))
        raise ConfigError(
            "peak",
            peak,
            f"out of reach of random points: {most:,} for each of {nodes:,} nodes keep "
            f"{100 * confidence:g}% of rings within {math.ceil(nearest * 1e4) / 1e4:g}; ask for "
            f"that or more, or look at what balanced placement keeps",
        )
    high = 1
    while high < most and not enough(high):
        high *= 2
    high = min(high, most)
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if enough(middle):
            high = middle
        else:
            low = middle
    return ReplicasAnswer(high, tuple(sorted(tried.items())))


def _peaks(nodes: int, replicas: int, seed: int) -> Floats:
    """The peak-to-mean of some rings of random points, by their distribution."""
    rings = min(max(_LEAST_RINGS, _SHARES // nodes), _MOST_RINGS, 100 * _SHARES // nodes)
    # The same chance for every number of points: the part of the rings then rises smoothly.
    # numpy takes no negative number.
    rng = np.random.Generator(np.random.PCG64(seed % 2**64))
    a_time = max(1, _SHARES // nodes)
    parts = []
    for first in range(0, rings, a_time):
        shares = rng.standard_gamma(replicas, (min(a_time, rings - first), nodes))
        parts.append(shares.max(axis=1) / shares.mean(axis=1))
    return np.concatenate(parts)
