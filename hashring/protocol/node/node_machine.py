"""The protocol of a live node, without I/O.

A runner asks :meth:`NodeMachine.next` what to do, does it, and tells the machine how it went.
Time (the machine's own monotonic seconds) and randomness are arguments, so the same code runs in
a thread, in a greenlet, under asyncio, and in a simulator with a clock of its own. Only one
runner may drive a machine; readers elsewhere look at its frozen :class:`View`. Its states, and what
a node owns in each, are in :mod:`hashring.protocol.node.node_states`.

How a node stays right:

- It follows the channel's changes as long as each continues the history it knows. Anything else
  is a gap: it waits a moment for a message that may still be on its way, then fetches.
- Every heartbeat's answer says where the ring stands, so a lost message is found one heartbeat
  later at the latest. If no message comes any more, the subscription is made anew.
- Every heartbeat's answer says when the next member expires, and the node beats right then: the
  first survivor to do so sweeps and tells the others.
- A node that finds itself missing from the ring beats at once, and so comes back.
- Every heartbeat's answer says which weight was ordered. A node of another weight adds points, or
  gives some of its own up, and says so with its next heartbeat, which it sends at once.
- A named node that has lost its name looks who has it. If that process began later, this node ends.
  If it began earlier, a failover brought it back, and this node takes the name again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_
from typing import Any, Final

from hashring.core.hashing import HashAlgorithm
from hashring.core.own_ranges import is_nearby
from hashring.core.point_placement import Random, balanced_points, more_points, points_of_weight
from hashring.core.ranges import PointRange, bounds_of
from hashring.core.replica import Replica
from hashring.core.replica_ranges import replica_lengths
from hashring.core.ring import Ring
from hashring.core.ring_change_message import ChangeKind, RingChange, Stamp, parse_change
from hashring.errors import (
    HashringError,
    MessageFormatError,
    NodeSuperseded,
    RedisUnavailable,
    StoreError,
)
from hashring.protocol.listening import Listening
from hashring.protocol.locks.lock_config import LockConfig
from hashring.protocol.locks.ring_place import Surroundings
from hashring.protocol.locks.shared_lock_book import SharedLockBook
from hashring.protocol.machine_steps import Finished, Run, Step, Wait
from hashring.protocol.node.name_claim import NameClaim
from hashring.protocol.node.node_counters import Counters
from hashring.protocol.node.node_states import (
    ENDED,
    NODE_LIFE,
    RENEWING,
    ClaimEvent,
    ClaimState,
    NodeEvent,
    NodeState,
    SightEvent,
    SightState,
)
from hashring.protocol.node.ordered_weight import OrderedWeight
from hashring.protocol.node.own_replicas import BeforeJoin, OwnReplicas
from hashring.protocol.node.ring_sight import RingSight
from hashring.protocol.node.shared_rings import ring_of
from hashring.store.locks.commands import parse_lock_news
from hashring.store.ring.commands import (
    BeatReply,
    BeatStatus,
    LeaveStatus,
    Scoring,
    beat,
    leave,
    park,
)
from hashring.store.ring.key_names import RingKeys
from hashring.store.ring.node_orders import ORDERED
from hashring.store.ring.snapshot import Snapshot, snapshot

# A message and the answer to a heartbeat travel on two connections. How long a gap may be only
# that, in seconds, and in heartbeats for short ones.
_GRACE: Final = 0.25
_GRACE_BEATS: Final = 0.25

# How often a node looks anew where its points would even a ring that changes all the time.
_GROWS_AGAIN: Final = 8

_FIRST_RETRY: Final = 0.05
_LAST_RETRY: Final = 2.0

_REFUSAL_TOLD: Final = 300
"""Characters that a heartbeat tells of why Redis refuses to give the node locks."""


@dataclass(frozen=True)
class NodeConfig:
    """What a node is; see :class:`hashring.RingNode` for the meaning.

    Attributes:
        keys: the ring's keys in Redis.
        name: the node's name.
        named: whether the user chose it. Only a chosen name is taken over from another process,
            and only a chosen name's points are remembered.
        n_replicas: how many points a node of weight 1 places.
        weight: its own weight, unless another one is ordered.
        ttl, heartbeat_interval: seconds.
        io_timeout: seconds that Redis may take to answer.
        scoring: how a member's score says when it expires.
        algorithm: from key to point.
        placement: ``"random"`` or ``"balanced"``.
        follow_foreign: whether others may change the ring without telling what they changed.
        locks: how it locks; ``None`` without locks and limit.
        told: what the node tells of itself, besides what the machine adds.
        follow: whether it follows the whole ring, or knows only its own ranges.
    """

    keys: RingKeys
    name: str
    named: bool
    n_replicas: int
    ttl: float
    heartbeat_interval: float
    io_timeout: float
    scoring: Scoring
    algorithm: HashAlgorithm
    placement: str
    follow_foreign: bool
    told: Mapping[str, Any]
    locks: LockConfig | None = None
    follow: bool = True
    weight: float = 1.0

    @property
    def locking(self) -> bool:
        """Whether it locks keys, and does not only keep a limit."""
        return self.locks is not None and self.locks.locking


@dataclass(frozen=True)
class View:
    """What readers see: swapped whole, never mutated.

    Attributes:
        bounds: boundaries of the ranges in which the node may work, flat (see
            :func:`hashring.core.ranges.bounds_of`): its own, and with locks those that it inherits
            from nodes that are full.
        deadline: monotonic seconds; from then on the node owns nothing.
        ranges: the own ranges.
        ring: the ring as the node knows it; empty when it knows only its own ranges.
        node_count: how many nodes are on the ring, as the node knows it.
    """

    bounds: tuple[int, ...]
    deadline: float
    ranges: tuple[PointRange, ...]
    ring: Ring
    node_count: int = 0


Owned = tuple[tuple[PointRange, ...], tuple[int, ...], tuple[int, ...]]
"""A node's own ranges, their boundaries, and those with what it inherits from full nodes."""

_NOTHING: Final[Owned] = ((), (), ())


@dataclass
class _Schedule:
    """When what is due, in monotonic seconds; ``inf`` is never."""

    beat: float = 0.0
    sweep: float = float("inf")


@dataclass
class NodeMachine:
    """The protocol of one node; see the module's text.

    Args:
        config: what the node is.
        rng: where its points, its session and its jitter come from.

    Attributes:
        state: see :data:`hashring.protocol.node.node_states.NODE_LIFE`.
        sight: what it knows of the ring.
        claim: its claim to its name.
        own: its replicas, and under which name they are.
        ordered: its weight.
        book: of its locks; ``None`` without locks and limit.
        deadline: monotonic seconds; from then on it owns nothing.
        session: of its name, since it began to join.
        history: the history of the ring that the last heartbeat found in Redis, in this run of the
            node or an earlier one; there is another after a loss.
        counters: what happened since the machine was made.
        last_beat: when a heartbeat was answered last, in monotonic seconds.
        beat_took: seconds from sending that to its answer.
        last_error, failed_since: the newest failure, and since when nothing went well.
        error: why the node is ``failed`` or ``superseded``.
        load: how much it has to do, as its own code reports it. Assigned by users.
    """

    config: NodeConfig
    rng: Random

    state: NodeState = NodeState.NEW
    sight: RingSight = field(init=False)
    claim: NameClaim = field(init=False)
    own: OwnReplicas = field(init=False)
    ordered: OrderedWeight = field(init=False)
    book: SharedLockBook | None = field(init=False)
    deadline: float = float("-inf")
    session: str = ""
    history: str = ""
    counters: Counters = field(default_factory=Counters)
    last_beat: float | None = None
    beat_took: float | None = None
    last_error: HashringError | None = None
    failed_since: float | None = None
    error: Exception | None = None
    load: float | None = None

    def __post_init__(self) -> None:
        config = self.config
        self.sight = RingSight(config.algorithm)
        self.claim = NameClaim(named=config.named)
        self.own = OwnReplicas(config.name, config.placement, self.rng)
        self.ordered = OrderedWeight(config.weight)
        self._at = _Schedule()
        # How start() and stop() were called: the one counts until the node has joined.
        self._strict = self._stays = False
        # The tag of the ring by which its points were chosen, if they hold for that ring only.
        self._expect: str | None = None
        # Name, session and replicas with which it was on the ring when it was started, by calls by
        # hand, or by a run whose loop is gone. Until it has joined anew, it leaves with these, too.
        self._earlier: tuple[str, str, tuple[Replica, ...]] | None = None
        # What was told since the heartbeat under way was sent; None when none is.
        self._heard: list[Any] | None = None
        self._listening = Listening()
        # From a heartbeat on, whether answered or not, until it has left or tried to.
        self._may_be_on_ring = False
        # When it was last told of an order about it, or of what happened to it.
        self._told_at = float("-inf")
        self._tries = 0
        self._view = View((), float("-inf"), (), self.sight.ring)
        self._viewed: tuple[object, ...] = (None,)
        self._announced_full = False
        self.book = (
            SharedLockBook(config.keys, config.locks, retry=min(0.5, config.heartbeat_interval / 2))
            if config.locks
            else None
        )

    # --- asked by the user --------------------------------------------------------------------

    def start(self, now: float, *, strict: bool) -> None:
        """Begin to join.

        Args:
            strict: end as ``failed`` at the first error, instead of trying on.
        """
        if not self._may_be_on_ring:
            self._earlier = None
        elif self._earlier is None:
            self._earlier = self.name, self.session, (*self.own.replicas, *self.own.dropping)
            if self.book is not None:
                self.book.part(now)
        self._new_session()
        self._enter(NodeEvent.START)
        self.error = self.last_error = self.failed_since = None
        # The history that it knew stands: Redis may lose its data between a stop and a start, while
        # others still hold locks.
        self._strict, self._stays = strict, False
        self.claim.start(self.session, self._first_claim)
        self.sight.start()
        self.ordered.start()
        self.own.start()
        self._tries = 0
        self._listening.anew(now)
        self._at = _Schedule(beat=now)

    def stop(self, *, stay: bool = False) -> None:
        """Begin to leave; nothing is owned from now on.

        Args:
            stay: leave the replicas of a named node on the ring until they expire, for the next
                process of that name. Of several calls the first counts.
        """
        if self.state is not NodeState.LEAVING:
            self._stays = stay
        if self.state in (NodeState.NEW, *ENDED):
            if self.state is NodeState.NEW:
                self._end(NodeEvent.STOP)
            return
        self._enter(NodeEvent.STOP)

    def beat_at_once(self, now: float) -> None:
        """Send the next heartbeat now, and another one after that which is under way."""
        self._at.beat = min(self._at.beat, now)
        self._told_at = now

    def weigh(self, weight: float) -> None:
        """Have another weight of its own, instead of any that was ordered so far.

        It counts from the next heartbeat on. May be called by any thread.
        """
        self.ordered.give(weight)

    @property
    def name(self) -> str:
        """The node's name: the configured one, unless it was made up and another node has it."""
        return self.own.name

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """The node's replicas, those of its next heartbeat."""
        return self.own.replicas

    @property
    def weight(self) -> float:
        """The node's weight: its own, unless another one was ordered since that was given."""
        return self.ordered.weight

    @property
    def points(self) -> int:
        """How many points a node of its weight has."""
        return points_of_weight(self.config.n_replicas, self.weight)

    # --- asked by the runner ------------------------------------------------------------------

    def next(self, now: float) -> Step:
        """What to do now."""
        self.fence_when_due(now)
        if self.state in (NodeState.LEAVING, *ENDED):
            return self._next_of_leaving(now)
        at, listening, config = self._at, self._listening, self.config
        if now >= listening.at:
            again_at = now + 4 * config.io_timeout
            return listening.ask(config.heartbeat_interval, config.io_timeout, again_at)
        if self.state is NodeState.JOINING:
            # The subscription stands first: no change after the first fetch can be missed.
            if not listening.stands:
                return Wait(listening.at)
            return Wait(at.beat) if now < at.beat else self.beat_step()
        if self.book is not None and self.book.due_calls.outdated:
            self.book.due_calls.outdated = False
            at.beat = min(at.beat, now)
        due = min(at.beat, at.sweep, self.sight.fetch_at)
        if now >= due:
            return self.beat_step()
        if self.book is not None:
            if self.book.limit.full != self._announced_full and self.state is NodeState.LIVE:
                return self.beat_step()
            if (step := self.book.step(now)) is not None:
                return step
            due = min(due, self.book.due())
        until = min(due, listening.at)
        if self.state in RENEWING:
            until = min(until, self.deadline)
        return Wait(until)

    def fence_when_due(self, now: float) -> None:
        """Be fenced, if the ttl is over. To be called before each step."""
        if self.state in RENEWING and now >= self.deadline:
            self._enter(NodeEvent.RAN_OUT)
            self.counters.fences += 1

    def view(self, now: float) -> View:
        """What readers may see, as of the last call of ``next`` or answer to it."""
        # What a drained node has locked it may work on, until it has handed it over.
        deadline = self.deadline if self.state in RENEWING else float("-inf")
        known, basis = self._view, (self.state, self._surroundings, self.sight.full_nodes)
        if not all(map(is_, basis, self._viewed)):
            ranges, own_bounds, bounds = self._owned if self.state is NodeState.LIVE else _NOTHING
            if bounds == known.bounds:
                # Most changes are between others: what was made of these bounds is kept.
                bounds = known.bounds
            if own_bounds == bounds:
                own_bounds = bounds  # Nothing is inherited, which the book sees by identity.
            # What says that it was shown comes last: a signal handler may raise in between.
            self._show_book(bounds, own_bounds, now)
            self._view = View(bounds, deadline, ranges, self.sight.ring, self._node_count)
            self._viewed = basis
        elif (known.deadline, known.node_count) != (deadline, self._node_count):
            self._view = replace(known, deadline=deadline, node_count=self._node_count)
        return self._view

    @property
    def _owned(self) -> Owned:
        """What a live node owns."""
        ring = self.sight.ring
        ranges = ring.node_ranges(self.name)
        own_bounds = bounds = bounds_of(ranges)
        if self.config.locking and (others := self.sight.full_nodes - {self.name}):
            bounds = bounds_of(ring.without_nodes(*others).node_ranges(self.name))
        return ranges, own_bounds, bounds

    @property
    def _node_count(self) -> int:
        return self.sight.ring.node_count

    @property
    def _surroundings(self) -> Surroundings:
        """What it knows of the ring, for its book of locks; another object when that changes."""
        return self.sight.ring

    def _show_book(self, bounds: tuple[int, ...], own_bounds: tuple[int, ...], now: float) -> None:
        """Show the book of locks what a new view shows."""
        if self.book is None:
            return
        if self.state is NodeState.DRAINED:
            self.book.drain()
        if self.state in RENEWING:
            # A node that is fenced for a while has not lost its keys to anybody yet.
            self.book.see(self._surroundings, bounds, own_bounds, now)

    @property
    def in_doubt(self) -> bool:
        """Whether it knows that the ring may differ from what it has: a fetch is due."""
        return self.sight.in_doubt

    @property
    def failing(self) -> bool:
        """Whether Redis did not do what was last asked of it, about the ring or about locks."""
        return self.failed_since is not None or (
            self.book is not None and self.book.error is not None
        )

    @property
    def channels(self) -> tuple[bytes, ...]:
        """What to subscribe to."""
        keys = self.config.keys
        return (keys.channel, keys.node_channel(self.name))

    # --- told by the runner: the channel ------------------------------------------------------

    def subscribed(self, number: int, now: float) -> None:
        """The subscription stands (again)."""
        if not self._listening.confirmed(number):
            return
        self.counters.subscriptions += 1
        if self.state is not NodeState.JOINING:
            # Whatever was said while nobody listened is found by asking.
            self._at.beat = min(self._at.beat, now)
            if self.book is not None:
                self.book.listening(now)

    def unsubscribed(self, number: int, error: StoreError | None, now: float) -> None:
        """The subscription is gone, or could not be made; without an error, in silence."""
        listening = self._listening
        stood = listening.stands
        if not listening.ended(number):
            return
        listening.at = now + self._backoff(listening.failed)
        if error is None and not stood:
            error = RedisUnavailable("Redis did not confirm the subscription in time")
        if error is not None:
            self._note(error, now)
            self.give_up_if_strict(error)

    def told(self, number: int, channel: bytes, payload: bytes, now: float) -> None:
        """A message on one of :attr:`channels`."""
        if number != self._listening.number:
            return
        if channel != self.config.keys.channel:
            self._told_alone(payload, now)
            return
        try:
            change = parse_change(payload)
        except MessageFormatError:
            if self.config.follow_foreign:
                # A node of redis-hashring says only that something changed.
                self.sight.doubt(now + self._moment())
            else:
                self.counters.bad_messages += 1
            return
        if self._heard is not None:
            self._heard.append(change)
        self._change(change, now)

    def _told_alone(self, payload: bytes, now: float) -> None:
        """A message on the node's own channel."""
        if payload == ORDERED:
            self.beat_at_once(now)
            return
        if is_nearby(payload):
            return  # The ring's channel tells of the same.
        news = parse_lock_news(payload)
        if news is None or self.book is None:
            self.counters.bad_messages += 1
        else:
            self.book.news(news, now)

    # --- the channel's changes ----------------------------------------------------------------

    def _change(self, change: RingChange, now: float) -> None:
        sight = self.sight
        if not sight.is_news(change):
            return
        continues = sight.continues(change)
        if not continues:
            self._fall_behind(SightEvent.SKIPPED, change.stamp, now)
        else:
            self._count(change)
            if not sight.follow(change):
                sight.doubt(now + self._moment())
        if self.name in change.nodes:
            self._change_of_own(change, now, continues=continues)

    def _count(self, change: RingChange) -> None:
        self.counters.changes[change.cause] += 1
        if change.kind is ChangeKind.EXPIRE:
            # Another node was first, and knows what expires next. Should that one end, the next
            # heartbeat of any node tells. If all nodes beat for each crash, it would cost much.
            self._at.sweep = float("inf")

    def _change_of_own(self, change: RingChange, now: float, *, continues: bool) -> None:
        """What happened to a node of its name.

        Args:
            continues: whether the change came right after what is known of this ring.
        """
        if self.state in (NodeState.LEAVING, *ENDED):
            return
        if change.kind is ChangeKind.JOIN:
            if change.session != self.session:
                if continues:
                    self._lose_name(now)
                else:
                    # Perhaps on a ring of this name in another database, whose messages come,
                    # too. The answer to a heartbeat says whether it was on this one.
                    self.beat_at_once(now)
        elif change.kind in (ChangeKind.FULL, ChangeKind.ROOM):
            return
        elif self.state in (NodeState.LIVE, NodeState.FENCED):
            # Swept while it was paused, or removed by hand: a live node comes back.
            self.beat_at_once(now)

    def _fall_behind(self, event: SightEvent, stamp: Stamp, now: float) -> None:
        if self.sight.fall_behind(event, stamp):
            self.counters.gaps += 1
            # Not all at once: after a wipe the whole fleet has the same gap.
            moment = self._moment() * (0.5 + self.rng.random())
            self.sight.fetch_at = min(self.sight.fetch_at, now + moment)

    # --- joining ------------------------------------------------------------------------------

    @property
    def _looks_before_joining(self) -> bool:
        return self.config.named or self.config.placement == "balanced"

    @property
    def _first_claim(self) -> ClaimState:
        return ClaimState.LOOKING if self._looks_before_joining else ClaimState.CLAIMING

    def _look(self) -> Run:
        """Read what the node must know before it joins."""
        command = snapshot(self.config.keys, scoring=self.config.scoring, remembered=self.name)
        return Run(command, self._looked, self._beat_failed)

    def _looked(self, reply: Snapshot, sent: float, now: float) -> None:
        ring = reply.ring(self.config.algorithm)
        taken = frozenset(point for point, node in ring.replicas() if node != self.name)
        self._choose(
            BeforeJoin(
                stamp=reply.stamp,
                record=reply.nodes.get(self.name),
                replicas=reply.replicas_of(self.name),
                remembered=reply.remembered,
                taken=taken,
                ordered=reply.weights.get(self.name),
                even=lambda: balanced_points(ring, self.name, self.points, self.rng),
            )
        )

    def _choose(self, found: BeforeJoin) -> None:
        """Choose the points to join with, and whether to take the name from another session."""
        if self.state is not NodeState.JOINING:
            return  # Stopped meanwhile.
        self.claim.began(found.stamp.at)
        self.ordered.found(found.ordered)
        self._expect = found.stamp.tag if self.config.placement == "balanced" else None
        if not self.claim.prevails(found.record):
            self._give_up_name()
            return
        self.own.choose(found, self.points)
        self.claim.see(ClaimEvent.CHOSEN)

    def beat_step(self) -> Run:
        """A heartbeat; before a join that depends on what is on the ring, a look at it."""
        looking = self.claim.state in (ClaimState.LOOKING, ClaimState.CONTESTING)
        if self.state is NodeState.JOINING and looking:
            return self._look()
        config = self.config
        joining = self.state is NodeState.JOINING
        back = joining and self.claim.state is ClaimState.RETURNING
        if back:
            pass  # It has what it left there.
        elif not self.replicas:
            self.own.draw(self.points)
        elif self._may_resize() and (step := self._resize()) is not None:
            return step
        given = self.ordered.given
        command = beat(
            config.keys,
            node=self.name,
            session=self.session,
            scoring=config.scoring,
            replicas=self.replicas,
            told=self._told(),
            joining=joining,
            back=back,
            take_from=self.claim.take_from if joining else "",
            **self._questions(),
            expect=self._expect,
            resizes=self.own.resized and not joining,
            own_weight=self.ordered.lifted(given),
            drop=self.own.dropping,
            placed=self.own.count_placed(),
            full=self._announcing(),
            history=self.history,
            # Others may lock although this one does not. It does not know for how long, but a lock
            # lasts the ttl unless somebody chose otherwise.
            lock_ttl=config.locks.ttl if config.locks else config.ttl,
            locking=config.locking,
        )
        self._may_be_on_ring = True
        self._heard = []
        session = self.session

        def done(reply: BeatReply, sent: float, now: float) -> None:
            heard, self._heard = self._heard or [], None
            # An answer to whom the node is no more, after what it was told meanwhile, is nothing.
            if self.session == session:
                if reply.status in (BeatStatus.OK, BeatStatus.DRAINED):
                    self.ordered.said(given)
                self._beaten(reply, heard, sent, now)

        return Run(command, done, self._beat_failed)

    # --- another weight -----------------------------------------------------------------------

    def _may_resize(self) -> bool:
        """Whether it has not the points of its weight, and knows where to have others."""
        missing = self.points - len(self.replicas)
        if missing > 0 and self.config.placement == "balanced":
            return self.state is NodeState.LIVE and self._sees_itself
        return missing != 0

    @property
    def _sees_itself(self) -> bool:
        return self.sight.stamp is not None and self.name in self.sight.ring

    def _resize(self) -> Run | None:
        """Have as many points as the weight makes; a step if something must be read before."""
        missing = self.own.fit(self.points, self._lengths)
        if missing and self.config.placement == "balanced":
            return self._grow_evenly(missing)
        if missing:
            self.own.add_random(missing, self._taken())
        return None

    def _grow_evenly(self, missing: int) -> Run | None:
        """Add points that take from the busiest nodes; a step if the ring must be read before."""
        assert self.sight.stamp is not None
        more = more_points(self.sight.ring, self.name, missing, self.rng, "balanced")
        self._have_more(more, self.sight.stamp.tag)
        return None

    def _have_more(self, more: Iterable[int], tag: str) -> None:
        """Add points that were chosen by the ring at that tag."""
        # Two that place by the same ring would take from the same ranges.
        self._expect = tag
        self.own.add(more)

    def _grow_again(self, now: float) -> None:
        """The ring is not the one by which it chose more points: choose again, after a moment."""
        self._expect = None
        self._tries += 1
        if self._tries < _GROWS_AGAIN:
            self.own.take_back()
        # Else it has them where they are: that they are not the best places is better than no
        # heartbeat.
        self._at.beat = now + self.rng.random() * min(0.01 * self._tries, self._moment())

    def _lengths(self) -> dict[int, int]:
        """How much each of its points owns, as far as it knows."""
        return replica_lengths(self.sight.ring, self.name)

    def _taken(self) -> set[int]:
        """Points that are not free, as far as it knows."""
        points = {point for point, _ in self.sight.ring.replicas()}
        return points.union(replica.point for replica in self.replicas)

    def _questions(self) -> dict[str, Any]:
        """What a heartbeat asks of the ring; arguments of :func:`beat`."""
        # Nodes of redis-hashring change the ring without a new epoch: only looking finds it.
        fetch = (
            self.state not in RENEWING
            or self.sight.fetch_at < float("inf")
            or self.config.follow_foreign
        )
        return {"fetch": fetch}

    def _announcing(self) -> bool:
        self._announced_full = self.book is not None and self.book.limit.full
        return self._announced_full

    def _told(self) -> dict[str, Any]:
        told = {
            **self.config.told,
            "named": self.config.named,
            "ttl": self.config.ttl,
            "weight": self.weight,
        }
        own_weight, _ = self.ordered.given
        if self.weight != own_weight:
            told["own_weight"] = own_weight
        if self.load is not None:
            told["load"] = self.load
        told |= self.claim.told()
        told |= self._seen_ring()
        if self.book is not None:
            told |= {
                "limit": self.book.limit.most,
                "held": len(self.book.held),
                "refused": self.book.limit.refused,
                "unserved": self.book.limit.unserved,
                "lock": self.book.config.locking,
            }
            if self.book.refusal is not None:
                told["refusal"] = str(self.book.refusal)[:_REFUSAL_TOLD]
        return told

    def _seen_ring(self) -> dict[str, Any]:
        """What it tells of the ring that it knows."""
        sight = self.sight
        if sight.stamp is None:
            return {}
        return {"sees": {"tag": sight.stamp.tag, "fingerprint": sight.ring.fingerprint}}

    def _beaten(self, reply: BeatReply, heard: list[Any], sent: float, now: float) -> None:
        self.counters.heartbeats += 1
        self.failed_since = None
        if self.state in (NodeState.LEAVING, *ENDED):
            return
        if reply.status in (BeatStatus.OK, BeatStatus.DRAINED):
            self._tries = 0
            self._renewed(reply, heard, sent, now)
        elif reply.status is BeatStatus.ABSENT:
            self.claim.see(ClaimEvent.NOTHING_LEFT)
            self._at.beat = now
        elif reply.status is BeatStatus.MOVED and self.state is not NodeState.JOINING:
            self._grow_again(now)
        elif reply.status is BeatStatus.MOVED or (
            reply.status is BeatStatus.TAKEN and self.config.named
        ):
            # Somebody joined between the look and the join: look again, after a moment that
            # differs from that of others who wait for the same. Did it join under our name, the one
            # of us that began later gets it.
            taken = reply.status is BeatStatus.TAKEN
            self.claim.see(ClaimEvent.TAKEN if taken else ClaimEvent.MOVED)
            self._tries += 1
            self._at.beat = now + self.rng.random() * min(0.02 * self._tries, 1.0)
        else:
            self._lose_name(now)

    def _renewed(self, reply: BeatReply, heard: list[Any], sent: float, now: float) -> None:
        config = self.config
        self.last_beat = now
        self.beat_took = now - sent
        self._earlier = None
        self.last_error = None
        # Redis counted from when it got the call, which is not before it was sent; so by the
        # node's own clock it has at most this long.
        self.deadline = sent + config.ttl
        self.claim.began(reply.stamp.at)
        self.own.confirmed(reply.stayed)
        self.ordered.ordered(reply.ordered)
        self._expect = None
        if self.history not in ("", reply.history) and not self._is_kept(reply):
            self.counters.losses += 1
        self.history = reply.history
        at = self._at
        at.beat = sent + config.heartbeat_interval * (1 - 0.1 * self.rng.random())
        if self._told_at > sent:
            # A heartbeat that was under way may have gone before what it was told of.
            at.beat = now
        at.sweep = float("inf")
        if reply.soonest is not None:
            # A moment after the expiry, and not all survivors at the same moment.
            moment = self._moment() * self.rng.random()
            at.sweep = now + max(reply.soonest, 0.0) + 0.001 + moment

        self._learn(reply, heard, now)
        if self._may_resize():
            at.beat = now
        if self.book is not None:
            self.book.heartbeat(self._all_full(reply), now, reply.history, reply.held_off)

    def _is_kept(self, reply: BeatReply) -> bool:
        """Whether Redis still has the ring that the node knew, although it has another history.

        It restarted then, or another server took over; or the first node with locks joined.
        """
        stamp = self.sight.stamp
        return stamp is not None and stamp.tag in (reply.before, reply.stamp.tag)

    def _all_full(self, reply: BeatReply) -> bool:
        """Whether every node of the ring holds as many keys as it may."""
        return self.sight.full_nodes.issuperset(self.sight.ring.nodes)

    def _learn(self, reply: BeatReply, heard: list[Any], now: float) -> None:
        """What the answer to a heartbeat says of the ring."""
        sight = self.sight
        if reply.members is not None:
            self.counters.fetches += 1
            self._refresh_subscription(now)
            ring, sight.garbage = ring_of(reply.members, self.config.algorithm)
            sight.read(ring, reply.stamp)
            sight.note_full(reply.full)
        elif sight.stamp is None or reply.stamp.tag != sight.stamp.tag:
            if not sight.was_told(reply.stamp.tag, heard):
                self._catch_up(reply, now)
        elif reply.stamp.members != sight.stamp.members:
            sight.doubt(now)
        if self.state not in RENEWING and reply.members is None:
            # Sent while it was live, answered when it was not any more: what happened in
            # between is not known.
            sight.doubt(now)
        else:
            self._accepted(reply.status)
        if reply.members is not None:
            # Told while the answer was on its way, so perhaps later than what it says.
            for change in heard:
                self._change(change, now)

    def _accepted(self, status: BeatStatus) -> None:
        """The heartbeat was answered, and what the node must know of the ring is known."""
        drained = status is BeatStatus.DRAINED
        if self.state is not (NodeState.DRAINED if drained else NodeState.LIVE):
            self._enter(NodeEvent.TO_DRAIN if drained else NodeEvent.RENEWED)
        self._strict = False
        if self.claim.state in (ClaimState.RETURNING, ClaimState.CLAIMING):
            self.claim.see(ClaimEvent.JOINED)

    def _catch_up(self, reply: BeatReply, now: float) -> None:
        sight = self.sight
        if sight.stamp is not None and reply.before == sight.stamp.tag:
            # The only news is our own: we were put back, or taken off.
            drained = reply.status is BeatStatus.DRAINED
            ring = sight.ring.without_nodes(self.name)
            if not drained:
                ring = ring.with_node(self.name, [replica.point for replica in self.replicas])
            if sight.is_whole(ring, reply.stamp):
                sight.adopt(ring, reply.stamp)
                own = frozenset((self.name,))
                full = self._announced_full and not drained
                sight.full_nodes = sight.full_nodes | own if full else sight.full_nodes - own
                return
        self._fall_behind(SightEvent.UNTOLD, reply.stamp, now)

    def _refresh_subscription(self, now: float) -> None:
        """After a change that no message told of, the connection may be dead: make it anew."""
        deaf = self.sight.state is SightState.DEAF
        if deaf and self._listening.stands and self.state is NodeState.LIVE:
            self._listening.anew(now)

    # --- failing ------------------------------------------------------------------------------

    def _beat_failed(self, error: StoreError, now: float) -> None:
        self._heard = None
        if self.state is not NodeState.JOINING:
            # Perhaps it has moved the ring itself.
            self._expect = None
        self._note(error, now)
        self._tries += 1
        retry = now + self._backoff(self._tries)
        self._at.beat = retry
        self._at.sweep = float("inf")
        if self.sight.fetch_at < float("inf"):
            self.sight.fetch_at = retry
        self.give_up_if_strict(error)

    def give_up_if_strict(self, error: Exception) -> None:
        """Fail with the error, if the node has not joined yet, and is not to try on."""
        if self._strict and self.state is NodeState.JOINING:
            self.error = error
            self._enter(NodeEvent.REFUSED)

    def _note(self, error: HashringError, now: float) -> None:
        self.counters.failures += 1
        self.last_error = error
        if self.failed_since is None:
            self.failed_since = now

    def _lose_name(self, now: float) -> None:
        """Another session has this name."""
        if self.config.named:
            # To a process that began later, or to one that a failover brought back: look.
            self.claim.see(ClaimEvent.TAKEN)
            self._join_anew(now)
            return
        # A made-up name that two processes happen to share (two containers, both pid 1): be
        # somebody else.
        self.own.rename(f"{self.config.name}.{self._hex(4)}")
        self.claim.begin_anew(self._first_claim)
        self._join_anew(now)
        # Its own channel has its name.
        self._listening.anew(now)

    def _join_anew(self, now: float) -> None:
        self._new_session()
        self.claim.goes_on_as(self.session)
        self._enter(NodeEvent.NAME_TAKEN)
        self._at.beat = now

    def _give_up_name(self) -> None:
        self.claim.see(ClaimEvent.YIELD)
        self.error = NodeSuperseded(self.name)
        self.last_error = self.error
        self._end(NodeEvent.NAME_YIELDED)
        self._new_session()
        if self.book is not None:
            # What users still hold, or take just now, they let go of themselves.
            self.book.end()

    # --- leaving ------------------------------------------------------------------------------

    def _next_of_leaving(self, now: float) -> Step:
        if self.state in (NodeState.LEAVING, NodeState.FAILED):
            # Tried once: whoever stops wants to go, and the ring forgets the node by itself.
            if self.book is not None and (step := self.book.leave(now)) is not None:
                return Run(step.command, step.done, partial(self._release_failed, now))
            if self._earlier is not None and not self._stays:
                return self._leave_as_earlier(*self._earlier)
            # Of a node that may be back, and does not know where, the replicas expire.
            if self._may_be_on_ring:
                stays = self._stays or not self.replicas
                step = self._park_step() if stays else self.leave_step("stop")
                return Run(step.command, step.done, self._stop_failed)
        if self.state is NodeState.LEAVING:
            self._end(NodeEvent.LEFT)
        return Finished()

    def _enter(self, event: NodeEvent) -> None:
        """Go to the state that follows the event."""
        self.state = NODE_LIFE.after(self.state, event)

    def _end(self, event: NodeEvent) -> None:
        """End. A node that is off the ring does not follow it: it knows none."""
        self._enter(event)
        self.sight.forget()

    def look_step(self) -> Run:
        """Read the ring without a heartbeat."""
        command = snapshot(self.config.keys, scoring=self.config.scoring)
        return Run(command, self._seen, self._note)

    def _seen(self, reply: Snapshot, sent: float, now: float) -> None:
        self.sight.garbage = len(reply.garbage)
        self.sight.read(reply.ring(self.config.algorithm), reply.stamp)

    def leave_step(self, reason: str) -> Run:
        """Take the node off the ring."""
        command = leave(
            self.config.keys,
            node=self.name,
            session=self.session,
            replicas=self.replicas,
            drop=self.own.may_be_there,
            reason=reason,
        )
        return Run(command, self._left if reason == "stop" else self._removed, self._note)

    def _leave_as_earlier(self, name: str, session: str, replicas: tuple[Replica, ...]) -> Run:
        """Leave with what the start found; then leaving goes on."""
        command = leave(self.config.keys, node=name, session=session, replicas=replicas)
        self._earlier = None
        return Run(command, lambda reply, sent, now: None, self._stop_failed)

    def _park_step(self) -> Run:
        config = self.config
        command = park(
            config.keys,
            node=self.name,
            session=self.session,
            scoring=config.scoring,
            replicas=(*self.replicas, *self.own.given_up),
            told=self._stated_ranges(),
        )
        return Run(command, self._left, self._note)

    def _stated_ranges(self) -> tuple[str, str]:
        """A ring's tag, and the node's ranges at that tag; both empty if Redis stated none."""
        return "", ""

    def _removed(self, reply: LeaveStatus, sent: float, now: float) -> None:
        # Its session goes on: a heartbeat puts it back.
        self.deadline = float("-inf")
        if self.state in RENEWING:
            self._enter(NodeEvent.REMOVED)

    def _left(self, reply: LeaveStatus, sent: float, now: float) -> None:
        self.deadline = float("-inf")
        self._may_be_on_ring = False
        unsettled = self.book is not None and self.book.session_ended(now)
        if self.state is NodeState.LEAVING and not unsettled:
            self._end(NodeEvent.LEFT)

    def _release_failed(self, asked: float, error: StoreError, now: float) -> None:
        self._note(error, now)
        if self.book is not None:
            self.book.forget_releases()
        if now - asked > self.config.io_timeout / 2:
            # Redis is silent, so the next command would take as long. Stopping must be quick.
            self._may_be_on_ring = False

    def _stop_failed(self, error: StoreError, now: float) -> None:
        self._may_be_on_ring = False
        self._note(error, now)

    # --- small things -------------------------------------------------------------------------

    def _new_session(self) -> None:
        self.session = self._hex(16)
        if self.book is not None:
            self.book.begin(self.name, self.session)

    def _hex(self, digits: int) -> str:
        return f"{self.rng.randrange(16**digits):0{digits}x}"

    def _moment(self) -> float:
        return min(_GRACE, _GRACE_BEATS * self.config.heartbeat_interval)

    def _backoff(self, tries: int) -> float:
        """Seconds: doubling, below half a heartbeat, so that recovery takes less than one."""
        most = min(_LAST_RETRY, self.config.heartbeat_interval / 2)
        doubled = _FIRST_RETRY * 2.0 ** min(tries - 1, 16)
        return min(most, doubled) * (0.5 + 0.5 * self.rng.random())
