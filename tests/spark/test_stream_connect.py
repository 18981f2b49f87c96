"""A stream over Spark Connect reports a change of the ring to its client while it runs."""

import os
import signal
import socket
import subprocess
import sys

from redis import Redis

from hashring import RingNode
from tests.conftest import ROOT, eventually
from tests.spark.engine_process import JAVA
from tests.spark.test_engines import ENGINE_PATIENCE, HOME, background, told
from tests.spark.test_stream_sinks import keep_keys

RING = "fleet"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def server(folder, port):
    command = [HOME / "bin" / "spark-submit", "--master", "local[2]"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    for setting in (
        f"spark.connect.grpc.binding.port={port}",
        "spark.connect.grpc.binding.address=127.0.0.1",
        "spark.ui.enabled=false",
        # Killed, it leaves its files.
        f"spark.driver.extraJavaOptions={JAVA} -Djava.io.tmpdir={folder}",
    ):
        command += ["--conf", setting]
    return command


def test_a_change_of_the_ring_is_reported_over_spark_connect(redis_server, tmp_path):
    port, log, errors = free_port(), tmp_path / "connect.log", tmp_path / "errors"
    keep_keys(tmp_path, 0)
    command = [
        sys.executable, "-m", "hashring", "spark", "stream", "--remote", f"sc://127.0.0.1:{port}",
        "--input", str(tmp_path / "in"), "--format", "parquet", "--interval", "1 second",
        "--output", str(tmp_path / "out"), "--checkpoint", str(tmp_path / "cp"),
        "--url", redis_server.url, "--ring", RING, "--refresh", "0",
    ]  # fmt: skip
    # Batches are written by the server's own Python.
    environment = {
        "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": str(ROOT)
    }  # fmt: skip
    with (
        background(log, *server(tmp_path, port), **environment),
        Redis(unix_socket_path=str(redis_server.socket)) as client,
        RingNode(client, RING),
    ):
        told(log, "Spark Connect server started")
        with errors.open("wb") as out:
            stream = subprocess.Popen(
                command, cwd=ROOT, stdout=subprocess.PIPE, stderr=out, text=True,
                env={**os.environ, "JAVA_HOME": "/nowhere"},
            )  # fmt: skip
        try:
            first = tmp_path / "out" / "batch=0" / "_SUCCESS"
            eventually(first.exists, "the first batch", ENGINE_PATIENCE / 2)
            with RingNode(client, RING, name="second"):
                keep_keys(tmp_path, 1)
                assert told(errors, "the ring changed: batch 1 has ring")
            stream.send_signal(signal.SIGINT)
            text, _ = stream.communicate(timeout=ENGINE_PATIENCE)
        finally:
            stream.kill()
            stream.wait()
    assert "ring changes  1\n" in text
