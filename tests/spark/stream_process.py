"""A stream in a process of its own, to be killed: tags what comes, batch by batch."""

import sys

from hashring.spark.engine.session import spark_session
from hashring.spark.streams.tagging import fixed_ring, tag_stream
from tests.spark.java_classes import options
from tests.spark.test_owner import random_ring


def main(folder: str) -> None:
    spark = spark_session(
        "local[1]",
        conf={"spark.driver.extraJavaOptions": options()},
    )
    rows = (
        spark.readStream.schema("key string")
        .option("maxFilesPerTrigger", 1)
        .parquet(f"{folder}/in")
    )
    tag_stream(
        rows,
        fixed_ring(random_ring(4, 8)),
        f"{folder}/out",
        f"{folder}/checkpoint",
        interval="0 seconds",
    ).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
