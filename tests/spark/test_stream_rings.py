"""A change of the ring is reported while the stream runs."""

from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from hashring.cli.spark import spark_group
from hashring.ring_files import write_ring
from hashring.spark.streams.stream_rings import RingsOfBatches
from hashring.spark.streams.tagging import StreamCounts, tag_stream
from tests.spark.test_owner import random_ring
from tests.spark.test_stream import stream
from tests.spark.test_stream_sinks import keep_keys

FIRST, SECOND = random_ring(4, 8), random_ring(4, 8, seed=2)


def tagged(spark, folder, rings, **more):
    """Run a stream with a batch for each ring to its end."""
    for number in range(len(rings)):
        keep_keys(folder, number)
    following = iter(rings)
    query = tag_stream(
        stream(spark, folder),
        lambda _: next(following),
        str(folder / "out"),
        str(folder / "cp"),
        **more,
    )
    query.awaitTermination()
    return query


def test_a_change_of_the_ring_is_reported_before_its_batch_is_written(spark, tmp_path):
    counts, seen = StreamCounts(), []
    tagged(
        spark, tmp_path, [FIRST, FIRST, SECOND, SECOND],
        counts=counts,
        changed=lambda number, ring: seen.append((number, ring.fingerprint, counts.batches)),
    )  # fmt: skip
    assert seen == [(2, SECOND.fingerprint, 2)]


@pytest.mark.parametrize("format", ["parquet", pytest.param("csv", marks=pytest.mark.long)])
def test_changes_of_the_ring_are_read_from_the_batches(spark, tmp_path, format):
    query = tagged(spark, tmp_path, [FIRST, FIRST, SECOND, FIRST], format=format)
    rings = RingsOfBatches(spark, str(tmp_path / "out"), format)
    found = query.recentProgress
    assert list(rings.look(found[:2])) == []
    assert rings.ring == FIRST.fingerprint
    assert list(rings.look(found)) == [(2, SECOND.fingerprint), (3, FIRST.fingerprint)]
    assert list(rings.look(found)) == []
    assert (rings.changes, rings.ring) == (2, FIRST.fingerprint)


def test_the_ring_of_a_batch_is_read_whatever_its_keys_hold(spark, tmp_path):
    (tmp_path / "batch=0").mkdir()
    (tmp_path / "batch=0" / "a.csv").write_text('key,point,owner,ring\n"x"",y\nz",1,n,print\n')
    rings = RingsOfBatches(spark, str(tmp_path), "csv")
    assert list(rings.look([SimpleNamespace(batchId=0, numInputRows=1)])) == []
    assert rings.ring == "print"


def test_a_batch_without_files_has_no_ring(spark, tmp_path):
    query = tagged(spark, tmp_path, [FIRST])
    rings = RingsOfBatches(spark, str(tmp_path / "nowhere"), "parquet")
    assert list(rings.look(query.recentProgress)) == []
    assert rings.ring is None


def test_the_command_says_on_the_terminal_that_the_ring_changed(spark, tmp_path, monkeypatch):
    following = iter([FIRST, SECOND])
    monkeypatch.setattr(
        "hashring.spark.streams.tagging.fixed_ring", lambda _: lambda _: next(following)
    )
    write_ring(FIRST, tmp_path / "ring.json")
    for number in range(2):
        keep_keys(tmp_path, number)
    result = CliRunner().invoke(
        spark_group,
        [
            "stream", "--input", str(tmp_path / "in"), "--format", "parquet", "--input-option",
            "maxFilesPerTrigger=1", "--output", str(tmp_path / "out"),
            "--checkpoint", str(tmp_path / "cp"), "--ring-file", str(tmp_path / "ring.json"),
        ],
    )  # fmt: skip
    assert f"the ring changed: batch 1 has ring {SECOND.fingerprint}\n" in result.stderr
    assert "ring changes  1\n" in result.stdout
