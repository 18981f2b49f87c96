"""``spark.read.format("hashring")``: the live ring as tables. The one room here that asks Redis.

Options: ``url`` and ``ring`` say which ring. ``wire`` is ``redis-hashring`` for a ring that nodes
of redis-hashring 0.7 are on. ``table`` says which of

``replicas``
    ``point`` BIGINT, ``node``, ``id``, ``expires_in`` (seconds, negative once it has), ``expired``.
``nodes``
    ``node``, ``replicas``, ``expired`` (whether any replica is), ``hash_algorithm``, ``weight``,
    ``told`` (all a node tells of itself, as JSON). A node of redis-hashring tells nothing.
``events``
    ``id`` (of the entry in the Redis stream), ``at`` (Redis time), ``kind``, ``by``, and for
    changes of the ring (join, leave, expire, full, room) ``epoch``, ``nodes``, ``points``,
    ``reason``, ``tag``, ``prev``; ``drain`` and ``undrain`` have ``nodes`` and ``reason``;
    ``keys`` is for ``unserved`` how many keys the node ``by`` must leave unserved, for
    ``release`` the key whose lock was taken away. Also as a stream (``spark.readStream``). Refused
    with ``wire``: nodes of redis-hashring write no events.
``locks``
    ``key`` BINARY, ``node``, ``token`` (the fencing token), ``expires_in``. Read lock by lock: not
    one instant of all locks.

As a stream, ``events`` begins with the oldest event left, and is exact: each event once, over any
restart from a checkpoint, because an offset is an id of the Redis stream and what lies between two
of them never changes. When the ring has dropped events from its capped history that the stream
had yet to read, or must read again after a crash, the query fails with ``EventsLost`` instead of
going on without them. Redis 7 and Valkey count all events that ever were, which shows what is gone;
Redis 6.2 does not, so there a query also fails when the last event that it read is gone itself, or
when it had found none and then does not find the ring's first change.

Two losses are not noticed. What the ring dropped before the query read for the first time is not
part of the stream. If Redis comes back empty, the query goes on with the ring's new history:
nothing shows whether there were events before that it had not read.

A reading of ``events``, as a stream or at once, fails with ``EventsLost`` when the ring drops
events that it has yet to reach.

Every process that reads needs this package and a way to Redis.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    SimpleDataSourceStreamReader,
)

from hashring.core.readable_numbers import in_calendar
from hashring.core.ring import Ring
from hashring.core.safe_text import printable
from hashring.core.value_checks import check_wire
from hashring.errors import ConfigError, EventsLost, PermissionDenied
from hashring.store.locks.commands import LOCKS_A_CALL, look
from hashring.store.redis_store import RedisStore
from hashring.store.redis_url import check_url, client_of
from hashring.store.ring.commands import Scoring
from hashring.store.ring.key_names import RingKeys, ring_keys
from hashring.store.ring.node_reports import unreported_algorithm
from hashring.store.ring.ring_events import (
    BEFORE_ALL,
    RingEvent,
    after,
    id_order,
    is_left,
    last_and_added,
    oldest,
)
from hashring.store.ring.snapshot import Snapshot, snapshot

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SCHEMAS: Final = {
    "replicas": "point long, node string, id string, expires_in double, expired boolean",
    "nodes": "node string, replicas int, expired boolean, hash_algorithm string, weight double, "
    "told string",
    "events": "id string, at timestamp_ltz, kind string, by string, epoch long, "
    "nodes array<string>, points array<long>, reason string, tag string, prev string, "
    "keys string",
    "locks": "key binary, node string, token long, expires_in double",
}
"""The columns of each table. A plain ``timestamp`` may be without a time zone in a session."""

_PATIENCE: Final = 10.0  # seconds that Redis may take to answer
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_REGISTERED: Final = "hashring.datasource.registered"
"""A setting of a session that knows the data source."""


def register(spark: SparkSession) -> None:
    """Make ``format("hashring")`` known to a session."""
    # It becomes the active session. Spark refuses a name that only the active one knows.
    spark.createDataFrame([], "nothing int")
    spark.dataSource.register(HashringDataSource)
    spark.conf.set(_REGISTERED, "true")


def check_where(url: str, ring: str) -> None:
    """Check what can be checked of a live ring where nothing reads it.

    Raises:
        ConfigError: no Redis has such a URL, or no ring such a name.
    """
    check_url(url)
    ring_keys(ring)


def live_ring(spark: SparkSession, url: str, ring: str, wire: str | None = None) -> Ring:
    """The ring as it is now, through the data source: Spark's driver asks Redis.

    Args:
        wire: ``"redis-hashring"`` for a ring that nodes of redis-hashring 0.7 are on.

    Raises:
        ConfigError: its nodes do not agree on the hash algorithm, or there is no such ``wire``.
    """
    check_wire(wire)
    # A stream asks again and again, and Spark logs a warning when it gets what it has.
    if spark.conf.get(_REGISTERED, None) is None:
        register(spark)

    def table(name: str) -> list[Any]:
        reader = spark.read.format("hashring").option("url", url).option("ring", ring)
        if wire is not None:
            reader = reader.option("wire", wire)
        return reader.option("table", name).load().collect()

    while True:
        points: dict[str, list[int]] = {}
        for row in table("replicas"):
            if not row["expired"]:
                points.setdefault(row["node"], []).append(row["point"])
        # Of these very nodes: between the readings others may join, and these leave.
        algorithms = {row["node"]: row["hash_algorithm"] for row in table("nodes")}
        if algorithms.keys() >= points.keys():
            break
    told = {algorithms[node] for node in points} - {None}
    if len(told) > 1:
        raise ConfigError("hash_algorithm", sorted(told), "the ring's nodes do not agree on it")
    return Ring(points, told.pop() if told else unreported_algorithm(wire))


class HashringDataSource(DataSource):
    """The data source; see the module."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "hashring"

    def schema(self) -> StructType | str:
        """The columns of the table that the options name."""
        return SCHEMAS[self._table()]

    def reader(self, schema: StructType) -> DataSourceReader:
        """Of one table, once."""
        return _Reader(self._table(), *self._where(), self._scoring())

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:  # noqa: N802
        """Of the events as they come."""
        if self._table() != "events":
            raise ConfigError("table", self._table(), "only events are a stream: use spark.read")
        self._scoring()
        return _EventStream(*self._where())

    def _table(self) -> str:
        table = self.options.get("table", "replicas")
        if table not in SCHEMAS:
            raise ConfigError("table", table, f"unknown; choose one of {', '.join(SCHEMAS)}")
        return str(table)

    def _scoring(self) -> Scoring:
        wire = self.options.get("wire")
        scoring = Scoring.of_wire(wire)
        if wire is not None and self._table() == "events":
            raise ConfigError(
                "wire",
                wire,
                "nodes of redis-hashring write no events, so the history has gaps: to read those "
                "of the other nodes, leave it out",
            )
        return scoring

    def _where(self) -> tuple[str, str]:
        for name in ("url", "ring"):
            if not self.options.get(name):
                raise ConfigError(name, None, f'missing: add .option("{name}", ...)')
        check_where(self.options["url"], self.options["ring"])
        return self.options["url"], self.options["ring"]


@contextmanager
def _store(url: str) -> Iterator[RedisStore]:
    client = client_of(url)
    store = RedisStore(client, _PATIENCE)
    try:
        yield store
    finally:
        store.close()
        client.close()


class _Reader(DataSourceReader):
    def __init__(self, table: str, url: str, ring: str, scoring: Scoring) -> None:
        self._table = table
        self._url = url
        self._ring = ring
        self._scoring = scoring

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        """All rows: a ring is small, and must be read at one instant."""
        keys = ring_keys(self._ring)
        with _store(self._url) as store:
            if self._table == "events":
                yield from map(_event_row, after(store, keys, BEFORE_ALL))
            elif self._table == "locks":
                yield from _locks(store, keys)
            else:
                seen = store.run(snapshot(keys, scoring=self._scoring))
                yield from _replicas(seen) if self._table == "replicas" else _nodes(seen)


def _replicas(seen: Snapshot) -> Iterator[tuple[Any, ...]]:
    for record in seen.replicas:
        replica = record.replica
        yield replica.point, replica.node, replica.id, record.expires_in, record.expired


def _nodes(seen: Snapshot) -> Iterator[tuple[Any, ...]]:
    counts: dict[str, list[bool]] = {}
    for record in seen.replicas:
        counts.setdefault(record.replica.node, []).append(record.expired)
    for name, expired in counts.items():
        told = dict(seen.nodes[name].told) if name in seen.nodes else {}
        algorithm, weight = told.get("hash_algorithm"), told.get("weight")
        yield (
            name,
            len(expired),
            any(expired),
            printable(algorithm) if isinstance(algorithm, str) else None,
            _double(weight),
            json.dumps(told, sort_keys=True),
        )


def _double(value: Any) -> float | None:
    with suppress(OverflowError):
        return float(value) if isinstance(value, int | float) else None
    return None


def _locks(store: RedisStore, keys: RingKeys) -> Iterator[tuple[Any, ...]]:
    # Any server of a cluster answers SCAN, also one that does not have the ring.
    with suppress(PermissionDenied):
        store.call("EXISTS", keys.ring)
    # A glob's special characters may be part of the ring's name.
    pattern = b"".join(b"\\" + bytes([c]) if c in b"*?[]^-\\" else bytes([c]) for c in keys.locks)
    cursor: bytes | int = 0
    seen: set[bytes] = set()
    while True:
        cursor, found = store.call("SCAN", cursor, "MATCH", pattern + b"*", "COUNT", LOCKS_A_CALL)
        # A scan may show a key twice.
        fresh = [name[len(keys.locks) :] for name in dict.fromkeys(found) if name not in seen]
        seen.update(found)
        for first in range(0, len(fresh), LOCKS_A_CALL):
            part = fresh[first : first + LOCKS_A_CALL]
            for key, lock in store.run(look(keys, locked=part)).items():
                yield key, lock.node, lock.token, lock.expires_in
        if int(cursor) == 0:
            return


def _event_row(event: RingEvent) -> tuple[Any, ...]:
    change = event.change
    micros = change.stamp.at if change else round(in_calendar(event.at) * 1e6)
    return (
        event.id,
        _EPOCH + timedelta(microseconds=micros),
        event.kind,
        event.by,
        change.stamp.epoch if change else None,
        list(event.nodes) if change or event.nodes else None,
        list(change.points) if change else None,
        change.reason if change else event.reason or None,
        change.stamp.tag if change else None,
        change.prev if change else None,
        event.keys or None,
    )


class _EventStream(SimpleDataSourceStreamReader):
    """An offset is where reading ended.

    ``id``: of the last event that was read. ``tag``: of the last change. ``read``: how many events
    the stream has read in all. ``added``: how many Redis had ever added by then; empty where it
    does not count them. ``ring``: its name, which older versions did not note.
    """

    def __init__(self, url: str, ring: str) -> None:
        self._url = url
        self._ring = ring

    def initialOffset(self) -> dict[str, str]:  # noqa: N802 - Spark's name
        """Before the oldest event."""
        return {"id": BEFORE_ALL, "tag": "", "read": "0", "added": "", "ring": self._ring}

    def read(self, start: dict[str, str]) -> tuple[Iterator[tuple[Any, ...]], dict[str, str]]:
        """The events since an offset, and the offset after them."""
        self._check_ring(start)
        with _store(self._url) as store:
            keys = ring_keys(self._ring)
            # What is added after this is of the next batch.
            last, added = last_and_added(store, keys)
            if last != BEFORE_ALL and id_order(last) < id_order(start["id"]):
                # Redis lost data, and its clock is behind: nothing that is there follows.
                raise EventsLost(self._ring, start["id"], oldest(store, keys))
            events = list(after(store, keys, start["id"], last)) if last != start["id"] else []
            # After the reading: nothing after it was dropped until then.
            follows = start == self.initialOffset() or is_left(store, keys, start["id"])
        # Redis came back empty, and nothing happened since or the ring began anew.
        anew = last == BEFORE_ALL or any(event.change and not event.change.prev for event in events)
        if not (follows or anew):
            known = added and start["added"]
            if not known or len(events) != int(added) - int(start["added"]):
                raise EventsLost(self._ring, start["id"], events[0].id if events else None)
        end = {**self._after(start, events), "added": added, "ring": self._ring}
        return iter([_event_row(event) for event in events]), end

    def readBetweenOffsets(  # noqa: N802 - Spark's name
        self, start: dict[str, str], end: dict[str, str]
    ) -> Iterator[tuple[Any, ...]]:
        """The very events that were read before between two offsets."""
        self._check_ring(end)
        if start["id"] == end["id"]:
            return iter([])
        with _store(self._url) as store:
            events = list(after(store, ring_keys(self._ring), start["id"], end["id"]))
        # The first batch begins before any event, so only their number tells that some are gone.
        if {**end, **self._after(start, events)} != end:
            raise EventsLost(self._ring, start["id"], events[0].id if events else None)
        return iter([_event_row(event) for event in events])

    def _check_ring(self, offset: dict[str, str]) -> None:
        # Events of another ring look as if this one had begun anew.
        if (of := offset.get("ring", self._ring)) != self._ring:
            raise ConfigError(
                "ring",
                self._ring,
                f"the checkpoint is of ring {of!r}: give each ring a checkpoint of its own",
            )

    def _after(self, start: dict[str, str], events: list[RingEvent]) -> dict[str, str]:
        tag, id_ = start["tag"], start["id"]
        for event in events:
            id_ = event.id
            if event.change:
                # Changes are a chain. A break after the first one read means that some are gone;
                # an empty link, that Redis came back empty and the ring began anew.
                if tag and event.change.prev and event.change.prev != tag:
                    raise EventsLost(self._ring, start["id"], events[0].id)
                tag = event.change.stamp.tag
        return {"id": id_, "tag": tag, "read": str(int(start["read"]) + len(events))}
