"""``scripts/chaos``, without a fleet: what it says, and the tables that it writes."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.chaos import __main__ as command
from tests.chaos.checker import NEVER
from tests.chaos.faults import FAULTS
from tests.chaos.fuzz import targets
from tests.chaos.report import plot, write_docs
from tests.chaos.scenario import Result, random_sequences
from tests.chaos.test_checker import GOOD

GOOD_KILL = replace(GOOD, fault="kill", variant="threads")
PEER_KILL = replace(
    GOOD, fault="kill", variant="redis-hashring", recovery=NEVER, broken=("never right again",)
)


def saved(path: Path, *results: Result) -> Path:
    path.write_text(json.dumps([result.as_dict() for result in results]))
    return path


def test_the_faults_are_listed() -> None:
    told = CliRunner().invoke(command.main, ["--list"])
    assert told.exit_code == 0
    assert all(name in told.output for name in FAULTS)


def test_an_unknown_fault_is_named() -> None:
    told = CliRunner().invoke(command.main, ["--fault", "earthquake"])
    assert told.exit_code == 2
    assert "'earthquake' is not one of 'kill', 'pause'" in told.output


def test_fuzzing_tells_how_much_it_fed_to_whom() -> None:
    inputs = 10 * len(targets())
    told = CliRunner().invoke(command.main, ["--fuzz", str(inputs)])
    assert told.exit_code == 0
    assert f"\n{inputs} inputs in" in told.output


@pytest.mark.parametrize(("broken", "code"), [((), 0), (("no owner for 9.00 s",), 1)])
def test_the_exit_status_tells_whether_a_promise_of_ours_is_broken(
    tmp_path: Path, broken: tuple[str, ...], code: int
) -> None:
    file = saved(tmp_path / "r.json", replace(GOOD_KILL, broken=broken), PEER_KILL)
    told = CliRunner().invoke(command.main, ["--read", str(file)])
    assert told.exit_code == code
    assert "SIGKILL of a node" in told.output
    assert "never" in told.output


def test_a_seed_gives_the_same_sequences_again() -> None:
    assert random_sequences(3, 5, 7) == random_sequences(3, 5, 7)
    assert random_sequences(3, 5, 7) != random_sequences(3, 5, 8)


def test_the_tables_are_put_between_the_markers_and_may_be_put_there_again(tmp_path: Path) -> None:
    page = tmp_path / "chaos.rst"
    names = ("side by side", "each variant", "key-seconds", "sequences")
    page.write_text(
        "Before\n\n" + "".join(f".. begin {n}\n.. end {n}\n" for n in names) + "After\n"
    )
    write_docs(page, [GOOD_KILL, PEER_KILL, replace(GOOD, fault="kill pause")], 12.0)
    once = page.read_text()
    assert '"SIGKILL of a node","0.30 / 0.30","1.00 / 1.00","0.50 / never"' in once
    assert '"kill pause"' in once
    assert once.startswith("Before\n")
    assert once.endswith("After\n")
    write_docs(page, [GOOD_KILL, PEER_KILL, replace(GOOD, fault="kill pause")], 12.0)
    assert page.read_text() == once
    assert page.with_suffix(".svg").read_text() == plot([GOOD_KILL, PEER_KILL], 12.0)
