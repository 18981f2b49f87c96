"""What a ring would be after nodes join, leave, or change their weight, and what moves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from hashring.core.balance import Balance, balance
from hashring.core.hashing import RING_SIZE
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
    for what, names in (("join", join), ("leave", leave)):
        if isinstance(names, str):
            raise ConfigError(what, names, "give a list of names")
    join, leave, weights = tuple(join), tuple(leave), dict(weights or {})
    check_placement(placement)
    if n_replicas < 1:
        raise ConfigError("n_replicas", n_replicas, "a node has at least one point")
    for node in leave:
        if node not in ring:
            raise UnknownNodeError(node, nodes=ring.nodes)
        if node in join or node in weights:
            raise ConfigError("leave", node, "cannot join or get a weight in the same plan")
    for node in join:
        check_node_name(node)
        if node in ring or join.count(node) > 1:
            raise ConfigError("join", node, "is on the ring already: give it another name")
    for node, weight in weights.items():
        if node not in ring and node not in join:
            raise UnknownNodeError(node, nodes=ring.nodes)
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


@dataclass(frozen=True)
class NodeChange:
    """A node before and after; shares from 0 to 1, ``fair`` the share of the points it has then."""

    name: str
    before: float
    after: float
    fair: float


@dataclass(frozen=True)
class RingPlan:
    """What a change would do to a ring.

    Attributes:
        moved: the part of the ring that changes hands, from 0 to 1.
        least: the part that would, if every node had exactly its fair share before and after.
        flows: from whom to whom, and how much; the greatest first. ``None`` is no node.
        nodes: those whose share changes, the greatest change first.
        before, after: how even it is; ``None`` for a ring without nodes.
    """

    moved: float
    least: float
    flows: Sequence[tuple[str | None, str | None, float]]
    nodes: Sequence[NodeChange]
    before: Balance | None
    after: Balance | None


def ring_plan(ring: Ring, after: Ring) -> RingPlan:
    """What becoming the other ring would do to a ring.

    Raises:
        ConfigError: the rings hash keys differently.
    """
    flows: Counter[tuple[str | None, str | None]] = Counter()
    for move in ring.moves(after):
        flows[move.before, move.after] += move.points
    names = sorted({*ring.nodes, *after.nodes})
    fair = {name: (_fair(ring, name), _fair(after, name)) for name in names}
    nodes = [
        NodeChange(name, _share(ring, name), _share(after, name), fair[name][1]) for name in names
    ]
    nodes = [node for node in nodes if node.before != node.after]
    nodes.sort(key=lambda node: -abs(node.after - node.before))
    return RingPlan(
        sum(flows.values()) / RING_SIZE,
        sum(max(0.0, then - now) for now, then in fair.values()),
        [(*pair, points / RING_SIZE) for pair, points in flows.most_common()],
        nodes,
        balance(ring),
        balance(after),
    )


def _share(ring: Ring, node: str) -> float:
    return ring.share(node) if node in ring else 0.0


def _fair(ring: Ring, node: str) -> float:
    return len(ring.points_of(node)) / len(ring) if node in ring else 0.0
