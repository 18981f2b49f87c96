"""A node whose weight changes while it runs: it adds points to its own, or gives some up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from hashring.core.point_placement import MAX_POINTS
from hashring.core.replica import Replica
from hashring.errors import RedisUnavailable
from hashring.protocol.machine_steps import Run
from hashring.protocol.node.node_machine import NodeMachine
from hashring.protocol.node.node_states import NodeState
from hashring.protocol.node.own_ranges_machine import OwnRangesMachine
from hashring.protocol.node.own_replicas import OwnReplicas
from hashring.store.ring.commands import BeatStatus
from hashring.store.ring.node_orders import WeightOrder
from hashring.testing.simulator import (
    RingSimulator,
    own_ranges,
    random_history,
    random_lock_history,
    with_drains,
    with_weights,
)
from hashring.testing.simulator.history import Event
from hashring.testing.simulator.ring.history import NodeHistory, ProcessSpec
from hashring.testing.simulator.ring.random_histories import LATE
from tests.unit.histories import find_fault, none_breaks_a_rule
from tests.unit.node.planted import with_the_fault
from tests.unit.node.test_node_machine import Hand, asks, seen
from tests.unit.planted_scripts import plant

TWICE = WeightOrder(2.0, "alice", "1000")
HALF = WeightOrder(0.5, "bob", "2000")


def ordered(hand: Hand, order: WeightOrder | None) -> Hand:
    """The node's next heartbeat is answered with an order about its weight."""
    hand.answer(hand.beat_due(), ordered=order)
    return hand


def answered(hand: Hand, run: Run, order: WeightOrder | None = None) -> None:
    """A heartbeat with other points is: the ring has them."""
    before = hand.stamp.tag
    hand.change(node="me", points=tuple(each.point for each in hand.machine.replicas))
    hand.others.pop("me")
    stamp = replace(hand.stamp, members=len(hand.members()))
    hand.answer(run, stamp=stamp, before=before, ordered=order)


def test_a_heavier_node_adds_points_to_its_own_with_a_heartbeat_at_once() -> None:
    hand = Hand(n_replicas=4).live()
    had = hand.machine.replicas
    run = ordered(hand, TWICE).run()
    told = asks(run)
    assert (told["resizes"], told["drop"], told["joining"]) == (True, (), False)
    assert set(told["members"]) > {each.member for each in had}
    assert len(told["members"]) == 8
    assert told["told"]["weight"] == 2.0
    answered(hand, run, TWICE)
    assert hand.view.ring.points_of("me") == tuple(each.point for each in hand.machine.replicas)
    assert not asks(hand.beat_due())["resizes"]


def test_a_lighter_node_gives_up_some_of_its_points() -> None:
    hand = Hand(n_replicas=4).live()
    had = {each.member for each in hand.machine.replicas}
    told = asks(ordered(hand, HALF).run())
    assert set(told["members"]) < had
    assert set(told["drop"]) == had - set(told["members"])
    assert len(told["members"]) == 2


def test_a_node_of_very_many_points_gives_up_half_of_them_at_once() -> None:
    # To look for each among all of them would take longer than a test may.
    own = OwnReplicas("me", "random", Random(1))
    own.draw(MAX_POINTS)
    own.confirmed(())
    had = set(own.replicas)
    assert own.fit(MAX_POINTS // 2, dict) == 0
    assert len(own.replicas) == MAX_POINTS // 2
    assert had == {*own.replicas, *own.dropping}


def test_of_points_that_it_was_about_to_add_it_keeps_as_many_as_it_needs() -> None:
    own = OwnReplicas("me", "random", Random(1))
    own.draw(2)
    own.confirmed(())
    had = set(own.replicas)
    own.add_random(8, ())
    assert own.fit(3, dict) == 0
    assert len(own.replicas) == 3
    assert had < set(own.replicas)


@pytest.mark.parametrize("stay", [False, True])
def test_a_lighter_node_that_stops_before_redis_answered_gives_up_all_of_its_points(
    stay: bool,
) -> None:
    hand = Hand(n_replicas=4).live()
    had = {each.member for each in hand.machine.replicas}
    run = ordered(hand, HALF).run()
    run.failed(RedisUnavailable("no answer"), hand.now)
    hand.machine.stop(stay=stay)
    leaving = hand.run().command
    assert leaving.script.name == ("park" if stay else "leave")
    assert had <= set(leaving.arguments)


def test_a_node_takes_back_as_many_of_the_points_that_it_is_giving_up_as_it_needs() -> None:
    hand = Hand(n_replicas=4).live()
    had = {each.member for each in hand.machine.replicas}
    hand.machine.weigh(0.5)
    hand.machine.beat_at_once(hand.now)
    hand.run().failed(RedisUnavailable("no answer"), hand.now)
    hand.machine.weigh(0.75)
    hand.machine.beat_at_once(hand.now)
    told = asks(hand.run())
    assert len(told["members"]) == 3
    assert set(told["members"]) < had


def test_a_weight_that_makes_as_many_points_moves_nothing() -> None:
    hand = Hand(n_replicas=4).live()
    ordered(hand, WeightOrder(1.1, "alice", "1000"))
    assert hand.waits_until() > hand.now
    told = asks(hand.beat_due())
    assert (told["resizes"], told["told"]["weight"]) == (False, 1.1)


def test_when_the_order_is_lifted_its_own_weight_counts_again() -> None:
    hand = Hand(n_replicas=4).live()
    answered(hand, ordered(hand, TWICE).run(), TWICE)
    run = hand.beat_due()
    assert asks(run)["told"]["own_weight"] == 1.0
    hand.answer(run, ordered=None)
    assert len(asks(hand.run())["members"]) == 4


def test_what_it_assigns_counts_instead_of_the_order_that_it_knew() -> None:
    hand = Hand(n_replicas=4).live()
    answered(hand, ordered(hand, TWICE).run(), TWICE)
    hand.machine.weigh(0.5)
    assert hand.machine.weight == 0.5
    hand.machine.beat_at_once(hand.now)
    run = hand.run()
    told = asks(run)
    assert (told["own_weight"], told["told"]["weight"]) == (TWICE.id, 0.5)
    assert len(told["members"]) == 2
    answered(hand, run)
    assert asks(hand.beat_due())["own_weight"] is None


def test_what_it_assigned_is_said_again_until_it_is_answered() -> None:
    hand = Hand(n_replicas=4).live()
    hand.machine.weigh(2.0)
    hand.machine.beat_at_once(hand.now)
    first = asks(hand.run())
    hand.run().failed(ConnectionError("lost"), hand.now)  # type: ignore[arg-type]
    again = asks(hand.beat_due())
    assert again["own_weight"] == ""
    assert again["members"] == first["members"]


def test_an_order_that_it_did_not_know_counts_more_than_what_it_assigned() -> None:
    hand = Hand(n_replicas=4).live()
    hand.machine.weigh(3.0)
    hand.machine.beat_at_once(hand.now)
    answered(hand, hand.run(), HALF)
    assert hand.machine.weight == 0.5
    assert len(asks(hand.run())["members"]) == 2


@pytest.mark.parametrize("weights", [[1.0], [0.5, 1.0]], ids=["at once", "after another weight"])
def test_an_order_that_a_failover_brings_back_is_lifted_again(weights: list[float]) -> None:
    hand = Hand(n_replicas=4).live()
    answered(hand, ordered(hand, TWICE).run(), TWICE)
    for weight in weights:
        hand.machine.weigh(weight)
        hand.machine.beat_at_once(hand.now)
        answered(hand, hand.run())
    ordered(hand, TWICE)
    assert hand.machine.weight == 1.0
    assert asks(hand.beat_due())["own_weight"] == TWICE.id


def test_a_weight_that_came_and_went_unheard_moves_nothing() -> None:
    hand = Hand(n_replicas=4).live()
    had = hand.machine.replicas
    for weight in (0.5, 2.0, 0.25, 1.0):
        hand.machine.weigh(weight)
        hand.machine.beat_at_once(hand.now)
        hand.run().failed(ConnectionError("lost"), hand.now)  # type: ignore[arg-type]
    assert hand.machine.replicas == had


def test_a_node_of_a_name_of_its_own_starts_with_the_weight_that_was_ordered() -> None:
    hand = Hand(named=True, n_replicas=4)
    hand.start()
    hand.subscribe()
    look = hand.run()
    found = replace(seen(hand.stamp, []), weights={"me": TWICE}, remembered=(1, 2, 3, 4, 5, 6))
    look.done(found, hand.now, hand.now)
    told = asks(hand.run())
    points = {int(member.partition(b":")[0]) for member in told["members"]}
    assert len(points) == 8
    assert points > {1, 2, 3, 4, 5, 6}


def test_a_weight_that_was_assigned_before_the_start_gives_way_to_an_order() -> None:
    hand = Hand(named=True, n_replicas=4)
    hand.machine.weigh(3.0)
    hand.start()
    hand.subscribe()
    look = hand.run()
    look.done(replace(seen(hand.stamp, []), weights={"me": TWICE}), hand.now, hand.now)
    told = asks(hand.run())
    assert (len(told["members"]), told["own_weight"]) == (8, None)


def test_a_drained_node_changes_what_it_comes_back_with() -> None:
    hand = Hand(n_replicas=4).live()
    hand.answer(hand.beat_due(), BeatStatus.DRAINED, soonest=None, ordered=TWICE)
    assert hand.state is NodeState.DRAINED
    assert len(asks(hand.run())["members"]) == 8


def test_a_balanced_node_that_grows_expects_the_ring_by_which_it_chose() -> None:
    hand = Hand(placement="balanced", n_replicas=2)
    hand.start()
    hand.subscribe()
    look = hand.run()
    look.done(seen(hand.stamp, []), hand.now, hand.now)
    hand.answer(hand.run())
    assert hand.state is NodeState.LIVE
    run = ordered(hand, TWICE).run()
    assert asks(run)["expect"] == f"={hand.stamp.tag}"
    had = asks(run)["members"]
    hand.answer(run, BeatStatus.MOVED)
    assert len(hand.machine.replicas) == 2
    again = hand.beat_due()
    assert len(asks(again)["members"]) == len(had) == 4
    answered(hand, again, TWICE)
    assert asks(hand.beat_due())["expect"] == ""


def test_a_balanced_node_that_grows_chooses_again_after_a_moment() -> None:
    hand = Hand(placement="balanced", n_replicas=2)
    hand.start()
    hand.subscribe()
    hand.run().done(seen(hand.stamp, []), hand.now, hand.now)
    hand.answer(hand.run())
    hand.dice.value = 0.5
    hand.answer(ordered(hand, TWICE).run(), BeatStatus.MOVED)
    assert hand.waits_until() == pytest.approx(hand.now + 0.5 * 0.01)


def test_a_balanced_node_does_not_wait_for_ever_for_a_ring_that_rests() -> None:
    hand = Hand(placement="balanced", n_replicas=2)
    hand.start()
    hand.subscribe()
    hand.run().done(seen(hand.stamp, []), hand.now, hand.now)
    hand.answer(hand.run())
    ordered(hand, TWICE)
    run = hand.run()
    for _ in range(20):
        if not asks(run)["expect"]:
            break
        hand.answer(run, BeatStatus.MOVED)
        run = hand.beat_due()
    assert asks(run)["expect"] == ""
    assert len(asks(run)["members"]) == 4


# --- histories --------------------------------------------------------------------------------

BATCH = 80
FAULT_BUDGET = 200
"""A planted fault must be found within this many histories."""


def plain(seed: int) -> NodeHistory:
    return with_weights(random_history(seed))


def of_own_ranges(seed: int) -> NodeHistory:
    return with_weights(own_ranges(random_history(seed)))


def with_locks(seed: int) -> NodeHistory:
    return with_weights(random_lock_history(seed))


def drained_too(seed: int) -> NodeHistory:
    return with_weights(with_drains(own_ranges(random_history(seed))))


@pytest.mark.parametrize(
    ("make", "count"),
    [(plain, BATCH), (of_own_ranges, BATCH), (with_locks, BATCH // 2), (drained_too, BATCH)],
)
def test_no_history_of_weights_breaks_a_rule(
    make: Callable[[int], NodeHistory], count: int
) -> None:
    none_breaks_a_rule(RingSimulator(), make, range(count))


def test_what_plays_a_history_again_has_its_orders() -> None:
    histories = [drained_too(seed) for seed in range(20)]
    drained = next(h for h in histories if any(not each.follow for each in h.processes))
    assert RingSimulator().again(drained) == "--own-ranges --drains --weights "


def test_every_kind_of_event_about_weights_comes_up() -> None:
    drawn = {event.kind for seed in range(50) for event in plain(seed).events}
    assert drawn >= {"weigh", "weigh itself", *LATE}


def test_its_replicas_are_counted_anew_when_they_are_others() -> None:
    own = OwnReplicas("me", "random", Random(1))
    own.draw(2)
    assert [own.count_placed(), own.count_placed()] == [1, 1]
    own.draw(2)
    assert own.count_placed() == 2


class AlwaysElsewhere(OwnReplicas):
    def _have(self, replicas: Iterable[Replica]) -> None:
        count = len(list(replicas))
        super()._have(self._fresh(self._rng.randrange(2**32) for _ in range(count)))


class PlacesAnew(NodeMachine):
    """Another weight, and all points are other points."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.own = AlwaysElsewhere(self.name, self.config.placement, self.rng)


class DoesNotLookForOrders(NodeMachine):
    """It never reads which weight was ordered."""

    def _renewed(self, reply: Any, *rest: Any) -> None:
        super()._renewed(replace(reply, ordered=None), *rest)


class ForgetsWhatWasOnItsWay(NodeMachine):
    """What it was about to give up, and has not, it draws anew."""

    def _resize(self) -> Run | None:
        self.own.start()
        return super()._resize()


class Unnumbered(OwnReplicas):
    def count_placed(self) -> int:
        return 0


class NeverDropped(Unnumbered):
    def _have(self, replicas: Iterable[Replica]) -> None:
        super()._have(replicas)
        self._drop = ()


class NumbersNoPoints(OwnRangesMachine):
    """Its heartbeats do not state which of its sets of points they have."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.own = Unnumbered(self.name, self.config.placement, self.rng)


class KeepsAllItHad(OwnRangesMachine):
    """What it gives up stays on the ring, and its heartbeats number no points."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.own = NeverDropped(self.name, self.config.placement, self.rng)


@pytest.mark.parametrize(
    ("machine", "make", "rules"),
    [
        (PlacesAnew, plain, "weight"),
        (KeepsAllItHad, of_own_ranges, "weight"),
        (DoesNotLookForOrders, plain, "weight"),
        (NumbersNoPoints, of_own_ranges, "spares|weight"),
    ],
)
def test_a_fault_in_the_node_is_found(
    machine: type[NodeMachine], make: Callable[[int], NodeHistory], rules: str
) -> None:
    found(with_the_fault(machine), rules, make)


def found(
    simulator: RingSimulator,
    rules: str,
    make: Callable[[int], NodeHistory] = plain,
    budget: int = FAULT_BUDGET,
) -> None:
    find_fault(simulator, rules, make, budget)


def test_points_drawn_anew_after_a_heartbeat_that_was_not_answered_are_found() -> None:
    found(RingSimulator(machine=ForgetsWhatWasOnItsWay), "weight", budget=1000)


_ANNOUNCED = "    announce(change, added - dropped, node, history)\n"
_HALVED = (
    "local points = change.points\n"
    "if reason == 'weight' then change.points = {unpack(points, 1, #points / 2)} end\n"
)
HALF_THE_POINTS_TOLD = (_ANNOUNCED, _HALVED + _ANNOUNCED)
NO_NEIGHBOUR_TOLD = (
    "local function tell_neighbours(points, change, own, gone)\n",
    "local function tell_neighbours()\n  do return end\n",
)
NO_ORDER_LIFTED = (
    "local function take_own_weight()\n",
    "local function take_own_weight()\n  do return end\n",
)
LATE_BEATS_OBEYED = ("elseif mine < known then", "elseif false then")
OTHER_POINTS_KEPT = (
    "local function drop_others()\n",
    "local function drop_others()\n  do return end\n",
)


@pytest.mark.parametrize(
    ("edit", "make", "rules"),
    [
        (HALF_THE_POINTS_TOLD, plain, "told"),
        (NO_NEIGHBOUR_TOLD, of_own_ranges, "own"),
        (NO_ORDER_LIFTED, plain, "weight"),
        (LATE_BEATS_OBEYED, of_own_ranges, "spares"),
    ],
    ids=["half the points told", "no neighbour told", "no order lifted", "late beats obeyed"],
)
def test_a_fault_in_redis_scripts_is_found(
    edit: tuple[str, str],
    make: Callable[[int], NodeHistory],
    rules: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, edit)
    found(RingSimulator(), rules, make)


LATER = (
    Event(0.846, "slow command", "a", 4.982),
    Event(0.847, "weigh itself", "a", what="3"),
    Event(1.95, "weigh itself", "a", what="2"),
)
LOST_MEANWHILE = (*LATER, Event(5.75, "delete", what="nodes"))
LOST_BY_A_FAILOVER = (
    Event(0.846, "slow command", "a", 2.0),
    Event(0.847, "weigh itself", "a", what="3"),
    Event(2.2, "weigh itself", "a", what="2"),
    Event(2.845, "failover", what="2.0 +0.0"),
)
BROUGHT_BACK = (
    Event(0.5, "weigh", "a", what="3"),
    Event(2.0, "weigh", "a", what="1"),
    Event(2.2, "failover", what="0.5 +0.0"),
)


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize(
    ("events", "edit"),
    [
        (LATER, LATE_BEATS_OBEYED),
        (LOST_MEANWHILE, OTHER_POINTS_KEPT),
        (LOST_BY_A_FAILOVER, OTHER_POINTS_KEPT),
        (BROUGHT_BACK, OTHER_POINTS_KEPT),
    ],
    ids=[
        "a late heartbeat",
        "a late heartbeat after a loss",
        "a late heartbeat after a failover",
        "a failover",
    ],
)
def test_no_point_stays_that_the_node_has_given_up(
    events: tuple[Event, ...],
    edit: tuple[str, str],
    follow: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    spec = ProcessSpec("a", "host:0", False, "random", 2, False, False, 100.0, follow=follow)
    history = NodeHistory(17, (spec,), (Event(0.0, "start", "a"), *events))
    assert RingSimulator().broken_rule(history) is None
    plant(monkeypatch, edit)
    assert RingSimulator().broken_rule(history) == "spares"


@pytest.mark.parametrize("follow", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_a_node_that_stops_before_its_join_is_answered_gives_up_all_its_points(
    named: bool, follow: bool
) -> None:
    name = "node-a" if named else "host:0"
    spec = ProcessSpec("a", name, named, "balanced", 4, False, False, 100.0, follow=follow)
    events = (
        Event(0.0, "start", "a"),
        Event(0.0005, "lose reply", "a"),
        Event(0.5, "weigh itself", "a", what="0.25"),
        Event(0.6, "slow command", "a", 4.9),
        Event(1.5, "stop", "a"),
    )
    assert RingSimulator().broken_rule(NodeHistory(17, (spec,), events)) is None


def test_points_of_a_session_that_nobody_knows_stay_for_one_ttl() -> None:
    old = ProcessSpec("old", "node-b", True, "random", 2, False, False, 100.0, follow=False)
    new = replace(old, label="new")
    events = (
        Event(0.0, "start", "old"),
        Event(3.1, "delete", what="nodes places"),
        Event(3.5, "start", "new"),
    )
    history = NodeHistory(17, (old, new), events)
    assert RingSimulator().broken_rule(history) is None


@pytest.mark.parametrize(
    ("make", "seed"),
    [
        # The order to drain sweeps who had the name: that one has not lost it to another process.
        (lambda seed: with_weights(with_drains(own_ranges(random_history(seed)))), 63731),
        # Drained, it has given up its points: none is moved when a failover brings them back.
        (lambda seed: with_weights(with_drains(random_history(seed))), 211123),
    ],
    ids=["ended", "weight"],
)
def test_a_rule_knows_what_an_order_to_drain_does(
    make: Callable[[int], NodeHistory], seed: int
) -> None:
    assert RingSimulator().broken_rule(make(seed)) is None
