"""Redis under the load of very many nodes, without running those nodes.

A crowd is the replicas of its nodes in Redis, put there by the nodes' own commands, and as many
subscriptions, held by processes that read what comes and do nothing with it. So Redis does all
of its work, and this machine's few cores need not do that of the nodes.
"""

from __future__ import annotations

import multiprocessing
import random
import selectors
import socket
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from redis import Redis

from hashring.core.own_ranges import OwnRanges
from hashring.core.replica import Replica
from hashring.store.embedded_server import RedisServer
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import BeatStatus, LeaveStatus, Scoring, beat, leave, park
from hashring.store.ring.key_names import ring_keys

KEYS = ring_keys("crowd")
SCORING = Scoring.expiry(600.0)
FINGERPRINT = "0123456789abcdef"


def _listen(pipe: Connection, path: str, count: int) -> None:
    """Hold so many subscriptions, and count the bytes that come."""
    ready = selectors.DefaultSelector()
    ready.register(pipe, selectors.EVENT_READ)
    name = KEYS.channel
    subscribe = b"*2\r\n$9\r\nSUBSCRIBE\r\n$%d\r\n%s\r\n" % (len(name), name)
    for _ in range(count):
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(path)
        connection.sendall(subscribe)
        connection.recv(1024)
        ready.register(connection, selectors.EVENT_READ)
    pipe.send(count)
    while True:
        for key, _ in ready.select():
            if key.fileobj is pipe:
                return
            key.fileobj.recv(65536)


class Crowd:
    """So many nodes of 16 replicas on a Redis.

    Args:
        path: the server's socket.
        own: whether they know only their own ranges, or follow the whole ring.
        scoring: what the scores on the ring mean.
    """

    def __init__(
        self,
        client: Redis,
        path: Path,
        nodes: int,
        *,
        own: bool = False,
        scoring: Scoring = SCORING,
    ) -> None:
        self._client = client
        self._own = own
        self._scoring = scoring
        self._digests: dict[int, str] = {}
        self._ranges: dict[int, str] = {}
        self._tag = ""
        # How many times each node has stopped: every process of a name is another session.
        self._stops: Counter[int] = Counter()
        self.store = RedisStore(client, 60.0)
        self._path = path
        rng = random.Random(nodes)
        self.nodes = [
            (
                name := f"host-{number:05d}:4711",
                [
                    Replica(rng.randrange(2**32), name, f"{rng.randrange(2**32):08x}")
                    for _ in range(16)
                ],
            )
            for number in range(nodes)
        ]
        self._listeners: list[tuple[Any, Connection]] = []

    def _session(self, number: int) -> str:
        return f"{self._stops[number]:08x}{number:08x}"

    def beat(
        self, number: int, *, joining: bool = False, back: bool = False, fetch: bool = False
    ) -> None:
        """A heartbeat of one of the nodes.

        Raises:
            RuntimeError: it changed nothing.
        """
        name, replicas = self.nodes[number]
        told = {
            "host": name.partition(":")[0],
            "pid": 4711,
            "weight": 1.0,
            "hash_algorithm": "crc-32",
            "named": False,
            "ttl": 60.0,
        }
        if self._own:
            told["ranges"] = FINGERPRINT
        else:
            told["sees"] = {"tag": FINGERPRINT, "fingerprint": FINGERPRINT}
        reply = self.store.run(
            beat(
                KEYS,
                node=name,
                session=self._session(number),
                scoring=self._scoring,
                replicas=() if back else replicas,
                told=told,
                joining=joining,
                back=back,
                fetch=fetch,
                digest=self._digests.get(number, "") if self._own else None,
            )
        )
        if reply.status is not BeatStatus.OK:
            raise RuntimeError(f"a heartbeat that is {reply.status.value} measures nothing")
        if reply.ranges is not None:
            near = OwnRanges(name, reply.ranges)
            self._digests[number], self._ranges[number] = near.digest, near.text
        self._tag = reply.stamp.tag

    def leave(self, number: int) -> None:
        """One of the nodes leaves."""
        name, replicas = self.nodes[number]
        session = self._session(number)
        status = self.store.run(leave(KEYS, node=name, session=session, replicas=replicas))
        self._stopped(number, status)

    def stay(self, number: int) -> None:
        """One of the nodes stops to come back."""
        name, replicas = self.nodes[number]
        command = park(
            KEYS,
            node=name,
            session=self._session(number),
            scoring=self._scoring,
            replicas=replicas,
            told=(self._tag, self._ranges.get(number, "")),
        )
        self._stopped(number, self.store.run(command))

    def _stopped(self, number: int, status: LeaveStatus) -> None:
        if status is not LeaveStatus.OK:
            raise RuntimeError(f"a node that is {status.value} leaves nothing")
        self._stops[number] += 1

    def back(self, number: int) -> None:
        """One that did so is back."""
        self.beat(number, joining=True, back=True)

    def join_all(self) -> None:
        for number in range(len(self.nodes)):
            self.beat(number, joining=True)

    def put_all(self) -> None:
        """Put all on the ring as their joins would, but quickly: the first one joins itself."""
        self.beat(0, joining=True)
        first, replicas = self.nodes[0]
        entry = self._client.hget(KEYS.nodes, first)
        anchor, session = replicas[0].member, self._session(0).encode()
        expires = time.time() + 86400
        for at in range(1, len(self.nodes), 1000):
            with self._client.pipeline(transaction=False) as pipe:
                for number, (name, own) in enumerate(self.nodes[at : at + 1000], at):
                    told = entry.replace(anchor, own[0].member)
                    told = told.replace(session, self._session(number).encode())
                    told = told.replace(first.partition(":")[0].encode(), name[:-5].encode())
                    pipe.hset(KEYS.nodes, name, told)
                    pipe.hset(KEYS.places, name, " ".join(str(each.point) for each in own))
                    pipe.zadd(KEYS.ring, dict.fromkeys((each.member for each in own), expires))
                    if not self._scoring.lag:
                        pipe.zadd(KEYS.points, {each.member: each.point for each in own})
                pipe.execute()

    def expire(self, number: int) -> None:
        """Let a node's lease have ended, as if it had crashed a while ago."""
        _, replicas = self.nodes[number]
        ended = dict.fromkeys((each.member for each in replicas), time.time() - 1.0)
        self._client.zadd(KEYS.ring, ended, xx=True)

    def listen(self, count: int) -> None:
        """Let so many of the nodes listen, from two processes."""
        context = multiprocessing.get_context("spawn")
        for half in (count // 2, count - count // 2):
            ours, other = context.Pipe()
            process = context.Process(
                target=_listen, args=(other, str(self._path), half), daemon=True
            )
            process.start()
            other.close()
            self._listeners.append((process, ours))
        for _, pipe in self._listeners:
            pipe.recv()

    def close(self) -> None:
        for process, pipe in self._listeners:
            pipe.send("end")
            process.join(10)
            pipe.close()
        self._listeners.clear()

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextmanager
def crowd_of(
    nodes: int, *, own: bool = False, scoring: Scoring = SCORING
) -> Iterator[tuple[Crowd, Redis]]:
    """A crowd that is not on the ring yet, on a Redis of its own."""
    with (
        RedisServer(config=("maxclients 12000",)) as server,
        Redis(unix_socket_path=str(server.socket)) as client,
        Crowd(client, server.socket, nodes, own=own, scoring=scoring) as crowd,
    ):
        yield crowd, client


def cpu_of(client: Redis) -> float:
    """Seconds of CPU of the server until now, once it has nothing left to do."""
    last = -1.0
    while True:
        found = client.info("cpu")
        used = float(found["used_cpu_user"] + found["used_cpu_sys"])
        if used - last < 0.002:
            return used
        last = used
        time.sleep(0.02)
