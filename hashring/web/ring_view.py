"""What the service shows of a ring: pure, computed from one reading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final

from hashring.core.hashing import RING_SIZE, hash_algorithm
from hashring.core.replica_ranges import duplicate_holders
from hashring.core.ring import Ring
from hashring.core.ring_balance import Balance, balance
from hashring.core.ring_plan import NodeShape, usual_replicas
from hashring.errors import HashringError
from hashring.health import NOT_LIVE, Health, NodeHealth, event_to_forget, node_health, ring_health
from hashring.metrics.fleet_collector import RingReading
from hashring.store.ring.commands import Scoring
from hashring.store.ring.node_orders import DrainOrder
from hashring.store.ring.node_reports import (
    DEFAULT_ALGORITHM,
    NodeFacts,
    Sees,
    node_facts,
    node_shapes,
    nodes_without_locks,
    told_algorithms,
    unreported_algorithm,
)
from hashring.store.ring.ring_events import RingEvent
from hashring.store.ring.snapshot import Snapshot

_NONE_TAKEN_BACK: Final[Mapping[str, str]] = MappingProxyType({})


class UnknownHash(HashringError):
    """The nodes of a ring hash keys in a way that this service does not know."""


def element_id(name: str) -> str:
    """An id for what a page shows of a node: any name becomes a plain word."""
    return "n-" + blake2b(name.encode(), digest_size=6).hexdigest()


@dataclass(frozen=True)
class NodeView:
    """A node, as the page shows it. All times are Redis time in seconds since 1970.

    Attributes:
        facts: what Redis says of it.
        id: see :func:`element_id`.
        state: how it is.
        fair: the share that its points should have, from 0 to 1; 0 when it has expired.
        beat_at: its last heartbeat.
        expires_at: when it expires unless it renews.
    """

    facts: NodeFacts
    id: str
    state: NodeHealth
    fair: float
    beat_at: float
    expires_at: float

    @property
    def name(self) -> str:
        """The node's name."""
        return self.facts.name

    @property
    def ratio(self) -> float | None:
        """Its share against its fair share; ``None`` when it has none."""
        return self.facts.share / self.fair if self.fair else None

    @property
    def key(self) -> tuple[Any, ...]:
        """Equal when there is nothing new to show."""
        return (
            self.facts.name,
            self.state,
            self.facts.replicas,
            # As exact as they are shown: any join changes every share a little.
            round(self.facts.share, 4),
            round(self.ratio or 0.0, 2),
            round(self.beat_at, 2),
            round(self.expires_at, 2),
            self.facts.sees,
            self.facts.fingerprint,
            self.facts.held,
            self.facts.limit,
            self.facts.unserved,
            self.facts.started,
            self.facts.weight,
            self.facts.zone,
            self.facts.load,
        )


class RingView:
    """A ring at one instant. Immutable.

    Args:
        events: the end of its history, oldest first.
        before: the view before, from which is taken what is the same.
        taken_back: of events that a failover took back the ids, each with that of the last event
            before it that stood.

    Attributes:
        ring: who owns what, with the hash algorithm that the nodes tell.
        algorithms: what the nodes tell; more than one when they do not agree.
        nodes: in order of their names.
        balance: ``None`` when nobody owns anything.
    """

    ring: Ring
    balance: Balance | None

    def __init__(
        self,
        name: str,
        snapshot: Snapshot,
        events: tuple[RingEvent, ...],
        scoring: Scoring,
        before: RingView | None = None,
        *,
        taken_back: Mapping[str, str] = _NONE_TAKEN_BACK,
    ) -> None:
        self.name = name
        self.snapshot = snapshot
        self.events = events
        self._taken_back = taken_back
        self.algorithms = tuple(sorted(told_algorithms(snapshot)))
        # As the nodes report; where none does, as nodes of this form of scores hash.
        self._hashes = self.algorithms or (
            unreported_algorithm("redis-hashring" if scoring.lag else None),
        )
        self._live = [record.replica for record in snapshot.replicas if not record.expired]
        if before and before._live == self._live and before.algorithms == self.algorithms:
            # Heartbeats only.
            self.ring, self.balance = before.ring, before.balance
        else:
            self.ring = snapshot.ring(_known(self._hashes))
            self.balance = balance(self.ring)
        facts = node_facts(snapshot, scoring, self.ring)
        total = len(self.ring)
        self.nodes = tuple(
            self._node(fact, total) for fact in sorted(facts, key=lambda f: f.name.encode())
        )
        self.by_name: Mapping[str, NodeView] = {node.name: node for node in self.nodes}

    def _node(self, facts: NodeFacts, total: int) -> NodeView:
        now = self.snapshot.now
        return NodeView(
            facts,
            element_id(facts.name),
            node_health(facts),
            len(self.ring.points_of(facts.name)) / total if facts.name in self.ring else 0.0,
            now - facts.delay,
            now + facts.expires_in,
        )

    def check_hashes(self) -> None:
        """Refuse to look up a key when it is not known how the nodes hash keys.

        Raises:
            UnknownHash: they do not agree, or nothing here computes what they report.
        """
        if len(self.algorithms) > 1:
            raise UnknownHash(
                f"the nodes of ring {self.name!r} hash keys differently "
                f"({', '.join(self.algorithms)}): a key has two owners or none"
            )
        if self.ring.hash_algorithm.name not in self._hashes:
            try:
                hash_algorithm(self._hashes[0])
            except HashringError as error:
                text = f"this service cannot hash keys as the nodes of ring {self.name!r} do"
                raise UnknownHash(f"{text}: {error}") from error

    @property
    def now(self) -> float:
        """Redis time of the reading."""
        return self.snapshot.now

    @property
    def epoch(self) -> int:
        """Number of the last change."""
        return self.snapshot.stamp.epoch

    @cached_property
    def facts(self) -> Sequence[NodeFacts]:
        """What is known of each of its nodes."""
        return [node.facts for node in self.nodes]

    @cached_property
    def without_locks(self) -> Sequence[str]:
        """The live nodes that do not lock keys although others do."""
        return nodes_without_locks(self.snapshot, self.facts)

    @cached_property
    def health(self) -> Health:
        """Whether it is well, and if not, why."""
        return ring_health(
            self.facts,
            self.events,
            ring=self.name,
            now=self.now,
            algorithms=self.algorithms,
            drains=self.snapshot.binding_drains,
            without_locks=self.without_locks,
        )

    @property
    def is_empty(self) -> bool:
        """Whether Redis has no trace of it."""
        return not self.epoch and not self.nodes

    @property
    def is_forgotten(self) -> bool:
        """Whether somebody forgot it, and it has not changed since."""
        return event_to_forget(self.events) is not None

    def standing(self, event: str) -> str:
        """The id of the last event that stands, up to and with this one."""
        while event in self._taken_back:
            event = self._taken_back[event]
        return event

    @property
    def changed_at(self) -> float | None:
        """Redis time of the last event; ``None`` without one."""
        return self.events[-1].at if self.events else None

    @cached_property
    def shapes(self) -> Mapping[str, NodeShape]:
        """What the points of its nodes depend on, by name."""
        return node_shapes(self.snapshot)

    @property
    def usual_replicas(self) -> int:
        """How many points a node of weight 1 has, as most have them."""
        return usual_replicas(self.ring, self.shapes)

    @cached_property
    def live(self) -> tuple[NodeView, ...]:
        """The nodes that run, and own something, or could."""
        return tuple(node for node in self.nodes if node.state not in NOT_LIVE)

    @cached_property
    def drained(self) -> tuple[NodeView, ...]:
        """The nodes that run, and by order own nothing."""
        return tuple(node for node in self.nodes if node.state is NodeHealth.DRAINED)

    @cached_property
    def drains(self) -> Mapping[str, DrainOrder]:
        """The orders to drain nodes that stand, by name; also about nodes that do not run."""
        return dict(sorted(self.snapshot.standing_drains.items()))

    @cached_property
    def away(self) -> tuple[NodeView, ...]:
        """The nodes that stopped to come back."""
        return tuple(node for node in self.nodes if node.state is NodeHealth.AWAY)

    @cached_property
    def expired(self) -> tuple[NodeView, ...]:
        """The nodes that are on the ring and own nothing."""
        return tuple(node for node in self.nodes if node.state is NodeHealth.EXPIRED)

    @property
    def agreeing(self) -> int:
        """How many live nodes saw this very ring at their last heartbeat."""
        return sum(node.facts.sees is Sees.CURRENT for node in self.live)

    @property
    def silent(self) -> int:
        """How many live nodes have not reported which ring they see."""
        return sum(node.facts.sees is Sees.UNKNOWN for node in self.live)

    @property
    def held(self) -> int | None:
        """Keys that the nodes hold; ``None`` when none tells."""
        told = [node.facts.held for node in self.live if node.facts.held is not None]
        return sum(told) if told else None

    @property
    def limit(self) -> int | None:
        """Keys that the nodes may hold together; ``None`` when not every one has a limit."""
        told = [node.facts.limit for node in self.live]
        known = [limit for limit in told if limit is not None]
        return sum(known) if known and len(known) == len(told) else None

    @property
    def unserved(self) -> int:
        """Keys that nobody serves, because every node is full."""
        return sum(node.facts.unserved for node in self.live)

    @property
    def stray(self) -> tuple[str, ...]:
        """Names that tell of themselves and have no replica on the ring."""
        return tuple(sorted(set(self.snapshot.nodes) - self.by_name.keys()))

    @cached_property
    def duplicates(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """The points that several nodes have, with the nodes; the last one owns the point."""
        found = duplicate_holders(self.ring)
        return tuple((point, tuple(nodes)) for point, nodes in found.items())

    def heirs(self, node: str) -> list[tuple[str, float]]:
        """Who would own what the node has, if it left, and the part of the ring that each gets.

        Those who get most come first.
        """
        gains: Counter[str] = Counter()
        for move in self.ring.moves(self.ring.without_nodes(node)):
            if move.after is not None:
                gains[move.after] += move.points
        ordered = sorted(gains.items(), key=lambda item: (-item[1], item[0].encode()))
        return [(heir, points / RING_SIZE) for heir, points in ordered]

    def metrics_reading(self, events: Sequence[RingEvent]) -> RingReading:
        """What the metrics are made of.

        Args:
            events: those that are new since the reading before.
        """
        return RingReading(
            self.name,
            self.now,
            self.epoch,
            self.facts,
            len(self.ring),
            self.balance,
            len(self.duplicates),
            len(self.snapshot.garbage),
            len(self.without_locks),
            events,
            self.health,
        )


def _known(algorithms: tuple[str, ...]) -> str:
    for name in algorithms:
        try:
            return hash_algorithm(name).name
        except HashringError:  # unknown here, or its package is not installed
            continue
    return DEFAULT_ALGORITHM
