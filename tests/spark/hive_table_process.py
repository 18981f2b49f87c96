"""Writes to tables in formats of Hive's, and prints which keys were refused and what is there.

A process of its own: the catalog of a session is chosen when its Java starts.
"""

import sys

from hashring.errors import OutputRefused
from hashring.spark.engine.session import spark_session
from hashring.spark.io.output import Output
from tests.spark.java_classes import options

KEYS = ("whole", "a\nb", "a\rb", "a\x01b", "\\N", "a,b")


def main(folder: str) -> None:
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"file:{folder}/warehouse",
        "spark.driver.extraJavaOptions": f"{options()} -Dderby.system.home={folder}",
    }
    spark = spark_session("local[1]", conf=conf)
    spark.sql("CREATE TABLE made (key STRING) STORED AS TEXTFILE")
    escapes = "FIELDS TERMINATED BY ',' ESCAPED BY '\\\\'"
    spark.sql(f"CREATE TABLE escaped (key STRING) ROW FORMAT DELIMITED {escapes}")
    outputs = {
        "made": Output(None, table="made", mode="append"),
        "escaped": Output(None, table="escaped", mode="append"),
        "new": Output(None, "hive", "new", "append"),
        "columnar": Output(None, "hive", "columnar", "append", {"fileFormat": "parquet"}),
    }
    for table, output in outputs.items():
        refused = []
        for key in KEYS:
            try:
                output.write(spark.createDataFrame([(key,)], "key STRING"))
            except OutputRefused:
                refused.append(key)
        print((table, refused, {row.key for row in spark.table(table).collect()} ^ set(KEYS)))


if __name__ == "__main__":
    main(*sys.argv[1:])
