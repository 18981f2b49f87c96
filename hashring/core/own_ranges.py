"""What a node must know of a ring to know what is its own: the ends of its ranges.

A node that does not follow the whole ring knows, of each of its points, how far its own range goes,
and how far the range goes in which it may take keys. The second goes on over the ranges of full
nodes, up to the next point of a node that has room. Both are lengths, so that a range over the top
of the ring is like any other, and that of a ring's only point is all of it.

Redis states them as text, ``point own reach`` for each point, rising, with commas between. A digest
of that text tells whether two statements are the same.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha1
from typing import Final, NamedTuple

from hashring.core.hashing import RING_SIZE
from hashring.core.ranges import PointRange, bounds_of, ranges_fingerprint, ranges_of_spans
from hashring.core.ring_change_message import RingChange, read_change
from hashring.errors import MessageFormatError

_HEAD: Final = b"ranges\n"


class Reach(NamedTuple):
    """How far the ranges of a point go.

    Attributes:
        point: where they begin.
        own: how many points the own range has; 0 when another node owns the point.
        reach: the same of the range in which the node may take keys.
    """

    point: int
    own: int
    reach: int


@dataclass(frozen=True)
class OwnRanges:
    """The ranges of one node, as Redis stated them.

    Attributes:
        node: the node's name.
        reaches: one for each of its points, rising.
        gone: the nodes that the newest change took off the ring.
    """

    node: str = ""
    reaches: tuple[Reach, ...] = ()
    gone: frozenset[str] = frozenset()

    @cached_property
    def ranges(self) -> tuple[PointRange, ...]:
        """The own ranges: rising, disjoint, neighbours merged."""
        return ranges_of_spans((reach.point, reach.own) for reach in self.reaches)

    @cached_property
    def own_bounds(self) -> tuple[int, ...]:
        """The boundaries of the own ranges, flat."""
        return bounds_of(self.ranges)

    @cached_property
    def bounds(self) -> tuple[int, ...]:
        """The boundaries of the ranges in which the node may take keys, flat."""
        if all(reach.own == reach.reach for reach in self.reaches):
            return self.own_bounds
        return bounds_of(ranges_of_spans((reach.point, reach.reach) for reach in self.reaches))

    @property
    def text(self) -> str:
        """The statement as Redis writes it; empty when there is none."""
        return ",".join(f"{point} {own} {reach}" for point, own, reach in self.reaches)

    @cached_property
    def digest(self) -> str:
        """SHA-1 of the statement in hex; empty when there is none."""
        text = self.text
        return sha1(text.encode()).hexdigest() if text else ""

    @property
    def fingerprint(self) -> str:
        """A digest of the own ranges; empty when there is no statement."""
        return ranges_fingerprint(self.ranges) if self.reaches else ""

    def after(self, news: Nearby) -> OwnRanges:
        """The ranges after a change near them; news of points that are not the node's is none."""
        told = {reach.point: reach for reach in news.reaches}
        reaches = tuple(told.get(reach.point, reach) for reach in self.reaches)
        gone = frozenset(news.change.nodes if news.change.takes_off else ())
        return OwnRanges(self.node, reaches, gone)

    # --- what a node with locks asks of others --------------------------------------------------

    def __contains__(self, node: object) -> bool:
        return node not in self.gone

    def owner_of_point(self, point: int) -> str:
        """The node itself if it owns the point; empty when another one does."""
        return self.node if bisect_right(self.own_bounds, point) & 1 else ""

    def nearer(self, point: int, node: str, other: str) -> bool:
        """Whether a node that asks for a key as its owner would own the point before ``other``."""
        return node in self and self.owner_of_point(point) != other


@dataclass(frozen=True)
class Nearby:
    """A message to one node about a change next to its ranges, or about a change of its own.

    Attributes:
        change: the change; without the points of a join.
        reaches: those of the node's points that have other ranges now.
    """

    change: RingChange
    reaches: tuple[Reach, ...]


def read_reaches(text: str) -> tuple[Reach, ...]:
    """The statement that a text is.

    Raises:
        ValueError: it is none.
    """
    found = []
    for part in text.split(",") if text else ():
        point, own, reach = map(int, part.split(" "))
        if not (0 <= point < RING_SIZE and 0 <= own <= RING_SIZE >= reach >= 0):
            raise ValueError(part)
        found.append(Reach(point, own, reach))
    return tuple(found)


def is_nearby(payload: bytes) -> bool:
    """Whether a message on a node's own channel is about its ranges, and not about locks."""
    return payload.startswith(_HEAD)


def parse_nearby(payload: bytes) -> Nearby | None:
    """What a message on a node's own channel tells of its ranges; ``None`` if it is about locks.

    Raises:
        MessageFormatError: it begins like a message about ranges, and is no whole one.
    """
    if not is_nearby(payload):
        return None
    body = payload.removeprefix(_HEAD)
    change = read_change(body, with_points=False)
    try:
        ranges = json.loads(body)["ranges"]
        reaches = read_reaches(ranges.strip())
    except (KeyError, TypeError, ValueError, AttributeError):
        raise MessageFormatError(payload, "is not a whole change") from None
    return Nearby(change, reaches)
