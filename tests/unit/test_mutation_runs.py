"""scripts/mutation chooses the tests of each file that it changes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from _pytest.mark.expression import Expression

from tests.conftest import ROOT
from tests.unit.script_modules import of_scripts

mutation = of_scripts("mutation")
PATHS = {
    str(path.relative_to(ROOT))
    for patterns in mutation.PARTS.values()
    for pattern in patterns
    for path in ROOT.glob(pattern)
}


@pytest.mark.parametrize("part", [part for part, _ in mutation.TESTS])
def test_each_way_of_a_pattern_names_a_file(part: str) -> None:
    ways = [part] if "(" in part else part.split("|")
    assert [way for way in ways if not any(re.search(way, path) for path in PATHS)] == []


@pytest.mark.parametrize("path", sorted(path for path in PATHS if "/store/_" in path))
def test_lua_that_all_stores_share_is_tested_by_those_of_rings_groups_and_challenges(
    path: str,
) -> None:
    assert {"node stores", "group stores", "challenge"} <= set(mutation.runs_of(path))


def test_every_contract_of_machines_and_stores_is_in_a_run() -> None:
    run = {place for _, places in mutation.RUNS.values() for place in places}
    contracts = {
        str(path.relative_to(ROOT)) for path in (ROOT / "tests/contract").glob("test_*.py")
    }
    assert contracts - run == {
        f"tests/contract/test_{name}.py" for name in ("assignors", "collation")
    }


@pytest.mark.parametrize("run", ["node histories", "group histories"])
def test_every_file_that_plays_histories_of_all_kinds_is_among_the_histories(run: str) -> None:
    players = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests/unit").glob("test_*.py")
        if re.search(r"def test_(no_)?histor", path.read_text())
    }
    assert players <= set(mutation.RUNS[run][1])


NAMED_FOR = {
    path: found
    for path in sorted(path for path in PATHS if path.endswith(".py"))
    for found in (ROOT / "tests/unit").rglob(f"test_{Path(path).stem}.py")
}


@pytest.mark.parametrize("path", NAMED_FOR)
def test_what_is_named_for_a_file_is_run_for_it(path: str) -> None:
    found = str(NAMED_FOR[path].relative_to(ROOT))
    assert any(
        Expression.compile(chosen).evaluate(found.__contains__)
        for chosen, places in map(mutation.RUNS.get, mutation.runs_of(path))
        if any(found.startswith(place) for place in places)
    )


@pytest.mark.parametrize(
    ("changed_and_unchanged", "told"),
    [
        (["passed"], "passed"),
        (["hung", "passed"], "hung"),
        (["hung", "hung", "failed"], "failed"),
        (["hung", "hung", "hung", "hung", "hung", "passed"], "hung"),
    ],
)
def test_a_change_hangs_only_if_the_tests_end_in_a_third_of_that_time_without_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed_and_unchanged: list[str], told: str
) -> None:
    limits: list[float] = []

    def outcome(command: list[str], tree: Path, limit: float) -> tuple[str, str]:
        limits.append(limit)
        assert (tree / "a file").read_text() == ("" if len(limits) % 2 == 0 else "changed")
        return changed_and_unchanged[len(limits) - 1], ""

    monkeypatch.setattr(mutation, "outcome", outcome)
    monkeypatch.setattr(
        mutation, "copy_of_the_tree", lambda into: (into.mkdir(), (into / "a file").write_text(""))
    )
    trial = mutation.Trial(tmp_path, "")
    trial._limits["group"] = 30.0
    assert trial.changed("group", mutation.Mutant("locks", "a file", 1, "", "changed")) == told
    assert limits == [30.0, 10.0, 60.0, 20.0, 120.0, 40.0][: len(changed_and_unchanged)]
