"""Many simulated rings: how long 10,000 take, the table of balance, and how many replicas.

scripts/bench/spark_simulate.py [--rings 10000] [--table 100]
"""

import argparse
import time

from hashring.spark import replicas_for, scenarios, simulate, summarise
from hashring.spark.session import spark_session


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rings", type=int, default=10_000, help="of 100 nodes with 16 points")
    parser.add_argument("--table", type=int, default=100, help="rings of each kind in the table")
    given = parser.parse_args()
    spark = spark_session("local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    simulate(spark, scenarios([10], [16]), rings=16).collect()  # starts the workers
    began = time.perf_counter()
    simulate(spark, scenarios([100], [16]), given.rings).write.format("noop").mode(
        "overwrite"
    ).save()
    print(f"{given.rings:,} rings of 100 x 16: {time.perf_counter() - began:.1f} s", flush=True)

    kinds = scenarios([10, 100, 1000], [16, 64, 128, 512])
    kinds += scenarios([10, 100], [16], ["balanced"])
    print("points, nodes: peak to mean (95%); a join moves, times the least (95%)")
    for row in summarise(simulate(spark, kinds, given.table)).collect():
        print(
            f"{row.placement:8} {row.replicas:4} {row.nodes:5}: {row.peak_mean:.2f} "
            f"({row.peak_p95:.2f}); {row.join_ratio_mean:.2f} ({row.join_ratio_p95:.2f})",
            flush=True,
        )

    began = time.perf_counter()
    answer = replicas_for(spark, 50, 1.2, 0.99)
    print(
        f"peak at most 1.2 at 50 nodes with 99%: {answer.replicas} replicas "
        f"({time.perf_counter() - began:.0f} s; {answer.tried})"
    )


if __name__ == "__main__":
    main()
