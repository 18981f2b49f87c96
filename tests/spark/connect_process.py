"""Looks up owners through the Spark Connect server that the environment names."""

import sys
from pathlib import Path

from hashring.ring_files import read_ring
from hashring.spark import owner, point, register_functions
from hashring.spark.session import is_connect, spark_session
from tests.spark.test_owner import random_ring


def main(folder: str) -> None:
    spark = spark_session()
    assert is_connect(spark)
    keys = spark.read.parquet(str(Path(folder) / "keys.parquet"))
    # One whose table is literals, and one whose table is subqueries.
    for ring in (read_ring(Path(folder) / "ring.json").ring, random_ring(400, 32)):
        for row in keys.select("key", owner(ring, "key").alias("o"), point("key")).collect():
            assert row.o == ring.owner(row.key)
        keys.createOrReplaceTempView("keys")
        register_functions(spark, ring)
        for row in spark.sql("select key, hashring_owner(key) o from keys").collect():
            assert row.o == ring.owner(row.key)


if __name__ == "__main__":
    main(*sys.argv[1:])
