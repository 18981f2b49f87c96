"""The life of a group's member, fed by hand, on a Redis in memory."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from hashring.core.assignors import (
    Assignor,
    BalancedAssignor,
    GroupSituation,
    LearnerAssignor,
    TargetAssignment,
)
from hashring.core.groups import next_state
from hashring.core.groups.member_holdings import MemberHoldings
from hashring.core.groups.member_orders import drain
from hashring.core.groups.partition_change import PartitionChangeKind
from hashring.core.groups.state import Facts, GroupState, Terms
from hashring.core.groups.view_changes import ViewChange
from hashring.errors import AssignorError, GroupMismatch, MemberExists, RedisUnavailable
from hashring.protocol.flow import TRIES, run_flow
from hashring.protocol.group.base_member_machine import RETRY, Stage
from hashring.protocol.group.group_decider import Decided, Decider, OwnDecision
from hashring.protocol.group.group_flows import change
from hashring.protocol.group.group_member_machine import NAME_POLL, GroupMemberMachine
from hashring.protocol.machine_steps import Finished, Machine, Run, Step, Subscribe, Wait
from hashring.store.command import Command
from hashring.store.group.commands import (
    CLAIM,
    NO_PART,
    STEP,
    Brought,
    Committed,
    Conflict,
    Left,
    agreed,
    leave,
)
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import read
from hashring.store.memory_store import MemoryServer

KEYS = group_keys("orders")
TERMS = Terms(8, rebalance_delay=0.0)
INTERVAL = 2.0
LATER = 100
"""A generation of after all that these tests decide."""
NEWS = Decided(0, None, None, news=True, due=None)


class Hand:
    """Drives one member and its decider."""

    def __init__(
        self,
        member: str = "m",
        server: MemoryServer | None = None,
        assignor: Assignor | None = None,
        **options: Any,
    ) -> None:
        self.now = 1000.0
        self.warms_up = False
        self.reports: list[Decided] = []
        self.own_decisions: list[OwnDecision] = []
        self.sent: list[str] = []
        self.server = server or MemoryServer(lambda: self.now)
        self.decider = Decider(
            "orders",
            KEYS,
            member,
            assignor or BalancedAssignor(),
            report=self.report,
            tell=self.own_decision,
        )
        sessions = itertools.count(ord(member), 1000)
        settings: dict[str, Any] = {
            "weight": 1.0,
            "terms": TERMS,
            "counted": True,
            "migrate": False,
            "interval": INTERVAL,
            "progress_timeout": None,
            "decider": self.decider,
            "ask": self.decider.ask,
            "new_session": lambda: f"{next(sessions):016x}",
            "warms_up": lambda: self.warms_up,
        }
        self.machine = GroupMemberMachine("orders", KEYS, member, **(settings | options))

    def report(self, decided: Decided) -> None:
        self.reports.append(decided)
        self.machine.decided(decided)

    def own_decision(self, own: OwnDecision) -> None:
        self.own_decisions.append(own)
        self.machine.own_decision(own, self.now)

    def play(self, machine: Machine) -> float:
        """Do what a machine asks for, until it waits; until when."""
        while not isinstance(step := machine.next(self.now), Wait):
            if isinstance(step, Subscribe):
                machine.subscribed(step.number, self.now)
            elif isinstance(step, Finished):
                return math.inf
            else:
                assert isinstance(step, Run), step
                self.sent.append(step.command.script.name)
                step.done(self.server.run(step.command), self.now, self.now)
        return step.until

    def until(self, machine: Machine, command: str) -> Run:
        """Do what a machine asks for, up to this command, which is not sent."""
        while command_of(step := machine.next(self.now)) != command:
            assert isinstance(step, Run)
            step.done(self.server.run(step.command), self.now, self.now)
        assert isinstance(step, Run)
        return step

    def inside(self) -> Hand:
        self.machine.start(self.now)
        self.play(self.machine)
        self.play(self.decider)
        self.play(self.machine)
        assert self.machine.stage is Stage.MEMBER
        return self

    def asks_at_once(self) -> bool:
        return isinstance(self.machine.next(self.now), Run)


def test_a_member_has_all_its_time_to_leave_however_long_it_was_there() -> None:
    hand = Hand().inside()
    while hand.now < 1000.0 + 2 * TERMS.leave_timeout:
        hand.now = hand.play(hand.machine)
    hand.machine.stop(hand.now, handover=True)
    hand.play(hand.machine)
    (facts,) = hand.server.run(read(KEYS)).facts.members
    assert facts.leaving is not None
    assert hand.now - INTERVAL <= facts.leaving <= hand.now


def test_one_that_has_left_is_no_member_any_more() -> None:
    hand = Hand().inside()
    hand.machine.stop(hand.now, patient=False)
    assert hand.play(hand.machine) == math.inf
    assert hand.server.run(read(KEYS)).facts.members == ()


def test_a_ttl_that_was_lowered_and_raised_again_leaves_the_interval_as_it_was() -> None:
    hand = Hand().inside()
    for ttl, interval in ((1.5, 0.5), (TERMS.ttl, INTERVAL)):
        hand.machine.offer(replace(TERMS, ttl=ttl), LATER)
        hand.play(hand.machine)
        assert hand.machine.interval == interval


def test_one_that_migrates_its_group_joins_on_its_own_terms() -> None:
    terms = replace(TERMS, partitions=16)
    one = Hand("n", Hand().inside().server, terms=terms, migrate=True)
    one.machine.start(one.now)
    one.play(one.machine)
    assert one.machine.failure is None
    assert one.machine.terms == one.server.run(agreed(KEYS)) == terms


def test_who_does_not_know_whether_it_has_joined_leaves() -> None:
    hand = Hand()
    hand.machine.start(hand.now)
    joining = hand.until(hand.machine, "group_join")
    hand.server.run(joining.command)
    joining.failed(RedisUnavailable("no answer"), hand.now)
    hand.play(hand.machine)
    assert isinstance(hand.machine.failure, RedisUnavailable)
    assert hand.server.run(read(KEYS)).facts.members == ()


def test_of_two_first_members_that_want_different_groups_the_second_leaves() -> None:
    hand = Hand()
    hand.machine.start(hand.now)
    joining = hand.until(hand.machine, "group_join")
    Hand("n", hand.server, terms=replace(TERMS, max_handoff_time=7.0)).inside()
    joining.done(hand.server.run(joining.command), hand.now, hand.now)
    hand.play(hand.machine)
    assert isinstance(hand.machine.failure, GroupMismatch)
    assert [each.name for each in hand.server.run(read(KEYS)).facts.members] == ["n"]


def test_terms_that_are_offered_before_it_starts_are_its_own() -> None:
    hand = Hand()
    offered = replace(TERMS, partitions=16)
    hand.machine.offer(offered, LATER)
    assert hand.machine.terms == offered


def test_terms_that_are_offered_to_a_member_are_taken_up_with_its_renewal() -> None:
    hand = Hand().inside()
    hand.machine.offer(replace(TERMS, partitions=16), LATER)
    assert hand.machine.terms == TERMS
    assert hand.asks_at_once()


@pytest.mark.parametrize("hears", [True, False])
def test_one_that_hears_no_messages_asks_when_its_decider_has_news(hears: bool) -> None:
    hand = Hand().inside()
    if not hears:
        hand.machine.unsubscribed(1, None, hand.now)
    hand.machine.decided(NEWS)
    assert hand.asks_at_once() is not hears


def test_a_turn_without_news_wakes_nobody() -> None:
    hand = Hand().inside()
    hand.machine.unsubscribed(1, None, hand.now)
    hand.machine.decided(replace(NEWS, news=False))
    assert not hand.asks_at_once()


def test_a_message_that_asks_for_a_step_is_passed_on_to_the_decider() -> None:
    hand = Hand().inside()
    assert isinstance(hand.decider.next(hand.now), Wait)
    hand.machine.told(1, KEYS.member_channel("m"), STEP, hand.now)
    assert isinstance(hand.decider.next(hand.now), Run)
    assert not hand.asks_at_once()


def test_one_whose_first_step_is_left_to_another_waits_until_that_counts_it_in() -> None:
    hand = Hand()
    hand.machine.start(hand.now)
    hand.play(hand.machine)
    hand.machine.decided(Decided(1, None, None, news=False, due=None, look=hand.now + 0.5))
    assert hand.machine.stage is Stage.JOINED
    hand.play(hand.decider)
    hand.play(hand.machine)
    assert hand.machine.stage is Stage.MEMBER


def test_one_that_its_own_first_step_counts_in_is_a_member_from_then_on() -> None:
    hand = Hand()
    hand.machine.start(hand.now)
    hand.play(hand.machine)
    hand.machine.decided(Decided(1, None, None, news=False, due=None))
    assert hand.machine.stage is Stage.MEMBER


def test_one_is_refused_when_its_first_step_fails_and_not_when_one_before_it_did() -> None:
    hand = Hand()
    hand.machine.start(hand.now)
    hand.play(hand.machine)
    failed = Decided(0, None, AssignorError("balanced", "is broken"), news=False, due=None)
    hand.machine.decided(failed)
    assert hand.machine.stage is Stage.JOINED
    hand.machine.decided(replace(failed, number=1))
    assert hand.machine.stage is Stage.WITHDRAWING


def test_one_looks_whether_a_step_that_was_left_to_another_was_taken() -> None:
    hand = Hand().inside()
    hand.now = hand.play(hand.machine)
    assert hand.play(hand.machine) == hand.now + INTERVAL
    look = hand.now + 0.5
    hand.machine.decided(replace(NEWS, look=look))
    assert hand.play(hand.machine) == look
    hand.now = look
    assert hand.asks_at_once()


@pytest.mark.parametrize("due", [True, False])
def test_one_that_leaves_reads_the_group_only_if_nobody_else_takes_the_next_step(due: bool) -> None:
    hand = Hand().inside()
    hand.machine.stop(hand.now, patient=False)
    departs = hand.machine.next(hand.now)
    assert isinstance(departs, Run)
    departs.done(Left(due), hand.now, hand.now)
    assert hand.machine.stage is Stage.LEFT
    hand.decider.end(last=hand.machine.last_step)
    assert isinstance(hand.decider.next(hand.now), Run if due else Finished)
    hand.machine.start(hand.now)
    assert not hand.machine.last_step


def test_at_the_time_of_the_next_step_it_asks_again() -> None:
    hand = Hand().inside()
    hand.machine.decided(replace(NEWS, news=False, due=hand.now + INTERVAL / 4))
    assert hand.play(hand.machine) == hand.now + INTERVAL / 4


def test_while_a_decider_takes_the_next_step_nobody_else_is_asked_to() -> None:
    hand = Hand().inside()
    other = Hand("n", hand.server).inside()
    hand.decider.ask(9)
    reading = hand.decider.next(hand.now)
    assert isinstance(reading, Run)
    reading.done(hand.server.run(reading.command), hand.now, hand.now)
    newcomer = Hand("o", hand.server)
    newcomer.machine.start(hand.now)
    newcomer.play(newcomer.machine)
    committing = hand.decider.next(hand.now)
    assert isinstance(committing, Run)
    committing.done(hand.server.run(committing.command), hand.now, hand.now)
    other.machine.wake()
    other.play(other.machine)
    assert isinstance(other.decider.next(hand.now), Wait)
    assert isinstance(hand.decider.next(hand.now), Run)


@pytest.mark.parametrize("last", [False, True])
def test_others_are_told_to_wait_for_the_next_step_only_by_a_decider_that_ends(last: bool) -> None:
    hand = Hand(terms=replace(TERMS, rebalance_delay=5.0)).inside()
    other = Hand("n", hand.server, terms=replace(TERMS, rebalance_delay=5.0))
    other.machine.start(hand.now)
    other.play(other.machine)
    asked: list[bytes] = []
    hand.server.listen(KEYS.member_channel("n"), asked.append)
    hand.decider.ask(9)
    if last:
        hand.decider.end(last=True)
    committing = hand.until(hand.decider, "group_commit")
    asked.clear()
    committing.done(hand.server.run(committing.command), hand.now, hand.now)
    # A change of its own part is a message, too.
    assert len(asked) == 1 + last


def test_a_decider_that_failed_knows_of_no_next_step() -> None:
    hand = Hand(terms=replace(TERMS, rebalance_delay=5.0)).inside()
    other = Hand("n", hand.server, terms=replace(TERMS, rebalance_delay=5.0))
    other.machine.start(hand.now)
    other.play(other.machine)
    hand.decider.ask(9)
    hand.play(hand.decider)
    assert hand.reports[-1].due is not None
    hand.decider.ask(10)
    asking = hand.decider.next(hand.now)
    assert isinstance(asking, Run)
    asking.failed(RedisUnavailable("gone"), hand.now)
    assert isinstance(hand.reports[-1].error, RedisUnavailable)
    assert (hand.reports[-1].due, hand.reports[-1].look) == (None, None)


class Overtakes(MemoryServer):
    """Somebody else is always faster with a decision."""

    def run(self, command: Command[Any]) -> Any:
        return (
            Conflict(left=False) if command.script.name == "group_commit" else super().run(command)
        )


class NeverRests(MemoryServer):
    """After each decision another step is due."""

    def run(self, command: Command[Any]) -> Any:
        answer = super().run(command)
        return replace(answer, again=True) if isinstance(answer, Committed) else answer


@pytest.mark.parametrize(("server", "news"), [(Overtakes, False), (NeverRests, True)])
def test_a_decider_that_ends_before_the_last_step_has_its_member_look_whether_it_was_taken(
    server: type[MemoryServer], news: bool
) -> None:
    hand = Hand(server=server(lambda: 1000.0))
    hand.machine.start(hand.now)
    hand.play(hand.machine)
    hand.play(hand.decider)
    (report,) = hand.reports
    assert hand.sent.count("group_commit") == TRIES
    assert (report.error, report.news, report.due) == (None, news, None)
    assert report.look == hand.now + CLAIM


def test_a_decider_goes_by_no_assignor_that_only_others_know() -> None:
    decider = Hand().decider
    with pytest.raises(GroupMismatch, match="assignor"):
        decider.follow("of another program")
    assert decider.assignor.name == "balanced"
    decider.follow("contiguous")
    assert decider.assignor.name == "contiguous"


@dataclass(frozen=True)
class Raises:
    name: str = "balanced"

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        raise RuntimeError("no answer")


def renewed_together(
    first: Hand, second: Hand, turn: Callable[[Hand], object], rounds: int
) -> bool:
    """Whether the second takes the step that is due, though it renews just after the first."""
    newcomer = Hand("z", first.server)
    newcomer.now = first.now
    newcomer.machine.start(first.now)
    newcomer.play(newcomer.machine)
    generation = first.server.run(read(KEYS)).tag
    for _ in range(rounds):
        first.now += INTERVAL
        second.now = first.now
        for hand in (first, second):
            hand.machine.wake()
            hand.play(hand.machine)
        turn(first)
        second.play(second.decider)
        if first.server.run(read(KEYS)).tag != generation:
            return True
    return False


def raises(hand: Hand) -> None:
    """Its assignor raises when it is asked."""
    hand.decider.assignor = Raises()
    step = hand.decider.next(hand.now)
    while isinstance(step, Run):
        step.done(hand.server.run(step.command), hand.now, hand.now)
        step = hand.decider.next(hand.now)


def hangs(hand: Hand) -> None:
    """Its assignor never returns."""


@pytest.mark.parametrize("turn", [raises, hangs])
def test_a_member_that_cannot_decide_keeps_no_other_from_it(turn: Callable[[Hand], object]) -> None:
    one = Hand().inside()
    other = Hand("n", one.server).inside()
    assert renewed_together(one, other, turn, 4)


@pytest.mark.parametrize("turn", [raises, hangs])
def test_planted_a_member_that_cannot_decide_and_takes_each_step(
    turn: Callable[[Hand], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GroupMemberMachine, "_others_first", 0.0)
    one = Hand().inside()
    other = Hand("n", one.server).inside()
    assert not renewed_together(one, other, turn, 40)


def test_a_member_whose_assignor_is_well_again_takes_steps_again() -> None:
    one = Hand().inside()
    one.machine.decided(replace(NEWS, error=AssignorError("balanced", "is broken")))
    one.machine.decided(NEWS)
    other = Hand("n", one.server).inside()
    assert renewed_together(other, one, hangs, 4)


def test_when_redis_did_not_answer_its_decider_a_member_takes_the_next_step_at_once() -> None:
    one = Hand().inside()
    Hand("n", one.server).inside()
    one.machine.decided(replace(NEWS, error=RedisUnavailable("gone")))
    assert renewed(one).arguments[9] == 0.0


def renewed(hand: Hand) -> Command[Any]:
    """Its next renewal."""
    hand.machine.wake()
    step = hand.machine.next(hand.now)
    assert isinstance(step, Run)
    return step.command


def test_a_loop_over_the_changes_has_an_interval_to_begin_before_its_member_counts_as_warm() -> (
    None
):
    terms = replace(TERMS, assignor="learner")
    hand = Hand(assignor=LearnerAssignor(1.0), terms=terms).inside()
    other = Hand("n", hand.server, LearnerAssignor(1.0), terms=terms)
    other.machine.start(other.now)
    for _ in range(2):
        other.machine.wake()
        other.play(other.machine)
        other.play(other.decider)
    assert other.machine.holdings.cold
    hand.now = other.now = other.now + INTERVAL
    other.play(other.machine)
    assert not other.machine.holdings.cold


def test_lags_that_an_application_reports_all_the_time_are_told_twice_a_second() -> None:
    terms = replace(TERMS, assignor="learner")
    hand = Hand(assignor=LearnerAssignor(1.0), terms=terms).inside()
    other = Hand("n", hand.server, LearnerAssignor(1.0), terms=terms)
    other.warms_up = True
    other.machine.start(other.now)
    for _ in range(2):
        other.machine.wake()
        other.play(other.machine)
        other.play(other.decider)
    partition = min(other.machine.holdings.cold)
    began = hand.now
    # The first lags go to the group at once, and the last ones, too.
    for number in range(200):
        assert other.machine.lag(partition, 1000.0 - number)
        other.now = hand.now = began + number / 100
        other.sent.clear()
        other.play(other.machine)
        assert ("group_beat" in other.sent) is (number % 50 == 0), number
    assert other.machine.lag(partition, 0.0)
    assert other.asks_at_once()


def test_one_that_finds_nothing_of_its_group_comes_back_on_its_own_terms() -> None:
    hand = Hand().inside()
    hand.now = hand.play(hand.machine)
    hand.server.wipe()
    hand.play(hand.machine)
    assert hand.machine.failure is None
    assert hand.server.run(agreed(KEYS)) == TERMS


# --- a member and its decider ---------------------------------------------------------------------


class Pair:
    """A member that decides, and one that joins and is to get half of the partitions."""

    def __init__(self) -> None:
        self.one = Hand("m").inside()
        self.other = Hand("n", self.one.server)
        self.other.machine.start(self.one.now)
        self.other.play(self.other.machine)
        self.other.play(self.other.decider)
        self.hand_over()

    def hear(self, hand: Hand) -> None:
        hand.machine.wake()
        hand.play(hand.machine)

    def hand_over(self) -> None:
        """The first learns what it is asked for, lets go of it, and says so."""
        machine = self.one.machine
        self.hear(self.one)
        for partition in machine.view.revoked if machine.view else ():
            token = machine.holdings.held(self.one.now)[partition]
            assert machine.release(partition, token, self.one.now)
        self.hear(self.one)


def test_a_decider_goes_by_what_the_renewal_brought() -> None:
    pair = Pair()
    assert command_of(pair.one.decider.next(pair.one.now)) == "group_commit"


def test_one_that_is_asked_for_a_partition_soon_says_that_it_heard() -> None:
    one = Hand("m").inside()
    other = Hand("n", one.server)
    other.machine.start(one.now)
    for play in (other.machine, other.decider):
        other.play(play)
    one.machine.wake()
    until = one.play(one.machine)
    assert one.machine.view is not None
    assert one.machine.view.revoked
    assert until <= one.now + RETRY < one.now + INTERVAL


def test_a_decider_goes_by_the_assignor_that_it_reads() -> None:
    hand = Hand().inside()
    other = Hand("o", hand.server, terms=replace(TERMS, assignor="contiguous"), migrate=True)
    other.machine.start(other.now)
    other.play(other.machine)
    # Its member has not heard of the change yet.
    hand.decider.ask(99)
    hand.play(hand.decider)
    assert hand.decider.assignor.name == "contiguous"


def test_a_decider_reads_when_it_knows_a_newer_decision_than_the_renewal_did() -> None:
    pair = Pair()
    brought = Brought("0:0", None)
    pair.one.play(pair.one.decider)
    pair.one.decider.ask(99, brought)
    assert command_of(pair.one.decider.next(pair.one.now)) == "group_read"


def test_what_its_own_decider_asks_for_a_member_lets_go_of_without_asking_again() -> None:
    pair = Pair()
    pair.one.play(pair.one.decider)
    pair.hand_over()
    pair.one.machine.changes.clear()
    pair.one.play(pair.one.decider)
    assert [change.kind for change in pair.one.machine.changes] == [PartitionChangeKind.REVOKED]
    assert not pair.one.asks_at_once()
    # It is what a renewal says, too.
    told = pair.one.machine.view
    pair.hear(pair.one)
    assert pair.one.machine.view == told


def test_a_decision_of_its_own_decider_continues_the_one_before() -> None:
    pair = Pair()
    pair.one.play(pair.one.decider)
    pair.hand_over()
    pair.one.play(pair.one.decider)
    first, view = pair.one.own_decisions[-1], pair.one.machine.view
    assert view is not None
    assert view.revoked
    taken_back = ViewChange(not_revoked=tuple(view.revoked))
    pair.one.own_decision(replace(first, part=first.tag, tag="next", change=taken_back))
    assert pair.one.machine.view == replace(view, revoked={})
    assert not pair.one.asks_at_once()


def test_a_member_soon_reports_that_it_knows_what_its_own_decider_asked_it_for() -> None:
    pair = Pair()
    one = pair.one
    one.play(one.decider)
    pair.hand_over()
    one.play(one.decider)
    assert one.play(one.machine) == one.now + RETRY
    while (view := one.machine.view) is not None and view.revoked:
        pair.hand_over()
        one.play(one.decider)
        pair.hear(pair.other)
    pair.hear(one)
    renews = one.play(one.machine)
    assert renews > one.now + RETRY
    last = one.own_decisions[-1]
    one.own_decision(replace(last, part=last.tag, tag="next", change=ViewChange()))
    assert one.machine.view is not None
    assert one.machine.view.generation == last.generation
    assert one.play(one.machine) == renews


@pytest.mark.parametrize("another", [False, True])
def test_what_a_decider_tells_continues_its_last_decision_unless_another_came_between(
    another: bool,
) -> None:
    pair = Pair()
    one = pair.one
    one.play(one.decider)
    if another:
        order = change("orders", KEYS, "ops", lambda state, now: drain(state, "n", now, "ops"))
        run_flow(one.server.run, order)
    pair.hand_over()
    one.decider.ask(99)
    one.play(one.decider)
    before, last = one.own_decisions[-2:]
    assert last.part == ("" if another else before.tag)


def test_a_member_asks_for_what_its_decider_decided_after_another() -> None:
    pair = Pair()
    pair.one.machine.changes.clear()
    pair.one.play(pair.one.decider)
    assert pair.one.machine.changes == []
    assert pair.one.asks_at_once()


def test_what_its_own_decider_grants_a_member_begins_with_a_renewal() -> None:
    pair = Pair()
    pair.one.play(pair.one.decider)
    pair.hear(pair.one)
    pair.one.server.run(leave(KEYS, "n"))
    pair.one.machine.changes.clear()
    assert not pair.one.asks_at_once()
    pair.one.decider.ask(99)
    pair.one.play(pair.one.decider)
    assert pair.one.machine.changes == []
    assert pair.one.asks_at_once()


@pytest.mark.parametrize("left", [True, False])
def test_a_step_that_another_is_to_go_on_with_is_left_to_it(left: bool) -> None:
    pair = Pair()
    one, decider = pair.one, pair.one.decider
    step = decider.next(one.now)
    assert isinstance(step, Run)
    step.done(Conflict(left), one.now, one.now)
    if left:
        assert isinstance(decider.next(one.now), Wait)
        assert one.reports[-1].look == one.now + CLAIM
    else:
        assert command_of(decider.next(one.now)) == "group_read"


def _second(first: Hand) -> Hand:
    """Another session of the same name, which has asked to be let in."""
    second = Hand(server=first.server, new_session=lambda: "f" * 16)
    second.machine.start(second.now)
    return second


def test_one_whose_name_is_in_use_is_not_let_in() -> None:
    second = _second(Hand().inside())
    assert second.play(second.machine) == math.inf
    assert second.machine.stage is Stage.FAILED
    assert isinstance(second.machine.failure, MemberExists)


def test_one_that_waits_for_its_name_has_it_once_the_other_has_left() -> None:
    second = _second(Hand().inside())
    second.machine.waits_for_name = True
    assert second.play(second.machine) == second.now + NAME_POLL
    assert second.machine.stage is Stage.WAITING
    second.server.run(leave(KEYS, "m"))
    second.now += NAME_POLL
    second.play(second.machine)
    assert second.machine.stage is Stage.JOINED
    assert second.machine.failure is None


def test_one_that_redis_forgets_again_at_once_waits_before_it_comes_back() -> None:
    pair = Pair()
    joined = []
    for _ in range(3):
        pair.one.server.wipe()
        # The first is asked to decide, and the other is not.
        for hand in (pair.one, pair.other):
            hand.sent.clear()
            pair.hear(hand)
            joined.append("group_join" in hand.sent)
    assert joined == [True, True, False, False, True, True]


def test_a_report_tells_the_terms_that_stand_and_whether_anything_was_decided() -> None:
    hand = Hand().inside()
    hand.decider.ask(99)
    hand.play(hand.decider)
    assert [report.terms for report in hand.reports] == [TERMS, TERMS]
    assert [report.news for report in hand.reports] == [True, False]


def test_one_that_came_back_asks_when_the_turn_that_it_asked_for_is_over() -> None:
    hand = Hand().inside()
    hand.server.wipe()
    hand.machine.wake()
    hand.play(hand.machine)
    asked = hand.machine._asked
    for number, asks in ((asked - 1, False), (asked, True)):
        hand.machine.decided(Decided(number, None, None, news=False, due=None))
        assert hand.asks_at_once() is asks


def test_a_report_names_the_last_ask_that_it_answers() -> None:
    hand = Hand().inside()
    hand.decider.ask(98)
    hand.decider.ask(99)
    hand.play(hand.decider)
    assert hand.reports[-1].number == 99


def test_a_decision_whose_outcome_is_unknown_makes_the_member_ask() -> None:
    hand = Hand().inside()
    assert hand.machine.listening.stands
    hand.decider.ask(99)
    reads = hand.decider.next(hand.now)
    assert isinstance(reads, Run)
    reads.failed(RedisUnavailable("no answer"), hand.now)
    assert hand.asks_at_once()


def command_of(step: Step) -> str:
    assert isinstance(step, Run)
    return step.command.script.name


def test_one_reports_what_it_still_holds_until_the_group_has_counted_it_in_again() -> None:
    hand = Hand().inside()
    held = hand.machine.holdings.held(hand.now)
    assert len(held) == TERMS.partitions
    hand.server.wipe()
    hand.now += INTERVAL
    hand.play(hand.machine)
    (back,) = hand.server.run(read(KEYS)).facts.members
    assert back.claims == held
    hand.play(hand.decider)
    for _ in range(2):
        hand.machine.wake()
        hand.play(hand.machine)
    (counted_in,) = hand.server.run(read(KEYS)).facts.members
    assert counted_in.claims == {}


def test_one_reports_the_ttl_of_before_until_nobody_can_have_such_a_lease() -> None:
    hand = Hand(terms=replace(TERMS, ttl=60.0)).inside()
    other = Hand("n", hand.server, terms=replace(TERMS, ttl=6.0), migrate=True)
    other.machine.start(other.now)
    other.play(other.machine)
    reported = []
    for seconds in (0.0, 119.0, 1.0):
        hand.now += seconds
        for _ in range(2):
            hand.machine.wake()
            hand.play(hand.machine)
        facts = next(m for m in hand.server.run(read(KEYS)).facts.members if m.name == "m")
        reported.append(facts.lease)
    assert reported == [60.0, 60.0, 6.0]


def test_a_report_says_how_often_its_member_took_up_terms() -> None:
    hand = Hand().inside()
    turns = []
    for size in (16, 32):
        hand.now += INTERVAL
        hand.machine.offer(replace(TERMS, partitions=size), LATER)
        for _ in range(2):
            hand.machine.wake()
            hand.play(hand.machine)
        turns.append(hand.server.run(read(KEYS)).facts.members[0].turn)
    assert turns[0] > 0
    assert turns[1] > turns[0]


def test_one_whose_join_was_lost_takes_the_place_of_the_session_before_it() -> None:
    hand = Hand().inside()
    held = hand.machine.holdings.held(hand.now)
    older = hand.server.copy()
    hand.machine.offer(replace(TERMS, handoffs=3), LATER)
    # A failover: what stands there is older than what the member has seen.
    hand.machine.holdings.seen += 1
    hand.server.restore(older)
    hand.machine.wake()
    step = hand.until(hand.machine, "group_join")
    step.failed(RedisUnavailable("lost"), hand.now)
    hand.now += INTERVAL
    hand.play(hand.machine)
    assert hand.machine.error is None
    (back,) = hand.server.run(read(KEYS)).facts.members
    assert back.claims == held


def test_one_whose_join_lost_its_answer_and_then_its_lease_comes_back_as_another_session() -> None:
    hand = Hand().inside()
    hand.server.run(leave(KEYS, "m"))
    hand.machine.wake()
    step = hand.until(hand.machine, "group_join")
    hand.server.run(step.command)
    (lost,) = hand.server.run(read(KEYS)).facts.members
    step.failed(RedisUnavailable("lost"), hand.now)
    hand.now += TERMS.ttl + 1
    hand.play(hand.machine)
    assert hand.machine.error is None
    (back,) = hand.server.run(read(KEYS)).facts.members
    assert back.session != lost.session
    assert back.expires > hand.now


# --- what somebody else wrote into Redis --------------------------------------------------------


def renew(*hands: Hand) -> None:
    """Time passes. Each member renews its lease, and decides if it is asked to."""
    for hand in hands:
        hand.now += INTERVAL
        hand.machine.wake()
        hand.play(hand.machine)
        hand.play(hand.decider)
        hand.play(hand.machine)


def held_by(hand: Hand) -> set[int]:
    return set(hand.machine.holdings.held(hand.now))


def two(**options: Any) -> tuple[Hand, Hand]:
    """One member with all partitions, and one that is about to join, on one server."""
    clock: list[Hand] = []
    server = MemoryServer(lambda: max(hand.now for hand in clock))
    one, other = Hand("a", server, **options), Hand("b", server, **options)
    clock += one, other
    return one.inside(), other


def join_group(hand: Hand) -> None:
    hand.machine.start(hand.now)
    for _ in range(2):
        hand.play(hand.machine)
        hand.play(hand.decider)
    hand.play(hand.machine)


UNREADABLE = {
    "an empty report": lambda entry: b" ".join([*entry.split(b" ", 2)[:2], b"{}"]),
    "no report": lambda entry: b" ".join([*entry.split(b" ", 2)[:2], b"not json"]),
    "another session's report": lambda entry: entry.replace(b'"session":"', b'"session":"1'),
    "nothing of an entry": lambda entry: b"nonsense",
}


@pytest.mark.parametrize("edit", UNREADABLE.values(), ids=UNREADABLE)
def test_a_member_whose_report_cannot_be_read_is_not_robbed(
    edit: Callable[[bytes], bytes],
) -> None:
    one, other = two()
    one.server.edit(KEYS.members, b"a", edit)
    join_group(other)
    assert held_by(one) == set(range(TERMS.partitions))
    assert held_by(other) == set()
    for _ in range(20):
        renew(one, other)
        assert not held_by(one) & held_by(other)
    assert held_by(one) | held_by(other) == set(range(TERMS.partitions))
    assert len(held_by(other)) == TERMS.partitions / 2


def test_a_member_of_which_only_the_lease_stands_is_not_robbed() -> None:
    one, other = two()
    one.server.edit(KEYS.members, b"a", lambda entry: None)
    join_group(other)
    assert held_by(other) == set()


def test_a_member_that_another_decider_counts_as_gone_holds_nothing_after_its_next_renewal() -> (
    None
):
    one, _ = two()

    def without(state: GroupState, now: float) -> next_state.StepOutcome:
        return next_state.step(state, Facts(now), BalancedAssignor())

    one.server.edit(KEYS.views, b"a", lambda entry: None)
    run_flow(one.server.run, change("orders", KEYS, "old", without))
    one.now += INTERVAL
    one.machine.wake()
    one.play(one.machine)
    assert held_by(one) == set()


@pytest.mark.parametrize("edit", [lambda entry: None, lambda entry: b"nonsense"])
def test_a_name_whose_lease_stands_is_not_given_away_though_its_entry_is_gone(
    edit: Callable[[bytes], bytes | None],
) -> None:
    one, _ = two()
    one.server.edit(KEYS.members, b"a", edit)
    same = Hand("a", one.server, new_session=lambda: "5" * 16)
    same.machine.start(same.now)
    same.play(same.machine)
    assert isinstance(same.machine.failure, MemberExists)
    renew(one)
    assert held_by(one) == set(range(TERMS.partitions))


GARBLED = {
    "a line": (b"a", lambda entry: entry + b"\n7:7 {"),
    "a line without a tag": (b"a", lambda entry: entry + b"\nnonsense"),
    "nothing of a view": (b"a", lambda entry: b"nonsense"),
}


@pytest.mark.parametrize("knows", [True, False])
@pytest.mark.parametrize(("field", "edit"), GARBLED.values(), ids=GARBLED)
def test_a_member_whose_view_cannot_be_read_has_its_part_again_soon(
    field: bytes, edit: Callable[[bytes], bytes], knows: bool
) -> None:
    one, other = two()
    if not knows:
        # As before its first answer.
        one.machine._known, one.machine.view = NO_PART, None
        one.machine.holdings = MemberHoldings(TERMS.ttl)
    one.server.edit(KEYS.views, field, edit)
    for _ in range(2):
        renew(one)
    assert one.machine.error is None
    assert held_by(one) == set(range(TERMS.partitions))
    other.now = one.now
    join_group(other)
    for _ in range(20):
        renew(one, other)
        assert not held_by(one) & held_by(other)
    assert len(held_by(one)) == len(held_by(other)) == TERMS.partitions / 2


def test_a_phase_that_cannot_be_read_costs_no_member_its_lease() -> None:
    one, other = two()
    one.server.edit(KEYS.state, b"phase", lambda phase: b"nonsense")
    for _ in range(10):
        renew(one)
        assert held_by(one) == set(range(TERMS.partitions))
    other.now = one.now
    join_group(other)
    for _ in range(20):
        renew(one, other)
    assert len(held_by(one)) == len(held_by(other)) == TERMS.partitions / 2
    phases: list[bytes] = []
    one.server.edit(KEYS.state, b"phase", lambda phase: phases.append(phase) or phase)
    assert phases == [b"Ready"]


def migrate_to(changed: Terms, hand: Hand) -> None:
    """Another member changes the group's terms, and this one learns of it with its renewals."""
    other = Hand("o", hand.server, terms=changed, migrate=True)
    other.machine.start(other.now)
    other.play(other.machine)
    other.play(other.decider)
    for _ in range(2):
        hand.machine.wake()
        hand.play(hand.machine)
    assert hand.machine.terms == hand.machine.offered == changed


CHANGED = [replace(TERMS, ttl=6.0), replace(TERMS, ttl=60.0, partitions=16)]


@pytest.mark.parametrize("changed", CHANGED)
@pytest.mark.parametrize("decides_before", [True, False])
def test_a_turn_that_could_not_read_offers_no_terms_of_before(
    changed: Terms, decides_before: bool
) -> None:
    hand = Hand(terms=replace(TERMS, ttl=60.0)).inside()
    if decides_before:
        hand.decider.ask(98)
        hand.play(hand.decider)
    migrate_to(changed, hand)
    hand.decider.ask(99)
    step = hand.decider.next(hand.now)
    assert command_of(step) == "group_read"
    assert isinstance(step, Run)
    step.failed(RedisUnavailable("cut"), hand.now)
    assert hand.reports[-1].terms is None
    assert hand.machine.offered == changed


class RaisesLater:
    """An assignor that answers until `fails` is set. Each step asks it."""

    name = "balanced"
    fails = False

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        if self.fails:
            raise RuntimeError("no answer")
        return BalancedAssignor().assign(situation)


@pytest.mark.parametrize("changed", CHANGED)
def test_an_assignor_that_raises_late_offers_no_terms_of_before(changed: Terms) -> None:
    assignor = RaisesLater()
    hand = Hand(assignor=assignor, terms=replace(TERMS, ttl=60.0)).inside()
    hand.decider.ask(99)
    step = hand.decider.next(hand.now)
    assert isinstance(step, Run)
    reading = hand.server.run(step.command)
    migrate_to(changed, hand)
    assignor.fails = True
    step.done(reading, hand.now, hand.now)
    assert isinstance(hand.reports[-1].error, AssignorError)
    assert hand.machine.offered == changed


@pytest.mark.parametrize("changed", CHANGED)
def test_terms_that_were_changed_from_here_are_none_once_others_changed_them_again(
    changed: Terms,
) -> None:
    hand = Hand(terms=replace(TERMS, ttl=60.0)).inside()
    before = hand.server.run(read(KEYS)).standing()
    assert before is not None
    migrate_to(changed, hand)
    hand.machine.offer(replace(TERMS, ttl=60.0, handoffs=3), before.generation)
    assert hand.machine.offered == changed


def test_a_renewal_of_before_takes_back_no_terms_that_were_changed_from_here() -> None:
    hand = Hand().inside()
    hand.machine.wake()
    step = hand.machine.next(hand.now)
    assert isinstance(step, Run)
    answer = hand.server.run(step.command)
    changed = replace(TERMS, partitions=16)
    hand.machine.offer(changed, LATER)
    step.done(answer, hand.now, hand.now)
    assert hand.machine.offered == changed


def test_one_that_is_back_goes_by_no_terms_that_its_decider_read_before() -> None:
    hand = Hand(terms=replace(TERMS, ttl=60.0)).inside()
    old = replace(TERMS, ttl=60.0)
    changed = replace(TERMS, ttl=6.0)
    hand.server.run(leave(KEYS, "m"))
    other = Hand("o", hand.server, terms=changed, migrate=True)
    other.machine.start(other.now)
    other.play(other.machine)
    hand.machine.wake()
    step = hand.until(hand.machine, "group_join")
    hand.machine.decided(replace(NEWS, terms=old, generation=LATER))
    step.done(hand.server.run(step.command), hand.now, hand.now)
    hand.machine.decided(replace(NEWS, terms=old, generation=LATER))
    hand.play(hand.machine)
    assert hand.machine.terms == hand.machine.offered == changed


def owner_and_taker() -> tuple[Hand, Hand]:
    """A member that has everything, and one that has joined and is to get its part."""
    owner = Hand("a").inside()
    taker = Hand("b", owner.server)
    taker.machine.start(owner.now)
    taker.play(taker.machine)
    owner.machine.changes.clear()
    return owner, taker


def test_an_owner_has_all_its_time_to_let_go_however_long_the_assignor_took() -> None:
    owner, taker = owner_and_taker()
    step = owner.until(taker.decider, "group_commit")
    # So long did the assignor take. The owner renews meanwhile.
    for _ in range(4):
        owner.now += 1.0
        owner.machine.wake()
        owner.play(owner.machine)
    step.done(owner.server.run(step.command), owner.now, owner.now)
    owner.now += INTERVAL / 2
    owner.machine.wake()
    owner.play(owner.machine)
    (change,) = owner.machine.changes
    assert change.kind is PartitionChangeKind.REVOKED
    assert change.deadline - owner.now == pytest.approx(TERMS.max_handoff_time - INTERVAL / 2)
    stored = owner.server.run(read(KEYS)).standing()
    assert stored is not None
    (handoff,) = stored.handoffs.values()
    assert stored.committed is not None
    assert handoff.deadline == stored.committed + TERMS.max_handoff_time


def test_a_member_that_decides_about_itself_has_all_its_time_to_let_go() -> None:
    owner, _ = owner_and_taker()
    owner.decider.ask(99)
    step = owner.until(owner.decider, "group_commit")
    owner.now += 4.0
    step.done(owner.server.run(step.command), owner.now, owner.now)
    (own,) = owner.own_decisions[-1:]
    assert [*own.change.revoked.values()] == [owner.now + TERMS.max_handoff_time]
    (change,) = owner.machine.changes
    assert change.deadline == owner.now + TERMS.max_handoff_time
