"""A member of a partition group, live."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import Any, Final

from hashring.core.assignors import AssignFunction, Assignor, Member, as_assignor
from hashring.core.groups import foresight, kernel
from hashring.core.groups.foresight import Foresight, GroupStatus
from hashring.core.groups.member import Change
from hashring.core.groups.state import GroupState, MemberFacts, Terms, View
from hashring.errors import ConfigError, GroupMismatch, MemberExists, StoreError
from hashring.groups.base import (
    RETRY,
    Callbacks,
    LiveMember,
    OnAssigned,
    OnPartition,
    OnRevoked,
    Wake,
    monotonic,
)
from hashring.store.executor import Told
from hashring.store.group_commands import (
    Reading,
    Taken,
    beat,
    commit,
    concerned,
    group_keys,
    join,
    leave,
    read,
)

_TRIES: Final = 50
"""How often a decision is tried against others before the next renewal is waited for."""


class PartitionGroup(LiveMember):
    """A group of members that share numbered partitions, one owner each.

    ::

        group = PartitionGroup(redis, "orders", partitions=64, on_assigned=begin, on_revoked=end)
        with group:
            ...

    Args:
        redis: a sync client of redis-py or valkey-py. The group takes from it where Redis is,
            and makes connections of its own.
        name: the group's name.
        partitions: how many; ``None`` to take what the group has.
        assignor: who should own what: ``"balanced"``, ``"contiguous"``, ``"learner"``,
            ``"ring"``, or an assignor of your own.
        member: this member's name, unique in the group; made up unless given.
        weight: its share relative to the others'.
        ttl: seconds its lease lasts without renewal; at least three heartbeats.
        heartbeat_interval: seconds between renewals; a quarter of the ttl unless given.
        rebalance_delay, max_handoff_time, handoffs, leave_timeout: see
            :class:`hashring.core.groups.state.Terms`.
        progress_timeout: seconds without :meth:`tick` after which the member counts as stalled:
            it gets nothing new, and sheds one partition at a time. ``None``: never.
        migrate: change the group's terms to this member's, instead of refusing them.
        on_assigned: called with ``(partition, token)`` when work may begin.
        on_revoked: called with ``(partition, deadline)``, a time of ``time.monotonic()``, when
            work has to end. When it returns, or raises, the partition is let go of.
        on_lost: called with ``(partition,)`` when the partition is not held any more and
            ``on_revoked`` was not called or not over: the lease or the deadline has ended.
        on_warmup: called with ``(partition,)`` when this member should get ready to take over;
            to be answered by :meth:`ready` or :meth:`lag`.
        on_drain: called with ``(partition,)`` when a held partition was removed; to be answered
            by :meth:`drained`.

    Callbacks run one at a time in a thread of their own; what they raise is logged.

    Raises:
        ConfigError: an argument cannot work.
    """

    def __init__(
        self,
        redis: Any,
        name: str,
        partitions: int | None = None,
        assignor: str | Assignor | AssignFunction = "balanced",
        *,
        member: str | None = None,
        weight: float = 1.0,
        ttl: float = 10.0,
        heartbeat_interval: float | None = None,
        rebalance_delay: float = 5.0,
        max_handoff_time: float = 3.0,
        handoffs: int = 1,
        leave_timeout: float = 30.0,
        progress_timeout: float | None = None,
        migrate: bool = False,
        on_assigned: OnAssigned | None = None,
        on_revoked: OnRevoked | None = None,
        on_lost: OnPartition | None = None,
        on_warmup: OnPartition | None = None,
        on_drain: OnPartition | None = None,
    ) -> None:
        self._keys = group_keys(name)
        self._assignor = as_assignor(assignor)
        self._mine = Terms(
            1 if partitions is None else partitions,
            self._assignor.name,
            ttl,
            rebalance_delay,
            max_handoff_time,
            handoffs,
            leave_timeout,
        )
        super().__init__(
            redis,
            name,
            member=member,
            channels=(self._keys.channel,),
            ttl=ttl,
            interval=ttl / 4 if heartbeat_interval is None else heartbeat_interval,
            grace=max_handoff_time,
            progress_timeout=progress_timeout,
            callbacks=Callbacks(on_assigned, on_revoked, on_lost, on_warmup, on_drain),
        )
        self.weight = Member(self.member, weight=weight).weight
        self._partitions = partitions
        self._migrate = migrate
        self._terms = self._mine
        self._session = ""
        self._claims: dict[int, int] = {}
        self._known = ""
        self._view: View | None = None
        self._leaving: float | None = None
        self._redis_now = 0.0

    @property
    def partitions(self) -> int:
        """How many partitions the group has, as far as this member knows."""
        return self._terms.partitions

    @property
    def assignor(self) -> str:
        """The name of the group's assignor."""
        return self._terms.assignor

    # --- looking ------------------------------------------------------------------------------

    def status(self) -> GroupStatus:
        """Where the group stands, for whom it waits, and until when.

        Raises:
            StoreError: it could not be read.
            ConfigError: there is no such group.
        """
        state, reading = self._standing()
        return foresight.status(state, reading.facts)

    def plan(
        self,
        *,
        join: Iterable[str | Member] = (),
        leave: Iterable[str] = (),
        partitions: int | None = None,
    ) -> Foresight:
        """What would happen if these joined and left and the count became this; touches nothing.

        Raises:
            StoreError: the group could not be read.
            UnknownMemberError, ConfigError: the plan is none.
        """
        state, reading = self._standing()
        return foresight.foresee(
            state, reading.facts, self._assignor, join=join, leave=leave, partitions=partitions
        )

    def explain(self) -> Foresight:
        """What is happening, and why; touches nothing.

        Raises:
            StoreError: the group could not be read.
        """
        return self.plan()

    def resize(self, partitions: int) -> None:
        """Change the number of partitions of the whole group.

        Raises:
            ConfigError: the count cannot work.
            StoreError: it could not be done.
        """
        self._change(lambda state: kernel.resize(state, partitions))

    def _standing(self) -> tuple[GroupState, Reading]:
        reading = self._store.run(read(self._keys))
        state = reading.standing()
        if state is None:
            raise ConfigError("name", self.name, "there is no such group: no member ever joined")
        return state, reading

    def _change(self, decide: Callable[[GroupState], kernel.Outcome]) -> None:
        while True:
            state, reading = self._standing()
            outcome = decide(state)
            if outcome.state is state:
                return
            now = reading.facts.now
            due = kernel.Outcome(outcome.state, outcome.events, now)
            if self._store.run(commit(self._keys, reading, due, self.member)) is not None:
                break
        self._terms = outcome.state.terms
        self._inbox.put(Wake())

    # --- joining ------------------------------------------------------------------------------

    def _enter(self) -> None:
        self._terms = self._agreed_terms()
        self._membership.ttl = self._terms.ttl
        self._grace = self._terms.max_handoff_time
        self._session, self._view, self._leaving = "", None, None
        try:
            self._join()
        except BaseException:
            with contextlib.suppress(StoreError):
                self._store.run(leave(self._keys, self.member, self._session or "-"))
            raise

    def _agreed_terms(self) -> Terms:
        """The terms to join with: the group's own where it has some."""
        reading = self._store.run(read(self._keys))
        standing = reading.standing()
        theirs = reading.terms if standing is None else standing.terms
        if theirs is None:
            if self._partitions is None:
                raise ConfigError(
                    "partitions", None, f"say how many: the group {self.name!r} does not exist yet"
                )
            return self._mine
        mine = asdict(self._mine)
        if self._partitions is None:
            mine["partitions"] = theirs.partitions
        for setting, value in mine.items():
            if value != getattr(theirs, setting):
                if self._migrate:
                    self._change(lambda state: kernel.migrate(state, Terms(**mine)))
                    return Terms(**mine)
                raise GroupMismatch(self.name, setting, value, getattr(theirs, setting))
        return theirs

    def _facts(self) -> MemberFacts:
        words = self._membership.words()
        return MemberFacts(
            self.member,
            self._session,
            0,
            0.0,
            self.weight,
            words.seen,
            self._leaving,
            words.stalled,
            words.released,
            words.drained,
            words.lags,
            self._claims,
        )

    def _join(self) -> None:
        """Join as a new session, with what is still held."""
        before, self._session = self._session, secrets.token_hex(8)
        with self._lock:
            self._claims = self._membership.held(monotonic())
            facts = self._facts()
        answer = self._store.run(join(self._keys, facts, self._terms, before))
        if isinstance(answer, Taken):
            self._session = before
            raise MemberExists(self.name, self.member, answer.expires_in)
        for setting, value in asdict(self._terms).items():
            if value != getattr(answer.terms, setting):
                # Two first members at once, or a change since they were read.
                self._store.run(leave(self._keys, self.member, self._session))
                raise GroupMismatch(self.name, setting, value, getattr(answer.terms, setting))
        self._known, self._view = "?", None
        self._redis_now = answer.now
        self._step()

    # --- the protocol -------------------------------------------------------------------------

    def _beat(self) -> float:
        while True:
            asked_at = monotonic()
            with self._lock:
                facts = self._facts()
            answer = self._store.run(beat(self._keys, facts, self._terms.ttl, self._known))
            if answer is None:
                self._join()
                continue
            self._redis_now, self._known = answer.now, answer.tag
            self._view = answer.view or self._view
            more = False
            if self._view is not None:
                if self._view.seated:
                    self._claims = {}
                changes: list[Change] = []
                with self._lock:
                    changes = self._membership.heard(self._view, asked_at, answer.now, monotonic())
                    more = self._membership.words().released != facts.released
                self._tell(changes)
            if answer.due:
                more = self._step() or more
            if not more:
                break
        if self._view is not None and self._view.revoked:
            # Say soon that the deadlines are known.
            return min(RETRY, self.heartbeat_interval)
        return self.heartbeat_interval

    def _step(self) -> bool:
        """Take the next step of the group; whether anything was decided.

        Raises:
            StoreError: Redis did not do it.
            AssignorError: the assignor's answer is none.
        """
        decided = False
        for _ in range(_TRIES):
            reading = self._store.run(read(self._keys))
            state = reading.standing()
            if state is None:
                return decided
            if self._terms != state.terms and state.terms.assignor == self._assignor.name:
                self._terms = state.terms
                self._membership.ttl = state.terms.ttl
                self._grace = state.terms.max_handoff_time
            outcome = kernel.step(state, reading.facts, self._assignor)
            done = self._store.run(commit(self._keys, reading, outcome, self.member))
            if done is None:
                continue
            decided = decided or outcome.state is not state
            if not done.again:
                break
        return decided

    def _hand_over(self) -> float:
        self._leaving = self._redis_now
        return self._terms.leave_timeout

    def _empty_handed(self) -> bool:
        view = self._view
        return view is not None and view.seated and not view.held

    def _depart(self) -> None:
        self._store.run(leave(self._keys, self.member, self._session))
        self._step()

    def _concerns(self, told: Told) -> bool:
        return self.member in concerned(told.payload)
