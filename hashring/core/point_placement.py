"""Where a joining node puts its points.

``random``: independent, uniform. Nothing to agree on, so any number of nodes may join at once.
The busiest of 100 nodes with 16 points owns about 1.8 times its fair share.

``balanced`` (greedy join): the joiner looks at the ring, takes the node that is furthest above
its fair share, cuts the missing part off that node's largest range, and goes on until its points
are used up. 16 such points even the ring better than 512 random ones (explanation/placement).
It must be serialised: two joiners that do not see each other would cut the same ranges. The
store therefore accepts a balanced join only on the very ring that was looked at.

A node whose weight changes keeps its points, or as many of them as it may have: a heavier one adds
points, as a joiner places them, and a lighter one gives some up. So only what it gains or gives up
moves.

A joiner need not look at the whole ring: it looks at stretches of it that begin at random points,
and cuts the longest ranges there. A node's share is the sum of many ranges, so it stays near the
fair one when no range stays long.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, Protocol

from hashring.core.hashing import RING_SIZE
from hashring.core.replica_ranges import replica_ranges
from hashring.core.ring import Ring
from hashring.errors import ConfigError

MAX_POINTS: Final = 20_000
"""The most points one node may place. While Redis takes them, in one call, all else waits."""

LEAST_REFUSED_WEIGHT: Final = 1e6
"""Weights from this one on are a mistake, however few points a node of weight 1 has."""


def points_of_weight(n_replicas: int, weight: float) -> int:
    """How many points a node of a weight has; at least one, and at most :data:`MAX_POINTS`.

    Args:
        n_replicas: how many a node of weight 1 has.
    """
    # However low its weight, a node gets a point: a weight is not a way to switch a node off.
    return max(1, round(min(n_replicas * weight, MAX_POINTS)))


class Random(Protocol):
    """The part of :class:`random.Random` that a node needs."""

    def random(self) -> float:
        """A float ``0 <= x < 1``."""

    def randrange(self, stop: int, /) -> int:
        """An integer ``0 <= n < stop``."""


def random_points(ring: Ring, node: str, count: int, rng: Random) -> tuple[int, ...]:
    """``count`` different points, uniform over the free points of the ring, rising.

    A point that another node has is drawn again: of two replicas on one point only one counts.

    Raises:
        ConfigError: there are not that many free points.
    """
    return free_points({point for point, owner in ring.replicas() if owner != node}, count, rng)


def free_points(taken: Collection[int], count: int, rng: Random) -> tuple[int, ...]:
    """``count`` different points that are not taken, uniform, rising.

    Raises:
        ConfigError: there are not that many free points.
    """
    _check_room(count, len(taken))
    chosen: set[int] = set()
    while len(chosen) < count:
        point = rng.randrange(RING_SIZE)
        if point not in taken:
            chosen.add(point)
    return tuple(sorted(chosen))


def balanced_points(ring: Ring, node: str, count: int, rng: Random) -> tuple[int, ...]:
    """``count`` points that take from the busiest nodes what the joiner should own, rising.

    A node's fair share is in proportion to its number of points, as it is (on average) with
    random placement; so a node of weight 2 has twice the points and gets twice the share.

    Args:
        ring: the ring as it is; points the node already has on it are ignored.
        rng: draws where the first node of a ring begins; a join to others draws nothing.

    Raises:
        ConfigError: there are not that many free points.

    The source of the method is the spread-minimising idea of grafana/dskit, reduced to one
    joiner: each point goes to the node furthest above its target, in the largest range of one of
    its replicas, and cuts (what is missing) / (points left) off its end. What it does not do: it
    takes, and never gives, so after a leave the ring is uneven until others have joined.
    """
    others = ring.without_nodes(node)
    return joining_cuts(OwnedRanges(_owned_ranges(others)), len(others), count, rng)


def _owned_ranges(ring: Ring) -> dict[str, list[tuple[int, int]]]:
    """Start and length of what each of a node's points owns, by node."""
    owned: dict[str, list[tuple[int, int]]] = {}
    for point, name, length in replica_ranges(ring):
        owned.setdefault(name, []).append((point, length))
    return owned


class OwnedRanges:
    """What each node's points own, in the order of who has most beyond its fair share.

    A change of one node costs little, however many there are: among nodes with equally many ranges
    that order is the same whatever a fair share is.

    Args:
        owned: start and length of the ranges of each node's points, each at least one point long.
    """

    def __init__(self, owned: Mapping[str, Sequence[tuple[int, int]]] | None = None) -> None:
        self._ranges = dict(owned or {})
        self.count = sum(map(len, self._ranges.values()))
        """How many ranges there are."""
        # By number of ranges: nodes, each after the negative of what it owns, rising.
        self._alike: dict[int, list[tuple[int, str]]] = {}
        for name, ranges in self._ranges.items():
            self._alike.setdefault(len(ranges), []).append((-_length(ranges), name))
        for alike in self._alike.values():
            alike.sort()

    def of(self, node: str) -> Sequence[tuple[int, int]]:
        """Start and length of a node's ranges."""
        return self._ranges.get(node, ())

    def put(self, node: str, ranges: Sequence[tuple[int, int]]) -> None:
        """Let a node own these ranges, and no other ones."""
        self.drop(node)
        self._ranges[node] = ranges
        self.count += len(ranges)
        insort(self._alike.setdefault(len(ranges), []), (-_length(ranges), node))

    def drop(self, node: str) -> None:
        """Let a node own nothing."""
        if (ranges := self._ranges.pop(node, None)) is not None:
            self.count -= len(ranges)
            alike = self._alike[len(ranges)]
            del alike[bisect_left(alike, (-_length(ranges), node))]

    def busiest(self, points: int) -> Iterator[tuple[float, str]]:
        """By how much each node is below its fair share, and the node; rising.

        Nodes without a range are left out.

        Args:
            points: how many points all nodes of the ring have.
        """
        return heapq.merge(
            *(
                _below(RING_SIZE * count / points, alike)
                for count, alike in self._alike.items()
                if count
            )
        )


def _length(ranges: Sequence[tuple[int, int]]) -> int:
    return sum([length for _, length in ranges])


def _below(fair: float, alike: Sequence[tuple[int, str]]) -> Iterator[tuple[float, str]]:
    return ((fair + negative, name) for negative, name in alike)


def joining_cuts(owned: OwnedRanges, points: int, count: int, rng: Random) -> tuple[int, ...]:
    """:func:`balanced_points` for a ring of which it is known what each node's points own, rising.

    Args:
        owned: the ranges of all nodes.
        points: how many points all nodes of the ring have.

    Raises:
        ConfigError: there are not that many free points.
    """
    # Of points on one place only one owns anything.
    _check_room(count, owned.count)
    if not points:
        # Nobody to even out with: spread the points evenly, from a random start, so that later
        # joiners find ranges of one size.
        return _spread_points(count, rng)
    return balanced_cuts(owned, points, count)


def balanced_cuts(
    owned: OwnedRanges,
    points: int,
    count: int,
    *,
    own: Sequence[int] = (),
    uneven: bool = False,
) -> tuple[int, ...]:
    """``count`` points that take from the busiest of some nodes what a joiner should own, rising.

    Args:
        owned: the ranges of the nodes to take from; at least one.
        points: how many points all nodes of the ring have, the joiner's included.
        own: how much each of the points owns that the joiner has already. Altogether at least
            ``count`` points less than it should own then.
        uneven: cut ranges of different lengths: the first is twice as long as the last.
    """
    # Largest first, by size and start; of those that are cut only, since most are not.
    largest: dict[str, list[tuple[int, int]]] = {}

    # Furthest above its target first; ties by name and start, so that the same ring gives the
    # same points. Besides those that are cut only the first of the others is looked at.
    total = points + count
    others = owned.busiest(total)
    busiest = [next(others)]

    missing = RING_SIZE * (len(own) + count) / total - sum(own)
    parts = [2 ** (-i / count) if uneven else 1.0 for i in range(count)]
    left = sum(parts)
    chosen: list[int] = []
    for part in parts:
        # As long as the joiner lacks something, somebody has more than the fair share, and so a
        # range of more than RING_SIZE / total points: there is always something to cut.
        below, name = busiest[0]
        if name not in largest:
            largest[name] = [(-length, start) for start, length in owned.of(name)]
            heapq.heapify(largest[name])
            if (other := next(others, None)) is not None:
                heapq.heappush(busiest, other)
        negative, start = largest[name][0]
        size = -negative
        cut = min(int(missing * part / left), size - 1)
        chosen.append((start + size - cut) % RING_SIZE)
        missing -= cut
        left -= part
        heapq.heapreplace(largest[name], (cut - size, start))
        heapq.heapreplace(busiest, (below + cut, name))
    return tuple(sorted(chosen))


BALANCED_WHOLE: Final = 2048
"""Up to this many replicas, a joiner reads the whole ring."""

BALANCED_STRETCHES: Final = 32
"""At how many points it looks at a larger ring, at least; see :func:`balanced_stretches`."""

BALANCED_STRETCH: Final = 20
"""How many ranges it sees from each of these points on."""


def balanced_stretches(count: int) -> int:
    """At how many points of a larger ring a joiner looks that places ``count`` points.

    It sees five times as many ranges as it cuts, or more. If it saw too few, it would take all of
    them, and still lack a part of its share.
    """
    return max(BALANCED_STRETCHES, 5 * count // BALANCED_STRETCH)


def sampled_points(
    owned: Mapping[str, Sequence[tuple[int, int]]], points: int, count: int, rng: Random
) -> tuple[int, ...]:
    """The points of a balanced join to a ring of which only some was looked at, rising.

    Args:
        owned: start and length of the ranges that were looked at, by owner, the joiner not among
            them.
        points: how many points all nodes of the ring have.
        count: how many points the joiner places.

    Not guaranteed: that the joiner takes from the busiest node.
    """
    if any(owned.values()):
        # Joiners to a larger ring cut the longest ranges that they see. Ranges of one length would
        # all be cut in the same joins, and their node's share would rise far above the fair one
        # until then. So nodes begin with ranges of different lengths, in time for these joins.
        uneven = points > BALANCED_WHOLE // 2
        return balanced_cuts(OwnedRanges(owned), points, count, uneven=uneven)
    return _spread_points(count, rng)


def more_points(
    ring: Ring, node: str, count: int, rng: Random, placement: str = "random"
) -> tuple[int, ...]:
    """``count`` points that a node of the ring adds to those it has, rising.

    Args:
        placement: ``"random"``, or ``"balanced"`` to take from the busiest nodes what it lacks.

    Raises:
        ConfigError: there are not that many free points.
    """
    if placement == "balanced":
        owned = _owned_ranges(ring)
        own = [length for _, length in owned.pop(node, [])]
        own += [0] * (len(ring.points_of(node)) - len(own))
        taken = ring.points_of(node)
        return more_cuts(OwnedRanges(owned), len(ring), count, rng, own=own, taken=taken)
    return free_points({point for point, _ in ring.replicas()}, count, rng)


def more_cuts(
    owned: OwnedRanges,
    points: int,
    count: int,
    rng: Random,
    *,
    own: Sequence[int],
    taken: Collection[int],
) -> tuple[int, ...]:
    """``count`` points that a node adds beside nodes of which only some may have been looked at.

    They take from the busiest of those what the node lacks. If it lacks nothing, they are drawn at
    random: they even nothing, and the node has the points of its weight.

    Args:
        owned, points, own: as in :func:`balanced_cuts`.
        taken: points that are not free.
    """
    lacking = RING_SIZE * (len(own) + count) / (points + count) - sum(own)
    if lacking < count or not owned.count:
        return free_points(taken, count, rng)
    return balanced_cuts(owned, points, count, own=own)


def kept_points(lengths: Mapping[int, int], count: int) -> tuple[int, ...]:
    """The ``count`` points that a node keeps that has too many, rising.

    Large and small ranges are kept alike, so that its share falls about as its number of points.

    Args:
        lengths: how much each of its points owns; at least ``count`` of them.
    """
    by_length = sorted(lengths, key=lambda point: (lengths[point], point))
    # In the middle of as many parts as are kept, so neither the smallest nor the largest.
    return tuple(
        sorted(by_length[(2 * i + 1) * len(by_length) // (2 * count)] for i in range(count))
    )


def _spread_points(count: int, rng: Random) -> tuple[int, ...]:
    first = rng.randrange(RING_SIZE)
    return tuple(sorted((first + RING_SIZE * i // count) % RING_SIZE for i in range(count)))


def _check_room(count: int, taken: int) -> None:
    if count > RING_SIZE - taken:
        raise ConfigError(
            "n_replicas", count, f"the ring has {RING_SIZE - taken} free points: ask for fewer"
        )


PLACEMENTS: Final = ("random", "balanced")


def check_placement(name: str) -> str:
    """The name itself, when there is such a placement.

    Raises:
        ConfigError: there is none.
    """
    if name not in PLACEMENTS:
        raise ConfigError("placement", name, f"unknown; choose one of {', '.join(PLACEMENTS)}")
    return name
