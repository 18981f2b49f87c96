"""A replica: a point that belongs to a node, and its text form in the ring's ZSET.

The text is ``start:node:id``. ``start`` is the point in decimal without leading zeros, ``id``
tells apart the replicas of one node, and ``node`` is everything between the first and the last
colon, so a node's name may hold colons itself (``[::1]:8080``, ``host:1234``).
"""

from __future__ import annotations

from dataclasses import dataclass

from hashring.core.hashing import RING_SIZE
from hashring.errors import ReplicaFormatError


@dataclass(frozen=True, order=True)
class Replica:
    """A point of a node.

    Ordered by point, then node, then id: the order decides who owns when two replicas share a
    point (see :class:`hashring.core.ring.Ring`).

    Attributes:
        point: in ``[0, 2**32)``.
        node: the node's name.
        id: tells apart the replicas of one node; without colons.
    """

    point: int
    node: str
    id: str

    def __str__(self) -> str:
        return f"{self.point}:{self.node}:{self.id}"

    @property
    def member(self) -> bytes:
        """The member of the ZSET."""
        return str(self).encode()


def parse_replica(member: bytes | str) -> Replica:
    """The replica that a ZSET member stands for.

    Raises:
        ReplicaFormatError: as :func:`parse_parts`.
    """
    return Replica(*parse_parts(member))


def parse_parts(member: bytes | str) -> tuple[int, str, str]:
    """Point, node and id of the replica that a ZSET member stands for.

    Raises:
        ReplicaFormatError: the member is not ``start:node:id``: not UTF-8, no such parts, an
            empty name or id, or a point that is not a plain decimal number below 2**32.
    """
    if isinstance(member, bytes):
        try:
            text = member.decode()
        except UnicodeDecodeError:
            raise ReplicaFormatError(member, "is not UTF-8") from None
    else:
        text = member
        # What a client made of bytes that are not UTF-8, if it was told not to mind.
        if not text.isascii() and any("\ud800" <= letter <= "\udfff" for letter in text):
            raise ReplicaFormatError(member, "is not UTF-8")
    start, _, rest = text.partition(":")
    node, _, id_ = rest.rpartition(":")
    if not (start.isascii() and start.isdigit()) or (start[0] == "0" and start != "0"):
        raise ReplicaFormatError(member, "does not begin with a point in plain decimal")
    # The length first: int() of a very long text is slow, and raises on its own.
    if len(start) > 10 or int(start) >= RING_SIZE:
        raise ReplicaFormatError(member, f"has a point beyond the ring's {RING_SIZE} points")
    if not node:
        raise ReplicaFormatError(member, "names no node")
    if not id_:
        raise ReplicaFormatError(member, "has no replica id")
    return int(start), node, id_
