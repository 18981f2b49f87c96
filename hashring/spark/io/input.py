"""Reading: what a job's rows come from, in files or tables."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import StringType, StructField, StructType, TimestampType

from hashring.core.safe_text import printable
from hashring.errors import (
    ColumnError,
    ConfigError,
    HashringError,
    InputDamaged,
    NoDataError,
    SparkFailed,
)
from hashring.spark.engine.column_checks import quoted
from hashring.spark.engine.counts_while_read import Counts
from hashring.spark.engine.session import is_connect
from hashring.spark.engine.spark_failures import NO_PACKAGE, SPARK_ERRORS, failure, too_much
from hashring.spark.io.catalog_tables import options_of, provider_of
from hashring.spark.io.encodings import (
    check_encoding,
    check_table_encoding,
    encoding_of,
    in_lower_case,
)
from hashring.spark.io.file_formats import (
    FILE_FORMATS,
    QUOTES_DOUBLED,
    WHOLE,
    format_of,
    is_old_parser,
)
from hashring.spark.io.listed_files import (
    addresses,
    check_all_read,
    check_each_read_once,
    listed,
)
from hashring.spark.io.local_paths import NO_PATH, exactly, local_path, scheme_of
from hashring.spark.lookup.key_column import key_text

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

CORRUPT: Final = "_corrupt_record"
"""Spark's column for the text of a record that does not fit the schema."""
OF_READER: Final = {"hashring.bad_record": True}
"""Metadata of that column in a stream, by which it differs from a user's column of that name."""
_FILE: Final = "__hashring_file"
_SHOWN: Final = 60
_MICROSECONDS: Final = (
    "write times in microseconds, with pandas by to_parquet(..., coerce_timestamps='us')"
)
_OPTIONS: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT, **WHOLE}
_CSV: Final[dict[str, bool | str]] = {
    "header": True,
    "enforceSchema": False,
    "columnPruning": False,
    **QUOTES_DOUBLED,
}
"""A schema names columns as the header does: else a column would be taken for another. And a record
of too few or too many fields shows only where all of them are looked at."""
_XML: Final = {"inferSchema": False, "ignoreSurroundingSpaces": False}
"""Else Spark would take the key ``007`` for the number 7, and cut off the blanks of a key."""
_MALFORMED: Final = ("csv", "json", "xml")
"""Formats of which a record may not fit the schema. Of others a file fails as a whole, and a column
:data:`CORRUPT` is data."""
_SEVERAL: Final = 2
_HEAD, _LINES = 2**20, 10
"""Bytes of a line, and lines, in which a second document is looked for."""
_LISTED, _LOOKED_INTO = 1000, 5
"""Of so many files, so many of the largest are looked into for that."""
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
        counts = Counts(self._raw, bad=F.count_if(is_bad()))
        return _good(counts.frame), lambda: counts.get()["bad"]

    def whole(self) -> DataFrame:
        """The frame, of which no record may be missing. Reads the files once.

        Raises:
            InputDamaged: a record does not fit the schema, as in a file that is cut short.
        """
        if self._raw is not None:
            # With all columns: a record is malformed by those that are read.
            named = self._raw.select("*", F.input_file_name().alias(_FILE))
            for row in named.where(is_bad()).take(1):
                text = printable(row[CORRUPT])[:_SHOWN]
                raise InputDamaged(row[_FILE], f"no record of this schema: {text}")
        return self.frame


def check_keys(source: Input, key: str) -> None:
    """Raise ``NoDataError`` if there is no key at all. Read rows until there is one."""
    df = source.frame
    if df.where(key_text(df, key).isNotNull()).isEmpty():
        # With the key, since Spark reads no file for its malformed records alone.
        if not df.select(quoted(key)).take(1):
            raise NoDataError(source.source, "holds no row that fits the schema")
        raise NoDataError(source.source, f"every key in column {key!r} is null or empty")


def is_bad() -> Column:
    """Whether a record does not fit the schema."""
    return F.col(CORRUPT).isNotNull()


def _good(raw: DataFrame) -> DataFrame:
    return raw.where(~is_bad()).drop(CORRUPT)


def _check_given(paths: Sequence[str]) -> None:
    if not paths or not all(paths):
        raise ConfigError("input", list(paths), "name a file, directory or glob, and no empty path")


def read_frame(
    spark: SparkSession,
    paths: Sequence[str],
    format: str | None = None,
    schema: str | None = None,
    options: Mapping[str, str] | None = None,
    *,
    key: str | None = None,
    may_repeat: bool = False,
) -> Input:
    """Read files.

    Args:
        paths: files, directories or globs, as Spark's file systems know them. On this machine, a
            file whose own name has brackets is read, unless a glob matches others.
        format: parquet, csv (with a header line), json (a document a line), or any other that
            the session can read, such as orc; by default as the names end.
        schema: Spark DDL. Without it every column of a CSV or XML is a string (guessing types would
            turn the key ``007`` into ``7``), and those of JSON are inferred from the data.
        options: of the format, as Spark's reader takes them.
        key: the column of keys, if there is one. Of directories ``key=007`` it is a string, unless
            the schema says otherwise; of other such directories Spark guesses the type.
        may_repeat: whether several paths may name one file, whose rows then come as often.

    Raises:
        NoDataError: nothing matches a path, or there is nothing in what matches; or a path names a
            file that Spark passes over.
        InputDamaged: a file is cut short, damaged or of another format, as far as its columns
            show it; or a file of Parquet on this machine is empty. What is wrong further on shows
            when the frame is read.
        ColumnError: several columns of a CSV have no name in its header line, or the same one.
        ConfigError: no path or an empty one, no format, no schema, files beside directories that
            are named for columns, files in directories within others, or one that is named twice;
            or Spark would split a CSV of this encoding within characters, read text of another
            encoding than UTF-8, or leave out documents of a JSON file.
    """
    _check_given(paths)
    name = format_of(paths, format)
    source = ", ".join(paths)
    paths = [_as_named(spark, path) for path in paths]
    found = _read(spark, paths, source, name, schema, options, key)
    if name in FILE_FORMATS:
        check_each_read_once(found.frame, paths, options, may_repeat=may_repeat)
    if name == "parquet":
        _check_none_empty(found.frame, options)
    return found


def _check_none_empty(frame: DataFrame, options: Mapping[str, str] | None) -> None:
    """Raise ``InputDamaged`` for a file of 0 bytes on this machine, which Spark passes over.

    Even a file of Parquet without rows has some: this one was cut short, as on a disk that is full.
    """
    if is_connect(frame.sparkSession) or in_lower_case(options).get("ignorecorruptfiles") == "true":
        return
    for address in addresses(frame):
        if scheme_of(address) == "file" and _is_empty(unquote(address.removeprefix("file:"))):
            raise InputDamaged(address, "it is empty")


def _is_empty(file: str) -> bool:
    with suppress(OSError):  # it is on a disk of workers, or was taken away meanwhile
        return not os.stat(file).st_size
    return False


def _read(  # noqa: PLR0917 - as those of read_frame
    spark: SparkSession,
    paths: Sequence[str],
    source: str,
    name: str,
    schema: str | None,
    options: Mapping[str, str] | None,
    key: str | None,
) -> Input:
    """Read files of a format; see :func:`read_frame`.

    Args:
        paths: as Spark takes them.
        source: the paths as they were given.
    """
    for path in paths:
        _check_seen(spark, path)

    def load(wanted: StructType | None = None, **more: bool) -> DataFrame:
        reader = spark.read.format(name).options(**_OPTIONS)
        reader = reader.options(**_of_format(name, options)).options(**(options or {}))
        reader = reader.options(**more)
        return (reader if wanted is None else reader.schema(wanted)).load(list(paths))

    try:
        if schema is None:
            frame = load()
            wanted = _with_key_as_it_is(load, frame.schema, key)
        else:
            wanted = _with_key_of_directories(load, _ddl(schema), key)
        if wanted is None and name == "csv":
            wanted = frame.schema
        if wanted is not None:
            names = wanted.names
            if schema is None and name == "csv" and _has_header(options):
                wanted = _as_in_header(load, wanted, source)
            renamed = dict(zip(wanted.names, names, strict=True))
            if name in _MALFORMED and wanted.fields:
                wanted = StructType([*wanted.fields, StructField(CORRUPT, StringType())])
            as_text = name in _MALFORMED and _times_are_misread(spark, options)
            frame = _with_times(load(_as_texts(wanted)), wanted) if as_text else load(wanted)
            if renamed.keys() != set(names):
                # Columns of directories come last, whatever their place in the schema.
                frame = frame.toDF(*(renamed.get(column, column) for column in frame.columns))
        columns = frame.columns
        if name == "json" and in_lower_case(options).get("multiline") == "true":
            _check_one_document(frame)
    except SPARK_ERRORS as error:
        raise _refusal(error, name, source) from error
    if name == "csv" and any(mark in column for column in columns for mark in _NO_TEXT):
        raise InputDamaged(source, "its header line is not text in UTF-8")
    if name in FILE_FORMATS:
        check_all_read(frame, paths, options)
    if columns in ([], [CORRUPT]):
        raise NoDataError(source, f"holds no {name} record; is it of another format?")
    if name not in _MALFORMED or CORRUPT not in columns:
        return Input(frame, source)
    return Input(_good(frame), source, frame)


def _of_format(name: str, options: Mapping[str, str] | None) -> dict[str, bool | str]:
    """The options with which Spark reads keys of a format as they are, unless told otherwise.

    Raises:
        ConfigError: by the options given, it cannot.
    """
    given = in_lower_case(options)
    if name == "text" and (encoding := encoding_of(given)) not in ("", "utf-8", "utf8"):
        raise ConfigError("encoding", encoding, "Spark reads text as UTF-8: convert the files")
    if name == "xml":
        return dict(_XML)
    if name != "csv":
        return {}
    check_encoding(given, "add --input-option multiLine=true")
    # By its default, Spark would leave out each NUL in a field in quotes.
    return (
        _CSV if given.keys() & {"escape", "quote"} else {**_CSV, "charToEscapeQuoteEscaping": '"'}
    )


def _check_one_document(frame: DataFrame) -> None:
    """Check that files of JSON do not go on after their first document, as far as some lines show.

    This looks at the largest files: a look at each would read all of them twice, and a file of one
    line has one document.

    Args:
        frame: of JSON that is read with ``multiLine``.

    Raises:
        ConfigError: one does, and Spark would leave out what follows.
    """
    files = [exactly(unquote(file)) for file in addresses(frame)]
    if not files:
        return
    some = files[:: -(-len(files) // _LISTED)]
    found = frame.sparkSession.read.format("binaryFile").load(some).select("path", "length")
    for row in found.orderBy(F.desc("length")).take(_LOOKED_INTO):
        _check_ends(frame.sparkSession, row["path"])


def _check_ends(spark: SparkSession, file: str) -> None:
    lines = spark.read.text(exactly(file), lineSep="\n")
    head = F.substring(F.col("value").cast("binary"), 1, _HEAD)
    told = b"\n".join(bytes(row[0]) for row in lines.select(head).take(_LINES))
    text = told.decode(json.detect_encoding(told), "ignore").strip()
    try:
        _, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):  # it goes on for more lines
        return
    if text[end:].strip():
        raise ConfigError(
            "multiLine",
            "true",
            f"{printable(file)} goes on after its first document, and Spark would read no more of "
            f"it: leave out the option if each line is a document, or write an array",
        )


def _times_are_misread(spark: SparkSession, options: Mapping[str, str] | None) -> bool:
    """Whether Spark would take microseconds for as many milliseconds, which are minutes."""
    given = {option.lower() for option in options or ()}
    return is_old_parser(spark) and "timestampformat" not in given


def _is_time(field: StructField) -> bool:
    return isinstance(field.dataType, TimestampType)


def _as_texts(wanted: StructType) -> StructType:
    """The schema with text for the times in it."""
    return StructType(
        [
            StructField(f.name, StringType(), metadata=f.metadata) if _is_time(f) else f
            for f in wanted.fields
        ]
    )


def _with_times(read: DataFrame, wanted: StructType) -> DataFrame:
    """The frame with times for the texts of them. A text that is none makes a bad record."""
    texts = {f.name: F.col(quoted(f.name)) for f in wanted.fields if _is_time(f)}
    times = {name: text.try_cast(TimestampType()) for name, text in texts.items()}
    unread = (F.when(times[name].isNull(), text) for name, text in texts.items())
    kept = {**times, CORRUPT: F.coalesce(F.col(CORRUPT), *unread)}
    return read.select(
        *(
            kept[name].alias(name, metadata=wanted[name].metadata) if name in kept else quoted(name)
            for name in read.columns
        )
    )


def _as_named(spark: SparkSession, path: str) -> str:
    """The path, with a backslash before its brackets and the like if they are of a file's own name.

    A file that has such a name is read, unless the path as a pattern matches others.
    """
    literal = exactly(path)
    if literal == path:
        return path
    local = local_path(spark, path)
    if local is None or not local.exists():
        return path
    try:
        spark.read.format("binaryFile").load(path)
    except SPARK_ERRORS:
        return literal
    return path


def _check_seen(spark: SparkSession, path: str) -> None:
    """Check that a path names no file that Spark passes over, beside others without a word.

    Directories of such names it reads.

    Raises:
        NoDataError: it does.
    """
    name = path.rstrip("/").rpartition("/")[2]
    if name in (".", "..") or not (name.startswith(("_", ".")) or name.endswith("._COPYING_")):
        return
    local = local_path(spark, path)
    if local is not None and local.is_dir():
        return
    # This format alone is listed without a look into the files.
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", True)
    try:
        found = reader.load(path).inputFiles()
    except SPARK_ERRORS as error:
        raise _refusal(error, "binaryFile", path) from error
    if not found:
        raise NoDataError(
            path,
            "Spark passes over a file whose name begins with _ or ., or ends in ._COPYING_: "
            "rename it",
        )


def _with_key_as_it_is(
    load: Callable[..., DataFrame], guessed: StructType, key: str | None
) -> StructType | None:
    """The schema with the key as a string, if Spark guessed its type from directories."""
    if key not in guessed.names or isinstance(guessed[key].dataType, StringType):
        return None
    # So Spark makes no columns of directories. Of one that is in the files, too, it takes the type
    # that it guesses.
    in_files = load(recursiveFileLookup=True).schema
    if key in in_files.names and in_files[key].dataType == guessed[key].dataType:
        return None
    kept = (field for field in guessed.fields if field.name != CORRUPT)
    return StructType([StructField(f.name, StringType()) if f.name == key else f for f in kept])


def _with_key_of_directories(
    load: Callable[[StructType], DataFrame], given: StructType, key: str | None
) -> StructType:
    """The schema with the key as a string, if directories have it and the schema does not."""
    if key is None or key in given.names or key not in load(given).schema.names:
        return given
    return StructType([*given.fields, StructField(key, StringType())])


def _has_header(options: Mapping[str, str] | None) -> bool:
    """Whether the first line of a CSV holds names. Spark compares options without their case."""
    given = [value for option, value in (options or {}).items() if option.lower() == "header"]
    return all(str(value).lower() == "true" for value in given)


def _as_in_header(load: Callable[..., DataFrame], named: StructType, source: str) -> StructType:
    """The schema of a CSV with no name where the header has none, and Spark gives ``_c0``.

    By these names Spark compares it with the header of each file.

    Raises:
        ColumnError: in the header line, several columns have no name, or the same one, whatever its
            case. Spark adds their places to such names.
    """
    ends = [name.removesuffix(str(i)).lower() for i, name in enumerate(named.names)]
    numbered = Counter(
        end for end, name in zip(ends, named.names, strict=True) if end != name.lower()
    )
    # A look at the header takes a job.
    if not numbered["_c"] and max(numbered.values(), default=0) < _SEVERAL:
        return named
    header = load(header=False).first() or ()
    renamed: dict[str, list[int]] = {}
    # Another file may have more columns, and directories have some.
    for i, (name, given) in enumerate(zip(header, named.names, strict=False)):
        if given == f"{name or '_c'}{i}":
            renamed.setdefault((name or "").lower(), []).append(i)
    for found in renamed.values():
        if len(found) >= _SEVERAL:
            places = ", ".join(str(i + 1) for i in found)
            raise ColumnError(
                header[found[0]] or "",
                f"is the name of columns {places} in the header line of {source}: give each a name "
                f"of its own",
            )
    fields = list(named.fields)
    for i in renamed.get("", ()):
        fields[i] = StructField("", fields[i].dataType)
    return StructType(fields)


def read_table(spark: SparkSession, name: str) -> Input:
    """Read a table or a view.

    Raises:
        NoDataError: no catalog of the session has it.
        ConfigError: it is a CSV of an encoding that Spark would split within characters.
    """
    try:
        # Not more than that: the driver of another catalog may know no such option.
        settings = {option: spark.conf.get(f"spark.sql.files.{option}") for option in WHOLE}
        whole = {option: no for option, no in WHOLE.items() if settings[option] != no}
        frame = spark.read.options(**whole).table(name)
        frame.schema  # noqa: B018 - over Spark Connect, only now is it looked for
    except (AnalysisException, ParseException) as error:
        raise NoDataError(
            name,
            f"no such table can be read ({_first_line(error)}); a catalog that outlives a session "
            f"has to be set up, such as with --conf spark.sql.catalogImplementation=hive",
        ) from error
    try:
        options = options_of(spark, name) if provider_of(spark, name) == "csv" else {}
    except SPARK_ERRORS:
        options = {}  # files by their path, as in csv.`keys`
    check_table_encoding(options, name)
    return Input(frame, name)


def _refusal(error: Exception, name: str, source: str) -> HashringError:
    """Why files cannot be read at all, which Spark finds out as it looks for their columns."""
    # PySpark 4.0 looks into empty Parquet files, too.
    if any(sign in str(error) for sign in ("[UNABLE_TO_INFER_SCHEMA]", "(length is too low: 0)")):
        return NoDataError(source, f"holds no {name} file that is not empty; is the path right?")
    if NO_PACKAGE in str(error):
        return NoDataError(
            source,
            f"Spark reads {name} with a package that it does not have: name it with --conf "
            f"spark.jars.packages=...",
        )
    found = failure(error)
    if isinstance(found, SparkFailed) and (wide := too_much(found.told)):
        return NoDataError(source, wide)
    if isinstance(found, SparkFailed) and isinstance(error, AnalysisException):
        remedy = f"; {_MICROSECONDS}" if "TIMESTAMP(NANOS" in str(error) else ""
        return NoDataError(source, f"{_first_line(error).rstrip('.')}{remedy}")
    return found


def read_stream(
    spark: SparkSession,
    paths: Sequence[str],
    format: str | None = None,
    schema: str | None = None,
    options: Mapping[str, str] | None = None,
    *,
    key: str | None = None,
) -> DataFrame:
    """Read the files of one directory or glob as they come.

    Args:
        options: of the format and of a stream of files, as Spark's reader takes them. Unless told,
            ``maxFileAge`` is 100 years.

    Of CSV and JSON, the records that do not fit the schema are in it, too, with their text in the
    column :data:`CORRUPT`, which is null elsewhere. The other arguments are those of
    :func:`read_frame`.

    Raises:
        ConfigError: no path, an empty one or several, or one whose own name has brackets or braces;
            no format, no schema where the format has none (a stream has to know its columns before
            the first file comes), files beside directories that are named for columns, or a CSV of
            an encoding that Spark would split within characters.
        NoDataError: nothing is at the path to read the schema from, or it is a file that Spark
            passes over.
    """
    _check_given(paths)
    if len(paths) != 1:
        raise ConfigError("input", list(paths), "a stream reads one directory or glob")
    name = format_of(paths, format)
    if _as_named(spark, paths[0]) != paths[0]:
        why = "has one of []{}\\ in its own name, which Spark takes for a pattern: rename it"
        raise ConfigError("input", paths[0], why)
    local = local_path(spark, paths[0])
    if local is not None and local.is_file():  # elsewhere it may be a directory without files yet
        _check_seen(spark, paths[0])
    if schema is None:
        if name != "parquet":
            raise ConfigError("schema", None, f"a stream of {name} needs one: 'key string, ...'")
        # Writers may have directories within, for files that are not whole yet.
        wanted = _read(spark, paths, paths[0], name, None, options, key).frame.schema
    else:
        wanted = _ddl(schema)
        if name in FILE_FORMATS:
            _check_all_streamed(spark, paths, options)
    reader = spark.readStream.format(name).options(**_OPTIONS)
    # Else Spark passes over files that are a week older than the newest, as after `mv` or `cp -p`.
    reader = reader.option("maxFileAge", "36500d")
    reader = reader.options(**_of_format(name, options)).options(**(options or {}))

    def load(columns: StructType) -> DataFrame:
        return reader.schema(columns).load(paths[0])

    wanted = _with_key_of_directories(load, wanted, key)
    if name in ("csv", "json"):
        bad = StructField(CORRUPT, StringType(), metadata=OF_READER)
        wanted = StructType([*wanted.fields, bad])
    if name in ("csv", "json") and _times_are_misread(spark, options):
        return _with_times(load(_as_texts(wanted)), wanted)
    return load(wanted)


def _check_all_streamed(
    spark: SparkSession, paths: Sequence[str], options: Mapping[str, str] | None
) -> None:
    try:
        check_all_read(listed(spark, paths, options), paths, options)
    except SPARK_ERRORS as error:
        if NO_PATH not in str(error):  # a stream of a pattern may begin before its files are there
            raise


def _ddl(schema: str) -> StructType:
    try:
        wanted = StructType.fromDDL(schema)
    except (ParseException, AnalysisException) as error:
        raise ConfigError("schema", schema, f"is no DDL: {_first_line(error)}") from error
    if not isinstance(wanted, StructType):
        raise ConfigError("schema", schema, "name the columns: 'key string, w double'")
    return wanted


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].partition(" SQLSTATE")[0]
