"""What a loss of the ring's locks in Redis means for a node."""

from __future__ import annotations

import math

from hashring.protocol.locks.hold_off import HoldOff


def test_a_call_that_may_take_no_lock_says_for_how_long_nobody_may() -> None:
    hold_off = HoldOff()
    assert hold_off.left(10.0) == 0.0
    assert not hold_off.answered(5.0, 10.0)
    assert hold_off.left(11.0) == 4.0


def test_a_later_answer_does_not_end_the_wait_earlier() -> None:
    hold_off = HoldOff()
    hold_off.answered(5.0, 10.0)
    hold_off.answered(1.0, 11.0)
    assert hold_off.left(11.0) == 4.0


def test_where_only_a_heartbeat_learns_for_how_long_the_wait_has_no_end_until_then() -> None:
    hold_off = HoldOff()
    assert hold_off.answered(None, 10.0)
    assert hold_off.left(1e9) == math.inf
    hold_off.heartbeat("a history", 2.0, 20.0)
    assert hold_off.left(21.0) == 1.0
    hold_off.heartbeat("a history", 0.0, 22.0)
    assert hold_off.left(22.0) == 0.0
