"""The two tables of ``--print`` and ``debug_print``: the ring's replicas and its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hashring.core.hashing import RING_SIZE
from hashring.core.printable import printable
from hashring.store.ring.commands import ReplicaRecord, Scoring, Snapshot
from hashring.store.ring.node_reports import delay_of, host_and_pid, oldest_replicas


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


def _sized(snapshot: Snapshot) -> Iterator[tuple[ReplicaRecord, int]]:
    """Each replica with the points of its range."""
    records = snapshot.replicas
    for record, following in zip(records, (*records[1:], *records[:1]), strict=True):
        size = (following.replica.point - record.replica.point) % RING_SIZE
        yield record, RING_SIZE if len(records) == 1 else size


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


def _percent(points: int) -> str:
    return f"{100 * points / RING_SIZE:.2f}%"


def _mark(expired: bool) -> str:
    return " (EXPIRED)" if expired else ""
