"""Each node of a ring as Redis shows it, with its own report checked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, Final

from hashring.core.even_weights import Weighed
from hashring.core.hashing import RING_SIZE, hash_algorithm, hash_algorithm_names
from hashring.core.ranges import ranges_fingerprint
from hashring.core.ring import Ring
from hashring.core.ring_plan import NodeShape
from hashring.core.safe_text import printable
from hashring.core.value_checks import TOO_LARGE, is_number
from hashring.errors import ConfigError, HashringError
from hashring.store.ring.commands import Scoring
from hashring.store.ring.snapshot import ReplicaRecord, Snapshot, points_by_node

DEFAULT_ALGORITHM: Final = "crc-32"
REDIS_HASHRING_ALGORITHM: Final = "xxh32"

USUAL_POINTS: Final = 16
"""Points of a node of weight 1 that does not report how many it has."""

# For nodes that do not report a ttl, as those of redis-hashring.
_ASSUMED_TTL: Final = 60.0
_FAR: Final = 1e9  # seconds; a score written by hand may be infinite, which JSON cannot hold


class Sees(str, Enum):
    """Which ring a node saw when it last beat."""

    CURRENT = "current"
    """This one."""
    OLDER = "older"
    """The one of before some change: it has not beaten since, or missed the change."""
    ANOTHER = "another"
    """The history is this one's, the ring computed from it is not."""
    UNKNOWN = "-"
    """Not reported: before its second heartbeat, while it is away, and always by nodes of
    redis-hashring."""


@dataclass(frozen=True)
class NodeFacts:
    """A node as the ring in Redis shows it.

    Attributes:
        name: its name.
        host, pid: as it reports, or from its name.
        replicas: how many it has.
        share: the part of the ring it owns, from 0 to 1; 0 once expired.
        delay: seconds since its last heartbeat.
        expires_in: seconds until it expires, negative once it has.
        expired: whether it has.
        ttl, weight, started, version, hash_algorithm, zone: as it reports; ``None`` otherwise.
        held, limit: keys it holds and may hold; ``None`` without locks, or without a limit.
        unserved: keys of its own that no node serves, because every node is full.
        fingerprint: of the ring it saw at its last heartbeat; ``None`` when not reported.
        sees: which ring that was.
        drained: whether by order it beats and has no replica.
        load: how much it has to do, in a unit of its own code's; ``None`` when not reported.
        away: whether it stopped to come back, and has time for that until it expires.
        refusal: why Redis refuses to give it locks; ``None`` when it does not.
    """

    name: str
    host: str
    pid: str
    replicas: int
    share: float
    delay: float
    expires_in: float
    expired: bool
    ttl: float | None
    weight: float | None
    started: float | None
    version: str | None
    hash_algorithm: str | None
    held: int | None
    limit: int | None
    unserved: int
    fingerprint: str | None
    sees: Sees
    zone: str | None = None
    drained: bool = False
    load: float | None = None
    away: bool = False
    refusal: str | None = None

    @property
    def live(self) -> bool:
        """Whether it works on keys: it has not expired, is not drained, and did not stop."""
        return not (self.expired or self.drained or self.away)

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON types."""
        return {**self.__dict__, "sees": self.sees.value}


def node_facts(snapshot: Snapshot, scoring: Scoring, ring: Ring | None = None) -> list[NodeFacts]:
    """The facts of every node that has a replica on the ring, in order of first points, and then of
    the drained ones.

    Args:
        ring: the snapshot's ring, where the caller has it; any hash algorithm.
    """
    ring = snapshot.ring() if ring is None else ring
    shares = ring.shares
    oldest = oldest_replicas(snapshot)
    rings = _Rings(snapshot, ring)
    mixed = scoring.lag > 0
    found = []
    for name, (record, replicas) in oldest.items():
        node = snapshot.nodes.get(name)
        found.append(
            _facts(
                _told(snapshot, name),
                rings,
                mixed=mixed,
                name=name,
                replicas=replicas,
                share=shares.get(name, 0) / RING_SIZE,
                delay=delay_of(snapshot, record, scoring),
                expires_in=max(-_FAR, min(_FAR, record.expires_in)),
                expired=record.expired,
                away=not record.expired and node is not None and node.away,
            )
        )
    for name in sorted(snapshot.drained.keys() - oldest.keys()):
        told = _told(snapshot, name)
        expires_in = max(-_FAR, min(_FAR, snapshot.drained[name]))
        lasts = scoring.lag or _number(told.get("ttl")) or expires_in
        found.append(
            _facts(
                told,
                rings,
                mixed=mixed,
                name=name,
                replicas=0,
                share=0.0,
                delay=max(0.0, lasts - expires_in),
                expires_in=expires_in,
                expired=expires_in < 0,
                drained=True,
            )
        )
    return found


def oldest_replicas(snapshot: Snapshot) -> dict[str, tuple[ReplicaRecord, int]]:
    """Of each node the replica that expires first, and how many there are; in order of each node's
    first point."""
    found: dict[str, tuple[ReplicaRecord, int]] = {}
    for record in snapshot.replicas:
        name = record.replica.node
        oldest, count = found.get(name, (record, 0))
        found[name] = (record if record.expires_in < oldest.expires_in else oldest, count + 1)
    return found


def host_and_pid(name: str, told: Mapping[str, Any]) -> tuple[str, str]:
    """A node's host and pid as it reports them, or from its name; printable."""
    host, _, pid = name.rpartition(":")
    return (
        printable(str(told.get("host") or host or name)),
        printable(str(told.get("pid") or (pid if host else "-"))),
    )


def delay_of(snapshot: Snapshot, record: ReplicaRecord, scoring: Scoring) -> float:
    """Seconds since the replica's last heartbeat, as far as its score and its node's ttl tell."""
    if scoring.lag:
        return _bounded(snapshot.now - record.score)
    ttl = _told(snapshot, record.replica.node).get("ttl")
    if not is_number(ttl) or not 0 < ttl < _FAR:
        ttl = _ASSUMED_TTL
    return _bounded(ttl - record.expires_in)


def _bounded(delay: float) -> float:
    # A score written by hand may be infinite.
    return min(max(0.0, delay), _FAR)


def _told(snapshot: Snapshot, name: str) -> Mapping[str, Any]:
    """What a node reports in its entry; empty without one."""
    node = snapshot.nodes.get(name)
    return node.told if node else {}


def _facts(
    told: Mapping[str, Any], rings: _Rings, *, mixed: bool, name: str, **seen: Any
) -> NodeFacts:
    """A node's facts: what Redis shows of it, and what it tells."""
    host, pid = host_and_pid(name, told)
    return NodeFacts(
        **seen,
        name=name,
        host=host,
        pid=pid,
        ttl=_number(told.get("ttl")),
        weight=_number(told.get("weight")),
        started=_number(told.get("started")),
        version=_text(told.get("version")),
        hash_algorithm=_text(told.get("hash_algorithm")),
        held=_count(told.get("held")),
        limit=_count(told.get("limit")),
        unserved=_count(told.get("unserved")) or 0,
        fingerprint=_fingerprint(told.get("sees")),
        # What it saw when it ran says nothing of a node that is away.
        sees=Sees.UNKNOWN if seen.get("away") else _sees(name, told, rings, mixed=mixed),
        zone=_text(told.get("zone")),
        load=_load(told.get("load")),
        refusal=_text(told.get("refusal")),
    )


def node_shapes(snapshot: Snapshot) -> dict[str, NodeShape]:
    """What the points of each node depend on, by name; guessed for a node that does not tell."""
    points = Counter(record.replica.node for record in snapshot.replicas)
    found = {}
    for name in snapshot.nodes.keys() | points.keys():
        told = _told(snapshot, name)
        weight = _positive(told.get("weight")) or 1.0
        guess = min((points[name] or USUAL_POINTS) / weight, TOO_LARGE)
        usual = _count(told.get("n_replicas")) or round(guess)
        found[name] = NodeShape(
            n_replicas=max(1, usual),
            own_weight=_positive(told.get("own_weight")) or weight,
            placement="balanced" if told.get("placement") == "balanced" else "random",
        )
    return found


def loads_of(
    snapshot: Snapshot, scoring: Scoring
) -> tuple[dict[str, Weighed], list[str], list[str]]:
    """The live nodes on the ring that report a load, by name; the names of those that report none;
    and the names of those that have not obeyed the last order about their weight."""
    nodes, silent, waiting = {}, [], []
    shapes = node_shapes(snapshot)
    for facts in node_facts(snapshot, scoring):
        if facts.expired or facts.drained:
            continue
        shape, weight = shapes[facts.name], _positive(facts.weight) or 1.0
        order = snapshot.weights.get(facts.name)
        if order is not None and order.weight != weight:
            waiting.append(facts.name)
        if facts.load is None:
            silent.append(facts.name)
        else:
            nodes[facts.name] = Weighed(weight, facts.load, shape.own_weight, shape.n_replicas)
    return nodes, sorted(silent), sorted(waiting)


def told_zones(nodes: Iterable[NodeFacts]) -> dict[str, str]:
    """The zone of each node that has not expired and reports one, by the node's name."""
    return {facts.name: facts.zone for facts in nodes if facts.zone and not facts.expired}


def live_nodes_of_zones(nodes: Iterable[NodeFacts]) -> Counter[str]:
    """How many live nodes report each zone."""
    return Counter(facts.zone for facts in nodes if facts.zone and facts.live)


def locking_nodes(snapshot: Snapshot) -> frozenset[str]:
    """The nodes that report that they lock keys."""
    return frozenset(name for name, node in snapshot.nodes.items() if node.told.get("lock") is True)


def nodes_without_locks(snapshot: Snapshot, nodes: Iterable[NodeFacts]) -> list[str]:
    """The live nodes among these that do not lock keys although others do, in the same order."""
    locking = locking_nodes(snapshot)
    if not locking:
        return []
    return [node.name for node in nodes if node.live and node.name not in locking]


def told_limit(snapshot: Snapshot, name: str) -> int | None:
    """How many keys a node reports that it may hold; ``None`` without a limit."""
    return _count(_told(snapshot, name).get("limit"))


def told_algorithms(snapshot: Snapshot) -> set[str]:
    """The hash algorithms that the ring's nodes report."""
    on_ring = {record.replica.node for record in snapshot.replicas if not record.expired}
    told = (snapshot.nodes[name].told for name in on_ring if name in snapshot.nodes)
    return {name for entry in told if (name := _text(entry.get("hash_algorithm")))}


def ring_algorithm(snapshot: Snapshot, wanted: str | None = None, wire: str | None = None) -> str:
    """The name of the function from key to point: as wanted, else as the nodes report.

    Args:
        wire: ``"redis-hashring"`` for a ring whose nodes are of it when they do not report.

    Raises:
        ConfigError: the nodes do not agree, or there is no function of the name that is wanted.
    """
    if wanted is not None:
        return hash_algorithm(wanted).name
    told = told_algorithms(snapshot)
    if len(told) > 1:
        raise ConfigError(
            "hash_algorithm",
            " and ".join(sorted(told)),
            "the nodes do not agree, so a key has two owners: hashring doctor says which nodes; "
            "give --hash-algorithm to ask for one of them",
        )
    if told:
        return told.pop()
    return unreported_algorithm(wire)


def unreported_algorithm(wire: str | None) -> str:
    """The name of the function from key to point on a ring whose nodes report none."""
    return REDIS_HASHRING_ALGORITHM if wire else DEFAULT_ALGORITHM


class _Rings:
    """The ring as seen with each hash algorithm, built once each."""

    def __init__(self, snapshot: Snapshot, ring: Ring) -> None:
        self.tag = snapshot.stamp.tag
        self._fingerprints: dict[str, str] = {}
        self._replicas = snapshot.replicas
        self._whole = ring if len(ring) == len(snapshot.replicas) else None
        if self._whole is not None:
            self._fingerprints[ring.hash_algorithm.name] = ring.fingerprint

    @cached_property
    def _points(self) -> dict[str, list[int]]:
        # Expired ones too: a node takes them for members until a sweep.
        return points_by_node(self._replicas)

    @cached_property
    def _ring(self) -> Ring:
        return Ring(self._points) if self._whole is None else self._whole

    def ranges(self, name: str) -> str:
        """A digest of a node's own ranges."""
        return ranges_fingerprint(self._ring.node_ranges(name) if name in self._ring else ())

    def fingerprint(self, algorithm: str) -> str | None:
        if algorithm not in self._fingerprints:
            if algorithm not in hash_algorithm_names():
                return None
            try:
                ring = Ring(self._points, hash_algorithm(algorithm))
            except HashringError:  # its package is not installed here
                return None
            self._fingerprints[algorithm] = ring.fingerprint
        return self._fingerprints[algorithm]


def _sees(name: str, told: Mapping[str, Any], rings: _Rings, *, mixed: bool) -> Sees:
    seen = told.get("sees")
    if isinstance(ranges := told.get("ranges"), str):
        # It knows only its own ranges. Those it told when it sent its newest heartbeat.
        if not ranges:
            return Sees.UNKNOWN
        return Sees.CURRENT if ranges == rings.ranges(name) else Sees.OLDER
    if not isinstance(seen, dict):
        return Sees.UNKNOWN
    if seen.get("tag") != rings.tag:
        return Sees.OLDER
    if mixed:
        # Nodes of redis-hashring change the ring and leave its history as it is.
        return Sees.CURRENT
    expected = rings.fingerprint(_text(told.get("hash_algorithm")) or DEFAULT_ALGORITHM)
    if expected is not None and seen.get("fingerprint") != expected:
        return Sees.ANOTHER
    return Sees.CURRENT


def _fingerprint(seen: Any) -> str | None:
    return _text(seen.get("fingerprint")) if isinstance(seen, dict) else None


def _count(value: Any) -> int | None:
    number = _number(value)
    return int(number) if number is not None and number >= 0 else None


def _number(value: Any) -> float | None:
    return float(value) if is_number(value) and abs(value) < TOO_LARGE else None


def _load(value: Any) -> float | None:
    number = _number(value)
    return number if number is not None and number >= 0 else None


def _positive(value: Any) -> float | None:
    number = _number(value)
    return number if number is not None and number > 0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
