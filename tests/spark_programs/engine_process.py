"""Runs assign, load and audit on an engine, in a process of its own.

A process can have one kind of Spark session: the tests' own is local.
"""

import sys
from pathlib import Path

from click.testing import CliRunner

from hashring.cli.spark import spark_group
from hashring.spark import audit, history_of
from hashring.spark.engine.session import spark_session
from hashring.spark.periods import owner_at_time
from tests.spark.java_classes import options


def run(*arguments: object) -> str:
    result = CliRunner().invoke(spark_group, [str(a) for a in arguments])
    if result.exception:
        raise result.exception
    return result.output


def main(option: str, where: str, folder: str) -> None:
    at = Path(folder)
    engine = [option, where, "--conf", "spark.sql.shuffle.partitions=2"]
    if option == "--master":
        for setting in (
            "spark.driver.host=127.0.0.1",
            "spark.executor.memory=512m",
            f"spark.sql.warehouse.dir={at / 'warehouse'}",
            # A task waits for no worker that has its rows: the other is free.
            "spark.locality.wait=0s",
            # A busy machine is no lost worker.
            "spark.network.timeout=800s",
            "spark.worker.timeout=800",
            # Most of the time goes into starting virtual machines.
            f"spark.driver.extraJavaOptions={options()}",
            f"spark.executor.extraJavaOptions={options()}",
        ):
            engine += ["--conf", setting]
    ring = ["--ring-file", at / "ring.json"]
    keys = ["--input", at / "keys.parquet"]
    print(run("assign", *keys, *ring, "--output", at / "owned.parquet", *engine))
    print(run("assign", *keys, *ring, "--output", at / "by.parquet", "--by-owner", *engine))
    if option == "--master":
        for mode in ("error", "append", "overwrite"):
            print(run("assign", *keys, *ring, "--table", "owned", "--mode", mode, *engine))
    print(run("load", *keys, *ring, "--report", at / "load.html", *engine))
    log = ["--input", at / "log.parquet", "--events", at / "events.parquet"]
    print(run("audit", *log, "--output", at / "findings.parquet", *engine))
    if option == "--master":  # connect_process does the same over Spark Connect
        owner_at_time.MOST_IN_TABLES = 0  # as if the history were long
        spark = spark_session()
        work, events = (
            spark.read.parquet(str(at / f"{name}.parquet")) for name in ("log", "events")
        )
        findings = audit(work, history_of(events)).findings
        findings.write.parquet(str(at / "findings-long.parquet"))


if __name__ == "__main__":
    main(*sys.argv[1:])
