"""The checker finds what is planted in a history, and nothing else."""

from __future__ import annotations

import pytest

from tests.chaos.checker import (
    NEVER,
    exposure,
    fence_breaks,
    key_seconds,
    lock_breaks,
    longest,
    longest_silence,
)
from tests.chaos.fleet import Timing
from tests.chaos.history import Cut, Hold, Life, Sweep, Write
from tests.chaos.scenario import Result, judged

from tests.chaos.faults import Bounds  # isort: skip

INF = float("inf")


def life(*answers: tuple[float, int], cuts: tuple[Cut, ...] = (), name: str = "a") -> Life:
    """A node that was asked at those times, at once, and claimed those keys."""
    return Life(name, [Sweep(at, at, keys) for at, keys in answers], list(cuts))


def every(start: float, end: float, keys: int, step: float = 0.5) -> list[tuple[float, int]]:
    count = round((end - start) / step)
    return [(start + step * number, keys) for number in range(count + 1)]


def test_one_owner_at_a_time_is_no_exposure() -> None:
    found = exposure([life(*every(0, 10, 0b01)), life(*every(0, 10, 0b10))], 2, 1, 9)
    assert found.double == found.none == ()


def test_two_nodes_that_claim_one_key_count_for_as_long_as_both_surely_do() -> None:
    one = life(*every(0, 10, 0b11))
    two = life(*every(0, 3.5, 0), *every(4, 6, 0b10), *every(6.5, 10, 0))
    found = exposure([one, two], 2, 1, 9)
    assert [(w.key, w.start, w.end) for w in found.double] == [(1, 4.0, 6.0)]
    assert found.none == ()


def test_a_key_that_nobody_claims_counts_for_as_long_as_all_surely_do_not() -> None:
    one = life(*every(0, 4, 1), *every(4.5, 10, 0))
    two = life(*every(0, 7, 0), *every(7.5, 10, 1))
    found = exposure([one, two], 1, 1, 9)
    assert [(w.key, w.start, w.end) for w in found.none] == [(0, 4.5, 7.0)]
    assert key_seconds(found.none) == longest(found.none) == 2.5


def test_a_change_of_mind_between_two_rounds_counts_for_neither_side() -> None:
    one = life((0, 1), (0.5, 1), (1, 0), (1.5, 0))
    two = life((0, 0), (0.5, 0), (1, 1), (1.5, 1))
    found = exposure([one, two], 1, 0, 1.5)
    assert found.double == found.none == ()


def test_a_killed_process_claims_nothing_from_then_on() -> None:
    one = life(*every(0, 4, 1), cuts=((4.25, INF),))
    two = life(*every(0, 7, 0), *every(7.5, 10, 1))
    found = exposure([one, two], 1, 1, 9)
    assert [(w.start, w.end) for w in found.none] == [(4.25, 7.0)]
    assert found.double == ()


def test_a_stopped_process_claims_nothing_and_may_claim_again_when_it_runs() -> None:
    """What it thinks while it stands still harms nobody; what it thinks afterwards does."""
    one = life(*every(0, 4, 1), *every(8, 10, 1), cuts=((4.25, 7.75),))
    two = life(*every(0, 5, 0), *every(5.5, 10, 1))
    found = exposure([one, two], 1, 1, 9.5)
    assert [(w.start, w.end) for w in found.none] == [(4.25, 5.0)]
    assert [(w.start, w.end) for w in found.double] == [(8.0, 9.5)]


def test_nothing_is_known_of_a_node_that_was_not_asked_for_long() -> None:
    one = life(*every(0, 3, 1), *every(7, 10, 1))
    two = life(*every(0, 10, 1))
    found = exposure([one, two], 1, 1, 9)
    assert [(w.start, w.end) for w in found.double] == [(1, 3), (7, 9)]


def test_a_round_that_a_stop_tore_apart_does_not_count() -> None:
    torn = Life("a", [Sweep(0, 0, 1), Sweep(1, 5, 1), Sweep(5.5, 5.5, 0)], [(2, 4)])
    other = life(*every(0, 6, 1))
    found = exposure([torn, other], 1, 1, 6)
    assert found.double == ()


def test_a_round_that_took_long_proves_only_what_its_neighbours_agree_with() -> None:
    slow = Life("a", [Sweep(0.5, 0.5, 0), Sweep(1, 4, 1), Sweep(4.5, 4.5, 1), Sweep(5, 5, 1)])
    other = life(*every(0, 6, 1))
    found = exposure([slow, other], 1, 0, 6)
    assert [(w.start, w.end) for w in found.double] == [(4.0, 5.0)]


def test_recovery_is_the_end_of_the_last_window_and_never_when_that_is_still_open() -> None:
    one = life(*every(0, 10, 1))
    two = life(*every(0, 2, 0), *every(2.5, 4, 1), *every(4.5, 10, 0))
    three = life(*every(0, 7, 0), *every(7.5, 10, 1))
    assert exposure([one, two], 1, 0, 9).recovered_after(3) == 1.0
    assert exposure([one, two], 1, 0, 9).recovered_after(5) == 0.0
    assert exposure([one, three], 1, 0, 9).recovered_after(3) == NEVER


def test_the_longest_silence_leaves_out_the_time_that_a_process_stood_still() -> None:
    assert longest_silence(life((0, 0), (1, 0), (7, 0), cuts=((1.5, 6.5),)), 7.0) == 1.0


def test_a_node_whose_call_never_returns_is_silent_until_the_end() -> None:
    hung = life(*every(0, 5, 1))
    assert longest_silence(hung, 20.0) == 15.0
    assert longest_silence(life(*every(0, 5, 1), cuts=((6.0, INF),)), 20.0) == 1.0


def test_the_time_within_one_round_is_silence_too() -> None:
    slow = Life("a", [Sweep(0, 0, 1), Sweep(1, 9, 1), Sweep(9.5, 9.5, 1)], [])
    assert longest_silence(slow, 10.0) == 9.0


def test_an_older_token_after_a_newer_one_and_a_token_in_two_hands_break_the_fence() -> None:
    fine = [Write("k", 1, "a"), Write("k", 1, "a"), Write("k", 2, "b"), Write("l", 1, "b")]
    assert fence_breaks(fine) == []
    assert fence_breaks([*fine, Write("k", 1, "a")]) == ["k: a wrote with 1 after 2"]
    assert fence_breaks([*fine, Write("k", 2, "a")]) == ["k: b and a both wrote with 2"]


def test_holds_of_two_nodes_may_not_overlap_and_their_tokens_rise() -> None:
    fine = [
        Hold("k", 1, "a", 0.0, 1.0),
        Hold("k", 1, "a", 0.5, 2.0),
        Hold("l", 2, "b", 1.0, 3.0),
        Hold("k", 3, "b", 2.0, 4.0),
    ]
    assert lock_breaks(fine) == []
    late = Hold("k", 4, "a", 3.5, 3.75)
    assert lock_breaks([late, *fine]) == ["k: b and a both held it for 0.250 s"]
    assert lock_breaks([*fine, Hold("k", 2, "a", 5.0, 6.0)]) == ["k: a held it with 2 after 3"]


GOOD = Result(
    fault="f",
    variant="v",
    seed=0,
    timing=Timing(),
    double=0.3,
    longest_double=0.3,
    none=1.0,
    longest_none=1.0,
    recovery=0.5,
    escaped=(),
    fenced=(),
    locked=(),
    writes=0,
    refused=0,
    follows=True,
    bounds=Bounds(0.5, 1.5, 0.6),
    late=0.0,
    silence=0.0,
)


def with_(**changes: object) -> Result:
    return judged(Result(**{**vars(GOOD), **changes}))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"longest_double": 0.6}, "two owners for 0.60 s, promised 0.50 s"),
        ({"longest_none": 1.6}, "no owner for 1.60 s, promised 1.50 s"),
        ({"recovery": NEVER}, "right again after inf s, promised 0.60 s"),
        ({"follows": False}, "are not followed"),
        ({"failed": "drain: w0-0 own nothing", "follows": False}, "drain: w0-0 own nothing"),
        ({"silence": 5.0}, "a running node did not answer for 5.00 s, promised"),
        ({"escaped": ("w0: boom",)}, "1 exceptions escaped: w0: boom"),
        ({"fenced": ("k: a wrote with 1 after 2",)}, "fenced resource"),
        (
            {
                "double": 0.0,
                "longest_double": 0.0,
                "bounds": Bounds(0.0, 1.5, 0.6),
                "locked": ("k: a and b both held it for 0.1 s",),
            },
            "locks: k: a and b both held it",
        ),
        ({"bounds": Bounds(0.0, 1.5, 0.6)}, "in spite of locks"),
    ],
)
def test_each_rule_can_be_broken(changes: dict[str, object], told: str) -> None:
    (broken,) = with_(**changes).broken
    assert told in broken


def test_bounds_are_widened_by_what_the_machine_was_late_except_that_of_locks() -> None:
    assert with_().broken == ()
    assert with_(longest_none=1.6, late=0.2).broken == ()
    assert with_(longest_double=0.1, bounds=Bounds(0.0, 1.5, 0.6), late=5.0).broken != ()


def test_the_window_is_a_heartbeat_a_moment_and_a_fetch() -> None:
    assert Timing(ttl=3, heartbeat=0.5).window == pytest.approx(0.5 + 0.1875 + 0.15)
