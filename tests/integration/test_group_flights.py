"""The example under fire: every flight is counted exactly once, in order, whatever happens."""

from __future__ import annotations

import pytest

from tests.conftest import LONG, ROOT
from tests.programs import python


def test_every_flight_is_counted_once_though_members_are_killed_and_stopped() -> None:
    count_flights("contiguous", 50_000)


@pytest.mark.long  # Each assignor plays histories of faults in the simulator.
@pytest.mark.one_server
@pytest.mark.parametrize("assignor", ["learner", "ring"])
def test_every_flight_is_counted_once_whatever_the_assignor(assignor: str) -> None:
    count_flights(assignor, 50_000 if LONG else 20_000)


@pytest.mark.long
@pytest.mark.one_server
def test_all_flights_of_a_year_are_counted_once() -> None:
    count_flights("balanced", 336_776)


def count_flights(assignor: str, rows: int) -> None:
    script = str(ROOT / "examples" / "stream" / "flights.py")
    done = python(script, "--assignor", assignor, "--rows", rows, timeout=600)
    assert f"\n{rows:,} flights of" in done.stdout, done.stdout + done.stderr
    assert "; equal to a plain count; out of order: 0; " in done.stdout
    assert done.returncode == 0
