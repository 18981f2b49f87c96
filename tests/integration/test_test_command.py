"""If a part of scripts/test fails, the others run, and the report names the one that failed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.one_server

PROGRAM = """#!/bin/sh
case "$(basename "$0") $*" in
$FAILS)
    echo "out of order" >&2
    exit 3
    ;;
esac
"""
PARTS = ("checks", "tests", "tests on Spark", "tests of Spark's engines")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout in which nothing is to be set up, and programs fail that FAILS names."""
    shutil.copytree(ROOT / "scripts", tmp_path / "a checkout" / "scripts")
    programs = tmp_path / "a checkout" / ".venv" / "bin"
    programs.mkdir(parents=True)
    names = ("python", "pytest", "ruff", "mypy", "lint-imports")
    scripts = ("setup", "servers", "browser", "prometheus", "postgresql")
    for program in (
        *(programs / name for name in names),
        *(tmp_path / "a checkout" / "scripts" / name for name in scripts),
    ):
        program.write_text(PROGRAM)
        program.chmod(0o755)
    return tmp_path / "a checkout"


def ended(checkout: Path, fails: str, *arguments: str) -> tuple[int, list[str]]:
    """The exit status of scripts/test, and its report."""
    done = subprocess.run(
        [checkout / "scripts" / "test", *arguments],
        env={**os.environ, "FAILS": fails},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout.partition("== report\n")[2].splitlines()


@pytest.mark.parametrize(
    ("fails", "failed"),
    [
        ("nothing", ()),
        ("ruff check*", ("checks",)),
        ("ruff format*", ("checks",)),
        ("mypy*", ("checks",)),
        ("lint-imports*", ("checks",)),
        ("pytest --numprocesses 4*", ("tests",)),
        ("pytest --numprocesses 2*", ("tests on Spark",)),
        ("pytest tests/spark_programs/*", ("tests of Spark's engines",)),
        # A file of tests that cannot be read.
        ("pytest*", PARTS[1:]),
        # What all tests share cannot be read.
        ("pyt*", PARTS[1:]),
    ],
)
def test_each_part_that_fails_is_reported(
    checkout: Path, fails: str, failed: tuple[str, ...]
) -> None:
    status, report = ended(checkout, fails)
    assert status == int(bool(failed))
    assert [line for line in report if not line.startswith("servers: ")] == [
        f"{part}: {'FAILED' if part in failed else 'passed'}" for part in PARTS
    ]


@pytest.mark.parametrize("arguments", ["--fast", "tests/unit"])
def test_chosen_tests_that_fail_are_reported(checkout: Path, arguments: str) -> None:
    status, report = ended(checkout, "pyt*", arguments)
    assert (status, report[0], report[-1]) == (1, "checks: passed", "tests: FAILED")


def test_fast_tests_cannot_be_chosen(checkout: Path) -> None:
    assert ended(checkout, "nothing", "--fast", "tests/unit") == (2, [])


def test_what_cannot_be_had_is_reported_as_not_tested(checkout: Path) -> None:
    status, report = ended(checkout, "postgresql*")
    assert status == 0
    assert "not tested: scripts/postgresql: out of order" in report


def test_ctrl_c_ends_it_without_a_report(checkout: Path) -> None:
    (checkout / ".venv" / "bin" / "pytest").write_text(
        "#!/bin/sh\ncase $* in *numprocesses*) echo begun; exec sleep 600 ;; esac\n"
    )
    with subprocess.Popen(
        [checkout / "scripts" / "test", "--fast"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        while process.stdout.readline() != "begun\n":
            assert process.poll() is None
        # A terminal sends it to all of them.
        os.killpg(process.pid, signal.SIGINT)
        # To its end: no process is left that could write.
        assert "== report" not in process.stdout.read()
        assert process.wait() == 130
