#!/usr/bin/env python
"""The ring against redis-hashring 0.7 and against the floor, in one run.

    python scripts/bench/ring.py [NAME...]

Names: contains select memory changes restart steady; all unless given.

Ratios are of the best of several repeats, taken in turn, so that a busy machine disturbs both
sides alike. Nodes of ours are asyncio tasks of this process, nodes of redis-hashring threads of
this process; both over real connections to one private Redis.
"""

from __future__ import annotations

import asyncio
import sys
import time
import timeit
import tracemalloc
import zlib
from bisect import bisect_right
from collections.abc import Callable
from random import Random

import redis_hashring
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring import AsyncRingNode, Ring, RingNode
from hashring.core.ring import bounds_of
from hashring.store.embedded import RedisServer
from hashring.store.memory import MemoryServer, MemoryStore

rng = Random(7)


def row(what: str, value: str, ratio: str, target: str, met: bool) -> None:
    print(f"  {what:58} {value:>16} {ratio:>12}  {target:>16}  {'pass' if met else 'MISS'}")


def best(number: int, **calls: Callable[[], object]) -> dict[str, float]:
    """Seconds of one call each, the best of nine rounds taken in turn."""
    times = dict.fromkeys(calls, float("inf"))
    for _ in range(9):
        for name, call in calls.items():
            times[name] = min(times[name], timeit.timeit(call, number=number) / number)
    return times


def plain_node(ranges: int, **options: object) -> RingNode:
    """A live node with that many own ranges, among three others."""
    store = MemoryStore(MemoryServer())
    for number in range(3):
        other = RingNode(store, "bench", n_replicas=ranges, name=f"other-{number}")
        other.heartbeat()
    node = RingNode(store, "bench", n_replicas=ranges, name="node", **options)
    node.heartbeat()
    return node


def old_node(node: RingNode, algorithm: redis_hashring.HashAlgorithm) -> redis_hashring.RingNode:
    """redis-hashring's node with the same ranges."""
    old = redis_hashring.RingNode(None, "bench", hash_algorithm=algorithm)
    old._state = redis_hashring._RingState(
        ranges=tuple(map(tuple, node.get_ranges())), node_count=4
    )
    return old


def bench_contains() -> None:
    print("contains, one key of 16 characters, ns")
    keys = [f"account-{rng.randrange(10**8):08d}" for _ in range(64)]
    ours: dict[int, float] = {}
    for count in (16, 1000):
        node = plain_node(count)
        crc = old_node(node, redis_hashring.HashAlgorithm.CRC32)
        xxh = old_node(node, redis_hashring.HashAlgorithm.XXHASH)
        bounds = bounds_of(node.get_ranges())

        def floor(bounds: tuple[int, ...] = bounds) -> None:
            for key in keys:
                bisect_right(bounds, zlib.crc32(key.encode()))

        def asked(contains: Callable[[str], bool]) -> Callable[[], None]:
            def ask() -> None:
                for key in keys:
                    contains(key)

            return ask

        times = best(
            2000 // max(1, count // 16),
            ours=asked(node.contains),
            floor=floor,
            crc=asked(crc.contains),
            xxh=asked(xxh.contains),
        )
        ns = {name: seconds * 1e9 / len(keys) for name, seconds in times.items()}
        ours[count] = ns["ours"]
        value = f"{ns['ours']:.0f}"
        if count == 16:
            ratio = ns["ours"] / ns["crc"]
            row(
                "16 replicas: ours / redis-hashring CRC-32",
                value,
                f"{ratio:.2f}",
                "<= 0.33",
                ratio <= 1 / 3,
            )
            ratio = ns["ours"] / ns["floor"]
            row(
                "16 replicas: ours / bare bisect(crc32)",
                value,
                f"{ratio:.2f}",
                "<= 1.6",
                ratio <= 1.6,
            )
            ratio = ns["ours"] / ns["xxh"]
            row(
                "16 replicas: ours / redis-hashring xxHash (its default)",
                value,
                f"{ratio:.2f}",
                "",
                True,
            )
    ratio = ours[1000] / ours[16]
    row("1,000 replicas / 16 replicas", f"{ours[1000]:.0f}", f"{ratio:.2f}", "<= 1.5", ratio <= 1.5)


def bench_select() -> None:
    print("select over 1,000,000 str keys, 100 nodes x 16 replicas, ns a key")
    store = MemoryStore(MemoryServer())
    for number in range(99):
        RingNode(store, "bench", name=f"other-{number}").heartbeat()
    node = RingNode(store, "bench", name="node")
    node.heartbeat()
    keys = [f"account-{rng.randrange(10**9)}" for _ in range(1_000_000)]
    old = old_node(node, redis_hashring.HashAlgorithm.CRC32)
    xxh = old_node(node, redis_hashring.HashAlgorithm.XXHASH)
    ours = peer = peer_xxh = float("inf")
    for _ in range(3):
        start = time.perf_counter()
        mine = node.select(keys)
        ours = min(ours, time.perf_counter() - start)
        start = time.perf_counter()
        theirs = [key for key in keys if old.contains(key)]
        peer = min(peer, time.perf_counter() - start)
        start = time.perf_counter()
        _ = [key for key in keys if xxh.contains(key)]
        peer_xxh = min(peer_xxh, time.perf_counter() - start)
    assert mine == theirs
    numpy = "numpy" in sys.modules
    target = 15 if numpy else 8
    name = "with numpy" if numpy else "without numpy"
    row(
        f"{name}: redis-hashring CRC-32 / ours",
        f"{ours * 1e3:.0f}",
        f"{peer / ours:.1f}",
        f">= {target}",
        peer / ours >= target,
    )
    row(
        f"{name}: redis-hashring xxHash (its default) / ours",
        f"{ours * 1e3:.0f}",
        f"{peer_xxh / ours:.1f}",
        "",
        True,
    )


def bench_memory() -> None:
    print("a node that watches 1,000 nodes x 128 replicas")
    points = {f"host-{n:04d}:1": [rng.randrange(2**32) for _ in range(128)] for n in range(1000)}
    joiner = [rng.randrange(2**32) for _ in range(128)]
    tracemalloc.start()
    ring = Ring(points)
    size = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    row("memory of its ring, MB", f"{size / 1e6:.1f}", "", "", True)
    seconds = min(timeit.repeat(lambda: ring.with_node("new:1", joiner), number=5, repeat=5)) / 5
    row("time to apply one join, ms", f"{seconds * 1e3:.2f}", "", "", True)


async def changes(server: RedisServer) -> None:
    client = AsyncRedis.from_url(server.url)
    nodes = [AsyncRingNode(client, "changes") for _ in range(100)]
    await asyncio.gather(*(node.start() for node in nodes))
    await asyncio.sleep(1)
    seen = []
    for _ in range(50):
        joiner = AsyncRingNode(client, "changes")
        start = time.perf_counter()
        await joiner.start()
        while any(joiner.name not in node.ring for node in nodes):
            await asyncio.sleep(0)
        seen.append(time.perf_counter() - start)
        await joiner.stop()
        await asyncio.sleep(0.05)
    seen.sort()
    row("join, from start() to seen by all of 100, p50 ms", f"{seen[25] * 1e3:.1f}", "", "", True)
    row("the same, worst of 50, ms", f"{seen[-1] * 1e3:.1f}", "", "<= 100", seen[-1] <= 0.1)
    await asyncio.gather(*(node.stop() for node in nodes))

    for ttl, beat in ((1.0, 0.2), (2.0, 0.5), (3.0, 1.0)):
        nodes = [
            AsyncRingNode(client, "crash", ttl=ttl, heartbeat_interval=beat) for _ in range(10)
        ]
        await asyncio.gather(*(node.start() for node in nodes))
        worst = 0.0
        for _ in range(3):
            victim = nodes.pop()
            run = victim._run
            assert run is not None
            # As SIGKILL does: nothing of the node runs any more.
            if run._listener is not None:
                run._listener.cancel()
            run.task.cancel()
            start = time.perf_counter()
            await asyncio.gather(run.task, return_exceptions=True)
            while any(victim.name in node.ring for node in nodes):
                await asyncio.sleep(0.001)
            worst = max(worst, time.perf_counter() - start)
        limit = ttl + beat
        row(
            f"crash takeover, ttl {ttl:g} s, heartbeat {beat:g} s, worst of 3",
            f"{worst:.2f} s",
            "",
            f"<= {limit:g} s",
            worst <= limit,
        )
        await asyncio.gather(*(node.stop() for node in nodes))
    await client.aclose()


def bench_changes() -> None:
    print("100 nodes as asyncio tasks of one process")
    with RedisServer() as server:
        asyncio.run(changes(server))


def out(redis: Redis) -> tuple[int, int]:
    stats = redis.info("stats")
    return stats["total_net_output_bytes"], stats["total_commands_processed"]


async def restart_ours(server: RedisServer, count: int) -> tuple[int, int]:
    client = AsyncRedis.from_url(server.url)
    watch = Redis.from_url(server.url)
    nodes = [AsyncRingNode(client, "restart") for _ in range(count)]
    await asyncio.gather(*(node.start() for node in nodes))
    await asyncio.sleep(1)
    before = out(watch)
    for node in nodes:
        await node.stop()
        await node.start()
    await asyncio.sleep(1)
    after = out(watch)
    await asyncio.gather(*(node.stop() for node in nodes))
    await client.aclose()
    return after[0] - before[0], after[1] - before[1]


def restart_theirs(server: RedisServer, count: int, restarted: int) -> tuple[float, float]:
    watch = Redis.from_url(server.url)
    clients = [Redis.from_url(server.url) for _ in range(count)]
    nodes = [redis_hashring.RingNode(client, "old") for client in clients]
    for node in nodes:
        node.start()
    time.sleep(5)
    before = out(watch)
    for node in nodes[:restarted]:
        node.stop()
        node.start()
        # Until everybody has fetched: a real rolling restart is slower than this.
        time.sleep(0.5)
    time.sleep(3)
    after = out(watch)
    for node in nodes:
        node.stop()
    scale = count / restarted
    return (after[0] - before[0]) * scale, (after[1] - before[1]) * scale


def bench_restart() -> None:
    print("rolling restart of 100 nodes x 16 replicas: out of Redis")
    with RedisServer() as server:
        ours, our_commands = asyncio.run(restart_ours(server, 100))
        # 10 of the 100 restart, and the rest is their average: each costs the same.
        theirs, their_commands = restart_theirs(server, 100, 10)
    row(
        "bytes, MB: ours / redis-hashring",
        f"{ours / 1e6:.1f}/{theirs / 1e6:.0f}",
        f"1/{theirs / ours:.0f}",
        "<= 1/20",
        ours * 20 <= theirs,
    )
    row(
        "commands: ours / redis-hashring",
        f"{our_commands}/{their_commands:.0f}",
        f"1/{their_commands / our_commands:.0f}",
        "",
        True,
    )


async def steady(server: RedisServer) -> None:
    client = AsyncRedis.from_url(server.url)
    watch = Redis.from_url(server.url)
    nodes = [AsyncRingNode(client, "steady", ttl=4, heartbeat_interval=1) for _ in range(50)]
    await asyncio.gather(*(node.start() for node in nodes))
    await asyncio.sleep(3)
    beats = sum(node.status.heartbeats for node in nodes)
    before = watch.info("commandstats")["cmdstat_evalsha"]["calls"]
    commands = out(watch)[1]
    await asyncio.sleep(10)
    beats = sum(node.status.heartbeats for node in nodes) - beats
    calls = watch.info("commandstats")["cmdstat_evalsha"]["calls"] - before
    # What a script calls inside counts as commands too; what a client sends is EVALSHA alone.
    row(
        "calls to Redis a heartbeat, 50 nodes for 10 s",
        f"{calls / beats:.2f}",
        "",
        "1",
        abs(calls / beats - 1) < 0.05,
    )
    row(
        "commands inside and outside of scripts a heartbeat",
        f"{(out(watch)[1] - commands) / beats:.1f}",
        "",
        "",
        True,
    )
    await asyncio.gather(*(node.stop() for node in nodes))
    await client.aclose()


def bench_steady() -> None:
    print("steady state")
    with RedisServer() as server:
        asyncio.run(steady(server))


BENCHMARKS = {
    name.removeprefix("bench_"): call
    for name, call in list(globals().items())
    if name.startswith("bench_")
}


def main(names: list[str]) -> None:
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"unknown: {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    print(f"  {'':58} {'value':>16} {'ratio':>12}  {'target':>16}")
    for name in names or BENCHMARKS:
        BENCHMARKS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
