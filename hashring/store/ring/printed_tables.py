"""The two tables of ``--print`` and ``debug_print``: the ring's replicas and its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hashring.core.hashing import RING_SIZE
from hashring.core.printable import printable
from hashring.core.value_checks import is_number
from hashring.store.ring.commands import ReplicaRecord, Scoring, Snapshot

# For nodes that do not report a ttl, as those of redis-hashring.
_ASSUMED_TTL: Final = 60.0
_LONGEST: Final = 1e9  # seconds


@dataclass(frozen=True)
class ReplicaRow:
    """A replica of the first table.

    Attributes:
        start: its point.
        size: how many points its range has, were none expired.
        delay: seconds since the last heartbeat.
        replica: the node's name and the replica's id, printable.
        expired: whether its time is up.
    """

    start: int
    size: int
    delay: float
    replica: str
    expired: bool


@dataclass(frozen=True)
class NodeRow:
    """A node of the second table.

    Attributes:
        name: the node's name.
        size: how many points its replicas' ranges have.
        replicas: how many replicas it has.
        delay: seconds since the last heartbeat.
        host, pid: as the node reports, or from its name; printable.
        expired: whether the time of any replica is up.
        told: everything the node reports.
    """

    name: str
    size: int
    replicas: int
    delay: float
    host: str
    pid: str
    expired: bool
    told: dict[str, Any]


def replica_rows(snapshot: Snapshot, scoring: Scoring | None = None) -> list[ReplicaRow]:
    """The rows of the first table, by rising point.

    Args:
        scoring: given for a ring shared with redis-hashring, whose scores are heartbeats.
    """
    return [
        ReplicaRow(
            start=record.replica.point,
            size=size,
            delay=delay_of(snapshot, record, scoring),
            replica=printable(f"{record.replica.node}:{record.replica.id}"),
            expired=record.expired,
        )
        for record, size in _sized(snapshot)
    ]


def node_rows(snapshot: Snapshot, scoring: Scoring | None = None) -> list[NodeRow]:
    """The rows of the second table, in order of each node's first point."""
    sizes: Counter[str] = Counter()
    for record, size in _sized(snapshot):
        sizes[record.replica.node] += size
    rows = []
    for name, (record, replicas) in oldest_replicas(snapshot).items():
        told = dict(snapshot.nodes[name].told) if name in snapshot.nodes else {}
        host, pid = host_and_pid(name, told)
        rows.append(
            NodeRow(
                name=name,
                size=sizes[name],
                replicas=replicas,
                delay=delay_of(snapshot, record, scoring),
                host=host,
                pid=pid,
                expired=record.expired,
                told=told,
            )
        )
    return rows


def oldest_replicas(snapshot: Snapshot) -> dict[str, tuple[ReplicaRecord, int]]:
    """Of each node the replica that expires first, and how many there are; in order of each node's
    first point."""
    found: dict[str, tuple[ReplicaRecord, int]] = {}
    for record in snapshot.replicas:
        name = record.replica.node
        oldest, count = found.get(name, (record, 0))
        found[name] = (record if record.expires_in < oldest.expires_in else oldest, count + 1)
    return found


def _sized(snapshot: Snapshot) -> Iterator[tuple[ReplicaRecord, int]]:
    """Each replica with the points of its range."""
    records = snapshot.replicas
    for record, following in zip(records, (*records[1:], *records[:1]), strict=True):
        size = (following.replica.point - record.replica.point) % RING_SIZE
        yield record, RING_SIZE if len(records) == 1 else size


def host_and_pid(name: str, told: Mapping[str, Any]) -> tuple[str, str]:
    """A node's host and pid as it reports them, or from its name; printable."""
    host, _, pid = name.rpartition(":")
    return (
        printable(str(told.get("host") or host or name)),
        printable(str(told.get("pid") or (pid if host else "-"))),
    )


def ring_tables(name: str, snapshot: Snapshot, scoring: Scoring | None = None) -> Iterator[str]:
    """The lines of both tables."""
    name = printable(name)
    yield f'Hash ring "{name}" replicas:'
    replicas = replica_rows(snapshot, scoring)
    yield "Start      Range  Delay   Node" if replicas else "(no replicas)"
    for row in replicas:
        yield (
            f"{row.start:10} {_percent(row.size):>6} {int(row.delay):6}s "
            f"{row.replica}{_mark(row.expired)}"
        )
    yield ""
    yield f'Hash ring "{name}" nodes:'
    nodes = node_rows(snapshot, scoring)
    yield "Range    Replicas Delay   Hostname             PID" if nodes else "(no nodes)"
    for node in nodes:
        yield (
            f"{_percent(node.size):>6} {node.replicas:8} {int(node.delay):6}s "
            f"{node.host:20} {node.pid:>5}{_mark(node.expired)}"
        )


def delay_of(snapshot: Snapshot, record: ReplicaRecord, scoring: Scoring | None) -> float:
    """Seconds since the replica's last heartbeat, as far as its score and its node's ttl tell."""
    if scoring is not None and scoring.lag:
        return _bounded(snapshot.now - record.score)
    told = snapshot.nodes.get(record.replica.node)
    ttl = told.told.get("ttl") if told else None
    if not is_number(ttl) or not 0 < ttl < _LONGEST:
        ttl = _ASSUMED_TTL
    return _bounded(ttl - record.expires_in)


def _bounded(delay: float) -> float:
    # A score written by hand may be infinite.
    return min(max(0.0, delay), _LONGEST)


def _percent(points: int) -> str:
    return f"{100 * points / RING_SIZE:.2f}%"


def _mark(expired: bool) -> str:
    return " (EXPIRED)" if expired else ""
