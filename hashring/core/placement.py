"""Where a joining node puts its points.

``random``: independent, uniform. Nothing to agree on, so any number of nodes may join at once.
The busiest of 100 nodes with 16 points owns about 1.8 times its fair share.

``balanced`` (greedy join): the joiner looks at the ring, takes the node that is furthest above
its fair share, cuts the missing part off that node's largest range, and goes on until its points
are used up. 16 such points even the ring better than 512 random ones (see docs/placement.rst).
It must be serialised: two joiners that do not see each other would cut the same ranges. The
store therefore accepts a balanced join only on the very ring that was looked at.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from typing import Final, Protocol

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Range, Ring
from hashring.errors import ConfigError


class Random(Protocol):
    """The part of :class:`random.Random` that placement needs."""

    def randrange(self, stop: int, /) -> int:
        """An integer ``0 <= n < stop``."""


def random_points(ring: Ring, node: str, count: int, rng: Random) -> tuple[int, ...]:
    """``count`` different points, uniform over the free points of the ring.

    A point that another node has is drawn again: of two replicas on one point only one counts.
    """
    taken = {point for point, owner in ring.replicas() if owner != node}
    chosen: set[int] = set()
    while len(chosen) < count:
        point = rng.randrange(RING_SIZE)
        if point not in taken:
            chosen.add(point)
    return tuple(sorted(chosen))


def balanced_points(ring: Ring, node: str, count: int, rng: Random) -> tuple[int, ...]:
    """``count`` points that take from the busiest nodes what the joiner should own.

    A node's fair share is in proportion to its number of points, as it is (on average) with
    random placement; so a node of weight 2 has twice the points and gets twice the share.

    Args:
        ring: the ring as it is; points the node already has on it are ignored.

    The source of the method is the spread-minimising idea of grafana/dskit, reduced to one
    joiner: each point goes to the node furthest above its target, in that node's largest range,
    and cuts (what is missing) / (points left) off its end.
    """
    others = ring.without_nodes(node)
    if not others.node_count:
        # Nobody to even out with: spread the points evenly, from a random start, so that later
        # joiners find ranges of one size.
        first = rng.randrange(RING_SIZE)
        return tuple(sorted((first + RING_SIZE * i // count) % RING_SIZE for i in range(count)))

    total = len(others) + count
    target = RING_SIZE * count / total

    # Furthest above its target first; ties by name and start, so that the same ring gives the
    # same points.
    busiest = [
        (RING_SIZE * len(others.points_of(name)) / total - owned, name)
        for name, owned in others.shares.items()
    ]
    heapq.heapify(busiest)
    largest: dict[str, list[tuple[int, int]]] = {name: [] for name in others.nodes}
    for range_, name in _circular_ranges(others):
        largest[name].append((-(range_.end - range_.start), range_.start))
    for ranges in largest.values():
        heapq.heapify(ranges)

    taken = {point for point, _ in others.replicas()}
    chosen: list[int] = []
    gained = 0.0
    while len(chosen) < count:
        if not busiest:
            # Every range left is a single point: there is nothing to cut, so fill up at random.
            extra = random_points(others.with_node(node, chosen), node, count - len(chosen), rng)
            chosen.extend(extra)
            break
        negative, name = heapq.heappop(busiest)
        if not largest[name]:
            continue
        size_negative, start = heapq.heappop(largest[name])
        size = -size_negative
        if size < 2:
            heapq.heappush(busiest, (negative, name))
            continue
        wanted = (target - gained) / (count - len(chosen))
        cut = min(max(int(wanted), 1), size - 1)
        point = (start + size - cut) % RING_SIZE
        while point in taken and cut > 1:
            cut -= 1
            point = (start + size - cut) % RING_SIZE
        taken.add(point)
        chosen.append(point)
        gained += cut
        heapq.heappush(largest[name], (-(size - cut), start))
        heapq.heappush(busiest, (negative + cut, name))
    return tuple(sorted(chosen))


def _circular_ranges(ring: Ring) -> Iterable[tuple[Range, str]]:
    """The ranges with the one that wraps kept whole: its end is above 2**32."""
    found = list(ring.ranges())
    (first, owner), (last, last_owner) = found[0], found[-1]
    if len(found) > 1 and owner == last_owner and first.start == 0:
        found[-1] = (Range(last.start, RING_SIZE + first.end), owner)
        del found[0]
    return found


PLACEMENTS: Final = ("random", "balanced")


def check_placement(name: str) -> str:
    """The name itself, when there is such a placement.

    Raises:
        ConfigError: there is none.
    """
    if name not in PLACEMENTS:
        raise ConfigError("placement", name, f"unknown; choose one of {', '.join(PLACEMENTS)}")
    return name
