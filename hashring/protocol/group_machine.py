"""What a member of a partition group asks of Redis, and what it makes of the answers; without I/O.

Two machines make a member. :class:`GroupMachine` renews the lease and reports; :class:`Decider`
takes the steps of the group that are this member's to take. Each has a loop of its own, because an
assignor runs in the decider's: one that takes long, or never returns, costs nobody the lease.

What a decider does:

=================  =============================================  ====================
state              meaning                                        event -> next state
=================  =============================================  ====================
``idle``           nothing is asked of it                         asked -> deciding
\\                                                                 end -> last decision
``deciding``       reads the group, runs the assignor, commits    asked -> deciding
\\                                                                 done -> idle
\\                                                                 end -> last decision
``last decision``  ends what it does; for a member that has left  done -> ended
``ended``          its member has left                            the end
=================  =============================================  ====================
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Final

from hashring.core.assignors import Assignor, assignor_named
from hashring.core.groups import next_decision
from hashring.core.groups.state import GroupState, MemberFacts, MemberView, Phase, Terms
from hashring.core.groups.view_changes import ViewChange, changed_view
from hashring.core.state_table import StateTable
from hashring.errors import ConfigError, GroupMismatch, MemberExists, StoreError
from hashring.protocol.flow import TRIES, Flow, FlowRun, committed
from hashring.protocol.machine import Finished, Step, Wait
from hashring.protocol.member_machine import RETRY, MemberMachine, Stage
from hashring.store.group.commands import (
    CLAIM,
    NO_PART,
    STEP,
    Brought,
    Committed,
    Conflict,
    GroupKeys,
    Reading,
    Reports,
    Taken,
    agreed,
    beat,
    commit,
    join,
    leave,
    read,
)

NAME_POLL: Final = 0.25
"""Seconds between two looks at whether a name in use is free."""


# --- flows that need no member ------------------------------------------------------------------


def standing(name: str, keys: GroupKeys) -> Flow[tuple[GroupState, Reading]]:
    """Where a group stands.

    Raises:
        ConfigError: there is no such group.
    """
    reading: Reading = yield read(keys)
    state = reading.standing()
    if state is None:
        raise ConfigError("name", name, "there is no such group: no member ever joined")
    return state, reading


def change(
    name: str,
    keys: GroupKeys,
    by: str,
    decide: Callable[[GroupState, float], next_decision.StepOutcome],
) -> Flow[GroupState]:
    """Decide something about a group; what stands after that.

    Args:
        by: who decides, for the history.
        decide: gets the state of the group, and Redis time.

    Raises:
        ConfigError: there is no such group.
        WriteConflict: others decide all the time.
    """

    def attempt() -> Flow[GroupState | None]:
        state, reading = yield from standing(name, keys)
        outcome = decide(state, reading.facts.now)
        if outcome.state is state:
            return state
        due = next_decision.StepOutcome(outcome.state, outcome.events, reading.facts.now)
        done = yield commit(keys, reading, due, by)
        return None if isinstance(done, Conflict) else outcome.state

    return (yield from committed(f"group {name!r}", attempt))


# --- decisions ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Decided:
    """How a decider's turn went.

    Attributes:
        number: of the last ask that it answers.
        terms: the group's, as far as they were read.
        error: why nothing could be decided.
        news: whether anything was decided.
        due: monotonic time of the next step; ``None`` when none is due by itself.
        look: monotonic time at which to look whether the step was taken, which was left to
            another member that is at work on it; ``None`` when it was not left.
    """

    number: int
    terms: Terms | None
    error: Exception | None
    news: bool
    due: float | None
    look: float | None = None


@dataclass(frozen=True)
class OwnDecision:
    """A decision of a decider's, as far as its member has to know it.

    Attributes:
        tag, generation, phase: its own.
        part: the tag of the decision that changed the member's part before; empty when other
            deciders may have done so since.
        session: the member's, that it is about.
        change: what it changes for that one.
        sent: monotonic time before it was sent.
        redis_now: Redis time at which it was written.
    """

    tag: str
    generation: int
    phase: Phase
    part: str
    session: str
    change: ViewChange
    sent: float
    redis_now: float


class DeciderStage(str, Enum):
    """What a decider is doing."""

    IDLE = "idle"
    DECIDING = "deciding"
    LAST = "last decision"
    ENDED = "ended"


class DeciderTurn(str, Enum):
    """What leads from one stage of a decider to the next."""

    ASKED = "asked"
    DONE = "done"
    END = "end"


DECIDER_LIFE: Final = StateTable(
    {
        DeciderStage.IDLE: "nothing is asked of it",
        DeciderStage.DECIDING: "reads the group, runs the assignor, commits",
        DeciderStage.LAST: "ends what it does; for a member that has left",
        DeciderStage.ENDED: "its member has left",
    },
    {
        DeciderStage.IDLE: {
            DeciderTurn.ASKED: DeciderStage.DECIDING,
            DeciderTurn.END: DeciderStage.LAST,
        },
        DeciderStage.DECIDING: {
            DeciderTurn.ASKED: DeciderStage.DECIDING,
            DeciderTurn.DONE: DeciderStage.IDLE,
            DeciderTurn.END: DeciderStage.LAST,
        },
        DeciderStage.LAST: {DeciderTurn.DONE: DeciderStage.ENDED},
    },
)


class Decider:
    """Takes the steps of the group that are one member's to take.

    Args:
        group, keys: the group's name, and its keys.
        member: who decides, for the history.
        assignor: the member's; another one of this project's when the group is migrated to it.
        report: told how each turn went.
        tell: told of each decision that changes something for the member, once it stands.
    """

    channels = ()

    def __init__(
        self,
        group: str,
        keys: GroupKeys,
        member: str,
        assignor: Assignor,
        *,
        report: Callable[[Decided], None],
        tell: Callable[[OwnDecision], None],
    ) -> None:
        self.assignor = assignor
        self.stage = DeciderStage.IDLE
        self._group = group
        self._keys = keys
        self._member = member
        self._report = report
        self._tell = tell
        self._flow: FlowRun[bool] | None = None
        # The decision that stood last, and what the assignor wanted then.
        self._known: tuple[str, GroupState | None] = ("", None)
        self._plan: next_decision.Rebalance | None = None
        # The last decision that changed something for the member, if no other decider's came after.
        self._part = ""
        # What members reported last.
        self._reports: Reports = {}
        self._again = False
        # What the last ask brought, to go by.
        self._brought: Brought | None = None
        self._asked = self._answers = 0
        self._terms: Terms | None = None
        self._due: float | None = None
        self._look: float | None = None

    @property
    def decision(self) -> str:
        """The tag of the decision that it can go on from; empty when there is none."""
        return self._known[0] if self.stage is DeciderStage.IDLE else ""

    def ask(self, number: int, brought: Brought | None = None) -> None:
        """A step is due.

        Args:
            number: greater than all before; the report says which asks it answers.
            brought: what to go by; read when there is nothing, or something newer is known.
        """
        if DECIDER_LIFE.may(self.stage, DeciderTurn.ASKED):
            # What is under way may have read too early.
            self._again = True
            self._asked = number
            self._brought = brought
            self._turn(DeciderTurn.ASKED)

    def end(self, *, last: bool = True) -> None:
        """Take a last step, if nobody else does, and end."""
        if DECIDER_LIFE.may(self.stage, DeciderTurn.END):
            self._turn(DeciderTurn.END)
            self._again = last
            if not last and self._flow is None:
                self._turn(DeciderTurn.DONE)

    def follow(self, assignor: str) -> None:
        """Go by the assignor that the group was migrated to, if it is one of this project's.

        Raises:
            GroupMismatch: it is not.
        """
        if assignor != self.assignor.name:
            # Two rules in one group would undo each other's decisions for ever.
            try:
                self.assignor = assignor_named(assignor)
            except ConfigError:
                raise GroupMismatch(self._group, "assignor", self.assignor.name, assignor) from None

    def _turn(self, turn: DeciderTurn) -> None:
        self.stage = DECIDER_LIFE.after(self.stage, turn)

    # --- asked by the loop --------------------------------------------------------------------

    def next(self, now: float) -> Step:
        """What to do now."""
        while self._flow is None and self._again:
            self._again = False
            self._answers, self._due, self._look = self._asked, None, None
            self._flow = FlowRun(self._decide(), self._done, self._failed)
            self._flow.begin(now)
        if self._flow is not None and self._flow.step is not None:
            return self._flow.step
        return Finished() if self.stage is DeciderStage.ENDED else Wait(math.inf)

    def subscribed(self, number: int, now: float) -> None:
        """It subscribes to nothing."""

    def unsubscribed(self, number: int, error: StoreError | None, now: float) -> None:
        """It subscribes to nothing."""

    def told(self, number: int, channel: bytes, payload: bytes, now: float) -> None:
        """It subscribes to nothing."""

    def _decide(self) -> Flow[bool]:
        """Take the next steps of the group; whether anything was decided.

        Raises:
            StoreError: Redis did not do it.
            AssignorError: the assignor's answer is none.
            GroupMismatch: the group goes by a rule that is not known here.
        """
        decided = False
        for _ in range(TRIES):
            reading = self._read_already()
            if reading is None:
                reading = yield read(self._keys, *self._known, self._reports)
            if reading.tag != self._known[0]:
                self._part = ""
            state = reading.standing()
            if state is None:
                return decided
            self._terms = state.terms
            self.follow(state.terms.assignor)
            outcome = next_decision.step(state, reading.facts, self.assignor, self._plan)
            self._plan = outcome.plan
            stays = self.stage is not DeciderStage.LAST
            done = yield commit(
                self._keys, reading, outcome, self._member, goes_on=True, stays=stays
            )
            if isinstance(done, Conflict):
                if done.left:
                    # Two at once would only overtake each other. That one may be gone by then.
                    self._look = self._flow_now + CLAIM
                    break
                continue
            self._known = done.tag, done.state
            self._tell_of(done)
            decided = decided or outcome.state is not state
            if not done.again:
                self._due = self._wait_for(outcome.due, done.now)
                break
        return decided

    def _tell_of(self, done: Committed) -> None:
        """Tell the member what was decided about it."""
        if done.own is None:
            return
        assert self._flow is not None
        part, self._part = self._part, done.tag
        state, session = done.state, done.state.roster[self._member].session
        own = OwnDecision(
            done.tag,
            state.generation,
            state.phase,
            part,
            session,
            done.own,
            self._flow.sent,
            done.now,
        )
        self._tell(own)

    def _read_already(self) -> Reading | None:
        """What the last ask brought, once; ``None`` if that is not of the decision known here.

        Raises:
            GroupFormatError: what stands in Redis cannot be read.
        """
        brought, self._brought = self._brought, None
        tag, state = self._known
        if brought is None or brought.since != tag:
            return None
        return brought.reading(state, self._reports)

    @property
    def _flow_now(self) -> float:
        assert self._flow is not None
        return self._flow.now

    def _wait_for(self, due: float | None, redis_now: float) -> float | None:
        return None if due is None else self._flow_now + due - redis_now

    def _done(self, decided: bool, now: float) -> None:
        self._finish(Decided(self._answers, self._terms, None, decided, self._due, self._look))

    def _failed(self, error: Exception, now: float) -> None:
        # If it is what stands in Redis that cannot be read, the rest of it may not be known either.
        self._known = ("", None)
        self._finish(Decided(self._answers, self._terms, error, news=False, due=None))

    def _finish(self, decided: Decided) -> None:
        self._flow = None
        if not self._again:
            self._turn(DeciderTurn.DONE)
        self._report(decided)


# --- the member ---------------------------------------------------------------------------------


class GroupMachine(MemberMachine):
    """The protocol of a member of a partition group.

    Args:
        group, keys: the group's name, and its keys.
        member: the member's name.
        weight: its share relative to the others'.
        terms: what it wants the group to be like.
        counted: whether it says how many partitions there are.
        migrate: change the group's terms to these, instead of refusing them.
        decider: takes the steps that are this member's to take.
        ask: asks the decider for a step, in its own loop: by a number, and with what to go by.
        new_session: a session that nobody had before.
        warms_up: whether any part of the application hears of what to warm up for.

    Attributes:
        counted: see above.
        wants: the terms that it was given; it enters a group of others only to migrate it.
        terms: the group's, as this member lives by them.
        offered: the group's latest; taken up with the next renewal.
        view: the member's part of the last decision it read.
        waits_for_name: whether it waits while another session has its name.
        undecided: why the decider could not decide last; ``None`` when it could.
        last_step: whether it has left, and nobody else takes the step that is due since.
    """

    awaits_decision = True
    renews_to_the_end = True

    def __init__(
        self,
        group: str,
        keys: GroupKeys,
        member: str,
        *,
        weight: float,
        terms: Terms,
        counted: bool,
        migrate: bool,
        interval: float,
        progress_timeout: float | None,
        decider: Decider,
        ask: Callable[[int, Brought | None], None],
        new_session: Callable[[], str],
        warms_up: Callable[[], bool],
    ) -> None:
        super().__init__(
            member,
            channels=(keys.member_channel(member),),
            ttl=terms.ttl,
            interval=interval,
            grace=terms.max_handoff_time,
            progress_timeout=progress_timeout,
        )
        self.group = group
        self.weight = weight
        self.decider = decider
        self.terms = self.offered = self.wants = terms
        self.view: MemberView | None = None
        self.undecided: Exception | None = None
        self.last_step = False
        self.waits_for_name = False
        self._name_left = math.inf
        self._keys = keys
        self.counted = counted
        self._migrate = migrate
        self._ask_decider = ask
        self._asked = self._asked_first = 0
        self._new_session = new_session
        self._warms_up = warms_up
        self._session = ""
        self._claims: dict[int, int] = {}
        self._longest_lease = 0.0
        self._known = NO_PART
        self._leaving: float | None = None
        self._redis_now = 0.0
        self._awaited: int | None = None

    # --- what the application says about a partition ------------------------------------------

    def lag(self, partition: int, behind: float) -> bool:
        """How far it is behind on a partition; whether it was to warm up for it."""
        return self._report(self.membership.lag(partition, behind))

    def load(self, partition: int, value: float) -> bool:
        """How busy a partition is, told with the next renewal; whether it is held."""
        return self.membership.load(partition, value)

    def drained(self, partition: int, now: float) -> bool:
        """A removed partition is empty; whether this member was to empty it."""
        return self._report(self.membership.drained(partition, now))

    # --- decisions ----------------------------------------------------------------------------

    def _ask(self, brought: Brought | None = None) -> int:
        self._asked += 1
        self._ask_decider(self._asked, brought)
        return self._asked

    def decided(self, decided: Decided) -> None:
        """The decider has taken its turn."""
        if decided.terms is not None:
            self.offered = decided.terms
        if decided.due is not None:
            self.membership.watch(decided.due)
        if decided.look is not None:
            self.membership.look_again(decided.look)
        if decided.number >= self._asked_first and decided.look is None:
            if decided.error is not None:
                self.refused(decided.error)
            else:
                self.admitted()
        awaited = self._awaited is not None and decided.number >= self._awaited
        # After an error of the store a decision may stand of which this member had no message.
        unsure = isinstance(decided.error, StoreError)
        if unsure or (awaited and decided.look is None) or (decided.news and not self.hears):
            self.wake()

    def own_decision(self, own: OwnDecision, now: float) -> None:
        """This member's decider has taken a step that changes something for this member.

        What it has to let go of, it learns without asking again. What it is granted comes by an
        answer to a renewal alone, as from other deciders: that is of the Redis that has the lease.
        """
        view = self.view
        if own.tag == self._known:
            # A renewal was faster.
            return
        if (
            view is None
            or not view.seated
            or (own.session, own.part) != (self._session, self._known)
            or own.change.grants
            or self.stage is not Stage.MEMBER
        ):
            self.wake()
            return
        self.view = changed_view(view, [own.change], own.generation, own.phase)
        self._known = own.tag
        self.changes += self.membership.asked_for(self.view, own.sent, own.redis_now, now)
        self._warm_by_itself(now)
        if self.view.revoked:
            self._due = min(self._due, now + RETRY)

    def offer(self, terms: Terms) -> None:
        """The group's terms were changed from here."""
        self.offered = terms
        if self.stage in (Stage.OUTSIDE, Stage.LEFT, Stage.FAILED):
            self.terms = terms
        self.wake()

    # --- entering -----------------------------------------------------------------------------

    def enter(self) -> Flow[None]:
        """Join, on the terms that stand where there are some."""
        self._take_up((yield from self._agreed_terms()))
        self._session, self.view, self._leaving = "", None, None
        try:
            due = yield from self._join()
        except BaseException as error:
            if isinstance(error, StoreError):
                with contextlib.suppress(StoreError):
                    yield leave(self._keys, self.member, self._session or "-")
            raise
        self._asked_first = self._asked + 1
        self._awaited = self._ask() if due else None

    def start(self, now: float) -> None:
        """Begin to enter."""
        self._name_left, self.last_step = math.inf, False
        super().start(now)

    def again_at(self, error: Exception, now: float) -> float | None:
        """When to look again whether a name in use is free; ``None`` if its session is alive."""
        if not self.waits_for_name or not isinstance(error, MemberExists):
            return None
        if error.expires_in > self._name_left:
            return None
        pause = min(NAME_POLL, error.expires_in + 0.01)
        # A lease that is not renewed is shorter each time by what was waited for.
        self._name_left = error.expires_in - pause / 2
        return now + pause

    def _take_up(self, terms: Terms) -> None:
        self.terms = self.offered = terms
        self.interval = min(self.interval, terms.ttl / 3)
        self.membership.ttl = terms.ttl
        self._longest_lease = max(self._longest_lease, terms.ttl)
        self.grace = terms.max_handoff_time

    def _agreed_terms(self) -> Flow[Terms]:
        """The terms to join with: the group's own where it has some."""
        theirs: Terms | None = yield agreed(self._keys)
        if theirs is None:
            if not self.counted:
                raise ConfigError(
                    "partitions",
                    None,
                    f"say how many: the group {self.group!r} does not exist yet",
                )
            return self.wants
        mine = asdict(self.wants)
        if not self.counted:
            mine["partitions"] = theirs.partitions
        for setting, value in mine.items():
            if value != getattr(theirs, setting):
                if self._migrate:
                    return (yield from self._migrate_to(Terms(**mine)))
                raise GroupMismatch(self.group, setting, value, getattr(theirs, setting))
        return theirs

    def _migrate_to(self, terms: Terms) -> Flow[Terms]:
        yield from change(
            self.group,
            self._keys,
            self.member,
            lambda state, now: next_decision.migrate(state, terms),
        )
        return terms

    def _facts(self) -> MemberFacts:
        words = self.membership.words()
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
            words.loads,
            self._longest_lease,
        )

    def _join(self) -> Flow[bool]:
        """Join as a new session, with what is still held; whether the next step is this one's."""
        before, self._session = self._session, self._new_session()
        self._claims = self.membership.held(self.now)
        answer = yield join(self._keys, self._facts(), self.terms, before)
        if isinstance(answer, Taken):
            self._session = before
            raise MemberExists(self.group, self.member, answer.expires_in)
        for setting, value in asdict(self.terms).items():
            if value != getattr(answer.terms, setting):
                # Two first members at once, or a change since they were read.
                yield leave(self._keys, self.member, self._session)
                raise GroupMismatch(self.group, setting, value, getattr(answer.terms, setting))
        self._known, self.view = NO_PART, None
        self._redis_now = answer.now
        return bool(answer.due)

    # --- renewing -----------------------------------------------------------------------------

    def renew(self) -> Flow[float]:
        """Renew and report, or come back as a new session."""
        if self.offered != self.terms:
            self._take_up(self.offered)
        answer = yield beat(
            self._keys,
            self._facts(),
            self.terms.ttl,
            self._known,
            self.view,
            decided=self.decider.decision,
        )
        if answer is None:
            return (yield from self._come_back())
        sent = self.sent
        self._awaited = None
        view = answer.view
        if view is None:
            # Read later than the lease was renewed, so it has all that a lease of then goes by.
            state = (yield read(self._keys)).standing()
            view = None if state is None else state.view(self.member, self._session)
        self._redis_now = answer.now
        if answer.wait is not None:
            self.membership.watch(self.now + answer.wait)
        if view is not None:
            self.view, self._known = view, answer.part if view.seated else NO_PART
            if self.view.seated:
                self._claims = {}
                self.admitted()
            self.heard(self.view, sent, answer.now)
            self._warm_by_itself(self.now)
        if answer.due:
            self._ask(answer.brought)
        if answer.left:
            self.membership.look_again(self.now + CLAIM)
        if self.stage is Stage.JOINED or (self.view is not None and self.view.revoked):
            # Say soon that the deadlines are known; another may have been to count this one in.
            return min(RETRY, self.interval)
        return self.interval

    def _warm_by_itself(self, now: float) -> None:
        """Answer for an application that hears of no warm-ups.

        A loop over the changes may begin a moment after the member: it has one interval.
        """
        cold = self.membership.cold
        if cold and not self._warms_up() and now >= self._began + self.interval:
            self.membership.warm_at_once()
            self.wake()

    def _come_back(self) -> Flow[float]:
        if self._awaited is not None:
            # Nobody decides, as when the assignor fails: not again and again at once.
            self._awaited = None
            return min(RETRY, self.interval)
        # The group's terms may have changed while it was away.
        terms = yield agreed(self._keys)
        if terms is not None and terms != self.terms:
            self.decider.follow(terms.assignor)
            self._take_up(terms)
        due = yield from self._join()
        # Not before there is a decision later than the last one seen here: a Redis that has lost
        # it would find this session gone, too.
        if due:
            self._awaited = self._ask()
            return self.interval
        self._awaited = self._asked + 1
        return min(RETRY, self.interval)

    # --- leaving ------------------------------------------------------------------------------

    def hand_over(self) -> float:
        """Tell the group that this member wants to go."""
        self._leaving = self._redis_now
        return self.terms.leave_timeout

    def empty_handed(self) -> bool:
        """Whether the group knows that this member holds nothing."""
        return self.view is not None and self.view.seated and not self.view.held

    def depart(self) -> Flow[None]:
        """Leave."""
        left = yield leave(self._keys, self.member, self._session or "-")
        self.last_step = self.stage is Stage.DEPARTING and left is not None and left.due

    def concerns(self, channel: bytes, payload: bytes) -> bool:
        """Whether to renew: a decision concerns this member. Else it is to take a step."""
        if payload == STEP:
            self._ask()
        return payload != STEP
