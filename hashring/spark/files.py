"""Reading and writing: the only place of the pipeline that touches files and tables."""

from __future__ import annotations

import re
import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import StringType, StructField, StructType

from hashring.errors import (
    ColumnError,
    ConfigError,
    HashringError,
    InputDamaged,
    NoDataError,
    OutputExists,
    OutputRefused,
    SparkFailed,
)
from hashring.files import check_new
from hashring.spark.counting import Counts
from hashring.spark.failures import SPARK_ERRORS, failure
from hashring.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FORMATS: Final = ("parquet", "csv", "json")
_ENDING: Final = 10.0  # seconds
_CORRUPT: Final = "_corrupt_record"
_NO_TEXT: Final = ("\0", "\ufffd")
"""What bytes that are no text in UTF-8 are read as."""


@dataclass(frozen=True)
class Input:
    """What was read.

    Attributes:
        frame: the rows that fit the schema.
        source: the paths, as they were given.
    """

    frame: DataFrame
    source: str
    _raw: DataFrame | None = None

    def counted(self) -> tuple[DataFrame, Callable[[], int]]:
        """The frame, and how many records it left out because they did not fit the schema.

        They are counted as they are read, by the first action on the frame; asked before, the
        count waits for that. Parquet fails as a whole: its count is 0.
        """
        if self._raw is None:
            return self.frame, lambda: 0
        counts = Counts(self._raw, bad=F.count_if(_is_bad()))
        return _good(counts.frame), lambda: counts.get()["bad"]


def _is_bad() -> Column:
    return F.col(_CORRUPT).isNotNull()


def _good(raw: DataFrame) -> DataFrame:
    return raw.where(~_is_bad()).drop(_CORRUPT)


def format_of(paths: Sequence[str], given: str | None, what: str = "input") -> str:
    """The format of files: as given, or as their names end.

    Args:
        what: the setting that names the files, for the error's message.

    Raises:
        ConfigError: neither says.
    """
    if given is not None:
        return given
    for name in FORMATS:
        if all(re.search(rf"\.{name}(\.\w+)?/*$", path) for path in paths):
            return name
    raise ConfigError(
        what,
        ", ".join(paths),
        f"its name does not end in one of {', '.join(FORMATS)}: give the format",
    )


def read_frame(
    spark: SparkSession,
    paths: Sequence[str],
    format: str | None = None,
    schema: str | None = None,
) -> Input:
    """Read files.

    Args:
        paths: files, directories or globs, as Spark's file systems know them.
        format: parquet, csv (with a header line), json (a document a line), or any other that
            the session can read, such as orc; by default as the names end.
        schema: Spark DDL. Without it every column of a CSV is a string (guessing types would turn
            the key ``007`` into ``7``), and those of JSON are inferred from the data.

    Raises:
        NoDataError: nothing matches a path, or there is nothing in what matches.
        InputDamaged: a file is cut short, damaged or of another format, as far as its columns
            show it. What is wrong further on shows when the frame is read.
        ConfigError: no format, or no schema.
    """
    name = format_of(paths, format)
    reader = spark.read.format(name).option("mode", "PERMISSIVE")
    if name == "csv":
        # A schema names columns as the header does: else a column would be taken for another.
        # And a record of too few or too many fields shows only where all of them are looked at.
        reader = reader.option("header", True).option("enforceSchema", False)
        reader = reader.option("columnPruning", False)
    source = ", ".join(paths)
    try:
        wanted = None if schema is None else _ddl(schema)
        if wanted is None and name == "csv":
            wanted = reader.load(list(paths)).schema
        if wanted is not None:
            if name != "parquet" and wanted.fields:
                wanted = StructType([*wanted.fields, StructField(_CORRUPT, StringType())])
            reader = reader.schema(wanted)
        frame = reader.load(list(paths))
        columns = frame.columns
    except SPARK_ERRORS as error:
        raise _refusal(error, name, source) from error
    if name == "csv" and any(mark in column for column in columns for mark in _NO_TEXT):
        raise InputDamaged(source, "its header line is not text in UTF-8")
    if columns in ([], [_CORRUPT]):
        raise NoDataError(source, f"holds no {name} record; is it of another format?")
    if _CORRUPT not in columns:
        return Input(frame, source)
    return Input(_good(frame), source, frame)


def read_table(spark: SparkSession, name: str) -> Input:
    """Read a table or a view of the session's catalogs.

    Raises:
        NoDataError: there is none of that name.
    """
    try:
        frame = spark.table(name)
        frame.schema  # noqa: B018 - over Spark Connect, only now is it looked for
    except (AnalysisException, ParseException) as error:
        raise NoDataError(name, f"no such table can be read ({_first_line(error)})") from error
    return Input(frame, name)


def _refusal(error: Exception, name: str, source: str) -> HashringError:
    """Why files cannot be read at all, which Spark finds out as it looks for their columns."""
    if "[UNABLE_TO_INFER_SCHEMA]" in str(error):
        return NoDataError(source, f"holds no {name} file that is not empty; is the path right?")
    found = failure(error)
    if isinstance(found, SparkFailed) and isinstance(error, AnalysisException):
        return NoDataError(source, _first_line(error))
    return found


def read_stream(
    spark: SparkSession,
    paths: Sequence[str],
    format: str | None = None,
    schema: str | None = None,
) -> DataFrame:
    """Read the files of one directory or glob as they come.

    Raises:
        ConfigError: more than one path, no format, or no schema where the format has none (a
            stream has to know its columns before the first file comes).
        NoDataError: nothing is at the path to read the schema from.
    """
    if len(paths) != 1:
        raise ConfigError("input", list(paths), "a stream reads one directory or glob")
    name = format_of(paths, format)
    if schema is None:
        if name != "parquet":
            raise ConfigError("schema", None, f"a stream of {name} needs one: 'key string, ...'")
        wanted = read_frame(spark, paths, name).frame.schema
    else:
        wanted = _ddl(schema)
    reader = spark.readStream.format(name).schema(wanted)
    if name == "csv":
        reader = reader.option("header", True).option("enforceSchema", False)
    return reader.load(paths[0])


def _ddl(schema: str) -> StructType:
    try:
        wanted = StructType.fromDDL(schema)
    except (ParseException, AnalysisException) as error:
        raise ConfigError("schema", schema, f"is no DDL: {_first_line(error)}") from error
    if not isinstance(wanted, StructType):
        raise ConfigError("schema", schema, "name the columns: 'key string, w double'")
    return wanted


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0].partition(" SQLSTATE")[0]


@dataclass(frozen=True)
class Output:
    """Where a frame goes: files at a path, or a table.

    Attributes:
        path: the directory of the files; ``None`` for a table.
        format: parquet, csv, json or any other that the session can write; a table's, unless
            given, as Spark is set up.
        table: the table's name; ``None`` for files.
    """

    path: str | None
    format: str | None = None
    table: str | None = None

    def check(self, spark: SparkSession) -> None:
        """Check before the long work that it can be written.

        Raises:
            OutputExists: it is there already.
            OutputRefused: it cannot be written there.
            ConfigError: neither path nor table, both, or no format; no name of a table, or no
                such schema.
        """
        if (self.path is None) == (self.table is None):
            raise ConfigError("output", self.path, "give either a path or a table to write to")
        if self.table is not None:
            schema = self.table.rpartition(".")[0]
            try:
                if schema and not spark.catalog.databaseExists(schema):
                    raise ConfigError("table", self.table, f"there is no schema {schema}")
                if spark.catalog.tableExists(self.table):
                    raise OutputExists(self.table)
            except ParseException as error:
                raise ConfigError("table", self.table, "is no name of a table") from error
            return
        assert self.path is not None
        self.check_format()
        local = local_path(spark, self.path)
        if local is not None:
            check_new(local)

    def check_format(self) -> None:
        """Check, without Spark, that there is a format to write files in.

        Raises:
            ConfigError: the path's name does not say, and nor did the caller.
        """
        if self.path is not None:
            format_of([self.path], self.format, "output")

    def write(self, df: DataFrame, partition_by: Sequence[str] = ()) -> None:
        """Write all of the frame, or nothing.

        On this machine's file system, files are written aside and take their name in one step at
        the end. Elsewhere it is Spark's own commit protocol that keeps half of a job from being
        seen: a directory without the file ``_SUCCESS`` is not finished.

        Raises:
            OutputExists: it is there already, or somebody else has written it meanwhile.
            OutputRefused: the workers of a cluster wrote it to disks of their own.
            ColumnError: two columns have one name.
        """
        spark = df.sparkSession
        self.check(spark)
        check_distinct(df)
        written = None
        if is_on_workers(spark, self.path):
            written = Counts(df, rows=F.count(F.lit(1)))
            df = written.frame
        writer = df.write.mode("error")
        if partition_by:
            writer = writer.partitionBy(*partition_by)
        if self.table is not None:
            (writer.format(self.format) if self.format else writer).saveAsTable(self.table)
            return
        assert self.path is not None
        name = format_of([self.path], self.format)
        writer = writer.format(name)
        if name == "csv":
            writer = writer.option("header", True)
        local = local_path(spark, self.path)
        if local is None:
            try:
                writer.save(self.path)
            except AnalysisException as error:
                if error.getCondition() == "PATH_ALREADY_EXISTS":
                    raise OutputExists(self.path) from error
                raise
            if written:
                self.check_whole(spark, self.path, written.get()["rows"])
            return
        aside = local.with_name(f".{local.name}.{uuid.uuid4().hex[:8]}")
        try:
            writer.save(f"file://{aside}")
            if written:
                self.check_whole(spark, f"file://{aside}", written.get()["rows"])
            if local.exists():
                raise OutputExists(self.path)
            aside.rename(local)
        except (KeyboardInterrupt, SystemExit):
            with suppress(Exception):  # whatever is wrong with Spark by now
                spark.sparkContext.cancelAllJobs()
            raise
        finally:
            _remove(aside)

    def check_whole(self, spark: SparkSession, written: str, rows: int) -> None:
        """Check that all rows that workers wrote are where the driver sees them.

        Raises:
            OutputRefused: some are not: the workers have disks of their own.
        """
        assert self.path is not None
        name = format_of([self.path], self.format)
        try:
            reader = (
                spark.read.format(name).option("header", True).option("multiLine", name == "csv")
            )
            found = reader.load(written).count()
        except AnalysisException:
            found = 0  # not a file is there to read the columns from
        if found < rows:
            raise OutputRefused(
                self.path,
                f"{found:,} of {rows:,} rows are there: Spark's workers write to disks of their "
                f"own; name a path that all of them share, such as s3a://... or a network disk",
            )


def check_distinct(df: DataFrame) -> None:
    """Check that no two columns have one name, which no file can hold.

    Raises:
        ColumnError: two have; Spark compares names without case, and so does this.
    """
    seen: set[str] = set()
    for name in df.columns:
        if name.lower() in seen:
            raise ColumnError(name, "is there more than once: rename one of them")
        seen.add(name.lower())


def is_on_workers(spark: SparkSession, path: str | None) -> bool:
    """Whether a path is of a disk that each worker may have for itself."""
    if path is None or (":" in path and not path.startswith("file:")):
        return False
    master = spark.conf.get("spark.master", "local") or "local"
    return master.startswith("local-cluster") or not master.startswith("local")


def _remove(path: Path) -> None:
    # After Ctrl-C, tasks that are just ending may make files for another moment.
    deadline = time.monotonic() + _ENDING
    while path.exists():
        shutil.rmtree(path, ignore_errors=True)
        if time.monotonic() > deadline:
            return
        time.sleep(0.1)


def local_path(spark: SparkSession, path: str) -> Path | None:
    """The path on this machine's file system, if it is there that Spark would write."""
    scheme, colon, rest = path.partition(":")
    if colon and scheme != "file" and "/" not in scheme:
        return None
    default = spark.conf.get("spark.hadoop.fs.defaultFS", "file:///") or "file:///"
    if is_connect(spark) or (not colon and not default.startswith("file:")):
        return None
    return Path("/" + rest.lstrip("/") if colon and scheme == "file" else path).absolute()
