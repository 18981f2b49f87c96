"""The job that draws random rings, and shows their balance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hashring.spark.analysis.html_report import Report
from hashring.spark.analysis.scenarios import Scenario
from hashring.spark.analysis.simulate import simulate, summarise
from hashring.spark.io.output import Output
from hashring.spark.jobs.kept_frames import kept
from hashring.spark.jobs.outcome import Outcome
from hashring.spark.jobs.wording import decimals

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
