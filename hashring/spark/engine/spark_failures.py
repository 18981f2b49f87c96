"""What Spark says when it fails, as an error of this package that says what to do.

Spark's own exceptions are of as many kinds as it has engines: what they have in common is their
text, which begins with the name of a condition.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from hashring import errors
from hashring.core.safe_text import printable
from hashring.errors import (
    ColumnError,
    HashringError,
    InputDamaged,
    NoDataError,
    SparkFailed,
    StoreError,
)

SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""What Spark raises, on every engine."""

_UNREAD: Final = re.compile(
    r"\[FAILED_READ_FILE\.(\w+)\] Encountered error while reading file (.+?)\.(?:\s|$)", re.M
)
_TYPES: Final = re.compile(r"column \[(.+?)\]\. Expected Spark type (.+?), actual .*? type (\w+)")
_NO_PATH: Final = re.compile(r"\[PATH_NOT_FOUND\] Path does not exist: (.+?)\.(?:\s|$)", re.M)
_CONFLICT: Final = re.compile(
    r"\[CONFLICTING_DIRECTORY_STRUCTURES\].*?\nSuspicious paths:\s*(.+?)\s*\nIf provided paths",
    re.S,
)
_PLACES: Final = 5
"""How many of the places in conflict an error names."""
_OTHERS: Final = (
    "without one, Spark took that of another file: read files that differ in jobs of their own"
)
_HEADER_NAMES: Final = re.compile(r"Expected: (.*) but found: (.*)")
_HEADER_LENGTH: Final = re.compile(r"Header length: (\d+), schema size: (\d+)")
_TOO_MUCH: Final = ("[MALFORMED_CSV_RECORD]", "univocity.parsers.common.TextParsingException")
"""What Spark says of a record of a CSV that its parser has no room for. Bad records are others."""
_MOST_SHOWN: Final = 500
"""Characters of what Spark says: it may repeat a whole record."""
_CAUSE: Final = re.compile(r"^Caused by: [\w.$]+: (.+)$", re.M)
_OURS: Final = re.compile(rf"^\s*{re.escape(errors.__name__)}\.(\w+): (.+)$", re.M)
_JAVA_ENDED: Final = re.compile(
    r"Answer from Java side is empty|Error while sending|\AAn error occurred while calling \S+\Z"
)
"""What Py4J says when nobody answers it; where Java answers, there is more."""
_TRACEBACK: Final = "Traceback (most recent call last)"
_OF_PY4J: Final = re.compile(r"(py4j\.protocol\.\w+: )?An error occurred")
_RAISED: Final = re.compile(r"(: )?[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit)\b")
NO_PACKAGE: Final = "is built-in but external data source"
"""What Spark says of a format of its own, such as Avro, whose package it was not given."""
PYTHON_LATE: Final = "Python worker failed to connect back"
"""What Spark says when a Python that it started took longer than ten seconds, or ended at once, as
for want of a module."""
_SERVER_ANEW: Final = (
    "its server was started again, or has ended the session: look what the job has written, and "
    "start it again"
)
_REMEDIES: Final = {
    "[JAVA_GATEWAY_EXITED]": "what Java said is above; check --master and --conf",
    "OutOfMemoryError": "give Spark more memory, such as --conf spark.driver.memory=4g",
    "[DATA_SOURCE_NOT_FOUND]": "is the format's name right? Give Spark its package, with --conf "
    "spark.jars.packages=...",
    NO_PACKAGE: "give Spark its package, with --conf spark.jars.packages=...",
    "No FileSystem for scheme": "is that the right beginning of the path?",
    "FileSystem not found": "give Spark the package of this file system, with --conf "
    "spark.jars.packages=...",
    "Mkdirs failed to create": "no directory can be made there: name another place",
    "Relative path in absolute URI": "Spark takes no path with a colon: give it another name",
    "Illegal file pattern": "put a backslash before each bracket or brace of a file's own name",
    PYTHON_LATE: "Python took longer than ten seconds to start, or lacks a module: give the "
    "machine less to do, and see that the Python there has hashring-fleet[spark]",
    # Of Spark Connect: a server that was started again does not know the session.
    "INVALID_HANDLE": _SERVER_ANEW,
    "[NO_ACTIVE_SESSION]": _SERVER_ANEW,
    "No module named": "install it, with hashring-fleet for hashring, for the Python that runs "
    "Spark's tasks, which PYSPARK_PYTHON names there",
    "Python worker exited unexpectedly": "did the system kill it, for want of memory? Run fewer "
    "tasks at once, such as by --master 'local[2]'",
    "No space left on device": "make room for the output and for Spark's own files, or name "
    "another output, or another place for these files with --conf spark.local.dir=...",
}


def failure(error: Exception) -> HashringError:
    """The error to raise for one of :data:`SPARK_ERRORS`, or for a Java that has ended."""
    told = str(error) or type(error).__name__
    if isinstance(error, OSError) or _JAVA_ENDED.search(told):
        return _spark_failed(
            f"its Java has ended ({told})",
            "did the system kill it, for want of memory? --conf spark.driver.memory=... says how "
            "much it takes",
        )
    if ours := _OURS.findall(told):
        name, text = ours[-1]
        kind = getattr(errors, name, None)
        # Redis said no to a worker: the very error that it is anywhere else.
        if isinstance(kind, type) and issubclass(kind, StoreError) and "__init__" not in vars(kind):
            return kind(text)
    if path := _NO_PATH.search(told):
        return NoDataError(path[1], "nothing is there; check the path or the pattern")
    if conflict := _CONFLICT.search(told):
        return _in_conflict(told, conflict[1].split("\n"))
    if unread := _UNREAD.search(told):
        return _unread(told, *unread.groups())
    # Over Spark Connect there is no log here.
    is_far = type(error).__module__ == "pyspark.errors.exceptions.connect"
    remedy = "the log of Spark's server has more" if is_far else None
    remedy = next((what for sign, what in _REMEDIES.items() if sign in told), remedy)
    return _spark_failed(told, remedy)


def too_much(told: str) -> str | None:
    """What is wrong with a CSV of which a record is too long to parse, if Spark says so."""
    if not any(sign in told for sign in _TOO_MUCH):
        return None
    return (
        "a record has more columns than --input-option maxColumns, which is 20480 unless given, or "
        "a field has more characters than maxCharsPerColumn; give more, or look for a quote that "
        "is not closed"
    )


def _spark_failed(told: str, remedy: str | None) -> SparkFailed:
    """The error for a failure of Spark itself, with the line of its words that says the cause."""
    lines = [line.strip() for line in told.split("\n") if line.strip()]
    # An error of this package that a Python worker raised comes at the end of its traceback,
    # and so does any other.
    own = [line for line in lines if line.startswith(f"{errors.__name__}.")]
    # Py4J begins with a line about itself, and the Java exception comes after it.
    java = [line for line in lines if not _OF_PY4J.match(line)]
    raised = [line for line in java if _RAISED.match(line)] if _TRACEBACK in told else []
    said = own[-1].removeprefix(f"{errors.__name__}.") if own else (raised or java or [""])[0]
    said = re.sub(r"[.;:]?\s*SQLSTATE: \w+.*|[.;:]$", "", said.removeprefix(": "))
    if len(said) > _MOST_SHOWN:
        said = f"{said[:_MOST_SHOWN]}..."
    return SparkFailed(said, told, remedy)


def _in_conflict(told: str, places: Sequence[str]) -> HashringError:
    """The error for places that differ in their directories of columns."""
    named, more = [printable(place.strip()) for place in places[:_PLACES]], len(places) - _PLACES
    if more > 0:
        named.append(f"{more} more")
    return SparkFailed(
        f"these places cannot be read as one, because some hold directories that are named for "
        f"columns: {', '.join(named)}",
        told,
        "read each place by a job of its own, or name the files by patterns, such as "
        "DIRECTORY/*/*.parquet: then Spark makes no columns of directories",
    )


def _unread(told: str, why: str, file: str) -> HashringError:
    if types := _TYPES.search(told):
        column, expected, actual = types.groups()
        return ColumnError(
            column,
            f"is {actual} in {file}, not {expected}: give the file's own type in the schema; "
            f"{_OTHERS}",
        )
    if names := _HEADER_NAMES.search(told):
        expected, found = (printable(name)[:200] for name in names.groups())
        return NoDataError(
            file,
            f"the header has {found!r}, and the schema has {expected!r}; name the header's "
            f"columns, in its order; {_OTHERS}",
        )
    if length := _HEADER_LENGTH.search(told):
        header, schema = length.groups()
        return NoDataError(
            file,
            f"the header has {header} columns, and the schema has {schema}; name all of them; "
            f"{_OTHERS}",
        )
    if wide := too_much(told):
        return NoDataError(file, wide)
    if why == "FILE_NOT_EXIST":
        return NoDataError(file, "was taken away while it was read; start the job again")
    causes = _CAUSE.findall(told)
    return InputDamaged(file, printable(causes[-1])[:200] if causes else None)
