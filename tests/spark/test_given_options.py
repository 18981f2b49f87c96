"""Options that would have no effect are refused, each with its name, before Spark starts."""

import pytest

from hashring.core.ring import Ring
from hashring.errors import ConfigError
from hashring.spark.io.input import Input
from hashring.spark.io.output import Output
from hashring.spark.jobs import assign_job
from tests.spark.test_jobs import refused, run

TABLE = ("load", "--input-table", "t")
STREAM = ("stream", "--input", "x", "--output", "o", "--checkpoint", "c")
FILES = ("load", "--input", "x.parquet")
ASSIGN = ("assign", "--input", "x.parquet", "--output", "o.csv")
LEAVE = ("plan", "--input", "x.parquet", "--leave", "a")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((*TABLE, "--schema", "key string"), "--schema: a table has its own format and columns"),
        ((*TABLE, "--format", "csv"), "--format: a table has its own"),
        ((*TABLE, "--input-option", "sep=;"), "--input-option: a table has its own"),
        ((*FILES, "--mode", "append"), "--mode: nothing is written: add --output or --table"),
        ((*FILES, "--option", "a=b"), "--option: nothing is written"),
        ((*FILES, "--output-format", "csv"), "--output-format: nothing is written"),
        ((*FILES, "--histogram", "h", "--hottest", "3"), "--hottest: with --histogram"),
        (("load", "--histogram", "h", "--key", "k"), "--key: a histogram has its own keys"),
        (("plan", "--histogram", "h", "--join", "b", "--key", "k"), "--key: a histogram has"),
        ((*FILES, "--all", "--top", "3"), "--top: --all prints every row"),
        ((*ASSIGN, "--cells", "4"), "--cells: it"),
        (("assign", "--input", "x", "--output", "o.csv", "--keep-point"), "the output is csv"),
        (
            ("assign", "--input", "x", "--output", "o", "--keep-point", "--output-format", "ORC"),
            "--keep-point writes Parquet, and the output is orc: give another name",
        ),
        (("audit", "--input", "x", "--base", "b", "--hash-algorithm", "jamcrc"), "--hash-algorith"),
        (("audit", "--input", "x", "--wire", "redis-hashring"), "--wire: nodes of redis-hashring"),
        (("simulate", "--nodes", "3", "--confidence", "0.9"), "--confidence: it is for the answer"),
        ((*FILES, "--remote", "sc://h", "--spark-log", "l"), "--spark-log: with --remote Spark"),
        ((*ASSIGN, "--files-per-owner", "2"), "--files-per-owner: it sets how many files a direc"),
        ((*LEAVE, "--n-replicas", "4"), "--n-replicas: it is for nodes that get points: add"),
        ((*LEAVE, "--seed", "4"), "--seed: it is for nodes that get points"),
        ((*LEAVE, "--placement", "balanced"), "--placement: it is for nodes that get points"),
        ((*FILES, "--ring-file", "r", "--ring", "a"), "--ring: the ring is in --ring-file"),
        (
            (*STREAM, "--ring-file", "r", "--url", "redis://h", "--wire", "redis-hashring"),
            "--url, --wire: the ring is in --ring-file: leave out one",
        ),
        (
            ("audit", "--input", "x", "--events", "e.json", "--url", "redis://h"),
            "--url: the history is in --events: leave out one of the two",
        ),
        (
            (*STREAM, "--ring-file", "r", "--refresh", "3"),
            "--refresh: the ring of --ring-file does not change",
        ),
    ],
)
@pytest.mark.usefixtures("no_session")
def test_an_option_without_effect_is_refused_with_its_name(arguments, text):
    assert text in refused(*arguments)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("assign", "--input", "x.csv", "--output", "", "--mode", "overwrite"), "--output"),
        (("assign", "--input", "", "--output", "o.csv"), "--input"),
        ((*FILES, "--report", ""), "--report"),
        ((*FILES, "--remote", ""), "--remote"),
        (("stream", "--input", "x", "--output", "o", "--checkpoint", ""), "--checkpoint"),
        (("reassign", ""), "PATH"),
    ],
)
@pytest.mark.usefixtures("no_session")
def test_an_empty_text_is_refused(arguments, name):
    assert f"'{name}': it is empty: is a variable of the shell not set?" in refused(*arguments)


@pytest.mark.usefixtures("no_session")
def test_an_option_that_would_leave_out_the_header_line_is_refused():
    with pytest.raises(ConfigError, match="option='header=false': files of CSV always get a heade"):
        run(*ASSIGN, "--option", "header=false")


@pytest.fixture
def no_session(monkeypatch):
    """No command gets as far as a session."""

    def started(*_, **__):
        raise AssertionError("Spark was started")

    monkeypatch.setattr("hashring.spark.engine.session.spark_session", started)


@pytest.mark.parametrize("output", ["out.csv", "out.json"])
def test_rows_in_cells_are_written_as_parquet_only(spark, tmp_path, output):
    keys = Input(spark.sql("SELECT 'a' key"), "keys")
    with pytest.raises(ConfigError, match="rows in cells are written as Parquet"):
        assign_job(keys, Ring({"a": [0]}), Output(str(tmp_path / output)), cells=4)
