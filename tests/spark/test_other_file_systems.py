"""Outputs on other file systems than that of this machine: Hadoop's view of another one."""

import getpass
import os
import re
import shutil
import subprocess
import sys
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import DataFrameWriter
from pyspark.sql import functions as F  # noqa: N812

from hashring.errors import ConfigError, OutputExists, OutputRefused
from hashring.spark.engine.counts_while_read import Counts
from hashring.spark.engine.older_pyspark import IS_4_0
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.existing_files import files_there
from hashring.spark.io.input import read_frame, read_stream
from hashring.spark.io.job_file_names import has_others, was_taken_away
from hashring.spark.io.local_paths import local_path
from hashring.spark.io.output import Output
from hashring.spark.io.worker_disks import is_on_workers
from hashring.spark.streams.checkpoint_mark import StreamMark
from hashring.spark.streams.tagging import fixed_ring, tag_stream
from tests.conftest import ROOT
from tests.spark.conftest import keep, rows, stored
from tests.spark.test_output import _until, ids_in, waiting
from tests.spark.test_owner import random_ring
from tests.spark.test_stream import batches, files, stream


@pytest.fixture
def elsewhere(spark, tmp_path):
    """The address of a file system whose directory ``/data`` is ``disk`` here."""
    (tmp_path / "disk").mkdir()
    # Java keeps a file system for each name.
    name = uuid.uuid4().hex
    setting = f"fs.viewfs.mounttable.{name}.link./data"
    spark.conf.set(setting, f"file://{tmp_path}/disk")
    yield f"viewfs://{name}"
    spark.conf.unset(setting)


@pytest.fixture
def by_default(spark, elsewhere):
    """Paths without a scheme are of that file system."""
    spark.conf.set("fs.defaultFS", elsewhere)
    yield
    spark.conf.unset("fs.defaultFS")


def failing(spark):
    """In one task: another one could make its directory after Spark took away those of the job."""
    rows = spark.range(0, 4, 1, numPartitions=1)
    return rows.selectExpr("if(id = 3, raise_error('boom'), id) AS id")


def test_outputs_elsewhere_are_committed_by_spark(spark, tmp_path, elsewhere):
    Output(f"{elsewhere}/data/out.parquet").write(spark.range(3))
    assert (tmp_path / "disk" / "out.parquet" / "_SUCCESS").exists()
    assert spark.read.parquet(f"{elsewhere}/data/out.parquet").count() == 3


def test_an_output_elsewhere_that_exists_is_refused_before_the_work(spark, elsewhere):
    out = Output(f"{elsewhere}/data/out.parquet")
    out.write(spark.range(3))
    with pytest.raises(OutputExists):
        out.check(spark)


def test_an_output_that_another_made_elsewhere_meanwhile_is_refused(spark, monkeypatch, elsewhere):
    out = Output(f"{elsewhere}/data/out.parquet")
    out.write(spark.range(3))
    monkeypatch.setattr(Output, "check", lambda *_: None)
    with pytest.raises(OutputExists):
        out.write(spark.range(4))
    assert spark.read.parquet(f"{elsewhere}/data/out.parquet").count() == 3


def test_a_file_elsewhere_is_no_place_for_an_output(spark, tmp_path, elsewhere):
    (tmp_path / "disk" / "out.parquet").write_text("mine")
    with pytest.raises(OutputExists):
        Output(f"{elsewhere}/data/out.parquet").check(spark)


@pytest.mark.parametrize("mode", ["error", "append"])
def test_a_job_that_failed_elsewhere_does_not_block_the_next(spark, elsewhere, mode):
    out = Output(f"{elsewhere}/data/out [1].parquet", mode=mode)
    with pytest.raises(SPARK_ERRORS, match="boom"):
        out.write(failing(spark))
    out.write(spark.range(3))
    assert spark.read.parquet(rf"{elsewhere}/data/out \[1\].parquet").count() == 3


@pytest.mark.parametrize("hidden", ["_temporary/0", "_delta_log", ".part"])
def test_an_output_elsewhere_that_is_not_committed_is_not_taken_for_empty(
    spark, tmp_path, elsewhere, hidden
):
    (tmp_path / "disk" / "out" / hidden).mkdir(parents=True)
    with pytest.raises(OutputExists):
        Output(f"{elsewhere}/data/out", "parquet").write(spark.range(3))


def test_a_table_with_a_log_elsewhere_is_not_written_to_as_plain_files(spark, tmp_path, elsewhere):
    (tmp_path / "disk" / "out" / "_delta_log").mkdir(parents=True)
    (tmp_path / "disk" / "out" / "_delta_log" / "0.json").write_text("{}")
    with pytest.raises(OutputRefused, match="a table of delta"):
        Output(f"{elsewhere}/data/out", "parquet", mode="append").check(spark)


@pytest.mark.parametrize(
    ("name", "why"),
    [("_checkpoint/id", "it holds the batches of a stream"), ("offsets/0", "it is the checkpoint")],
)
def test_what_is_of_a_stream_elsewhere_is_not_appended_to(spark, tmp_path, elsewhere, name, why):
    file = tmp_path / "disk" / "out" / name
    file.parent.mkdir(parents=True)
    file.write_text("cp")
    with pytest.raises(OutputRefused, match=why):
        Output(f"{elsewhere}/data/out", "parquet", mode="append").check(spark)


def test_rows_in_a_directory_that_a_failed_job_left_are_counted(spark, tmp_path, elsewhere):
    (tmp_path / "disk" / "out").mkdir()
    written = Counts(spark.range(40), rows=F.count(F.lit(1)))
    Output(f"{elsewhere}/data/out", "parquet").write(written.frame)
    assert written.get() == {"rows": 40}


@pytest.mark.long
def test_of_jobs_that_make_one_output_elsewhere_at_once_the_last_is_refused(
    spark, tmp_path, monkeypatch, elsewhere
):
    disk = tmp_path / "disk" / "out"
    out = Output(f"{elsewhere}/data/out", "parquet")
    # As if both had found nothing there before either of them began.
    monkeypatch.setattr(Output, "check", lambda *_: None)
    mode = DataFrameWriter.mode
    monkeypatch.setattr(DataFrameWriter, "mode", lambda writer, _: mode(writer, "append"))
    names = [f"{job} {what}" for job in ("first", "second") for what in ("begins", "goes on")]
    began, goes_on, other_began, other_goes_on = (tmp_path / name for name in names)
    frame = spark.range(0, 1, 1, 1).select(waiting(began, goes_on, 0))
    other = spark.range(10, 12, 1, 2).select(waiting(other_began, other_goes_on, 11))
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(out.write, frame)
        _until(began.exists)
        second = pool.submit(out.write, other)
        _until(lambda: other_began.exists() and any(disk.glob("_temporary/*/task_*")))
        goes_on.touch()
        first.result()
        assert ids_in(disk) == [0]
        other_goes_on.touch()
        with pytest.raises(OutputRefused, match=r"another job .* files part-[0-9a-f]{8}\*"):
            second.result()


@pytest.fixture(params=["path", "table"])
def append(request, spark, tmp_path, elsewhere):
    """Appends to ``disk/out``, which holds 0 to 3: by its address elsewhere, or as a table's."""
    place = tmp_path / "disk" / "out"
    place.mkdir()
    keep(place / "part-0.parquet", id=range(4))
    if request.param == "path":
        yield Output(f"{elsewhere}/data/out", "parquet", mode="append").write
        return
    spark.sql(f"CREATE TABLE appended (id BIGINT) USING parquet LOCATION 'file://{place}'")
    yield Output(None, table="appended", mode="append").write
    spark.sql("DROP TABLE appended")


def test_rows_that_a_killed_job_did_not_commit_are_not_appended_with_those_of_the_next(
    spark, tmp_path, append
):
    disk = tmp_path / "disk" / "out"
    task = disk / "_temporary" / "0" / "task_202611281131371687357971496036972_0000_m_000000"
    task.mkdir(parents=True)
    keep(task / "part-00000.parquet", id=range(4, 8))
    append(spark.range(4, 8))
    assert ids_in(disk) == list(range(8))


def test_files_that_a_failed_append_leaves_are_named(spark, tmp_path, append):
    disk = tmp_path / "disk" / "out"
    (disk / "_SUCCESS").mkdir()  # The committer makes that file last.
    with pytest.raises(
        OutputRefused, match=r"half way, and left 1 file there: .*: remove the files part-\w{8}\*,"
    ) as refusal:
        append(spark.range(4, 8, 1, 1))
    (name,) = re.findall(r"part-\w{8}\*", str(refusal.value))
    for part in disk.glob(name):
        part.unlink()
    assert ids_in(disk) == list(range(4))


def test_the_summaries_that_a_session_writes_of_parquet_are_not_of_another_job(spark, elsewhere):
    spark.conf.set("parquet.summary.metadata.level", "ALL")
    try:
        Output(f"{elsewhere}/data/out", "parquet").write(spark.range(3))
    finally:
        spark.conf.unset("parquet.summary.metadata.level")
    assert {file[:5] for file in files_there(spark, f"{elsewhere}/data/out", None)} == {"part-"}


@pytest.fixture
def loses_a_file(tmp_path, monkeypatch):
    """A file of the output is gone once it was saved."""
    save = DataFrameWriter.save

    def save_and_lose(writer, place):
        save(writer, place)
        next((tmp_path / "disk").glob("out/part-*")).unlink()

    monkeypatch.setattr(DataFrameWriter, "save", save_and_lose)


@pytest.mark.parametrize("is_left", [False, True])
@pytest.mark.usefixtures("loses_a_file")
def test_an_output_elsewhere_that_another_job_took_rows_of_is_refused(
    spark, tmp_path, elsewhere, is_left
):
    if is_left:  # by a job that failed
        (tmp_path / "disk" / "out").mkdir()
    with pytest.raises(OutputRefused, match="30 of 40 rows are there: another job wrote there"):
        Output(f"{elsewhere}/data/out", "parquet").write(spark.range(0, 40, 1, 4))


@pytest.mark.parametrize("kind", ["csv", "json", "orc", "text", "xml"])
def test_rows_of_any_format_are_counted_elsewhere(spark, tmp_path, elsewhere, kind):
    options = {"rowTag": "row"} if kind == "xml" else {}
    out = Output(f"{elsewhere}/data/out", kind, options=options)
    out.write(spark.sql("SELECT 'two\nlines' AS text"))
    assert (tmp_path / "disk" / "out" / "_SUCCESS").exists()


OF_READERS = [
    ("json", {"multiLine": "true"}),
    ("json", {"multiline": "true", "encoding": "UTF-16LE"}),
    ("csv", {"mode": "DROPMALFORMED", "comment": "#"}),
    ("text", {"wholetext": "true"}),
    ("parquet", {"modifiedBefore": "2020-06-01T13:00:00"}),
    ("orc", {"pathGlobFilter": "*.none"}),
]


@pytest.mark.parametrize(("kind", "options"), OF_READERS)
def test_options_that_writers_ignore_hide_no_row_from_the_count(spark, elsewhere, kind, options):
    columns = ("key",) if kind == "text" else ("key", "value")
    frame = spark.sql("SELECT * FROM VALUES ('#a', 'x'), ('b', 'y'), ('c', NULL) AS t(key, value)")
    out = Output(f"{elsewhere}/data/out", kind, options=options)
    out.write(frame.select(*columns).coalesce(1))


UNREADABLE = [("json", {"encoding": "UTF-16"})]
if not IS_4_0:  # which reads back what it wrote
    UNREADABLE.append(("xml", {"rowTag": "row", "encoding": "UTF-16"}))


@pytest.mark.parametrize("mode", ["error", "append"])
@pytest.mark.parametrize(("kind", "options"), UNREADABLE)
def test_rows_that_cannot_be_read_back_are_not_blamed_on_another_job(
    spark, elsewhere, kind, options, mode
):
    out = Output(f"{elsewhere}/data/out", kind, options=options, mode=mode)
    with pytest.raises(
        OutputRefused,
        match=r"\([01] of 4 rows could be read back\): see whether the files part-[0-9a-f]{8}\* "
        "have all rows, and whether a reader finds them by the options, such as encoding$",
    ):
        out.write(spark.range(4).coalesce(1))


@pytest.mark.usefixtures("loses_a_file")
def test_rows_that_are_missing_of_a_text_are_noticed(spark, elsewhere):
    with pytest.raises(OutputRefused, match="30 of 40 rows could be read back"):
        Output(f"{elsewhere}/data/out", "csv").write(spark.range(0, 40, 1, 4))


def test_rows_in_directories_of_columns_elsewhere_are_counted(spark, tmp_path, elsewhere):
    out = Output(f"{elsewhere}/data/out", "parquet")
    out.write(spark.range(4).selectExpr("id", "id % 2 AS owner"), ["owner"])
    assert sorted(row["id"] for row in stored(tmp_path / "disk" / "out")) == [0, 1, 2, 3]


SPELLINGS = ["/data/a/out", "/data/a//out/", "//data/a/out", "/data/./a/out", "/data/b/../a/out"]


@pytest.mark.parametrize("path", SPELLINGS)
def test_files_elsewhere_are_found_by_any_spelling_of_their_path(spark, elsewhere, path):
    spark.range(4).selectExpr("id", "id % 2 AS owner").coalesce(1).write.partitionBy(
        "owner"
    ).parquet(f"{elsewhere}/data/a/out")
    found = [PurePosixPath(file) for file in files_there(spark, elsewhere + path, None)]
    assert [str(file.parent) for file in found] == ["owner=0", "owner=1"]
    assert has_others(spark, elsewhere + path, "part-12345678")
    assert not has_others(spark, elsewhere + path, "part-")


@pytest.mark.long
def test_an_append_elsewhere_keeps_the_columns_by_any_spelling_of_the_path(spark, elsewhere):
    path = f"{elsewhere}/data//out.csv"
    Output(path).write(spark.sql("SELECT 'k1' AS key, 'v1' AS val"))
    Output(path, mode="append").write(spark.sql("SELECT 'v2' AS val, 'k2' AS key"))
    found = spark.read.csv(path, header=True).select("key", "val")
    assert sorted(rows(found)) == [("k1", "v1"), ("k2", "v2")]


@pytest.fixture
def home(spark, tmp_path, elsewhere):
    """The user's home on the default file system, from which relative paths lead."""
    user = tmp_path / "users" / getpass.getuser()
    user.mkdir(parents=True)
    setting = f"fs.viewfs.mounttable.{elsewhere.removeprefix('viewfs://')}.link./user"
    spark.conf.set(setting, f"file://{tmp_path}/users")
    spark.conf.set("fs.defaultFS", elsewhere)
    yield user
    spark.conf.unset("fs.defaultFS")
    spark.conf.unset(setting)


@pytest.mark.parametrize("path", ["{user}", "./out", "a/../out", "../{user}/out", "owner=a"])
def test_files_of_a_relative_path_elsewhere_are_found(spark, home, path):
    path = path.format(user=home.name)
    spark.range(2).coalesce(1).write.parquet(path)
    (file,) = files_there(spark, path, None)
    assert re.fullmatch(r"part-[^/]+\.parquet", file)


@pytest.mark.parametrize("path", ["in", "./in", "../*/in"])
def test_files_beside_directories_of_columns_are_found_elsewhere_by_a_relative_path(
    spark, home, path
):
    (home / "in" / "day=1").mkdir(parents=True)
    keep(home / "in" / "day=1" / "a.parquet", key=["a"])
    keep(home / "in" / "b.parquet", key=["b"])
    with pytest.raises(ConfigError, match=rf"/user/{home.name}/in': holds the file b.parquet besi"):
        read_frame(spark, [path], "parquet")


@pytest.mark.parametrize("path", [".", "out/part-0"])
def test_files_elsewhere_that_cannot_be_told_from_others_are_not_passed_over(spark, home, path):
    (home / "out").mkdir()
    (home / "out" / "part-0").write_text("")
    with pytest.raises(
        OutputRefused,
        match=rf"output {path} cannot be written \(Spark finds viewfs://\w+/user/{home.name}/out/part-0"
        r" there\): name a directory, by its whole address",
    ):
        files_there(spark, path, None)


@pytest.mark.parametrize(
    "beside",
    [
        "both are there",
        pytest.param("are there", marks=pytest.mark.long),
        pytest.param("or all are missing", marks=pytest.mark.long),
    ],
)
def test_a_batch_elsewhere_that_another_process_wrote_too_is_refused_and_then_replaced(
    spark, tmp_path, monkeypatch, elsewhere, beside
):
    disk = tmp_path / "disk"
    save = DataFrameWriter.save

    def save_beside_another(writer, place=None):
        save(writer, place)
        if place and "batch=" in place:
            if beside == "both are there":
                save(writer.mode("append").option("mapreduce.output.basename", "part"), place)
                return
            next(disk.glob("out/batch=0/part-*")).unlink()
            if beside == "or all are missing":
                raise AnalysisException(f"File {place}/_temporary/0 does not exist")

    def run_all():
        places = f"{elsewhere}/data/out", f"{elsewhere}/data/cp"
        tag_stream(
            stream(spark, tmp_path), fixed_ring(random_ring(4, 8)), *places
        ).awaitTermination()

    files(tmp_path, 0)
    with monkeypatch.context() as patch:
        patch.setattr(DataFrameWriter, "save", save_beside_another)
        with pytest.raises(
            StreamingQueryException, match=f"{beside}: another process writes the batch"
        ):
            run_all()
    assert (disk / "out" / "batch=0" / "_SUCCESS").exists()
    run_all()
    assert sorted(int(row["key"]) for row in stored(disk / "out")) == list(range(20))
    # Now it is the user who takes it away.
    shutil.rmtree(disk / "out" / "batch=0")
    StreamMark(f"{elsewhere}/data/out", None, f"{elsewhere}/data/cp").check_ended(spark)


@pytest.fixture
def of_another(spark, tmp_path, elsewhere):
    """Where batch 0 is that another process ends meanwhile; it has yet to note that."""
    files(tmp_path, 0)
    tag_elsewhere(stream(spark, tmp_path), elsewhere)
    forget(tmp_path / "disk", "commits/0")
    return (tmp_path / "disk" / "out" / "batch=0").rename(tmp_path / "of another")


def tag_elsewhere(rows, elsewhere, ring=None):
    places = f"{elsewhere}/data/out", f"{elsewhere}/data/cp"
    tag_stream(rows, ring or fixed_ring(random_ring(4, 8)), *places).awaitTermination()


def forget(disk, name):
    """Remove a file from the checkpoint, such as that a batch ended."""
    file = disk / "cp" / name
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink()


def test_a_batch_that_another_process_ends_while_the_ring_is_read_stays(
    spark, tmp_path, elsewhere, of_another
):
    there, ring = tmp_path / "disk" / "out" / "batch=0", random_ring(4, 8)

    def slow(_):
        of_another.rename(there)
        return random_ring(4, 8, seed=2)

    tag_elsewhere(stream(spark, tmp_path), elsewhere, slow)
    found = stored(there)
    assert len(found) == 20
    assert {row["ring"] for row in found} == {ring.fingerprint}


@pytest.fixture
def ends_late(tmp_path, monkeypatch, of_another):
    """Another process ends batch 0 just before this one writes it. The files of the other."""
    there, save = tmp_path / "disk" / "out" / "batch=0", DataFrameWriter.save

    def save_late(writer, place=None):
        if "batch=" in place:
            of_another.rename(there)
        save(writer, place)

    monkeypatch.setattr(DataFrameWriter, "save", save_late)
    return {there / part.name for part in of_another.glob("part-*")}


@pytest.mark.parametrize("fails", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_batch_that_another_process_ends_before_it_is_written_is_not_deleted(
    spark, tmp_path, elsewhere, ends_late, fails
):
    rows = stream(spark, tmp_path)
    why = r"rows of both are there: another process .* remove the files part-[0-9a-f]{8}\*"
    if fails:
        why = "boom"
        rows = rows.selectExpr("if(key = '19', raise_error('boom'), key) AS key")
    with pytest.raises(StreamingQueryException, match=why):
        tag_elsewhere(rows, elsewhere)
    assert all(part.exists() for part in ends_late)


@pytest.mark.long
def test_a_batch_that_a_killed_process_deleted_after_another_ended_it_is_missed(
    spark, tmp_path, monkeypatch, elsewhere, of_another
):
    disk = tmp_path / "disk"
    there = disk / "out" / "batch=0"
    there.mkdir()
    (there / "part-0").write_text("half")
    save = DataFrameWriter.save

    def killed(writer, place=None):
        if "batch=" in place:
            shutil.rmtree(there)
            (disk / "cp" / "commits" / "0").touch()  # by the other
            raise RuntimeError("killed")
        save(writer, place)

    with monkeypatch.context() as patch:
        patch.setattr(DataFrameWriter, "save", killed)
        with pytest.raises(StreamingQueryException, match="killed"):
            tag_elsewhere(stream(spark, tmp_path), elsewhere)
    names = f"{elsewhere}/data/cp/commits/0, {elsewhere}/data/out/_replacing"
    why = "batch=0 is gone: a process that replaced it has not ended"
    with pytest.raises(OutputRefused, match=f"{why}.* and remove {names}, with any"):
        tag_elsewhere(stream(spark, tmp_path), elsewhere)
    shutil.rmtree(disk / "out" / "_replacing")
    (disk / "cp" / "commits" / "0").unlink()
    tag_elsewhere(stream(spark, tmp_path), elsewhere)
    assert len(stored(disk / "out")) == 20


@pytest.mark.parametrize("written", ["here", "elsewhere", "by an earlier version"])
def test_the_mark_of_an_output_holds_by_any_address_of_it(spark, tmp_path, elsewhere, written):
    disk = tmp_path / "disk"
    (disk / "out").mkdir()
    for name in ("cp", "other"):
        (disk / name).mkdir()
        (disk / name / "metadata").write_text(f'{{"id":"{name}"}}')
    here = str(disk / "out"), disk / "out"
    there = f"{elsewhere}/data/out", None
    if written == "by an earlier version":
        (disk / "out" / "_checkpoint").write_text("cp\n")
    else:
        StreamMark(*(here if written == "here" else there), str(disk / "cp")).keep(spark)
    for place in (here,) if written == "by an earlier version" else (here, there):
        StreamMark(*place, str(disk / "cp")).check(spark)
        with pytest.raises(OutputRefused, match="of another checkpoint"):
            StreamMark(*place, str(disk / "other")).check(spark)


def fail_late(spark, disk):
    """As another process that deletes a batch, to replace it, and fails."""
    for part in (disk / "out" / "batch=0").iterdir():
        part.unlink()


def write_late(spark, disk):
    """As another process that is killed between its last row and its look at the rows there."""
    spark.range(1).write.mode("append").parquet(str(disk / "out" / "batch=0"))


@pytest.mark.parametrize("harm", [fail_late, write_late])
@pytest.mark.parametrize("is_next_planned", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_batch_that_is_not_whole_although_it_was_noted_is_refused_and_then_written_again(
    spark, tmp_path, elsewhere, harm, is_next_planned
):
    disk = tmp_path / "disk"
    files(tmp_path, 0)
    tag_elsewhere(stream(spark, tmp_path), elsewhere)
    left = ["cp/commits/0"]
    if is_next_planned:
        files(tmp_path, 1)
        tag_elsewhere(stream(spark, tmp_path), elsewhere)
        forget(disk, "commits/1")
        left += ["cp/offsets/1", "out/batch=1"]
    harm(spark, disk)
    names = ", ".join(f"{elsewhere}/data/{name}" for name in left)
    why = f"notes batch 0 as ended, and {elsewhere}/data/out/batch=0 lacks rows or has those of two"
    with pytest.raises(OutputRefused, match=f"{why} .* and remove {names}, with any .crc file"):
        tag_elsewhere(stream(spark, tmp_path), elsewhere)
    shutil.rmtree(disk / "out" / "batch=1", ignore_errors=True)
    forget(disk, "commits/0")
    if is_next_planned:
        forget(disk, "offsets/1")
    tag_elsewhere(stream(spark, tmp_path), elsewhere)
    found = [int(row["key"]) for row in stored(disk / "out")]
    assert sorted(found) == list(range(40 if is_next_planned else 20))


@pytest.mark.long
def test_a_batch_that_a_user_has_moved_away_does_not_stop_the_stream(spark, tmp_path, elsewhere):
    files(tmp_path, 0)
    tag_elsewhere(stream(spark, tmp_path), elsewhere)
    shutil.rmtree(tmp_path / "disk" / "out" / "batch=0")
    files(tmp_path, 1)
    tag_elsewhere(stream(spark, tmp_path), elsewhere)
    assert batches(tmp_path / "disk") == ["batch=1"]


@pytest.mark.parametrize("file", ["mine.parquet", "a/mine.parquet", "_a=b/mine.parquet"])
@pytest.mark.parametrize("place", ["viewfs", "here"])
def test_a_new_stream_hides_no_files_that_are_in_its_output(
    spark, tmp_path, elsewhere, place, file
):
    files(tmp_path, 0)
    (tmp_path / "disk" / "out" / file).parent.mkdir(parents=True)
    keep(tmp_path / "disk" / "out" / file, key=["a"])
    output = f"{elsewhere}/data/out" if place == "viewfs" else str(tmp_path / "disk" / "out")
    ring = fixed_ring(random_ring(4, 8))
    with pytest.raises(OutputExists):
        tag_stream(stream(spark, tmp_path), ring, output, f"{elsewhere}/data/cp")


@pytest.mark.parametrize("hidden", ["_notes", pytest.param(None, marks=pytest.mark.long)])
def test_a_new_stream_takes_a_directory_elsewhere_in_which_readers_see_nothing(
    spark, tmp_path, elsewhere, hidden
):
    files(tmp_path, 0)
    (tmp_path / "disk" / "out").mkdir()
    if hidden:
        (tmp_path / "disk" / "out" / hidden).touch()
    tag_elsewhere(stream(spark, tmp_path), elsewhere)
    assert batches(tmp_path / "disk") == ["batch=0"]


@pytest.mark.long
def test_a_session_that_leaves_no_marks_starts_a_stream_again(spark, tmp_path, elsewhere):
    setting = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
    spark.conf.set(setting, "false")
    try:
        for number in range(2):
            files(tmp_path, number)
            tag_elsewhere(stream(spark, tmp_path), elsewhere)
    finally:
        spark.conf.unset(setting)
    assert not list((tmp_path / "disk").rglob("_SUCCESS"))
    assert len(stored(tmp_path / "disk" / "out")) == 40


@pytest.mark.long
def test_rows_of_another_process_are_refused_also_where_workers_may_have_disks_of_their_own(
    spark, tmp_path, monkeypatch, elsewhere
):
    save = DataFrameWriter.save

    def save_beside_another(writer, place=None):
        save(writer, place)
        if place and "batch=" in place:
            save(writer.mode("append").option("mapreduce.output.basename", "part"), place)

    # A path without a scheme over Spark Connect may be of a network disk.
    monkeypatch.setattr("hashring.spark.streams.tagging.is_on_workers", lambda *_: True)
    monkeypatch.setattr(DataFrameWriter, "save", save_beside_another)
    files(tmp_path, 0)
    places = f"{elsewhere}/data/out", f"{elsewhere}/data/cp"
    query = tag_stream(stream(spark, tmp_path), fixed_ring(random_ring(4, 8)), *places)
    with pytest.raises(StreamingQueryException, match="rows of both are there: another process"):
        query.awaitTermination()


def test_a_place_that_cannot_be_written_is_not_blamed_on_another_job():
    denied = AnalysisException("s3a://b/out/_temporary/0: AccessDeniedException")
    assert not was_taken_away(denied)


@pytest.mark.long
def test_a_batch_elsewhere_of_which_spark_would_leave_out_files_ends_the_stream(
    spark, tmp_path, elsewhere
):
    place = tmp_path / "disk" / "in"
    (place / "day=1").mkdir(parents=True)
    keep(place / "day=1" / "a.parquet", key=["a"])
    source = f"{elsewhere}/data/in"
    stream = read_stream(spark, [source], "parquet", "key string, day int")
    keep(place / "b 1.parquet", key=["b"])
    with pytest.raises(StreamingQueryException, match=rf"'{source}': holds the file b 1.parquet b"):
        tag_elsewhere(stream, elsewhere)
    tag_elsewhere(read_stream(spark, [f"{source}/*"], "parquet", "key string"), elsewhere)
    assert sorted(row["key"] for row in stored(tmp_path / "disk" / "out")) == ["a", "b"]


@pytest.mark.long
def test_an_older_copy_of_a_checkpoint_elsewhere_is_refused(spark, tmp_path, elsewhere):
    disk = tmp_path / "disk"

    def run_all():
        places = f"{elsewhere}/data/out", f"{elsewhere}/data/cp"
        tag_stream(
            stream(spark, tmp_path), fixed_ring(random_ring(4, 8)), *places
        ).awaitTermination()

    # Numbers of two digits come after those of one.
    for number in range(9):
        files(tmp_path, number, rows=1)
    run_all()
    shutil.copytree(disk / "cp", tmp_path / "older")
    for number in range(9, 11):
        files(tmp_path, number, rows=1)
    run_all()
    (disk / "cp").rename(tmp_path / "newest")
    shutil.copytree(tmp_path / "older", disk / "cp")
    with pytest.raises(OutputRefused, match=r"batch 10, .* none after batch 8:"):
        run_all()
    shutil.rmtree(disk / "cp")
    (tmp_path / "newest").rename(disk / "cp")
    files(tmp_path, 11, rows=1)
    run_all()
    assert len(batches(disk)) == len(stored(disk / "out")) == 12


@pytest.mark.usefixtures("by_default")
def test_a_path_without_a_scheme_is_of_the_default_file_system(spark, tmp_path):
    assert local_path(spark, "/data/out") is None
    assert local_path(spark, "/data/T11:00/out") is None
    assert local_path(spark, f"file:{tmp_path}/out") == tmp_path / "out"
    Output("/data/out.parquet").write(spark.range(3))
    assert (tmp_path / "disk" / "out.parquet" / "_SUCCESS").exists()
    with pytest.raises(OutputRefused, match="Spark would delete it first"):
        Output("/data/out.parquet", mode="overwrite").check(spark)


@pytest.mark.parametrize("host", ["localhost", "data"])
def test_an_address_of_a_file_with_a_host_is_refused(spark, host):
    """Spark reads no such address, and so not what was written to a directory of that name."""
    address = f"file://{host}/no/out"
    with pytest.raises(
        ConfigError, match=f"path='{address}': names a host, {host}: write file:///"
    ):
        Output(address, "parquet").check(spark)


def test_a_path_without_a_scheme_is_local_again_once_that_is_the_default(spark, by_default):
    assert local_path(spark, "/data/out") is None
    spark.conf.unset("fs.defaultFS")
    assert local_path(spark, "/data/out") == Path("/data/out")


def test_workers_have_no_disks_of_their_own_on_a_default_file_system_that_they_share(
    spark, elsewhere
):
    spark.conf.set("spark.master", "spark://host:7077")
    try:
        assert all(is_on_workers(spark, path) for path in ("/data/out", "/data/T11:00/out"))
        spark.conf.set("fs.defaultFS", elsewhere)
        assert not any(is_on_workers(spark, path) for path in ("/data/out", "/data/T11:00/out"))
        assert is_on_workers(spark, "file:/data/T11:00/out")
    finally:
        spark.conf.unset("fs.defaultFS")
        spark.conf.unset("spark.master")


def test_the_default_file_system_is_the_one_of_core_site(tmp_path):
    for name in ("disk", "conf"):
        (tmp_path / name).mkdir()
    settings = {
        "fs.defaultFS": "viewfs://cluster",
        f"fs.viewfs.mounttable.cluster.link.{tmp_path}": f"file://{tmp_path}/disk",
    }
    properties = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>"
        for name, value in settings.items()
    )
    text = f"<configuration>{properties}</configuration>"
    (tmp_path / "conf" / "core-site.xml").write_text(text)
    command = [
        sys.executable, "-m", "tests.spark.default_file_system_process",
        f"{tmp_path}/out.parquet", f"file:{tmp_path}/warehouse",
    ]  # fmt: skip
    env = {**os.environ, "HADOOP_CONF_DIR": str(tmp_path / "conf")}
    told = subprocess.run(command, cwd=ROOT, env=env, check=True, capture_output=True, text=True)
    assert told.stdout.split() == ["None"]
    assert (tmp_path / "disk" / "out.parquet" / "_SUCCESS").exists()
    assert not (tmp_path / "out.parquet").exists()
