"""A partition group in virtual time: its processes, and a Redis in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hashring.core.groups.state import GroupState, Terms
from hashring.protocol.group.base_member_machine import ENDED
from hashring.protocol.group.group_decider import Decider
from hashring.protocol.group.group_member_machine import GroupMemberMachine
from hashring.store.group.commands import Beat, Committed
from hashring.store.group.reading import Reading, Reports, read
from hashring.store.memory_store import MemoryServer
from hashring.testing.simulator.groups.history import GroupHistory, MemberSpec
from hashring.testing.simulator.groups.process import KEYS, GroupProcess
from hashring.testing.simulator.rules import Rule
from hashring.testing.simulator.virtual_time import NEVER
from hashring.testing.simulator.world import Fault, World


class GroupWorld(World[GroupProcess]):
    """A partition group in virtual time; see :class:`hashring.testing.simulator.world.World`.

    Args:
        machine, decider: make a member's protocol; a test plants its faults here.
    """

    history: GroupHistory

    def __init__(
        self,
        history: GroupHistory,
        rules: Sequence[GroupRule],
        faults: dict[str, Fault],
        machine: Callable[..., GroupMemberMachine] = GroupMemberMachine,
        *,
        decider: Callable[..., Decider] = Decider,
        server: Callable[[Callable[[], float]], MemoryServer] = MemoryServer,
        story: bool = False,
    ) -> None:
        self.io_timeout = history.terms.ttl / 3
        self.longest_ttl = history.most("ttl")
        self.rolled_back_at = NEVER
        """When Redis last lost its latest writes, and kept what was older."""
        self.emptied_at = NEVER
        """When Redis last lost everything."""
        self._machine = machine
        self._decider = decider
        self._loads: dict[int, float] = {}
        self._reports: Reports = {}
        super().__init__(history, rules, faults, server, story=story)

    def make(self, spec: MemberSpec) -> GroupProcess:
        """A member's process."""
        return GroupProcess(self, spec, self._machine, self._decider)

    def heal(self) -> None:
        """As for every world; and applications say no more what nobody asked for."""
        super().heal()
        for process in self.processes.values():
            process.odd = None

    def start(self, label: str) -> None:
        """Start a process, but not in a Redis that has just lost everything.

        A process that is new to it cannot know that others are about to return: exclusion is not
        promised then.
        """
        again = self.known_again
        if self.now < again:
            self.late_until = max(self.late_until, again)
            self.at(again, lambda: self.start(label))
        else:
            super().start(label)

    @property
    def known_again(self) -> float:
        """When Redis knows of everybody again, after it last lost data."""
        since = max(self.emptied_at, self.rolled_back_at)
        return since + 2 * self.longest_ttl + 1e-6

    def load(self, partition: int) -> float:
        """How busy a partition is."""
        return self._loads.get(partition, float(1 + 7 * partition % 5))

    def busy(self, partition: int, load: float) -> None:
        """A partition becomes so busy, and its holder reports that."""
        self._loads[partition] = load
        for process in self.alive:
            process.machine.load(partition, load)

    def settled_in(self) -> bool:
        """Whether every member has acted on a decision, so that a loss of all data is noticed."""
        since = max(self.emptied_at, self.rolled_back_at)
        return self.now > since + 3 * self.longest_ttl and all(
            process.machine.holdings.seen or process.machine.stage in ENDED
            for process in self.processes.values()
            if process.alive
        )

    def reading(self) -> Reading:
        """The group as Redis has it now."""
        return self.server.run(read(KEYS, reports=self._reports))

    def state(self) -> GroupState:
        """What was decided last."""
        return self.reading().standing() or GroupState.new(self.terms)

    @property
    def terms(self) -> Terms:
        """What the group was founded on."""
        return self.history.terms

    def summary(self, reply: Any) -> str:
        """An answer of Redis' for the story."""
        if isinstance(reply, Beat):
            view = reply.view
            what = "" if view is None else f", {view.phase.value}, holds {sorted(view.held)}"
            if view is not None and view.revoked:
                what += f", is to let go of {sorted(view.revoked)}"
            return f"{reply.tag.partition(':')[0] or '0'}{what}{', a step is due' * reply.due}"
        if isinstance(reply, Reading):
            return f"generation {reply.tag.partition(':')[0] or '0'}"
        if isinstance(reply, Committed):
            state = self.state()
            owners = [state.holder(partition) for partition in state.existing]
            return f"{state.generation}, {state.phase.value}: {', '.join(map(str, owners))}"
        return "no" if reply is None else super().summary(reply)


GroupRule = Rule[GroupWorld, GroupProcess]
