"""What contributors and hosts of the project read: workflows, forms, hooks, citation, release."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from email import message_from_string
from email.message import Message
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


def test_a_workflow_tests_the_oldest_pyspark_that_the_package_takes() -> None:
    taken = re.search(r"pyspark\[.+\]>=((\d+\.\d+)\.\d+),<(\d+)", (ROOT / "setup.cfg").read_text())
    assert taken
    oldest, line, end = taken.groups()
    support = " ".join((ROOT / "docs/project/support.rst").read_text().split())
    assert f"PySpark {oldest} and newer, below {end}" in support
    assert f"PySpark {oldest} is the oldest" in (ROOT / "docs/reference/spark.rst").read_text()
    assert f"pyspark[sql,connect]=={line}.*" in (ROOT / ".github/workflows/checks.yml").read_text()


def release(into: Path, **addresses: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/release, with no address but these."""
    env = {name: value for name, value in os.environ.items() if not name.endswith("_URL")}
    return subprocess.run(
        [ROOT / "scripts" / "release", into],
        env=env | addresses,
        capture_output=True,
        text=True,
        check=False,
    )


def metadata(directory: Path) -> Message:
    """What the built wheel says of itself; its README is the payload."""
    (wheel,) = directory.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return message_from_string(archive.read(name).decode())


@pytest.mark.long  # tests/integration/test_packaging.py builds and uses the wheel.
def test_a_release_is_built_and_checked_and_says_what_it_lacks(tmp_path: Path) -> None:
    done = release(tmp_path)
    assert done.returncode == 0, done.stderr
    built = {path.name for path in tmp_path.iterdir()}
    version = hashring.__version__
    assert built == {
        f"hashring_fleet-{version}-py3-none-any.whl",
        f"hashring_fleet-{version}.tar.gz",
    }
    assert all(name in done.stdout for name in built)
    assert f"Version {version} is ready." in done.stdout
    assert "set SOURCE_URL and DOCS_URL before you publish" in done.stdout
    packed = metadata(tmp_path)
    assert packed.get_all("Project-URL") is None
    # The source distribution is a checkout, but for what hosts and editors read.
    with tarfile.open(tmp_path / f"hashring_fleet-{version}.tar.gz") as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    tracked = run("git", "ls-files").stdout.split()
    assert {name for name in tracked if name[0] != "."} <= held
    # An index page cannot show a file of the repository.
    assert "image::" not in packed.get_payload()


@pytest.mark.long
def test_a_release_with_addresses_links_to_them_and_shows_the_recordings(tmp_path: Path) -> None:
    done = release(
        tmp_path,
        SOURCE_URL="https://git.example/hashring",
        DOCS_URL="https://docs.example/hashring/",
    )
    assert done.returncode == 0, done.stderr
    assert "before you publish" not in done.stdout.partition("This commit has no tag")[0]
    packed = metadata(tmp_path)
    assert packed.get_all("Project-URL") == [
        "Source, https://git.example/hashring",
        "Documentation, https://docs.example/hashring",
        "Changelog, https://docs.example/hashring/project/changelog.html",
    ]
    shown = re.findall(r"image:: (\S+)", packed.get_payload())
    assert shown == [
        "https://docs.example/hashring/_static/demo.svg",
        "https://docs.example/hashring/_static/page.gif",
    ]
    for address in shown:
        assert (ROOT / "docs" / address.removeprefix("https://docs.example/hashring/")).is_file()


def test_a_release_refuses_an_address_that_is_none(tmp_path: Path) -> None:
    done = release(tmp_path / "into", DOCS_URL="docs.example/hashring")
    assert done.returncode == 1
    assert done.stderr == (
        "DOCS_URL is 'docs.example/hashring': give an address that begins with https://\n"
    )
    assert not (tmp_path / "into").exists()


def test_a_release_refuses_files_that_were_changed_since_the_tag(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    # Nothing to set up, and the version.
    for program, text in ((tmp_path / "scripts" / "setup", ":"), (python, "echo 1.0")):
        program.write_text(f"#!/bin/sh\n{text}\n")
        program.chmod(0o755)
    changes = tmp_path / "CHANGES.rst"
    changes.write_text("1.0\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    for command in ("init", "add .", "commit -m first", "tag v1.0"):
        subprocess.run(["git", *who, *command.split()], cwd=tmp_path, check=True)
    changes.write_text("1.0\n\nFirst.\n")
    done = subprocess.run(
        [tmp_path / "scripts" / "release"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "scripts/release: files were changed since the tag v1.0\n"


def test_the_changes_begin_with_the_version() -> None:
    first = re.search(r"^\d+\.\d+.*$", (ROOT / "CHANGES.rst").read_text(), re.M)
    assert first is not None
    assert first[0] == hashring.__version__
