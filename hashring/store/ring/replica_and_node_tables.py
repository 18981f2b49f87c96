"""The two tables of ``--print`` and ``debug_print``: the ring's replicas and its nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from hashring.core.hashing import RING_SIZE
from hashring.core.readable_numbers import percent
from hashring.core.safe_text import printable
from hashring.store.ring.commands import Scoring
from hashring.store.ring.node_reports import delay_of, node_facts
from hashring.store.ring.snapshot import ReplicaRecord, Snapshot


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


def replica_rows(snapshot: Snapshot, scoring: Scoring) -> list[ReplicaRow]:
    """The rows of the first table, by rising point."""
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


def _sized(snapshot: Snapshot) -> Iterator[tuple[ReplicaRecord, int]]:
    """Each replica with the points of its range."""
    records = snapshot.replicas
    for record, following in zip(records, (*records[1:], *records[:1]), strict=True):
        size = (following.replica.point - record.replica.point) % RING_SIZE
        yield record, RING_SIZE if len(records) == 1 else size


def ring_tables(name: str, snapshot: Snapshot, scoring: Scoring) -> Iterator[str]:
    """The lines of both tables."""
    name = printable(name)
    yield f'Hash ring "{name}" replicas:'
    replicas = replica_rows(snapshot, scoring)
    yield "Start      Range  Delay   Node" if replicas else "(no replicas)"
    for row in replicas:
        yield (
            f"{row.start:10} {percent(row.size / RING_SIZE):>6} {int(row.delay):6}s "
            f"{row.replica}{_mark(row.expired)}"
        )
    yield ""
    yield f'Hash ring "{name}" nodes:'
    sizes: Counter[str] = Counter()
    for record, size in _sized(snapshot):
        sizes[record.replica.node] += size
    header = "Range    Replicas Delay   Hostname             PID   Node"
    yield header if sizes else "(no nodes)"
    for node in node_facts(snapshot, scoring):
        if node.drained:
            continue
        yield (
            f"{percent(sizes[node.name] / RING_SIZE):>6} {node.replicas:8} {int(node.delay):6}s "
            f"{node.host:20} {node.pid:>5} {printable(node.name)}{_mark(node.expired)}"
        )


def _mark(expired: bool) -> str:
    return " (EXPIRED)" if expired else ""
