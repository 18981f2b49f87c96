"""What Spark says when it fails is told in one line, with a remedy."""

from __future__ import annotations

import pytest

from hashring.errors import SparkFailed
from hashring.spark.spark_failures import failure

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
                "Spark failed: java.io.IOException: No space left on device: make room, or name "
                "another place with --conf spark.local.dir=..."
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
    ids=["in a Python worker", "in Java", "an error of this package", "a separator of lines"],
)
def test_a_failure_of_spark_is_told_by_the_line_that_says_the_cause(told: str, text: str) -> None:
    error = failure(RuntimeError(told))
    assert isinstance(error, SparkFailed)
    assert (str(error), error.told) == (text, told)


def test_a_java_that_has_ended_is_named() -> None:
    error = failure(ConnectionRefusedError("refused"))
    assert str(error).startswith("Spark failed: its Java has ended (refused): did the system kill")
