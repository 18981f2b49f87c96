"""Where a joining node puts its points.

``random``: independent, uniform. Nothing to agree on, so any number of nodes may join at once.
The busiest of 100 nodes with 16 points owns about 1.8 times its fair share.

``balanced`` (greedy join): the joiner looks at the ring, takes the node that is furthest above
its fair share, cuts the missing part off that node's largest range, and goes on until its points
are used up. 16 such points even the ring better than 512 random ones (explanation/placement).
It must be serialised: two joiners that do not see each other would cut the same ranges. The
store therefore accepts a balanced join only on the very ring that was looked at.

A joiner need not look at the whole ring: the owners of some points drawn at random are likely to be
among the busiest, since a node is drawn in proportion to its share (the power of many choices).
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.errors import ConfigError


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
    replicas = list(others.replicas())
    _check_room(count, len({point for point, _ in replicas}))
    if not replicas:
        # Nobody to even out with: spread the points evenly, from a random start, so that later
        # joiners find ranges of one size.
        return _spread_points(count, rng)

    # What each replica owns. Not the node's ranges, which run on over its own replicas: a cut ends
    # at the next replica, any node's.
    owned: dict[str, list[tuple[int, int]]] = {name: [] for name in others.nodes}
    around = [*(point for point, _ in replicas[1:]), replicas[0][0] + RING_SIZE]
    for (start, name), end in zip(replicas, around, strict=True):
        owned[name].append((start, end - start))
    return balanced_cuts(owned, len(replicas), count)


def balanced_cuts(
    owned: Mapping[str, Sequence[tuple[int, int]]], points: int, count: int
) -> tuple[int, ...]:
    """``count`` points that take from the busiest of some nodes what a joiner should own, rising.

    Args:
        owned: the nodes to take from: start and length of each of their ranges, each at least one
            point long. At least one node, with at least one range.
        points: how many points all nodes of the ring have.
    """
    # Largest first, by size and start.
    largest = {
        name: [(-length, start) for start, length in spans]
        for name, spans in owned.items()
        if spans
    }
    for sizes in largest.values():
        heapq.heapify(sizes)

    # Furthest above its target first; ties by name and start, so that the same ring gives the
    # same points.
    total = points + count
    busiest = [
        (RING_SIZE * len(sizes) / total + sum(negative for negative, _ in sizes), name)
        for name, sizes in largest.items()
    ]
    heapq.heapify(busiest)

    missing = RING_SIZE * count / total
    chosen: list[int] = []
    for left in range(count, 0, -1):
        # As long as the joiner lacks something, somebody has more than the fair share, and so a
        # range of more than RING_SIZE / total points: there is always something to cut.
        below, name = busiest[0]
        negative, start = largest[name][0]
        size = -negative
        cut = min(int(missing / left), size - 1)
        chosen.append((start + size - cut) % RING_SIZE)
        missing -= cut
        heapq.heapreplace(largest[name], (cut - size, start))
        heapq.heapreplace(busiest, (below + cut, name))
    return tuple(sorted(chosen))


BALANCED_SAMPLES: Final = 64
"""How many points :func:`sampled_points` wants to know the owners of."""


def sampled_points(
    owned: Mapping[str, Sequence[tuple[int, int]]], points: int, count: int, rng: Random
) -> tuple[int, ...]:
    """The points of a balanced join beside nodes of which only some were looked at, rising.

    Args:
        owned: start and length of each range of the nodes that were looked at, the joiner not
            among them: the owners of points drawn at random, or all nodes.
        points: how many points all nodes of the ring have.
        count: how many points the joiner places.

    Not guaranteed: that the joiner takes from the busiest node. 64 samples miss the busiest
    twentieth of the ring once in 27 joins.
    """
    if any(owned.values()):
        return balanced_cuts(owned, points, count)
    return _spread_points(count, rng)


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
