"""A Spark session, or a clear word on why there is none."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hashring.errors import ConfigError, JavaNotFound

OLDEST_JAVA: Final = 17
_ANSWER: Final = 30.0  # seconds


def spark_session(
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    progress: bool = False,
) -> SparkSession:
    """The running session, or a new one.

    Args:
        master: a Spark master's URL; by default the one that spark-submit set, else all cores of
            this machine.
        remote: a Spark Connect URL (``sc://host:port``) instead; needs no Java here.
        conf: settings of Spark; ``spark.log.level`` to see its log.
        progress: show a bar on the terminal for stages that last.

    Raises:
        JavaNotFound: there is no Java, or an old one.
        ConfigError: both a master and a remote, or one that is none or does not answer.
    """
    if remote is not None:
        if master is not None:
            raise ConfigError("remote", remote, "give either a master or a Spark Connect URL")
        _check_remote(remote)
        builder = SparkSession.builder.remote(remote)
    else:
        java_version()
        builder = SparkSession.builder.appName("hashring")
        # spark-submit has set a master already, which a default must not override.
        if master is not None:
            _check_master(master)
            builder = builder.master(master)
        elif "SPARK_ENV_LOADED" not in os.environ:
            builder = builder.master("local[*]")
        builder = builder.config("spark.ui.showConsoleProgress", str(progress).lower())
        if "SPARK_ENV_LOADED" not in os.environ:
            builder = builder.config("spark.ui.enabled", "false")
            if (master or "local").startswith("local"):
                # All of it is on this machine, whatever its name resolves to today.
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
                builder = builder.config("spark.driver.host", "127.0.0.1")
        # Workers must run the Python that has this package.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if remote is None:
        # What goes wrong comes as an exception; the log would tell it again, in a hundred lines.
        session.sparkContext.setLogLevel(session.conf.get("spark.log.level", "FATAL") or "FATAL")
    elif progress:
        session.registerProgressHandler(_bar)  # type: ignore[arg-type]
    return session


def _check_master(master: str) -> None:
    """Check that it is a master, and, on a standalone cluster, that one answers.

    Raises:
        ConfigError: it is none, or none answers.
    """
    if not master.startswith(("local", "spark://", "yarn", "k8s://")):
        raise ConfigError("master", master, "say local[2], spark://host:port, yarn or k8s://...")
    if not master.startswith("spark://"):
        return
    why: Exception | None = None
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), _ANSWER).close()
            return
        except (OSError, ValueError) as error:
            why = error
    raise ConfigError("master", master, f"none answers ({why}): is it up, and the port right?")


def _check_remote(remote: str) -> None:
    """Check that somebody answers: Spark itself would try again for ten minutes.

    Raises:
        ConfigError: nobody does, or it is no URL of Spark Connect.
    """
    import grpc  # type: ignore[import-untyped] # noqa: PLC0415 - for Spark Connect alone
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415

    where = remote.partition("/;")[0]  # what comes after may be a secret
    states: SimpleQueue[grpc.ChannelConnectivity] = SimpleQueue()
    try:
        channel = DefaultChannelBuilder(remote).toChannel()
    except (PySparkException, ValueError) as error:
        raise ConfigError("remote", where, "a Spark Connect URL is sc://host:port") from error
    try:
        channel.subscribe(states.put, try_to_connect=True)
        while (state := states.get(timeout=_ANSWER)) is not grpc.ChannelConnectivity.READY:
            if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
                raise ConfigError(
                    "remote", where, "nobody answers there: is the server up, and the port right?"
                )
    except Empty:
        raise ConfigError(
            "remote", where, f"does not answer within {_ANSWER:.0f} s: is it the right address?"
        ) from None
    finally:
        channel.close()


def is_connect(session: SparkSession) -> bool:
    """Whether the session speaks to a server through Spark Connect."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def _bar(stages, inflight_tasks, operation_id, done):  # type: ignore[no-untyped-def]
    # The parameters' names are Spark's: it passes them by keyword.
    total = sum(stage.num_tasks for stage in stages)
    completed = sum(stage.num_completed_tasks for stage in stages)
    width = 40 * completed // max(total, 1)
    end = "\r" + " " * 70 + "\r" if done else ""
    sys.stderr.write(f"\r[{'=' * width}{' ' * (40 - width)}] {completed}/{total} tasks{end}")
    sys.stderr.flush()


def java_version() -> int:
    """The major version of the Java that Spark will run on.

    Raises:
        JavaNotFound: there is none, it does not start, or it is older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        raise JavaNotFound("no Java found: neither JAVA_HOME is set nor is java on the PATH")
    try:
        told = subprocess.run(
            [program, "-version"], capture_output=True, text=True, timeout=60, check=True
        ).stderr
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaNotFound(f"the Java at {program} does not start ({error})") from error
    found = re.search(r'version "(\d+)(?:\.(\d+))?', told)
    if not found:
        raise JavaNotFound(f"the Java at {program} does not tell its version: {told[:80]!r}")
    # Java 8 calls itself 1.8.
    major = int(found[2] if found[1] == "1" and found[2] else found[1])
    if major < OLDEST_JAVA:
        raise JavaNotFound(f"the Java at {program} is version {major}", str(major))
    return major
