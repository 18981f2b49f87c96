"""The loads that the nodes of a ring of random points are expected to have.

With ``V`` points at random on the ring, the parts between them have the distribution of ``V``
exponential variables divided by their sum. So nodes with ``v_1, v_2, ...`` points have the shares
``G_i / (G_1 + G_2 + ...)`` where ``G_i`` is Gamma(``v_i``), and the shares do not depend on the
sum. Two exact expectations follow:

- a share is Beta(v, V - v): its standard deviation over its mean is
  ``sqrt((V - v) / (v (V + 1)))``, and it is above ``s`` as often as fewer than ``v`` of ``V - 1``
  trials succeed, each with probability ``s``;
- the greatest ratio of a share to its fair share ``v / V`` is, on average, that of the greatest
  ``G_i / v_i``: the integral over ``y`` of ``1 - product of P(G_i <= v_i y)``. The same holds for
  the second and every other; their mean square is ``V / (V + 1)`` times that of the ``G_i / v_i``.

(L. Devroye, Non-Uniform Random Variate Generation, 1986, chapter XI.)
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import exp, fsum, isfinite, lgamma, log, log1p, sqrt
from typing import Final

from hashring.errors import ConfigError

_STEPS: Final = 256
_TINY: Final = 1e-12
_LOW, _HIGH = 0.05, 0.95
_DEVIATIONS: Final = 8.0


@dataclass(frozen=True)
class ExpectedLoad:
    """The ratio of share to fair share that has a given rank on a random ring.

    Attributes:
        mean: its mean over all random rings.
        low, high: nine of ten random rings lie between. Good to about a percent for rings of a
            hundred points and more, rough for those of a few.
    """

    mean: float
    low: float
    high: float


def expected_peak_to_mean(counts: tuple[tuple[int, int], ...]) -> float:
    """The greatest ratio of a share to its fair share, on average over random points.

    Args:
        counts: pairs of a number of points and how many nodes have that number.

    Exact but for the numeric integration, whose error is below 0.001.
    """
    return 1.0 if sum(many for _, many in counts) <= 1 else _greatest(counts).mean


def share_likelihood(points: int, total: int, share: float) -> float:
    """How likely a node's share is that far from its mean, or further, on the same side.

    Exact for a random ring. Takes a few steps, however many points there are.

    Args:
        points: those of the node, at least 1.
        total: those of all nodes.
        share: the node's part of the ring, from 0 to 1.
    """
    if points == total:
        return 1.0
    if share <= 0.0 or share >= 1.0:
        return 0.0
    trials = total - 1
    above = share > points / total
    # Of the likelihoods of 0, 1, ... successes, those up to points - 1 count, or all others. The
    # sum begins with the greatest, and each further one is less by a factor that falls.
    successes = points - 1 if above else points
    term = exp(
        lgamma(total)
        - lgamma(successes + 1)
        - lgamma(total - successes)
        + successes * log(share)
        + (trials - successes) * log1p(-share)
    )
    found = 0.0
    odds = share / (1.0 - share)
    while term > found * _TINY:
        found += term
        if above:
            term *= successes / ((trials - successes + 1) * odds)
            successes -= 1
        else:
            term *= (trials - successes) * odds / (successes + 1)
            successes += 1
    return found


def expected_loads(points: Iterable[int]) -> tuple[ExpectedLoad, ...]:
    """The loads of a ring whose points are random, from the least to the greatest.

    When nodes have different numbers of points, those between the ends are near, not exact: each
    load is taken for one drawn from all nodes. Takes time in proportion to the nodes: about 50 ms
    for 200.

    Raises:
        ConfigError: a node without a point.
    """
    counts = Counter(points)
    if min(counts, default=1) < 1:
        raise ConfigError("points", min(counts), "a node on a ring has at least one point")
    nodes = sum(counts.values())
    if nodes < 2:
        return (ExpectedLoad(1.0, 1.0, 1.0),) * nodes
    return _all(tuple(sorted(counts.items())))


@lru_cache(maxsize=256)
def _greatest(counts: tuple[tuple[int, int], ...]) -> ExpectedLoad:
    grid = _grid(counts)
    below = []
    for x in grid:
        # The greatest is below x when all are.
        logs = [n * log(max(_gamma_cdf(v, v * x), 1e-300)) for v, n in counts]
        below.append(exp(max(fsum(logs), -700.0)))
    peak = _load(grid, below, counts)
    # Somebody has the mean or more.
    return ExpectedLoad(peak.mean, max(1.0, peak.low), peak.high)


@lru_cache(maxsize=32)
def _all(counts: tuple[tuple[int, int], ...]) -> tuple[ExpectedLoad, ...]:
    nodes = sum(n for _, n in counts)
    grid = _grid(counts)
    # below[k][i]: how likely it is that more than k of the loads are below grid[i].
    below: list[list[float]] = [[] for _ in range(nodes)]
    for x in grid:
        one = fsum(n * _gamma_cdf(v, v * x) for v, n in counts) / nodes
        at_most = 0.0
        for k, exactly in enumerate(_binomial(nodes, one)):
            at_most += exactly
            below[k].append(max(0.0, 1.0 - at_most))
    found = [_load(grid, column, counts) for column in below]
    return (*found[:-1], _greatest(counts))


def _grid(counts: tuple[tuple[int, int], ...]) -> list[float]:
    """Loads to integrate over: all that a node of the ring can have, for what is worth."""
    nodes = sum(n for _, n in counts)
    top = bottom = 1.0
    for v, n in counts:
        # A gamma variable of shape v: deviation sqrt(v), and a tail that falls like exp(-x).
        reach = _DEVIATIONS / sqrt(v) + (log(max(nodes, n)) + 20) / v
        top = max(top, 1 + reach)
        bottom = min(bottom, max(0.0, 1 - _DEVIATIONS / sqrt(v)))
    # Closer together near the bottom: the least of many single points has a small part of the mean.
    return [bottom + (top - bottom) * (i / _STEPS) ** 2 for i in range(_STEPS + 1)]


def _load(
    grid: list[float], below: list[float], counts: tuple[tuple[int, int], ...]
) -> ExpectedLoad:
    """The load whose gamma counterpart has this distribution function on the grid."""
    # Trapezoids under P(load > x), and under 2 x P(load > x).
    halves = [(right - left) / 2 for left, right in pairwise(grid)]
    above = [1.0 - p for p in below]
    mean = grid[0] + _area(halves, above)
    square = grid[0] ** 2 + _area(halves, [2 * x * p for x, p in zip(grid, above, strict=True)])
    total = sum(v * n for v, n in counts)
    spread = sqrt(max(square - mean**2, 0.0))
    narrower = sqrt(max(square * total / (total + 1) - mean**2, 0.0))
    # The load is less spread than its counterpart, whose sum varies; its quantiles are taken to
    # lie as much nearer to the mean.
    ratio = narrower / spread if spread > _TINY else 0.0
    return ExpectedLoad(
        mean=mean,
        low=max(0.0, mean + ratio * (_quantile(grid, below, _LOW) - mean)),
        high=mean + ratio * (_quantile(grid, below, _HIGH) - mean),
    )


def _area(halves: list[float], heights: list[float]) -> float:
    sums = (left + right for left, right in pairwise(heights))
    return fsum(half * both for half, both in zip(halves, sums, strict=True))


def _quantile(grid: list[float], below: list[float], part: float) -> float:
    i = bisect_left(below, part, 1, len(grid) - 1)
    rise = below[i] - below[i - 1]
    return grid[i - 1] + (grid[i] - grid[i - 1]) * (part - below[i - 1]) / (rise or 1.0)


def _binomial(n: int, p: float) -> list[float]:
    """How likely 0, 1, ... n - 1 of n are, each with probability p."""
    if p <= 0.0 or p >= 1.0:
        return [1.0 if p <= 0.0 and k == 0 else 0.0 for k in range(n)]
    base = lgamma(n + 1)
    up, down = log(p), log(1.0 - p)
    return [
        exp(max(base - lgamma(k + 1) - lgamma(n - k + 1) + k * up + (n - k) * down, -700.0))
        for k in range(n)
    ]


def _gamma_cdf(shape: int, x: float) -> float:
    """P(G <= x) for G of the Gamma distribution with a whole shape and scale 1.

    The regularised lower incomplete gamma function: its series below the mean, its continued
    fraction above (Numerical Recipes, 6.2).
    """
    if x <= 0:
        return 0.0
    front = exp(shape * log(x) - x - lgamma(shape))
    if x < shape + 1:
        term = total = 1.0 / shape
        step = shape
        while term > total * _TINY:
            step += 1
            term *= x / step
            total += term
        return min(1.0, front * total)
    b = x + 1 - shape
    c = 1e300
    d = 1 / b
    fraction = d
    for step in range(1, 10_000):
        a = -step * (step - shape)
        b += 2
        d = 1 / (a * d + b) if a * d + b else 1e300
        c = b + a / c if b + a / c else 1e-300
        fraction *= c * d
        if abs(c * d - 1) < _TINY or not isfinite(fraction):
            break
    return max(0.0, 1.0 - front * fraction)
