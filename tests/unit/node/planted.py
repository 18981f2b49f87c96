"""Faults that are planted in nodes, and the histories that must show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random

import pytest

from hashring.node.node_machine import NodeConfig, NodeMachine
from hashring.node.own_ranges_machine import OwnRangesMachine, machine_of
from hashring.testing.simulator import RingSimulator
from hashring.testing.simulator.ring.history import NodeHistory


def found(
    simulator: RingSimulator,
    rules: str,
    histories: Callable[[int], NodeHistory],
    budget: int,
    late: Iterable[int] = (),
) -> NodeHistory:
    """The first history in which a rule is broken; a rule not among these is another fault.

    Args:
        rules: the names of the rules that may be broken, with ``|`` between them.
        histories: the history of a seed.
        budget: how many histories are played before the fault counts as not found.
        late: seeds that found a fault late when they were chosen; they only save time.
    """
    for seed in (*late, *range(budget)):
        history = histories(seed)
        rule = simulator.broken_rule(history)
        if rule is not None:
            assert rule in rules.split("|"), simulator.story(history)
            return history
    pytest.fail(f"not found in {budget} histories")


def with_the_fault(machine: type[NodeMachine]) -> RingSimulator:
    """A simulator in which the nodes of this machine's kind have its fault; others have none."""
    own = issubclass(machine, OwnRangesMachine)

    def of_kind(config: NodeConfig, rng: Random) -> NodeMachine:
        return machine(config, rng) if config.follow is not own else machine_of(config, rng)

    return RingSimulator(machine=of_kind)
