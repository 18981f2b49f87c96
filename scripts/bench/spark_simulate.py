"""Many simulated rings: how long 10,000 take, the table of balance, and how many replicas.

    python scripts/bench/spark_simulate.py
    python scripts/bench/spark_simulate.py --rings 100 --table 2    does it work at all?

The first rings only start Spark's workers; they are not counted.
"""

import time

import program
from result import Result
from timing import seconds

from hashring.spark import (
    Scenario,
    drawn_within,
    replicas_for,
    scenarios,
    simulate,
    summarise,
)
from hashring.spark.engine.session import spark_session

RINGS = 10_000
FEWER = 50
"""The 1,000 nodes with balanced placement are so many times fewer rings than the others."""


def main() -> None:
    parser = program.parser(__doc__)
    parser.add_argument(
        "--rings",
        type=int,
        default=RINGS,
        help="of 100 x 16; 0: none; %(default)s",
    )
    parser.add_argument(
        "--table", type=int, default=100, help="rings of each kind in it; 0: none; %(default)s"
    )
    given = parser.parse_args()
    spark = spark_session("local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    simulate(spark, scenarios([10], [16]), rings=16).collect()  # starts the workers
    result = Result()
    if given.rings:
        drawn = simulate(spark, scenarios([100], [16]), given.rings)
        took = round(seconds(drawn.write.format("noop").mode("overwrite").save), 1)
        target = "simulate" if given.rings == RINGS else None
        what = f"{given.rings:,} rings of 100 x 16"
        result.add(what, f"{took} s", value=took, unit="s", target=target)
    if given.table:
        random = scenarios([10, 100, 1000], [16, 64, 128, 512])
        balanced = scenarios([10, 100], [16], ["balanced"])
        # The same code as that of live nodes, and slower than linear in them.
        many = scenarios([1000], [16], ["balanced"])
        drawn = simulate(spark, random + balanced, given.table)
        if given.table >= FEWER:
            drawn = drawn.union(simulate(spark, many, given.table // FEWER))
        for row in summarise(drawn).collect():
            result.add(
                f"{row.placement}, {row.nodes} x {row.replicas}, {row.rings} rings: peak to mean "
                "(95%); after a leave; a join moves, times the least (95%)",
                f"{row.peak_mean:.2f} ({row.peak_p95:.2f}); {row.peak_after_leave_mean:.2f}; "
                f"{row.join_ratio_mean:.2f} ({row.join_ratio_p95:.2f})",
            )
        began = time.perf_counter()
        answer = replicas_for(50, 1.2, 0.99)
        drawn, within = drawn_within(spark, Scenario(50, answer.replicas), 1.2)
        result.add(
            "peak at most 1.2 at 50 nodes with 99%",
            f"{answer.replicas} replicas; of {drawn:,} drawn rings {100 * within:.1f}% stay within "
            f"it ({time.perf_counter() - began:.0f} s)",
        )
    program.tell(result, given)


if __name__ == "__main__":
    main()
