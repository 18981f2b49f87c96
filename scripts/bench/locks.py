#!/usr/bin/env python
"""Locks and limits: what they cost, against redis-py's Lock and against a node without them.

    python scripts/bench/locks.py                    all parts
    python scripts/bench/locks.py take renew

Each part has a private Redis on a unix socket. Ratios are of the best of several repeats, taken
in turn, so that a busy machine disturbs both sides alike.
"""

from __future__ import annotations

import gc
import time
import timeit
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import program
import redis_lock
import timing
from redis import Redis
from redis.lock import Lock
from result import Result

from hashring import RingNode
from hashring.store.embedded_server import RedisServer
from hashring.store.memory_store import MemoryServer, MemoryStore

KEYS = [f"account-{number}" for number in range(10_000)]
CALM: dict[str, Any] = {"lock": True, "ttl": 600, "heartbeat_interval": 200}
"""No heartbeat comes in between."""
PEERS: dict[str, Callable[[Redis, str], Any]] = {
    "redis-py": lambda client, name: Lock(client, name, timeout=60),
    "python-redis-lock": lambda client, name: redis_lock.Lock(client, name, expire=60),
}

BEAT = 1.0
"""Seconds between the heartbeats of nodes with a limit."""

ROUNDS = 5
"""How often nodes with a limit start, are joined, and crash."""


def seconds(call: Callable[[], object]) -> float:
    gc.collect()  # What others left behind is not on this one's bill.
    return timing.seconds(call)


def scripts(client: Redis) -> tuple[int, float]:
    """How many scripts ran since the last ``config_resetstat``, and their milliseconds of Redis."""
    stats = client.info("commandstats")
    ran = [stats[name] for name in ("cmdstat_evalsha", "cmdstat_eval") if name in stats]
    return sum(each["calls"] for each in ran), sum(each["usec"] for each in ran) / 1000


def called(client: Redis, command: str) -> int:
    """How often Redis ran the command since the last ``config_resetstat``, scripts included."""
    stats = client.info("commandstats").get(f"cmdstat_{command}", {"calls": 0})
    return int(stats["calls"])


def redis_cpu(client: Redis) -> float:
    """Seconds of CPU that Redis' own thread has used."""
    used = client.info("cpu")
    return float(used["used_cpu_user_main_thread"] + used["used_cpu_sys_main_thread"])


def spent(client: Redis) -> float:
    """Seconds of CPU that this thread and Redis' own have used."""
    return redis_cpu(client) + time.thread_time()


def take(result: Result) -> None:
    """Taking 10,000 free locks, and letting go of them, best of 3."""
    taking: dict[str, float] = {}
    freeing: dict[str, float] = {}
    cpu: dict[str, float] = {}
    redis_time = float("inf")

    def best(times: dict[str, float], name: str, took: float) -> None:
        times[name] = min(times.get(name, float("inf")), took)

    with RedisServer() as server, Redis.from_url(server.url) as client:
        for _ in range(3):
            node = RingNode(client, "locks", **CALM)
            node.start()
            node.select(KEYS[:1])  # the script is known to Redis from now on
            client.config_resetstat()
            before = spent(client)
            best(taking, "ours", seconds(lambda node=node: node.select(KEYS)))
            best(cpu, "ours", spent(client) - before)
            redis_time = min(redis_time, scripts(client)[1])
            assert node.status.held == len(KEYS)
            best(freeing, "ours", seconds(node.stop))
            assert not client.keys("{locks}:lock:*")
            for name, make in PEERS.items():
                first = make(client, "peer:first")
                first.acquire(blocking=False)
                first.release()
                locks = [make(client, f"peer:{key}") for key in KEYS]
                before = spent(client)
                took = seconds(lambda locks=locks: [lock.acquire(blocking=False) for lock in locks])
                best(taking, name, took)
                best(cpu, name, spent(client) - before)
                best(freeing, name, seconds(lambda locks=locks: [one.release() for one in locks]))
                del locks
            client.flushall()

    def add(what: str, times: dict[str, float]) -> None:
        for name in PEERS:
            result.add(
                what.format(name),
                f"{times['ours'] * 1e3:.0f}/{times[name] * 1e3:.0f} ms",
                value=round(times[name] / times["ours"], 1),
                target="take" if times is taking and name == "redis-py" else None,
            )

    add("{} Lock.acquire, one by one / select", taking)
    result.add("of that in Redis", f"{redis_time:.0f} ms")
    add("{}, the same in CPU time", cpu)
    add("{} Lock.release, one by one / stop()", freeing)


def renew(result: Result) -> None:
    """Renewing 10,000 held locks, Redis time of one heartbeat, best of 9."""
    best = best_cpu = float("inf")
    with RedisServer() as server, Redis.from_url(server.url) as client:
        node = RingNode(client, "locks", **CALM)
        node.start()
        assert len(node.select(KEYS)) == len(KEYS)
        for _ in range(9):
            client.config_resetstat()
            before = redis_cpu(client)
            node.heartbeat()
            while called(client, "pexpire") < len(KEYS):
                time.sleep(0.01)
            best = min(best, scripts(client)[1])
            best_cpu = min(best_cpu, redis_cpu(client) - before)
        node.stop()
    result.add("CPU time of Redis", f"{best_cpu * 1e3:.1f} ms")
    shown, value = f"{best:.1f} ms", round(best, 1)
    result.add("heartbeat and renewal", shown, value=value, unit="ms", target="renew")


def contains(result: Result) -> None:
    """``contains``, ns a key."""

    def node(**options: Any) -> RingNode:
        store = MemoryStore(MemoryServer())
        for number in range(3):
            RingNode(store, "bench", name=f"other-{number}").heartbeat()
        made = RingNode(store, "bench", name="node", **options)
        made.heartbeat()
        return made

    plain, locking = node(), node(lock=True)
    own = [key for key in KEYS if plain.contains(key)][:64]
    held = [key for key in KEYS if locking.contains(key)][:64]
    times = {"plain": float("inf"), "held": float("inf")}
    for _ in range(9):
        for name, asked, keys in (("plain", plain, own), ("held", locking, held)):
            contains = asked.contains
            took = timeit.timeit(lambda: [contains(key) for key in keys], number=2000)  # noqa: B023
            times[name] = min(times[name], took / 2000 / 64 * 1e9)
    result.add(
        "held key with lock / owned key without",
        f"{times['held']:.0f}/{times['plain']:.0f}",
        value=round(times["held"] / times["plain"], 2),
        target="held",
    )


def waiting(result: Result) -> None:
    """1,000 keys of which about half move to a newcomer, and are still held: calls to Redis."""
    keys = KEYS[:1000]
    with RedisServer() as server, Redis.from_url(server.url) as client:
        holder = RingNode(client, "waiting", name="a", **CALM)
        holder.start()
        holder.select(keys)
        newcomer = RingNode(client, "waiting", name="b", **CALM)
        newcomer.start()
        moved = [key for key in keys if newcomer.owner(key) == "b"]
        newcomer.select(moved[:1])
        client.config_resetstat()
        for _ in range(100):
            newcomer.select(keys)
        asked, _ = scripts(client)
        result.add(f"asking 100 times for the {len(moved)} of them", str(asked), "1")
        client.config_resetstat()
        while len(holder.select(keys)) > len(keys) - len(moved) or not scripts(client)[0]:
            time.sleep(0.001)
        freed, _ = scripts(client)
        result.add("letting go of them: calls", str(freed))
        result.add("letting go of them: messages, one a key", str(called(client, "publish")))
        client.config_resetstat()
        while len(newcomer.select(keys)) < len(moved):
            time.sleep(0.001)
        result.add("taking them", str(scripts(client)[0]))
        holder.stop()
        newcomer.stop()


def limit(result: Result) -> None:
    """Limit and overflow: 20 nodes, 10,000 keys, limit 1.25 x the mean (625)."""
    longest: dict[str, tuple[float, int, int]] = {}
    for number in range(ROUNDS):
        for what, (took, held, highest) in settled_in(number).items():
            before = longest.get(what, (0.0, held, highest))
            # The longest, the fewest keys and the fullest node: of different rounds, perhaps.
            longest[what] = max(took, before[0]), min(held, before[1]), max(highest, before[2])
    for what, (took, held, highest) in longest.items():
        beats = round(took / BEAT, 1)
        of = f"{what}, longest of {ROUNDS}: all {held} held, highest {highest}"
        result.add(of, f"{took:.2f} s", value=beats, unit="")
        if held < len(KEYS) or highest > 625:
            result.notes.append(f"{what}: not all held, or too many by one node.")
    slowest = max(took for what, (took, *_) in longest.items() if what != "at the start")
    result.add(
        "all held again after a join or a crash, the longest, in heartbeats",
        f"{slowest / BEAT:.1f}",
        value=round(slowest / BEAT, 1),
        unit="",
        target="limit-settled",
    )


def settled_in(number: int) -> dict[str, tuple[float, int, int]]:
    """How soon all is held after each change: seconds, keys held, the most that a node had.

    The nodes' loops go round all the time, as those of a fleet do: a key that nobody asks for is
    let go. They share one thread, so a round of all of them is what one takes twenty times.
    """
    found: dict[str, tuple[float, int, int]] = {}
    with RedisServer() as server, Redis.from_url(server.url) as client:
        options = {"lock": True, "limit": 625, "ttl": 3 * BEAT, "heartbeat_interval": BEAT}
        nodes = [RingNode(client, "limit", **options) for _ in range(20)]

        def ask() -> tuple[int, int]:
            """One round of the loops: how many keys are held, and how many by one node."""
            each = [node.select(KEYS) for node in nodes]
            # A key that changed hands during the round was held by two, one after the other.
            return len(set().union(*each)), max(map(len, each))

        def settle(what: str, since: float) -> None:
            highest = 0
            while True:
                held, most = ask()
                highest = max(highest, most)
                took = time.monotonic() - since
                if held == len(KEYS) or took > 60:
                    break
            found[what] = took, held, highest

        started = time.monotonic()
        for node in nodes:
            node.start()
        settle("at the start", started)
        joined = time.monotonic()
        nodes.append(RingNode(client, "limit", **options))
        nodes[-1].start()
        settle("after a join", joined)
        # By turns the one that has just joined, and one that was there.
        crashed = nodes.pop(-1 if number % 2 else 0)
        # As SIGKILL does: its loop never runs again. Its locks were taken, or renewed, before.
        crashed._machine.next = lambda now: time.sleep(3600)  # type: ignore[method-assign,assignment]
        ends = max(each.deadline for each in crashed._machine.book.held.values())
        while time.monotonic() < ends:
            ask()
        settle("after a crash, from the end of its ttl", ends)
        for node in nodes:
            node.stop()
    return found


def million(result: Result) -> None:
    """1,000,000 keys asked for with limit 10."""

    def asked() -> Iterator[str]:
        return (f"account-{number}" for number in range(1_000_000))

    with RedisServer() as server, Redis.from_url(server.url) as client:
        node = RingNode(client, "million", limit=10, **CALM)
        node.start()
        node.contains("warm-up")
        client.config_resetstat()
        tracemalloc.start()
        held = sum(node.contains(key) for key in asked())
        grown = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert held == 9
        result.add("contains: memory that is kept, MB", f"{grown / 1e6:.0f}")
        result.add("contains: calls to Redis", str(scripts(client)[0]))
        keys = list(asked())
        took = seconds(lambda: node.select(keys))
        result.add("select: ns a key", f"{took * 1e3:.0f}")
        result.add("keys in Redis", str(client.dbsize()))
        node.stop()
        result.add("keys in Redis after stop()", str(client.dbsize()))


PARTS: dict[str, Callable[[Result], None]] = {
    "take": take,
    "renew": renew,
    "contains": contains,
    "waiting": waiting,
    "limit": limit,
    "million": million,
}


if __name__ == "__main__":
    program.play(program.parser(__doc__), PARTS)
