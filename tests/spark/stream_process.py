"""A stream in a process of its own, to be killed: tags what comes, batch by batch."""

import sys

from hashring.spark.session import spark_session
from hashring.spark.stream import followed_ring, tag_stream
from tests.spark.java_classes import options


def main(folder: str, url: str, ring: str) -> None:
    spark = spark_session(
        "local[1]",
        conf={"spark.driver.extraJavaOptions": options()},
    )
    rows = (
        spark.readStream.schema("key string")
        .option("maxFilesPerTrigger", 1)
        .parquet(f"{folder}/in")
    )
    now = followed_ring(url, ring, refresh=60)
    tag_stream(
        rows, now, f"{folder}/out", f"{folder}/checkpoint", interval="0 seconds"
    ).awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
