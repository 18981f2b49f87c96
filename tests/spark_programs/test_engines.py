"""The jobs over Spark Connect. Spark gives a stream's Python ten seconds: nothing runs beside."""

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
from redis import Redis

from hashring import RingNode
from hashring.ring_files import write_ring
from tests.conftest import ROOT, eventually
from tests.spark.java_classes import options
from tests.spark.test_owner import random_ring
from tests.spark.test_stream_sinks import keep_keys
from tests.spark_programs.engine_jobs import ENGINE_PATIENCE, check, engine_inputs

HOME = Path(pyspark.__file__).parent

LATE_PYTHON = """
import os, sys, time
is_of_stream = any("foreach_batch_worker" in each for each in sys.orig_argv)
if is_of_stream and os.path.exists(os.environ["LATE"]):
    os.remove(os.environ["LATE"])
    time.sleep(12)  # Spark waits for ten seconds
"""


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


@pytest.fixture(scope="module")
def late_python(tmp_path_factory):
    """A file: if it is there, the server's next Python for a stream is late, and removes it."""
    return tmp_path_factory.mktemp("late") / "late"


@pytest.fixture(scope="module")
def connect_server(tmp_path_factory, late_python):
    """The address of a Spark Connect server."""
    folder = tmp_path_factory.mktemp("connect")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # As Spark's start-connect-server.sh does, which PySpark 4.0 leaves out.
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    command = [HOME / "bin" / "spark-submit", "--class", server, "--master", "local[2]"]
    for setting in (
        f"spark.connect.grpc.binding.port={port}",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.ui.enabled=false",
        "spark.sql.shuffle.partitions=2",
        # Killed, it leaves its files.
        f"spark.driver.extraJavaOptions={options()} -Djava.io.tmpdir={folder}",
    ):
        command += ["--conf", setting]
    log = folder / "connect.log"
    # Batches of a stream are written by the server's own Python. One is late where a test says so.
    (folder / "sitecustomize.py").write_text(LATE_PYTHON)
    environment = {
        "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]), "LATE": str(late_python),
    }  # fmt: skip
    with background(log, *command, **environment):
        told(log, "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


def test_spark_connect(tmp_path, connect_server):
    ring = engine_inputs(tmp_path)
    # Of the environment, the server is found without a Java, and columns and SQL work there.
    check(
        tmp_path, ring, "tests.spark_programs.connect_process",
        SPARK_REMOTE=connect_server, JAVA_HOME="/nowhere",
    )  # fmt: skip


def test_a_stream_over_spark_connect_outlasts_a_late_python_and_reports_a_change_of_the_ring(
    redis_server, tmp_path, connect_server, late_python
):
    late_python.touch()
    errors = tmp_path / "errors"
    keep_keys(tmp_path, 0)
    command = [
        sys.executable, "-m", "hashring", "spark", "stream", "--remote", connect_server,
        "--input", str(tmp_path / "in"), "--format", "parquet", "--interval", "1 second",
        "--output", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "cp"),
        "--url", redis_server.url, "--ring", "fleet", "--refresh", "0",
    ]  # fmt: skip
    with (
        Redis(unix_socket_path=str(redis_server.socket)) as client,
        RingNode(client, "fleet"),
        errors.open("wb") as out,
        subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=out, text=True,
            env={**os.environ, "JAVA_HOME": "/nowhere"},
        ) as stream,
    ):  # fmt: skip
        try:
            first = tmp_path / "out" / "batch=0" / "_SUCCESS"
            eventually(
                lambda: first.exists() or stream.poll() is not None,
                "the first batch",
                ENGINE_PATIENCE / 2,
            )
            assert first.exists()
            with RingNode(client, "fleet", name="second"):
                keep_keys(tmp_path, 1)
                assert told(errors, "the ring changed: batch 1 has ring")
            stream.send_signal(signal.SIGINT)
            text, _ = stream.communicate(timeout=ENGINE_PATIENCE)
        finally:
            stream.kill()
            print(errors.read_text())  # beside a failure
    assert not late_python.exists()
    assert "ring changes  1\n" in text


@pytest.mark.parametrize(
    "setting",
    ["spark.sql.shuffle.partitions=x", "spark.driver.memory=1g", "spark.sql.warehouse.dir=x"],
)
def test_a_setting_that_a_server_does_not_take_is_refused(connect_server, setting):
    command = [
        sys.executable, "-m", "hashring", "spark", "simulate", "--nodes", "2", "--rings", "1",
        "--n-replicas", "1", "--remote", connect_server, "--conf", setting,
    ]  # fmt: skip
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"hashring: conf={setting!r}: the server refuses it ([")


def test_an_interrupted_call_over_spark_connect_ends_and_the_next_goes_on(connect_server):
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark_programs.interrupted_calls", connect_server],
        cwd=ROOT, capture_output=True, text=True, timeout=ENGINE_PATIENCE, check=False,
        env={**os.environ, "JAVA_HOME": "/nowhere"},
    )  # fmt: skip
    assert done.stdout.splitlines() == [
        "the next call goes on",
        "a long call is interrupted by SIGINT",
        "a long call is interrupted by SIGTERM",
    ], done.stderr


def test_an_interrupted_command_whose_server_is_gone_ends(connect_server):
    # PySpark alone goes on to ask the server for ten minutes.
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark_programs.lost_server", connect_server.split(":")[-1]],
        cwd=ROOT, capture_output=True, text=True, timeout=ENGINE_PATIENCE / 3, check=False,
        env={**os.environ, "JAVA_HOME": "/nowhere"},
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


def test_an_older_copy_of_a_checkpoint_is_refused_over_spark_connect(tmp_path, connect_server):
    write_ring(random_ring(2, 2), tmp_path / "ring.json")
    for number in range(2):
        keep_keys(tmp_path, number)
    command = [
        sys.executable, "-m", "hashring", "spark", "stream", "--remote", connect_server,
        "--input", str(tmp_path / "in"), "--format", "parquet", "--output", str(tmp_path / "out"),
        "--input-option", "maxFilesPerTrigger=1", "--checkpoint", str(tmp_path / "cp"),
        "--ring-file", str(tmp_path / "ring.json"),
    ]  # fmt: skip
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    for name in ("offsets", "commits"):
        for file in ("1", ".1.crc"):
            (tmp_path / "cp" / name / file).unlink(missing_ok=True)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "it holds batch 1, and the checkpoint" in done.stderr
