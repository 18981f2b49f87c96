"""A directory in the place of another, in one step where the file system can."""

from __future__ import annotations

import ctypes
import errno
import os
from glob import escape
from pathlib import Path
from typing import Final

from hashring.errors import OutputRefused
from hashring.spark.directory_lock import alone

_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_UNABLE: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EXDEV)
"""Answers of file systems, such as NFS, that cannot exchange two names."""
_BEFORE: Final = ".before"


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
    """Give a directory its name again if :func:`swap` was killed between its two renames."""
    if local.exists() or not local.parent.is_dir():
        return
    for before in local.parent.glob(f".{escape(local.name)}.????????{_BEFORE}"):
        # Refused while another process is between the two.
        with alone(before, str(local), "overwrites"):
            if not local.exists():
                before.rename(local)
        return


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
