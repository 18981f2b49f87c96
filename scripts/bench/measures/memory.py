"""What a node keeps in memory, and what a change costs it."""

from __future__ import annotations

import tracemalloc
from random import Random

from result import Measure, Plot, Result, Run
from targets import RING
from timing import best

from hashring import Ring
from hashring.core.ranges import bounds_of
from hashring.core.select_keys import cells_of


def take(run: Run) -> Result:
    rng = Random(7)
    sizes = ((10, 16), (100, 16)) if run.quick else ((10, 16), (100, 16), (1000, 16), (1000, 128))
    result = Result()
    times: list[tuple[float, float]] = []
    for nodes, replicas in sizes:
        run.say(f"{nodes:,} nodes x {replicas} replicas")
        points = {
            f"host-{number:04d}:1": [rng.randrange(2**32) for _ in range(replicas)]
            for number in range(nodes)
        }
        new = [rng.randrange(2**32) for _ in range(replicas)]
        tracemalloc.start()
        ring = Ring(points)
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()

        def apply(ring: Ring = ring, new: list[int] = new) -> None:
            after = ring.with_node("new:1", new)
            cells_of(bounds_of(after.node_ranges("host-0000:1")))

        took = best({"join": apply}, rounds=5 if run.quick else 15)["join"]
        result.add(
            f"{nodes:,} nodes x {replicas}: memory of the ring; one join applied",
            f"{size / 1e6:.2f} MB; {took * 1e6:,.0f} µs",
        )
        times.append((nodes * replicas, round(took * 1e6, 1)))
    if not run.quick:
        result.plots.append(
            Plot(
                "memory",
                "One join applied by a node that watches the ring",
                "replicas on the ring",
                "µs",
                {"hashring": times},
                log_x=True,
                log_y=True,
            )
        )
    return result


MEASURE = Measure(
    "memory",
    RING,
    "Memory of a ring, and the time to apply a change",
    "The memory that the ring takes in a node that watches it (the points, their owners, the "
    "nodes' own points and names), and the time from a join's message to the node's new "
    "ranges and their table. Measured and reported; best of 15.",
    15,
    take,
)
