"""A thousand nodes on one Redis."""

from __future__ import annotations

import time

import numpy as np
from crowd import Crowd, cpu_of
from fleet import Theirs, Usage
from frame import Measure, Plot, Result, Run
from redis import Redis
from targets import SCALE

from hashring.store.embedded import RedisServer
from measures.ring_changes import KINDS, rolling_restart

HEARTBEAT = 10.0


def take(run: Run) -> Result:
    nodes, seconds = (20, 3.0) if run.quick else (1000, 30.0)
    result = Result()
    sent, theirs = laws(run, result, nodes)
    with (
        RedisServer(config=("maxclients 12000",)) as server,
        Redis(unix_socket_path=str(server.socket)) as client,
        Crowd(client, server.socket, nodes) as crowd,
    ):
        crowd.join_all()
        crowd.listen(nodes)
        result.add("memory of Redis", f"{client.info('memory')['used_memory'] / 1e6:.1f} MB")
        at_rest(run, crowd, client, seconds, result)
        run.say(f"{nodes:,} restarts")
        before = Usage.of(client)
        for number in range(nodes):
            crowd.leave(number)
            crowd.beat(number, joining=True, fetch=True)
        cpu_of(client)
        used = Usage.of(client) - before
    mine = used.sent / nodes
    result.add(
        "rolling restart: bytes out of Redis; redis-hashring's extrapolated",
        f"{mine * nodes / 1e9:,.2f} GB",
        f"{theirs * nodes / 1e9:,.0f} GB",
        value=mine / theirs,
        target="thousand-restart",
    )
    result.add("rolling restart: CPU of Redis", f"{used.cpu:.1f} s")
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


def at_rest(run: Run, crowd: Crowd, client: Redis, seconds: float, result: Result) -> None:
    """The heartbeats of all, each when it is due."""
    nodes = len(crowd.nodes)
    run.say(f"at rest for {seconds:g} s")
    before, began = Usage.of(client), time.perf_counter()
    count = round(nodes * seconds / HEARTBEAT)
    for number in range(count):
        due = began + number * HEARTBEAT / nodes
        time.sleep(max(0.0, due - time.perf_counter()))
        crowd.beat(number % nodes)
    used, took = Usage.of(client) - before, time.perf_counter() - began
    result.add(
        f"at rest for {took:.0f} s, {count:,} heartbeats: CPU of Redis",
        f"{used.cpu:.2f} s",
        value=used.cpu / took * 100,
        unit="%",
        target="thousand-steady",
    )
    result.add("at rest: bytes out of Redis a heartbeat", f"{used.sent / count:.0f}")


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
    "1,000 nodes x 16 replicas, heartbeat 10 s, on one Redis: at rest, and a rolling restart. What "
    "Redis does is all real: the calls are the nodes' own, each at its time, and 1,000 "
    "subscriptions are held; but one process makes the calls, and two hold the subscriptions, "
    "since two cores cannot run 1,000 nodes. Up to 100 nodes are real ones. redis-hashring's bytes "
    "for the rolling restart would take hours to measure: they are extrapolated by the law fitted "
    "to its numbers at 20, 50 and 100 nodes.",
    120,
    take,
)
