"""Writes to tables in formats of Hive's, and prints which keys were refused and what is there.

A process of its own: the catalog of a session is chosen when its Java starts.
"""

import sys

from hashring.errors import OutputRefused
from hashring.spark.engine.session import spark_session
from hashring.spark.io.output import Output
from tests.spark.java_classes import options

KEYS = ("whole", "a\nb", "a\rb", "a\x01b", "\\N", "a,b", "a\\b", "a\\", 'a"b', "NA")


def main(folder: str) -> None:
    conf = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": f"file:{folder}/warehouse",
        "spark.driver.extraJavaOptions": f"{options()} -Dderby.system.home={folder}",
    }
    spark = spark_session("local[1]", conf=conf)
    spark.sql("CREATE TABLE made (key STRING, owner STRING) STORED AS TEXTFILE")
    escapes = "FIELDS TERMINATED BY ',' ESCAPED BY '\\\\'"
    spark.sql(f"CREATE TABLE escaped (key STRING, owner STRING) ROW FORMAT DELIMITED {escapes}")
    nulls = "ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.lazy.LazySimpleSerDe'"
    null = "WITH SERDEPROPERTIES ('serialization.null.format'='NA')"
    spark.sql(f"CREATE TABLE nulls (key STRING, owner STRING) {nulls} {null}")
    quotes = "ROW FORMAT SERDE 'org.apache.hadoop.hive.serde2.OpenCSVSerde'"
    spark.sql(f"CREATE TABLE quotes (key STRING, owner STRING) {quotes}")
    escape = "WITH SERDEPROPERTIES ('escapeChar'='\\\\')"
    spark.sql(f"CREATE TABLE quotes_escaped (key STRING, owner STRING) {quotes} {escape}")
    outputs = {
        "made": Output(None, table="made", mode="append"),
        "escaped": Output(None, table="escaped", mode="append"),
        "new": Output(None, "hive", "new", "append"),
        **{
            name: Output(None, table=name, mode="append")
            for name in ("nulls", "quotes", "quotes_escaped")
        },
        "columnar": Output(None, "hive", "columnar", "append", {"fileFormat": "parquet"}),
    }
    for table, output in outputs.items():
        refused = []
        for key in KEYS:
            try:
                rows = spark.createDataFrame([(key, "worker-1")], "key STRING, owner STRING")
                output.write(rows)
            except OutputRefused:
                refused.append(key)
        # A key that takes in its owner is another key, or one without it.
        found = {row.key for row in spark.table(table).where("owner = 'worker-1'").collect()}
        print((table, refused, found ^ set(KEYS)))


if __name__ == "__main__":
    main(*sys.argv[1:])
