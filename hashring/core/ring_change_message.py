"""A change of the ring, as it travels on the ring's channel, and where it stands in history.

Every change carries the stamp of the one before it. A reader that holds the stamp ``prev`` may
apply the change to what it has; any other reader has a gap, and fetches. The chain is by ``tag``,
a digest over the whole history, and not by the epoch's number alone: after a failover that lost
writes, or after Redis came back empty, the numbers may repeat with other contents, the tags do not.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hashring.core.ring import Ring
from hashring.core.value_checks import checked_count, checked_name, checked_point
from hashring.errors import MessageFormatError

WIRE_VERSION: Final = 1
"""The version of the messages; a reader skips messages of another one and fetches instead."""
GREATEST_COUNT: Final = 2**53
"""More than any ring reaches: the year 2255 in microseconds, and the last exact number of Lua."""


@dataclass(frozen=True)
class Stamp:
    """A place in the history of a ring.

    Attributes:
        epoch: number of the last change; 0 before the first.
        tag: digest of the history up to that change; empty before the first.
        members: how many members the ring's ZSET held after it, garbage included.
        at: Redis time of the reading or of the change, in microseconds since 1970.
    """

    epoch: int
    tag: str
    members: int
    at: int


class ChangeKind(str, Enum):
    """What happened."""

    JOIN = "join"
    """A node joined, came back, or changed its points."""
    LEAVE = "leave"
    """A node left, or was removed by hand."""
    EXPIRE = "expire"
    """Nodes were not refreshed within their ttl, or nobody vouched for members."""
    FULL = "full"
    """A node holds as many keys as it may; the ring itself is as before."""
    ROOM = "room"
    """A node that was full is not any more; the ring itself is as before."""


REASONS: Final = (
    "start",
    "restart",
    "return",
    "resize",
    "stop",
    "removed",
    "expired",
    "unvouched",
    "drained",
    "undrained",
    "weight",
)
"""The words that this package gives as a change's reason."""


@dataclass(frozen=True)
class RingChange:
    """One change of the ring.

    Attributes:
        kind: what happened.
        nodes: whom it happened to; empty when only garbage expired.
        points: for a join, all points of the node, rising; otherwise empty.
        prev: the tag of the change before.
        stamp: the change's own place in history.
        session: for a join, the session that holds the name from now on.
        reason: a word for people, one of :data:`REASONS` when this package made the change.
        was: how many members the ring's ZSET held just before it; ``None`` when it is not told.
            A reader that knows of another number has missed what somebody did without telling.
    """

    kind: ChangeKind
    nodes: tuple[str, ...]
    points: tuple[int, ...]
    prev: str
    stamp: Stamp
    session: str = ""
    reason: str = ""
    was: int | None = None

    @property
    def cause(self) -> str:
        """Its reason if it is one of :data:`REASONS`, else its kind: few words, to count by."""
        return self.reason if self.reason in REASONS else self.kind.value

    @property
    def takes_off(self) -> bool:
        """Whether its nodes are off the ring after it."""
        return self.kind in (ChangeKind.LEAVE, ChangeKind.EXPIRE)

    @property
    def ends_full(self) -> bool:
        """Whether none of its nodes is full after it.

        A node that goes off the ring loses the mark, and no ``room`` is announced for it. A join
        keeps the mark: a full node may get other points.
        """
        return self.kind not in (ChangeKind.FULL, ChangeKind.JOIN)

    def apply(self, ring: Ring) -> Ring:
        """The ring after this change, from the ring just before it."""
        if self.kind is ChangeKind.JOIN:
            return ring.with_node(self.nodes[0], self.points)
        if self.kind in (ChangeKind.FULL, ChangeKind.ROOM):
            return ring
        return ring.without_nodes(*self.nodes)


def parse_change(payload: bytes | str) -> RingChange:
    """The change that a message on the channel, or the data of an event, describes.

    Raises:
        MessageFormatError: it is anything else. redis-hashring's ``*`` is anything else, too.
    """
    return read_change(payload, with_points=True)


def read_change(payload: bytes | str, *, with_points: bool) -> RingChange:
    """:func:`parse_change`, also of a change that does not say which points a node joined with.

    Args:
        with_points: whether a join must say them.

    Raises:
        MessageFormatError: as there.
    """
    try:
        body = json.loads(payload)
    except (ValueError, RecursionError):
        raise MessageFormatError(payload, "is not JSON") from None
    if not isinstance(body, dict) or body.get("v") != WIRE_VERSION:
        raise MessageFormatError(payload, f"is not a change of version {WIRE_VERSION}")
    try:
        kind = ChangeKind(body["kind"])
        nodes = tuple(checked_name(node) for node in body.get("nodes", ()))
        points = tuple(sorted({checked_point(point) for point in body.get("points", ())}))
        stamp = Stamp(
            epoch=checked_count(body["epoch"]),
            tag=checked_name(body["tag"]),
            members=checked_count(body["members"]),
            at=checked_count(int(body["at"])),
        )
        was = checked_count(body["was"]) if "was" in body else None
        prev = body["prev"]
        session, reason = body.get("session", ""), body.get("reason", "")
        for text in (prev, session, reason):
            if not isinstance(text, str):
                raise ValueError
            text.encode()  # a lone surrogate could not be written into a file
        if max(stamp.epoch, stamp.at) > GREATEST_COUNT:
            raise ValueError
        if kind is ChangeKind.JOIN and (len(nodes) != 1 or (with_points and not points)):
            raise ValueError
    except (KeyError, TypeError, ValueError, OverflowError):
        # Overflow: JSON's Infinity, which Python reads, is no integer.
        raise MessageFormatError(payload, "is not a whole change") from None
    return RingChange(kind, nodes, points, prev, stamp, session, reason, was)
