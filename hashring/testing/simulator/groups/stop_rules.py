"""What must hold of members that stop.

**Goodbye.** A process that stops while Redis answers it has no lease there when it has left.
Excepted is what Redis lost, or brought back, meanwhile.
"""

from __future__ import annotations

from hashring.protocol.group.base_member_machine import Stage
from hashring.testing.simulator.groups.process import GroupProcess
from hashring.testing.simulator.groups.world import GroupRule, GroupWorld


class MemberGoodbye(GroupRule):
    name = "goodbye"

    def __init__(self) -> None:
        self._began: dict[str, float] = {}

    def asked_to_stop(self, world: GroupWorld, process: GroupProcess) -> None:
        self._began[process.spec.label] = world.now

    def shown(self, world: GroupWorld, process: GroupProcess) -> None:
        label = process.spec.label
        if process.machine.stage is not Stage.LEFT or label not in self._began:
            return
        began = self._began.pop(label)
        if max(process.trouble_until, world.lost_at) >= began:
            return
        facts = world.reading().facts
        for member in (*facts.members, *facts.unreadable):
            if member.session in process.sessions:
                raise self.broken(world, f"{label} has left, and Redis has its lease")
