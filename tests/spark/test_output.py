"""Outputs: appended to, replaced, and left as they were by a job that fails."""

import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
from pyspark.ml.linalg import Vectors
from pyspark.sql import DataFrameWriter
from pyspark.sql import functions as F  # noqa: N812

from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile
from hashring.errors import ColumnError, ConfigError, OutputExists, OutputRefused
from hashring.ring_files import write_ring
from hashring.spark import point_histogram, with_owner
from hashring.spark.engine.counts_while_read import Counts
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io import directory_swap, output
from hashring.spark.io.existing_files import files_there
from hashring.spark.io.input import Input, read_frame
from hashring.spark.io.job_file_names import new_file_name
from hashring.spark.io.local_paths import exactly
from hashring.spark.io.output import Output
from hashring.spark.jobs import assign_job
from tests.conftest import ROOT
from tests.spark.conftest import interrupted, on_workers, rows, stored
from tests.spark.test_jobs import run
from tests.spark.test_owner import random_ring


def ids(df):
    return sorted(row.id for row in df.select("id").collect())


def ids_in(place):
    """The same of Parquet files."""
    return sorted(row["id"] for row in stored(place))


@pytest.fixture
def table(spark):
    """A bucketed table that holds 0 to 3."""
    spark.sql("DROP TABLE IF EXISTS whole")
    spark.range(4).selectExpr("id", "id % 2 AS part").write.bucketBy(2, "id").saveAsTable("whole")
    yield "whole"
    spark.sql("DROP TABLE IF EXISTS whole")


def _until(holds):
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def failing(spark):
    """Rows of which the last cannot be computed."""
    return spark.range(4, 8).selectExpr("if(id = 7, raise_error('boom'), id) AS id", "0L AS part")


def layout(spark, table):
    return [(c.name, c.isPartition, c.isBucket) for c in spark.catalog.listColumns(table)]


@pytest.mark.parametrize(
    ("mode", "held"),
    [
        ("overwrite", [7, 8]),
        ("append", [0, 1, 2, 7, 8]),
        pytest.param("error", [7, 8], marks=pytest.mark.long),
    ],
)
def test_a_frame_that_spark_keeps_of_an_output_is_read_anew(spark, tmp_path, mode, held):
    place = tmp_path / "out"
    spark.range(3).write.parquet(str(place))
    kept = spark.read.parquet(str(place)).cache()
    assert ids(kept) == [0, 1, 2]
    if mode == "error":
        shutil.rmtree(place)
    Output(str(place), "parquet", mode=mode).write(spark.range(7, 9))
    try:
        assert ids(spark.read.parquet(str(place))) == held
    finally:
        kept.unpersist()


def test_an_append_that_is_interrupted_leaves_nothing(spark, tmp_path, monkeypatch):
    place = tmp_path / "out"
    spark.range(4).write.parquet(str(place))
    moved, rename = [], Path.rename

    def interrupted(self, target):
        if Path(target).parent == place:
            moved.append(target)
            if len(moved) == 3:
                raise KeyboardInterrupt
        return rename(self, target)

    append = Output(str(place), "parquet", mode="append").write
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", interrupted)
        with pytest.raises(KeyboardInterrupt):
            append(spark.range(100, 104, 1, 4))
    assert ids(spark.read.parquet(str(place))) == [0, 1, 2, 3]
    append(spark.range(100, 104, 1, 4))
    assert ids(spark.read.parquet(str(place))) == [0, 1, 2, 3, 100, 101, 102, 103]


def test_an_append_that_is_interrupted_leaves_no_directories_of_its_own(
    spark, tmp_path, monkeypatch
):
    place = tmp_path / "out"
    df = spark.range(100, 104).withColumn("part", F.col("id") % 3)
    df.where("part = 1").write.partitionBy("part").parquet(str(place))
    with monkeypatch.context() as patch:
        in_the_directory(patch, "rename", place / "part=2", 1, ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            Output(str(place), "parquet", mode="append").write(df, ["part"])
    assert [path.name for path in place.glob("part=*")] == ["part=1"]
    assert ids(spark.read.parquet(str(place))) == [100, 103]


def in_the_directory(monkeypatch, name, place, number, then):
    """Do something once, right before so many times a path's method is called on its files."""
    method, calls = getattr(Path, name), []

    def counted(self, *more, **options):
        if place in (self.parent, *(Path(target).parent for target in more)):
            calls.append(self)
            if len(calls) == number:
                then()
        return method(self, *more, **options)

    monkeypatch.setattr(Path, name, counted)


def ctrl_c():
    signal.raise_signal(signal.SIGINT)


def refused():
    raise PermissionError


@pytest.mark.long
def test_ctrl_c_twice_in_an_append_leaves_nothing(spark, tmp_path, monkeypatch):
    place = tmp_path / "out"
    spark.range(4).write.parquet(str(place))
    with monkeypatch.context() as patch:
        in_the_directory(patch, "rename", place, 3, ctrl_c)
        in_the_directory(patch, "unlink", place, 2, ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            Output(str(place), "parquet", mode="append").write(spark.range(100, 104, 1, 4))
    assert ids_in(place) == [0, 1, 2, 3]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_ctrl_c_after_the_last_file_was_appended_takes_all_back(spark, tmp_path, monkeypatch):
    place = tmp_path / "out"
    spark.range(4).write.parquet(str(place))
    with monkeypatch.context() as patch:
        patch.setattr("hashring.spark.io.output.seen_anew", lambda *_: ctrl_c())
        with pytest.raises(KeyboardInterrupt):
            Output(str(place), "parquet", mode="append").write(spark.range(100, 104, 1, 4))
    assert ids_in(place) == [0, 1, 2, 3]


@pytest.mark.long
def test_a_signal_that_a_program_only_notes_does_not_end_an_append(spark, tmp_path, monkeypatch):
    place, noted = tmp_path / "out", []
    spark.range(4).write.parquet(str(place))
    in_the_directory(monkeypatch, "rename", place, 2, lambda: signal.raise_signal(signal.SIGTERM))
    before = signal.signal(signal.SIGTERM, lambda number, _: noted.append(number))
    try:
        Output(str(place), "parquet", mode="append").write(spark.range(100, 104, 1, 4))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert noted == [signal.SIGTERM]
    assert ids_in(place) == [0, 1, 2, 3, 100, 101, 102, 103]


@pytest.mark.parametrize("also", [ctrl_c, refused], ids=["ctrl-c again", "Java has ended"])
def test_files_that_an_append_cannot_take_back_are_named(spark, tmp_path, monkeypatch, also):
    place = tmp_path / "out"
    spark.range(4).write.parquet(str(place))

    def taken_back():
        monkeypatch.setattr(type(spark.catalog), "refreshByPath", lambda *_: also())
        refused()

    append = Output(str(place), "parquet", mode="append").write
    with monkeypatch.context() as patch:
        in_the_directory(patch, "rename", place, 3, ctrl_c)
        in_the_directory(patch, "unlink", place, 1, taken_back)
        with pytest.raises(
            OutputRefused,
            match=r"\(the append ended half way, and these files of it are still there: "
            r"(part-[^ ,]*)\): remove these files, and start again$",
        ) as refusal:
            append(spark.range(100, 104, 1, 4))
    (name,) = re.findall(r"part-[^ ,)]*", str(refusal.value))
    (place / name).unlink()
    assert ids_in(place) == [0, 1, 2, 3]


@pytest.fixture
def growing(spark, monkeypatch):
    """Four rows, and five after the first write; counts are not taken as they are written."""
    monkeypatch.setattr("hashring.spark.engine.counts_while_read.can_observe", lambda _: False)
    system = spark.sparkContext._jvm.java.lang.System
    system.setProperty("hashring.rows", "4")
    for name in ("save", "insertInto"):
        method = getattr(DataFrameWriter, name)

        def then_more(writer, *given, _method=method, **options):
            _method(writer, *given, **options)
            system.setProperty("hashring.rows", "5")

        monkeypatch.setattr(DataFrameWriter, name, then_more)
    number = "int(java_method('java.lang.System', 'getProperty', 'hashring.rows'))"
    return spark.range(1).selectExpr(f"explode(sequence(1L, {number})) AS id", "0L AS part")


@pytest.mark.parametrize("mode", ["error", "append"])
def test_an_input_that_grows_is_not_counted_again(spark, tmp_path, monkeypatch, growing, mode):
    monkeypatch.setattr("hashring.spark.io.output.local_path", lambda spark, path: None)
    Output(str(tmp_path / "out"), "parquet", mode=mode).write(growing)
    assert ids_in(tmp_path / "out") == [1, 2, 3, 4]


@pytest.mark.long
def test_an_input_that_grows_is_not_counted_again_for_a_table(spark, table, growing):
    Output(None, table=table, mode="append").write(growing)
    assert ids(spark.table(table)) == [0, 1, 1, 2, 2, 3, 3, 4]


def test_files_of_another_job_are_noticed_where_rows_are_not_counted(
    spark, tmp_path, monkeypatch, growing
):
    place = tmp_path / "out"
    monkeypatch.setattr("hashring.spark.io.output.local_path", lambda spark, path: None)
    save = DataFrameWriter.save

    def save_beside_another(writer, path):
        save(writer, path)
        (place / "part-other.parquet").write_bytes(b"PAR1")

    monkeypatch.setattr(DataFrameWriter, "save", save_beside_another)
    with pytest.raises(OutputRefused, match="rows of both are there"):
        Output(str(place), "parquet").write(growing)


def test_rows_that_workers_keep_are_counted_by_a_second_read(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("hashring.spark.engine.counts_while_read.can_observe", lambda _: False)
    on_workers(monkeypatch, lost=1)
    with pytest.raises(OutputRefused, match="30 of 40 rows are there: Spark's workers"):
        Output(str(tmp_path / "out"), "parquet").write(spark.range(0, 40, 1, 4))


def test_counts_that_were_read_stay_as_they_are(spark, growing):
    counts = Counts(growing, rows=F.count(F.lit(1)))
    assert counts.get() == {"rows": 4}
    growing.write.format("noop").mode("overwrite").save()
    assert growing.count() == 5
    assert counts.get() == {"rows": 4}


@pytest.mark.parametrize(
    ("format", "parts"),
    [
        ("parquet", ()),
        pytest.param("orc", ("part",), marks=pytest.mark.long),
        pytest.param("parquet", ("part",), marks=pytest.mark.long),
        pytest.param("orc", (), marks=pytest.mark.long),
    ],
)
def test_a_new_table_is_refused_whose_workers_keep_rows(spark, monkeypatch, parts, format):
    spark.sql("DROP TABLE IF EXISTS made")
    df = spark.range(40).selectExpr("id", "id % 2 AS part").repartition(4)
    try:
        with monkeypatch.context() as patch:
            on_workers(patch, lost=1)
            text = r"output made .*\d+ of 40 rows are there: .* put spark.sql.warehouse.dir where"
            with pytest.raises(OutputRefused, match=text):
                Output(None, format, table="made").write(df, parts)
        assert not spark.catalog.tableExists("made")
        on_workers(monkeypatch)
        Output(None, format, table="made").write(df, parts)
        assert ids(spark.table("made")) == list(range(40))
    finally:
        spark.sql("DROP TABLE IF EXISTS made")


@pytest.mark.parametrize("mode", ["append", pytest.param("overwrite", marks=pytest.mark.long)])
def test_a_table_s_rows_are_counted_whose_workers_may_keep_some(spark, table, monkeypatch, mode):
    df = spark.range(4, 44).selectExpr("id", "0L AS part").repartition(4)
    with monkeypatch.context() as patch:
        on_workers(patch, lost=1)
        with pytest.raises(OutputRefused, match=r"output whole .*\d+ of 40 rows are there"):
            Output(None, table=table, mode=mode).write(df)
    if mode == "overwrite":
        assert ids(spark.table(table)) == [0, 1, 2, 3]
    on_workers(monkeypatch)
    Output(None, table=table, mode="overwrite").write(df)
    assert ids(spark.table(table)) == list(range(4, 44))


@pytest.fixture
def shared(spark):
    """A table that several jobs append to. It holds 0 to 3."""
    spark.sql("DROP TABLE IF EXISTS shared")
    spark.range(4).write.saveAsTable("shared")
    yield "shared"
    spark.sql("DROP TABLE IF EXISTS shared")


@pytest.mark.parametrize("lost", [pytest.param(0, marks=pytest.mark.long), 1])
def test_rows_that_others_append_before_a_count_hide_no_loss(spark, shared, monkeypatch, lost):
    on_workers(monkeypatch, lost=lost, by=spark)
    insert = DataFrameWriter.insertInto

    def insert_before_others(writer, name, *more):
        insert(writer, name, *more)
        if writer._df.sparkSession is spark:
            others = spark.newSession().range(100, 140, 1, 4)
            Output(None, table=name, mode="append").write(others)

    monkeypatch.setattr(DataFrameWriter, "insertInto", insert_before_others)
    append = Output(None, table=shared, mode="append").write
    with pytest.raises(OutputRefused, match="30 of 40 rows") if lost else nullcontext():
        append(spark.range(4, 44, 1, 4))
    assert spark.table(shared).count() == 84 - 10 * lost


def waiting(began, others, *numbers):
    """A function of rows that waits at these numbers until another job is done."""

    def waited(number):
        if number in numbers:
            began.touch()
            deadline = time.monotonic() + 300
            while not others.exists() and time.monotonic() < deadline:
                time.sleep(0.05)
        return number

    return F.udf(waited, "long")("id").alias("id")


def test_a_job_whose_uncommitted_rows_another_took_away_is_refused(spark, shared, tmp_path):
    began, others = tmp_path / "began", tmp_path / "others"
    append = Output(None, table=shared, mode="append").write
    # The other three of its tasks are done by then, and the other job takes them away.
    mine = spark.range(4, 44, 1, 4).select(waiting(began, others, 4))
    with ThreadPoolExecutor(1) as pool:
        appended = pool.submit(append, mine)
        _until(began.exists)
        append(spark.newSession().range(100, 140, 1, 4))
        others.touch()
        with pytest.raises(
            OutputRefused, match=r"some rows or all are missing: another job .* not in files part-"
        ):
            appended.result()
    spark.catalog.refreshTable(shared)
    assert set(range(100, 140)) <= set(ids(spark.table(shared)))


def test_rows_that_spark_loses_beside_another_job_are_missed(spark, shared, tmp_path):
    # One task waits with its file open, which the other job removes. The others begin after that.
    began, others = tmp_path / "began", tmp_path / "others"
    (place,) = spark.sql(f"DESCRIBE EXTENDED {shared}").where("col_name = 'Location'").collect()
    mine = spark.range(4, 44, 1, 4).select(waiting(began, others, 4, 14))
    with ThreadPoolExecutor(1) as pool:
        appended = pool.submit(Output(None, table=shared, mode="append").write, mine)
        _until(began.exists)
        command = [sys.executable, "-m", "tests.spark.append_process", place.data_type, tmp_path]
        subprocess.run([*map(str, command)], cwd=ROOT, check=True)
        others.touch()
        with pytest.raises(OutputRefused, match="30 of 40 rows are there: another job appended"):
            appended.result()
    spark.catalog.refreshTable(shared)
    assert spark.table(shared).count() == 4 + 30 + 40


def test_files_are_counted_by_their_names_only_where_spark_gives_them(spark):
    assert re.fullmatch("part-[0-9a-f]{8}", new_file_name(spark))
    other = "org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol"
    spark.conf.set("spark.sql.sources.commitProtocolClass", other)
    try:
        assert not new_file_name(spark)
    finally:
        spark.conf.unset("spark.sql.sources.commitProtocolClass")


@pytest.mark.parametrize(
    "kind", ["csv", *(pytest.param(kind, marks=pytest.mark.long) for kind in ("parquet", "json"))]
)
def test_rows_appended_elsewhere_are_counted_whose_workers_may_keep_some(
    spark, tmp_path, monkeypatch, kind
):
    # As if Spark alone could see the path.
    monkeypatch.setattr("hashring.spark.io.output.local_path", lambda spark, path: None)
    df = spark.range(4, 44, 1, 4).selectExpr("cast(id AS string) id")
    Output(str(tmp_path / "out"), kind).write(df)
    append = Output(str(tmp_path / "out"), kind, mode="append").write
    on_workers(monkeypatch)
    append(df)
    on_workers(monkeypatch, lost=1)
    with pytest.raises(OutputRefused, match="30 of 40 rows are there"):
        append(df)


@pytest.mark.parametrize("is_table", [False, True])
def test_files_that_the_driver_sees_and_a_worker_does_not_are_missed(
    spark, tmp_path, monkeypatch, is_table
):
    count = type(spark.range(1)).count

    def count_without_one(df):
        next(Path(df.inputFiles()[0].removeprefix("file:")).parent.glob("part-*")).unlink()
        return count(df)

    spark.sql("DROP TABLE IF EXISTS made")
    on_workers(monkeypatch)
    monkeypatch.setattr(type(spark.range(1)), "count", count_without_one)
    output = Output(None, table="made") if is_table else Output(str(tmp_path / "out"), "parquet")
    with pytest.raises(OutputRefused, match="30 of 40 rows are there"):
        output.write(spark.range(0, 40, 1, 4))


@pytest.mark.parametrize(("mode", "held"), [("append", [0, 1, 2, 3]), ("overwrite", [2, 3])])
def test_files_that_are_there_are_added_to_or_replaced(spark, tmp_path, mode, held):
    place = str(tmp_path / "out.parquet")
    Output(place).write(spark.range(2).selectExpr("id", "0 AS part"), ["part"])
    Output(place, mode=mode).write(spark.range(2, 4).selectExpr("id", "1 AS part"), ["part"])
    assert ids_in(place) == held
    with pytest.raises(Exception, match="boom"):
        Output(place, mode=mode).write(failing(spark), ["part"])
    assert ids_in(place) == held
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


EACH_FORMAT = pytest.mark.parametrize(
    ("append", "kind"),
    [
        pytest.param(where, kind, marks=() if where == usual else pytest.mark.long)
        for kind, usual in (
            ("parquet", "elsewhere"), ("csv", "here"), ("json", "elsewhere"), ("orc", "here")
        )
        for where in ("here", "elsewhere")
    ],
    indirect=["append"],
)  # fmt: skip


ONCE = pytest.mark.parametrize(
    # The columns are fitted before it matters where the files are; other tests append elsewhere.
    "append",
    ["here", pytest.param("elsewhere", marks=pytest.mark.long)],
    indirect=True,
)


@pytest.fixture(params=["here", "elsewhere"])
def append(request, monkeypatch):
    """Appends a frame to files; elsewhere, as if Spark alone could see the path."""
    if request.param == "elsewhere":
        monkeypatch.setattr("hashring.spark.io.output.local_path", lambda spark, path: None)

    def to(place, df, partition_by=(), format="parquet"):
        Output(str(place), format, mode="append").write(df, partition_by)

    return to


def test_rows_are_appended_in_the_directories_that_are_there(spark, tmp_path, append):
    df = spark.range(3).selectExpr("id", "id AS part")
    for name, there, others in (
        ("plain", [], (["part"],)),
        ("by part", ["part"], ([], ["id"])),
    ):
        place = tmp_path / name
        append(place, df, there)
        for other in others:
            with pytest.raises(OutputRefused, match="readers would see one or the other"):
                append(place, df, other)
        append(place, df, there)
        assert len(stored(place)) == 6
    # A stream's batches are directories, too.
    df.write.parquet(str(tmp_path / "stream" / "batch=0"))
    with pytest.raises(
        OutputRefused, match=r"in directories batch=\.\.\., and the job's would be in no"
    ):
        append(tmp_path / "stream", df)


def test_files_in_directories_that_are_links_are_found(spark, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "part-0.csv").write_text("1")
    place = tmp_path / "out"
    place.mkdir()
    (place / "owner=a").symlink_to(tmp_path / "real")
    (place / "owner=b").symlink_to(place)  # which never ends
    assert files_there(spark, str(place), place) == ["owner=a/part-0.csv"]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_an_output_that_is_a_mount_point_is_refused_before_the_work(spark, mode):
    with pytest.raises(OutputRefused, match=r"is a mount point.*: name a directory in it"):
        Output("/dev", "parquet", mode=mode).check(spark)


@EACH_FORMAT
def test_rows_are_appended_in_the_format_that_is_there(spark, tmp_path, append, kind):
    place = tmp_path / "a [b] %20c=d"
    append(place, spark.range(2), format=kind)
    for other in {"parquet", "csv", "json"} - {kind}:
        with pytest.raises(OutputRefused, match=f"it holds {kind}, and the job writes {other}"):
            append(place, spark.range(2), format=other)
    append(place, spark.range(2, 4), format=kind)
    found = spark.read.option("header", True).format(kind).load(exactly(str(place)))
    assert sorted(int(row.id) for row in found.collect()) == [0, 1, 2, 3]


def test_files_that_are_none_of_their_name_are_not_appended_to(spark, tmp_path, append):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "part-0").write_text("key,w")
    with pytest.raises(OutputRefused, match="what is there cannot be read as parquet"):
        append(tmp_path / "out", spark.range(2))


@EACH_FORMAT
def test_rows_of_other_columns_are_not_appended(spark, tmp_path, append, kind):
    place = tmp_path / "out"
    append(place, spark.sql("SELECT 'a' key, '1' w, 'n' owner"), ["owner"], kind)
    for other in ("'a' key, 'n' owner", "'a' key, '1' v, 'n' owner"):
        with pytest.raises(
            ColumnError, match=r"'key, w' are the columns of .*out; the job writes key"
        ):
            append(place, spark.sql(f"SELECT {other}"), ["owner"], kind)
    # In another order, and with names that Spark takes for the same.
    append(place, spark.sql("SELECT 'n' owner, '2' W, 'b' key"), ["owner"], kind)
    found = spark.read.option("header", True).format(kind).load(str(place)).collect()
    assert sorted((row.key, row.w) for row in found) == [("a", "1"), ("b", "2")]
    assert set(found[0].asDict()) == {"key", "w", "owner"}


@ONCE
def test_columns_that_json_left_out_are_appended(spark, tmp_path, append):
    append(tmp_path / "out", spark.sql("SELECT 'a' key, cast(null AS string) w"), format="json")
    append(tmp_path / "out", spark.sql("SELECT '1' w, 'b' key"), format="json")
    found = spark.read.json(str(tmp_path / "out")).collect()
    assert sorted((row.key, row.w) for row in found) == [("a", None), ("b", "1")]


@ONCE
def test_rows_of_other_types_or_points_are_not_appended(spark, tmp_path, append):
    place = tmp_path / "out"
    append(place, spark.range(2))
    with pytest.raises(ColumnError, match=r"'id' is bigint in .*out; the job writes string"):
        append(place, spark.sql("SELECT 'a' id"))
    keys, ring = spark.sql("SELECT 'a' key"), random_ring(2, 4)
    append(tmp_path / "owned", with_owner(keys, ring))
    with pytest.raises(ColumnError, match="'point' is made by hash_algorithm=crc-32 in"):
        append(tmp_path / "owned", with_owner(keys, random_ring(2, 4, algorithm="jamcrc")))
    append(tmp_path / "h", point_histogram(keys))
    with pytest.raises(ColumnError, match=r"'start' is made by weight=None in .*; the job .*=w"):
        append(tmp_path / "h", point_histogram(keys.selectExpr("*", "1.5 AS w"), weight="w"))


COLLATED = "collate('a', 'UTF8_LCASE')"


@pytest.mark.parametrize(
    ("column", "other"),
    [
        (COLLATED, "1"),
        (f"array({COLLATED})", "array(1)"),
        (f"map('k', {COLLATED})", "map('k', 1)"),
        (f"struct({COLLATED} AS ` collate x`)", "struct('a' AS ` collate`)"),
    ],
)
def test_rows_whose_types_orc_does_not_keep_are_appended_to_it(spark, tmp_path, column, other):
    out = Output(str(tmp_path / "out"), "orc", mode="append")
    for _ in range(2):
        out.write(spark.sql(f"SELECT {column} AS text"))
    with pytest.raises(ColumnError, match=r"'text' is .*string.* the job writes"):
        out.write(spark.sql(f"SELECT {other} AS text"))
    assert spark.read.orc(str(tmp_path / "out")).count() == 2


@pytest.mark.long
def test_rows_of_a_type_of_a_user_are_appended_to_orc(spark, tmp_path):
    out = Output(str(tmp_path / "out"), "orc", mode="append")
    vectors = spark.createDataFrame([([Vectors.dense(1.0, 2.0)],)], ["vectors"])
    for _ in range(2):
        out.write(vectors)
    with pytest.raises(ColumnError, match=r"array<struct<.*; the job writes array<double>"):
        out.write(spark.sql("SELECT array(1D) AS vectors"))
    assert spark.read.schema(vectors.schema).orc(str(tmp_path / "out")).distinct().count() == 1


def test_a_collation_that_parquet_keeps_is_compared(spark, tmp_path):
    out = Output(str(tmp_path / "out"), "parquet", mode="append")
    out.write(spark.sql("SELECT 'a' AS text"))
    with pytest.raises(ColumnError, match=r"is string in .* job writes string collate UTF8_LCASE"):
        out.write(spark.sql(f"SELECT {COLLATED} AS text"))


def test_rows_that_readers_would_hide_are_refused_before_they_are_computed(spark, tmp_path):
    write_ring(RingFile(random_ring(2, 4)), tmp_path / "ring.json")
    (tmp_path / "in.csv").write_text("key\na\nb\n")
    assign = (
        "assign", "--input", tmp_path / "in.csv", "--ring-file", tmp_path / "ring.json", "--output",
    )  # fmt: skip
    run(*assign, tmp_path / "plain.parquet")
    run(*assign, tmp_path / "cells.parquet", "--keep-point", "--cells", "2")
    with pytest.raises(OutputRefused, match=r"in no directories, and the job's .* owner=\.\.\."):
        run(*assign, tmp_path / "plain.parquet", "--mode", "append", "--by-owner")
    with pytest.raises(OutputRefused, match=r"in directories cell=\.\.\., and the job's .* in no"):
        run(*assign, tmp_path / "cells.parquet", "--mode", "append")
    with pytest.raises(OutputRefused, match="it holds parquet, and the job writes csv"):
        run(*assign, tmp_path / "plain.parquet", "--mode", "append", "--output-format", "csv")


def test_a_job_that_is_interrupted_is_cancelled_elsewhere_too(spark, tmp_path, monkeypatch):
    monkeypatch.setattr("hashring.spark.io.output.local_path", lambda spark, path: None)
    with interrupted(spark, monkeypatch, "save"):
        Output(str(tmp_path / "out.parquet")).write(spark.range(3))


def test_files_may_be_replaced_by_what_was_read_from_them(spark, tmp_path):
    place = str(tmp_path / "out.parquet")
    Output(place).write(spark.range(4))
    Output(place, mode="overwrite").write(spark.read.parquet(place).where("id > 1"))
    assert ids_in(place) == [2, 3]


def test_a_link_to_a_directory_stays_one(spark, tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).symlink_to(tmp_path / "real" / name)
    (tmp_path / "real" / "first").mkdir(parents=True)
    Output(str(tmp_path / "first"), "parquet", mode="overwrite").write(spark.range(3))
    Output(str(tmp_path / "second"), "parquet").write(spark.range(2))
    for name, held in (("first", [0, 1, 2]), ("second", [0, 1])):
        assert (tmp_path / name).is_symlink()
        assert ids_in(tmp_path / "real" / name) == held
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_dir()) == [
        "first", "first", "real", "second", "second",
    ]  # fmt: skip


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_directory_beside_which_nothing_can_be_made_is_refused_before_the_work(
    spark, tmp_path, mode
):
    place = tmp_path / ("n" * 250)  # its name takes no more characters
    place.mkdir()
    with pytest.raises(OutputRefused, match="File name too long"):
        Output(str(place), "parquet", mode=mode).check(spark)


def test_of_two_that_write_at_once_one_is_refused(spark, tmp_path, monkeypatch):
    place = tmp_path / "out.parquet"
    rename = Path.rename

    def after_another(path, target):
        if target == place:
            monkeypatch.setattr(Path, "rename", rename)
            Output(str(place)).write(spark.range(2))
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", after_another)
    with pytest.raises(OutputExists):
        Output(str(place)).write(spark.range(4))
    assert ids_in(place) == [0, 1]
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def after_rename(monkeypatch, number, then):
    """Do something once, right after the renaming of so many paths."""
    rename, done = Path.rename, []

    def renamed(path, target):
        found = rename(path, target)
        done.append(target)
        if len(done) == number:
            then()
        return found

    monkeypatch.setattr(Path, "rename", renamed)


def interrupt():
    raise SystemExit


@pytest.fixture
def in_two_steps(monkeypatch):
    """A file system that cannot exchange two names."""
    monkeypatch.setattr(directory_swap, "_exchanged", lambda *_: False)


def test_files_are_replaced_in_one_step(spark, tmp_path, monkeypatch):
    place = tmp_path / "out.parquet"
    Output(str(place)).write(spark.range(2))
    after_rename(monkeypatch, 1, interrupt)  # of which there is none
    Output(str(place), mode="overwrite").write(spark.range(4))
    assert ids_in(place) == [0, 1, 2, 3]


@pytest.mark.usefixtures("in_two_steps")
@pytest.mark.parametrize(
    ("renames", "held"), [(1, [0, 1]), (2, [0, 1, 2, 3]), (3, [0, 1, 2, 3]), (4, [0, 1, 2, 3])]
)
def test_an_interrupt_at_any_step_leaves_the_old_files_or_the_new(
    spark, tmp_path, monkeypatch, renames, held
):
    place = tmp_path / "out.parquet"
    Output(str(place)).write(spark.range(2))
    with monkeypatch.context() as patch, suppress(SystemExit):
        after_rename(patch, renames, interrupt)
        Output(str(place), mode="overwrite").write(spark.range(4))
    assert ids_in(place) == held
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


@pytest.mark.usefixtures("in_two_steps")
def test_files_that_others_made_between_the_two_steps_cost_no_row(spark, tmp_path, monkeypatch):
    place = tmp_path / "out.parquet"
    Output(str(place)).write(spark.range(2))
    with monkeypatch.context() as patch:
        after_rename(patch, 1, lambda: spark.range(7, 9).write.parquet(str(place)))
        with pytest.raises(OutputRefused, match="made it meanwhile; what it replaced is"):
            Output(str(place), mode="overwrite").write(spark.range(4))
    assert ids_in(place) == [7, 8]
    (before,) = tmp_path.glob(".out.parquet.*.before")
    assert ids_in(before) == [0, 1]


@pytest.mark.parametrize(("mode", "held"), [("append", [0, 1, 2, 3]), ("overwrite", [2, 3])])
def test_files_whose_replacement_was_killed_between_two_steps_are_put_back(
    spark, tmp_path, mode, held
):
    place = tmp_path / "out.parquet"
    Output(str(place)).write(spark.range(2))
    place.rename(tmp_path / ".out.parquet.0123abcd.before")
    Output(str(place), mode=mode).write(spark.range(2, 4))
    assert ids_in(place) == held
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


@pytest.mark.parametrize(
    ("mode", "other", "is_refused"),
    [
        ("append", "append", False),
        ("append", "overwrite", True),
        ("overwrite", "append", True),
        ("overwrite", "overwrite", True),
    ],
)
def test_only_appends_go_together(spark, tmp_path, mode, other, is_refused):
    place = str(tmp_path / "out")
    Output(place, "parquet").write(spark.range(2))
    refused = []

    def meanwhile(_):
        try:
            Output(place, "parquet", mode=other).write(spark.range(7, 8))
        except OutputRefused as error:
            refused.append(str(error))

    Output(place, "parquet", mode=mode).write(spark.range(4, 6), beside=meanwhile)
    added = [] if is_refused else [7]
    assert ids_in(place) == ([0, 1] if mode == "append" else []) + [4, 5] + added
    verb = "appends to" if mode == "append" else "overwrites"
    assert len(refused) == is_refused
    assert all(f"another process {verb} it" in text for text in refused)


def test_one_job_at_a_time_appends_where_no_file_shows_the_form(spark, tmp_path):
    place = tmp_path / "out"
    place.mkdir()

    def job_meanwhile(_):
        with pytest.raises(OutputRefused, match="another process appends to it"):
            Output(str(place), "json", mode="append").write(spark.range(1))

    def file_meanwhile(_):
        (place / "a.json").write_text('{"id": 1}')

    append = Output(str(place), "parquet", mode="append")
    with pytest.raises(OutputRefused, match="it holds json, and the job writes parquet"):
        append.write(spark.range(4), beside=file_meanwhile)
    (place / "a.json").unlink()
    append.write(spark.range(4, 6), beside=job_meanwhile)
    assert ids_in(str(place)) == [4, 5]


@pytest.mark.parametrize(
    ("other", "kind", "text"),
    [
        ("SELECT 1L part, 7L id", "json", "it holds json, and the job writes csv"),
        ("SELECT 1L part, 7L id", "csv", "another process made it meanwhile, in another order"),
        ("SELECT 7L id, 1L part", "csv", None),
    ],
)
def test_files_that_others_made_meanwhile_are_only_appended_to_in_their_form(
    spark, tmp_path, other, kind, text
):
    place = str(tmp_path / "out")

    def meanwhile(_):
        Output(place, kind, mode="append").write(spark.sql(other))

    append = Output(place, "csv", mode="append").write
    with pytest.raises(OutputRefused, match=text) if text else nullcontext():
        append(spark.sql("SELECT 4L id, 5L part"), beside=meanwhile)
    read = spark.read.option("header", True).format(kind).load(place)
    assert ids(read.select(F.col("id").cast("long"))) == ([7] if text else [4, 7])


def test_files_that_others_replaced_before_the_lock_are_only_appended_to_in_their_form(
    spark, tmp_path, monkeypatch
):
    place = str(tmp_path / "out")
    Output(place, "parquet").write(spark.range(2))
    lock = output.alone

    def late(*given, **more):
        monkeypatch.undo()
        Output(place, "parquet", mode="overwrite").write(spark.sql("SELECT 7L part"))
        return lock(*given, **more)

    monkeypatch.setattr(output, "alone", late)
    with pytest.raises(ColumnError, match="'part' are the columns of"):
        Output(place, "parquet", mode="append").write(spark.range(4))
    assert [row.part for row in spark.read.parquet(place).collect()] == [7]


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_directory_that_others_made_at_the_end_is_left_as_it_is(
    spark, tmp_path, monkeypatch, mode
):
    place = str(tmp_path / "out")
    take = Output._take_place

    def late(*given, **more):
        monkeypatch.undo()
        Output(place, "parquet").write(spark.sql("SELECT 7L part"))
        return take(*given, **more)

    monkeypatch.setattr(Output, "_take_place", late)
    # The error does not say to remove the directory: the rows there are the other job's.
    with pytest.raises(OutputRefused, match=r"made it meanwhile\): start again$"):
        Output(place, "parquet", mode=mode).write(spark.range(4))
    assert [row.part for row in spark.read.parquet(place).collect()] == [7]


@pytest.mark.parametrize(
    ("place", "kind"), [(".", "working"), ("/", "home"), ("~", "home"), ("{here}/..", "working")]
)
def test_directories_that_are_no_output_are_not_replaced(spark, tmp_path, monkeypatch, place, kind):
    (tmp_path / "home" / "me").mkdir(parents=True)
    (tmp_path / "a" / "here").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "here")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    path = place.replace("~", str(tmp_path / "home")).format(here=tmp_path / "a" / "here")
    with pytest.raises(OutputRefused, match=f"overwrite would remove .*, the {kind} directory"):
        Output(path, "csv", mode="overwrite").check(spark)


@pytest.fixture
def deep(tmp_path):
    """A directory with the input and other files of a job, at which ``link`` is a link."""
    place = tmp_path / "deep"
    (place / "raw").mkdir(parents=True)
    (place / "raw" / "keys.csv").write_text("key\na\n")
    write_ring(RingFile(random_ring(2, 4)), place / "ring.json")
    (tmp_path / "keys.csv").write_text("key\nb\n")
    write_ring(RingFile(random_ring(2, 4)), tmp_path / "ring.json")
    (tmp_path / "link").symlink_to(place / "raw")
    return place


def _refused_as_used(deep, command, **options):
    """Run it with these paths, and the output ``deep``; returns the option it is refused for."""
    given = [
        part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)
    ]
    held = sorted(deep.rglob("*"))
    more = ("--output", deep, "--output-format", "json", "--mode", "overwrite")
    with pytest.raises(ConfigError) as told:
        run(command, *given, *more)
    assert sorted(deep.rglob("*")) == held
    name = told.value.setting
    assert str(told.value) == (
        f"{name}={options[name]!r}: is in the output {deep}, and overwrite would remove it: name "
        f"another output, or move it out of there"
    )
    return name


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("input", "deep/raw/keys.csv"),
        ("input", "deep/../link/keys.csv"),
        ("input", "deep/*/keys.csv"),
        ("input", "{keys,deep/[^a]aw/k?ys}.csv"),
        ("ring_file", "deep/ring.json"),
        ("ring_file", "link/../ring.json"),
        ("report", "deep/report.html"),
        ("spark_log", "deep/log"),
    ],
)
def test_an_overwrite_does_not_remove_what_the_job_uses(spark, deep, name, path):
    here = deep.parent
    paths = {"input": f"{here}/keys.csv", "ring_file": f"{here}/ring.json"}
    assert _refused_as_used(deep, "assign", **paths | {name: f"{here}/{path}"}) == name


@pytest.mark.parametrize(
    ("path", "mode", "is_refused"),
    [
        ("out/load.html", "error", True),
        ("out", "error", True),
        ("out/load.html", "append", True),
        ("out/_load.html", "error", False),
        ("out.html", "error", False),
    ],
)
def test_a_report_is_not_where_readers_would_take_it_for_rows(
    spark, tmp_path, path, mode, is_refused
):
    if mode == "append":
        spark.range(1).write.csv(str(tmp_path / "out"))
    made = Output(str(tmp_path / "out"), "csv", mode=mode, used={"report": [tmp_path / path]})
    text = "is in the output .*out, whose readers would take it for rows"
    with pytest.raises(ConfigError, match=text) if is_refused else nullcontext():
        made.check(spark)


def test_an_overwrite_does_not_remove_the_histogram_that_answers(spark, deep):
    place = f"{deep}/h.parquet"
    point_histogram(spark.sql("SELECT 'a' key")).write.parquet(place)
    paths = {"histogram": place, "ring_file": f"{deep.parent}/ring.json"}
    assert _refused_as_used(deep, "load", **paths) == "histogram"


def test_an_overwrite_does_not_remove_the_history_of_an_audit(spark, deep):
    spark.sql(
        "SELECT 1L epoch, timestamp'2024-01-01 00:00:10' at, 'leave' kind, array('a') nodes, "
        "array(5L) points"
    ).write.parquet(str(deep / "e.parquet"))
    shutil.copytree(deep / "e.parquet", deep.parent / "e.parquet")
    write_ring(RingFile(Ring({"a": [5], "b": [7]})), deep / "base.json")
    (deep.parent / "log.csv").write_text("key,node,start,end\n")
    log = {
        "input": f"{deep.parent}/log.csv",
        "schema": "key string, node string, start timestamp, end timestamp",
    }
    assert _refused_as_used(deep, "audit", **log, events=f"{deep}/e.parquet") == "events"
    paths = {"events": f"{deep.parent}/e.parquet", "base": f"{deep}/base.json"}
    assert _refused_as_used(deep, "audit", **log, **paths) == "base"


def test_an_overwrite_does_not_remove_what_the_frame_reads(spark, deep):
    rows = spark.read.option("header", True).csv(str(deep.parent / "link"))
    with pytest.raises(ConfigError, match=f"input='{deep}/raw': is in the output {deep}, and over"):
        Output(str(deep), "csv", mode="overwrite").write(rows)
    assert (deep / "raw" / "keys.csv").exists()


@pytest.mark.parametrize("path", ["deep/raw", "link"])
def test_an_overwrite_replaces_the_whole_input_if_it_is_the_output(spark, deep, path):
    given = ("--input", deep.parent / path, "--format", "csv", "--ring-file", deep / "ring.json")
    more = ("--output", deep / "raw", "--output-format", "csv", "--mode", "overwrite")
    run("assign", *given, *more)
    found = spark.read.option("header", True).csv(str(deep / "raw"))
    assert found.select("key").collect() == [("a",)]


@pytest.mark.long
def test_an_overwrite_replaces_directories_of_columns_by_what_was_read_from_them(spark, tmp_path):
    place = str(tmp_path / "out")
    spark.sql("SELECT 1L id, 2 k UNION ALL SELECT 2L, 3").write.partitionBy("k").parquet(place)
    Output(place, "parquet", mode="overwrite").write(spark.read.parquet(place).where("k = 3"))
    assert ids_in(place) == [2]


def test_an_empty_path_is_no_output(spark):
    with pytest.raises(ConfigError, match="output='': is empty: name a directory"):
        Output("", "csv", mode="overwrite").check(spark)


@pytest.mark.parametrize(
    ("log", "name"),
    [
        ("_delta_log/0.json", "delta"),
        (".hoodie/hoodie.properties", "hudi"),
        ("metadata/v1.metadata.json", "iceberg"),
    ],
)
def test_a_table_with_a_log_is_not_written_to_as_plain_files(spark, tmp_path, log, name):
    place = tmp_path / "out"
    (place / log).parent.mkdir(parents=True)
    (place / log).write_text("{}")
    for path, mode in ((str(place), "append"), (str(place), "overwrite"), (f"{place}/", "append")):
        with pytest.raises(OutputRefused, match=f"a table of {name}, .* by the format {name}"):
            Output(path, "parquet", mode=mode).check(spark)


def test_a_column_of_a_table_that_pads_the_text_of_the_rows_is_refused(spark):
    spark.sql("DROP TABLE IF EXISTS padded")
    spark.sql("CREATE TABLE padded (key CHAR(8), land CHAR(2)) USING parquet")
    land = spark.table("padded").select("land")
    with pytest.raises(OutputRefused, match=r"its column key is char\(8\), which Spark pads"):
        Output(None, table="padded", mode="append").write(land.selectExpr("'abc' AS key", "land"))
    spark.sql("DROP TABLE padded")


def test_files_elsewhere_are_not_replaced(spark):
    with pytest.raises(OutputRefused, match="Spark would delete it first"):
        Output("s3a://bucket/out.parquet", mode="overwrite").check(spark)


@pytest.mark.parametrize(("mode", "held"), [("append", [0, 1, 2, 3, 9]), ("overwrite", [9])])
def test_a_table_is_added_to_or_replaced_and_keeps_its_layout(spark, table, mode, held):
    before = layout(spark, table)
    Output(None, table=table, mode=mode).write(spark.sql("SELECT 1L part, 9L id"))
    assert ids(spark.table(table)) == held
    assert layout(spark, table) == before


def test_a_replaced_table_keeps_its_properties_and_its_comment(spark):
    spark.sql("DROP TABLE IF EXISTS described")
    spark.sql(
        r"CREATE TABLE described (id LONG COMMENT 'a number') USING csv OPTIONS (sep '|') "
        r"COMMENT 'it\'s \\ mine' TBLPROPERTIES ('kept for' = '9 \'days\'')"
    )
    before = spark.sql("SHOW CREATE TABLE described").first()[0]
    for _ in range(2):
        Output(None, table="described", mode="overwrite").write(spark.range(2))
    after = spark.sql("SHOW CREATE TABLE described").first()[0]
    assert re.sub(r"\s+'hashring.replaced' = '\w{32}',", "", after) == before
    assert "days" in before
    assert "mine" in before
    assert ids(spark.table("described")) == [0, 1]
    spark.sql("DROP TABLE described")


@pytest.mark.parametrize("mode", [pytest.param("append", marks=pytest.mark.long), "overwrite"])
def test_a_job_that_fails_leaves_a_table_as_it_was(spark, table, mode):
    tables = [t.name for t in spark.catalog.listTables()]
    with pytest.raises(Exception, match="boom"):
        Output(None, table=table, mode=mode).write(failing(spark))
    assert ids(spark.table(table)) == [0, 1, 2, 3]
    assert [t.name for t in spark.catalog.listTables()] == tables


def test_an_interrupt_right_after_a_table_was_renamed_leaves_it_as_it_was(
    spark, table, monkeypatch
):
    sql = type(spark).sql

    def interrupted(session, text, *more):
        found = sql(session, text, *more)
        if "RENAME TO" in text:
            monkeypatch.undo()
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(type(spark), "sql", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Output(None, table=table, mode="overwrite").write(spark.sql("SELECT 1L part, 9L id"))
    assert ids(spark.table(table)) == [0, 1, 2, 3]


def test_a_partitioned_table_is_added_to(spark):
    spark.sql("DROP TABLE IF EXISTS parted")
    output = Output(None, table="parted", mode="append")
    output.write(spark.sql("SELECT 1L id, 0L part"), ["part"])
    output.write(spark.sql("SELECT 7L part, 2L id"))
    assert ids(spark.table("parted").where("part = 7")) == [2]
    with pytest.raises(OutputRefused, match="a catalog in memory cannot replace a partitioned"):
        Output(None, table="parted", mode="overwrite").check(spark)
    spark.sql("DROP TABLE parted")


def test_a_table_that_failed_to_be_made_does_not_block_the_next(spark):
    spark.sql("DROP TABLE IF EXISTS made")
    with pytest.raises(Exception, match="boom"):
        Output(None, table="made").write(failing(spark), ["part"])
    Output(None, table="made").write(spark.range(3))
    assert ids(spark.table("made")) == [0, 1, 2]
    spark.sql("DROP TABLE made")


@pytest.mark.parametrize(
    ("mode", "held", "name"),
    [
        pytest.param(mode, held, name, marks=() if name == usual else pytest.mark.long)
        for mode, held, usual in (
            ("error", [7, 8], "made"),
            ("append", [0, 1, 7, 8], "default.made"),
            ("overwrite", [0, 1], "default.`made`"),
        )
        for name in ("made", "default.made", "default.`made`")
    ],
)
def test_a_table_that_two_make_at_once_holds_whole_jobs(spark, monkeypatch, name, mode, held):
    spark.sql("DROP TABLE IF EXISTS made")
    tables = {t.name for t in spark.catalog.listTables()}
    place = Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")) / "made"
    sql = type(spark).sql

    def made_first(session, text, *more):
        if "RENAME TO" in text:
            monkeypatch.undo()
            Output(None, table=name, mode="error").write(spark.range(7, 9))
        return sql(session, text, *more)

    monkeypatch.setattr(type(spark), "sql", made_first)
    output = Output(None, table=name, mode=mode)
    if mode == "error":
        with pytest.raises(OutputExists):
            output.write(spark.range(2))
    else:
        output.write(spark.range(2))
    assert ids(spark.table("made")) == held
    assert {t.name for t in spark.catalog.listTables()} == tables | {"made"}
    assert [path.name for path in place.parent.glob("made*")] == ["made"]
    spark.sql("DROP TABLE made")


def test_of_two_that_replace_a_table_at_once_one_is_refused(spark, table, monkeypatch):
    sql = type(spark).sql

    def replaced_first(session, text, *more):
        if "RENAME TO" in text:
            monkeypatch.undo()
            spark.sql(f"ALTER TABLE {table} RENAME TO elsewhere")
        return sql(session, text, *more)

    monkeypatch.setattr(type(spark), "sql", replaced_first)
    with pytest.raises(OutputRefused, match="another process replaces it"):
        Output(None, table=table, mode="overwrite").write(spark.sql("SELECT 1L part, 9L id"))
    assert ids(spark.table("elsewhere")) == [0, 1, 2, 3]
    spark.sql("DROP TABLE elsewhere")


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        pytest.param(mode, kind, marks=() if kind == usual else pytest.mark.long)
        # Who overwrites a table that is not there makes it, as with "error".
        for mode, usual in (("error", "csv"), ("append", "parquet"), ("overwrite", None))
        for kind in ("parquet", "csv")
    ],
)
def test_a_partitioned_table_that_failed_to_be_made_does_not_block_the_next(spark, mode, kind):
    spark.sql("DROP TABLE IF EXISTS parted")
    output = Output(None, kind, "parted", mode)
    with pytest.raises(SPARK_ERRORS):
        output.write(failing(spark), ["part"])
    assert not spark.catalog.tableExists("parted")
    output.write(spark.sql("SELECT 1L part, 9L id, ' k ' key"), ["part"])
    assert rows(spark.table("parted").select("id", "key", "part")) == [(9, " k ", 1)]
    assert [c.name for c in spark.catalog.listColumns("parted") if c.isPartition] == ["part"]
    spark.sql("DROP TABLE parted")


def test_rows_appended_while_a_table_is_replaced_are_not_lost_in_silence(spark, table, tmp_path):
    began, replaced = tmp_path / "began", tmp_path / "replaced"

    def waited(number):
        began.touch()
        deadline = time.monotonic() + 60
        while not replaced.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return number

    late = spark.range(9, 10, 1, 1).select(F.udf(waited, "long")("id").alias("id"))
    late = late.withColumn("part", F.lit(1).cast("long"))
    with ThreadPoolExecutor(1) as pool:
        appended = pool.submit(Output(None, table=table, mode="append").write, late)
        _until(began.exists)
        Output(None, table=table, mode="overwrite").write(spark.sql("SELECT 7L id, 1L part"))
        replaced.touch()
        with pytest.raises(OutputRefused, match="replaced it while rows were appended"):
            appended.result()
    assert 7 in ids(spark.table(table))
    Output(None, table=table, mode="append").write(spark.sql("SELECT 8L id, 1L part"))
    assert {7, 8} <= set(ids(spark.table(table)))


def test_what_cannot_be_replaced_is_refused_before_the_work(spark, table, tmp_path):
    with pytest.raises(OutputExists):
        Output(None, table=table).check(spark)
    with pytest.raises(ColumnError, match="'id, part' are the columns of whole; the job writes id"):
        Output(None, table=table, mode="append").write(spark.range(3))
    spark.range(2).write.parquet(str(tmp_path / "files"))
    spark.sql(f"CREATE TABLE outside USING parquet LOCATION '{tmp_path}/files'")
    spark.sql("CREATE OR REPLACE TEMPORARY VIEW seen AS SELECT 1L id")
    try:
        with pytest.raises(OutputRefused, match="it is EXTERNAL"):
            Output(None, table="outside", mode="overwrite").check(spark)
        with pytest.raises(OutputRefused, match="it is TEMPORARY, and no table"):
            Output(None, table="seen", mode="append").check(spark)
    finally:
        spark.sql("DROP TABLE outside")
        spark.sql("DROP VIEW seen")
    with pytest.raises(ConfigError, match="mode='replace': say error, append or overwrite"):
        Output(None, table=table, mode="replace").check(spark)


def test_options_of_the_formats_reach_spark(spark, tmp_path):
    write_ring(RingFile(random_ring(2, 4)), tmp_path / "ring.json")
    (tmp_path / "in.csv").write_text("key;w\na;1\nb;2\n")
    told = run(
        "assign", "--input", tmp_path / "in.csv", "--input-option", "sep=;",
        "--ring-file", tmp_path / "ring.json",
        "--output", tmp_path / "o.parquet", "--option", "compression=gzip",
    )  # fmt: skip
    assert told["rows written"] == "2"
    assert list((tmp_path / "o.parquet").glob("*.gz.parquet"))


def test_files_of_csv_have_a_header_line_whatever_the_options_say(spark, tmp_path):
    place = str(tmp_path / "out.csv")
    text = "option='HEADER=false': files of CSV always get a header line, .*: leave the option out"
    for mode in ("error", "append", "overwrite"):
        with pytest.raises(ConfigError, match=text):
            Output(place, mode=mode, options={"HEADER": "false"}).write(spark.range(2))
    Output(place, options={"header": "TRUE"}).write(spark.range(2))
    assert ids(spark.read.option("header", True).csv(place)) == ["0", "1"]
    Output(str(tmp_path / "out.json"), options={"header": "false"}).write(spark.range(2))


def test_a_table_of_csv_may_have_no_header_line(spark):
    try:
        Output(None, "csv", "bare", options={"header": "false"}).write(spark.range(2))
        assert ids(spark.table("bare")) == [0, 1]
    finally:
        spark.sql("DROP TABLE IF EXISTS bare")


# --- text formats -----------------------------------------------------------------------------

TIMES = "key string, a timestamp, b timestamp_ntz, point bigint, owner string"
IN_MICROS = ("unix_micros(a)", "CAST(b AS string)")


def moments(spark):
    """Moments whose last digits, offset or year a text may lose."""
    return spark.sql(
        "SELECT 'k' key, timestamp_micros(n) a, timestamp_micros(n)::timestamp_ntz b FROM VALUES "
        "(1704164645123456L), (1704164645000000L), (1729990800000001L), (-3786825600000001L), "
        "(-62135596799999999L) AS t(n)"
    )


@pytest.mark.parametrize(
    ("zone", "kind"),
    [
        pytest.param(zone, kind, marks=() if zone == usual else pytest.mark.long)
        for kind, usual in (
            ("csv", "Europe/Berlin"), ("CSV", "UTC"), ("json", "UTC"), ("xml", "Europe/Berlin")
        )
        for zone in ("UTC", "Europe/Berlin")
    ],
)  # fmt: skip
def test_text_keeps_moments_to_the_microsecond(spark, tmp_path, kind, zone):
    spark.conf.set("spark.sql.session.timeZone", zone)
    tags = {"rowTag": "row"} if kind == "xml" else {}
    try:
        df = moments(spark)
        place = str(tmp_path / "out")
        assign_job(Input(df, "keys"), Ring({"a": [0]}), Output(place, kind, options=tags))
        found = read_frame(spark, [place], kind, TIMES, tags).frame.selectExpr(*IN_MICROS)
        assert sorted(rows(found)) == sorted(rows(df.selectExpr(*IN_MICROS)))
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


# Files show that each format of text does.
@pytest.mark.parametrize("kind", ["csv", pytest.param("json", marks=pytest.mark.long)])
def test_a_new_table_of_text_keeps_moments_to_the_microsecond(spark, kind):
    spark.sql("DROP TABLE IF EXISTS timed")
    spark.conf.set("spark.sql.sources.default", kind)
    try:
        for mode in ("error", "append", "overwrite"):
            Output(None, table="timed", mode=mode).write(moments(spark))
    finally:
        spark.conf.unset("spark.sql.sources.default")
    found = spark.table("timed").selectExpr(*IN_MICROS)
    assert sorted(rows(found)) == sorted(rows(moments(spark).selectExpr(*IN_MICROS)))
    spark.sql("DROP TABLE timed")


def test_the_users_own_format_of_times_comes_first(spark, tmp_path):
    place = tmp_path / "out.csv"
    wanted = {"timestampformat": "yyyy", "timestampNTZFormat": "MM"}
    Output(str(place), options=wanted).write(moments(spark).select("a", "b").limit(1))
    (part,) = place.glob("part-*")
    assert part.read_text().split() == ["a,b", "2024,01"]


def test_the_times_of_the_old_parser_are_as_it_reads_them(spark, tmp_path):
    spark.conf.set("spark.sql.legacy.timeParserPolicy", "legacy")
    try:
        Output(str(tmp_path / "out.csv")).write(moments(spark).limit(1))
        found = read_frame(spark, [str(tmp_path / "out.csv")], schema=TIMES.rpartition(", p")[0])
        assert rows(found.frame.selectExpr("unix_micros(a)")) == [(1704164645123000,)]
    finally:
        spark.conf.unset("spark.sql.legacy.timeParserPolicy")


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        # Each format stays once, and each way to name it.
        pytest.param(how, kind, marks=() if kind == usual else pytest.mark.long)
        for how, usual in (("there", "xml"), ("default", "json"), ("given", "csv"))
        for kind in ("csv", "json", "xml")
    ],
)
def test_a_binary_key_goes_to_no_table_of_text(spark, kind, how):
    spark.sql("DROP TABLE IF EXISTS texts")
    source = Input(spark.sql("SELECT x'00ff' key"), "keys")
    if how == "there":
        more = " OPTIONS (rowTag 'row')" if kind == "xml" else ""
        spark.sql(f"CREATE TABLE texts (key BINARY, point LONG, owner STRING) USING {kind}{more}")
    spark.conf.set("spark.sql.sources.default", kind if how == "default" else "parquet")
    try:
        output = Output(
            None, kind.upper() if how == "given" else None, "texts",
            "append" if how == "there" else "error",
        )  # fmt: skip
        with pytest.raises(ColumnError, match=r"'key' is binary, .* write hex\(key\)"):
            assign_job(source, Ring({"a": [0]}), output)
    finally:
        spark.conf.unset("spark.sql.sources.default")
    spark.sql("DROP TABLE IF EXISTS texts")


@pytest.mark.long
def test_a_binary_key_goes_to_a_table_of_parquet_whatever_the_default(spark):
    spark.sql("DROP TABLE IF EXISTS bytes")
    spark.sql("CREATE TABLE bytes (key BINARY, point LONG, owner STRING) USING parquet")
    source = Input(spark.sql("SELECT x'00ff' key"), "keys")
    assign_job(source, Ring({"a": [0]}), Output(None, "json", "bytes", "append"))
    assert rows(spark.table("bytes").select("key", "owner")) == [(b"\x00\xff", "a")]
    spark.sql("DROP TABLE bytes")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_table_that_would_cut_the_blanks_of_keys_is_refused(spark, mode):
    spark.sql("DROP TABLE IF EXISTS blanks")
    spark.sql("CREATE TABLE blanks (key STRING) USING csv")
    df = spark.sql("SELECT ' k ' key")
    output = Output(None, table="blanks", mode=mode)
    with pytest.raises(OutputRefused, match="cuts off the blanks of keys; ALTER TABLE") as told:
        output.write(df)
    assert spark.table("blanks").isEmpty()
    spark.sql(re.search(r"ALTER TABLE .*?\)", str(told.value))[0])
    output.write(df)
    assert rows(spark.table("blanks")) == [(" k ",)]
    spark.sql("DROP TABLE blanks")


def test_the_case_of_a_formats_name_is_nothing(spark, tmp_path):
    df = spark.sql("SELECT ' k ' key")
    Output(str(tmp_path / "out"), "CSV").write(df)
    Output(str(tmp_path / "out"), "Csv", mode="append").write(df)
    found = read_frame(spark, [str(tmp_path / "out")], "cSV").frame
    assert (found.columns, rows(found)) == (["key"], [(" k ",)] * 2)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        # Of each way to name a class, one stays.
        ("org.apache.spark.sql.execution.datasources.csv.CSVFileFormat", "csv"),
        ("org.apache.spark.sql.execution.datasources.v2.json.JsonDataSourceV2", "json"),
        ("org.apache.spark.sql.json", "json"),
        ("com.databricks.spark.csv", "csv"),
        *(
            pytest.param(name, kind, marks=pytest.mark.long)
            for name, kind in (
                ("org.apache.spark.sql.execution.datasources.v2.csv.CSVDataSourceV2", "csv"),
                ("org.apache.spark.sql.execution.datasources.json.JsonFileFormat", "json"),
            )
        ),
    ],
)
def test_a_format_may_be_named_by_its_class(spark, tmp_path, name, kind):
    binary = Input(spark.sql("SELECT x'00ff' key"), "keys")
    with pytest.raises(ColumnError, match=rf"'key' is binary, which {kind} holds"):
        assign_job(binary, Ring({"a": [0]}), Output(str(tmp_path / "bytes"), name))
    df = spark.sql("SELECT ' \"k ' key")
    Output(str(tmp_path / "out"), name).write(df)
    Output(str(tmp_path / "out"), kind, mode="append").write(df)
    found = read_frame(spark, [str(tmp_path / "out")], name).frame
    assert (found.columns, rows(found)) == (["key"], [(' "k ',)] * 2)


def test_a_binary_key_goes_to_no_table_of_text_named_by_its_class(spark):
    kind = "org.apache.spark.sql.execution.datasources.csv.CSVFileFormat"
    spark.sql("DROP TABLE IF EXISTS texts")
    spark.sql(f"CREATE TABLE texts (key BINARY, point LONG, owner STRING) USING {kind}")
    source = Input(spark.sql("SELECT x'00ff' key"), "keys")
    with pytest.raises(ColumnError, match="'key' is binary, which csv holds"):
        assign_job(source, Ring({"a": [0]}), Output(None, table="texts", mode="append"))
    spark.sql("DROP TABLE texts")
