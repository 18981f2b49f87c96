"""What ``with_owner`` adds to frames of many columns, as ratios to the same without it.

    python scripts/bench/spark_wide.py
    python scripts/bench/spark_wide.py --rows 2000 --rounds 1 --columns 30    does it work?

Two frames of each width: attributes read from Parquet, and columns computed from the key, for
which planning takes most of the time. The median of the rounds counts.
"""

import tempfile

import program
from pyspark.sql import functions as F  # noqa: N812
from result import Result
from spark_lookup import random_ring
from timing import median, seconds

from hashring.spark import with_owner
from hashring.spark.engine.session import spark_session

WIDEST = 300


def written(df) -> float:
    """Seconds that it takes to compute all of a frame."""
    return seconds(df.write.format("noop").mode("overwrite").save)


def main() -> None:
    parser = program.parser(__doc__)
    parser.add_argument("--rows", type=int, default=200_000, help="in Parquet; %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    parser.add_argument("--columns", type=int, nargs="+", default=[30, 100, WIDEST])
    given = parser.parse_args()
    spark = spark_session("local[2]", conf={"spark.driver.memory": "4g"})
    ring, result = random_ring(100, 16), Result()
    keys = spark.range(given.rows).select(F.concat(F.lit("user:"), F.col("id")).alias("key"), "id")
    for width in given.columns:
        with tempfile.TemporaryDirectory() as folder:
            attributes = ((F.col("id") + n).alias(f"c{n}") for n in range(width))
            keys.select("key", *attributes).write.parquet(f"{folder}/wide")
            lengths = (F.length("key").alias(f"c{n}") for n in range(width))
            frames = {
                f"{given.rows:,} rows of Parquet": spark.read.parquet(f"{folder}/wide"),
                "1,000 rows computed from the key": keys.limit(1000).select("key", *lengths),
            }
            for name, df in frames.items():
                took = [(written(df), written(with_owner(df, ring))) for _ in range(given.rounds)]
                plain, owned = (median(part) for part in zip(*took, strict=True))
                ratio, owned = round(owned / plain, 2), round(owned, 2)
                what, bound = f"{width} columns, {name}", width == WIDEST
                if "computed" in name:
                    target = "wide-computed" if bound else None
                    result.add(what, f"{ratio} x without", value=owned, unit="s", target=target)
                else:
                    target = "wide-parquet" if bound else None
                    result.add(what, f"{owned} s", value=ratio, target=target)
    program.tell(result, given)


if __name__ == "__main__":
    main()
