"""One ring in each store, and a hand that reaches behind the store's back."""

from __future__ import annotations

import time
from typing import Any

from redis import Redis

from hashring.core.replica import Replica
from hashring.core.ring import Ring
from hashring.store.interface import Store
from hashring.store.keys import RingKeys
from hashring.store.memory_store import MemoryServer, MemoryStore
from hashring.store.ring.commands import (
    BeatReply,
    LeaveStatus,
    Scoring,
    Snapshot,
    SweepReply,
    beat,
    leave,
    read_members,
    snapshot,
    sweep,
)
from hashring.store.ring.events import RingEvent, read_event

TTL = 1000.0
"""Seconds: nothing expires during a test unless a test makes it."""
LONG_AGO = -5.0
AVAILABLE = Scoring.expiry(TTL)


class Place:
    """One ring in one store, and a hand that reaches behind the store's back."""

    store: Store

    def __init__(self, keys: RingKeys) -> None:
        self.keys = keys

    def now(self) -> float:
        raise NotImplementedError

    def zadd(self, member: bytes, score: float) -> None:
        raise NotImplementedError

    def zrem(self, member: bytes) -> None:
        raise NotImplementedError

    def zset(self) -> dict[bytes, float]:
        raise NotImplementedError

    def hset(self, node: str, entry: bytes) -> None:
        raise NotImplementedError

    def remember(self, memory: bytes, *nodes: str) -> None:
        """Write where each of the nodes was before it left."""
        raise NotImplementedError

    def remembered(self) -> set[bytes]:
        """The nodes of which it is remembered where they were."""
        raise NotImplementedError

    def set_epoch(self, value: bytes) -> None:
        raise NotImplementedError

    def wipe(self) -> None:
        raise NotImplementedError

    def publish(self, payload: bytes) -> None:
        raise NotImplementedError

    def raw_events(self) -> list[Any]:
        raise NotImplementedError

    # --- what follows is the same everywhere --------------------------------------------------

    def beat(self, node: str, session: str, *points: int, **options: Any) -> BeatReply:
        options.setdefault("scoring", AVAILABLE)
        options.setdefault("told", {})
        return self.store.run(
            beat(self.keys, node=node, session=session, replicas=replicas(node, *points), **options)
        )

    def join(self, node: str, session: str, *points: int, **options: Any) -> BeatReply:
        return self.beat(node, session, *points, joining=True, **options)

    def leave(self, node: str, session: str, *points: int, **options: Any) -> LeaveStatus:
        return self.store.run(
            leave(
                self.keys, node=node, session=session, replicas=replicas(node, *points), **options
            )
        )

    def sweep(self, scoring: Scoring = AVAILABLE) -> SweepReply:
        return self.store.run(sweep(self.keys, scoring=scoring, by="somebody"))

    def look(self, remembered: str = "", scoring: Scoring = AVAILABLE) -> Snapshot:
        return self.store.run(snapshot(self.keys, scoring=scoring, remembered=remembered))

    def age(self, *nodes: str) -> None:
        """Make the nodes' members expired."""
        seen = self.look()
        for record in seen.replicas:
            if record.replica.node in nodes:
                self.zadd(record.replica.member, seen.now + LONG_AGO)

    def events(self) -> list[RingEvent]:
        return [read_event(entry) for entry in self.raw_events()]

    def ring(self) -> Ring:
        return Ring(read_members(self.zset())[0])


def replicas(node: str, *points: int) -> list[Replica]:
    return [Replica(point, node, f"id{point}") for point in points]


class RealPlace(Place):
    def __init__(self, keys: RingKeys, client: Redis, store: Store) -> None:
        super().__init__(keys)
        self.client = client
        self.store = store

    def now(self) -> float:
        seconds, micros = self.client.time()
        return seconds + micros / 1e6

    def zadd(self, member: bytes, score: float) -> None:
        self.client.zadd(self.keys.ring, {member: score})

    def zrem(self, member: bytes) -> None:
        self.client.zrem(self.keys.ring, member)

    def zset(self) -> dict[bytes, float]:
        return dict(self.client.zrange(self.keys.ring, 0, -1, withscores=True))

    def hset(self, node: str, entry: bytes) -> None:
        self.client.hset(self.keys.nodes, node, entry)

    def remember(self, memory: bytes, *nodes: str) -> None:
        self.client.hset(self.keys.left, mapping=dict.fromkeys(nodes, memory))

    def remembered(self) -> set[bytes]:
        return set(self.client.hkeys(self.keys.left))

    def set_epoch(self, value: bytes) -> None:
        self.client.set(self.keys.epoch, value)

    def wipe(self) -> None:
        self.client.flushall()

    def publish(self, payload: bytes) -> None:
        self.client.publish(self.keys.channel, payload)

    def raw_events(self) -> list[Any]:
        return self.client.xrange(self.keys.events)


class TwinPlace(Place):
    def __init__(self, keys: RingKeys) -> None:
        super().__init__(keys)
        self.server = MemoryServer(time.time)
        self.store = MemoryStore(self.server)

    def now(self) -> float:
        return time.time()

    def zadd(self, member: bytes, score: float) -> None:
        self.server.zadd(self.keys.ring, member, score)

    def zrem(self, member: bytes) -> None:
        self.server.zrem(self.keys.ring, member)

    def zset(self) -> dict[bytes, float]:
        found = self.look()
        members = {record.replica.member: record.score for record in found.replicas}
        return members | {member: float("nan") for member, _ in found.garbage}

    def hset(self, node: str, entry: bytes) -> None:
        self.server.hset(self.keys.ring, node, entry)

    def remember(self, memory: bytes, *nodes: str) -> None:
        for node in nodes:
            self.server.hset(self.keys.ring, node, memory, part="left")

    def remembered(self) -> set[bytes]:
        return set(self.server.hkeys(self.keys.ring, "left"))

    def set_epoch(self, value: bytes) -> None:
        self.server.set_epoch(self.keys.ring, value)

    def wipe(self) -> None:
        self.server.wipe()

    def publish(self, payload: bytes) -> None:
        self.server.publish(self.keys.channel, payload)

    def raw_events(self) -> list[Any]:
        return self.server.events(self.keys.ring)
