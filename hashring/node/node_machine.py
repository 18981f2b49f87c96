"""The protocol of a live node, without I/O.

A runner asks :meth:`NodeMachine.next` what to do, does it, and tells the machine how it went.
Time (the machine's own monotonic seconds) and randomness are arguments, so the same code runs in
a thread, in a greenlet, under asyncio, and in a simulator with a clock of its own. Only one
runner may drive a machine; readers elsewhere look at its frozen :class:`View`. Its states, and what
a node owns in each, are in :mod:`hashring.node.states`.

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

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from operator import is_
from typing import Any, Final

from hashring.core.hashing import HashAlgorithm
from hashring.core.own_ranges import is_nearby
from hashring.core.placement import (
    Random,
    balanced_points,
    free_points,
    kept_points,
    more_points,
    points_of_weight,
)
from hashring.core.ranges import PointRange, bounds_of
from hashring.core.replica import Replica
from hashring.core.replica_ranges import replica_lengths
from hashring.core.ring import Ring
from hashring.core.ring_change import ChangeKind, RingChange, Stamp, parse_change
from hashring.core.value_checks import is_finite
from hashring.errors import (
    HashringError,
    MessageFormatError,
    NodeSuperseded,
    RedisUnavailable,
    StoreError,
)
from hashring.node.shared_lock_book import SharedLockBook
from hashring.node.shared_rings import ring_of
from hashring.node.states import (
    CLAIM,
    ENDED,
    NODE_LIFE,
    RENEWING,
    SIGHT,
    ClaimEvent,
    ClaimState,
    NodeEvent,
    NodeState,
    SightEvent,
    SightState,
)
from hashring.protocol.listening import Listening
from hashring.protocol.locks.lock_config import LockConfig
from hashring.protocol.locks.ring_place import Surroundings
from hashring.protocol.machine_steps import Finished, Run, Step, Wait
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
from hashring.store.ring.node_entries import NodeRecord
from hashring.store.ring.node_orders import ORDERED, WeightOrder
from hashring.store.ring.snapshot import Snapshot, snapshot

# A message and the answer to a heartbeat travel on two connections. How long a gap may be only
# that, in seconds, and in heartbeats for short ones.
_GRACE: Final = 0.25
_GRACE_BEATS: Final = 0.25

# How many of the sessions that had its name before it a node tells of: a failover loses the last
# moments, in which a name has not changed hands more often.
_REPLACED_KEPT: Final = 4

# How often a node looks anew where its points would even a ring that changes all the time.
_GROWS_AGAIN: Final = 8

_FIRST_RETRY: Final = 0.05
_LAST_RETRY: Final = 2.0


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


@dataclass(frozen=True)
class BeforeJoin:
    """What a node found on the ring before it joined.

    Attributes:
        stamp: where the ring stood.
        record: what holds the node's name; ``None`` when nothing does.
        replicas: those under the node's name.
        remembered: points that the name had when it went.
        taken: points that other nodes have: of those under its name, and of the remembered, if not
            of all.
        ordered: the weight that was ordered for the node.
        even: makes the points of a balanced join.
    """

    stamp: Stamp
    record: NodeRecord | None
    replicas: tuple[Replica, ...]
    remembered: tuple[int, ...]
    taken: frozenset[int]
    ordered: WeightOrder | None
    even: Callable[[], tuple[int, ...]]


@dataclass
class Counters:
    """What happened since the machine was made, for the status."""

    heartbeats: int = 0
    failures: int = 0
    fetches: int = 0
    gaps: int = 0
    subscriptions: int = 0
    bad_messages: int = 0
    fences: int = 0
    losses: int = 0
    changes: Counter[str] = field(default_factory=Counter)


@dataclass
class _Schedule:
    """When what is due, in monotonic seconds; ``inf`` is never."""

    beat: float = 0.0
    sweep: float = float("inf")
    fetch: float = float("inf")


@dataclass
class NodeMachine:
    """The protocol of one node; see the module's text.

    Args:
        config: what the node is.
        rng: where its points, its session and its jitter come from.
    """

    config: NodeConfig
    rng: Random

    state: NodeState = NodeState.NEW
    sight: SightState = SightState.UNKNOWN
    claim: ClaimState = ClaimState.LOOKING
    ring: Ring = field(init=False)
    stamp: Stamp | None = None
    deadline: float = float("-inf")
    replicas: tuple[Replica, ...] = ()
    session: str = ""
    history: str = ""
    """The history of the ring that the last heartbeat found in Redis, in this run of the node or an
    earlier one; there is another after a loss."""
    garbage: int = 0
    full_nodes: frozenset[str] = frozenset()
    """The nodes that hold as many keys as they may."""
    book: SharedLockBook | None = field(init=False)
    counters: Counters = field(default_factory=Counters)
    last_beat: float | None = None
    beat_took: float | None = None
    last_error: HashringError | None = None
    failed_since: float | None = None
    error: Exception | None = None
    """Why the node is ``failed`` or ``superseded``."""
    load: float | None = None
    """How much it has to do, as its own code reports it. Assigned by users."""

    def __post_init__(self) -> None:
        self.name = self.config.name
        self.ring = Ring(hash_algorithm=self.config.algorithm)
        self._at = _Schedule()
        # How start() and stop() were called: the one counts until the node has joined.
        self._strict = self._stays = False
        self._drop: tuple[Replica, ...] = ()
        # The replicas of the newest heartbeat, and how many times they were others than before.
        self._placed: tuple[tuple[Replica, ...], int] = ((), 0)
        # The weight that its own code gave it, and the order that this lifts, if it knew of one;
        # and that of them of which Redis has heard. Swapped whole, since users assign it.
        self._own: tuple[float, str] = (self.config.weight, "")
        self._own_said: tuple[float, str] | None = self._own
        self._ordered_weight: WeightOrder | None = None
        # What the last answer confirmed, and what it had before it chose more points by the ring.
        self._settled: tuple[Replica, ...] = ()
        self._fewer: tuple[Replica, ...] | None = None
        self._resizes = False
        self._left_behind: tuple[Replica, ...] = ()
        self._expect: str | None = None
        self._take_from = ""
        # Of a named node: the sessions that it had itself, and those that had the name before it,
        # the newest first.
        self._sessions: tuple[str, ...] = ()
        # Those of its runs before this one.
        self._former: tuple[str, ...] = ()
        self._replaced: tuple[str, ...] = ()
        # Name, session and replicas with which it was on the ring when it was started, by calls by
        # hand, or by a run whose loop is gone. Until it has joined anew, it leaves with these, too.
        self._earlier: tuple[str, str, tuple[Replica, ...]] | None = None
        # What it has missed goes up to here.
        self._behind: Stamp | None = None
        # What was told since the heartbeat under way was sent; None when none is.
        self._heard: list[Any] | None = None
        self._listening = Listening()
        # From a heartbeat on, whether answered or not, until it has left or tried to.
        self._may_be_on_ring = False
        # When it was last told of an order about it, or of what happened to it.
        self._ordered = float("-inf")
        self._tries = 0
        self._started_at = 0
        self._view = View((), float("-inf"), (), self.ring)
        self._viewed: tuple[object, ...] = (None,)
        self._announced_full = False
        config = self.config
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
        self._former = (*self._sessions, *self._former)[:_REPLACED_KEPT]
        if not self._may_be_on_ring:
            self._earlier = None
        elif self._earlier is None:
            self._earlier = self.name, self.session, (*self.replicas, *self.dropping)
            if self.book is not None:
                self.book.part(now)
        self._new_session()
        self._enter(NodeEvent.START)
        self.error = self.last_error = self.failed_since = None
        self.stamp = None
        # The history that it knew stands: Redis may lose its data between a stop and a start, while
        # others still hold locks.
        self._strict, self._stays = strict, False
        self._sessions = (self.session,)
        self._replaced = ()
        self._started_at = 0
        self.claim = self._first_claim
        self.sight = SightState.UNKNOWN
        self._behind = None
        self._tries = 0
        self._listening.anew(now)
        # What was given before the start is what it starts with: an order comes before that.
        self._own = self._own_said = (self._own[0], "")
        self._ordered_weight = None
        self._settled = ()
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
        self._ordered = now

    def weigh(self, weight: float) -> None:
        """Have another weight of its own, instead of any that was ordered so far.

        It counts from the next heartbeat on. May be called by any thread.
        """
        known = self._ordered_weight
        self._own = (weight, known.id if known else "")

    @property
    def weight(self) -> float:
        """The node's weight: its own, unless another one was ordered since that was given."""
        own, ordered = self._own, self._ordered_weight
        if ordered is None or ordered.id == own[1]:
            return own[0]
        return ordered.weight

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
        due = min(at.beat, at.sweep, at.fetch)
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
        known, basis = self._view, (self.state, self._surroundings, self.full_nodes)
        if not all(map(is_, basis, self._viewed)):
            ranges, own_bounds, bounds = self._owned if self.state is NodeState.LIVE else _NOTHING
            if bounds == known.bounds:
                # Most changes are between others: what was made of these bounds is kept.
                bounds = known.bounds
            if own_bounds == bounds:
                own_bounds = bounds  # Nothing is inherited, which the book sees by identity.
            # What says that it was shown comes last: a signal handler may raise in between.
            self._show_book(bounds, own_bounds, now)
            self._view = View(bounds, deadline, ranges, self.ring, self._node_count)
            self._viewed = basis
        elif (known.deadline, known.node_count) != (deadline, self._node_count):
            self._view = replace(known, deadline=deadline, node_count=self._node_count)
        return self._view

    @property
    def _owned(self) -> Owned:
        """What a live node owns."""
        ranges = self.ring.node_ranges(self.name)
        own_bounds = bounds = bounds_of(ranges)
        if self.config.locking and (others := self.full_nodes - {self.name}):
            bounds = bounds_of(self.ring.without_nodes(*others).node_ranges(self.name))
        return ranges, own_bounds, bounds

    @property
    def _node_count(self) -> int:
        return self.ring.node_count

    @property
    def _surroundings(self) -> Surroundings:
        """What it knows of the ring, for its book of locks; another object when that changes."""
        return self.ring

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
        return self.sight not in (SightState.UNKNOWN, SightState.CURRENT)

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
                self._doubt(now + self._moment())
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
        mine = self.stamp
        if mine is None or change.stamp.tag == mine.tag:
            return
        if self.sight is SightState.DEAF and (change.stamp.at > mine.at or change.prev == mine.tag):
            # News, however late: the subscription is alive. In an event loop that runs hundreds of
            # nodes, all of them hear late at times.
            self._see(SightEvent.HEARD)
        if change.prev == mine.tag:
            ring = change.apply(self.ring)
            self._adopt(ring, change.stamp)
            self._follow_full(change)
            self._count(change)
            if change.was not in (None, mine.members) or not self._is_whole(ring, change.stamp):
                # Somebody touched the ZSET without telling.
                self._doubt(now + self._moment())
        elif change.stamp.at <= mine.at and change.stamp.epoch <= mine.epoch:
            return  # From before what was fetched.
        else:
            self._fall_behind(SightEvent.SKIPPED, change.stamp, now)
        if self.name in change.nodes:
            self._change_of_own(change, now, continues=change.prev == mine.tag)

    def _count(self, change: RingChange) -> None:
        self.counters.changes[change.cause] += 1
        if change.kind is ChangeKind.EXPIRE:
            # Another node was first, and knows what expires next. Should that one end, the next
            # heartbeat of any node tells. If all nodes beat for each crash, it would cost much.
            self._at.sweep = float("inf")

    def _follow_full(self, change: RingChange) -> None:
        if change.kind is ChangeKind.FULL:
            self.full_nodes |= frozenset(change.nodes)
        elif change.ends_full and not self.full_nodes.isdisjoint(change.nodes):
            self.full_nodes -= frozenset(change.nodes)

    def _is_whole(self, ring: Ring, stamp: Stamp) -> bool:
        """Whether the ring and what is known to be garbage make up all of the ZSET's members."""
        return len(ring) + self.garbage == stamp.members

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

    def _adopt(self, ring: Ring, stamp: Stamp) -> None:
        self.ring = ring
        self.stamp = stamp
        if self._behind is not None and stamp.epoch >= self._behind.epoch:
            self._behind = None
            if self.sight is SightState.BEHIND:
                self._see(SightEvent.CAUGHT_UP)
                self._at.fetch = float("inf")

    def _see(self, event: SightEvent) -> None:
        self.sight = SIGHT.after(self.sight, event)

    def _has_read(self) -> None:
        """The whole ring is known, as it is at its stamp."""
        self._see(SightEvent.READ)
        self._behind = None
        self._at.fetch = float("inf")

    def _doubt(self, at: float) -> None:
        """The ring may differ where nobody tells; read it then."""
        if self.sight is SightState.UNKNOWN:
            return  # It is read in any case.
        self._see(SightEvent.MISCOUNTED)
        self._at.fetch = min(self._at.fetch, at)

    def _fall_behind(self, event: SightEvent, stamp: Stamp, now: float) -> None:
        self._see(event)
        if self._behind is None:
            self.counters.gaps += 1
            # Not all at once: after a wipe the whole fleet has the same gap.
            self._at.fetch = min(self._at.fetch, now + self._moment() * (0.5 + self.rng.random()))
        self._behind = stamp

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
        # Two sessions of the name may have had one point, where a failover mixed them.
        old = found.replicas
        points = sorted({replica.point for replica in old}) or list(found.remembered)
        self._started_at = self._started_at or found.stamp.at
        if found.ordered is not None and not found.ordered.session:
            self._ordered_weight = found.ordered
        self._expect = found.stamp.tag if self.config.placement == "balanced" else None
        record = found.record
        self._take_from = record.session if record and self.config.named else ""
        # A heartbeat of its own of before a stop may have come late, after Redis lost that stop.
        own = (*self._sessions, *self._former)
        if record is not None and self._take_from not in ("", *own, *self._replaced):
            if self.claim is ClaimState.CONTESTING and self._began_before(record):
                self._give_up_name()
                return
            self._replaced = (self._take_from, *_replaced(record))[:_REPLACED_KEPT]
        # Its own of before may be on the ring besides, where another session had the name since.
        old = tuple({*old, *self.replicas})
        self._place([point for point in points if point not in found.taken], found)
        if record is not None and record.away:
            # It stopped to come back, and nothing of it changes.
            there = {replica.point: replica for replica in found.replicas}
            self.replicas = tuple(there.get(each.point, each) for each in self.replicas)
        kept = {replica.member for replica in self.replicas}
        self._drop = tuple(replica for replica in sorted(old) if replica.member not in kept)
        self._claim(ClaimEvent.CHOSEN)

    def _place(self, points: list[int], found: BeforeJoin | None) -> None:
        """Take these points as far as they go, and place the rest; beside what was found."""
        count = self.points
        points = points[:count]
        missing = count - len(points)
        if missing and found and self.config.placement == "balanced":
            # Some points and not all: it adds the rest where they even the ring, once it is on it.
            points = points or list(found.even())
        elif missing:
            taken = found.taken if found else frozenset()
            points += free_points({*taken, *points}, missing, self.rng)
        self.replicas = tuple(self._fresh(points))

    def beat_step(self) -> Run:
        """A heartbeat; before a join that depends on what is on the ring, a look at it."""
        looking = self.claim in (ClaimState.LOOKING, ClaimState.CONTESTING)
        if self.state is NodeState.JOINING and looking:
            return self._look()
        config = self.config
        joining = self.state is NodeState.JOINING
        back = joining and self.claim is ClaimState.RETURNING
        if back:
            pass  # It has what it left there.
        elif not self.replicas:
            self._place([], None)
        elif self._may_resize() and (step := self._resize()) is not None:
            return step
        own = self._own
        command = beat(
            config.keys,
            node=self.name,
            session=self.session,
            scoring=config.scoring,
            replicas=self.replicas,
            told=self._told(),
            joining=joining,
            back=back,
            take_from=self._take_from if joining else "",
            **self._questions(),
            expect=self._expect,
            resizes=self._resizes and not joining,
            own_weight=None if own is self._own_said else own[1],
            drop=self.dropping,
            placed=self._count_placed(),
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
                    self._own_said = own
                self._beaten(reply, heard, sent, now)

        return Run(command, done, self._beat_failed)

    @property
    def dropping(self) -> tuple[Replica, ...]:
        """What its next heartbeat takes off the ring, if it is there."""
        return (*self._drop, *self._left_behind)

    @property
    def _given_up(self) -> tuple[Replica, ...]:
        """What it was about to give up for another weight, and may have on the ring still."""
        # Before it has joined, that is what another session of its name has there.
        return self._drop if self._settled else ()

    def _count_placed(self) -> int:
        """How many times it has had other replicas than before."""
        if self._placed[0] != self.replicas:
            self._placed = (self.replicas, self._placed[1] + 1)
        return self._placed[1]

    # --- another weight -----------------------------------------------------------------------

    def _may_resize(self) -> bool:
        """Whether it has not the points of its weight, and knows where to have others."""
        missing = self.points - len(self.replicas)
        if missing > 0 and self.config.placement == "balanced":
            return self.state is NodeState.LIVE and self._sees_itself
        return missing != 0

    @property
    def _sees_itself(self) -> bool:
        return self.stamp is not None and self.name in self.ring

    def _resize(self) -> Run | None:
        """Have as many points as the weight makes; a step if something must be read before."""
        have, settled = set(self.replicas), set(self._settled)
        if len(have) > self.points:
            self._have(self._kept())
            return None
        # What it was about to give up is its own still.
        back = sorted(settled - have)[: self.points - len(have)]
        if back:
            self._have([*self.replicas, *back])
        missing = self.points - len(self.replicas)
        if missing and self.config.placement == "balanced":
            return self._grow_evenly(missing)
        self._have([*self.replicas, *self._fresh(free_points(self._taken(), missing, self.rng))])
        return None

    def _kept(self) -> Iterable[Replica]:
        """What it keeps of its replicas when it has too many."""
        count, lengths = self.points, self._lengths()
        settled = {each.point: each for each in self.replicas if each in self._settled}
        if len(settled) < count:
            # Of what it was about to add, some.
            more = [each for each in self.replicas if each.point not in settled]
            return [*settled.values(), *more[: count - len(settled)]]
        kept = kept_points({point: lengths.get(point, 0) for point in settled}, count)
        return [settled[point] for point in kept]

    def _have(self, replicas: Iterable[Replica]) -> None:
        """Have these replicas from the next heartbeat on, and no others."""
        # An earlier heartbeat, of which nobody knows whether it came, may have put them there.
        before = {*self._drop, *self.replicas}
        self.replicas = tuple(sorted(replicas))
        self._drop = tuple(sorted(before.difference(self.replicas)))
        self._resizes = True

    def _fresh(self, points: Iterable[int]) -> list[Replica]:
        return [Replica(point, self.name, self._hex(8)) for point in sorted(points)]

    def _grow_evenly(self, missing: int) -> Run | None:
        """Add points that take from the busiest nodes; a step if the ring must be read before."""
        assert self.stamp is not None
        more = more_points(self.ring, self.name, missing, self.rng, "balanced")
        self._have_more(more, self.stamp.tag)
        return None

    def _have_more(self, more: Iterable[int], tag: str) -> None:
        """Add points that were chosen by the ring at that tag."""
        # Two that place by the same ring would take from the same ranges.
        self._fewer, self._expect = self.replicas, tag
        self._have([*self.replicas, *self._fresh(more)])

    def _grow_again(self, now: float) -> None:
        """The ring is not the one by which it chose more points: choose again, after a moment."""
        self._expect = None
        self._tries += 1
        if self._tries < _GROWS_AGAIN and self._fewer is not None:
            self.replicas = self._fewer
        # Else it has them where they are: that they are not the best places is better than no
        # heartbeat.
        self._at.beat = now + self.rng.random() * min(0.01 * self._tries, self._moment())

    def _lengths(self) -> dict[int, int]:
        """How much each of its points owns, as far as it knows."""
        return replica_lengths(self.ring, self.name)

    def _taken(self) -> set[int]:
        """Points that are not free, as far as it knows."""
        points = {point for point, _ in self.ring.replicas()}
        return points.union(replica.point for replica in self.replicas)

    def _questions(self) -> dict[str, Any]:
        """What a heartbeat asks of the ring; arguments of :func:`beat`."""
        # Nodes of redis-hashring change the ring without a new epoch: only looking finds it.
        fetch = (
            self.state not in RENEWING
            or self._at.fetch < float("inf")
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
        if self.weight != self._own[0]:
            told["own_weight"] = self._own[0]
        if self.load is not None:
            told["load"] = self.load
        if self._replaced:
            told["replaced"] = self._replaced
        if self._started_at:
            told["started"] = self._started_at / 1e6
        told |= self._seen_ring()
        if self.book is not None:
            told |= {
                "limit": self.book.limit.most,
                "held": len(self.book.held),
                "refused": self.book.limit.refused,
                "unserved": self.book.limit.unserved,
                "lock": self.book.config.locking,
            }
        return told

    def _seen_ring(self) -> dict[str, Any]:
        """What it tells of the ring that it knows."""
        if self.stamp is None:
            return {}
        return {"sees": {"tag": self.stamp.tag, "fingerprint": self.ring.fingerprint}}

    def _beaten(self, reply: BeatReply, heard: list[Any], sent: float, now: float) -> None:
        self.counters.heartbeats += 1
        self.failed_since = None
        if self.state in (NodeState.LEAVING, *ENDED):
            return
        if reply.status in (BeatStatus.OK, BeatStatus.DRAINED):
            self._tries = 0
            self._renewed(reply, heard, sent, now)
        elif reply.status is BeatStatus.ABSENT:
            self._claim(ClaimEvent.NOTHING_LEFT)
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
            self._claim(ClaimEvent.TAKEN if taken else ClaimEvent.MOVED)
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
        self._started_at = self._started_at or reply.stamp.at
        self.replicas = reply.stayed or self.replicas
        self._drop = self._left_behind = ()
        self._expect = self._fewer = None
        self._resizes = False
        self._settled = self.replicas
        self._ordered_weight = reply.ordered
        if reply.ordered is not None and reply.ordered.id == self._own[1]:
            # A failover brought back what its own weight has lifted: it says so again.
            self._own_said = None
        if self.history not in ("", reply.history) and not self._is_kept(reply):
            self.counters.losses += 1
        self.history = reply.history
        at = self._at
        at.beat = sent + config.heartbeat_interval * (1 - 0.1 * self.rng.random())
        if self._ordered > sent:
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
        return self.stamp is not None and self.stamp.tag in (reply.before, reply.stamp.tag)

    def _all_full(self, reply: BeatReply) -> bool:
        """Whether every node of the ring holds as many keys as it may."""
        return self.full_nodes.issuperset(self.ring.nodes)

    def _learn(self, reply: BeatReply, heard: list[Any], now: float) -> None:
        """What the answer to a heartbeat says of the ring."""
        if reply.members is not None:
            self.counters.fetches += 1
            ring, self.garbage = ring_of(reply.members, self.config.algorithm)
            self._refresh_subscription(now)
            self._has_read()
            self._adopt(ring, reply.stamp)
            if reply.full != self.full_nodes:
                self.full_nodes = reply.full
        elif self.stamp is None or reply.stamp.tag != self.stamp.tag:
            if not self._was_told(reply.stamp.tag, heard):
                self._catch_up(reply, now)
        elif reply.stamp.members != self.stamp.members:
            self._doubt(now)
        if self.state not in RENEWING and reply.members is None:
            # Sent while it was live, answered when it was not any more: what happened in
            # between is not known.
            self._doubt(now)
        else:
            self._accepted(reply.status)
        if reply.members is not None:
            # Told while the answer was on its way, so perhaps later than what it says.
            for change in heard:
                self._change(change, now)

    def _was_told(self, tag: str, heard: list[Any]) -> bool:
        """Whether messages have said that the ring has this tag, and they count.

        Args:
            heard: the messages that came while the answer with the tag was on its way.
        """
        if all(tag not in (change.prev, change.stamp.tag) for change in heard):
            return False
        # Where Redis lost the ring, and its clock went back, they look older than what is known.
        applied = self.stamp is None or any(self.stamp.tag == each.stamp.tag for each in heard)
        return applied or self._behind is not None

    def _accepted(self, status: BeatStatus) -> None:
        """The heartbeat was answered, and what the node must know of the ring is known."""
        drained = status is BeatStatus.DRAINED
        if self.state is not (NodeState.DRAINED if drained else NodeState.LIVE):
            self._enter(NodeEvent.TO_DRAIN if drained else NodeEvent.RENEWED)
        self._strict = False
        if self.claim in (ClaimState.RETURNING, ClaimState.CLAIMING):
            self._claim(ClaimEvent.JOINED)

    def _catch_up(self, reply: BeatReply, now: float) -> None:
        mine = self.stamp
        if mine is not None and reply.before == mine.tag:
            # The only news is our own: we were put back, or taken off.
            drained = reply.status is BeatStatus.DRAINED
            ring = self.ring.without_nodes(self.name)
            if not drained:
                ring = ring.with_node(self.name, [replica.point for replica in self.replicas])
            if self._is_whole(ring, reply.stamp):
                self._adopt(ring, reply.stamp)
                own = frozenset((self.name,))
                full = self._announced_full and not drained
                self.full_nodes = self.full_nodes | own if full else self.full_nodes - own
                return
        self._fall_behind(SightEvent.UNTOLD, reply.stamp, now)

    def _refresh_subscription(self, now: float) -> None:
        """After a change that no message told of, the connection may be dead: make it anew."""
        deaf = self.sight is SightState.DEAF
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
        if self._at.fetch < float("inf"):
            self._at.fetch = retry
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
            self._claim(ClaimEvent.TAKEN)
            self._join_anew(now)
            return
        # A made-up name that two processes happen to share (two containers, both pid 1): be
        # somebody else.
        # The members that it has under the old one would count as the other's until they expire.
        self._left_behind = self.replicas
        base = self.config.name
        self.name = f"{base}.{self._hex(4)}"
        self.replicas, self._settled, self.claim = (), (), self._first_claim
        self._join_anew(now)
        # Its own channel has its name.
        self._listening.anew(now)

    def _began_before(self, holder: NodeRecord) -> bool:
        """Whether this process began before the one that has its name now."""
        if not set(_replaced(holder)).isdisjoint(self._sessions):
            return True
        started = holder.told.get("started")
        # A process of this package says when it began: without that it is an invalid entry.
        return is_finite(started) and started * 1e6 >= self._started_at

    def _join_anew(self, now: float) -> None:
        self._new_session()
        self._sessions = (*self._sessions, self.session)
        self._enter(NodeEvent.NAME_TAKEN)
        self._at.beat = now

    def _give_up_name(self) -> None:
        self._claim(ClaimEvent.YIELD)
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

    def _claim(self, event: ClaimEvent) -> None:
        self.claim = CLAIM.after(self.claim, event)

    def _end(self, event: NodeEvent) -> None:
        """End. A node that is off the ring does not follow it: it knows none."""
        self._enter(event)
        self.ring = Ring(hash_algorithm=self.config.algorithm)
        self.stamp = None

    def look_step(self) -> Run:
        """Read the ring without a heartbeat."""
        command = snapshot(self.config.keys, scoring=self.config.scoring)
        return Run(command, self._seen, self._note)

    def _seen(self, reply: Snapshot, sent: float, now: float) -> None:
        self.garbage = len(reply.garbage)
        self._has_read()
        self._adopt(reply.ring(self.config.algorithm), reply.stamp)

    def leave_step(self, reason: str) -> Run:
        """Take the node off the ring."""
        command = leave(
            self.config.keys,
            node=self.name,
            session=self.session,
            replicas=self.replicas,
            drop=(*self._given_up, *self._left_behind),
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
            replicas=(*self.replicas, *self._given_up),
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


def _replaced(record: NodeRecord) -> tuple[str, ...]:
    """The sessions that had a name before its holder, as far as it tells."""
    told = record.told.get("replaced")
    if not isinstance(told, list):
        return ()
    return tuple(session for session in told if isinstance(session, str))
