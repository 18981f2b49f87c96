"""What contributors and hosts of the project read: workflows, forms, hooks, citation, release."""

from __future__ import annotations

import re
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest
import yaml

import hashring
from tests.conftest import ROOT

BIN = Path(sys.executable).parent


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("schema", "files"),
    [
        ("vendor.github-workflows", ".github/workflows/*.yml"),
        ("vendor.dependabot", ".github/dependabot.yml"),
        ("vendor.github-issue-forms", ".github/ISSUE_TEMPLATE/[!c]*.yml"),
        ("vendor.github-issue-config", ".github/ISSUE_TEMPLATE/config.yml"),
        ("vendor.citation-file-format", "CITATION.cff"),
    ],
)
def test_files_that_hosts_read_fit_their_schema(schema: str, files: str) -> None:
    paths = list(ROOT.glob(files))
    assert paths
    done = run(BIN / "check-jsonschema", "--builtin-schema", schema, *paths)
    assert done.returncode == 0, done.stdout


def test_workflows_have_no_known_weakness() -> None:
    done = run(BIN / "zizmor", "--offline", "--quiet", ".github")
    assert done.returncode == 0, done.stdout


def test_hooks_are_well_formed() -> None:
    done = run(BIN / "pre-commit", "validate-config", ".pre-commit-config.yaml")
    assert done.returncode == 0, done.stdout


def test_workflows_and_hooks_run_programs_that_are_there() -> None:
    named = set()
    for file in [*ROOT.glob(".github/workflows/*.yml"), ROOT / ".pre-commit-config.yaml"]:
        named |= set(
            re.findall(r"(?:run|entry): (scripts/\w+|\.venv/bin/[\w-]+)", file.read_text())
        )
    assert {"scripts/test", "scripts/docs", "scripts/release", ".venv/bin/ruff"} <= named
    for name in named:
        path = BIN / Path(name).name if name.startswith(".venv") else ROOT / name
        assert path.stat().st_mode & 0o111, name


def test_workflows_test_every_python_that_the_package_names() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    told = re.findall(r"Python :: (3\.\d+)", config["metadata"]["classifiers"])
    workflow = yaml.safe_load((ROOT / ".github/workflows/checks.yml").read_text())
    matrix = workflow["jobs"]["test"]["strategy"]["matrix"]
    assert matrix["python"] == told
    # The page on support promises the same.
    support = " ".join((ROOT / "docs/project/support.rst").read_text().split())
    assert f"Python {told[0]} to {told[-1]}, on Linux" in support
    versions = [server.partition(":")[2] for server in matrix["server"] if server[:5] == "redis"]
    assert f"Redis {', '.join(versions[:-1])} and {versions[-1]}:" in support


def test_a_release_is_built_checked_and_told(tmp_path: Path) -> None:
    done = run(ROOT / "scripts" / "release", tmp_path)
    assert done.returncode == 0, done.stderr
    built = {path.name for path in tmp_path.iterdir()}
    version = hashring.__version__
    assert built == {
        f"hashring_fleet-{version}-py3-none-any.whl",
        f"hashring_fleet-{version}.tar.gz",
    }
    assert all(name in done.stdout for name in built)
    assert f"Version {version} is ready." in done.stdout


def test_the_changes_begin_with_the_version() -> None:
    first = re.search(r"^\d+\.\d+.*$", (ROOT / "CHANGES.rst").read_text(), re.M)
    assert first is not None
    assert first[0] == hashring.__version__
