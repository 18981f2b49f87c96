"""The Java that Spark runs on: its version, its memory, its files, and what it prints."""

from __future__ import annotations

import atexit
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile, mkdtemp
from typing import IO, Any, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext

from hashring.errors import ConfigError, HashringError, JavaNotFound, OutputRefused

OLDEST_JAVA: Final = 17
_JAVA_OPTIONS: Final = "SPARK_SUBMIT_OPTS"
"""The environment's variable of options for the Java that spark-submit starts."""
_PAGES: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
LARGE_PAGES: Final = "-XX:+UseTransparentHugePages"
"""The option for Java to request large pages of memory."""


def java_version() -> int:
    """The major version of the Java for Spark. Raise ``JavaNotFound`` below 17."""
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
        raise JavaNotFound(f"the Java at {program} does not report its version: {told[:80]!r}")
    # Java 8 calls itself 1.8.
    major = int(found[2] if found[1] == "1" and found[2] else found[1])
    if major < OLDEST_JAVA:
        raise JavaNotFound(f"the Java at {program} is version {major}", str(major))
    return major


def has_pages_on_request() -> bool:
    """Whether Linux gives large pages of memory to programs that request them.

    A processor finds a place in the lookup table of a large ring sooner with them. Where they are
    switched off, Java would print a warning about the request.
    """
    with suppress(OSError):
        return "[madvise]" in _PAGES.read_text()
    return False


@contextmanager
def java_prints_to(log: str | Path | None) -> Iterator[None]:
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
def java_has_own_files() -> Iterator[None]:
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
            atexit.register(_leave_nothing, gateway, folder)
            # Java does this last, after it has removed what is in there.
            gateway.jvm.java.io.File(folder).deleteOnExit()


def _leave_nothing(gateway: Any, folder: str) -> None:
    """Have what is in the folder removed when Java ends, or now if it has.

    Some of what Java runs leaves its directories there, such as the client of a Hive metastore.
    """
    with suppress(Py4JError, OSError):
        if gateway.proc.poll() is None:
            for place, folders, files in os.walk(folder):
                for name in (*folders, *files):  # removed in the reverse order
                    gateway.jvm.java.io.File(os.path.join(place, name)).deleteOnExit()
            return
    # A Java that is being killed answers no more, and may not have ended yet.
    shutil.rmtree(folder, ignore_errors=True)
