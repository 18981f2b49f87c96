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
from tests.chaos.fleet import VARIANTS, Timing
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


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--json nowhere/r.json", "--json nowhere/r.json: nothing can be written there"),
        ("--json nowhere/r.json --soak 1", "nothing can be written there"),
        ("--json nowhere/r.json --fuzz 10", "nothing can be written there"),
        ("--sequences 0", "that is no run at all"),
    ],
)
def test_what_would_come_to_nothing_is_refused_before_anything_runs(
    monkeypatch: pytest.MonkeyPatch, arguments: str, told: str
) -> None:
    for name in ("run_all", "soak_both", "fuzz_all"):
        monkeypatch.delattr(command, name)
    done = CliRunner().invoke(command.main, arguments.split())
    assert done.exit_code == 2
    assert told in done.output


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


def whole_run(**changes: object) -> list[Result]:
    """A result of every fault on every variant, and of the sequences."""
    chains = [
        (" ".join(fault.name for fault in chain), seed)
        for seed, chain in random_sequences(command.SEQUENCES, command.LENGTH, 1)
    ]
    return [
        replace(GOOD, fault=fault, variant=variant.name, seed=seed, **changes)
        for variant in VARIANTS.values()
        for fault, seed in [*((name, 1) for name in FAULTS), *chains]
        if fault not in FAULTS or FAULTS[fault].peers or not variant.peer
    ]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A page instead of the one in docs/."""
    page = tmp_path / "docs" / "chaos.rst"
    page.parent.mkdir()
    names = ("side by side", "each variant", "key-seconds", "sequences")
    page.write_text("".join(f".. begin {n}\n.. end {n}\n" for n in names))
    monkeypatch.setattr(command, "ROOT", tmp_path)
    monkeypatch.setattr(command, "PAGE", page)
    return page


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("--fault kill", "no result of"),
        ("--variant gevent", "no result of kill on threads"),
        ("--sequences 3", "no result of kill on threads"),
        ("--sequences 3 --fault kill", "no result of pause on threads"),
        ("--ttl 1", "the ttl is 1 s and the heartbeat 0.5 s"),
        ("--heartbeat 1", "the ttl is 3 s and the heartbeat 1 s"),
        ("--soak 1", "--soak and --fuzz have no results for it"),
        ("--fuzz 10", "--soak and --fuzz have no results for it"),
    ],
)
def test_a_part_of_the_results_is_refused_for_the_page_before_anything_runs(
    page: Path, monkeypatch: pytest.MonkeyPatch, arguments: str, told: str
) -> None:
    for name in ("run_all", "soak_both", "fuzz_all"):
        monkeypatch.delattr(command, name)
    before = page.read_text()
    done = CliRunner().invoke(command.main, [*arguments.split(), "--docs"])
    assert done.exit_code == 2
    assert "--docs writes the whole page" in done.output
    assert told in done.output
    assert page.read_text() == before


def test_too_few_sequences_are_refused_for_the_page(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(command, "run_all")
    every = [word for name in FAULTS for word in ("--fault", name)]
    done = CliRunner().invoke(command.main, [*every, "--sequences", "2", "--docs"])
    assert done.exit_code == 2
    assert "no result of sequence 3 on threads" in done.output


def test_results_of_earlier_runs_make_the_page_only_if_they_are_whole_and_of_the_same_timing(
    page: Path, tmp_path: Path
) -> None:
    whole = whole_run()
    cases = {
        "of a part": (whole[:-1], "no result of sequence 3 on redis-hashring"),
        "of another timing": (
            [*whole[:-1], replace(whole[-1], timing=Timing(1.0, 0.2))],
            "the ttl is 1 s and the heartbeat 0.2 s",
        ),
    }
    before = page.read_text()
    for name, (results, told) in cases.items():
        file = saved(tmp_path / f"{name}.json", *results)
        done = CliRunner().invoke(command.main, ["--read", str(file), "--docs"])
        assert (done.exit_code, page.read_text()) == (2, before)
        assert told in done.output
    halves = (whole[:50], whole[50:])
    files = [saved(tmp_path / f"{n}.json", *half) for n, half in enumerate(halves)]
    reads = [word for file in files for word in ("--read", str(file))]
    done = CliRunner().invoke(command.main, [*reads, "--docs"])
    assert done.exit_code == 0, done.output
    assert "wrote docs/chaos.rst and its plot" in done.output
    assert '"SIGKILL of a node"' in page.read_text()


def test_a_run_without_a_result_leaves_the_page_as_it_is(
    page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = "kill, threads, seed 1 has no result: FleetError: not within 60 s"
    monkeypatch.setattr(command, "run_all", lambda *_: (whole_run()[1:], [error]))
    before = page.read_text()
    done = CliRunner().invoke(command.main, ["--docs"])
    assert (done.exit_code, page.read_text()) == (1, before)
    assert "docs/chaos.rst stays as it was, because 1 run has no result" in done.output
