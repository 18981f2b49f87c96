"""Who the node is on the ring, and which points are its own, as far as it knows."""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol

from hashring.core.ring import Ring


class Surroundings(Protocol):
    """What the book asks of the ring: a :class:`Ring`, or what a node knows that follows none."""

    def __contains__(self, node: object) -> bool:
        """Whether a node may be on the ring."""

    def owner_of_point(self, point: int) -> str:
        """The node that owns a point; empty when that is not known."""

    def nearer(self, point: int, node: str, other: str) -> bool:
        """Whether a node would own a point before another one."""


class RingPlace:
    """The place of one node on its ring.

    Attributes:
        node, session: its name and session.
        left: whether it has begun to leave.
        ring: the ring, as it was seen last.
        bounds: of the ranges in which the node may take keys, those of full nodes included.
        own_bounds: of the ranges that are its own.
    """

    def __init__(self) -> None:
        self.ring: Surroundings = Ring()
        self.bounds: tuple[int, ...] = ()
        self.own_bounds: tuple[int, ...] = ()
        self.begin("", "")

    def begin(self, node: str, session: str) -> None:
        """The node has this name and session from now on."""
        self.node, self.session = node, session
        self.left = False

    def see(self, ring: Surroundings, bounds: tuple[int, ...], own_bounds: tuple[int, ...]) -> bool:
        """The ring as it is now; whether it is another one than before."""
        changed = ring is not self.ring
        self.ring, self.bounds, self.own_bounds = ring, bounds, own_bounds
        return changed

    @property
    def inherits(self) -> bool:
        """Whether the node may take keys of nodes that are full."""
        return self.bounds is not self.own_bounds

    def reaches(self, point: int) -> bool:
        """Whether the node may take a key at the point."""
        return bisect_right(self.bounds, point) & 1 == 1

    def owns(self, point: int) -> bool:
        """Whether the point is the node's own."""
        return bisect_right(self.own_bounds, point) & 1 == 1

    def inherited(self, point: int) -> bool:
        """Whether the point is of a full node's, and the node may take its keys."""
        return self.inherits and self.reaches(point) and not self.owns(point)

    def nearer(self, node: str, point: int) -> bool:
        """Whether another node would own the point before this one."""
        return node != self.node and self.ring.nearer(point, node, self.node)
