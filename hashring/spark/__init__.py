"""The data pipeline: questions about all keys and all logs of a fleet, answered by Spark.

DataFrame in, DataFrame out, on the public DataFrame API only: the same code runs on a local
session, a cluster and Spark Connect, in batch and (:func:`with_owner`) in streaming. Needs the
extra ``spark`` and Java 17 or 21.
"""

from __future__ import annotations

from hashring.errors import MissingDependencyError

try:
    import pandas  # noqa: F401 - PySpark's Arrow functions need both
    import pyarrow  # type: ignore[import-untyped] # noqa: F401
    import pyspark  # noqa: F401
except ImportError as error:
    raise MissingDependencyError("hashring.spark", error.name or "pyspark", "spark") from error

from hashring.spark.asof import history_of
from hashring.spark.audit import Audit, audit
from hashring.spark.owner import hot_keys, load, moves, partition_by_owner, with_move, with_owner
from hashring.spark.plan import Plan, plan, planned_ring
from hashring.spark.simulate import (
    Scenario,
    drawn_within,
    replicas_for,
    scenarios,
    simulate,
    summarise,
)

__all__ = [
    "Audit",
    "Plan",
    "Scenario",
    "audit",
    "drawn_within",
    "history_of",
    "hot_keys",
    "load",
    "moves",
    "partition_by_owner",
    "plan",
    "planned_ring",
    "replicas_for",
    "scenarios",
    "simulate",
    "summarise",
    "with_move",
    "with_owner",
]
