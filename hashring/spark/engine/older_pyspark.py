"""What PySpark 4.0 lacks, made of what it has. It goes when 4.0 is no longer supported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyspark
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.spark.engine.arrays_to_spark import array_columns
from hashring.spark.engine.column_checks import quoted
from hashring.spark.engine.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

IS_4_0: Final = pyspark.__version__.startswith("4.0.")
_TRIED: Final = 16
"""Integers to try for each partition: about 10,000 partitions need 10 each to be found."""


def by_partition_number(df: DataFrame, count: int, number: str) -> DataFrame:
    """As ``df.repartitionById(count, number)``, but the column holds another number afterwards.

    Spark puts a row into the partition that the hash of a column gives. So each number is replaced
    by an integer whose hash gives that partition.

    Args:
        count: how many partitions.
        number: a column of integers in ``[0, count)``, without nulls.
    """
    spark = df.sparkSession
    hashed = array_columns(spark, {number: pa.array(_hashed_to(spark, count), pa.int64())})
    replaced = df.withColumn(number, F.get(hashed[number], F.col(quoted(number))))
    return replaced.repartition(count, quoted(number))


def can_observe(spark: SparkSession) -> bool:
    """Whether an observed frame may stand in a plan twice, as in a join with itself."""
    return not (IS_4_0 and is_connect(spark))


def _hashed_to(spark: SparkSession, count: int) -> list[int]:
    """For each partition, an integer that Spark's hash partitioning puts there."""
    tried = _TRIED * count
    while True:
        numbers = spark.range(tried).groupBy(F.pmod(F.hash("id"), F.lit(count)).alias("number"))
        found = numbers.agg(F.min("id").alias("id")).orderBy("number").collect()
        if len(found) == count:
            return [row["id"] for row in found]
        tried *= 2
