"""scripts/run-pipeline, as far as its fleet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.one_server


@pytest.mark.long  # Seven processes load the whole of it.
def test_ctrl_c_ends_the_fleet_without_a_traceback(tmp_path: Path) -> None:
    command = [ROOT / "scripts" / "pipeline.py", "--seconds", "1", "--output", tmp_path / "out"]
    with subprocess.Popen(
        [sys.executable, *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None
        while "node-6 joins" not in process.stdout.readline():
            assert process.poll() is None
        # A terminal sends it to all of them.
        os.killpg(process.pid, signal.SIGINT)
        # To its end: no process is left that could write.
        assert "Traceback" not in process.stdout.read()
        assert process.wait() == 130
