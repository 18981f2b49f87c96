"""Who owned which points for how long, from the lives of a ring's replicas.

The *life* of a replica is the versions of the ring that have it. The points are swept once, from
below. The sweep keeps the owners of one point over all versions. Each replica that it passes takes
the versions of its life: from here up it is the nearest replica behind. So a replica costs a search
and a splice in the list of the owners that one point ever had, a few dozen. The size of the ring
and the number of its versions do not matter.

The sweep can begin at any point whose owners are known. So the points of a long history can be
swept in parts (:class:`SweptParts`), by several processes.
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

    def part(self, first: int, last: int) -> Lives:
        """Those from the place ``first`` in the order up to the place ``last``."""
        columns = (self.points, self.nodes, self.since, self.until)
        return Lives(*(column[first:last] for column in columns))


@dataclass(frozen=True)
class PointOwners:
    """The owners of one point over all versions, shape (owners,) each.

    Attributes:
        since: the version with which each began, rising from 0.
        nodes: their numbers; :data:`NOBODY` where the ring had no nodes.
    """

    since: array[int]
    nodes: array[int]


def owner_periods(lives: Lives, versions: int, empty: int) -> Iterator[Period]:
    """Every period of ownership, in the order of their upper ends.

    Args:
        lives: all that the ring ever had.
        versions: how many versions the ring had.
        empty: how many of them had no replica.
    """
    owners = _owners_of_zero(lives, versions, empty)
    return periods_between(0, RING_SIZE, lives, owners, versions)


def periods_between(
    start: int, end: int, lives: Lives, owners: PointOwners, versions: int
) -> Iterator[Period]:
    """The periods of the points ``start <= p < end``, in the order of their upper ends.

    A period that begins below or goes on above is cut.

    Args:
        lives: those at these points, and no others. Some at ``end`` itself do no harm.
        owners: those of the points just below the first of the lives.
        versions: how many versions the ring had.
    """
    sweep = _Sweep(owners, versions, start)
    yield from sweep.over(lives)
    yield from sweep.rest(end)


@dataclass(frozen=True)
class SweptParts:
    """What it takes to sweep the points in parts, and how many owners each point had.

    Attributes:
        owners: for each part, the owners of the points just below its first life.
        size: how many lives each part has; the last one has the rest.
        versions: how many versions the ring had.
        counts: shape (1 + lives,), how many periods with an owner the points have, those from 0 on
            and those from the point of each life on. Of lives at one point the last one tells.
    """

    owners: tuple[PointOwners, ...]
    size: int
    versions: int
    counts: array[int]


def swept_parts(lives: Lives, versions: int, empty: int, size: int) -> SweptParts:
    """Sweep all lives once without making periods, which takes half of the time.

    Args:
        lives, versions, empty: as for :func:`owner_periods`.
        size: how many lives each part has; the last one has the rest.
    """
    sweep = _Sweep(_owners_of_zero(lives, versions, empty), versions, 0)
    owners, counts = [sweep.owners()], array("I", [sweep.owned()])
    for index, life in enumerate(lives):
        if index and index % size == 0:
            owners.append(sweep.owners())
        sweep.pass_over(*life)
        counts.append(sweep.owned())
    return SweptParts(tuple(owners), size, versions, counts)


def _owners_of_zero(lives: Lives, versions: int, empty: int) -> PointOwners:
    """The owners of point 0: the last replicas below the top.

    Passes as many as it takes to know the owner in every version.
    """
    count = _FEWEST_BEHIND
    while True:
        first = max(len(lives) - count, 0)
        sweep = _Sweep(PointOwners(array("i", [0]), array("i", [NOBODY])), versions, 0)
        for life in lives.part(first, len(lives)):
            sweep.pass_over(*life)
        if not first or sweep.unowned() == empty:
            return sweep.owners()
        count *= 4


class _Sweep:
    """The owners of one point over all versions.

    Shape (owners,) each: the version with which each owner began, its number, and the point from
    which on this, its end and its neighbours have been so. Two neighbours are never one node.
    """

    def __init__(self, owners: PointOwners, versions: int, start: int) -> None:
        self._versions = versions
        self._since, self._owners = list(owners.since), list(owners.nodes)
        self._starts = [start] * len(owners.since)

    def owners(self) -> PointOwners:
        """The owners here."""
        return PointOwners(array("i", self._since), array("i", self._owners))

    def owned(self) -> int:
        """How many periods with an owner there are here."""
        return len(self._owners) - self._owners.count(NOBODY)

    def unowned(self) -> int:
        """How many versions have no owner here."""
        ends = [*self._since[1:], self._versions]
        spans = zip(self._since, ends, self._owners, strict=True)
        return sum(end - since for since, end, owner in spans if owner == NOBODY)

    def over(self, lives: Iterable[tuple[int, int, int, int]]) -> Iterator[Period]:
        """Pass replicas, and yield the periods that are not the same from there on."""
        for point, node, since, until in lives:
            change = self._change(node, since, until)
            if change is not None:
                left, right, _ = change
                yield from self._periods(left, right, point)
                self._apply(*change, point)

    def pass_over(self, point: int, node: int, since: int, until: int) -> None:
        """Pass one replica."""
        change = self._change(node, since, until)
        if change is not None:
            self._apply(*change, point)

    def _change(
        self, node: int, since: int, until: int
    ) -> tuple[int, int, list[tuple[int, int]]] | None:
        """What a replica changes here: which owners go, from where up to where, and which come.

        Returns:
            ``None`` if the node owned all of it already.
        """
        all_since, owners = self._since, self._owners
        # The owners from `first` up to `last` have a part of the replica's life.
        first = bisect_right(all_since, since) - 1
        last = bisect_left(all_since, until, first)
        if owners[first] == node:
            first += 1
            if first == last:
                return None
            since = all_since[first]  # the part that is news
        if owners[last - 1] == node:
            last -= 1
            until = all_since[last]
        # An owner that only ends earlier or begins later hides its neighbour from the change.
        left = first if all_since[first] < since else max(first - 1, 0)
        end = all_since[last] if last < len(owners) else self._versions
        right = last if until < end else min(last + 1, len(owners))
        news = [(all_since[left], owners[left])] if all_since[left] < since else []
        if not news or news[-1][1] != node:
            news.append((since, node))
        if until < end:
            news.append((until, owners[last - 1]))
        elif last < right and owners[last] != node:
            news.append((end, owners[last]))
        return left, right, news

    def _apply(self, left: int, right: int, news: list[tuple[int, int]], point: int) -> None:
        self._since[left:right] = [begun for begun, _ in news]
        self._owners[left:right] = [owner for _, owner in news]
        self._starts[left:right] = [point] * len(news)

    def rest(self, end: int) -> Iterator[Period]:
        """Yield the periods that go on up to a point."""
        return self._periods(0, len(self._owners), end)

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
