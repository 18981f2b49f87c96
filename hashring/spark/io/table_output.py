"""Write to a table, so that its rows are whole also while other processes write to it."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    UserDefinedType,
)

from hashring.errors import ColumnError, ConfigError, OutputExists, OutputRefused
from hashring.spark.engine.column_checks import quoted
from hashring.spark.engine.counts_while_read import Counts
from hashring.spark.engine.interruptible import interruptible
from hashring.spark.engine.session_setting import settings
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.append_checks import check_points_alike
from hashring.spark.io.catalog_tables import (
    BEFORE,
    REPLACED,
    check_blanks,
    check_name,
    check_unpadded,
    copied_properties,
    describe_copy,
    detail_of,
    is_catalog,
    is_replaced_by_name,
    parts_of,
    properties_of,
    put_table_back,
    rename_table,
    schema_of,
)
from hashring.spark.io.job_file_names import (
    ANOTHER,
    beside_another,
    check_nothing_left,
    new_file_name,
    own_job,
    was_taken_away,
)
from hashring.spark.io.splitting_texts import splits_refused, without_splits
from hashring.spark.io.worker_disks import (
    OWN_DISKS,
    PRESENT,
    check_count,
    count_of_files,
    is_on_workers,
    rows_written,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

REPLACED_PARTS: Final = "partitionOverwriteMode"
"""The option of a writer, and the end of a setting, that says what an overwrite replaces."""
ALL_PARTS: Final = "static"
"""All partitions. Sessions are often set up to keep those without a new row: ``dynamic``."""
_SHARED_WAREHOUSE: Final = (
    "put spark.sql.warehouse.dir where all of them write to, such as s3a://..."
)
_MEANWHILE: Final = (
    "another process replaced it while rows were appended, and some of them or all are missing"
)
_APPEND_THE_REST: Final = "see which are there, and append the rest"
_LATER: Final = "start again when that process has ended"
_POLICY: Final = "spark.sql.storeAssignmentPolicy"


def check_table(spark: SparkSession, table: str, mode: str) -> None:
    """Check before the long work that a table can be written.

    A table whose replacement was killed between two renames gets its name back.

    Raises:
        OutputExists: it is there already, and the mode is ``error``.
        OutputRefused: it is no table, or cannot be replaced whole or not at all.
        ConfigError: no name of a table, or no such schema.
    """
    *schema, _ = parts_of(table)
    # A catalog may keep tables in no schema.
    in_catalog = not schema or (len(schema) == 1 and is_catalog(spark, schema[0]))
    if not in_catalog and not spark.catalog.databaseExists(schema_of(table)):
        raise ConfigError("table", table, f"there is no schema {'.'.join(schema)}")
    if not spark.catalog.tableExists(table):
        check_name(spark, table)
        if mode == "error":
            return
        put_table_back(spark, table)
        if not spark.catalog.tableExists(table):
            return
    if mode == "error":
        raise OutputExists(table)
    kind = spark.catalog.getTable(table).tableType
    if kind not in ("MANAGED", "EXTERNAL"):
        raise OutputRefused(table, f"it is {kind}, and no table")
    if mode == "append" or not is_replaced_by_name(spark, table):
        return
    if kind == "EXTERNAL":
        raise OutputRefused(table, "it is EXTERNAL: its files are not the catalog's to replace")
    copied_properties(spark, table)
    # Renamed, a table of this catalog looks for its partitions at the old name.
    if spark.conf.get("spark.sql.catalogImplementation") == "in-memory" and any(
        column.isPartition for column in spark.catalog.listColumns(table)
    ):
        raise OutputRefused(table, "a catalog in memory cannot replace a partitioned table")


def into_table(
    df: DataFrame, table: str, written: Counts | None, mode: str, options: Mapping[str, str]
) -> None:
    """Append to a table, or replace its rows.

    Raises:
        ColumnError: the table has other columns.
        ConfigError: it is a CSV of an encoding that Spark would split within characters.
        OutputRefused: it would hold other text than the rows; another process replaced it; or
            workers wrote to disks of their own.
    """
    spark = df.sparkSession
    check_blanks(df, table)
    there = spark.table(table).schema
    check_unpadded(df, there, table)
    fitted = without_splits(_fitted(df, there, table), table)
    with splits_refused(spark, table):
        _into_table(fitted, table, written, mode, options)


def _into_table(
    df: DataFrame, table: str, written: Counts | None, mode: str, options: Mapping[str, str]
) -> None:
    """Do so with a frame that fits."""
    spark = df.sparkSession
    fitted = df.write.options(**options)
    as_given = _values_as_given(spark)
    if not is_replaced_by_name(spark, table):
        is_all = mode == "overwrite"
        parts = {f"spark.sql.sources.{REPLACED_PARTS}": ALL_PARTS} if is_all else {}
        with settings(spark, parts | as_given):
            interruptible(spark, lambda: fitted.insertInto(table, overwrite=is_all))
        return
    if mode == "append":
        name = new_file_name(spark)
        _append(fitted, spark, table, name)
        check_rows(spark, table, table, written, name)
        return
    found = spark.catalog.getTable(table)
    place = "".join(f"{quoted(part)}." for part in found.namespace or ())
    aside = f"{place}{quoted(f'{found.name}_{uuid.uuid4().hex[:8]}')}"
    before = f"{place}{quoted(f'{found.name}_{uuid.uuid4().hex[:8]}{BEFORE}')}"
    whole = f"{place}{quoted(found.name)}"
    drop = partial(spark.sql, f"DROP TABLE IF EXISTS {aside}")
    try:
        spark.sql(f"CREATE TABLE {aside} LIKE {whole}")
        describe_copy(spark, whole, aside, found.description)
        with settings(spark, as_given):
            interruptible(spark, lambda: fitted.insertInto(aside), drop)
        check_rows(spark, aside, table, written)
        try:
            rename_table(spark, whole, before)
            rename_table(spark, aside, whole)
            spark.sql(f"DROP TABLE IF EXISTS {before}")
        except BaseException as error:
            if spark.catalog.tableExists(before):
                if not spark.catalog.tableExists(whole):
                    rename_table(spark, before, whole)
                elif spark.catalog.tableExists(aside):
                    raise OutputRefused(
                        table,
                        f"another process made it meanwhile; what it replaced is in {before}",
                        "drop one of the two, and start again",
                    ) from error
                else:
                    spark.sql(f"DROP TABLE {before}")
            elif isinstance(error, SPARK_ERRORS):
                raise OutputRefused(table, "another process replaces it", _LATER) from error
            raise
    finally:
        drop()


def _fitted(df: DataFrame, there: StructType, table: str) -> DataFrame:
    """The frame with its columns in the order of a table."""
    named = {name.lower(): name for name in df.columns}
    if {name.lower() for name in there.names} != set(named):
        raise ColumnError(
            ", ".join(there.names),
            f"are the columns of {table}; the job writes {', '.join(df.columns)}: name another",
        )
    # By its own names: Spark may be set up to tell cases apart.
    fitted = df.select(*(quoted(named[name.lower()]) for name in there.names))
    for column, given in zip(there, fitted.schema, strict=True):
        # A table keeps what it has of its columns, also when all rows are replaced.
        check_points_alike(column, given, table)
        _check_fields(column, given, table)
    return fitted


def _check_fields(there: StructField, given: StructField, table: str) -> None:
    """Raise ``ColumnError`` unless structs have the same fields: Spark writes them by position."""
    fields = _fields(there.dataType, there.name), _fields(given.dataType, there.name)
    for field, written in zip_longest(*fields, fillvalue=""):
        if field.lower() != written.lower():
            raise ColumnError(
                there.name,
                f"has {field or 'no field'} in {table} where the job writes "
                f"{written or 'no field'}: give the fields of the struct in the order of the "
                f"table, as with --schema",
            )


def _fields(kind: DataType, path: str) -> list[str]:
    """The names of all fields within a type, in their order."""
    if isinstance(kind, UserDefinedType):
        return _fields(kind.sqlType(), path)
    if isinstance(kind, ArrayType):
        return _fields(kind.elementType, f"{path}[]")
    if isinstance(kind, MapType):
        return [*_fields(kind.keyType, f"{path}.key"), *_fields(kind.valueType, f"{path}.value")]
    if not isinstance(kind, StructType):
        return []
    names = {f"{path}.{field.name}": field.dataType for field in kind}
    return [name for at, held in names.items() for name in (at, *_fields(held, at))]


def _values_as_given(spark: SparkSession) -> dict[str, str]:
    """The settings with which Spark refuses what a column cannot hold.

    As Spark 2 did, it would write null or another number in its place.
    """
    is_old = (spark.conf.get(_POLICY, None) or "").upper() == "LEGACY"
    return {_POLICY: "ANSI"} if is_old else {}


def _append(writer: DataFrameWriter, spark: SparkSession, table: str, name: str) -> None:
    """Append to a table that other processes may replace.

    Args:
        name: with which the names of the files are to begin; empty for Spark's own.

    Raises:
        OutputRefused: one has done so meanwhile. Spark then writes a part of the rows, or all,
            to where the table was. Or another appended, and took away what Spark had not committed.
    """
    before = properties_of(spark, table).get(REPLACED)
    try:
        with settings(spark, own_job(name) | _values_as_given(spark)):
            interruptible(spark, lambda: writer.insertInto(table))
    except SPARK_ERRORS as error:
        if _replaced_since(spark, table, before):
            raise OutputRefused(table, _MEANWHILE, _APPEND_THE_REST) from error
        if was_taken_away(error):
            raise OutputRefused(
                table, f"some rows or all are missing: {ANOTHER}", beside_another(name)
            ) from error
        check_nothing_left(spark, detail_of(spark, table, "Location"), name, table, error)
        raise
    if _replaced_since(spark, table, before):
        raise OutputRefused(table, _MEANWHILE, _APPEND_THE_REST)


def _replaced_since(spark: SparkSession, table: str, before: str | None) -> bool:
    try:
        return properties_of(spark, table).get(REPLACED) != before
    except SPARK_ERRORS:
        return True  # it is being renamed


def check_rows(
    spark: SparkSession, made: str, table: str, written: Counts | None, name: str = ""
) -> None:
    """Check that a table has all rows that were written to it.

    Args:
        made: the table's name while it is written.
        table: its name.
        name: with which the names of the written files begin, where others are there, too.

    Raises:
        OutputRefused: it has not.
    """
    on_workers = is_on_workers(spark, detail_of(spark, made, "Location"))
    if written is None or not (name or on_workers):
        return
    rows = rows_written(written, on_workers)
    if rows is not None:
        found = count_of_files(spark.read.options(**PRESENT).table(made), name)
        # More would be of lines that the table's own options cut, and none is lost.
        why = (OWN_DISKS, _SHARED_WAREHOUSE) if on_workers else (ANOTHER, beside_another(name))
        check_count(min(found, rows), rows, table, *why)
