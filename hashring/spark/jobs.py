"""The jobs: from an input to an output, a summary and a report.

Each checks what it can before it starts what may last hours, writes all of its output or none,
and counts what it could not use.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.history import RingHistory
from hashring.core.ring import Ring
from hashring.core.ringfile import RingFile
from hashring.errors import ConfigError, NoDataError
from hashring.spark.answers import Outcome, Table
from hashring.spark.asof import as_of
from hashring.spark.audit import PROBLEMS, counted_audit, work_slices
from hashring.spark.compaction import compact
from hashring.spark.counting import Counts
from hashring.spark.files import Input, local_path
from hashring.spark.histogram import DEFAULT_BUCKETS, load_of_histogram, point_histogram
from hashring.spark.keys import check_free, is_native, key_text, quoted
from hashring.spark.load import hot_keys, load
from hashring.spark.output import Output, check_distinct
from hashring.spark.owner_columns import partition_by_owner, with_owner
from hashring.spark.plan import moves_section, plan, plan_of_histogram
from hashring.spark.reassign import CELL, by_cell, check_cells, keep_ring, reassign
from hashring.spark.report import Report
from hashring.spark.simulate import (
    ReplicasAnswer,
    Scenario,
    drawn_within,
    simulate,
    summarise,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


WORST: Final = 100
"""How many findings an audit names; all of them are in its output."""
FIRST: Final = 25
"""How many findings a report shows in order of time."""
PICTURED_NODES: Final = 200
"""Of more, a report shows a histogram instead of a picture and a row each."""


def _check_keys(source: Input, key: str) -> None:
    """Check that there is a key at all. Looks at rows only until it has found one.

    Raises:
        NoDataError: there is no row, or every key is null or empty.
        ColumnError: no such column, or no type of a key.
    """
    df = source.frame
    if df.where(key_text(df, key).isNotNull()).isEmpty():
        # With the key, since Spark reads no file for its malformed records alone.
        if not df.select(quoted(key)).take(1):
            raise NoDataError(source.source, "holds no row that fits the schema")
        raise NoDataError(source.source, f"every key in column {key!r} is null or empty")


@contextmanager
def kept(*frames: DataFrame) -> Iterator[None]:
    """Within it, Spark keeps the rows of these frames once they are computed."""
    for frame in frames:
        frame.cache()
    interrupted = False
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        interrupted = True
        raise
    finally:
        for frame in frames:
            # A signal within a call to Java leaves its answer unread, and the next call reads that.
            with suppress(Exception) if interrupted else nullcontext():
                frame.unpersist()


def _ring_facts(ring: Ring) -> list[tuple[str, Any]]:
    facts: list[tuple[str, Any]] = [
        ("nodes", ring.node_count),
        ("replicas", len(ring)),
        ("ring fingerprint", ring.fingerprint),
    ]
    if not is_native(ring.hash_algorithm.name):
        facts.append(("hash", f"{ring.hash_algorithm.name}, computed in Python: slower"))
    return facts


def assign_job(
    source: Input,
    ring: Ring | RingFile,
    output: Output,
    *,
    key: str = "key",
    by_owner: bool = False,
    cells: int | None = None,
) -> Outcome:
    """Write every row with the point and owner of its key.

    Args:
        by_owner: one directory ``owner=<node>`` a node, which that node can read alone.
        cells: write so many directories ``cell=<number>`` of rows in order of their points, for
            :func:`reassign_job`; a power of two.
    """
    kept = RingFile(ring) if isinstance(ring, Ring) else ring
    ring = kept.ring
    df, bad_records = source.counted()
    output.check(df.sparkSession)
    check_distinct(df)
    if cells is not None:
        check_cells(cells)
        check_free(df, CELL)
        local = None if output.path is None else local_path(df.sparkSession, output.path)
        if by_owner or local is None or output.mode == "append":
            raise ConfigError(
                "cells", cells, "give a new path on this machine, and not by owner as well"
            )
    owned = partition_by_owner(df, ring, key) if by_owner else with_owner(df, ring, key)
    _check_keys(source, key)
    counts = Counts(owned, rows=F.count(F.lit(1)), owned=F.count("owner"))
    if cells is None:
        output.write(counts.frame, ["owner"] if by_owner else [])
    else:
        wanted = replace(output, format="parquet")
        wanted.write(
            by_cell(counts.frame, cells), [CELL], lambda place: keep_ring(place, kept, cells)
        )
    told = counts.get()
    rows, with_key = told["rows"], told["owned"]
    facts = [
        ("rows written", rows),
        ("rows without a key", rows - with_key),
        ("bad records left out", bad_records()),
        *_ring_facts(ring),
    ]
    report = Report("Owners assigned")
    report.facts(facts)
    return Outcome(tuple(facts), report)


def reassign_job(spark: SparkSession, path: str, ring: RingFile) -> Outcome:
    """Give rows that were written in cells their owners on another ring."""
    found = reassign(spark, path, ring)
    facts: list[tuple[str, Any]] = [
        ("rows that moved", found.moved),
        ("rows read", found.rows),
        ("files read", found.files),
        ("cells rewritten", found.touched),
        ("cells", found.cells),
        ("ring fingerprint before", found.before.fingerprint),
        *_ring_facts(ring.ring),
    ]
    report = Report("Owners reassigned")
    report.facts(facts)
    return Outcome(tuple(facts), report)


def compact_job(spark: SparkSession, path: str, size: int, format: str = "parquet") -> Outcome:
    """Merge the small batches of a stream's output."""
    found = compact(spark, path, size, format)
    facts: list[tuple[str, Any]] = [
        ("directories before", found.before),
        ("directories now", found.after),
        ("rows merged", found.rows),
    ]
    report = Report("Batches merged")
    report.facts(facts)
    return Outcome(tuple(facts), report)


def histogram_job(
    source: Input,
    output: Output,
    *,
    key: str = "key",
    weight: str | None = None,
    hash_algorithm: str = "crc-32",
    buckets: int = DEFAULT_BUCKETS,
) -> Outcome:
    """Write how many rows each bucket of points has, for :func:`load_job`."""
    df, bad_records = source.counted()
    output.check(df.sparkSession)
    made = point_histogram(df, key, weight, hash_algorithm=hash_algorithm, buckets=buckets)
    _check_keys(source, key)
    counts = Counts(
        made,
        filled=F.count("start"),
        rows=F.sum("keys"),
        lost=F.sum(F.when(F.col("start").isNull(), F.col("keys")).otherwise(0)),
        bad=F.sum("bad_weights"),
    )
    output.write(counts.frame.coalesce(1))
    told = counts.get()
    facts: list[tuple[str, Any]] = [
        ("rows", told["rows"]),
        ("rows without a key", told["lost"]),
        ("unusable weights", told["bad"]),
        ("bad records left out", bad_records()),
        ("buckets", buckets),
        ("buckets with any row", told["filled"]),
        ("hash", hash_algorithm),
    ]
    report = Report("Histogram of points")
    report.facts(facts)
    return Outcome(tuple(facts), report)


def load_job(
    source: Input,
    ring: Ring,
    output: Output | None = None,
    *,
    key: str = "key",
    weight: str | None = None,
    hottest: int = 20,
    histogram: Input | None = None,
) -> Outcome:
    """The load of every node, and the hottest keys.

    Args:
        hottest: how many; 0 leaves them out, and spares reading the rows twice more.
        histogram: of the points of these rows; then only rows in buckets where the owner changes
            are counted again.
    """
    df, bad_records = source.counted() if histogram is None else (source.frame, lambda: 0)
    if output:
        output.check(df.sparkSession)
    if histogram is None:
        loads = load(df, ring, key, weight)
    else:
        loads = load_of_histogram(histogram.frame, ring, df, key, weight)
    hot = hot_keys(source.frame, ring, key, weight, hottest) if hottest else None
    _check_keys(source, key)
    rows = loads.collect()
    hottest_rows = hot.collect() if hot else []
    if output:
        spark = df.sparkSession
        output.write(spark.createDataFrame(rows, loads.schema).coalesce(1))

    on_ring = sorted((r for r in rows if r["node"] is not None), key=lambda r: -r["weight"])
    lost = sum(r["keys"] for r in rows if r["node"] is None)
    peak = max(r["share"] / r["fair_share"] for r in on_ring)
    facts: list[tuple[str, Any]] = [
        ("rows", sum(r["keys"] for r in rows)),
        ("weight", sum(r["weight"] for r in on_ring)),
        ("rows without a key", lost),
        ("unusable weights", sum(r["bad_weights"] for r in rows)),
        ("bad records left out", bad_records()),
        *_ring_facts(ring),
        ("peak to fair share", peak),
        ("busiest node", on_ring[0]["node"]),
    ]
    if hottest_rows:
        top = hottest_rows[0]
        facts.append(("hottest key", _key_name(top["key"])))
        part = f"{100 * top['of_mean']:.2f}%"
        facts.append(("hottest key's part of a node's mean load", part))
    report = Report("Load of the ring")
    report.facts(facts)
    if ring.node_count <= PICTURED_NODES:
        report.ring(ring)
    _load_section(report, on_ring)
    if hottest_rows:
        _hot_section(report, hottest_rows)
    nodes = Table(
        "busiest nodes",
        ("node", "keys", "weight", "share", "fair share", "of fair"),
        [
            (r["node"], r["keys"], r["weight"], r["share"], r["fair_share"],
             r["share"] / r["fair_share"])
            for r in on_ring
        ],
        summed=("keys", "weight", "share", "fair share"),
        percent=("share", "fair share", "of fair"),
        bar="share",
    )  # fmt: skip
    keys = Table(
        "hottest keys",
        ("key", "rows", "weight", "of all", "of a node's mean", "owner"),
        [
            (_key_name(r["key"]), r["rows"], r["weight"], r["share"], r["of_mean"], r["owner"])
            for r in hottest_rows
        ],
        percent=("of all", "of a node's mean"),
    )
    return Outcome(tuple(facts), report, (nodes, keys) if hottest_rows else (nodes,))


def _load_section(report: Report, rows: Sequence[Any]) -> None:
    report.section(
        "Share of each node",
        "Bars: the node's part of all weight. Marks: its fair share, by its number of points.",
    )
    if len(rows) > PICTURED_NODES:
        report.histogram(
            "Nodes by their share over their fair share",
            [r["share"] / r["fair_share"] for r in rows],
        )
    report.bars(
        "Share of each node against its fair share",
        [(r["node"], r["share"], r["fair_share"]) for r in rows],
    )
    report.table(
        ["node", "keys", "weight", "share", "fair share", "share / fair", "part of the ring"],
        [
            (
                r["node"],
                r["keys"],
                r["weight"],
                f"{100 * r['share']:.2f}%",
                f"{100 * r['fair_share']:.2f}%",
                r["share"] / r["fair_share"],
                f"{100 * r['ring_share']:.2f}%",
            )
            for r in rows
        ],
        most=PICTURED_NODES,
    )


def _hot_section(report: Report, rows: Sequence[Any]) -> None:
    report.section(
        "Hottest keys",
        "In parts of a node's mean load: above 100%, the key alone is more than a node's fair "
        "share, and no placement of points can help.",
    )
    names = [_key_name(r["key"]) for r in rows]
    report.bars(
        "Hottest keys",
        [(name, r["of_mean"], None) for name, r in zip(names, rows, strict=True)],
    )
    report.table(
        ["key", "rows", "weight", "part of all", "part of a node's mean", "owner"],
        [
            (
                name,
                r["rows"],
                r["weight"],
                f"{100 * r['share']:.3f}%",
                f"{100 * r['of_mean']:.2f}%",
                r["owner"],
            )
            for name, r in zip(names, rows, strict=True)
        ],
    )


def _key_name(key: Any) -> str:
    return key if isinstance(key, str) else bytes(key).hex(" ")


def plan_job(
    source: Input,
    ring: Ring,
    output: Output | None = None,
    *,
    join: Iterable[str] = (),
    leave: Iterable[str] = (),
    weights: Mapping[str, float] | None = None,
    key: str = "key",
    weight: str | None = None,
    n_replicas: int = 16,
    placement: str = "random",
    seed: int = 0,
    histogram: Input | None = None,
) -> Outcome:
    """What moves if nodes join, leave or change their weight.

    Args:
        histogram: as for :func:`load_job`.
    """
    join, leave = tuple(join), tuple(leave)
    df, bad_records = source.counted() if histogram is None else (source.frame, lambda: 0)
    if output:
        output.check(df.sparkSession)
    _check_keys(source, key)
    asked: dict[str, Any] = {
        "join": join,
        "leave": leave,
        "weights": weights,
        "key": key,
        "weight": weight,
        "n_replicas": n_replicas,
        "placement": placement,
        "seed": seed,
    }
    if histogram is None:
        found = plan(df, ring, **asked)
    else:
        found = plan_of_histogram(histogram.frame, ring, df, **asked)
    if output:
        output.write(found.moves.coalesce(1))
    moves = found.moves.collect()
    nodes = found.nodes.collect()
    part = found.moved_weight / found.weight if found.weight else 0.0
    least = found.least_weight / found.weight if found.weight else 0.0
    facts: list[tuple[str, Any]] = [
        ("rows", found.keys + found.rows_without_key),
        ("rows that move", found.moved_keys),
        ("part of the weight that moves", f"{100 * part:.3f}%"),
        ("least that must move to get these loads", f"{100 * least:.3f}%"),
        ("least with fair shares before and after", f"{100 * found.fair_share_moved:.3f}%"),
        ("rows without a key", found.rows_without_key),
        ("unusable weights", found.bad_weights),
        ("bad records left out", bad_records()),
        ("nodes before", found.before.node_count),
        ("nodes after", found.after.node_count),
        ("placement of joining nodes", f"{placement}, seed {seed}"),
    ]
    report = Report(_plan_title(join, leave, weights or {}))
    report.facts(facts)
    moves_section(report, moves, nodes)
    moved = Table(
        "moves",
        ("from", "to", "rows", "weight"),
        [(r["before"], r["after"], r["keys"], r["weight"]) for r in moves],
        summed=("rows", "weight"),
        bar="rows",
    )
    changed = Table(
        "nodes by rows that they gain or lose",
        ("node", "rows before", "rows after", "gained", "lost"),
        [
            (r["node"], r["keys_before"], r["keys_after"], r["gained_keys"], r["lost_keys"])
            for r in sorted(nodes, key=lambda r: -(r["gained_keys"] + r["lost_keys"]))
        ],
        summed=("rows before", "rows after", "gained", "lost"),
    )
    return Outcome(tuple(facts), report, (moved, changed))


def _plan_title(join: Sequence[str], leave: Sequence[str], weights: Mapping[str, float]) -> str:
    parts = [(", ".join(join), "joins" if len(join) == 1 else "join")] if join else []
    parts += [(", ".join(leave), "leaves" if len(leave) == 1 else "leave")] if leave else []
    changed = [f"{node} to {weight:g}" for node, weight in weights.items() if node not in join]
    parts += [(", ".join(changed), "in weight")] if changed else []
    return "Plan: " + "; ".join(f"{who} {what}" for who, what in parts)


def audit_job(
    source: Input,
    history: RingHistory,
    output: Output | None = None,
    *,
    events: DataFrame | None = None,
    key: str = "key",
    node: str = "node",
    start: str = "start",
    end: str = "end",
) -> Outcome:
    """Hold a work log against the ring's history; the output is the findings.

    Args:
        events: what the history was made of, to count its kinds.
    """
    df, bad_records = source.counted()
    if output:
        output.check(df.sparkSession)
    columns: dict[str, Any] = {"key": key, "node": node, "start": start, "end": end}
    _check_keys(source, key)
    asof = as_of(history)
    # Not of the frame that counts bad records: this does not read all columns.
    slices = work_slices(source.frame, asof, **columns)
    found, reasons = counted_audit(df, asof, slices=slices, **columns)
    # Everything is computed from these rows: the log is read, shuffled and sorted once.
    with kept(found.judged, found.counts):
        summary = found.summary.collect()[0].asDict()
        rejected = {why: count for why, count in reasons.get().items() if count}
        changes = found.changes.orderBy("version").collect()
        nodes = found.nodes.collect()
        worst = _worst(found.findings)
        first = found.findings.orderBy("start", "key", "node").limit(FIRST).collect()
        if output:
            output.write(found.findings)
    told = events.groupBy("kind").count().orderBy("kind").collect() if events else []
    facts: list[tuple[str, Any]] = [
        ("rows judged", summary["rows"]),
        *([("hot keys, cut into slices of time", len(slices.keys))] if slices else []),
        *((f"rows rejected: {reason}", rejected[reason]) for reason in sorted(rejected)),
        ("bad records left out", bad_records()),
        ("ring changes", len(history.changes)),
        *((f"events: {row['kind']}", row["count"]) for row in told),
        ("work begun by the owner and gone on with after losing the key", summary["overrun"]),
        ("work begun after losing the key", summary["late"]),
        ("work begun before getting the key", summary["early"]),
        ("work on a key of another node", summary["foreign"]),
        ("work on a key that its full owner may have refused", summary["overflow"]),
        ("work at the same time as another node", summary["overlapping"]),
        ("longest such overlap, seconds", summary["overlap_most"]),
        ("latest end of work after a change, seconds", summary["after_change_most"]),
        ("keys", summary["keys"]),
        ("periods of ownership", summary["periods"]),
        ("of these, without work by the owner (none due, or none done)", summary["unworked"]),
        ("longest gap between two pieces of work on a key, seconds", summary["longest_gap"]),
    ]
    report = Report("Audit of the work log")
    report.facts(facts)
    _audit_sections(report, first, changes, nodes)
    faults = ("rows", *PROBLEMS, "overlapping")
    by_node = Table(
        "nodes by faults",
        ("node", *faults),
        [
            (r["node"], *(r[name] for name in faults))
            for r in sorted(nodes, key=lambda r: (-sum(r[n] for n in faults[1:]), r["node"]))
        ],
        summed=faults,
    )
    return Outcome(tuple(facts), report, (worst, by_node))


def _worst(findings: DataFrame) -> Table:
    """The findings with the most time in which another node may have worked on the key."""
    longest = F.greatest(F.coalesce("unowned", F.lit(0.0)), F.coalesce("overlap", F.lit(0.0)))
    rows = findings.orderBy(longest.desc(), "start", "key", "node").limit(WORST).collect()
    return Table(
        "worst findings",
        ("key", "node", "start", "owner", "problem", "seconds unowned", "with", "seconds together"),
        [
            (
                _key_name(r["key"]), r["node"], r["start"].isoformat(sep=" ", timespec="seconds"),
                r["owner"], r["problem"], r["unowned"], r["other"], r["overlap"],
            )
            for r in rows
        ],
    )  # fmt: skip


def _audit_sections(
    report: Report, findings: Sequence[Any], changes: Sequence[Any], nodes: Sequence[Any]
) -> None:
    report.section(
        "Nodes",
        "overrun: went on after losing the key; late: began after losing it; early: began before "
        "getting it; foreign: neither before nor next; overflow: the owner was full, so this is "
        "no fault; overlapping: at the same time as another.",
    )
    report.table(
        ["node", "rows", *PROBLEMS, "overflow", "overlapping"],
        [
            (
                r["node"],
                r["rows"],
                *(r[name] for name in PROBLEMS),
                r["overflow"],
                r["overlapping"],
            )
            for r in sorted(nodes, key=lambda r: r["node"])
        ],
        most=200,
    )
    report.section(
        "Changes of the ring",
        "How soon the new owner worked on each key that it got, and work by nodes that had lost "
        "a key to the change.",
    )
    moved = [r for r in changes if r["keys"] or r["overrun"] or r["late"]]
    report.bars(
        "Median seconds to the first work by the new owner, by change",
        [
            (f"{r['epoch']} {r['kind']} {', '.join(r['nodes'])}", r["first_work_median"], None)
            for r in moved
            if r["first_work_median"] is not None
        ],
        unit="s",
    )
    report.table(
        [
            "epoch",
            "at",
            "change",
            "keys worked on",
            "first work: least, s",
            "median, s",
            "most, s",
            "overrun",
            "late",
            "latest end, s",
        ],
        [
            (
                str(r["epoch"]),
                r["at"].isoformat(sep=" ", timespec="milliseconds"),
                f"{r['kind']} {', '.join(r['nodes'])}",
                r["keys"],
                *first_work,
                r["overrun"],
                r["late"],
                latest,
            )
            for r, *first_work, latest in zip(
                moved,
                _decimals(moved, "first_work_least"),
                _decimals(moved, "first_work_median"),
                _decimals(moved, "first_work_most"),
                _decimals(moved, "after_change_most"),
                strict=True,
            )
        ],
        most=100,
    )
    report.section("First findings", f"The earliest {FIRST}; all of them are in the job's output.")
    report.table(
        ["key", "node", "start", "owner", "problem", "after change, s", "with", "overlap, s"],
        [
            (
                _key_name(r["key"]),
                r["node"],
                r["start"].isoformat(sep=" ", timespec="milliseconds"),
                r["owner"],
                r["problem"],
                r["after_change"],
                r["other"],
                r["overlap"],
            )
            for r in findings
        ],
    )


def simulate_job(
    spark: SparkSession,
    kinds: Sequence[Scenario],
    output: Output | None = None,
    *,
    rings: int = 1000,
    seed: int = 0,
) -> Outcome:
    """Draw random rings, and show what balance and movement they have."""
    if output:
        output.check(spark)
    drawn = simulate(spark, kinds, rings, seed)
    with kept(*([drawn] if output else [])):
        if output:
            output.write(drawn)
        rows = summarise(drawn).collect()
    facts = [("scenarios", len(kinds)), ("rings of each", rings), ("seed", seed)]
    report = Report("Simulated rings")
    report.facts(facts)
    balance_section(report, rows)
    shown = [
        (f"{r['nodes']} x {r['replicas']} {r['placement']}{_limit_text(r['limit'])}", _peak_text(r))
        for r in rows
    ]
    return Outcome((*facts, *shown), report)


def _limit_text(limit: float | None) -> str:
    return "" if limit is None else f", limit {limit:g}"


def _peak_text(row: Any) -> str:
    return (
        f"peak {row['peak_mean']:.2f} ({row['peak_p95']:.2f} at 95%, {row['peak_p99']:.2f} at "
        f"99%), a join moves {row['join_ratio_mean']:.2f} x the least"
    )


def balance_section(report: Report, rows: Sequence[Any]) -> None:
    """Plot and table of a summary of simulated rings."""
    report.section(
        "Balance against replicas",
        "The busiest node's share over its fair share: mean of the rings, and up to the 95th "
        "percentile.",
    )
    series: dict[str, list[tuple[float, float, float]]] = {}
    for r in rows:
        name = f"{r['nodes']} nodes, {r['placement']}{_limit_text(r['limit'])}"
        series.setdefault(name, []).append((r["replicas"], r["peak_mean"], r["peak_p95"]))
    report.lines(
        "Peak to mean against replicas",
        [(name, sorted(points)) for name, points in series.items()],
        "replicas of a node",
        "peak to fair share",
    )
    columns = {
        "placement": [r["placement"] for r in rows],
        "nodes": [r["nodes"] for r in rows],
        "replicas": [r["replicas"] for r in rows],
        "weights": [r["weights"] for r in rows],
        "limit": [r["limit"] for r in rows],
        "peak": _decimals(rows, "peak_mean"),
        "95% of peaks": _decimals(rows, "peak_p95"),
        "99%": _decimals(rows, "peak_p99"),
        "CV": _decimals(rows, "cv_mean"),
        "join moves, x least": _decimals(rows, "join_ratio_mean"),
        "95% of joins": _decimals(rows, "join_ratio_p95"),
        "leave moves, x least": _decimals(rows, "leave_ratio_mean"),
        "peak after a leave": _decimals(rows, "peak_after_leave_mean"),
        "spilled": _decimals(rows, "spilled_mean"),
    }
    # What was not asked for, limits say, would only widen the table.
    told = {
        name: values
        for name, values in columns.items()
        if any(value not in (None, "1") for value in values)
    }
    report.table(list(told), list(zip(*told.values(), strict=True)), most=200)


def _decimals(rows: Sequence[Any], name: str) -> list[str | None]:
    return [None if r[name] is None else f"{r[name]:.3f}" for r in rows]


def replicas_job(
    spark: SparkSession,
    answer: ReplicasAnswer,
    nodes: int,
    peak: float,
    confidence: float,
    *,
    rings: int = 1000,
    seed: int = 0,
) -> Outcome:
    """How many replicas keep the peak with that confidence, and whether drawn rings agree."""
    drawn, within = drawn_within(spark, Scenario(nodes, answer.replicas), peak, rings, seed)
    facts: list[tuple[str, Any]] = [
        ("nodes", nodes),
        ("peak to mean at most", peak),
        ("confidence", confidence),
        ("replicas needed", answer.replicas),
        ("rings drawn with so many", drawn),
        ("part of these within the peak", f"{100 * within:.1f}%"),
    ]
    report = Report("How many replicas")
    report.facts(facts)
    report.table(
        ["replicas", "part of the rings within the peak"],
        [(replicas, f"{100 * part:.2f}%") for replicas, part in answer.tried],
    )
    return Outcome(tuple(facts), report)
