"""Members of a lease challenge on one server in memory, with answers that are lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hashring.core.groups.lease_table import LeaseTable, LeaseTableRules
from hashring.core.groups.membership import PartitionChangeKind
from hashring.errors import RedisUnavailable
from hashring.protocol.base_member_machine import Stage
from hashring.protocol.lease_table_machine import LeaseTableMachine
from hashring.protocol.machine_steps import Run, Subscribe
from hashring.store.lease_challenge.commands import (
    TableReading,
    begin_table,
    challenge_keys,
    read_table,
    write_table,
)
from hashring.store.memory_store import MemoryServer

KEYS = challenge_keys("work")
RULES = LeaseTableRules(ttl=6.0, interval=1.0, max_handoff_time=0.5, residency=0.0)
BEGIN = begin_table(KEYS).script.name
READ = read_table(KEYS).script.name
WRITE = write_table(KEYS, TableReading(0.0, "", None, "", False), LeaseTable(1), ()).script.name


class Challenge:
    """A server, and the time."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.server = MemoryServer(lambda: self.now)
        self.before: Callable[[str], None] = lambda _: None
        self.lost = ""

    def member(self, name: str) -> LeaseTableMachine:
        return LeaseTableMachine(
            "work",
            KEYS,
            name,
            partitions=4,
            rules=RULES,
            new_suffix=lambda: "1",
            chance=lambda: 0.5,
        )

    def settle(self, machine: LeaseTableMachine) -> None:
        """Let the member do what is due."""
        while isinstance(step := machine.next(self.now), Run | Subscribe):
            if isinstance(step, Subscribe):
                machine.subscribed(step.number, self.now)
                continue
            name = step.command.script.name
            self.before(name)
            reply = self.server.run(step.command)
            if name == self.lost:
                self.lost = ""
                step.failed(RedisUnavailable("connection reset"), self.now)
            else:
                step.done(reply, self.now, self.now)
            self._let_go(machine)

    def _let_go(self, machine: LeaseTableMachine) -> None:
        changes, machine.changes = machine.changes, []
        for each in changes:
            if each.kind is PartitionChangeKind.REVOKED:
                machine.release(each.partition, each.token, self.now)

    def started(self, name: str) -> LeaseTableMachine:
        machine = self.member(name)
        machine.start(self.now)
        self.settle(machine)
        return machine

    def table(self) -> Any:
        return self.server.run(read_table(KEYS)).table

    def pass_time(self, seconds: float, *machines: LeaseTableMachine) -> None:
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


def test_a_member_that_comes_back_late_does_not_stop_the_others_from_taking() -> None:
    challenge = Challenge()
    paused, taker = challenge.started("a"), challenge.started("b")
    challenge.pass_time(RULES.ttl + 1.0, taker)
    assert len(taker.membership.held(challenge.now)) == 4
    taker.stop(challenge.now, patient=False)
    challenge.settle(taker)
    assert challenge.table().members == {}
    challenge.settle(paused)
    assert len(paused.membership.held(challenge.now)) == 4


def test_a_member_that_the_table_lacks_while_its_lease_lasts_says_what_it_holds() -> None:
    challenge = Challenge()
    machine = challenge.started("a")
    challenge.pass_time(1.0, machine)
    held = dict(machine.membership.held(challenge.now))
    assert len(held) == 4
    # Redis is back without the last writes.
    reading = challenge.server.run(read_table(KEYS))
    older = replace(reading.table, members={}, leases={})
    assert challenge.server.run(write_table(KEYS, reading, older, ()))
    challenge.pass_time(1.0, machine)
    assert machine.membership.held(challenge.now) == held


def test_a_write_from_before_a_second_loss_is_not_done_after_it() -> None:
    challenge = Challenge()
    first, second = challenge.started("a"), challenge.started("b")
    challenge.pass_time(5.0, first, second)
    assert [len(each.membership.held(challenge.now)) for each in (first, second)] == [2, 2]
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
        both = [each.membership.held(challenge.now).keys() for each in (first, second)]
        assert not both[0] & both[1], f"held by two at {challenge.now:g} s"
    assert len(first.membership.held(challenge.now)) == 4
