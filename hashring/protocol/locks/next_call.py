"""The loop's calls: which one it makes next, to renew, to release, and to find out what came."""

from __future__ import annotations

from hashring.protocol.locks.calls_under_way import CallsUnderWay
from hashring.protocol.locks.doubts import Doubts
from hashring.protocol.locks.due_calls import DueCalls
from hashring.protocol.locks.handover import Handover
from hashring.protocol.locks.hold_off import HoldOff
from hashring.protocol.locks.key_states import HOLDING, KeyEvent, KeysByState
from hashring.protocol.locks.limit import Limit
from hashring.protocol.locks.lock_config import LockConfig
from hashring.protocol.locks.pins import Pins
from hashring.protocol.locks.releases import Releases
from hashring.protocol.locks.renewal import Renewal
from hashring.protocol.locks.ring_place import RingPlace
from hashring.protocol.machine import Run
from hashring.store.locks.commands import Lock, Renewed, look, renew
from hashring.store.ring.key_names import RingKeys


class NextCall:
    """The calls that the loop makes for one book.

    Args:
        names: the ring's keys in Redis.
        config: how the node locks.
        keys: the book's keys.
        place: the node's place on the ring.
        limit, hold_off, renewal, releases, pins, handover, calls, doubts, due_calls: the book's.
    """

    def __init__(
        self,
        *,
        names: RingKeys,
        config: LockConfig,
        keys: KeysByState,
        place: RingPlace,
        limit: Limit,
        hold_off: HoldOff,
        renewal: Renewal,
        releases: Releases,
        pins: Pins,
        handover: Handover,
        calls: CallsUnderWay,
        doubts: Doubts,
        due_calls: DueCalls,
    ) -> None:
        self._names = names
        self._config = config
        self._keys = keys
        self._place = place
        self._limit = limit
        self._hold_off = hold_off
        self._renewal = renewal
        self._releases = releases
        self._pins = pins
        self._handover = handover
        self._calls = calls
        self._doubts = doubts
        self._due_calls = due_calls
        self.forget()

    def forget(self) -> None:
        """No call was made."""
        # Whether the last one found out about doubts: then other work goes first.
        self._resolved = False

    def due(self) -> float:
        """When :meth:`next` has something to do, in monotonic seconds."""
        due = min(self._due_calls.resolve_at, self._renewal.due, self._limit.look_at)
        if self._releases.due:
            due = min(due, self._due_calls.release_at)
        return min([due, *self._pins.due()])

    def next(self, now: float) -> Run | None:
        """What the loop has to run now, if anything."""
        # By turns: callers that are interrupted all the time must not keep locks from renewal.
        first = now >= self._due_calls.resolve_at and not self._resolved
        if first and (step := self._doubts.resolve_step()) is not None:
            self._resolved = True
            return step
        self._resolved = False
        step = self._other_step(now)
        if step is None and now >= self._due_calls.resolve_at:
            step = self._doubts.resolve_step()
        return step

    def last(self) -> Run | None:
        """What is left to run when the node leaves."""
        return self._doubts.resolve_step() or (self._release_step() if self._releases.due else None)

    def _other_step(self, now: float) -> Run | None:
        if now >= self._due_calls.release_at and self._releases.due:
            return self._release_step()
        if now >= self._renewal.due and (step := self._renew_step(now)) is not None:
            return step
        return self._look_step() if now >= self._limit.look_at else None

    def _release_step(self) -> Run:
        return self._releases.step(self._place.session, self._settle)

    def _renew_step(self, now: float) -> Run | None:
        batch = self._renewal.next(now)
        if batch is None:
            return None

        def done(reply: Renewed, sent: float, now: float) -> None:
            if reply.unknown:
                # Redis lost the ring since the heartbeat: the next one learns of it.
                self._due_calls.outdated = True
            for key in self._renewal.done(batch, reply, sent, now):
                if key.state in HOLDING:
                    self._pins.end(key)
                    self._keys.enter(KeyEvent.LOST, key)
            for number, waiter in reply.wanted.items():
                self._handover.want(batch.keys[number], waiter, now)
            self._settle(now)

        command = renew(
            self._names,
            session=self._place.session,
            ttl=self._config.ttl,
            locked=[(key.key, key.token) for key in batch.keys],
            lasting=batch.lasting,
            node=self._place.node,
            history=self._hold_off.history,
            put_back=batch.put_back,
        )
        return self._due_calls.run(
            command, done, lambda retry_at: self._renewal.failed(batch, retry_at)
        )

    def _look_step(self) -> Run | None:
        """Find out how many of the refused keys nobody holds."""
        sample = self._limit.sample()
        if not sample:
            return None

        def done(found: dict[bytes, Lock], sent: float, now: float) -> None:
            self._limit.found(len(found), len(sample))

        return self._due_calls.run(look(self._names, locked=sample), done, lambda _: None)

    def _settle(self, now: float) -> None:
        self._limit.settle(self._calls.count, now)
