"""Tables: put back after a kill, and made as their catalog chooses."""

import re
import subprocess
import sys
import uuid
from ast import literal_eval

import pytest
from pyspark.sql import DataFrameWriter

from hashring.core.ring import Ring
from hashring.errors import ColumnError, ConfigError, OutputExists, OutputRefused
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.input import read_table
from hashring.spark.io.output import MODES, Output
from hashring.spark.lookup.owner_columns import with_owner
from tests.conftest import ROOT


class _Killed(BaseException):
    """The process is gone: whatever it asks Spark from now on, nothing happens."""


def ids(df):
    return sorted(row.id for row in df.select("id").collect())


def names(spark):
    return {row.tableName for row in spark.sql("SHOW TABLES").collect()}


@pytest.fixture
def lost(spark, monkeypatch):
    """A table that held 0 and 1, whose replacement was killed between the two renames."""
    spark.sql("DROP TABLE IF EXISTS lost")
    spark.range(2).write.saveAsTable("lost")
    sql, renamed = type(spark).sql, []

    def killed(session, text, *more):
        if renamed:
            raise _Killed
        found = sql(session, text, *more)
        if "RENAME TO" in text:
            renamed.append(text)
        return found

    with monkeypatch.context() as patch:
        patch.setattr(type(spark), "sql", killed)
        with pytest.raises(_Killed):
            Output(None, table="lost", mode="overwrite").write(spark.range(7, 9))
    assert not spark.catalog.tableExists("lost")
    yield "lost"
    for name in names(spark):
        if name.startswith("lost"):
            spark.sql(f"DROP TABLE {name}")


@pytest.mark.parametrize(
    ("mode", "held", "name"),
    [
        pytest.param(mode, held, name, marks=() if name in usual else pytest.mark.long)
        for mode, held, usual in (
            ("append", [0, 1, 5], ("spark_catalog.default.lost",)),
            ("overwrite", [5], ("default.`lost`",)),
        )
        for name in ("lost", "default.`lost`", "spark_catalog.default.lost")
    ],
)
@pytest.mark.usefixtures("lost")
def test_a_table_whose_replacement_was_killed_is_put_back(spark, mode, held, name):
    Output(None, table=name, mode=mode).write(spark.range(5, 6))
    assert ids(spark.table("lost")) == held
    assert not any(other.endswith("_before") for other in names(spark))


@pytest.mark.usefixtures("lost")
def test_of_tables_of_two_kills_nobody_puts_back_any(spark):
    spark.range(7, 9).write.saveAsTable("lost_89abcdef_before")
    left = sorted(name for name in names(spark) if name.endswith("_before"))
    with pytest.raises(OutputRefused, match=f"were killed, and left {' and '.join(left)}"):
        Output(None, table="lost", mode="append").write(spark.range(5, 6))
    assert set(left) <= names(spark)
    assert not spark.catalog.tableExists("lost")


def test_a_table_of_a_like_name_is_not_taken_for_one_that_was_replaced(spark):
    for name in ("made", "made_20240101", "made_x_before", "other_0123abcd_before"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")
    try:
        for name in ("made_20240101", "made_x_before", "other_0123abcd_before"):
            spark.range(2).write.saveAsTable(name)
        Output(None, table="made", mode="append").write(spark.range(5, 6))
        assert ids(spark.table("made")) == [5]
        assert {"made_20240101", "made_x_before", "other_0123abcd_before"} <= names(spark)
    finally:
        for name in ("made", "made_20240101", "made_x_before", "other_0123abcd_before"):
            spark.sql(f"DROP TABLE IF EXISTS {name}")


def test_a_table_that_was_put_back_while_it_was_replaced_keeps_its_rows(spark, monkeypatch):
    spark.sql("DROP TABLE IF EXISTS whole")
    spark.range(2).write.saveAsTable("whole")
    sql = type(spark).sql

    def put_back_first(session, text, *more):
        found = sql(session, text, *more)
        if "RENAME TO" in text:
            monkeypatch.undo()
            Output(None, table="whole", mode="append").write(spark.range(5, 6))
        return found

    monkeypatch.setattr(type(spark), "sql", put_back_first)
    with pytest.raises(OutputRefused, match="another process replaces it"):
        Output(None, table="whole", mode="overwrite").write(spark.range(7, 9))
    assert ids(spark.table("whole")) == [0, 1, 5]
    assert not any(name.startswith("whole_") for name in names(spark))
    spark.sql("DROP TABLE whole")


def test_a_table_that_others_made_between_the_two_renames_costs_no_row(spark, monkeypatch):
    spark.sql("DROP TABLE IF EXISTS whole")
    spark.range(2).write.saveAsTable("whole")
    sql = type(spark).sql

    def made_first(session, text, *more):
        found = sql(session, text, *more)
        if "RENAME TO" in text:
            monkeypatch.undo()
            spark.range(5, 6).write.saveAsTable("whole")
        return found

    monkeypatch.setattr(type(spark), "sql", made_first)
    with pytest.raises(OutputRefused, match=r"made it meanwhile; what it replaced is in \S*before"):
        Output(None, table="whole", mode="overwrite").write(spark.range(7, 9))
    assert ids(spark.table("whole")) == [5]
    (before,) = (name for name in names(spark) if name.endswith("_before"))
    assert ids(spark.table(before)) == [0, 1]
    for name in ("whole", before):
        spark.sql(f"DROP TABLE {name}")


@pytest.fixture
def lake(spark):
    """The name of a catalog whose tables are in a database, and may be in no schema of it."""
    name = f"lake_{uuid.uuid4().hex[:8]}"
    settings = {
        f"spark.sql.catalog.{name}": "org.apache.spark.sql.execution.datasources.v2.jdbc."
        "JDBCTableCatalog",
        f"spark.sql.catalog.{name}.url": f"jdbc:derby:memory:{name};create=true",
        f"spark.sql.catalog.{name}.driver": "org.apache.derby.jdbc.EmbeddedDriver",
    }
    for setting, value in settings.items():
        spark.conf.set(setting, value)
    yield name
    spark.sql("USE spark_catalog.default")
    for setting in settings:
        spark.conf.unset(setting)


@pytest.mark.parametrize("place", ["{lake}.T", "{lake}.APP.T", "`{lake}`.APP.`T`", "T"])
def test_a_new_table_of_a_catalog_has_the_format_that_the_catalog_chooses(spark, lake, place):
    table = place.format(lake=lake)
    if table == "T":
        spark.sql(f"USE {lake}")
    output = Output(None, table=table)
    output.check(spark)
    assert output.kept_as(spark) is None
    output.write(spark.range(3))
    assert ids(spark.table(table)) == [0, 1, 2]
    Output(None, table=table, mode="append").write(spark.range(3, 5))
    assert ids(spark.table(table)) == [0, 1, 2, 3, 4]
    Output(None, table=table, mode="overwrite").write(spark.range(7, 9))
    assert ids(read_table(spark, table).frame) == [7, 8]
    with pytest.raises(OutputExists):
        output.write(spark.range(3))


@pytest.mark.parametrize("name", ["`a.b`", "APP.`x y`", "APP.`tablé`", "`it``s`"])
def test_a_table_of_a_catalog_may_have_any_name_in_backticks(spark, lake, name):
    for mode, held in (("error", [0, 1]), ("append", [0, 0, 1, 1]), ("overwrite", [0, 1])):
        Output(None, table=f"{lake}.{name}", mode=mode).write(spark.range(2))
        assert ids(spark.table(f"{lake}.{name}")) == held


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("made -- c", "is no name of a table; put"),
        ("made ", "is no name of a table; put"),
        ("default.", "is no name of a table; put"),
        ("`made", "is no name of a table; put"),
        ("`made.b`", "takes ASCII letters, digits and _"),
        ("default.`tablé`", "takes ASCII letters, digits and _"),
    ],
)
@pytest.mark.parametrize("mode", MODES)
def test_a_name_that_sparks_own_catalog_does_not_take_is_refused_at_once(spark, name, text, mode):
    with pytest.raises(ConfigError, match=text):
        Output(None, table=name, mode=mode).check(spark)


def test_a_table_of_which_spark_hides_a_property_is_not_replaced(spark):
    properties = "'source.url' = 'https://example.org', 'kind' = 'a'"
    spark.sql("DROP TABLE IF EXISTS secret")
    spark.sql(f"CREATE TABLE secret USING parquet TBLPROPERTIES ({properties}) AS SELECT 1L AS id")
    output = Output(None, table="secret", mode="overwrite")
    with pytest.raises(OutputRefused, match=r"hides the value of its property source\.url"):
        output.check(spark)
    hides = "spark.sql.redaction.options.regex"
    spark.conf.set(hides, "a^")
    try:
        output.write(spark.range(7, 9))
        (found,) = spark.sql("SHOW TBLPROPERTIES secret ('source.url')").collect()
        assert found["value"] == "https://example.org"
    finally:
        spark.conf.unset(hides)
    assert ids(spark.table("secret")) == [7, 8]
    spark.sql("DROP TABLE secret")


def test_a_table_of_a_catalog_that_another_made_meanwhile_is_refused(spark, lake, monkeypatch):
    spark.range(3).writeTo(f"{lake}.T").create()
    monkeypatch.setattr(Output, "check", lambda *_: None)
    monkeypatch.setattr(type(spark.catalog), "tableExists", lambda *_: False)
    with pytest.raises(OutputExists):
        Output(None, table=f"{lake}.T").write(spark.range(3))


def test_a_schema_that_a_catalog_does_not_have_is_refused(spark, lake):
    for table in (f"{lake}.nowhere.T", "nowhere.T"):
        with pytest.raises(ConfigError, match="there is no schema"):
            Output(None, table=table).check(spark)


def test_a_new_table_may_be_named_with_sparks_own_catalog(spark):
    spark.sql("DROP TABLE IF EXISTS made")
    for mode in ("error", "append", "overwrite"):
        Output(None, table="spark_catalog.default.made", mode=mode).write(spark.range(2))
    assert ids(spark.table("made")) == [0, 1]
    spark.sql("DROP TABLE made")


def test_a_table_of_a_catalog_is_replaced_whole_whatever_a_session_keeps(
    spark, lake, dynamic, monkeypatch
):
    table = f"{lake}.APP.T"
    Output(None, table=table).write(spark.range(2))
    insert, kept = DataFrameWriter.insertInto, []

    def insert_into(writer, *given, **more):
        kept.append(spark.conf.get(dynamic))
        insert(writer, *given, **more)

    monkeypatch.setattr(DataFrameWriter, "insertInto", insert_into)
    Output(None, table=table, mode="overwrite").write(spark.range(7, 9))
    assert ids(spark.table(table)) == [7, 8]
    # A database has no partitions: Iceberg and Delta read the setting as they insert.
    assert kept == ["static"]
    assert spark.conf.get(dynamic) == "dynamic"


def test_a_new_table_lets_later_sessions_choose_which_partitions_they_replace(spark, dynamic):
    spark.sql("DROP TABLE IF EXISTS parted")
    Output(None, table="parted").write(spark.range(4).selectExpr("id", "id % 2 AS p"), ["p"])
    spark.sql("INSERT OVERWRITE parted SELECT 7L AS id, 1L AS p")
    assert ids(spark.table("parted")) == [0, 2, 7]
    spark.sql("DROP TABLE parted")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_table_of_points_takes_none_of_another_key(spark, mode):
    spark.sql("DROP TABLE IF EXISTS kept")
    people = spark.sql("SELECT 'a' AS account, 'b' AS email")
    Output(None, table="kept").write(with_owner(people, Ring({"n": [0]}), "account"))
    text = "'point' is made by key=account in kept; the job makes it by key=email"
    with pytest.raises(ColumnError, match=text):
        Output(None, table="kept", mode=mode).write(with_owner(people, Ring({"n": [0]}), "email"))
    Output(None, table="kept", mode=mode).write(with_owner(people, Ring({"m": [0]}), "account"))
    assert spark.table("kept").where("owner = 'm'").count() == 1
    spark.sql("DROP TABLE kept")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_no_value_becomes_another_to_fit_into_a_table(spark, mode):
    policy = "spark.sql.storeAssignmentPolicy"
    spark.sql("DROP TABLE IF EXISTS narrow")
    spark.sql("CREATE TABLE narrow USING parquet AS SELECT 1 AS id")
    spark.conf.set(policy, "legacy")
    try:
        with pytest.raises(SPARK_ERRORS, match="CAST_OVERFLOW"):
            Output(None, table="narrow", mode=mode).write(spark.range(2**32 - 1, 2**32))
        assert spark.conf.get(policy).lower() == "legacy"
    finally:
        spark.conf.unset(policy)
    assert ids(spark.table("narrow")) == [1]
    spark.sql("DROP TABLE narrow")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_columns_of_a_table_may_be_of_another_case(spark, mode):
    spark.sql("DROP TABLE IF EXISTS cased")
    spark.sql("CREATE TABLE cased USING parquet AS SELECT 'n' AS Owner, 1L AS Id")
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        rows = spark.sql("SELECT 2L AS id, 'm' AS owner")
        Output(None, table="cased", mode=mode).write(rows)
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert spark.table("cased").where("id = 2 AND owner = 'm'").count() == 1
    spark.sql("DROP TABLE cased")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize(
    ("column", "path"),
    [
        ("{}", ""),
        ("array({})", "[]"),
        ("map('k', {})", ".value"),
        ("named_struct('at', {})", ".at"),
    ],
)
def test_no_field_of_a_struct_is_taken_for_another(spark, mode, column, path):
    there = column.format("named_struct('street', 'S', 'City', 'C')")
    swapped = column.format("named_struct('city', 'C', 'street', 'S')")
    spark.sql("DROP TABLE IF EXISTS homes")
    spark.sql(f"CREATE TABLE homes USING parquet AS SELECT {there} AS home")
    output = Output(None, table="homes", mode=mode)
    text = f"'home' has home{path}.street in homes where the job writes home{path}.city: give the"
    with pytest.raises(ColumnError, match=re.escape(text)):
        output.write(spark.sql(f"SELECT {swapped} AS home"))
    output.write(spark.sql(f"SELECT {there.replace('City', 'city')} AS home"))
    homes = spark.table("homes").selectExpr("to_json(home) AS home").collect()
    assert len({row.home for row in homes}) == 1
    spark.sql("DROP TABLE homes")


def test_a_struct_of_other_fields_is_refused(spark):
    spark.sql("DROP TABLE IF EXISTS homes")
    spark.sql("CREATE TABLE homes USING parquet AS SELECT named_struct('a', 1, 'b', 2) AS home")
    text = r"'home' has home\.b in homes where the job writes no field"
    with pytest.raises(ColumnError, match=text):
        Output(None, table="homes", mode="append").write(
            spark.sql("SELECT named_struct('a', 1) AS home")
        )
    spark.sql("DROP TABLE homes")


@pytest.fixture
def keys(spark):
    """Frames of keys, in one file each; and no table ``keys``."""
    spark.sql("DROP TABLE IF EXISTS keys")
    yield lambda *texts: spark.createDataFrame([(text,) for text in texts], "key STRING").coalesce(
        1
    )
    spark.sql("DROP TABLE IF EXISTS keys")


# Spark takes the first line break of a file for the end of all of its lines, unless told.
BREAKS = ("a\rb", "c\nd", "e\r\nf", 'g"\n"h')


def test_a_new_table_of_csv_keeps_line_breaks_for_every_session(spark, keys):
    Output(None, "csv", "keys").write(keys(*BREAKS))
    Output(None, None, "keys", "append").write(keys(*BREAKS))
    found = [row.key for row in spark.newSession().table("keys").collect()]
    assert found == [*BREAKS, *BREAKS]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize(
    ("options", "text"),
    [("", "a\nb"), ("", "a\rb"), ("lineSep=';',", "a;b"), ("multiLine=true,", "a\rb")],
)
def test_a_table_of_csv_that_would_split_a_key_is_refused(spark, keys, mode, options, text):
    spark.sql(
        f"CREATE TABLE keys (key STRING) USING csv OPTIONS ({options} "
        f"ignoreLeadingWhiteSpace=false, ignoreTrailingWhiteSpace=false)"
    )
    output = Output(None, None, "keys", mode)
    output.write(keys("whole"))
    with pytest.raises(OutputRefused, match="a text of column key holds a line break") as told:
        output.write(keys("other", text))
    assert [row.key for row in spark.table("keys").collect()] == ["whole"]
    spark.sql(re.search(r"ALTER TABLE .*?\)", str(told.value))[0])
    output.write(keys("other", text))
    assert {"other", text} <= {row.key for row in spark.table("keys").collect()}


def test_a_property_of_a_table_is_no_option_of_its_format(spark, keys):
    spark.sql(
        "CREATE TABLE keys (key STRING) USING csv OPTIONS (ignoreLeadingWhiteSpace=false, "
        "ignoreTrailingWhiteSpace=false) TBLPROPERTIES (multiLine=true, lineSep='x')"
    )
    with pytest.raises(OutputRefused, match="a text of column key holds a line break"):
        Output(None, None, "keys", "append").write(keys("a\nb"))


@pytest.mark.parametrize("options", ["", "multiLine=true, lineSep='\n',"])
def test_a_text_that_a_table_of_csv_reads_as_null_is_refused(spark, keys, options):
    spark.sql(
        f"CREATE TABLE keys (key STRING) USING csv OPTIONS ({options} nullValue='NA', "
        f"ignoreLeadingWhiteSpace=false, ignoreTrailingWhiteSpace=false)"
    )
    output = Output(None, None, "keys", "append")
    output.write(keys("NA ", "NAB"))
    with pytest.raises(OutputRefused, match="key holds a line break, or is the table's text for n"):
        output.write(keys("other", "NA"))
    assert {row.key for row in spark.table("keys").collect()} == {"NA ", "NAB"}


@pytest.mark.long  # A Java of its own. The tables of CSV above take the same way.
def test_a_table_of_hive_keeps_each_key_or_refuses_it(tmp_path):
    command = [sys.executable, "-m", "tests.spark.hive_table_process", str(tmp_path)]
    told = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True)
    found = {}
    for line in told.stdout.splitlines():
        table, refused, missing = literal_eval(line.replace("set()", "()"))
        assert set(refused) == set(missing)
        found[table] = refused
    assert found == {
        "made": ["a\nb", "a\rb", "a\x01b", "\\N"],
        "escaped": ["a\nb", "a\rb"],
        "new": ["a\nb", "a\rb", "a\x01b", "\\N"],
        "columnar": [],
        "nulls": ["a\nb", "a\rb", "a\x01b", "NA"],
        "quotes": ["a\nb", "a\rb", "\\N", "a\\b", "a\\"],
        "quotes_escaped": ["a\nb", "a\rb"],
    }
