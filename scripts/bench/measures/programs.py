"""Measures that are programs of their own: they are run, and what they print is read.

Each program says what it does when it is run by itself; here its lines become a table with
targets. A program that prints something else than it did is an error, not a missing line.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from frame import Line, Measure, Result, Run, median
from targets import GROUPS, LOCKS, PIPELINE, SERVICE

HERE = Path(__file__).resolve().parents[1]
ROUNDS = 5
"""How often the cost of a handoff is measured."""


def output(run: Run, program: str, *arguments: str) -> list[str]:
    """The lines that a program of this folder prints."""
    run.say(" ".join((program, *arguments)))
    if not (HERE / program).exists():
        raise FileNotFoundError(f"there is no scripts/bench/{program} in this tree")
    done = subprocess.run(
        [sys.executable, str(HERE / program), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{program} ended with {done.returncode}: {done.stderr[-500:]}")
    return done.stdout.splitlines()


def take_locks(run: Run) -> Result:
    result = Result()
    settled = []
    for text in output(run, "locks.py", *(("take", "renew", "contains") if run.quick else ())):
        if text[-4:] not in ("pass", "MISS") or text[:2] != "  ":
            continue
        # As locks.py prints them: what, value, ratio, target, verdict, in columns from the right.
        what, value, ratio = text[2:-50].strip(), text[-49:-33].strip(), text[-32:-24].strip()
        target = next((key for start, key in _LOCKS.items() if what.startswith(start)), None)
        if what.startswith(("after a join", "after a crash")):
            settled.append(float(ratio))
        number = None
        if target == "renew":
            number = float(value.removesuffix(" ms"))
        elif ratio:
            number = float(ratio)
        unit = "ms" if target == "renew" else "x" if target else ""
        result.lines.append(Line(what, value, value=number, unit=unit, target=target))
    if settled:
        result.add(
            "all held again after a join or a crash, the longest, in heartbeats",
            f"{max(settled):.1f}",
            value=max(settled),
            unit="",
            target="limit-settled",
        )
    return result


_LOCKS = {
    "redis-py Lock.acquire": "take",
    "heartbeat and renewal": "renew",
    "held key with lock": "held",
}


def take_groups(run: Run) -> Result:
    result = Result()
    rows = [text.split() for text in output(run, "groups.py", "settle")]
    numbers = [row for row in rows if len(row) == 8 and row[0].isdigit()]
    if not numbers:
        raise RuntimeError("groups.py printed no table")
    for handoffs, members, settled, cpu, moves, least, pause, others in numbers:
        result.add(
            f"{handoffs} handoffs at once, to {members} members: settled; CPU; moves; the longest "
            "pause of a partition that moved",
            f"{settled} s; {cpu} s; {moves}; {pause} ms",
            f"{least} at least",
        )
        if others != "0":
            result.notes.append(f"{others} partitions that did not move paused.")
    result.add(
        "settled, the longest",
        "",
        value=max(float(row[2]) for row in numbers),
        unit="s",
        target="group-settled",
    )
    for what, value, target in (
        ("partitions that did not move and paused", sum(int(r[7]) for r in numbers), "group-pause"),
        (
            "moves beyond the least possible",
            max(0, sum(int(r[4]) - int(r[5]) for r in numbers)),
            "group-moves",
        ),
    ):
        result.add(what, str(value), value=float(value), unit="", target=target)
    return result


def take_group_handoffs(run: Run) -> Result:
    """The median of some runs: what a move costs depends on what else a processor just did."""
    result = Result()
    found: dict[int, list[tuple[float, float]]] = {}
    for _ in range(1 if run.quick else ROUNDS):
        for text in output(run, "groups.py", "moves")[1:]:
            partitions, _, members, redis = text.split()
            found.setdefault(int(partitions), []).append((float(members), float(redis)))
    costs = {size: median([members for members, _ in each]) for size, each in found.items()}
    least, *_, most = sorted(costs)
    for size in sorted(costs):
        redis_cost = median([redis for _, redis in found[size]])
        result.add(
            f"{size:,} partitions, a second member, one handoff at a time: CPU of the members for "
            "a move, and of Redis",
            f"{costs[size]:.2f} ms, {redis_cost:.2f} ms",
            value=costs[size],
            unit="ms",
            target="handoff" if size == most else None,
        )
    result.add(
        f"a move with {most:,} partitions against one with {least}",
        f"{costs[most] / costs[least]:.2f}",
        value=costs[most] / costs[least],
        unit="x",
        target="handoff-growth",
    )
    return result


def take_group_at_rest(run: Run) -> Result:
    result = Result()
    (text,) = output(run, "groups.py", "rest")
    found = re.fullmatch(r"at rest, (.*): (\d+) calls to Redis, ([\d.]+) a heartbeat", text)
    if not found:
        raise RuntimeError(f"groups.py printed {text!r}")
    result.add(
        f"{found[1]}: calls to Redis, a heartbeat",
        found[2],
        value=float(found[3]),
        unit="",
        target="group-calls",
    )
    return result


def take_assignors(run: Run) -> Result:
    result = Result()
    title = ""
    for text in output(run, "assignors.py", *(("--quick",) if run.quick else ())):
        cells = re.split(r" {2,}", text.strip())
        if len(cells) == 1 and cells[0] and not cells[0].startswith("-"):
            title = cells[0]
        if title.startswith("One join") and len(cells) == 4 and _is_number(cells[1]):
            result.add(
                f"one join, {cells[0]}: time, moves",
                f"{cells[1]} ms, {cells[3]}",
                value=float(cells[1]),
                unit="ms",
                target=_PLANS.get(cells[0].partition(",")[0]),
            )
        elif "joins and leaves" in title and len(cells) == 5 and _is_number(cells[1]):
            result.add(
                f"38 joins and leaves, {cells[0]}: moves, pauses, unevenness",
                f"{cells[1]}, {cells[3]}, {cells[4]}",
                value=float(cells[2]),
            )
    if not any(line.target == "plan-balanced" for line in result.lines):
        raise RuntimeError("assignors.py printed no table of one join")
    return result


_PLANS = {"balanced": "plan-balanced", "learner(balancing_factor=2": "plan-learner"}


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[\d.]+", text) is not None


def lookup(keys: int, ring: str, targets: dict[str, str]) -> Callable:
    """A measure of spark_lookup.py over so many keys."""

    def take(run: Run) -> Result:
        count = 1_000_000 if run.quick else keys
        few = ("--rounds", "1") if run.quick else ()
        result = Result()
        ratios: dict[str, float] = {}
        empty = None
        for text in output(run, "spark_lookup.py", "--keys", str(count), "--rings", ring, *few):
            if found := re.fullmatch(r" +([\d.]+)  (.+)", text):
                ratios[found[2]] = float(found[1])
            elif found := re.fullmatch(r"load of no keys: (\d+) ms", text):
                empty = float(found[1])
        if not ratios or empty is None:
            raise RuntimeError("spark_lookup.py printed no ratios")
        for way, ratio in ratios.items():
            told = [(way, ratio, way)]
            if way == "moves":
                told.append(("moves against load", ratio / ratios["load"], "moves / load"))
            elif "one owner" in way:
                told.append(
                    ("one owner against all", ratio / ratios["with_owner, count"], "filter")
                )
            elif way.startswith("pandas"):
                told.append(("pandas UDF / load", ratio / ratios["load"], "pandas"))
            for what, value, target in told:
                result.add(
                    f"{count / 1e6:g}M keys, {ring}: {what}",
                    "",
                    value=value,
                    target=targets.get(target),
                )
        result.add(
            f"{ring}: load of no keys", "", value=empty, unit="ms", target=targets.get("empty")
        )
        return result

    return take


def take_incremental(run: Run) -> Result:
    result = Result()
    few = ("--keys", "1e5", "--counted", "1e6", "--rounds", "1") if run.quick else ()
    for text in output(run, "spark_incremental.py", *few):
        if found := re.search(r"in ([\d.]+) s: ([\d.]+)% of the files and ([\d.]+)% of", text):
            result.add(
                "reassigned after a join: time; files read",
                f"{found[1]} s; {found[2]}%",
            )
            result.add(
                "the same: rows read", "", value=float(found[3]), unit="%", target="reassign"
            )
        elif found := re.fullmatch(r"((?:load|moves).*): ([\d.]+) s", text):
            alone = found[1].endswith("by the histogram alone")
            result.add(
                found[1],
                "" if alone else f"{found[2]} s",
                value=float(found[2]) if alone else None,
                unit="s",
                target="load-histogram" if alone else None,
            )
    if not any(line.target == "reassign" for line in result.lines):
        raise RuntimeError("spark_incremental.py printed no part of the rows")
    return result


def take_wide(run: Run) -> Result:
    result = Result()
    few = ("--rows", "2000", "--rounds", "1", "--columns", "30") if run.quick else ()
    for text in output(run, "spark_wide.py", *few):
        if found := re.fullmatch(r"(\d+) columns, (.+): ([\d.]+) \(([\d.]+) s\)", text):
            columns, rows, ratio, took = found.groups()
            computed = "computed" in rows
            result.add(
                f"{columns} columns, {rows}",
                f"{took} s" if not computed else f"{ratio} x without",
                value=float(took if computed else ratio),
                unit="s" if computed else "x",
                target=("wide-computed" if computed else "wide-parquet")
                if columns == "300"
                else None,
            )
    if not result.lines:
        raise RuntimeError("spark_wide.py printed no ratios")
    return result


def take_audit(run: Run) -> Result:
    sizes = ("1e6", "--rounds", "1") if run.quick else ("5e6", "50e6")
    result = Result()
    found = {}
    for text in output(run, "spark_audit.py", "--rows", *sizes):
        if match := re.search(r"([\d,]+) rows: sort +([\d.]+) s; findings +([\d.]+) s", text):
            rows = int(match[1].replace(",", ""))
            found[rows] = (float(match[2]), float(match[3]))
    if not found:
        raise RuntimeError("spark_audit.py printed no times")
    for rows, (plain, audit) in found.items():
        result.add(
            f"{rows / 1e6:g}M rows, against a sort of them",
            f"{audit:.1f} s",
            f"{plain:.1f} s",
            value=audit / plain,
            target="audit" if rows == 50_000_000 else None,
        )
    least, most = min(found), max(found)
    if most == 50_000_000:
        result.add(
            "time per row, 50M against 5M rows",
            "",
            value=(found[most][1] / most) / (found[least][1] / least),
            target="audit-linear",
        )
    return result


def take_service(run: Run) -> Result:
    result = Result()
    found: dict[str, str] = {}
    for text in output(
        run, "service.py", *(("--nodes", "10", "--pages", "5") if run.quick else ())
    ):
        what, value = re.split(r" {2,}", text.partition("   target")[0].strip(), maxsplit=1)
        found[what] = value
        target = next((key for start, key in _SERVICE.items() if what.startswith(start)), None)
        if target == "page-live" and not what.endswith("last"):
            target = None
        number = float(value.split()[0]) if target else None
        unit = "ms"
        if target == "page-live" and number is not None:
            number, unit = number / 1000, "s"
        result.lines.append(Line(what, value, value=number, unit=unit, target=target))
    rates = [float(value) for what, value in found.items() if what.startswith("commands a second")]
    if len(rates) != 2:
        raise RuntimeError("service.py printed no commands a second")
    result.add(
        "commands a second, many pages against one",
        "",
        value=rates[1] / rates[0],
        target="page-load",
    )
    return result


_SERVICE = {"page load, median": "page", "a join reaches": "page-live"}


def take_simulate(run: Run) -> Result:
    result = Result()
    for text in output(
        run, "spark_simulate.py", *(("--rings", "100", "--table", "2") if run.quick else ())
    ):
        if found := re.fullmatch(r"([\d,]+ rings of 100 x 16): ([\d.]+) s", text):
            result.add(
                found[1],
                f"{found[2]} s",
                value=float(found[2]),
                unit="s",
                target="simulate" if found[1].startswith("10,000") else None,
            )
        elif text.startswith("peak at most"):
            result.add(*(part.strip() for part in text.split(":", 1)))
        elif found := re.fullmatch(r"(\w+) +(\d+) x +(\d+), (\d+) rings: (.+): (.+); (.+)", text):
            kind, nodes, replicas, rings, peak, left, join = found.groups()
            result.add(
                f"{kind}, {nodes} x {replicas}, {rings} rings: peak to mean (95%); after a leave; "
                "a join moves, times the least (95%)",
                f"{peak}; {left}; {join}",
            )
    if not result.lines:
        raise RuntimeError("spark_simulate.py printed no time")
    return result


def take_write(run: Run) -> Result:
    result = Result()
    for text in output(run, "spark_write.py", *(("--keys", "1e6") if run.quick else ())):
        what, value = text.split(": ", 1)
        memory = re.fullmatch(r"([\d.]+) GB", value) if what == "most memory" else None
        result.add(
            what,
            value,
            value=float(memory[1]) if memory else None,
            unit="GB",
            target="assign-memory" if memory else None,
        )
    return result


MEASURES = (
    Measure(
        "locks",
        LOCKS,
        "Locks and limits",
        "What locks cost against redis-py's ``Lock`` and python-redis-lock's, and against a node "
        "without them; and how soon all keys are held again when nodes with a limit join and crash "
        "(``scripts/bench/locks.py``). Where two times are given, ours comes first.",
        90,
        take_locks,
    ),
    Measure(
        "groups",
        GROUPS,
        "A group grows",
        "A live group of 256 partitions, ``balanced``, on a real Redis; members are threads of one "
        "process (``scripts/bench/groups.py settle``).",
        60,
        take_groups,
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
        "The calls that Redis' MONITOR tells of, when nothing happens to a group of 16 members "
        "(``scripts/bench/groups.py rest``).",
        40,
        take_group_at_rest,
    ),
    Measure(
        "assignors",
        GROUPS,
        "Assignors",
        "One join to 1,000 members x 10,000 partitions, and 38 joins and leaves among up to 16 "
        "members of 256 partitions, beside the rule of kazoo's ``SetPartitioner`` and of Runnel "
        "(``contiguous``); *value* is moves against ``balanced``'s. ``scripts/bench/assignors.py`` "
        "prints more.",
        60,
        take_assignors,
    ),
    Measure(
        "service",
        SERVICE,
        "The service",
        "``hashring serve`` beside a ring of 200 nodes x 16 replicas, with 200 open pages "
        "(``scripts/bench/service.py``).",
        60,
        take_service,
    ),
    Measure(
        "lookup",
        PIPELINE,
        "Owners of very many keys, on Spark",
        "20 million keys on two cores, as ratios to ``crc32(key) % n`` and a count; the median of "
        "five rounds in turn (``scripts/bench/spark_lookup.py``). ``load`` counts by the owner's "
        "number and names it then; *with_owner, count* counts by its name.",
        120,
        lookup(
            20_000_000,
            "100x16",
            {
                "load": "lookup-100x16",
                "filter": "filter",
                "pandas": "lookup-pandas",
                "empty": "load-empty",
            },
        ),
    ),
    Measure(
        "lookup-1000",
        PIPELINE,
        "Owners of very many keys on a large ring, on Spark",
        "The same on 1,000 nodes x 128 replicas.",
        130,
        lookup(
            20_000_000,
            "1000x128",
            {"load": "lookup-1000x128", "pandas": "lookup-pandas-1000x128"},
        ),
    ),
    Measure(
        "lookup-10000",
        PIPELINE,
        "Owners of very many keys on a very large ring, on Spark",
        "The same on 10,000 nodes x 128 replicas.",
        190,
        lookup(
            20_000_000,
            "10000x128",
            {"load": "lookup-10000x128", "pandas": "lookup-pandas-10000x128"},
        ),
    ),
    Measure(
        "lookup-100m",
        PIPELINE,
        "Moves of 100 million keys, on Spark",
        "The same over 100 million keys, on 100 nodes x 16 replicas.",
        210,
        lookup(100_000_000, "100x16", {"moves / load": "moves"}),
    ),
    Measure(
        "incremental",
        PIPELINE,
        "Owners that are kept, and histograms, on Spark",
        "What ``reassign`` reads of 10 million rows in 1,024 cells after a join, and answers from "
        "a histogram of points (``scripts/bench/spark_incremental.py``).",
        200,
        take_incremental,
    ),
    Measure(
        "wide",
        PIPELINE,
        "Frames of many columns, on Spark",
        "200,000 rows of Parquet and 1,000 computed rows, with and without the owner "
        "(``scripts/bench/spark_wide.py``).",
        120,
        take_wide,
    ),
    Measure(
        "audit",
        PIPELINE,
        "Audit of a work log, on Spark",
        "Generated logs against 10,000 changes of a ring, as ratios to a sort of the log; one key "
        "has a fifth of the rows (``scripts/bench/spark_audit.py``).",
        1200,
        take_audit,
    ),
    Measure(
        "write",
        PIPELINE,
        "Keys written by owner, on Spark",
        "100 million keys written as they are, and assigned and written by owner "
        "(``scripts/bench/spark_write.py``).",
        600,
        take_write,
    ),
    Measure(
        "simulate",
        PIPELINE,
        "Simulated rings, on Spark",
        "10,000 random rings on two cores (``scripts/bench/spark_simulate.py``).",
        280,
        take_simulate,
    ),
)
