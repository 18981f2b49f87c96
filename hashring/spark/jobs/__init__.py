"""The jobs: from an input to an output, a summary and a report.

Each checks what it can before it starts what may last hours, writes all of its output or none,
and counts what it could not use.
"""

from __future__ import annotations

from hashring.spark.jobs.assign import assign_job, compact_job, reassign_job
from hashring.spark.jobs.audit import FIRST, WORST, audit_job
from hashring.spark.jobs.histogram import histogram_job
from hashring.spark.jobs.kept_frames import kept
from hashring.spark.jobs.load import PICTURED_NODES, load_job
from hashring.spark.jobs.plan import plan_job
from hashring.spark.jobs.replicas import replicas_job
from hashring.spark.jobs.simulate import balance_section, simulate_job

__all__ = [
    "FIRST",
    "PICTURED_NODES",
    "WORST",
    "assign_job",
    "audit_job",
    "balance_section",
    "compact_job",
    "histogram_job",
    "kept",
    "load_job",
    "plan_job",
    "reassign_job",
    "replicas_job",
    "simulate_job",
]
