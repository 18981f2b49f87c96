"""A stream tags each row once, by a ring that held, whatever happens to its process."""

import fcntl
import gzip
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Timer

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.errors import StreamingQueryException
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage
from redis import Redis
from redis_hashring import RingNode as OldNode

from hashring import RingNode
from hashring.core.ring import Ring
from hashring.core.ring_json import RingFile
from hashring.errors import (
    ColumnError,
    ConfigError,
    InputDamaged,
    NoDataError,
    OutputExists,
    OutputRefused,
    RedisUnavailable,
)
from hashring.ring_files import write_ring
from hashring.spark.datasource import live_ring
from hashring.spark.engine.spark_failures import SPARK_ERRORS, failure
from hashring.spark.io.directory_lock import alone
from hashring.spark.io.input import read_stream
from hashring.spark.io.output import Output
from hashring.spark.io.places_of_a_job import is_in
from hashring.spark.streams.checkpoint_mark import StreamMark, numbers_after
from hashring.spark.streams.tagging import StreamCounts, fixed_ring, followed_ring, tag_stream
from hashring.store.embedded_server import RedisServer
from tests.conftest import PATIENCE, ROOT, eventually
from tests.spark.conftest import keep, on_workers, stored
from tests.spark.test_jobs import run
from tests.spark.test_owner import random_ring

RING = "fleet"
JAVA_PATIENCE = 4 * PATIENCE
"""Until a Java and a stream in it have started, on a machine with more to do than it can."""


def files(folder, number, rows=20):
    """One more file of keys in the stream's input, whole at once and newer than those before."""
    first = number * rows
    (folder / "in").mkdir(exist_ok=True)
    staged = keep(folder / "staged", key=[str(key) for key in range(first, first + rows)])
    at = time.time() + number
    os.utime(staged, (at, at))
    staged.rename(folder / "in" / f"{number:04d}.parquet")


def stream(spark, folder):
    reader = spark.readStream.schema("key string").option("maxFilesPerTrigger", 1)
    return reader.parquet(str(folder / "in"))


def batches(folder):
    return sorted(p.name for p in (folder / "out").glob("batch=*"))


def test_every_row_is_tagged_by_the_ring(spark, tmp_path):
    ring = random_ring(4, 8)
    for number in range(3):
        files(tmp_path, number)
    tag_stream(
        stream(spark, tmp_path), fixed_ring(ring), str(tmp_path / "out"), str(tmp_path / "cp")
    ).awaitTermination()
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(int(r.key) for r in found) == list(range(60))
    assert all(r.owner == ring.owner(r.key) and r.ring == ring.fingerprint for r in found)
    assert batches(tmp_path) == ["batch=0", "batch=1", "batch=2"]


def test_a_batch_that_was_written_is_not_written_again(spark, tmp_path):
    files(tmp_path, 0)
    first, second = random_ring(4, 8), random_ring(4, 8, seed=2)
    for ring in (first, second):
        tag_stream(
            stream(spark, tmp_path), fixed_ring(ring), str(tmp_path / "out"), str(tmp_path / "cp")
        ).awaitTermination()
        # As if the process had died after writing the batch, and before noting that it ended.
        for name in ("0", ".0.crc"):
            (tmp_path / "cp" / "commits" / name).unlink(missing_ok=True)
    found = stored(tmp_path / "out")
    assert len(found) == 20
    assert {row["ring"] for row in found} == {first.fingerprint}


@pytest.mark.long
def test_a_batch_on_another_file_system_is_not_written_again_either(spark, tmp_path, monkeypatch):
    # As if Spark alone could see the paths.
    monkeypatch.setattr("hashring.spark.streams.tagging.local_path", lambda spark, path: None)
    files(tmp_path, 0)
    out = tmp_path / "out"
    for seed in (1, 2):
        tag_stream(
            stream(spark, tmp_path), fixed_ring(random_ring(4, 8, seed)), str(out),
            str(tmp_path / "cp"),
        ).awaitTermination()  # fmt: skip
        for name in ("0", ".0.crc"):
            (tmp_path / "cp" / "commits" / name).unlink(missing_ok=True)
    assert {row["ring"] for row in stored(out)} == {random_ring(4, 8, 1).fingerprint}
    # Without its mark it is half of a batch, of a process that was killed as it wrote.
    (out / "batch=0" / "_SUCCESS").unlink()
    tag_stream(
        stream(spark, tmp_path), fixed_ring(random_ring(4, 8, 3)), str(out), str(tmp_path / "cp")
    ).awaitTermination()
    found = stored(out)
    assert len(found) == 20
    assert {row["ring"] for row in found} == {random_ring(4, 8, 3).fingerprint}


@pytest.mark.long  # tests/spark_programs/test_engines.py has it over Spark Connect.
def test_the_ring_is_followed_while_the_stream_runs(spark, redis_server, tmp_path):
    files(tmp_path, 0)
    now = followed_ring(redis_server.url, RING, refresh=0)
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        a = RingNode(client, RING, name="a")
        a.start()
        query = tag_stream(
            stream(spark, tmp_path), now, str(tmp_path / "out"), str(tmp_path / "cp"),
            interval="0 seconds",
        )  # fmt: skip
        try:
            eventually(lambda: batches(tmp_path) == ["batch=0"], "the first batch", JAVA_PATIENCE)
            with RingNode(client, RING, name="b"):
                both = live_ring(spark, redis_server.url, RING)
                files(tmp_path, 1)
                eventually(lambda: len(batches(tmp_path)) == 2, "the second batch", JAVA_PATIENCE)
        finally:
            query.stop()
            a.stop()
    found = stored(tmp_path / "out")
    assert {row["owner"] for row in found if row["batch"] == 0} == {"a"}
    assert {row["ring"] for row in found if row["batch"] == 1} == {both.fingerprint}
    assert {row["owner"] for row in found if row["batch"] == 1} == {"a", "b"}


def test_a_ring_is_read_again_when_what_is_known_is_old(monkeypatch):
    clock, read = [100.0], []

    def ring_now(spark, url, name, wire):
        assert wire is None
        read.append((url, name))
        clock[0] += 2  # a reading takes time, too
        return random_ring(2, 2, seed=len(read))

    monkeypatch.setattr("hashring.spark.streams.tagging.live_ring", ring_now)
    monkeypatch.setattr("hashring.spark.streams.tagging.time.monotonic", lambda: clock[0])
    now = followed_ring("redis://x", RING, refresh=10)
    first = now(None)
    for at in (102.0, 109.9):
        clock[0] = at
        assert now(None) is first
    assert read == [("redis://x", RING)]
    clock[0] = 110.0
    second = now(None)
    assert second is not first
    clock[0] = 119.9
    assert now(None) is second
    clock[0] = 500.0
    assert now(None) is not second
    assert len(read) == 3


def test_a_redis_that_is_away_for_a_moment_ends_no_stream(spark, server_program):
    with (
        RedisServer(server_program) as server,
        Redis(unix_socket_path=str(server.socket)) as client,
        RingNode(client, RING, name="a", heartbeat_interval=0.2, ttl=PATIENCE),
    ):
        now = followed_ring(server.url, RING, refresh=0)
        assert now(spark).nodes == ("a",)
        # It comes back empty, and then the node does.
        server.kill()
        back = Timer(0.5, server.start)
        back.start()
        assert now(spark).nodes == ("a",)
        back.join()


@pytest.mark.long
def test_a_redis_that_stays_away_ends_a_stream(spark, server_program, monkeypatch):
    monkeypatch.setattr("hashring.spark.streams.tagging._PATIENCE", 1)
    with (
        RedisServer(server_program) as server,
        Redis(unix_socket_path=str(server.socket)) as client,
    ):
        now = followed_ring(server.url, RING, refresh=0)
        with RingNode(client, RING, name="a"):
            now(spark)
        assert now(spark).nodes == ()
        server.kill()
        with pytest.raises(SPARK_ERRORS) as ended:
            now(spark)
    assert isinstance(failure(ended.value), RedisUnavailable)


def recorder():
    """A format that writes down with which options each batch came to it, and how many rows."""

    class Done(WriterCommitMessage):
        def __init__(self, rows):
            self.rows = rows

    class Writer(DataSourceWriter):
        def __init__(self, options):
            self.options = options

        def write(self, iterator):
            return Done(sum(1 for _ in iterator))

        def commit(self, messages):
            told = {name: self.options.get(name) for name in ("txnAppId", "txnVersion")}
            told["rows"] = sum(message.rows for message in messages if message)
            with open(self.options["path"], "a", encoding="utf-8") as out:
                out.write(json.dumps(told) + "\n")

    # Defined here, it goes to the workers of Python whole: they cannot import this module.
    class Recorder(DataSource):
        @classmethod
        def name(cls):
            return "recorder"

        def writer(self, schema, overwrite):
            assert not overwrite
            return Writer(self.options)

    return Recorder


def test_a_format_that_is_no_plain_files_is_told_which_batch_it_gets(spark, tmp_path):
    spark.dataSource.register(recorder())
    out, checkpoint = tmp_path / "out", str(tmp_path / "cp")
    for number in range(2):
        files(tmp_path, number, rows=10 + number)
    tag_stream(
        stream(spark, tmp_path), fixed_ring(random_ring(2, 2)), str(out), checkpoint,
        format="recorder",
    ).awaitTermination()  # fmt: skip
    identity = json.loads((tmp_path / "cp" / "metadata").read_text())["id"]
    assert [json.loads(line) for line in out.read_text().splitlines()] == [
        {"txnAppId": identity, "txnVersion": str(n), "rows": rows} for n, rows in ((0, 10), (1, 11))
    ]


def test_killed_and_started_again_it_neither_loses_nor_doubles(spark, tmp_path):
    total = 4
    for number in range(total):
        files(tmp_path, number)
    log = tmp_path / "log"
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.stream_process", str(tmp_path)],
            cwd=ROOT, stdout=out, stderr=out, start_new_session=True,
            # A Java that is killed leaves its files.
            env={**os.environ, "TMPDIR": str(tmp_path)},
        )  # fmt: skip
    try:
        eventually(lambda: batches(tmp_path), "the first batch", JAVA_PATIENCE)
    finally:
        # The Python of the driver and its Java, in the middle of whatever they do.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    # Again, and to the end; in this process, whose Java runs.
    tag_stream(
        stream(spark, tmp_path), fixed_ring(random_ring(4, 8)), str(tmp_path / "out"),
        str(tmp_path / "checkpoint"),
    ).awaitTermination()  # fmt: skip
    found = spark.read.parquet(str(tmp_path / "out"))
    assert sorted(int(r.key) for r in found.collect()) == list(range(20 * total)), log.read_text()


def test_two_processes_do_not_write_one_batch(spark, tmp_path):
    def run_all():
        tag_stream(
            stream(spark, tmp_path), fixed_ring(random_ring(4, 8)), str(tmp_path / "out"),
            str(tmp_path / "cp"),
        ).awaitTermination()  # fmt: skip

    files(tmp_path, 0)
    run_all()
    files(tmp_path, 1)
    # As far as another process may have come with the next batch.
    begun = tmp_path / "out" / ".batch=1" / "part-0"
    begun.parent.mkdir()
    begun.touch()
    with (tmp_path / "out" / "_stream").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StreamingQueryException, match="another process tags a stream into it"):
            run_all()
    assert begun.exists()
    assert batches(tmp_path) == ["batch=0"]
    run_all()
    assert batches(tmp_path) == ["batch=0", "batch=1"]
    assert len(stored(tmp_path / "out")) == 40
    assert not begun.exists()


@pytest.mark.parametrize("elsewhere", [False, pytest.param(True, marks=pytest.mark.long)])
def test_a_batch_whose_rows_the_workers_keep_fails_until_they_are_there(
    spark, tmp_path, monkeypatch, elsewhere
):
    if elsewhere:
        # As if Spark alone could see the paths.
        monkeypatch.setattr("hashring.spark.streams.tagging.local_path", lambda spark, path: None)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("key,w\na,1\nb,x\n")
    (tmp_path / "in" / "b.csv").write_text("key,w\nc,3\nd,4\n")

    def run_all():
        tag_stream(
            read_stream(spark, [str(tmp_path / "in")], "csv", "key string, w int"),
            fixed_ring(random_ring(4, 8)), str(tmp_path / "out"), str(tmp_path / "cp"),
            format="csv",
        ).awaitTermination()  # fmt: skip

    for _ in range(2):
        with monkeypatch.context() as patch:
            on_workers(patch, lost=1)
            with pytest.raises(StreamingQueryException, match="of 3 rows are there: Spark's work"):
                run_all()
        assert batches(tmp_path) == elsewhere * ["batch=0"]
    if elsewhere:
        shutil.rmtree(tmp_path / "out" / "batch=0")
    on_workers(monkeypatch)
    run_all()
    assert spark.read.option("header", True).csv(str(tmp_path / "out")).count() == 3


@pytest.mark.parametrize("place", ["file", "out/part.parquet", "out/batch=0/part", "out/_a=b/part"])
def test_an_output_without_its_checkpoint_is_refused(spark, tmp_path, place):
    files(tmp_path, 0)
    (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / place).touch()
    output = str(tmp_path / place.partition("/")[0])
    with pytest.raises(OutputExists):
        tag_stream(stream(spark, tmp_path), fixed_ring(FIRST), output, str(tmp_path / "cp"))


@pytest.mark.parametrize(
    "hidden", [None, pytest.param(".gitkeep", marks=pytest.mark.long), "_notes"]
)
def test_a_new_stream_takes_a_directory_in_which_readers_see_nothing(spark, tmp_path, hidden):
    files(tmp_path, 0)
    (tmp_path / "out").mkdir()
    if hidden:
        (tmp_path / "out" / hidden).touch()
    tag_all(tmp_path, stream(spark, tmp_path))
    assert batches(tmp_path) == ["batch=0"]


@pytest.mark.parametrize("elsewhere", [False, pytest.param(True, marks=pytest.mark.long)])
def test_an_output_takes_no_batch_of_another_checkpoint(spark, tmp_path, monkeypatch, elsewhere):
    if elsewhere:
        # As if Spark alone could see the paths.
        monkeypatch.setattr("hashring.spark.streams.tagging.local_path", lambda spark, path: None)

    def run_all(out, place):
        tag_stream(
            stream(spark, tmp_path), fixed_ring(random_ring(4, 8)), str(tmp_path / out),
            str(tmp_path / place),
        ).awaitTermination()  # fmt: skip

    def held():
        return len(stored(tmp_path / "out"))

    files(tmp_path, 0)
    run_all("out", "cp")
    run_all("other out", "other cp")
    files(tmp_path, 1)
    for place in ("other cp", "new cp"):
        with pytest.raises((OutputRefused, OutputExists)):
            run_all("out", place)
    assert held() == 20
    run_all("out", "cp")
    assert held() == 40


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_checkpoint_goes_on_in_another_output_only_if_that_is_marked(
    spark, tmp_path, monkeypatch, elsewhere
):
    if elsewhere:
        monkeypatch.setattr("hashring.spark.streams.tagging.local_path", lambda spark, path: None)
    files(tmp_path, 0)
    tag_all(tmp_path, stream(spark, tmp_path))
    files(tmp_path, 1)
    other, ring = tmp_path / "other", fixed_ring(FIRST)
    with pytest.raises(OutputRefused, match="batches up to 0 as ended, and none is there") as told:
        tag_stream(stream(spark, tmp_path), ring, str(other), str(tmp_path / "cp"))
    assert not other.exists()
    text, place = re.search(r"write (\S+) to (\S+/_checkpoint/id)", str(told.value)).groups()
    Path(place).parent.mkdir(parents=True)
    Path(place).write_text(text)
    tag_stream(
        stream(spark, tmp_path), ring, str(other), str(tmp_path / "cp")
    ).awaitTermination()  # fmt: skip
    assert sorted(int(row["key"]) for row in stored(other)) == list(range(20, 40))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_stream_that_has_not_ended_a_batch_keeps_its_checkpoint_from_another_output(
    spark, tmp_path, monkeypatch, elsewhere
):
    if elsewhere:
        for room in ("tagging", "checkpoint_mark"):
            monkeypatch.setattr(
                f"hashring.spark.streams.{room}.local_path", lambda spark, path: None
            )
    files(tmp_path, 0)

    def away(_):
        raise RedisUnavailable("no answer")

    def run_all(ring, out):
        tag_stream(
            stream(spark, tmp_path), ring, str(tmp_path / out), str(tmp_path / "cp")
        ).awaitTermination()

    out = "out of 'two'"
    for _ in range(2):
        with pytest.raises(StreamingQueryException, match="no answer"):
            run_all(away, out)
        with pytest.raises(OutputRefused, match=rf'cp began with the output "\S+{out}", and none'):
            run_all(fixed_ring(FIRST), "other")
    assert not (tmp_path / "other").exists()
    run_all(fixed_ring(FIRST), out)
    files(tmp_path, 1)
    run_all(fixed_ring(FIRST), out)
    assert len(stored(tmp_path / out)) == 40


def test_of_two_streams_that_begin_with_a_checkpoint_at_once_the_first_has_it(
    spark, tmp_path, monkeypatch
):
    files(tmp_path, 0)
    outputs = [tmp_path / "out", tmp_path / "other"]
    for output in outputs:
        output.mkdir()
    marks = [StreamMark(str(output), output, str(tmp_path / "cp")) for output in outputs]
    note = StreamMark._note

    def after_the_other(mark, spark):
        monkeypatch.setattr(StreamMark, "_note", note)
        marks[1].keep(spark)
        note(mark, spark)

    monkeypatch.setattr(StreamMark, "_note", after_the_other)
    with pytest.raises(OutputRefused, match=r'began with the output "\S+/other"'):
        marks[0].keep(spark)
    assert not (outputs[0] / "_checkpoint").exists()
    assert (outputs[1] / "_checkpoint").exists()


def test_a_stream_whose_output_is_moved_ends(spark, tmp_path):
    files(tmp_path, 0)
    query = tag_stream(
        stream(spark, tmp_path), fixed_ring(FIRST), str(tmp_path / "out"), str(tmp_path / "cp"),
        interval="0 seconds",
    )  # fmt: skip
    try:
        query.processAllAvailable()
        (tmp_path / "out").rename(tmp_path / "moved")
        files(tmp_path, 1)
        with pytest.raises(StreamingQueryException, match="notes batches up to 0 as ended, and no"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert batches(tmp_path) == []
    shutil.rmtree(tmp_path / "out")
    (tmp_path / "moved").rename(tmp_path / "out")
    tag_all(tmp_path, stream(spark, tmp_path))
    assert sorted(int(row["key"]) for row in stored(tmp_path / "out")) == list(range(40))


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("out", "it holds the batches of a stream"),
        ("cp", "it is the checkpoint"),
        ("", r"overwrite would remove \S+/(out|cp): it (holds the batches|is the checkpoint)"),
    ],
)
def test_no_job_replaces_what_is_of_a_stream(spark, tmp_path, place, why):
    files(tmp_path, 0)
    tag_all(tmp_path, stream(spark, tmp_path))
    with pytest.raises(OutputRefused, match=why):
        Output(str(tmp_path / place), "parquet", mode="overwrite").write(spark.range(1))
    files(tmp_path, 1)
    tag_all(tmp_path, stream(spark, tmp_path))
    assert sorted(int(row["key"]) for row in stored(tmp_path / "out")) == list(range(40))


def test_no_job_appends_to_what_a_stream_has_begun(spark, tmp_path):
    files(tmp_path, 0)

    def away(_):
        raise RedisUnavailable("no answer")

    out = str(tmp_path / "out")
    query = tag_stream(stream(spark, tmp_path), away, out, str(tmp_path / "cp"))
    with pytest.raises(StreamingQueryException, match="no answer"):
        query.awaitTermination()
    with pytest.raises(OutputRefused, match="it holds the batches of a stream"):
        Output(out, "parquet", mode="append").write(spark.range(1))
    tag_all(tmp_path, stream(spark, tmp_path))
    assert len(stored(tmp_path / "out")) == 20


@pytest.mark.parametrize("is_there", [False, True])
def test_a_job_does_not_replace_a_stream_that_began_while_it_worked(spark, tmp_path, is_there):
    files(tmp_path, 0)
    out = tmp_path / "out"
    if is_there:
        out.mkdir()
    job = Output(str(out), "parquet", mode="overwrite")
    with pytest.raises(OutputRefused, match="it holds the batches of a stream"):
        job.write(spark.range(1), beside=lambda _: tag_all(tmp_path, stream(spark, tmp_path)))
    assert sorted(int(row["key"]) for row in stored(out)) == list(range(20))


def test_a_job_does_not_replace_a_directory_in_which_a_stream_began_while_it_worked(
    spark, tmp_path
):
    (tmp_path / "all").mkdir()
    keep(tmp_path / "all" / "part-0.parquet", id=[0])
    (tmp_path / "all" / "day").mkdir()
    files(tmp_path / "all" / "day", 0)

    def meanwhile(_):
        tag_all(tmp_path / "all" / "day", stream(spark, tmp_path / "all" / "day"))

    job = Output(str(tmp_path / "all"), "parquet", mode="overwrite")
    with pytest.raises(OutputRefused, match=r"would remove \S+/all/day/(out|cp): it"):
        job.write(spark.range(1), beside=meanwhile)
    assert len(stored(tmp_path / "all" / "day" / "out")) == 20


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_a_job_and_a_batch_do_not_take_their_places_at_once(spark, tmp_path, monkeypatch, mode):
    files(tmp_path, 0)
    out = tmp_path / "out"
    out.mkdir()
    job = Output(str(out), "parquet", mode=mode)
    rows = spark.createDataFrame([("of the job",)], "key string")
    # As a stream that has begun its first batch, and has not yet marked the directory.
    with (
        alone(out, "out", "tags a stream into", "_stream"),
        pytest.raises(OutputRefused, match="another process tags a stream into it"),
    ):
        job.write(rows)
    module = sys.modules[Output.__module__]
    step = "append_files" if mode == "append" else "swap"
    take = getattr(module, step)

    def in_the_middle(*given):
        monkeypatch.undo()
        with pytest.raises(StreamingQueryException, match=f"another process {mode}s"):
            tag_all(tmp_path, stream(spark, tmp_path))
        take(*given)

    monkeypatch.setattr(module, step, in_the_middle)
    job.write(rows)
    with pytest.raises(OutputExists):
        tag_all(tmp_path, stream(spark, tmp_path))
    assert stored(out) == [{"key": "of the job"}]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_job_that_finds_a_stream_at_its_end_appends_nothing_and_stops_no_batch(
    spark, tmp_path, is_there
):
    out = tmp_path / "out"
    if is_there:
        out.mkdir()
    job = Output(str(out), "parquet", mode="append")
    with pytest.raises(OutputRefused, match="it holds the batches of a stream"):
        job.write(spark.range(1), beside=lambda _: (out / "_checkpoint").mkdir(parents=True))
    # Its lock would have ended a batch that began at that moment.
    assert sorted(path.name for path in out.iterdir()) == ["_checkpoint", "_lock"]


@pytest.mark.parametrize("elsewhere", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize("is_ended", [True, False])
def test_a_stream_hides_no_rows_that_took_the_place_of_its_batches(
    spark, tmp_path, monkeypatch, elsewhere, is_ended
):
    files(tmp_path, 0)
    tag_all(tmp_path, stream(spark, tmp_path))
    if not is_ended:
        # As if the process had died in the first batch.
        for name in ("0", ".0.crc"):
            (tmp_path / "cp" / "commits" / name).unlink(missing_ok=True)
    rows = spark.createDataFrame([("of another job",)], "key string")
    shutil.rmtree(tmp_path / "out")
    Output(str(tmp_path / "out"), "parquet").write(rows)
    if elsewhere:
        monkeypatch.setattr("hashring.spark.streams.tagging.local_path", lambda spark, path: None)
    files(tmp_path, 1)
    with pytest.raises(OutputExists):
        tag_all(tmp_path, stream(spark, tmp_path))
    assert stored(tmp_path / "out") == [{"key": "of another job"}]


def test_what_the_java_of_a_killed_process_still_writes_gets_into_no_batch(spark, tmp_path):
    """Its tasks know the directory in which the killed process began the batch."""
    files(tmp_path, 0)
    tag_all(tmp_path, stream(spark, tmp_path))
    (first,) = (tmp_path / "out" / "batch=0").glob("part-*")
    begun = tmp_path / "out" / ".batch=1"

    def beside_the_other(rows):
        begun.mkdir(exist_ok=True)
        shutil.copy(first, begun / "part-of-the-killed.parquet")
        yield from rows

    files(tmp_path, 1)
    tag_all(tmp_path, stream(spark, tmp_path).mapInArrow(beside_the_other, "key string"))
    assert sorted(int(row["key"]) for row in stored(tmp_path / "out")) == list(range(40))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_an_older_copy_of_the_checkpoint_is_refused_and_loses_no_row(
    spark, tmp_path, monkeypatch, elsewhere
):
    if elsewhere:
        # As if Spark alone could see the paths.
        monkeypatch.setattr("hashring.spark.streams.tagging.local_path", lambda spark, path: None)

    def run_all():
        rows = spark.readStream.schema("key string").parquet(str(tmp_path / "in"))
        places = str(tmp_path / "out"), str(tmp_path / "cp")
        tag_stream(rows, fixed_ring(random_ring(4, 8)), *places).awaitTermination()

    files(tmp_path, 0)
    run_all()
    shutil.copytree(tmp_path / "cp", tmp_path / "older")
    files(tmp_path, 1)
    run_all()
    (tmp_path / "cp").rename(tmp_path / "newest")
    (tmp_path / "older").rename(tmp_path / "cp")
    # The next batch 1 would be of both files, and batch 1 is there.
    files(tmp_path, 2)
    for _ in range(2):
        with pytest.raises(OutputRefused, match=r"batch 1, .* none after batch 0:") as told:
            run_all()
    assert f"output {tmp_path}/out cannot be written" in str(told.value)
    assert f"the checkpoint {tmp_path}/cp " in str(told.value)
    assert "restore its newest copy, or take a new output and a new checkpoint" in str(told.value)
    assert len(stored(tmp_path / "out")) == 40
    shutil.rmtree(tmp_path / "cp")
    (tmp_path / "newest").rename(tmp_path / "cp")
    run_all()
    assert sorted(int(row["key"]) for row in stored(tmp_path / "out")) == list(range(60))


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("is_written", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_checkpoint_that_planned_the_newest_batch_goes_on(
    spark, tmp_path, monkeypatch, elsewhere, is_written
):
    if elsewhere:
        monkeypatch.setattr("hashring.spark.streams.tagging.local_path", lambda spark, path: None)
    for number in range(2):
        files(tmp_path, number)
    places = fixed_ring(random_ring(4, 8)), str(tmp_path / "out"), str(tmp_path / "cp")
    tag_stream(stream(spark, tmp_path), *places).awaitTermination()
    # As if the process had died before noting that the batch ended, or before writing it.
    for name in ("1", ".1.crc"):
        (tmp_path / "cp" / "commits" / name).unlink(missing_ok=True)
    if not is_written:
        shutil.rmtree(tmp_path / "out" / "batch=1")
    files(tmp_path, 2)
    tag_stream(stream(spark, tmp_path), *places).awaitTermination()
    assert batches(tmp_path) == ["batch=0", "batch=1", "batch=2"]
    assert sorted(int(row["key"]) for row in stored(tmp_path / "out")) == list(range(60))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_process_that_goes_on_meanwhile_makes_no_checkpoint_look_older(
    spark, tmp_path, monkeypatch, elsewhere
):
    for number in range(2):
        files(tmp_path, number)
    out, cp = str(tmp_path / "out"), str(tmp_path / "cp")
    tag_stream(stream(spark, tmp_path), fixed_ring(random_ring(4, 8)), out, cp).awaitTermination()
    mark = StreamMark(out, None if elsewhere else tmp_path / "out", cp)
    looks = iter([0, 1])
    monkeypatch.setattr(
        "hashring.spark.streams.checkpoint_mark._newest_offset", lambda spark, path: next(looks)
    )
    mark.check_planned(spark)
    assert list(looks) == []


@given(st.integers(-1, 10**6), st.integers(0, 10**6))
def test_a_pattern_matches_the_numbers_after_another(number, other):
    (alternatives,) = re.fullmatch(r"\{(.*)\}", numbers_after(number)).groups()
    found = any(fnmatchcase(str(other), each) for each in alternatives.split(","))
    assert found == (other > number)


@pytest.mark.long
def test_an_output_of_an_older_version_is_taken_and_marked(spark, tmp_path):
    files(tmp_path, 0)
    places = fixed_ring(random_ring(4, 8)), str(tmp_path / "out"), str(tmp_path / "cp")
    tag_stream(stream(spark, tmp_path), *places).awaitTermination()
    mark = tmp_path / "out" / "_checkpoint"
    (line,) = mark.iterdir()
    text = line.read_text()
    shutil.rmtree(mark)
    files(tmp_path, 1)
    tag_stream(stream(spark, tmp_path), *places).awaitTermination()
    assert line.read_text() == text
    assert len(stored(tmp_path / "out")) == 40


FIRST = random_ring(4, 8)
OTHER_HASH = Ring({"a": [0], "b": [2**31]}, "crc-32c")


def tag_all(folder, rows, ring=FIRST, **more):
    query = tag_stream(rows, fixed_ring(ring), str(folder / "out"), str(folder / "cp"), **more)
    query.awaitTermination()


@pytest.mark.parametrize(
    ("number", "job", "why"),
    [
        ("1", {"format": "json"}, "it holds parquet, and the job writes json"),
        pytest.param("1L", {}, "'n' is int in .*; the job writes bigint", marks=pytest.mark.long),
        pytest.param(None, {}, "the job writes key, point, owner, ring", marks=pytest.mark.long),
        ("1", {"key": "n"}, "made by key=key in .*; the job makes it by key=n"),
        ("1", {"ring": OTHER_HASH}, "made by hash_algorithm=crc-32 in .* it by .*=crc-32c"),
    ],
)
def test_a_batch_that_could_not_be_read_with_those_there_is_refused(
    spark, tmp_path, number, job, why
):
    files(tmp_path, 0)
    rows = stream(spark, tmp_path)
    tag_all(tmp_path, rows.selectExpr("key", "1 AS n"))
    files(tmp_path, 1)
    with pytest.raises(StreamingQueryException, match=why):
        tag_all(tmp_path, rows.selectExpr("key", f"{number} AS n") if number else rows, **job)
    assert batches(tmp_path) == ["batch=0"]
    tag_all(tmp_path, rows.selectExpr("key", "1 AS n"), random_ring(5, 8))
    assert sorted(int(row["key"]) for row in stored(tmp_path / "out")) == list(range(40))


def test_a_ring_whose_hash_changes_while_a_stream_runs_ends_it(spark, tmp_path):
    for number in range(3):
        files(tmp_path, number)
    rings = iter([FIRST, FIRST, OTHER_HASH])
    query = tag_stream(
        stream(spark, tmp_path), lambda _: next(rings), str(tmp_path / "out"), str(tmp_path / "cp")
    )
    with pytest.raises(StreamingQueryException, match="made by hash_algorithm=crc-32 in"):
        query.awaitTermination()
    assert batches(tmp_path) == ["batch=0", "batch=1"]


def test_columns_of_csv_stay_in_the_order_of_the_batches_there(spark, tmp_path):
    for number, columns in enumerate((["key", "'x' AS a"], ["'x' AS a", "key"])):
        files(tmp_path, number * 2)
        files(tmp_path, number * 2 + 1)
        tag_all(tmp_path, stream(spark, tmp_path).selectExpr(*columns), format="csv")
    found = spark.read.option("header", True).csv(str(tmp_path / "out")).collect()
    assert sorted(int(row.key) for row in found) == list(range(80))


@pytest.mark.long
def test_a_stream_of_collated_text_to_orc_is_started_again(spark, tmp_path):
    for number in range(2):
        files(tmp_path, number)
        rows = stream(spark, tmp_path).selectExpr("key", "collate(key, 'UTF8_LCASE') AS text")
        tag_all(tmp_path, rows, format="orc")
    assert spark.read.orc(str(tmp_path / "out")).count() == 40


def test_a_stream_that_cannot_be_written_or_timed_is_refused_before_it_starts(spark, tmp_path):
    files(tmp_path, 0)
    (tmp_path / "file").write_text("")
    out, place = str(tmp_path / "out"), str(tmp_path / "cp")
    rows, ring = stream(spark, tmp_path), fixed_ring(Ring({"a": [0]}))
    for path in (f"{tmp_path}/file/x", f"{tmp_path}/file"):
        with pytest.raises((OutputRefused, OutputExists)):
            tag_stream(rows, ring, path, place)
        with pytest.raises((OutputRefused, OutputExists)):
            tag_stream(rows, ring, out, path)
    with pytest.raises(ConfigError, match="interval='soon': is no length of time; say"):
        tag_stream(rows, ring, out, place, interval="soon")
    assert not Path(out).exists()


@pytest.mark.parametrize(
    ("checkpoint", "is_far"),
    [
        ("out", False),
        ("out/_checkpoint", False),
        ("out/state", False),
        ("link/a/../_state", False),
        ("out/_state", True),
    ],
)
def test_a_checkpoint_in_an_output_of_files_is_refused(
    spark, tmp_path, monkeypatch, checkpoint, is_far
):
    if is_far:
        # As if Spark alone could see the paths.
        monkeypatch.setattr(
            "hashring.spark.io.places_of_a_job.local_path", lambda spark, path: None
        )
    files(tmp_path, 0)
    (tmp_path / "out").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "out")
    output, place = str(tmp_path / "out"), str(tmp_path / checkpoint)
    with pytest.raises(ConfigError) as told:
        tag_stream(stream(spark, tmp_path), fixed_ring(FIRST), output, place)
    assert str(told.value) == (
        f"checkpoint={place!r}: is in the output {output}, whose readers would take its files for "
        f"rows: name a directory outside it"
    )
    assert list((tmp_path / "out").iterdir()) == []


def test_an_output_of_files_in_a_checkpoint_is_refused(spark, tmp_path):
    files(tmp_path, 0)
    output, place = str(tmp_path / "cp" / "out"), str(tmp_path / "cp")
    with pytest.raises(ConfigError) as told:
        tag_stream(stream(spark, tmp_path), fixed_ring(FIRST), output, place)
    assert str(told.value) == (
        f"output={output!r}: is in the checkpoint {place}, which holds files of Spark alone: name "
        f"a directory outside it"
    )


@pytest.mark.parametrize(
    ("path", "output"), [("in", "in"), ("*", "out"), ("out/_in", "out"), ("{in,out/_i[^z]}", "out")]
)
def test_an_input_in_an_output_of_files_is_refused(spark, tmp_path, path, output):
    files(tmp_path, 0)
    write_ring(Ring({"a": [0]}), tmp_path / "ring.json")
    shutil.copytree(tmp_path / "in", tmp_path / "out" / "_in")
    with pytest.raises(ConfigError) as told:
        run("stream", "--input", tmp_path / path, "--format", "parquet", "--schema", "key string",
            "--output", tmp_path / output, "--checkpoint", tmp_path / "cp",
            "--ring-file", tmp_path / "ring.json")  # fmt: skip
    assert str(told.value) == (
        f"input={str(tmp_path / path)!r}: names what is in the output {tmp_path / output}, so the "
        f"stream would read its own rows: name another output"
    )


@pytest.mark.long
def test_places_of_a_stream_may_lie_side_by_side_or_in_the_input(spark, tmp_path):
    files(tmp_path, 0)
    places = str(tmp_path / "in" / "out"), str(tmp_path / "in" / "out_state")
    inputs = [str(tmp_path / "in"), str(tmp_path / "in" / "*.parquet")]
    query = tag_stream(stream(spark, tmp_path), fixed_ring(FIRST), *places, inputs=inputs)
    query.awaitTermination()
    assert len(stored(tmp_path / "in" / "out")) == 20


@pytest.mark.parametrize(
    ("place", "directory", "is_below"),
    [
        ("s3a://b/out/cp", "s3a://b/out/", True),
        ("S3A://b//out/../out", "s3a://b/out", True),
        ("s3a://b/out2", "s3a://b/out", False),
        ("s3a://b/out/cp", "s3a://c/out", False),
        ("gs://b/out/cp", "s3a://b/out", False),
        ("hdfs:///a/b", "hdfs:/a", True),
        ("s3a://b/cp", "s3a://b", True),
        ("/out/cp", "s3a://b/out", False),
        ("out/cp", "./out", True),
        ("file:/a/b", "file:///a", True),
    ],
)
def test_addresses_elsewhere_are_compared_as_they_are_written(
    spark, monkeypatch, place, directory, is_below
):
    # As if Spark alone could see the paths.
    monkeypatch.setattr("hashring.spark.io.places_of_a_job.local_path", lambda spark, path: None)
    assert is_in(spark, place, directory) == is_below


@pytest.mark.parametrize(
    ("output", "checkpoint", "name"), [("", "cp", "output"), ("out", "", "checkpoint")]
)
def test_an_empty_path_of_a_stream_is_refused_by_its_name(
    spark, tmp_path, output, checkpoint, name
):
    files(tmp_path, 0)
    with pytest.raises(ConfigError, match=f"{name}='': is empty: name a directory"):
        tag_stream(stream(spark, tmp_path), fixed_ring(FIRST), output, checkpoint)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("text", "format='text': its files hold one column, and a stream writes more: choose"),
        ("XML", "format='xml': it needs the option rowTag, which a stream does not pass: choose"),
    ],
)
def test_a_format_that_no_stream_can_be_written_in_is_refused_before_it_starts(
    spark, tmp_path, kind, why
):
    files(tmp_path, 0)
    with pytest.raises(ConfigError, match=f"{why} one of parquet, csv, json, orc, avro"):
        tag_all(tmp_path, stream(spark, tmp_path), format=kind)
    assert [place.name for place in tmp_path.iterdir()] == ["in"]


def test_a_format_that_the_session_does_not_have_is_named(spark, tmp_path):
    files(tmp_path, 0)
    with pytest.raises(StreamingQueryException) as told:
        tag_all(tmp_path, stream(spark, tmp_path), format="nope")
    assert re.search(
        r"find the data source: nope\..*: is the format's name right\?", str(failure(told.value))
    )


def test_a_damaged_file_in_a_stream_is_named(spark, tmp_path):
    write_ring(RingFile(Ring({"a": [0]})), tmp_path / "ring.json")
    (tmp_path / "in").mkdir()
    data = gzip.compress(b"".join(b'{"key": "k%d"}\n' % n for n in range(3000)))
    (tmp_path / "in" / "keys.json.gz").write_bytes(data[:3000])
    with pytest.raises(InputDamaged, match=r"in/keys.json.gz cannot be read \(Unexpected end of"):
        run("stream", "--input", tmp_path / "in", "--format", "json", "--schema", "key string",
            "--output", tmp_path / "out", "--checkpoint", tmp_path / "cp",
            "--ring-file", tmp_path / "ring.json")  # fmt: skip
    assert batches(tmp_path) == []


def keys_of(spark, path):
    return read_stream(spark, [str(path)], "parquet", "key string, day int")


def keep_day(folder, key):
    (folder / "in" / "day=1").mkdir(parents=True, exist_ok=True)
    keep(folder / "in" / "day=1" / f"{key}.parquet", key=[key])


@pytest.fixture
def mixed(spark, tmp_path):
    """A stream of a directory of a column, beside which a file comes before the first batch."""
    keep_day(tmp_path, "a")
    stream = keys_of(spark, tmp_path / "in")
    keep(tmp_path / "in" / "b 1.parquet", key=["b"])
    return stream


def tagged_keys(folder):
    return sorted(row["key"] for row in stored(folder / "out"))


LEFT_OUT = r"/in': holds the file b 1.parquet beside the directory day=1, and then Spark reads only"


@pytest.mark.usefixtures("mixed")
def test_a_stream_of_files_beside_directories_of_columns_is_refused_before_it_starts(
    spark, tmp_path
):
    for schema in ("key string", None):
        with pytest.raises(ConfigError, match=rf"^input='file://{tmp_path}{LEFT_OUT}"):
            read_stream(spark, [str(tmp_path / "in")], "parquet", schema)
    read_stream(spark, [str(tmp_path / "in" / "*")], "parquet", "key string")
    read_stream(spark, [str(tmp_path / "not-yet-*")], "parquet", "key string")


@pytest.mark.parametrize("version", [1, 2])
def test_a_batch_of_which_spark_would_leave_out_files_ends_the_stream(
    spark, tmp_path, mixed, version
):
    setting = "spark.sql.streaming.offsetLog.formatVersion"
    spark.conf.set(setting, version)
    try:
        for _ in range(2):
            with pytest.raises(StreamingQueryException) as ended:
                tag_all(tmp_path, mixed)
            text = rf"^Spark failed: ConfigError: input='file://{tmp_path}{LEFT_OUT}"
            assert re.match(text, str(failure(ended.value)))
    finally:
        spark.conf.unset(setting)
    assert not list((tmp_path / "cp" / "commits").glob("[0-9]*"))
    assert batches(tmp_path) == []


def test_files_that_are_moved_after_a_batch_failed_are_read_once(spark, tmp_path, mixed):
    with pytest.raises(StreamingQueryException, match=LEFT_OUT):
        tag_all(tmp_path, mixed)
    (tmp_path / "in" / "b 1.parquet").rename(tmp_path / "in" / "day=1" / "b 1.parquet")
    for _ in range(2):
        tag_all(tmp_path, keys_of(spark, tmp_path / "in"))
    assert tagged_keys(tmp_path) == ["a", "b"]


@pytest.mark.long
def test_a_batch_that_failed_goes_on_by_a_pattern_which_names_all(spark, tmp_path, mixed):
    with pytest.raises(StreamingQueryException, match=LEFT_OUT):
        tag_all(tmp_path, mixed)
    tag_all(tmp_path, keys_of(spark, tmp_path / "in" / "*"))
    assert tagged_keys(tmp_path) == ["a", "b"]


@pytest.mark.long
def test_a_stream_with_a_state_leaves_out_no_files_either(tmp_path, mixed):
    with pytest.raises(StreamingQueryException, match=LEFT_OUT):
        tag_all(tmp_path, mixed.dropDuplicates(["key"]))


@pytest.mark.long
def test_directories_of_columns_may_come_after_the_batches_of_other_files(spark, tmp_path):
    interval = "spark.sql.streaming.fileSource.log.compactInterval"
    spark.conf.set(interval, 2)  # each second list of the checkpoint has the files before, too
    try:
        files(tmp_path, 0, rows=1)
        stream = keys_of(spark, tmp_path / "in")
        tag_all(tmp_path, stream)
        keep_day(tmp_path, "a")
        tag_all(tmp_path, stream)
    finally:
        spark.conf.unset(interval)
    assert list((tmp_path / "cp" / "sources" / "0").glob("1.compact"))
    assert tagged_keys(tmp_path) == ["0", "a"]


@pytest.mark.long
def test_a_batch_after_a_crash_may_have_the_files_of_two_lists(spark, tmp_path):
    for number in range(2):
        files(tmp_path, number, rows=1)
        stream = keys_of(spark, tmp_path / "in")
        tag_all(tmp_path, stream)
    # As if the process had died after it listed the files, and before it planned the batch.
    for name in ("1", ".1.crc"):
        for log in ("offsets", "commits"):
            (tmp_path / "cp" / log / name).unlink()
    shutil.rmtree(tmp_path / "out" / "batch=1")
    keep_day(tmp_path, "a")
    with pytest.raises(StreamingQueryException, match=r"the file 0001.parquet beside the dir"):
        tag_all(tmp_path, stream)


@pytest.mark.parametrize(
    "name", ["k[1]", *(pytest.param(f"k{c}", marks=pytest.mark.long) for c in "[{}?*\\")]
)
def test_a_batch_of_which_spark_would_read_files_twice_fails(spark, tmp_path, name):
    (tmp_path / "in").mkdir()
    keep(tmp_path / "in" / f"{name}.parquet", key=["a"])
    stream = keys_of(spark, tmp_path / "in")
    tag_all(tmp_path, stream)  # one file is read once
    keep(tmp_path / "in" / "two.parquet", key=["b"])
    keep(tmp_path / "in" / f"{name}3.parquet", key=["c"])
    with pytest.raises(StreamingQueryException, match=r"3.parquet': has one of .*more than"):
        tag_all(tmp_path, stream)
    assert tagged_keys(tmp_path) == ["a"]


def test_a_stream_of_a_directory_whose_name_is_a_pattern_is_refused_before_it_starts(
    spark, tmp_path
):
    (tmp_path / "in[1]").mkdir()
    keep(tmp_path / "in[1]" / "a.parquet", key=["a"])
    with pytest.raises(ConfigError, match=r"in\[1\]'.*takes for a pattern: rename it"):
        read_stream(spark, [str(tmp_path / "in[1]")], "parquet", "key string")


def test_a_stream_without_its_column_is_refused_before_it_starts(spark, tmp_path):
    files(tmp_path, 0)
    with pytest.raises(ColumnError, match="'id' is missing"):
        tag_stream(stream(spark, tmp_path), fixed_ring(Ring()), "out", "cp", key="id")
    for refresh in (-1, float("nan")):
        with pytest.raises(ConfigError, match=f"refresh={refresh}"):
            followed_ring("redis://x", "r", refresh=refresh)


def test_a_stream_of_columns_with_one_name_is_refused_before_it_starts(spark, tmp_path):
    files(tmp_path, 0)
    rows = stream(spark, tmp_path).selectExpr("key", "key AS Other", "key AS other")
    with pytest.raises(ColumnError, match="'other' is there more than once"):
        tag_stream(rows, fixed_ring(random_ring(2, 4)), str(tmp_path / "out"), str(tmp_path / "cp"))


def test_the_command_tags_what_there_is(spark, redis_server, tmp_path):
    files(tmp_path, 0)
    with Redis(unix_socket_path=str(redis_server.socket)) as client, RingNode(client, RING):
        told = run(
            "stream", "--input", tmp_path / "in", "--format", "parquet", "--output",
            tmp_path / "out", "--checkpoint", tmp_path / "cp", "--url", redis_server.url,
            "--ring", RING,
        )  # fmt: skip
    assert (told["batches"], told["rows written"], told["bad records left out"]) == ("1", "20", "0")
    assert Path(tmp_path / "out" / "batch=0").exists()


def test_the_command_tags_by_a_ring_of_redis_hashring(spark, redis_server, tmp_path):
    files(tmp_path, 0)
    arguments = (
        "stream", "--input", tmp_path / "in", "--format", "parquet", "--output", tmp_path / "out",
        "--checkpoint", tmp_path / "cp", "--url", redis_server.url, "--ring", RING,
    )  # fmt: skip
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        old = OldNode(client, RING)
        old.start()
        try:
            told = run(*arguments, "--wire", "redis-hashring")
            ring = live_ring(spark, redis_server.url, RING, "redis-hashring")
        finally:
            old.stop()
    assert ring.hash_algorithm.name == "xxh32"
    assert (told["rows written"], told["ring fingerprint"]) == ("20", ring.fingerprint)
    found = stored(tmp_path / "out")
    assert all((row["owner"],) == ring.nodes for row in found)
    assert {row["point"] for row in found} == {
        ring.hash_algorithm.point(row["key"]) for row in found
    }


def test_a_stream_reads_with_the_options_of_the_format(spark, tmp_path):
    write_ring(Ring({"a": [0]}), tmp_path / "ring.json")
    (tmp_path / "in").mkdir()
    for names, age in (("ac", 0), ("b", 30 * 86400)):
        for name in names:
            file = tmp_path / "in" / f"{name}.csv"
            file.write_text(f"key;w\n{name};1\n")
            at = file.stat().st_mtime - age
            os.utime(file, (at, at))
        told = run(
            "stream", "--input", tmp_path / "in", "--format", "csv",
            "--schema", "key string, w int", "--input-option", "sep=;",
            "--input-option", "maxFileAge=7d", "--input-option", "maxFilesPerTrigger=1",
            "--ring-file", tmp_path / "ring.json",
            "--output", tmp_path / "out", "--checkpoint", tmp_path / "cp", "--json",
        )  # fmt: skip
        fresh = 2 if names == "ac" else 0
        assert (told["batches"], told["rows written"]) == (fresh, fresh)
    found = stored(tmp_path / "out")
    assert sorted((row["key"], row["w"]) for row in found) == [("a", 1), ("c", 1)]


def test_a_stream_of_a_file_that_spark_passes_over_is_refused(spark, tmp_path):
    (tmp_path / "_in").mkdir()
    (tmp_path / "_in" / "_keys.csv").write_text("key\na\n")
    with pytest.raises(NoDataError, match=r"_keys.csv: Spark passes over"):
        read_stream(spark, [str(tmp_path / "_in" / "_keys.csv")], schema="key string")
    read_stream(spark, [str(tmp_path / "_in")], "csv", "key string")


def test_a_stream_of_csv_needs_a_schema(spark, tmp_path):
    with pytest.raises(ConfigError, match="a stream of csv needs one"):
        run("stream", "--input", tmp_path / "in.csv", "--output", "o", "--checkpoint", "c",
            "--url", "redis://x")  # fmt: skip


def test_bad_records_of_a_stream_are_left_out_and_counted(spark, tmp_path):
    ring = random_ring(4, 8)
    write_ring(ring, tmp_path / "ring.json")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "keys.csv").write_text("key,w\na,1\nb,x\nc,3\nd\n")
    told = run(
        "stream", "--input", tmp_path / "in", "--format", "csv", "--schema", "key string, w double",
        "--output", tmp_path / "out", "--checkpoint", tmp_path / "cp", "--output-format", "json",
        "--ring-file", tmp_path / "ring.json", "--json",
    )  # fmt: skip
    assert (told["rows written"], told["bad records left out"]) == (2, 2)
    found = spark.read.json(str(tmp_path / "out")).collect()
    assert {(r.key, r.w, r.owner) for r in found} == {
        ("a", 1.0, ring.owner("a")), ("c", 3.0, ring.owner("c")),
    }  # fmt: skip


def test_a_stream_writes_text_as_it_was_and_once(spark, tmp_path):
    (tmp_path / "in").mkdir()
    moment = "2024-01-02T03:04:05.123456Z"
    (tmp_path / "in" / "keys.csv").write_text(f"key,at\n k ,{moment}\n")
    schema = "key string, at timestamp"
    for _ in range(2):
        tag_stream(
            read_stream(spark, [str(tmp_path / "in")], "CSV", schema), fixed_ring(Ring({"a": [0]})),
            str(tmp_path / "out"), str(tmp_path / "cp"), format="CSV",
        ).awaitTermination()  # fmt: skip
        # As if the process had died after writing the batch, and before noting that it ended.
        for name in ("0", ".0.crc"):
            (tmp_path / "cp" / "commits" / name).unlink(missing_ok=True)
    (part,) = (tmp_path / "out" / "batch=0").glob("part-*")
    assert [line.split(",")[:2] for line in part.read_text().splitlines()] == [
        ["key", "at"], [" k ", moment],
    ]  # fmt: skip


def test_counts_of_a_stream_tell_of_changes_of_the_ring(spark, tmp_path):
    rings = iter([random_ring(4, 8), random_ring(4, 8), random_ring(4, 8, seed=2)])
    for number in range(3):
        files(tmp_path, number)
    counts = StreamCounts()
    tag_stream(
        stream(spark, tmp_path), lambda _: next(rings), str(tmp_path / "out"),
        str(tmp_path / "cp"), counts=counts,
    ).awaitTermination()  # fmt: skip
    ring = random_ring(4, 8, seed=2).fingerprint
    assert counts == StreamCounts(batches=3, rows=60, ring_changes=1, ring=ring)


def test_binary_keys_are_not_streamed_to_a_format_that_holds_other_keys(spark, tmp_path):
    files(tmp_path, 0)
    rows = stream(spark, tmp_path).selectExpr("binary(key) AS key")
    with pytest.raises(ColumnError, match="is binary"):
        tag_stream(
            rows,
            fixed_ring(random_ring(2, 2)),
            str(tmp_path / "out"),
            str(tmp_path / "cp"),
            format="json",
        )


@pytest.mark.long
def test_a_file_that_is_far_older_than_those_read_is_read(spark, tmp_path):
    (tmp_path / "in").mkdir()
    for name, age in (("a", 0), ("b", 30 * 86400)):
        file = tmp_path / "in" / f"{name}.json"
        file.write_text(f'{{"key": "{name}"}}\n', encoding="ascii")
        at = file.stat().st_mtime - age
        os.utime(file, (at, at))
        rows = read_stream(spark, [str(tmp_path / "in")], "json", "key string")
        ring = fixed_ring(random_ring(2, 2))
        tag_stream(rows, ring, str(tmp_path / "out"), str(tmp_path / "cp")).awaitTermination()
    assert sorted(row["key"] for row in stored(tmp_path / "out")) == ["a", "b"]
