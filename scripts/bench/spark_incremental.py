"""What a change of the ring costs where owners are kept, and a load by a histogram of points.

    python scripts/bench/spark_incremental.py
    python scripts/bench/spark_incremental.py --keys 1e5 --counted 1e5 --rounds 1    does it work?

The parts are medians over joins of different nodes; times are medians of the rounds. What part of
the rows is read does not depend on how many there are; a histogram of more keys costs more to make,
and the same to ask.
"""

import random
import tempfile
import time

import program
from pyspark.sql import functions as F  # noqa: N812
from result import Result
from spark_lookup import random_ring
from timing import median, seconds

from hashring.core.ring_json import RingFile
from hashring.spark import (
    load,
    load_of_histogram,
    moves,
    moves_of_histogram,
    point_histogram,
    reassign,
)
from hashring.spark.engine.session import spark_session
from hashring.spark.io.input import Input
from hashring.spark.io.output import Output
from hashring.spark.jobs import assign_job


def main() -> None:
    parser = program.parser(__doc__)
    parser.add_argument("--keys", type=float, default=1e7, help="assigned; %(default)g")
    parser.add_argument(
        "--counted", type=float, default=1e8, help="keys in the histogram; %(default)g"
    )
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    parser.add_argument("--nodes", type=int, default=100, help="on the ring; %(default)s")
    parser.add_argument("--cells", type=int, default=1024, help="%(default)s")
    parser.add_argument("--memory", default="4g", help="of Java; %(default)s")
    given = parser.parse_args()
    spark = spark_session("local[2]", conf={"spark.driver.memory": given.memory})

    def made(count: float):
        return spark.range(int(count)).select(F.concat(F.lit("user:"), F.col("id")).alias("key"))

    keys = made(given.keys)
    ring, result = random_ring(given.nodes, 16), Result()
    with tempfile.TemporaryDirectory() as folder:
        place = f"{folder}/owned"
        source = Input(keys, "keys")
        took = seconds(
            lambda: assign_job(source, ring, Output(place, "parquet"), cells=given.cells)
        )
        what = f"{int(given.keys):,} keys assigned in {given.cells:,} cells"
        result.add(what, f"{took:.1f} s")
        parts, times = [], []
        for turn in range(given.rounds):
            rng = random.Random(turn)
            points = [rng.randrange(2**32) for _ in range(16)]
            ring = ring.with_node(f"new{turn}", points)
            began = time.perf_counter()
            found = reassign(spark, place, RingFile(ring))
            times.append(time.perf_counter() - began)
            parts.append((found.files / given.cells, found.rows / given.keys, found.moved))
        files, rows, moved = (100 * median(column) for column in zip(*parts, strict=True))
        ours = f"{median(times):.1f} s; {files:.2f}%"
        result.add("reassigned after a join: time; files read", ours)
        result.add("the same: rows read", "", value=round(rows, 2), unit="%", target="reassign")
        result.notes.append(f"Rows that moved: {moved / given.keys:.2f}%.")
        owned = spark.read.parquet(place)
        histograms = {}
        for count in (given.keys, given.counted):
            path = f"{folder}/histogram-{count:.0f}"
            point_histogram(made(count)).coalesce(1).write.mode("overwrite").parquet(path)
            histograms[count] = spark.read.parquet(path)
        histogram, large = histograms[given.keys], histograms[given.counted]
        after = ring.with_node("next", [point ^ 2**30 for point in points])
        ways = {
            "moves": lambda: moves(keys, ring, after).collect(),
            "moves by the histogram and the rows": lambda: moves_of_histogram(
                histogram, ring, after, owned
            ).collect(),
            "load": lambda: load(keys, ring).collect(),
            f"load of {int(given.counted):,} keys by the histogram alone": lambda: (
                load_of_histogram(large, ring).collect()
            ),
            "load by the histogram and the rows": lambda: load_of_histogram(
                histogram, ring, owned
            ).collect(),
        }
        took_by = {name: [] for name in ways}
        for _ in range(given.rounds):
            for name, way in ways.items():
                took_by[name].append(seconds(way))
        for name, found_times in took_by.items():
            took = round(median(found_times), 2)
            if name.endswith("by the histogram alone"):
                result.add(name, "", value=took, unit="s", target="load-histogram")
            else:
                result.add(name, f"{took:.2f} s")
    program.tell(result, given)


if __name__ == "__main__":
    main()
