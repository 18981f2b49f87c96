"""Which reports about its subscriptions count for a machine."""

from __future__ import annotations

import math

from hashring.protocol.listening import Listening, ListeningState


def standing() -> Listening:
    listening = Listening()
    assert listening.confirmed(listening.ask(10.0, 2.0).number)
    assert (listening.stands, listening.at) == (True, math.inf)
    return listening


def test_what_is_reported_about_an_older_subscription_does_not_count() -> None:
    listening = standing()
    old = listening.number
    listening.anew(5.0)
    listening.ask(10.0, 2.0)
    assert not listening.confirmed(old)
    assert not listening.ended(old)
    assert listening.state is ListeningState.ASKED


def test_a_confirmation_does_not_count_once_another_subscription_is_wanted() -> None:
    """One comes for each channel."""
    listening = standing()
    listening.anew(5.0)
    assert not listening.confirmed(listening.number)
    assert (listening.stands, listening.at) == (False, 5.0)


def test_failures_in_a_row_are_counted() -> None:
    listening = Listening()
    for number in (1, 2):
        assert listening.ended(listening.ask(10.0, 2.0).number)
        assert listening.failed == number
    listening.confirmed(listening.ask(10.0, 2.0).number)
    assert listening.failed == 0
