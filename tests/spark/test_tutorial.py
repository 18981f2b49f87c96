"""The tutorial about audits and the guide to files of keys: their commands run, and answer."""

import re
import subprocess
import sys

import pandas
import pytest
from click.testing import CliRunner
from redis import Redis

from hashring import RingNode
from hashring.cli import main
from hashring.cli.spark import spark_group
from hashring.testing import RedisServer
from tests.conftest import ROOT
from tests.docs.test_blocks import console_lines, words_of

TUTORIALS = ROOT / "examples" / "tutorials"


@pytest.fixture(scope="module", autouse=True)
def fleet(tmp_path_factory):
    """The fleet of the tutorial, which works for some seconds: meanwhile other tests run."""
    log = tmp_path_factory.mktemp("fleet") / "work.csv"
    with RedisServer() as server:
        command = [sys.executable, TUTORIALS / "fleet.py", server.url, log]
        with subprocess.Popen(command) as process:
            yield server.url, log, process


def test_the_tutorial_counts_the_faults_that_it_prints():
    printed = (TUTORIALS / "audit.txt").read_text()
    pattern = r"rows judged|before getting the key|key of another node"
    rows, early, foreign = (int(n) for n in re.findall(rf"(?:{pattern})  (\d+)", printed))
    page = " ".join((ROOT / "docs" / "tutorials" / "audit.rst").read_text().split())
    assert f"Here {early + foreign} of {rows} pieces of work are faults: {early} on keys" in page
    assert f"was next to own, and {foreign} on keys of a node further away." in page


def names(text: str) -> list[str]:
    return [re.sub(r"  [\d.,-]+$", "", line).strip() for line in text.splitlines()]


@pytest.mark.usefixtures("spark")
def test_the_commands_of_the_guide_to_files_of_keys_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pandas.DataFrame({"account": [f"a{number}" for number in range(100)]}).to_parquet(
        "keys.parquet"
    )
    # The session's Java stands in another directory.
    paths = {name: str(tmp_path / name) for name in ("keys.parquet", "owned")}
    lines = console_lines(ROOT / "docs" / "howto" / "spark.rst")
    assert len(lines) == 4
    with (
        RedisServer() as server,
        Redis.from_url(server.url) as redis,
        RingNode(redis, "accounts", name="worker-3"),
    ):
        monkeypatch.setenv("HASHRING_REDIS_URL", server.url)
        monkeypatch.setenv("HASHRING_RING", "accounts")
        for line in lines:
            words = [paths.get(word, word) for word in words_of(line)]
            done = CliRunner().invoke(main, words, catch_exceptions=False)
            assert done.exit_code == 0, f"{line}: {done.output}"
    assert len(pandas.read_parquet("owned")) == 100
    assert (tmp_path / "owned" / "owner=worker-3").is_dir()


@pytest.mark.usefixtures("spark")
def test_the_tutorial_on_flights_prints_what_its_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, TUTORIALS / "flights.py"], check=True)
    printed = {}
    for line in console_lines(ROOT / "docs" / "tutorials" / "flights.rst"):
        # The session's Java stands in another directory.
        words = [
            str(tmp_path / word) if word in ("flights.csv", "owned") else word
            for word in words_of(line)
        ]
        done = CliRunner().invoke(main, words, catch_exceptions=False)
        assert done.exit_code == 0, f"{line}: {done.output}"
        printed[words[1]] = done.stdout
    assert list(printed) == ["load", "plan", "assign", "reassign"]
    for job in ("load", "plan", "reassign"):
        assert printed[job] == (TUTORIALS / f"flights-{job}.txt").read_text()
    page = " ".join((ROOT / "docs" / "tutorials" / "flights.rst").read_text().split())
    facts = dict(re.findall(r"(\S[^\n]*?)  ([\d.,]+%?)$", "\n".join(printed.values()), re.M))
    hottest = facts["hottest key's part of a node's mean load"]
    assert f"{facts['rows']} flights left New York" in page
    assert f"the hottest has {hottest} of a node's mean work" in page
    assert f"{facts['unusable weights']} flights have ``NA``" in page
    assert f"{facts['files read']} of {facts['cells']} directories were read and written" in page
    least = facts["least that must move to get these loads"]
    assert facts["part of the weight that moves"] == least


@pytest.mark.usefixtures("spark")
def test_the_audit_finds_the_bug_that_the_tutorial_planted(fleet):
    url, log, process = fleet
    assert process.wait() == 0
    schema = "key string, node string, start double, end double"
    done = CliRunner().invoke(
        spark_group,
        ["audit", "--input", str(log), "--schema", schema, "--url", url, "--ring", "audited"],
        catch_exceptions=False,
    )
    assert done.exit_code == 0, done.output
    assert set(names((TUTORIALS / "audit.txt").read_text())) <= set(names(done.stdout))
    faults = re.findall(r"(?:before getting the key|key of another node)  (\d+)", done.stdout)
    assert sum(map(int, faults)) > 0
