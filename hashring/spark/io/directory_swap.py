"""A directory in the place of another, in one step where the file system can.

Before it, :func:`check_not_of_others` and :func:`check_no_stream` refuse to replace what is no
output of a job. After it, :func:`seen_anew` makes Spark read the new files, and :func:`remove`
removes the old directory.
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import time
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hashring.errors import OutputRefused
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.directory_lock import alone
from hashring.spark.io.existing_files import seen_files
from hashring.spark.io.local_paths import exactly

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_UNABLE: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV)
"""Answers of file systems, such as NFS, that cannot exchange two names."""
_BEFORE: Final = ".before"
STREAM: Final = "_checkpoint"
"""In the output of a stream: says of which checkpoint its batches are. Readers pass over it."""
_STREAMS: Final = {
    STREAM: "it holds the batches of a stream, whose checkpoint notes their rows as written",
    "offsets": "it is the checkpoint of a stream",
}
"""What shows that a directory is a stream's, and why no job replaces it or appends to it."""
STREAM_LOCK: Final = "_stream"
"""The lock of a stream while it writes a batch, and of a job while its rows take their place.

Not that of a whole job: batches are compacted while others are written.
"""
_ENDING: Final = 10.0  # seconds


def swap(aside: Path, local: Path) -> None:
    """Exchange the names of two directories.

    Where the file system cannot do it in one step, it takes two renames. An exception between them
    undoes the first. After a kill between them, :func:`put_back` does.

    Args:
        local: a directory of which the caller has the lock.

    Raises:
        OutputRefused: the place was taken between the two renames; the old directory is kept.
    """
    if _exchanged(aside, local):
        return
    before = aside.with_name(f"{aside.name}{_BEFORE}")
    try:
        local.rename(before)
        aside.rename(local)
        before.rename(aside)
    except BaseException as error:
        if not aside.exists() and before.exists():
            before.rename(aside)  # the new one has its place already
        elif before.exists() and not local.exists():
            before.rename(local)
        elif before.exists():
            raise OutputRefused(
                str(local),
                f"another process made it meanwhile; what it replaced is in {before}",
                "remove one of the two, and start again",
            ) from error
        raise


def put_back(local: Path) -> None:
    """Give a directory its name again if :func:`swap` was killed between its two renames.

    Raises:
        OutputRefused: several such kills left a directory each, and nobody knows which to take; or
            another process is between the two renames.
    """
    if local.exists() or not local.parent.is_dir():
        return
    found = sorted(local.parent.glob(f".{escape(local.name)}.????????{_BEFORE}"))
    if len(found) > 1:
        raise OutputRefused(
            str(local),
            f"jobs that replaced it were killed, and left {' and '.join(map(str, found))}",
            "give the one with the rows that you need this name, and remove the others",
        )
    for before in found:
        # Refused while another process is between the two.
        with alone(before, str(local), "overwrites"):
            if not local.exists():
                before.rename(local)


def check_not_of_others(path: str, place: Path) -> None:
    """Raise ``OutputRefused`` if a directory to replace holds a user's own directory."""
    kept = {os.path.expanduser("~"): "home"}
    with suppress(OSError):  # it may be gone
        kept[os.getcwd()] = "working"
    for directory, kind in kept.items():
        if place.is_dir() and Path(os.path.realpath(directory)).is_relative_to(place):
            why = f"overwrite would remove {directory}, the {kind} directory"
            raise OutputRefused(path, why, "name a directory for it")


def check_no_stream(path: str, place: Path, mode: str) -> None:
    """Raise ``OutputRefused`` if a directory is the output or the checkpoint of a stream.

    Readers of batches pass over rows beside them.

    Args:
        mode: ``overwrite`` also looks at all directories that it would remove.
    """
    for at, directories, names in os.walk(place):
        for name, why in _STREAMS.items():
            if name in directories or name in names:  # earlier versions wrote a file
                removed = "" if at == str(place) else f"overwrite would remove {at}: "
                raise _of_a_stream(path, removed + why)
        if mode != "overwrite":
            return


def check_no_stream_elsewhere(spark: SparkSession, path: str) -> None:
    """Do so on another file system, before an append."""
    for name, why in _STREAMS.items():
        if seen_files(spark, f"{exactly(path.rstrip('/'))}/{name}") is not None:
            raise _of_a_stream(path, why)


def _of_a_stream(path: str, why: str) -> OutputRefused:
    return OutputRefused(path, why, "name another place, or remove this one first")


def seen_anew(spark: SparkSession, place: Path) -> None:
    """Make the session read again what it keeps of files here: it does not notice a rename."""
    with suppress(*SPARK_ERRORS):  # the files have their place already
        spark.catalog.refreshByPath(f"file://{place}")


def remove(path: Path) -> None:
    """Remove a directory, and what tasks that were cancelled still write into it."""
    # After Ctrl-C, tasks that are just ending may make files for another moment.
    deadline = time.monotonic() + _ENDING
    while path.exists():
        shutil.rmtree(path, ignore_errors=True)
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)


def _exchanged(first: Path, second: Path) -> bool:
    rename = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if rename is None:
        return False
    names = (os.fsencode(first), os.fsencode(second))
    if not rename(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE):
        return True
    number = ctypes.get_errno()
    if number in _UNABLE:
        return False
    raise OSError(number, os.strerror(number), str(second))
