"""How even a ring is, and how even random points would make it.

With ``V`` points at random on the ring, the parts between them have the distribution of ``V``
exponential variables divided by their sum. So nodes with ``v_1, v_2, ...`` points have the shares
``G_i / (G_1 + G_2 + ...)`` where ``G_i`` is Gamma(``v_i``), and the shares do not depend on the
sum. Two exact expectations follow:

- a share is Beta(v, V - v): its standard deviation over its mean is
  ``sqrt((V - v) / (v (V + 1)))``;
- the greatest ratio of a share to its fair share ``v / V`` is, on average, that of the greatest
  ``G_i / v_i``: the integral over ``y`` of ``1 - product of P(G_i <= v_i y)``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from math import exp, isfinite, lgamma, log, sqrt
from typing import Final

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring

_STEPS: Final = 256
_TINY: Final = 1e-12


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


def balance(ring: Ring) -> Balance | None:
    """How even the ring is; ``None`` for one without nodes."""
    if not ring.node_count:
        return None
    counts = {node: len(ring.points_of(node)) for node in ring.nodes}
    total = len(ring)
    ratios = [ring.shares[node] / RING_SIZE * total / count for node, count in counts.items()]
    cv = sqrt(sum((ratio - 1) ** 2 for ratio in ratios) / len(ratios))
    spread = sum((total - count) / (count * (total + 1)) for count in counts.values())
    return Balance(
        max(ratios),
        cv,
        expected_peak_to_mean(tuple(sorted(Counter(counts.values()).items()))),
        sqrt(spread / len(counts)),
    )


@lru_cache(maxsize=256)
def expected_peak_to_mean(counts: tuple[tuple[int, int], ...]) -> float:
    """The greatest ratio of a share to its fair share, on average over random points.

    Args:
        counts: pairs of a number of points and how many nodes have so many.

    Exact but for the numeric integration, whose error is far below 0.001.
    """
    nodes = sum(many for _, many in counts)
    if nodes <= 1:
        return 1.0

    def above(y: float) -> float:
        """The probability that some ratio is above ``y``."""
        none = 0.0
        for points, many in counts:
            part = _gamma_cdf(points, points * y)
            if part <= 0.0:
                return 1.0
            none += many * log(part)
        return 1.0 - exp(none)

    top = 2.0
    while above(top) > _TINY:
        top *= 1.5
    # Simpson's rule.
    width = top / _STEPS
    odd = sum(above(width * step) for step in range(1, _STEPS, 2))
    even = sum(above(width * step) for step in range(2, _STEPS, 2))
    return (1.0 + 4 * odd + 2 * even + above(top)) * width / 3


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
