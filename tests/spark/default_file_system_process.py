"""Writes rows to a path without a scheme, and prints where its file system is.

A process of its own: Java reads Hadoop's settings of the environment when it starts.
"""

import sys

from hashring.spark.engine.session import spark_session
from hashring.spark.io.local_paths import local_path
from hashring.spark.io.output import Output
from tests.spark.java_classes import options


def main(path: str, warehouse: str) -> None:
    conf = {"spark.sql.warehouse.dir": warehouse, "spark.driver.extraJavaOptions": options()}
    spark = spark_session("local[1]", conf=conf)
    for mode in ("error", "append"):
        Output(path, mode=mode).write(spark.range(3))
    assert spark.read.parquet(path).count() == 6
    print(local_path(spark, path))


if __name__ == "__main__":
    main(*sys.argv[1:])
