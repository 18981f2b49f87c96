"""A directory that no reader sees, into which Spark writes what takes its place at the end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hashring.errors import OutputRefused
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.disk_sync import disk_errors

_MARK: Final = "_begun"


@contextmanager
def hidden_directory(aside: Path, path: str) -> Iterator[None]:
    """Make a directory, and check at the end that nobody removed it meanwhile.

    Spark makes a removed one anew for the tasks that are left. It does not miss the files of those
    that had ended, and reports success. Write with the mode ``append``, because it is there.

    Args:
        path: the output as the user named it.

    Raises:
        OutputRefused: somebody removed it, or the disk does not take it.
    """
    mark = aside / _MARK
    with disk_errors(path):
        aside.mkdir(parents=True)
        mark.touch()
    try:
        yield
    except SPARK_ERRORS as error:
        if mark.exists():
            raise
        raise _removed(aside, path) from error
    with disk_errors(path):
        try:
            mark.unlink()
        except FileNotFoundError as error:
            raise _removed(aside, path) from error


def _removed(aside: Path, path: str) -> OutputRefused:
    return OutputRefused(
        path,
        f"{aside} was removed while the job wrote to it, and rows are missing",
        "start again, and leave such a directory there while a job runs",
    )
