"""Files that are on the disk before they become an output.

A system may write a new name to the disk before what the file holds. So after a power failure,
committed files could be empty or short.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hashring.atomic_writes import to_disk
from hashring.errors import HashringError, OutputRefused

_AT_ONCE: Final = 16
"""A disk takes the small files of many waits together."""


@contextmanager
def disk_errors(path: str) -> Iterator[None]:
    """Raise ``OutputRefused`` in place of an error of the file system, such as of a full disk.

    Do not ask Java within it: a Java that has ended shows as such an error, too.

    Args:
        path: the output as the user named it.
    """
    try:
        yield
    except HashringError:
        raise  # some are of the same class
    except OSError as error:
        raise OutputRefused(path, error.strerror or str(error)) from error


def sync(path: str, places: Iterable[Path]) -> None:
    """Wait until files, and the names in directories, are on the disk of this machine.

    Args:
        path: the output as the user named it.

    Raises:
        OutputRefused: the disk does not take them.
    """
    with disk_errors(path), ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(to_disk, places):
            pass


def sync_all(path: str, directory: Path) -> None:
    """Wait as :func:`sync` for a directory and all that is below it."""
    sync(path, [directory, *directory.rglob("*")])
