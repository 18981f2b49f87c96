#!/usr/bin/env python
"""How even ``balanced`` placement keeps a ring whose joiners read only stretches of it.

    python scripts/bench/balanced_joins.py                     200, 1,000 and 10,000 nodes
    python scripts/bench/balanced_joins.py --nodes 200

Peak to mean is the share of the node that owns most over the fair one: after so many joins to an
empty ring, and after a rolling restart, in which each node leaves and a new one joins. Joins are
played by the code that nodes run, from a fixed seed, so these numbers are always the same.
Beside them stands what joins give that read the whole ring, up to 1,000 nodes, and random ones.
The cost of a look is the time of its script in an embedded Redis with as many nodes.
"""

from __future__ import annotations

import argparse
import random
from bisect import bisect_left, insort
from collections import Counter

from crowd import KEYS, Crowd
from redis import Redis

from hashring.core.hashing import RING_SIZE
from hashring.core.placement import (
    BALANCED_STRETCH,
    BALANCED_STRETCHES,
    BALANCED_WHOLE,
    balanced_cuts,
    free_points,
    sampled_points,
    stretch_ranges,
)
from hashring.store.embedded_server import RedisServer
from hashring.store.ring.commands import look

POINTS = 16
WHOLE_UP_TO = 1000
"""Nodes of the largest ring that is also played with joiners that read all of it."""
LOOKS = 300


class PlayedRing:
    """Points and their owners, as joins and leaves change them."""

    def __init__(self, placement: str) -> None:
        self.placement = placement
        self.rng = random.Random(4711)
        self.points: list[int] = []
        self.owners: dict[int, str] = {}
        self.nodes: dict[str, tuple[int, ...]] = {}
        self.joins = 0

    def _seen(self) -> list[list[tuple[int, str]]]:
        size = len(self.points)
        if size <= BALANCED_WHOLE or self.placement == "whole":
            return [[(point, self.owners[point]) for point in self.points]]
        firsts = [
            bisect_left(self.points, self.rng.randrange(RING_SIZE))
            for _ in range(BALANCED_STRETCHES)
        ]
        return [
            [
                (point, self.owners[point])
                for point in (self.points[(at + i) % size] for i in range(BALANCED_STRETCH + 1))
            ]
            for at in firsts
        ]

    def join(self) -> None:
        name = f"n{self.joins}"
        self.joins += 1
        if self.placement == "random":
            chosen = free_points(self.owners, POINTS, self.rng)
        else:
            seen = self._seen()
            ranges = stretch_ranges(seen, closed=len(seen) == 1)
            if self.placement == "whole" and ranges:
                chosen = balanced_cuts(ranges, len(self.points), POINTS)
            else:
                chosen = sampled_points(ranges, len(self.points), POINTS, self.rng)
        self.nodes[name] = chosen
        for point in chosen:
            insort(self.points, point)
            self.owners[point] = name

    def leave(self, name: str) -> None:
        for point in self.nodes.pop(name):
            del self.points[bisect_left(self.points, point)]
            del self.owners[point]

    def restart_all(self) -> None:
        for name in list(self.nodes):
            self.leave(name)
            self.join()

    def peak_to_mean(self) -> float:
        shares: Counter[str] = Counter()
        around = [*self.points[1:], self.points[0] + RING_SIZE]
        for start, end in zip(self.points, around, strict=True):
            shares[self.owners[start]] += end - start
        return max(shares.values()) * len(self.nodes) / RING_SIZE


def look_cost(nodes: int) -> float:
    """Milliseconds of Redis for the look of one joiner."""
    rng = random.Random(nodes)
    with RedisServer() as server, Redis(unix_socket_path=str(server.socket)) as client:
        crowd = Crowd(client, server.socket, nodes, own=True)
        crowd.put_all()
        client.config_resetstat()
        for number in range(LOOKS):
            starts = [rng.randrange(RING_SIZE) for _ in range(BALANCED_STRETCHES)]
            asks = look(
                KEYS,
                node=f"new-{number}:1",
                whole=BALANCED_WHOLE,
                count=BALANCED_STRETCH,
                starts=starts,
            )
            crowd.store.run(asks)
        spent = float(client.info("commandstats")["cmdstat_evalsha"]["usec"])
        crowd.store.close()
    return spent / LOOKS / 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, nargs="+", default=[200, 1000, 10_000], metavar="N")
    given = parser.parse_args()
    print(
        f"{'nodes':>6}  {'joins read':<10}  {'after joins':>11}  {'restarted':>9}  {'look ms':>7}"
    )
    for nodes in given.nodes:
        for placement in ("whole", "stretches", "random"):
            if placement == "whole" and nodes > WHOLE_UP_TO:
                continue
            ring = PlayedRing(placement)
            for _ in range(nodes):
                ring.join()
            joined = ring.peak_to_mean()
            ring.restart_all()
            cost = f"{look_cost(nodes):.2f}" if placement == "stretches" else ""
            read = "nothing" if placement == "random" else placement
            print(
                f"{nodes:>6}  {read:<10}  {joined:>11.2f}  {ring.peak_to_mean():>9.2f}  {cost:>7}",
                flush=True,
            )


if __name__ == "__main__":
    main()
