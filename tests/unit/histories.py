"""Plays histories that must break no rule, and those that must show a planted fault."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from hashring.testing.simulator.play import H, Simulator
from tests.conftest import some


def none_breaks_a_rule(
    simulator: Simulator[Any, Any], make: Callable[[int], Any], seeds: range
) -> None:
    """Fail with the story of the first history of some of these seeds that breaks a rule."""
    failing = simulator.find(some(seeds), make)
    if failing is not None:
        pytest.fail(simulator.story(failing), pytrace=False)


FOUND_BY = {
    "gives a name away": 65,
    "leaves a view as it is": 61,
    "gives a name to one that had it": 836,
    "takes a new session for another process": 1811,
    "a_drained_node_that_keeps_keys_for_full_nodes_is_found": 18,
    "TOKENS_OF_THE_COUNTER_ALONE-tokens": 11,
    "_never_reconciles": 39,
    "a heartbeat of a session that has ended": 42,
    "a join by what was seen before the stop": 4918,
    "epochs told apart by their number": 24,
    "late beats obeyed": 17,
    "no order lifted": 20,
    "renewal without a look at the session": 12,
    "done-renewed_from_the_answer_on-holder-slow_answer": 8,
    "done-renewed_past_the_handoff_time-holder|handoff-random_lock_history": 13,
    "Leases-revoke-revoked_without_a_new_deadline-handoff|holder": 9,
    "an answer after its deadline": 11,
    "NumbersNoPoints-of_own_ranges-spares|weight": 17,
    "TakesItForAnAnswerLikeAnyOther-plain-renewal|recovery": 9,
    "ends for a process that is gone": 18,
    "the heartbeat's tag ignored": 17,
    "ignores copies": 32,
    "looks at no access type": 3,
    "takes standbys for owners": 43,
    "left_for_one_try": 1,
    "left_from_the_last_try_on": 13,
    "_give_up": 0,
    "session_ended": 0,
    "_gives_up_what_it_does_not_know_of": 46,
    "refuses a view": 7,
    "asks a frozen member": 3,
    "leaving without a goodbye": 65,
    "begins tokens again": 40,
    "keeps what was drained": 65,
    "keeps those who know of no loss": 156,
    "RELEASE_OF_ANY_HOLDER-holder": 14,
    "WAITER_THAT_IS_REPLACED_AND_NOT_TOLD-freed": 246,
    "ANOTHER_SERVER_WITHOUT_ANOTHER_HISTORY-sole": 66,
    "CallsUnderWay-count-bug0-limit": 66,
    "tokens_that_begin_again_after_a_loss_are_found": 12,
    "a_restart_or_failover_that_nobody_sees_is_found": 27,
    "a_stop_that_sends_nothing_is_found": 9,
    "a_node_that_does_not_tell_of_a_loss_is_found": 55,
    "a_lease_challenge_that_reads_the_times_of_before_is_found": 25,
    "a_node_that_takes_a_lock_of_older_data_for_that_of_its_call_is_found": 2,
    "a_question_that_does_not_look_at_the_history_is_found": 0,
    "points_drawn_anew_after_a_heartbeat_that_was_not_answered_are_found": 33,
}
"""Of faults that few histories find, by the id of the test's case, the seed of one that does.

It only saves time: where it finds nothing, others are tried.
"""


def find_fault(
    simulator: Simulator[H, Any],
    rules: str,
    histories: Callable[[int], H],
    budget: int,
    late: Iterable[int] = (),
) -> H:
    """The first history in which a rule is broken; a rule not among these is another fault.

    Args:
        rules: the names of the rules that may be broken, with ``|`` between them.
        histories: the history of a seed.
        budget: how many histories are played before the fault counts as not found.
        late: seeds that found a fault late when they were chosen; they only save time.
    """
    test, _, case = os.environ["PYTEST_CURRENT_TEST"].removesuffix(" (call)").partition("[")
    fault = case.removesuffix("]") or test.partition("::test_")[2]
    first = [FOUND_BY[fault]] if fault in FOUND_BY else []
    for seed in (*first, *late, *range(budget)):
        history = histories(seed)
        rule = simulator.broken_rule(history)
        if rule is not None:
            assert rule in rules.split("|"), simulator.story(history)
            return history
    pytest.fail(f"not found in {budget} histories")


def tells_a_short_story(
    simulator: Simulator[H, Any], history: H, rules: str, most: int = 8
) -> None:
    """Fail unless the story of a broken rule has been made smaller, to a few events.

    Args:
        rules: the names of the rules that may be broken, with ``|`` between them. With fewer
            events another of them may be the first to break.
        most: how many events the story may have.
    """
    story = simulator.story(history)
    assert any(f"BROKEN {rule}:" in story for rule in rules.split("|")), story
    events = [line for line in story.splitlines() if line.endswith("<--")]
    assert 1 <= len(events) <= most, story
