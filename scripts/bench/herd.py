#!/usr/bin/env python
"""How long hundreds of nodes in one event loop take to be right again after a fault they all have.

    python scripts/bench/herd.py wipe
    python scripts/bench/herd.py stall --nodes 150 --others 850

``wipe``: Redis loses the ring, and the others put themselves back. ``stall``: the event loop stands
still for 8 s, in which 30 nodes join. The others are on the ring, and do nothing. A node is right
again when it is live, sees the ring that all see, and neither misses anything nor fails.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import threading
import time

from fleet import PATIENCE, WAVE, Usage, more_files, started
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from hashring import AsyncRingNode
from hashring.core.replica import Replica
from hashring.store.embedded_server import RedisServer
from hashring.store.redis_store import RedisStore
from hashring.store.ring.commands import Scoring, beat
from hashring.store.ring.key_names import ring_keys

RING, TTL, HEARTBEAT = "herd", 60.0, 10.0
STALL, NEWCOMERS = 8.0, 30
SESSION = "0123456789abcdef"


def put(url: str, first: int, count: int) -> None:
    """Put so many nodes on the ring that do nothing."""
    with Redis.from_url(url) as client:
        store = RedisStore(client, 30.0)
        for number in range(first, first + count):
            name = f"host-{number:05d}:4711"
            points = [random.randrange(2**32) for _ in range(16)]
            replicas = [Replica(point, name, f"{point:08x}") for point in points]
            store.run(
                beat(
                    ring_keys(RING),
                    node=name,
                    session=SESSION,
                    scoring=Scoring.expiry(3600.0),
                    replicas=replicas,
                    told={},
                    joining=True,
                )
            )
        store.close()


def right(nodes: list[AsyncRingNode], client: Redis, count: int) -> bool:
    """Whether all of them are right, and are among so many nodes."""
    keys = ring_keys(RING)
    machines = [node._machine for node in nodes]
    tag = (client.get(keys.epoch) or b"0 none").decode().split()[1]
    return (
        client.zcard(keys.ring) == 16 * count
        and all(node.state.value == "live" for node in nodes)
        and not any(machine.failing or machine.in_doubt for machine in machines)
        and all(
            machine.sight.stamp is not None and machine.sight.stamp.tag == tag
            for machine in machines
        )
    )


async def until_right(nodes: list[AsyncRingNode], client: Redis, count: int) -> float | None:
    """Seconds until they are; ``None`` when they are not within the patience."""
    began = time.perf_counter()
    while not right(nodes, client, count):
        if time.perf_counter() > began + PATIENCE:
            return None
        await asyncio.sleep(0.05)
    return time.perf_counter() - began


async def measure(url: str, fault: str, count: int, others: int) -> None:
    put(url, 0, others)
    redis = AsyncRedis.from_url(url)
    nodes: list[AsyncRingNode] = []
    with Redis.from_url(url) as client:
        while len(nodes) < count:
            fresh = [
                AsyncRingNode(redis, RING, ttl=TTL, heartbeat_interval=HEARTBEAT, follow=True)
                for _ in range(min(WAVE, count - len(nodes)))
            ]
            await asyncio.gather(*(started(node) for node in fresh))
            nodes += fresh
            await until_right(nodes, client, len(nodes) + others)
        # See `Ours.start` of fleet.py.
        gc.freeze()
        fetches = sum(node._machine.counters.fetches for node in nodes)
        failures = sum(node._machine.counters.failures for node in nodes)
        before, cpu, expected = Usage.of(client), time.process_time(), count + others
        if fault == "wipe":
            client.flushall()
            put(url, 0, others)
        else:
            newcomers = threading.Thread(target=put, args=(url, others, NEWCOMERS))
            newcomers.start()
            time.sleep(STALL)  # In the event loop: this is the fault.
            newcomers.join()
            expected += NEWCOMERS
        took = await until_right(nodes, client, expected)
        used = Usage.of(client) - before
    print(
        f"{count} nodes of {expected:,}, {fault}: "
        + (f"right again after {took:.1f} s" if took is not None else "never right again")
    )
    print(
        f"CPU of the nodes {time.process_time() - cpu:.1f} s, of Redis {used.cpu:.1f} s; "
        f"out of Redis {used.sent / 1e6:.0f} MB; "
        f"fetches {sum(node._machine.counters.fetches for node in nodes) - fetches}, "
        f"failed calls {sum(node._machine.counters.failures for node in nodes) - failures}"
    )
    for first in range(0, count, WAVE):
        await asyncio.gather(*(node.stop() for node in nodes[first : first + WAVE]))
    await redis.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("fault", choices=("wipe", "stall"))
    parser.add_argument("--nodes", type=int, default=150, help="in the event loop (150)")
    parser.add_argument("--others", type=int, default=850, help="on the ring besides (850)")
    given = parser.parse_args()
    more_files()
    # What fails is counted.
    logging.getLogger("hashring").addHandler(logging.NullHandler())
    with RedisServer(config=(f"maxclients {4 * given.nodes + 1000}",)) as server:
        asyncio.run(measure(server.url, given.fault, given.nodes, given.others))


if __name__ == "__main__":
    main()
