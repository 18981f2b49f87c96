"""Many nodes in a few processes, over real connections; and what Redis says they cost.

Nodes of ours are asyncio tasks, nodes of redis-hashring threads. Each node has connections of its
own: two of ours, two of redis-hashring's.

``time.perf_counter()`` is one clock for all processes of the machine (on Linux), so that times
taken in one process can be compared with those of another.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import resource
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, Self

import psutil
import redis_hashring
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring import AsyncRingNode

PATIENCE = 120.0
"""Seconds after which nodes that do not agree count as a failure of the measure."""


class Ours:
    """Nodes of ours in this process, as asyncio tasks."""

    def __init__(self, url: str, ring: str, options: dict[str, Any]) -> None:
        self._client = AsyncRedis.from_url(url)
        self._ring, self._options = ring, options
        self.nodes: list[Any] = []

    async def start(self, count: int) -> float:
        fresh = [AsyncRingNode(self._client, self._ring, **self._options) for _ in range(count)]
        began = time.perf_counter()
        # A few at a time: each join is news for all who are there, on this one event loop.
        for first in range(0, count, 10):
            await asyncio.gather(*(node.start() for node in fresh[first : first + 10]))
        self.nodes += fresh
        return began

    async def stop_last(self) -> None:
        await self.nodes.pop().stop()

    async def restart(self, number: int) -> None:
        await self.nodes[number].stop()
        await self.nodes[number].start()

    async def seen(self, count: int) -> list[float]:
        """When each node saw a ring of so many nodes for the first time from now on."""
        found: list[float] = []
        waiting = self.nodes
        end = time.perf_counter() + PATIENCE
        while waiting and time.perf_counter() < end:
            still = []
            for node in waiting:
                if node.get_node_count() == count:
                    found.append(time.perf_counter())
                else:
                    still.append(node)
            waiting = still
            if waiting:
                await asyncio.sleep(0.0005)
        return found

    async def heartbeats(self) -> int:
        return sum(node.status.heartbeats for node in self.nodes)

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

    async def start(self, count: int) -> float:
        fresh = [
            redis_hashring.RingNode(Redis.from_url(self._url), self._ring, **self._options)
            for _ in range(count)
        ]
        began = time.perf_counter()
        for node in fresh:
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
        await asyncio.to_thread(self.nodes.pop().stop)

    async def restart(self, number: int) -> None:
        await asyncio.to_thread(self.nodes[number].stop)
        await asyncio.to_thread(self.nodes[number].start)

    seen = Ours.seen
    cost = Ours.cost

    async def heartbeats(self) -> int:
        """It does not count them: what its nodes have sent by the clock."""
        return round(len(self.nodes) * time.perf_counter() / (self._interval or 10.0))

    async def stop(self) -> None:
        await asyncio.gather(*(asyncio.to_thread(node.stop) for node in self.nodes))


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
        for host in range(len(self._hosts)):
            part = count // len(self._hosts) + (host < count % len(self._hosts))
            self.ask(host, "start", part)
            self.sizes[host] += part
        self.agree()

    def agree(self, count: int | None = None) -> list[float]:
        """When each node saw a ring of so many nodes (all, unless given)."""
        return self.agree_after(lambda: None, count)

    def agree_after(self, act: Callable[[], None], count: int | None = None) -> list[float]:
        """The same for a change that is made when all nodes are looking."""
        count = self.size if count is None else count
        for host in range(len(self._hosts)):
            self._send(host, "seen", count)
        act()
        times = [at for host in range(len(self._hosts)) for at in self._receive(host)]
        if len(times) < self.size:
            raise TimeoutError(f"only {len(times)} of {self.size} nodes saw {count} nodes")
        return times

    def restart(self, number: int) -> None:
        """Stop a node and start it again; returns when all see all."""
        for host, size in enumerate(self.sizes):
            if number < size:
                self.ask(host, "restart", number)
                break
            number -= size
        self.agree()

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

    def __enter__(self) -> Self:
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
