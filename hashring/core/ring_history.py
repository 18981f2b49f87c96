"""The history of a ring: its versions over time, and who owned which points for how long.

Built from the changes that the ring's event stream records, in their order. A history is whole
when the changes follow each other without a gap, either from the ring's first change or from a
ring that was exported earlier.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import dropwhile

from hashring.core.owner_periods import Lives
from hashring.core.ring import Ring, sorted_points
from hashring.core.ring_change_message import ChangeKind, RingChange
from hashring.errors import HistoryError


@dataclass(frozen=True)
class Version:
    """The ring from one change to the next.

    Attributes:
        index: 0 for the ring that the history begins with, then 1, 2, ...
        epoch: the number of the change; of the first version, the epoch of the base.
        at: Redis time from which it held, in microseconds since 1970; never falls.
        change: what made it; ``None`` for version 0.
    """

    index: int
    epoch: int
    at: int
    change: RingChange | None


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
        at = self.since
        yield Version(0, self.base_epoch, at, None)
        for index, change in enumerate(self.changes, 1):
            at = max(at, change.stamp.at)
            yield Version(index, change.stamp.epoch, at, change)

    def rings(self) -> Iterator[Ring]:
        """The ring of each version. Makes them one after another, in time linear in their size."""
        ring = self.base
        yield ring
        for change in self.changes:
            if _begins(change):
                # Redis came back empty: every node has to join anew.
                ring = ring.without_nodes(*ring.nodes)
            ring = change.apply(ring)
            yield ring

    def ring_at(self, at: int) -> Ring | None:
        """The ring that held at a time; ``None`` for a time before the history.

        Args:
            at: microseconds since 1970.
        """
        found = None
        for version, ring in zip(self.versions(), self.rings(), strict=True):
            if version.at > at:
                break
            found = ring
        return found

    def nodes(self) -> tuple[str, ...]:
        """Every node that ever was on the ring, in order of their UTF-8 names."""
        joined = {node for change in self.changes if change.points for node in change.nodes}
        return tuple(sorted(joined.union(self.base.nodes), key=str.encode))

    def full(self) -> Iterator[tuple[str, int, int | None]]:
        """Each time in which a node held as many keys as it may: the node, the version from which
        it was full, and the version from which it was not any more (``None`` for never).

        A node that leaves or expires is not full when it comes back, and no ``room`` says so. What
        was full before the history began is not known.
        """
        since: dict[str, int] = {}
        for version in self.versions():
            change = version.change
            if change is None:
                continue
            ended = list(since) if _begins(change) else []
            if change.ends_full:
                ended += change.nodes
            for node in ended:
                if node in since:
                    yield node, since.pop(node), version.index
            if change.kind is ChangeKind.FULL:
                for node in change.nodes:
                    since.setdefault(node, version.index)
        for node, first in since.items():
            yield node, first, None

    def lives(self) -> tuple[Lives, int]:
        """The lives of all replicas, and how many versions of the ring had none.

        Raises:
            ConfigError: a node joined at a point outside the circle.
        """
        number = {node: index for index, node in enumerate(self.nodes())}
        alive = {node: dict.fromkeys(self.base.points_of(node), 0) for node in self.base.nodes}
        points, nodes, since, until = array("I"), array("i"), array("i"), array("i")

        def end(node: str, ended: Mapping[int, int], index: int) -> None:
            if not ended:  # a node that never was on the ring has no number
                return
            points.extend(ended)
            nodes.extend([number[node]] * len(ended))
            since.extend(ended.values())
            until.extend([index] * len(ended))

        empty = int(not alive)
        for index, change in enumerate(self.changes, 1):
            gone = list(alive) if _begins(change) else []
            if change.takes_off:
                gone += change.nodes
            for node in gone:
                end(node, alive.pop(node, {}), index)
            if change.kind is ChangeKind.JOIN:
                node = change.nodes[0]
                own = alive.pop(node, {})
                # A point that the node keeps has one life.
                kept = {
                    point: own.pop(point, index) for point in sorted_points(node, change.points)
                }
                end(node, own, index)
                if kept:
                    alive[node] = kept
            empty += not alive
        for node, own in alive.items():
            end(node, own, len(self.changes) + 1)
        places = array("Q", (point << 32 | node for point, node in zip(points, nodes, strict=True)))
        order = sorted(range(len(places)), key=places.__getitem__)
        columns = (
            array(column.typecode, map(column.__getitem__, order))
            for column in (points, nodes, since, until)
        )
        return Lives(*columns), empty


def ring_history(
    changes: Iterable[RingChange],
    base: Ring | None = None,
    base_epoch: int = 0,
    since: int = 0,
    *,
    base_tag: str = "",
    hash_algorithm: str = "crc-32",
) -> RingHistory:
    """The history that changes make, from a ring exported earlier or from the ring's beginning.

    Args:
        changes: as recorded, in their order. Those that the base has already are skipped, as are
            repeated ones.
        base: the ring before the changes; without it they must begin with the ring's first one.
        base_epoch, base_tag: its place in the ring's history; an empty tag is unknown.
        since: Redis time of the base, in microseconds since 1970; 0 is unknown.
        hash_algorithm: that of the ring, when there is no base that has it. Changes do not.

    Raises:
        HistoryError: a change is missing, the changes do not follow the base, or there is neither
            a base nor a change.
    """
    kept: list[RingChange] = []
    epoch = base_epoch
    if base is not None:
        changes = _later(tuple(changes), base_epoch, base_tag, since)
    for change in changes:
        stamp = change.stamp
        tag = kept[-1].stamp.tag if kept else base_tag
        if stamp.tag and stamp.tag == tag:
            continue
        if _begins(change):
            kept.append(change)
            epoch = 1
            continue
        follows = not change.prev or change.prev == tag or not (kept or base_tag)
        if base is not None and not kept and stamp.epoch <= epoch + (not follows):
            raise HistoryError(
                f"the change of epoch {stamp.epoch} does not follow the ring that was exported at "
                f"epoch {epoch}: the events are of another ring, or Redis lost data after the "
                f"export; give a ring that was exported after that"
            )
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


def _later(changes: Sequence[RingChange], epoch: int, tag: str, since: int) -> Iterable[RingChange]:
    """The changes after a ring that was exported at this place in its history.

    Found by the ring's tag, or else by epochs and times: a ring that began anew after the export
    has its first epochs again.
    """
    for index, change in enumerate(changes):
        if tag and change.prev == tag:
            return changes[index:]
        if tag and change.stamp.tag == tag:
            return changes[index + 1 :]
    return dropwhile(
        lambda change: change.stamp.epoch <= epoch and (not since or change.stamp.at <= since),
        changes,
    )


def _begins(change: RingChange) -> bool:
    return change.stamp.epoch == 1 and not change.prev
