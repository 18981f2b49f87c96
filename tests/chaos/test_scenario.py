"""A run whose nodes do not get through a fault: its verdict, and what becomes of the other runs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.chaos import __main__ as command
from tests.chaos import fleet as fleets
from tests.chaos import scenario
from tests.chaos.checker import NEVER
from tests.chaos.faults import Fault
from tests.chaos.fleet import VARIANTS, Fleet, FleetError, Timing, Variant, until
from tests.chaos.scenario import Result
from tests.chaos.test_checker import GOOD

SHORT = Timing(ttl=1.5, heartbeat=0.3)


def never_idle(_: Fleet) -> None:
    until(lambda: False, "w0-0 own nothing after the order to drain")


def never_ended(fleet: Fleet) -> None:
    worker = fleet.workers[0]
    fleet.pause(worker)
    fleet.stop(worker)


@pytest.mark.parametrize(
    ("act", "told"),
    [
        (never_idle, "stuck: not within 0.2 s: w0-0 own nothing after the order to drain"),
        (never_ended, "stuck: w0 did not end within 0.2 s of SIGTERM"),
    ],
)
def test_nodes_that_do_not_get_through_a_fault_break_a_rule(
    monkeypatch: pytest.MonkeyPatch, act: Callable[[Fleet], None], told: str
) -> None:
    def stuck(fleet: Fleet) -> None:
        monkeypatch.setattr(fleets, "PATIENCE", 0.2)
        act(fleet)

    fault = Fault("stuck", "nodes that do not follow", stuck, workers=2)
    result = scenario.run([fault], VARIANTS["threads"], SHORT, seed=1)
    assert result.broken[0] == result.failed == told
    assert result.recovery == NEVER
    # That nodes are not followed is not claimed, because nobody looked.
    assert not any("followed" in rule for rule in result.broken)


def test_a_node_that_does_not_leave_at_the_end_of_a_run_breaks_a_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def deaf(fleet: Fleet) -> None:
        monkeypatch.setattr(fleets, "PATIENCE", 0.2)
        for worker in fleet.running:
            fleet.pause(worker)
        fleet.mark("healed")

    fault = Fault("deaf", "nodes that do not end", deaf, workers=2)
    result = scenario.run([fault], VARIANTS["threads"], SHORT, seed=1)
    assert result.failed.endswith("did not end within 0.2 s of SIGTERM")
    assert result.failed in result.broken


class Runs:
    """In place of ``scenario.run``: the fleets of one variant fail before the fault, so often."""

    def __init__(self, failures: int, error: Exception) -> None:
        self.left = failures
        self.error = error
        self.begun: list[str] = []

    def __call__(
        self, faults: Sequence[Fault], variant: Variant, timing: Timing, *, seed: int, **_: object
    ) -> Result:
        self.begun.append(variant.name)
        if variant.name == "gevent" and self.left:
            self.left -= 1
            raise self.error
        return replace(GOOD, fault=faults[0].name, variant=variant.name, seed=seed)


def kill(file: Path) -> tuple[int, str, list[str]]:
    """The exit status, the output, and the variants that there are results of."""
    arguments = ["--fault", "kill", "--variant", "threads", "--variant", "gevent"]
    told = CliRunner().invoke(command.main, [*arguments, "--jobs", "1", "--json", str(file)])
    return told.exit_code, told.output, [each["variant"] for each in json.loads(file.read_text())]


def test_a_fleet_that_fails_before_the_fault_is_begun_once_more_and_that_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs(1, FleetError("not within 60 s: every key has one owner"))
    monkeypatch.setattr(command, "run", runs)
    status, output, variants = kill(tmp_path / "r.json")
    assert (status, variants) == (0, ["threads", "gevent"])
    assert runs.begun == ["threads", "gevent", "gevent"]
    assert "kill, gevent, seed 1 begins again: not within 60 s: every key has one" in output


@pytest.mark.parametrize(
    ("error", "attempts"),
    [(FleetError("not within 60 s: every key has one owner"), 2), (OSError("no descriptors"), 1)],
)
def test_a_run_without_a_result_fails_the_command_and_costs_no_other_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, attempts: int
) -> None:
    runs = Runs(2, error)
    monkeypatch.setattr(command, "run", runs)
    status, output, variants = kill(tmp_path / "r.json")
    assert (status, variants) == (1, ["threads"])
    assert runs.begun == ["threads", *["gevent"] * attempts]
    assert f"ERROR kill, gevent, seed 1 has no result: {type(error).__name__}: {error}" in output
    assert "1 of 1 kept every promise; 1 run has no result" in output
