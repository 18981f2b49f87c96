"""Work that is interrupted ends, with what it runs and nothing else, and leaves nothing."""

import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from hashring.errors import OutputRefused
from hashring.spark.engine.interruptible import interruptible, interrupts_kept
from hashring.spark.io.output import Output
from tests.conftest import eventually
from tests.spark.conftest import stored


def _until_there(path):
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def waiting(spark, began, until):
    """A row that is computed once a file is there."""

    def waited(number):
        began.touch()
        _until_there(until)
        return number

    return spark.range(0, 1, 1, 1).select(F.udf(waited, "long")("id"))


def planned(spark, began, until):
    """A row of which Java knows where it is once a file is there. Until then, it has no job."""

    class Reader(DataSourceReader):
        def partitions(self):
            began.touch()
            _until_there(until)
            return [InputPartition(0)]

        def read(self, partition):
            yield ("a",)

    class Slow(DataSource):
        @classmethod
        def name(cls):
            return "planned slowly"

        def schema(self):
            return "key string"

        def reader(self, schema):
            return Reader()

    spark.dataSource.register(Slow)
    return spark.read.format("planned slowly").load()


@contextmanager
def then(path, *actions):
    """Do this in a thread once a file is there."""

    def act():
        _until_there(path)
        for action in actions:
            action()

    with ThreadPoolExecutor(1) as pool:
        acted = pool.submit(act)
        yield
        acted.result()


@pytest.fixture(autouse=True)
def _as_python_has_it(spark):
    """PySpark's own handler of Ctrl-C cancels all jobs, also those of others."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def ctrl_c():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def test_an_interrupt_cancels_the_jobs_of_the_work_and_no_others(spark, tmp_path):
    done = tmp_path / "done"
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(waiting(spark, tmp_path / "other", done).collect)
        try:
            _until_there(tmp_path / "other")
            mine = waiting(spark, tmp_path / "mine", done)
            with then(tmp_path / "mine", ctrl_c), pytest.raises(KeyboardInterrupt):
                interruptible(spark, mine.collect)
            assert not done.exists()
        finally:
            done.touch()
        assert len(other.result()) == 1
    assert not spark.sparkContext.getJobTags()


@pytest.mark.parametrize("kind", [TimeoutError, GeneratorExit])
def test_whatever_the_handler_of_a_signal_raises_cancels_the_work(spark, tmp_path, kind):
    def over(*_):
        raise kind("its time is over")

    done = tmp_path / "done"
    before = signal.signal(signal.SIGUSR1, over)
    main = threading.main_thread().ident
    try:
        mine = waiting(spark, tmp_path / "mine", done)
        ends = then(tmp_path / "mine", lambda: signal.pthread_kill(main, signal.SIGUSR1))
        with ends, pytest.raises(kind, match="its time is over"):
            interruptible(spark, mine.collect)
        assert "hashring work" not in {thread.name for thread in threading.enumerate()}
        assert not done.exists()
    finally:
        done.touch()
        signal.signal(signal.SIGUSR1, before)


def _until_ended():
    for thread in threading.enumerate():
        if thread.name in {"hashring work", "hashring cancel"}:
            thread.join()


@pytest.mark.parametrize(
    "seconds",
    [600.0, pytest.param(0.0, marks=pytest.mark.long)],
    ids=["that waits", "that does not"],
)
def test_an_interrupt_while_java_plans_leaves_no_rows(spark, tmp_path, monkeypatch, seconds):
    monkeypatch.setattr("hashring.spark.engine.interruptible._ENDING", seconds)
    # Java computes the distance as it plans, which takes a second or more.
    distance = "levenshtein(repeat('a', 20000), repeat('b', 20000))"
    rows = spark.range(2).selectExpr(f"id + {distance} AS id")
    output = Output(str(tmp_path / "out"), "parquet")
    output.check(spark)
    timer = threading.Timer(0.5, ctrl_c)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        output.write(rows)
    timer.join()
    _until_ended()
    assert not list(tmp_path.iterdir())
    output.write(rows)
    assert sorted(row["id"] for row in stored(tmp_path / "out")) == [20000, 20001]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("ends", ["by itself", "by a second one"])
def test_an_interrupt_does_not_wait_for_ever(spark, tmp_path, monkeypatch, ends):
    monkeypatch.setattr(
        "hashring.spark.engine.interruptible._ENDING", 0.2 if ends == "by itself" else 600.0
    )
    planning, may_plan = tmp_path / "planning", tmp_path / "may plan"
    more = () if ends == "by itself" else (lambda: time.sleep(0.5), ctrl_c)
    try:
        with then(planning, ctrl_c, *more), pytest.raises(KeyboardInterrupt):
            interruptible(spark, planned(spark, planning, may_plan).collect)
        assert not may_plan.exists()
    finally:
        may_plan.touch()


def test_of_work_that_an_interrupt_kept_from_beginning_nothing_goes_on(spark, monkeypatch):
    class Kept(threading.Thread):
        def start(self):
            if self.name == "hashring work":
                raise KeyboardInterrupt
            super().start()

    monkeypatch.setattr("hashring.spark.engine.interruptible.Thread", Kept)
    with pytest.raises(KeyboardInterrupt):
        interruptible(spark, lambda: None)
    eventually(
        lambda: "hashring cancel" not in {thread.name for thread in threading.enumerate()},
        "nothing is cancelled any more",
    )


def _as_py4j_ends():
    try:
        raise KeyboardInterrupt("first")
    except KeyboardInterrupt:
        try:
            raise OSError("closed")
        except OSError:
            raise Py4JError("Gateway must be connected to send cancel cmd.")  # noqa: B904


def test_an_interrupt_comes_out_of_a_call_to_java_as_what_it_is():
    with pytest.raises(KeyboardInterrupt, match="first"), interrupts_kept():
        _as_py4j_ends()


def test_an_error_after_an_interrupt_that_the_caller_handles_is_an_error():
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with pytest.raises(Py4JError, match="later"), interrupts_kept():
            raise Py4JError("later")  # noqa: B904


def test_work_has_what_its_caller_has_set_and_gives_back_what_becomes_of_it(spark):
    context = spark.sparkContext
    context.setLocalProperty("hashring.test", "mine")
    context.addJobTag("mine")
    try:
        assert interruptible(spark, lambda: context.getLocalProperty("hashring.test")) == "mine"
        tags = interruptible(spark, context.getJobTags)
    finally:
        context.setLocalProperty("hashring.test", None)
        context.removeJobTag("mine")
    assert "mine" in tags
    assert len(tags) == 2

    def fail():
        raise OutputRefused("out", "full")

    with pytest.raises(OutputRefused, match="full"):
        interruptible(spark, fail)
