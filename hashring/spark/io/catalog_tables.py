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


def check_outlives(spark: SparkSession, table: str) -> None:
    """Check that a table is still known when the session, which has just begun, ends.

    Else its files would be in the warehouse and no later session know of the table, or be able to
    write it.

    Raises:
        ConfigError: the table's catalog is in the memory of the session.
    """
    catalog = table.partition(".")[0].strip("`") if "." in table else ""
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
    first = table.partition(".")[0].strip("`")
    if "." not in table or not is_catalog(spark, first):
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
    told = {key.lower(): value.lower() for key, value in properties_of(spark, table).items()}
    names = ("ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace")
    if any(told.get(f"option.{name}".lower()) != "false" for name in names):
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


def describe_copy(spark: SparkSession, table: str, copy: str, comment: str | None) -> None:
    """Give a copy of a table what ``LIKE`` leaves out: its properties, and its comment."""
    found = {**properties_of(spark, table), REPLACED: uuid.uuid4().hex}
    # What begins so are the options of its format.
    properties = ", ".join(
        f"{_literal(key)} = {_literal(value)}"
        for key, value in found.items()
        if not key.startswith("option.")
    )
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
    """
    if catalog_of(spark, table) != SPARK_CATALOG:
        return  # its formats replace their rows themselves
    schema, _, name = table.rpartition(".")
    name = name.strip("`")
    within = f" IN {schema}" if schema else ""
    pattern = _literal(f"{name}_*{BEFORE}")
    wanted = re.compile(rf"{re.escape(name)}_[0-9a-f]{{8}}{BEFORE}", re.IGNORECASE)
    for found in spark.sql(f"SHOW TABLES{within} LIKE {pattern}").collect():
        if wanted.fullmatch(found["tableName"]) and not found["isTemporary"]:
            place = f"{schema}." if schema else ""
            try:
                rename_table(spark, f"{place}{quoted(found['tableName'])}", table)
            except SPARK_ERRORS:
                # It may have been between the two, and is done by now.
                if not spark.catalog.tableExists(table):
                    raise
            return


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
