"""A job that is interrupted cancels what it runs, and nothing else."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from pyspark import InheritableThread
from pyspark.sql import functions as F  # noqa: N812

from hashring.spark.output import cancelled
from hashring.spark.spark_failures import SPARK_ERRORS


def waiting(spark, began, until):
    """A row that is computed once a file is there."""

    def waited(number):
        began.touch()
        deadline = time.monotonic() + 300
        while not until.exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        return number

    return spark.range(0, 1, 1, 1).select(F.udf(waited, "long")("id"))


def _until_there(path):
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_an_interrupt_cancels_the_jobs_of_the_block_and_no_others(spark, tmp_path):
    done, ended, threads = tmp_path / "done", [], []

    def mine():
        with suppress(*SPARK_ERRORS):
            waiting(spark, tmp_path / "mine", done).collect()
            return
        ended.append("cancelled")

    def interrupted():
        with cancelled(spark):
            # It has the tags of the thread that starts it.
            thread = InheritableThread(target=mine)
            threads.append(thread)
            thread.start()
            _until_there(tmp_path / "mine")
            raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(waiting(spark, tmp_path / "other", done).collect)
        try:
            _until_there(tmp_path / "other")
            with pytest.raises(KeyboardInterrupt):
                interrupted()
            threads[0].join(60)
        finally:
            done.touch()
        assert len(other.result()) == 1
    assert ended == ["cancelled"]
    assert not spark.sparkContext.getJobTags()
