"""A thousand nodes on one Redis."""

from __future__ import annotations

import os
import time

import numpy as np
from fleet import Fleet, Ours, Theirs, Usage
from frame import Measure, Plot, Result, Run
from redis import Redis
from targets import SCALE

from hashring.store.embedded import RedisServer
from measures.ring_changes import KINDS, PROCESSES, rolling_restart


def take_steady(run: Run) -> Result:
    nodes, beat, seconds = (20, 1.0, 3.0) if run.quick else (1000, 10.0, 40.0)
    result = Result()
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
        result.add(
            f"{nodes:,} nodes started, until all agree; CPU of Redis",
            f"{took:.1f} s; {used.cpu:.2f} s",
        )
        grown = fleet.cost()[1] - empty
        time.sleep(1)
        run.say(f"at rest for {seconds:g} s")
        cpu, _ = fleet.cost()
        beats, before = sum(fleet.ask_all("heartbeats")), Usage.of(client)
        began = time.perf_counter()
        time.sleep(seconds)
        used, took = Usage.of(client) - before, time.perf_counter() - began
        beats = sum(fleet.ask_all("heartbeats")) - beats
        cpu = fleet.cost()[0] - cpu
        memory = client.info("memory")["used_memory"]
    result.add(
        f"{nodes:,} nodes x 16 at rest for {took:.0f} s, {beats:,} heartbeats: CPU of Redis",
        f"{used.cpu:.2f} s",
        value=used.cpu / took * 100,
        unit="%",
        target="thousand-steady",
    )
    result.add("calls to Redis a heartbeat", f"{used.scripts / beats:.2f}")
    result.add("bytes out of Redis a heartbeat", f"{used.sent / beats:.0f}")
    result.add("CPU of a node's process, a node", f"{cpu / took / nodes * 100:.3f} % of a core")
    result.add("memory of a node, as a task among many", f"{grown / nodes / 1e6:.2f} MB")
    result.add("memory of Redis", f"{memory / 1e6:.1f} MB")
    return result


def take_restart(run: Run) -> Result:
    """Bytes per restarted node against nodes, for both; ours at 1,000 as well."""
    sizes, few, most = ((5, 10), 2, 10) if run.quick else ((20, 50, 100), 8, 1000)
    result = Result()
    each: dict[str, list[tuple[float, float]]] = {}
    laws: dict[str, np.ndarray] = {}
    for name, kind in KINDS.items():
        each[name] = []
        for nodes in sizes:
            run.say(f"{few} of {nodes} nodes of {name}")
            used, done, _, _ = rolling_restart(run, kind, nodes, few)
            each[name].append((nodes, used.sent / done))
        # Each of the nodes hears of a change (a term in n); whoever fetches the ring gets all of
        # it: the node that joins (in n), and of redis-hashring's every node (in n squared).
        powers = (1, 2) if kind is Theirs else (0, 1)
        count, sent = np.array(each[name]).T
        laws[name] = _fit(count, sent, powers)
        result.notes.append(
            f"Bytes out of Redis for one restart among n nodes of {name}: "
            + " + ".join(
                f"{factor:,.0f}" + ("", " n", " n²")[power]
                for factor, power in zip(laws[name], powers, strict=True)
            )
            + f" (fitted at {', '.join(map(str, sizes))})."
        )
    run.say(f"{most:,} nodes of hashring")
    used, done, took, cpu = rolling_restart(run, Ours, most, most)
    mine = used.sent / done
    each["hashring"].append((most, mine))
    theirs = float(laws["redis-hashring"] @ [most, most**2])
    result.add(
        f"{most:,} nodes x 16: bytes out of Redis for a rolling restart; redis-hashring's "
        "extrapolated",
        f"{mine * most / 1e9:,.2f} GB",
        f"{theirs * most / 1e9:,.0f} GB",
        value=mine / theirs,
        target="thousand-restart",
    )
    result.add(
        f"{most:,} nodes x 16: the same, ours by its law",
        f"{float(laws['hashring'] @ [1, most]) * most / 1e9:,.2f} GB",
    )
    result.add(f"{most:,} nodes x 16: commands", f"{used.commands * most / done:,.0f}")
    result.add(f"{most:,} nodes x 16: CPU of Redis", f"{used.cpu * most / done:.1f} s")
    result.add(
        f"{most:,} nodes x 16: time, with all {most:,} nodes on {os.cpu_count()} cores",
        f"{took * most / done:.0f} s",
    )
    result.add(f"{most:,} nodes x 16: CPU of all nodes", f"{cpu * most / done:.0f} s")
    if done < most:
        result.notes.append(
            f"{done} of {most:,} nodes were restarted in the time there was; the numbers of all "
            f"are those times {most / done:.2f}."
        )
    if not run.quick:
        each["redis-hashring, extrapolated"] = [each["redis-hashring"][-1], (most, theirs)]
        result.plots.append(
            Plot(
                "restart",
                "Bytes out of Redis for the restart of one node",
                "nodes on the ring",
                "bytes",
                {name: [(x, round(y)) for x, y in points] for name, points in each.items()},
                log_x=True,
                log_y=True,
            )
        )
    return result


def _fit(count: np.ndarray, values: np.ndarray, powers: tuple[int, ...]) -> np.ndarray:
    """Least squares of relative errors: the small ones count as much as the large ones."""
    terms = np.stack([count**power for power in powers], axis=1)
    return np.linalg.lstsq(terms / values[:, None], np.ones(len(values)), rcond=None)[0]


MEASURES = (
    Measure(
        "thousand",
        SCALE,
        "A thousand nodes at rest",
        "1,000 nodes x 16 replicas, ttl 60 s, heartbeat 10 s, on one Redis; the nodes are asyncio "
        "tasks of two processes, with two connections each.",
        110,
        take_steady,
    ),
    Measure(
        "thousand-restart",
        SCALE,
        "A rolling restart of a thousand nodes",
        "The bytes that one restart takes out of Redis, measured at 20, 50 and 100 nodes for both, "
        "and at 1,000 nodes for ours. redis-hashring's at 1,000 would take hours to measure: it is "
        "extrapolated by the law fitted to its numbers, and marked so.",
        420,
        take_restart,
    ),
)
