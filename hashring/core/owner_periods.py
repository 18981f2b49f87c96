"""Who owned which points for how long, from the lives of a ring's replicas.

The *life* of a replica is the versions of the ring that have it. The points are swept once, from
below. The sweep keeps the owners of one point over all versions. Each replica that it passes takes
the versions of its life: from here up it is the nearest replica behind. So a replica costs a search
and a splice in the list of the owners that one point ever had, a few dozen. The size of the ring
and the number of its versions do not matter.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from hashring.core.hashing import RING_SIZE

NOBODY: Final = -1
"""The number of a node that is none."""
_FEWEST_BEHIND: Final = 4


class Period(NamedTuple):
    """A range of points that had one owner for one time, from change to change.

    For every point the periods follow each other without gap or overlap, and two that follow
    each other have different owners. Neighbouring ranges may have the same owner.

    Attributes:
        start, end: the points ``start <= p < end``.
        owner: the number of a node; :data:`NOBODY` where the ring had no nodes.
        since: the version that gave the range to its owner; 0 for the first version.
        until: the version that took it away; the number of versions when none did.
        before: the owner of these points until then; ``NOBODY`` for none or unknown.
        after: the owner from ``until`` on; ``NOBODY`` for none, or when the period is open.
    """

    start: int
    end: int
    owner: int
    since: int
    until: int
    before: int
    after: int


@dataclass(frozen=True)
class Lives:
    """The replicas that a ring ever had, shape (lives,) each.

    By rising point; those on one point by rising number of node, so that the owner comes last.

    Attributes:
        points: where the replica is.
        nodes: the number of its node: nodes are numbered in order of their UTF-8 names.
        since: the first version of the ring that has it.
        until: the first version that has it no more; the number of versions if all later ones do.
    """

    points: array[int]
    nodes: array[int]
    since: array[int]
    until: array[int]

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        return zip(self.points, self.nodes, self.since, self.until, strict=True)

    def last(self, count: int) -> Lives:
        """The last of them in the order, at most all."""
        first = len(self) - count
        columns = (self.points, self.nodes, self.since, self.until)
        return Lives(*(column[first:] for column in columns))


def owner_periods(lives: Lives, versions: int, empty: int) -> Iterator[Period]:
    """Every period of ownership, in the order of their upper ends.

    Args:
        lives: all that the ring ever had.
        versions: how many versions the ring had.
        empty: how many of them had no replica.
    """
    # The owners of point 0 are the last replicas below the top: as many as it takes to know the
    # owner in every version.
    count = _FEWEST_BEHIND
    while True:
        count = min(count, len(lives))
        sweep = _Sweep(versions)
        sweep.skip(lives.last(count))
        if count == len(lives) or sweep.unowned() == empty:
            break
        count *= 4
    yield from sweep.over(lives)
    yield from sweep.rest()


class _Sweep:
    """The owners of one point over all versions.

    Shape (owners,) each: the version with which each owner began, its number, and the point from
    which on this, its end and its neighbours have been so. Two neighbours are never one node.
    """

    def __init__(self, versions: int) -> None:
        self._versions = versions
        self._since, self._owners, self._starts = [0], [NOBODY], [0]

    def unowned(self) -> int:
        """How many versions have no owner here."""
        ends = [*self._since[1:], self._versions]
        spans = zip(self._since, ends, self._owners, strict=True)
        return sum(end - since for since, end, owner in spans if owner == NOBODY)

    def skip(self, lives: Lives) -> None:
        """Pass replicas below the top of the circle, and go on from point 0."""
        for _ in self.over(lives):
            pass
        self._starts = [0] * len(self._since)

    def over(self, lives: Iterable[tuple[int, int, int, int]]) -> Iterator[Period]:
        """Pass replicas, and yield the periods that are not the same from there on."""
        all_since, owners, starts = self._since, self._owners, self._starts
        for point, node, since, until in lives:
            # The owners from `first` up to `last` have a part of the replica's life.
            first = bisect_right(all_since, since) - 1
            last = bisect_left(all_since, until, first)
            if owners[first] == node:
                first += 1
                if first == last:
                    continue
                since = all_since[first]  # noqa: PLW2901 - the part that is news
            if owners[last - 1] == node:
                last -= 1
                until = all_since[last]  # noqa: PLW2901
            # An owner that only ends earlier or begins later hides its neighbour from the change.
            left = first if all_since[first] < since else max(first - 1, 0)
            end = all_since[last] if last < len(owners) else self._versions
            right = last if until < end else min(last + 1, len(owners))
            yield from self._periods(left, right, point)
            news = [(all_since[left], owners[left])] if all_since[left] < since else []
            if not news or news[-1][1] != node:
                news.append((since, node))
            if until < end:
                news.append((until, owners[last - 1]))
            elif last < right and owners[last] != node:
                news.append((end, owners[last]))
            all_since[left:right] = [begun for begun, _ in news]
            owners[left:right] = [owner for _, owner in news]
            starts[left:right] = [point] * len(news)

    def rest(self) -> Iterator[Period]:
        """Yield the periods that go on up to the top of the circle."""
        return self._periods(0, len(self._owners), RING_SIZE)

    def _periods(self, left: int, right: int, end: int) -> Iterator[Period]:
        since, owners = self._since, self._owners
        for index in range(left, right):
            if self._starts[index] < end:
                last = index + 1 == len(owners)
                yield Period(
                    self._starts[index],
                    end,
                    owners[index],
                    since[index],
                    self._versions if last else since[index + 1],
                    owners[index - 1] if index else NOBODY,
                    NOBODY if last else owners[index + 1],
                )
