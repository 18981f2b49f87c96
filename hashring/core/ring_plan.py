"""What a ring would be after nodes join, leave, or change their weight, and what moves."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hashring.core.hashing import RING_SIZE
from hashring.core.order_checks import GREATEST_WEIGHT
from hashring.core.point_placement import (
    LEAST_REFUSED_WEIGHT,
    MAX_POINTS,
    OwnedRanges,
    Random,
    check_placement,
    free_points,
    joining_cuts,
    kept_points,
    more_cuts,
    points_of_weight,
)
from hashring.core.ring import Ring
from hashring.core.ring_balance import Balance, balance
from hashring.core.value_checks import check_node_name, checked_whole, plain_number
from hashring.errors import ConfigError, EmptyRingError, UnknownNodeError

_USUAL: Final = 16
"""Points of a node of weight 1, where nothing else is known."""


@dataclass(frozen=True)
class NodeShape:
    """What the points of a live node depend on.

    Attributes:
        n_replicas: how many points it has with weight 1.
        own_weight: its weight when none is ordered.
        placement: where it puts points that it adds: ``random`` or ``balanced``.
    """

    n_replicas: int
    own_weight: float = 1.0
    placement: str = "random"


def usual_replicas(ring: Ring, shapes: Mapping[str, NodeShape]) -> int:
    """How many points a node of weight 1 has on a ring, as most of its nodes have them.

    Args:
        shapes: of its nodes.
    """
    found = Counter(shapes[node].n_replicas for node in ring.nodes if node in shapes)
    return found.most_common(1)[0][0] if found else _USUAL


def planned_ring(
    ring: Ring,
    *,
    join: Iterable[str] = (),
    leave: Iterable[str] = (),
    weights: Mapping[str, float] | None = None,
    n_replicas: int = _USUAL,
    placement: str = "random",
    shapes: Mapping[str, NodeShape] | None = None,
    rng_for: Callable[[str], Random],
) -> Ring:
    """The ring after nodes leave, change their weight, and join, in that order.

    Args:
        weights: for a node that joins or stays, its new weight: it has
            ``round(n_replicas * weight)`` points, at least one. A node that stays adds points to
            its own, or gives some of them up, as a live node does.
        n_replicas: points of a node of weight 1, unless its shape is known.
        placement: where such nodes put the points that they add: ``random`` or ``balanced``.
        shapes: of nodes that stay, as far as they are known.
        rng_for: the random numbers that a node's points are drawn with, by its name.

    Raises:
        UnknownNodeError: a node to leave or to reweigh is not on the ring.
        ConfigError: a joining node is on the ring already or would have too many points, a weight
            is not positive, and so on.
        EmptyRingError: nobody would be left.
    """
    for what, names in (("join", join), ("leave", leave)):
        if isinstance(names, str):
            raise ConfigError(what, names, "give a list of names")
    join, leave, shapes = tuple(join), tuple(leave), shapes or {}
    check_placement(placement)
    counts = planned_counts(
        ring, join=join, leave=leave, weights=weights, n_replicas=n_replicas, shapes=shapes
    )
    resizing = _Resizing(ring.without_nodes(*leave))
    for node, count in counts.items():
        if node in ring:
            how = shapes[node].placement if node in shapes else placement
            resizing.resize(node, count, rng_for(node), how)
    for node in join:
        resizing.join(node, counts[node], rng_for(node), placement)
    after = resizing.ring()
    if not after.node_count:
        raise EmptyRingError(
            "no node would be left, so no key would have an owner: keep one, or let another join"
        )
    return after


def planned_counts(
    ring: Ring,
    *,
    join: Sequence[str] = (),
    leave: Sequence[str] = (),
    weights: Mapping[str, float] | None = None,
    n_replicas: int = _USUAL,
    shapes: Mapping[str, NodeShape] | None = None,
) -> dict[str, int]:
    """How many points each node has that gets another weight or joins, in the order of the plan.

    What it takes to check a plan, and to know how much work it is. The arguments and the errors
    are those of :func:`planned_ring`.
    """
    weights, shapes = dict(weights or {}), shapes or {}
    n_replicas = checked_whole("n_replicas", n_replicas)
    if n_replicas < 1:
        raise ConfigError("n_replicas", n_replicas, "a node has at least one point")
    for node in leave:
        if node in join or node in weights:
            raise ConfigError("leave", node, "cannot join or get a weight in the same plan")
        if node not in ring:
            raise UnknownNodeError(node, nodes=ring.nodes)
    twice = Counter(join)
    for node in join:
        check_node_name(node)
        if node in ring or twice[node] > 1:
            raise ConfigError("join", node, "is on the ring already: give it another name")
    for node, weight in weights.items():
        if node not in ring and node not in twice:
            raise UnknownNodeError(node, nodes=ring.nodes)
        plain = plain_number(weight)
        if plain is None or not 0 < plain < LEAST_REFUSED_WEIGHT:
            most = f", {GREATEST_WEIGHT:.0f} at most"
            limits = most if node in ring else f" and below {LEAST_REFUSED_WEIGHT:.0f}"
            raise ConfigError(
                "weights",
                weight,
                f"of node {node!r} is no weight: give a number above 0{limits}; "
                "1 is an ordinary node",
            )
        if node in ring and weight > GREATEST_WEIGHT:  # an order is refused, too
            raise ConfigError(
                "weights", weight, f"of node {node!r} is too much: {GREATEST_WEIGHT:.0f} at most"
            )
    for node in join:
        weight = weights.get(node, 1)
        if round(n_replicas * weight) > MAX_POINTS:  # a node refuses it, too
            raise ConfigError(
                "n_replicas",
                n_replicas,
                f"times weight {weight} is more than {MAX_POINTS} points, for node {node!r}",
            )
    counts = {
        node: points_of_weight(
            shapes[node].n_replicas if node in shapes else n_replicas, weights[node]
        )
        for node in weights
        if node in ring
    }
    return counts | {node: points_of_weight(n_replicas, weights.get(node, 1)) for node in join}


def reweighed_ring(
    ring: Ring,
    weights: Mapping[str, float | None],
    shapes: Mapping[str, NodeShape],
    rng_for: Callable[[str], Random],
) -> Ring:
    """The ring after live nodes have other weights, one node after the other.

    Exact where a node gives points up. Where it adds some, they are an example.

    Args:
        weights: by node; ``None`` for the node's own. A node that is not on the ring, such as a
            drained one, changes nothing now.
        shapes: of each of these nodes.
        rng_for: the random numbers that a node's points are drawn with, by its name.

    Raises:
        ConfigError: there are not that many free points.
    """
    weighed = {node: weight for node, weight in weights.items() if node in ring}
    if not weighed:
        return ring
    resizing = _Resizing(ring)
    for node, weight in weighed.items():
        shape = shapes[node]
        count = points_of_weight(shape.n_replicas, shape.own_weight if weight is None else weight)
        resizing.resize(node, count, rng_for(node), shape.placement)
    return resizing.ring()


class _Resizing:
    """A ring that nodes join, and whose nodes get other numbers of points, as live nodes do it.

    A change costs about as much as the node has points, however large the ring is. What each node
    owns is computed anew only beside what has changed.

    Args:
        ring: what it begins with.
    """

    def __init__(self, ring: Ring) -> None:
        self._algorithm: Final = ring.hash_algorithm
        self._points = {node: list(ring.points_of(node)) for node in ring.nodes}
        # On a shared point the owner comes last; others there own nothing.
        self._owners: dict[int, str] = {}
        self._hidden: dict[int, list[str]] = {}
        for point, node in ring.replicas():
            if point in self._owners:
                self._hidden.setdefault(point, []).append(self._owners[point])
            self._owners[point] = node
        self._starts = list(self._owners)
        self._count = len(ring)
        self._owned = OwnedRanges()
        # The nodes whose ranges there are not known, or have changed.
        self._stale = set(self._points)

    def resize(self, node: str, count: int, rng: Random, placement: str = "random") -> None:
        """Give a node of the ring another number of points.

        Args:
            count: at least 1.
            placement: where points go that it adds: ``random`` or ``balanced``.

        Raises:
            ConfigError: there are not that many free points.
        """
        points = self._points[node]
        if count < len(points):
            lengths = dict.fromkeys(points, 0)
            lengths.update(self._ranges_of(node))
            kept = set(kept_points(lengths, count))
            for point in points:
                if point not in kept:
                    self._remove(point, node)
            self._points[node] = sorted(kept)
        elif count > len(points):
            more = self._more(node, count - len(points), rng, placement)
            for point in more:
                self._add(point, node)
            self._points[node] = sorted([*points, *more])

    def join(self, node: str, count: int, rng: Random, placement: str = "random") -> None:
        """Let another node join, with so many points. Arguments as for :meth:`resize`."""
        if placement == "balanced":
            points = joining_cuts(self._all_ranges(), self._count, count, rng)
        else:
            points = free_points(self._owners.keys(), count, rng)
        for point in points:
            self._add(point, node)
        self._points[node] = list(points)

    def ring(self) -> Ring:
        """The ring as it is now."""
        return Ring(self._points, self._algorithm)

    def _more(self, node: str, count: int, rng: Random, placement: str) -> tuple[int, ...]:
        if placement != "balanced":
            return free_points(self._owners.keys(), count, rng)
        points = self._points[node]
        owned = self._all_ranges()
        own = [length for _, length in owned.of(node)]
        own += [0] * (len(points) - len(own))
        # It takes from the others alone.
        owned.drop(node)
        self._stale.add(node)
        return more_cuts(owned, self._count, count, rng, own=own, taken=set(points))

    def _all_ranges(self) -> OwnedRanges:
        for node in [*self._stale]:
            self._ranges_of(node)
        return self._owned

    def _ranges_of(self, node: str) -> Sequence[tuple[int, int]]:
        """Start and length of the ranges that a node's points own."""
        if node in self._stale:
            self._stale.remove(node)
            ranges = [
                (point, self._next(point) - point)
                for point in self._points[node]
                if self._owners[point] == node
            ]
            self._owned.put(node, ranges)
        return self._owned.of(node)

    def _next(self, start: int) -> int:
        """Where the range ends that begins there, beyond the top of the ring for the last one."""
        index = bisect_left(self._starts, start) + 1
        if index < len(self._starts):
            return self._starts[index]
        return self._starts[0] + RING_SIZE

    def _add(self, point: int, node: str) -> None:
        self._changed(point, node)
        self._count += 1
        other = self._owners.get(point)
        if other is None:
            insort(self._starts, point)
            self._owners[point] = node
            return
        below, above = sorted((other, node), key=str.encode)
        self._owners[point] = above
        self._hidden.setdefault(point, []).append(below)

    def _remove(self, point: int, node: str) -> None:
        self._changed(point, node)
        self._count -= 1
        hidden = self._hidden.get(point)
        if not hidden:
            del self._owners[point]
            del self._starts[bisect_left(self._starts, point)]
        elif self._owners[point] == node:
            heir = max(hidden, key=str.encode)
            hidden.remove(heir)
            self._owners[point] = heir
            self._stale.add(heir)
        else:
            hidden.remove(node)

    def _changed(self, point: int, node: str) -> None:
        """Forget the ranges of all whom a change of a node at a point may concern."""
        self._stale.add(node)
        if self._starts:
            before = self._starts[bisect_left(self._starts, point) - 1]
            self._stale.update((self._owners[before], self._owners.get(point, node)))


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
        exact: whether all points of the ring after are known. Otherwise those that nodes add are an
            example, and so are the figures.
    """

    moved: float
    least: float
    flows: Sequence[tuple[str | None, str | None, float]]
    nodes: Sequence[NodeChange]
    before: Balance | None
    after: Balance | None
    exact: bool


def ring_plan(ring: Ring, after: Ring, *, exact: bool | None = None) -> RingPlan:
    """What becoming the other ring would do to a ring.

    Args:
        exact: whether all points of the other ring are known; unless given, whether no node has
            more points there than here.

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
        all(_count(after, name) <= _count(ring, name) for name in after.nodes)
        if exact is None
        else exact,
    )


def _share(ring: Ring, node: str) -> float:
    return ring.share(node) if node in ring else 0.0


def _count(ring: Ring, node: str) -> int:
    return len(ring.points_of(node)) if node in ring else 0


def _fair(ring: Ring, node: str) -> float:
    return len(ring.points_of(node)) / len(ring) if node in ring else 0.0
