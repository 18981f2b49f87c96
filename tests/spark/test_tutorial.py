"""The tutorial about audits: its commands run, and print lines of the kind that it shows."""

import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from hashring.cli.spark import spark_group
from hashring.testing import RedisServer
from tests.conftest import ROOT

TUTORIALS = ROOT / "examples" / "tutorials"


def names(text: str) -> list[str]:
    return [re.sub(r"  [\d.,-]+$", "", line).strip() for line in text.splitlines()]


@pytest.mark.usefixtures("spark")
def test_the_audit_finds_the_bug_that_the_tutorial_planted(tmp_path):
    log = tmp_path / "work.csv"
    with RedisServer() as server:
        subprocess.run([sys.executable, TUTORIALS / "fleet.py", server.url, log], check=True)
        schema = "key string, node string, start double, end double"
        command = ["audit", "--input", str(log), "--schema", schema]
        done = CliRunner().invoke(
            spark_group,
            [*command, "--url", server.url, "--ring", "audited"],
            catch_exceptions=False,
        )
    assert done.exit_code == 0, done.output
    assert set(names((TUTORIALS / "audit.txt").read_text())) <= set(names(done.stdout))
    faults = re.findall(r"(?:before getting the key|key of another node)  (\d+)", done.stdout)
    assert sum(map(int, faults)) > 0
