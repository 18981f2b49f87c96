"""The locks and the limit of one node.

A :class:`LockBook` knows which keys its node holds, which it lets go, and which it waits for. It
is asked by users (``ask``, ``take``, ``acquired``) and by the node's loop (``step``, ``heartbeat``,
``see``). It decides little itself: which call the loop makes next, and which piece learns what came
of it. :mod:`.key_states` has the life of a key in it. Of the rest each piece knows only those above
it:

======================  ==========================================================================
piece                   what it decides
======================  ==========================================================================
``lock_book_parts``     what all others share: ``ring_place`` (which points are the node's own),
                        ``key_limit`` (how many keys it may hold), ``hold_off`` (until when no lock
                        may be taken after a loss), ``renewal`` (which locks are renewed), and
                        ``due_calls`` (what the loop has to do next)
``releases``            which keys are let go
``leases``              who holds a key by hand (``key_lease``), and what a loss tells them
``keys_between_nodes``  what moves to other nodes, is kept for them, or awaited from them
``calls_under_way``     which places are kept for calls, what they bring, and what came of those
                        without an answer
``taking``              which keys a call asks for
``verdicts``            may the node work on a key now
======================  ==========================================================================

One call at a time: :mod:`hashring.protocol.locks.shared_lock_book` is for several threads.

Loss. When Redis comes back empty, or is emptied, the locks are gone, and their holders do not know
yet. A call that takes locks names the history of the ring that the node knows, and none is taken in
another, or where there is none. The first heartbeat of a node that knew an earlier history holds
everybody off for as long as a lock lasts; each node puts back what it still holds by its own clock.
When that time is over, a lock that nobody put back is one in which nobody believes any more.
It is the same when Redis restarts, or another server takes over: its data may lack the newest
locks, so the first heartbeat that finds another server begins another history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from hashring.errors import StoreError
from hashring.protocol.locks.calls_under_way import AskedKey, CallsUnderWay, Take
from hashring.protocol.locks.key_lease import KeyLease, LeaseHolder
from hashring.protocol.locks.key_states import HOLDING, NEVER, KeyEvent, KeyState
from hashring.protocol.locks.keys_between_nodes import KeysBetweenNodes
from hashring.protocol.locks.leases import Leases
from hashring.protocol.locks.lock_book_parts import BookParts
from hashring.protocol.locks.lock_config import LockConfig
from hashring.protocol.locks.releases import Releases
from hashring.protocol.locks.ring_place import Surroundings
from hashring.protocol.locks.taking import Taking
from hashring.protocol.locks.verdicts import Verdict, Verdicts
from hashring.protocol.machine_steps import Run
from hashring.store.locks.commands import AcquireAnswer, Lock, LockNews, Renewed, look, renew
from hashring.store.ring.key_names import RingKeys

_S, _E = KeyState, KeyEvent


class LockBook:
    """See the module's text.

    Args:
        names: the ring's keys in Redis.
        config: how the node locks.
        retry: seconds until a renewal or release that failed is tried again.

    Attributes:
        held: the keys that the node holds. ``contains`` reads it whatever else goes on.
        others: those that it does not hold, and of which it knows something.
        limit: how many they may be.
        due_calls: what the node's loop has to do.
    """

    def __init__(self, names: RingKeys, config: LockConfig, retry: float) -> None:
        self._parts = parts = BookParts.of(names, config, retry)
        self.config = config
        self.limit = parts.limit
        self.due_calls = parts.due_calls
        self.held = parts.keys.held
        self.others = parts.keys.others
        self._keys = parts.keys
        self._place = parts.place
        self._hold_off = parts.hold_off
        self._renewal = parts.renewal
        self._releases = Releases(parts)
        self._leases = Leases(parts, self._releases)
        self._keys_between = KeysBetweenNodes(parts, self._leases)
        self._calls = CallsUnderWay(parts, self._releases)
        self._taking = Taking(parts, self._calls, self._releases)
        self._verdicts = Verdicts(parts, self._calls, self._releases)
        self._forget("", "")

    def _forget(self, node: str, session: str) -> None:
        self._parts.begin(node, session)
        self._calls.forget()
        # Whether the last call found out about doubts: then other work goes first.
        self._resolved = False
        # Whether something may have been missed that a change of the ring asks for.
        self._mended = False

    # --- asked by users -----------------------------------------------------------------------

    def ask(
        self, key: bytes, point: int, bounds: Sequence[int], until: float, now: float
    ) -> Verdict:
        """Whether the node may work on a key now.

        Args:
            bounds: boundaries of the ranges in which it may take keys.
            until: the node's own deadline; past it, it holds nothing.

        After a ``TAKE`` the key may be among those given to :meth:`take`.
        """
        return self._verdicts.ask(key, point, bounds, until, now)

    def ask_many(
        self, asked: Iterable[AskedKey], bounds: Sequence[int], until: float, now: float
    ) -> tuple[list[AskedKey], list[AskedKey]]:
        """:meth:`ask` about many keys: those with the verdict ``YES``, and those with ``TAKE``."""
        return self._verdicts.ask_many(asked, bounds, until, now)

    def holds(
        self, key: bytes, point: int, bounds: Sequence[int], until: float, now: float
    ) -> bool:
        """Whether a key is held, and may be worked on; :meth:`ask` without any consequence."""
        return self._verdicts.holds(key, point, bounds, until, now)

    def take(self, asked: Sequence[AskedKey], now: float) -> Take | None:
        """What to run to take keys whose verdict was ``TAKE``; see :class:`.taking.Taking`."""
        return self._taking.take(asked, now)

    def acquired(
        self, take: Take, answers: Sequence[AcquireAnswer], sent: float, now: float
    ) -> None:
        """The answer to a :meth:`take`."""
        self._taking.acquired(take, answers, sent, now)

    def acquire_failed(self, take: Take, now: float, refusal: StoreError | None = None) -> None:
        """Redis did not take these locks, as far as is known; see :class:`.CallsUnderWay`."""
        self._calls.acquire_failed(take, now, refusal)

    def interrupted(self, take: Take, now: float) -> None:
        """The caller did not wait for the answer to a :meth:`take`."""
        self._calls.interrupted(take, now)

    def busy(self, key: bytes) -> bool:
        """Whether a call of this node's about the key is under way, and Redis answers calls."""
        return self._verdicts.busy(key)

    def in_doubt(self, key: bytes) -> bool:
        """Whether a call about the key was not answered, and not refused; the loop finds out."""
        return self._verdicts.in_doubt(key)

    def holder(self, key: bytes) -> str | None:
        """The node that has a key, when we last looked; ``None`` when none is known to."""
        return self._verdicts.holder(key)

    def pin(
        self, key: bytes, clock: Callable[[], float], event: Callable[[], Any], holder: LeaseHolder
    ) -> KeyLease[Any] | None:
        """A lease on a key that is held; the same one again inside itself."""
        return self._leases.pin(key, clock, event, holder)

    def pin_again(self, key: bytes, now: float, holder: LeaseHolder) -> KeyLease[Any] | None:
        """The lease that a key is held by already; ``None`` when there is none."""
        return self._leases.pin_again(key, now, holder)

    def unpin(self, holder: LeaseHolder, now: float) -> bool:
        """Leave a lease; whether its key is to be let go now."""
        return self._leases.unpin(holder, now)

    # --- what a status shows ------------------------------------------------------------------

    @property
    def left(self) -> bool:
        """Whether the node has begun to leave."""
        return self._place.left

    @property
    def count(self) -> int:
        """How many keys count against the limit."""
        return self._calls.count

    @property
    def takes(self) -> Sequence[Take]:
        """The calls under way that take locks."""
        return self._calls.takes

    @property
    def error(self) -> StoreError | None:
        """Why Redis did not do what was last asked of it about locks; ``None`` when it did."""
        return self.due_calls.failure or self.refusal

    @property
    def refusal(self) -> StoreError | None:
        """Why Redis refuses to give the node locks; ``None`` when it does not."""
        refusal = self._calls.refusal
        return refusal[0] if refusal else None

    @property
    def waiting(self) -> int:
        """How many keys of ours another node still holds."""
        return self._keys.count(_S.AWAITED)

    def held_off_for(self, now: float) -> float:
        """Seconds for which no lock may be taken, because Redis lost the ring's locks."""
        return self._hold_off.left(now)

    # --- after what may happen anywhere -------------------------------------------------------

    def abandon(self) -> None:
        """In a forked child: the locks, and the leases on them, are the parent's."""
        for key in (*self.held.values(), *self._keys.of(_S.FINISHING)):
            key.deadline = -NEVER
            if key.lease is not None:
                key.lease.lost.set()

    def mend(self) -> None:
        """Make whole again what was raised into, between any two lines, by a signal handler.

        The state of each key is taken for true. What may have been missed of it is found out: the
        loop asks Redis about locks that may have been taken, and looks over the leases.
        """
        self._keys.index()
        self._calls.mend()
        self._releases.mend()
        self._leases.mend()
        self.due_calls.mend()
        self._mended = True

    # --- told by the node's loop --------------------------------------------------------------

    def part(self, now: float) -> None:
        """Let go of all that nobody holds by hand: the node gives up its session, to start anew."""
        self._releases.let_go(now, *(key for key in self.held.values() if key.lease is None))

    def begin(self, node: str, session: str) -> None:
        """The node has this name and session from now on; what another session held is lost."""
        lost = (*self.held.values(), *self._keys.of(_S.FINISHING))
        self._leases.begin()
        self._releases.begin()
        self._calls.begin()
        self._keys.enter(_E.LOST, *lost)
        self._keys.enter(_E.FORGOTTEN, *self._keys.others.values())
        self._forget(node, session)
        if self._releases.due:
            # Locks of sessions before this one.
            self.due_calls.release_soon(-NEVER)
        if self._calls.unsettled:
            self.due_calls.resolve_soon(-NEVER)

    def drain(self) -> None:
        """Keep no key for an owner that is full: what is held is to be handed over.

        Told before :meth:`see`, which is told that nothing is the node's own.
        """
        self._keys_between.drain()

    def see(
        self, ring: Surroundings, bounds: tuple[int, ...], own_bounds: tuple[int, ...], now: float
    ) -> None:
        """The ring as it is now.

        Args:
            bounds: of the ranges in which the node may take keys, those of full nodes included.
            own_bounds: of the ranges that are its own.
        """
        self._keys_between.see(ring, bounds, own_bounds, now)

    def heartbeat(
        self, everyone_full: bool, now: float, history: str = "", held_off: float = 0.0
    ) -> None:
        """The node's heartbeat was answered: renew, and look after what nobody asks for.

        Args:
            everyone_full: whether every node of the ring is full, this one included.
            history: the ring's, in Redis.
            held_off: seconds for which no lock may be taken in it.
        """
        place = self._place
        if self._mended:
            self._mended = False
            self.see(place.ring, place.bounds, place.own_bounds, now)
        if self.config.locking:
            self._follow(history, held_off, now)
        idle = now - self.config.idle
        for held in list(self.held.values()):
            if held.asked < idle and held.lease is None:
                self._releases.let_go_if_idle(held, idle, now)
        self._keys_between.forget_idle(idle)
        self._calls.heartbeat(now)
        self.limit.recount(place.owns, everyone_full, now)
        self._settle(now)
        if self.config.locking:
            self._renewal.renew_all(self.held.values(), now)

    def _follow(self, history: str, held_off: float, now: float) -> None:
        if history != self._hold_off.history:
            # The locks that it waited for may be gone, and its name in them is.
            self._keys_between.ask_again(now, _S.AWAITED)
            self._renewal.may_be_lost(self.held.values())
        if not held_off:
            self._renewal.may_be_lost(())
        # At last: a signal handler may raise before, and then the next heartbeat does the rest.
        self._hold_off.heartbeat(history, held_off, now)

    def listening(self, now: float) -> None:
        """The node's channel is heard from now on: what was freed before, nobody has told."""
        self._keys_between.ask_again(now, _S.AWAITED, _S.TAKING)

    def news(self, news: LockNews, now: float) -> None:
        """A message on the node's own channel."""
        self._keys_between.news(news, now)

    # --- the loop's calls ---------------------------------------------------------------------

    def due(self) -> float:
        """When :meth:`step` has something to do, in monotonic seconds."""
        due = min(self.due_calls.resolve_at, self._renewal.due, self.limit.look_at)
        if self._releases.due:
            due = min(due, self.due_calls.release_at)
        return min([due, *self._leases.due()])

    def step(self, now: float) -> Run | None:
        """What the loop has to run now, if anything."""
        self._leases.end_what_expired(now)
        # By turns: callers that are interrupted all the time must not keep locks from renewal.
        first = now >= self.due_calls.resolve_at and not self._resolved
        if first and (step := self._calls.resolve_step()) is not None:
            self._resolved = True
            return step
        self._resolved = False
        step = self._other_step(now)
        if step is None and now >= self.due_calls.resolve_at:
            step = self._calls.resolve_step()
        return step

    def _other_step(self, now: float) -> Run | None:
        step = self._releases.step(self._settle) if now >= self.due_calls.release_at else None
        if step is None and now >= self._renewal.due:
            step = self._renew_step(now)
        if step is None and now >= self.limit.look_at:
            step = self._look_step()
        return step

    def _renew_step(self, now: float) -> Run | None:
        renewal, place = self._renewal, self._place
        batch = renewal.next(now)
        if batch is None:
            return None

        def done(reply: Renewed, sent: float, now: float) -> None:
            if reply.unknown:
                # Redis lost the ring since the heartbeat: the next one learns of it.
                self.due_calls.outdated = True
            for key in renewal.done(batch, reply, sent, now):
                if key.state in HOLDING:
                    self._leases.end(key)
                    self._keys.enter(_E.LOST, key)
            for number, waiter in reply.wanted.items():
                self._keys_between.want(batch.keys[number], waiter, now)
            self._settle(now)

        command = renew(
            self._parts.names,
            session=place.session,
            ttl=self.config.ttl,
            locked=[(key.key, key.token) for key in batch.keys],
            lasting=batch.lasting,
            node=place.node,
            history=self._hold_off.history,
            put_back=batch.put_back,
        )
        return self.due_calls.run(command, done, lambda retry_at: renewal.failed(batch, retry_at))

    def _look_step(self) -> Run | None:
        """Find out how many of the refused keys nobody holds."""
        sample = self.limit.sample()
        if not sample:
            return None

        def done(found: dict[bytes, Lock], sent: float, now: float) -> None:
            self.limit.found(len(found), len(sample))

        return self.due_calls.run(look(self._parts.names, locked=sample), done, lambda _: None)

    def _settle(self, now: float) -> None:
        self.limit.settle(self._calls.count, now)

    def leave(self, now: float) -> Run | None:
        """The node leaves: let go of everything that nobody works on, a call at a time.

        Leases are lost, but their locks stay until the work is done or they expire.
        """
        self._place.left = True
        held = list(self.held.values())
        free = [key for key in held if key.lease is None]
        for key in held:
            if key.lease is not None:
                self._leases.leave(key, now)
        self._releases.let_go(now, *free)
        self.limit.forget()
        self._renewal.forget()
        return self._calls.resolve_step() or self._releases.step(self._settle)

    def end(self) -> None:
        """The node has lost its name for good: it takes nothing any more."""
        self._place.left = True

    def session_ended(self, now: float) -> bool:
        """The node has left, and Redis takes no lock of its session any more.

        The next calls of :meth:`leave` let go of all that nobody works on, whatever became of the
        calls that took it.

        Returns:
            Whether there may be anything to let go of.
        """
        return self._calls.session_ended(now) or self._releases.due

    def forget_releases(self) -> bool:
        """Redis does not answer, and the node leaves: what is not released expires.

        Returns:
            Whether there was any, that nobody has forgotten before.
        """
        if not self.left:
            return False  # It has begun anew.
        found = self._keys.of(_S.DOUBTED, _S.RELEASING)
        self._keys.enter(_E.FORGOTTEN, *found)
        self._calls.forget_doubts()
        return self._releases.forget_unknown() or bool(found)
