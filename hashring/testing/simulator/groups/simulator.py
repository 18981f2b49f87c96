"""The engine for partition groups: what is played, and how long it may take to recover."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hashring.core.groups import reported_loads
from hashring.protocol.group.group_decider import Decider
from hashring.protocol.group.group_member_machine import GroupMemberMachine
from hashring.store.memory_store import MemoryServer
from hashring.testing.simulator.groups.at_rest_rules import RENEWALS_AT_REST, patience, unrest
from hashring.testing.simulator.groups.fault_effects import GROUP_FAULTS
from hashring.testing.simulator.groups.history import GroupHistory
from hashring.testing.simulator.groups.rule_sets import group_rules
from hashring.testing.simulator.groups.world import GroupRule, GroupWorld
from hashring.testing.simulator.play import Simulator
from hashring.testing.simulator.random_events import is_rare


@dataclass(frozen=True)
class GroupSimulator(Simulator[GroupHistory, GroupWorld]):
    """Plays histories of partition groups.

    Attributes:
        machine, decider: make a member's protocol. A test plants faults here.
        server: makes the server in memory, from its clock. Here as well.
        rules: makes a fresh set of rules.
    """

    machine: Callable[..., GroupMemberMachine] = GroupMemberMachine
    decider: Callable[..., Decider] = Decider
    server: Callable[[Callable[[], float]], MemoryServer] = MemoryServer
    rules: Callable[[], Sequence[GroupRule]] = group_rules

    def world(self, history: GroupHistory, *, story: bool = False) -> GroupWorld:
        """A run of a history that is about to begin."""
        return GroupWorld(
            history,
            self.rules(),
            GROUP_FAULTS,
            self.machine,
            decider=self.decider,
            server=self.server,
            story=story,
        )

    def patience(self, history: GroupHistory) -> tuple[float, float]:
        """Seconds to recover, and seconds to rest after that."""
        return patience(history), RENEWALS_AT_REST * history.interval

    def recover(self, world: GroupWorld, until: float) -> None:
        """Let time pass until nothing was decided or reported for a lease's length."""
        world.run(max(world.now, world.late_until))
        rested, stood = world.now, ("", 0)
        # Loads are looked at now and then, and that step notes a restart of Redis, too.
        looks = world.history.looks_at_loads
        quiet = world.longest_ttl + (reported_loads.LOOKED_AT_EVERY if looks else 0.0)
        while world.now < until:
            world.run(min(until, world.now + world.history.interval))
            reading = world.reading()
            # A slow decision may only have begun; what an application reports may change something.
            late = max(world.late_until, *(process.works_until for process in world.alive), 0.0)
            if world.now < late or unrest(world) or stood != (reading.tag, reading.changes):
                rested, stood = world.now, (reading.tag, reading.changes)
            elif world.now >= rested + quiet:
                return

    def again(self, history: GroupHistory) -> str:
        """The command line's options that play the history."""
        orders = any(event.kind in ("drain", "undrain", "weigh") for event in history.events)
        set_back = "--set-back " * (history.set_back > 0)
        return "--groups " + "--drains " * orders + set_back + "--rare " * is_rare(history)
