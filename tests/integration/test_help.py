"""Every command of the checkout tells what it does, without doing it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.short_programs import Ended, Program, played

pytestmark = pytest.mark.one_server

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = ROOT / "scripts"
COMMANDS = sorted(
    str(path.relative_to(ROOT))
    for path in (*SCRIPTS.iterdir(), *(SCRIPTS / "bench").iterdir())
    if path.is_file()
    and os.access(path, os.X_OK)
    and path.read_bytes().startswith(b"#!/usr/bin/env bash")
)
PROGRAMS = sorted(
    str(path.relative_to(ROOT))
    for path in (SCRIPTS / "bench").glob("*.py")
    if "__main__" in path.read_text()
)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_needs_nothing_set_up_and_sets_nothing_up(command: str, tmp_path: Path) -> None:
    shutil.copytree(SCRIPTS, tmp_path / "scripts")
    done = subprocess.run(
        [tmp_path / command, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Examples:" in done.stdout
    assert f"  {command}" in done.stdout
    assert "#" not in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["scripts"]


def make_checkout(at: Path, does: str) -> None:
    """The scripts, and a shell program in place of Python and of what sets it up."""
    shutil.copytree(SCRIPTS, at / "scripts")
    python = at / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    for program in (at / "scripts" / "setup", python):
        program.write_text(f"#!/bin/sh\n{does}\n")
        program.chmod(0o755)


@pytest.mark.parametrize("command", ["bench/run", "chaos", "mutation", "run", "run-pipeline"])
def test_files_are_named_from_where_the_caller_is(command: str, tmp_path: Path) -> None:
    checkout = tmp_path / "a checkout"
    make_checkout(checkout, 'echo "$PWD" "$@"')
    done = subprocess.run(
        [checkout / "scripts" / command, "a file"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    started = done.stdout.splitlines()[-1]
    assert started.startswith(f"{tmp_path} {checkout}/")
    assert started.endswith(" a file")


@pytest.mark.parametrize("command", ["bench/run", "chaos", "mutation", "run", "run-pipeline"])
def test_a_search_path_for_cd_leads_no_command_astray(command: str, tmp_path: Path) -> None:
    make_checkout(tmp_path, ":")
    done = subprocess.run(
        [f"scripts/{command}", "a file"],
        cwd=tmp_path,
        env={**os.environ, "CDPATH": "."},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture(scope="module")
def helped() -> dict[str, Ended]:
    """What comes of each benchmark that is asked for help."""
    programs = [Program(ROOT / name, ["--help"]) for name in PROGRAMS]
    imports = ("hashring.spark", "pyspark.sql.functions", "redis", "redis_hashring")
    return dict(zip(PROGRAMS, played(programs, imports), strict=True))


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_benchmark_asked_for_help_shows_how_it_is_called_and_measures_nothing(
    program: str, helped: dict[str, Ended]
) -> None:
    done = helped[program]
    assert done.status == 0, done.err
    called = "scripts/bench/run" if program.endswith("main.py") else f"python {program}"
    assert f"    {called}" in done.out or f"  {called}" in done.out
