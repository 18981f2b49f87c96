"""Outputs of formats that are no plain files, and keep a log of what belongs to them."""

import json

import pytest
from pyspark.sql.datasource import DataSource, DataSourceWriter, WriterCommitMessage

from hashring.errors import OutputExists
from hashring.spark.io.output import Output


@pytest.fixture
def logged(spark):
    """The name of a format whose every commit is the next entry of a log beside its files.

    An entry names its files by their whole paths.
    """

    # Within a function: Spark's workers do not have this module.
    class Written(WriterCommitMessage):
        def __init__(self, file):
            self.file = file

    class Writer(DataSourceWriter):
        def __init__(self, path):
            self.path = path.removeprefix("file://")

        def write(self, rows):
            import os  # noqa: PLC0415 - in the worker
            import uuid  # noqa: PLC0415

            os.makedirs(self.path, exist_ok=True)
            name = os.path.join(self.path, f"rows-{uuid.uuid4().hex}")
            with open(name, "w") as file:
                file.writelines(f"{row[0]}\n" for row in rows)
            return Written(name)

        def commit(self, messages):
            import json  # noqa: PLC0415
            import os  # noqa: PLC0415

            log = os.path.join(self.path, "_log")
            os.makedirs(log, exist_ok=True)
            number = len(os.listdir(log))
            with open(os.path.join(log, f"{number:020}.json"), "w") as file:
                json.dump([message.file for message in messages], file)

    class Logged(DataSource):
        @classmethod
        def name(cls):
            return "logged"

        def writer(self, schema, overwrite):
            return Writer(self.options["path"])

    spark.dataSource.register(Logged)
    return "logged"


def rows_by_log(place):
    """The rows of all files that the entries of the log name."""
    found = []
    for entry in sorted((place / "_log").glob("*.json")):
        for file in json.loads(entry.read_text()):
            with open(file) as lines:
                found += map(int, lines)
    return sorted(found)


def test_rows_are_appended_to_a_format_that_keeps_a_log_and_none_is_lost(spark, tmp_path, logged):
    place = tmp_path / "out"
    spark.range(10).write.format(logged).mode("append").save(str(place))
    Output(str(place), logged, mode="append").write(spark.range(10, 13))
    assert rows_by_log(place) == list(range(13))


def test_a_new_output_of_a_format_that_keeps_a_log_is_written_at_its_place(spark, tmp_path, logged):
    place = tmp_path / "out"
    Output(str(place), logged, mode="append").write(spark.range(3))
    assert rows_by_log(place) == [0, 1, 2]
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_an_output_of_a_format_that_keeps_a_log_is_refused_if_it_exists(spark, tmp_path, logged):
    place = tmp_path / "out"
    Output(str(place), logged, mode="append").write(spark.range(3))
    with pytest.raises(OutputExists):
        Output(str(place), logged).check(spark)


@pytest.mark.usefixtures("dynamic")
def test_a_format_that_replaces_rows_itself_replaces_those_of_all_partitions(
    spark, tmp_path, monkeypatch
):
    # Parquet as if it kept a log: of the formats that are here, none does and has partitions.
    monkeypatch.setattr(Output, "_is_plain_files", lambda self: False)
    place = str(tmp_path / "out.parquet")
    for owners in (("a", "b"), ("a",)):
        owned = spark.createDataFrame(
            [(f"key of {each}", each) for each in owners], "key STRING, owner STRING"
        )
        Output(place, mode="overwrite").write(owned, ["owner"])
    assert [row.owner for row in spark.read.parquet(place).collect()] == ["a"]
