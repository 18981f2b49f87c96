"""Appends 40 rows to the files of a table, as another job on the same files would."""

import sys

from hashring.spark.engine.session import spark_session
from hashring.spark.io.output import Output
from tests.spark.java_classes import options


def main(place: str, folder: str) -> None:
    conf = {"spark.sql.warehouse.dir": folder, "spark.driver.extraJavaOptions": options()}
    spark = spark_session("local[1]", conf=conf)
    spark.sql(f"CREATE TABLE shared USING parquet LOCATION '{place}'")
    Output(None, table="shared", mode="append").write(spark.range(100, 140, 1, 4))


if __name__ == "__main__":
    main(*sys.argv[1:])
