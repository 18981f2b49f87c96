"""A Spark session, or a clear word on why there is none."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

import pyspark
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hashring.errors import ConfigError
from hashring.spark.engine.java import (
    LARGE_PAGES,
    has_pages_on_request,
    java_has_own_files,
    java_prints_to,
    java_version,
)
from hashring.spark.engine.progress_bar import draw_operation, draw_stages

_JAVA_OPTIONS: Final = ("SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS")
"""Variables of the environment with options for the Java that is started."""
_ANSWER: Final = 30.0  # seconds


def running_session() -> SparkSession | None:
    """The session that is active in this thread, else the one that runs in this process."""
    # A thread has no active session until a call on a session has made it so.
    with suppress(PySparkException):
        return SparkSession.active()
    from pyspark.sql.utils import is_remote  # noqa: PLC0415 - loads grpc where it is used

    if is_remote():
        from pyspark.sql.connect.session import SparkSession as Remote  # noqa: PLC0415

        with suppress(PySparkException):
            return Remote.active()  # type: ignore[return-value]
    return None


def spark_session(
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, str] | None = None,
    *,
    progress: bool = False,
    log: str | Path | None = None,
) -> SparkSession:
    """The running session, with its log level and its page as they are, or a new one.

    A Java that is started here has a directory of its own for its temporary files, beside those of
    Python. It is removed when Java ends; if Java is killed, when this process ends.

    Args:
        master: a Spark master's URL; by default the one that spark-submit or the file
            ``spark-defaults.conf`` set, else all cores of this machine.
        remote: a Spark Connect URL (``sc://host:port``) instead; needs no Java here. By default
            that of the environment's ``SPARK_REMOTE``, if it is set.
        conf: settings of Spark; ``spark.log.level`` to see its log.
        progress: show a bar on the terminal for stages that last.
        log: a file to which what a Java started here prints is appended, such as Spark's own log
            from its first line; by default that is shown only when Spark does not start, and the
            log ends with the start.

    Raises:
        JavaNotFound: there is no Java, or an old one.
        ConfigError: both a master and a remote, or one that is none or does not answer; or a
            Spark Connect server refuses a setting; or no temporary file can be made.
        OutputRefused: ``log`` cannot be written.
    """
    master = (conf or {}).get("spark.master", master)  # Spark takes this one of the two
    was_there = running_session() is not None
    is_ours = not was_there and _is_ours(conf or {})
    is_far = remote is not None or "SPARK_REMOTE" in os.environ
    starts_java = remote is None and not was_there and "PYSPARK_GATEWAY_PORT" not in os.environ
    if remote is not None:
        if master is not None:
            raise ConfigError("remote", remote, "give either a master or a Spark Connect URL")
        _check_remote(remote)
        builder = SparkSession.builder.remote(remote)
    else:
        if starts_java and not is_far:
            java_version()
        builder = SparkSession.builder.appName("hashring")
        if master is not None:
            _check_master(master)
            builder = builder.master(master)
        if is_ours:
            # Without a master Spark takes all cores of this machine.
            builder = builder.config("spark.ui.enabled", "false")
            builder = builder.config("spark.ui.showConsoleProgress", "false")
            # For its page, Spark writes out each query's plan several times, with all tables.
            builder = builder.config("spark.sql.ui.explainMode", "simple")
            if (master or "local").startswith("local") and not (master or "").startswith("local-"):
                # All of it is on this machine, whatever its name resolves to today.
                os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
                builder = builder.config("spark.driver.host", "127.0.0.1")
            if (master or "local").startswith("local"):
                # Workers must run the Python that has this package.
                os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
                if has_pages_on_request():
                    builder = builder.config("spark.driver.defaultJavaOptions", LARGE_PAGES)
    for name, value in ({} if is_far else conf or {}).items():
        builder = builder.config(name, value)
    with ExitStack() as around:
        if starts_java:
            around.enter_context(java_prints_to(log))
            if SparkContext._gateway is None and is_ours:
                around.enter_context(java_has_own_files())
        if starts_java and not is_far:
            # With spark.api.mode=connect PySpark 4.0 starts a server with these settings, and then
            # warns that it cannot set them once more.
            around.enter_context(warnings.catch_warnings())
            warnings.filterwarnings("ignore", "Failed to set ")
        session = builder.getOrCreate()
    if is_far:
        _set_all(session, conf or {})
    if is_connect(session):
        if progress:
            session.registerProgressHandler(draw_operation)  # type: ignore[arg-type]
    elif not was_there:
        if starts_java and is_ours and log is None and not _has_own_log(session):
            # Nobody would see it, and in a file without a name it would grow for as long as a
            # stream runs. What goes wrong comes as an exception.
            session.sparkContext.setLogLevel("FATAL")
        if progress:
            Thread(target=draw_stages, args=(session.sparkContext,), daemon=True).start()
    return session


def _set_all(session: SparkSession, conf: Mapping[str, str]) -> None:
    """Set what a server takes of a session. PySpark itself would warn, and go on without it.

    Raises:
        ConfigError: the server does not take a setting, and has another value.
    """
    for name, value in conf.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            if session.conf.get(name, None) != value:
                why = str(error).partition("\n")[0].partition(" SQLSTATE")[0]
                raise ConfigError(
                    "conf", f"{name}={value}", f"the server refuses it ({why})"
                ) from error


def _has_own_log(session: SparkSession) -> bool:
    """Whether the user says what Spark logs, or where: by a setting, or by a file for log4j."""
    options = [os.environ.get(name) for name in _JAVA_OPTIONS]
    options.append(session.conf.get("spark.driver.extraJavaOptions", None))
    return bool(
        session.conf.get("spark.log.level", None)
        or any("log4j" in (text or "") for text in options)
        or list(_conf_directory().glob("log4j2*.*"))
    )


def _is_ours(conf: Mapping[str, str]) -> bool:
    """Whether nobody else sets up the session: no spark-submit, no server, no file of defaults."""
    # Spark's shell scripts set the first; spark-submit sets the second for the Python it starts,
    # also where no shell runs: in the cluster modes of Yarn and Kubernetes.
    told = ("SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE")
    if any(name in os.environ for name in told) or conf.get("spark.api.mode") == "connect":
        return False
    return not (_conf_directory() / "spark-defaults.conf").exists()


def _conf_directory() -> Path:
    """Where Spark looks for its files of settings."""
    home = os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent
    return Path(os.environ.get("SPARK_CONF_DIR") or Path(home) / "conf")


def _check_master(master: str) -> None:
    """Raise ``ConfigError`` unless it is a master, and one of a cluster answers."""
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
    """Raise ``ConfigError`` unless somebody answers: Spark would try for ten minutes."""
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
