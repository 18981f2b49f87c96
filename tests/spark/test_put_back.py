"""Files that are put back after a kill are appended to as any others."""

import pytest

from hashring.errors import OutputRefused
from hashring.spark.io.output import Output


@pytest.fixture
def killed(spark, tmp_path):
    """A directory whose replacement was killed between two renames."""
    place = tmp_path / "out"
    Output(str(place), "csv").write(spark.sql("SELECT 1L id, 2L part"))
    place.rename(tmp_path / ".out.0123abcd.before")
    return place


def test_files_that_are_put_back_are_appended_to_in_their_order(spark, killed):
    Output(str(killed), "csv", mode="append").write(spark.sql("SELECT 7L part, 8L id"))
    found = spark.read.option("header", True).csv(str(killed)).collect()
    assert sorted((row.id, row.part) for row in found) == [("1", "2"), ("8", "7")]


def test_files_that_are_put_back_are_appended_to_in_their_format(spark, killed):
    with pytest.raises(OutputRefused, match="it holds csv, and the job writes json"):
        Output(str(killed), "json", mode="append").check(spark)
