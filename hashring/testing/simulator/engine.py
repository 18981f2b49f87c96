"""Time, a network, processes and a Redis, for the protocol of any machine.

Nothing here decides anything about rings or groups. The protocols are the machines that ship, and
Redis is the twin in memory of the scripts that ship. What is simulated lies between them: time, a
loop for each machine, and a network that delays, loses and cuts.

A loop goes through the same motions as those of :mod:`hashring.running`: it hears what has
arrived, asks its machine what to do, does it, and reports how that went.

A world (:mod:`.ring.world` and its siblings) says which processes there are and what they do.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, ClassVar, Final, Generic, Protocol, TypeVar

from hashring.errors import RedisUnavailable
from hashring.protocol.machine import Machine, Run, Subscribe, Wait
from hashring.protocol.silence import Silence, Silent
from hashring.store.command import Command
from hashring.store.memory_store import MemoryServer
from hashring.testing.simulator.history import Event, History

EPOCH: Final = 1_700_000_000.0
"""Redis time at the beginning."""

LATENCY: Final = 0.0302
"""The longest that a message takes one way while all is well, in seconds."""

NEVER: Final = float("-inf")

# A loop that takes this many turns without time passing will never wait.
_TURNS: Final = 200


class Violation(Exception):
    """Something that must not be.

    Attributes:
        rule: the name of the rule that is broken.
        at: seconds from the beginning.
    """

    def __init__(self, rule: str, what: str, at: float) -> None:
        self.rule = rule
        self.at = at
        super().__init__(f"{rule}: {what}")


W = TypeVar("W", bound="World[Any]")
P = TypeVar("P", bound="Process")


class Rule(Generic[W, P]):
    """What is watched. Each method is called when something has just happened, and does nothing
    unless a rule overrides it.
    """

    name: ClassVar[str] = ""

    def begin(self, world: W) -> None:
        """The world is there; nothing has happened."""

    def executed(self, world: W, process: P, command: Command[Any], reply: Any) -> None:
        """Redis has run a command of the process."""

    def touched(self, world: W, lost: bool) -> None:
        """Somebody changed Redis' data behind everyone's back; ``lost`` when it lost some."""

    def shown(self, world: W, process: P) -> None:
        """What the process' application may see has changed, or the process has ended."""

    def told_yes(self, world: W, process: P, keys: Sequence[bytes]) -> None:
        """The process' application was told that it may work on these keys."""

    def healed(self, world: W) -> None:
        """All is well again since the promised time to recover."""

    def finished(self, world: W) -> None:
        """Nothing has happened for a while since then."""

    def broken(self, world: W, what: str) -> Violation:
        """The violation to raise."""
        return Violation(self.name, what, world.now)


class SimulatedSpec(Protocol):
    """What a world must be told of a process.

    Attributes:
        label: what the story calls it.
        monotonic: what its monotonic clock shows at the beginning, in seconds.
    """

    @property
    def label(self) -> str:
        """What the story calls it."""

    @property
    def monotonic(self) -> float:
        """What its monotonic clock shows at the beginning, in seconds."""


@dataclass
class Call:
    """A command under way.

    Attributes:
        command: what Redis is asked.
        sent: true time of sending.
        arrived: told of the answer or the error.
        executed: true time at which Redis ran it; ``None`` when it did not, so far.
        slow_reply: how much longer the answer takes.
        lose_reply: whether the answer gets lost.
        given_up: whether it was given up before Redis ran it.
        outcome: the answer or the error, once the process could read it.
    """

    command: Command[Any]
    sent: float
    arrived: Callable[[Call, Any], None]
    executed: float | None = None
    slow_reply: float = 0.0
    lose_reply: bool = False
    given_up: bool = False
    outcome: list[Any] = field(default_factory=list)


class SimulatedCaller(Generic[P]):
    """What makes one call at a time in a process: a loop, or the application itself."""

    def __init__(self, process: P) -> None:
        self.process = process
        self.busy: Call | None = None
        process.callers.append(self)

    def call(self, command: Command[Any]) -> None:
        """Send a command; :meth:`completed` comes later, unless the process ends before."""
        self.busy = call = Call(command, self.process.world.now, self.outcome)
        self.process.send(call)

    def outcome(self, call: Call, outcome: Any) -> None:
        """The answer, or an error, has reached the process."""
        process = self.process
        if call is not self.busy or not process.alive:
            return
        # Of an answer and a timeout during a pause the one or the other is seen first.
        if not call.outcome or process.rng.random() < 0.5:
            call.outcome = [outcome]
        if not process.paused:
            self._complete(call)

    def wake(self) -> None:
        """The process goes on where it was."""
        if self.busy is not None and self.busy.outcome:
            self._complete(self.busy)

    def _complete(self, call: Call) -> None:
        self.busy = None
        self.completed(call, self.process.read(call))

    def completed(self, call: Call, outcome: Any) -> None:
        """A call has ended with this answer, or this :class:`hashring.errors.RedisUnavailable`."""
        raise NotImplementedError


class SimulatedSubscription:
    """One subscription of a loop."""

    def __init__(self, loop: SimulatedLoop[Any], step: Subscribe) -> None:
        self._loop = loop
        self.number = step.number
        self.silence = Silence(step, loop.process.local())
        self._ends: list[Callable[[], None]] = []
        self._last = 0.0
        self.deaf = False
        self.ended = False

    def attach(self) -> None:
        """Redis knows of the subscription."""
        server = self._loop.process.world.server
        self._loop.process.missed_at = self._loop.process.world.now
        self._ends = [
            server.listen(channel, self._ear(channel)) for channel in self._loop.machine.channels
        ]

    @property
    def stands(self) -> bool:
        """Whether Redis knows of it."""
        return bool(self._ends)

    def detach(self) -> None:
        """Redis knows of it no more."""
        while self._ends:
            self._ends.pop()()

    def _ear(self, channel: bytes) -> Callable[[bytes], None]:
        return lambda payload: self._hear(channel, payload)

    def _hear(self, channel: bytes, payload: bytes) -> None:
        process = self._loop.process
        world = process.world
        if self.deaf or not process.alive:
            process.missed_at = world.now
            return
        if process.messages_to_lose:
            process.messages_to_lose -= 1
            process.missed_at = world.now
            world.say(process, "a message to it is lost")
            return
        if not self.deliver(lambda: self._loop.hear(self.number, channel, payload)):
            process.missed_at = world.now

    def deliver(self, what: Callable[[], None]) -> bool:
        """Redis sends something; whether it arrives, after what it sent before."""
        process = self._loop.process
        world = process.world
        if self.deaf or not process.alive:
            return False
        at = world.now + process.latency()
        if world.now < process.messages_late_until:
            at = max(at, process.messages_late_until)
        if world.now < process.hole_until:
            if process.hole_ends == "lost":
                # Its end of the connection does not know that nothing comes any more.
                self.deaf = True
                return False
            at = max(at, process.hole_until + process.latency())
        # One connection keeps its order.
        self._last = max(self._last, at)

        def arrive() -> None:
            self.silence.heard(process.local())
            what()

        world.at(self._last, arrive)
        return True


class SimulatedLoop(SimulatedCaller[P]):
    """Drives one machine in a process.

    Args:
        asynchronous: run as under asyncio, where messages are heard while a call is under way;
            else as in a thread, where they wait.
    """

    def __init__(self, process: P, machine: Machine, *, asynchronous: bool = False) -> None:
        super().__init__(process)
        self.machine = machine
        self.listener: SimulatedSubscription | None = None
        self._over = False
        self._asynchronous = asynchronous
        self._step: Run | None = None
        self._inbox: deque[Callable[[], None]] = deque()
        self._alarm = 0

    def begin(self) -> None:
        """Its machine was started, perhaps again."""
        self._over = False
        self.turn()

    def hear(self, number: int, channel: bytes, payload: bytes) -> None:
        """A message has arrived."""
        self.tell(lambda: self.machine.told(number, channel, payload, self.process.local()))

    def tell(self, what: Callable[[], None]) -> None:
        """Something for the machine has arrived."""
        process = self.process
        if not process.alive:
            return
        self._inbox.append(what)
        if process.paused:
            return
        if self._asynchronous and self.busy is not None:
            self._empty_inbox()
            process.show(self)
        else:
            self.turn()

    def turn(self) -> None:
        """Take turns of the loop until it waits."""
        process = self.process
        for _ in range(_TURNS):
            if not process.alive or process.paused or self.busy is not None or self._over:
                return
            self._empty_inbox()
            step = self.machine.next(process.local())
            process.show(self)
            if isinstance(step, Wait):
                self._wait(step.until)
                return
            if isinstance(step, Run):
                self._step = step
                process.calls += 1
                self.call(step.command)
            elif isinstance(step, Subscribe):
                self._subscribe(step)
            else:
                self._over = True
                self.detach()
                process.finished(self)
                return
        raise Violation(
            "a loop waits", f"{process.spec.label} turns round and round", process.world.now
        )

    def wake(self) -> None:
        """The process goes on where it was."""
        call = self.busy
        if call is not None and call.outcome:
            self._complete(call)
        elif call is not None and self._asynchronous:
            self._empty_inbox()
            self.process.show(self)
        else:
            self.turn()

    def detach(self) -> None:
        """Redis knows of no subscription of this loop's any more."""
        if self.listener is not None:
            self.listener.detach()

    def completed(self, call: Call, outcome: Any) -> None:
        """The machine is told how its call went."""
        process, step = self.process, self._step
        assert step is not None
        self._step = None
        if isinstance(outcome, RedisUnavailable):
            step.failed(outcome, process.local())
        else:
            process.answered(call, outcome)
            step.done(outcome, call.sent + process.offset, process.local())
        process.show(self)
        self.turn()

    def _empty_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    def _wait(self, until: float) -> None:
        self._alarm += 1
        alarm = self._alarm
        if until == math.inf:
            return
        process = self.process
        # A hair later, since adding and subtracting the offset of its clock may lose a bit.
        at = max(until - process.offset, process.world.now) + 1e-9

        def ring() -> None:
            if alarm == self._alarm:
                self.turn()

        process.world.at(at, ring)

    # --- the subscription ---------------------------------------------------------------------

    def _subscribe(self, step: Subscribe) -> None:
        process = self.process
        world = process.world
        self.detach()
        self.listener = listener = SimulatedSubscription(self, step)
        asked = world.now + process.latency()
        if world.now < process.cut_until or world.now < world.down_until:
            world.at(asked, lambda: self._lost(listener, RedisUnavailable("connection refused")))
            return
        self._watch(listener)
        at = process.through_hole(asked)
        if at is None:
            return
        at = max(at, world.hang_until)

        def stand() -> None:
            if listener is not self.listener or listener.ended or not process.alive:
                return
            if world.now < process.cut_until:
                return
            if world.now < max(world.down_until, world.hang_until):
                return
            listener.attach()
            listener.deliver(lambda: self.tell(lambda: self._subscribed(listener)))

        world.at(at, stand)

    def _watch(self, listener: SimulatedSubscription) -> None:
        """Let the subscription be asked, or given up, when its time comes."""
        process = self.process
        wait = listener.silence.wait(process.local())
        if wait < math.inf:
            # A hair later; see `_wait`.
            at = max(process.world.now + wait, process.paused_until) + 1e-9
            process.world.at(at, lambda: self._heard_nothing(listener))

    def _heard_nothing(self, listener: SimulatedSubscription) -> None:
        process = self.process
        if listener is not self.listener or listener.ended or not process.alive:
            return
        silent = Silent.LISTEN if process.paused else listener.silence.nothing(process.local())
        if silent is Silent.LOST:
            self._lost(listener, listener.silence.error)
            return
        if silent is Silent.ASK:
            self._ask(listener)
        self._watch(listener)

    def _ask(self, listener: SimulatedSubscription) -> None:
        world = self.process.world
        at = self.process.through_hole(world.now + self.process.latency())
        if at is not None:
            answer = partial(listener.deliver, lambda: None)
            world.at(max(at, world.hang_until), lambda: listener.stands and answer())

    def _subscribed(self, listener: SimulatedSubscription) -> None:
        for _ in self.machine.channels:
            self.machine.subscribed(listener.number, self.process.local())

    def _lost(self, listener: SimulatedSubscription, error: RedisUnavailable | None) -> None:
        if listener is self.listener and not listener.ended:
            listener.ended = True
            listener.detach()
            number = listener.number
            self.tell(lambda: self.machine.unsubscribed(number, error, self.process.local()))

    def unsubscribe(self) -> None:
        """Its subscription is closed from the other side."""
        if self.listener is not None:
            self._lost(self.listener, RedisUnavailable("connection closed"))


class Process:
    """A process, and its side of the network; subclasses say what runs in it.

    Args:
        world: where it runs.
        spec: what it is.
    """

    spec: Any

    def __init__(self, world: World[Any], spec: SimulatedSpec) -> None:
        self.world = world
        self.spec = spec
        self.offset = spec.monotonic
        """What its monotonic clock shows at the beginning, in seconds."""
        self.rng = Random(f"{world.history.seed} network {spec.label}")
        self.callers: list[SimulatedCaller[Any]] = []
        self.alive = True
        self.stopping = False
        self.paused_until = 0.0
        self.cut_until = 0.0
        self.hole_until = 0.0
        self.hole_ends = ""
        self.messages_late_until = 0.0
        self.messages_to_lose = 0
        self.slow_commands: list[float] = []
        self.slow_joins: list[float] = []
        self.slow_replies: list[float] = []
        self.replies_to_lose = 0
        self.calls = 0
        """How many calls its loops have made."""
        self.trouble_until = 0.0
        """True time up to which its connection, or it itself, did not work as it should."""
        self.missed_at = NEVER
        """True time at which it last missed a message, or could have: when it began to listen."""
        self.late_at = NEVER
        """True time at which Redis last ran a command that had been given up."""

    def local(self) -> float:
        """What its monotonic clock shows."""
        return self.world.now + self.offset

    @property
    def paused(self) -> bool:
        """Whether it is stopped like by SIGSTOP; readers in it do nothing either."""
        return self.world.now < self.paused_until

    def latency(self) -> float:
        """How long the next message takes one way, in seconds."""
        # Mostly a fraction of a millisecond, now and then some tens.
        return 0.0002 + 0.03 * self.rng.random() ** 6

    @property
    def listens(self) -> bool:
        """Whether Redis knows of the subscriptions of all its loops."""
        return all(loop.listener is not None and loop.listener.stands for loop in self.loops)

    @property
    def loops(self) -> list[SimulatedLoop[Any]]:
        """Its loops, in the order in which they were made."""
        return [caller for caller in self.callers if isinstance(caller, SimulatedLoop)]

    # --- what subclasses say ------------------------------------------------------------------

    def start(self) -> None:
        """The process begins."""
        raise NotImplementedError

    def stop(self) -> None:
        """The application wants to leave."""
        raise NotImplementedError

    def show(self, loop: SimulatedLoop[Any]) -> None:
        """A loop's machine may have changed what the application sees."""

    def answered(self, call: Call, outcome: Any) -> None:
        """A loop's machine is about to be told of an answer."""

    def finished(self, loop: SimulatedLoop[Any]) -> None:
        """A loop's machine has nothing more to do."""

    def begins(self, command: Command[Any]) -> bool:
        """Whether a command is the one by which the process joins."""
        return False

    # --- what happens to it -------------------------------------------------------------------

    def kill(self) -> None:
        """SIGKILL. What it has sent may still arrive."""
        self.alive = False
        for loop in self.loops:
            loop.detach()

    def wake(self) -> None:
        """SIGCONT: go on where it was."""
        if not self.alive or self.paused:
            return
        for caller in reversed(self.callers):
            caller.wake()

    def reset(self) -> None:
        """Its connections are closed from the other side."""
        error = RedisUnavailable("connection reset")
        for caller in self.callers:
            if caller.busy is not None:
                caller.outcome(caller.busy, error)
        self.unsubscribe()

    def unsubscribe(self) -> None:
        """Its subscriptions are closed from the other side."""
        for loop in self.loops:
            loop.unsubscribe()

    # --- calls --------------------------------------------------------------------------------

    def send(self, call: Call) -> None:
        """Send a command on its way to Redis."""
        world = self.world
        call.lose_reply = self.replies_to_lose > 0
        self.replies_to_lose -= call.lose_reply
        arrives = world.now + self.latency()
        slow = self.slow_commands
        if self.slow_joins and self.begins(call.command):
            slow = self.slow_joins
        delayed = bool(slow)
        if slow:
            arrives += slow.pop()
            world.late_until = max(world.late_until, arrives)
        if self.slow_replies:
            call.slow_reply = self.slow_replies.pop()
        if call.lose_reply or call.slow_reply or delayed:
            self.trouble_until = max(self.trouble_until, world.now + world.io_timeout)
        timeout = RedisUnavailable("Redis did not answer in time")
        world.at(world.now + world.io_timeout, lambda: call.arrived(call, timeout))
        if world.now < self.cut_until or world.now < world.down_until:
            refused = RedisUnavailable("connection refused")
            world.at(arrives, lambda: call.arrived(call, refused))
        elif (at := self.through_hole(arrives)) is not None:
            world.at(at, lambda: world.execute(self, call))

    def through_hole(self, at: float) -> float | None:
        """When something that would arrive at ``at`` arrives; ``None`` for never."""
        if at >= self.hole_until:
            return at
        return self.hole_until + self.latency() if self.hole_ends == "late" else None

    def reply(self, call: Call, reply: Any) -> None:
        """Redis has sent an answer."""
        world = self.world
        if call.lose_reply:
            world.say(self, "the answer to it is lost")
            return
        at = self.through_hole(world.now + self.latency() + call.slow_reply)
        if at is not None and world.now >= self.cut_until:
            world.at(at, lambda: call.arrived(call, reply))

    def read(self, call: Call) -> Any:
        """The answer, or the error, of a call that has ended."""
        world = self.world
        (outcome,) = call.outcome
        if isinstance(outcome, RedisUnavailable):
            world.say(self, f"{call.command.script.name} failed: {outcome}")
            self.trouble_until = max(self.trouble_until, world.now)
            call.given_up = call.executed is None
        elif world.now - call.sent > 0.1:
            self.trouble_until = max(self.trouble_until, world.now)
        return outcome


Fault = Callable[["World[Any]", Event], None]
"""What a kind of event does to a world."""


class World(Generic[P]):
    """One run of a history; subclasses say what its processes are.

    Args:
        history: what happens.
        rules: what is watched.
        faults: what each kind of event does.
        server: makes Redis' twin, from its clock.
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
        self.history = history
        self.rules = rules
        self.now = 0.0
        self.skew = 0.0
        """How far Redis' clock is off what it was at the beginning, since a failover."""
        self.server = server(self.redis_time)
        self.processes: dict[str, P] = {}
        self.down_until = 0.0
        self.hang_until = 0.0
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
        self._queue: list[tuple[float, int, Callable[[], Any]]] = []
        self._number = 0
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

    def delete(self, what: str) -> None:
        """Delete keys of Redis', by names that only the world knows."""
        raise NotImplementedError

    def summary(self, reply: Any) -> str:
        """An answer of Redis' for the story."""
        return getattr(reply, "value", type(reply).__name__)

    # --- time ---------------------------------------------------------------------------------

    def at(self, when: float, what: Callable[[], Any]) -> None:
        """Do it then; things of one time in the order in which they were asked for."""
        self._number += 1
        heapq.heappush(self._queue, (when, self._number, what))

    def redis_time(self) -> float:
        """What Redis' clock shows."""
        return EPOCH + self.skew + self.now

    def run(self, until: float) -> None:
        """Let time pass.

        Raises:
            Violation: a rule was broken.
        """
        queue = self._queue
        while queue and queue[0][0] <= until:
            self.now, _, what = heapq.heappop(queue)
            try:
                what()
            except Violation:
                raise
            except Exception as error:
                raise Violation("nothing escapes", repr(error), self.now) from error
        self.now = until

    def say(self, process: Process | None, what: str) -> None:
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

    def told_yes(self, process: P, keys: Sequence[bytes]) -> None:
        """The process' application was told that it may work on these keys."""
        if self.story is not None and keys:
            self.say(process, f"may work on {b' '.join(keys).decode()}")
        for rule in self.rules:
            rule.told_yes(self, process, keys)

    # --- Redis --------------------------------------------------------------------------------

    def execute(self, process: P, call: Call) -> None:
        """A command has reached Redis."""
        if self.now < self.hang_until:
            self.at(self.hang_until, lambda: self.execute(process, call))
            return
        if self.now < self.down_until or self.now < process.cut_until:
            call.arrived(call, RedisUnavailable("connection reset"))
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
            process.messages_to_lose = process.replies_to_lose = 0
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
