"""The jobs that write rows with their owners: assign, reassign and compact."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile
from hashring.errors import ConfigError
from hashring.spark.analysis.point_cells import CELL, by_cell, check_cells, keep_ring
from hashring.spark.analysis.reassign import reassign
from hashring.spark.engine.column_checks import check_distinct, check_free
from hashring.spark.engine.counts_while_read import Counts
from hashring.spark.io.input import Input, check_keys
from hashring.spark.io.local_paths import local_path
from hashring.spark.io.output import Output
from hashring.spark.io.owner_directories import check_directories, partition_by_owner
from hashring.spark.jobs.outcome import Outcome
from hashring.spark.jobs.wording import ring_facts
from hashring.spark.lookup.key_column import check_kept
from hashring.spark.lookup.owner_columns import with_owner
from hashring.spark.streams.compaction import compact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def assign_job(
    source: Input,
    ring: Ring | RingFile,
    output: Output,
    *,
    key: str = "key",
    by_owner: bool = False,
    files_per_owner: int = 1,
    cells: int | None = None,
) -> Outcome:
    """Write every row with the point and owner of its key.

    Args:
        by_owner: one directory ``owner=<node>`` a node, which that node can read alone.
        files_per_owner: how many files it has, if it has that many rows.
        cells: how many directories ``cell=<number>`` to write, of rows in order of their points,
            for :func:`reassign_job`; a power of two.

    Raises:
        ColumnError: the key is binary, and the output's format is of text.
        OutputRefused: a node can have no directory of its name.
    """
    kept = RingFile(ring) if isinstance(ring, Ring) else ring
    ring = kept.ring
    df, bad_records = source.counted()
    parts = ["owner"] if by_owner else []
    output.check(df.sparkSession, parts)
    check_distinct(df)
    local = None if output.path is None else local_path(df.sparkSession, output.path)
    if by_owner:
        where = str(output.path or output.table)
        check_directories(ring, where, is_disk=local is not None)
    if cells is None:
        check_kept(df, key, output.kept_as(df.sparkSession))
    else:
        check_cells(cells)
        check_free(df, CELL)
        if by_owner or local is None or output.mode == "append":
            raise ConfigError(
                "cells", cells, "give a new path on this machine, and not by owner as well"
            )
        if (found := output.format_of_files()) != "parquet":
            raise ConfigError("format", found, "rows in cells are written as Parquet: give parquet")
    if by_owner:
        owned = partition_by_owner(df, ring, key, files_per_owner=files_per_owner)
    else:
        owned = with_owner(df, ring, key)
    check_keys(source, key)
    counts = Counts(owned, rows=F.count(F.lit(1)), owned=F.count("owner"))
    if cells is None:
        output.write(counts.frame, parts)
    else:
        output.write(
            by_cell(counts.frame, cells), [CELL], lambda place: keep_ring(place, kept, cells)
        )
    told = counts.get()
    rows, with_key = told["rows"], told["owned"]
    facts = [
        ("rows written", rows),
        ("rows without a key", rows - with_key),
        ("bad records left out", bad_records()),
        *ring_facts(ring),
    ]
    return Outcome.of_facts("Owners assigned", facts)


def reassign_job(spark: SparkSession, path: str, ring: RingFile) -> Outcome:
    """Give rows that were written in cells their owners on another ring."""
    found = reassign(spark, path, ring)
    facts: list[tuple[str, Any]] = [
        ("rows that moved", found.moved),
        ("rows read", found.rows),
        ("files read", found.files),
        ("cells rewritten", found.touched),
        ("cells", found.cells),
        ("ring fingerprint before", found.before.fingerprint),
        *ring_facts(ring.ring),
    ]
    return Outcome.of_facts("Owners reassigned", facts)


def compact_job(spark: SparkSession, path: str, size: int, format: str = "parquet") -> Outcome:
    """Merge the small batches of a stream's output."""
    found = compact(spark, path, size, format)
    facts: list[tuple[str, Any]] = [
        ("directories before", found.before),
        ("directories now", found.after),
        ("rows merged", found.rows),
    ]
    return Outcome.of_facts("Batches merged", facts)
