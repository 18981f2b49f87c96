"""The steps of a partition group that are one member's to take; without I/O.

What a decider does:

{DECIDER_LIFE}
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from hashring.core.assignors import Assignor, assignor_named
from hashring.core.groups import next_state
from hashring.core.groups.state import Facts, GroupPhase, GroupState, Terms
from hashring.core.groups.view_changes import ViewChange
from hashring.core.state_table import StateTable, with_tables
from hashring.errors import (
    AssignorError,
    ConfigError,
    GroupMismatch,
    StoreError,
    WriteConflict,
)
from hashring.protocol.flow import TRIES, Flow, FlowRun, committed
from hashring.protocol.machine_steps import Finished, Step, Wait
from hashring.store.group.commands import CLAIM, Brought, Committed, Conflict, commit
from hashring.store.group.key_names import GroupKeys
from hashring.store.group.reading import Reading, Reports, read


@dataclass(frozen=True)
class Decided:
    """How a decider's turn went.

    Attributes:
        number: of the last ask that it answers.
        terms: the group's, as this turn read them; ``None`` if it did not.
        error: why nothing could be decided.
        news: whether anything was decided.
        due: monotonic time of the next step; ``None`` when none is due by itself.
        look: monotonic time at which to look whether the step was taken, which was left to
            another member that is at work on it; ``None`` when it was not left.
        generation: of the decision that had these terms.
    """

    number: int
    terms: Terms | None
    error: Exception | None
    news: bool
    due: float | None
    look: float | None = None
    generation: int = 0


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
    phase: GroupPhase
    part: str
    session: str
    change: ViewChange
    sent: float
    redis_now: float


@dataclass(frozen=True)
class _Taken:
    """A step of the group's.

    Attributes:
        news: whether anything was decided.
        again: whether this decider is to take another step at once.
    """

    news: bool
    again: bool


class DeciderStage(str, Enum):
    """What a decider is doing."""

    IDLE = "idle"
    ASKED = "asked"
    DECIDING = "deciding"
    ASKED_AGAIN = "asked again"
    ENDING = "ending"
    LAST_ASKED = "last step asked"
    LAST = "last step"
    ENDED = "ended"


class DeciderTurn(str, Enum):
    """What leads from one stage of a decider to the next."""

    ASKED = "asked"
    BEGUN = "begun"
    DONE = "done"
    END = "end"
    GIVE_UP = "end at once"


_S, _T = DeciderStage, DeciderTurn
_END_IDLE: Final = {_T.END: _S.LAST_ASKED, _T.GIVE_UP: _S.ENDED}
_END_BUSY: Final = {_T.END: _S.ENDING, _T.GIVE_UP: _S.LAST}

DECIDER_LIFE: Final = StateTable(
    {
        _S.IDLE: "nothing is asked of it",
        _S.ASKED: "is to decide",
        _S.DECIDING: "reads the group, runs the assignor, commits",
        _S.ASKED_AGAIN: "the same, and once more: it may have read too early",
        _S.ENDING: "the same, and once more, for the last time",
        _S.LAST_ASKED: "is to decide for the last time",
        _S.LAST: "decides for the last time; its member has left",
        _S.ENDED: "its member has left",
    },
    {
        _S.IDLE: {_T.ASKED: _S.ASKED, **_END_IDLE},
        _S.ASKED: {_T.ASKED: _S.ASKED, _T.BEGUN: _S.DECIDING, **_END_IDLE},
        _S.DECIDING: {_T.ASKED: _S.ASKED_AGAIN, _T.DONE: _S.IDLE, **_END_BUSY},
        _S.ASKED_AGAIN: {_T.ASKED: _S.ASKED_AGAIN, _T.DONE: _S.ASKED, **_END_BUSY},
        _S.ENDING: {_T.DONE: _S.LAST_ASKED},
        _S.LAST_ASKED: {_T.BEGUN: _S.LAST},
        _S.LAST: {_T.DONE: _S.ENDED},
    },
)

AT_WORK: Final = (_S.ASKED, _S.DECIDING, _S.ASKED_AGAIN)
"""The stages in which the group may wait for it."""

__doc__ = with_tables(__doc__, DECIDER_LIFE=DECIDER_LIFE)


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
        self._plan: next_state.Rebalance | None = None
        # The last decision that changed something for the member, if no other decider's came after.
        self._part = ""
        # What members reported last.
        self._reports: Reports = {}
        # What the last ask brought, to go by.
        self._brought: Brought | None = None
        self._asked = self._answers = 0
        # The last decision that this turn read or made.
        self._latest: GroupState | None = None
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
            self._asked = number
            self._brought = brought
            self._turn(DeciderTurn.ASKED)

    def end(self, *, last: bool = True) -> None:
        """Take a last step, if nobody else does, and end.

        Args:
            last: whether a step is due; else it ends with the turn that is under way.
        """
        turn = DeciderTurn.END if last else DeciderTurn.GIVE_UP
        if DECIDER_LIFE.may(self.stage, turn):
            self._turn(turn)

    def follow(self, assignor: str) -> None:
        """Go by the assignor that the group was migrated to, if it is one of this project's.

        Raises:
            GroupMismatch: it is not.
        """
        # Two rules in one group would undo each other's decisions for ever.
        self.assignor = self.known_assignor(assignor)

    def known_assignor(self, name: str) -> Assignor:
        """The assignor of that name: this member's, or one of this project's.

        Raises:
            GroupMismatch: it is neither.
        """
        if name == self.assignor.name:
            return self.assignor
        try:
            return assignor_named(name)
        except ConfigError:
            raise GroupMismatch(self._group, "assignor", self.assignor.name, name) from None

    def _turn(self, turn: DeciderTurn) -> None:
        self.stage = DECIDER_LIFE.after(self.stage, turn)

    # --- asked by the loop --------------------------------------------------------------------

    def next(self, now: float) -> Step:
        """What to do now."""
        while DECIDER_LIFE.may(self.stage, DeciderTurn.BEGUN):
            self._turn(DeciderTurn.BEGUN)
            self._answers, self._due, self._look = self._asked, None, None
            self._latest = None
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
        # A group that never rests must not keep this turn from its end, and from its report.
        for _ in range(TRIES):
            try:
                taken = yield from committed(f"group {self._group!r}", self._take_step)
            except WriteConflict:
                # Others took every step. The last of them goes on, unless it is gone by then.
                break
            decided = decided or taken.news
            if not taken.again:
                return decided
        self._look = self._flow_now + CLAIM
        return decided

    def _take_step(self) -> Flow[_Taken | None]:
        """Take the next step of the group; ``None`` if another took it first."""
        reading = self._read_already()
        if reading is None:
            reading = yield read(self._keys, *self._known, self._reports)
        if reading.tag != self._known[0]:
            self._part = ""
        state = reading.standing()
        if state is None:
            return _Taken(news=False, again=False)
        self._latest = state
        self.follow(state.terms.assignor)
        outcome = self._step(state, reading.facts)
        self._plan = outcome.plan
        stays = self.stage not in (DeciderStage.ENDING, DeciderStage.LAST)
        done = yield commit(self._keys, reading, outcome, self._member, goes_on=True, stays=stays)
        if isinstance(done, Conflict):
            if not done.left:
                return None
            # Two at once would only overtake each other. That one may be gone by then.
            self._look = self._flow_now + CLAIM
            return _Taken(news=False, again=False)
        self._known, self._latest = (done.tag, done.state), done.state
        self._tell_of(done)
        if not done.again:
            self._due = self._wait_for(outcome.due, done.now)
        return _Taken(outcome.state is not state, done.again)

    def _step(self, state: GroupState, facts: Facts) -> next_state.StepOutcome:
        """
        Raises:
            AssignorError: the assignor's answer is none.
        """
        try:
            return next_state.step(state, facts, self.assignor, self._plan)
        except Exception:
            raise
        except BaseException as error:
            # As gevent.Timeout, or sys.exit(): the decider's thread would end, and say nothing.
            # Ctrl-C is raised in the main thread, so a KeyboardInterrupt is the assignor's, too.
            what = f"raised {type(error).__name__}: {error}"
            raise AssignorError(self.assignor.name, what) from error

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
        self._finish(None, news=decided)

    def _failed(self, error: Exception, now: float) -> None:
        # If it is what stands in Redis that cannot be read, the rest of it may not be known either.
        self._known = ("", None)
        self._finish(error, news=False)

    def _finish(self, error: Exception | None, *, news: bool) -> None:
        self._flow = None
        self._turn(DeciderTurn.DONE)
        terms, generation = None, 0
        if self._latest is not None:
            terms, generation = self._latest.terms, self._latest.generation
        self._report(Decided(self._answers, terms, error, news, self._due, self._look, generation))
