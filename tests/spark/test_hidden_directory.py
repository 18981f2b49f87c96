"""The directory that a job writes to before its rows take their place."""

import shutil
import time
from pathlib import Path

import pytest
from pyspark.sql import functions as F  # noqa: N812 - the name everybody reads

from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile
from hashring.errors import OutputRefused
from hashring.ring_files import read_ring
from hashring.spark.analysis.point_cells import by_cell, keep_ring
from hashring.spark.analysis.reassign import reassign
from hashring.spark.engine.spark_failures import SPARK_ERRORS
from hashring.spark.io.output import Output
from hashring.spark.lookup.owner_columns import with_owner
from hashring.spark.streams.compaction import compact
from hashring.spark.streams.tagging import fixed_ring, tag_stream
from tests.spark.conftest import rows

REMOVED = "was removed while the job wrote to it, and rows are missing"


def removing(place: Path, pattern: str):
    """A function of the last task, which removes the directory once another task has ended."""
    root = str(place)

    @F.udf("bigint")
    def remove(number):
        while number == 2:
            ended = list(Path(root).glob(f"{pattern}/_temporary/0/task_*"))
            if ended:
                shutil.rmtree(ended[0].parents[2])
                break
            time.sleep(0.01)
        return number

    return remove


@pytest.mark.parametrize("mode", ["error", "append", "overwrite"])
def test_a_job_whose_hidden_directory_is_removed_fails_and_changes_nothing(spark, tmp_path, mode):
    there = [] if mode == "error" else [(7,)]
    if there:
        Output(str(tmp_path / "out"), "json").write(spark.range(7, 8))
    # Two tasks run at once: the third begins when one of them has ended.
    remove = removing(tmp_path, ".out.*")
    df = spark.range(0, 3, 1, 3).select(remove("id").alias("id"))
    with pytest.raises(OutputRefused, match=REMOVED):
        Output(str(tmp_path / "out"), "json", mode=mode).write(df)
    assert [place.name for place in tmp_path.iterdir()] == ["out"] * len(there)
    assert not there or rows(spark.read.json(str(tmp_path / "out"))) == there


@pytest.fixture
def removed_at_its_end(spark, monkeypatch):
    """Spark's writer, whose directory is removed when it has written, by the name of its method."""

    def patch(method):
        writer = type(spark.range(1).write)
        write = getattr(writer, method)

        def removed(self, path, *more):
            write(self, path, *more)
            shutil.rmtree(path.removeprefix("file://"))

        monkeypatch.setattr(writer, method, removed)

    return patch


def files(place: Path) -> set[str]:
    return {str(file.relative_to(place)) for file in place.rglob("[!._]*") if file.is_file()}


def test_cells_stay_as_they_were_if_the_hidden_directory_is_removed(
    spark, tmp_path, removed_at_its_end
):
    place, ring = tmp_path / "out", RingFile(Ring({"a": [0]}))
    owned = with_owner(spark.sql("SELECT string(id) key FROM range(20)"), ring.ring)
    output = Output(str(place), "parquet")
    output.write(by_cell(owned, 4), ["cell"], lambda aside: keep_ring(aside, ring, 4))
    was = files(place)
    removed_at_its_end("parquet")
    with pytest.raises(OutputRefused, match=REMOVED):
        reassign(spark, str(place), RingFile(Ring({"b": [0]})))
    assert files(place) == was
    assert read_ring(place / "_ring.json").ring == ring.ring


def test_batches_stay_as_they_were_if_the_hidden_directory_is_removed(
    spark, tmp_path, removed_at_its_end
):
    for number in range(3):
        spark.range(number, number + 1).write.parquet(f"{tmp_path}/batch={number}")
    was = files(tmp_path)
    removed_at_its_end("save")
    with pytest.raises(OutputRefused, match=REMOVED):
        compact(spark, str(tmp_path))
    assert files(tmp_path) == was


def test_a_batch_whose_hidden_directory_was_removed_is_written_again(
    spark, tmp_path, removed_at_its_end, monkeypatch
):
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "keys.json").write_text('{"key": "k"}')

    def tag():
        stream = spark.readStream.schema("key STRING").json(str(tmp_path / "in"))
        ring = fixed_ring(Ring({"a": [0]}))
        query = tag_stream(stream, ring, str(tmp_path / "out"), str(tmp_path / "state"))
        query.awaitTermination()

    removed_at_its_end("save")
    with pytest.raises(SPARK_ERRORS, match=REMOVED):
        tag()
    monkeypatch.undo()
    tag()
    assert rows(spark.read.parquet(str(tmp_path / "out")).select("key")) == [("k",)]
