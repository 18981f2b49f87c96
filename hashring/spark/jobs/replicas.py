"""The job that finds how many replicas a ring needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hashring.spark.analysis.html_report import Report
from hashring.spark.analysis.replicas_for import ReplicasAnswer
from hashring.spark.analysis.scenarios import Scenario
from hashring.spark.analysis.simulate import drawn_within
from hashring.spark.jobs.outcome import Outcome

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
