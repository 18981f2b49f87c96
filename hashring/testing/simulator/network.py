"""The network between a process and Redis: it delays, loses and cuts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from hashring.errors import RedisUnavailable, StoreError
from hashring.store.command import Command

if TYPE_CHECKING:
    from hashring.testing.simulator.process import SimulatedSpec
    from hashring.testing.simulator.world import World

LATENCY: Final = 0.0302
"""The longest that a message takes one way while all is well, in seconds."""


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
        again: whether something on the way sends it a second time, once Redis has run it.
        given_up: whether it was given up before Redis ran it.
        outcome: the answer or the error, once the process could read it.
        ended: what the process' clock showed when it had read that; ``None`` before.
    """

    command: Command[Any]
    sent: float
    arrived: Callable[[Call, Any], None]
    executed: float | None = None
    slow_reply: float = 0.0
    lose_reply: bool = False
    again: bool = False
    given_up: bool = False
    outcome: list[Any] = field(default_factory=list)
    ended: float | None = None


class Networked:
    """A process' side of the network, for its calls and its subscriptions."""

    spec: Any

    def __init__(self, world: World[Any], spec: SimulatedSpec) -> None:
        self.world = world
        self.spec = spec
        self.rng = Random(f"{world.history.seed} network {spec.label}")
        self.cut_until = 0.0
        self.hole_until = 0.0
        self.hole_ends = ""
        self.messages_late_until = 0.0
        self.messages_doubled_until = 0.0
        self.messages_mixed_until = 0.0
        self.messages_to_lose = 0
        self.slow_commands: list[float] = []
        self.slow_joins: list[float] = []
        self.slow_replies: list[float] = []
        self.replies_to_lose = 0
        self.calls_to_repeat = 0
        self.trouble_until = 0.0
        """True time up to which its connection, or it itself, did not work as it should."""

    def latency(self) -> float:
        """How long the next message takes one way, in seconds."""
        # Mostly a fraction of a millisecond, now and then some tens.
        return 0.0002 + 0.03 * self.rng.random() ** 6

    def begins(self, command: Command[Any]) -> bool:
        """Whether a command is the one by which the process joins."""
        return False

    def send(self, call: Call) -> None:
        """Send a command on its way to Redis."""
        world = self.world
        call.lose_reply = self.replies_to_lose > 0
        self.replies_to_lose -= call.lose_reply
        call.again = self.calls_to_repeat > 0
        self.calls_to_repeat -= call.again
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
        if call.again:
            call.again = False
            world.say(self, "the answer to it is lost, and it is sent again")
            world.at(world.now + 2 * self.latency(), lambda: world.execute(self, call))
            return
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
        if isinstance(outcome, StoreError):
            world.say(self, f"{call.command.script.name} failed: {outcome}")
            self.trouble_until = max(self.trouble_until, world.now)
            call.given_up = call.executed is None
        elif world.now - call.sent > 0.1:
            self.trouble_until = max(self.trouble_until, world.now)
        return outcome
