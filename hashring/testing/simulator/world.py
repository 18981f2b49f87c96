"""Processes, a network and a Redis in virtual time.

Nothing here decides anything about rings: the nodes' protocol is the real
:class:`hashring.node.machine.NodeMachine`, Redis is its twin in memory. What is simulated is what
lies between: time, a runner for each process, and a network that delays, loses and cuts.

A process goes through the same motions as :mod:`hashring.node.runner` (or
:mod:`hashring.node.aio`): it hears what has arrived, asks the machine what to do, does it, and
shows readers the new view.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from threading import Event as Flag
from typing import Any, Final, Protocol

from hashring.core.change import Change, parse_change
from hashring.core.hashing import hash_algorithm
from hashring.core.ring import Ring
from hashring.errors import MessageFormatError, RedisUnavailable
from hashring.node.locks import Lease, Take, Wanted
from hashring.node.machine import NodeConfig, NodeMachine, NodeState, View
from hashring.node.steps import Run, Subscribe, Wait
from hashring.store.commands import BeatReply, BeatStatus, Command, Scoring
from hashring.store.keys import ring_keys
from hashring.store.memory import MemoryServer
from hashring.testing.simulator.history import (
    HEARTBEAT,
    TTL,
    Event,
    History,
    LockTerms,
    ProcessSpec,
)

KEYS: Final = ring_keys("accounts")
SCORING: Final = Scoring.expiry(TTL)
ALGORITHM: Final = hash_algorithm("crc-32")
IO_TIMEOUT: Final = TTL / 3
EPOCH: Final = 1_700_000_000.0
"""Redis time at the beginning."""

# A loop that takes this many turns without time passing will never wait.
_TURNS: Final = 200

_EMPTY: Final = View((), float("-inf"), (), Ring())
_NEVER: Final = float("-inf")


class Violation(Exception):
    """Something that must not be.

    Attributes:
        rule: which rule of :mod:`hashring.testing.simulator.rules` it breaks.
        at: seconds from the beginning.
    """

    def __init__(self, rule: str, what: str, at: float) -> None:
        self.rule = rule
        self.at = at
        super().__init__(f"{rule}: {what}")


class Rule(Protocol):
    """What is watched. Each method is called when something has just happened."""

    def begin(self, world: World) -> None:
        """The world is there; nothing has happened."""

    def executed(self, world: World, process: Process, command: Command[Any], reply: Any) -> None:
        """Redis has run a command of the process."""

    def touched(self, world: World, lost: bool) -> None:
        """Somebody changed Redis' data behind everyone's back; ``lost`` when it lost some."""

    def shown(self, world: World, process: Process) -> None:
        """The process showed its readers another view, or ended."""

    def told_yes(self, world: World, process: Process, keys: Sequence[bytes]) -> None:
        """The process' user was told that it may work on these keys."""

    def healed(self, world: World) -> None:
        """All is well again since the promised time to recover."""

    def finished(self, world: World) -> None:
        """Nothing has happened for a while since then."""


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


class Listener:
    """One subscription of a process."""

    def __init__(self, world: World, process: Process, number: int) -> None:
        self._world = world
        self._process = process
        self.number = number
        self._ends: list[Callable[[], None]] = []
        self._last = 0.0
        self.deaf = False
        self.ended = False

    def attach(self) -> None:
        """Redis knows of the subscription."""
        server = self._world.server
        self._ends = [
            server.listen(channel, self._ear(channel)) for channel in self._process.machine.channels
        ]

    def detach(self) -> None:
        """Redis knows of it no more."""
        while self._ends:
            self._ends.pop()()

    def _ear(self, channel: bytes) -> Callable[[bytes], None]:
        return lambda payload: self._hear(channel, payload)

    def _hear(self, channel: bytes, payload: bytes) -> None:
        process, world = self._process, self._world
        if self.deaf or not process.alive:
            return
        if process.messages_to_lose:
            process.messages_to_lose -= 1
            world.say(process, "a message to it is lost")
            return
        at = world.now + process.latency()
        if world.now < process.messages_late_until:
            at = max(at, process.messages_late_until)
        if world.now < process.hole_until:
            if process.hole_ends == "lost":
                # Its end of the connection does not know that nothing comes any more.
                self.deaf = True
                return
            at = max(at, process.hole_until + process.latency())
        # One connection keeps its order.
        self._last = max(self._last, at)
        world.at(self._last, lambda: process.hear(self.number, channel, payload))


class Process:
    """A process with one node: the machine, its runner, and its side of the network."""

    def __init__(self, world: World, spec: ProcessSpec, machine: NodeMachine) -> None:
        self._world = world
        self.spec = spec
        self.machine = machine
        self.rng = Random(f"{world.history.seed} network {spec.label}")
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
        self.busy: Call | None = None
        self._step: Run | None = None
        self.user: User | None = None
        self.listener: Listener | None = None
        self.view = _EMPTY
        self.calls = 0
        self._inbox: deque[Callable[[], None]] = deque()
        self._alarm = 0

        self.renewed_sent = _NEVER
        """True time of sending of the newest renewal that it knows to have succeeded."""
        self.renewed_at = _NEVER
        """True time at which Redis ran that renewal."""
        self.trouble_until = 0.0
        """True time up to which its connection, or it itself, did not work as it should."""
        self.late_at = _NEVER
        """True time at which Redis last ran a command that had been given up."""

    # --- what readers in the process see ------------------------------------------------------

    def local(self) -> float:
        """What its monotonic clock shows."""
        return self._world.now + self.spec.monotonic

    @property
    def deadline(self) -> float:
        """True time of the deadline that its readers see."""
        return self.view.deadline - self.spec.monotonic

    def claims(self) -> bool:
        """Whether its readers are told right now that some keys are theirs."""
        return bool(self.view.bounds) and not self.stopping and self.local() < self.view.deadline

    @property
    def paused(self) -> bool:
        """Whether it is stopped like by SIGSTOP; readers in it do nothing either."""
        return self._world.now < self.paused_until

    def latency(self) -> float:
        """How long the next message takes one way, in seconds."""
        # Mostly a fraction of a millisecond, now and then some tens.
        return 0.0002 + 0.03 * self.rng.random() ** 6

    # --- the runner ---------------------------------------------------------------------------

    def start(self) -> None:
        """The user calls ``start()``."""
        self._world.say(self, f"is started as {self.spec.name}")
        self.machine.start(self.local(), strict=self.spec.strict)
        self.turn()

    def stop(self) -> None:
        """The user calls ``stop()``."""
        self.stopping = True
        if self.spec.asynchronous:
            self.machine.stop()
        else:
            self._inbox.append(self.machine.stop)
        self.turn()

    def kill(self) -> None:
        """SIGKILL. What it has sent may still arrive."""
        self.alive = False
        self.view = _EMPTY
        if self.listener is not None:
            self.listener.detach()

    def wake(self) -> None:
        """SIGCONT: go on where it was."""
        if not self.alive or self.paused:
            return
        if self.user is not None:
            self.user.wake()
        call = self.busy
        if call is not None and call.outcome:
            self._complete(call)
        elif call is not None and self.spec.asynchronous:
            self._empty_inbox()
            self._show()
        else:
            self.turn()

    def hear(self, number: int, channel: bytes, payload: bytes) -> None:
        """A message has arrived."""
        self.tell(lambda: self.machine.told(number, channel, payload, self.local()))

    def tell(self, what: Callable[[], None]) -> None:
        """Something for the machine has arrived."""
        if not self.alive:
            return
        self._inbox.append(what)
        if self.paused:
            return
        if self.spec.asynchronous and self.busy is not None:
            self._empty_inbox()
            self._show()
        else:
            self.turn()

    def turn(self) -> None:
        """Take turns of the loop until it waits."""
        for _ in range(_TURNS):
            if not self.alive or self.paused or self.busy is not None:
                return
            self._empty_inbox()
            step = self.machine.next(self.local())
            self._show()
            if isinstance(step, Wait):
                self._wait(step.until)
                return
            if isinstance(step, Run):
                self._run(step)
            elif isinstance(step, Subscribe):
                self._subscribe(step.number)
            else:
                self._end()
        raise Violation("a loop waits", f"{self.spec.label} turns round and round", self._world.now)

    def _empty_inbox(self) -> None:
        while self._inbox:
            self._inbox.popleft()()

    def _wait(self, until: float) -> None:
        self._alarm += 1
        alarm = self._alarm
        # A hair later, since adding and subtracting the offset of its clock may lose a bit.
        at = max(until - self.spec.monotonic, self._world.now) + 1e-9

        def ring() -> None:
            if alarm == self._alarm:
                self.turn()

        self._world.at(at, ring)

    def _show(self) -> None:
        view = self.machine.view(self.local())
        if view is not self.view:
            self.view = view
            self._world.shown(self)

    def _end(self) -> None:
        self._world.say(self, f"has ended: {self.machine.state.value}")
        self.alive = False
        self.view = _EMPTY
        if self.listener is not None:
            self.listener.detach()
        self._world.shown(self)

    # --- calls --------------------------------------------------------------------------------

    def _run(self, step: Run) -> None:
        self.calls += 1
        self._step = step
        self.busy = call = Call(step.command, self._world.now, self.outcome)
        joining = self.machine.state is NodeState.JOINING and step.command.script.name == "beat"
        self.send(call, joining=joining)

    def send(self, call: Call, *, joining: bool = False) -> None:
        """Send a command on its way to Redis."""
        world = self._world
        call.lose_reply = self.replies_to_lose > 0
        self.replies_to_lose -= call.lose_reply
        arrives = world.now + self.latency()
        slow = self.slow_joins if joining and self.slow_joins else self.slow_commands
        delayed = bool(slow)
        if slow:
            arrives += slow.pop()
            world.late_until = max(world.late_until, arrives)
        if self.slow_replies:
            call.slow_reply = self.slow_replies.pop()
        if call.lose_reply or call.slow_reply or delayed:
            self.trouble_until = max(self.trouble_until, world.now + IO_TIMEOUT)
        timeout = RedisUnavailable("Redis did not answer in time")
        world.at(world.now + IO_TIMEOUT, lambda: call.arrived(call, timeout))
        if world.now < self.cut_until or world.now < world.down_until:
            refused = RedisUnavailable("connection refused")
            world.at(arrives, lambda: call.arrived(call, refused))
        elif self._through_hole(arrives) is not None:
            world.at(self._through_hole(arrives) or 0.0, lambda: world.execute(self, call))

    def _through_hole(self, at: float) -> float | None:
        """When something that would arrive at ``at`` arrives; ``None`` for never."""
        if at >= self.hole_until:
            return at
        return self.hole_until + self.latency() if self.hole_ends == "late" else None

    def answered(self, call: Call, reply: Any) -> None:
        """Redis has sent an answer."""
        world = self._world
        if call.lose_reply:
            world.say(self, "the answer to it is lost")
            return
        at = self._through_hole(world.now + self.latency() + call.slow_reply)
        if at is not None and world.now >= self.cut_until:
            world.at(at, lambda: call.arrived(call, reply))

    def outcome(self, call: Call, outcome: Any) -> None:
        """The answer, or an error, has reached the process."""
        if call is not self.busy or not self.alive:
            return
        self.see(call, outcome)
        if not self.paused:
            self._complete(call)

    def see(self, call: Call, outcome: Any) -> None:
        """The answer, or an error, is there to be read."""
        # Of an answer and a timeout during a pause the one or the other is seen first.
        if not call.outcome or self.rng.random() < 0.5:
            call.outcome = [outcome]

    def reset(self) -> None:
        """Its connections are closed from the other side."""
        reset = RedisUnavailable("connection reset")
        if self.busy is not None:
            self.outcome(self.busy, reset)
        if self.user is not None and self.user.busy is not None:
            self.user.outcome(self.user.busy, reset)
        self.unsubscribe()

    def _complete(self, call: Call) -> None:
        step = self._step
        assert step is not None
        self.busy = self._step = None
        outcome = self.read(call)
        if isinstance(outcome, RedisUnavailable):
            step.failed(outcome, self.local())
        else:
            if isinstance(outcome, BeatReply) and outcome.status is BeatStatus.OK:
                self.renewed_sent = max(self.renewed_sent, call.sent)
                self.renewed_at = max(self.renewed_at, call.executed or _NEVER)
            step.done(outcome, call.sent + self.spec.monotonic, self.local())
        self._show()
        self.turn()

    def read(self, call: Call) -> Any:
        """The answer, or the error, of a call that has ended."""
        world = self._world
        (outcome,) = call.outcome
        if isinstance(outcome, RedisUnavailable):
            world.say(self, f"{call.command.script.name} failed: {outcome}")
            self.trouble_until = max(self.trouble_until, world.now)
            call.given_up = call.executed is None
        elif world.now - call.sent > 0.1:
            self.trouble_until = max(self.trouble_until, world.now)
        return outcome

    # --- the subscription ---------------------------------------------------------------------

    def _subscribe(self, number: int) -> None:
        world = self._world
        if self.listener is not None:
            self.listener.detach()
        self.listener = listener = Listener(world, self, number)
        asked = world.now + self.latency()
        if world.now < self.cut_until or world.now < world.down_until:
            world.at(asked, lambda: self.lost(listener, RedisUnavailable("connection refused")))
            return
        confirmed: list[bool] = []

        def give_up() -> None:
            if not confirmed:
                self.lost(listener, None)

        world.at(world.now + IO_TIMEOUT, give_up)
        at = self._through_hole(asked)
        if at is None or (at := max(at, world.hang_until)) > world.now + IO_TIMEOUT:
            return

        def stand() -> None:
            if listener is not self.listener or not self.alive or world.now < self.cut_until:
                return
            if world.now < max(world.down_until, world.hang_until):
                return
            listener.attach()
            confirmed.append(True)
            after = world.now + self.latency()
            world.at(after, lambda: self.tell(lambda: self._subscribed(listener)))

        world.at(at, stand)

    def _subscribed(self, listener: Listener) -> None:
        for _ in self.machine.channels:
            self.machine.subscribed(listener.number, self.local())

    def lost(self, listener: Listener, error: RedisUnavailable | None) -> None:
        """The listener has ended."""
        if listener is self.listener and not listener.ended:
            listener.ended = True
            listener.detach()
            self.tell(lambda: self.machine.unsubscribed(listener.number, error, self.local()))

    def unsubscribe(self) -> None:
        """Its subscription is closed from the other side."""
        listener = self.listener
        if listener is not None:
            self.lost(listener, RedisUnavailable("connection closed"))


class User:
    """What works on keys in a process: it asks its node for them, again and again, and holds some.

    It goes through the same motions as ``select`` and ``hold`` of :class:`hashring.RingNode`.
    """

    def __init__(self, world: World, process: Process, terms: LockTerms) -> None:
        self._world = world
        self._process = process
        self._terms = terms
        self._rng = Random(f"{world.history.seed} user {process.spec.label}")
        self._asked = [
            (key, ALGORITHM.point_of_bytes(key), number) for number, key in enumerate(terms.keys)
        ]
        self._every = self._rng.choice((0.3, 0.6))
        self._asked_all = False
        self._take: Take | None = None
        self._holds: dict[bytes, float] = {}
        self.busy: Call | None = None
        self.idle_until = 0.0
        """True time up to which it asks for nothing."""
        self.leases: list[Lease] = []
        """What it is at work on."""
        book = process.machine.book
        assert book is not None
        self._book = book
        world.at(world.now + self._rng.random() * self._every, self._turn)

    def hold(self, key: bytes, seconds: float) -> None:
        """Hold a key for that long, as soon as it is ours."""
        self._holds[key] = seconds

    # --- asking -------------------------------------------------------------------------------

    def _turn(self) -> None:
        process, world = self._process, self._world
        if not process.alive or process.stopping:
            return
        world.at(world.now + self._every * (0.5 + self._rng.random()), self._turn)
        if not process.paused and self.busy is None and world.now >= self.idle_until:
            # Each key comes up every other time at least: it is never let go for being idle.
            some = self._asked
            self._asked_all = not self._asked_all or self._rng.random() < 0.8
            if not self._asked_all:
                some = self._rng.sample(some, len(some) // 2)
            self._ask(some)

    def _ask(self, asked: Sequence[tuple[bytes, int, int]]) -> None:
        wanted = self._told(asked)
        now = self._process.local()
        self._take = self._book.take(wanted, now) if wanted else None
        self._stir()
        if self._take is not None:
            self.busy = Call(self._take.command, self._world.now, self.outcome)
            self._process.send(self.busy)

    def _told(self, asked: Sequence[tuple[bytes, int, int]]) -> list[Wanted]:
        process = self._process
        # From stop() on the node owns nothing, whatever its loop has heard of.
        view = _EMPTY if process.stopping else process.view
        yes, wanted = self._book.ask_many(asked, view.bounds, view.deadline, process.local())
        keys = [key for key, _, _ in yes]
        self._world.told_yes(process, keys)
        for key in keys:
            if key in self._holds:
                self._pin(key, self._holds.pop(key))
        self._stir()
        return wanted

    def _stir(self) -> None:
        if self._book.stirred:
            self._book.stirred = False
            self._process.tell(lambda: None)

    # --- answers ------------------------------------------------------------------------------

    def outcome(self, call: Call, outcome: Any) -> None:
        """The answer, or an error, has reached the process."""
        process = self._process
        if call is self.busy and process.alive:
            process.see(call, outcome)
            if not process.paused:
                self._complete()

    def wake(self) -> None:
        """The process goes on where it was."""
        if self.busy is not None and self.busy.outcome:
            self._complete()

    def _complete(self) -> None:
        process, call, take = self._process, self.busy, self._take
        assert call is not None
        assert take is not None
        self.busy = self._take = None
        outcome = process.read(call)
        if isinstance(outcome, RedisUnavailable):
            self._book.acquire_failed(take, process.local())
        else:
            sent = call.sent + process.spec.monotonic
            self._book.acquired(take, outcome, sent, process.local())
        self._stir()
        self._told([each for each in take.wanted if each.key in self._book.held])

    # --- holding ------------------------------------------------------------------------------

    def _pin(self, key: bytes, seconds: float) -> None:
        lease = self._book.pin(key, self._process.local, Flag)
        if lease is not None:
            self._world.say(self._process, f"holds {key.decode()} for {seconds:g} s")
            self.leases.append(lease)
            self._work(lease, self._world.now + seconds)

    def _work(self, lease: Lease, until: float) -> None:
        process, world = self._process, self._world
        if not process.alive:
            return
        finished = world.now >= until or lease.lost.is_set()
        if lease.revoked.is_set():
            finished = finished or self._rng.random() < 0.2
        if finished and not process.paused:
            self.leases.remove(lease)
            self._book.unpin(lease, process.local())
            self._stir()
        else:
            world.at(world.now + 0.1, lambda: self._work(lease, until))


class World:
    """One run of a history.

    Args:
        history: what happens.
        rules: what is watched.
        deeds: what each kind of event does.
        machine: makes a node's protocol; a test plants its faults here.
        server: makes Redis' twin, from its clock.
        story: whether to keep a story of the run.
    """

    def __init__(
        self,
        history: History,
        rules: Sequence[Rule],
        deeds: dict[str, Callable[[World, Event], None]],
        machine: Callable[[NodeConfig, Random], NodeMachine] = NodeMachine,
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
        self.processes: dict[str, Process] = {}
        self.down_until = 0.0
        self.hang_until = 0.0
        self.lost_at = _NEVER
        """When Redis last lost data."""
        self.tampered_at = _NEVER
        """When somebody last changed the ring's members without telling."""
        self.taken_away: dict[bytes, float] = {}
        """When somebody last took a key's lock away by hand."""
        self.late_until = 0.0
        """When the last command that is long on its way will have arrived."""
        self.copies: dict[Event, object] = {}
        """Of Redis' data, for the failovers to come."""
        self.story: list[str] | None = [] if story else None
        self._deeds = deeds
        self._machine = machine
        self._queue: list[tuple[float, int, Callable[[], Any]]] = []
        self._number = 0
        self._specs = {spec.label: spec for spec in history.processes}
        for rule in rules:
            rule.begin(self)
        for event in history.events:
            if event.kind == "failover":
                self._copy_at(max(0.0, event.at - event.lag_and_skew[0]), event)
        for event in history.events:
            self.at(event.at, self._deed(event))

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

    # --- what happens -------------------------------------------------------------------------

    def _deed(self, event: Event) -> Callable[[], None]:
        def happen() -> None:
            if self.story is not None:
                self.story.append(f"{event}   <--")
            self._deeds[event.kind](self, event)

        return happen

    def running(self, label: str) -> Process | None:
        """The process, if it runs."""
        process = self.processes.get(label)
        return process if process is not None and process.alive else None

    @property
    def alive(self) -> list[Process]:
        """The processes that run and are not about to end."""
        return [p for p in self.processes.values() if p.alive and not p.stopping]

    def start(self, label: str) -> None:
        """Start a process."""
        spec = self._specs.get(label)
        if spec is None or label in self.processes:
            return
        config = NodeConfig(
            keys=KEYS,
            name=spec.name,
            named=spec.named,
            points=spec.points,
            ttl=TTL,
            heartbeat_interval=HEARTBEAT,
            io_timeout=IO_TIMEOUT,
            scoring=SCORING,
            algorithm=ALGORITHM,
            placement=spec.placement,
            follow_foreign=False,
            told={},
            locks=self.history.lock_config(spec),
        )
        machine = self._machine(config, Random(f"{self.history.seed} node {label}"))
        self.processes[label] = process = Process(self, spec, machine)
        if self.history.locks is not None:
            process.user = User(self, process, self.history.locks)
        process.start()

    def listen(self, hear: Callable[[Change], None]) -> None:
        """Be told of every change of the ring, in the moment that Redis makes it."""

        def parse(payload: bytes) -> None:
            try:
                change = parse_change(payload)
            except MessageFormatError:
                return
            hear(change)

        self.server.listen(KEYS.channel, parse)

    def _copy_at(self, when: float, event: Event) -> None:
        def copy() -> None:
            self.copies[event] = self.server.copy()

        self.at(when, copy)

    def heal(self) -> None:
        """No fault that still waits for its occasion will happen."""
        for process in self.processes.values():
            process.messages_to_lose = process.replies_to_lose = 0
            process.slow_commands.clear()
            process.slow_joins.clear()
            process.slow_replies.clear()

    def execute(self, process: Process, call: Call) -> None:
        """A command has reached Redis."""
        if self.now < self.hang_until:
            self.at(self.hang_until, lambda: self.execute(process, call))
            return
        if self.now < self.down_until or self.now < process.cut_until:
            call.arrived(call, RedisUnavailable("connection reset"))
            return
        reply = self.server.run(call.command)
        call.executed = self.now
        if call.given_up:
            process.late_at = self.now
        if self.story is not None:
            self.say(process, f"{call.command.script.name} -> {_summary(reply)}")
        for rule in self.rules:
            rule.executed(self, process, call.command, reply)
        process.answered(call, reply)

    def touched(self, *, lost: bool) -> None:
        """Somebody changed Redis' data behind everyone's back."""
        if lost:
            self.lost_at = self.now
        for rule in self.rules:
            rule.touched(self, lost)

    def told_yes(self, process: Process, keys: Sequence[bytes]) -> None:
        """The process' user was told that it may work on these keys."""
        if self.story is not None and keys:
            self.say(process, f"may work on {b' '.join(keys).decode()}")
        for rule in self.rules:
            rule.told_yes(self, process, keys)

    def shown(self, process: Process) -> None:
        """A process shows another view."""
        if self.story is not None:
            machine = process.machine
            tag = machine.stamp.tag[:4] if machine.stamp else "-"
            self.say(
                process,
                f"is {machine.state.value} at {tag}, sees {', '.join(process.view.ring.nodes)}, "
                f"owns {len(process.view.ranges)} ranges until {process.deadline:.3f}",
            )
        for rule in self.rules:
            rule.shown(self, process)


def _summary(reply: Any) -> str:
    if isinstance(reply, BeatReply):
        told = f"{reply.status.value} at {reply.stamp.epoch} {reply.stamp.tag[:4]}"
        told += f", {reply.stamp.members} members"
        return told + (f", swept {reply.swept}" if reply.swept else "")
    return getattr(reply, "value", type(reply).__name__)
