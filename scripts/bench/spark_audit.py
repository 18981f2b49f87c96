"""Audit of generated work logs against 10,000 changes of a ring, against a plain sort of the log.

    python scripts/bench/spark_audit.py
    python scripts/bench/spark_audit.py --rows 1e5 --changes 500 --rounds 1    does it work?
    python scripts/bench/spark_audit.py --changes 20000 --nodes 1000 --replicas 128   a long history

The sort is that of the audit: the log's rows by key and start, each key in one partition. One key
has a fifth of all rows. The two run in turn; the median of the rounds counts.
"""

import random
import shutil
import tempfile
import time

import program
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812
from result import Result
from timing import median, seconds

from hashring.core.ring_change_message import ChangeKind, RingChange, Stamp
from hashring.core.ring_history import ring_history
from hashring.spark import audit, work_slices
from hashring.spark.engine.arrays_to_spark import one_row
from hashring.spark.engine.session import spark_session
from hashring.spark.periods.owner_at_time import as_of

WEEK = 7 * 86_400_000_000
LONGEST = 50_000_000
"""Rows of the log that the targets are about."""


def history(changes: int, nodes: int = 100, replicas: int = 16):
    """Nodes with made-up names join and leave: every join is at new points."""
    rng = random.Random(1)
    made, alive, now = [], [], 1_700_000_000_000_000
    while len(made) < changes:
        epoch = len(made) + 1
        prev = f"t{epoch - 1}" if made else ""
        stamp = Stamp(epoch, f"t{epoch}", 0, now)
        if len(alive) < nodes:
            alive.append(f"host:{epoch}")
            points = tuple(sorted({rng.randrange(2**32) for _ in range(replicas)}))
            made.append(RingChange(ChangeKind.JOIN, (alive[-1],), points, prev, stamp))
        else:
            gone = alive.pop(rng.randrange(len(alive)))
            made.append(RingChange(ChangeKind.LEAVE, (gone,), (), prev, stamp))
        now += rng.randrange(1, 2 * WEEK // changes) if epoch > nodes else 1
    return ring_history(made)


def make_log(spark, asof, path: str, *, rows: int, hot: float, full: int) -> None:
    """Work on a million keys, each piece up to 30 s, one in a hundred by the previous owner.

    ``hot`` percent of the rows are one key's. The log begins after ``full`` changes.
    """
    first = asof.versions[full + 1].at
    begins, lasts = first, asof.ends - first
    one = F.abs(F.xxhash64(F.col("id") + 2)) % 1000 < int(10 * hot)
    drawn = spark.range(rows).select(
        F.concat(
            F.lit("user:"), F.when(one, 0).otherwise(F.abs(F.xxhash64("id")) % 1_000_000)
        ).alias("key"),
        (F.lit(begins) + F.abs(F.xxhash64(F.col("id") + 1)) % lasts).alias("start"),
    )
    timed = drawn.select(
        "*",
        (F.col("start") + F.abs(F.xxhash64("start")) % 30_000_000).alias("end"),
        F.crc32("key").alias("point"),
    )
    names = one_row(spark, {"names": pa.array(asof.nodes)})
    who = F.when(F.col("end") % 100 == 0, F.col("previous")).otherwise(F.col("owner"))
    asof.with_period(timed, "point", "start").crossJoin(F.broadcast(names)).select(
        "key",
        F.get("names", who).alias("node"),
        F.timestamp_micros("start").alias("start"),
        F.timestamp_micros("end").alias("end"),
    ).where("node is not null").write.parquet(path)


def audited(log, asof):
    """The audit of a log whose hot key is looked for, which is part of the time."""
    return audit(log, asof, slices=work_slices(log, asof))


def noop(df) -> None:
    """Compute all of a frame, and write it nowhere."""
    df.write.format("noop").mode("overwrite").save()


def main() -> None:
    parser = program.parser(__doc__)
    parser.add_argument(
        "--rows", nargs="+", type=float, default=[5e6, 50e6], help="of the log; %(default)s"
    )
    parser.add_argument("--rounds", type=int, default=5, help="%(default)s")
    parser.add_argument("--changes", type=int, default=10_000, help="of the ring; %(default)s")
    parser.add_argument("--nodes", type=int, default=100, help="%(default)s")
    parser.add_argument("--replicas", type=int, default=16, help="of a node; %(default)s")
    parser.add_argument(
        "--hot", type=float, default=20, help="percent of rows that one key has; %(default)g"
    )
    parser.add_argument("--memory", default="6g", help="of Java; %(default)s")
    parser.add_argument("--summary", action="store_true", help="time the summary, too")
    given = parser.parse_args()
    spark = spark_session(
        "local[2]",
        conf={"spark.driver.memory": given.memory, "spark.sql.shuffle.partitions": "16"},
    )
    made = history(given.changes, given.nodes, given.replicas)
    began = time.perf_counter()
    asof = as_of(made)
    who = "Spark's workers make the periods" if asof.moves_rows else "tables"
    ready = time.perf_counter() - began
    result = Result(notes=[f"{given.changes:,} changes; {who}; ready in {ready:.1f} s"])
    times = {}
    folder = tempfile.mkdtemp()
    try:
        for rows in map(int, given.rows):
            path = f"{folder}/{rows}"
            make_log(spark, asof, path, rows=rows, hot=given.hot, full=given.nodes)
            log = spark.read.parquet(path)
            ordered = log.repartition("key").sortWithinPartitions("key", "start")
            few = log.limit(100_000)  # to warm up
            noop(few.repartition("key").sortWithinPartitions("key"))
            noop(audit(few, asof).findings)
            plain, findings, summaries = [], [], []
            for _ in range(given.rounds):
                plain.append(seconds(lambda df=ordered: noop(df)))
                findings.append(seconds(lambda df=log: noop(audited(df, asof).findings)))
                if given.summary:
                    summaries.append(seconds(lambda df=log: audited(df, asof).summary.collect()))
            sort, times[rows] = median(plain), median(findings)
            result.add(
                f"{rows / 1e6:g}M rows, against a sort of them",
                f"{times[rows]:.1f} s",
                f"{sort:.1f} s",
                value=times[rows] / sort,
                target="audit" if rows == LONGEST else None,
            )
            if summaries:
                result.add("the summary of the same", f"{median(summaries):.1f} s")
            shutil.rmtree(path)
        least = min(times)
        if LONGEST in times and least < LONGEST:
            ratio = (times[LONGEST] / LONGEST) / (times[least] / least)
            what = f"time per row, 50M against {least / 1e6:g}M rows"
            result.add(what, "", value=ratio, target="audit-linear")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    program.tell(result, given)


if __name__ == "__main__":
    main()
