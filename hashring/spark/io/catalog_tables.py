"""Ask the session's catalogs about tables, and give tables their names and properties there.

Spark's own catalog replaces no table in one step. So a new table gets the properties of the old
one, and its name by two renames.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads
from pyspark.sql.types import StringType, StructType

from hashring.core.safe_text import printable
from hashring.errors import ConfigError, OutputRefused
from hashring.spark.engine.column_checks import char_type, quoted
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.file_formats import FILE_FORMATS, format_name

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_CATALOG: Final = "spark_catalog"
REPLACED: Final = "hashring.replaced"
"""A property of a table whose rows were replaced: a new value each time."""
BEFORE: Final = "_before"
"""How the name ends that a table has between the two renames that replace it."""
_PART: Final = re.compile(r"`((?:[^`]|``)+)`|(\w+)", re.ASCII)
_OF_SPARK: Final = re.compile(r"\w+", re.ASCII)
"""The names that Spark's own catalog takes for tables."""
_OPTION: Final = "option."
"""How the names of the options of a table's format begin among its properties."""
_HIDDEN: Final = "*********(redacted)"
"""What Spark shows in place of a value that its settings hide."""


def parts_of(table: str) -> tuple[str, ...]:
    """The names of the catalog, the schema and the table in the name of a table.

    Spark itself also takes blanks and comments. What is put at the end of such a name, for a table
    beside it, would be a part of the comment.

    Raises:
        ConfigError: it is no name of a table.
    """
    found, at = [], 0
    while part := _PART.match(table, at):
        quoted_part, plain = part.groups()
        found.append(plain or quoted_part.replace("``", "`"))
        if part.end() == len(table):
            return tuple(found)
        if table[part.end()] != ".":
            break
        at = part.end() + 1
    raise ConfigError(
        "table", table, "is no name of a table; put names with other characters in backticks"
    )


def schema_of(table: str) -> str:
    """The name of the schema in the name of a table, as Spark reads it; empty if it has none."""
    return ".".join(map(quoted, parts_of(table)[:-1]))


def check_name(spark: SparkSession, table: str) -> None:
    """Check that a new table can have a name.

    Raises:
        ConfigError: Spark's own catalog takes no such name.
    """
    name = parts_of(table)[-1]
    if catalog_of(spark, table) == SPARK_CATALOG and not _OF_SPARK.fullmatch(name):
        raise ConfigError(
            "table", table, "Spark's own catalog takes ASCII letters, digits and _ in a name"
        )


def check_outlives(spark: SparkSession, table: str) -> None:
    """Check that a table is still known when the session, which has just begun, ends.

    Else its files would be in the warehouse and no later session know of the table, or be able to
    write it.

    Raises:
        ConfigError: the table's catalog is in the memory of the session.
    """
    first, *more = parts_of(table)
    catalog = first if more else ""
    if not spark.conf.get(f"spark.sql.catalog.{catalog}", None):
        catalog = spark.conf.get("spark.sql.defaultCatalog", SPARK_CATALOG) or SPARK_CATALOG
    if spark.conf.get(f"spark.sql.catalog.{catalog}", None):
        return  # It keeps its tables where its own settings say.
    if spark.conf.get("spark.sql.catalogImplementation") == "in-memory":
        raise ConfigError(
            "table",
            table,
            "its catalog is in memory, and ends with this command: give --conf "
            "spark.sql.catalogImplementation=hive, the settings of another catalog, or --output",
        )


def catalog_of(spark: SparkSession, table: str) -> str:
    """The name of the catalog in which Spark looks for a table of this name."""
    first, *more = parts_of(table)
    if not more or not is_catalog(spark, first):
        return spark.catalog.currentCatalog()
    return SPARK_CATALOG if first.lower() == SPARK_CATALOG else first


def is_catalog(spark: SparkSession, name: str) -> bool:
    """Whether a catalog has this name, which goes before a schema of the same name."""
    return name.lower() == SPARK_CATALOG or bool(spark.conf.get(f"spark.sql.catalog.{name}", None))


def provider_of(spark: SparkSession, table: str) -> str | None:
    """The format of a table; ``None`` if the catalog does not name it."""
    told = detail_of(spark, table, "Provider")
    return format_name(told).lower() if told else None


def detail_of(spark: SparkSession, table: str, name: str) -> str | None:
    """What the catalog has of a table under a name; ``None`` if it has nothing."""
    told = spark.sql(f"DESCRIBE TABLE EXTENDED {table}").where(F.col("col_name") == name).collect()
    return told[-1]["data_type"] if told else None


def properties_of(spark: SparkSession, table: str) -> dict[str, str]:
    """The properties of a table, and the options of its format as ``option.<name>``."""
    found = spark.sql(f"SHOW TBLPROPERTIES {table}").collect()
    return {row["key"]: row["value"] for row in found}


def options_of(spark: SparkSession, table: str) -> dict[str, str]:
    """The options of a table's format, by their names in lower case."""
    return {
        name.removeprefix(_OPTION).lower(): value
        for name, value in properties_of(spark, table).items()
        if name.startswith(_OPTION)
    }


def is_replaced_by_name(spark: SparkSession, table: str) -> bool:
    """Whether Spark would delete the table's files first; else its format replaces rows itself."""
    if spark.catalog.getTable(table).catalog != SPARK_CATALOG:
        return False
    return provider_of(spark, table) in (*FILE_FORMATS, "hive")


def check_blanks(df: DataFrame, table: str) -> None:
    """Raise ``OutputRefused`` if a table cuts off blanks of text, by its own options."""
    spark = df.sparkSession
    has_text = any(isinstance(field.dataType, StringType) for field in df.schema)
    if not has_text or provider_of(spark, table) != "csv":
        return
    told = options_of(spark, table)
    names = ("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace")
    if any(told.get(name.lower(), "").lower() != "false" for name in names):
        wanted = ", ".join(f"'{name}'='false'" for name in names)
        raise OutputRefused(
            table,
            f"it cuts off the blanks of keys; ALTER TABLE {table} SET SERDEPROPERTIES "
            f"({wanted}) keeps them",
            "change it so, or name another table",
        )


def check_unpadded(df: DataFrame, there: StructType, table: str) -> None:
    """Raise ``OutputRefused`` if a table with these columns pads text of the rows with blanks."""
    kinds = {column.name.lower(): char_type(column) for column in there}
    for column in df.schema:
        kind = kinds.get(column.name.lower())
        if kind and kind != char_type(column):
            raise OutputRefused(
                table,
                f"its column {column.name} is {kind}, which Spark pads with blanks, and so another "
                f"text",
                "make the column VARCHAR or STRING, or name another table",
            )


def copied_properties(spark: SparkSession, table: str) -> dict[str, str]:
    """The properties that a copy of a table needs: all but the options of its format.

    Raises:
        OutputRefused: Spark hides the value of one, which the copy would lose.
    """
    found = {
        name: value
        for name, value in properties_of(spark, table).items()
        if not name.startswith(_OPTION)
    }
    if hidden := [printable(name) for name, value in found.items() if value == _HIDDEN]:
        raise OutputRefused(
            table,
            f"Spark hides the value of its property {hidden[0]}, which a replaced table would lose",
            "set spark.redaction.regex and spark.sql.redaction.options.regex to a^ with --conf, or "
            "remove the property",
        )
    return found


def describe_copy(spark: SparkSession, table: str, copy: str, comment: str | None) -> None:
    """Give a copy of a table what ``LIKE`` leaves out: its properties, and its comment."""
    found = {**copied_properties(spark, table), REPLACED: uuid.uuid4().hex}
    properties = ", ".join(f"{_literal(key)} = {_literal(value)}" for key, value in found.items())
    spark.sql(f"ALTER TABLE {copy} SET TBLPROPERTIES ({properties})")
    if comment:
        spark.sql(f"COMMENT ON TABLE {copy} IS {_literal(comment)}")


def rename_table(spark: SparkSession, table: str, name: str) -> None:
    """Rename a table of Spark's catalog, which refuses its own name in the new one."""
    within = re.sub(rf"\A(`?){SPARK_CATALOG}\1\.", "", name, flags=re.IGNORECASE)
    spark.sql(f"ALTER TABLE {table} RENAME TO {within}")


def put_table_back(spark: SparkSession, table: str) -> None:
    """Give a table its name again if a process that replaced it was killed between two renames.

    A process that is between the two at this moment is refused, and changes nothing.

    Raises:
        OutputRefused: several such kills left a table each, and nobody knows which to take.
    """
    if catalog_of(spark, table) != SPARK_CATALOG:
        return  # its formats replace their rows themselves
    schema, name = schema_of(table), parts_of(table)[-1]
    within = f" IN {schema}" if schema else ""
    pattern = _literal(f"{name}_*{BEFORE}")
    wanted = re.compile(rf"{re.escape(name)}_[0-9a-f]{{8}}{BEFORE}", re.IGNORECASE)
    found = [
        row["tableName"]
        for row in spark.sql(f"SHOW TABLES{within} LIKE {pattern}").collect()
        if wanted.fullmatch(row["tableName"]) and not row["isTemporary"]
    ]
    if len(found) > 1:
        raise OutputRefused(
            table,
            f"jobs that replaced it were killed, and left {' and '.join(sorted(found))}",
            "give the one with the rows that you need this name, and drop the others",
        )
    place = f"{schema}." if schema else ""
    for before in found:
        try:
            rename_table(spark, f"{place}{quoted(before)}", table)
        except SPARK_ERRORS:
            # It may have been between the two, and is done by now.
            if not spark.catalog.tableExists(table):
                raise


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
