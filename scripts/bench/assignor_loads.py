#!/usr/bin/env python
"""What the assignor ``load`` makes of skewed loads, beside ``balanced``.

    python scripts/bench/assignor_loads.py
    python scripts/bench/assignor_loads.py --quick      does it work at all?
    python scripts/bench/assignor_loads.py --csv docs/benchmarks/assignor-loads.csv

Loads are drawn from a fixed seed and time is virtual, so the numbers are the same on every
machine. Every 10 s each partition's load is reported and the assignor is asked once; a move
happens at once. Peak to mean is the level of the busiest member over the mean, averaged over time
and at its 99th percentile, after the first 10 minutes.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
from collections.abc import Callable, Iterator

from hashring.core.assignors import (
    Assignor,
    BalancedAssignor,
    GroupMember,
    GroupSituation,
    LoadAssignor,
)

PARTITIONS, MEMBERS, STEP = 256, 8, 10
Loads = dict[int, float]


def zipf(rng: random.Random) -> Iterator[Loads]:
    """Zipf (s = 0.8) over partitions in random order, each report noisy by up to 5 %."""
    ranks = rng.sample(range(PARTITIONS), PARTITIONS)
    while True:
        yield {p: (rank + 1) ** -0.8 * rng.uniform(0.95, 1.05) for p, rank in enumerate(ranks)}


def drifting(rng: random.Random) -> Iterator[Loads]:
    """Each partition's load is a day's wave with a time of its own: what is busy wanders."""
    phases = [p / PARTITIONS + rng.uniform(-0.05, 0.05) for p in range(PARTITIONS)]
    seconds = 0
    while True:
        day = seconds / 86_400
        yield {
            p: (1.2 + math.sin(2 * math.pi * (day + phase))) ** 3 * rng.uniform(0.95, 1.05)
            for p, phase in enumerate(phases)
        }
        seconds += STEP


def one_hot(rng: random.Random) -> Iterator[Loads]:
    """One partition has half of a member's fair share; each hour it is another."""
    seconds = 0
    while True:
        hot = seconds // 3600 * 37 % PARTITIONS
        yield {
            p: (PARTITIONS / MEMBERS / 2 if p == hot else 1.0) * rng.uniform(0.95, 1.05)
            for p in range(PARTITIONS)
        }
        seconds += STEP


def too_hot(rng: random.Random) -> Iterator[Loads]:
    """One partition has twice a member's fair share: nothing can even it out."""
    while True:
        yield {
            p: (2 * PARTITIONS / MEMBERS if p == 5 else 1.0) * rng.uniform(0.95, 1.05)
            for p in range(PARTITIONS)
        }


def play(
    assignor: Assignor, kind: Callable[[random.Random], Iterator[Loads]], hours: float
) -> tuple[float, float, float]:
    """Mean and 99th percentile of peak to mean, and moves an hour."""
    members = tuple(GroupMember(f"m{n}", n) for n in range(MEMBERS))
    # Members in blocks, as a range of accounts would be: neighbours are on one member.
    owners: tuple[str | None, ...] = tuple(
        members[p * MEMBERS // PARTITIONS].name for p in range(PARTITIONS)
    )
    recent: list[int] = []
    begun = False
    peaks: list[float] = []
    moves = 0
    for number, loads in zip(range(int(hours * 3600 / STEP)), kind(random.Random(14))):  # noqa: B905
        now = number * STEP
        recent = [at for at in recent if at > now - 60]
        situation = GroupSituation(
            members,
            PARTITIONS,
            owners,
            loads=loads,
            recent_moves=len(recent),
            rebalancing=begun,
        )
        target = assignor.assign(situation)
        moved = sum(was != to for was, to in zip(owners, target.interim, strict=True))
        begun = not target.settled
        owners = target.interim
        recent += [now] * moved
        if now < 600:
            continue
        moves += moved
        level = dict.fromkeys((member.name for member in members), 0.0)
        for partition, owner in enumerate(owners):
            level[str(owner)] += loads[partition]
        peaks.append(max(level.values()) * MEMBERS / math.fsum(level.values()))
    peaks.sort()
    return (
        math.fsum(peaks) / len(peaks),
        peaks[int(0.99 * len(peaks))],
        moves / (hours - 600 / 3600),
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="half an hour instead of a day")
    parser.add_argument("--csv", metavar="FILE", help="write the table of docs/howto/load.rst")
    given = parser.parse_args()
    hours = 0.5 if given.quick else 24.0
    kinds = {
        "Zipf, s = 0.8": zipf,
        "drifting over a day": drifting,
        "one hot, half a share": one_hot,
        "one too hot, two shares": too_hot,
    }
    print(f"{PARTITIONS} partitions, {MEMBERS} members, {hours:g} hours of virtual time\n")
    print(f"{'loads':24} {'assignor':26} {'peak/mean':>9} {'p99':>6} {'moves/h':>8}")
    rows = [("loads", "balanced: peak to mean", "load: peak to mean", "load: moves an hour")]
    for title, kind in kinds.items():
        found: list[tuple[str, str]] = []
        for assignor in (BalancedAssignor(), LoadAssignor(), LoadAssignor(1.1), LoadAssignor(1.5)):
            mean, worst, moves = play(assignor, kind, hours)
            print(f"{title:24} {assignor.name:26} {mean:9.2f} {worst:6.2f} {moves:8.1f}")
            found.append((f"{mean:.2f}", f"{moves:.1f}"))
        (balanced, _), (load, moved), *_ = found
        rows.append((title, balanced, load, moved))
    if given.csv:
        with open(given.csv, "w", newline="") as file:
            csv.writer(file, lineterminator="\n").writerows(rows)


if __name__ == "__main__":
    main()
