"""A thousand live nodes on one Redis."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from fleet import Fleet, Ours, Theirs, Usage, fleet_alone
from redis import Redis
from result import Measure, Plot, Result, Run
from targets import SCALE
from timing import median, quantile

from measures.ring_changes import KINDS, PROCESSES, joins_to, rolling_restart

TTL, HEARTBEAT = 60.0, 10.0
JOINS = 10
RESTARTS = 100
"""How many nodes of the rolling restart are restarted; one costs as much as another."""


@contextmanager
def started(run: Run, nodes: int, result: Result) -> Iterator[tuple[str, Redis, Fleet]]:
    """Live nodes on a Redis of their own; its URL, a client, the nodes."""
    # Two connections a node, and those of a moment.
    connections = 4 * nodes + 1000
    options = {"ttl": TTL, "heartbeat_interval": HEARTBEAT}
    with fleet_alone(Ours, PROCESSES, connections, options) as (url, client, fleet):
        run.say(f"starting {nodes:,} live nodes, {PROCESSES} processes")
        empty, began = fleet.cost()[1], time.perf_counter()
        fleet.start(nodes)
        took = time.perf_counter() - began
        memory = client.info("memory")["used_memory"] / 1e6
        connected = client.info("clients")["connected_clients"]
        result.add(f"{nodes:,} nodes started, a few at a time, until all see all", f"{took:.0f} s")
        result.add("connections; memory of Redis", f"{connected:,}; {memory:.0f} MB")
        result.add("memory a node", f"{(fleet.cost()[1] - empty) / nodes / 1e6:.2f} MB")
        yield url, client, fleet


def take(run: Run) -> Result:
    nodes = 20 if run.quick else 1000
    result = Result()
    sent, theirs = laws(run, result, nodes)
    with started(run, nodes, result) as (url, client, fleet):
        join(run, fleet, url, result)
        rest(run, fleet, client, result)
        mine = restart(run, fleet, client, theirs, result)
        views = fleet.views()
        if list(views.values()) != [nodes]:
            raise RuntimeError(f"the nodes do not agree: {views}")
        result.add("afterwards: live nodes that see one and the same ring", f"{nodes:,}")
        failed = sum(fleet.ask_all("failures"))
        result.add("calls to Redis that failed, of all nodes since they started", f"{failed}")
    sent["hashring"].append((nodes, mine))
    sent["redis-hashring, extrapolated"] = [sent["redis-hashring"][-1], (nodes, theirs)]
    if not run.quick:
        result.plots.append(
            Plot(
                "restart",
                "Bytes out of Redis for the restart of one node",
                "nodes on the ring",
                "bytes",
                {name: [(x, round(y)) for x, y in points] for name, points in sent.items()},
                log_x=True,
                log_y=True,
            )
        )
    return result


def join(run: Run, fleet: Fleet, url: str, result: Result) -> None:
    """Nodes of another process join, one after another."""
    joins = 2 if run.quick else JOINS
    run.say(f"{joins} joins")
    each = joins_to(fleet, url, Ours, joins, ttl=TTL, heartbeat_interval=HEARTBEAT)
    waits = [wait for join in each for wait in join]
    result.add(
        f"{joins} joins: a node sees it, median; p99 of {len(waits):,}",
        f"{median(waits) * 1e3:.0f} ms; {quantile(waits, 0.99) * 1e3:.0f} ms",
    )
    result.add(
        f"{joins} joins: all have seen it, median; the slowest",
        f"{median([max(join) for join in each]) * 1e3:.0f} ms; {max(waits) * 1e3:.0f} ms",
    )


def rest(run: Run, fleet: Fleet, client: Redis, result: Result) -> None:
    """Nothing happens but heartbeats."""
    seconds = 3.0 if run.quick else 40.0
    run.say(f"at rest for {seconds:g} s")
    time.sleep(1)
    before, cpu, beats = Usage.of(client), fleet.cost()[0], sum(fleet.ask_all("heartbeats"))
    began = time.perf_counter()
    time.sleep(seconds)
    used, took = Usage.of(client) - before, time.perf_counter() - began
    beats = max(1, sum(fleet.ask_all("heartbeats")) - beats)
    cpu = fleet.cost()[0] - cpu
    result.add(
        f"at rest for {took:.0f} s, {beats:,} heartbeats: CPU of Redis",
        f"{used.cpu:.2f} s",
        value=used.cpu / took * 100,
        unit="%",
        target="thousand-steady",
    )
    result.add("at rest: bytes out of Redis a heartbeat", f"{used.sent / beats:.0f}")
    result.add("at rest: CPU of the nodes", f"{cpu:.1f} s", value=cpu / took * 100, unit="%")


def restart(run: Run, fleet: Fleet, client: Redis, theirs: float, result: Result) -> float:
    """Nodes are stopped and started again, one by one; bytes out of Redis for each."""
    nodes = fleet.size
    restarts = min(nodes, RESTARTS)
    run.say(f"{restarts:,} restarts")
    before, cpu, began = Usage.of(client), fleet.cost()[0], time.perf_counter()
    for number in range(restarts):
        fleet.restart(number)
        if number % 50 == 49:
            run.say(f"  {number + 1} of {restarts:,}, {time.perf_counter() - began:.0f} s")
    used, took = Usage.of(client) - before, time.perf_counter() - began
    cpu = fleet.cost()[0] - cpu
    mine = used.sent / restarts
    times = nodes / restarts
    of_all = "" if restarts == nodes else f", {times:g} x those of {restarts:,} of them"
    result.add(
        f"rolling restart{of_all}: bytes out of Redis; redis-hashring's extrapolated",
        f"{mine * nodes / 1e9:,.2f} GB",
        f"{theirs * nodes / 1e9:,.0f} GB",
        value=mine / theirs,
        target="thousand-restart",
    )
    for what, value in (
        ("bytes into Redis", f"{used.received * times / 1e6:,.1f} MB"),
        ("commands, those inside scripts included", f"{used.commands * times:,.0f}"),
        ("CPU of Redis", f"{used.cpu * times:,.1f} s"),
        ("CPU of the nodes", f"{cpu * times:,.0f} s"),
        ("time it took", f"{took * times:,.0f} s"),
    ):
        result.add(f"rolling restart{of_all}: {what}", value)
    return mine


def laws(
    run: Run, result: Result, nodes: int
) -> tuple[dict[str, list[tuple[float, float]]], float]:
    """Bytes per restarted node at several sizes, of both; and redis-hashring's at so many nodes."""
    sizes, few = ((5, 10), 2) if run.quick else ((20, 50, 100), 3)
    sent: dict[str, list[tuple[float, float]]] = {}
    theirs = 0.0
    for name, kind in KINDS.items():
        sent[name] = []
        for size in sizes:
            run.say(f"{few} restarts among {size} nodes of {name}")
            used, _, _ = rolling_restart(run, kind, size, few)
            sent[name].append((size, used.sent / few))
        # Each node gets the message of a change, and a node that fetches the ring gets all of it:
        # the node that joins, and of redis-hashring's every node.
        powers = (1, 2) if kind is Theirs else (0, 1)
        law = _fit(sent[name], powers)
        if kind is Theirs:
            theirs = float(law @ [nodes**power for power in powers])
        result.notes.append(
            f"Bytes out of Redis for one restart among n nodes of {name}: "
            + " + ".join(
                f"{factor:,.0f}" + ("", " n", " n²")[power]
                for factor, power in zip(law, powers, strict=True)
            )
            + f" (fitted at {', '.join(map(str, sizes))})."
        )
    return sent, theirs


def _fit(points: list[tuple[float, float]], powers: tuple[int, ...]) -> np.ndarray:
    """Least squares of relative errors: the small ones count as much as the large ones."""
    count, values = np.array(points).T
    terms = np.stack([count**power for power in powers], axis=1)
    return np.linalg.lstsq(terms / values[:, None], np.ones(len(values)), rcond=None)[0]


MEASURE = Measure(
    "thousand",
    SCALE,
    "A thousand live nodes",
    "1,000 nodes x 16 replicas, ttl 60 s, heartbeat 10 s, on one Redis. All are live: asyncio "
    "tasks of two processes, 500 in each, every node with a protocol, a ring and two connections "
    "of its own. Joins come from a third process, one after another, counted from the call of "
    "``start()``; then a time at rest; then nodes are stopped and started again one by one, each "
    "step when all others know of the one before; what is counted there holds the heartbeats that "
    "all made meanwhile. Most of the time that a change takes is the "
    "nodes': two cores hear of it 1,000 times and make 1,000 rings of it, where a fleet has a "
    "core or so for each node. redis-hashring would take hours: its bytes are extrapolated by the "
    "law fitted to what it takes at 20, 50 and 100 nodes.",
    400,
    take,
)
