"""One key: is it mine?"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Callable
from random import Random
from time import monotonic

from peers import plain_node, their_node
from redis_hashring import HashAlgorithm
from result import Measure, Plot, Result, Run
from targets import RING
from timing import best

from hashring.core.ranges import bounds_of


def asked(contains: Callable[[str], bool], keys: list[str]) -> Callable[[], None]:
    def ask() -> None:
        for key in keys:
            contains(key)

    return ask


def floor(bounds: tuple[int, ...], keys: list[str]) -> Callable[[], None]:
    def search() -> None:
        for key in keys:
            bisect_right(bounds, zlib.crc32(key.encode()))

    return search


class Least:
    """The least that a node can be: the floor in a method, and its lease."""

    def __init__(self, bounds: tuple[int, ...]) -> None:
        self._lease = bounds, monotonic() + 600

    def contains(self, key: str) -> bool:
        bounds, deadline = self._lease
        if bisect_right(bounds, zlib.crc32(key.encode())) & 1:
            return monotonic() < deadline
        return False


def take(run: Run) -> Result:
    rng = Random(7)
    keys = [f"account-{rng.randrange(10**8):08d}" for _ in range(64)]
    rounds = 5 if run.quick else 120
    sizes = (16, 1000) if run.quick else (1, 4, 16, 64, 250, 1000)
    nodes = {size: plain_node(size) for size in sizes}
    calls: dict[str, Callable[[], object]] = {}
    for size, node in nodes.items():
        calls[f"ours {size}"] = asked(node.contains, keys)
        calls[f"floor {size}"] = floor(bounds_of(node.get_ranges()), keys)
        calls[f"least {size}"] = asked(Least(bounds_of(node.get_ranges())).contains, keys)
        crc = their_node(node, HashAlgorithm.CRC32)
        calls[f"crc {size}"] = asked(crc.contains, keys)
    calls["xxh 16"] = asked(their_node(nodes[16], HashAlgorithm.XXHASH).contains, keys)
    run.say(f"{len(calls)} ways, {rounds} rounds in turn")
    times = best(calls, rounds=rounds, seconds=0.002)
    ns = {name: seconds * 1e9 / len(keys) for name, seconds in times.items()}

    result = Result()
    for peer, name, target in (
        ("redis-hashring, CRC-32", "crc 16", "contains-peer"),
        ("redis-hashring, xxHash (its default)", "xxh 16", None),
        ("bare bisect(crc32)", "floor 16", "contains-floor"),
        ("the same in a method that asks its lease", "least 16", None),
    ):
        result.add(
            f"16 replicas, against {peer}",
            f"{ns['ours 16']:.0f} ns",
            f"{ns[name]:.0f} ns",
            value=ns["ours 16"] / ns[name],
            target=target,
        )
    result.add(
        "1,000 replicas, against 16",
        f"{ns['ours 1000']:.0f} ns",
        f"{ns['ours 16']:.0f} ns",
        value=ns["ours 1000"] / ns["ours 16"],
        target="contains-1000",
    )
    if not run.quick:
        result.plots.append(
            Plot(
                "contains",
                "contains: one key of 16 characters",
                "replicas of the node",
                "ns",
                {
                    label: [(size, round(ns[f"{way} {size}"], 1)) for size in sizes]
                    for label, way in (
                        ("hashring", "ours"),
                        ("redis-hashring 0.7, CRC-32", "crc"),
                        ("bare bisect(crc32)", "floor"),
                    )
                },
                log_x=True,
                log_y=True,
            )
        )
    return result


MEASURE = Measure(
    "contains",
    RING,
    "One key",
    "The time of one ``node.contains(key)``, keys of 16 characters, on a ring of four nodes, "
    "a quarter of the keys its own. redis-hashring's node has the same ranges. The floor is "
    "what no implementation in Python can do without: hash the key, search the ranges; it "
    "does not ask whether the node still may own anything. A node is an object with a method, "
    "which asks the clock about each key of its own: the same search in the shortest such method "
    "is measured as well. What ours takes beyond that is its checks, of the key and of the "
    "process, less the searches that a table of the top bits of the point spares. Best of 120 "
    "rounds in turn.",
    10,
    take,
)
