"""What a ring would be after nodes join, leave, or change their weight."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from hashring.core.placement import Random, balanced_points, check_placement, random_points
from hashring.core.replica import check_node_name
from hashring.core.ring import Ring
from hashring.errors import ConfigError, EmptyRingError, UnknownNodeError


def planned_ring(
    ring: Ring,
    *,
    join: Iterable[str] = (),
    leave: Iterable[str] = (),
    weights: Mapping[str, float] | None = None,
    n_replicas: int = 16,
    placement: str = "random",
    rng_for: Callable[[str], Random],
) -> Ring:
    """The ring after nodes leave, change their weight, and join, in that order.

    Args:
        weights: for a node that joins or stays, its new weight: it has
            ``round(n_replicas * weight)`` points, at least one. A node that stays keeps as many
            of its points as it can, as a live node does.
        n_replicas: points of a node of weight 1.
        placement: where joining nodes put their points: ``random`` or ``balanced``.
        rng_for: the random numbers that a node's points are drawn with, by its name.

    Raises:
        UnknownNodeError: a node to leave or to reweigh is not on the ring.
        ConfigError: a joining node is on the ring already, a weight is not positive, and so on.
        EmptyRingError: nobody would be left.
    """
    join, leave, weights = tuple(join), tuple(leave), dict(weights or {})
    check_placement(placement)
    if n_replicas < 1:
        raise ConfigError("n_replicas", n_replicas, "a node has at least one point")
    for node in leave:
        if node not in ring:
            raise UnknownNodeError(node)
        if node in join or node in weights:
            raise ConfigError("leave", node, "cannot join or get a weight in the same plan")
    for node in join:
        check_node_name(node)
        if node in ring or join.count(node) > 1:
            raise ConfigError("join", node, "is on the ring already: give it another name")
    for node, weight in weights.items():
        if node not in ring and node not in join:
            raise UnknownNodeError(node)
        if not 0 < weight < 1e6:
            raise ConfigError(
                "weights", weight, f"of node {node!r} is no weight; 1 is an ordinary node"
            )

    after = ring.without_nodes(*leave)
    for node, weight in weights.items():
        if node in ring:
            kept = list(ring.points_of(node))[: max(1, round(n_replicas * weight))]
            missing = max(1, round(n_replicas * weight)) - len(kept)
            taken = after.with_node("\0kept", kept)
            more = random_points(taken, node, missing, rng_for(node))
            after = after.with_node(node, [*kept, *more])
    for node in join:
        count = max(1, round(n_replicas * weights.get(node, 1)))
        place = balanced_points if placement == "balanced" else random_points
        after = after.with_node(node, place(after, node, count, rng_for(node)))
    if not after.node_count:
        raise EmptyRingError(
            "no node would be left, so no key would have an owner: keep one, or let another join"
        )
    return after
