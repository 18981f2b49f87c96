"""Batches of a stream are merged without losing or doubling a row, whenever the process ends."""

import fcntl
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.errors import ConfigError, NoDataError, OutputRefused
from hashring.spark.engine.spark_failures import SPARK_ERRORS, failure
from hashring.spark.streams.compaction import _groups, compact
from hashring.spark.streams.tagging import fixed_ring, tag_stream
from tests.spark.conftest import damage, interrupted, keep, rows, stored
from tests.spark.test_jobs import run
from tests.spark.test_owner import random_ring
from tests.spark.test_stream import batches, files, stream

RING = random_ring(4, 8)


def tagged(spark, source, folder):
    """Tag what came in since, as a process that is started again would."""
    tag_stream(
        stream(spark, source), fixed_ring(RING), str(folder / "out"), str(folder / "cp")
    ).awaitTermination()


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """Four batches of 20 rows, and the checkpoint after two of them."""
    folder = tmp_path_factory.mktemp("stream")
    for number in range(4):
        if number == 2:
            tagged(spark, folder, folder)
            shutil.copytree(folder / "cp", folder / "older")
        files(folder, number)
    tagged(spark, folder, folder)
    return folder


@pytest.fixture
def folder(made, tmp_path):
    """A copy to change; a checkpoint names its input by an absolute path."""
    for name in ("out", "cp", "older"):
        shutil.copytree(made / name, tmp_path / name)
    return tmp_path


def keys(folder):
    return sorted(int(row["key"]) for row in stored(folder / "out"))


def test_all_but_the_newest_batch_are_merged_into_the_last_of_them(spark, folder):
    before = spark.read.parquet(str(folder / "out")).drop("batch").collect()
    told = compact(spark, str(folder / "out"))
    assert batches(folder) == ["batch=2", "batch=3"]
    assert (told.before, told.after, told.rows) == (4, 2, 60)
    assert sorted(spark.read.parquet(str(folder / "out")).drop("batch").collect()) == sorted(before)
    assert len(list((folder / "out" / "batch=2").glob("part-*"))) == 1


def test_rows_of_files_with_other_names_are_merged_too(spark, folder):
    # As with `spark.hadoop.mapreduce.output.basename=daily` for a while.
    (part,) = (folder / "out" / "batch=1").glob("part-*")
    part.rename(part.with_name(part.name.replace("part", "daily")))
    told = compact(spark, str(folder / "out"))
    assert told.rows == 60
    assert keys(folder) == list(range(80))


def test_a_column_that_one_of_the_batches_lacks_is_merged_too(spark, folder):
    (part,) = (folder / "out" / "batch=1").glob("part-*")
    part.unlink()
    part.with_name(f".{part.name}.crc").unlink()
    keep(part, key=["20"], more=["x"])
    compact(spark, str(folder / "out"))
    found = {row["key"]: row["more"] for row in stored(folder / "out" / "batch=2")}
    assert (len(found), found["20"], found["0"]) == (41, "x", None)


def test_brackets_in_a_path_are_no_pattern(spark, folder):
    before = keys(folder)
    strange = (folder / "out").rename(folder / "o[u]t")
    assert compact(spark, str(strange)).rows == 60
    strange.rename(folder / "out")
    assert keys(folder) == before


def test_a_stream_goes_on_after_its_batches_were_merged(spark, made, folder):
    compact(spark, str(folder / "out"))
    # As if the process had died after writing its last batch, and before noting that it ended.
    for name in ("3", ".3.crc"):
        (folder / "cp" / "commits" / name).unlink(missing_ok=True)
    tagged(spark, made, folder)
    assert keys(folder) == list(range(80))
    assert batches(folder) == ["batch=2", "batch=3"]


def test_merged_batches_are_not_written_again_from_an_older_checkpoint(spark, made, folder):
    compact(spark, str(folder / "out"))
    shutil.rmtree(folder / "cp")
    (folder / "older").rename(folder / "cp")
    with pytest.raises(OutputRefused, match=r"batch 3, .* none after batch 1:"):
        tagged(spark, made, folder)
    assert keys(folder) == list(range(80))
    assert batches(folder) == ["batch=2", "batch=3"]


@pytest.mark.parametrize("step", range(5))
def test_killed_at_any_step_and_started_again_it_ends_right(spark, folder, monkeypatch, step):
    renamed = 0

    def killed(self, target):
        nonlocal renamed
        if renamed == step:
            raise KeyboardInterrupt
        renamed += 1
        return rename(self, target)

    rename = Path.rename
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            compact(spark, str(folder / "out"))
    assert len(keys(folder)) <= 80
    compact(spark, str(folder / "out"))
    assert keys(folder) == list(range(80))
    assert batches(folder) == ["batch=2", "batch=3"]
    assert not list((folder / "out").glob(".*=*"))


def test_merged_batches_that_cannot_be_removed_yet_stop_no_later_run(spark, folder, monkeypatch):
    largest = max(part.stat().st_size for part in (folder / "out").glob("batch=*/part-*"))
    with monkeypatch.context() as patch:
        # As on NFS, where a reader has one of their files open.
        patch.setattr("hashring.spark.streams.compaction.shutil.rmtree", lambda *_, **__: None)
        compact(spark, str(folder / "out"), largest + 1)
        assert batches(folder) == ["batch=1", "batch=2", "batch=3"]
        compact(spark, str(folder / "out"))
    assert batches(folder) == ["batch=2", "batch=3"]
    assert keys(folder) == list(range(80))
    compact(spark, str(folder / "out"))
    assert not list((folder / "out").glob(".*=*"))


def test_an_interrupt_cancels_what_spark_writes_and_removes_it(spark, folder, monkeypatch):
    with interrupted(spark, monkeypatch, "save"):
        compact(spark, str(folder / "out"))
    assert len(batches(folder)) == 4
    assert not list((folder / "out").glob(".*=*"))


@pytest.mark.usefixtures("careless")
def test_rows_that_cannot_be_read_are_not_left_out(spark, folder):
    (part, *_) = (folder / "out" / "batch=0").glob("*.parquet")
    damaged = damage(part)
    with pytest.raises(Exception, match=r"(?i)parquet"):
        compact(spark, str(folder / "out"))
    assert part.read_bytes() == damaged
    assert len(batches(folder)) == 4


def test_a_frame_that_spark_keeps_of_the_batches_is_read_anew(spark, folder):
    read = spark.read.parquet(str(folder / "out"))
    read.cache().count()
    compact(spark, str(folder / "out"))
    try:
        assert set(rows(spark.read.parquet(str(folder / "out")).select("batch").distinct())) == {
            (2,), (3,)
        }  # fmt: skip
    finally:
        read.unpersist()


def test_a_job_that_listed_the_batches_before_fails_and_does_not_leave_out_rows(spark, folder):
    listed = spark.read.parquet(str(folder / "out"))
    compact(spark, str(folder / "out"))
    with pytest.raises(SPARK_ERRORS) as told:
        listed.select("key").collect()
    assert "was taken away while it was read; start the job again" in str(failure(told.value))


def test_rows_that_are_not_there_leave_the_batches_as_they_were(spark, folder, monkeypatch):
    monkeypatch.setattr(
        "hashring.spark.streams.compaction._read",
        lambda spark, place, *_: spark.range(len(place.name)),
    )
    with pytest.raises(OutputRefused, match="of 3 merged rows are there: Spark's workers write"):
        compact(spark, str(folder / "out"))
    assert len(batches(folder)) == 4


def test_what_cannot_be_compacted_is_refused(spark, folder, tmp_path):
    with pytest.raises(NoDataError, match="holds no batch of a stream"):
        compact(spark, str(tmp_path))
    with pytest.raises(OutputRefused, match="a disk of this machine"):
        compact(spark, "s3a://bucket/out")
    with pytest.raises(ConfigError, match="size=0: give bytes"):
        compact(spark, str(folder / "out"), 0)
    with pytest.raises(ConfigError, match="format='csv': choose one of parquet, orc"):
        compact(spark, str(folder / "out"), format="csv")
    with (folder / "out" / "_lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(OutputRefused, match="another process compacts it"):
            compact(spark, str(folder / "out"))


def test_the_command_compacts(spark, folder):
    told = run("compact", folder / "out", "--json")
    assert (told["directories before"], told["directories now"], told["rows merged"]) == (4, 2, 60)
    assert keys(folder) == list(range(80))


@given(st.lists(st.integers(0, 30), max_size=20), st.integers(1, 30))
def test_groups_are_neighbours_below_the_size(sizes, size):
    numbered = {3 * i: bytes_ for i, bytes_ in enumerate(sizes)}
    groups = list(_groups(numbered, size))
    merged = [number for group in groups for number in group]
    assert merged == sorted(merged)
    for group in groups:
        assert len(group) > 1
        assert group == list(range(group[0], group[-1] + 1, 3))
        assert all(numbered[number] < size for number in group)
        assert sum(numbered[number] for number in group[:-1]) < size
    # Two neighbours that are small and are in no group would be one more group.
    left = [number for number in numbered if number not in merged]
    assert not any(
        b - a == 3 and numbered[a] < size and numbered[b] < size for a, b in pairwise(left)
    )
