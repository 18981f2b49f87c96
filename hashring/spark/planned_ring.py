"""The ring after a planned change, drawn from a seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping

from hashring.core import ring_plan
from hashring.core.ring import Ring


def planned_ring(
    ring: Ring,
    *,
    join: Iterable[str] = (),
    leave: Iterable[str] = (),
    weights: Mapping[str, float] | None = None,
    n_replicas: int = 16,
    placement: str = "random",
    seed: int = 0,
) -> Ring:
    """The ring after nodes leave, change their weight, and join, in that order.

    Args:
        weights: for a node that joins or stays, its new weight: it has
            ``round(n_replicas * weight)`` points, at least one. A node that stays keeps as many
            of its points as it can, as a live node does.
        n_replicas: points of a node of weight 1.
        placement: where joining nodes put their points: ``random`` or ``balanced``.
        seed: equal seeds give equal points.

    Raises:
        UnknownNodeError: a node to leave or to reweigh is not on the ring.
        ConfigError: a joining node is on the ring already, a weight is not positive, and so on.
        EmptyRingError: nobody would be left.
    """
    return ring_plan.planned_ring(
        ring,
        join=join,
        leave=leave,
        weights=weights,
        n_replicas=n_replicas,
        placement=placement,
        rng_for=lambda node: random.Random(f"{seed}:{node}"),
    )
