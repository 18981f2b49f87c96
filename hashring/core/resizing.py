"""The points of a ring while one node after the other joins, or gets more or fewer of them."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import Final

from hashring.core.hashing import RING_SIZE
from hashring.core.placement import Random, free_points, joining_cuts, kept_points, more_cuts
from hashring.core.ring import Ring


class Resizing:
    """A ring that nodes join, and whose nodes get other numbers of points, as live nodes do it.

    A change costs about as much as the node has points, however large the ring is. What each node
    owns is computed anew only beside what has changed; nodes with ``balanced`` placement that join
    or add points look at the ranges of all others.

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
        self._ranges: dict[str, list[tuple[int, int]]] = {}

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
            owned = {name: self._ranges_of(name) for name in self._points}
            points = joining_cuts(owned, self._count, count, rng)
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
        owned = {name: self._ranges_of(name) for name in self._points if name != node}
        own = [length for _, length in self._ranges_of(node)]
        own += [0] * (len(points) - len(own))
        return more_cuts(owned, self._count, count, rng, own=own, taken=set(points))

    def _ranges_of(self, node: str) -> list[tuple[int, int]]:
        """Start and length of the ranges that a node's points own."""
        if (known := self._ranges.get(node)) is None:
            known = self._ranges[node] = [
                (point, self._next(point) - point)
                for point in self._points[node]
                if self._owners[point] == node
            ]
        return known

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
            self._ranges.pop(heir, None)
        else:
            hidden.remove(node)

    def _changed(self, point: int, node: str) -> None:
        """Forget the ranges of all whom a change of a node at a point may concern."""
        if not self._starts:
            return
        before = self._starts[bisect_left(self._starts, point) - 1]
        for name in (node, self._owners[before], self._owners.get(point, node)):
            self._ranges.pop(name, None)
