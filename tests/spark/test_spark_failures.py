"""What Spark says when it fails is told in one line, with a remedy."""

from __future__ import annotations

import pytest
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from hashring.errors import SparkFailed
from hashring.spark.engine.spark_failures import failure
from hashring.spark.io.input import read_frame
from tests.spark.conftest import keep

IN_PYTHON = """[SOME] An exception was thrown: Traceback (most recent call last):
  File "x.py", line 1, in f
ValueError: no

JVM stacktrace:
org.apache.spark.SparkException: all this"""

IN_JAVA = "An error occurred.\n: java.io.IOException: No space left on device. SQLSTATE: 1"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        (IN_PYTHON, "Spark failed: ValueError: no; Spark's log has more, with --spark-log FILE"),
        (
            IN_JAVA,
            (
                "Spark failed: java.io.IOException: No space left on device: make room for the "
                "output and for Spark's own files, or name another output, or another place for "
                "these files with --conf spark.local.dir=..."
            ),
        ),
        (
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
            (
                "Spark failed: org.apache.spark.SparkException: Python worker exited unexpectedly "
                "(crashed): did the system kill it, for want of memory? Run fewer tasks at once, "
                "such as by --master 'local[2]'"
            ),
        ),
        (
            "org.apache.spark.SparkException: Python worker failed to connect back.",
            (
                "Spark failed: org.apache.spark.SparkException: Python worker failed to connect "
                "back: Python took longer than ten seconds to start, or lacks a module: give the "
                "machine less to do, and see that the Python there has hashring-fleet[spark]"
            ),
        ),
        (
            IN_PYTHON.replace("ValueError: no", "ModuleNotFoundError: No module named 'hashring'"),
            (
                "Spark failed: ModuleNotFoundError: No module named 'hashring': install it, with "
                "hashring-fleet for hashring, for the Python that runs Spark's tasks, which "
                "PYSPARK_PYTHON names there"
            ),
        ),
        (
            (
                "[RESPONSE_ALREADY_RECEIVED] INVALID_HANDLE.SESSION_NOT_FOUND on the server but "
                "responses were already received from it."
            ),
            (
                "Spark failed: [RESPONSE_ALREADY_RECEIVED] INVALID_HANDLE.SESSION_NOT_FOUND on the "
                "server but responses were already received from it: its server was started again, "
                "or has ended the session: look what the job has written, and start it again"
            ),
        ),
        (
            f"{IN_PYTHON}\nhashring.errors.EventsLost: they are gone",
            "Spark failed: EventsLost: they are gone; Spark's log has more, with --spark-log FILE",
        ),
        (
            "hashring.errors.EventsLost: a\u2028b",
            "Spark failed: EventsLost: a\u2028b; Spark's log has more, with --spark-log FILE",
        ),
    ],
    ids=[
        "in a Python worker",
        "in Java",
        "a Python worker is gone",
        "a Python worker does not start",
        "a Python worker lacks a module",
        "a server of Spark Connect was started again",
        "an error of this package",
        "a separator of lines",
    ],
)
def test_a_failure_of_spark_is_told_by_the_line_that_says_the_cause(told: str, text: str) -> None:
    error = failure(RuntimeError(told))
    assert isinstance(error, SparkFailed)
    assert (str(error), error.told) == (text, told)


def test_what_spark_says_is_shown_as_far_as_it_fits() -> None:
    error = failure(RuntimeError(f"{'a' * 600}. SQLSTATE: KD000"))
    assert isinstance(error, SparkFailed)
    assert str(error).startswith(f"Spark failed: {'a' * 500}...; Spark's log has more")
    assert "a" * 600 in error.told


def test_a_java_that_has_ended_is_named() -> None:
    error = failure(ConnectionRefusedError("refused"))
    assert str(error).startswith("Spark failed: its Java has ended (refused): did the system kill")


def test_a_failure_of_a_server_names_its_log() -> None:
    error = failure(SparkConnectGrpcException("it is gone"))
    assert str(error) == "Spark failed: it is gone: the log of Spark's server has more"


def test_places_with_and_without_directories_of_columns_are_named_with_a_remedy(spark, tmp_path):
    for number in range(6):
        (tmp_path / str(number) / "day=1").mkdir(parents=True)
        keep(tmp_path / str(number) / "day=1" / "a.parquet", key=["a"])
    (tmp_path / "plain 1").mkdir()
    keep(tmp_path / "plain 1" / "b.parquet", key=["b"])
    with pytest.raises(SparkFailed) as few:
        read_frame(spark, [str(tmp_path / "plain 1"), str(tmp_path / "0")], "parquet")
    before, after = str(few.value).split(f"file:{tmp_path}/", 1)
    assert before == (
        "Spark failed: these places cannot be read as one, because some hold directories that are "
        "named for columns: "
    )
    assert {place.rpartition("/")[2] for place in after.split(": ")[0].split(", ")} == {
        "0", "plain 1",
    }  # fmt: skip
    assert after.split(": ", 1)[1] == (
        "read each place by a job of its own, or name the files by patterns, such as "
        "DIRECTORY/*/*.parquet: then Spark makes no columns of directories"
    )
    patterns = [str(tmp_path / "plain 1"), str(tmp_path / "0/*/*.parquet")]
    assert read_frame(spark, patterns, "parquet").frame.count() == 2
    with pytest.raises(SparkFailed, match=r"columns: (file:[^,]+, ){5}2 more: read each place"):
        read_frame(spark, [str(tmp_path / "*")], "parquet")
