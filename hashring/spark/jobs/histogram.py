"""The job that counts rows by points, for the load of any ring."""

from __future__ import annotations

from typing import Any

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.spark.analysis.point_histogram import DEFAULT_BUCKETS, point_histogram
from hashring.spark.engine.counts_while_read import Counts
from hashring.spark.io.input import Input, check_keys
from hashring.spark.io.output import Output
from hashring.spark.jobs.outcome import Outcome


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
    check_keys(source, key)
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
    return Outcome.of_facts("Histogram of points", facts)
