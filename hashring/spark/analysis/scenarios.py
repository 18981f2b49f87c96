"""The kinds of rings that a simulation draws."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hashring.core.order_checks import GREATEST_WEIGHT
from hashring.core.point_placement import check_placement
from hashring.errors import ConfigError

MOST_POINTS: Final = 5_000_000


@dataclass(frozen=True)
class Scenario:
    """A kind of ring.

    Attributes:
        nodes: how many.
        replicas: points of a node of weight 1.
        placement: ``random`` or ``balanced``.
        weights: given to the nodes in turn: (1, 2) makes every second node twice as strong.
        limit: a node takes at most ``limit`` times its fair share of keys, and what it refuses
            goes to the next node on the ring with room; ``None`` for no limit.

    Raises:
        ConfigError: a value that makes no ring.
    """

    nodes: int
    replicas: int = 16
    placement: str = "random"
    weights: tuple[float, ...] = (1.0,)
    limit: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))  # of a list there is no hash
        check_placement(self.placement)
        if self.nodes < 2:
            raise ConfigError("nodes", self.nodes, "a ring that a node can leave has two at least")
        if self.replicas < 1:
            raise ConfigError("replicas", self.replicas, "a node has at least one point")
        if not self.weights or not all(0 < weight <= GREATEST_WEIGHT for weight in self.weights):
            raise ConfigError(
                "weights",
                self.weights,
                f"give numbers above 0, {GREATEST_WEIGHT:.0f} at most; 1 is ordinary",
            )
        if self.limit is not None and not 1 <= self.limit < math.inf:
            raise ConfigError(
                "limit",
                self.limit,
                "give a number from 1 on: below it the nodes have not room for all keys; 1.25 is "
                "usual",
            )
        if self.nodes * self.replicas * max(self.weights) > MOST_POINTS:
            raise ConfigError(
                "replicas",
                self.replicas,
                f"makes a ring of more than {MOST_POINTS:,} points: give fewer nodes or replicas",
            )


def scenarios(
    nodes: Iterable[int],
    replicas: Iterable[int] = (16,),
    placements: Iterable[str] = ("random",),
    weights: tuple[float, ...] = (1.0,),
    limits: Iterable[float | None] = (None,),
) -> list[Scenario]:
    """Every combination."""
    return [
        Scenario(n, r, p, weights, limit)
        for n, r, p, limit in itertools.product(nodes, replicas, placements, limits)
    ]
