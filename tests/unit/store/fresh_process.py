"""Programs that need a process of their own."""

from __future__ import annotations

import subprocess
import sys

from tests.conftest import PATIENCE, ROOT


def run(program: str) -> str:
    """Run a program of Python's; what it prints."""
    ran = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.strip()
