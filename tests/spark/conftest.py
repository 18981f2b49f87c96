"""One Spark session for all tests of a process: starting one costs as much as fifty of them."""

import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

from hashring.core.ring import Ring
from tests.conftest import PATIENCE, _children, _threads
from tests.spark.java_classes import options

os.environ["PYSPARK_PYTHON"] = sys.executable


@pytest.fixture(scope="session")
def spark(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spark")
    session = (
        SparkSession.builder.master("local[2]")
        .appName("hashring tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.ui.explainMode", "simple")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(folder / "warehouse"))
        .config("spark.driver.memory", "2g")
        # Spark keeps 100 classes that it made, and the tests need more of them again and again.
        .config("spark.sql.codegen.cache.maxEntries", "2000")
        # Else each function that makes a column asks Java five times where it was called.
        .config("spark.python.sql.dataFrameDebugging.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config(
            "spark.driver.extraJavaOptions",
            f"{options()} -Dderby.system.home={folder}",
        )
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    for name in ("PythonUtils", "PythonSQLUtils", "functions"):
        # Else Java looks for them in all packages and all its jars whenever PySpark names them.
        setattr(session._jvm, name, getattr(session._jvm, name))
    yield session
    session.stop()


@pytest.fixture(scope="session")
def ring() -> Ring:
    """Three nodes with ranges that can be read by eye, in quarters of the ring."""
    quarter = 2**30
    return Ring({"a": [0], "b": [quarter, 3 * quarter], "c": [2 * quarter]})


@pytest.fixture
def dynamic(spark) -> str:
    """The name of the setting, in a session that keeps the partitions without a new row."""
    name = "spark.sql.sources.partitionOverwriteMode"
    spark.conf.set(name, "dynamic")
    yield name
    spark.conf.unset(name)


@pytest.fixture
def careless(spark) -> None:
    """A session that passes over files that it cannot read."""
    names = ["spark.sql.files.ignoreCorruptFiles", "spark.sql.files.ignoreMissingFiles"]
    for name in names:
        spark.conf.set(name, "true")
    yield
    for name in names:
        spark.conf.unset(name)


def rows(df: DataFrame) -> list[tuple]:
    return [tuple(row) for row in df.collect()]


def keep(place, **columns):
    """A Parquet file of these columns; Spark would take a job to write it."""
    pq.write_table(pa.table(columns), place)
    return place


def damage(part):
    """Damage the rows of a Parquet file, and leave its columns as they are."""
    whole = part.read_bytes()
    part.write_bytes(whole[:4] + b"\xff" * 40 + whole[44:])
    part.with_name(f".{part.name}.crc").unlink(missing_ok=True)
    return part.read_bytes()


def stored(place) -> list[dict]:
    """The rows of Parquet files, with the columns of their directories, read without a job."""
    return pq.read_table(place).to_pylist()


def in_a_thread(work):
    """What it returns in a thread of its own, which has no active session."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@contextmanager
def interrupted(spark, monkeypatch, method):
    """Ctrl-C comes once this method of Spark's writers is done, and cancels its jobs once."""
    kind = type(spark.range(1).write)
    write = getattr(kind, method)

    def then_interrupted(writer, path):
        write(writer, path)
        raise KeyboardInterrupt

    cancelled = []
    with monkeypatch.context() as patch:
        patch.setattr(kind, method, then_interrupted)
        patch.setattr(
            type(spark.sparkContext), "cancelJobsWithTag", lambda _, tag: cancelled.append(tag)
        )
        with pytest.raises(KeyboardInterrupt):
            yield
    assert len(cancelled) == 1


def on_workers(monkeypatch, *, lost=0, by=None):
    """Outputs are on the workers' disks, and so many files of each are where the driver is not.

    Of what the session ``by`` writes, or of all; the newest files.
    """
    for name in ("io.output", "streams.tagging", "io.table_output"):
        monkeypatch.setattr(f"hashring.spark.{name}.is_on_workers", lambda spark, path: True)
    write = DataFrameWriter.save

    def lose(writer, place):
        parts = Path(place.removeprefix("file:")).rglob("part-*")
        newest = sorted(parts, key=lambda part: part.stat().st_mtime_ns, reverse=True)
        for part in newest[: lost if by in (None, writer._df.sparkSession) else 0]:
            part.unlink()

    def into_table(method):
        def write_table(writer, name, *more, **options):
            method(writer, name, *more, **options)
            spark = writer._df.sparkSession
            told = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").where("col_name = 'Location'")
            lose(writer, told.first().data_type)
            spark.catalog.refreshTable(name)

        return write_table

    for name in ("saveAsTable", "insertInto"):
        monkeypatch.setattr(DataFrameWriter, name, into_table(getattr(DataFrameWriter, name)))

    def save(writer, path=None, **more):
        write(writer, path, **more)
        if path is not None:
            lose(writer, path)

    monkeypatch.setattr(DataFrameWriter, "save", save)


def _own_threads() -> set[threading.Thread]:
    # Py4J keeps a thread for each connection from Java to Python, as long as Java likes.
    return {
        thread
        for thread in _threads()
        if not type(
            getattr(getattr(thread, "_target", None), "__self__", None)
        ).__module__.startswith("py4j.")
    }


@pytest.fixture(autouse=True)
def _nothing_left_behind(spark):
    """As for all tests, with the session's own threads and processes left out."""
    threads, children = _own_threads(), _children()
    yield
    deadline = time.monotonic() + PATIENCE / 6
    while left := [*(_own_threads() - threads), *(_children() - children)]:
        if time.monotonic() > deadline:
            pytest.fail(f"the test left threads or child processes behind: {left}")
        time.sleep(0.01)
