"""A world: processes, a network and a Redis, in virtual time, for the protocol of any machine.

Nothing here decides anything about rings or groups. The protocols are the machines that ship, and
Redis is a server in memory that runs the scripts that ship. What is simulated lies between them:
:mod:`.virtual_time`, the :mod:`.network`, and in each :mod:`.process` a :mod:`.simulated_loop`
for each machine.

The world of a protocol (:mod:`.ring.world` and its siblings) says which processes there are and
what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from hashring.errors import OutOfMemory, RedisUnavailable
from hashring.store.memory_store import MemoryServer
from hashring.testing.simulator.history import Event, History
from hashring.testing.simulator.network import Call, Networked
from hashring.testing.simulator.process import Process
from hashring.testing.simulator.virtual_time import NEVER, VirtualTime

P = TypeVar("P", bound=Process)

Fault = Callable[["World[Any]", Event], None]
"""What a kind of event does to a world."""


class World(VirtualTime, Generic[P]):
    """One run of a history; subclasses say what its processes are.

    Args:
        history: what happens.
        rules: what is watched.
        faults: what each kind of event does.
        server: makes the server in memory, from its clock.
        story: whether to keep a story of the run.
    """

    io_timeout: float = 1.0
    """Seconds that a process waits for an answer."""

    def __init__(
        self,
        history: History,
        rules: Sequence[Any],
        faults: Mapping[str, Fault],
        server: Callable[[Callable[[], float]], MemoryServer] = MemoryServer,
        *,
        story: bool = False,
    ) -> None:
        super().__init__()
        self.history = history
        self.rules = rules
        self.server = server(self.redis_time)
        self.processes: dict[str, P] = {}
        self.down_until = 0.0
        self.hang_until = 0.0
        self.refuses_until = 0.0
        self.lost_at = NEVER
        """When Redis last lost data."""
        self.sent_at = NEVER
        """When the command was sent that Redis ran last."""
        self.late_until = 0.0
        """When the last command that is long on its way will have arrived."""
        self.copies: dict[Event, object] = {}
        """Of Redis' data, for what will put it back."""
        self.story: list[str] | None = [] if story else None
        self._faults = faults
        self._specs = {spec.label: spec for spec in history.processes}
        for rule in rules:
            rule.begin(self)
        for event in history.events:
            if event.kind in ("failover", "rewind"):
                self._copy_at(max(0.0, event.at - event.lag_and_skew[0]), event)
        for event in history.events:
            self.at(event.at, self._happening(event))

    def make(self, spec: Any) -> P:
        """A process that is about to start."""
        raise NotImplementedError

    def summary(self, reply: Any) -> str:
        """An answer of Redis' for the story."""
        return getattr(reply, "value", type(reply).__name__)

    def say(self, process: Networked | None, what: str) -> None:
        """Add a line to the story."""
        if self.story is not None:
            who = process.spec.label if process else "redis"
            self.story.append(f"{self.now:7.3f}  {who:<6} {what}")

    # --- processes ----------------------------------------------------------------------------

    def start(self, label: str) -> None:
        """Start a process, once."""
        spec = self._specs.get(label)
        if spec is not None and label not in self.processes:
            self.processes[label] = process = self.make(spec)
            process.start()

    def running(self, label: str) -> P | None:
        """The process, if it runs."""
        process = self.processes.get(label)
        return process if process is not None and process.alive else None

    @property
    def alive(self) -> list[P]:
        """The processes that run and are not about to end."""
        return [p for p in self.processes.values() if p.alive and not p.stopping]

    def shown(self, process: P) -> None:
        """What the process' application may see has changed, or the process has ended."""
        for rule in self.rules:
            rule.shown(self, process)

    def asked_to_stop(self, process: P) -> None:
        """The process' application is about to stop it."""
        for rule in self.rules:
            rule.asked_to_stop(self, process)

    def connected_at(self, process: P) -> float:
        """True time up to which a process could not use Redis as it should."""
        redis = max(self.down_until, self.hang_until, self.refuses_until)
        return max(redis, process.trouble_until)

    def told_yes(self, process: P, keys: Sequence[bytes]) -> None:
        """The process allowed its application to work on these keys."""
        if self.story is not None and keys:
            self.say(process, f"may work on {b' '.join(keys).decode()}")
        for rule in self.rules:
            rule.told_yes(self, process, keys)

    def set_clock_back(self, seconds: float) -> None:
        """Somebody sets Redis' clock back."""
        self.set_back += seconds
        self.set_back_at = self.now
        for rule in self.rules:
            rule.set_back(self)

    @property
    def lost_and_set_back(self) -> bool:
        """Whether Redis has lost data, and its clock was set back: before that or later.

        Then tokens may fall, and what is newer than the loss may look older.
        """
        return self.set_back_at > NEVER and self.lost_at > NEVER

    # --- Redis --------------------------------------------------------------------------------

    def execute(self, process: P, call: Call) -> None:
        """A command has reached Redis."""
        if self.now < self.hang_until:
            self.at(self.hang_until, lambda: self.execute(process, call))
            return
        if self.now < self.down_until or self.now < process.cut_until:
            call.arrived(call, RedisUnavailable("connection reset"))
            return
        if self.now < self.refuses_until:
            refused = OutOfMemory("OOM command not allowed when used memory > 'maxmemory'")
            self.at(self.now + process.latency(), lambda: call.arrived(call, refused))
            return
        reply = self.server.run(call.command)
        call.executed, self.sent_at = self.now, call.sent
        if call.given_up:
            process.late_at = self.now
        if self.story is not None:
            self.say(process, f"{call.command.script.name} -> {self.summary(reply)}")
        for rule in self.rules:
            rule.executed(self, process, call.command, reply)
        process.reply(call, reply)

    def touched(self, *, lost: bool) -> None:
        """Somebody changed Redis' data behind everyone's back."""
        if lost:
            self.lost_at = self.now
        for rule in self.rules:
            rule.touched(self, lost)

    def heal(self) -> None:
        """No fault that still waits for its occasion will happen."""
        for process in self.processes.values():
            process.messages_to_lose = process.replies_to_lose = process.calls_to_repeat = 0
            process.pauses_unsent.clear()
            process.pauses_untold.clear()
            process.slow_commands.clear()
            process.slow_joins.clear()
            process.slow_replies.clear()

    def _happening(self, event: Event) -> Callable[[], None]:
        def happen() -> None:
            if self.story is not None:
                self.story.append(f"{event}   <--")
            self._faults[event.kind](self, event)

        return happen

    def _copy_at(self, when: float, event: Event) -> None:
        def copy() -> None:
            self.copies[event] = self.server.copy()

        self.at(when, copy)
