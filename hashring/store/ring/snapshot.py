"""A whole ring, read from Redis at one instant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from hashring.core.hashing import HashAlgorithm
from hashring.core.replica import Replica, parse_replica
from hashring.core.ring import Ring
from hashring.core.ring_change_message import Stamp
from hashring.errors import ReplicaFormatError
from hashring.store.command import Command, pairs, text
from hashring.store.lua_scripts import script
from hashring.store.ring.commands import Scoring, read_memory
from hashring.store.ring.key_names import RingKeys
from hashring.store.ring.node_entries import NodeRecord, read_nodes
from hashring.store.ring.node_orders import DrainOrder, WeightOrder, read_drains, read_weights

_NO_POINT: Final = -1.0
"""Where a member that is no replica stands on the index."""


@dataclass(frozen=True)
class ReplicaRecord:
    """A replica as it stands in Redis.

    Attributes:
        replica: point, node and id.
        score: the ZSET's score.
        expires_in: seconds until it expires, negative once it has.
    """

    replica: Replica
    score: float
    expires_in: float

    @property
    def expired(self) -> bool:
        """Whether its time was up when the ring was read."""
        return self.expires_in < 0


def points_by_node(records: Iterable[ReplicaRecord]) -> dict[str, list[int]]:
    """The points of each node that has one of these replicas, in their order."""
    points: dict[str, list[int]] = {}
    for record in records:
        points.setdefault(record.replica.node, []).append(record.replica.point)
    return points


@dataclass(frozen=True)
class Snapshot:
    """A ring at one instant of Redis time.

    Attributes:
        stamp: where it stood.
        replicas: by rising point, expired ones included.
        garbage: members that are no replicas, with why.
        nodes: what nodes tell of themselves, by name.
        remembered: points that the asked-for name had when it went; empty when unknown.
        unvouched: members that are replicas of nodes without an entry, and that no node put on the
            ring's index: nobody vouches for them, so they do not count.
        unindexed: how many members the index lacks, negative when it has more than the ring; 0 on
            a ring in the form of redis-hashring, which has no index.
        misplaced: how many members of the index the ring does not have, or has at another point;
            counted only if the index was asked for.
        drains: the orders to drain nodes, by name, those included whose time is up and those about
            nodes that do not run.
        drained: the nodes that obey such an order, with the seconds until they expire.
        weights: the orders about nodes' weights, by name; also about nodes that do not run.
    """

    stamp: Stamp
    replicas: tuple[ReplicaRecord, ...]
    garbage: tuple[tuple[bytes, str], ...]
    nodes: Mapping[str, NodeRecord]
    remembered: tuple[int, ...] = field(default=())
    unvouched: tuple[ReplicaRecord, ...] = field(default=())
    unindexed: int = 0
    misplaced: int = 0
    drains: Mapping[str, DrainOrder] = field(default_factory=dict)
    drained: Mapping[str, float] = field(default_factory=dict)
    weights: Mapping[str, WeightOrder] = field(default_factory=dict)

    @property
    def now(self) -> float:
        """Redis time of the reading, in seconds since 1970."""
        return self.stamp.at / 1e6

    @property
    def live_nodes(self) -> tuple[str, ...]:
        """The names of the nodes that have not expired, drained ones included, sorted."""
        drained = {node for node, expires_in in self.drained.items() if expires_in >= 0}
        owners = {record.replica.node for record in self.replicas if not record.expired}
        return tuple(sorted(drained | owners))

    @property
    def standing_drains(self) -> dict[str, DrainOrder]:
        """Those of ``drains`` whose time is not up."""
        return {name: order for name, order in self.drains.items() if order.stands(self.now)}

    @property
    def binding_drains(self) -> dict[str, DrainOrder]:
        """Those of ``standing_drains``, without orders about processes that lost a made-up name."""
        return {
            name: order
            for name, order in self.standing_drains.items()
            if not order.session or order.session == self._holder(name)
        }

    def _holder(self, name: str) -> str:
        """The session that holds a name; empty when none does."""
        record = self.nodes.get(name)
        return record.session if record else ""

    def ring(self, hash_algorithm: str | HashAlgorithm = "crc-32") -> Ring:
        """The ring of the replicas that have not expired."""
        live = (record for record in self.replicas if not record.expired)
        return Ring(points_by_node(live), hash_algorithm)

    def replicas_of(self, node: str) -> tuple[Replica, ...]:
        """The replicas of a node, by rising point; empty when it has none."""
        return tuple(r.replica for r in self.replicas if r.replica.node == node)


def snapshot(
    keys: RingKeys,
    *,
    scoring: Scoring,
    remembered: str = "",
    parsed: dict[bytes, Replica] | None = None,
    index: bool = False,
) -> Command[Snapshot]:
    """Read everything at one instant, and write nothing.

    Args:
        remembered: a name whose points of earlier are wanted as well.
        parsed: the members that the caller's last reading parsed; kept up to date for the next.
            Who reads a ring again and again spares itself most of the parsing.
        index: whether to compare the index with the ring member by member, too.
    """
    earlier = {} if parsed is None else parsed

    def read(raw: Any) -> Snapshot:
        epoch, tag, at, members, entries, memory, indexed, ordered, drained, *indexes = raw
        now = int(at) / 1e6
        replicas: list[ReplicaRecord] = []
        garbage: list[tuple[bytes, str]] = []
        now_parsed: dict[bytes, Replica] = {}
        for member, raw_score in pairs(members):
            try:
                replica = now_parsed[member] = earlier.get(member) or parse_replica(member)
            except ReplicaFormatError as error:
                garbage.append((member, str(error)))
                continue
            score = float(raw_score)
            replicas.append(ReplicaRecord(replica, score, score + scoring.lag - now))
        if parsed is not None:
            parsed.clear()
            parsed.update(now_parsed)
        replicas.sort(key=lambda record: (record.replica.point, record.replica.node.encode()))
        nodes = read_nodes(entries)
        unindexed = 0 if scoring.lag else len(members) // 2 - int(indexed)
        # As long as the index has all, a node without an entry lost it, and comes back.
        vouched: list[ReplicaRecord] = []
        unvouched: list[ReplicaRecord] = []
        for record in replicas:
            known = not unindexed or record.expired or record.replica.node in nodes
            (vouched if known else unvouched).append(record)
        return Snapshot(
            Stamp(int(epoch), text(tag), len(members) // 2, int(at)),
            tuple(vouched),
            tuple(garbage),
            MappingProxyType(nodes),
            read_memory(memory),
            tuple(unvouched),
            unindexed,
            0 if scoring.lag else _misplaced(members[::2], now_parsed, indexes),
            MappingProxyType(read_drains(ordered)),
            MappingProxyType(
                {
                    name.decode("utf-8", "replace"): float(score) + scoring.lag - now
                    for name, score in pairs(drained)
                }
            ),
            MappingProxyType(read_weights(ordered)),
        )

    arguments = (remembered, "1" if index else "")
    return Command(script("ring", "snapshot"), keys.script_keys(), arguments, read)


def _misplaced(
    members: Sequence[bytes], replicas: Mapping[bytes, Replica], indexes: Sequence[Sequence[bytes]]
) -> int:
    """How many members of the indexes are not the ring's, or stand at another point there."""
    points = {
        member: float(replicas[member].point) if member in replicas else _NO_POINT
        for member in members
    }
    return sum(
        points.get(member) != float(score) for each in indexes for member, score in pairs(each)
    )
