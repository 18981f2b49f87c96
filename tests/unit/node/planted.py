"""Faults that are planted in nodes."""

from __future__ import annotations

from random import Random

from hashring.protocol.node.node_machine import NodeConfig, NodeMachine
from hashring.protocol.node.own_ranges_machine import OwnRangesMachine, machine_of
from hashring.testing.simulator import RingSimulator


def with_the_fault(machine: type[NodeMachine]) -> RingSimulator:
    """A simulator in which the nodes of this machine's kind have its fault; others have none."""
    own = issubclass(machine, OwnRangesMachine)

    def of_kind(config: NodeConfig, rng: Random) -> NodeMachine:
        return machine(config, rng) if config.follow is not own else machine_of(config, rng)

    return RingSimulator(machine=of_kind)
