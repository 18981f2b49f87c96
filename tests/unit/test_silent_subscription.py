"""When a silent subscription is asked, and given up; and that histories find what never asks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from hashring.protocol.group.group_member_machine import GroupMemberMachine
from hashring.protocol.machine_steps import Step, Subscribe
from hashring.protocol.node.node_machine import NodeConfig, NodeMachine
from hashring.protocol.node.own_ranges_machine import OwnRangesMachine
from hashring.protocol.silent_subscription import Silence, Silent
from hashring.testing.simulator import (
    GroupSimulator,
    RingSimulator,
    own_ranges,
    random_group_history,
    random_history,
    random_lock_history,
)
from hashring.testing.simulator.ring.lock_rules import Calm

TERMS = Subscribe(1, ask_after=10.0, patience=2.0)


def answers(silence: Silence, *times: float) -> list[Silent]:
    return [silence.nothing(now) for now in times]


def test_one_that_is_not_confirmed_in_time_is_given_up_after_a_last_look() -> None:
    silence = Silence(TERMS, 100.0)
    assert silence.wait(100.0) == 2.0
    assert answers(silence, 101.0, 102.0, 102.0) == [Silent.LISTEN, Silent.LISTEN, Silent.LOST]
    assert silence.error is None, "it has never stood; the machine says why"


def test_a_silent_one_is_asked_once_and_given_up_without_an_answer() -> None:
    silence = Silence(TERMS, 100.0)
    silence.heard(101.0)
    assert silence.wait(101.0) == 10.0
    assert answers(silence, 110.9, 111.0) == [Silent.LISTEN, Silent.ASK]
    assert silence.wait(111.0) == 2.0
    assert answers(silence, 112.9, 113.0, 113.0) == [Silent.LISTEN, Silent.LISTEN, Silent.LOST]
    assert "did not answer on the subscription in time" in str(silence.error)


@pytest.mark.parametrize("when", [111.5, 113.0])
def test_an_answer_also_one_found_at_the_last_look_begins_the_time_anew(when: float) -> None:
    silence = Silence(TERMS, 100.0)
    silence.heard(101.0)
    assert answers(silence, 111.0)[-1] is Silent.ASK
    if when >= 113.0:
        assert answers(silence, 113.0) == [Silent.LISTEN]
    silence.heard(when)
    assert silence.wait(when) == 10.0
    assert answers(silence, when + 9.9, when + 10.0) == [Silent.LISTEN, Silent.ASK]


def test_one_that_hears_messages_is_never_asked() -> None:
    silence = Silence(TERMS, 0.0)
    for now in range(1, 100, 9):
        silence.heard(float(now))
        assert silence.nothing(now + 8.9) is Silent.LISTEN


def test_a_process_that_was_stopped_asks_before_it_gives_up() -> None:
    silence = Silence(TERMS, 0.0)
    silence.heard(1.0)
    assert silence.nothing(5000.0) is Silent.ASK
    assert silence.nothing(5001.0) is Silent.LISTEN


# --- planted faults ---------------------------------------------------------------------------


class NeverAsks:
    """What never asks its subscription."""

    def next(self, now: float) -> Step:
        step: Step = super().next(now)  # type: ignore[misc]
        return replace(step, ask_after=math.inf) if isinstance(step, Subscribe) else step


class NeverAskingNode(NeverAsks, NodeMachine):
    pass


class NeverAskingNearNode(NeverAsks, OwnRangesMachine):
    pass


class NeverAskingMember(NeverAsks, GroupMemberMachine):
    pass


def never_asking(config: NodeConfig, rng: Random) -> NodeMachine:
    return (NeverAskingNode if config.follow else NeverAskingNearNode)(config, rng)


@pytest.mark.parametrize(
    ("simulator", "history"),
    [
        (RingSimulator(machine=never_asking), random_history),
        (RingSimulator(machine=never_asking), lambda seed: own_ranges(random_history(seed))),
        (RingSimulator(machine=never_asking), random_lock_history),
        (GroupSimulator(machine=NeverAskingMember), random_group_history),
    ],
    ids=["ring", "own-ranges", "locks", "groups"],
)
def test_what_never_asks_is_found(simulator: Any, history: Callable[[int], Any]) -> None:
    found = next(h for h in map(history, range(200)) if simulator.broken_rule(h) == "hears")
    assert "BROKEN hears" in simulator.story(found)


def test_keys_come_to_rest_although_a_subscription_died_without_a_sign() -> None:
    history = own_ranges(random_lock_history(1003579))
    RingSimulator().play(history)
    planted = RingSimulator(machine=never_asking, rules=lambda history: [Calm()])
    assert planted.broken_rule(history) == "calm"
