"""The protocol of a node that knows only its own ranges, fed by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from hashring import RingNode
from hashring.core.own_ranges import Reach
from hashring.core.point_placement import BALANCED_WHOLE
from hashring.core.replica import Replica
from hashring.core.ring_change_message import ChangeKind, Stamp
from hashring.errors import RedisUnavailable
from hashring.protocol.locks.key_lease import LeaseHolder
from hashring.protocol.machine_steps import Finished, Run, Subscribe
from hashring.protocol.node.node_states import ClaimState, NodeState, SightState
from hashring.protocol.node.own_ranges_machine import machine_of
from hashring.store.ring.commands import BeatReply, BeatStatus, LeaveStatus, Look
from hashring.store.ring.node_orders import ORDERED, WeightOrder
from hashring.testing import MemoryStore
from tests.unit.node.test_node_machine import BEAT, KEYS, LOCKS, TTL, Hand, asks, seen

INHERITED = 50
"""Points of a full neighbour, after each of the node's own ranges."""


class NearHand(Hand):
    """Drives a node that follows no ring."""

    def __init__(self, **options: Any) -> None:
        super().__init__(follow=False, **options)
        self.machine = machine_of(self.machine.config, self.dice)
        self.length = 1000

    def reaches(self) -> tuple[Reach, ...]:
        points = sorted(replica.point for replica in self.machine.replicas)
        return tuple(Reach(point, self.length, self.length + INHERITED) for point in points)

    def reply(self, run: Run, status: BeatStatus = BeatStatus.OK, **changes: Any) -> BeatReply:
        return super().reply(run, status, **{"ranges": self.reaches(), "nodes": 2, **changes})

    def next_stamp(self) -> Stamp:
        """Somebody changes the ring."""
        old = self.stamp
        self.stamp = Stamp(old.epoch + 1, f"{old.epoch + 1:02x}", 3, old.at + 1_000_000)
        return self.stamp

    def tell_near(self, kind: ChangeKind, stamp: Stamp) -> None:
        """Redis tells the node alone how far its ranges go after a change."""
        body = {
            "v": 1,
            "kind": kind.value,
            "nodes": ["you"],
            "points": [],
            "epoch": stamp.epoch,
            "tag": stamp.tag,
            "members": stamp.members,
            "at": str(stamp.at),
            "prev": "",
            "session": "",
            "ranges": ",".join(f"{point} {own} {reach}" for point, own, reach in self.reaches()),
        }
        self.tell_alone(b"ranges\n" + json.dumps(body).encode())

    def tell_alone(self, payload: bytes) -> None:
        self.machine.told(self.number, KEYS.node_channel("me"), payload, self.now)

    def own_length(self) -> int:
        return sum(each.end - each.start for each in self.view.ranges) // 2


def test_a_limit_without_locks_inherits_no_ranges_of_full_nodes() -> None:
    hand = NearHand(locks=replace(LOCKS, locking=False))
    hand.live()
    assert hand.view.bounds == hand.machine.near.own_bounds


def test_with_locks_it_may_take_keys_of_full_neighbours() -> None:
    hand = NearHand(locks=LOCKS)
    hand.live()
    assert hand.view.bounds == hand.machine.near.bounds != hand.machine.near.own_bounds


def test_a_lease_on_what_a_neighbour_took_is_revoked() -> None:
    hand = NearHand(locks=LOCKS)
    hand.live()
    book, point = hand.machine.book, hand.view.bounds[0] + 900
    assert book is not None
    take = book.take([(b"key", point, b"key")], hand.now)
    assert take is not None
    book.acquired(take, [7], hand.now, hand.now)
    lease = book.pin(b"key", lambda: hand.now, Event, LeaseHolder())
    assert lease is not None
    assert lease.revoked_at is None
    hand.length = 10
    hand.tell_near(ChangeKind.JOIN, hand.next_stamp())
    assert not hand.view.bounds[0] <= point < hand.view.bounds[1]
    assert lease.revoked_at == hand.now


def test_a_fenced_one_shows_no_ranges_with_locks_either() -> None:
    hand = NearHand(locks=LOCKS)
    hand.live()
    hand.wait(2 * TTL)
    hand.next()
    assert hand.state is NodeState.FENCED
    assert hand.view.bounds == ()


def test_one_that_follows_no_ring_is_never_in_doubt_of_it() -> None:
    hand = NearHand()
    hand.live()
    assert not hand.machine.in_doubt


def test_the_number_of_nodes_alone_makes_a_new_view() -> None:
    hand = NearHand()
    hand.live()
    deadline = hand.view.deadline
    run = hand.beat_due()
    sent = deadline - hand.machine.config.ttl
    hand.answer(run, sent=sent, nodes=7)
    assert (hand.view.deadline, hand.view.node_count) == (deadline, 7)


@pytest.mark.parametrize(("placement", "whole"), [("random", 0), ("balanced", BALANCED_WHOLE)])
def test_only_one_that_is_to_be_balanced_looks_around(placement: str, whole: int) -> None:
    hand = NearHand(placement=placement, named=True)
    hand.start()
    hand.subscribe()
    hand.answer(hand.run(), status=BeatStatus.ABSENT)
    command = hand.run().command
    assert command.script.name == "look"
    assert command.arguments[1] == whole


def test_balanced_ones_of_many_points_see_enough_of_a_large_ring_to_be_even() -> None:
    server, points, names = MemoryStore(), BALANCED_WHOLE // 2, [f"n{i}" for i in range(5)]
    for name in names:
        node = RingNode(server, "accounts", name=name, n_replicas=points, placement="balanced")
        node.heartbeat()
    ring = node.ring
    assert [len(ring.points_of(name)) for name in names] == [points] * len(names)
    assert all(0.9 < ring.share(name) * len(names) < 1.1 for name in names)


def test_one_that_stopped_to_come_back_is_back_with_one_call() -> None:
    hand = NearHand(named=True)
    hand.start()
    hand.subscribe()
    run = hand.run()
    assert run.command.arguments[2] == "jrb"
    assert not asks(run)["members"]
    stayed = (Replica(5, "me", "old"), Replica(9, "me", "old"))
    hand.answer(run, stayed=stayed, ranges=(Reach(5, 4, 4), Reach(9, 1, 1)))
    assert hand.state is NodeState.LIVE
    assert hand.machine.replicas == stayed
    assert [(each.start, each.end) for each in hand.view.ranges] == [(5, 10)]


def test_one_that_stops_to_come_back_tells_what_redis_stated_last() -> None:
    hand = NearHand(named=True, n_replicas=2)
    hand.live()
    hand.machine.stop(stay=True)
    command = hand.run().command
    assert command.script.name == "park"
    assert command.arguments[5:7] == (hand.stamp.tag, hand.machine.near.text)


def test_one_that_may_be_back_and_does_not_know_where_leaves_to_the_ttl() -> None:
    hand = NearHand(named=True)
    hand.start()
    hand.subscribe()
    hand.run().failed(RedisUnavailable("no answer"), hand.now)
    hand.machine.stop()
    # Its session has ended, so a join that is still on its way does nothing.
    ends = hand.run()
    assert ends.command.script.name == "park"
    ends.done(LeaveStatus.ABSENT, hand.now, hand.now)
    assert isinstance(hand.next(), Finished)


def test_one_that_came_back_unheard_and_whose_name_was_taken_since_asks_who_began_first() -> None:
    hand = NearHand(named=True)
    hand.start()
    hand.subscribe()
    hand.run().failed(RedisUnavailable("no answer"), hand.now)
    hand.wait(BEAT)
    hand.answer(hand.run(), BeatStatus.SUPERSEDED)
    assert (hand.state, hand.machine.claim.state) == (NodeState.JOINING, ClaimState.CONTESTING)
    assert hand.run().command.script.name == "look"


def looking_around(length: int = 1000, weight: float = 2.0) -> tuple[NearHand, Run]:
    """A balanced node of two points that looks where more of them should be; two of weight 2."""
    hand = NearHand(placement="balanced")
    hand.length = length
    hand.start()
    hand.subscribe()
    hand.run().done(around(hand), hand.now, hand.now)
    hand.answer(hand.run())
    hand.answer(hand.beat_due(), ordered=WeightOrder(weight, "alice", "1000"))
    return hand, hand.run()


def around(hand: NearHand) -> Look:
    return Look(hand.stamp, None, (), (), frozenset(), 1, {"you": ((5, 1_000_000),)})


@pytest.mark.parametrize("weight", [1.5, 2.0])
def test_a_balanced_one_that_grows_beats_as_soon_as_it_knows_where(weight: float) -> None:
    hand, look = looking_around(weight=weight)
    look.done(replace(around(hand), points=3), hand.now, hand.now)
    assert len(asks(hand.run())["members"]) == 2 * weight


def test_a_balanced_one_that_has_enough_takes_nothing_from_others() -> None:
    hand, look = looking_around(length=2**31)
    had = hand.machine.replicas
    look.done(replace(around(hand), points=3), hand.now, hand.now)
    more = [each.point for each in hand.machine.replicas if each not in had]
    assert len(more) == 2
    assert min(more) > 1_000_005


def test_a_balanced_one_whose_weight_falls_while_it_looks_around_adds_nothing() -> None:
    hand, look = looking_around()
    hand.machine.weigh(0.5)
    look.done(replace(around(hand), points=3), hand.now, hand.now)
    assert len(asks(hand.run())["members"]) == 1


def test_a_balanced_one_that_is_fenced_while_it_looks_around_adds_nothing_yet() -> None:
    hand, look = looking_around()
    sent, hand.now = hand.now, hand.now + 2 * TTL
    hand.machine.next(hand.now)
    assert hand.state is NodeState.FENCED
    look.done(replace(around(hand), points=3), sent, hand.now)
    assert len(hand.machine.replicas) == 2


def test_a_live_one_is_told_its_ranges_again_only_when_they_differ() -> None:
    hand = NearHand()
    hand.live()
    assert hand.machine.near.digest in hand.beat_due().command.arguments


def test_a_heartbeat_that_finds_what_no_message_told_of_counts_as_a_gap() -> None:
    hand = NearHand()
    hand.live()
    run = hand.beat_due()
    hand.length = 700
    hand.answer(run)
    assert hand.machine.counters.gaps == 1
    assert hand.machine.sight.state is SightState.DEAF
    assert hand.own_length() == 700


def test_a_heartbeat_that_a_message_overtook_is_no_gap() -> None:
    hand = NearHand()
    hand.live()
    run = hand.beat_due()
    hand.length = 700
    hand.tell_near(ChangeKind.JOIN, hand.next_stamp())
    hand.length = 600
    hand.answer(run)
    assert hand.machine.counters.gaps == 0


def test_what_its_own_heartbeat_swept_is_no_gap() -> None:
    hand = NearHand()
    hand.live()
    run = hand.beat_due()
    hand.length = 700
    hand.answer(run, swept=1)
    assert hand.machine.counters.gaps == 0


def test_a_message_that_is_newer_than_the_answer_that_it_overtook_counts() -> None:
    hand = NearHand()
    hand.live()
    run = hand.beat_due()
    before = hand.reply(run)
    hand.length = 700
    hand.tell_near(ChangeKind.JOIN, hand.next_stamp())
    run.done(before, hand.now, hand.now)
    assert hand.own_length() == 700


def test_one_that_is_started_again_states_no_ranges_that_it_had_before() -> None:
    hand = NearHand()
    hand.start()
    hand.subscribe()
    run = hand.run()
    nothing = asks(run)["told"]["ranges"]
    hand.answer(run)
    assert hand.view.ranges
    assert asks(hand.beat_due())["told"]["ranges"] != nothing
    hand.start()
    hand.subscribe()
    assert asks(hand.run())["told"]["ranges"] == nothing


def test_a_message_that_cannot_be_read_is_counted_and_changes_nothing() -> None:
    hand = NearHand()
    hand.live()
    hand.tell_alone(b"ranges\n{}")
    assert hand.machine.counters.bad_messages == 1
    assert hand.own_length() == 1000


def test_a_message_from_after_a_failover_to_a_slower_clock_counts() -> None:
    hand = NearHand()
    hand.live()
    hand.length = 700
    later = hand.next_stamp()
    hand.tell_near(ChangeKind.JOIN, replace(later, at=later.at - 1_500_000))
    assert hand.own_length() == 700


def test_of_two_changes_of_one_moment_the_second_counts_though_redis_clock_was_set_back() -> None:
    hand = NearHand()
    hand.live()
    first = hand.next_stamp()
    hand.answer(hand.beat_due(), history=str(first.at + 30_000_000))
    hand.length = 700
    hand.tell_near(ChangeKind.EXPIRE, replace(hand.next_stamp(), at=first.at + 1))
    hand.length = 400
    hand.tell_near(ChangeKind.JOIN, replace(hand.next_stamp(), at=first.at + 1))
    assert hand.own_length() == 400


def test_another_history_is_a_loss_only_where_the_node_was_gone_from_the_ring() -> None:
    hand = NearHand()
    hand.start()
    hand.subscribe()
    hand.answer(hand.run(), history="1")
    hand.next_stamp()  # far from its ranges: nobody tells it
    hand.answer(hand.beat_due(), history="2")
    assert hand.machine.counters.losses == 0
    hand.next_stamp()
    hand.answer(hand.beat_due(), history="3", before="empty")
    assert hand.machine.counters.losses == 1


def test_a_message_from_before_redis_lost_the_ring_is_dropped_whatever_its_number() -> None:
    hand = NearHand()
    hand.live()
    lost = hand.next_stamp()
    hand.answer(hand.beat_due(), history=str(lost.at))
    hand.length = 700
    hand.tell_near(ChangeKind.JOIN, replace(lost, epoch=lost.epoch + 9, at=lost.at - 1))
    assert hand.own_length() == 1000


def test_a_message_shows_that_the_subscription_is_alive() -> None:
    hand = NearHand()
    hand.live()
    run = hand.beat_due()
    hand.length = 700
    hand.answer(run)
    hand.tell_near(ChangeKind.JOIN, hand.next_stamp())
    assert hand.machine.sight.state is SightState.BEHIND


def test_one_that_no_message_told_subscribes_anew_a_heartbeat_later() -> None:
    hand = NearHand()
    hand.live()
    run = hand.beat_due()
    hand.length = 700
    hand.answer(run)
    hand.answer(hand.beat_due())
    assert isinstance(hand.next(), Subscribe)


def test_a_message_as_old_as_the_newest_statement_is_dropped() -> None:
    hand = NearHand()
    hand.live()
    hand.length = 700
    hand.tell_near(ChangeKind.JOIN, hand.stamp)
    assert hand.own_length() == 1000


def test_changes_are_counted_by_their_cause() -> None:
    hand = NearHand()
    hand.live()
    hand.tell_near(ChangeKind.JOIN, hand.next_stamp())
    hand.tell_near(ChangeKind.JOIN, hand.next_stamp())
    assert hand.machine.counters.changes == {"join": 2}


@pytest.mark.parametrize(("kind", "beats_early"), [("join", True), ("expire", False)])
def test_what_expires_next_is_asked_for_unless_somebody_was_first(
    kind: str, beats_early: bool
) -> None:
    hand = NearHand()
    hand.soonest = BEAT / 4
    hand.live()
    hand.tell_near(ChangeKind(kind), hand.next_stamp())
    assert (hand.waits_until() < hand.now + BEAT / 2) is beats_early


def test_an_order_is_looked_up_at_once() -> None:
    hand = NearHand()
    hand.live()
    hand.tell_alone(ORDERED)
    assert asks(hand.run())["node"] == "me"


def test_a_live_one_is_brought_up_to_date_by_a_heartbeat() -> None:
    hand = NearHand()
    hand.live()
    assert hand.machine.look_step().command.script.name == "beat"


def test_one_that_is_not_on_the_ring_counts_the_nodes_there() -> None:
    hand = NearHand()
    step = hand.machine.look_step()
    members = [(b"5:you:x", 1.0), (b"9:he:y", 1.0), (b"garbage", 1.0)]
    step.done(seen(hand.stamp, members), hand.now, hand.now)
    assert hand.view.node_count == 2
    assert hand.machine.sight.garbage == 1


def test_one_that_has_not_begun_knows_of_no_nodes() -> None:
    assert NearHand().view.node_count == 0


def test_one_that_stopped_knows_of_no_nodes() -> None:
    hand = NearHand()
    hand.live()
    assert hand.view.node_count == 2
    hand.machine.stop()
    hand.run().done(LeaveStatus.OK, hand.now, hand.now)
    assert hand.view.node_count == 0


def test_one_that_has_left_the_ring_is_stopped() -> None:
    hand = NearHand()
    hand.live()
    hand.machine.stop()
    hand.run().done(LeaveStatus.OK, hand.now, hand.now)
    assert hand.state is NodeState.STOPPED
