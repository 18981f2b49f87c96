"""How even ``balanced`` placement keeps a ring whose joiners read only stretches of it.

Joins and leaves are played by the code that nodes run, from a fixed seed, so the shares are always
the same, whatever the machine. The look of a joiner is a script in a real Redis.
"""

from __future__ import annotations

import random
from bisect import bisect_left, insort
from collections import Counter

from redis_load import KEYS, crowd_of
from result import Measure, Result, Run
from targets import SCALE

from hashring.core.hashing import RING_SIZE
from hashring.core.point_placement import (
    BALANCED_STRETCH,
    BALANCED_STRETCHES,
    BALANCED_WHOLE,
    OwnedRanges,
    balanced_cuts,
    free_points,
    sampled_points,
)
from hashring.core.replica_ranges import stretch_ranges
from hashring.store.ring.commands import look

SIZES = (200, 1000, 10_000)
POINTS = 16
WHOLE_UP_TO = 1000
"""Nodes of the largest ring that is also played with joiners that read all of it."""


class PlayedRing:
    """Points and their owners, as joins and leaves change them.

    Args:
        placement: ``"stretches"`` if joiners read stretches of the ring, ``"whole"`` if they read
            all of it, ``"random"`` if they place their points at random.
    """

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
                chosen = balanced_cuts(OwnedRanges(ranges), len(self.points), POINTS)
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
        """The share of the node that owns most, over the fair one."""
        shares: Counter[str] = Counter()
        around = [*self.points[1:], self.points[0] + RING_SIZE]
        for start, end in zip(self.points, around, strict=True):
            shares[self.owners[start]] += end - start
        return max(shares.values()) * len(self.nodes) / RING_SIZE


def look_cost(nodes: int, looks: int) -> float:
    """Seconds of Redis for the look of one joiner."""
    rng = random.Random(nodes)
    with crowd_of(nodes, own=True) as (crowd, client):
        crowd.put_all()
        client.config_resetstat()
        for number in range(looks):
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
    return spent / looks / 1e6


def shares(placement: str, nodes: int) -> tuple[float, float]:
    """Peak to mean after so many joins, and after a restart of every node under a new name."""
    ring = PlayedRing(placement)
    for _ in range(nodes):
        ring.join()
    joined = ring.peak_to_mean()
    ring.restart_all()
    return joined, ring.peak_to_mean()


def take(run: Run) -> Result:
    result = Result()
    for nodes in (150,) if run.quick else SIZES:
        found = {}
        for placement in ("stretches", "whole", "random"):
            if placement == "whole" and nodes > WHOLE_UP_TO:
                continue
            run.say(f"{nodes:,} nodes, joiners read {READ[placement]}")
            found[placement] = shares(placement, nodes)
            joined, restarted = found[placement]
            result.values |= {
                f"balanced-{placement}-joined-{nodes}": joined,
                f"balanced-{placement}-{nodes}": restarted,
            }
        for at, when in enumerate(("after the joins", "after a rolling restart")):
            mine, *others = (each[at] for each in found.values())
            besides = ", ".join(
                f"{READ[placement]}: {each:.2f}"
                for placement, each in zip(list(found)[1:], others, strict=True)
            )
            result.add(
                f"{nodes:,} nodes, {when}: the largest share over the fair one; with joiners "
                "that read the whole ring, or nothing",
                f"{mine:.2f}",
                besides,
                value=mine,
                target="balanced-share" if (nodes, at) == (10_000, 1) else None,
            )
        cost = result.values[f"balanced-look-{nodes}"] = look_cost(nodes, 30 if run.quick else 300)
        result.add(
            f"{nodes:,} nodes: the look of a joiner: time of Redis",
            f"{cost * 1e3:.2f} ms",
            value=cost * 1e3,
            unit="ms",
            target="balanced-look" if nodes == SIZES[-1] else None,
        )
    return result


READ = {"stretches": "stretches", "whole": "the whole ring", "random": "nothing"}
"""What joiners read, by placement."""

MEASURE = Measure(
    "balanced",
    SCALE,
    "How even balanced placement keeps a large ring",
    "Peak to mean is the share of the node that owns most over the fair one: after so many joins "
    "to an empty ring, and after a rolling restart, in which each node leaves and a new one joins. "
    "Nodes have 16 points each, and joiners read what nodes without ``follow=True`` read.",
    120,
    take,
)
