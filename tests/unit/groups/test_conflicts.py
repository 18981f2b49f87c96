"""A member of the lease challenge whose renewals always come second."""

from __future__ import annotations

import pytest

from hashring.core.groups.lease_challenge import LeaseChallengeRules
from hashring.errors import RedisUnavailable, WriteConflict
from hashring.protocol.flow import TRIES
from hashring.protocol.group.base_member_machine import RETRY, Stage
from hashring.protocol.group.lease_challenge_machine import LeaseChallengeMachine
from hashring.protocol.machine_steps import Run, Subscribe, Wait
from hashring.store.lease_challenge.commands import challenge_keys
from hashring.store.memory_store import MemoryServer

KEYS = challenge_keys("work")
RULES = LeaseChallengeRules(ttl=30.0, interval=5.0)


class Busy(MemoryServer):
    """A server on which somebody else is always faster, while that is wanted."""

    crowded = False
    writes = 0

    def run(self, command):  # type: ignore[no-untyped-def]
        if self.crowded and command.script.name == "lease_challenge_write":
            self.writes += 1
            return False
        return super().run(command)


def member(chance: float) -> LeaseChallengeMachine:
    return LeaseChallengeMachine(
        "work",
        KEYS,
        "a",
        partitions=4,
        rules=RULES,
        new_suffix=lambda: "1",
        chance=lambda: chance,
    )


def test_a_message_before_it_has_entered_does_not_concern_it() -> None:
    assert not member(0.5).concerns(KEYS.told, b"b#1")


@pytest.mark.parametrize("chance", [0.25, 0.75])
def test_it_gives_up_for_a_while_that_differs_from_member_to_member(chance: float) -> None:
    now = 100.0
    server = Busy(lambda: now)
    machine = member(chance)

    def settle() -> Wait:
        while not isinstance(step := machine.next(now), Wait):
            if isinstance(step, Run):
                step.done(server.run(step.command), now, now)
            elif isinstance(step, Subscribe):
                machine.subscribed(step.number, now)
        return step

    machine.start(now)
    now = settle().until
    assert machine.error is None
    server.crowded = True
    wait = settle()
    assert server.writes == TRIES
    assert isinstance(machine.error, WriteConflict)
    assert wait.until == now + RETRY * chance
    server.crowded, now = False, wait.until
    settle()
    assert machine.error is None


def test_a_start_that_always_comes_second_has_nothing_to_take_back() -> None:
    server = Busy(lambda: 100.0)
    for server.crowded in (False, True):
        machine = member(0.5)
        machine.start(100.0)
        while isinstance(step := machine.next(100.0), Run):
            step.done(server.run(step.command), 100.0, 100.0)
    assert machine.stage is Stage.FAILED
    assert isinstance(machine.failure, WriteConflict)
    assert server.writes == TRIES


def test_it_tries_again_as_soon_as_others_when_nobody_stood_in_its_way() -> None:
    machine = member(0.5)
    assert machine.again_after(RedisUnavailable("no answer")) == RETRY
