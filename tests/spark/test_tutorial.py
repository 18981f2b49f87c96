"""The tutorial about audits: its commands run, and print lines of the kind that it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from hashring.testing import RedisServer
from tests.conftest import ROOT

TUTORIALS = ROOT / "examples" / "tutorials"


def names(text: str) -> list[str]:
    return [re.sub(r"  [\d.,-]+$", "", line).strip() for line in text.splitlines()]


def test_the_audit_finds_the_bug_that_the_tutorial_planted(tmp_path: Path) -> None:
    log = tmp_path / "work.csv"
    with RedisServer() as server:
        subprocess.run([sys.executable, TUTORIALS / "fleet.py", server.url, log], check=True)
        schema = "key string, node string, start double, end double"
        done = subprocess.run(
            [
                *(sys.executable, "-m", "hashring", "spark", "audit", "--input", log),
                *("--schema", schema, "--url", server.url, "--ring", "audited"),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert set(names((TUTORIALS / "audit.txt").read_text())) <= set(names(done.stdout))
    faults = re.findall(r"(?:before getting the key|key of another node)  (\d+)", done.stdout)
    assert sum(map(int, faults)) > 0
