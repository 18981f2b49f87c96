"""A thousand nodes on one Redis."""

from __future__ import annotations

import os
import time

import numpy as np
from fleet import Fleet, Ours, Theirs, Usage
from frame import Measure, Plot, Result, Run, median, quantile
from redis import Redis
from targets import SCALE

from hashring.store.embedded import RedisServer
from measures.ring_changes import KINDS, PROCESSES, joins_to, restart_in, rolling_restart

LONGEST_RESTART = 45.0
"""Seconds after which as many nodes as were restarted must do."""


def take(run: Run) -> Result:
    nodes, beat = (20, 1.0) if run.quick else (1000, 10.0)
    result = Result()
    sent, theirs = laws(run, result, nodes)
    run.say(f"{nodes:,} nodes start")
    with (
        RedisServer() as server,
        Redis.from_url(server.url) as client,
        Fleet(server.url, Ours, PROCESSES, ttl=6 * beat, heartbeat_interval=beat) as fleet,
    ):
        empty = fleet.cost()[1]
        began, before = time.perf_counter(), Usage.of(client)
        fleet.start(nodes)
        took, used = time.perf_counter() - began, Usage.of(client) - before
        grown = fleet.cost()[1] - empty
        result.add("the start of all, until all agree", f"{took:.1f} s")
        result.add(
            "the same: CPU of Redis; bytes out", f"{used.cpu:.2f} s; {used.sent / 1e6:.0f} MB"
        )
        result.add("memory of a node, as a task among many", f"{grown / nodes / 1e6:.2f} MB")
        result.add("memory of Redis", f"{client.info('memory')['used_memory'] / 1e6:.1f} MB")
        at_rest(run, fleet, client, 3 * beat, result)
        run.say("joins")
        each = joins_to(fleet, server.url, Ours, 1 if run.quick else 5)
        waits = [wait for join in each for wait in join]
        result.add(
            "a node sees a join: median; p99",
            f"{median(waits) * 1e3:.0f} ms; {quantile(waits, 0.99) * 1e3:.0f} ms",
        )
        run.say("restarts")
        used, done, took, cpu = restart_in(run, fleet, client, nodes, LONGEST_RESTART)
    if done < nodes:
        result.notes.append(
            f"{done} of {nodes:,} nodes were restarted, one of which costs as much as another; "
            f"the numbers of the rolling restart are those times {nodes / done:.3g}."
        )
    mine, all_ = used.sent / done, nodes / done
    result.add(
        "rolling restart: bytes out of Redis; redis-hashring's extrapolated",
        f"{mine * nodes / 1e9:,.2f} GB",
        f"{theirs * nodes / 1e9:,.0f} GB",
        value=mine / theirs,
        target="thousand-restart",
    )
    result.add("rolling restart: commands", f"{used.commands * all_:,.0f}")
    result.add("rolling restart: CPU of Redis", f"{used.cpu * all_:.1f} s")
    result.add("rolling restart: CPU of all nodes", f"{cpu * all_:.0f} s")
    result.add(f"rolling restart: time, all on {os.cpu_count()} cores", f"{took * all_:.0f} s")
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


def at_rest(run: Run, fleet: Fleet, client: Redis, seconds: float, result: Result) -> None:
    """What the heartbeats cost."""
    run.say(f"at rest for {seconds:g} s")
    time.sleep(1)
    cpu, _ = fleet.cost()
    beats, before = sum(fleet.ask_all("heartbeats")), Usage.of(client)
    began = time.perf_counter()
    time.sleep(seconds)
    used, took = Usage.of(client) - before, time.perf_counter() - began
    beats = sum(fleet.ask_all("heartbeats")) - beats
    cpu = fleet.cost()[0] - cpu
    result.add(
        f"at rest for {took:.0f} s, {beats:,} heartbeats: CPU of Redis",
        f"{used.cpu:.2f} s",
        value=used.cpu / took * 100,
        unit="%",
        target="thousand-steady",
    )
    result.add("at rest: calls to Redis a heartbeat", f"{used.scripts / beats:.2f}")
    result.add("at rest: bytes out of Redis a heartbeat", f"{used.sent / beats:.0f}")
    result.add("at rest: CPU of a node", f"{cpu / took / fleet.size * 100:.3f} % of a core")


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
        # A change is told to each node, and whoever fetches the ring gets all of it: the node
        # that joins, and of redis-hashring's every node.
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
    "A thousand nodes",
    "1,000 nodes x 16 replicas, ttl 60 s, heartbeat 10 s, on one Redis: their start, at rest,"
    " joins, and a rolling restart. The nodes are asyncio tasks of two processes, with two "
    "connections each. redis-hashring's bytes for the rolling restart would take hours to "
    "measure: they are extrapolated by the law fitted to its numbers at 20, 50 and 100 nodes."
    " On a machine of few cores, most of the time until all have seen a change is that of "
    "1,000 nodes taking turns.",
    240,
    take,
)
