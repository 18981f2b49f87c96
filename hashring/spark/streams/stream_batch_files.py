"""Whether Spark reads each file of a batch of a stream, and reads it once.

Of a batch, Spark's ``inputFiles`` is empty, but the checkpoint notes its files. A line of
``offsets/<batch>`` has the number of each source's last entry, and ``sources/<source>/<entry>`` the
files of that entry. Some entries are merged with all before, in ``<entry>.compact``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.errors import ConfigError
from hashring.spark.io.existing_files import seen_files
from hashring.spark.io.listed_files import files_beside_columns, is_seen
from hashring.spark.io.local_paths import exactly, local_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_LAST_ENTRY: Final = re.compile(r'(?:([^:{]+):)?\{"logOffset":(\d+)\}')
"""What is noted of a source of files. Other sources note other things.

From version 2 of the format on, the source's number or name comes first.
"""
_PLACE: Final = "^(.*)/[^/]*$"


def check_batch_read(batch: DataFrame, number: int, checkpoint: str) -> None:
    """Raise ``ConfigError`` if Spark leaves out files of a batch, or reads some more than once.

    It leaves out those beside directories of columns. For each path that looks like a pattern, it
    reads all files of the batch (``DataSource.checkAndGlobPathIfNecessary``): of one file alone, as
    it should.
    """
    for files in _noted(batch.sparkSession, number, checkpoint):
        plain = set(map(unquote, files))
        pattern = next((file for file in sorted(plain) if exactly(file) != file), None)
        if pattern is not None and len(plain) > 1:
            raise ConfigError(
                "input",
                pattern,
                "has one of []{}*?\\ in its path, and then Spark reads files of a batch more than "
                "once: rename it, or set maxFilesPerTrigger=1, and start with a new output and a "
                "new checkpoint",
            )
        for found in files_beside_columns(files):
            # A stream of a pattern makes no columns of directories, and reads all.
            if _has_rows_of(batch, found.place):
                continue
            if left := _there(batch.sparkSession, files, found.place):
                raise found._replace(file=left).error()


def _noted(spark: SparkSession, number: int, checkpoint: str) -> Iterator[list[str]]:
    """The addresses of a batch's files, for each source of files."""
    was, now = (_last_entries(spark, batch, checkpoint) for batch in (number - 1, number))
    for source, last in now.items():
        # After a crash a batch has several entries, and without new files it has none.
        if entries := range(was.get(source, -1) + 1, last + 1):
            names = [f"sources/{source}/{n}{end}" for n in entries for end in ("", ".compact")]
            of_batch = rf'"batchId":({"|".join(map(str, entries))})\}}$'
            yield [json.loads(line)["path"] for line in _lines(spark, checkpoint, names, of_batch)]


def _last_entries(spark: SparkSession, number: int, checkpoint: str) -> dict[str, int]:
    """The number of the last entry of each source of files, as of a batch."""
    if number < 0:
        return {}
    lines = _lines(spark, checkpoint, [f"offsets/{number}"])
    # The first two lines are the format's version and the batch's settings.
    found = ((source, _LAST_ENTRY.fullmatch(line)) for source, line in enumerate(lines[2:]))
    return {entry[1] or str(source): int(entry[2]) for source, entry in found if entry}


def _lines(
    spark: SparkSession, checkpoint: str, names: Sequence[str], pattern: str = ""
) -> list[str]:
    """The lines that match a pattern, in those of the files that are there."""
    local = local_path(spark, checkpoint)
    if local is None:
        place = f"{exactly(checkpoint.rstrip('/'))}/{{{','.join(names)}}}"
        found = spark.read.text(place).where(F.col("value").rlike(pattern))
        return [row["value"] for row in found.collect()]
    # Spark would take longer than for a small batch.
    files = [local / name for name in names]
    texts = (file.read_text("utf-8") for file in files if file.exists())
    return [line for text in texts for line in text.split("\n") if re.search(pattern, line)]


def _has_rows_of(batch: DataFrame, place: str) -> bool:
    """Whether there are rows of the files in a directory. After an aggregation nobody can tell."""
    read = F.regexp_extract(F.input_file_name(), _PLACE, 1)
    return bool(batch.select(read.alias("place")).where(F.col("place") == place).take(1))


def _there(spark: SparkSession, files: Collection[str], place: str) -> str | None:
    """The name of a file in a place that is there: a user may move it after the batch failed."""
    there = set(seen_files(spark, exactly(unquote(place))) or ())
    found = (file.rpartition("/") for file in files if file in there)
    return next(
        (name for directory, _, name in found if directory == place and is_seen(name)), None
    )
