"""What a node knows of the ring, and whether that is all there is.

A node that follows the ring has a copy of it, at a stamp of its history, and applies the channel's
changes as long as each continues what it knows. Anything else is a gap: it waits a moment for a
message that may still be on its way, and then fetches the ring. A node that knows only its own
ranges has the stamp, and no copy.
"""

from __future__ import annotations

from collections.abc import Collection

from hashring.core.hashing import HashAlgorithm
from hashring.core.ring import Ring
from hashring.core.ring_change_message import ChangeKind, RingChange, Stamp
from hashring.protocol.node.node_states import SIGHT, SightEvent, SightState


class RingSight:
    """What one node knows of the ring.

    Args:
        algorithm: of the ring.

    Attributes:
        state: whether anything is missing; see :data:`hashring.protocol.node.node_states.SIGHT`.
        ring: the copy; empty for a node that knows only its own ranges.
        stamp: where the ring stood; ``None`` before it was read.
        garbage: members of the ZSET that are no replicas, when it was last read.
        full_nodes: the nodes that hold as many keys as they may; another object when that changes.
        fetch_at: when the whole ring is to be read, in monotonic seconds; ``inf`` is never.
    """

    def __init__(self, algorithm: HashAlgorithm) -> None:
        self.state = SightState.UNKNOWN
        self.ring = Ring(hash_algorithm=algorithm)
        self.stamp: Stamp | None = None
        self.garbage = 0
        self.full_nodes: frozenset[str] = frozenset()
        self.fetch_at = float("inf")
        # What it has missed goes up to here.
        self._behind: Stamp | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether the ring may differ from what is known: a fetch is due."""
        return self.state not in (SightState.UNKNOWN, SightState.CURRENT)

    def see(self, event: SightEvent) -> None:
        """Go to the state that follows the event."""
        self.state = SIGHT.after(self.state, event)

    def start(self) -> None:
        """The node begins to join, and has to read the ring anew."""
        self.stamp = None
        self.state = SightState.UNKNOWN
        self.fetch_at = float("inf")
        self._behind = None

    def forget(self) -> None:
        """The node is off the ring: it knows none."""
        self.ring = Ring(hash_algorithm=self.ring.hash_algorithm)
        self.stamp = None

    # --- read ---------------------------------------------------------------------------------

    def read(self, ring: Ring, stamp: Stamp) -> None:
        """The whole ring was read, as it was at this stamp."""
        self.is_known()
        self.adopt(ring, stamp)

    def is_known(self) -> None:
        """Nothing is missing any more."""
        self.see(SightEvent.READ)
        self._behind = None
        self.fetch_at = float("inf")

    def note_full(self, full_nodes: frozenset[str]) -> None:
        """These nodes are full, and no others."""
        if full_nodes != self.full_nodes:
            self.full_nodes = full_nodes

    def adopt(self, ring: Ring, stamp: Stamp) -> None:
        """This is the ring by now. What was missing up to here is missing no more."""
        self.ring = ring
        self.stamp = stamp
        if self._behind is not None and stamp.epoch >= self._behind.epoch:
            self._behind = None
            if self.state is SightState.BEHIND:
                self.see(SightEvent.CAUGHT_UP)
                self.fetch_at = float("inf")

    def is_whole(self, ring: Ring, stamp: Stamp) -> bool:
        """Whether the ring and what is known to be garbage make up all of the ZSET's members."""
        return len(ring) + self.garbage == stamp.members

    # --- told ---------------------------------------------------------------------------------

    def continues(self, change: RingChange) -> bool:
        """Whether a change comes right after what is known."""
        return self.stamp is not None and change.prev == self.stamp.tag

    def is_news(self, change: RingChange) -> bool:
        """Whether a change says anything that is not known; one that does shows that the
        subscription is alive."""
        mine = self.stamp
        if mine is None or change.stamp.tag == mine.tag:
            return False
        continues = self.continues(change)
        # Late news count, too: in an event loop that runs hundreds of nodes, all of them hear late
        # at times.
        if self.state is SightState.DEAF and (continues or change.stamp.at > mine.at):
            self.see(SightEvent.HEARD)
        # Else it is from before what was fetched.
        return continues or change.stamp.at > mine.at or change.stamp.epoch > mine.epoch

    def follow(self, change: RingChange) -> bool:
        """Apply a change that continues what is known.

        Returns:
            Whether the ring is all there is, by the number of its members. If not, somebody has
            touched the ZSET without telling.
        """
        assert self.stamp is not None
        members = self.stamp.members
        ring = change.apply(self.ring)
        self.adopt(ring, change.stamp)
        if change.kind is ChangeKind.FULL:
            self.full_nodes |= frozenset(change.nodes)
        elif change.ends_full and not self.full_nodes.isdisjoint(change.nodes):
            self.full_nodes -= frozenset(change.nodes)
        return change.was in (None, members) and self.is_whole(ring, change.stamp)

    def was_told(self, tag: str, heard: Collection[RingChange]) -> bool:
        """Whether messages have said that the ring has this tag, and they count.

        Args:
            heard: the messages that came while the answer with the tag was on its way.
        """
        if all(tag not in (change.prev, change.stamp.tag) for change in heard):
            return False
        # Where Redis lost the ring, and its clock went back, they look older than what is known.
        applied = self.stamp is None or any(self.stamp.tag == each.stamp.tag for each in heard)
        return applied or self._behind is not None

    # --- missing ------------------------------------------------------------------------------

    def doubt(self, at: float) -> None:
        """The ring may differ where nobody tells; read it then."""
        if self.state is SightState.UNKNOWN:
            return  # It is read in any case.
        self.see(SightEvent.MISCOUNTED)
        self.fetch_at = min(self.fetch_at, at)

    def fall_behind(self, event: SightEvent, stamp: Stamp) -> bool:
        """Something up to this stamp is missing.

        Returns:
            Whether nothing was missing before: then somebody has to say when to read the ring.
        """
        self.see(event)
        first = self._behind is None
        self._behind = stamp
        return first
