"""The example under fire: every flight is counted exactly once, in order, whatever happens."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import ROOT


@pytest.mark.parametrize(
    ("assignor", "rows"),
    [("balanced", 336_776), ("contiguous", 100_000), ("learner", 100_000), ("ring", 100_000)],
)
def test_every_flight_is_counted_once_though_members_are_killed_and_stopped(
    assignor: str, rows: int
) -> None:
    script = str(ROOT / "examples" / "stream" / "flights.py")
    done = subprocess.run(
        [sys.executable, script, "--assignor", assignor, "--rows", str(rows)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert f"\n{rows:,} flights of" in done.stdout, done.stdout + done.stderr
    assert "; equal to a plain count; out of order: 0; " in done.stdout
    assert done.returncode == 0
