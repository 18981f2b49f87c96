"""The command as a process of its own: run by spark-submit, and told to end in the middle."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyspark
import pytest

from hashring.core.ring_json import RingFile
from hashring.ring_files import write_ring
from tests.conftest import PATIENCE, ROOT, eventually
from tests.spark.conftest import stored
from tests.spark.java_classes import options
from tests.spark.test_owner import random_ring

MAIN = ROOT / "hashring" / "__main__.py"


@pytest.fixture(scope="module")
def work(tmp_path_factory):
    """A ring, a few keys, and keys enough to be told to end in the middle."""
    folder = tmp_path_factory.mktemp("work")
    write_ring(RingFile(random_ring(4, 8)), folder / "ring.json")
    for name, count in (("few", 1000), ("many", 1_000_000)):
        numbers = pc.cast(pa.array(range(count)), pa.string())
        keys = pc.binary_join_element_wise("k", numbers, "")
        pq.write_table(pa.table({"key": keys}), folder / f"{name}.parquet")
    # To Spark, files of their own: more than any test waits for.
    (folder / "endless.parquet").mkdir()
    for number in range(500):
        os.link(folder / "many.parquet", folder / "endless.parquet" / f"{number}.parquet")
    return folder


def command(work, name, out, *more):
    found = ["spark", "assign", "--input", work / f"{name}.parquet", "--output", out]
    return [str(part) for part in (*found, "--ring-file", work / "ring.json", *more)]


@contextmanager
def started(arguments, folder):
    """The command in a session of its own, whose processes are all gone at the end."""
    process = subprocess.Popen(
        [sys.executable, MAIN, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)}, cwd=ROOT,
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def until(process, pattern, folder):
    """Wait until a path is there, as long as the process runs."""
    deadline = time.monotonic() + 5 * PATIENCE
    while not list(folder.glob(pattern)):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def java_of(process):
    """The processes of its session that run the class that PySpark starts."""
    found = []
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            if os.getsid(int(directory.name)) == process.pid:
                words = (directory / "cmdline").read_bytes()
                found += [int(directory.name)] * (b"org.apache.spark.deploy.SparkSubmit" in words)
        except OSError:  # it ended while we looked
            continue
    return found


@pytest.mark.parametrize(
    ("told", "status", "says"),
    [
        pytest.param(signal.SIGINT, 130, "", marks=pytest.mark.long),
        (signal.SIGTERM, 143, ""),
        pytest.param(signal.SIGHUP, 129, "", marks=pytest.mark.long),
        pytest.param(signal.SIGKILL, 2, "hashring: Spark failed: ", marks=pytest.mark.long),
    ],
)
def test_a_job_that_is_ended_leaves_nothing(work, tmp_path, told, status, says):
    out = tmp_path / "owned.csv"
    more = ("--master", "local[1]", "--conf", f"spark.driver.extraJavaOptions={options()}")
    with started(command(work, "endless", out, *more), tmp_path) as process:
        # A task writes.
        until(process, ".owned.csv.*/_temporary/**/*.csv", tmp_path)
        if told == signal.SIGKILL:
            for java in java_of(process):
                os.kill(java, told)
        else:
            # Ctrl-C is sent to all of the terminal's processes.
            (os.killpg if told == signal.SIGINT else os.kill)(process.pid, told)
        _, errors = process.communicate(timeout=5 * PATIENCE)
    assert process.returncode == status, errors
    assert "Traceback" not in errors
    assert "hashring: " not in errors if not says else re.search(says, errors)
    # Java ends after Python.
    eventually(lambda: list(tmp_path.iterdir()) == [], "nothing is left", 5 * PATIENCE)


@pytest.mark.parametrize(
    ("when", "told", "status"),
    [
        ("in a batch", signal.SIGINT, 0),
        pytest.param("between batches", signal.SIGTERM, 143, marks=pytest.mark.long),
        pytest.param("between batches", signal.SIGINT, 0, marks=pytest.mark.long),
        pytest.param("in a batch", signal.SIGTERM, 143, marks=pytest.mark.long),
    ],
)
def test_a_stream_that_is_ended_ends(work, tmp_path, when, told, status):
    name, at = {
        "between batches": ("few", "out/batch=0"),
        "in a batch": ("endless", "out/.batch=*/**/*.csv"),
    }[when]
    scratch, keys = tmp_path / "scratch", work / f"{name}*.parquet"
    scratch.mkdir()
    arguments = [
        "spark", "stream", "--input", keys, "--output", tmp_path / "out",
        "--checkpoint", tmp_path / "state", "--interval", "1 second", "--output-format", "csv",
        "--ring-file", work / "ring.json", "--master", "local[1]",
        "--conf", f"spark.driver.extraJavaOptions={options()}",
    ]  # fmt: skip
    with started([str(each) for each in arguments], scratch) as process:
        until(process, at, tmp_path)
        process.send_signal(told)
        _, errors = process.communicate(timeout=5 * PATIENCE)
    assert (process.returncode, errors) == (status, "")
    # Java ends after Python.
    eventually(lambda: list(scratch.iterdir()) == [], "nothing is left", 5 * PATIENCE)


def test_ctrl_c_while_java_starts_leaves_no_java(work, tmp_path):
    job = command(
        work, "few", tmp_path / "owned.csv", "--conf", f"spark.driver.extraJavaOptions={options()}"
    )
    process = subprocess.Popen(
        [sys.executable, MAIN, *job],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}, cwd=ROOT,
        start_new_session=True, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip

    try:
        deadline = time.monotonic() + 5 * PATIENCE
        while not java_of(process):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        # Its standard error is Java's too: it ends with the last of them.
        _, errors = process.communicate(timeout=5 * PATIENCE)
        assert process.returncode == 130, errors
        while java_of(process):
            assert time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert "Traceback" not in errors
    assert "SparkSubmit.main" not in errors
    eventually(lambda: list(tmp_path.iterdir()) == [], "nothing is left", 5 * PATIENCE)


SESSION = ROOT / "tests" / "spark_programs" / "session_process.py"
SUBMIT = Path(pyspark.__file__).parent / "bin" / "spark-submit"


def session(folder, who, *words, by=(sys.executable,), conf=None):
    """The process of a session, and what became of the session's page and its log.

    Args:
        folder: where it runs, and keeps its temporary files.
        who: sets the session up; see ``session_process``.
        words: the command to run in it.
        by: what starts the process.
        conf: a directory that holds Spark's files of settings.
    """
    environment = {name: value for name, value in os.environ.items() if name != "SPARK_CONF_DIR"}
    if conf is not None:
        # With a directory that is there, Java cannot use the archive of classes.
        environment["SPARK_CONF_DIR"] = str(conf)
    done = subprocess.run(
        [*by, SESSION, who, *words], cwd=folder, capture_output=True, text=True,
        timeout=5 * PATIENCE, check=False,
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1", "TMPDIR": str(folder),
             "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines, done.stderr[-3000:]
    return done, json.loads(lines[-1])


@pytest.fixture(scope="module")
def submitted(work, tmp_path_factory):
    """A session that spark-submit set up, in which a command ran, and the command's output."""
    by = [SUBMIT, "--master", "local[3]", "--conf", "spark.ui.port=0"]
    folder = tmp_path_factory.mktemp("submitted")
    job = command(work, "few", folder / "owned.parquet")
    done = session(folder, "submit", *job, by=[*by, "--driver-java-options", options()])
    return *done, folder / "owned.parquet"


@pytest.fixture(scope="module")
def logged(work, tmp_path_factory):
    """A session in which a command ran that keeps Spark's log, and that log."""
    folder = tmp_path_factory.mktemp("logged")
    job = command(
        work, "few", folder / "owned.csv", "--master", "local[1]",
        "--conf", "spark.api.mode=classic", "--conf", f"spark.driver.extraJavaOptions={options()}",
        "--spark-log", folder / "log",
    )  # fmt: skip
    return *session(folder, "ours", *job), (folder / "log").read_text()


def to_table(work, *more):
    """The words of a command that writes to a table."""
    job = command(
        work, "few", "unused", "--master", "local[1]", *more,
        "--conf", f"spark.driver.extraJavaOptions={options()}",
    )  # fmt: skip
    at = job.index("--output")
    job[at : at + 2] = ["--table", "owned_keys"]
    return job


@pytest.fixture(scope="module")
def refused(work, tmp_path_factory):
    """A session in which a command was refused, and the directory that it ran in."""
    folder = tmp_path_factory.mktemp("refused")
    return *session(folder, "ours", *to_table(work)), folder


def test_the_master_of_spark_submit_holds_without_its_shell(submitted):
    _, told, _ = submitted
    assert told["master"] == "local[3]"


def test_a_job_prints_its_answer_and_nothing_of_spark(logged):
    done, _, log = logged
    assert (done.returncode, done.stderr) == (0, "")
    assert "rows written  1,000\n" in done.stdout
    assert "log4j" in log


def test_a_job_on_a_server_of_its_own_prints_its_answer_and_nothing_of_spark(work, tmp_path):
    job = command(
        work, "few", tmp_path / "owned.csv", "--master", "local[1]",
        "--conf", "spark.api.mode=connect", "--conf", f"spark.driver.extraJavaOptions={options()}",
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, MAIN, *job, "--spark-log", tmp_path / "log"], cwd=ROOT,
        capture_output=True, text=True, timeout=5 * PATIENCE, check=False,
        # So the server that "connect" starts is on a free port, instead of 15002.
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_TESTING": "1"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "rows written  1,000\n" in done.stdout
    assert "log4j" in (tmp_path / "log").read_text()


def test_a_table_that_ends_with_its_session_is_refused(refused):
    done, _, folder = refused
    assert done.returncode == 2
    assert "table='owned_keys': its catalog is in memory, and ends with" in done.stderr
    assert "--conf spark.sql.catalogImplementation=hive" in done.stderr
    # Java ends after Python.
    eventually(lambda: list(folder.iterdir()) == [], "nothing is left", 5 * PATIENCE)


@pytest.mark.long  # By default a table that no later session finds is refused.
def test_a_table_is_written_only_where_a_later_session_finds_it(work, tmp_path):
    def assign():
        return subprocess.run(
            [sys.executable, MAIN,
             *to_table(work, "--conf", "spark.sql.catalogImplementation=hive")],
            cwd=tmp_path, capture_output=True, text=True, timeout=5 * PATIENCE, check=False,
            env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)},
        )  # fmt: skip

    scratch = tmp_path / "scratch"
    scratch.mkdir()
    first = assign()
    # Java ends after Python; so does the client of the metastore.
    eventually(lambda: list(scratch.iterdir()) == [], "nothing is left", 5 * PATIENCE)
    assert first.returncode == 0, first.stderr
    second = assign()
    assert second.returncode == 2
    assert "output owned_keys exists" in second.stderr


@pytest.mark.parametrize(
    ("who", "level"),
    [
        ("notebook", "WARN"),
        # Of the two that set the session up before Python starts, spark-submit stays.
        pytest.param("spark-defaults.conf", "INFO", marks=pytest.mark.long),
        ("submit", "INFO"),
    ],
)
def test_the_page_and_the_log_of_a_session_that_others_set_up_stay(request, tmp_path, who, level):
    if who == "submit":
        done, told, _ = request.getfixturevalue("submitted")
    elif who == "notebook":
        done, told = session(tmp_path, who)
    else:
        (tmp_path / who).write_text(
            "spark.master local[1]\nspark.ui.port 0\n"
            f"spark.driver.extraJavaOptions {options()}\nspark.log.level INFO\n"
        )
        done, told = session(tmp_path, who, conf=tmp_path)
    assert (told["page"], told["plans"], told["level"]) == (200, "FORMATTED", level)
    # The terminal of a Java that others started has the log.
    assert ("INFO DAGScheduler" in done.stderr) == (who == "submit")
    assert ("in a task" in done.stderr) == (who != "spark-defaults.conf")


LOG4J = """
rootLogger.level = error
rootLogger.appenderRef.file.ref = file
appender.file.type = File
appender.file.name = file
appender.file.fileName = {}
"""


def test_a_file_for_the_log_of_spark_holds(tmp_path):
    (tmp_path / "log4j2.properties").write_text(LOG4J.format(tmp_path / "own.log"))
    done, told = session(tmp_path, "ours", conf=tmp_path)
    assert (told["level"], done.stderr) == ("ERROR", "")
    assert "in a task" in (tmp_path / "own.log").read_text()


def test_without_a_file_the_log_of_spark_ends_with_the_start(refused):
    done, told, _ = refused
    assert told["level"] == "FATAL"
    # The refusal alone: nothing of the task that failed after it.
    assert re.fullmatch("hashring: table='owned_keys': .*\n", done.stderr)


def test_the_log_of_spark_is_kept_in_the_file_that_was_asked_for(logged):
    done, _, log = logged
    assert done.stderr == ""
    assert "in a task" in log


def test_spark_submit_runs_a_job(submitted):
    done, _, out = submitted
    assert done.returncode == 0, done.stderr[-3000:]
    assert re.search(r"rows written  1,000\n", done.stdout)
    assert len(stored(out)) == 1000
