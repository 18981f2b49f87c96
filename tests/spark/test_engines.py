"""The same jobs on a cluster of two workers, and over Spark Connect."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from hashring.core.ring_json import RingFile
from hashring.ring_files import write_ring
from tests.conftest import ROOT, eventually
from tests.spark.engine_process import JAVA
from tests.spark.test_owner import random_ring

HOME = Path(pyspark.__file__).parent
ENGINE_PATIENCE = 900
"""As long as a machine with twenty times more to do than it can may take."""


@contextmanager
def background(log, *command, **environment):
    """A process and all that it starts, until the end of the block."""
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(part) for part in command], stdout=out, stderr=out, start_new_session=True,
            cwd=log.parent, env={**os.environ, **environment},
        )  # fmt: skip
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def told(log, pattern):
    """What a log says, once it does."""
    found: list[str] = []

    def look() -> bool:
        found[:] = re.findall(pattern, log.read_text(errors="replace"))
        return bool(found)

    eventually(look, f"{pattern} in {log}", ENGINE_PATIENCE / 2)
    return found[0]


@pytest.fixture
def work(spark, tmp_path):
    """What the jobs read."""
    ring = random_ring(4, 8)
    write_ring(RingFile(ring), tmp_path / "ring.json")
    spark.range(200).selectExpr("concat('k', id) as key").write.parquet(
        str(tmp_path / "keys.parquet")
    )
    spark.sql(
        "select 1L epoch, timestamp_seconds(10) at, 'join' kind, array('a') nodes, array(5L) points"
        " union all select 2L, timestamp_seconds(20), 'leave', array('a'), null"
    ).write.parquet(str(tmp_path / "events.parquet"))
    spark.sql(
        "select 'k' key, 'a' node, 11D start, 12D end union all select 'k', 'a', 15D, 25D"
    ).write.parquet(str(tmp_path / "log.parquet"))
    return tmp_path, ring


def check(spark, work, *command, **environment):
    """Run the jobs in a process, and look at what they wrote."""
    folder, ring = work
    done = subprocess.run(
        [sys.executable, "-m", *map(str, command)], cwd=ROOT, capture_output=True, text=True,
        timeout=ENGINE_PATIENCE, check=False, env={**os.environ, **environment},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    owned = spark.read.parquet(str(folder / "owned.parquet")).collect()
    assert {r.key: r.owner for r in owned} == {f"k{i}": ring.owner(f"k{i}") for i in range(200)}
    own = spark.read.parquet(str(folder / "by.parquet" / "owner=n1")).collect()
    assert {r.key for r in own} == {r.key for r in owned if r.owner == "n1"}
    assert (folder / "load.html").exists()
    assert overrun(spark, folder / "findings.parquet")


def overrun(spark, place):
    """Whether the findings of an audit are the one that there is."""
    found = spark.read.parquet(str(place)).collect()
    return [(row.problem, row.unowned) for row in found] == [("overrun", 5.0)]


def test_workers_with_memory_of_their_own(spark, work):
    # A standalone master in the driver's Java, and two workers that start an executor each.
    folder, _ = work
    home = folder / "home"  # beside which they keep their logs
    home.mkdir()
    for part in HOME.iterdir():
        (home / part.name).symlink_to(part)
    master = ("--master", "local-cluster[2,1,1024]")
    check(spark, work, "tests.spark.engine_process", *master, folder, SPARK_HOME=str(home))
    assert overrun(spark, folder / "findings-long.parquet")
    assert spark.read.parquet(str(folder / "warehouse" / "owned")).count() == 200
    # Both did some of it.
    assert all(list((home / "work").glob(f"app-*/{number}")) for number in range(2))


def test_spark_connect(spark, work):
    folder, _ = work
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "connect.log"
    # As Spark's start-connect-server.sh does, which PySpark 4.0 leaves out.
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [HOME / "bin" / "spark-submit", "--class", server, "--master", "local[2]"]
    for setting in (
        f"spark.connect.grpc.binding.port={port}",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.ui.enabled=false",
        "spark.sql.shuffle.partitions=2",
        # Killed, it leaves its files.
        f"spark.driver.extraJavaOptions={JAVA} -Djava.io.tmpdir={folder}",
    ):
        command += ["--conf", setting]
    environment = {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with background(log, *command, **environment):
        told(log, "Spark Connect server started")
        # Of the environment, the server is found without a Java, and columns and SQL work there.
        check(
            spark, work, "tests.spark.connect_process", folder,
            SPARK_REMOTE=f"sc://127.0.0.1:{port}", JAVA_HOME="/nowhere",
        )  # fmt: skip
