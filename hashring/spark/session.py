"""A Spark session, or a clear word on why there is none."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from tempfile import TemporaryFile, mkdtemp
from threading import Thread
from typing import IO, Final

from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hashring.errors import ConfigError, HashringError, JavaNotFound, OutputRefused

OLDEST_JAVA: Final = 17
_ANSWER: Final = 30.0  # seconds
_BETWEEN_BARS: Final = 0.5  # seconds
_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""The environment's variable of options for the Java that spark-submit starts."""
_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
_LARGE_PAGES: Final = "-XX:+UseTransparentHugePages"


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
        log: a file to which what a Java started here prints is appended; by default that is shown
            only when Spark does not start.

    Raises:
        JavaNotFound: there is no Java, or an old one.
        ConfigError: both a master and a remote, or one that is none or does not answer; or no
            temporary file can be made.
        OutputRefused: ``log`` cannot be written.
    """
    was_there = SparkSession.getActiveSession() is not None
    is_ours = not was_there and _is_ours(conf or {})
    if remote is not None:
        if master is not None:
            raise ConfigError("remote", remote, "give either a master or a Spark Connect URL")
        _check_remote(remote)
        builder = SparkSession.builder.remote(remote)
    else:
        if "SPARK_REMOTE" not in os.environ:
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
                if _has_pages_on_request():
                    builder = builder.config("spark.driver.defaultJavaOptions", _LARGE_PAGES)
    for name, value in (conf or {}).items():
        builder = builder.config(name, value)
    starts_java = remote is None and not was_there and "PYSPARK_GATEWAY_PORT" not in os.environ
    with ExitStack() as around:
        if starts_java:
            around.enter_context(_java_prints_to(log))
            if SparkContext._gateway is None and is_ours:
                around.enter_context(_java_has_own_files())
        session = builder.getOrCreate()
    if is_connect(session):
        if progress:
            session.registerProgressHandler(_bar)  # type: ignore[arg-type]
    elif not was_there:
        # What goes wrong comes as an exception; the log would tell it again, in a hundred lines.
        session.sparkContext.setLogLevel(session.conf.get("spark.log.level", "FATAL") or "FATAL")
        if progress:
            Thread(target=_show_stages, args=(session.sparkContext,), daemon=True).start()
    return session


@contextmanager
def _java_prints_to(log: str | Path | None) -> Iterator[None]:
    """Give the processes that are started meanwhile another standard error than this terminal.

    Java writes some lines there at its start, which no setting of Spark keeps back.

    Raises:
        OutputRefused: the file cannot be written.
    """
    with _opened(log) as file:
        sys.stderr.flush()
        terminal = os.dup(2)
        try:
            os.dup2(file.fileno(), 2)
            yield
        except BaseException:
            if log is None:
                file.seek(0)
                os.write(terminal, file.read())
            raise
        finally:
            os.dup2(terminal, 2)
            os.close(terminal)


def _opened(log: str | Path | None) -> IO[bytes]:
    try:
        return TemporaryFile() if log is None else Path(log).open("ab")
    except OSError as error:
        raise _refusal(log, error) from error


def _refusal(log: str | Path | None, error: OSError) -> HashringError:
    why = error.strerror or str(error)
    if log is not None:
        return OutputRefused(str(log), why)
    return ConfigError(
        "TMPDIR",
        os.environ.get("TMPDIR"),
        f"no temporary file can be made ({why}): make room there, or name another directory",
    )


@contextmanager
def _java_has_own_files() -> Iterator[None]:
    """Give the Java that is started meanwhile a directory of its own for its temporary files.

    Java removes what it has made there when it ends; the system may kill it before.
    """
    try:
        folder = mkdtemp(prefix="hashring-spark-")
    except OSError as error:
        raise _refusal(None, error) from error
    before = os.environ.get(_JAVA_OPTIONS)
    # The first, so that the user's own such option has the last word.
    options = [shlex.quote(f"-Djava.io.tmpdir={folder}"), before]
    os.environ[_JAVA_OPTIONS] = " ".join(filter(None, options))
    try:
        yield
    finally:
        if before is None:
            del os.environ[_JAVA_OPTIONS]
        else:
            os.environ[_JAVA_OPTIONS] = before
        gateway = SparkContext._gateway
        if gateway is None:  # no Java has started
            shutil.rmtree(folder, ignore_errors=True)
        else:
            atexit.register(_remove_of_ended, gateway.proc, folder)
            # Java does this last, after it has removed what is in there.
            gateway.jvm.java.io.File(folder).deleteOnExit()


def _remove_of_ended(java: subprocess.Popen[bytes], folder: str) -> None:
    if java.poll() is not None:
        shutil.rmtree(folder, ignore_errors=True)


def _show_stages(context: SparkContext) -> None:
    """Show a bar for the stages that run, until Spark ends."""
    tracker = context.statusTracker()
    shown = False
    with suppress(Exception):  # whatever is asked of a Java that has ended
        while True:
            found = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            stages = [stage for stage in found if stage is not None]
            if stages or shown:
                total = sum(stage.numTasks for stage in stages)
                _draw(sum(stage.numCompletedTasks for stage in stages), total, not stages)
            shown = bool(stages)
            time.sleep(_BETWEEN_BARS)


def _is_ours(conf: Mapping[str, str]) -> bool:
    """Whether nobody else sets up the session: no spark-submit, no server, no file of defaults."""
    # Spark's shell scripts set the first; spark-submit sets the second for the Python it starts,
    # also where no shell runs: in the cluster modes of Yarn and Kubernetes.
    told = ("SPARK_ENV_LOADED", "PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_REMOTE")
    if any(name in os.environ for name in told) or conf.get("spark.api.mode") == "connect":
        return False
    homes = [os.environ.get("SPARK_CONF_DIR"), os.environ.get("SPARK_HOME", "") + "/conf"]
    return not any(home and (Path(home) / "spark-defaults.conf").exists() for home in homes)


def _has_pages_on_request() -> bool:
    """Whether Linux gives large pages of memory to programs that request them.

    A processor finds a place in the lookup table of a large ring sooner with them. Where they are
    switched off, Java would print a warning about the request.
    """
    with suppress(OSError):
        return "[madvise]" in _PAGES.read_text()
    return False


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
    _draw(sum(stage.num_completed_tasks for stage in stages), total, done)


def _draw(completed: int, total: int, done: bool) -> None:
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
