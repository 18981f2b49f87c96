"""Histories of faults for nodes that know only their own ranges, alone and beside others.

The rules, and what they promise, are in :mod:`hashring.testing.simulator.ring.node_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from hashring.node.node_machine import NodeConfig, NodeMachine
from hashring.node.own_ranges_machine import OwnRangesMachine
from hashring.store.ring import twin
from hashring.store.ring.commands import BeatReply
from hashring.testing.simulator import (
    RingSimulator,
    own_ranges,
    random_history,
    random_lock_history,
)
from tests.unit.histories import none_breaks_a_rule
from tests.unit.node import planted

BATCH = 200
FAULT_BUDGET = 1500
"""A planted fault must be found within this many histories."""


@pytest.mark.parametrize("first", range(0, 5 * BATCH, BATCH))
def test_no_history_breaks_a_rule(first: int) -> None:
    none_breaks_a_rule(
        RingSimulator(), lambda seed: own_ranges(random_history(seed)), range(first, first + BATCH)
    )


def test_no_history_with_locks_breaks_a_rule() -> None:
    none_breaks_a_rule(
        RingSimulator(), lambda seed: own_ranges(random_lock_history(seed)), range(BATCH)
    )


# --- planted faults ---------------------------------------------------------------------------


def found(simulator: RingSimulator, rules: str) -> None:
    planted.found(simulator, rules, lambda seed: own_ranges(random_history(seed)), FAULT_BUDGET)


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
    monkeypatch.setattr(twin.RingTwin, "_tell_neighbours", lambda self, *rest: None)


def _tells_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several points that change at once, one is told of."""
    tell = twin.RingTwin._tell_neighbours

    def told(self: Any, points: Any, *rest: Any) -> None:
        tell(self, list(points)[:1], *rest)

    monkeypatch.setattr(twin.RingTwin, "_tell_neighbours", told)


def _tells_no_joiner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two joins between the same neighbours, the first node is not told of the second."""
    tell = twin.RingTwin._tell_neighbours

    def told(self: Any, points: Any, change: dict[str, Any], own: str, gone: list[str]) -> None:
        index = self.ring.index
        last, neighbours = joined.get(id(self.ring)), index.neighbours
        index.neighbours = lambda *of: {
            node: ends for node, ends in neighbours(*of).items() if node != last
        }
        tell(self, points, change, own, gone)
        del index.neighbours
        if change.get("kind") == "join":
            joined[id(self.ring)] = own

    joined: dict[int, str] = {}
    monkeypatch.setattr(twin.RingTwin, "_tell_neighbours", told)


def _tells_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """What expired is still on the index when the neighbours are told."""
    sweep = twin.RingTwin._sweep

    def swept(self: Any, horizon: float, *rest: Any) -> int:
        index = self.ring.index
        take_off, index.take_off = index.take_off, lambda members: late.append(list(members))
        late: list[list[bytes]] = []
        try:
            return int(sweep(self, horizon, *rest))
        finally:
            index.take_off = take_off
            for members in late:
                take_off(members)

    monkeypatch.setattr(twin.RingTwin, "_sweep", swept)


def _never_reconciles(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that was lost, or a member that nobody vouches for, stays as it is."""
    monkeypatch.setattr(twin.RingTwin, "_reconcile", lambda self, *rest: 0)


def _never_looks_at_the_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is back is told the ranges that it had, whatever changed meanwhile."""
    left_there = twin.RingTwin._left_there

    def left(self: Any, name: bytes) -> Any:
        return left_there(self, name)._replace(tag=self.ring.tag)

    monkeypatch.setattr(twin.RingTwin, "_left_there", left)


SERVERS = [
    _tells_nobody,
    _tells_one,
    _tells_no_joiner,
    _tells_before,
    _never_reconciles,
    _never_looks_at_the_tag,
]


@pytest.mark.parametrize("plant", SERVERS)
def test_a_fault_in_redis_scripts_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found(RingSimulator(), "own|recovery|told|freshness")
