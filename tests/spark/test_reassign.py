"""Owners kept in files: right after every change of the ring, and after a kill at any step."""

import errno
import fcntl
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrameWriter

from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile
from hashring.errors import ConfigError, EmptyRingError, NoDataError, OutputRefused
from hashring.ring_files import read_ring, write_ring
from hashring.spark import may_move, with_owner
from hashring.spark.analysis.point_cells import touched_cells
from hashring.spark.analysis.reassign import reassign
from hashring.spark.io.directory_lock import alone
from hashring.spark.io.input import Input
from hashring.spark.io.output import Output
from hashring.spark.jobs import assign_job, reassign_job
from tests.conftest import PATIENCE
from tests.spark.conftest import damage, interrupted, stored
from tests.spark.test_jobs import run
from tests.spark.test_owner import random_ring

BEFORE = random_ring(20, 4)
AFTER = BEFORE.with_node("new", [random.Random(7).randrange(2**32) for _ in range(4)])


@pytest.fixture(scope="module")
def made(spark, tmp_path_factory):
    """Keys with their owners on the first ring, in 64 cells."""
    place = tmp_path_factory.mktemp("cells") / "owned"
    keys = spark.range(2000).selectExpr("if(id = 0, null, concat('k', id)) AS key", "id")
    assign_job(Input(keys, "keys"), BEFORE, Output(str(place), "parquet"), cells=64)
    return place


@pytest.fixture
def place(made, tmp_path):
    """A copy to change."""
    return shutil.copytree(made, tmp_path / "owned")


@pytest.fixture(scope="module")
def changed(spark, made, tmp_path_factory):
    """The same with their owners on the second ring."""
    place = shutil.copytree(made, tmp_path_factory.mktemp("changed") / "owned")
    reassign(spark, str(place), RingFile(AFTER))
    return place


def owners(place):
    rows = stored(place)
    assert len(rows) == 2000
    return {row["key"]: row["owner"] for row in rows}


def right(ring):
    return {None: None, **{f"k{i}": ring.owner(f"k{i}") for i in range(1, 2000)}}


def test_only_the_cells_that_a_change_touches_are_rewritten(spark, place):
    old = set(place.glob("cell=*/*.parquet"))
    outcome = dict(reassign_job(spark, str(place), RingFile(AFTER)).facts)
    assert owners(place) == right(AFTER)
    assert read_ring(place / "_ring.json").ring == AFTER
    new = set(place.glob("cell=*/*.parquet"))
    assert len(old - new) == outcome["files read"] == outcome["cells rewritten"] < 16
    moved = sum(BEFORE.owner(f"k{i}") != AFTER.owner(f"k{i}") for i in range(1, 2000))
    assert outcome["rows that moved"] == moved < outcome["rows read"] < 500
    # Asked again, there is nothing to do.
    assert dict(reassign_job(spark, str(place), RingFile(AFTER)).facts)["files read"] == 0


@pytest.mark.parametrize(
    "name",
    [
        "own[e]d",
        *(pytest.param(name, marks=pytest.mark.long) for name in ("owne{d}", "owne?", "own*")),
        "back\\slash",
    ],
)
def test_brackets_in_a_path_are_no_pattern(spark, changed, place, name):
    # As a pattern, most of these names are that of the directory beside it.
    mine = place.rename(place.parent / name)
    shutil.copytree(changed, place)
    assert reassign(spark, str(mine), RingFile(AFTER)).moved > 0
    assert owners(mine.rename(place.parent / "plain")) == right(AFTER)


def test_rows_stay_in_order_of_their_points(spark, place):
    reassign(spark, str(place), RingFile(AFTER))
    for part in place.glob("cell=[0-9]*/*.parquet"):
        points = pq.ParquetFile(part).read(["point"])["point"].to_pylist()
        assert points == sorted(points)
        assert {point >> 26 for point in points} == {int(part.parent.name[5:])}


def test_killed_as_cells_are_replaced_and_then_given_another_ring(spark, place, monkeypatch):
    """The kill of a process: nothing after it runs, and the third ring moves some cells back."""
    cells = touched_cells([BEFORE], AFTER, 64)
    replaced = 0

    def killed(self, target):
        nonlocal replaced
        replaced += target.parent == place
        if replaced > len(cells) // 2:
            raise KeyboardInterrupt
        return rename(self, target)

    rename = Path.rename
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        patch.setattr(sys.modules[reassign.__module__], "_put_back", lambda place: None)
        with pytest.raises(KeyboardInterrupt):
            reassign(spark, str(place), RingFile(AFTER))
    left = [cell for cell in cells if not (place / f"cell={cell}").exists()]
    assert len(left) == 1
    third = BEFORE.with_node("third", [1, 2**31])
    reassign(spark, str(place), RingFile(third))
    assert owners(place) == right(third)
    assert not list(place.glob(".reassign*")) + list(place.glob("_next*"))


def test_a_change_that_fails_leaves_the_cells_as_they_were(spark, place):
    damaged = place / f"cell={touched_cells([BEFORE], AFTER, 64)[0]}"
    (part,) = damaged.glob("*.parquet")
    whole = part.read_bytes()
    part.write_bytes(whole[:-9])
    with pytest.raises(Exception, match=r"(?i)parquet"):
        reassign(spark, str(place), RingFile(AFTER))
    part.write_bytes(whole)
    for checksum in damaged.glob(".*.crc"):
        checksum.unlink()
    assert owners(place) == right(BEFORE)
    assert not list(place.glob(".reassign*"))


def emptied(spark, cell, *, has_file):
    for file in list(cell.iterdir()):
        file.unlink()
    if has_file:
        empty = spark.read.parquet(str(cell.parent)).drop("cell").limit(0).coalesce(1)
        empty.write.mode("overwrite").parquet(str(cell))


@pytest.mark.parametrize("has_file", [False, True])
@pytest.mark.parametrize("count", [1, None])
def test_cells_without_rows_stay_as_they_are(spark, place, count, has_file):
    touched = touched_cells([BEFORE], AFTER, 64)
    cells = [place / f"cell={cell}" for cell in touched[:count]]
    for cell in cells:
        emptied(spark, cell, has_file=has_file)
    files = {file.name for cell in cells for file in cell.iterdir()}
    left = stored(place)
    found = reassign(spark, str(place), RingFile(AFTER))
    assert found.touched == len(touched) - len(cells)
    assert {file.name for cell in cells for file in cell.iterdir()} == files
    expected = right(AFTER)
    assert all(row["owner"] == expected[row["key"]] for row in stored(place))
    assert len(stored(place)) == len(left)
    assert not list(place.glob(".reassign*")) + list(place.glob("_next*"))


def test_a_cell_that_workers_wrote_to_a_disk_of_their_own_is_not_passed_over(
    spark, place, monkeypatch
):
    write = DataFrameWriter.parquet

    def elsewhere(writer, path):
        write(writer, path)
        cell = next(Path(path.removeprefix("file:")).glob("cell=*"))
        shutil.rmtree(cell)

    monkeypatch.setattr(sys.modules[reassign.__module__], "is_on_workers", lambda *_: True)
    monkeypatch.setattr(DataFrameWriter, "parquet", elsewhere)
    with pytest.raises(OutputRefused, match=r"of \d+ rows are there: .* disks of their own"):
        reassign(spark, str(place), RingFile(AFTER))
    assert owners(place) == right(BEFORE)
    assert not list(place.glob(".reassign*")) + list(place.glob("_next*"))


@pytest.mark.usefixtures("careless")
def test_rows_that_cannot_be_read_are_not_left_out(spark, place):
    cell = place / f"cell={touched_cells([BEFORE], AFTER, 64)[0]}"
    (part,) = cell.glob("*.parquet")
    damaged = damage(part)
    with pytest.raises(Exception, match=r"(?i)parquet"):
        reassign(spark, str(place), RingFile(AFTER))
    assert part.read_bytes() == damaged
    assert not list(place.glob(".reassign*"))


def test_a_frame_that_spark_keeps_of_the_owners_is_read_anew(spark, place):
    spark.read.parquet(str(place)).cache().count()
    reassign(spark, str(place), RingFile(AFTER))
    kept = {row["key"]: row["owner"] for row in spark.read.parquet(str(place)).collect()}
    assert kept == right(AFTER)


def test_two_at_once_are_refused(spark, place):
    with (place / "_lock").open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(OutputRefused, match="another process reassigns it"):
            reassign(spark, str(place), RingFile(AFTER))


def test_owners_are_not_overwritten_while_they_are_reassigned(spark, place, monkeypatch):
    module = sys.modules[reassign.__module__]
    write, refused = module._write_aside, []

    def overwritten(*args):
        source = Input(spark.sql("SELECT 'k' AS key, 0L AS id"), "keys")
        output = Output(str(place), "parquet", mode="overwrite")
        with pytest.raises(OutputRefused, match="another process reassigns it") as error:
            assign_job(source, random_ring(3, 4), output, cells=64)
        refused.append(error)
        write(*args)

    monkeypatch.setattr(module, "_write_aside", overwritten)
    reassign(spark, str(place), RingFile(AFTER))
    assert refused
    assert owners(place) == right(AFTER)
    assert not list(place.glob("_next*"))


def test_the_lock_of_a_directory_that_was_replaced_is_none(tmp_path, monkeypatch):
    place = tmp_path / "owned"
    place.mkdir()
    lock = fcntl.flock

    def replaced(file, wanted):
        monkeypatch.undo()
        place.rename(tmp_path / "before")
        place.mkdir()
        lock(file, wanted)

    monkeypatch.setattr(fcntl, "flock", replaced)
    with (
        alone(place, "owned", "reassigns"),
        pytest.raises(OutputRefused, match="another process reassigns it"),
        alone(place, "owned", "overwrites"),
    ):
        pass


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS])
def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch, number):
    def without_locks(file, wanted):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", without_locks)
    why = rf"owned .*{tmp_path}/_lock cannot be locked: {os.strerror(number)}.*that can lock files"
    with pytest.raises(OutputRefused, match=why), alone(tmp_path, "owned", "appends to"):
        pass


@pytest.mark.parametrize(
    ("number", "is_there", "why"),
    [
        (errno.EACCES, False, "no right to write into {}"),
        (errno.EACCES, True, "no right to write {}/_lock"),
        (errno.EROFS, False, "{}/_lock cannot be opened: Read-only file system"),
    ],
)
def test_a_lock_that_cannot_be_opened_is_refused_with_the_reason(
    tmp_path, monkeypatch, number, is_there, why
):
    def refused(path, *_, **__):
        raise OSError(number, os.strerror(number), str(path))

    if is_there:
        (tmp_path / "_lock").touch()
    monkeypatch.setattr(Path, "open", refused)
    with (
        pytest.raises(OutputRefused, match=rf"\({why.format(tmp_path)}\): "),
        alone(tmp_path, "owned", "appends to"),
    ):
        pass


def test_an_interrupt_cancels_what_spark_writes_and_removes_it(spark, place, monkeypatch):
    with interrupted(spark, monkeypatch, "parquet"):
        reassign(spark, str(place), RingFile(AFTER))
    assert not list(place.glob(".reassign-*"))
    assert read_ring(place / "_ring.json").ring == BEFORE


def test_a_child_forked_meanwhile_keeps_nobody_out(tmp_path):
    with alone(tmp_path, "owned", "reassigns"):
        child = os.fork()
        if not child:
            time.sleep(PATIENCE)
            os._exit(0)
    try:
        with alone(tmp_path, "owned", "reassigns"):
            pass
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.mark.parametrize("said", ["", "sixty-four", "63", "0", "131072", "9" * 5000, "\x1b[31m"])
def test_a_number_of_cells_that_is_none_is_named_with_its_file(spark, place, said):
    (place / "_cells").write_text(said)
    with pytest.raises(NoDataError, match=r"_cells: says '.*' where the number of cells should"):
        reassign(spark, str(place), RingFile(AFTER))


def test_what_cannot_be_reassigned_is_refused(spark, place, tmp_path):
    with pytest.raises(NoDataError, match="holds no cells: write it with assign --keep-point"):
        reassign(spark, str(tmp_path), RingFile(AFTER))
    with pytest.raises(NoDataError, match="gone: nothing is there; check the path"):
        reassign(spark, f"{tmp_path}/gone", RingFile(AFTER))
    with pytest.raises(OutputRefused, match="a disk of this machine"):
        reassign(spark, "s3a://bucket/owned", RingFile(AFTER))
    with pytest.raises(EmptyRingError):
        reassign(spark, str(place), RingFile(Ring()))
    with pytest.raises(ConfigError, match="the owners were assigned by crc-32; assign them anew"):
        reassign(spark, str(place), RingFile(Ring({"a": [0]}, "jamcrc")))
    keys = Input(spark.sql("SELECT 'k' key"), "keys")
    for output, cells in ((Output(None, table="t"), 64), (Output(f"{tmp_path}/x.parquet"), 3)):
        with pytest.raises(ConfigError, match="cells="):
            assign_job(keys, BEFORE, output, cells=cells)


def test_the_commands_keep_points_and_reassign(spark, tmp_path):
    write_ring(BEFORE, tmp_path / "before.json")
    write_ring(AFTER, tmp_path / "after.json")
    (tmp_path / "keys.csv").write_text("key\n" + "".join(f"k{i}\n" for i in range(9)))
    run("assign", "--input", tmp_path / "keys.csv", "--output", tmp_path / "owned",
        "--keep-point", "--cells", 4, "--ring-file", tmp_path / "before.json")  # fmt: skip
    told = run("reassign", tmp_path / "owned", "--ring-file", tmp_path / "after.json", "--json")
    assert (told["cells"], told["ring fingerprint"]) == (4, AFTER.fingerprint)
    found = spark.read.parquet(str(tmp_path / "owned")).collect()
    assert {r.key: r.owner for r in found} == {f"k{i}": AFTER.owner(f"k{i}") for i in range(9)}


def test_a_filter_on_points_that_move_reaches_the_files(spark, place):
    rows = spark.read.parquet(str(place))
    moving = rows.where(may_move(BEFORE, AFTER)).select("key", "point")
    found = with_owner(moving.drop("point"), AFTER).collect()
    wanted = {k: o for k, o in right(AFTER).items() if right(BEFORE)[k] != o}
    assert {row.key: row.owner for row in found} == wanted
    plan = moving._jdf.queryExecution().executedPlan().toString()
    assert "GreaterThanOrEqual(point," in plan
