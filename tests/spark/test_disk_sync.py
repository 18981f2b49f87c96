"""Files are on the disk before they become an output, and that before what it replaced goes."""

import errno
import os
from contextlib import contextmanager
from pathlib import Path

import pytest

from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile
from hashring.errors import OutputRefused
from hashring.spark.analysis.reassign import reassign
from hashring.spark.io.input import Input
from hashring.spark.io.output import Output
from hashring.spark.jobs import assign_job
from hashring.spark.streams.compaction import compact
from hashring.spark.streams.tagging import fixed_ring, tag_stream
from tests.spark.conftest import stored
from tests.spark.test_stream import files, stream

RING = Ring({"a": [0], "b": [2**31]})


class Disk:
    """The files and directories that were synced to the disk.

    Attributes:
        places: by inode, where a file or directory was at first.
        names: by inode of a directory, the names in it with their inodes, each time.
    """

    def __init__(self):
        self.places = {}
        self.names = {}

    def note(self, opened):
        place, inode = Path(os.readlink(f"/proc/self/fd/{opened}")), os.fstat(opened).st_ino
        self.places.setdefault(inode, place)
        if place.is_dir():
            self.names.setdefault(inode, []).append(named(place))

    def names_in(self, directory):
        return self.names[directory.stat().st_ino]


def named(place):
    return {entry.name: entry.inode() for entry in os.scandir(place)}


@pytest.fixture
def disk(monkeypatch):
    found, sync = Disk(), os.fsync

    def noted(opened):
        sync(opened)
        found.note(opened)

    monkeypatch.setattr(os, "fsync", noted)
    return found


def check(disk, output):
    """Each file was on the disk before it had its place, and so was its name by the end."""
    written = [file for file in output.rglob("*") if file.name not in ("_lock", "_stream")]
    assert any(file.name.startswith("part-") for file in written)
    for file in written:
        inode = file.stat().st_ino
        assert disk.places[inode] != file
        assert any(inode in names.values() for names in disk.names_in(file.parent))
    assert output.stat().st_ino in disk.names_in(output.parent)[-1].values()


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_an_output_is_on_the_disk_before_it_has_its_place(spark, tmp_path, disk, mode):
    out = tmp_path / "out"
    rows = spark.range(8).selectExpr("id", "id % 2 AS part")
    if mode != "error":
        Output(str(out), "parquet").write(rows, ["part"])
    Output(str(out), "parquet", mode=mode).write(rows, ["part"])
    check(disk, out)
    assert len(stored(out)) == (16 if mode == "append" else 8)


def test_a_batch_of_a_stream_is_on_the_disk_before_it_has_its_place(spark, tmp_path, disk):
    files(tmp_path, 0)
    tag_stream(
        stream(spark, tmp_path), fixed_ring(RING), str(tmp_path / "out"), str(tmp_path / "cp")
    ).awaitTermination()
    check(disk, tmp_path / "out" / "batch=0")


def test_cells_are_on_the_disk_before_the_ring_says_whose_they_are(spark, tmp_path, disk):
    out = tmp_path / "out"
    rows = spark.range(64).selectExpr("string(id) AS key")
    assign_job(Input(rows, "keys"), RING, Output(str(out), "parquet"), cells=4)
    check(disk, out)
    before = named(out)
    reassign(spark, str(out), RingFile(RING.without_nodes("b")))
    check(disk, out)
    after = named(out)
    cell = next(name for name in after if name.startswith("cell=") and after[name] != before[name])
    seen = [(names.get(cell), names["_ring.json"]) for names in disk.names_in(out)]
    assert (after[cell], before["_ring.json"]) in seen
    assert seen[-1] == (after[cell], after["_ring.json"])


def test_merged_batches_are_on_the_disk_before_those_they_are_made_of_go(spark, tmp_path, disk):
    for number in range(3):
        files(tmp_path, number)
    tag_stream(
        stream(spark, tmp_path), fixed_ring(RING), str(tmp_path / "out"), str(tmp_path / "cp")
    ).awaitTermination()
    compact(spark, str(tmp_path / "out"))
    check(disk, tmp_path / "out" / "batch=1")
    assert any(
        {"batch=0", "batch=1", ".compacted=0-1"} <= names.keys()
        for names in disk.names_in(tmp_path / "out")
    )


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_disk_that_fails_leaves_an_output_as_it_was(spark, tmp_path, monkeypatch, mode):
    out = tmp_path / "out"
    Output(str(out), "parquet").write(spark.range(8))
    before = sorted(out.iterdir())

    def failed(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", failed)
    with pytest.raises(OutputRefused, match=r"out cannot be written \(No space left on device"):
        Output(str(out), "parquet", mode=mode).write(spark.range(9))
    assert sorted(part for part in out.iterdir() if part.name != "_lock") == before
    assert [place.name for place in tmp_path.iterdir()] == ["out"]


@contextmanager
def full(directory):
    """Within it, the disk takes no more names in a directory."""
    rename = Path.rename

    def refused(place, target):
        if Path(target).parent == directory:
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        return rename(place, target)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "rename", refused)
        with pytest.raises(OutputRefused, match=r" cannot be written \(No space left on device\)"):
            yield


@pytest.mark.parametrize("mode", ["error", "append"])
def test_a_disk_that_takes_no_name_is_named(spark, tmp_path, mode):
    out = tmp_path / "out"
    if mode == "append":
        Output(str(out), "parquet").write(spark.range(8))
    with full(out if mode == "append" else tmp_path):
        Output(str(out), "parquet", mode=mode).write(spark.range(8, 10))
    Output(str(out), "parquet", mode=mode).write(spark.range(8, 10))
    assert len(stored(out)) == (10 if mode == "append" else 2)


def test_cells_of_which_the_disk_takes_no_name_are_put_back(spark, tmp_path):
    out = tmp_path / "out"
    rows = spark.range(64).selectExpr("string(id) AS key")
    assign_job(Input(rows, "keys"), RING, Output(str(out), "parquet"), cells=4)
    with full(out):
        reassign(spark, str(out), RingFile(RING.without_nodes("b")))
    reassign(spark, str(out), RingFile(RING.without_nodes("b")))
    assert [row["owner"] for row in stored(out)] == ["a"] * 64


def test_batches_stay_if_the_disk_takes_no_name_of_the_merged_ones(spark, tmp_path):
    for number in range(3):
        files(tmp_path, number)
    tag_stream(
        stream(spark, tmp_path), fixed_ring(RING), str(tmp_path / "out"), str(tmp_path / "cp")
    ).awaitTermination()
    with full(tmp_path / "out"):
        compact(spark, str(tmp_path / "out"))
    assert len(stored(tmp_path / "out")) == 60
    assert compact(spark, str(tmp_path / "out")).rows == 40
    assert len(stored(tmp_path / "out")) == 60
