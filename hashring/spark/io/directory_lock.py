"""One process at a time may rewrite the files of a directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Final

from hashring.core.safe_text import printable
from hashring.errors import OutputRefused

_LOCK: Final = "_lock"
_SHOWN: Final = 20


@contextmanager
def alone(
    place: Path, path: str, doing: str, lock: str = _LOCK, *, shared: bool = False
) -> Iterator[None]:
    """Keep other processes from rewriting the same files; the system ends it with the process.

    Args:
        doing: what this process does, as a verb, for the error of another one.
        lock: the name of the file that is locked.
        shared: also let others in that come with ``shared``.

    Raises:
        OutputRefused: another process is at these files, or they cannot be locked.
    """
    wanted = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    while True:
        with _opened(place / lock, path) as file:
            try:
                fcntl.flock(file, wanted | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                verb = printable(file.read(_SHOWN)) or doing
                raise OutputRefused(
                    path,
                    f"another process {verb} it",
                    "start again when that process has ended, or name another place",
                ) from None
            except OSError as error:
                raise OutputRefused(
                    path,
                    f"{place / lock} cannot be locked: {error.strerror}",
                    "name a place on a file system that can lock files",
                ) from error
            try:
                # Else the directory has been replaced meanwhile, and the lock with it.
                if _is_at(file, place / lock):
                    with suppress(OSError):  # a disk that is full has the lock, too
                        file.truncate(0)
                        os.write(file.fileno(), doing.encode())
                    yield
                    return
            finally:
                # A child forked meanwhile has the file open, too, and closing it here would not do.
                fcntl.flock(file, fcntl.LOCK_UN)


def _opened(lock: Path, path: str) -> IO[str]:
    try:
        return lock.open("a+", encoding="ascii", errors="replace")
    except PermissionError as error:
        # The file may be another user's in a directory that everybody may write into.
        kept_from = lock if os.path.exists(lock) else f"into {lock.parent}"
        raise OutputRefused(path, f"no right to write {kept_from}") from error
    except OSError as error:
        raise OutputRefused(path, f"{lock} cannot be opened: {error.strerror}") from error


def _is_at(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
