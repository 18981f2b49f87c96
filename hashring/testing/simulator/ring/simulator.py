"""The engine for the ring's protocol: what is played, and how long it may take to recover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from hashring.protocol.node.node_machine import NodeConfig, NodeMachine
from hashring.protocol.node.own_ranges_machine import machine_of
from hashring.store.memory_store import MemoryServer
from hashring.testing.simulator.play import Simulator
from hashring.testing.simulator.random_events import has_returns, is_rare
from hashring.testing.simulator.ring.fault_effects import RING_FAULTS
from hashring.testing.simulator.ring.history import TTL, NodeHistory
from hashring.testing.simulator.ring.lock_rules import SETTLED
from hashring.testing.simulator.ring.node_rules import RECOVERY, REST
from hashring.testing.simulator.ring.rule_sets import rules_of
from hashring.testing.simulator.ring.world import RingRule, RingWorld


@dataclass(frozen=True)
class RingSimulator(Simulator[NodeHistory, RingWorld]):
    """Plays histories of rings.

    Attributes:
        machine: makes a node's protocol. A test plants faults here.
        server: makes the server in memory, from its clock. Here as well.
        rules: makes a fresh set of rules for a history.
    """

    machine: Callable[[NodeConfig, Random], NodeMachine] = machine_of
    server: Callable[[Callable[[], float]], MemoryServer] = MemoryServer
    rules: Callable[[NodeHistory], Sequence[RingRule]] = rules_of

    def world(self, history: NodeHistory, *, story: bool = False) -> RingWorld:
        """A run of a history that is about to begin."""
        return RingWorld(
            history, self.rules(history), RING_FAULTS, self.machine, self.server, story=story
        )

    def patience(self, history: NodeHistory) -> tuple[float, float]:
        """Seconds to recover, and seconds to rest after that."""
        skews = sum(2 * abs(e.lag_and_skew[1]) for e in history.events if e.kind == "failover")
        # Locks last by Redis' clock, and so do orders that have an end, and nodes whose ttl nobody
        # can read. What other scores show too late is less than a ttl.
        on_its_clock = history.locks is not None or any(
            event.kind in ("drain", "delete", "garbage entry") for event in history.events
        )
        skews += 2 * (history.set_back if on_its_clock else min(history.set_back, TTL))
        return (RECOVERY if history.locks is None else SETTLED) + skews, REST

    def again(self, history: NodeHistory) -> str:
        """The command line's options that play the history."""
        own = not all(spec.follow for spec in history.processes)
        drains = any(event.kind == "drain" for event in history.events)
        weights = any(event.kind in ("weigh", "weigh itself") for event in history.events)
        options = {
            "--locks": history.locks,
            "--own-ranges": own,
            "--drains": drains,
            "--weights": weights,
            "--returns": has_returns(history),
            "--set-back": history.set_back > 0,
            "--rare": is_rare(history),
        }
        return "".join(f"{name} " for name, given in options.items() if given)
