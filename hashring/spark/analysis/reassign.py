"""Owners kept in files, and changed only where a change of the ring moved keys.

The files are Parquet in directories ``cell=0``, ``cell=1``, ...: a cell is a point's top bits, and
its rows are in order of their points. Beside them are ``_ring.json``, the ring whose owners the
files hold, and ``_cells``, how many cells there are. A change of the ring moves a few ranges of
points; the cells that these touch are read, written aside, and put in place of the old ones.

A process may be killed at any line. What it had taken aside is put back by the next run, and until
``_ring.json`` is replaced at the end, ``_next-*.json`` are the rings that some cells may have.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile
from hashring.errors import ConfigError, EmptyRingError, OutputRefused
from hashring.ring_files import read_ring, write_ring
from hashring.spark.analysis.point_cells import CELL, KEPT_RING, kept_cells, touched_cells
from hashring.spark.engine.column_checks import quoted
from hashring.spark.engine.counts_while_read import Counts
from hashring.spark.engine.interruptible import interruptible
from hashring.spark.io.directory_lock import alone
from hashring.spark.io.directory_swap import remove, seen_anew
from hashring.spark.io.disk_sync import disk_errors, sync, sync_all
from hashring.spark.io.file_formats import WHOLE
from hashring.spark.io.hidden_directory import hidden_directory
from hashring.spark.io.listed_files import addresses
from hashring.spark.io.local_paths import exactly, local_path
from hashring.spark.io.worker_disks import check_whole, is_on_workers
from hashring.spark.lookup.ring_columns import ring_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CODE: Final = "__hashring_code"


class Reassigned:
    """What a change of the ring changed in the files.

    Attributes:
        before: the ring that the files were of.
        cells, touched: how many cells there are; how many were written anew.
        files: how many files were read.
        rows, moved: rows read; of these, the ones with another owner now.
    """

    def __init__(self, before: Ring, cells: int) -> None:
        self.before = before
        self.cells = cells
        self.touched = self.files = self.rows = self.moved = 0


def reassign(spark: SparkSession, path: str, after: RingFile) -> Reassigned:
    """Give rows that were written by ``assign --keep-point`` their owners on a ring.

    Only the cells are read and written in which something moves. Killed and started again, by the
    same ring or another, it ends right.

    Args:
        path: the directory, on a file system of this machine.

    Raises:
        NoDataError: there is no such directory, or it was not written in cells.
        OutputRefused: the path is not on this machine's file system; another process changes the
            files; workers of a cluster wrote to disks of their own; or the disk does not take what
            is written.
        ConfigError: the ring hashes keys differently.
        EmptyRingError: it has no nodes.
    """
    place = local_path(spark, path)
    if place is None:
        raise OutputRefused(
            path,
            "cells are replaced one by one, for which it has to be a disk of this machine",
            "reassign it where it is one, without Spark Connect",
        )
    kept_cells(place, path)  # or there is no place for a lock
    with alone(place, path, "reassigns"):
        cells = kept_cells(place, path)  # of these files: until now they could be replaced
        with disk_errors(path):
            _put_back(place)
        found = Reassigned(read_ring(place / KEPT_RING).ring, cells)
        _check_alike(found.before, after.ring)
        begun = list(place.glob("_next-*.json"))
        rings = [found.before, *(read_ring(file).ring for file in begun)]
        touched = [
            f"{CELL}={cell}"
            for cell in touched_cells(rings, after.ring, cells)
            if any((place / f"{CELL}={cell}").glob("[!._]*"))
        ]
        aside = place / f".reassign-{uuid.uuid4().hex[:8]}"
        try:
            if touched:
                _write_aside(spark, place, touched, after.ring, aside, found)
                sync_all(path, aside)
            # Files without rows are of no owner, and Spark writes none.
            written = [name for name in touched if (aside / "new" / name).is_dir()]
            found.touched = len(written)
            following = place / f"_next-{uuid.uuid4().hex[:8]}.json"
            write_ring(after, following)
            with disk_errors(path):
                (aside / "before").mkdir(parents=True)
                for name in written:
                    (place / name).rename(aside / "before" / name)
                    (aside / "new" / name).rename(place / name)
                # On the disk, too, no step comes before the step that it follows.
                sync(path, [place])
                following.replace(place / KEPT_RING)
                sync(path, [place])
                for file in begun:
                    file.unlink()
        finally:
            with disk_errors(path):
                _put_back(place)
        seen_anew(spark, place)
    return found


def _check_alike(before: Ring, after: Ring) -> None:
    if not after.node_count:
        raise EmptyRingError
    if before.hash_algorithm.name != after.hash_algorithm.name:
        raise ConfigError(
            "ring",
            after.hash_algorithm.name,
            f"the owners were assigned by {before.hash_algorithm.name}; assign them anew",
        )


def _write_aside(  # noqa: PLR0917 - one caller
    spark: SparkSession,
    place: Path,
    touched: Sequence[str],
    ring: Ring,
    aside: Path,
    found: Reassigned,
) -> None:
    # What cannot be read would be gone from the files that take the place of these.
    reader = spark.read.options(basePath=f"file://{place}", **WHOLE)
    rows = reader.parquet(*(exactly(f"file://{place}/{name}") for name in touched))
    found.files = len(addresses(rows))
    columns = ring_columns(spark, ring)
    coded = columns.with_code(rows, "point", _CODE)
    owner = columns.told("node", F.col(_CODE))
    counts = Counts(
        coded, rows=F.count(F.lit(1)), moved=F.count_if(~owner.eqNullSafe(F.col("owner")))
    )
    names = [owner.alias(name) if name == "owner" else F.col(quoted(name)) for name in rows.columns]
    owned = counts.frame.select(*names).repartition(CELL).sortWithinPartitions(CELL, "point")
    writer = owned.write.mode("append").partitionBy(CELL)
    with hidden_directory(aside / "new", str(place)):
        interruptible(spark, lambda: writer.parquet(f"file://{aside}/new"))
    told = counts.get()
    if is_on_workers(spark, f"file:{place}"):
        check_whole(spark, f"file://{aside}/new", told["rows"], format="parquet", path=str(place))
    found.rows, found.moved = told["rows"], told["moved"]


def _put_back(place: Path) -> None:
    """Put back the cells that a process took away and did not replace."""
    for left in place.glob(".reassign-*"):
        for cell in (left / "before").glob(f"{CELL}=*"):
            if not (place / cell.name).exists():
                cell.rename(place / cell.name)
        remove(left)
