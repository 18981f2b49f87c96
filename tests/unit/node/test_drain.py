"""A node that is drained by order: it beats on, owns nothing, and hands over what it has locked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Event as Signal
from typing import Any

import pytest

from hashring.core.ring_change_message import ChangeKind
from hashring.protocol.locks.key_lease import KeyLease, LeaseHolder
from hashring.protocol.locks.shared_lock_book import SharedLockBook
from hashring.protocol.node.node_machine import NodeMachine
from hashring.protocol.node.node_states import NodeState
from hashring.protocol.node.own_ranges_machine import OwnRangesMachine, machine_of
from hashring.store.ring.commands import BeatReply, BeatStatus, LeaveStatus
from hashring.store.ring.node_orders import ORDERED
from hashring.testing.simulator import (
    RingSimulator,
    own_ranges,
    random_history,
    random_lock_history,
    with_drains,
)
from hashring.testing.simulator.history import Event
from hashring.testing.simulator.ring.history import NodeHistory, ProcessSpec
from tests.unit.histories import find_fault, none_breaks_a_rule
from tests.unit.node.planted import with_the_fault
from tests.unit.node.test_node_machine import BEAT, KEYS, LOCKS, TTL, Hand, asks, seen
from tests.unit.planted_scripts import plant_at_the_beginning


def drained(hand: Hand) -> Hand:
    """The node's next heartbeat is answered: it is off the ring."""
    before = hand.stamp.tag
    change = hand.change(ChangeKind.LEAVE, "me")
    others = tuple(b"%d:%s:x" % (p, n.encode()) for n, ps in hand.others.items() for p in ps)
    hand.stamp = replace(change.stamp, members=len(others))
    run = hand.beat_due()
    members = others if asks(run)["fetch"] else None
    hand.answer(
        run, BeatStatus.DRAINED, stamp=hand.stamp, before=before, members=members, soonest=None
    )
    return hand


def test_an_order_makes_the_node_beat_at_once() -> None:
    hand = Hand().live()
    assert hand.waits_until() > hand.now
    channel = KEYS.node_channel("me")
    assert channel in hand.machine.channels
    hand.machine.told(hand.number, channel, ORDERED, hand.now)
    assert asks(hand.run())["node"] == "me"
    assert hand.machine.counters.bad_messages == 0


def test_an_order_that_comes_while_a_heartbeat_is_under_way_makes_it_beat_again() -> None:
    hand = Hand().live()
    run, sent = hand.beat_due(), hand.now
    hand.wait(0.01)
    hand.machine.told(hand.number, KEYS.node_channel("me"), ORDERED, hand.now)
    hand.wait(0.01)
    hand.answer(run, sent=sent)
    again = hand.run()
    hand.wait(0.01)
    hand.answer(again, sent=hand.now)
    assert hand.waits_until() > hand.now


def test_a_full_node_that_drains_is_not_full_any_more() -> None:
    hand = Hand().live()
    full = hand.change(node="me", points=())
    hand.tell(replace(full, kind=ChangeKind.FULL, points=()))
    assert hand.machine.sight.full_nodes == {"me"}
    assert drained(hand).machine.sight.full_nodes == frozenset()


def test_a_drained_node_hands_over_what_it_kept_for_a_full_one() -> None:
    hand = Hand(locks=LOCKS).live()
    hand.tell(replace(hand.change(node="you", points=(5,)), kind=ChangeKind.FULL, points=()))
    book = hand.machine.book
    assert book is not None
    # It may have the keys of the full node.
    assert hand.view.bounds == (0, 2**32)
    lease = leased(hand, book, 5)
    assert lease.revoked_at is None
    assert drained(hand).view.bounds == ()
    assert lease.revoked_at == hand.now


def leased(hand: Hand, book: SharedLockBook, point: int) -> KeyLease[Signal]:
    take = book.take([(b"key", point, b"key")], hand.now)
    assert take is not None
    book.acquired(take, [7], hand.now, hand.now)
    lease = book.pin(b"key", lambda: hand.now, Signal, LeaseHolder())
    assert lease is not None
    return lease


def test_a_drained_node_owns_nothing_and_beats_on() -> None:
    hand = drained(Hand().live())
    assert hand.state is NodeState.DRAINED
    assert not hand.owns()
    assert hand.view.ranges == ()
    assert "me" not in hand.view.ring
    assert hand.now + 0.9 * BEAT <= hand.waits_until() <= hand.now + BEAT


def test_a_drained_node_that_is_removed_by_hand_has_missed_no_deadline() -> None:
    hand = drained(Hand().live())
    hand.machine.leave_step("removed").done(LeaveStatus.OK, hand.now, hand.now)
    hand.next()
    assert hand.state is NodeState.FENCED
    assert hand.machine.counters.fences == 0


def test_a_drained_node_goes_on_following_the_ring_without_reading_it() -> None:
    hand = drained(Hand().live())
    hand.stamp = replace(hand.stamp, members=hand.stamp.members)
    assert not asks(hand.beat_due())["fetch"]


def test_a_node_that_starts_under_an_order_is_drained_and_has_started() -> None:
    hand = Hand(named=True)
    hand.machine.start(hand.now, strict=True)
    hand.subscribe()
    look = hand.run()
    assert look.command.script.name == "snapshot"
    look.done(seen(hand.stamp, []), hand.now, hand.now)
    hand.answer(hand.run(), BeatStatus.DRAINED, soonest=None)
    assert hand.state is NodeState.DRAINED


def test_a_node_is_back_at_its_points_when_the_order_is_lifted() -> None:
    hand = drained(Hand().live())
    points = [replica.point for replica in hand.machine.replicas]
    run = hand.beat_due()
    before = hand.stamp.tag
    joined = hand.change(node="me", points=tuple(points), session=hand.machine.session)
    hand.others.pop("me")
    stamp = replace(joined.stamp, members=len(hand.members()))
    hand.answer(run, BeatStatus.OK, stamp=stamp, before=before)
    assert hand.state is NodeState.LIVE
    assert list(hand.view.ring.points_of("me")) == sorted(points)
    assert hand.owns()


def test_a_drained_node_that_redis_does_not_answer_is_fenced() -> None:
    hand = drained(Hand().live())
    hand.wait(TTL)
    hand.next()
    assert hand.state is NodeState.FENCED


@pytest.mark.parametrize("follow", [True, False], ids=["follows", "own ranges"])
def test_a_drained_node_may_go_on_with_its_leases_until_its_deadline(follow: bool) -> None:
    hand = Hand()
    hand.machine = machine_of(replace(hand.machine.config, follow=follow), hand.dice)
    hand.start()
    hand.subscribe()
    hand.answer(hand.run(), BeatStatus.DRAINED, ranges=(), soonest=None)
    assert hand.view.bounds == ()
    assert hand.view.deadline == hand.now + TTL


# --- histories --------------------------------------------------------------------------------

BATCH = 200
FAULT_BUDGET = 200
"""A planted fault must be found within this many histories."""


def of_own_ranges(seed: int) -> NodeHistory:
    return with_drains(own_ranges(random_history(seed)))


def with_locks(seed: int) -> NodeHistory:
    return with_drains(random_lock_history(seed))


def crowded(seed: int) -> NodeHistory:
    """With more keys than there is room for."""
    history = random_lock_history(seed)
    processes = tuple(replace(spec, limit=2) for spec in history.processes)
    return with_drains(replace(history, processes=processes))


def plain(seed: int) -> NodeHistory:
    return with_drains(random_history(seed))


@pytest.mark.parametrize(
    ("make", "count"), [(plain, BATCH), (of_own_ranges, BATCH), (with_locks, BATCH // 2)]
)
def test_no_history_of_drains_breaks_a_rule(make: Callable[[int], NodeHistory], count: int) -> None:
    none_breaks_a_rule(RingSimulator(), make, range(count))


def found(
    simulator: RingSimulator, rules: str, make: Callable[[int], NodeHistory] = plain
) -> NodeHistory:
    return find_fault(simulator, rules, make, FAULT_BUDGET)


class TakesItForAnAnswerLikeAnyOther(NodeMachine):
    """It does not look whether its heartbeat put it on the ring."""

    def _accepted(self, status: BeatStatus) -> None:
        super()._accepted(BeatStatus.OK)


class ForgetsThatItWasDrained(OwnRangesMachine):
    """When it drains it goes on with the ranges that it had."""

    def _learn(self, reply: BeatReply, heard: list[Any], now: float) -> None:
        if reply.status is BeatStatus.DRAINED:
            reply = replace(reply, ranges=self.near.reaches, status=BeatStatus.OK)
        super()._learn(reply, heard, now)


@pytest.mark.parametrize(
    ("machine", "make", "rules"),
    [
        (TakesItForAnAnswerLikeAnyOther, plain, "renewal|recovery"),
        (ForgetsThatItWasDrained, of_own_ranges, "renewal|own|recovery"),
    ],
)
def test_a_fault_in_the_node_is_found(
    machine: type[NodeMachine], make: Callable[[int], NodeHistory], rules: str
) -> None:
    found(with_the_fault(machine), rules, make)


def test_a_heartbeat_that_does_not_look_for_orders_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant_at_the_beginning(monkeypatch, "is_to_drain(node, session, history)", "return false")
    history = found(RingSimulator(), "drain")
    assert "is to drain, and joined the ring" in RingSimulator().story(history)


def test_a_node_that_was_drained_where_it_came_back_to_joins_anew() -> None:
    node = ProcessSpec("first", "node-a", True, "random", 3, False, False, 100.0)
    events = (
        Event(0.0, "start", "first"),
        Event(0.5, "stay", "first"),
        Event(1.5, "drain", "first"),
        Event(2.0, "start", "second"),
        Event(2.6, "undrain", "second"),
    )
    history = NodeHistory(17, (node, replace(node, label="second")), events)
    assert RingSimulator().broken_rule(history) is None


def test_a_drained_node_that_keeps_keys_for_full_nodes_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SharedLockBook, "drain", lambda self: None)
    found(RingSimulator(), "served", crowded)
