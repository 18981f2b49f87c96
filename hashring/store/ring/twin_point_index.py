"""The index of a ring's members by their points, as the twin in memory keeps it.

The decisions are those of the scripts (``_point_index.lua``, ``_neighbours.lua``, ``look.lua``, and
``reconcile`` in ``_sweep.lua``), in the same words.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field

from hashring.core.hashing import RING_SIZE
from hashring.core.own_ranges import Reach
from hashring.core.replica import parse_replica
from hashring.errors import ReplicaFormatError
from hashring.store.ring.node_entries import told_of


@dataclass
class PointIndex:
    """Members by their points: a ZSET of which the scripts read ranges of scores."""

    _sorted: list[tuple[int, bytes]] = field(default_factory=list)
    _points: dict[bytes, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._points)

    def __contains__(self, member: bytes) -> bool:
        return member in self._points

    @property
    def members(self) -> list[bytes]:
        """The members, by rising point."""
        return [member for _, member in self._sorted]

    def items(self) -> Iterable[tuple[bytes, int]]:
        """The members with their points."""
        return self._points.items()

    @property
    def counted(self) -> int:
        """How many members are replicas."""
        return len(self._sorted) - bisect_left(self._sorted, (0, b""))

    def add(self, member: bytes, point: int) -> None:
        """Put a member there; with the point -1, one that no reader counts."""
        self.remove(member)
        self._points[member] = point
        entry = (point, member)
        self._sorted.insert(bisect_left(self._sorted, entry), entry)

    def remove(self, member: bytes) -> None:
        """Take a member away, if it is there."""
        point = self._points.pop(member, None)
        if point is not None:
            del self._sorted[bisect_left(self._sorted, (point, member))]

    def at(self, point: int) -> list[bytes]:
        """The members at a point."""
        found = self._sorted
        first = bisect_left(found, (point, b""))
        return [member for _, member in found[first : bisect_left(found, (point + 1, b""))]]

    def ahead(self, point: int) -> tuple[int, bytes] | None:
        """How far the next point is, with a member there; the whole ring for the point itself."""
        found = self._sorted
        after = bisect_left(found, (point + 1, b""))
        if after < len(found):
            return found[after][0] - point, found[after][1]
        lowest = bisect_left(found, (0, b""))
        if lowest < len(found):
            return found[lowest][0] + RING_SIZE - point, found[lowest][1]
        return None

    def behind(self, point: int) -> int | None:
        """The last point before this one, around the ring; itself when there is no other."""
        found = self._sorted
        before = bisect_left(found, (point, b"")) - 1
        if before >= 0 and found[before][0] >= 0:
            return found[before][0]
        return found[-1][0] if found and found[-1][0] >= 0 else None

    def places(self) -> set[int]:
        """All points on it."""
        return {point for point, _ in self._sorted if point >= 0}


@dataclass
class Index:
    """Both indexes of a ring: the members of nodes with room, and those of full nodes."""

    room: PointIndex = field(default_factory=PointIndex)
    full: PointIndex = field(default_factory=PointIndex)

    def __len__(self) -> int:
        return len(self.room) + len(self.full)

    def put(self, members: Iterable[bytes], *, full: bool) -> None:
        """Put members on the one of the indexes, and take them off the other."""
        here, there = (self.full, self.room) if full else (self.room, self.full)
        for member in members:
            there.remove(member)
            here.add(member, point_of(member))

    def take_off(self, members: Iterable[bytes]) -> None:
        """Take members off both."""
        for member in members:
            self.room.remove(member)
            self.full.remove(member)

    def settle(self, looked_at: Iterable[bytes], members: Iterable[bytes], *, full: bool) -> None:
        """Put a node's members on the one of the indexes, unless those looked at are there."""
        here = self.full if full else self.room
        if any(member not in here for member in looked_at):
            self.put(members, full=full)

    def reconcile(
        self, members: Mapping[bytes, float], entries: Mapping[bytes, bytes], full: Container[bytes]
    ) -> list[bytes]:
        """Hold the ring's members again, when somebody wrote to one of the two alone.

        Args:
            members: the ring's, with their scores.
            entries: the nodes' entries, by name.
            full: the names of the full nodes.

        Returns:
            The members that nobody vouches for, in order of their scores: they are to be taken off
            the ring.
        """
        indexed = len(self)
        if len(members) == indexed:
            return []
        for each in (self.room, self.full):
            for member in each.members:
                if member not in members or (each is self.full and member in self.room):
                    each.remove(member)
        away = []
        for member in sorted(members, key=lambda each: (members[each], each)):
            if member in self.room or member in self.full:
                continue
            node = node_of(member)
            if node is None:
                self.room.add(member, -1)
                continue
            entry = entries.get(node)
            if entry is not None and (not indexed or told_of(entry).get("ranges") is None):
                self.put([member], full=node in full)
            else:
                away.append(member)
        return away

    def own_ranges(
        self, own: Collection[bytes], node: str, members: Container[bytes], *, is_full: bool
    ) -> tuple[list[Reach], list[bytes]]:
        """How far the ranges of a node's replicas go, and the members at the ends of its own ones.

        What stands at an end and is not on the ring is taken off first.

        Args:
            own: the node's replicas.
            members: the ring's.
        """
        while True:
            found = [self.reach(point_of(member), node, is_full=is_full) for member in own]
            ends = [last for _, last in found if last is not None]
            stale = [member for member in ends if member not in members]
            if not stale:
                return [reach for reach, _ in found], ends
            self.take_off(stale)

    def reach(self, point: int, node: str, *, is_full: bool) -> tuple[Reach, bytes | None]:
        """What follows a replica of a node, with the member at the end of its own range."""
        name = node.encode()
        at_room = [_name_of(member) <= name for member in self.room.at(point)]
        at_full = [_name_of(member) <= name for member in self.full.at(point)]
        room, with_room = self.room.ahead(point) or (RING_SIZE, None)
        full, with_full = self.full.ahead(point) or (RING_SIZE, None)
        own = min(room, full) if all(at_room) and all(at_full) else 0
        last = with_full if full < room or with_room is None else with_room
        reach = own if is_full else (room if all(at_room) else 0)
        return Reach(point, own, reach), last

    def neighbours(self, points: Iterable[int], own: str) -> dict[str, set[int]]:
        """The nodes, except one, whose ranges these points may end, with their points there."""
        concerned: dict[str, set[int]] = {}
        for point in points:
            for index in (self.room, self.full):
                behind = index.behind(point)
                for place in (point,) if behind in (None, point) else (point, behind):
                    for member in index.at(place):
                        if (node := _name_of(member).decode()) != own:
                            concerned.setdefault(node, set()).add(place)
        return concerned

    def at(self, point: int) -> list[bytes]:
        """The members at a point, those of nodes with room first."""
        return [*self.room.at(point), *self.full.at(point)]

    def members_of(
        self, name: bytes, points: Iterable[int], members: Container[bytes]
    ) -> tuple[list[bytes], list[int]]:
        """The members of the ring that a node has at these points, and which of them others have.

        Args:
            members: the ring's.
        """
        own, taken = [], []
        for point in points:
            here = [member for member in self.at(point) if member in members]
            own += [member for member in here if node_of(member) == name]
            if any(node_of(member) != name for member in here):
                taken.append(point)
        return own, taken

    def stretches(self, whole: int, count: int, points: Iterable[int]) -> list[list[bytes]]:
        """The members around the ring, from each of these points on.

        Args:
            whole: of an index with up to this many replicas, all of them are the only stretch.
            count: how many a stretch has.
        """
        around = self._around()
        if len(around) <= whole:
            return [[member for _, member in around]]
        firsts = [bisect_left(around, point, key=lambda each: each[0]) for point in points]
        return [
            [member for _, member in (around[first:] + around[:first])[:count]] for first in firsts
        ]

    def _around(self) -> list[tuple[int, bytes]]:
        """All replicas with their points, by rising point, those of nodes with room first."""
        both = [*self.room.items(), *self.full.items()]
        counted = [(point, member) for member, point in both if point >= 0]
        return sorted(counted, key=lambda each: (each[0], each[1] in self.full, each[1]))

    def owner(self, point: int, members: dict[bytes, float]) -> str:
        """The node that owns a point; empty when there is none."""
        places = self.room.places() | self.full.places()
        for place in sorted(places, key=lambda place: (point - place) % RING_SIZE):
            here = [m for m in (*self.room.at(place), *self.full.at(place)) if m in members]
            if here:
                return max(map(_name_of, here)).decode()
        return ""


def point_of(member: bytes) -> int:
    """The point of a replica's member."""
    return int(member.partition(b":")[0])


def node_of(member: bytes) -> bytes | None:
    """The name of a member's node; ``None`` for a member that is no replica."""
    try:
        return parse_replica(member).node.encode()
    except ReplicaFormatError:
        return None


def _name_of(member: bytes) -> bytes:
    # Only replicas are on the index, so the parts need no check.
    return member.partition(b":")[2].rpartition(b":")[0]
