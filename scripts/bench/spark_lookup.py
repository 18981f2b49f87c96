"""Owners and counts over generated keys, as ratios to ``crc32(key) % n`` and a count.

    python scripts/bench/spark_lookup.py
    python scripts/bench/spark_lookup.py --keys 100000 --rounds 1 --rings 100x16    does it work?

Every way runs once a round, in turn, on the same keys; the median of the rounds counts, without the
first, in which Java compiles. The pandas UDF runs in the first two rounds only.

What ``load`` takes on no keys at all is that of the program which asks: building, planning and
compiling the query.
"""

import random
import zlib

import numpy as np
import pandas as pd
import program
from pyspark.sql import functions as F  # noqa: N812
from result import Result
from targets import BY_KEY
from timing import median, seconds

from hashring.core.ring import Ring
from hashring.spark import load, moves, with_owner
from hashring.spark.engine.arrays_to_spark import one_row
from hashring.spark.engine.session import spark_session
from hashring.spark.lookup.ring_ranges import ring_ranges

FIRST = "100x16"
MANY = 100_000_000
"""So many keys are asked for the moves alone."""


def random_ring(nodes: int, replicas: int) -> Ring:
    rng = random.Random(1)
    return Ring({f"n{i}": [rng.randrange(2**32) for _ in range(replicas)] for i in range(nodes)})


def pandas_way(df, ring: Ring):
    """The count per owner by a pandas UDF with searchsorted."""
    starts, codes, _ = ring_ranges(ring)

    def owner(keys: pd.Series) -> pd.Series:
        points = np.fromiter((zlib.crc32(k.encode()) for k in keys), np.int64, len(keys))
        return pd.Series(codes[np.searchsorted(starts, points, side="right") - 1])

    return df.select(F.pandas_udf(owner, "bigint")("key").alias("o")).groupBy("o").count()


def one_read(df, ring: Ring):
    """The count per value of one array read, in an array as large as the ring has points: less
    than any lookup does."""
    bits = (len(ring) - 1).bit_length() + 1
    values = np.arange(1 << bits, dtype=np.int64) % ring.node_count
    array = F.broadcast(one_row(df.sparkSession, {"a": values}))
    points = df.select(F.crc32("key").alias("p")).crossJoin(array)
    return points.selectExpr(f"get(a, CAST(p >> {32 - bits} AS INT)) AS g").groupBy("g").count()


def ways(df, ring: Ring, with_pandas: bool) -> dict:
    joined = ring.with_node("new", random_ring(1, 16).points_of("n0"))
    found = {
        "crc32 % n, count": lambda: (
            df.select((F.crc32("key") % ring.node_count).alias("g")).groupBy("g").count()
        ),
        "one array read, count": lambda: one_read(df, ring),
        "load": lambda: load(df, ring),
        "with_owner, count": lambda: with_owner(df, ring).groupBy("owner").count(),
        "with_owner, one owner, count": lambda: (
            with_owner(df, ring).where("owner = 'n7'").groupBy("owner").count()
        ),
        "moves": lambda: moves(df, ring, joined),
    }
    if with_pandas:
        found["pandas UDF, count"] = lambda: pandas_way(df, ring)
    return found


def generated(spark, keys: int):
    return spark.range(keys).select(F.concat(F.lit("user:"), F.col("id")).alias("key"))


def target(ring: str, keys: int, way: str) -> str | None:
    """The target of what a way takes, if it has one."""
    if keys >= MANY:
        return "moves" if way == "moves / load" else None
    found = {
        "load": f"lookup-{ring}",
        "pandas": "lookup-pandas" if ring == FIRST else f"lookup-pandas-{ring}",
        **({"filter": "filter", "empty": "load-empty"} if ring == FIRST else {}),
    }.get(way)
    return found if found in BY_KEY else None


def main() -> None:
    parser = program.parser(__doc__)
    parser.add_argument("--keys", type=int, default=20_000_000, help="how many; %(default)s")
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    parser.add_argument("--memory", default="4g", help="of Java; %(default)s")
    parser.add_argument(
        "--rings",
        nargs="+",
        default=[FIRST, "1000x128", "10000x128"],
        metavar="NODESxREPLICAS",
        help="%(default)s",
    )
    given = parser.parse_args()
    spark = spark_session(
        "local[2]",
        conf={"spark.driver.memory": given.memory, "spark.sql.shuffle.partitions": "2"},
    )
    df = generated(spark, given.keys)
    result = Result()
    for ring in given.rings:
        nodes, replicas = map(int, ring.split("x"))
        times: dict[str, list[float]] = {}
        todo = ways(df, random_ring(nodes, replicas), with_pandas=given.keys <= 20_000_000)
        for turn in range(given.rounds + 1):
            for name, way in todo.items():
                if turn >= 2 and name.startswith("pandas"):
                    continue  # it takes most of the time
                took = seconds(lambda way=way: way().collect())
                if turn:
                    times.setdefault(name, []).append(took)
        floor = median(times["crc32 % n, count"])
        ratios = {name: median(took) / floor for name, took in times.items()}
        of = f"{given.keys / 1e6:g}M keys, {ring}"
        result.notes.append(f"{of}: the first way took {floor:.2f} s.")
        for name, ratio in ratios.items():
            found = [(name, name, ratio)]
            if name == "moves":
                found.append(("moves against load", "moves / load", ratio / ratios["load"]))
            elif "one owner" in name:
                part = ratio / ratios["with_owner, count"]
                found.append(("one owner against all", "filter", part))
            elif name.startswith("pandas"):
                found.append(("pandas UDF / load", "pandas", ratio / ratios["load"]))
            for what, way, value in found:
                of_what = f"{of}: {what}"
                result.add(of_what, "", value=value, target=target(ring, given.keys, way))
        load_of_none = ways(generated(spark, 0), random_ring(nodes, replicas), False)["load"]
        empty = 1000 * median(
            [seconds(lambda: load_of_none().collect()) for _ in range(4 * given.rounds)]  # noqa: B023
        )
        bound = target(ring, given.keys, "empty")
        result.add(f"{ring}: load of no keys", "", value=round(empty), unit="ms", target=bound)
    program.tell(result, given)


if __name__ == "__main__":
    main()
