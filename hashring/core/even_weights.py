"""Which weights would even out the loads that nodes report.

A node's load is taken to be in proportion to its weight: with twice the points it has twice as much
to do. So the weight with which a node would have the mean load is its weight times mean over load.
A step goes part of that way, since loads are noisy and follow late:

- Nothing changes while the busiest node is within ``tolerance`` of the mean.
- Each weight goes the way by the power ``damping``: half of it, on a logarithmic scale, by default.
- No weight changes by more than the factor ``step``, and none leaves the bounds around the node's
  own weight that the factor ``reach`` makes. A node without load counts as one with a hundredth of
  the mean.
- No weight rises above the greatest that may be ordered. A node that would be above it after a step
  down keeps its weight.

Nodes that report no load keep their weight. Not guaranteed: that loads follow weights. A single hot
key is as hot with any weight.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hashring.core.order_checks import GREATEST_WEIGHT
from hashring.core.point_placement import points_of_weight
from hashring.errors import ConfigError

_IDLE: Final = 0.01
"""The least load that counts, as a part of the mean."""

_NO_LOAD: Final = 1e-300
"""Loads whose sum is not above this are none. Averages that fade for hours end there, and parts of
them are too small for a float."""


@dataclass(frozen=True)
class Weighed:
    """A node as it is.

    Attributes:
        weight: the weight it has; above 0.
        load: what it reports; finite, at least 0.
        own_weight: the weight that its own code gave it; above 0.
        n_replicas: how many points it has with weight 1.
    """

    weight: float
    load: float
    own_weight: float = 1.0
    n_replicas: int = 16


@dataclass(frozen=True)
class EvenTerms:
    """How far one step goes.

    Attributes:
        tolerance: the greatest load over the mean load at which nothing changes; at least 1.
        damping: which part of the way a weight goes, above 0 and at most 1.
        step: the factor by which a weight changes at most; above 1.
        reach: the factor by which a weight differs from the node's own at most; above 1.

    Raises:
        ConfigError: one of them is out of its bounds.
    """

    tolerance: float = 1.1
    damping: float = 0.5
    step: float = 1.5
    reach: float = 4.0

    def __post_init__(self) -> None:
        if not 1 <= self.tolerance < math.inf:
            raise ConfigError("tolerance", self.tolerance, "give a number of at least 1, as in 1.1")
        if not 0 < self.damping <= 1:
            raise ConfigError("damping", self.damping, "give a number above 0, 1 at most")
        for setting, value in (("step", self.step), ("reach", self.reach)):
            if not 1 < value < math.inf:
                raise ConfigError(setting, value, "give a number above 1, such as 1.5")


@dataclass(frozen=True)
class Evening:
    """What would even out loads.

    Attributes:
        weights: the new weight of each node that has another one then.
        loads: the load of each node then, if it is in proportion to its weight.
        before, after: the greatest load over the mean, now and then; 1 is perfect, and ``None``
            when there is no load.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    loads: Mapping[str, float] = field(default_factory=dict)
    before: float | None = None
    after: float | None = None


def even_weights(nodes: Mapping[str, Weighed], terms: EvenTerms | None = None) -> Evening:
    """The weights that bring reported loads nearer to each other, in one step.

    A pure function: equal nodes give equal weights. A weight has at most three digits, and one that
    makes as many points as before is left as it is.

    Args:
        nodes: those that report a load, by name.
    """
    terms = terms or EvenTerms()
    loads = {name: node.load for name, node in nodes.items()}
    before = _peak_to_mean(loads)
    if before is None or before <= terms.tolerance:
        return Evening({}, loads, before, before)
    mean = sum(loads.values()) / len(loads)
    weights = {}
    for name, node in sorted(nodes.items()):
        weight = _stepped(node, mean, terms)
        if points_of_weight(node.n_replicas, weight) != points_of_weight(
            node.n_replicas, node.weight
        ):
            weights[name] = weight
    then = {name: weights.get(name, node.weight) for name, node in nodes.items()}
    # The same work is split anew, by the new weights.
    parts = {name: node.load * then[name] / node.weight for name, node in nodes.items()}
    scale = sum(loads.values()) / sum(parts.values())
    loads = {name: part * scale for name, part in parts.items()}
    return Evening(weights, loads, before, _peak_to_mean(loads))


def _stepped(node: Weighed, mean: float, terms: EvenTerms) -> float:
    """The weight of a node after one step towards the mean load."""
    way = (mean / max(node.load, _IDLE * mean)) ** terms.damping
    weight = node.weight * min(terms.step, max(1 / terms.step, way))
    least, most = node.own_weight / terms.reach, node.own_weight * terms.reach
    # Somebody may have ordered a weight beyond: that is not taken back for being there.
    least, most = min(least, node.weight), max(most, node.weight)
    weight = min(most, max(least, weight))
    if weight > GREATEST_WEIGHT:
        return max(GREATEST_WEIGHT, node.weight)
    return float(f"{weight:.3g}")


def _peak_to_mean(loads: Mapping[str, float]) -> float | None:
    total = sum(loads.values())
    return max(loads.values()) * len(loads) / total if total > _NO_LOAD else None
