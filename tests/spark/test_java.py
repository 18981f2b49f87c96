"""A Java that Spark cannot run on is refused, with a remedy."""

import re
import socket
import stat
import subprocess
import sys

import pytest
from py4j.java_gateway import GatewayParameters, JavaGateway

from hashring.errors import JavaNotFound
from hashring.spark.engine.java import _leave_nothing, has_pages_on_request, java_version


def fake_java(tmp_path, says):
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{says}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return str(tmp_path)


@pytest.mark.parametrize(
    ("says", "text"),
    [
        ("echo 'openjdk version \"11.0.2\" 2019-01-15' >&2", "is version 11; Spark 4 runs on"),
        ("echo 'java version \"1.8.0_202\"' >&2", "is version 8; Spark 4 runs on Java 17"),
        ("echo hello >&2", "does not report its version: 'hello"),
        ("exit 3", "does not start"),
    ],
)
def test_a_java_that_is_too_old_or_none_is_said(tmp_path, monkeypatch, says, text):
    monkeypatch.setenv("JAVA_HOME", fake_java(tmp_path, says))
    with pytest.raises(JavaNotFound, match=re.escape(text)):
        java_version()


def test_no_java_at_all_is_said(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaNotFound, match=r"no Java found.*apt-get install openjdk-17"):
        java_version()


def test_this_machine_s_java_is_good():
    assert java_version() >= 17


@pytest.mark.parametrize(
    ("setting", "asked"),
    [("always [madvise] never\n", True), ("always madvise [never]\n", False), (None, False)],
)
def test_large_pages_are_requested_where_linux_gives_them_on_request(
    tmp_path, monkeypatch, setting, asked
):
    # Where they are off, Java prints a warning beside the job's answer.
    if setting is not None:
        (tmp_path / "enabled").write_text(setting)
    monkeypatch.setattr("hashring.spark.engine.java._PAGES", tmp_path / "enabled")
    assert has_pages_on_request() is asked


def test_a_java_that_answers_no_more_leaves_no_files(tmp_path):
    """As while the system kills it: it has not ended yet."""
    folder = tmp_path / "hashring-spark-x"
    (folder / "blockmgr").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port))
    gateway.proc = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        _leave_nothing(gateway, str(folder))
    finally:
        gateway.proc.communicate()
    assert not folder.exists()
