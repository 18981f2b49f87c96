"""Measures that are programs of their own, which need a process for themselves."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from result import Measure, Result, Run
from targets import GROUPS, LOCKS, PIPELINE, SERVICE
from timing import median

HERE = Path(__file__).resolve().parents[1]
ROUNDS = 5
"""How often the cost of a handoff is measured."""


def output(run: Run, name: str, *arguments: str) -> str:
    """What a program of this folder prints."""
    run.say(" ".join((name, *arguments)))
    done = subprocess.run(
        [sys.executable, str(HERE / name), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{name} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout


def found(run: Run, name: str, *arguments: str) -> Result:
    """What a program found."""
    return Result.of_json(json.loads(output(run, name, *arguments, "--json")))


def program(name: str, *arguments: str, quick: str = "") -> Callable[[Run], Result]:
    """Takes a measure that a program is.

    Args:
        quick: what the program is asked instead, in words, for a quick run.
    """

    def take(run: Run) -> Result:
        return found(run, name, *(quick.split() if run.quick and quick else arguments))

    return take


def take_group_handoffs(run: Run) -> Result:
    """The median of some runs: what a move costs depends on what else a processor just did."""
    result = Result()
    rounds = [found(run, "groups.py", "moves").values for _ in range(1 if run.quick else ROUNDS)]
    costs = {name: median([each[name] for each in rounds]) for name in rounds[0]}
    sizes = [int(name.partition("-")[2]) for name in costs if name.startswith("members-")]
    for size in sizes:
        members, redis = costs[f"members-{size}"], costs[f"redis-{size}"]
        result.add(
            f"{size:,} partitions, a second member, one handoff at a time: CPU of the members for "
            "a move, and of Redis",
            f"{members:.2f} ms, {redis:.2f} ms",
            value=members,
            unit="ms",
            target="handoff" if size == sizes[-1] else None,
        )
    growth = costs[f"members-{sizes[-1]}"] / costs[f"members-{sizes[0]}"]
    what = f"a move with {sizes[-1]:,} partitions against one with {sizes[0]}"
    result.add(what, f"{growth:.2f}", value=growth, target="handoff-growth")
    return result


def lookup(keys: int, ring: str) -> Callable[[Run], Result]:
    """Takes a measure of spark_lookup.py over so many keys."""
    of_ring = f"--rings {ring}"
    words = f"--keys {keys} {of_ring}".split()
    return program("spark_lookup.py", *words, quick=f"--keys 1000000 {of_ring} --rounds 1")


MEASURES = (
    Measure(
        "locks",
        LOCKS,
        "Locks and limits",
        "What locks cost against redis-py's ``Lock`` and python-redis-lock's, and against a node "
        "without them; and how soon all keys are held again when nodes with a limit join and crash "
        "(``scripts/bench/locks.py``). Where two times are given, ours comes first.",
        90,
        program("locks.py", quick="take renew contains"),
    ),
    Measure(
        "groups",
        GROUPS,
        "A group grows",
        "A live group of 256 partitions, ``balanced``, on a real Redis; members are threads of one "
        "process (``scripts/bench/groups.py settle``).",
        60,
        program("groups.py", "settle"),
    ),
    Measure(
        "group-handoffs",
        GROUPS,
        "Handoffs of a group",
        "What one move costs while a second member takes over half of a group, one handoff at a "
        f"time; both members are threads of one process; the median of {ROUNDS} runs "
        "(``scripts/bench/groups.py moves``).",
        60,
        take_group_handoffs,
    ),
    Measure(
        "group-at-rest",
        GROUPS,
        "A group at rest",
        "The calls that Redis' MONITOR tells of, when nothing happens to a group of 16 members, "
        "without the ``PING`` that each sends on its silent subscription "
        "(``scripts/bench/groups.py rest``).",
        40,
        program("groups.py", "rest"),
    ),
    Measure(
        "assignors",
        GROUPS,
        "Assignors",
        "One join to 1,000 members x 10,000 partitions, and 39 joins and leaves among up to 16 "
        "members of 256 partitions, beside the rule of kazoo's ``SetPartitioner`` and of Runnel "
        "(``contiguous``); *value* is moves against ``balanced``'s. ``scripts/bench/assignors.py`` "
        "prints more.",
        60,
        program("assignors.py", "join", "churn", quick="join churn --quick"),
    ),
    Measure(
        "service",
        SERVICE,
        "The service",
        "``hashring serve`` beside a ring of 200 nodes x 16 replicas, with 200 open pages. A page "
        "is loaded with all its rows, after a heartbeat of every node. Commands are counted five "
        "times with one page open and five times with all, in turn; the medians count "
        "(``scripts/bench/service.py``).",
        60,
        program("service.py", quick="--nodes 10 --pages 5"),
    ),
    Measure(
        "lookup",
        PIPELINE,
        "Owners of very many keys, on Spark",
        "20 million keys on two cores, as ratios to ``crc32(key) % n`` and a count; the median of "
        "five rounds in turn (``scripts/bench/spark_lookup.py``). ``load`` counts by the owner's "
        "number and names it then; *with_owner, count* counts by its name.",
        120,
        lookup(20_000_000, "100x16"),
    ),
    Measure(
        "lookup-1000",
        PIPELINE,
        "Owners of very many keys on a large ring, on Spark",
        "The same on 1,000 nodes x 128 replicas.",
        130,
        lookup(20_000_000, "1000x128"),
    ),
    Measure(
        "lookup-10000",
        PIPELINE,
        "Owners of very many keys on a very large ring, on Spark",
        "The same on 10,000 nodes x 128 replicas.",
        190,
        lookup(20_000_000, "10000x128"),
    ),
    Measure(
        "lookup-100m",
        PIPELINE,
        "Moves of 100 million keys, on Spark",
        "The same over 100 million keys, on 100 nodes x 16 replicas.",
        210,
        lookup(100_000_000, "100x16"),
    ),
    Measure(
        "incremental",
        PIPELINE,
        "Owners that are kept, and histograms, on Spark",
        "What ``reassign`` reads of 10 million rows in 1,024 cells after a join, and answers from "
        "a histogram of points (``scripts/bench/spark_incremental.py``).",
        200,
        program("spark_incremental.py", quick="--keys 1e5 --counted 1e6 --rounds 1"),
    ),
    Measure(
        "wide",
        PIPELINE,
        "Frames of many columns, on Spark",
        "200,000 rows of Parquet and 1,000 computed rows, with and without the owner "
        "(``scripts/bench/spark_wide.py``).",
        120,
        program("spark_wide.py", quick="--rows 2000 --rounds 1 --columns 30"),
    ),
    Measure(
        "audit",
        PIPELINE,
        "Audit of a work log, on Spark",
        "Generated logs against 10,000 changes of a ring, as ratios to a sort of the log; one key "
        "has a fifth of the rows (``scripts/bench/spark_audit.py``).",
        1200,
        program("spark_audit.py", quick="--rows 1e6 --rounds 1"),
    ),
    Measure(
        "write",
        PIPELINE,
        "Keys written by owner, on Spark",
        "100 million keys written as they are, and assigned and written by owner "
        "(``scripts/bench/spark_write.py``).",
        600,
        program("spark_write.py", quick="--keys 1e6"),
    ),
    Measure(
        "simulate",
        PIPELINE,
        "Simulated rings, on Spark",
        "10,000 random rings on two cores (``scripts/bench/spark_simulate.py``).",
        280,
        program("spark_simulate.py", quick="--rings 100 --table 2"),
    ),
)
