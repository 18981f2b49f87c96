"""Metrics of whole rings and groups, as somebody who reads them again and again sees them."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, field, replace
from typing import Final

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from hashring.core.groups.group_status import GroupStatus, WaitKind
from hashring.core.groups.state import EventKind, GroupPhase
from hashring.core.ring_balance import Balance, balance
from hashring.core.ring_change_message import REASONS, ChangeKind
from hashring.health import NOT_LIVE, Health, State, node_health, ring_health
from hashring.metrics.metric_families import (
    FLEET_METRICS,
    Buckets,
    Families,
    label,
    one_hot,
)
from hashring.store.group.decision_history import Decision
from hashring.store.ring.commands import Scoring
from hashring.store.ring.node_reports import (
    NodeFacts,
    Sees,
    live_nodes_of_zones,
    node_facts,
    nodes_without_locks,
    told_algorithms,
)
from hashring.store.ring.ring_events import RingEvent
from hashring.store.ring.snapshot import Snapshot

STALE: Final = 30.0
"""Seconds after which a reading that nothing newer follows has no series any more."""

NODES_SHOWN: Final = 1000
"""In a larger ring or group, only this many nodes or members have their own series."""

_ROUND_TRIPS: Final = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
_TAKEOVERS: Final = (0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 120.0, 300.0)
_CAUSES: Final = (*REASONS, *(kind.value for kind in ChangeKind))
_STATES: Final = tuple(state.value for state in State if state is not State.UNKNOWN)
_PHASES: Final = tuple(phase.value for phase in GroupPhase)
_NO_ID: Final = (-1, -1)
_KNOWN: Final = 500  # events among which one is looked for that still stands


@dataclass(frozen=True)
class RingReading:
    """A ring, as it was read.

    Attributes:
        ring: its name.
        at: Redis time of the reading, in seconds since 1970.
        epoch: number of its last change.
        nodes: every node that has a replica, expired ones included, and the drained ones.
        replicas: how many replicas the live ones have.
        balance: ``None`` when there is no live node.
        duplicate_points: points that several live nodes have.
        garbage: members that are no replicas.
        without_locks: live nodes that do not lock keys although others do.
        events: the end of its history, oldest first; those that an earlier reading held may be
            there again, or be left out.
        health: the verdict.
    """

    ring: str
    at: float
    epoch: int
    nodes: Sequence[NodeFacts]
    replicas: int
    balance: Balance | None
    duplicate_points: int
    garbage: int
    without_locks: int
    events: Sequence[RingEvent]
    health: Health

    @classmethod
    def of(
        cls, ring: str, snapshot: Snapshot, events: Sequence[RingEvent], scoring: Scoring
    ) -> RingReading:
        """The reading that a snapshot and the end of the history make."""
        frozen = snapshot.ring()
        nodes = node_facts(snapshot, scoring, frozen)
        without_locks = nodes_without_locks(snapshot, nodes)
        return cls(
            ring=ring,
            at=snapshot.now,
            epoch=snapshot.stamp.epoch,
            nodes=nodes,
            replicas=len(frozen),
            balance=balance(frozen),
            duplicate_points=len(frozen.duplicate_points),
            garbage=len(snapshot.garbage),
            without_locks=len(without_locks),
            events=events,
            health=ring_health(
                nodes,
                events,
                ring=ring,
                now=snapshot.now,
                algorithms=told_algorithms(snapshot),
                drains=snapshot.binding_drains,
                without_locks=without_locks,
            ),
        )


@dataclass(frozen=True)
class GroupReading:
    """A partition group, as it was read.

    Attributes:
        group: its name.
        status: where it stands.
        decisions: its last ones, in any order; some of earlier readings may be there again.
        health: the verdict.
    """

    group: str
    status: GroupStatus
    decisions: Sequence[Decision]
    health: Health


class FleetCollector(Collector):
    """The metrics of all rings and groups whose readings it gets.

    The reader of rings and groups hands over each reading; a node that is not in the newest one
    has no series. Counters and histograms begin at 0 with the first reading. Safe to
    call from several threads.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rings: dict[str, _Ring] = {}
        self._groups: dict[str, _Group] = {}
        self._up: bool | None = None
        self._left_out: int | None = None
        self._round_trips = Buckets(_ROUND_TRIPS)

    # --- what the reader calls ------------------------------------------------------------------

    def redis_answered(self, seconds: float) -> None:
        """Redis answered, after ``seconds``."""
        with self._lock:
            self._up = True
            self._round_trips.observe(seconds)

    def redis_failed(self) -> None:
        """Redis did not answer, or refused."""
        with self._lock:
            self._up = False

    def left_out(self, count: int) -> None:
        """So many rings and groups that were found are not read."""
        with self._lock:
            self._left_out = count

    def saw_ring(self, reading: RingReading) -> None:
        """A ring was read."""
        with self._lock:
            known = self._rings.get(reading.ring)
            if known is None:
                known = self._rings[reading.ring] = _Ring(reading)
            known.update(reading, time.monotonic())

    def saw_group(self, reading: GroupReading) -> None:
        """A group was read."""
        with self._lock:
            known = self._groups.get(reading.group)
            if known is None:
                known = self._groups[reading.group] = _Group(reading)
            known.update(reading, time.monotonic())

    def forget_ring(self, ring: str) -> None:
        """A ring is not looked at any more: it has no series, and its counters are gone."""
        with self._lock:
            self._rings.pop(ring, None)

    def forget_group(self, group: str) -> None:
        """The same for a group."""
        with self._lock:
            self._groups.pop(group, None)

    # --- asked by Prometheus' client ------------------------------------------------------------

    def describe(self) -> Iterator[Metric]:
        """The metrics without values."""
        return iter(Families(FLEET_METRICS))

    def collect(self) -> Iterator[Metric]:
        """The metrics now."""
        families = Families(FLEET_METRICS)
        now = time.monotonic()
        with self._lock:
            if self._up is not None:
                families.add("hashring_redis_up", (), float(self._up))
            if self._left_out is not None:
                families.add("hashring_redis_unwatched", (), self._left_out)
            families.add_buckets("hashring_redis_round_trip_seconds", (), self._round_trips)
            every: list[_Ring | _Group] = [*self._rings.values(), *self._groups.values()]
            copies = [each.copied() for each in every if now - each.at <= STALE]
        # Outside the lock: thousands of nodes take a second, and readings go on meanwhile.
        for each in copies:
            each.add(families, now)
        return iter(families)


def _place(id_: str) -> tuple[int, int]:
    """Where an entry stands in its stream."""
    milliseconds, _, number = id_.partition("-")
    try:
        return int(milliseconds), int(number or 0)
    except ValueError:
        return _NO_ID


@dataclass
class _CountedEvents:
    """Events, each counted once, whatever readings it is in."""

    first: tuple[int, int] = _NO_ID
    last: tuple[int, int] = _NO_ID
    known: tuple[tuple[int, int], ...] = ()
    counts: Counter[str] = field(default_factory=Counter)

    def new(self, ids: Iterable[str]) -> set[str]:
        """Those that were not there before."""
        by_place = {_place(id_): id_ for id_ in ids}
        places = sorted(by_place)
        if not places:
            return set()
        known = {*self.known}
        standing = next((n for n in range(len(places), 0, -1) if places[n - 1] in known), 0)
        if standing:
            # After a failover took back the last ones, what came instead may be earlier than they.
            found = places[standing:]
        else:
            if self.last == _NO_ID or places[-1] < self.first:
                # The first, or another history: Redis lost the old one.
                self.first, self.last = places[0], _NO_ID
            found = [place for place in places if place > self.last]
        # Lower than before if Redis came back with older data, whose events were counted already.
        self.last = places[-1]
        self.known = (*self.known, *found)[-_KNOWN:]
        return {by_place[place] for place in found}

    def copied(self) -> _CountedEvents:
        """The same, which no later reading changes."""
        return replace(self, counts=self.counts.copy())


class _Ring:
    def __init__(self, first: RingReading) -> None:
        self.at = 0.0
        self._label = label(first.ring)
        self._changes = _CountedEvents(counts=Counter(dict.fromkeys(_CAUSES, 0)))
        # What happened before anybody looked is not counted.
        self._changes.new(event.id for event in first.events)
        self._takeovers = Buckets(_TAKEOVERS)
        self._reading = first
        self._beaten: dict[str, float] = {}

    def update(self, reading: RingReading, at: float) -> None:
        new = self._changes.new(event.id for event in reading.events)
        # After an outage nobody here knows when those that are gone sent their last heartbeat.
        beaten = self._beaten if reading.at - self._reading.at <= STALE else {}
        for event in reading.events:
            if event.id not in new or event.change is None:
                continue
            self._changes.counts[event.change.cause] += 1
            if event.change.kind is ChangeKind.EXPIRE:
                for node in event.change.nodes:
                    if node in beaten:
                        self._takeovers.observe(max(0.0, event.at - beaten[node]))
        self._reading = reading
        self.at = at
        self._beaten = {node.name: reading.at - node.delay for node in reading.nodes}

    def copied(self) -> _Ring:
        """The same, which no later reading changes."""
        copied = copy(self)
        copied._changes, copied._takeovers = self._changes.copied(), deepcopy(self._takeovers)
        return copied

    def add(self, families: Families, now: float) -> None:
        reading, ring = self._reading, (self._label,)

        def add(name: str, value: float | None) -> None:
            families.add(f"hashring_ring_{name}", ring, value)

        add("read_age_seconds", now - self.at)
        for state, holds in one_hot(_STATES, reading.health.state.value).items():
            families.add("hashring_ring_state", (*ring, state), holds)
        states = Counter(map(node_health, reading.nodes))
        off = {state.value: states[state] for state in NOT_LIVE}
        counts = {"live": len(reading.nodes) - sum(off.values()), **off}
        for state, count in counts.items():
            families.add("hashring_ring_nodes", (*ring, state), count)
        zones = live_nodes_of_zones(reading.nodes)
        for zone, count in zones.most_common(NODES_SHOWN):
            families.add("hashring_ring_zone_nodes", (*ring, label(zone)), count)
        add("replicas", reading.replicas)
        add("epoch", reading.epoch)
        if reading.balance is not None:
            add("peak_to_mean_ratio", reading.balance.peak_to_mean)
            add("expected_peak_to_mean_ratio", reading.balance.expected_peak_to_mean)
            add("share_variation_ratio", reading.balance.cv)
            add("expected_share_variation_ratio", reading.balance.expected_cv)
        add("duplicate_points", reading.duplicate_points)
        add("garbage_members", reading.garbage)
        add("nodes_without_locks", reading.without_locks)
        for reason, count in self._changes.counts.items():
            families.add("hashring_ring_changes", (*ring, reason), count)
        families.add_buckets("hashring_ring_takeover_seconds", ring, self._takeovers)
        for node in reading.nodes[:NODES_SHOWN]:
            _add_node(families, (self._label, label(node.name)), node)


def _add_node(families: Families, labels: tuple[str, str], node: NodeFacts) -> None:
    def add(name: str, value: float | None) -> None:
        families.add(f"hashring_ring_node_{name}", labels, value)

    add("up", float(not node.expired))
    add("share_ratio", node.share)
    add("replicas", node.replicas)
    if not node.away:
        # It stopped on purpose: no alert until it expires.
        add("heartbeat_age_seconds", node.delay)
    add("ttl_seconds", node.ttl)
    if node.sees is not Sees.UNKNOWN:
        add("agrees", float(node.sees is Sees.CURRENT))
    if node.away or node.expired:
        return  # What it has told of its work is about a time when it ran.
    add("load", node.load)
    add("keys_held", node.held)
    add("keys_limit", node.limit)
    if node.held is not None:
        add("keys_unserved", node.unserved)


class _Group:
    def __init__(self, first: GroupReading) -> None:
        self.at = 0.0
        self._label = label(first.group)
        self._events = _CountedEvents(counts=Counter({kind.value: 0 for kind in EventKind}))
        self._events.new(decision.id for decision in first.decisions)
        self._status = first.status
        self._health = first.health

    def update(self, reading: GroupReading, at: float) -> None:
        new = self._events.new(decision.id for decision in reading.decisions)
        for decision in reading.decisions:
            if decision.id in new:
                for event in decision.events:
                    self._events.counts[event.kind.value] += 1
        self._status = reading.status
        self._health = reading.health
        self.at = at

    def copied(self) -> _Group:
        """As of a ring."""
        copied = copy(self)
        copied._events = self._events.copied()
        return copied

    def add(self, families: Families, now: float) -> None:
        status, group = self._status, (self._label,)

        def add(name: str, value: float) -> None:
            families.add(f"hashring_group_{name}", group, value)

        add("read_age_seconds", now - self.at)
        for state, holds_ in one_hot(_STATES, self._health.state.value).items():
            families.add("hashring_group_state", (*group, state), holds_)
        add("members", len(status.members))
        add("partitions", status.partitions)
        add("unowned_partitions", len(status.unowned))
        add("draining_partitions", len(status.draining))
        add("generation", status.generation)
        add("blocking_members", len(status.blocking))
        add("drained_members", sum(order.drained for order in status.orders.values()))
        # Without members the group does nothing more, whatever it was about to do.
        phase_now = status.phase.value if status.has_members else ""
        for phase, holds in one_hot(_PHASES, phase_now).items():
            families.add("hashring_group_phase", (*group, phase.lower()), holds)
        for kind in WaitKind:
            count = sum(wait.kind is kind for wait in status.waits)
            families.add("hashring_group_waits", (*group, kind.value), count)
        for kind_, count in self._events.counts.items():
            families.add("hashring_group_events", (*group, kind_), count)
        for member in status.members[:NODES_SHOWN]:
            families.add(
                "hashring_group_member_partitions",
                (self._label, label(member.name)),
                len(member.partitions),
            )
