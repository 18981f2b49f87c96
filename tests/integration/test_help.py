"""Every command of the checkout tells what it does, without doing it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_benchmark_asked_for_help_shows_how_it_is_called_and_measures_nothing(
    program: str,
) -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / program), "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    called = "scripts/bench/run" if program.endswith("main.py") else f"python {program}"
    assert f"    {called}" in done.stdout or f"  {called}" in done.stdout
