"""Members of a lease challenge on one server in memory, with answers that are lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hashring.core.groups.lease_challenge import LeaseChallengeRules, LeaseTable
from hashring.core.groups.partition_change import PartitionChangeKind
from hashring.errors import RedisUnavailable
from hashring.protocol.group.base_member_machine import Stage
from hashring.protocol.group.lease_challenge_machine import LeaseChallengeMachine
from hashring.protocol.machine_steps import Run, Subscribe
from hashring.store.command import Command
from hashring.store.lease_challenge.commands import (
    TableReading,
    begin_table,
    challenge_keys,
    read_table,
    write_table,
)
from hashring.store.memory_store import MemoryServer

KEYS = challenge_keys("work")
RULES = LeaseChallengeRules(ttl=6.0, interval=1.0, max_handoff_time=0.5, residency=0.0)
BEGIN = begin_table(KEYS).script.name
READ = read_table(KEYS).script.name
IDENTITY, NO_IDENTITY = "a table with an identity", "a table of a version without"
WRITE = write_table(
    KEYS, TableReading(0.0, "", None, "", False, None), LeaseTable(1), ()
).script.name


class Challenge:
    """A server, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.server = MemoryServer(lambda: self.now)
        self.before: Callable[[str], None] = lambda _: None
        self.lost = ""
        self.late = ""
        self.on_its_way: list[Command[Any]] = []
        self.ran: list[str] = []

    def member(self, name: str) -> LeaseChallengeMachine:
        return LeaseChallengeMachine(
            "work",
            KEYS,
            name,
            partitions=4,
            rules=RULES,
            new_suffix=lambda: "1",
            chance=lambda: 0.5,
        )

    def settle(self, machine: LeaseChallengeMachine) -> None:
        """Let the member do what is due."""
        while isinstance(step := machine.next(self.now), Run | Subscribe):
            if isinstance(step, Subscribe):
                machine.subscribed(step.number, self.now)
                continue
            name = step.command.script.name
            self.before(name)
            self.ran.append(name)
            if name == self.late:
                self.late = ""
                self.on_its_way.append(step.command)
                step.failed(RedisUnavailable("timed out"), self.now)
                continue
            reply = self.server.run(step.command)
            if name == self.lost:
                self.lost = ""
                step.failed(RedisUnavailable("connection reset"), self.now)
            else:
                step.done(reply, self.now, self.now)
            self._let_go(machine)

    def _let_go(self, machine: LeaseChallengeMachine) -> None:
        changes, machine.changes = machine.changes, []
        for each in changes:
            if each.kind is PartitionChangeKind.REVOKED:
                machine.release(each.partition, each.token, self.now)

    def started(self, name: str) -> LeaseChallengeMachine:
        machine = self.member(name)
        machine.start(self.now)
        self.settle(machine)
        return machine

    def table(self) -> Any:
        return self.server.run(read_table(KEYS)).table

    def begun(self, how: str) -> None:
        """The table is begun, by this version or as one does whose tables have no identity."""
        self.server.run(begin_table(KEYS))
        if how == NO_IDENTITY:
            for field in (b"begun", b"server"):
                self.server.edit(KEYS.table, field, lambda _: None)

    def pass_time(self, seconds: float, *machines: LeaseChallengeMachine) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.5
            for machine in machines:
                self.settle(machine)


@pytest.mark.parametrize("name", [BEGIN, READ, WRITE])
def test_a_start_that_fails_leaves_no_member_behind(name: str) -> None:
    challenge = Challenge()
    challenge.lost = name
    machine = challenge.started("a")
    assert machine.stage is Stage.FAILED
    assert isinstance(machine.failure, RedisUnavailable)
    table = challenge.table()
    assert table is None or (table.members, table.held("a#1", challenge.now)) == ({}, {})


@pytest.mark.parametrize("found", ["nothing", "a table", "a table of another run of Redis"])
def test_a_write_that_arrives_after_a_start_has_failed_is_not_done(found: str) -> None:
    challenge = Challenge()
    if found != "nothing":
        come_and_go(challenge)
    if found == "a table of another run of Redis":
        challenge.server.restore(challenge.server.copy())
    challenge.late = WRITE
    assert challenge.started("a").stage is Stage.FAILED
    before = challenge.server.run(read_table(KEYS))
    assert not challenge.server.run(*challenge.on_its_way)
    after = challenge.server.run(read_table(KEYS))
    assert (after.table, after.elsewhere) == (before.table, before.elsewhere)
    assert after.elsewhere == (found == "a table of another run of Redis")
    assert len(challenge.started("b").holdings.held(challenge.now)) == 4 * (not after.elsewhere)


def test_a_write_that_arrives_just_before_a_failed_start_goes_is_taken_back() -> None:
    challenge = Challenge()
    challenge.late = WRITE

    def arrive(name: str) -> None:
        if name == BEGIN and challenge.on_its_way:
            assert challenge.server.run(challenge.on_its_way.pop())

    challenge.before = arrive
    assert challenge.started("a").stage is Stage.FAILED
    assert not challenge.on_its_way
    assert challenge.table().members == {}


@pytest.mark.parametrize(("name", "ran"), [(READ, [READ]), (BEGIN, [READ, BEGIN])])
def test_a_start_that_has_written_nothing_asks_no_more_once_it_has_failed(
    name: str, ran: list[str]
) -> None:
    challenge = Challenge()
    challenge.late = name
    assert challenge.started("a").stage is Stage.FAILED
    assert challenge.ran == ran


@pytest.mark.parametrize("done", [False, True])
def test_a_start_that_fails_sends_a_message_only_if_it_was_in_the_table(done: bool) -> None:
    challenge = Challenge()
    other = challenge.started("b")
    told: list[bytes] = []
    challenge.server.listen(KEYS.told, told.append)
    challenge.late, challenge.lost = ("", WRITE) if done else (WRITE, "")
    assert challenge.started("a").stage is Stage.FAILED
    assert challenge.ran[-4:] == [READ, WRITE, READ, WRITE]
    assert challenge.table().members.keys() == {"b#1"}
    # With its first write it asks for a partition of the other one.
    assert told == [b"b#1", b"b#1"] * done
    assert other.stage is Stage.MEMBER


def test_a_member_that_comes_back_late_does_not_stop_the_others_from_taking() -> None:
    challenge = Challenge()
    paused, taker = challenge.started("a"), challenge.started("b")
    challenge.pass_time(RULES.ttl + 1.0, taker)
    assert len(taker.holdings.held(challenge.now)) == 4
    taker.stop(challenge.now, patient=False)
    challenge.settle(taker)
    assert challenge.table().members == {}
    challenge.settle(paused)
    assert len(paused.holdings.held(challenge.now)) == 4


def test_a_member_that_the_table_lacks_while_its_lease_lasts_says_what_it_holds() -> None:
    challenge = Challenge()
    machine = challenge.started("a")
    challenge.pass_time(1.0, machine)
    held = dict(machine.holdings.held(challenge.now))
    assert len(held) == 4
    # Redis is back without the last writes.
    reading = challenge.server.run(read_table(KEYS))
    older = replace(reading.table, members={}, leases={})
    assert challenge.server.run(write_table(KEYS, reading, older, ()))
    challenge.pass_time(1.0, machine)
    assert machine.holdings.held(challenge.now) == held


def test_a_write_from_before_a_second_loss_is_not_done_after_it() -> None:
    challenge = Challenge()
    first, second = challenge.started("a"), challenge.started("b")
    challenge.pass_time(5.0, first, second)
    assert [len(each.holdings.held(challenge.now)) for each in (first, second)] == [2, 2]
    challenge.server.wipe()

    def lose_again(name: str) -> None:
        if name == WRITE:
            challenge.before = lambda _: None
            challenge.pass_time(3.0, second)
            assert challenge.table() is not None
            challenge.server.wipe()

    challenge.before = lose_again
    # The second is paused from here on, and holds what it has until its own lease ends.
    for _ in range(20):
        challenge.pass_time(0.5, first)
        both = [each.holdings.held(challenge.now).keys() for each in (first, second)]
        assert not both[0] & both[1], f"held by two at {challenge.now:g} s"
    assert len(first.holdings.held(challenge.now)) == 4


def dropped_before_a_loss(
    challenge: Challenge,
) -> tuple[LeaseChallengeMachine, LeaseChallengeMachine]:
    """A paused member, and one that holds everything; then Redis loses the table."""
    paused, holder = challenge.started("a"), challenge.started("d")
    challenge.pass_time(RULES.ttl + 1.0, holder)
    assert len(holder.holdings.held(challenge.now)) == 4
    challenge.server.wipe()
    return paused, holder


def both_hold(challenge: Challenge, *machines: LeaseChallengeMachine) -> set[int]:
    first, second = (each.holdings.held(challenge.now).keys() for each in machines)
    return first & second


def come_and_go(challenge: Challenge) -> None:
    """A newcomer, which does not know of the loss, starts and stops."""
    newcomer = challenge.started("n")
    newcomer.stop(challenge.now, patient=False)
    challenge.settle(newcomer)
    assert challenge.table().members == {}


@pytest.mark.parametrize(
    ("before", "after"), [(IDENTITY, IDENTITY), (NO_IDENTITY, IDENTITY), (IDENTITY, NO_IDENTITY)]
)
def test_a_member_that_was_dropped_waits_after_a_loss_though_others_have_begun_a_new_table(
    before: str, after: str
) -> None:
    challenge = Challenge()
    challenge.begun(before)
    paused, holder = dropped_before_a_loss(challenge)
    challenge.begun(after)
    come_and_go(challenge)
    challenge.now += 0.1
    challenge.settle(paused)
    assert not both_hold(challenge, paused, holder)
    # The holder is paused from here on, and holds what it has until its own lease ends.
    for _ in range(20):
        challenge.pass_time(0.5, paused)
        assert not both_hold(challenge, paused, holder)
    assert len(paused.holdings.held(challenge.now)) == 4


def test_a_member_that_starts_again_waits_after_a_loss_though_others_have_begun_a_new_table() -> (
    None
):
    challenge = Challenge()
    back, holder = challenge.started("a"), challenge.started("d")
    back.stop(challenge.now, patient=False)
    challenge.settle(back)
    challenge.pass_time(1.0, holder)
    assert len(holder.holdings.held(challenge.now)) == 4
    challenge.server.wipe()
    come_and_go(challenge)
    back.start(challenge.now)
    challenge.settle(back)
    assert back.stage is Stage.MEMBER
    assert not back.holdings.held(challenge.now)
    for _ in range(20):
        challenge.pass_time(0.5, back)
        assert not both_hold(challenge, back, holder)
    assert len(back.holdings.held(challenge.now)) == 4


def test_what_a_newcomer_leaves_is_not_taken_while_others_from_before_a_loss_may_hold_it() -> None:
    challenge = Challenge()
    paused, holder = dropped_before_a_loss(challenge)
    newcomer = challenge.started("n")
    challenge.settle(paused)
    newcomer.stop(challenge.now, patient=False)
    challenge.settle(newcomer)
    for _ in range(10):
        challenge.pass_time(0.5, paused)
        assert not both_hold(challenge, paused, holder)


def test_a_loss_is_not_forgotten_when_another_was_faster_to_write() -> None:
    challenge = Challenge()
    paused, holder = dropped_before_a_loss(challenge)
    come_and_go(challenge)

    def be_faster(name: str) -> None:
        if name == WRITE:
            challenge.before = lambda _: None
            come_and_go(challenge)

    challenge.before = be_faster
    challenge.settle(paused)
    assert not both_hold(challenge, paused, holder)


def test_a_newcomer_that_another_was_faster_than_takes_that_for_no_loss() -> None:
    challenge = Challenge()
    holder = challenge.started("d")

    def be_faster(name: str) -> None:
        if name == WRITE:
            challenge.before = lambda _: None
            holder.stop(challenge.now, patient=False)
            challenge.settle(holder)

    challenge.before = be_faster
    newcomer = challenge.started("n")
    challenge.pass_time(RULES.ttl / 2, newcomer)
    assert len(newcomer.holdings.held(challenge.now)) == 4


def test_members_wait_when_an_older_table_was_put_back() -> None:
    challenge = Challenge()
    come_and_go(challenge)
    older = challenge.server.copy()
    challenge.now += RULES.ttl
    challenge.server.wipe()
    paused, holder = challenge.started("a"), challenge.started("d")
    challenge.pass_time(RULES.ttl + 1.0, holder)
    assert len(holder.holdings.held(challenge.now)) == 4
    challenge.server.restore(older, same_run=True)
    challenge.settle(paused)
    assert not both_hold(challenge, paused, holder)


def test_a_newcomer_waits_when_redis_came_back_from_just_before_the_first_write() -> None:
    challenge = Challenge()
    challenge.server.run(begin_table(KEYS))
    older = challenge.server.copy()
    holder = challenge.started("d")
    challenge.server.restore(older)
    newcomer = challenge.started("n")
    assert newcomer.stage is Stage.MEMBER
    assert not both_hold(challenge, newcomer, holder)
    challenge.pass_time(RULES.ttl, newcomer)
    assert len(newcomer.holdings.held(challenge.now)) == 4


def test_nobody_waits_for_a_loss_that_is_older_than_every_lease() -> None:
    challenge = Challenge()
    back = challenge.started("a")
    back.stop(challenge.now, patient=False)
    challenge.settle(back)
    challenge.server.wipe()
    come_and_go(challenge)
    challenge.now += RULES.ttl
    back.start(challenge.now)
    challenge.settle(back)
    assert len(back.holdings.held(challenge.now)) == 4
