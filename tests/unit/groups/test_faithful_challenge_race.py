"""The decisions of leases by race. Sources: the lease challenge article (L); the research notes on
rebalancing, section 4 (N 4)."""

from __future__ import annotations

from typing import Any

import pytest

from hashring.core.groups.faithful_challenge import (
    AfterRace,
    FaithfulChallengeSpans,
    Signal,
    after_race,
    race_wait,
)
from hashring.core.groups.faithful_challenge import signal as signal_of
from hashring.errors import ConfigError

ARTICLE = FaithfulChallengeSpans()


@pytest.mark.parametrize(
    ("owned", "grabbed", "silent", "expected"),
    [
        (True, False, 1000, Signal.NOTHING),
        (False, False, 59, Signal.NOTHING),
        (False, False, 60, Signal.CHALLENGE),
        (False, True, 60, Signal.NOTHING),
        (False, True, 181, Signal.CLEAR_AND_CHALLENGE),
        (False, False, 181, Signal.CLEAR_AND_CHALLENGE),
    ],
)
def test_what_is_not_owned_and_not_grabbed_is_challenged_once_a_lease(
    owned: bool, grabbed: bool, silent: float, expected: Signal
) -> None:
    # L, step 1.
    assert signal_of(owned=owned, grabbed=grabbed, silent=silent, spans=ARTICLE) is expected


@pytest.mark.parametrize("count", range(1, 20))
def test_an_owner_beats_who_has_one_less_and_loses_to_who_has_two_less(count: int) -> None:
    # L, step 2; N 4: the margin is half a delay.
    owner = race_wait(owned=True, active=count, spans=ARTICLE)
    margin = ARTICLE.held_delay / 2
    assert race_wait(owned=False, active=count - 1, spans=ARTICLE) == pytest.approx(owner + margin)
    assert race_wait(owned=False, active=count - 2, spans=ARTICLE) == pytest.approx(owner - margin)


@pytest.mark.parametrize(
    ("won", "owned", "busy", "expected"),
    [
        (True, True, False, AfterRace.KEEP),
        (False, True, False, AfterRace.STOP),
        (False, True, True, AfterRace.STOP),
        (True, False, True, AfterRace.WAIT),
        (True, False, False, AfterRace.START),
        (False, False, True, AfterRace.NOTHING),
    ],
)
def test_what_follows_from_a_race(won: bool, owned: bool, busy: bool, expected: AfterRace) -> None:
    # L, steps 3 to 5.
    assert after_race(won=won, owned=owned, busy=busy) is expected


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"held_delay": 0}, "held_delay=0: must be a finite number of seconds above 0"),
        ({"max_lease": 70}, "max_lease=70: must be at least twice the 60 s of normal_lease"),
        ({"min_grab": 60}, "min_grab=60: must be below the 60 s of normal_lease"),
        ({"min_grab": 2}, "min_grab=2: must be above the 2 s of max_shutdown"),
    ],
)
def test_spans_that_contradict_each_other_are_refused(settings: Any, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        FaithfulChallengeSpans(**settings)
    assert str(raised.value) == text


@pytest.mark.parametrize(
    "settings",
    [{"max_lease": 120}, {"min_grab": 59.9}, {"min_grab": 2.1}, {"normal_lease": 90}],
)
def test_spans_that_just_do_not_contradict_each_other_stand(settings: dict[str, float]) -> None:
    spans = FaithfulChallengeSpans(**settings)
    assert {name: getattr(spans, name) for name in settings} == settings
