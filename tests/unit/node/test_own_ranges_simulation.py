"""Histories of faults for nodes that know only their own ranges, alone and beside others.

The rules, and what they promise, are in :mod:`hashring.testing.simulator.ring.node_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from hashring.protocol.node.node_machine import NodeConfig, NodeMachine
from hashring.protocol.node.own_ranges_machine import OwnRangesMachine
from hashring.store.ring.commands import BeatReply
from hashring.testing.simulator import (
    RingSimulator,
    own_ranges,
    random_history,
    random_lock_history,
    with_returns,
)
from tests.unit.histories import find_fault, none_breaks_a_rule
from tests.unit.planted_scripts import plant, plant_at_the_beginning

BATCH = 200
FAULT_BUDGET = 1500
"""A planted fault must be found within this many histories."""

LATE = (177, 182, 75)
"""The seeds that are tried first."""


@pytest.mark.parametrize("first", range(0, 5 * BATCH, BATCH))
def test_no_history_breaks_a_rule(first: int) -> None:
    none_breaks_a_rule(
        RingSimulator(), lambda seed: own_ranges(random_history(seed)), range(first, first + BATCH)
    )


def test_no_history_with_locks_breaks_a_rule() -> None:
    none_breaks_a_rule(
        RingSimulator(), lambda seed: own_ranges(random_lock_history(seed)), range(BATCH)
    )


def test_no_history_of_nodes_that_are_started_again_breaks_a_rule() -> None:
    none_breaks_a_rule(
        RingSimulator(), lambda seed: with_returns(own_ranges(random_history(seed))), range(BATCH)
    )


def test_who_loses_its_name_while_it_waits_for_an_answer_may_learn_it_from_the_next() -> None:
    none_breaks_a_rule(
        RingSimulator(), lambda seed: own_ranges(random_history(seed)), range(500340, 500341)
    )


# --- planted faults ---------------------------------------------------------------------------


def found(simulator: RingSimulator, rules: str) -> None:
    find_fault(simulator, rules, lambda seed: own_ranges(random_history(seed)), FAULT_BUDGET, LATE)


class IgnoresItsHeartbeats(OwnRangesMachine):
    """Once it knows its ranges it does not look at what its heartbeats state, for messages come."""

    def _learn(self, reply: BeatReply, heard: list[Any], now: float) -> None:
        if self.near.reaches:
            reply = replace(reply, ranges=self.near.reaches)
        super()._learn(reply, heard, now)


class MissesWhatCrosses(OwnRangesMachine):
    """A change that it hears of while its heartbeat is under way is lost to the answer."""

    def _learn(self, reply: BeatReply, heard: list[Any], now: float) -> None:
        super()._learn(reply, [], now)


MACHINES = [IgnoresItsHeartbeats, MissesWhatCrosses]


@pytest.mark.parametrize("machine", MACHINES)
def test_a_fault_in_the_node_is_found(machine: type[OwnRangesMachine]) -> None:
    def of_kind(config: NodeConfig, rng: Random) -> NodeMachine:
        return NodeMachine(config, rng) if config.follow else machine(config, rng)

    found(RingSimulator(machine=of_kind), "own|recovery")


def _tells_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """A neighbour is not told."""
    plant_at_the_beginning(monkeypatch, TELL, "return")


def _tells_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several points that change at once, one is told of."""
    plant_at_the_beginning(monkeypatch, TELL, "points = {points[1]}")


def _tells_no_joiner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two joins between the same neighbours, the first node is not told of the second."""
    told = "  change.points = nil\n"
    forgets = """
      local last = redis.call('GET', 'joined last')
      if last then concerned[last] = nil end
      for i = #order, 1, -1 do if order[i] == last then table.remove(order, i) end end
      if change.kind == 'join' then redis.call('SET', 'joined last', own) end
    """
    plant(monkeypatch, (told, forgets + told))


def _tells_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What expired is still on the index when the neighbours are told."""
    begins, ends = (
        "  local nodes, points, ends = {}, {}, {}\n  sweep_drained",
        "(ends, change, by, gone)\n  return swept",
    )
    late = (
        "(ends, change, by, gone)\n  for _, members in ipairs(late) do take_off_index(members) end"
    )
    plant(
        monkeypatch,
        (begins, f"  local late = {{}}\n{begins}"),
        ("expired)\n  take_off_index(expired)", "expired)\n  late[#late + 1] = expired"),
        (ends, f"{late}\n  return swept"),
    )


def _never_reconciles(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that was lost, or a member that nobody vouches for, stays as it is."""
    plant_at_the_beginning(monkeypatch, "reconcile(by, history, swept)", "return 0")


def _never_looks_at_the_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is back is told the ranges that it had, whatever changed meanwhile."""
    plant(monkeypatch, ("left_ranges ~= '' and left_at == tag then", "left_ranges ~= '' then"))


def _gives_up_what_it_does_not_know_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who did not hear where it is back leaves its replicas there under a name that nobody has."""
    plant(monkeypatch, ("if #members == 0 and not ", "if false and not "))


TELL = "tell_neighbours(points, change, own, gone)"
SERVERS = [
    _tells_nobody,
    _tells_one,
    _tells_no_joiner,
    _tells_before,
    _never_reconciles,
    _never_looks_at_the_tag,
    _gives_up_what_it_does_not_know_of,
]


@pytest.mark.parametrize("plant", SERVERS)
def test_a_fault_in_redis_scripts_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found(RingSimulator(), "own|recovery|told|freshness|stays")
