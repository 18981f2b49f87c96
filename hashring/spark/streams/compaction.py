"""Many small batches of a stream as few large ones.

A stream writes a directory ``batch=<number>`` for each of its batches. Neighbours are merged into
the directory of the last of them, so that the largest number there still tells a stream which
batches it has written. The newest batch is never merged: a stream that is started again looks for
it.

A process may be killed at any line. What is merged is whole when it is named
``.compacted=<first>-<last>``; then the next run ends what was begun. Anything before that is
thrown away.
"""

from __future__ import annotations

import re
import shutil
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hashring.errors import ConfigError, NoDataError, OutputRefused
from hashring.spark.engine.interruptible import interruptible
from hashring.spark.io.directory_lock import alone
from hashring.spark.io.directory_swap import remove, seen_anew
from hashring.spark.io.disk_sync import disk_errors, sync, sync_all
from hashring.spark.io.file_formats import WHOLE
from hashring.spark.io.hidden_directory import hidden_directory
from hashring.spark.io.local_paths import exactly, local_path
from hashring.spark.io.worker_disks import OWN_DISKS, check_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH: Final = "batch"
DEFAULT_BYTES: Final = 128 * 2**20
COMPACTED_FORMATS: Final = ("parquet", "orc")
"""Formats that keep the types of columns."""
_MERGING, _MERGED, _OLD = ".compacting=", ".compacted=", ".old-batch="


@dataclass
class Compacted:
    """What was merged.

    Attributes:
        before, after: directories before and now.
        rows: in the directories that were merged.
    """

    before: int = 0
    after: int = 0
    rows: int = 0


def newest_batch(place: Path) -> int:
    """The largest number of a batch that is there whole; -1 for none."""
    return max(_batches(place), default=-1)


def compact(
    spark: SparkSession, path: str, size: int = DEFAULT_BYTES, format: str = "parquet"
) -> Compacted:
    """Merge neighbouring batches of a stream until each has about the wanted size in bytes.

    The stream may go on meanwhile. A job of Spark that lists the files at that moment may miss the
    merged rows. One that listed them before fails, and none reads a row twice. Killed and started
    again, it ends right.

    Args:
        path: the output of :func:`~hashring.spark.streams.tagging.tag_stream`, on a file system of
            this machine.
        size: bytes; a batch as large as this stays as it is.
        format: ``parquet`` or ``orc``.

    Raises:
        NoDataError: there is no batch.
        OutputRefused: the path is not on this machine's file system; another process does the
            same; workers of a cluster wrote to disks of their own; or the disk does not take what
            is merged. Then nothing is changed.
        ConfigError: ``size`` is below 1, or such a format does not keep the types of columns.
    """
    if size < 1:
        raise ConfigError("size", size, "give bytes, at least 1")
    if format not in COMPACTED_FORMATS:
        raise ConfigError("format", format, f"choose one of {', '.join(COMPACTED_FORMATS)}")
    place = local_path(spark, path)
    if place is None:
        raise OutputRefused(
            path,
            "batches are replaced by renaming, for which it has to be a disk of this machine",
            "compact it where it is one, without Spark Connect",
        )
    if newest_batch(place) < 0:
        raise NoDataError(path, "holds no batch of a stream")
    with alone(place, path, "compacts"):
        with disk_errors(path):
            _end_what_was_begun(place)
        found = _batches(place)
        told = Compacted(before=len(found))
        # The newest is left for a stream to find.
        sizes = {number: _bytes(found[number]) for number in sorted(found)[:-1]}
        for numbers in _groups(sizes, size):
            aside = place / f"{_MERGING}{numbers[0]}-{numbers[-1]}"
            files = -(-sum(sizes[number] for number in numbers) // size)
            frame = _read(spark, place, [found[number] for number in numbers], format)
            try:
                rows = interruptible(spark, frame.count)
                writer = frame.coalesce(files).write.format(format).mode("append")
                with hidden_directory(aside, path):
                    interruptible(spark, partial(writer.save, f"file://{aside}"))
                written = interruptible(spark, _read(spark, aside, [aside], format).count)
                remedy = "compact with a local master"
                check_count(written, rows, path, OWN_DISKS, remedy, "merged rows")
                sync_all(path, aside)
            except BaseException:
                remove(aside)
                raise
            told.rows += rows
            with disk_errors(path):
                aside.rename(place / f"{_MERGED}{numbers[0]}-{numbers[-1]}")
                sync(path, [place])  # before what was merged is removed
                _end_what_was_begun(place)
            seen_anew(spark, place)
        told.after = len(_batches(place))
    return told


def _batches(place: Path) -> dict[int, Path]:
    return {
        int(directory.name.removeprefix(f"{BATCH}=")): directory
        for directory in place.glob(f"{BATCH}=*")
        if re.fullmatch(rf"{BATCH}=\d+", directory.name)
    }


def _bytes(directory: Path) -> int:
    return sum(file.stat().st_size for file in _files(directory))


def _files(directory: Path) -> list[Path]:
    """Those that readers see. A setting of Spark says how their names begin."""
    return sorted(directory.glob("[!._]*"))


def _groups(sizes: dict[int, int], size: int) -> Iterator[list[int]]:
    """Neighbours to merge: each group is closed when it is large enough."""
    group: list[int] = []
    for number in sorted(sizes):
        if sizes[number] < size:
            group.append(number)
        if sizes[number] >= size or sum(sizes[n] for n in group) >= size:
            if len(group) > 1:
                yield group
            group = []
    if len(group) > 1:
        yield group


def _read(spark: SparkSession, place: Path, directories: Sequence[Path], format: str) -> DataFrame:
    # Each file by its path: the column `batch` of their directories is not to be written.
    files = [exactly(f"file://{file}") for path in directories for file in _files(path)]
    if not files:
        raise NoDataError(str(place), f"a batch holds no file of {format}")
    return spark.read.format(format).options(mergeSchema=True, **WHOLE).load(files)


def _end_what_was_begun(place: Path) -> None:
    for merged in place.glob(f"{_MERGED}*"):
        first, last = map(int, merged.name.removeprefix(_MERGED).split("-"))
        for number, directory in _batches(place).items():
            if first <= number <= last:
                # One of an earlier run may still be there: on NFS, while a reader has it open.
                directory.rename(place / f"{_OLD}{number}-{uuid.uuid4().hex[:8]}")
        merged.rename(place / f"{BATCH}={last}")
    for left in (*place.glob(f"{_OLD}*"), *place.glob(f"{_MERGING}*")):
        shutil.rmtree(left, ignore_errors=True)
