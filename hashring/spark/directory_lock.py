"""One process at a time may rewrite the files of a directory."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hashring.errors import OutputRefused

_LOCK: Final = "_lock"


@contextmanager
def alone(place: Path, path: str, doing: str, lock: str = _LOCK) -> Iterator[None]:
    """Keep other processes from rewriting the same files; the system ends it with the process.

    Args:
        doing: what the other process does, as a verb, for the error.
        lock: the name of the file that is locked.

    Raises:
        OutputRefused: another process does it.
    """
    with (place / lock).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OutputRefused(path, f"another process {doing} it") from None
        try:
            yield
        finally:
            # A child forked meanwhile has the file open, too, and closing it here would not do.
            fcntl.flock(file, fcntl.LOCK_UN)
