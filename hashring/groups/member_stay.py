"""One stay of a member in its group, from ``start()`` to its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from hashring.core.groups.partition_change import PartitionChange
from hashring.monkey_patching import native_mutex
from hashring.protocol.group.base_member_machine import BaseMemberMachine
from hashring.running.machine_loop import Loop
from hashring.running.native_threads import native_latch
from hashring.running.threads_and_greenlets import Latch


@dataclass(eq=False)
class Stay:
    """One stay in a group. All it calls may be called by any thread.

    Attributes:
        deliver: hands a change to the caller; ``None`` is the last.
        entered: says that the member has entered, or has failed to.
        ended: says that all is over.
        waits_for_name: whether it waits while another session has the member's name.
        over: set when the member has let go of everything.
        threads: each set at the end of a thread; of those that have ended, not all are there.
        machine: the member's protocol; there once the stay has begun.
        loop: drives the machine.
        inside: whether the member has entered.
        failure: why the member did not enter.
        deaf: nobody runs callbacks any more.
        begun: held by the renewer's thread from its first line on; or by who came before it to
            say that nothing is to begin.
    """

    deliver: Callable[[PartitionChange | None], None]
    entered: Callable[[], None]
    ended: Callable[[], None]
    waits_for_name: bool
    over: Latch = field(default_factory=native_latch)
    threads: list[Latch] = field(default_factory=list)
    machine: BaseMemberMachine | None = None
    loop: Loop | None = None
    inside: bool = False
    failure: BaseException | None = None
    deaf: bool = False
    begun: Any = field(default_factory=native_mutex)

    def stop(self, *, handover: bool = False) -> None:
        """Have the member leave. Safe in a signal handler."""
        loop, machine = self.loop, self.machine
        if loop is not None and machine is not None:
            loop.tell(lambda now: machine.stop(now, handover=handover, patient=not self.deaf))

    def abandon(self) -> None:
        """Nobody runs callbacks any more: have the member leave without waiting for any."""
        self.deaf = True
        if self.begun.acquire(blocking=False):
            self.over.set()
            self.ended()
        self.stop()
