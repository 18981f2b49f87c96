"""A Spark session: what cannot be one is refused, and one that runs is used as it is."""

import errno
import os

import pytest

from hashring.errors import ConfigError, OutputRefused
from hashring.spark.engine.session import spark_session
from tests.spark.conftest import in_a_thread


def test_a_remote_or_master_that_is_none_is_refused():
    with pytest.raises(ConfigError, match="a Spark Connect URL is sc://host:port"):
        spark_session(remote="http://x")
    with pytest.raises(ConfigError, match="a Spark Connect URL is sc://host:port"):
        spark_session(remote="sc://x:y")
    with pytest.raises(ConfigError, match=r"master='locl': say local\[2\], spark://"):
        spark_session(master="locl")
    with pytest.raises(ConfigError, match=r"master='locl': say local\[2\], spark://"):
        spark_session(conf={"spark.master": "locl"})
    with pytest.raises(ConfigError, match=r"master=.*: none answers \(.*refused\): is it up"):
        spark_session(master="spark://127.0.0.1:1,127.0.0.1:2")
    with pytest.raises(ConfigError, match=r"remote='sc://127.0.0.1:1': nobody answers there"):
        spark_session(remote="sc://127.0.0.1:1/;token=secret")
    with pytest.raises(ConfigError, match="give either a master or"):
        spark_session(master="local", remote="sc://x")


def test_a_place_that_cannot_hold_the_words_of_java_is_refused(tmp_path, monkeypatch):
    # As if no session ran.
    monkeypatch.setattr("hashring.spark.engine.session.running_session", lambda: None)
    log = tmp_path / "no" / "log"
    with pytest.raises(OutputRefused, match=r"no/log cannot be written \(No such file or dir"):
        spark_session(log=log)

    def full():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("hashring.spark.engine.java.TemporaryFile", full)
    monkeypatch.setenv("TMPDIR", "/full")
    text = r"TMPDIR='/full': no temporary file can be made \(No space left on device\): make room"
    with pytest.raises(ConfigError, match=text):
        spark_session()


def test_while_a_session_runs_no_other_java_is_needed(spark, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert spark_session().sparkContext is spark.sparkContext


@pytest.mark.parametrize("run", [lambda work: work(), in_a_thread])
def test_a_session_that_runs_is_used_as_it_is(spark, run):
    def level():
        return spark._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString()

    before = level()
    plans = spark.conf.get("spark.sql.ui.explainMode")
    # Not what a session of this package's own has.
    spark.conf.set("spark.sql.ui.explainMode", "extended")
    try:
        assert run(spark_session) is spark
        assert level() == before == "ERROR"
        assert spark.conf.get("spark.sql.ui.explainMode") == "extended"
    finally:
        spark.conf.set("spark.sql.ui.explainMode", plans)
