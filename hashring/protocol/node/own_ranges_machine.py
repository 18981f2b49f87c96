"""The protocol of a node that knows only its own ranges, without I/O.

It keeps no copy of the ring, and costs the same whatever the ring's size:

- Every heartbeat's answer states how far the node's ranges go, unless a digest shows that the node
  knows them. So a lost message is found one heartbeat later at the latest.
- When a neighbour joins, leaves, expires, becomes full or has room, Redis tells the node alone, on
  its own channel, how far those of its ranges go that are concerned. Each message says how things
  were at its place in history, so what is older than the newest heartbeat's answer is dropped.
- A named node that stopped to come back is back with one call. Any other named node reads which
  points it had before it joins, and a balanced one stretches of the ring.
- A node watches the members at the ends of its ranges. When one of them expires it beats right
  then, so a crash is noticed by those who take over, and by nobody else.

All else is as in :mod:`hashring.protocol.node.node_machine`.
"""

from __future__ import annotations

from typing import Any

from hashring.core.hashing import RING_SIZE
from hashring.core.own_ranges import Nearby, OwnRanges, parse_nearby
from hashring.core.point_placement import (
    BALANCED_STRETCH,
    BALANCED_WHOLE,
    OwnedRanges,
    Random,
    balanced_stretches,
    more_cuts,
    sampled_points,
)
from hashring.errors import MessageFormatError
from hashring.protocol.locks.ring_place import Surroundings
from hashring.protocol.machine_steps import Run
from hashring.protocol.node.node_machine import NodeConfig, NodeMachine, Owned
from hashring.protocol.node.node_states import (
    RENEWING,
    ClaimState,
    NodeEvent,
    NodeState,
    SightEvent,
    SightState,
)
from hashring.protocol.node.own_replicas import BeforeJoin
from hashring.store.command import Command
from hashring.store.ring.commands import BeatReply, Look, look
from hashring.store.ring.snapshot import Snapshot


def machine_of(config: NodeConfig, rng: Random) -> NodeMachine:
    """The protocol of a node, of the kind that it is."""
    return NodeMachine(config, rng) if config.follow else OwnRangesMachine(config, rng)


class OwnRangesMachine(NodeMachine):
    """The protocol of one node that follows no ring; see the module's text.

    Attributes:
        near: its ranges, as Redis stated them last.
    """

    near: OwnRanges
    _asked: OwnRanges
    _node_count = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.near = self._asked = OwnRanges()
        # What the last heartbeat's answer stated, and the tag of the ring then.
        self._stated = ("", OwnRanges())

    def start(self, now: float, *, strict: bool) -> None:
        """Begin to join; see :meth:`NodeMachine.start`."""
        super().start(now, strict=strict)
        self.near = OwnRanges()

    @property
    def channels(self) -> tuple[bytes, ...]:
        """What to subscribe to: the node's own channel, and no other."""
        return (self.config.keys.node_channel(self.name),)

    @property
    def in_doubt(self) -> bool:
        """A node that follows no ring never has another than its stamp says."""
        return False

    @property
    def _owned(self) -> Owned:
        near, own_bounds = self.near, self.near.own_bounds
        return near.ranges, own_bounds, near.bounds if self.config.locking else own_bounds

    @property
    def _surroundings(self) -> Surroundings:
        return self.near

    # --- joining ------------------------------------------------------------------------------

    @property
    def _first_claim(self) -> ClaimState:
        # Who knows its replicas asks who has them by now.
        fresh = self.config.named and not self.replicas
        return ClaimState.RETURNING if fresh else super()._first_claim

    def _look(self) -> Run:
        """Read what the node must know before it joins, which is not the ring."""
        balanced = self.config.placement == "balanced"
        command = self._look_around() if balanced else look(self.config.keys, node=self.name)
        return Run(command, self._found, self._beat_failed)

    def _look_around(self) -> Command[Look]:
        starts = [self.rng.randrange(RING_SIZE) for _ in range(balanced_stretches(self.points))]
        return look(
            self.config.keys,
            node=self.name,
            whole=BALANCED_WHOLE,
            count=BALANCED_STRETCH,
            starts=starts,
        )

    def _found(self, reply: Look, sent: float, now: float) -> None:
        self._choose(
            BeforeJoin(
                stamp=reply.stamp,
                record=reply.record,
                replicas=reply.replicas,
                remembered=reply.remembered,
                taken=reply.taken,
                ordered=reply.ordered,
                even=lambda: sampled_points(reply.ranges, reply.points, self.points, self.rng),
            )
        )

    # --- another weight -----------------------------------------------------------------------

    def _lengths(self) -> dict[int, int]:
        return {reach.point: reach.own for reach in self.near.reaches}

    @property
    def _sees_itself(self) -> bool:
        return bool(self.near.reaches)

    def _grow_evenly(self, missing: int) -> Run | None:
        """Look where points take from those that have much."""
        return Run(self._look_around(), self._found_room, self._beat_failed)

    def _found_room(self, reply: Look, sent: float, now: float) -> None:
        missing = self.points - len(self.replicas)
        if missing > 0 and self._may_resize():
            lengths = self._lengths()
            own = [lengths.get(replica.point, 0) for replica in self.replicas]
            others = OwnedRanges(reply.ranges)
            more = more_cuts(others, reply.points, missing, self.rng, own=own, taken=self._taken())
            self._have_more(more, reply.stamp.tag)
        self._at.beat = now

    # --- heartbeats ---------------------------------------------------------------------------

    def _questions(self) -> dict[str, Any]:
        self._asked = self.near
        return {"digest": self.near.digest if self.state is NodeState.LIVE else ""}

    def _seen_ring(self) -> dict[str, Any]:
        # That there is such a thing makes Redis take away members of its name that are not its own.
        return {"ranges": self.near.fingerprint}

    def _is_kept(self, reply: BeatReply) -> bool:
        # It is not told of every change. Had Redis lost the ring, this heartbeat would have changed
        # it, by putting the node back.
        return reply.before == reply.stamp.tag or super()._is_kept(reply)

    def _all_full(self, reply: BeatReply) -> bool:
        return reply.all_full

    def _learn(self, reply: BeatReply, heard: list[Any], now: float) -> None:
        live = self.state is NodeState.LIVE
        stated = self._asked
        if reply.ranges is not None:
            stated = OwnRanges(self.name, reply.ranges)
        self._stated = (reply.stamp.tag, stated)
        if live:
            # If no message came since a heartbeat found what none had told of, none will come.
            self._refresh_subscription(now)
        self.sight.is_known()
        # What no message told of may be on its way; of what the node did itself it is not told.
        others = not reply.swept and reply.before == reply.stamp.tag
        if live and others and not heard and stated.reaches != self.near.reaches:
            self.counters.gaps += 1
            self.sight.see(SightEvent.UNTOLD)
        self.sight.stamp = reply.stamp
        self._node_count = reply.nodes
        if stated.reaches != self.near.reaches:
            self.near = stated
        self._accepted(reply.status)
        for news in heard:
            self._hear_nearby(news, now)

    def _stated_ranges(self) -> tuple[str, str]:
        tag, stated = self._stated
        return tag, stated.text

    # --- messages -----------------------------------------------------------------------------

    def _told_alone(self, payload: bytes, now: float) -> None:
        try:
            news = parse_nearby(payload)
        except MessageFormatError:
            self.counters.bad_messages += 1
            return
        if news is None:
            super()._told_alone(payload, now)
            return
        if self._heard is not None:
            self._heard.append(news)
        self._hear_nearby(news, now)

    def _hear_nearby(self, news: Nearby, now: float) -> None:
        if self.sight.state is SightState.DEAF:
            self.sight.see(SightEvent.HEARD)
        mine, stamp = self.sight.stamp, news.change.stamp
        if mine is None:
            return
        # Each change has a greater number, and Redis' clock may be set back; where Redis has lost
        # the ring, the numbers begin anew. Changes of one heartbeat are of one moment.
        lost_since = stamp.at < int(self.history or 0)
        earlier = (stamp.at, stamp.epoch) <= (mine.at, mine.epoch)
        if earlier and (stamp.epoch <= mine.epoch or lost_since):
            return  # From before the newest statement.
        self.sight.stamp = stamp
        self.near = self.near.after(news)
        self._count(news.change)
        if self.name in news.change.nodes:
            # Perhaps on a ring of this name in another database, whose messages come, too, and
            # each of which is taken for the newest statement.
            self._change_of_own(news.change, now, continues=False)

    # --- the end, and by hand -----------------------------------------------------------------

    def look_step(self) -> Run:
        """Bring the node up to date; one that is not on the ring counts the nodes there."""
        return self.beat_step() if self.state in RENEWING else super().look_step()

    def _join_anew(self, now: float) -> None:
        super()._join_anew(now)
        self.near = OwnRanges()

    def _end(self, event: NodeEvent) -> None:
        super()._end(event)
        self.near = OwnRanges()
        self._node_count = 0

    def _seen(self, reply: Snapshot, sent: float, now: float) -> None:
        self.sight.garbage = len(reply.garbage)
        self._node_count = reply.ring(self.config.algorithm).node_count
