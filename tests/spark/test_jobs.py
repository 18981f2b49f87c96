"""The jobs: whole outputs, counted losses, and a word instead of a traceback."""

import csv
import gzip
import io
import json
import re
import shutil
import uuid
import warnings
from datetime import date
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.sql import functions as F  # noqa: N812

from hashring.cli.common_options import Settings
from hashring.cli.spark import spark_group
from hashring.cli.spark.inputs import read_events
from hashring.cli.spark.terminal_answer import table_lines
from hashring.core.ring import Ring
from hashring.core.ring_history import ring_history
from hashring.core.ring_json import RingFile
from hashring.errors import (
    ColumnError,
    ConfigError,
    EmptyRingError,
    InputDamaged,
    NoDataError,
    OutputExists,
    OutputRefused,
    RingFileError,
    SparkFailed,
    UnknownNodeError,
)
from hashring.ring_files import read_ring, write_ring
from hashring.spark.analysis.html_report import Report
from hashring.spark.engine.counts_while_read import Counts
from hashring.spark.engine.spark_failures import SPARK_ERRORS, failure
from hashring.spark.io.input import (
    CORRUPT,
    OF_READER,
    Input,
    read_frame,
    read_stream,
    read_table,
)
from hashring.spark.io.listed_files import addresses
from hashring.spark.io.output import Output
from hashring.spark.io.owner_directories import partition_by_owner
from hashring.spark.io.worker_disks import check_whole
from hashring.spark.jobs import assign_job, audit_job, kept, load_job, plan_job
from hashring.spark.jobs.outcome import Table
from hashring.spark.periods.history_from_events import history_of
from tests.spark.conftest import damage, keep, on_workers, rows
from tests.spark.test_owner import random_ring
from tests.unit.test_ring_history import change


def run(*arguments):
    """Run ``hashring spark``; returns what it printed, as names to values."""
    result = CliRunner().invoke(spark_group, [str(a) for a in arguments])
    if isinstance(result.exception, SystemExit):
        raise AssertionError(result.output)
    if result.exception:
        raise result.exception
    if "--json" in arguments:
        return json.loads(result.stdout)
    pairs = [re.split(r"\s{2,}", line.strip(), maxsplit=1) for line in result.output.splitlines()]
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def refused(*arguments):
    result = CliRunner().invoke(spark_group, [str(a) for a in arguments])
    assert result.exit_code == 2
    return result.output


@pytest.fixture
def old_parser(spark):
    """A session that reads times in text as Spark 2 did."""
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "LEGACY")
    yield
    spark.conf.unset("spark.sql.legacy.timeParserPolicy")


@pytest.fixture
def ring_file(tmp_path):
    path = tmp_path / "ring.json"
    write_ring(RingFile(random_ring(4, 8), "accounts", 3), path)
    return path


@pytest.fixture(scope="module")
def keys(spark, tmp_path_factory):
    """Keys that no test changes."""
    path = tmp_path_factory.mktemp("keys") / "keys.parquet"
    df = spark.range(500).selectExpr("concat('k', id) as key", "cast(id % 7 as double) as w")
    df.union(spark.sql("select null, 1D union all select '', 1D")).write.parquet(str(path))
    return path


class Page(HTMLParser):
    """What a page would load, and how much it shows."""

    def __init__(self, text):
        super().__init__()
        self.loads, self.tags = [], {}
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags[tag] = self.tags.get(tag, 0) + 1
        named = [value for name, value in attrs if name in ("src", "href", "xlink:href")]
        self.loads += [value for value in named if not value.startswith("#")]


# --- assign -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("csv", "json"))]
)
def test_assign_writes_every_row_with_its_owner(spark, keys, ring_file, tmp_path, kind):
    out = tmp_path / f"owned.{kind}"
    told = run("assign", "--input", keys, "--ring-file", ring_file, "--output", out)
    assert (told["rows written"], told["rows without a key"]) == ("502", "2")
    ring = read_ring(ring_file).ring
    found = read_frame(spark, [str(out)]).frame
    assert len(found.collect()) == 502
    for row in found.where("key like 'k%'").collect():
        assert row.owner == ring.owner(row.key)


def test_a_summary_comes_as_json(spark, keys, ring_file, tmp_path):
    arguments = ["--input", keys, "--ring-file", ring_file, "--output", tmp_path / "o.csv"]
    report = tmp_path / "page.html"
    told = run("assign", *arguments, "--report", report, "--json")
    assert (told["rows written"], told["report"]) == (502, str(report))


def test_assign_by_owner_gives_each_node_a_directory(spark, keys, ring_file, tmp_path):
    out = tmp_path / "owned"  # a directory, whose name need not say its format
    run("assign", "--input", keys, "--ring-file", ring_file, "--output", out, "--by-owner")
    ring = read_ring(ring_file).ring
    own = spark.read.parquet(f"{out}/owner=n2").collect()
    assert {row.key for row in own} == {f"k{i}" for i in range(500) if ring.owner(f"k{i}") == "n2"}


@pytest.mark.long  # tests/spark/test_owner.py has several files without the command.
def test_assign_by_owner_gives_a_directory_several_files(keys, ring_file, tmp_path):
    out = tmp_path / "owned"
    run("assign", "--input", keys, "--ring-file", ring_file, "--output", out, "--by-owner",
        "--files-per-owner", 3)  # fmt: skip
    for node in read_ring(ring_file).ring.nodes:
        assert len(list(out.glob(f"owner={node}/*.parquet"))) == 3


@pytest.mark.long
def test_assign_by_owner_to_many_nodes_starts_few_tasks(spark, tmp_path, monkeypatch):
    # As with ten times as many of both. Few nodes have keys: each file takes time.
    monkeypatch.setattr("hashring.spark.io.owner_directories._LEAST_TASKS", 20)
    ring = Ring({f"n{i}": [i * 2**28 if i < 16 else i * 2**16] for i in range(45)})
    df = spark.range(200).selectExpr("cast(id as string) as key")
    made = []

    def placed(*args, **options):
        made.append(partition_by_owner(*args, **options))
        return made[0]

    monkeypatch.setattr("hashring.spark.jobs.assign.partition_by_owner", placed)
    assign_job(Input(df, "keys"), ring, Output(str(tmp_path / "out"), "parquet"), by_owner=True)
    assert made[0].rdd.getNumPartitions() == 15 + 1  # the last is for rows without a key
    for node in {ring.owner(str(i)) for i in range(200)}:
        assert len(list(tmp_path.glob(f"out/owner={node}/*.parquet"))) == 1


@pytest.mark.long  # test_a_log_in_directories_of_nodes_like_numbers_... has one job.
def test_nodes_whose_names_look_like_numbers_are_read_again_by_the_jobs(spark, tmp_path):
    ring = Ring({"007": [0], "1e3": [2**30], "08": [2**31]})
    write_ring(ring, tmp_path / "ring.json")
    out = tmp_path / "o.parquet"
    df = spark.range(40).selectExpr("concat('k', id) as key")
    for mode in ("error", "append"):
        assign_job(Input(df, "keys"), ring, Output(str(out), mode=mode), by_owner=True)
    names = {path.name for path in out.glob("owner=*")}
    assert names == {"owner=007", "owner=1e3", "owner=08"}
    told = run("load", "--input", out, "--ring-file", tmp_path / "ring.json", "--hottest", 0,
               "--json")  # fmt: skip
    assert {r["node"]: r["keys"] for r in told["busiest nodes"]} == {
        node: 2 * sum(ring.owner(f"k{i}") == node for i in range(40)) for node in ring.nodes
    }
    told = run("load", "--input", out, "--key", "owner", "--ring-file", tmp_path / "ring.json",
               "--json")  # fmt: skip
    assert {r["key"] for r in told["hottest keys"]} == set(ring.nodes)


def test_the_directory_of_a_node_is_its_name_as_in_a_url(spark, tmp_path):
    write_ring(RingFile(Ring({"host:17": [0]})), tmp_path / "ring.json")
    keep(tmp_path / "k.parquet", key=["k", None])
    run("assign", "--input", tmp_path / "k.parquet", "--ring-file", tmp_path / "ring.json",
        "--output", tmp_path / "o.parquet", "--by-owner")  # fmt: skip
    found = {path.name for path in (tmp_path / "o.parquet").glob("owner=*")}
    assert found == {"owner=host%3A17", "owner=__HIVE_DEFAULT_PARTITION__"}


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ("n" * 249, None),
        ("n" * 250, "would have a name of 256 bytes, and a disk takes 255"),
        ("\u00e9" * 125, "of 256 bytes"),
        (":" * 84, "of 258 bytes"),  # as %3A
        ("__HIVE_DEFAULT_PARTITION__", "as Spark names the directory of rows without one"),
    ],
)
def test_a_node_that_can_have_no_directory_is_named_before_the_work(spark, tmp_path, node, text):
    source = Input(spark.sql("select 'k' key"), "keys")
    output = Output(str(tmp_path / "o.parquet"))
    ring = Ring({node: [0]})
    if text is None:
        assign_job(source, ring, output, by_owner=True)
        assert rows(spark.read.parquet(output.path).select("owner")) == [(node,)]
        return
    with pytest.raises(OutputRefused, match=text) as refusal:
        assign_job(source, ring, output, by_owner=True)
    assert node[:20] in str(refusal.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_a_binary_key_is_written_only_where_it_stays_the_same(spark, tmp_path, kind):
    source = Input(spark.sql("select x'00ff' key"), "keys")
    output = Output(str(tmp_path / "out"), kind)
    if kind == "parquet":
        assign_job(source, Ring({"a": [0]}), output)
        assert rows(spark.read.parquet(output.path).select("key")) == [(b"\x00\xff",)]
        return
    with pytest.raises(ColumnError, match=r"'key' is binary, .* write Parquet; .* hex\(key\)"):
        assign_job(source, Ring({"a": [0]}), output)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_findings_hold_a_binary_key_only_where_it_stays_the_same(spark, tmp_path, kind):
    history = ring_history([change(1, "join", ("a",), [0], at=10**7)])
    work = spark.sql("select x'FF0001' key, 'a' node, 11D start, 12D end")
    output = Output(str(tmp_path / "out"), kind)
    if kind == "parquet":
        audit_job(Input(work, "log"), history, output)
        assert spark.read.parquet(output.path).schema["key"].dataType.simpleString() == "binary"
        return
    with pytest.raises(ColumnError, match=r"'key' is binary, which csv holds as a text"):
        audit_job(Input(work, "log"), history, output)
    assert list(tmp_path.iterdir()) == []


def test_keys_of_several_lines_come_back_from_a_csv_with_multi_line(spark, tmp_path):
    keys = ["a\nb", "a\rb", "a\r\nb", "\n", 'q"\nx']
    df = spark.createDataFrame([(key,) for key in keys], "key string")
    out = str(tmp_path / "k.csv")
    assign_job(Input(df, "keys"), Ring({"a": [0]}), Output(out))
    found, bad = read_frame(spark, [out], options={"multiLine": "true"}).counted()
    assert sorted(row.key for row in found.collect()) == sorted(keys)
    assert bad() == 0


def test_assign_to_a_table_and_not_twice(spark, keys, ring_file):
    spark.sql("drop table if exists owned_keys")
    command = ("assign", "--input", keys, "--ring-file", ring_file, "--table", "owned_keys")
    run(*command)
    assert spark.table("owned_keys").count() == 502
    with pytest.raises(OutputExists, match="output owned_keys exists"):
        run(*command)
    spark.sql("drop table owned_keys")


@pytest.mark.parametrize(
    ("where", "mode", "held"),
    [
        ("--output", "overwrite", "c"),
        pytest.param("--table", "append", "abc", marks=pytest.mark.long),
        pytest.param("--output", "append", "abc", marks=pytest.mark.long),
        pytest.param("--table", "overwrite", "c", marks=pytest.mark.long),
    ],
)
def test_the_command_appends_or_overwrites(spark, ring_file, tmp_path, where, mode, held):  # noqa: PLR0917
    spark.sql("drop table if exists added_keys")
    out = tmp_path / "owned.parquet" if where == "--output" else "added_keys"
    for name, keys, more in (("one", "ab", ()), ("two", "c", ("--mode", mode))):
        source = tmp_path / f"{name}.csv"
        source.write_text("\n".join(("key", *keys, "")))
        told = run("assign", "--input", source, "--ring-file", ring_file, where, out, *more)
        assert told["rows written"] == str(len(keys))
    found = spark.read.parquet(str(out)) if where == "--output" else spark.table(out)
    ring = read_ring(ring_file).ring
    assert sorted(rows(found.select("key", "owner"))) == [(key, ring.owner(key)) for key in held]
    spark.sql("drop table if exists added_keys")


def test_an_output_that_exists_is_left_alone(keys, ring_file, tmp_path):
    out = tmp_path / "owned.parquet"
    out.mkdir()
    (out / "mine").write_text("precious")
    with pytest.raises(OutputExists, match=r"owned.parquet exists: name another, or remove it"):
        run("assign", "--input", keys, "--ring-file", ring_file, "--output", out)
    assert [p.name for p in out.iterdir()] == ["mine"]


def test_a_job_that_fails_in_the_middle_leaves_nothing(spark, tmp_path):
    df = spark.range(10).selectExpr("if(id = 7, raise_error('boom'), id) as id")
    with pytest.raises(Exception, match="boom"):
        Output(str(tmp_path / "out.parquet")).write(df)
    assert list(tmp_path.iterdir()) == []


def test_bad_records_of_a_csv_are_left_out_and_counted(tmp_path, ring_file):
    source = tmp_path / "in.csv"
    source.write_text("key,w\na,1\nb,x\nc,3\nd,4,5\n")
    told = run(
        "load", "--input", source, "--schema", "key string, w double", "--weight", "w",
        "--ring-file", ring_file,
    )  # fmt: skip
    assert (told["rows"], told["bad records left out"], told["weight"]) == ("2", "2", "4")


@pytest.mark.long
def test_bad_records_of_json_are_left_out_and_counted(tmp_path, ring_file):
    source = tmp_path / "in.json"
    source.write_text('{"key": "a"}\n{"key": \n{"key": "b"}\n')
    told = run(
        "assign", "--input", source, "--ring-file", ring_file, "--output", tmp_path / "o.parquet"
    )
    assert (told["rows written"], told["bad records left out"]) == ("2", "1")


def test_ragged_records_of_a_csv_without_a_schema_are_counted(tmp_path, ring_file):
    source = tmp_path / "in.csv"
    source.write_text("key,w\na,1\nb\nc,1,2,3\nd,4\n")
    for job in (["load", "--hottest", 0], ["assign", "--output", tmp_path / "o.parquet"]):
        told = run(*job, "--input", source, "--ring-file", ring_file, "--json")
        assert told["bad records left out"] == 2


@pytest.mark.parametrize(
    ("name", "data"), [("in.json", '{"key":"a"}\n{"key":\n'), ("in.csv", "key,w\na,1\nb,2,3\n")]
)
def test_bad_records_are_left_out_whatever_a_session_calls_them(spark, tmp_path, name, data):
    (tmp_path / name).write_text(data)
    spark.conf.set("spark.sql.columnNameOfCorruptRecord", "_bad")
    try:
        found = read_frame(spark, [str(tmp_path / name)]).frame.collect()
    finally:
        spark.conf.unset("spark.sql.columnNameOfCorruptRecord")
    assert [(r.key, "_bad" in r) for r in found] == [("a", False)]


def test_parquet_has_no_bad_records(spark, tmp_path):
    df = spark.sql("select 'a' as key, 'once bad' as _corrupt_record")
    df.write.parquet(str(tmp_path / "in.parquet"))
    frame, bad_records = read_frame(spark, [str(tmp_path / "in.parquet")]).counted()
    assert (rows(frame), bad_records()) == ([("a", "once bad")], 0)


def test_other_formats_have_no_bad_records(spark):
    table = {"url": f"jdbc:derby:memory:{uuid.uuid4().hex};create=true", "dbtable": "kept"}
    df = spark.sql("select 'a' as key, 'once bad' as _corrupt_record")
    df.write.format("jdbc").options(**table).save()
    frame, bad_records = read_frame(spark, ["kept"], "jdbc", options=table).counted()
    assert (rows(frame), bad_records()) == ([("a", "once bad")], 0)


def test_lines_of_text_are_keys_of_a_schema(spark, tmp_path):
    (tmp_path / "keys").write_text("a\nb\n")
    assert rows(read_frame(spark, [str(tmp_path / "keys")], "text", "key string").frame) == [
        ("a",),
        ("b",),
    ]


def test_columns_of_maps_are_written_and_bad_records_counted(spark, tmp_path, ring_file):
    source = tmp_path / "in.json"
    source.write_text('{"key":"a","tags":{"x":"y"}}\n{"key":\n')
    told = run(
        "assign", "--input", source, "--schema", "key string, tags map<string,string>",
        "--ring-file", ring_file, "--output", tmp_path / "o.parquet",
    )  # fmt: skip
    assert (told["rows written"], told["bad records left out"]) == ("1", "1")
    assert spark.read.parquet(str(tmp_path / "o.parquet")).first().tags == {"x": "y"}


def test_two_columns_of_one_name_are_refused_before_the_work(spark, tmp_path):
    df = spark.sql("select 'k' as key, 1 as a, 2 as A")
    with pytest.raises(ColumnError, match="'A' is there more than once: rename one of them"):
        assign_job(Input(df, "keys"), random_ring(2, 2), Output(str(tmp_path / "o.parquet")))
    assert list(tmp_path.iterdir()) == []


def test_a_table_has_the_format_that_was_asked_for(spark, keys, ring_file):
    spark.sql("drop table if exists owned_json")
    run("assign", "--input", keys, "--ring-file", ring_file, "--table", "owned_json",
        "--output-format", "json")  # fmt: skip
    (provider,) = spark.sql("describe extended owned_json").where("col_name = 'Provider'").collect()
    assert provider.data_type == "json"
    spark.sql("drop table owned_json")


# Of the formats of text, CSV stays, whose records may have several lines.
@pytest.mark.parametrize("kind", ["parquet", "csv", pytest.param("json", marks=pytest.mark.long)])
def test_rows_that_workers_keep_to_themselves_are_missed(spark, tmp_path, kind):
    out = Output(str(tmp_path / f"out.{kind}"))
    out.write(spark.range(40).selectExpr("id", "'two\nlines' as text").repartition(4))
    check_whole(spark, out.path, 40, format=kind, path=out.path)
    # As on a worker with a disk of its own.
    next(tmp_path.glob("*/part-00002-*")).unlink()
    with pytest.raises(OutputRefused, match="30 of 40 rows are there: Spark's workers write to"):
        check_whole(spark, out.path, 40, format=kind, path=out.path)
    for part in tmp_path.glob("*/part-*"):
        part.unlink()
    with pytest.raises(OutputRefused, match="0 of 40 rows are there"):
        check_whole(spark, out.path, 40, format=kind, path=out.path)


@pytest.mark.parametrize(
    ("kind", "options", "elsewhere"),
    [
        ("parquet", {}, False),
        ("csv", {"sep": ";"}, True),
        ("json", {"lineSep": "|"}, False),
        pytest.param("parquet", {}, True, marks=pytest.mark.long),
        pytest.param("csv", {"sep": ";"}, False, marks=pytest.mark.long),
        pytest.param("json", {"lineSep": "|"}, True, marks=pytest.mark.long),
    ],
)
def test_a_job_fails_whose_workers_keep_rows(  # noqa: PLR0917
    spark, tmp_path, monkeypatch, kind, options, elsewhere
):
    df = spark.range(40).selectExpr("id", "'two\n\";\n\"lines' as text").repartition(4)
    on_workers(monkeypatch)
    if elsewhere:
        # As if Spark alone could see the paths.
        monkeypatch.setattr("hashring.spark.io.output.local_path", lambda spark, path: None)
    Output(str(tmp_path / "whole"), kind, options=options).write(df)
    on_workers(monkeypatch, lost=1)
    path = str(tmp_path / "out")
    with pytest.raises(OutputRefused, match="30 of 40 rows are there: Spark's workers write to"):
        Output(path, kind, options=options).write(df)
    assert Path(path).exists() == elsewhere


@pytest.mark.parametrize("name", ["a[1]{b}.csv", "a*?.csv", "ü ☃ %41.csv", "a{b"])
def test_a_file_is_read_whose_own_name_looks_like_a_pattern(spark, tmp_path, name):
    (tmp_path / name).write_text("key\nown\n")
    assert read_frame(spark, [str(tmp_path / name)], "csv").frame.first().key == "own"


def test_a_pattern_matches_others_than_a_file_of_its_name(spark, tmp_path):
    (tmp_path / "a[1].csv").write_text("key\nown\n")
    (tmp_path / "a1.csv").write_text("key\nother\n")
    assert rows(read_frame(spark, [str(tmp_path / "a[1].csv")]).frame) == [("other",)]


def test_the_keys_of_a_csv_keep_their_zeros(tmp_path, ring_file, spark):
    source = tmp_path / "in.csv"
    source.write_text("key\n007\n")
    assert read_frame(spark, [str(source)]).frame.first().key == "007"


def test_a_key_of_directories_is_its_text(spark, ring_file, tmp_path):
    place = tmp_path / "in.parquet"
    df = spark.sql("select '007' account, 1 w union all select '08', 2")
    df.withColumn("day", F.lit("2024-01-01")).write.partitionBy("day", "account").parquet(
        str(place)
    )
    run("assign", "--input", place, "--key", "account", "--ring-file", ring_file,
        "--output", tmp_path / "out.parquet")  # fmt: skip
    ring = read_ring(ring_file).ring
    found = spark.read.parquet(str(tmp_path / "out.parquet"))
    assert {r.account: r.owner for r in found.collect()} == {
        key: ring.owner(key) for key in ("007", "08")
    }
    # Other columns of directories have the types that Spark guesses. A schema has the last word.
    assert found.schema["day"].dataType.simpleString() == "date"
    wanted = "account int, w int, day string"
    assert read_frame(spark, [str(place)], schema=wanted, key="account").frame.dtypes[0][1] == "int"


def read_all(spark, read, tmp_path, *given, **more):
    """The rows of an input in ``in``. A stream writes them to ``out`` first."""
    found = read(spark, [str(tmp_path / "in")], *given, **more)
    if read is read_frame:
        return found.frame.collect()
    query = found.writeStream.option("checkpointLocation", str(tmp_path / "cp"))
    query.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination()
    return spark.read.schema(found.schema).parquet(str(tmp_path / "out")).collect()


@pytest.mark.parametrize("read", [read_frame, read_stream])
@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_a_key_of_directories_that_a_schema_does_not_name_is_its_text(spark, tmp_path, read, kind):
    place = tmp_path / "in" / "day=2024-01-01" / "account=007"
    place.mkdir(parents=True)
    if kind == "parquet":
        keep(place / "a.parquet", w=pa.array([1], pa.int32()))
    else:
        (place / f"a.{kind}").write_text({"csv": "w\n1\n", "json": '{"w": 1}\n'}[kind])
    (row,) = read_all(spark, read, tmp_path, kind, "w int", key="account")
    assert (row.account, row.w, row.day) == ("007", 1, date(2024, 1, 1))


@pytest.mark.parametrize("read", [read_frame, read_stream])
def test_a_key_of_directories_that_is_in_the_files_as_well_is_its_text(spark, tmp_path, read):
    place = tmp_path / "in" / "account=007"
    place.mkdir(parents=True)
    keep(place / "a.parquet", account=["007"], w=[1])
    (row,) = read_all(spark, read, tmp_path, "parquet", key="account")
    assert (row.account, row.w) == ("007", 1)


def test_a_csv_keeps_the_blanks_of_its_keys(spark, ring_file, tmp_path):
    keys = [" a ", "b", "  "]
    (tmp_path / "in.csv").write_text("".join(f'"{key}"\n' for key in ("key", *keys)))
    run("assign", "--input", tmp_path / "in.csv", "--ring-file", ring_file,
        "--output", tmp_path / "out.csv")  # fmt: skip
    ring = read_ring(ring_file).ring
    found = read_frame(spark, [str(tmp_path / "out.csv")]).frame
    assert {r.key: r.owner for r in found.collect()} == {key: ring.owner(key) for key in keys}


def test_a_csv_of_others_has_its_quotes_doubled(spark, ring_file, tmp_path):
    keys = ['a"b', '"q"', '\\"', "C:\\d,ir\\", "\\", '""', "a,b", "c\\"]
    with (tmp_path / "in.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["key"], *([key] for key in keys)])
    run("assign", "--input", tmp_path / "in.csv", "--ring-file", ring_file,
        "--output", tmp_path / "out.csv")  # fmt: skip
    ring = read_ring(ring_file).ring
    with next((tmp_path / "out.csv").glob("*.csv")).open(newline="") as file:
        found = {row["key"]: row["owner"] for row in csv.DictReader(file)}
    assert found == {key: ring.owner(key) for key in keys}


def in_encoding(tmp_path, encoding):
    """A CSV whose keys end their lines, and of which one has characters of two bytes."""
    (tmp_path / "keys.csv").write_bytes("w,key\n1,ä\n2,дb\n3,c\n".encode(encoding))
    return str(tmp_path / "keys.csv")


@pytest.mark.parametrize(
    ("encoding", "more"),
    [
        ("UTF-16", {"multiLine": "true"}),
        ("utf-16be", {"multiline": "true"}),
        ("UTF-16LE", {"lineSep": "\n"}),
    ],
)
def test_a_csv_of_another_encoding_keeps_its_keys(spark, tmp_path, encoding, more):
    place = in_encoding(tmp_path, encoding)
    found = read_frame(spark, [place], options={"encoding": encoding, **more}).frame
    assert rows(found) == [("1", "ä"), ("2", "дb"), ("3", "c")]


@pytest.mark.parametrize(
    ("encoding", "more"),
    [
        ({"encoding": "UTF-16"}, {}),
        ({"charset": "utf-16le"}, {}),
        ({"Encoding": "UTF-32"}, {"multiLine": "false"}),
        ({"encoding": "UTF-16"}, {"lineSep": "\n"}),
    ],
)
def test_a_csv_that_spark_would_split_within_characters_is_refused(spark, tmp_path, encoding, more):
    (name,) = encoding.values()
    place = in_encoding(tmp_path, name)
    said = rf"^encoding='{name.lower()}': .* within characters.*--input-option multiLine=true"
    with pytest.raises(ConfigError, match=said):
        read_frame(spark, [place], options={**encoding, **more}).frame.collect()
    with pytest.raises(ConfigError, match=said):
        read_stream(spark, [place], schema="w string, key string", options={**encoding, **more})


@pytest.fixture
def table_in_utf_16(spark, tmp_path):
    """A table of CSV that Spark would split within characters."""
    spark.sql("CREATE TABLE wide (w STRING, key STRING) USING csv OPTIONS "
              f"(encoding 'UTF-16LE', header 'true') LOCATION '{tmp_path}'")  # fmt: skip
    yield "wide"
    spark.sql("DROP TABLE wide")


def test_a_table_of_a_csv_in_utf_16_is_read_whole_or_refused(spark, table_in_utf_16, tmp_path):
    in_encoding(tmp_path, "UTF-16LE")
    remedy = r"ALTER TABLE wide SET SERDEPROPERTIES \('multiLine'='true'\)"
    with pytest.raises(ConfigError, match=f"^encoding='utf-16le': .* within characters.*{remedy}"):
        read_table(spark, table_in_utf_16)
    spark.sql(remedy.replace("\\", ""))
    found = read_table(spark, table_in_utf_16).frame
    assert rows(found) == [("1", "ä"), ("2", "дb"), ("3", "c")]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_table_of_a_csv_in_utf_16_is_written_whole_or_refused(spark, mode):
    spark.sql("CREATE TABLE wide (key STRING) USING csv OPTIONS (encoding 'UTF-16LE', "
              "ignoreLeadingWhiteSpace false, ignoreTrailingWhiteSpace false)")  # fmt: skip
    output = Output(None, None, "wide", mode)
    keys = spark.createDataFrame([("ä",), ("дb",), ("c",)], "key STRING").coalesce(1)
    try:
        remedy = r"ALTER TABLE wide SET SERDEPROPERTIES \('multiLine'='true'\)"
        with pytest.raises(ConfigError, match=f"^encoding='utf-16le': .* within chara.*{remedy}"):
            output.write(keys)
        assert spark.table("wide").isEmpty()
        spark.sql(remedy.replace("\\", ""))
        output.write(keys)
        assert rows(spark.table("wide")) == [("ä",), ("дb",), ("c",)]
    finally:
        spark.sql("DROP TABLE wide")


@pytest.mark.parametrize("name", ["UnicodeBig", "ISO-10646-UCS-2", "UTF_16", "X-UTF-16LE-BOM"])
def test_a_csv_in_utf_16_by_another_name_is_refused(spark, tmp_path, name):
    """Spark takes these names with ``spark.sql.legacy.javaCharsets``."""
    with pytest.raises(ConfigError, match="within characters"):
        read_frame(spark, [in_encoding(tmp_path, "UTF-16")],
                   options={"encoding": name, "lineSep": "\n"})  # fmt: skip


def test_text_in_another_encoding_than_utf_8_is_refused(spark, tmp_path):
    (tmp_path / "keys.txt").write_bytes("ä\nb\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"^encoding='iso-8859-1': Spark reads text as UTF-8"):
        read_frame(spark, [str(tmp_path)], "text", options={"encoding": "ISO-8859-1"})
    found = read_frame(spark, [str(tmp_path)], "text", options={"encoding": "UTF-8"}).frame
    assert found.count() == 2


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16-le", "utf-16"])
@pytest.mark.parametrize("text", ['{"key": "äĊ"}\n{"key": "b"}\n', '[{"key": "ä"}]\r\n{}'])
def test_json_with_more_after_its_first_document_is_not_read_as_one(
    spark, tmp_path, text, encoding
):
    (tmp_path / "keys.json").write_bytes(text.encode(encoding))
    said = "^multiLine='true': file:.*/keys.json goes on after its first document, .* leave out"
    with pytest.raises(ConfigError, match=said):
        read_frame(spark, [str(tmp_path / "*.json")], options={"multiLine": "true"})


def test_json_with_more_after_the_first_document_of_another_file_is_not_read_as_one(
    spark, tmp_path
):
    for number in range(8):
        (tmp_path / f"{number} %20.json").write_text(f'{{"key": "{number}"}}\n')
    (tmp_path / "6 %20.json").write_text('{"key": "a"}\n{"key": "b"}\n')
    said = "^multiLine='true': file:.*/6 %20.json goes on after its first document"
    with pytest.raises(ConfigError, match=said):
        read_frame(spark, [str(tmp_path)], "json", options={"multiLine": "true"})


def test_json_of_a_document_a_file_is_read_all(spark, tmp_path):
    (tmp_path / "a.json").write_text('{"key": "a"}\n')
    (tmp_path / "b.json").write_text('{"key": "b"}')
    (tmp_path / "c.json").write_text('\n[{"key": "c"},\n{"key":\n"d"}]\n\n')
    found = read_frame(spark, [f"{tmp_path}/*.json"], options={"multiline": "TRUE"}).frame
    assert sorted(rows(found)) == [("a",), ("b",), ("c",), ("d",)]


def test_a_field_of_a_csv_in_quotes_keeps_its_nul_characters(spark, tmp_path):
    keys = ["\0", '"\0', '\0"', "a,\0\0", " \0 ", '"\0"', "\0,", '""\0\0;']
    (tmp_path / "in").mkdir()
    with (tmp_path / "in" / "keys.csv").open("w", newline="") as file:
        csv.writer(file, quoting=csv.QUOTE_ALL).writerows([["key"], *([key] for key in keys)])
    assert rows(read_frame(spark, [str(tmp_path / "in")], "csv").frame) == [(key,) for key in keys]
    stream = read_stream(spark, [str(tmp_path / "in")], "csv", "key string")
    found = stream.writeStream.format("memory").queryName("nuls").trigger(availableNow=True)
    found.start().awaitTermination()
    assert {row.key for row in spark.table("nuls").collect()} == set(keys)


def test_a_csv_may_have_a_backslash_before_its_quotes(spark, tmp_path):
    (tmp_path / "keys.csv").write_text('key,w\n"a\\"b\\\\",1\n')
    options = {"escape": "\\"}
    found = read_frame(spark, [str(tmp_path / "keys.csv")], options=options).frame
    assert rows(found) == [('a"b\\', "1")]


def test_keys_of_xml_are_as_they_are_written(spark, ring_file, tmp_path):
    keys = ["007", "08", " 1 ", "\t", " a"]
    row = "<row>\n  <key>{}</key>\n</row>"
    options = {"rowTag": "row"}
    for count in (2, 5):  # the first are numbers, each of them
        text = "\n".join(map(row.format, keys[:count]))
        (tmp_path / "in.xml").write_text(f"<rows>\n{text}\n</rows>\n")
        found = read_frame(spark, [str(tmp_path / "in.xml")], "xml", options=options).frame
        assert [row.key for row in found.collect()] == keys[:count]
    run("assign", "--input", tmp_path / "in.xml", "--format", "xml", "--input-option", "rowTag=row",
        "--ring-file", ring_file, "--output", tmp_path / "out", "--output-format", "xml",
        "--option", "rowTag=row")  # fmt: skip
    found = read_frame(spark, [str(tmp_path / "out")], "xml", options=options).frame
    ring = read_ring(ring_file).ring
    assert {row.key: row.owner for row in found.collect()} == {key: ring.owner(key) for key in keys}


@pytest.mark.parametrize("lines", [{}, {"multiLine": "true"}])
@pytest.mark.parametrize("at", ["header", "record", "field"])
def test_a_csv_with_a_record_that_spark_has_no_room_for_is_refused_in_a_line(
    spark, tmp_path, at, lines
):
    wide = "k," * 30
    (tmp_path / "keys.csv").write_text(
        {"header": wide + "key\n", "record": f"key\nk\n{wide}\n", "field": f"key\n{'k' * 99}\n"}[at]
    )
    most = {"maxCharsPerColumn": "50"} if at == "field" else {"maxColumns": "20"}
    said = r"^(file:)?/.*keys\.csv: a record has more columns than --input-option maxColumns"
    with pytest.raises((NoDataError, *SPARK_ERRORS)) as refusal:
        read_frame(spark, [str(tmp_path / "keys.csv")], options={**most, **lines}).frame.collect()
    error = refusal.value
    told = str(error if isinstance(error, NoDataError) else failure(error))
    assert re.search(said, told)
    assert "k,k" not in told


def test_a_column_of_a_csv_may_have_no_name(spark, tmp_path):
    for name in ("one", "two"):
        (tmp_path / f"{name}.csv").write_text(f",key,_c2\n0,{name},x\n1,b,y\n2,c\n")
    found = read_frame(spark, [str(tmp_path / "*.csv")])
    assert sorted(rows(found.frame)) == [
        ("0", "one", "x"), ("0", "two", "x"), ("1", "b", "y"), ("1", "b", "y"),
    ]  # fmt: skip
    assert found.frame.columns == ["_c0", "key", "_c2"]
    (tmp_path / "three.csv").write_text("n,key,_c2\n0,a,x\n")
    with pytest.raises(Exception, match="CSV header does not conform"):
        read_frame(spark, [str(tmp_path / "*.csv")]).frame.collect()


def test_a_column_of_a_csv_in_directories_may_have_no_name(spark, tmp_path):
    for day in (1, 2):
        (tmp_path / f"day={day}").mkdir()
        (tmp_path / f"day={day}" / "x.csv").write_text(f",key\n{day},a\n")
    found, bad = read_frame(spark, [str(tmp_path)], "csv").counted()
    assert sorted(rows(found)) == [("1", "a", 1), ("2", "a", 2)]
    assert found.columns == ["_c0", "key", "day"]
    assert bad() == 0


def test_several_columns_of_a_csv_without_a_name_are_refused(spark, tmp_path):
    place = tmp_path / "x.csv"
    place.write_text("key,w,,\na,1,x,y\n")
    with pytest.raises(
        ColumnError, match=r"columns 3, 4 in the header line of \S*x.csv: give each"
    ):
        read_frame(spark, [str(place)])


@pytest.mark.parametrize("option", ["header", "HEADER"])
def test_empty_fields_in_the_first_row_of_a_csv_without_a_header_are_null(spark, tmp_path, option):
    place = tmp_path / "x.csv"
    place.write_text("a,,\nb,1,x\n")
    found = read_frame(spark, [str(place)], options={option: "False"}).frame
    assert rows(found) == [("a", None, None), ("b", "1", "x")]


@pytest.mark.long
def test_globs_and_several_inputs_are_read_together(spark, keys, ring_file, tmp_path):
    shutil.copytree(keys, tmp_path / "keys.parquet")
    more = keep(tmp_path / "more.parquet", key=list("01234"), w=[1.0] * 5)
    for inputs in (("--input", tmp_path / "*.parquet"), ("--input", keys, "--input", more)):
        told = run("load", *inputs, "--ring-file", ring_file, "--hottest", 0)
        assert told["rows"] == "507"


def test_a_table_is_read_by_its_name(spark, ring_file):
    spark.sql("drop table if exists keys_by_day")
    df = spark.range(90).selectExpr("concat('k', id) as account", "id % 3 as day")
    df.write.partitionBy("day").saveAsTable("keys_by_day")
    ring = ("--ring-file", ring_file, "--key", "account", "--hottest", 0)
    assert run("load", "--input-table", "default.keys_by_day", *ring)["rows"] == "90"
    with pytest.raises(NoDataError, match=r"no.such: no such table can be read \(\[TABLE_OR_VIEW"):
        run("load", "--input-table", "no.such", *ring)
    spark.sql("drop table keys_by_day")


def test_other_formats_of_the_session_are_read_and_written(spark, ring_file, tmp_path):
    spark.range(9).selectExpr("concat('k', id) as key").write.orc(str(tmp_path / "in"))
    files = ("--input", tmp_path / "in", "--output", tmp_path / "out", "--ring-file", ring_file)
    run("assign", *files, "--format", "orc", "--output-format", "orc")
    ring = read_ring(ring_file).ring
    for row in spark.read.orc(str(tmp_path / "out")).collect():
        assert row.owner == ring.owner(row.key)
    with pytest.raises(SparkFailed, match=r"DATA_SOURCE_NOT_FOUND.*: is the format's name right"):
        run("load", "--input", tmp_path / "in", "--format", "no-such", "--ring-file", ring_file)


def test_a_format_whose_package_spark_was_not_given_says_how_to_give_it(spark, ring_file, tmp_path):
    (tmp_path / "in.avro").touch()
    files = ("--input", tmp_path / "in.avro", "--ring-file", ring_file)
    with pytest.raises(NoDataError, match=r"reads avro with a package .*: name it with --conf"):
        run("load", *files, "--format", "avro")
    keep(tmp_path / "in.parquet", key=["k"])
    files = ("--input", tmp_path / "in.parquet", "--ring-file", ring_file)
    with pytest.raises(SparkFailed, match=r"(?i)avro.*: give Spark its package, with --conf"):
        run("assign", *files, "--output", tmp_path / "out", "--output-format", "avro")


# --- input that cannot be used ----------------------------------------------------------------


def test_an_empty_input_and_one_without_keys_are_refused(spark, ring_file, tmp_path):
    keep(tmp_path / "empty.parquet", key=pa.array([], pa.string()))
    keep(tmp_path / "null.parquet", key=["", None])
    out = tmp_path / "out.parquet"
    for name, text in (
        ("empty", "empty.parquet: holds no row"),
        ("null", "every key in column 'key' is null"),
    ):
        for job in (("load",), ("assign", "--output", out), ("plan", "--join", "x")):
            with pytest.raises(NoDataError, match=text):
                run(*job, "--input", tmp_path / f"{name}.parquet", "--ring-file", ring_file)
    assert not out.exists()


@pytest.mark.parametrize("name", ["_x.csv", ".x.csv", "_?.csv", "z.csv._COPYING_"])
def test_a_file_that_spark_passes_over_is_refused_by_its_name(spark, tmp_path, ring_file, name):
    for file in ("_x.csv", ".x.csv", "z.csv._COPYING_", "y.csv", "_k=1.csv"):
        (tmp_path / file).write_text("key\na\n")
    files = ["--input", tmp_path / "y.csv", "--input", tmp_path / name, "--format", "csv"]
    with pytest.raises(NoDataError, match=rf"/{re.escape(name)}: Spark passes over .*: rename it"):
        run("load", *files, "--ring-file", ring_file)
    with pytest.raises(NoDataError, match="passes over"):
        read_frame(spark, [str(tmp_path / name)], "csv", "key string")


def test_what_spark_reads_may_have_any_name(spark, tmp_path):
    (tmp_path / "_day=1" / ".stage.csv").mkdir(parents=True)
    place = tmp_path / "_day=1" / ".stage.csv"
    for file in ("_SUCCESS", ".y.csv.crc", "y.csv", "_k=1.csv"):
        (place / file).write_text("key\na\n")
    for path, count in (
        (place, 2),
        (place / "_k=1.csv", 1),
        (place / "*.csv", 2),
        (f"{place}/", 2),
    ):
        assert len(read_frame(spark, [str(path)], "csv").frame.collect()) == count
    with pytest.raises(NoDataError, match=r"nothing is there|does not exist"):
        read_frame(spark, [str(place / "_none.csv")])


def test_files_beside_directories_of_columns_are_refused_since_spark_passes_over_them(
    spark, tmp_path
):
    place = tmp_path / "env=prod" / "keys"  # above the input, such a name is no column
    (place / "day=1").mkdir(parents=True)
    keep(place / "b.parquet", key=["b"])
    assert read_frame(spark, [str(place)], "parquet").frame.count() == 1
    keep(place / "day=1" / "a.parquet", key=["a"])
    with pytest.raises(
        ConfigError, match=r"keys': holds the file b.parquet beside the directory d"
    ):
        read_frame(spark, [str(place)], "parquet")
    with pytest.raises(ConfigError, match="holds the file b"):
        read_frame(spark, [f"{tmp_path}/env=*/key?"], "parquet")
    for given in ([f"{place}/*"], [f"{place}/b.parquet", f"{place}/day=1/a.parquet"]):
        assert read_frame(spark, given, "parquet").frame.count() == 2


@pytest.fixture
def mixed(tmp_path):
    """A directory with a file beside a directory of a column."""
    (tmp_path / "mix" / "day=1").mkdir(parents=True)
    keep(tmp_path / "mix" / "day=1" / "a.parquet", key=["a"])
    keep(tmp_path / "mix" / "b 1.parquet", key=["b"])
    return tmp_path / "mix"


@pytest.mark.parametrize(
    "path", ["{0}/mix/day=1/..", "{0}/none/../mix", "{0}/[^z]ix", "{0}/{{m}}*"]
)
def test_files_beside_directories_of_columns_are_found_by_any_spelling_of_the_path(
    spark, tmp_path, mixed, path
):
    text = rf"file://{mixed}': holds the file b 1.parquet beside the directory day=1, and then"
    with pytest.raises(ConfigError, match=text):
        read_frame(spark, [path.format(tmp_path)], "parquet")


def test_files_are_read_in_directories_of_any_name_if_spark_makes_no_columns_of_them(spark, mixed):
    def read(value):
        return read_frame(spark, [str(mixed)], "parquet", options={"recursiveFileLookup": value})

    assert sorted(rows(read("true").frame)) == [("a",), ("b",)]
    with pytest.raises(ConfigError, match="holds the file b"):
        read("false")


def test_a_file_beside_directories_of_columns_is_found_below_a_base_path(spark, mixed):
    paths = [str(mixed / "day=1"), str(mixed / "b 1.parquet")]
    assert read_frame(spark, paths, "parquet").frame.count() == 2
    with pytest.raises(ConfigError, match="holds the file b"):
        read_frame(spark, paths, "parquet", options={"basePath": str(mixed)})


@pytest.fixture
def within(tmp_path):
    """A directory with a file, with another in a directory within, and with hidden directories."""
    place = tmp_path / "keys"
    for name, key in (("", "a"), ("old", "b"), ("_new", "c"), (".new", "d")):
        (place / name).mkdir(parents=True, exist_ok=True)
        keep(place / name / f"{key} 1.parquet", key=[key])
    return place


def test_files_in_directories_within_are_refused_since_spark_passes_over_them(spark, within):
    refusal = pytest.raises(ConfigError, match=r"holds file:.*/keys/old/b 1.parquet in a directory")
    for path in (within, f"{within}/", f"{within.parent}/k*"):
        with refusal:
            read_frame(spark, [str(path)], "parquet")
    deep = within / "old" / "older"
    deep.mkdir(parents=True)
    (within / "old" / "b 1.parquet").rename(deep / "b.parquet")
    with pytest.raises(ConfigError, match=r"holds file:.*/keys/old/older/b.parquet in a dir"):
        read_frame(spark, [f"{within}/*.parquet", str(within)], "parquet")


@pytest.mark.parametrize(
    ("paths", "options", "keys"),
    [
        (["{0}/[^_.]*"], {}, "ab"),
        (["{0}", "{0}/old"], {}, "ab"),
        (["{0}/*.parquet"], {}, "a"),
        (["{0}"], {"recursiveFileLookup": "true"}, "ab"),
        (["{0}"], {"pathGlobFilter": "a*"}, "a"),
    ],
)
def test_files_in_directories_within_are_read_where_they_are_named(
    spark, within, paths, options, keys
):
    found = read_frame(spark, [path.format(within) for path in paths], "parquet", options=options)
    assert sorted(rows(found.frame)) == [(key,) for key in keys]


def test_a_stream_passes_over_directories_within(spark, within):
    """Writers have them for files that are not whole yet."""
    assert read_stream(spark, [str(within)], "parquet").columns == ["key"]


@pytest.mark.parametrize(
    "paths",
    [
        ["{0}", "{0}"],
        ["{0}/", "{0}/a*"],
        ["{0}/a 1.parquet", "{0}/*.parquet"],
    ],
)
def test_a_file_that_is_named_twice_is_refused(spark, within, paths):
    shutil.rmtree(within / "old")
    paths = [path.format(within) for path in paths]
    with pytest.raises(ConfigError, match=r"names file:.*/a 1.parquet more than once"):
        read_frame(spark, paths, "parquet")
    assert read_frame(spark, paths, "parquet", may_repeat=True).frame.count() == 2


def test_a_file_in_a_directory_of_a_column_may_be_named_twice_and_is_read_once(spark, tmp_path):
    (tmp_path / "day=1").mkdir()
    keep(tmp_path / "day=1" / "a.parquet", key=["a"])
    paths = [str(tmp_path / "day=1"), str(tmp_path / "day=*")]
    found = read_frame(spark, paths, "parquet", options={"basePath": str(tmp_path)})
    assert rows(found.frame) == [("a", 1)]


def test_summaries_of_parquet_beside_directories_of_columns_are_no_data(spark, mixed):
    for name in ("_metadata", "_common_metadata"):
        shutil.copy(mixed / "day=1" / "a.parquet", mixed / name)
    (mixed / "b 1.parquet").unlink()
    assert rows(read_frame(spark, [str(mixed)], "parquet").frame) == [("a", 1)]


def test_the_addresses_of_files_are_those_of_spark(spark, tmp_path):
    assert addresses(spark.range(1)) == []
    for name in ("a b", "ü\u2028, %20"):
        keep(tmp_path / name, key=["a"])
    frame = spark.read.parquet(str(tmp_path))
    assert addresses(frame) == frame.inputFiles()
    assert len(addresses(frame)) == 2


def test_an_input_that_is_not_there_is_named(spark, ring_file, tmp_path):
    with pytest.raises(NoDataError, match=r"nothing.parquet: nothing is there; check the path"):
        run("load", "--input", tmp_path / "nothing.parquet", "--ring-file", ring_file)


@pytest.mark.parametrize("read", [read_frame, read_stream])
@pytest.mark.parametrize("paths", [[], [""], ["in", ""]])
def test_an_input_without_a_path_or_with_an_empty_one_is_refused(spark, read, paths):
    text = f"input={paths}: name a file, directory or glob, and no empty path"
    with pytest.raises(ConfigError, match=f"^{re.escape(text)}$"):
        read(spark, paths, "parquet")


def test_files_of_no_known_format_are_refused_before_spark_starts(ring_file, monkeypatch):
    monkeypatch.setattr("hashring.spark.engine.session.spark_session", None)
    text = "='keys': its name does not end in one of parquet, csv, json: give the format"
    with pytest.raises(ConfigError, match=f"input{text}"):
        run("load", "--input", "keys", "--ring-file", ring_file)
    with pytest.raises(ConfigError, match=f"output{text}"):
        run("assign", "--input", "k.csv", "--ring-file", ring_file, "--output", "keys")


def test_a_schema_that_is_none_is_refused(spark, ring_file, keys):
    with pytest.raises(ConfigError, match=r"schema='key strin': is no DDL: \[UNSUPPORTED_DATATYPE"):
        run("load", "--input", keys, "--ring-file", ring_file, "--schema", "key strin")


def test_a_missing_column_is_said(spark, ring_file, keys):
    with pytest.raises(ColumnError, match="'id' is missing; the columns are key, w"):
        run("load", "--input", keys, "--ring-file", ring_file, "--key", "id")


KEYS = b"key,w\n" + b"".join(b"k%d,1\n" % i for i in range(5000))
IS_DAMAGED = "it is cut short, damaged, or of another format; put a whole copy in its place"


def parquet(count):
    """A Parquet file of so many keys."""
    out = io.BytesIO()
    pq.write_table(pa.table({"key": [f"k{i}" for i in range(count)]}), out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("keys.parquet", b"PAR1 but no more", rf"file:.*keys.parquet cannot be .*: {IS_DAMAGED}"),
        ("keys.parquet", parquet(9)[:-9], "is not a Parquet file"),
        ("keys.csv.gz", gzip.compress(KEYS)[:9000], r"keys.csv.gz cannot be read \(Unexpected end"),
        ("keys.json.gz", KEYS, r"keys.json.gz cannot be read \(not a gzip file\)"),
        ("keys.csv", parquet(9), r"keys.csv cannot be read \(its header line is not text"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_a_damaged_input_is_named_and_nothing_is_written(ring_file, tmp_path, name, data, text):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputDamaged, match=text) as caught:
        run("assign", "--input", tmp_path / name, "--ring-file", ring_file,
            "--output", tmp_path / "out.csv")  # fmt: skip
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == [name, "ring.json"]


def test_of_many_files_the_damaged_one_is_named(spark, keys, ring_file, tmp_path):
    mine = shutil.copytree(keys, tmp_path / "keys.parquet")
    (mine / "part-99999.parquet").write_bytes(parquet(9)[:-9])
    with pytest.raises(InputDamaged, match=r"keys.parquet/part-99999.parquet cannot be read"):
        run("assign", "--input", mine, "--ring-file", ring_file, "--output", tmp_path / "out.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["keys.parquet", "ring.json"]


def test_an_empty_file_of_parquet_beside_others_is_named_and_not_left_out(spark, tmp_path):
    place = tmp_path / "a [b] %20"
    place.mkdir()
    (place / "part-0.parquet").write_bytes(parquet(9))
    (place / "part-1.parquet").touch()
    with pytest.raises(InputDamaged, match=r"part-1.parquet cannot be read \(it is empty\): it is"):
        read_frame(spark, [str(place)], "parquet")
    without = read_frame(spark, [str(place)], "parquet", options={"ignoreCorruptFiles": "true"})
    assert without.frame.count() == 9


@pytest.mark.parametrize(
    ("name", "data", "text"),
    [
        ("keys.parquet", b"", "holds no parquet file that is not empty; is the path right"),
        ("keys.csv", b"", "holds no csv record; is it of another format"),
        ("keys.json", KEYS, "holds no json record; is it of another format"),
        ("keys.csv", b"key\n", "keys.csv: holds no row that fits the schema"),
    ],
)
@pytest.mark.usefixtures("spark")
def test_an_input_that_holds_nothing_is_said(ring_file, tmp_path, name, data, text):
    (tmp_path / name).write_bytes(data)
    with pytest.raises(NoDataError, match=text):
        run("load", "--input", tmp_path / name, "--ring-file", ring_file)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("w string, key string", "keys.csv: the header has 'key', and the schema has 'w'; name"),
        ("key string", "keys.csv: the header has 2 columns, and the schema has 1; name all of"),
    ],
)
def test_a_schema_that_names_other_columns_than_the_header_is_refused(
    spark, ring_file, tmp_path, schema, text
):
    (tmp_path / "keys.csv").write_bytes(KEYS)
    with pytest.raises(NoDataError, match=text):
        run("load", "--input", tmp_path / "keys.csv", "--ring-file", ring_file, "--schema", schema)


def test_files_with_other_headers_are_refused_with_a_remedy(spark, ring_file, tmp_path):
    (tmp_path / "one.csv").write_text("key,w\na,1\n")
    text = r"(one|two).csv: the header has .*, and the schema has .*; .*in jobs of their own"
    for header in ("w,key", "key,w,x"):
        (tmp_path / "two.csv").write_text(f"{header}\n{',b' * header.count(',')}\n")
        with pytest.raises(NoDataError, match=text):
            run("load", "--input", tmp_path / "*.csv", "--ring-file", ring_file)


@pytest.mark.parametrize(
    ("header", "name", "places"),
    [("key,w,w", "w", "2, 3"), ("w,key,x,Key", "key", "2, 4"), (",key,w,key", "key", "2, 4")],
)
def test_a_csv_with_one_name_for_two_columns_is_refused(spark, tmp_path, header, name, places):
    (tmp_path / "keys.csv").write_text(f"{header}\n{',' * header.count(',')}\n")
    text = f"{name!r} is the name of columns {places} in the header line of .*keys.csv: give each"
    with pytest.raises(ColumnError, match=text):
        read_frame(spark, [str(tmp_path / "keys.csv")])


def test_a_csv_may_have_names_that_end_in_numbers(spark, tmp_path):
    (tmp_path / "keys.csv").write_text("key0,key1\na,b\n")
    found = read_frame(spark, [str(tmp_path / "keys.csv")]).frame
    assert (found.columns, rows(found)) == (["key0", "key1"], [("a", "b")])


def test_times_in_nanoseconds_are_refused_with_a_remedy(spark, tmp_path):
    keep(tmp_path / "work.parquet", start=pa.array([1], pa.timestamp("ns", "UTC")))
    text = r"work.parquet: .*INT64 \(TIMESTAMP\(NANOS,true\)\); write times in microseconds"
    with pytest.raises(NoDataError, match=text):
        read_frame(spark, [str(tmp_path / "work.parquet")])


def test_a_schema_with_another_type_than_the_file_is_refused(spark, keys, ring_file):
    text = r"'key' is BINARY in file:.*parquet, not int: give the file's own type in the schema"
    with pytest.raises(ColumnError, match=text):
        run("load", "--input", keys, "--ring-file", ring_file, "--schema", "key int")


def test_files_with_other_types_are_refused_with_a_remedy(spark, ring_file, tmp_path):
    keep(tmp_path / "one.parquet", key=["a"])
    keep(tmp_path / "two.parquet", key=[1])
    with pytest.raises(ColumnError, match=r"in file:.*parquet, not .*: .*in jobs of their own"):
        run("load", "--input", tmp_path / "*.parquet", "--ring-file", ring_file)


def test_a_table_that_cannot_be_is_refused_before_the_work(spark, keys, ring_file):
    for table, text in (("no name", "is no name of a table"), ("no.t", "there is no schema no")):
        with pytest.raises(ConfigError, match=text):
            run("assign", "--input", keys, "--ring-file", ring_file, "--table", table)


def test_what_else_spark_says_comes_with_what_to_do(spark, ring_file):
    text = 'Spark failed: .*No FileSystem for scheme "foo": is that the right beginning'
    with pytest.raises(SparkFailed, match=text):
        run("load", "--input", "foo://x/y.parquet", "--ring-file", ring_file)


@pytest.mark.parametrize(
    "error",
    [
        Py4JNetworkError("Answer from Java side is empty"),
        Py4JError("An error occurred while calling o60.save"),
        ConnectionRefusedError(111, "Connection refused"),
    ],
)
def test_a_java_that_has_ended_is_said_however_it_shows(error):
    text = r"^Spark failed: its Java has ended \(.+\): did the system kill it, for want of memory"
    with pytest.raises(SparkFailed, match=text):
        raise failure(error)


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a:b.parquet", "Spark takes no path with a colon: give it another name"),
        ("a[b.parquet", "put a backslash before each bracket or brace"),
    ],
)
def test_a_path_that_spark_cannot_use_is_refused_with_a_remedy(spark, ring_file, path, text):
    with pytest.raises(SparkFailed, match=text):
        run("load", "--input", path, "--ring-file", ring_file)


@pytest.mark.long
def test_infinite_weights_are_unusable(spark, ring_file, tmp_path):
    keep(tmp_path / "k.parquet", key=["k", "q"], w=[float("inf"), 2.0])
    told = run("load", "--input", tmp_path / "k.parquet", "--weight", "w", "--ring-file", ring_file)
    assert (told["weight"], told["unusable weights"], told["hottest key"]) == ("2", "1", "q")


@pytest.mark.parametrize(
    "job", [("load",), pytest.param(("plan", "--join", "x"), marks=pytest.mark.long)]
)
def test_weights_that_sum_up_to_more_than_a_double_are_refused(spark, ring_file, tmp_path, job):
    keep(tmp_path / "in.parquet", key=[f"k{i}" for i in range(9)], w=[1e308] * 9)
    with pytest.raises(ColumnError, match="'w' sums up to more than a DOUBLE holds"):
        run(*job, "--input", tmp_path / "in.parquet", "--weight", "w", "--ring-file", ring_file,
            "--output", tmp_path / "out.parquet")  # fmt: skip
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.long
def test_weights_of_a_histogram_that_sum_up_to_more_than_a_double_are_refused_without_a_warning(
    spark, ring_file, tmp_path
):
    keep(tmp_path / "in.parquet", key=[f"k{i}" for i in range(999)], w=[1e308] * 999)
    out = "--output", tmp_path / "h.parquet", "--buckets", 4
    run("histogram", "--input", tmp_path / "in.parquet", "--weight", "w", *out)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ColumnError, match="'w' sums up to more than a DOUBLE holds"):
            run("load", "--histogram", tmp_path / "h.parquet", "--weight", "w",
                "--ring-file", ring_file)  # fmt: skip


def test_a_binary_key_is_shown_by_its_bytes(spark, ring_file, tmp_path):
    keep(tmp_path / "k.parquet", key=[b"\x00\xff"])
    told = run("load", "--input", tmp_path / "k.parquet", "--ring-file", ring_file, "--json")
    assert told["hottest key"] == "00 ff"


def test_a_job_has_one_input(ring_file):
    for given in ((), ("--input", "x.csv", "--input-table", "t")):
        assert "give --input, or a table" in refused("load", "--ring-file", ring_file, *given)


# --- ring files -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["ring.json", "ring.parquet"])
def test_a_ring_survives_its_file(tmp_path, name, spark):
    ring = RingFile(Ring({"a": [1, 2], "b": [3]}, "crc-32c"), "x", 4, "ab", 5)
    write_ring(ring, tmp_path / name)
    assert read_ring(tmp_path / name) == ring
    with pytest.raises(OutputExists):
        write_ring(ring, tmp_path / name)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    if name.endswith("parquet"):
        rows = spark.read.parquet(str(tmp_path / name)).collect()
        assert [(r.point, r.node) for r in rows] == [(1, "a"), (2, "a"), (3, "b")]


@pytest.mark.parametrize("name", ["ring.json", "ring.parquet"])
def test_a_ring_file_cut_short_is_refused_before_spark_starts(tmp_path, name):
    path = tmp_path / name
    write_ring(RingFile(random_ring(3, 4)), path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RingFileError, match=f"ring file .*{name} is"):
        run("load", "--input", "x.parquet", "--ring-file", path)


def test_a_parquet_file_that_is_no_ring_is_refused(keys):
    (part,) = keys.glob("*-00000-*.parquet")
    with pytest.raises(RingFileError, match="no ring file"):
        read_ring(part)


def test_a_ring_file_of_a_newer_version_is_refused(tmp_path, ring_file):
    newer = {**json.loads(ring_file.read_text()), "version": 9}
    ring_file.write_text(json.dumps(newer))
    with pytest.raises(RingFileError, match="has version 9, and this hashring reads up to 1"):
        run("load", "--input", "x.parquet", "--ring-file", ring_file)


def test_a_missing_and_an_empty_ring_are_refused(tmp_path):
    with pytest.raises(NoDataError, match="no ring file could be read"):
        run("load", "--input", "x.parquet", "--ring-file", tmp_path / "no.json")
    write_ring(RingFile(Ring()), tmp_path / "empty.json")
    with pytest.raises(EmptyRingError, match=r"the ring of .*empty.json has no nodes: export one"):
        run("load", "--input", "x.parquet", "--ring-file", tmp_path / "empty.json")


# --- plan, load, audit, simulate and their reports --------------------------------------------


def test_a_plan_of_an_unknown_node_is_refused_before_spark_starts(ring_file):
    with pytest.raises(UnknownNodeError, match="node 'ghost' is not on"):
        run("plan", "--input", "x.parquet", "--ring-file", ring_file, "--leave", "ghost")


def test_a_plan_that_leaves_no_node_is_refused_before_spark_starts(ring_file):
    leave = [word for n in range(4) for word in ("--leave", f"n{n}")]
    text = "--leave n0 --leave n1 --leave n2 --leave n3: no node would be left, .*: keep one, or"
    with pytest.raises(EmptyRingError, match=text):
        run("plan", "--input", "x.parquet", "--ring-file", ring_file, *leave)


def test_a_plan_tells_what_moves_and_reports_it(keys, ring_file, tmp_path, spark):
    told = run(
        "plan", "--input", keys, "--ring-file", ring_file, "--join", "new", "--reweigh", "n1=2",
        "--report", tmp_path / "plan.html", "--output", tmp_path / "moves.parquet",
    )  # fmt: skip
    assert (told["rows"], told["points of a node of weight 1"]) == ("502", "8")
    assert 0 < int(told["rows that move"]) < 500
    page = Page((tmp_path / "plan.html").read_text())
    assert page.loads == []
    assert page.tags["svg"] == 1
    assert page.tags["path"] >= 4
    moves = spark.read.parquet(str(tmp_path / "moves.parquet"))
    assert moves.groupBy().sum("keys").first()[0] == int(told["rows that move"])


def lines(*arguments):
    """The lines that ``hashring spark`` prints."""
    result = CliRunner().invoke(spark_group, [str(a) for a in arguments])
    assert result.exit_code == 0, result.output
    return result.output.splitlines()


def test_load_prints_each_node_and_the_hottest_keys(spark, keys, ring_file):
    told = lines("load", "--input", keys, "--ring-file", ring_file, "--top", 2)
    at = told.index("busiest nodes")
    assert told[at + 1].split() == [
        "node",
        "keys",
        "weight",
        "share",
        "fair",
        "share",
        "of",
        "fair",
    ]
    nodes = [line.split() for line in told[at + 2 : at + 5]]
    counts = [int(cells[1]) for cells in nodes[:2]]
    assert counts == sorted(counts, reverse=True)
    assert all(set(cells[-1]) == {"█"} for cells in nodes[:2])
    # The rest is summed.
    assert nodes[2][:2] == ["2", "more"]
    assert int(nodes[2][2]) + sum(counts) == 500
    assert told[at + 5 : at + 7] == ["", "hottest keys"]
    assert len(told) == at + 7 + 1 + 3
    everything = lines("load", "--input", keys, "--ring-file", ring_file, "--all")
    assert len([line for line in everything if "█" in line]) == 4


def test_the_sums_of_the_other_rows_stand_in_their_columns():
    moved = [("a", 3, 3.0), ("b", 2, 2.0)]
    table = Table("moves", ("from", "rows", "weight"), moved, ("rows", "weight"), bar="rows")
    assert list(table_lines(table, 1))[-1].split() == ["1", "more", "2", "2"]


def test_a_key_does_not_write_into_the_terminal(spark, ring_file, tmp_path):
    keep(tmp_path / "in.parquet", key=["\x1b[2Jevil\nrows  9"])
    told = run("load", "--input", tmp_path / "in.parquet", "--ring-file", ring_file)
    assert (told["hottest key"], told["rows"]) == (r"\x1b[2Jevil\nrows  9", "1")


def test_hottest_keys_may_be_left_out(keys, ring_file):
    told = run("load", "--input", keys, "--ring-file", ring_file, "--hottest", 0, "--json")
    assert "hottest key" not in told
    assert "hottest keys" not in told


@pytest.fixture(scope="module")
def loaded(keys, tmp_path_factory):
    """What a load answers in JSON, and the page of its report."""
    folder = tmp_path_factory.mktemp("loaded")
    write_ring(random_ring(4, 8), folder / "ring.json")
    told = run("load", "--input", keys, "--weight", "w", "--ring-file", folder / "ring.json",
               "--top", 1, "--report", folder / "load.html", "--json")  # fmt: skip
    return told, Page((folder / "load.html").read_text())


def test_answers_come_whole_as_json(loaded):
    told, _ = loaded
    assert sum(row["keys"] for row in told["busiest nodes"]) == 500
    assert len(told["hottest keys"]) == 20


def test_a_load_report_has_shares_and_hot_keys(loaded):
    _, page = loaded
    assert (page.loads, page.tags["svg"], page.tags["table"]) == ([], 3, 2)


def test_plan_prints_the_moves(keys, ring_file):
    told = lines("plan", "--input", keys, "--ring-file", ring_file, "--leave", "n1")
    at = told.index("moves")
    moves = [line.split() for line in told[at + 2 : told.index("", at)]]
    assert {cells[0] for cells in moves} == {"n1"}
    assert {cells[1] for cells in moves} <= {"n0", "n2", "n3"}
    gained = told[told.index("nodes by rows that they gain or lose") + 2].split()
    assert (gained[0], gained[4]) == ("n1", str(sum(int(cells[2]) for cells in moves)))


def test_a_plan_that_moves_nothing_says_so(spark, tmp_path):
    write_ring(Ring({"a": [0]}), tmp_path / "r.json")
    keep(tmp_path / "k.parquet", key=["k"])
    told = lines("plan", "--input", tmp_path / "k.parquet", "--ring-file", tmp_path / "r.json",
                 "--reweigh", "a=2")  # fmt: skip
    assert "moves: none" in told


def test_the_report_of_a_large_ring_is_no_large_file(spark, tmp_path):
    source = Input(spark.range(20_000).selectExpr("cast(id as string) key"), "keys")
    outcome = load_job(source, random_ring(3000, 4), hottest=1)
    page = outcome.report.html()
    assert len(page) < 2**20
    assert "Nodes by their share over their fair share" in page
    assert "and 2,800 more" in page


@pytest.mark.long
def test_the_plan_of_a_large_ring_is_no_large_file(spark):
    source = Input(spark.range(20_000).selectExpr("cast(id as string) key"), "keys")
    outcome = plan_job(source, random_ring(3000, 4), leave=[f"n{i}" for i in range(0, 3000, 2)])
    moves, nodes = outcome.tables
    assert len(moves.rows) > 3000
    assert len(nodes.rows) == 3000
    assert len(outcome.report.html()) < 2**20
    assert outcome.report.title.endswith("n16, n18 and 1,490 more leave")
    assert f"the 60 largest of {len(moves.rows):,} flows" in outcome.report.html()


@pytest.mark.long  # Reports of a load and of a plan are shortened alike.
def test_the_audit_of_a_large_ring_is_no_large_file(spark):
    def join(number, node):
        at = (11 + node) * 10**6
        return change(number, "join", (f"n{node}",), [node * 2**24], at=at)

    changes = [
        change(1, "join", tuple(f"n{i}" for i in range(200, 3000)), [1], at=10 * 10**6),
        *(join(i + 2, i) for i in range(50)),
        change(52, "expire", tuple(f"n{i}" for i in range(40)), at=int(60.5e6)),
        *(join(i + 3, i) for i in range(50, 200)),
    ]
    # Most rows are of nodes that do not own the key.
    log = spark.range(20_000).selectExpr(
        "concat('key', id) key", "concat('n', id % 3000) node", "11D + id % 300 start", "400D end"
    )
    outcome = audit_job(Input(log, "log"), ring_history(changes, hash_algorithm="jamcrc"))
    assert dict(outcome.facts)["hash algorithm"] == "jamcrc"
    page = outcome.report.html()
    assert [len(table.rows) for table in outcome.tables] == [100, 3000]
    assert len(page) < 2**20
    # Of nodes, and of changes.
    assert len(re.findall(r'<p class="note">and [\d,]+ more</p>', page)) == 2
    assert '<td class="w">expire n0, n1, n2, n3, n4, n5, n6, n7, n8, n9 and 30 more</td>' in page


def test_a_report_escapes_what_names_hold(spark, tmp_path):
    write_ring(RingFile(Ring({"<script>alert(1)</script>": [0]})), tmp_path / "r.json")
    keep(tmp_path / "k.parquet", key=["<b>"])
    run("load", "--input", tmp_path / "k.parquet", "--ring-file", tmp_path / "r.json",
        "--report", tmp_path / "load.html")  # fmt: skip
    assert Page((tmp_path / "load.html").read_text()).tags.keys().isdisjoint({"script", "b"})


def test_a_report_that_exists_stops_the_job_before_it_starts(ring_file, tmp_path):
    report = tmp_path / "load.html"
    report.write_text("mine")
    with pytest.raises(OutputExists):
        run("load", "--input", "x.parquet", "--ring-file", ring_file, "--report", report)
    assert report.read_text() == "mine"


def test_an_answer_whose_report_cannot_be_written_is_shown(
    spark, keys, ring_file, tmp_path, monkeypatch
):
    report = tmp_path / "load.html"
    # Its name is free as the job begins, and taken as it ends.
    monkeypatch.setattr(Report, "html", lambda _: str(report.write_text("another's")))
    arguments = ("load", "--input", keys, "--ring-file", ring_file, "--hottest", 0, "--json")
    result = CliRunner().invoke(spark_group, [*map(str, arguments), "--report", str(report)])
    assert isinstance(result.exception, OutputExists)
    assert json.loads(result.stdout)["rows"] == 502
    assert report.read_text() == "another's"


@pytest.mark.parametrize("option", ["--report", "--output"])
def test_an_output_that_cannot_be_written_stops_the_job_before_it_starts(
    keys, ring_file, tmp_path, option
):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputRefused, match=r"x.csv cannot be written \(.*file is no directory"):
        run("load", "--input", keys, "--ring-file", ring_file, option, tmp_path / "file" / "x.csv")


@pytest.mark.long
def test_an_audit_of_files_needs_no_redis(spark, tmp_path):
    spark.sql(
        "select 1L epoch, timestamp'2024-01-01 00:00:10' at, 'join' kind, array('a') nodes, "
        "array(5L) points union all select 2L, timestamp'2024-01-01 00:00:20', 'leave', "
        "array('a'), null"
    ).write.parquet(str(tmp_path / "events.parquet"))
    log = tmp_path / "log.csv"
    log.write_text(
        "key,node,start,end\n"
        "k,a,2024-01-01T00:00:11Z,2024-01-01T00:00:12Z\n"
        "k,a,2024-01-01T00:00:15Z,2024-01-01T00:00:25Z\n"
        "k,ghost,2024-01-01T00:00:15Z,2024-01-01T00:00:16Z\n"
        "k,a,2024-01-01T00:00:16Z,2024-01-01T00:00:15Z\n"
        "k,a,garbage,2024-01-01T00:00:16Z\n"
    )
    told = run(
        "audit", "--input", log, "--events", tmp_path / "events.parquet",
        "--schema", "key string, node string, start timestamp, end timestamp",
        "--output", tmp_path / "findings.json", "--report", tmp_path / "audit.html",
    )  # fmt: skip
    assert told["rows judged"] == "2"
    assert told["work begun by the owner and gone on with after losing the key"] == "1"
    assert told["hash algorithm"] == "crc-32"
    assert told["hash algorithm from"].startswith("assumed: events do not have it; to ch")
    assert told["rows rejected: unknown node"] == "1"
    assert told["rows rejected: end before start"] == "1"
    assert told["bad records left out"] == "1"
    finding = ["a", "2024-01-01", "00:00:15Z", "a", "overrun", "5"]
    assert told["k"].split() == finding
    (finding,) = read_frame(spark, [str(tmp_path / "findings.json")]).frame.collect()
    assert (finding.problem, finding.unowned) == ("overrun", 5.0)
    assert Page((tmp_path / "audit.html").read_text()).loads == []


@pytest.mark.long
def test_an_event_that_is_in_two_files_counts_once(spark, tmp_path):
    """Two archives of a ring have what happened in the time of both."""
    (tmp_path / "log.csv").write_text("key,node,start,end\nk,a,1704067211,1704067222\n")
    join = '"kind": "join", "epoch": 1, "nodes": ["a"], "points": [1]}'
    expire = '"kind": "expire", "epoch": 2, "nodes": ["a"]}'
    unserved = '"kind": "unserved", "by": "a"}'
    told = [
        f'{{"id": "17040672{at}000-0", "at": "2024-01-01T00:00:{at}Z", {event}\n'
        for at, event in ((10, join), (15, unserved), (20, expire), (21, unserved))
    ]
    # As of a later version, which writes more of an event.
    again = [event.replace('"epoch"', '"reason": "start", "epoch"') for event in told]
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "first.json").write_text("".join(told[:3]))
    (tmp_path / "events" / "second.json").write_text("".join(again))
    found = run(
        "audit", "--input", tmp_path / "log.csv", "--events", tmp_path / "events" / "*.json",
        "--events", tmp_path / "events" / "first.json",
        "--schema", "key string, node string, start double, end double", "--json",
    )  # fmt: skip
    assert {kind: found[f"events: {kind}"] for kind in ("join", "unserved", "expire")} == {
        "join": 1, "unserved": 2, "expire": 1,
    }  # fmt: skip
    assert (found["ring changes"], len(found["worst findings"])) == (2, 1)


@pytest.mark.parametrize(
    ("given", "name", "source"),
    [
        (["--base", "ring.json"], "crc-32c", "--base"),
        pytest.param(
            ["--hash-algorithm", "crc32c"], "crc-32c", "--hash-algorithm", marks=pytest.mark.long
        ),
    ],
)
def test_an_audit_of_files_has_the_hash_algorithm_that_is_given(  # noqa: PLR0917
    spark, tmp_path, three_joins, given, name, source
):
    write_ring(RingFile(Ring({}, "crc-32c")), tmp_path / "ring.json")
    (tmp_path / "log.csv").write_text("key,node,start,end\nk,n3,1704067214,1704067215\n")
    told = run(
        "audit", "--input", tmp_path / "log.csv", "--events", three_joins / "*.json",
        "--schema", "key string, node string, start double, end double",
        *(tmp_path / word if word.endswith(".json") else word for word in given),
    )  # fmt: skip
    assert (told["hash algorithm"], told["hash algorithm from"]) == (name, source)


def test_a_hash_algorithm_that_there_is_not_ends_an_audit_before_spark_starts():
    with pytest.raises(ConfigError, match="md5"):
        run("audit", "--input", "l.parquet", "--events", "e.parquet", "--hash-algorithm", "md5")


AGAIN = 1729990800
"""When the clocks of Berlin are set back from 3:00 to 2:00."""


@pytest.fixture(scope="module")
def audit_files(spark, tmp_path_factory):
    """The arguments of an audit of work by a node 007, in a directory of that name.

    An hour before the clocks of Berlin are set back it loses all keys.
    """
    folder = tmp_path_factory.mktemp("audited")
    spark.sql(
        f"select 1L epoch, timestamp_seconds({AGAIN - 7200}) at, 'join' kind, "
        f"array('007') nodes, array(5L) points union all "
        f"select 2L, timestamp_seconds({AGAIN - 3600}), 'join', array('b'), array(5L)"
    ).write.parquet(str(folder / "events.parquet"))
    spark.sql(
        "select key, '007' node, start, end from values "
        f"('again', timestamp_seconds({AGAIN - 3600}), timestamp_seconds({AGAIN - 3591})), "
        f"('again', timestamp_seconds({AGAIN}), timestamp_seconds({AGAIN + 9})), "
        f"('k', timestamp_seconds({AGAIN - 7000}), timestamp'+12000-01-01 00:00:00'), "
        "('k', timestamp'+11000-01-01 00:00:00', timestamp'+12000-01-01 00:00:00') "
        "as t(key, start, end)"
    ).write.partitionBy("node").parquet(str(folder / "log.parquet"))
    return "--input", folder / "log.parquet", "--events", folder / "events.parquet"


@pytest.fixture(scope="module")
def audited(spark, audit_files, tmp_path_factory):
    """What that audit answers in Berlin."""
    schema = "key string, start timestamp, end timestamp, node string"
    report = tmp_path_factory.mktemp("report") / "audit.html"
    spark.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        return run("audit", *audit_files, "--schema", schema, "--report", report, "--json")
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


@pytest.mark.usefixtures("careless")
def test_events_that_cannot_be_read_are_not_left_out(audit_files, tmp_path):
    events = shutil.copytree(audit_files[-1], tmp_path / "events.parquet")
    damage(next(events.glob("*.parquet")))
    schema = "key string, start timestamp, end timestamp, node string"
    with pytest.raises(InputDamaged, match=r"events\.parquet"):
        run("audit", *audit_files[:-1], events, "--schema", schema)


@pytest.mark.usefixtures("careless")
@pytest.mark.parametrize("read", [read_frame, read_stream])
def test_a_file_that_cannot_be_read_is_not_left_out(spark, tmp_path, read):
    (tmp_path / "in").mkdir()
    keep(tmp_path / "in" / "a.parquet", key=["a"])
    damage(keep(tmp_path / "in" / "b.parquet", key=["b"]))
    given = (spark, read, tmp_path, "parquet", "key string")
    with pytest.raises(SPARK_ERRORS, match=r"b\.parquet"):
        read_all(*given)
    shutil.rmtree(tmp_path / "cp", ignore_errors=True)
    found = read_all(*given, options={"ignoreCorruptFiles": "true"})
    assert [row.key for row in found] == ["a"]


@pytest.mark.usefixtures("careless")
def test_a_file_of_a_table_that_cannot_be_read_is_not_left_out(spark, tmp_path):
    keep(tmp_path / "a.parquet", key=["a"])
    damage(keep(tmp_path / "b.parquet", key=["b"]))
    spark.sql("DROP TABLE IF EXISTS cared")
    spark.sql(f"CREATE TABLE cared (key STRING) USING parquet LOCATION '{tmp_path}'")
    try:
        with pytest.raises(SPARK_ERRORS, match=r"b\.parquet"):
            read_table(spark, "cared").frame.collect()
    finally:
        spark.sql("DROP TABLE cared")


TIMES = ["2024-01-02T03:04:05.123456+00:00", "2024-01-02T03:04:05.123Z", "2024-01-02 03:04:05"]
"""Of one second, as this package, Spark and others write them."""


@pytest.mark.usefixtures("old_parser")
@pytest.mark.parametrize("kind", ["csv", "json"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_times_are_read_to_the_microsecond_by_the_old_parser_too(spark, tmp_path, kind, is_stream):
    texts = [*TIMES, "garbage"]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / f"log.{kind}").write_text(
        "key,start\n" + "".join(f"{i},{text}\n" for i, text in enumerate(texts))
        if kind == "csv"
        else "".join(json.dumps({"key": str(i), "start": t}) + "\n" for i, t in enumerate(texts))
    )
    given = (spark, [str(tmp_path / "in")], kind, "key string, start timestamp")
    if is_stream:
        found = read_stream(*given)
        assert found.schema[CORRUPT].metadata == OF_READER
        found.writeStream.trigger(availableNow=True).option(
            "checkpointLocation", str(tmp_path / "cp")
        ).start(str(tmp_path / "out")).awaitTermination()
        found = spark.read.parquet(str(tmp_path / "out"))
        assert found.where(F.col(CORRUPT).isNotNull()).count() == 1
        found = found.where(F.col(CORRUPT).isNull())
    else:
        found, bad = read_frame(*given).counted()
    # Not sorted by Spark: to sort, PySpark 4.0 reads, and counts, twice.
    micros = rows(found.select(F.unix_micros("start")))
    assert sorted(micros) == [(1704164645000000,), (1704164645123000,), (1704164645123456,)]
    assert is_stream or bad() == 1


@pytest.mark.usefixtures("old_parser")
def test_times_of_events_are_read_to_the_microsecond_by_the_old_parser_too(spark, tmp_path):
    event = {"id": "9-0", "at": TIMES[0], "kind": "join", "epoch": 1, "nodes": ["a"], "points": [5]}
    (tmp_path / "e.json").write_text(json.dumps(event))
    read = read_events(spark, Settings(), (str(tmp_path / "e.json"),))
    assert history_of(read).since == 1704164645123456
    (tmp_path / "e.json").write_text(json.dumps({**event, "at": "garbage"}))
    with pytest.raises(InputDamaged, match="garbage"):
        read_events(spark, Settings(), (str(tmp_path / "e.json"),))


def starts(audited, key):
    return [row["start"] for row in audited["worst findings"] if row["key"] == key]


def test_work_may_end_after_the_last_year_of_python(audited):
    assert set(starts(audited, "k")) == {"2024-10-27 01:03:20+02:00", "+11000-01-01 01:00:00+01:00"}


def test_a_log_in_directories_of_nodes_like_numbers_needs_their_type(audit_files, audited):
    with pytest.raises(ColumnError, match="'node' is int; a node's name is a string: give its"):
        run("audit", *audit_files)
    assert audited["rows judged"] == 4


def test_the_hour_that_comes_twice_is_told_apart_in_an_audit(audited):
    assert starts(audited, "again") == ["2024-10-27 02:00:00+02:00", "2024-10-27 02:00:00+01:00"]


@pytest.fixture
def three_joins(tmp_path):
    """Files of events: n1, n2 and n3 join, a second each after the other."""
    lines = [
        f'{{"epoch": {epoch}, "at": "2024-01-01T00:00:1{epoch}Z", "kind": "join", '
        f'"nodes": ["n{epoch}"], "points": [{epoch}]}}\n'
        for epoch in (1, 2, 3)
    ]
    place = tmp_path / "events"
    place.mkdir()
    (place / "0-0.json").write_text("".join(lines[:2]))
    (place / "2-0.json").write_text(lines[2])
    return place


@pytest.mark.parametrize(
    ("judged", "name", "log"),
    [
        (2, "log.csv", "k,n3,{0}4,{0}5\nk,n3,{0}6,{0}7\nk,n3,x,{0}4\n"),
        pytest.param(
            0,
            "log.json",
            '{{"key":"k","node":"ghost","start":{0}4.5,"end":{0}5.5}}\n{{"key":\n',
            marks=pytest.mark.long,
        ),
    ],
)
def test_bad_records_are_counted_whatever_is_left_to_judge(  # noqa: PLR0917
    spark, tmp_path, three_joins, judged, name, log
):
    # Spark drops a part of a query that turns out to have no rows, and what was counted in it.
    header = "key,node,start,end\n" if name.endswith("csv") else ""
    (tmp_path / name).write_text(header + log.format(170406721))
    told = run(
        "audit", "--input", tmp_path / name, "--events", three_joins / "*.json",
        "--schema", "key string, node string, start double, end double",
        "--output", tmp_path / "findings.parquet", "--json",
    )  # fmt: skip
    assert (told["rows judged"], told["bad records left out"]) == (judged, 1)
    assert told["ring changes"] == 3
    assert told.get("rows rejected: unknown node") == (None if judged else 1)
    assert spark.read.parquet(str(tmp_path / "findings.parquet")).isEmpty()


@pytest.mark.long
def test_malformed_records_are_counted_where_spark_finds_that_nothing_is_left(spark, tmp_path):
    for name, data, schema in (
        ("in.json", '{"key": "a"}\n{"key": \n', None),
        ("in.csv", "key,w\na,1\nb,x\n", "key string, w double"),
    ):
        (tmp_path / name).write_text(data)
        frame, bad_records = read_frame(spark, [str(tmp_path / name)], schema=schema).counted()
        assert frame.where("key > 'k'").groupBy("key").count().collect() == []
        assert bad_records() == 1


def test_counts_hold_where_spark_finds_that_nothing_is_left(spark):
    counts = Counts(spark.range(9), rows=F.count(F.lit(1)))
    assert counts.frame.where("id > 9").groupBy("id").count().collect() == []
    assert counts.get() == {"rows": 9}


def test_events_that_are_cut_short_are_refused(tmp_path, three_joins):
    # Whole, they are read: see the test of bad records.
    (tmp_path / "log.csv").write_text("key,node,start,end\nk,n3,1704067214,1704067215\n")
    cut = three_joins / "0-0.json"
    cut.write_text(cut.read_text()[:-41])
    with pytest.raises(
        InputDamaged, match=r"events/0-0.json cannot be read \(no record of this sch"
    ):
        run(
            "audit", "--input", tmp_path / "log.csv", "--events", three_joins / "*.json",
            "--schema", "key string, node string, start double, end double",
        )  # fmt: skip


def test_events_in_csv_are_refused_before_spark_starts():
    with pytest.raises(ConfigError, match="a CSV holds no lists: give Parquet or JSON"):
        run("audit", "--input", "log.parquet", "--events", "events.csv")


def test_simulate_prints_balance_and_answers_how_many(spark, tmp_path):
    told = run("simulate", "--nodes", 5, "--n-replicas", 4, "--n-replicas", 16, "--rings", 20,
               "--report", tmp_path / "s.html", "--output", tmp_path / "s.parquet")  # fmt: skip
    assert told["5 x 16 random"].startswith("peak 1.")
    assert spark.read.parquet(str(tmp_path / "s.parquet")).count() == 40
    assert Page((tmp_path / "s.html").read_text()).tags["polyline"] == 1
    told = run("simulate", "--nodes", 5, "--peak", 2, "--confidence", 0.5, "--rings", 20)
    assert int(told["replicas needed"]) > 0
    assert told["rings drawn with so many"] == "20"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["assign", "--input", "x.parquet"], "give --output or --table"),
        (["assign", "--input", "x", "--keep-point", "--output", "o", "--mode", "append"],
         "--keep-point writes a whole directory: give --output, and no --mode append"),
        (["assign", "--input", "x", "--keep-point", "--table", "t"], "give --output, and no"),
        (["plan", "--input", "x.parquet"], "nothing to plan"),
        (["plan", "--input", "x", "--reweigh", "n1"], "give NODE=WEIGHT, such as host:1=2"),
        (["plan", "--input", "x", "--reweigh", "a=1", "--reweigh", "a=2"], "names a node twice"),
        (["simulate", "--peak", "1.2"], "--peak asks about one number of --nodes"),
        (["simulate", "--peak", "2", "--nodes", "5", "--limit", "2"], "leave out --limit"),
        (["simulate", "--conf", "x", "--nodes", "5"], "--conf x: give NAME=VALUE"),
        (["simulate", "--conf", "=x", "--nodes", "5"], "--conf =x: give NAME=VALUE"),
        (["audit", "--input", "x.parquet"], "give --url, or files"),
        (["stream", "--input", "x", "--output", "o", "--checkpoint", "c"], "give --url or"),
    ],
)  # fmt: skip
def test_a_wrong_command_line_is_said(spark, arguments, text):
    assert text in refused(*arguments)


def test_a_signal_within_a_call_to_java_is_what_ends_a_job(spark, monkeypatch):
    frame = spark.range(3)

    def answer_of_another_call():
        raise KeyError("p")

    monkeypatch.setattr(frame, "unpersist", answer_of_another_call)
    with pytest.raises(SystemExit), kept(frame):
        raise SystemExit(143)
    with pytest.raises(KeyError), kept(frame):
        pass


def test_an_answer_shows_itself_in_a_notebook(spark):
    df = spark.range(1234).selectExpr("'<a> & b' AS key", "id")
    outcome = load_job(Input(df, "keys"), random_ring(3, 4), hottest=1)
    frame = outcome._repr_html_()
    page = unescape(re.fullmatch('<iframe srcdoc="([^"]*)" style="[^"]*"></iframe>', frame)[1])
    facts = dict(outcome.facts)
    assert facts["rows"] == 1234
    assert "<dt>rows</dt><dd>1,234</dd>" in page
    assert f"<dt>busiest node</dt><dd>{facts['busiest node']}</dd>" in page
    assert "&lt;a&gt; &amp; b" in page
    assert page == outcome.report.html()
