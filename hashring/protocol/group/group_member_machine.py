"""What a member of a partition group asks of Redis, and what it makes of the answers; without I/O.

Two machines make a member. :class:`GroupMemberMachine` renews the lease and reports;
:class:`~hashring.protocol.group.group_decider.Decider` takes the steps of the group that are this
member's to take. Each has a loop of its own, because an assignor runs in the decider's: one that
takes long, or never returns, costs nobody the lease.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Final

from hashring.core.groups import group_orders
from hashring.core.groups.state import MemberFacts, MemberView, Terms
from hashring.core.groups.view_changes import changed_view
from hashring.errors import ConfigError, GroupMismatch, MemberExists, StoreError
from hashring.protocol.flow import Flow
from hashring.protocol.group.base_member_machine import RETRY, BaseMemberMachine, Stage
from hashring.protocol.group.group_decider import AT_WORK, Decided, Decider, OwnDecision
from hashring.protocol.group.group_flows import change
from hashring.store.group.commands import (
    CLAIM,
    NO_PART,
    STEP,
    Brought,
    JoinEnded,
    Taken,
    agreed,
    beat,
    join,
    leave,
)
from hashring.store.group.key_names import GroupKeys
from hashring.store.group.reading import read

NAME_POLL: Final = 0.25
"""Seconds between two looks at whether a name in use is free."""


class GroupMemberMachine(BaseMemberMachine):
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
        # A ttl that is lowered and raised again leaves it as it was.
        self._longest_interval = interval
        self._longest_lease = 0.0
        self._longest_until = -math.inf
        self._turn_of_terms = 0
        # The decision that had the offered terms; None until a renewal is answered after a join.
        self._offered_as_of: int | None = None
        self._before: str | None = None
        self._known = NO_PART
        self._leaving: float | None = None
        self._redis_now = 0.0
        self._awaited: int | None = None

    # --- what the application says about a partition ------------------------------------------

    def lag(self, partition: int, behind: float) -> bool:
        """How far it is behind on a partition; whether it was to warm up for it.

        The group hears at once of the first lag, and that the member is ready; of others twice a
        second, as an application may report them with every message.
        """
        before = self.holdings.behind(partition)
        if not self.holdings.lag(partition, behind):
            return False
        if behind != before and (before is None or behind == 0):
            self.wake()
        elif behind != before:
            self.holdings.look_again(self._asked_at + RETRY)
        return True

    def load(self, partition: int, value: float) -> bool:
        """How busy a partition is, told with the next renewal; whether it is held."""
        return self.holdings.load(partition, value)

    def drained(self, partition: int, now: float) -> bool:
        """A removed partition is empty; whether this member was to empty it."""
        return self._report(self.holdings.drained(partition, now))

    # --- decisions ----------------------------------------------------------------------------

    def _ask(self, brought: Brought | None = None) -> int:
        self._asked += 1
        self._ask_decider(self._asked, brought)
        return self._asked

    @property
    def _others_first(self) -> float:
        """Seconds for which steps are left to the others, since it could not take one lately.

        Its assignor raises or takes very long, or it does not know the group's. All that could
        decide renew within that time, and none of those that could not keeps them from it.
        """
        busy = self.decider.stage in AT_WORK
        unable = self.undecided is not None and not isinstance(self.undecided, StoreError)
        return self.terms.ttl / 2 if busy or unable else 0.0

    def decided(self, decided: Decided) -> None:
        """The decider has taken its turn."""
        self.undecided = decided.error
        # Without an answer since it joined, it cannot compare them with those that it joined on.
        if decided.terms is not None and self._offered_as_of is not None:
            self._hear_of(decided.terms, decided.generation)
        if decided.due is not None:
            self.holdings.watch(decided.due)
        if decided.look is not None:
            self.holdings.look_again(decided.look)
        if decided.number >= self._asked_first and decided.look is None:
            if decided.error is not None:
                self.refused(decided.error)
            else:
                self.admitted()
        awaited = self._awaited is not None and decided.number >= self._awaited
        # After an error of the store a decision may stand of which this member had no message.
        unsure = isinstance(decided.error, StoreError)
        untold = decided.news and not self.listening.stands
        if unsure or untold or (awaited and decided.look is None):
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
        self.changes += self.holdings.asked_for(self.view, own.sent, own.redis_now, now)
        self._warm_by_itself(now)
        if self.view.revoked:
            self._due = min(self._due, now + RETRY)

    def offer(self, terms: Terms, generation: int) -> None:
        """The group's terms were changed from here, by the decision of that generation."""
        if self.stage in (Stage.OUTSIDE, Stage.LEFT, Stage.FAILED):
            self.terms = self.offered = terms
        else:
            self._hear_of(terms, generation)
        self.wake()

    def _hear_of(self, terms: Terms, generation: int) -> None:
        """Take these terms up with the next renewal, unless later ones are known.

        A decider may have read them long ago, as with a slow assignor. Terms of before a change
        would make the lease longer than the others count on.
        """
        if self._offered_as_of is None or generation >= self._offered_as_of:
            self.offered, self._offered_as_of = terms, generation

    # --- entering -----------------------------------------------------------------------------

    def enter(self) -> Flow[None]:
        """Join, on the terms that stand where there are some."""
        self._take_up((yield from self._agreed_terms()))
        self._session, self.view, self._leaving, self._before = "", None, None, None
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
        """Live by these terms from the next renewal on."""
        self._turn_of_terms += 1
        if terms.ttl >= self._longest_lease:
            self._longest_lease = terms.ttl
        elif terms.ttl < self.terms.ttl:
            # As long as a group's state has it; see :class:`GroupState`.
            self._longest_until = max(self._longest_until, self.now + 2 * self.terms.ttl)
        self.terms = self.offered = terms
        self.interval = min(self._longest_interval, terms.ttl / 3)
        self.holdings.ttl = terms.ttl
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
            lambda state, now: group_orders.migrate(state, terms),
        )
        return terms

    def _facts(self) -> MemberFacts:
        if self._claims:
            held = self.holdings.held(self.now).items()
            self._claims = dict(self._claims.items() & held)
        return MemberFacts(
            self.member,
            self._session,
            0,
            0.0,
            self.weight,
            leaving=self._leaving,
            claims=self._claims,
            lease=self._longest_lease,
            turn=self._turn_of_terms,
            stopping=self.stage is Stage.LEAVING,
            **vars(self.holdings.words()),
        )

    def _join(self) -> Flow[bool]:
        """Join as a new session, with what is still held; whether the next step is this one's."""
        if self._before is None:
            self._before, self._session = self._session, self._new_session()
        # Else nobody knows whether this session has joined: it is asked again, and takes the place
        # of the one before, if that still has it.
        before = self._before
        self._offered_as_of = None
        self._claims = self.holdings.held(self.now)
        answer = yield join(self._keys, self._facts(), self.terms, before)
        self._before = None
        if isinstance(answer, JoinEnded):
            # It had joined, and nobody renewed its lease: another one takes its place.
            return (yield from self._join())
        if isinstance(answer, Taken):
            self._session = before
            raise MemberExists(self.group, self.member, answer.expires_in)
        for setting, value in asdict(self.terms).items():
            if value != getattr(answer.terms, setting):
                # Two first members at once, or a change since they were read.
                yield leave(self._keys, self.member, self._session)
                raise GroupMismatch(self.group, setting, value, getattr(answer.terms, setting))
        self._known, self.view = NO_PART, None
        self.holdings.joined()
        self._redis_now = answer.now
        return bool(answer.due)

    # --- renewing -----------------------------------------------------------------------------

    def renew(self) -> Flow[float]:
        """Renew and report, or come back as a new session."""
        if self.offered != self.terms:
            self._take_up(self.offered)
        if self.terms.ttl < self._longest_lease and self.now >= self._longest_until:
            self._longest_lease = self.terms.ttl
        answer = yield beat(
            self._keys,
            self._facts(),
            self.terms.ttl,
            self._known,
            self.view,
            decided=self.decider.decision,
            others_first=self._others_first,
            terms=self.terms,
        )
        if answer is None:
            return (yield from self._come_back())
        sent = self.sent
        self._awaited = self._before = None
        view, part = answer.view, answer.part
        if view is None:
            # Read later than the lease was renewed, so it has all that a lease of then goes by.
            reading = yield read(self._keys)
            state = reading.standing()
            view = None if state is None else state.view(self.member, self._session)
            if part == NO_PART:
                # Somebody deleted it or wrote into it. With the next renewal Redis has it again.
                part = reading.tag
        self._redis_now = answer.now
        if self.offered == self.terms:
            # Whatever a Redis that lost decisions had before: this is what counts now.
            self._offered_as_of = None
        self._hear_of(self.terms if answer.terms is None else answer.terms, answer.generation)
        if answer.wait is not None:
            self.holdings.watch(self.now + answer.wait)
        if view is not None:
            self.view, self._known = view, part if view.seated else NO_PART
            if self.view.seated:
                self._claims = {}
                self.admitted()
            self.heard(self.view, sent, answer.now)
            self._warm_by_itself(self.now)
        if answer.due:
            self._ask(answer.brought)
        if answer.left:
            self.holdings.look_again(self.now + CLAIM)
        if self.stage is Stage.JOINED or (self.view is not None and self.view.revoked):
            # Say soon that the deadlines are known; another may have been to count this one in.
            return min(RETRY, self.interval)
        return self.interval

    def _warm_by_itself(self, now: float) -> None:
        """Answer for an application that hears of no warm-ups.

        A loop over the changes may begin a moment after the member: it has one interval.
        """
        cold = self.holdings.cold
        if cold and not self._warms_up() and now >= self._began + self.interval:
            self.holdings.warm_at_once()
            self.wake()

    def _come_back(self) -> Flow[float]:
        if self._awaited is not None:
            # Nobody decides, as when the assignor fails: not again and again at once.
            self._awaited = None
            return min(RETRY, self.interval)
        # The group's terms may have changed while it was away.
        terms = yield agreed(self._keys)
        if terms is not None:
            if terms != self.terms:
                self.decider.follow(terms.assignor)
                self._take_up(terms)
            self.offered = terms
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
