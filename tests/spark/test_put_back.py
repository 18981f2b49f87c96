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


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_of_files_of_two_kills_nobody_puts_back_any(spark, killed, tmp_path, mode):
    places = [tmp_path / f".out.{name}.before" for name in ("0123abcd", "89abcdef")]
    Output(str(places[1]), "csv").write(spark.sql("SELECT 3L id, 4L part"))
    with pytest.raises(OutputRefused) as told:
        Output(str(killed), "csv", mode=mode).write(spark.sql("SELECT 5L id, 6L part"))
    assert all(str(place) in str(told.value) for place in places)
    assert sorted(tmp_path.iterdir()) == places
    places[0].rename(killed)
    Output(str(killed), "csv", mode="append").write(spark.sql("SELECT 5L id, 6L part"))
    assert spark.read.option("header", True).csv(str(killed)).count() == 2
