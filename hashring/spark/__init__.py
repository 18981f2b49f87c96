"""The data pipeline: questions about all keys and all logs of a fleet, answered by Spark.

DataFrame in, DataFrame out, on the public DataFrame API only: the same code runs on a local
session, a cluster and Spark Connect, in batch and (:func:`with_owner`) in streaming. Needs the
extra ``spark-local`` and Java 17 or 21; or, where a platform brings its own PySpark, the extra
``spark``, which leaves that as it is.
"""

from __future__ import annotations

from hashring.errors import MissingDependencyError

try:
    import pandas  # noqa: F401 - PySpark's Arrow functions need both
    import pyarrow  # type: ignore[import-untyped] # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    missing = error.name or "pyspark"
    extra = "spark-local" if missing.startswith("pyspark") else "spark"
    raise MissingDependencyError("hashring.spark", missing, extra) from error

from hashring.spark.analysis.audit import Audit, audit, work_slices
from hashring.spark.analysis.hot_keys import hot_keys
from hashring.spark.analysis.moves import moves, moves_of_histogram
from hashring.spark.analysis.node_load import load, load_of_histogram
from hashring.spark.analysis.plan import Plan, plan, plan_of_histogram, planned_ring
from hashring.spark.analysis.point_histogram import point_histogram
from hashring.spark.analysis.reassign import reassign
from hashring.spark.analysis.replicas_for import replicas_for
from hashring.spark.analysis.scenarios import Scenario, scenarios
from hashring.spark.analysis.simulate import drawn_within, simulate, summarise
from hashring.spark.io.owner_directories import partition_by_owner
from hashring.spark.lookup.key_points import point
from hashring.spark.lookup.owner_columns import owner, with_move, with_owner
from hashring.spark.lookup.owner_in_sql import register_functions
from hashring.spark.lookup.range_filter import may_move
from hashring.spark.periods.history_from_events import history_of
from hashring.spark.streams.compaction import compact

__all__ = [
    "Audit",
    "Plan",
    "Scenario",
    "audit",
    "compact",
    "drawn_within",
    "history_of",
    "hot_keys",
    "load",
    "load_of_histogram",
    "may_move",
    "moves",
    "moves_of_histogram",
    "owner",
    "partition_by_owner",
    "plan",
    "plan_of_histogram",
    "planned_ring",
    "point",
    "point_histogram",
    "reassign",
    "register_functions",
    "replicas_for",
    "scenarios",
    "simulate",
    "summarise",
    "with_move",
    "with_owner",
    "work_slices",
]
