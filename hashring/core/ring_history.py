"""The history of a ring: its versions over time, and who owned which points for how long.

Built from the changes that the ring's event stream records, in their order. A history is whole
when the changes follow each other without a gap, either from the ring's first change or from a
ring that was exported earlier.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from hashring.core.hashing import RING_SIZE
from hashring.core.ring import Ring
from hashring.core.ring_change import ChangeKind, RingChange
from hashring.errors import HistoryError


class Period(NamedTuple):
    """A range of points that had one owner for one time, from change to change.

    For every point the periods follow each other without gap or overlap, and two that follow
    each other have different owners. Neighbouring ranges may have the same owner.

    Attributes:
        start, end: the points ``start <= p < end``.
        owner: ``None`` where the ring had no nodes.
        since: the version that gave the range to its owner; 0 for the first version.
        until: the version that took it away; ``None`` when no later version did.
        before: the owner of these points until then; ``None`` for nobody or unknown.
        after: the owner from ``until`` on; ``None`` for nobody, or when the period is open.
    """

    start: int
    end: int
    owner: str | None
    since: int
    until: int | None
    before: str | None
    after: str | None


@dataclass(frozen=True)
class Version:
    """The ring from one change to the next.

    Attributes:
        index: 0 for the ring that the history begins with, then 1, 2, ...
        epoch: the number of the change; of the first version, the epoch of the base.
        at: Redis time from which it held, in microseconds since 1970; never falls.
        change: what made it; ``None`` for version 0.
        ring: the ring itself.
    """

    index: int
    epoch: int
    at: int
    change: RingChange | None
    ring: Ring


@dataclass(frozen=True)
class RingHistory:
    """A ring and the changes it went through; see :func:`ring_history`.

    Attributes:
        base: the ring before the first change.
        base_epoch: its epoch.
        since: Redis time from which the base is known to have held, microseconds since 1970.
        changes: in order, without a gap.
    """

    base: Ring
    base_epoch: int
    since: int
    changes: tuple[RingChange, ...]

    def versions(self) -> Iterator[Version]:
        """Every version, oldest first.

        A change that a server with a slower clock made (after a failover) counts from the time
        of the change before it.
        """
        ring, at = self.base, self.since
        yield Version(0, self.base_epoch, at, None, ring)
        for index, change in enumerate(self.changes, 1):
            if _begins(change):
                # Redis came back empty: every node has to join anew.
                ring = ring.without_nodes(*ring.nodes)
            ring = change.apply(ring)
            at = max(at, change.stamp.at)
            yield Version(index, change.stamp.epoch, at, change, ring)

    def ring_at(self, at: int) -> Ring | None:
        """The ring that held at a time; ``None`` for a time before the history.

        Args:
            at: microseconds since 1970.
        """
        found = None
        for version in self.versions():
            if version.at > at:
                break
            found = version.ring
        return found

    def nodes(self) -> tuple[str, ...]:
        """Every node that ever was on the ring, in order of their UTF-8 names."""
        joined = {node for change in self.changes if change.points for node in change.nodes}
        return tuple(sorted(joined.union(self.base.nodes), key=str.encode))

    def full(self) -> Iterator[tuple[str, int, int | None]]:
        """Each time in which a node held as many keys as it may: the node, the version from which
        it was full, and the version from which it had room again (``None`` for never).

        What was full before the history began is not known.
        """
        since: dict[str, int] = {}
        for version in self.versions():
            change = version.change
            if change is None:
                continue
            ended = list(since) if _begins(change) else []
            if change.kind is ChangeKind.ROOM:
                ended += change.nodes
            for node in ended:
                if node in since:
                    yield node, since.pop(node), version.index
            if change.kind is ChangeKind.FULL:
                for node in change.nodes:
                    since.setdefault(node, version.index)
        for node, first in since.items():
            yield node, first, None

    def periods(self) -> Iterator[Period]:
        """Every period of ownership, in the order in which they end.

        There are at most a few for each point of each change, however large the ring is: only
        the ranges that a change touches are looked at.
        """
        versions = self.versions()
        first = next(versions)
        pieces = _Pieces(first.ring)
        before = first.ring
        for version in versions:
            if version.change is None:
                continue
            touched = set(version.change.nodes)
            if _begins(version.change):
                touched.update(before.nodes)
            for start, end, owner in _touched(before, version.ring, touched):
                yield from pieces.give(start, end, owner, version.index)
            before = version.ring
        yield from pieces.open_periods()


def ring_history(
    changes: Iterable[RingChange],
    base: Ring | None = None,
    base_epoch: int = 0,
    since: int = 0,
    *,
    hash_algorithm: str = "crc-32",
) -> RingHistory:
    """The history that changes make, from a ring exported earlier or from the ring's beginning.

    Args:
        changes: as recorded, in their order. Those up to ``base_epoch`` are skipped, as are
            repeated ones.
        base: the ring before the changes; without it they must begin with the ring's first one.
        since: Redis time of the base, in microseconds since 1970.
        hash_algorithm: that of the ring, when there is no base to tell it.

    Raises:
        HistoryError: a change is missing, or there is neither a base nor a change.
    """
    kept: list[RingChange] = []
    epoch = base_epoch
    for change in changes:
        stamp = change.stamp
        if kept and stamp.tag and stamp.tag == kept[-1].stamp.tag:
            continue
        if _begins(change) and (kept or base is None):
            kept.append(change)
            epoch = 1
            continue
        if base is not None and not kept and stamp.epoch <= base_epoch:
            continue
        follows = not kept or not change.prev or change.prev == kept[-1].stamp.tag
        if stamp.epoch != epoch + 1 or not follows:
            raise HistoryError(
                f"the changes of the ring between epoch {epoch} and epoch {stamp.epoch} are "
                f"missing: give events without a gap"
                + (
                    ", from epoch 1 on, or the ring that was exported before them"
                    if not kept and base is None
                    else ""
                )
            )
        kept.append(change)
        epoch = stamp.epoch
    if base is None:
        if not kept:
            raise HistoryError("no events: a history needs a ring exported earlier, or its changes")
        return RingHistory(Ring({}, hash_algorithm), 0, kept[0].stamp.at, tuple(kept))
    return RingHistory(base, base_epoch, since, tuple(kept))


def _begins(change: RingChange) -> bool:
    return change.stamp.epoch == 1 and not change.prev


def _touched(before: Ring, after: Ring, nodes: Iterable[str]) -> list[tuple[int, int, str | None]]:
    """The ranges that these nodes had or have, cut so that each has one owner afterwards."""
    bounds: list[tuple[int, int]] = []
    cuts: set[int] = set()
    for node in nodes:
        for ring in (before, after):
            if node in ring:
                cuts.update(ring.points_of(node))
                for range_ in ring.node_ranges(node):
                    bounds.append(range_)
                    cuts.update(range_)
    # Within a range of the old ring other nodes have no points, except on a point they share
    # with its owner: that is a cut too. So between two cuts the new owner is one.
    ordered = sorted(cuts)
    found: list[tuple[int, int, str | None]] = []
    done = 0
    for start, end in sorted(bounds):
        first = bisect_left(ordered, max(start, done))
        for left, right in pairwise(ordered[first : bisect_left(ordered, end) + 1]):
            owner = after.owner_of_point(left) if after.node_count else None
            if found and found[-1][1:] == (left, owner):
                found[-1] = (found[-1][0], right, owner)
            else:
                found.append((left, right, owner))
        done = max(done, end)
    return found


class _Pieces:
    """The ring cut into ranges that have one owner since one version, after one owner."""

    def __init__(self, ring: Ring) -> None:
        self._starts: list[int] = []
        self._held: list[tuple[str | None, int, str | None]] = []
        for (start, _), owner in ring.ranges():
            self._starts.append(start)
            self._held.append((owner, 0, None))
        if not self._starts:
            self._starts, self._held = [0], [(None, 0, None)]

    def give(self, start: int, end: int, owner: str | None, version: int) -> Iterator[Period]:
        """Give a range to an owner, and tell of the periods this ends."""
        starts, held = self._starts, self._held
        first = bisect_right(starts, start) - 1
        last = bisect_left(starts, end, first)
        pieces: list[tuple[int, tuple[str | None, int, str | None]]] = []
        for index in range(first, last):
            left = starts[index]
            right = starts[index + 1] if index + 1 < len(starts) else RING_SIZE
            had, since, earlier = held[index]
            inner_left, inner_right = max(left, start), min(right, end)
            if left < inner_left:
                pieces.append((left, held[index]))
            if had == owner:
                pieces.append((inner_left, held[index]))
            else:
                yield Period(inner_left, inner_right, had, since, version, earlier, owner)
                pieces.append((inner_left, (owner, version, had)))
            if inner_right < right:
                pieces.append((inner_right, held[index]))
        merged: list[tuple[int, tuple[str | None, int, str | None]]] = []
        for piece in pieces:
            neighbour = merged[-1][1] if merged else (held[first - 1] if first else None)
            if piece[1] != neighbour:
                merged.append(piece)
        starts[first:last] = [left for left, _ in merged]
        held[first:last] = [what for _, what in merged]

    def open_periods(self) -> Iterator[Period]:
        """What is held now."""
        ends = [*self._starts[1:], RING_SIZE]
        for start, end, (owner, since, earlier) in zip(self._starts, ends, self._held, strict=True):
            yield Period(start, end, owner, since, None, earlier, None)
