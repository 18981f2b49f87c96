"""Files that are added to a directory: all of them, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from hashring.errors import OutputRefused
from hashring.held_signals import held_back
from hashring.spark.io.disk_sync import disk_errors, sync


def append_files(aside: Path, local: Path, path: str, show: Callable[[], None]) -> None:
    """Move the files of one directory into another.

    A signal that interrupts it, or an error, takes back those that were moved.

    Args:
        path: of the output, as the user named it.
        show: makes readers see what changed.

    Raises:
        OutputRefused: the disk does not take them; or some could not be taken back.
    """
    left: list[Path] = []
    try:
        _append(aside, local, path, show, left)
    except BaseException as error:
        if left:
            raise OutputRefused(
                path,
                f"the append ended half way, and these files of it are still there: "
                f"{', '.join(str(file.relative_to(local)) for file in left)}",
                "remove these files, and start again",
            ) from error
        raise


def _append(
    aside: Path, local: Path, path: str, show: Callable[[], None], left: list[Path]
) -> None:
    """Do so, and note in ``left`` what could not be taken back.

    A second signal replaces the error at the end, and must not hide those files.
    """
    moved: list[Path] = []
    made: list[Path] = []
    with held_back() as let_in:
        try:
            for part in sorted(aside.rglob("[!._]*")):
                if part.is_file():
                    let_in()
                    place = local / part.relative_to(aside)
                    with disk_errors(path):
                        _make(place.parent, local, made)
                        moved.append(place)
                        part.rename(place)
            sync(path, {local, *(place.parent for place in (*moved, *made))})
            show()
            let_in()
        except BaseException:
            # Half of the rows would be doubled by the next try. No other job gives these names.
            left += _take_back(moved)
            for directory in reversed(made):
                with suppress(OSError):  # another job has put files into it
                    directory.rmdir()
            with suppress(Exception):  # Java may have ended
                show()
            raise


def _make(directory: Path, within: Path, made: list[Path]) -> None:
    """Make a directory and those above it, and note which were not there."""
    if directory == within or directory.is_dir():
        return
    _make(directory.parent, within, made)
    with suppress(FileExistsError):  # another job has made it meanwhile
        directory.mkdir()
        made.append(directory)


def _take_back(files: Sequence[Path]) -> list[Path]:
    """Remove files. Return those that cannot be removed."""
    left = []
    for file in files:
        try:
            file.unlink(missing_ok=True)
        except OSError:
            left.append(file)
    return left
