"""Tag a stream of rows with their owners while the ring changes.

Each micro-batch is tagged by one ring: the one that was current when the batch began (or at most
``refresh`` seconds older). Its rows say by which, in the column ``ring``: a fingerprint.

Nothing is lost over a restart from the checkpoint. Spark writes down what a batch holds before it
runs it, and runs the very same batch again when it cannot know that it ended. What then is doubled
depends on the output:

* Of files, nothing. Each batch goes to a directory ``batch=<number>`` of its own. On this machine's
  file system, that gets its name only when it is whole. Elsewhere, the next run replaces a batch
  that has no mark of Spark's, or rows of two processes, or too few rows. Any other batch that is
  there is not written again; on this machine, also if a later one is there. So the numbers in
  an output are those of one checkpoint, whose id is kept in the output's ``_checkpoint``. An older
  copy of that checkpoint is refused, and so is an empty output for it.
* Of a format that leaves out a batch whose ``txnAppId`` and ``txnVersion`` it has, nothing. These
  are the checkpoint's id and the batch's number.
* Of any other format, such as iceberg, the rows of a batch that was not noted as ended.

Two processes may have the same stream: Spark notices only when they write down different batches,
and both may run the same one. On this machine's file system one at a time writes a batch, and the
other fails. Elsewhere nothing keeps them apart. Each looks at its end whether all rows and no
others are there, and fails if not. Spark does not run a batch again that it has noted as ended. So
at its start a stream looks whether the last of these is whole, and any that was being replaced.
"""

from __future__ import annotations

import logging
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.atomic_writes import check_new
from hashring.core.readable_numbers import counted
from hashring.core.ring import Ring
from hashring.core.value_checks import check_wire
from hashring.errors import ConfigError, OutputExists, OutputRefused, RetryLater
from hashring.spark.datasource import check_where, live_ring
from hashring.spark.engine.column_checks import check_distinct, check_free, quoted
from hashring.spark.engine.counts_while_read import Counts
from hashring.spark.engine.spark_failures import PYTHON_LATE, SPARK_ERRORS, failure
from hashring.spark.io.append_checks import check_form, fitted
from hashring.spark.io.directory_lock import alone
from hashring.spark.io.directory_swap import STREAM_LOCK
from hashring.spark.io.disk_sync import sync, sync_all
from hashring.spark.io.existing_files import files_there, is_empty
from hashring.spark.io.file_formats import FILE_FORMATS, format_name
from hashring.spark.io.hidden_directory import hidden_directory
from hashring.spark.io.input import CORRUPT, OF_READER, is_bad
from hashring.spark.io.job_file_names import (
    has_others,
    is_of_one_job,
    new_file_name,
    own_job,
    was_taken_away,
)
from hashring.spark.io.local_paths import exactly, local_path
from hashring.spark.io.output import lossless
from hashring.spark.io.places_of_a_job import is_in, reads
from hashring.spark.io.worker_disks import check_whole, is_on_workers, rows_there
from hashring.spark.lookup.key_column import check_kept, key_text
from hashring.spark.lookup.owner_columns import with_owner
from hashring.spark.streams.checkpoint_mark import StreamMark, is_finished
from hashring.spark.streams.compaction import BATCH, newest_batch
from hashring.spark.streams.stream_batch_files import check_batch_read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

RingNow = Callable[["SparkSession"], Ring]
"""The ring as it is now."""
RingChanged = Callable[[int, Ring], None]
"""Gets the number of a batch and its ring, if the batch before had another one."""
logger = logging.getLogger("hashring.spark")

_WRITES_TOO: Final = "another process writes the batch at the same time"
_ONE_PROCESS: Final = "run one process, which writes the batch again"
_PATIENCE: Final = 30.0
"""Seconds in which Redis may restart or fail over, and the nodes come back."""
_PAUSE: Final = 0.5  # seconds
_STARTS: Final = 5
"""How often a stream is started whose Python comes too late: Spark gives it ten seconds."""
_UNFIT: Final = {
    "text": "its files hold one column, and a stream writes more",
    "xml": "it needs the option rowTag, which a stream does not pass",
}
"""Formats of files that no stream can be written in, and why."""


def fixed_ring(ring: Ring) -> RingNow:
    """A ring that does not change."""
    return lambda _: ring


def followed_ring(url: str, name: str, refresh: float = 1.0, wire: str | None = None) -> RingNow:
    """A live ring, read anew when what is known is older than ``refresh`` seconds.

    While Redis is away or the ring has no nodes, it is read again for half a minute. The first
    reading is not repeated.

    Args:
        wire: ``"redis-hashring"`` for a ring that nodes of redis-hashring 0.7 are on.

    Raises:
        ConfigError: ``refresh`` is negative or NaN, or there is no such ``wire``; or as for
            :func:`hashring.spark.datasource.check_where`.
    """
    check_where(url, name)
    check_wire(wire)
    if not refresh >= 0:
        raise ConfigError("refresh", refresh, "give seconds; 0 reads the ring for every batch")
    known: tuple[float, Ring] | None = None

    def read(spark: SparkSession, until: float) -> tuple[float, Ring]:
        while True:
            # Before the reading: what is read is no older than this.
            at = time.monotonic()
            try:
                ring = live_ring(spark, url, name, wire)
                if ring.node_count or at >= until:
                    return at, ring
                why = "it has no nodes"
            except SPARK_ERRORS as error:
                told = failure(error)
                if at >= until or not isinstance(told, RetryLater):
                    raise
                why = str(told)
            logger.warning("ring %r is read again: %s", name, why)
            time.sleep(_PAUSE)

    def now(spark: SparkSession) -> Ring:
        nonlocal known
        at = time.monotonic()
        if known is None or at - known[0] >= refresh:
            known = read(spark, at if known is None else at + _PATIENCE)
        return known[1]

    return now


@dataclass
class StreamCounts:
    """What a stream has written since it started. Over Spark Connect it stays at 0.

    Attributes:
        batches: that it gave to the output.
        rows: written.
        bad_records: left out, because they did not fit the schema.
        ring_changes: how often a batch had another ring than the batch before.
        ring: the fingerprint of the last batch's ring.
        uncounted: how many of the batches are unknown in rows and bad records, and in neither
            number here. The output has not read their rows: it may have them already.
    """

    batches: int = 0
    rows: int = 0
    bad_records: int = 0
    ring_changes: int = 0
    ring: str | None = None
    uncounted: int = 0

    def add(self, rows: int | None, bad_records: int, ring: str) -> None:
        """Count a batch. ``rows`` is ``None`` if nobody counted them."""
        self.batches += 1
        self.uncounted += rows is None
        self.rows += rows or 0
        self.bad_records += bad_records
        self.ring_changes += self.ring not in (None, ring)
        self.ring = ring


def _check_format(format: str) -> None:
    if format in _UNFIT:
        fit = [name for name in FILE_FORMATS if name not in _UNFIT]
        raise ConfigError("format", format, f"{_UNFIT[format]}: choose one of {', '.join(fit)}")


def _check_not_empty(output: str, checkpoint: str) -> None:
    for name, place in (("output", output), ("checkpoint", checkpoint)):
        if not place:
            raise ConfigError(name, place, "is empty: name a directory")


def _check_places(
    target: Path | None, checkpoint: Path | None, output: str, *, by_batch: bool
) -> None:
    """Raise as :func:`tag_stream` does of places on this machine."""
    if checkpoint is not None and not checkpoint.is_dir():
        check_new(checkpoint)
    if target is None:
        return
    if not target.exists():
        check_new(target)
    elif by_batch and not target.is_dir():
        raise OutputExists(output)


def _check_apart(spark: SparkSession, output: str, checkpoint: str, inputs: Sequence[str]) -> None:
    """Raise ``ConfigError`` if an output of files shares files with the checkpoint or the input."""
    if is_in(spark, checkpoint, output):
        why = f"is in the output {output}, whose readers would take its files for rows"
        raise ConfigError("checkpoint", checkpoint, f"{why}: name a directory outside it")
    if is_in(spark, output, checkpoint):
        why = f"is in the checkpoint {checkpoint}, which holds files of Spark alone"
        raise ConfigError("output", output, f"{why}: name a directory outside it")
    for path in inputs:
        if reads(spark, path, output):
            why = f"names what is in the output {output}, so the stream would read its own rows"
            raise ConfigError("input", path, f"{why}: name another output")


def _has_bad_records(rows: DataFrame) -> bool:
    """Whether a column of its reader holds them. A user's column of that name is data."""
    return CORRUPT in rows.columns and rows.schema[CORRUPT].metadata == OF_READER


def _good_rows(found: dict[str, int]) -> int:
    return found["rows"] - found["bad"]


@dataclass
class _Batches:
    """Writes the batches of a stream; see :func:`tag_stream`."""

    ring: RingNow
    output: str
    target: Path | None
    mark: StreamMark
    checkpoint: str
    key: str
    format: str
    counts: StreamCounts
    has_bad: bool
    changed: RingChanged | None
    last: str | None = None
    columns: dict[str, list[str]] = field(default_factory=dict)

    def write(self, batch: DataFrame, number: int) -> None:
        """Write a batch, unless it is there."""
        check_batch_read(batch, number, self.checkpoint)
        if self.format not in FILE_FORMATS:
            self._append(batch, number)
        elif self.target is None:
            self._write_elsewhere(batch, number)
        else:
            self.target.mkdir(parents=True, exist_ok=True)
            with alone(self.target, self.output, "tags a stream into", STREAM_LOCK):
                for left in self.target.glob(".batch=*"):  # of a process that was killed
                    shutil.rmtree(left, ignore_errors=True)
                self._write_here(batch, number, self.target)

    def _append(self, batch: DataFrame, number: int) -> None:
        tagged, told, ring = self._tagged(batch, number)
        identity = self.mark.checkpoint_id(batch.sparkSession)
        once = tagged.option("txnAppId", identity).option("txnVersion", number)
        once.mode("append").save(self.output)
        # A format that has the batch does not read it.
        self._count(told.taken(), ring)

    def _write_here(self, batch: DataFrame, number: int, target: Path) -> None:
        self.mark.keep(batch.sparkSession)
        # Batches come in order, and compaction keeps the largest number.
        if number <= newest_batch(target):
            return
        # Of its own: the Java of a process that was killed may go on writing for a moment.
        aside = target / f".batch={number}-{uuid.uuid4().hex[:8]}"
        tagged, told, ring = self._tagged(batch, number)
        with hidden_directory(aside, self.output):
            tagged.mode("append").save(f"file://{aside}")
        self._check_whole(batch.sparkSession, f"file://{aside}", told)
        # Once Spark notes the batch as ended, nobody writes it again.
        sync_all(self.output, aside)
        aside.rename(target / f"batch={number}")
        sync(self.output, [target])
        self._count(told.get(), ring)

    def _write_elsewhere(self, batch: DataFrame, number: int) -> None:
        spark = batch.sparkSession
        self.mark.keep(spark)
        place = f"{self.output.rstrip('/')}/batch={number}"
        if self._is_there(batch, place):
            return
        tagged, told, ring = self._tagged(batch, number)
        # Another process may have ended the batch meanwhile, or may do so from here on. An append
        # keeps its files, and an overwrite would delete them before this process may fail.
        is_new = is_empty(spark, place)
        with nullcontext() if is_new else self.mark.replacement(spark, number):
            if not is_new and self._is_there(batch, place):
                return
            own = new_file_name(spark)
            tagged = tagged.options(**own_job(own))
            try:
                tagged.mode("append" if is_new else "overwrite").save(place)
            except SPARK_ERRORS as error:
                if was_taken_away(error):
                    why = f"some rows or all are missing: {_WRITES_TOO}"
                    raise OutputRefused(self.output, why, _ONE_PROCESS) from error
                raise
            if own:
                self._check_alone(spark, place, own)
            self._check_whole(spark, place, told, own)
        self._count(told.get(), ring)

    def _is_there(self, batch: DataFrame, place: str) -> bool:
        """Whether Spark has finished a directory, and it holds each row of a batch once.

        A batch that failed a check after it was written has its mark, too.
        """
        spark = batch.sparkSession
        if not is_finished(spark, place) or not is_of_one_job(spark, place):
            return False
        told = self._counted(batch)
        told.frame.write.format("noop").mode("overwrite").save()
        return rows_there(spark, place, format=self.format) >= _good_rows(told.get())

    def _check_alone(self, spark: SparkSession, place: str, own: str) -> None:
        """Raise ``OutputRefused`` if another process has written to a batch's directory.

        Args:
            own: with which the names of this process's files begin.
        """
        if has_others(spark, place, own):
            raise OutputRefused(
                self.output,
                f"rows of both are there: {_WRITES_TOO}",
                f"run one process; if it does not replace {place}, remove the files {own}* there",
            )

    def _counted(self, batch: DataFrame) -> Counts:
        bad = is_bad() if self.has_bad else F.lit(False)
        return Counts(batch, rows=F.count(F.lit(1)), bad=F.count_if(bad))

    def _tagged(self, batch: DataFrame, number: int) -> tuple[DataFrameWriter, Counts, Ring]:
        """What writes the rows with their owners, and counts them."""
        session = batch.sparkSession
        ring = self._ring_for(session, number)
        told = self._counted(batch)
        good = told.frame.where(~is_bad()).drop(CORRUPT) if self.has_bad else told.frame
        owned = with_owner(good, ring, self.key).withColumn("ring", F.lit(ring.fingerprint))
        if self.target is not None and self.format in FILE_FORMATS:
            owned = self._fitted(owned, self.target, ring.hash_algorithm.name)
        writer = owned.write.format(self.format).options(**lossless(session, self.format))
        return (writer.option("header", True) if self.format == "csv" else writer), told, ring

    def _fitted(self, rows: DataFrame, target: Path, algorithm: str) -> DataFrame:
        """The rows with their columns in the order of the newest batch, checked against it.

        Only at the first batch and after a change of the hash: nothing else changes meanwhile.
        """
        if algorithm not in self.columns:
            columns, newest = rows.columns, target / f"{BATCH}={newest_batch(target)}"
            if found := files_there(rows.sparkSession, self.output, newest):
                check_form(self.output, found, self.format, ())
                options = lossless(rows.sparkSession, self.format)
                reader = rows.sparkSession.read.options(header=True, **options)
                file = exactly(f"file://{newest}/{found[0]}")
                columns = fitted(rows, reader, file, self.output, self.format, ()).columns
            self.columns = {algorithm: columns}
        return rows.select(*map(quoted, self.columns[algorithm]))

    def _ring_for(self, session: SparkSession, number: int) -> Ring:
        ring = self.ring(session)
        # At once: the batch may take long, and the summary comes at the end of the stream.
        if self.last not in (None, ring.fingerprint):
            logger.info(
                "batch %d has another ring: %s, fingerprint %s",
                number,
                counted(ring.node_count, "node"),
                ring.fingerprint,
            )
            if self.changed:
                self.changed(number, ring)
        self.last = ring.fingerprint
        return ring

    def _check_whole(self, spark: SparkSession, place: str, told: Counts, own: str = "") -> None:
        """Raise ``OutputRefused`` if rows are missing, where workers or others can lose them.

        Args:
            own: with which the names of this process's files begin; empty if Spark names them.
        """
        on_workers = is_on_workers(spark, self.output)
        if not own and not on_workers:
            return
        rows = _good_rows(told.get())
        check_whole(
            spark, place, rows, format=self.format, path=self.output, options=None, name=own,
            **({} if on_workers else {"why": _WRITES_TOO, "remedy": _ONE_PROCESS}),
        )  # fmt: skip

    def _count(self, found: dict[str, int] | None, ring: Ring) -> None:
        if found is None:
            self.counts.add(None, 0, ring.fingerprint)
        else:
            self.counts.add(_good_rows(found), found["bad"], ring.fingerprint)


def _triggered(writer: DataStreamWriter, interval: str | None) -> DataStreamWriter:
    if interval is None:
        return writer.trigger(availableNow=True)
    try:
        return writer.trigger(processingTime=interval)
    except SPARK_ERRORS as error:
        raise ConfigError("interval", interval, "is no length of time; say '10 seconds'") from error


def _started(writer: DataStreamWriter) -> StreamingQuery:
    """The query. Over Spark Connect, its server starts a Python for it, and a busy machine takes
    long for that; nothing has begun then."""
    for _ in range(_STARTS - 1):
        try:
            return writer.start()
        except SPARK_ERRORS as error:
            if PYTHON_LATE not in str(error):
                raise
            logger.warning("the stream is started again: %s within ten seconds", PYTHON_LATE)
    return writer.start()


def tag_stream(
    rows: DataFrame,
    ring: RingNow,
    output: str,
    checkpoint: str,
    *,
    key: str = "key",
    interval: str | None = None,
    format: str = "parquet",
    counts: StreamCounts | None = None,
    changed: RingChanged | None = None,
    inputs: Sequence[str] = (),
) -> StreamingQuery:
    """Start to write the rows of a stream, with their owners.

    Args:
        rows: a streaming frame. If :func:`hashring.spark.io.input.read_stream` made it, the records
            that do not fit the schema are left out.
        ring: see :func:`followed_ring`.
        output: a directory; each batch is a directory ``batch=<number>`` in it.
        checkpoint: a directory of Spark's, kept together with the output, and not in it.
        interval: time between batches, such as ``"10 seconds"``; ``None`` for all there is now,
            and then the end.
        format: of the output. Files are written a directory a batch, and no row is doubled over a
            restart. Any other format gets each batch appended, with the options ``txnAppId`` and
            ``txnVersion``. Delta leaves out a batch by them that it has. Other formats ignore
            them, and get a batch again that Spark has not noted as ended. An older copy of the
            checkpoint is not noticed: Delta then leaves out new rows, and others get rows again.
        counts: is kept up to date, if given.
        changed: is called as soon as a batch begins with another ring than the batch before. Over
            Spark Connect it is called in a process of the server.
        inputs: the paths or patterns that ``rows`` reads, to check that none is in an output of
            files.

    Returns:
        The query. A batch fails, and the query with it, when the ring has no nodes or cannot be
        read, when Spark would leave out files that are beside directories of columns, when another
        process writes a batch to the same directory, appends to it or replaces it, when the workers
        of a cluster wrote files to disks of their own, or when files here are of another format,
        other columns, or another key or hash than the batch: started again, it goes on with that
        batch.

    Raises:
        ColumnError: the key's column is missing or of no type of a key, or binary while the format
            is of text; ``point``, ``owner``, ``ring`` or ``batch`` is there already; or two columns
            have one name, whatever its case.
        OutputExists: there is an output without its checkpoint: what is in it cannot be told
            from what is to come. A directory is none if readers see nothing in it. Or an output of
            files holds rows of another job and no batch.
        OutputRefused: the output or the checkpoint cannot be written there; the output is of
            another checkpoint; it holds nothing, and the checkpoint notes batches as ended; it
            holds batches that an older copy of its checkpoint does not have; or, elsewhere than on
            this machine, it lacks rows of the last batch that the checkpoint notes as ended, or has
            rows of two processes there. A checkpoint that is a file raises OutputExists.
        ConfigError: ``interval`` is no length of time, ``format`` is text or XML, or ``output`` or
            ``checkpoint`` is empty; or of an output of files, the checkpoint or an input is in it,
            or it is in the checkpoint.
    """
    known = counts or StreamCounts()
    format = format_name(format)
    _check_format(format)
    _check_not_empty(output, checkpoint)
    key_text(rows, key)
    check_kept(rows, key, format)
    check_free(rows, "point", "owner", "ring", "batch")
    check_distinct(rows)
    spark = rows.sparkSession
    by_batch = format in FILE_FORMATS
    if by_batch:
        _check_apart(spark, output, checkpoint, inputs)
    target = local_path(spark, output)
    _check_places(target, local_path(spark, checkpoint), output, by_batch=by_batch)
    mark = StreamMark(output, target, checkpoint)
    if by_batch:
        mark.check(spark)
        mark.check_begun(spark)
        mark.check_planned(spark)
        mark.check_ended(spark)

    has_bad = _has_bad_records(rows)
    batches = _Batches(ring, output, target, mark, checkpoint, key, format, known, has_bad, changed)
    writer = rows.writeStream.foreachBatch(batches.write).option("checkpointLocation", checkpoint)
    return _started(_triggered(writer, interval))
