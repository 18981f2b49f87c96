"""The life of a member, fed by hand: what it asks for, when, and what it makes of each answer."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest

from hashring.core.groups.partition_change import PartitionChangeKind
from hashring.core.groups.state import GroupPhase, MemberView
from hashring.errors import NodeStateError, RedisUnavailable
from hashring.protocol.flow import Flow
from hashring.protocol.group.base_member_machine import RETRY, BaseMemberMachine, Stage, Turn
from hashring.protocol.machine_steps import Finished, Run, Step, Subscribe, Wait
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import read

KEYS = group_keys("orders")
CHANNEL = b"orders:news"
TTL, INTERVAL, GRACE = 10.0, 2.0, 3.0
GONE = RedisUnavailable("gone")


class Plain(BaseMemberMachine):
    """A protocol of one command a flow; its replies say what the group grants."""

    waits_for_others = math.inf
    empty = False

    def enter(self) -> Flow[None]:
        yield read(KEYS)

    def renew(self) -> Flow[float]:
        view = yield read(KEYS)
        if view is not None:
            self.heard(view, self.sent, 5000.0)
        return self.interval

    def depart(self) -> Flow[None]:
        yield read(KEYS)

    def hand_over(self) -> float:
        return self.waits_for_others

    def empty_handed(self) -> bool:
        return self.empty

    def concerns(self, channel: bytes, payload: bytes) -> bool:
        return payload == b"mine"


class Decided(Plain):
    """The same, where somebody has to count a new member in."""

    awaits_decision = True


class ToTheEnd(Plain):
    """The same, which renews while it leaves."""

    renews_to_the_end = True


class Hand:
    """Drives one member."""

    def __init__(self, kind: type[Plain] = Plain, **options: Any) -> None:
        settings: dict[str, Any] = {
            "channels": (CHANNEL,),
            "ttl": TTL,
            "interval": INTERVAL,
            "grace": GRACE,
            "progress_timeout": None,
        }
        self.machine = kind(options.pop("member", "m"), **(settings | options))
        self.now = 100.0
        self.number = 0
        self.machine.start(self.now)

    @property
    def stage(self) -> Stage:
        return self.machine.stage

    def next(self) -> Step:
        return self.machine.next(self.now)

    def run(self) -> Run:
        step = self.next()
        assert isinstance(step, Run), step
        return step

    def until(self) -> float:
        step = self.next()
        assert isinstance(step, Wait), step
        return step.until

    def answer(self, reply: Any = None) -> Hand:
        self.run().done(reply, self.now, self.now)
        return self

    def subscribe(self) -> Hand:
        step = self.next()
        assert isinstance(step, Subscribe), step
        self.number = step.number
        self.machine.subscribed(step.number, self.now)
        return self

    def inside(self, **held: int) -> Hand:
        """Entered, counted in, listening, with these partitions."""
        self.answer()
        self.answer(view(**held)).subscribe()
        return self.answer(view(**held))

    def kinds(self) -> list[str]:
        changes, self.machine.changes = self.machine.changes, []
        activity = (PartitionChangeKind.ACTIVE, PartitionChangeKind.INACTIVE)
        return [change.kind.value for change in changes if change.kind not in activity]


def view(**held: int) -> MemberView:
    """Partitions as ``p0=token``."""
    tokens = {int(name[1:]): token for name, token in held.items()}
    return MemberView(1, GroupPhase.READY, held=tokens, seated=True)


# --- entering -----------------------------------------------------------------------------------


def test_a_member_that_has_not_started_has_nothing_to_do() -> None:
    machine = Plain(
        "m", channels=(CHANNEL,), ttl=TTL, interval=INTERVAL, grace=GRACE, progress_timeout=None
    )
    assert isinstance(machine.next(0.0), Finished)
    assert not machine.listening.stands


def test_it_enters_renews_at_once_and_then_listens() -> None:
    hand = Hand()
    assert hand.stage is Stage.ENTERING
    hand.answer()
    assert hand.stage is Stage.MEMBER
    hand.answer(view(p0=7))
    assert hand.machine.holdings.held(hand.now) == {0: 7}
    hand.subscribe()
    assert hand.machine.listening.stands


def test_one_that_awaits_a_decision_listens_meanwhile() -> None:
    hand = Hand(Decided).answer()
    assert hand.stage is Stage.JOINED
    hand.answer().subscribe().answer()
    # Whoever decides may be slow; that holds nobody up for longer than one interval.
    assert hand.until() == hand.now + INTERVAL
    hand.now += INTERVAL
    assert isinstance(hand.next(), Run)
    assert hand.stage is Stage.MEMBER


def test_one_that_is_counted_in_early_is_a_member_from_then_on() -> None:
    hand = Hand(Decided).answer()
    hand.machine.admitted()
    assert hand.stage is Stage.MEMBER
    hand.machine.refused(GONE)
    assert hand.stage is Stage.MEMBER


def test_one_that_is_refused_takes_its_entry_back_and_holds_nothing() -> None:
    hand = Hand(Decided).answer().answer(view(p0=7))
    hand.machine.refused(GONE)
    assert hand.machine.failure is GONE
    assert hand.machine.holdings.held(hand.now) == {}
    assert hand.machine.changes == []
    hand.answer()
    assert hand.stage is Stage.FAILED
    assert isinstance(hand.next(), Finished)


def test_a_renewal_under_way_when_it_is_refused_is_given_up() -> None:
    hand = Hand(Decided).answer()
    renewal = hand.run()
    hand.machine.refused(GONE)
    hand.answer()
    renewal.done(view(p0=7), hand.now, hand.now)
    assert hand.stage is Stage.FAILED
    assert hand.machine.holdings.held(hand.now) == {}


def test_one_that_cannot_enter_has_failed_and_may_start_again() -> None:
    hand = Hand()
    hand.run().failed(GONE, hand.now)
    assert (hand.stage, hand.machine.failure) == (Stage.FAILED, GONE)
    hand.machine.start(hand.now)
    assert hand.machine.failure is None
    assert hand.answer().stage is Stage.MEMBER


def test_one_whose_name_is_taken_asks_again_when_it_may_be_free(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Plain, "again_at", lambda self, error, now: now + 4.0)
    hand = Hand()
    hand.run().failed(GONE, hand.now)
    assert hand.stage is Stage.WAITING
    assert hand.until() == hand.now + 4.0
    hand.now += 4.0
    assert isinstance(hand.next(), Run)
    assert (hand.stage, hand.machine.failure) == (Stage.ENTERING, None)


def test_a_renewal_that_fails_before_it_is_counted_in_is_tried_again_as_soon() -> None:
    hand = Hand(Decided).answer()
    hand.run().failed(GONE, hand.now)
    hand.subscribe().run().failed(GONE, hand.now)
    assert hand.until() == hand.now + RETRY


# --- renewing -----------------------------------------------------------------------------------


def test_a_renewal_is_due_an_interval_after_the_last_was_begun() -> None:
    hand = Hand().inside()
    hand.now += INTERVAL
    run = hand.run()
    began, hand.now = hand.now, hand.now + 0.5
    run.done(None, began, hand.now)
    assert hand.until() == began + INTERVAL


def test_a_renewal_that_failed_is_tried_again_soon_and_an_answer_ends_the_trouble() -> None:
    hand = Hand().inside()
    hand.now += INTERVAL
    hand.run().failed(GONE, hand.now)
    assert hand.machine.error is GONE
    assert hand.until() == hand.now + RETRY
    hand.now += RETRY
    hand.answer()
    assert hand.machine.error is None


def test_after_a_failure_there_is_time_for_several_attempts_in_a_short_interval() -> None:
    hand = Hand(interval=RETRY / 5).inside()
    hand.now += RETRY / 5
    hand.run().failed(GONE, hand.now)
    assert hand.until() == pytest.approx(hand.now + RETRY / 20)


def test_without_renewal_it_holds_nothing_from_the_end_of_its_lease() -> None:
    hand = Hand().inside(p0=7)
    hand.kinds()
    lease = hand.machine.holdings.holding.lease_until
    while hand.now + RETRY < lease:
        hand.now = hand.until()
        hand.run().failed(GONE, hand.now)
    assert hand.until() == lease
    hand.now = lease
    hand.next()
    assert hand.stage is Stage.FENCED
    assert hand.kinds() == ["lost"]
    hand.now = hand.until() if isinstance(hand.next(), Wait) else hand.now
    hand.answer(view(p0=8))
    assert hand.stage is Stage.MEMBER
    assert hand.machine.holdings.held(hand.now) == {0: 8}


def test_what_concerns_it_is_asked_for_at_once() -> None:
    hand = Hand().inside()
    hand.machine.told(hand.number, CHANNEL, b"another's", hand.now)
    hand.machine.told(hand.number + 1, CHANNEL, b"mine", hand.now)
    assert hand.until() > hand.now
    hand.machine.told(hand.number, CHANNEL, b"mine", hand.now)
    hand.answer()
    assert hand.until() > hand.now


def test_what_the_application_reports_is_passed_on_at_once() -> None:
    hand = Hand().inside(p0=7, p1=8)
    assert hand.machine.release(0, 7, hand.now)
    # The same word again is no news, and takes nothing back.
    assert not hand.machine.release(0, 7, hand.now)
    hand.answer(view(p1=8))
    assert hand.until() > hand.now
    hand.machine.wake()
    assert isinstance(hand.next(), Run)


def test_a_release_that_is_said_again_is_not_passed_on_again() -> None:
    hand = Hand().inside(p0=7)
    hand.machine.release(0, 7, hand.now)
    hand.answer(view(p0=7))
    assert not hand.machine.release(0, 7, hand.now)
    assert hand.until() > hand.now


def test_when_a_step_of_the_group_is_due_it_is_asked_for_at_once() -> None:
    hand = Hand().inside()
    hand.machine.holdings.watch(hand.now + 1.0)
    assert hand.until() == hand.now + 1.0
    hand.now += 1.0
    assert isinstance(hand.next(), Run)


def test_a_lost_subscription_is_made_anew_a_moment_later() -> None:
    hand = Hand().inside()
    hand.machine.unsubscribed(hand.number + 1, GONE, hand.now)
    assert hand.machine.listening.stands
    hand.machine.unsubscribed(hand.number, GONE, hand.now)
    assert not hand.machine.listening.stands
    again = hand.machine.listening.at
    assert hand.until() == again
    assert hand.now + RETRY / 2 <= again <= hand.now + RETRY
    hand.now = again
    step = hand.next()
    assert isinstance(step, Subscribe)
    assert step.number == hand.number + 1
    hand.machine.subscribed(hand.number, hand.now)
    assert not hand.machine.listening.stands
    hand.machine.subscribed(step.number, hand.now)
    # Whatever was said meanwhile is found by asking.
    assert isinstance(hand.next(), Run)


def test_a_subscription_that_is_refused_again_and_again_is_asked_for_less_often() -> None:
    hand = Hand(interval=20 * RETRY).inside()
    waits = []
    number = hand.number
    for _ in range(8):
        hand.machine.unsubscribed(number, GONE, hand.now)
        waits.append((hand.machine.listening.at - hand.now) / RETRY)
        step = hand.machine.listening.ask(0.0, 1.0)
        number = step.number
    first = waits[0]
    assert waits == pytest.approx([first * each for each in (1, 2, 4, 8, 16, 20, 20, 20)])
    hand.machine.subscribed(number, hand.now)
    hand.machine.unsubscribed(number, GONE, hand.now)
    assert hand.machine.listening.at == pytest.approx(hand.now + first * RETRY)


def test_members_that_lose_their_subscriptions_together_subscribe_one_after_the_other() -> None:
    lost_at, again = 0.0, []
    for number in range(100):
        hand = Hand(member=f"host:{number}").inside()
        lost_at = hand.now
        hand.machine.unsubscribed(hand.number, GONE, hand.now)
        again.append(hand.machine.listening.at - lost_at)
    tenths = Counter(int(20 * seconds / RETRY) for seconds in again)
    assert sorted(tenths) == list(range(10, 20))
    assert max(tenths.values()) < 25


def test_a_member_whose_renewals_never_pause_subscribes_anew_after_the_next() -> None:
    hand = Hand().inside()
    hand.machine.unsubscribed(hand.number, GONE, hand.now)
    hand.now += 2 * RETRY
    hand.machine.wake()
    hand.answer(view())
    hand.machine.wake()
    assert isinstance(hand.next(), Subscribe)
    assert isinstance(hand.next(), Run)


# --- progress -----------------------------------------------------------------------------------


def test_an_application_without_progress_is_reported_at_once_and_once() -> None:
    hand = Hand(progress_timeout=1.0).inside(p0=7)
    assert hand.until() == 101.0
    hand.now = 101.0
    hand.answer(view(p0=7))
    assert hand.machine.holdings.stalled
    assert hand.until() == 101.0 + INTERVAL
    hand.machine.tick(hand.now)
    hand.answer(view(p0=7))
    assert not hand.machine.holdings.stalled
    assert hand.until() == 102.0


def test_progress_as_usual_is_no_news() -> None:
    hand = Hand(progress_timeout=1.0).inside(p0=7)
    hand.now += 0.5
    hand.machine.tick(hand.now)
    assert hand.until() == hand.now + 1.0


def test_without_a_time_for_progress_nobody_stalls() -> None:
    hand = Hand().inside(p0=7)
    hand.now += 1.0
    assert hand.until() == 100.0 + INTERVAL
    assert not hand.machine.holdings.stalled


# --- leaving ------------------------------------------------------------------------------------


def test_it_revokes_everything_and_leaves_once_all_is_let_go_of() -> None:
    hand = Hand().inside(p0=7)
    hand.kinds()
    hand.machine.stop(hand.now)
    assert hand.kinds() == ["revoked"]
    assert hand.until() == hand.now + GRACE
    assert hand.machine.release(0, 7, hand.now)
    hand.answer()
    assert hand.stage is Stage.LEFT
    assert isinstance(hand.next(), Finished)
    assert hand.kinds() == []


def test_what_time_has_ended_before_it_leaves_is_lost() -> None:
    hand = Hand().inside(p0=7)
    hand.kinds()
    hand.now = hand.machine.holdings.holding.lease_until
    hand.machine.stop(hand.now)
    assert hand.kinds() == ["lost"]


def test_work_that_does_not_end_is_lost_after_the_grace() -> None:
    hand = Hand().inside(p0=7)
    hand.machine.stop(hand.now)
    hand.kinds()
    hand.now += GRACE
    hand.answer()
    assert hand.kinds() == ["lost"]
    assert hand.stage is Stage.LEFT


def test_without_patience_it_leaves_at_once() -> None:
    hand = Hand().inside(p0=7)
    hand.kinds()
    hand.machine.stop(hand.now, patient=False)
    hand.answer()
    assert hand.stage is Stage.LEFT
    assert hand.kinds() == ["revoked", "lost"]


def test_patience_may_end_while_it_leaves() -> None:
    hand = Hand(ToTheEnd).inside(p0=7)
    hand.machine.stop(hand.now)
    hand.run()
    hand.machine.stop(hand.now, patient=False)
    hand.answer()
    assert hand.stage is Stage.LEFT


def test_one_that_renews_to_the_end_keeps_its_lease_while_work_ends() -> None:
    hand = Hand(ToTheEnd, interval=1.0).inside(p0=7)
    hand.machine.stop(hand.now)
    hand.answer()
    assert hand.until() == hand.now + 1.0
    hand.now += 1.0
    hand.answer()
    assert hand.stage is Stage.LEAVING


def test_one_that_renews_to_the_end_asks_at_once_for_what_concerns_it() -> None:
    hand = Hand(ToTheEnd).inside(p0=7)
    hand.machine.stop(hand.now)
    hand.answer()
    hand.machine.wake()
    hand.answer()
    assert hand.until() > hand.now


def test_one_that_leaves_reports_at_once_what_its_application_has_ended() -> None:
    hand = Hand(ToTheEnd).inside(p0=7, p1=8)
    hand.machine.stop(hand.now)
    hand.answer()
    assert hand.until() > hand.now
    assert hand.machine.release(0, 7, hand.now)
    assert isinstance(hand.next(), Run)


def test_a_departure_under_way_is_not_begun_again() -> None:
    hand = Hand().inside()
    hand.machine.stop(hand.now)
    departure = hand.run()
    hand.machine.stop(hand.now, patient=False)
    assert hand.run() is departure


def test_a_departure_that_is_not_answered_is_one_all_the_same() -> None:
    hand = Hand().inside()
    hand.machine.stop(hand.now)
    hand.run().failed(GONE, hand.now)
    assert (hand.stage, hand.machine.error) == (Stage.LEFT, GONE)


def test_one_that_stops_while_it_enters_takes_its_entry_out() -> None:
    hand = Hand()
    entering = hand.run()
    hand.machine.stop(hand.now)
    assert hand.stage is Stage.DEPARTING
    departing = hand.run()
    # A late answer is nobody's.
    entering.done(None, hand.now, hand.now)
    assert hand.stage is Stage.DEPARTING
    departing.done(None, hand.now, hand.now)
    assert hand.stage is Stage.LEFT
    assert isinstance(hand.machine.failure, NodeStateError)


def test_a_handover_ends_when_the_group_knows_that_nothing_is_held() -> None:
    hand = Hand().inside(p0=7)
    hand.machine.stop(hand.now, handover=True)
    assert hand.stage is Stage.HANDING_OVER
    hand.answer(view(p0=7))
    hand.machine.stop(hand.now, handover=True)
    assert hand.stage is Stage.HANDING_OVER
    hand.machine.empty = True
    hand.now = hand.until()
    hand.answer(view())
    hand.answer()
    assert hand.stage is Stage.LEFT


def test_one_that_is_not_in_yet_has_nothing_to_hand_over() -> None:
    hand = Hand()
    hand.machine.stop(hand.now, handover=True)
    assert hand.stage is Stage.DEPARTING


def test_a_handover_lasts_no_longer_than_its_time() -> None:
    hand = Hand().inside(p0=7)
    hand.machine.waits_for_others = 1.0
    hand.machine.stop(hand.now, handover=True)
    hand.answer(view(p0=7))
    assert hand.until() == hand.now + 1.0
    hand.now += 1.0
    hand.next()
    assert hand.stage is Stage.LEAVING


def test_one_that_is_told_to_stop_leaves_in_the_midst_of_a_handover() -> None:
    hand = Hand().inside(p0=7)
    hand.machine.stop(hand.now, handover=True)
    hand.machine.stop(hand.now)
    assert hand.stage is Stage.LEAVING


# --- starting again -----------------------------------------------------------------------------


def test_one_that_starts_again_begins_anew() -> None:
    hand = Hand(progress_timeout=1.0).inside(p0=7)
    hand.machine.stop(hand.now, patient=False)
    hand.run().failed(GONE, hand.now)
    hand.now += 50.0
    hand.machine.start(hand.now)
    machine = hand.machine
    assert (machine.error, machine.failure, machine.changes, machine.listening.stands) == (
        None,
        None,
        [],
        False,
    )
    hand.answer().answer(view(p1=9)).subscribe()
    hand.answer(view(p1=9))
    assert not machine.holdings.stalled
    assert machine.holdings.held(hand.now) == {1: 9}
    machine.stop(hand.now)
    # This time the application ends its work.
    assert hand.until() == hand.now + GRACE


def test_a_turn_that_the_table_does_not_have_is_a_fault() -> None:
    hand = Hand()
    with pytest.raises(LookupError, match="'gone' cannot happen while 'entering'"):
        hand.machine._turn(Turn.GONE)


def test_one_that_left_before_it_was_in_can_hold_partitions_when_it_starts_again() -> None:
    hand = Hand()
    hand.machine.stop(hand.now)
    hand.answer()
    hand.machine.start(hand.now)
    hand.inside(p0=7)
    assert hand.machine.holdings.held(hand.now) == {0: 7}


def test_the_end_of_a_handover_is_forgotten_by_one_that_starts_again() -> None:
    hand = Hand().inside()
    hand.machine.waits_for_others = 1.0
    hand.machine.stop(hand.now, handover=True)
    hand.machine.stop(hand.now, patient=False)
    hand.answer()
    hand.now += 50.0
    hand.machine.start(hand.now)
    hand.inside()
    assert hand.stage is Stage.MEMBER
