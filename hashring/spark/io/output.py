"""Writing: where a job's rows go, whole or not at all."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.atomic_writes import check_directory, check_new
from hashring.errors import ConfigError, OutputExists, OutputRefused
from hashring.spark.engine.column_checks import check_distinct, quoted
from hashring.spark.engine.counts_while_read import Counts
from hashring.spark.engine.interruptible import interruptible, interrupts_kept
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.append_checks import check_form, check_no_log, fitted
from hashring.spark.io.catalog_tables import (
    SPARK_CATALOG,
    catalog_of,
    provider_of,
    rename_table,
)
from hashring.spark.io.directory_append import append_files
from hashring.spark.io.directory_lock import alone
from hashring.spark.io.directory_swap import (
    STREAM_LOCK,
    check_no_stream,
    check_no_stream_elsewhere,
    check_not_of_others,
    put_back,
    remove,
    seen_anew,
    swap,
)
from hashring.spark.io.disk_sync import disk_errors, sync, sync_all
from hashring.spark.io.existing_files import files_there, is_empty, is_empty_directory
from hashring.spark.io.file_formats import (
    FILE_FORMATS,
    QUOTES_DOUBLED,
    format_name,
    format_of,
    is_old_parser,
)
from hashring.spark.io.hidden_directory import hidden_directory
from hashring.spark.io.job_file_names import (
    ANOTHER,
    WROTE_TOO,
    beside_another,
    check_nothing_left,
    has_others,
    new_file_name,
    own_job,
    was_taken_away,
)
from hashring.spark.io.listed_files import addresses, is_seen
from hashring.spark.io.local_paths import exactly, local_path
from hashring.spark.io.places_of_a_job import is_below, read_apart
from hashring.spark.io.splitting_texts import WHOLE_TEXTS
from hashring.spark.io.table_output import (
    ALL_PARTS,
    REPLACED_PARTS,
    check_rows,
    check_table,
    into_table,
)
from hashring.spark.io.worker_disks import (
    OWN_DISKS,
    SHARED,
    check_whole,
    is_on_workers,
    rows_written,
)
from hashring.spark.lookup.key_column import TEXTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

_READ_BY_OPTIONS: Final = (*TEXTS, "text")
"""Formats of which a reader may find fewer rows than are there, by the options."""
_MADE: Final = ("report", "spark_log")
"""Options of files that a job makes beside its output."""
MODES: Final = ("error", "append", "overwrite")
CSV_OPTIONS: Final[dict[str, bool | str]] = {
    "ignoreLeadingWhiteSpace": False,
    "ignoreTrailingWhiteSpace": False,
    **QUOTES_DOUBLED,
}
"""Spark would cut off the blanks at both ends of a key, which are part of it."""
_TIMES: Final = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS][XXXXX]",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSSSSS]",
}
"""Spark would write milliseconds only. An offset of long ago has seconds, such as +00:53:28."""


@dataclass(frozen=True)
class Output:
    """Where a frame goes: files at a path, or a table.

    Attributes:
        path: the directory of the files; ``None`` for a table.
        format: parquet, csv, json or any other that the session can write; a table's, unless
            given, as Spark is set up.
        table: the table's name; ``None`` for files.
        mode: what to do with an output that is there: ``error``, ``append``, or ``overwrite``,
            which replaces all its rows. A table keeps its columns, partitions, buckets, properties
            and comment.
        options: of the format, as Spark's writer takes them.
        used: what else the job reads or writes, by the name of the option that says so: a text is a
            path or pattern of Spark's, and a ``Path`` a file of this machine. No overwrite removes
            it. Without ``input``, the files that the frame reads are looked at.
    """

    path: str | None
    format: str | None = None
    table: str | None = None
    mode: str = "error"
    options: Mapping[str, str] = field(default_factory=dict)
    used: Mapping[str, Sequence[str | Path]] = field(default_factory=dict)

    @interrupts_kept()
    def check(self, spark: SparkSession, partition_by: Sequence[str] = ()) -> None:
        """Check before the long work that it can be written.

        An output whose replacement was killed as it took its place gets back what it held.

        Args:
            partition_by: as for :meth:`write`.

        Raises:
            OutputExists: it is there already, and the mode is ``error``.
            OutputRefused: it cannot be written there, or not replaced whole or not at all; or files
                that are there are of another format, or in other directories; or a stream writes
                there.
            ConfigError: neither path nor table, both, or no format; no such mode; no name of a
                table, or no such schema; or as for :meth:`check_options`; or something that the
                job uses is in what it would replace; or a file that it makes is where readers
                would take it for rows.
        """
        if (self.path is None) == (self.table is None):
            raise ConfigError("output", self.path, "give either a path or a table to write to")
        if self.path == "":
            raise ConfigError("output", self.path, "is empty: name a directory")
        if self.mode not in MODES:
            raise ConfigError("mode", self.mode, f"say {', '.join(MODES[:-1])} or {MODES[-1]}")
        if self.table is not None:
            check_table(spark, self.table, self.mode)
            return
        assert self.path is not None
        self.check_options()
        local = local_path(spark, self.path)
        is_plain = self._is_plain_files()
        if local is None:
            if self.mode == "overwrite" and is_plain:
                raise OutputRefused(
                    self.path, "Spark would delete it first, and a job that fails lose it"
                )
            if self.mode == "error" and is_plain and not is_empty(spark, self.path):
                raise OutputExists(self.path)
            if self.mode == "append" and is_plain:
                check_no_stream_elsewhere(spark, self.path)
        elif self.mode == "error":
            check_new(local)
        elif is_plain:
            if self.mode == "overwrite":
                check_not_of_others(self.path, local)
                self._check_unused(spark, local)
            check_no_stream(self.path, local, self.mode)
            if local.is_mount():
                raise OutputRefused(
                    self.path,
                    "it is a mount point, and no file takes its place from outside in one step",
                    "name a directory in it",
                )
            with disk_errors(self.path):
                put_back(local)
            if local.is_dir():
                check_directory(local)
            else:
                check_new(local)
        if is_plain and local is not None:
            self._check_beside(local)
        if is_plain and self.mode != "error":
            check_no_log(spark, self.path, local)
        self._check_form(spark, local, partition_by)

    def _check_unused(self, spark: SparkSession, local: Path) -> None:
        """Raise ``ConfigError`` if an overwrite would remove what the job itself uses.

        What is read from the output as a whole may be replaced by what becomes of it.
        """
        for name, paths in self.used.items():
            for path in paths:
                if is_below(spark, path, local):
                    raise self._in_the_output(name, path)

    def _check_beside(self, local: Path) -> None:
        """Raise ``ConfigError`` if readers would take a file that the job makes for rows."""
        for name in _MADE:
            for path in self.used.get(name, ()):
                place = Path(os.path.realpath(path))
                if place.is_relative_to(local) and all(
                    map(is_seen, place.relative_to(local).parts)
                ):
                    raise ConfigError(
                        name,
                        str(path),
                        f"is in the output {self.path}, whose readers would take it for rows: name "
                        f"another place",
                    )

    def _check_unread(self, df: DataFrame, local: Path | None) -> None:
        """Raise ``ConfigError`` if an overwrite would remove files that the frame reads.

        Spark lists them all, so this is only for frames of which nobody says what they read.
        """
        if self.mode != "overwrite" or local is None or "input" in self.used or not local.is_dir():
            return
        if place := read_apart(addresses(df), local):
            raise self._in_the_output("input", place)

    def _in_the_output(self, name: str, path: str | Path) -> ConfigError:
        return ConfigError(
            name,
            str(path),
            f"is in the output {self.path}, and overwrite would remove it: name another output, or "
            f"move it out of there",
        )

    def _check_form(
        self, spark: SparkSession, local: Path | None, partition_by: Sequence[str]
    ) -> Sequence[str]:
        """The files that are appended to, checked for their format and directories."""
        assert self.path is not None
        # A format that is no plain files has checks of its own.
        if self.mode != "append" or not self._is_plain_files():
            return ()
        found = files_there(spark, self.path, local)
        check_form(self.path, found, self._format(), partition_by)
        return found

    def check_options(self) -> None:
        """Raise ``ConfigError``, without Spark, if an option would leave out a CSV's header line.

        Appends compare columns by it. A table has its columns in the catalog. Raise it also if
        nothing says the format of files.
        """
        if self.format_of_files() != "csv":
            return
        for name, value in self.options.items():
            if name.lower() == "header" and str(value).lower() != "true":
                raise ConfigError(
                    "option",
                    f"{name}={value}",
                    "files of CSV always get a header line, by which appends find the columns: "
                    "leave the option out",
                )

    def format_of_files(self) -> str | None:
        """The format of files, without Spark; ``None`` for a table.

        Raises:
            ConfigError: nothing says it.
        """
        return None if self.path is None else self._format()

    def _format(self) -> str:
        assert self.path is not None
        return format_of([self.path], self.format, "output")

    def _is_plain_files(self) -> bool:
        """Whether the files at the path are all there is; a format such as delta has a log too."""
        return self._format() in FILE_FORMATS

    def kept_as(self, spark: SparkSession) -> str | None:
        """The format that the rows get: of a table that is there, its own.

        ``None`` if the catalog does not name it, or has yet to choose it.
        """
        if self.table is None:
            return self._format()
        if spark.catalog.tableExists(self.table):
            return provider_of(spark, self.table)
        if self._is_for_the_catalog_to_choose(spark, self.table):
            return None
        return format_name(
            self.format or spark.conf.get("spark.sql.sources.default", "parquet") or "parquet"
        )

    @interrupts_kept()
    def write(
        self,
        df: DataFrame,
        partition_by: Sequence[str] = (),
        beside: Callable[[Path], None] | None = None,
    ) -> None:
        """Write all of the frame, or nothing.

        Args:
            beside: writes more into the directory before it takes its name; on this machine's file
                system only.

        On this machine's file system, files are written aside and take their place at the end: a
        new output or a replaced one in one step, appended files one by one. Meanwhile no other
        process replaces what is there, and only appends are let in together. Elsewhere it is
        Spark's own commit protocol that keeps half of a job from being seen: a directory without
        the file ``_SUCCESS`` is not finished. It does not keep two jobs apart: each looks at its
        end whether its rows are there, and whether a new output has others. A format that is no
        plain files, such as delta, is written by its own protocol, at the place. A table is
        replaced by one that was written aside, unless its format has transactions.

        Raises:
            OutputExists: it is there already, or somebody else has written it meanwhile, and the
                mode is ``error``.
            OutputRefused: another process changes it, has written to it or made it meanwhile, or
                the workers of a cluster wrote it to disks of their own; the disk does not take it;
                or as for :meth:`check`.
            ColumnError: two columns have one name, or what is appended to has others.
        """
        spark = df.sparkSession
        self.check(spark, partition_by)
        check_distinct(df)
        # A format with a log of its own keeps it at the place, and counts its rows itself.
        is_plain = self.path is None or self._is_plain_files()
        local = local_path(spark, self.path) if self.path is not None and is_plain else None
        if self.path is not None:
            self._check_unread(df, local)
            df = self._fitted(df, local, partition_by)
        written = None
        # Where a table's files are is known when it is there.
        is_counted = self.path is not None or self.mode == "append"
        if is_on_workers(spark, self.path or "file:/") or (
            is_counted and local is None and is_plain
        ):
            written = Counts(df, rows=F.count(F.lit(1)))
            df = written.frame
        if self.table is not None:
            if spark.catalog.tableExists(self.table):
                into_table(df, self.table, written, self.mode, self.options)
                return
            self._make_table(df, self.table, partition_by, written)
            return
        assert self.path is not None
        name = self._format()
        writer = self._writer(df, name, partition_by)
        if name == "csv":
            writer = writer.option("header", True)
        if local is None:
            self._write_in_place(writer, spark, self.path, written)
            return
        aside = local.with_name(f".{local.name}.{uuid.uuid4().hex[:8]}")
        with self._locked(spark, local) as is_locked:
            try:
                with hidden_directory(aside, self.path):
                    writer = writer.mode("append")
                    interruptible(
                        spark, lambda: writer.save(f"file://{aside}"), partial(remove, aside)
                    )
                if written:
                    self._check_whole(spark, f"file://{aside}", written)
                if beside:
                    with disk_errors(self.path):
                        beside(aside)
                sync_all(self.path, aside)
                # Another process may have made it since, or put files into it before it was locked.
                with nullcontext(True) if is_locked else self._locked(spark, local) as is_there:
                    if self._fitted(df, local, partition_by).columns != df.columns:
                        raise OutputRefused(
                            self.path,
                            "another process made it meanwhile, in another order",
                            "start again: the columns are then put in that order",
                        )
                    self._take_place(
                        aside, local, partial(seen_anew, spark, local), is_there=is_there
                    )
            finally:
                remove(aside)

    def _write_in_place(
        self, writer: DataFrameWriter, spark: SparkSession, path: str, written: Counts | None
    ) -> None:
        is_plain = self._is_plain_files()
        # Others may write to it at the same time; any other format counts its rows itself.
        own = new_file_name(spark) if is_plain else ""
        writer = writer.options(**own_job(own))
        # A job that failed leaves its directory. Spark refuses it in the mode "error", and the
        # counts of a frame are those of the first try.
        is_left = self.mode == "error" and is_plain and is_empty_directory(spark, path)
        try:
            writer = writer.mode("append" if is_left else self.mode)
            interruptible(spark, lambda: writer.save(path))
        except SPARK_ERRORS as error:
            if "PATH_ALREADY_EXISTS" in str(error):
                raise OutputExists(path) from error
            if own and was_taken_away(error):
                why, remedy = self._beside_another(own)
                raise OutputRefused(path, f"some rows or all are missing: {why}", remedy) from error
            check_nothing_left(spark, path, own, path, error)
            raise
        if own and self.mode == "error" and has_others(spark, path, own):
            why, remedy = self._beside_another(own)
            raise OutputRefused(path, f"rows of both are there: {why}", remedy)
        if written and (own or self.mode == "error"):
            self._check_whole(spark, path, written, own)

    def _beside_another(self, name: str) -> tuple[str, str]:
        """Why rows are missing or too many elsewhere, and what to do.

        Args:
            name: with which the names of the job's files begin.
        """
        if self.mode == "append":
            return ANOTHER, beside_another(name)
        return WROTE_TOO, (
            f"if that job succeeded, remove the files {name}*; if not, remove all files, and start "
            f"one job again"
        )

    def _check_whole(
        self, spark: SparkSession, place: str, written: Counts, name: str = ""
    ) -> None:
        assert self.path is not None
        format = self._format()
        on_workers = is_on_workers(spark, place)
        rows = rows_written(written, on_workers)
        if rows is None:
            return
        if on_workers:
            why, remedy = OWN_DISKS, SHARED
        elif format in _READ_BY_OPTIONS:
            why = ""
            remedy = (
                f"see whether the files {name}* have all rows, and whether a reader finds them by "
                f"the options, such as encoding"
            )
        else:
            why, remedy = self._beside_another(name)
        check_whole(
            spark,
            place,
            rows,
            format=format,
            path=self.path,
            options=self.options,
            name=name,
            why=why,
            remedy=remedy,
        )

    def _fitted(self, df: DataFrame, local: Path | None, partition_by: Sequence[str]) -> DataFrame:
        """The frame with its columns in the order of the files that are appended to."""
        assert self.path is not None
        spark, name = df.sparkSession, self._format()
        found = self._check_form(spark, local, partition_by)
        if not found:
            return df
        reader = spark.read
        if name == "csv":
            reader = reader.options(**CSV_OPTIONS).options(**self.options).option("header", True)
        place = self.path.rstrip("/") if local is None else f"file://{local}"
        return fitted(df, reader, exactly(f"{place}/{found[0]}"), self.path, name, partition_by)

    def _writer(
        self, df: DataFrame, name: str | None, partition_by: Sequence[str]
    ) -> DataFrameWriter:
        spark = df.sparkSession
        kept_as = self.kept_as(spark)
        writer = df.write.mode("error").options(**lossless(spark, kept_as))
        if self.table is None:  # a table would keep it, and lose rows to a later overwrite
            writer = writer.option(REPLACED_PARTS, ALL_PARTS)
        elif kept_as == "csv":
            writer = writer.options(**WHOLE_TEXTS)
        writer = writer.options(**self.options)
        if name is not None:
            writer = writer.format(name)
        return writer.partitionBy(*partition_by) if partition_by else writer

    @contextmanager
    def _locked(self, spark: SparkSession, local: Path) -> Iterator[bool]:
        """Keep others out of files that are there.

        Jobs may append at once where files say in which form, and nothing else.

        Yields:
            Whether there is a directory, which is locked then.
        """
        if self.mode == "error" or not local.is_dir():
            yield False
            return
        path, is_append = str(self.path), self.mode == "append"
        is_bare = is_append and not files_there(spark, path, local)
        with alone(local, path, self._doing(), shared=is_append and not is_bare):
            yield True

    def _doing(self) -> str:
        return "appends to" if self.mode == "append" else "overwrites"

    @contextmanager
    def _no_stream(self, local: Path) -> Iterator[None]:
        """Keep streams out of a directory, if none has begun there while the job worked."""
        path, is_append = str(self.path), self.mode == "append"
        # Looked for first without the lock, which would end the next batch of a stream.
        check_no_stream(path, local, self.mode)
        with alone(local, path, self._doing(), STREAM_LOCK, shared=is_append):
            check_no_stream(path, local, self.mode)
            yield

    def _take_place(
        self, aside: Path, local: Path, show: Callable[[], None], *, is_there: bool
    ) -> None:
        """Take the place of a directory that is locked, or of none."""
        path = str(self.path)
        if is_there and self.mode == "append":
            with self._no_stream(local):
                append_files(aside, local, path, show)
            return
        with disk_errors(path):
            if is_there:
                with self._no_stream(local):
                    swap(aside, local)
            elif local.exists():
                raise self._made_meanwhile()
            else:
                self._give_name(aside, local)
        sync(path, [local.parent])  # before what was replaced is removed
        show()

    def _give_name(self, aside: Path, local: Path) -> None:
        try:
            aside.rename(local)
        except OSError as error:
            if local.exists():
                raise self._made_meanwhile() from error
            raise

    def _made_meanwhile(self) -> OutputExists | OutputRefused:
        path = str(self.path)
        if self.mode == "error":
            return OutputExists(path)
        # The remedy of the other error would remove the rows of that process.
        return OutputRefused(path, "another process made it meanwhile", "start again")

    def _make_table(
        self, df: DataFrame, table: str, partition_by: Sequence[str], written: Counts | None
    ) -> None:
        """Make a table.

        Raises:
            OutputExists: another process has made it meanwhile.
            OutputRefused: workers wrote it to disks of their own.
        """
        spark = df.sparkSession
        writer = self._writer(df, self.format, partition_by)
        # Spark writes the files of such a table before the catalog knows of it: two that made it
        # at once would leave the rows of both in it.
        if not self._is_of_plain_files(spark, table):
            try:
                if self._is_for_the_catalog_to_choose(spark, table):
                    interruptible(spark, lambda: self._make_as_chosen(df, table, partition_by))
                elif (self.format or "").lower() == "hive":
                    # What it cannot hold is known when it is there.
                    self._make_in_place(df, table, partition_by, written)
                else:
                    interruptible(spark, lambda: writer.saveAsTable(table))
            except SPARK_ERRORS as error:
                if "[TABLE_OR_VIEW_ALREADY_EXISTS]" in str(error):
                    raise OutputExists(table) from error
                raise
            try:
                check_rows(spark, table, table, written)
            except OutputRefused:
                spark.sql(f"DROP TABLE {table}")
                raise
            return
        if partition_by and spark.conf.get("spark.sql.catalogImplementation") == "in-memory":
            # Renamed, a table of this catalog looks for its partitions at the old name.
            self._make_in_place(df, table, partition_by, written)
            return
        aside = re.sub(r"(`?)\Z", rf"_{uuid.uuid4().hex[:8]}\1", table, count=1)
        drop = partial(spark.sql, f"DROP TABLE IF EXISTS {aside}")
        try:
            interruptible(spark, lambda: writer.saveAsTable(aside), drop)
            check_rows(spark, aside, table, written)
            try:
                rename_table(spark, aside, table)
            except SPARK_ERRORS as error:
                made = spark.table(aside)
                if spark.catalog.tableExists(table):
                    if self.mode == "error":
                        raise OutputExists(table) from error
                    into_table(made, table, written, self.mode, self.options)
                elif "LOCATION_ALREADY_EXISTS" in str(error):
                    # Left by a table that failed to be made. Where it is empty, this makes one.
                    again = self._writer(made, self.format, partition_by)
                    interruptible(spark, lambda: again.saveAsTable(table))
                else:
                    raise
        finally:
            drop()

    def _is_of_plain_files(self, spark: SparkSession, table: str) -> bool:
        """Whether a new table is one of plain files in Spark's own catalog, at its usual place."""
        if catalog_of(spark, table) != SPARK_CATALOG:
            return False
        return self.kept_as(spark) in FILE_FORMATS and "path" not in self.options

    def _is_for_the_catalog_to_choose(self, spark: SparkSession, table: str) -> bool:
        """Whether the catalog of a new table chooses its format.

        Spark's own takes that of its settings. Others have one of their own, and some refuse to be
        told any.
        """
        if self.format is not None or "path" in self.options:
            return False
        return catalog_of(spark, table) != SPARK_CATALOG

    def _make_as_chosen(self, df: DataFrame, table: str, partition_by: Sequence[str]) -> None:
        writer = df.writeTo(table).options(**self.options)
        if partition_by:
            writer = writer.partitionedBy(*(F.col(quoted(name)) for name in partition_by))
        writer.create()

    def _make_in_place(
        self, df: DataFrame, table: str, partition_by: Sequence[str], written: Counts | None
    ) -> None:
        """Make an empty table first: dropped after a failure, it takes its directory along.

        Spark leaves the directory of a table that failed to be made, which blocks the next one.
        """
        spark = df.sparkSession
        empty = spark.createDataFrame([], df.schema)
        self._writer(empty, self.format, partition_by).saveAsTable(table)
        try:
            into_table(df, table, written, "append", self.options)
        except BaseException:
            spark.sql(f"DROP TABLE IF EXISTS {table}")
            raise


def lossless(spark: SparkSession, format: str | None) -> dict[str, bool | str]:
    """The options with which Spark writes a format so that it can be read as it was."""
    found = dict(CSV_OPTIONS) if format == "csv" else {}
    # To the readers of that policy, microseconds would be as many milliseconds.
    if format in TEXTS and not is_old_parser(spark):
        found |= _TIMES
    return found
