"""Joins, crashes, restarts and rest, on a real Redis with many nodes."""

from __future__ import annotations

import random
import time
from typing import Any

from fleet import Fleet, Ours, Theirs, Usage
from redis import Redis
from result import Measure, Plot, Result, Run
from targets import RING
from timing import median, quantile

from hashring.store.embedded_server import RedisServer

KINDS = {"hashring": Ours, "redis-hashring": Theirs}
PROCESSES = 2


def joins(url: str, kind: type[Ours | Theirs], nodes: int, count: int) -> list[list[float]]:
    """Join so often a fleet of so many nodes; see :func:`joins_to`."""
    with Fleet(url, kind, PROCESSES) as fleet:
        fleet.start(nodes)
        return joins_to(fleet, url, kind, count)


def joins_to(
    fleet: Fleet, url: str, kind: type[Ours | Theirs], count: int, **options: Any
) -> list[list[float]]:
    """For each join, in order, seconds until each of the fleet's nodes had seen it; counted from
    the call of ``start()``."""
    found = []
    with Fleet(url, kind, 1, **options) as joiner:
        # The first one loads what later ones find loaded.
        for number in range(count + 1):
            began: list[float] = []
            times = fleet.agree_after(
                lambda began=began: began.append(joiner.ask(0, "start", 1)), fleet.size + 1
            )
            if number:
                found.append([at - began[0] for at in times])
            joiner.ask(0, "stop_last")
            fleet.agree()
    return found


def take_join(run: Run) -> Result:
    result = Result()
    series: dict[str, list[tuple[float, float]]] = {}
    sizes = ((10, 3, 3),) if run.quick else ((10, 30, 30), (100, 50, 10))
    for nodes, ours, theirs in sizes:
        waits: dict[str, list[float]] = {}
        for name, kind in KINDS.items():
            count = ours if kind is Ours else theirs
            run.say(f"{count} joins to {nodes:,} nodes of {name}")
            with RedisServer() as server:
                each = joins(server.url, kind, nodes, count)
            waits[name] = [wait for join in each for wait in join]
            p99 = quantile(waits[name], 0.99)
            series.setdefault(f"{name}, p99", []).append((nodes, round(p99 * 1e3, 2)))
            if kind is Ours:
                last = [max(join) for join in each]
        peer = waits.get("redis-hashring")
        mine = waits["hashring"]
        result.add(
            f"{nodes:,} nodes: a node sees it, median",
            f"{median(mine) * 1e3:.1f} ms",
            f"{median(peer) * 1e3:.1f} ms" if peer else "",
            value=median(mine) / median(peer) if peer else None,
        )
        p99 = quantile(mine, 0.99)
        result.add(
            f"{nodes:,} nodes: a node sees it, p99 of {len(mine):,}",
            f"{p99 * 1e3:.1f} ms",
            f"{quantile(peer, 0.99) * 1e3:.1f} ms" if peer else "",
            value=p99 * 1e3,
            unit="ms",
            target="join" if nodes == 100 else None,
        )
        result.add(
            f"{nodes:,} nodes: all have seen it, the slowest of {len(last)} joins",
            f"{max(last) * 1e3:.1f} ms",
        )
    if not run.quick:
        result.plots.append(
            Plot(
                "join",
                "From start() of a new node until a node has seen it",
                "nodes on the ring",
                "ms",
                series,
                log_x=True,
                log_y=True,
            )
        )
    return result


def take_crash(run: Run) -> Result:
    result = Result()
    settings = ((1.0, 0.2),) if run.quick else ((1.0, 0.2), (2.0, 0.5), (4.0, 1.0))
    worst = 0.0
    crashes = 1 if run.quick else 3
    for ttl, beat in settings:
        run.say(f"{crashes} crashes, ttl {ttl:g} s")
        waits = []
        with (
            RedisServer() as server,
            Fleet(server.url, Ours, PROCESSES, ttl=ttl, heartbeat_interval=beat) as fleet,
        ):
            fleet.start(10)
            for _ in range(crashes):
                with Fleet(server.url, Ours, 1, ttl=ttl, heartbeat_interval=beat) as victim:
                    fleet.agree_after(lambda victim=victim: victim.ask(0, "start", 1), 11)
                    # At any moment between two heartbeats.
                    time.sleep(beat * random.random())
                    killed = victim.kill()
                    waits.append(max(fleet.agree()) - killed)
        limit = ttl + beat
        worst = max(worst, max(waits) / limit)
        result.add(
            f"ttl {ttl:g} s, heartbeat {beat:g} s, the longest of {crashes}",
            f"{max(waits):.2f} s",
            f"{limit:g} s",
            value=max(waits) / limit,
        )
    result.add(
        "the longest, as a part of ttl + one heartbeat",
        f"{worst:.2f}",
        value=worst,
        target="crash",
    )
    return result


def rolling_restart(
    run: Run, kind: type[Ours | Theirs], nodes: int, restarts: int
) -> tuple[Usage, float, float]:
    """Restart so many of so many nodes, each when all agree on the one before.

    Returns what Redis did, how long it took, and seconds of CPU of the nodes.
    """
    with (
        RedisServer() as server,
        Redis.from_url(server.url) as client,
        Fleet(server.url, kind, PROCESSES) as fleet,
    ):
        fleet.start(nodes)
        time.sleep(1)
        cpu, _ = fleet.cost()
        before, began = Usage.of(client), time.perf_counter()
        for number in range(restarts):
            fleet.restart(number)
            if number % 50 == 49:
                run.say(f"  {number + 1} of {restarts}")
        # What is still on its way belongs to the restart.
        time.sleep(0.5)
        used = Usage.of(client) - before
        return used, time.perf_counter() - began, fleet.cost()[0] - cpu


def take_restart(run: Run) -> Result:
    result = Result()
    for nodes in (10,) if run.quick else (10, 100):
        found = {}
        for name, kind in KINDS.items():
            run.say(f"restarting {nodes} nodes of {name}")
            found[name] = rolling_restart(run, kind, nodes, nodes)
        (ours, took, cpu), (theirs, their_took, their_cpu) = found.values()
        for what, a, b, unit in (
            ("bytes out of Redis", ours.sent / 1e6, theirs.sent / 1e6, "MB"),
            ("bytes into Redis", ours.received / 1e6, theirs.received / 1e6, "MB"),
            ("commands, those inside scripts included", ours.commands, theirs.commands, ""),
            ("CPU of Redis", ours.cpu, theirs.cpu, "s"),
            ("CPU of the nodes", cpu, their_cpu, "s"),
            ("time it took", took, their_took, "s"),
        ):
            result.add(
                f"{nodes} nodes x 16: {what}",
                f"{a:,.2f} {unit}" if unit else f"{a:,.0f}",
                f"{b:,.2f} {unit}" if unit else f"{b:,.0f}",
                value=a / b,
                target="restart" if (nodes, what) == (100, "bytes out of Redis") else None,
            )
    return result


def take_steady(run: Run) -> Result:
    sizes, seconds = ((10,), 3.0) if run.quick else ((10, 100), 12.0)
    result = Result()
    for nodes in sizes:
        found = {}
        for name, kind in KINDS.items():
            run.say(f"{nodes} nodes of {name} at rest for {seconds:g} s, heartbeat 1 s")
            # redis-hashring's ttl and heartbeat are constants of its module.
            beat = {"heartbeat_interval": 1.0, **({"ttl": 10.0} if kind is Ours else {})}
            with (
                RedisServer() as server,
                Redis.from_url(server.url) as client,
                Fleet(server.url, kind, PROCESSES, **beat) as fleet,
            ):
                empty = fleet.cost()[1]
                fleet.start(nodes)
                memory = (fleet.cost()[1] - empty) / nodes
                time.sleep(2)
                (cpu, _), before = fleet.cost(), Usage.of(client)
                beats = sum(fleet.ask_all("heartbeats"))
                time.sleep(seconds)
                used = Usage.of(client) - before
                beats = sum(fleet.ask_all("heartbeats")) - beats
                found[name] = used * (1 / beats), (fleet.cost()[0] - cpu) / beats, memory
        (ours, cpu, memory), (theirs, their_cpu, their_memory) = found.values()
        result.add(
            f"{nodes} nodes: scripts run in Redis a heartbeat",
            f"{ours.scripts:.2f}",
            value=round(ours.scripts, 2),
            unit="",
            target="steady" if nodes == sizes[-1] else None,
        )
        for what, a, b, unit in (
            ("commands a heartbeat, those inside scripts", ours.commands, theirs.commands, ""),
            ("bytes out of Redis a heartbeat", ours.sent, theirs.sent, ""),
            ("bytes into Redis a heartbeat", ours.received, theirs.received, ""),
            ("CPU of Redis a heartbeat", ours.cpu * 1e6, theirs.cpu * 1e6, " µs"),
            ("CPU of the node a heartbeat", cpu * 1e6, their_cpu * 1e6, " µs"),
            ("memory a node (a task; a thread)", memory / 1e3, their_memory / 1e3, " kB"),
        ):
            result.add(
                f"{nodes} nodes: {what}",
                f"{a:,.0f}{unit}",
                f"{b:,.0f}{unit}",
                value=a / b if b > 0 else None,
            )
    return result


MEASURES = (
    Measure(
        "join",
        RING,
        "A join",
        "How long it takes until the nodes of a ring know of a new one, counted from the call"
        " of its ``start()``: connecting, subscribing, fetching the ring and choosing points "
        "included. The nodes are asyncio tasks (redis-hashring's: threads) of two processes, "
        "the new one is in a third; each has connections of its own to one Redis. "
        "Counted is the moment from which ``contains`` answers by the new ring.",
        60,
        take_join,
    ),
    Measure(
        "crash",
        RING,
        "Takeover after a crash",
        "The process of a node is ended by SIGKILL, between two heartbeats; how long until all ten "
        "others have taken it off their rings. Promised: within ttl + one heartbeat.",
        60,
        take_crash,
    ),
    Measure(
        "restart",
        RING,
        "A rolling restart",
        "Nodes with 16 replicas each, all of 10 and all of 100, are stopped and started again one "
        "by one, each step when all others know of the one before; the same for both, in turn, "
        "each on a Redis of its own.",
        200,
        take_restart,
    ),
    Measure(
        "steady",
        RING,
        "At rest",
        "What a heartbeat costs when nothing happens: one script in Redis, which renews the node's "
        "replicas, sweeps, and says where the ring stands; and a ``PING`` on the node's silent "
        "subscription, which is counted among the commands. redis-hashring sends a transaction of "
        "18 commands, which takes Redis less time than a script, and learns nothing from it.",
        80,
        take_steady,
    ),
)
