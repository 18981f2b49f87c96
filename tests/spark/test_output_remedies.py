"""A refused output comes with the remedy that helps."""

import pytest

from hashring.errors import OutputRefused
from hashring.spark.io.output import Output
from tests.spark.conftest import on_workers


def test_rows_that_workers_kept_are_not_to_be_written_to_any_other_place(
    spark, tmp_path, monkeypatch
):
    on_workers(monkeypatch, lost=1)
    with pytest.raises(OutputRefused) as refusal:
        Output(str(tmp_path / "out"), "parquet").write(spark.range(0, 40, 1, 4))
    assert str(refusal.value).endswith(
        "(30 of 40 rows are there: Spark's workers write to disks of their own): name a path that "
        "all of them share, such as s3a://... or a network disk"
    )


def test_rows_that_are_missing_of_an_append_are_to_be_appended(spark, tmp_path, monkeypatch):
    # As if Spark alone could see the path, and another job had taken some of the files away.
    monkeypatch.setattr("hashring.spark.io.output.local_path", lambda spark, path: None)
    append = Output(str(tmp_path / "out"), "parquet", mode="append").write
    append(spark.range(4))
    on_workers(monkeypatch, lost=1)
    monkeypatch.setattr("hashring.spark.io.output.is_on_workers", lambda spark, path: False)
    with pytest.raises(
        OutputRefused,
        match=r"\(30 of 40 rows are there: another job appended at the same time\): append those "
        r"that are not in files part-[0-9a-f]{8}\*$",
    ):
        append(spark.range(0, 40, 1, 4))


def test_files_that_another_process_replaces_are_written_when_it_has_ended(spark, tmp_path):
    place = str(tmp_path / "out")
    Output(place, "parquet").write(spark.range(2))
    refused = []

    def meanwhile(_):
        try:
            Output(place, "parquet", mode="append").write(spark.range(7, 8))
        except OutputRefused as error:
            refused.append(str(error))

    Output(place, "parquet", mode="overwrite").write(spark.range(4), beside=meanwhile)
    (text,) = refused
    assert text == (
        f"output {place} cannot be written (another process overwrites it): start again when that "
        f"process has ended, or name another place"
    )
