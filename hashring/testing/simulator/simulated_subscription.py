"""A subscription of a loop: how it is made, what arrives on it, and how it is lost."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from hashring.errors import RedisUnavailable
from hashring.protocol.machine_steps import Subscribe
from hashring.protocol.silent_subscription import Silence, Silent

if TYPE_CHECKING:
    from hashring.testing.simulator.simulated_loop import SimulatedLoop


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

    def begin(self) -> None:
        """Ask Redis for it."""
        process = self._loop.process
        world = process.world
        asked = world.now + process.latency()
        if world.now < process.cut_until or world.now < world.down_until:
            world.at(asked, lambda: self.lose(RedisUnavailable("connection refused")))
            return
        self._watch()
        at = process.through_hole(asked)
        if at is not None:
            world.at(max(at, world.hang_until), self._stand)

    def _stand(self) -> None:
        process, loop = self._loop.process, self._loop
        world = process.world
        if self.over or world.now < process.cut_until:
            return
        if world.now < max(world.down_until, world.hang_until):
            return
        process.missed_at = world.now
        self._ends = [
            world.server.listen(channel, self._ear(channel)) for channel in loop.machine.channels
        ]
        self.deliver(lambda: loop.tell(lambda: loop.subscribed(self.number)))

    @property
    def over(self) -> bool:
        """Whether nothing comes of it any more."""
        return self._loop.listener is not self or self.ended or not self._loop.process.alive

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
        for _ in range(2 if world.now < process.messages_doubled_until else 1):
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
        if world.now < process.messages_mixed_until:
            # As in a cluster, whose servers pass messages on to each other.
            at += process.rng.random()
        else:
            # One connection keeps its order.
            self._last = at = max(self._last, at)

        def arrive() -> None:
            if not self.over:  # else nobody listens to it any more
                self.silence.heard(process.local())
            what()

        world.at(at, arrive)
        return True

    # --- silence ------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Let it be asked, or given up, when its time comes."""
        process = self._loop.process
        wait = self.silence.wait(process.local()) / process.spec.rate
        if wait < math.inf:
            # A hair later, since adding and subtracting the offset of its clock may lose a bit.
            at = max(process.world.now + wait, process.paused_until) + 1e-9
            process.world.at(at, self._heard_nothing)

    def _heard_nothing(self) -> None:
        process = self._loop.process
        if self.over:
            return
        silent = Silent.LISTEN if process.paused else self.silence.nothing(process.local())
        if silent is Silent.LOST:
            self.lose(self.silence.error)
            return
        if silent is Silent.ASK:
            self._ask()
        self._watch()

    def _ask(self) -> None:
        process = self._loop.process
        world = process.world
        at = process.through_hole(world.now + process.latency())
        if at is not None:
            answer = partial(self.deliver, lambda: None)
            world.at(max(at, world.hang_until), lambda: self.stands and answer())

    def lose(self, error: RedisUnavailable | None) -> None:
        """End it, and report that to the machine unless the loop has a newer subscription."""
        loop = self._loop
        if loop.listener is self and not self.ended:
            self.ended = True
            self.detach()
            loop.tell(lambda: loop.machine.unsubscribed(self.number, error, loop.process.local()))
