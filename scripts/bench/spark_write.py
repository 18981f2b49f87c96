"""Keys assigned and written by owner, against the same keys written unassigned; and memory.

    python scripts/bench/spark_write.py
    python scripts/bench/spark_write.py --keys 1e5 --nodes 10    does it work at all?

Memory is the most that the process and its Java held at any time (VmHWM), both together.
"""

import tempfile
from pathlib import Path

import program
from pyspark.sql import functions as F  # noqa: N812
from result import Result
from spark_lookup import random_ring
from timing import seconds

from hashring.spark import partition_by_owner
from hashring.spark.engine.session import spark_session


def most_memory() -> float:
    """Of this process and its children, in GB."""
    found, todo = 0.0, ["self"]
    while todo:
        at = Path("/proc", todo.pop())
        try:
            status = (at / "status").read_text()
            found += int(status.partition("VmHWM:")[2].split()[0]) / 1e6
            for task in (at / "task").iterdir():
                todo += (task / "children").read_text().split()
        except (OSError, IndexError):
            continue
    return found


def main() -> None:
    parser = program.parser(__doc__)
    parser.add_argument("--keys", type=float, default=1e8, help="how many; %(default)g")
    parser.add_argument("--nodes", type=int, default=100, help="on the ring; %(default)s")
    parser.add_argument("--memory", default="4g", help="of Java; %(default)s")
    given = parser.parse_args()
    spark = spark_session(
        "local[2]", conf={"spark.driver.memory": given.memory, "spark.driver.maxResultSize": "0"}
    )
    made = spark.range(int(given.keys)).select(F.concat(F.lit("user:"), F.col("id")).alias("key"))
    ring, result = random_ring(given.nodes, 16), Result()
    with tempfile.TemporaryDirectory() as folder:
        plain = seconds(lambda: made.write.parquet(f"{folder}/keys"))
        result.add(f"{int(given.keys):,} keys written unassigned", f"{plain:.0f} s")
        owned = partition_by_owner(made, ring).drop("point").write.partitionBy("owner")
        took = seconds(lambda: owned.parquet(f"{folder}/owned"))
        size = len(list(Path(folder, "owned").glob("owner=*/*.parquet")))
        ours = f"{took:.0f} s = {took / plain:.2f} x, {size} files"
        result.add("assigned and written by owner", ours)
        memory = round(most_memory(), 1)
        shown = f"{memory:.1f} GB"
        result.add("most memory", shown, value=memory, unit="GB", target="assign-memory")
    program.tell(result, given)


if __name__ == "__main__":
    main()
