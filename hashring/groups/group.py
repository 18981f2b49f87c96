"""What a member of a partition group asks of Redis, and what it makes of the answers."""

from __future__ import annotations

import contextlib
import math
import queue
import secrets
from collections.abc import Callable, Generator, Iterable
from dataclasses import asdict
from typing import Any, Final, TypeVar

from hashring.core.assignors import (
    AssignFunction,
    Assignor,
    Member,
    as_assignor,
    assignor_named,
)
from hashring.core.groups import foresight, kernel
from hashring.core.groups.foresight import Foresight, GroupStatus
from hashring.core.groups.member import Change
from hashring.core.groups.state import NON_EXCLUSIVE, GroupState, MemberFacts, Terms, View
from hashring.errors import ConfigError, GroupMismatch, MemberExists, StoreError
from hashring.groups.base import (
    RETRY,
    BaseMember,
    Callbacks,
    OnActive,
    OnAssigned,
    OnPartition,
    OnRevoked,
    Run,
    Stop,
    Watch,
    monotonic,
)
from hashring.running.backend import Latch, native_latch, native_queue
from hashring.store.commands import Command
from hashring.store.executor import Store, Told
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

T = TypeVar("T")

Talk = Generator[Command[Any], Any, T]
"""Asks commands one after the other, and ends with an answer; who runs it, talks to Redis."""

_TRIES: Final = 50
"""How often a decision is tried against others before the next renewal is waited for."""


_NAME_POLL: Final = 0.25
"""Seconds between two looks at whether a name in use is free."""


def run_talk(run: Callable[[Command[Any]], Any], talk: Talk[T]) -> T:
    """The answer of a talk whose commands ``run`` runs.

    Raises:
        StoreError: a command was not done.
    """
    answer: Any = None
    while True:
        try:
            command = talk.send(answer)
        except StopIteration as done:
            found: T = done.value
            return found
        answer = run(command)


class GroupMember(BaseMember):
    """The protocol of a partition group; arguments as for :class:`hashring.PartitionGroup`."""

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
        access: str = NON_EXCLUSIVE,
        on_active: OnActive | None = None,
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
            access,
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
            callbacks=Callbacks(on_assigned, on_revoked, on_lost, on_warmup, on_drain, on_active),
        )
        self.weight = Member(self.member, weight=weight).weight
        self._partitions = partitions
        self._migrate = migrate
        self._terms = self._offered = self._mine
        self._session = ""
        self._claims: dict[int, int] = {}
        self._known = ""
        self._view: View | None = None
        self._leaving: float | None = None
        self._redis_now = 0.0
        self._departed = False
        self._decider = _Decider(self)

    @property
    def partitions(self) -> int:
        """How many partitions the group has, as far as this member knows."""
        return self._offered.partitions

    @property
    def error(self) -> Exception | None:
        """What is wrong now, if anything: with Redis, or with an assignor's answer."""
        return self._error or self._decider.error

    @property
    def assignor(self) -> str:
        """The name of the group's assignor."""
        return self._offered.assignor

    # --- looking ------------------------------------------------------------------------------

    def _standing(self) -> Talk[tuple[GroupState, Reading]]:
        reading: Reading = yield read(self._keys)
        state = reading.standing()
        if state is None:
            raise ConfigError("name", self.name, "there is no such group: no member ever joined")
        return state, reading

    def _status(self) -> Talk[GroupStatus]:
        state, reading = yield from self._standing()
        return foresight.status(state, reading.facts)

    def _foresee(
        self,
        join: Iterable[str | Member],
        leave: Iterable[str],
        partitions: int | None,
        access: str | None,
    ) -> Talk[Foresight]:
        state, reading = yield from self._standing()
        return foresight.foresee(
            state,
            reading.facts,
            self._assignor,
            join=join,
            leave=leave,
            partitions=partitions,
            access=access,
        )

    def _resize(self, partitions: int) -> Talk[None]:
        return self._change(lambda state: kernel.resize(state, partitions))

    def _change(self, decide: Callable[[GroupState], kernel.Outcome]) -> Talk[None]:
        while True:
            state, reading = yield from self._standing()
            outcome = decide(state)
            if outcome.state is state:
                return
            due = kernel.Outcome(outcome.state, outcome.events, reading.facts.now)
            if (yield commit(self._keys, reading, due, self.member)) is not None:
                break
        self._offered = outcome.state.terms
        if not self._running:
            self._terms = self._offered
        self._wake()

    # --- joining ------------------------------------------------------------------------------

    def _enter(self) -> None:
        self._terms = run_talk(self._store.run, self._agreed_terms())
        self._take_up(self._terms)
        self._session, self._view, self._leaving = "", None, None
        self._departed = False
        self._decider = _Decider(self)
        try:
            self._join_once_free()
            self._thread(self._decider.run, "decider")
            # An assignor that takes longer costs neither the lease nor whoever starts.
            self._decider.ask().wait(self.heartbeat_interval)
            if self._decider.error is not None:
                raise self._decider.error
        except BaseException:
            self._decider.cancel()
            with contextlib.suppress(StoreError):
                self._store.run(leave(self._keys, self.member, self._session or "-"))
            raise
        self._decider.entering = False

    def _join_once_free(self) -> None:
        """Join. If another session has the name, wait until its lease ends, unless it renews it.

        Raises:
            MemberExists: the other session is alive, or nobody waits.
        """
        run, last = self._run, math.inf
        while True:
            try:
                return self._join()
            except MemberExists as taken:
                left = taken.expires_in
                # A lease that is not renewed is shorter each time by what was waited for.
                if not self._waits_for_name or left > last or run is None:
                    raise
                pause = min(_NAME_POLL, left + 0.01)
                last = left - pause / 2
                if _stopped_within(run, pause):
                    raise

    def _take_up(self, terms: Terms) -> None:
        self._terms = self._offered = terms
        self.heartbeat_interval = min(self.heartbeat_interval, terms.ttl / 3)
        self._membership.ttl = terms.ttl
        self._grace = terms.max_handoff_time

    def _take_up_anew(self) -> None:
        """Before it joins again: the group's terms may have changed while it was away."""
        terms = self._store.run(read(self._keys)).terms
        if terms is not None and terms != self._terms:
            if terms.assignor != self._assignor.name:
                self._assignor = self._same_rule(terms.assignor)
            self._take_up(terms)

    def _agreed_terms(self) -> Talk[Terms]:
        """The terms to join with: the group's own where it has some."""
        reading: Reading = yield read(self._keys)
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
                    yield from self._change(lambda state: kernel.migrate(state, Terms(**mine)))
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

    # --- the protocol -------------------------------------------------------------------------

    def _beat(self) -> float:
        back = False
        while True:
            if self._offered != self._terms:
                self._take_up(self._offered)
            asked_at = monotonic()
            with self._lock:
                facts = self._facts()
            answer = self._store.run(beat(self._keys, facts, self._terms.ttl, self._known))
            if answer is None:
                if self._membership.closing:
                    # It leaves anyway. What it still holds ends with the lease it had.
                    return self.heartbeat_interval
                if back:
                    # Nobody decides, as when the assignor fails: not again and again at once.
                    return min(RETRY, self.heartbeat_interval)
                back = True
                self._take_up_anew()
                self._join()
                # Not before there is a decision later than the last one seen here: a Redis that
                # has lost it would find this session gone, too.
                self._decider.ask().wait(self.heartbeat_interval)
                continue
            self._redis_now, self._known = answer.now, answer.tag
            if answer.wait is not None:
                self._membership.watch(monotonic() + answer.wait)
            self._view = answer.view or self._view
            if self._view is not None:
                if self._view.seated:
                    self._claims = {}
                changes: list[Change] = []
                with self._lock:
                    changes = self._membership.heard(self._view, asked_at, answer.now, monotonic())
                    if self._warm_by_itself():
                        self._membership.warm_at_once()
                self._tell(changes)
            if answer.due:
                self._decider.ask()
            with self._lock:
                words = self._membership.words()
            if (words.released, words.lags) == (facts.released, facts.lags):
                break
        if self._view is not None and self._view.revoked:
            # Say soon that the deadlines are known.
            return min(RETRY, self.heartbeat_interval)
        return self.heartbeat_interval

    def _renew_lease(self) -> float:
        return self._try_beat()

    @property
    def _is_told(self) -> bool:
        """Whether messages about decisions arrive here."""
        return self._run is not None and self._run.hears

    def _step(self, store: Store) -> bool:
        """Take the next step of the group; whether anything was decided.

        Raises:
            StoreError: Redis did not do it.
            AssignorError: the assignor's answer is none.
        """
        decided = False
        for _ in range(_TRIES):
            reading = store.run(read(self._keys))
            state = reading.standing()
            if state is None:
                return decided
            # Taken up by the renewer, which is in the middle of a lease of the old length.
            self._offered = state.terms
            if state.terms.assignor != self._assignor.name:
                # Two rules in one group would undo each other's decisions for ever.
                self._assignor = self._same_rule(state.terms.assignor)
            outcome = kernel.step(state, reading.facts, self._assignor)
            done = store.run(
                commit(
                    self._keys,
                    reading,
                    outcome,
                    self.member,
                    goes_on=True,
                    stays=not self._departed,
                )
            )
            if done is None:
                continue
            decided = decided or outcome.state is not state
            if not done.again:
                if outcome.due is not None and self._run is not None:
                    self._run.inbox.put(Watch(monotonic() + outcome.due - done.now))
                break
        return decided

    def _same_rule(self, assignor: str) -> Assignor:
        """The assignor that the group was migrated to, if it is one of this project's."""
        try:
            return assignor_named(assignor)
        except ConfigError:
            raise GroupMismatch(self.name, "assignor", self._assignor.name, assignor) from None

    def _hand_over(self) -> float:
        self._leaving = self._redis_now
        return self._terms.leave_timeout

    def _empty_handed(self) -> bool:
        view = self._view
        return view is not None and view.seated and not view.held

    def _depart(self) -> None:
        self._departed = True
        try:
            self._store.run(leave(self._keys, self.member, self._session))
        finally:
            self._decider.end(self._grace)

    def _concerns(self, told: Told) -> bool:
        return self.member in concerned(told.payload)


def _stopped_within(run: Run, seconds: float) -> bool:
    """Wait, unless the member is to stop; whether it is."""
    end = monotonic() + seconds
    while (left := end - monotonic()) > 0:
        try:
            item = run.inbox.get(timeout=left)
        except queue.Empty:
            break
        if isinstance(item, Stop):
            return True
    return False


class _Decider:
    """Takes the steps that are this member's to take, in a thread of its own.

    The only thread in which an assignor runs: one that takes long, or never returns, costs nobody
    the lease.
    """

    def __init__(self, member: GroupMember) -> None:
        self._member = member
        self._asked = native_queue()
        self.error: Exception | None = None
        # What goes wrong then is raised where start() was called.
        self.entering = True
        self._cancelled = False

    def ask(self) -> Latch:
        """A step is due; the answer is set when it has been taken, or has failed."""
        done = native_latch()
        self._asked.put((done, True))
        return done

    def end(self, patience: float) -> None:
        """Take a last step, and end; returns when it is done, or after ``patience`` seconds."""
        done = native_latch()
        self._asked.put((done, False))
        done.wait(patience)

    def cancel(self) -> None:
        """End without another step."""
        self._cancelled = True
        self._asked.put((native_latch(), False))

    def run(self) -> None:
        """The thread."""
        store = self._member._new_store()
        go_on = True
        try:
            while go_on:
                waiting = [self._asked.get()]
                while not self._asked.empty():
                    # Many are one.
                    waiting.append(self._asked.get())
                if not self._cancelled:
                    self._step(store)
                for done, more in waiting:
                    go_on = go_on and more
                    done.set()
        finally:
            store.close()

    def _step(self, store: Store) -> None:
        try:
            decided = self._member._step(store)
        except Exception as error:  # noqa: BLE001 - also what an assignor raises
            self.error = error if self.entering else self._member._logged(error, self.error)
        else:
            self.error = None
            if decided and not self._member._is_told:
                self._member._wake()
