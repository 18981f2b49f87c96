"""One ring in each store, and a hand that reaches behind the store's back."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from redis import Redis

from hashring.core.own_ranges import Nearby, parse_nearby
from hashring.core.replica import Replica
from hashring.core.ring import Ring
from hashring.core.ring_change_message import RingChange, parse_change
from hashring.store.interface import Message, Store, Subscribed, Subscription
from hashring.store.memory_store import MemoryServer, MemoryStore
from hashring.store.ring.commands import (
    BeatReply,
    LeaveStatus,
    Scoring,
    SweepReply,
    beat,
    leave,
    read_members,
    sweep,
)
from hashring.store.ring.key_names import RingKeys
from hashring.store.ring.ring_events import RingEvent, read_event
from hashring.store.ring.snapshot import Snapshot, snapshot
from tests.conftest import PATIENCE

TTL = 1000.0
"""Seconds: nothing expires during a test unless a test makes it."""
LONG_AGO = -5.0
AVAILABLE = Scoring.expiry(TTL)


class Channels:
    """A subscription to channels, and what came on them."""

    def __init__(self, store: Store, *channels: bytes) -> None:
        self._subscription: Subscription = store.subscribe(*channels)
        for _ in channels:
            assert self._subscription.wait(PATIENCE) == Subscribed()

    def next(self) -> tuple[bytes, bytes]:
        notice = self._subscription.wait(PATIENCE)
        assert isinstance(notice, Message)
        return notice.channel, notice.payload

    def close(self) -> None:
        self._subscription.close()


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

    def index(self) -> dict[bytes, tuple[int, bool]]:
        """The members on the index: their points, and whether they are among the full nodes'."""
        raise NotImplementedError

    def index_alone(self, member: bytes, point: int) -> None:
        """Put a member on the index of nodes with room."""
        raise NotImplementedError

    def unindex(self, member: bytes) -> None:
        """Take a member off the index."""
        raise NotImplementedError

    def hset(self, node: str, entry: bytes) -> None:
        raise NotImplementedError

    def remember(self, memory: bytes, *nodes: str) -> None:
        """Write where each of the nodes was before it left."""
        raise NotImplementedError

    def remembered(self) -> set[bytes]:
        """The nodes of which it is remembered where they were."""
        raise NotImplementedError

    def place(self, places: bytes, node: str) -> None:
        """Write where a node is."""
        raise NotImplementedError

    def placed(self) -> dict[bytes, bytes]:
        """Where the nodes are, as the ring has it written."""
        raise NotImplementedError

    def displace(self) -> None:
        """Delete what is written of where nodes are."""
        raise NotImplementedError

    def order(self, node: str, value: bytes) -> None:
        """Write what was ordered about a node."""
        raise NotImplementedError

    def age_drained(self, node: str) -> None:
        """Make a drained node expired."""
        raise NotImplementedError

    def set_epoch(self, value: bytes) -> None:
        raise NotImplementedError

    def another_server(self) -> None:
        """Have the data where another server than the one that is noted in them serves them."""
        raise NotImplementedError

    def forget_server(self) -> None:
        """Delete what is noted of whose data these are."""
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

    def index(self) -> dict[bytes, tuple[int, bool]]:
        return {
            member: (int(point), full)
            for full, key in ((False, self.keys.points), (True, self.keys.full_points))
            for member, point in self.client.zrange(key, 0, -1, withscores=True)
        }

    def index_alone(self, member: bytes, point: int) -> None:
        self.client.zadd(self.keys.points, {member: point})

    def unindex(self, member: bytes) -> None:
        self.client.zrem(self.keys.points, member)
        self.client.zrem(self.keys.full_points, member)

    def hset(self, node: str, entry: bytes) -> None:
        self.client.hset(self.keys.nodes, node, entry)

    def remember(self, memory: bytes, *nodes: str) -> None:
        self.client.hset(self.keys.left, mapping=dict.fromkeys(nodes, memory))

    def remembered(self) -> set[bytes]:
        return set(self.client.hkeys(self.keys.left))

    def place(self, places: bytes, node: str) -> None:
        self.client.hset(self.keys.places, node, places)

    def placed(self) -> dict[bytes, bytes]:
        return dict(self.client.hgetall(self.keys.places))

    def displace(self) -> None:
        self.client.delete(self.keys.places)

    def order(self, node: str, value: bytes) -> None:
        self.client.hset(self.keys.orders, node, value)

    def age_drained(self, node: str) -> None:
        self.client.zadd(self.keys.drained, {node: self.now() + LONG_AGO})

    def set_epoch(self, value: bytes) -> None:
        self.client.set(self.keys.epoch, value)

    def another_server(self) -> None:
        self.client.set(self.keys.lock_server, b"0" * 40)

    def forget_server(self) -> None:
        self.client.delete(self.keys.lock_server)

    def wipe(self) -> None:
        self.client.flushall()

    def publish(self, payload: bytes) -> None:
        self.client.publish(self.keys.channel, payload)

    def raw_events(self) -> list[Any]:
        return self.client.xrange(self.keys.events)


class MemoryPlace(Place):
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
        return dict(self.server.scores(self.keys.ring))

    def index(self) -> dict[bytes, tuple[int, bool]]:
        return {
            member: (int(point), part == "full_points")
            for part in ("points", "full_points")
            for member, point in self.server.scores(self.keys.ring, part).items()
        }

    def index_alone(self, member: bytes, point: int) -> None:
        self.server.zadd(self.keys.ring, member, point, part="points")

    def unindex(self, member: bytes) -> None:
        for part in ("points", "full_points"):
            self.server.zrem(self.keys.ring, member, part=part)

    def hset(self, node: str, entry: bytes) -> None:
        self.server.hset(self.keys.ring, node, entry)

    def remember(self, memory: bytes, *nodes: str) -> None:
        for node in nodes:
            self.server.hset(self.keys.ring, node, memory, part="left")

    def remembered(self) -> set[bytes]:
        return set(self.server.hgetall(self.keys.ring, "left"))

    def place(self, places: bytes, node: str) -> None:
        self.server.hset(self.keys.ring, node, places, part="places")

    def placed(self) -> dict[bytes, bytes]:
        return dict(self.server.hgetall(self.keys.ring, "places"))

    def displace(self) -> None:
        self.server.delete(self.keys.ring, "places")

    def order(self, node: str, value: bytes) -> None:
        self.server.hset(self.keys.ring, node, value, part="orders")

    def age_drained(self, node: str) -> None:
        expired = self.now() + LONG_AGO
        self.server.zadd(self.keys.ring, node.encode(), expired, part="drained")

    def set_epoch(self, value: bytes) -> None:
        self.server.set_epoch(self.keys.ring, value)

    def another_server(self) -> None:
        self.server.restore(self.server.copy())

    def forget_server(self) -> None:
        self.server.delete(self.keys.ring, "lock_server")

    def wipe(self) -> None:
        self.server.wipe()

    def publish(self, payload: bytes) -> None:
        self.server.publish(self.keys.channel, payload)

    def raw_events(self) -> list[Any]:
        return self.server.events(self.keys.ring)


class Listener:
    """A subscription to the ring's channel, and to those of nodes."""

    def __init__(self, place: Place, *nodes: str) -> None:
        self._place = place
        channels = {place.keys.node_channel(node): node for node in nodes}
        self._subscription: Subscription = place.store.subscribe(place.keys.channel, *channels)
        for _ in (place.keys.channel, *channels):
            while not isinstance(self._subscription.wait(PATIENCE), Subscribed):
                pass
        self._channels = channels
        self._marks = 0

    def payloads(self) -> list[bytes]:
        """What was told since the last call."""
        return [payload for node, payload in self._heard() if not node]

    def nearby(self) -> list[tuple[str, Nearby]]:
        """The nodes that were told of their ranges since the last call, and what."""
        heard = [(node, parse_nearby(payload)) for node, payload in self._heard() if node]
        return [(node, news) for node, news in heard if news is not None]

    def told_alone(self) -> list[tuple[str, bytes]]:
        """The nodes that were told anything alone since the last call, and what."""
        return [(node, payload) for node, payload in self._heard() if node]

    def _heard(self) -> Iterator[tuple[str, bytes]]:
        self._marks += 1
        mark = b"mark %d %d" % (id(self), self._marks)
        self._place.publish(mark)
        while True:
            notice = self._subscription.wait(PATIENCE)
            assert isinstance(notice, Message)
            if notice.payload == mark:
                return
            if not notice.payload.startswith(b"mark "):
                yield self._channels.get(notice.channel, ""), notice.payload

    def changes(self) -> list[RingChange]:
        """What was told since the last call, as changes."""
        return [parse_change(payload) for payload in self.payloads()]

    def close(self) -> None:
        self._subscription.close()
