"""Many random rings: what the number of points, placement and limits buy, and what they cost.

Each ring is drawn, measured, joined by one more node, and left by one. Random placement runs on
numpy; balanced placement runs the very code that live nodes run, of
:mod:`hashring.core.point_placement`, and is some hundred times slower. Equal seeds give equal
numbers, on any number of cores.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.errors import ConfigError
from hashring.spark.analysis.scenarios import Scenario
from hashring.spark.analysis.simulated_trial import MEASURES, trial
from hashring.spark.engine.arrays_to_spark import frame_of_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_LEAST_TASKS: Final = 16
_TASKS_PER_CORE: Final = 4
_MANY: Final = 1_000_000
"""More than any cluster has cores."""
_DRAWN_POINTS: Final = 100_000_000
_TRIAL: Final = {
    **dict.fromkeys(("nodes", "replicas"), pa.int32()),
    **dict.fromkeys(("placement", "weights"), pa.string()),
    "limit": pa.float64(),
    "ring": pa.int32(),
}
_RESULT: Final = ", ".join(
    (
        "nodes int, replicas int, placement string, weights string, limit double, ring int",
        *(f"{measure} double" for measure in MEASURES),
    )
)


def simulate(
    spark: SparkSession, kinds: Iterable[Scenario], rings: int = 1000, seed: int = 0
) -> DataFrame:
    """Draw and measure rings of each kind. A kind that is given twice counts once.

    Returns:
        One row a ring: the scenario (``weights`` as text, comma-separated), ``ring`` (its
        number), and

        ``peak_to_mean``: the largest share of the ring over its node's fair share;
        ``cv``: the standard deviation of (share / fair share);
        ``join_moved``, ``join_least``: the share of the ring that one more node of weight 1 takes
        over, and its fair share;
        ``leave_moved``, ``leave_least``: the share of the ring that a node which leaves (drawn at
        random) hands over, and its fair share;
        ``peak_after_leave``: ``peak_to_mean`` without that node;
        ``spilled``: with a limit, the part of the keys that are not at their owner, else null;
        ``join_moved_keys``: with a limit, the part of the keys that change nodes at the join.
        With a limit, ``peak_to_mean`` and ``cv`` are those of keys, 1,000 a node.

    Raises:
        ConfigError: no scenario, or not one ring.
    """
    kinds = list(dict.fromkeys(kinds))
    if not kinds:
        raise ConfigError("kinds", kinds, "give at least one scenario")
    if rings < 1:
        raise ConfigError("rings", rings, "draw at least one ring")
    trials = [
        (k.nodes, k.replicas, k.placement, _weights_text(k.weights), k.limit, ring)
        for ring in range(rings)
        for k in kinds
    ]

    def measured(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        for batch in batches:
            found = [trial(row, seed) for row in batch.itertuples(index=False)]
            yield pd.concat([batch, pd.DataFrame(found, columns=MEASURES)], axis=1)

    # As wide as the cluster: Spark cuts a range into as many partitions as it has cores.
    width = spark.range(_MANY).select(F.spark_partition_id()).distinct().count()
    # Costs differ between kinds, which alternate in the table: a round robin spreads them evenly.
    parts = min(len(trials), max(_LEAST_TASKS, _TASKS_PER_CORE * width))
    return frame_of_rows(spark, _TRIAL, trials).repartition(parts).mapInPandas(measured, _RESULT)


def summarise(simulated: DataFrame) -> DataFrame:
    """Mean, 95th and 99th percentile over the rings of each scenario.

    Returns:
        One row a scenario: its columns, ``rings``, ``peak_mean``, ``peak_p95``, ``peak_p99``,
        ``cv_mean``, ``join_ratio_mean``, ``join_ratio_p95`` (moved over least),
        ``leave_ratio_mean``, ``leave_ratio_p95``, ``peak_after_leave_mean``, ``spilled_mean``,
        ``join_keys_ratio_mean``.
    """
    join = F.col("join_moved") / F.col("join_least")
    leave = F.col("leave_moved") / F.col("leave_least")
    return (
        simulated.groupBy("nodes", "replicas", "placement", "weights", "limit")
        .agg(
            F.count("*").alias("rings"),
            F.mean("peak_to_mean").alias("peak_mean"),
            F.percentile("peak_to_mean", 0.95).alias("peak_p95"),
            F.percentile("peak_to_mean", 0.99).alias("peak_p99"),
            F.mean("cv").alias("cv_mean"),
            F.mean(join).alias("join_ratio_mean"),
            F.percentile(join, 0.95).alias("join_ratio_p95"),
            F.mean(leave).alias("leave_ratio_mean"),
            F.percentile(leave, 0.95).alias("leave_ratio_p95"),
            F.mean("peak_after_leave").alias("peak_after_leave_mean"),
            F.mean("spilled").alias("spilled_mean"),
            F.mean(F.col("join_moved_keys") / F.col("join_least")).alias("join_keys_ratio_mean"),
        )
        .orderBy("placement", "weights", "limit", "replicas", "nodes")
    )


def drawn_within(
    spark: SparkSession, kind: Scenario, peak: float, rings: int = 1000, seed: int = 0
) -> tuple[int, float]:
    """Draw rings of a kind, and see which part of them stays within a peak.

    Returns:
        How many were drawn: ``rings``, or as many as have 100 million points together, which
        takes about a minute; and the part of them within ``peak`` times the mean.

    Raises:
        ConfigError: as for :func:`simulate`.
    """
    rings = min(rings, max(1, _DRAWN_POINTS // (kind.nodes * kind.replicas)))
    drawn = simulate(spark, [kind], rings, seed)
    within = drawn.agg(F.mean((F.col("peak_to_mean") <= peak).cast("double"))).collect()
    return rings, float(within[0][0])


def _weights_text(weights: tuple[float, ...]) -> str:
    # Of the text the workers make the numbers again.
    return ",".join(str(float(weight)).removesuffix(".0") for weight in weights)
