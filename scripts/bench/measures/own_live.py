"""Live nodes that know only their own ranges, as many as one machine carries."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from fleet import Fleet, Ours, Usage, fleet_alone, started
from redis import Redis
from result import Measure, Result, Run
from targets import SCALE
from timing import median, quantile

from hashring import AsyncRingNode
from hashring.core.ring import Ring
from hashring.errors import RetryLater
from hashring.store.ring.key_names import ring_keys

SIZES = (1000, 5000)
PROCESSES = 4
TTL, HEARTBEAT = 60.0, 10.0
SHORT = {"ttl": 3.0, "heartbeat_interval": 1.0}
"""Of nodes that crash."""
AT_ONCE = 25
"""How many nodes a process starts at a time."""
JOINS, CRASHES, RESTARTS = 20, 3, 100
QUIET = 1.0
"""Seconds that a change has before all nodes are asked: to compare them with a ring of thousands of
nodes keeps their processes busy, and what came then would count as late."""
LOOK = 0.2
"""Seconds between two looks at whether all are right again after a wipe."""


class RangesNode(AsyncRingNode):
    """A node that notes when its ranges changed."""

    changed = 0.0

    def _publish(self, lease: Any) -> None:
        before = self.get_ranges()
        super()._publish(lease)
        if self.get_ranges() != before:
            self.changed = time.perf_counter()


class Neighbours(Ours):
    """Nodes in this process that know only their own ranges. All have names of their own."""

    def __init__(self, url: str, ring: str, options: dict[str, Any]) -> None:
        super().__init__(url, ring, options)
        # What fails is counted, and thousands report that Redis lost the ring.
        logging.getLogger("hashring").addHandler(logging.NullHandler())

    async def start(self, count: int) -> float:
        first = len(self.nodes)
        fresh = [
            RangesNode(
                self._client, self._ring, name=f"p{os.getpid()}-{first + at}", **self._options
            )
            for at in range(count)
        ]
        began = time.perf_counter()
        for at in range(0, count, AT_ONCE):
            await asyncio.gather(*map(started, fresh[at : at + AT_ONCE]))
        self.nodes += fresh
        gc.freeze()
        return began

    async def stop_last(self) -> None:
        await self.nodes.pop().stop()

    async def right(self, since: float) -> list[float]:
        """Wait until all nodes have the ranges that the ring gives them; when each of those whose
        ranges changed since then had its last change."""
        ring = await self._fetch_ring()
        wanted = [(node, ring.node_ranges(node.name)) for node in self.nodes]
        patience = time.perf_counter() + 3 * HEARTBEAT
        while any(node.get_ranges() != ranges for node, ranges in wanted):
            if time.perf_counter() > patience:
                raise TimeoutError("nodes have other ranges than the ring gives them")
            await asyncio.sleep(0.02)
        return [node.changed for node in self.nodes if node.changed > since]

    async def _fetch_ring(self) -> Ring:
        """The ring that Redis has, when this process finds the time to read it: after a wipe its
        event loop is busy with a thousand joins."""
        patience = time.perf_counter() + 3 * HEARTBEAT
        while True:
            try:
                return await self.nodes[0].fetch_ring()
            except RetryLater:
                if time.perf_counter() > patience:
                    raise

    async def restart_nodes(self, first: int, count: int, stay: bool) -> None:
        """Stop nodes, and start them again, one after another."""
        for at in range(first, first + count):
            old = self.nodes[at]
            await old.stop(stay=stay)
            node = RangesNode(self._client, self._ring, name=old.name, **self._options)
            await started(node)
            self.nodes[at] = node


def take(run: Run) -> Result:
    result = Result()
    for nodes in (40,) if run.quick else SIZES:
        with live(run, nodes, result) as (url, client, fleet):
            joins(run, nodes, fleet, url, result)
            crashes(run, nodes, fleet, url, result)
            rest(run, nodes, fleet, client, result)
            restarts(run, nodes, fleet, client, result)
            wipe(run, nodes, fleet, client, result)
            failed = sum(fleet.ask_all("failures"))
            result.add(f"{nodes:,} nodes: calls to Redis that failed, of all nodes", f"{failed}")
    return result


@contextmanager
def live(run: Run, nodes: int, result: Result) -> Iterator[tuple[str, Redis, Fleet]]:
    """Live nodes on a Redis of their own; its URL, a client, the nodes."""
    options = {"ttl": TTL, "heartbeat_interval": HEARTBEAT}
    with fleet_alone(Neighbours, PROCESSES, 2 * nodes + 2000, options) as (url, client, fleet):
        run.say(f"starting {nodes:,} live nodes in {PROCESSES} processes")
        empty, began = fleet.cost()[1], time.perf_counter()
        while fleet.size < nodes:
            part = min(250, max(1, (nodes - fleet.size) // PROCESSES))
            fleet.ask_all("start", part)
            fleet.sizes = [size + part for size in fleet.sizes]
        fleet.ask_all("right", 0.0)
        took = time.perf_counter() - began
        memory = (fleet.cost()[1] - empty) / nodes
        result.add(f"{nodes:,} nodes started, until all have their ranges", f"{took:.0f} s")
        result.add(f"{nodes:,} nodes: memory a node, connections and all", f"{memory / 1e3:.0f} kB")
        result.values |= {f"live-memory-{nodes}": memory, f"live-start-{nodes}": took}
        yield url, client, fleet


def waits(fleet: Fleet, began: float) -> list[float]:
    """Seconds from then until each node whose ranges changed had the new ones."""
    return [at - began for times in fleet.ask_all("right", began) for at in times]


def joins(run: Run, nodes: int, fleet: Fleet, url: str, result: Result) -> None:
    run.say(f"{JOINS} joins")
    found: list[float] = []
    options = {"ttl": TTL, "heartbeat_interval": HEARTBEAT}
    with Fleet(url, Neighbours, 1, **options) as joiner:
        joiner.ask(0, "start", 1)
        for _ in range(3 if run.quick else JOINS):
            time.sleep(0.1)
            began = joiner.ask(0, "start", 1)
            time.sleep(QUIET)
            found += waits(fleet, began)
        for _ in range(4 if run.quick else JOINS + 1):
            joiner.ask(0, "stop_last")
    p99 = quantile(found, 0.99)
    result.add(
        f"{nodes:,} nodes: a join is seen by a node that it concerns, median; p99 of {len(found)}",
        f"{median(found) * 1e3:.0f} ms; {p99 * 1e3:.0f} ms",
    )
    result.values[f"live-join-{nodes}"] = p99


def crashes(run: Run, nodes: int, fleet: Fleet, url: str, result: Result) -> None:
    run.say(f"{CRASHES} crashes")
    last: list[float] = []
    for _ in range(1 if run.quick else CRASHES):
        with Fleet(url, Neighbours, 1, **SHORT) as victim:
            victim.ask(0, "start", 1)
            fleet.ask_all("right", 0.0)
            killed = victim.kill()
        # Until the latest moment at which its keys may have owners again.
        time.sleep(sum(SHORT.values()) + QUIET)
        deadline = time.perf_counter() + 2 * HEARTBEAT
        while not (found := waits(fleet, killed)) and time.perf_counter() < deadline:
            time.sleep(LOOK)
        if not found:
            raise TimeoutError("nobody took over from a node that crashed")
        last.append(max(found))
    limit = sum(SHORT.values())
    result.add(
        f"{nodes:,} nodes: a crash, ttl {SHORT['ttl']:g} s: its keys have owners again, at most",
        f"{max(last):.1f} s",
        f"{limit:g} s",
        value=max(last) / limit,
    )
    result.values[f"live-crash-{nodes}"] = max(last) / limit


def rest(run: Run, nodes: int, fleet: Fleet, client: Redis, result: Result) -> None:
    seconds = 2.0 if run.quick else 20.0
    run.say(f"at rest for {seconds:g} s")
    before, cpu, began = Usage.of(client), fleet.cost()[0], time.perf_counter()
    time.sleep(seconds)
    used, took = Usage.of(client) - before, time.perf_counter() - began
    cpu = (fleet.cost()[0] - cpu) / took / nodes
    result.add(
        f"{nodes:,} nodes at rest: CPU of Redis; of a node",
        f"{100 * used.cpu / took:.1f} %; {100 * cpu:.3f} %",
    )
    result.values |= {f"live-rest-{nodes}": used.cpu / took, f"live-node-{nodes}": cpu}


def restarts(run: Run, nodes: int, fleet: Fleet, client: Redis, result: Result) -> None:
    """Some nodes are stopped and started, one after another in each process."""
    count = (8 if run.quick else RESTARTS) // PROCESSES
    for stay, name in ((False, "rolling restart"), (True, "rolling restart in place")):
        run.say(f"{name} of {count * PROCESSES} nodes")
        epoch = client.get(ring_keys("bench").epoch)
        before, cpu, began = Usage.of(client), fleet.cost()[0], time.perf_counter()
        for host in range(PROCESSES):
            fleet.ask(host, "restart_nodes", 0, count, stay)
        used, took = Usage.of(client) - before, time.perf_counter() - began
        cpu = fleet.cost()[0] - cpu
        # What heartbeats took meanwhile is not the restarts'.
        idle = result.values[f"live-rest-{nodes}"] * took
        rest_of_nodes = result.values[f"live-node-{nodes}"] * nodes * took
        times = nodes / (count * PROCESSES)
        changed = client.get(ring_keys("bench").epoch) != epoch
        if stay and changed:
            raise RuntimeError("a restart in place changed the ring")
        fleet.ask_all("right", 0.0)
        redis, sent = max(0.0, used.cpu - idle) * times, used.sent * times
        result.add(
            f"{nodes:,} nodes, {name}, {times:g} x that of {count * PROCESSES}: CPU of Redis, "
            "bytes out; CPU of the nodes",
            f"{redis:.1f} s, {sent / 1e6:,.1f} MB; {max(0.0, cpu - rest_of_nodes) * times:.0f} s",
        )
        kind = "stay" if stay else "restart"
        result.values |= {f"live-{kind}-{nodes}": redis, f"live-{kind}-bytes-{nodes}": sent}


def wipe(run: Run, nodes: int, fleet: Fleet, client: Redis, result: Result) -> None:
    run.say("FLUSHALL")
    before, cpu, began = Usage.of(client), fleet.cost()[0], time.perf_counter()
    client.flushall()
    while client.zcard(ring_keys("bench").ring) < 16 * nodes:
        if time.perf_counter() > began + 6 * HEARTBEAT:
            raise TimeoutError("not all nodes came back")
        time.sleep(LOOK)
    fleet.ask_all("right", 0.0)
    took = time.perf_counter() - began
    used, cpu = Usage.of(client) - before, fleet.cost()[0] - cpu
    result.add(
        f"{nodes:,} nodes after FLUSHALL: all right again; CPU of Redis, of all nodes",
        f"{took:.1f} s; {used.cpu:.1f} s, {cpu:.0f} s",
        f"{2 * HEARTBEAT:g} s",
        value=took / (2 * HEARTBEAT),
    )
    result.values |= {f"live-wipe-{nodes}": took, f"live-wipe-cpu-{nodes}": used.cpu}


MEASURE = Measure(
    "own-live",
    SCALE,
    "Live nodes that know only their own ranges",
    f"Nodes x 16 replicas, ttl {TTL:g} s, heartbeat {HEARTBEAT:g} s, on one Redis: asyncio tasks "
    f"of {PROCESSES} processes, every node with a protocol and two connections of its own. A join "
    "is counted from the call of ``start()`` until each node whose ranges it changes has the new "
    "ones. Of the rolling restarts the CPU that heartbeats take at rest is taken off.",
    240,
    take,
)
