"""Many nodes in a few processes, over real connections; and what Redis says they cost.

Nodes of ours are asyncio tasks, nodes of redis-hashring threads. Each node has connections of its
own: two of ours, two of redis-hashring's. What a node sees is noted when it does: nobody looks.

``time.perf_counter()`` is one clock for all processes of the machine (on Linux), so that times
taken in one process can be compared with those of another.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import random
import resource
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import psutil
import redis_hashring
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring import AsyncRingNode, RedisUnavailable
from hashring.store.embedded_server import RedisServer

PATIENCE = 120.0
"""Seconds after which nodes that do not agree count as a failure of the measure."""

MANY = 200
"""More nodes than that do not leave when all is done; their Redis ends, too."""
WAVE, NEWS = 10, 500
"""How many nodes a process starts at a time at most, and of how many joins its nodes may hear in
that time, all together."""


class Sight:
    """What the nodes of this process see: of how many nodes the ring is, and since when."""

    def __init__(self) -> None:
        self._seen: dict[Any, tuple[int, float]] = {}
        self._by_count: Counter[int] = Counter()
        self._lock = threading.Lock()

    def saw(self, node: Any) -> None:
        """A node has a new ring; called by the node, in whatever thread it lives."""
        at, count = time.perf_counter(), node.get_node_count()
        with self._lock:
            before = self._seen.get(node)
            if before is None or before[0] != count:
                self._seen[node] = (count, at)
                self._by_count[count] += 1
                if before is not None:
                    self._by_count[before[0]] -= 1

    def forget(self, node: Any) -> None:
        """A node is no more."""
        with self._lock:
            self._by_count[self._seen.pop(node)[0]] -= 1

    async def seen(self, count: int, nodes: int) -> list[float]:
        """When each of so many nodes came to see a ring of ``count``: now, or later."""
        began = time.perf_counter()
        while self._by_count[count] < nodes and time.perf_counter() < began + PATIENCE:
            await asyncio.sleep(0.0005)
        with self._lock:
            return [max(at, began) for number, at in self._seen.values() if number == count]


class WatchedNode(AsyncRingNode):
    """A node that says when readers see a new ring."""

    sight: Sight

    def _publish(self, lease: Any) -> None:
        before = self.ring
        super()._publish(lease)
        if self.ring is not before:
            self.sight.saw(self)


class TheirWatchedNode(redis_hashring.RingNode):
    """The same for redis-hashring's."""

    sight: Sight

    def update(self) -> None:
        super().update()
        self.sight.saw(self)


async def started(node: AsyncRingNode) -> None:
    """Start a node, again and again as a supervisor would; what failed is counted by the node.

    On a busy machine the event loop of hundreds of nodes may be late by a client's timeout.
    """
    while True:
        try:
            return await node.start()
        except RedisUnavailable:
            continue


class Ours:
    """Nodes of ours in this process, as asyncio tasks."""

    def __init__(self, url: str, ring: str, options: dict[str, Any]) -> None:
        self._client = AsyncRedis.from_url(url)
        self._ring, self._options = ring, options
        self.nodes: list[Any] = []
        self._sight = Sight()

    async def start(self, count: int) -> float:
        # They follow the ring, so that each can say when it saw a change.
        options = {"follow": True, **self._options}
        fresh = [WatchedNode(self._client, self._ring, **options) for _ in range(count)]
        for node in fresh:
            node.sight = self._sight
        began = time.perf_counter()
        await asyncio.gather(*(started(node) for node in fresh))
        self.nodes += fresh
        # A process that is one node has one ring: the garbage collector's rounds through those of
        # hundreds are not the nodes' cost.
        gc.freeze()
        return began

    async def stop_last(self) -> None:
        node = self.nodes.pop()
        await node.stop()
        self._sight.forget(node)

    async def halt(self, number: int) -> None:
        await self.nodes[number].stop()
        self._sight.forget(self.nodes[number])

    async def resume(self, number: int) -> None:
        await started(self.nodes[number])

    async def seen(self, count: int, nodes: int) -> list[float]:
        """When each of so many nodes, all that run, came to see a ring of ``count``."""
        return await self._sight.seen(count, nodes)

    async def failures(self) -> int:
        return sum(node._machine.counters.failures for node in self.nodes)

    async def views(self) -> list[tuple[str, int]]:
        """The rings that these nodes see: fingerprints, and how many nodes have them live."""
        live = [node.ring.fingerprint for node in self.nodes if node.state.value == "live"]
        return list(Counter(live).items())

    async def heartbeats(self) -> int:
        # Not by `status`, which reckons the shares of a whole ring for each node.
        return sum(node._machine.counters.heartbeats for node in self.nodes)

    async def cost(self) -> tuple[float, float]:
        """Seconds of CPU and bytes of memory of this process until now."""
        return cost_of_process()

    async def stop(self) -> None:
        for first in range(0, len(self.nodes), 50):
            await asyncio.gather(*(node.stop() for node in self.nodes[first : first + 50]))
        await self._client.aclose()


class Theirs:
    """Nodes of redis-hashring in this process, as threads."""

    def __init__(self, url: str, ring: str, options: dict[str, Any]) -> None:
        self._url, self._ring = url, ring
        self._interval = options.pop("heartbeat_interval", None)
        if self._interval is not None:
            redis_hashring.POLL_INTERVAL_SECONDS = self._interval
        self._options = options
        self.nodes: list[Any] = []
        self._sight = Sight()

    async def start(self, count: int) -> float:
        fresh = [
            TheirWatchedNode(Redis.from_url(self._url), self._ring, **self._options)
            for _ in range(count)
        ]
        began = time.perf_counter()
        for node in fresh:
            node.sight = self._sight
            # It tells nodes apart by host and process, and here a process has many.
            pid = random.randrange(10**9)
            node._replicas = [
                (point, ":".join([name.split(":")[0], str(pid), name.split(":")[2]]))
                for point, name in node._replicas
            ]
        # At once: started one by one, each has all before it fetch the ring.
        with ThreadPoolExecutor(max_workers=64) as pool:
            started = [pool.submit(node.start) for node in fresh]
            await asyncio.gather(*map(asyncio.wrap_future, started))
        self.nodes += fresh
        return began

    async def stop_last(self) -> None:
        node = self.nodes.pop()
        await asyncio.to_thread(node.stop)
        self._sight.forget(node)

    async def halt(self, number: int) -> None:
        await asyncio.to_thread(self.nodes[number].stop)
        self._sight.forget(self.nodes[number])

    async def resume(self, number: int) -> None:
        await asyncio.to_thread(self.nodes[number].start)

    seen = Ours.seen
    cost = Ours.cost

    async def heartbeats(self) -> int:
        """It does not count them: what its nodes have sent by the clock."""
        return round(len(self.nodes) * time.perf_counter() / (self._interval or 10.0))

    async def stop(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(node.stop) for node in self.nodes))


def more_files() -> None:
    """Let this process, and those it starts, open as many files as the system allows."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def cost_of_process() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, float(psutil.Process().memory_info().rss)


async def _serve(pipe: Connection, kind: type[Any], *args: Any) -> None:
    host = kind(*args)
    while True:
        try:
            name, values = await asyncio.to_thread(pipe.recv)
        except EOFError:
            return
        try:
            answer = await getattr(host, name)(*values)
        except Exception as error:  # noqa: BLE001 - told to the process that asked
            pipe.send((None, f"{type(error).__name__}: {error}"))
        else:
            pipe.send((answer, None))
        if name == "stop":
            return


def _process(pipe: Connection, kind: type[Any], *args: Any) -> None:
    more_files()
    asyncio.run(_serve(pipe, kind, *args))


class Fleet:
    """Nodes of one kind, spread over processes.

    Args:
        url: of their Redis.
        kind: :class:`Ours` or :class:`Theirs`.
        processes: how many.
        options: of each node.
    """

    def __init__(
        self, url: str, kind: type[Any], processes: int, ring: str = "bench", **options: Any
    ) -> None:
        context = multiprocessing.get_context("spawn")
        self._hosts: list[tuple[Any, Connection]] = []
        self.sizes = [0] * processes
        for _ in range(processes):
            ours, other = context.Pipe()
            process = context.Process(
                target=_process, args=(other, kind, url, ring, options), daemon=True
            )
            process.start()
            other.close()
            self._hosts.append((process, ours))

    @property
    def size(self) -> int:
        return sum(self.sizes)

    def ask(self, host: int, name: str, *values: Any) -> Any:
        """Call a method in one of the processes."""
        self._send(host, name, *values)
        return self._receive(host)

    def ask_all(self, name: str, *values: Any) -> list[Any]:
        """Call a method in all processes at once."""
        for host in range(len(self._hosts)):
            self._send(host, name, *values)
        return [self._receive(host) for host in range(len(self._hosts))]

    def _send(self, host: int, name: str, *values: Any) -> None:
        self._hosts[host][1].send((name, values))

    def _receive(self, host: int) -> Any:
        pipe = self._hosts[host][1]
        if not pipe.poll(2 * PATIENCE):
            raise TimeoutError("a process of the fleet does not answer")
        answer, error = pipe.recv()
        if error is not None:
            raise RuntimeError(error)
        return answer

    def start(self, count: int) -> None:
        """Start so many nodes, as many in each process; returns when all see all."""
        hosts = range(len(self._hosts))
        while count:
            # The next do not come before all have heard of these: each join is news for all who
            # are there, and a few processors that run hundreds of nodes would never catch up.
            wave = min(count, len(hosts) * max(1, min(WAVE, NEWS // (self.size + 1))))
            parts = [wave // len(hosts) + (host < wave % len(hosts)) for host in hosts]
            for host in hosts:
                self._send(host, "start", parts[host])
            for host in hosts:
                self._receive(host)
                self.sizes[host] += parts[host]
            self.agree()
            count -= wave

    def agree(self, count: int | None = None) -> list[float]:
        """When each node saw a ring of so many nodes (all, unless given)."""
        return self.agree_after(lambda: None, count)

    def agree_after(self, act: Callable[[], None], count: int | None = None) -> list[float]:
        """The same for a change that is made when all nodes are looking."""
        count = self.size if count is None else count
        for host, size in enumerate(self.sizes):
            self._send(host, "seen", count, size)
        act()
        times = [at for host in range(len(self._hosts)) for at in self._receive(host)]
        if len(times) < self.size:
            raise TimeoutError(f"only {len(times)} of {self.size} nodes saw {count} nodes")
        return times

    def restart(self, number: int) -> None:
        """Stop a node, wait until all others know, and start it again; returns when all know."""
        for host, size in enumerate(self.sizes):
            if number < size:
                self.ask(host, "halt", number)
                self.sizes[host] -= 1
                self.agree()
                self.ask(host, "resume", number)
                self.sizes[host] += 1
                self.agree()
                break
            number -= size

    def views(self) -> dict[str, int]:
        """The rings that nodes see: fingerprints, and how many live nodes see each. Of ours."""
        found: Counter[str] = Counter()
        for views in self.ask_all("views"):
            found.update(dict(views))
        return dict(found)

    def cost(self) -> tuple[float, float]:
        """Seconds of CPU and bytes of memory of the processes until now."""
        costs = self.ask_all("cost")
        return sum(cpu for cpu, _ in costs), sum(memory for _, memory in costs)

    def kill(self) -> float:
        """End the processes by SIGKILL; returns when that was."""
        at = time.perf_counter()
        for process, _ in self._hosts:
            process.kill()
        for process, _ in self._hosts:
            process.join()
        return at

    def close(self) -> None:
        if self.size > MANY:
            # So many that leave at once would be in each other's way for minutes.
            self.kill()
            return
        for process, pipe in self._hosts:
            if not process.is_alive():
                continue
            try:
                pipe.send(("stop", ()))
            except OSError:
                continue
            pipe.poll(PATIENCE)
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
            pipe.close()

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(frozen=True)
class Usage:
    """What Redis has done since it started, or between two moments.

    Attributes:
        sent, received: bytes out of and into Redis.
        scripts: how many scripts clients called.
        commands: all commands, those that scripts called included.
        cpu: seconds of CPU of the server.
    """

    sent: float
    received: float
    scripts: float
    commands: float
    cpu: float

    @classmethod
    def of(cls, client: Redis) -> Usage:
        stats, cpu, by_command = (client.info(part) for part in ("stats", "cpu", "commandstats"))
        return cls(
            stats["total_net_output_bytes"],
            stats["total_net_input_bytes"],
            sum(by_command.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in _SCRIPTS),
            sum(each["calls"] for each in by_command.values()),
            cpu["used_cpu_user"] + cpu["used_cpu_sys"],
        )

    def __sub__(self, before: Usage) -> Usage:
        return Usage(*(mine - old for mine, old in zip(self._all, before._all, strict=True)))

    def __mul__(self, factor: float) -> Usage:
        return Usage(*(each * factor for each in self._all))

    @property
    def _all(self) -> tuple[float, ...]:
        return self.sent, self.received, self.scripts, self.commands, self.cpu


_SCRIPTS = ("evalsha", "eval")


@contextmanager
def fleet_alone(
    kind: type[Any], processes: int, connections: int, options: dict[str, Any]
) -> Iterator[tuple[str, Redis, Fleet]]:
    """A fleet with no node yet on a Redis of its own: its URL, a client, the fleet.

    Args:
        connections: how many Redis takes.
        options: of each node.
    """
    more_files()
    with (
        RedisServer(config=(f"maxclients {connections}",)) as server,
        Redis.from_url(server.url) as client,
        Fleet(server.url, kind, processes, **options) as fleet,
    ):
        yield server.url, client, fleet
