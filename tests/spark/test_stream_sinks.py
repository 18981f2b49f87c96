"""Of each sink, a stream counts what it read, names its batches, and keeps a user's columns."""

import json
import os
import shutil
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrameWriter
from pyspark.sql import functions as F  # noqa: N812

from hashring.ring_files import write_ring
from hashring.spark.engine.counts_while_read import Counts
from hashring.spark.engine.older_pyspark import IS_4_0
from hashring.spark.io.input import read_stream
from hashring.spark.streams.tagging import StreamCounts, fixed_ring, tag_stream
from tests.conftest import PATIENCE
from tests.spark.test_jobs import run
from tests.spark.test_owner import random_ring
from tests.spark.test_stream import recorder, stream

JDBC = {
    "url": "jdbc:derby:memory:streams;create=true",
    "driver": "org.apache.derby.jdbc.EmbeddedDriver",
}
"""A database within the Java of the tests."""


def keep_keys(folder, number, rows=20):
    """One more file of keys in the stream's input, whole at once and newer than those before."""
    (folder / "in").mkdir(exist_ok=True)
    staged = folder / "staged"
    pq.write_table(pa.table({"key": [f"{number}-{row}" for row in range(rows)]}), staged)
    at = time.time() + number
    os.utime(staged, (at, at))
    staged.rename(folder / "in" / f"{number:04d}.parquet")


def in_database(spark, table):
    return spark.read.format("jdbc").options(**JDBC, dbtable=table).load()


def write_to(frame, table, mode):
    frame.write.format("jdbc").options(**JDBC, dbtable=table).mode(mode).save()


def skips(monkeypatch, table):
    """Appends to a table go there, and later ones read nothing, as if it had each batch."""
    save, mode = DataFrameWriter.save, DataFrameWriter.mode
    monkeypatch.setattr(DataFrameWriter, "mode", lambda writer, _: mode(writer, "ignore"))
    monkeypatch.setattr(
        DataFrameWriter, "save", lambda writer, _: save(writer.options(**JDBC, dbtable=table))
    )


def again(folder):
    """As if the process had died after writing the first batch, and before noting that it ended."""
    for name in ("0", ".0.crc"):
        (folder / "cp" / "commits" / name).unlink(missing_ok=True)


def tagged(spark, folder, rows=None, **more):
    """Run a stream to its end, which has to come."""
    query = tag_stream(
        stream(spark, folder) if rows is None else rows,
        fixed_ring(random_ring(2, 2)),
        str(folder / "out"),
        str(folder / "cp"),
        **more,
    )
    try:
        assert query.awaitTermination(4 * PATIENCE)
    finally:
        query.stop()


def test_counts_of_what_a_sink_left_out_do_not_wait_for_it(spark):
    write_to(spark.range(1), "left_out", "error")
    counts = Counts(spark.range(7), rows=F.count(F.lit(1)))
    write_to(counts.frame, "left_out", "ignore")
    assert in_database(spark, "left_out").count() == 1
    assert counts.get() == {"rows": 7}
    assert counts.taken() is None


def test_counts_of_what_a_sink_read_are_taken_from_it(spark):
    counts = Counts(spark.range(7), rows=F.count(F.lit(1)))
    write_to(counts.frame, "was_read", "error")
    assert counts.taken() == counts.get() == {"rows": 7}


def test_counts_of_a_part_that_spark_dropped_are_read(spark):
    counts = Counts(spark.range(7), rows=F.count(F.lit(1)))
    nothing = spark.range(5).where("id < 0")
    counts.frame.join(nothing, "id").write.format("noop").mode("overwrite").save()
    assert counts.get() == {"rows": 7}
    assert counts.taken() == (None if IS_4_0 else {"rows": 7})


def test_a_batch_that_its_sink_leaves_out_is_unknown_in_rows(spark, tmp_path, monkeypatch):
    skips(monkeypatch, "batches")
    keep_keys(tmp_path, 0, rows=5)
    counts = StreamCounts()
    tagged(spark, tmp_path, format="jdbc", counts=counts)
    assert (counts.batches, counts.uncounted, counts.rows) == (1, 0, 5)
    again(tmp_path)
    keep_keys(tmp_path, 1)
    counts = StreamCounts()
    tagged(spark, tmp_path, format="jdbc", counts=counts)
    assert (counts.batches, counts.uncounted, counts.rows) == (2, 2, 0)
    assert in_database(spark, "batches").count() == 5


def test_the_command_tells_unknown_rows_as_unknown(spark, tmp_path, monkeypatch):
    skips(monkeypatch, "told")
    write_ring(random_ring(2, 2), tmp_path / "ring.json")
    found = []
    for number in range(2):
        keep_keys(tmp_path, number, rows=5)
        told = run(
            "stream", "--input", tmp_path / "in", "--format", "parquet", "--output-format", "jdbc",
            "--output", tmp_path / "out", "--checkpoint", tmp_path / "cp",
            "--ring-file", tmp_path / "ring.json", "--json",
        )  # fmt: skip
        found.append(
            [
                told[name]
                for name in (
                    "batches",
                    "batches not counted",
                    "rows written",
                    "bad records left out",
                )
            ]
        )
    assert found == [[1, 0, 5, 0], [1, 1, None, None]]


def told_to(folder):
    return [json.loads(line) for line in (folder / "out").read_text().splitlines()]


def test_a_batch_is_named_by_the_id_of_its_checkpoint_and_its_number(spark, tmp_path):
    spark.dataSource.register(recorder())
    for number in range(2):
        keep_keys(tmp_path, number)
    tagged(spark, tmp_path, format="recorder")
    identity = json.loads((tmp_path / "cp" / "metadata").read_text())["id"]
    assert [(told["txnAppId"], told["txnVersion"]) for told in told_to(tmp_path)] == [
        (identity, "0"), (identity, "1"),
    ]  # fmt: skip


def test_a_checkpoint_made_anew_at_the_same_path_has_other_names_for_its_batches(spark, tmp_path):
    spark.dataSource.register(recorder())
    keep_keys(tmp_path, 0)
    tagged(spark, tmp_path, format="recorder")
    shutil.rmtree(tmp_path / "cp")
    tagged(spark, tmp_path, format="recorder")
    names = [(told["txnAppId"], told["txnVersion"]) for told in told_to(tmp_path)]
    assert len(set(names)) == 2


def test_a_batch_that_was_not_noted_as_ended_goes_by_the_same_name_again(spark, tmp_path):
    # A format that ignores the name has its rows twice.
    spark.dataSource.register(recorder())
    keep_keys(tmp_path, 0)
    tagged(spark, tmp_path, format="recorder")
    again(tmp_path)
    tagged(spark, tmp_path, format="recorder")
    first, second = told_to(tmp_path)
    assert first == second


@pytest.mark.parametrize("read", ["with read_stream", "by its own reader"])
def test_a_column_that_has_the_name_of_the_one_of_bad_records_is_data(spark, tmp_path, read):
    source = tmp_path / "in.parquet"
    held = "VALUES ('a', 'text'), ('b', null) AS t(key, _corrupt_record)"
    spark.sql(f"SELECT * FROM {held}").write.parquet(str(source))
    if read == "with read_stream":
        rows = read_stream(spark, [str(source)], key="key")
    else:
        rows = spark.readStream.schema("key string, _corrupt_record string").parquet(str(source))
    counts = StreamCounts()
    tagged(spark, tmp_path, rows, counts=counts)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert {(row.key, row._corrupt_record) for row in found} == {("a", "text"), ("b", None)}
    assert (counts.rows, counts.bad_records) == (2, 0)
