"""Files on this machine that are written whole or not at all, also when the power fails."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from hashring.errors import OutputExists, OutputRefused
from hashring.held_signals import held_back

_NO_LINKS: Final = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
"""What a file system without hard links answers."""

_NO_SYNC: Final = (errno.EACCES, errno.EINVAL, errno.ENOTSUP)
"""What a directory answers that nobody may list, or one on some network file systems."""


def check_new(path: str | os.PathLike[str]) -> None:
    """Check, before the work starts, that a file or directory can be made there.

    Raises:
        OutputExists: it is there already.
        OutputRefused: nothing can be made there.
    """
    target = _nameable(path)
    # A link to nothing takes a name as well.
    if os.path.lexists(target):
        raise OutputExists(str(path))
    parent = next(at for at in target.parents if os.path.lexists(at))
    if not parent.is_dir():
        raise OutputRefused(str(path), f"{parent} is no directory")
    _check_right(path, parent)


def check_directory(path: str | os.PathLike[str]) -> None:
    """Check, before the work starts, that files can be made in a directory and beside it.

    Raises:
        OutputRefused: they cannot.
    """
    target = _nameable(path)
    for place in (target, target.parent):
        _check_right(path, place)


def _nameable(path: str | os.PathLike[str]) -> Path:
    """The whole path, to whose name more may be added for what is made beside it."""
    try:
        # Of a relative path none, if the working directory was deleted.
        target = Path(path).absolute()
        # The name that it has while it is written is the longest.
        with suppress(FileNotFoundError, NotADirectoryError):
            os.lstat(_aside(target))
    except (OSError, ValueError) as error:  # the latter for a path that no file can have
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputRefused(str(path), reason) from error
    return target


def _check_right(path: str | os.PathLike[str], place: Path) -> None:
    if not os.access(place, os.W_OK | os.X_OK):
        raise OutputRefused(str(path), f"no right to write into {place}")


def _aside(target: Path) -> Path:
    return target.parent / f".{target.name}.{uuid.uuid4().hex[:8]}"


@contextmanager
def new_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A path to write to; what is there at the end gets the real name, in one step.

    Raises:
        OutputExists: the real name is taken, now or by the end.
        OutputRefused: the file cannot be written.
    """
    check_new(path)
    target = Path(path)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputRefused(str(path), f"{target.parent}: {error.strerror}") from error
    aside = _aside(target)
    try:
        yield aside
        to_disk(aside)
        _put(aside, target)
        to_disk(target.parent)
    except FileExistsError:
        raise OutputExists(str(path)) from None
    except OSError as error:
        raise OutputRefused(str(path), error.strerror or str(error)) from error
    finally:
        with suppress(OSError):
            aside.unlink()


def to_disk(path: Path) -> None:
    """Wait until a file, or the names in a directory, are on the disk.

    A system may write a new name before what the file holds. After a power failure in between,
    the file is there and empty.
    """
    try:
        opened = os.open(path, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _put(aside: Path, target: Path) -> None:
    """Give a file its real name, which must not be taken."""
    try:
        # A link fails where a rename would replace what somebody else wrote meanwhile.
        os.link(aside, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # Ctrl-C in between would leave the name to an empty file.
        with held_back():
            # Opening takes the name, so the rename replaces this empty file and no other.
            target.open("x").close()
            try:
                aside.replace(target)
            except OSError:
                target.unlink()
                raise


def replace_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file as UTF-8, over one that is there. A failed write leaves that one as it was.

    Not so of a device or a pipe, or in a directory where this user may replace no file: these are
    written in place. A missing directory is made.

    Raises:
        OSError: it cannot be written.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and (not target.is_file() or not os.access(target.parent, os.W_OK)):
        target.write_text(text, encoding="utf-8")
        return
    aside = target.with_name(f".{uuid.uuid4().hex[:16]}")  # short: the file's own name may be long
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        aside.write_text(text, encoding="utf-8")
        with suppress(FileNotFoundError):
            aside.chmod(target.stat().st_mode & 0o777)
        to_disk(aside)
        aside.replace(target)
        to_disk(target.parent)
    finally:
        with suppress(OSError):
            aside.unlink()
