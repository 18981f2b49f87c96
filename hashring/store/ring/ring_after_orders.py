"""The ring after orders about its nodes are obeyed, and about which nodes one may be given."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence

from hashring.core.order_checks import checked_ordered_weight
from hashring.core.point_placement import free_points, points_of_weight
from hashring.core.ring import Ring
from hashring.core.ring_plan import NodeShape, reweighed_ring
from hashring.store.ring.node_reports import USUAL_POINTS, node_shapes
from hashring.store.ring.snapshot import Snapshot


def known_nodes(snapshot: Snapshot) -> list[str]:
    """The nodes about which an order may be given, by name."""
    on_ring = {record.replica.node for record in snapshot.replicas}
    return sorted(on_ring | set(snapshot.nodes) | set(snapshot.drains) | set(snapshot.weights))


def split_idle(
    snapshot: Snapshot,
    ring: Ring,
    *,
    join: Iterable[str],
    leave: Sequence[str],
    weights: Mapping[str, float],
) -> tuple[list[str], dict[str, float], set[str]]:
    """A plan's ``leave`` and ``weights`` without idle nodes, and the idle nodes among them.

    An idle node is known and owns nothing, such as a drained or an expired one: the plan changes
    nothing about it. One that joins is none, nor one with two orders, which is refused later.

    Args:
        ring: the snapshot's.

    Raises:
        ConfigError: the weight of an idle node is none.
    """
    named = ({*leave} ^ weights.keys()).difference(join)
    idle = named.intersection(known_nodes(snapshot)).difference(ring.nodes)
    for node in idle & weights.keys():
        checked_ordered_weight(weights[node])
    others = {node: weight for node, weight in weights.items() if node not in idle}
    return [node for node in leave if node not in idle], others, idle


def drained_ring(snapshot: Snapshot, ring: Ring, node: str) -> Ring:
    """The ring after a node is drained, and others have obeyed the orders to drain that stand.

    It is empty if only nodes that stopped to come back are left: as long as they are away, nobody
    serves what would be theirs.

    Args:
        ring: the snapshot's.
    """
    after = ring.without_nodes(node, *snapshot.binding_drains)
    present = after.without_nodes(*(n for n, record in snapshot.nodes.items() if record.away))
    return after if present.node_count else present


def undrained_ring(snapshot: Snapshot, ring: Ring, node: str) -> tuple[Ring, bool]:
    """The ring after the order to drain a node is lifted, and whether that is exact.

    It is for a node whose points Redis remembers, which has a name of its own, if it is to have as
    many as before. Otherwise the points are an example, the same each time.

    Args:
        snapshot: read with the node's name as ``remembered``.
        ring: the snapshot's.
    """
    if node not in snapshot.drained:
        return ring, True
    shape = node_shapes(snapshot).get(node, NodeShape(USUAL_POINTS))
    order = snapshot.weights.get(node)
    count = points_of_weight(shape.n_replicas, order.weight if order else shape.own_weight)
    taken = {point for point, _ in ring.replicas()}
    points = [point for point in snapshot.remembered if point not in taken]
    exact = len(points) == count
    points = points[:count]
    rng = random.Random(f"{ring.fingerprint}:{node}")
    if missing := count - len(points):
        points += free_points({*taken, *points}, missing, rng)
    return ring.with_node(node, points), exact


def weighed_ring(snapshot: Snapshot, ring: Ring, weights: Mapping[str, float | None]) -> Ring:
    """The ring after orders about nodes' weights are obeyed.

    Exact for a node that gives points up. Points that a node adds are an example, the same each
    time.

    Args:
        ring: the snapshot's.
        weights: by node; ``None`` for the node's own. Known nodes only; one that is not on the ring
            changes nothing now.
    """
    return reweighed_ring(
        ring,
        weights,
        node_shapes(snapshot),
        lambda name: random.Random(f"{ring.fingerprint}:{name}"),
    )
