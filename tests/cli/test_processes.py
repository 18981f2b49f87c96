"""Several processes from one command. example.py's tests show the rest of it at work."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager

import pytest

from tests.cli.conftest import ending
from tests.conftest import PATIENCE

pytestmark = pytest.mark.one_server

PROGRAM = """
import os, signal, sys, time
from hashring.cli.processes import STOP, run_processes

def target():
    for number in STOP:
        signal.signal(number, lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP)
    # One write: where output is not buffered, print() writes a line in parts, and three do at once.
    os.write(1, b"up %d\\n" % os.getpid())
    {body}
    return 0

def lost(pid, how):
    print("lost", pid, how, flush=True)

sys.exit(run_processes(3, target, lost))
"""


def run(body: str) -> AbstractContextManager[subprocess.Popen[str]]:
    return ending(
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(body=body)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    )


def pids(process: subprocess.Popen[str]) -> list[int]:
    assert process.stdout is not None
    return [int(process.stdout.readline().split()[1]) for _ in range(3)]


def test_all_that_end_well_make_it_end_well() -> None:
    with run("pass") as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out.count("up"), err) == (0, 3, "")


@pytest.mark.parametrize("body", ["return 5", "raise OSError('no')", "sys.exit(2)"])
def test_one_that_fails_makes_it_fail(body: str) -> None:
    with run(body) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "lost" not in out
    assert ("OSError: no" in err) == ("OSError" in body)


def test_a_killed_one_is_reported_with_the_signal() -> None:
    with run("time.sleep(600)") as process:
        victim, *others = pids(process)
        os.kill(victim, signal.SIGSEGV)
        assert process.stdout is not None
        assert process.stdout.readline() == f"lost {victim} SIGSEGV\n"
        for pid in others:
            os.kill(pid, signal.SIGKILL)
        out, _ = process.communicate(timeout=PATIENCE)
        assert sorted(out.splitlines()) == sorted(f"lost {pid} SIGKILL" for pid in others)
        assert process.returncode == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_told_to_stop_it_ends_well_whatever_happened_before(number: signal.Signals) -> None:
    with run("time.sleep(600)") as process:
        victim, *_ = pids(process)
        os.kill(victim, signal.SIGKILL)
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
        assert (process.returncode, out, err) == (0, "", "")


def test_nobody_outlives_a_killed_parent() -> None:
    with run("time.sleep(600)") as process:
        pids(process)
        process.kill()
        # The end of its output: everybody who had it open has ended.
        assert process.communicate(timeout=PATIENCE) == ("", "")
