"""Rings in memory of this package and of others, asked alike: one JSON line a kind.

    python scripts/bench/one_ring.py ours-16 100 200000 15
    python scripts/bench/one_ring.py uhashring 100 200000 15

A program of its own because one of the others has this package's import name: it runs in a
process whose path has it, and not this package.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import tracemalloc
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from typing import Any

Owner = Callable[[str], Any]
Maker = Callable[[list[str]], tuple[Any, Owner]]


def ours(replicas: int, placement: str) -> Maker:
    from hashring import Ring  # noqa: PLC0415 - not in the process that has the other of this name
    from hashring.core.point_placement import balanced_points, random_points  # noqa: PLC0415

    place = balanced_points if placement == "balanced" else random_points
    known: dict[str, tuple[int, ...]] = {}

    def make(names: list[str]) -> tuple[Any, Owner]:
        ring = Ring({name: known[name] for name in names if name in known})
        for name in names:
            if name not in known:
                known[name] = tuple(place(ring, name, replicas, random.Random(name)))
                ring = ring.with_node(name, known[name])
        return ring, ring.owner

    return make


def of_uhashring(hash_fn: str | None) -> Maker:
    import uhashring  # noqa: PLC0415

    def make(names: list[str]) -> tuple[Any, Owner]:
        ring = uhashring.HashRing(nodes=list(names), hash_fn=hash_fn)
        return ring, ring.get_node

    return make


def of_hashring() -> Maker:
    from hashring import HashRing  # noqa: PLC0415

    def make(names: list[str]) -> tuple[Any, Owner]:
        ring = HashRing(list(names))
        return ring, ring.get_node

    return make


def of_jump() -> Maker:
    import jump  # noqa: PLC0415

    def make(names: list[str]) -> tuple[Any, Owner]:
        count = len(names)
        return names, lambda key: names[jump.hash(zlib.crc32(key.encode()), count)]

    return make


KINDS: dict[str, Callable[[], Maker]] = {
    "ours-16": lambda: ours(16, "random"),
    "ours-128": lambda: ours(128, "random"),
    "ours-balanced-16": lambda: ours(16, "balanced"),
    "uhashring": lambda: of_uhashring(None),
    "uhashring-ketama": lambda: of_uhashring("ketama"),
    "hashring": of_hashring,
    "jump": of_jump,
}


def main(kind: str, nodes: int, count: int, rounds: int) -> None:
    rng = random.Random(7)
    keys = [f"account-{rng.randrange(10**9)}" for _ in range(count)]
    names = [f"host-{number:04d}:1" for number in range(nodes)]
    make = KINDS[kind]()
    make(names)  # what is loaded once is not the ring's
    tracemalloc.start()
    _, owner = make(names)
    memory = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    bounds = tuple(sorted(rng.randrange(2**32) for _ in range(16 * nodes)))
    some = keys[:2000]
    took = {
        "floor": float("inf"),
        "owner": float("inf"),
    }
    for _ in range(rounds):
        began = time.perf_counter()
        for key in some:
            bisect_right(bounds, zlib.crc32(key.encode()))
        took["floor"] = min(took["floor"], time.perf_counter() - began)
        began = time.perf_counter()
        for key in some:
            owner(key)
        took["owner"] = min(took["owner"], time.perf_counter() - began)
    before = [owner(key) for key in keys]
    loads = Counter(before)
    joined = make([*names, "host-new:1"])[1]
    join = sum(joined(key) != was for key, was in zip(keys, before, strict=True)) / count
    gone = names[nodes // 2]
    left = make([name for name in names if name != gone])[1]
    leave = sum(left(key) != was for key, was in zip(keys, before, strict=True)) / count
    print(
        json.dumps(
            {
                "ns": took["owner"] * 1e9 / len(some),
                "floor": took["floor"] * 1e9 / len(some),
                "memory": memory,
                "peak": max(loads.values()) * nodes / count,
                "join": join * (nodes + 1),
                "leave": leave * count / loads[gone],
            }
        )
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=list(KINDS))
    parser.add_argument("nodes", type=int, help="on the ring")
    parser.add_argument("keys", type=int, help="how many")
    parser.add_argument("rounds", type=int, help="of which the best counts")
    given = parser.parse_args()
    main(given.kind, given.nodes, given.keys, given.rounds)
