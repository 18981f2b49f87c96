"""The life of a member that holds partitions, whatever protocol it follows; without I/O.

Subclasses say how to enter, renew and depart, as flows (:mod:`.flow`): for partition groups
:mod:`.group_member_machine`, for the lease challenge :mod:`.lease_challenge_machine`, for the
faithful challenge :mod:`.faithful_challenge_machine`. Two threads share a machine: the loop that
drives it, and the application with what it reports. They keep a lock around each call.

{MEMBER_LIFE}

In ``leaving`` everything held has been revoked; a member of a group renews its lease meanwhile.
What a member holds ends by its own clock in every state
(:mod:`hashring.core.groups.member_holdings`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Any, ClassVar, Final
from zlib import crc32

from hashring.core.groups.member_holdings import MemberHoldings
from hashring.core.groups.partition_change import PartitionChange
from hashring.core.groups.state import MemberView
from hashring.core.state_table import StateTable, with_tables
from hashring.errors import NodeStateError, StoreError
from hashring.protocol.flow import Flow, FlowRun
from hashring.protocol.listening import Listening
from hashring.protocol.machine_steps import Finished, Step, Wait, io_timeout

RETRY: Final = 0.5
"""Seconds until Redis is asked again after it did not answer."""


class Stage(str, Enum):
    """Where a member is in its life."""

    OUTSIDE = "outside"
    ENTERING = "entering"
    WAITING = "waiting"
    JOINED = "joined"
    MEMBER = "member"
    FENCED = "fenced"
    HANDING_OVER = "handing over"
    LEAVING = "leaving"
    DEPARTING = "departing"
    LEFT = "left"
    WITHDRAWING = "withdrawing"
    FAILED = "failed"


class Turn(str, Enum):
    """What leads from one stage to the next."""

    START = "start"
    TAKEN = "name taken"
    TRY_AGAIN = "try again"
    ENTERED = "entered"
    ADMITTED = "admitted"
    REFUSED = "refused"
    LEASE_ENDED = "lease ended"
    RENEWED = "renewed"
    HAND_OVER = "hand over"
    STOP = "stop"
    LET_GO = "let go"
    GONE = "gone"


MEMBER_LIFE: Final = StateTable(
    {
        Stage.OUTSIDE: "not started",
        Stage.ENTERING: "asks to be let in",
        Stage.WAITING: "waits for another session to give up its name",
        Stage.JOINED: "has an entry in Redis; waits to be counted in",
        Stage.MEMBER: "renews its lease; holds what it is granted",
        Stage.FENCED: "did not renew in time; holds nothing",
        Stage.HANDING_OVER: "renews; leaves once others took over",
        Stage.LEAVING: "lets the application end its work",
        Stage.DEPARTING: "takes its entry out of Redis",
        Stage.LEFT: "no member any more",
        Stage.WITHDRAWING: "takes back an entry that was refused",
        Stage.FAILED: "could not enter",
    },
    {
        Stage.OUTSIDE: {Turn.START: Stage.ENTERING},
        Stage.ENTERING: {
            Turn.ENTERED: Stage.JOINED,
            Turn.TAKEN: Stage.WAITING,
            Turn.REFUSED: Stage.FAILED,
            Turn.STOP: Stage.DEPARTING,
        },
        Stage.WAITING: {Turn.TRY_AGAIN: Stage.ENTERING, Turn.STOP: Stage.FAILED},
        Stage.JOINED: {
            Turn.ADMITTED: Stage.MEMBER,
            Turn.REFUSED: Stage.WITHDRAWING,
            Turn.STOP: Stage.LEAVING,
            Turn.HAND_OVER: Stage.HANDING_OVER,
        },
        Stage.MEMBER: {
            Turn.LEASE_ENDED: Stage.FENCED,
            Turn.HAND_OVER: Stage.HANDING_OVER,
            Turn.STOP: Stage.LEAVING,
        },
        Stage.FENCED: {
            Turn.RENEWED: Stage.MEMBER,
            Turn.HAND_OVER: Stage.HANDING_OVER,
            Turn.STOP: Stage.LEAVING,
        },
        Stage.HANDING_OVER: {Turn.STOP: Stage.LEAVING},
        Stage.LEAVING: {Turn.LET_GO: Stage.DEPARTING},
        Stage.DEPARTING: {Turn.GONE: Stage.LEFT},
        Stage.WITHDRAWING: {Turn.GONE: Stage.FAILED},
        Stage.LEFT: {Turn.START: Stage.ENTERING},
        Stage.FAILED: {Turn.START: Stage.ENTERING},
    },
)

__doc__ = with_tables(__doc__, MEMBER_LIFE=MEMBER_LIFE)

ENDED: Final = (Stage.OUTSIDE, Stage.LEFT, Stage.FAILED)
"""The stages in which there is nothing to do."""

_STARTING: Final = (Stage.ENTERING, Stage.WAITING, Stage.JOINED)

_RENEWING: Final = (Stage.JOINED, Stage.MEMBER, Stage.FENCED, Stage.HANDING_OVER)


class BaseMemberMachine(ABC):
    """The protocol of one member; see the module's text.

    Args:
        member: its name.
        channels: tell of what concerns members.
        ttl: seconds the lease lasts without renewal.
        interval: seconds between renewals.
        grace: seconds that work may take to end when the member leaves, but no longer than its
            lease, if it does not renew meanwhile.
        progress_timeout: seconds without a sign of progress after which the member is stalled.

    Attributes:
        stage: where it is in its life.
        holdings: what it holds.
        error: what went wrong last; ``None`` once a renewal was answered.
        failure: why it did not enter; also that it was stopped before anybody counted it in.
        changes: what the application is to be told; whoever tells it takes them out.
        listening: whether messages arrive.
    """

    awaits_decision: ClassVar[bool] = False
    """Whether somebody has to count a new member in."""

    renews_to_the_end: ClassVar[bool] = False
    """Whether it can renew without taking part, while its application ends its work."""

    def __init__(
        self,
        member: str,
        *,
        channels: tuple[bytes, ...],
        ttl: float,
        interval: float,
        grace: float,
        progress_timeout: float | None = None,
    ) -> None:
        self.member = member
        self.channels = channels
        self.interval = interval
        self.grace = grace
        self.progress_timeout = progress_timeout
        self.stage = Stage.OUTSIDE
        self.holdings = MemberHoldings(ttl)
        self.error: Exception | None = None
        self.failure: Exception | None = None
        self.changes: list[PartitionChange] = []
        self.listening = Listening()
        self._flow: FlowRun[Any] | None = None
        self._began = self._last_tick = 0.0
        self._due = self._asked_at = self._admitted_by = 0.0
        self._woken = False
        self._leave_at = math.inf

    # --- the protocol -------------------------------------------------------------------------

    @abstractmethod
    def enter(self) -> Flow[None]:
        """Become a member.

        Raises:
            HashringError: it was not done, and nothing was left behind.
        """

    @abstractmethod
    def renew(self) -> Flow[float]:
        """Renew, report, take up the answer; seconds until it is to be done again.

        Raises:
            HashringError: it was not done.
        """

    @abstractmethod
    def depart(self) -> Flow[None]:
        """Be no member any more.

        Raises:
            HashringError: it was not done.
        """

    def hand_over(self) -> float:
        """Begin to hand over; seconds after which to leave in any case. Where nobody assigns, 0."""
        return 0.0

    def empty_handed(self) -> bool:
        """Whether the group knows that this member holds nothing. Where nobody assigns, true."""
        return True

    @abstractmethod
    def concerns(self, channel: bytes, payload: bytes) -> bool:
        """Whether a message is about this member."""

    # --- asked by the application -------------------------------------------------------------

    def start(self, now: float) -> None:
        """Begin to enter."""
        self.holdings = self._new_holdings()
        self.error = self.failure = None
        self.changes = []
        self._woken = False
        self._began = self._last_tick = now
        self.listening.anew(now)
        self._leave_at = math.inf
        self._turn(Turn.START)

    def stop(self, now: float, *, handover: bool = False, patient: bool = True) -> None:
        """Begin to leave.

        Args:
            handover: stay until others have taken over what this member holds.
            patient: whether the application still ends its work; else nothing is waited for.
        """
        if handover and self.stage is Stage.HANDING_OVER:
            return
        if handover and MEMBER_LIFE.may(self.stage, Turn.HAND_OVER):
            self._leave_at = now + self.hand_over()
            self._woken = True
            self._turn(Turn.HAND_OVER)
        elif MEMBER_LIFE.may(self.stage, Turn.STOP):
            if self.stage in _STARTING:
                what = f"member {self.member!r} was stopped while it started"
                self.failure = NodeStateError(what)
            self._leave(now)
        if not patient and self.stage is Stage.LEAVING:
            self._give_up_flow()
            self._let_go()

    def tick(self, now: float) -> None:
        """The application makes progress."""
        self._last_tick = now

    def release(self, partition: int, token: int, now: float) -> bool:
        """The application has stopped working on a partition. Whether that was news."""
        return self._report(self.holdings.release(partition, token, now))

    def wake(self) -> None:
        """Renew at the next opportunity."""
        self._woken = True

    def _new_holdings(self) -> MemberHoldings:
        return MemberHoldings(self.holdings.ttl, self.holdings.seen)

    def _report(self, news: bool) -> bool:
        self._woken = self._woken or news
        return news

    # --- asked by the loop --------------------------------------------------------------------

    def next(self, now: float) -> Step:
        """What to do now."""
        self._let_time_end(now)
        # Another renewal may be due already, and after it the next: one was enough.
        listens_first = self.stage in _RENEWING and self._asked_at > self.listening.at
        if self._flow is None and not listens_first:
            self._begin_what_is_due(now)
        if self._flow is not None and self._flow.step is not None:
            return self._flow.step
        if self.stage in ENDED:
            return Finished()
        if self.stage in _RENEWING and now >= self.listening.at:
            return self.listening.ask(self.interval, io_timeout(self.holdings.ttl))
        return Wait(self._wait_until())

    def _begin_what_is_due(self, now: float) -> None:
        if now >= self._admitted_by:
            self.admitted()
        if self.stage is Stage.WAITING and now >= self._due:
            self.failure = None
            self._turn(Turn.TRY_AGAIN)
        if self.stage is Stage.ENTERING:
            self._begin(self.enter(), self._entered, self._not_entered, now)
        elif self.stage in _RENEWING:
            if now >= self._leave_at:
                self._leave(now)
            else:
                self._renew_when_due(now)
        if self.stage is Stage.LEAVING and self._flow is None:
            if not self.holdings.holding.partitions:
                self._let_go()
            elif self.renews_to_the_end:
                self._renew_when_due(now)
        if self.stage in (Stage.WITHDRAWING, Stage.DEPARTING) and self._flow is None:
            self._begin(self.depart(), self._departed, self._not_departed, now)

    def _renew_when_due(self, now: float) -> None:
        if self._woken or now >= self._due:
            self._woken = False
            self._begin(self.renew(), self._renewed, self._not_renewed, now)

    def _wait_until(self) -> float:
        until = self.holdings.due()
        if self.stage in _RENEWING:
            until = min(until, self._leave_at, self._due, self._stall_at(), self.listening.at)
        if self.stage is Stage.WAITING or (self.stage is Stage.LEAVING and self.renews_to_the_end):
            until = min(until, self._due)
        if self.stage is Stage.JOINED:
            until = min(until, self._admitted_by)
        return until

    def _begin(
        self,
        flow: Flow[Any],
        done: Callable[[Any, float], None],
        failed: Callable[[Exception, float], None],
        now: float,
    ) -> None:
        def ended(result: Any, at: float) -> None:
            self._flow = None
            done(result, at)

        def broke(error: Exception, at: float) -> None:
            self._flow = None
            failed(error, at)

        run = FlowRun(flow, ended, broke)
        self._flow = run
        self._asked_at = now
        run.begin(now)

    @property
    def sent(self) -> float:
        """Before the last command of the flow under way was sent."""
        assert self._flow is not None
        return self._flow.sent

    @property
    def now(self) -> float:
        """When the last reply of the flow under way was there."""
        assert self._flow is not None
        return self._flow.now

    # --- told by the loop ---------------------------------------------------------------------

    def subscribed(self, number: int, now: float) -> None:
        """The subscription stands (again)."""
        if self.listening.confirmed(number):
            # Whatever was said while nobody listened is found by asking.
            self._woken = True

    def unsubscribed(self, number: int, error: StoreError | None, now: float) -> None:
        """The subscription is gone, or could not be made."""
        if self.listening.ended(number):
            # Each renewal asks for what was said while nobody listens, so this need not be soon.
            doubled = RETRY * 2.0 ** min(self.listening.failed - 1, 16)
            wait = min(doubled, max(RETRY, self.interval))
            # All members lose their subscriptions at the same moment when Redis goes. By their
            # names they come back one by one.
            self.listening.at = now + wait * (0.5 + 0.5 * crc32(self.member.encode()) / 2**32)

    def told(self, number: int, channel: bytes, payload: bytes, now: float) -> None:
        """A message has arrived."""
        if number == self.listening.number and self.concerns(channel, payload):
            self._woken = True

    # --- its life -----------------------------------------------------------------------------

    def _turn(self, turn: Turn) -> None:
        self.stage = MEMBER_LIFE.after(self.stage, turn)

    def admitted(self) -> None:
        """The group counts this member in."""
        if self.stage is Stage.JOINED:
            self._turn(Turn.ADMITTED)

    def refused(self, error: Exception) -> None:
        """The group cannot count this member in."""
        if self.stage is Stage.JOINED:
            self.failure = error
            self._give_up_flow()
            # Before the entry goes: from then on others are granted what it may hold already.
            self.holdings = self._new_holdings()
            self.changes = []
            self._turn(Turn.REFUSED)

    def _entered(self, result: None, now: float) -> None:
        self._due = now
        # Whoever decides may be slow; that holds nobody up for long.
        self._admitted_by = now + self.interval
        self._turn(Turn.ENTERED)
        if not self.awaits_decision:
            self.admitted()

    def _not_entered(self, error: Exception, now: float) -> None:
        self.failure = error
        again = self.again_at(error, now)
        if again is None:
            self._turn(Turn.REFUSED)
        else:
            self._due = again
            self._turn(Turn.TAKEN)

    def again_at(self, error: Exception, now: float) -> float | None:
        """When to ask to be let in again after this failure; ``None`` for never."""
        return None

    def _renewed(self, wait: float, now: float) -> None:
        self._due = self._asked_at + wait
        self.error = None
        if self.stage is Stage.HANDING_OVER and self.empty_handed():
            self._leave(now)

    def _not_renewed(self, error: Exception, now: float) -> None:
        # Also a fault of this package: the member must live on, or fence itself.
        self.error = error
        self._due = now + self.again_after(error)

    def again_after(self, error: Exception) -> float:
        """Seconds after which a renewal that failed is tried again.

        With the longest interval and a Redis that was silent for all its time, a third of the ttl
        is left: enough for more than one attempt.
        """
        return min(RETRY, self.interval / 4)

    def _departed(self, result: None, now: float) -> None:
        self._turn(Turn.GONE)

    def _not_departed(self, error: Exception, now: float) -> None:
        self.error = error
        self._turn(Turn.GONE)

    def heard(self, view: MemberView, asked_at: float, redis_now: float) -> None:
        """Take up what the group says, for the flow under way that asked for it.

        Args:
            asked_at: before the question was sent.
            redis_now: Redis time of the answer.
        """
        self.changes += self.holdings.heard(view, asked_at, redis_now, self.now)
        if self.now < self.holdings.holding.lease_until and self.stage is Stage.FENCED:
            self._turn(Turn.RENEWED)

    def _let_time_end(self, now: float) -> None:
        """Let go of what time has ended, and note a stall."""
        stalled = self.progress_timeout is not None and (
            now - self._last_tick >= self.progress_timeout
        )
        # Also when a step of the group is due that it waits for.
        news = stalled != self.holdings.stalled or now >= self.holdings.due()
        self._woken = self._woken or news
        self.holdings.stalled = stalled
        self.changes += self.holdings.tick(now)
        lease = self.holdings.holding.lease_until
        if self.stage is Stage.MEMBER and -math.inf < lease <= now:
            self._turn(Turn.LEASE_ENDED)

    def _stall_at(self) -> float:
        if self.progress_timeout is None or self.holdings.stalled:
            return math.inf
        return self._last_tick + self.progress_timeout

    def _leave(self, now: float) -> None:
        """Revoke everything, and give the application its time."""
        self._give_up_flow()
        self.changes += self.holdings.tick(now)
        until = now + self.grace
        if not self.renews_to_the_end:
            until = min(until, self.holdings.holding.lease_until)
        self.changes += self.holdings.close(until)
        self._due = now
        self._turn(Turn.STOP)

    def _let_go(self) -> None:
        """Hold nothing any more, whether the application has ended its work or not."""
        self.changes += self.holdings.end()
        self.holdings = self._new_holdings()
        self._turn(Turn.LET_GO)

    def _give_up_flow(self) -> None:
        if self._flow is not None:
            self._flow.end()
            self._flow = None
