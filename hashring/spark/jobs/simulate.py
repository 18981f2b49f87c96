"""The jobs on random rings: their balance, and how many replicas they need."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hashring.spark.jobs.kept_frames import kept
from hashring.spark.jobs.wording import decimals
from hashring.spark.outcome import Outcome
from hashring.spark.output import Output
from hashring.spark.replicas_for import ReplicasAnswer
from hashring.spark.report import Report
from hashring.spark.scenario import Scenario
from hashring.spark.simulate import drawn_within, simulate, summarise

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
        "peak": decimals(rows, "peak_mean"),
        "95% of peaks": decimals(rows, "peak_p95"),
        "99%": decimals(rows, "peak_p99"),
        "CV": decimals(rows, "cv_mean"),
        "join moves, x least": decimals(rows, "join_ratio_mean"),
        "95% of joins": decimals(rows, "join_ratio_p95"),
        "leave moves, x least": decimals(rows, "leave_ratio_mean"),
        "peak after a leave": decimals(rows, "peak_after_leave_mean"),
        "spilled": decimals(rows, "spilled_mean"),
    }
    # What was not asked for, limits say, would only widen the table.
    told = {
        name: values
        for name, values in columns.items()
        if any(value not in (None, "1") for value in values)
    }
    report.table(list(told), list(zip(*told.values(), strict=True)), most=200)


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
