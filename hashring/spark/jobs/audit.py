"""The job that holds a work log against the history of its ring."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring_history import RingHistory
from hashring.spark.analysis.audit import PROBLEMS, counted_audit, work_slices
from hashring.spark.analysis.html_report import Report
from hashring.spark.io.input import Input, check_keys
from hashring.spark.io.output import Output
from hashring.spark.jobs.kept_frames import kept
from hashring.spark.jobs.outcome import Outcome, Table
from hashring.spark.jobs.wording import decimals, key_name, names
from hashring.spark.lookup.key_column import check_kept
from hashring.spark.periods.history_from_events import counts_of_kinds
from hashring.spark.periods.owner_at_time import as_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


WORST: Final = 100
"""How many findings an audit names; all of them are in its output."""
_SECONDS: Final = "yyyy-MM-dd HH:mm:ssXXX"
_MILLISECONDS: Final = "yyyy-MM-dd HH:mm:ss.SSSXXX"
"""With the offset: an hour in autumn comes twice."""
FIRST: Final = 25
"""How many findings a report shows in order of time."""


def audit_job(
    source: Input,
    history: RingHistory,
    output: Output | None = None,
    *,
    events: DataFrame | None = None,
    algorithm_from: str | None = None,
    key: str = "key",
    node: str = "node",
    start: str = "start",
    end: str = "end",
) -> Outcome:
    """Hold a work log against the ring's history; the output is the findings.

    Args:
        events: what the history was made of, to count its kinds.
        algorithm_from: where the history's hash algorithm comes from, to print it.

    Raises:
        ColumnError: the key is binary, and the output's format is of text.
    """
    df, bad_records = source.counted()
    if output:
        output.check(df.sparkSession)
        check_kept(df, key, output.kept_as(df.sparkSession))
    columns: dict[str, Any] = {"key": key, "node": node, "start": start, "end": end}
    check_keys(source, key)
    asof = as_of(history)
    # Not of the frame that counts bad records: this does not read all columns.
    slices = work_slices(source.frame, asof, **columns)
    found, reasons = counted_audit(df, asof, slices=slices, **columns)
    # Everything is computed from these rows: the log is read, shuffled and sorted once.
    with kept(found.judged, found.counts):
        summary = found.summary.collect()[0].asDict()
        rejected = {why: count for why, count in reasons.get().items() if count}
        changes = (
            found.changes.orderBy("version")
            .withColumn("at", F.date_format("at", _MILLISECONDS))
            .collect()
        )
        nodes = found.nodes.collect()
        worst = _worst(found.findings)
        earliest = found.findings.orderBy("start", "key", "node").limit(FIRST)
        first = _with_times_as_text(earliest, _MILLISECONDS).collect()
        if output:
            output.write(found.findings)
    kinds = counts_of_kinds(events) if events else []
    facts: list[tuple[str, Any]] = [
        ("rows judged", summary["rows"]),
        *([("hot keys, cut into slices of time", len(slices.keys))] if slices else []),
        *((f"rows rejected: {reason}", rejected[reason]) for reason in sorted(rejected)),
        ("bad records left out", bad_records()),
        ("hash algorithm", asof.algorithm),
        *([("hash algorithm from", algorithm_from)] if algorithm_from else []),
        ("ring changes", len(history.changes)),
        *((f"events: {kind}", count) for kind, count in kinds),
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


def _with_times_as_text(findings: DataFrame, form: str) -> DataFrame:
    # A log may hold times that Python has not, such as an end in the year 10,000.
    return findings.withColumn("start", F.date_format("start", form)).drop("end")


def _worst(findings: DataFrame) -> Table:
    """The findings with the most time in which another node may have worked on the key."""
    longest = F.greatest(F.coalesce("unowned", F.lit(0.0)), F.coalesce("overlap", F.lit(0.0)))
    worst = findings.orderBy(longest.desc(), "start", "key", "node").limit(WORST)
    rows = _with_times_as_text(worst, _SECONDS).collect()
    return Table(
        "worst findings",
        ("key", "node", "start", "owner", "problem", "seconds unowned", "with", "seconds together"),
        [
            (
                key_name(r["key"]), r["node"], r["start"],
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
            (f"{r['epoch']} {r['kind']} {names(r['nodes'])}", r["first_work_median"], None)
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
                r["at"],
                f"{r['kind']} {names(r['nodes'])}",
                r["keys"],
                *first_work,
                r["overrun"],
                r["late"],
                latest,
            )
            for r, *first_work, latest in zip(
                moved,
                decimals(moved, "first_work_least"),
                decimals(moved, "first_work_median"),
                decimals(moved, "first_work_most"),
                decimals(moved, "after_change_most"),
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
                key_name(r["key"]),
                r["node"],
                r["start"],
                r["owner"],
                r["problem"],
                r["after_change"],
                r["other"],
                r["overlap"],
            )
            for r in findings
        ],
    )
