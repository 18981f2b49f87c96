"""Histories of partition groups in virtual time: the members and the scripts that ship break no
rule, and every planted fault does.

The rules, and what they promise, are in ``hashring/testing/simulator/groups/*_rules.py``.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import ANY

import pytest

from hashring.core.assignors import ASSIGNORS, BalancedAssignor
from hashring.core.groups import heirs, next_state
from hashring.core.groups.json_codec import load_view_change
from hashring.core.groups.member_holdings import Held, MemberHoldings
from hashring.core.groups.partition_map import PartitionMap
from hashring.core.groups.state import GroupState, Handoff, MemberView, Terms
from hashring.core.groups.view_changes import ViewChange
from hashring.errors import GroupFormatError, MemberExists, StoreError
from hashring.protocol.flow import Flow
from hashring.protocol.group.base_member_machine import RETRY, Stage, Turn
from hashring.protocol.group.group_decider import Decider
from hashring.protocol.group.group_member_machine import NAME_POLL, GroupMemberMachine
from hashring.store.group.commands import CLAIM, Committed
from hashring.testing.simulator import (
    Event,
    GroupSimulator,
    random_group_history,
    undecided_group_history,
    with_rare_group_events,
)
from hashring.testing.simulator.groups.at_rest_rules import unrest
from hashring.testing.simulator.groups.history import GroupHistory, MemberSpec
from hashring.testing.simulator.groups.process import GroupProcess
from hashring.testing.simulator.groups.random_histories import (
    ASSIGNORS as RULES,
)
from hashring.testing.simulator.groups.random_histories import (
    KINDS,
    LOAD_KIND,
    garbled_group_history,
    joining_group_history,
)
from hashring.testing.simulator.groups.world import GroupWorld
from hashring.testing.simulator.network import LATENCY, Call
from tests.conftest import LONG, some
from tests.programs import python
from tests.unit.histories import find_fault, none_breaks_a_rule, tells_a_short_story
from tests.unit.planted_scripts import plant, plant_at_the_beginning

HISTORIES = 120
BATCH = 60

FAULT_BUDGET = 400
"""A planted fault must be found within this many histories."""

LATE = (139, 55, 170, 65, 40, 156, 7)
"""Seeds that found a fault late when they were chosen; they only save time."""


@pytest.mark.parametrize("first", range(0, HISTORIES, BATCH))
def test_no_history_breaks_a_rule(first: int) -> None:
    none_breaks_a_rule(GroupSimulator(), random_group_history, range(first, first + BATCH))


@pytest.mark.parametrize("name", RULES)
def test_no_history_under_any_assignor_breaks_a_rule(name: str) -> None:
    none_breaks_a_rule(
        GroupSimulator(), lambda seed: random_group_history(seed, name), range(1000, 1009)
    )


# --- how soon everything is held again ----------------------------------------------------------


def longest_unowned(world: GroupWorld, seconds: float) -> float:
    """The longest time in which some partition was held by nobody."""
    since: dict[int, float] = {}
    longest = 0.0
    end = world.now + seconds
    while world.now < end:
        world.run(world.now + 0.05)
        held = {partition for process in world.alive for partition in process.held()}
        for partition in range(world.history.terms.partitions):
            if partition in held:
                since.pop(partition, None)
            else:
                longest = max(longest, world.now - since.setdefault(partition, world.now))
    return longest


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@pytest.mark.parametrize("seed", some(range(5)))
def test_no_partition_is_without_an_owner_beyond_the_bound(seed: int, name: str) -> None:
    # One crash, join or leave at a time, and always somebody left: then the bound is the lease,
    # the delay, and a renewal each for noticing the end of the lease and for hearing of the grant.
    # The end of the delay needs none: a member waits for it.
    rng = random.Random(seed)
    terms = Terms(8, name, ttl=4.0, rebalance_delay=rng.choice([0.0, 3.0]), max_handoff_time=1.0)
    bound = terms.ttl + terms.rebalance_delay + 2.0 + 12 * LATENCY
    specs = tuple(MemberSpec(f"p{number}", f"m{number}") for number in range(12))
    events = [Event(0.0, "start", spec.label) for spec in specs[:3]]
    here, at = [spec.label for spec in specs[:3]], 60.0
    for spec in specs[3:]:
        if rng.random() < 0.5:
            events.append(Event(at, "start", spec.label))
            here.append(spec.label)
        if len(here) > 2:
            victim = here.pop(rng.randrange(len(here)))
            events.append(Event(at, rng.choice(["kill", "stop"]), victim))
        at += bound + rng.uniform(0, 30)
    world = GroupSimulator().world(GroupHistory(seed, specs, tuple(events), terms))
    world.run(59.0)
    assert 0 < longest_unowned(world, at - 59.0) <= bound + 0.05
    world.run(at + 100.0)
    assert unrest(world) == ""


# --- due times ----------------------------------------------------------------------------------


def longest_pause(seed: int, what: str, simulator: GroupSimulator | None = None) -> float:
    """Seconds that a partition is without an owner at most, where members hardly ever renew."""
    rng = random.Random(seed)
    terms = Terms(8, "balanced", ttl=400.0, rebalance_delay=2.0, max_handoff_time=1.0, handoffs=8)
    specs = tuple(MemberSpec(f"p{number}", f"m{number}") for number in range(4))
    events = [Event(500.0 * n, "start", spec.label) for n, spec in enumerate(specs)]
    first, second = rng.sample([spec.label for spec in specs], 2)
    if what == "replace":
        # Whoever began the delay goes as well, and has to leave the wait for its end to another.
        events += [Event(2050.0, "stop", first), Event(2051.0, "stop", second)]
    else:
        events.append(Event(2050.0, what, first))
    history = GroupHistory(seed, specs, tuple(events), terms, handoff=0.1, interval=100.0)
    world = (simulator or GroupSimulator()).world(history)
    world.run(2049.0)
    return longest_unowned(world, 20.0)


@pytest.mark.parametrize("what", ["stop", "replace", "hand over"])
@pytest.mark.parametrize("seed", some(range(5)))
def test_a_due_time_is_noticed_without_a_renewal(seed: int, what: str) -> None:
    # Of what is said within: the delay, and messages; not the 100 s between two renewals.
    assert longest_pause(seed, what) <= 2.0 + 20 * 0.05


def asks_nobody(monkeypatch: pytest.MonkeyPatch, *, takes_it: bool) -> None:
    """A member that leaves asks no other for the next step."""

    taken = "true" if not takes_it else "false"
    begins = "local function others_take_it()\n"
    gives_up = f"  redis.call('HDEL', KEYS[1], 'claimed')\n  do return {taken} end\n"
    plant(monkeypatch, (begins, begins + gives_up))


@pytest.mark.parametrize("what", ["stop", "replace"])
def test_a_leaver_that_can_ask_nobody_leaves_the_wait_to_two_that_stay(
    monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    asks_nobody(monkeypatch, takes_it=True)
    assert max(longest_pause(seed, what) for seed in range(3)) <= 2.0 + 20 * 0.05


def test_planted_a_leaver_that_leaves_the_wait_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    asks_nobody(monkeypatch, takes_it=True)
    monkeypatch.setattr("hashring.store.group.commands.deputies", lambda facts, after, by: ())
    assert max(longest_pause(seed, "stop") for seed in range(10)) > 10.0


def test_planted_a_leaver_that_leaves_the_next_step_to_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asks_nobody(monkeypatch, takes_it=False)
    assert max(longest_pause(seed, "stop") for seed in range(3)) > 10.0


def test_planted_a_member_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemberHoldings, "watch", lambda self, at: None)
    assert max(longest_pause(seed, "stop") for seed in range(10)) > 10.0


def handing_over(seed: int) -> float:
    """Seconds that a member hands over, where members hardly ever renew.

    The one that decided until then, to which the step is left, does not receive the message.
    """
    terms = Terms(8, ttl=400.0, rebalance_delay=0.0, max_handoff_time=1.0, handoffs=8)
    specs = tuple(MemberSpec(f"p{number}", f"m{number}") for number in range(3))
    events = [Event(500.0 * n, "start", spec.label) for n, spec in enumerate(specs)]
    events += [Event(1550.0, "deaf", "p0"), Event(1551.0, "hand over", "p1")]
    history = GroupHistory(seed, specs, tuple(events), terms, handoff=0.1, interval=100.0)
    world = GroupSimulator().world(history)
    world.run(1551.0)
    while world.processes["p1"].machine.stage is not Stage.LEFT:
        world.run(world.now + 0.05)
    return world.now - 1551.0


@pytest.mark.parametrize("seed", some(range(3)))
def test_a_step_that_was_left_to_a_member_is_taken_by_another_soon(seed: int) -> None:
    assert handing_over(seed) <= CLAIM + 20 * 0.05


def test_planted_a_member_that_leaves_a_step_to_another_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemberHoldings, "look_again", lambda self, at: None)
    assert handing_over(0) > 10.0


class SaysNothing(Decider):
    """It does not tell its member what it decided about it."""

    def _tell_of(self, done: Committed) -> None:
        pass


def sharing(simulator: GroupSimulator) -> float:
    """Seconds until a second member has its share, where members hardly ever renew."""
    terms = Terms(8, ttl=400.0, rebalance_delay=0.0, max_handoff_time=1.0)
    specs = MemberSpec("p0", "m0"), MemberSpec("p1", "m1")
    events = [Event(500.0 * n, "start", spec.label) for n, spec in enumerate(specs)]
    history = GroupHistory(1, specs, tuple(events), terms, handoff=0.1, interval=100.0)
    world = simulator.world(history)
    world.run(500.1)
    while len(world.processes["p1"].held()) < 4:
        world.run(world.now + 0.05)
    return world.now - 500.0


def test_a_member_lets_go_of_what_its_decider_asks_for_without_a_renewal() -> None:
    # Four handoffs, each with up to 0.1 s of work and a few messages.
    assert sharing(GroupSimulator()) <= 4 * (0.1 + 4 * LATENCY)


def test_planted_a_decider_that_does_not_tell_its_member() -> None:
    # It asks again soon, since it has a deadline to confirm.
    assert sharing(GroupSimulator(decider=SaysNothing)) > 4 * RETRY


def whole_readings() -> int:
    """How many times members read the whole group when most of them stop at the same moment."""
    terms = Terms(64, ttl=40.0, rebalance_delay=0.0, max_handoff_time=1.0, handoffs=64)
    specs = tuple(MemberSpec(f"p{number:02}", f"m{number:02}") for number in range(15))
    events = [Event(0.01 * n, "start", spec.label) for n, spec in enumerate(specs)]
    events += [Event(60.0, "stop", spec.label) for spec in specs[3:]]
    world = GroupSimulator().world(GroupHistory(1, specs, tuple(events), terms, interval=10.0))
    world.run(59.0)
    execute, counted = world.execute, Counter[str]()

    def counting(process: GroupProcess, call: Call) -> None:
        command = call.command
        if command.script.name == "group_read" and not command.arguments[0]:
            counted["whole"] += 1
        execute(process, call)

    world.execute = counting  # type: ignore[assignment]
    world.run(70.0)
    assert unrest(world) == ""
    assert len(world.state().roster) == 3
    return counted["whole"]


def test_members_that_stop_at_once_do_not_each_read_the_group() -> None:
    assert whole_readings() == 0


def test_a_copy_of_what_a_killed_owner_hands_over_stays_where_it_is() -> None:
    # In history 138, an owner that was asked for its partitions is killed. Until its last lease
    # ends, others keep copies.
    world = GroupSimulator().world(random_group_history(138))
    execute, decided = world.execute, Counter[int]()

    def counting(process: GroupProcess, call: Call) -> None:
        decided[int(world.now)] += call.command.script.name == "group_commit"
        execute(process, call)

    world.execute = counting  # type: ignore[assignment]
    world.run(30.0)
    assert max(decided.values()) < 15


def test_planted_members_that_each_take_a_last_step(monkeypatch: pytest.MonkeyPatch) -> None:
    asks_nobody(monkeypatch, takes_it=True)
    assert whole_readings() >= 12


def test_an_owner_says_soon_that_it_knows_a_deadline() -> None:
    # Of an owner that dies after that, the group need not wait for the end of the lease, 40 s.
    terms = Terms(2, ttl=40.0, rebalance_delay=0.0, max_handoff_time=2.0)
    specs = (MemberSpec("p0", "m0"), MemberSpec("p1", "m1"))
    events = (Event(0.0, "start", "p0"), Event(20.0, "start", "p1"), Event(21.0, "kill", "p0"))
    history = GroupHistory(1, specs, events, terms, handoff=900.0, interval=12.0)
    world = GroupSimulator().world(history)
    world.run(20.0 + terms.max_handoff_time + 1.0)
    assert len(world.processes["p1"].held()) == 1


# --- planted faults ---------------------------------------------------------------------------


Make = Callable[[int], GroupHistory]


def few(seed: int, *events: Event, members: int = 3) -> GroupHistory:
    """A few members, and what happens to them."""
    rng = random.Random(seed)
    specs = tuple(MemberSpec(f"p{n}", f"m{n}", lag=rng.choice((0.0, 0.3))) for n in range(members))
    starts = [Event(0.01 * n, "start", spec.label) for n, spec in enumerate(specs)]
    known = {event.who for event in events if event.kind == "start"}
    every = [event for event in starts if event.who not in known] + [*events]
    terms = Terms(6, rebalance_delay=0.0, ttl=3.0, handoffs=3)
    return GroupHistory(seed, specs, tuple(every), terms, handoff=0.1)


def pauses(seed: int) -> GroupHistory:
    """Processes that are stopped for longer than a lease, again and again."""
    rng = random.Random(seed)
    times = [15.0 + 8.0 * n + rng.uniform(0, 2) for n in range(6)]
    return few(seed, *(Event(at, "pause", rng.choice(("p0", "p1")), 4.0) for at in times))


def slowness(seed: int) -> GroupHistory:
    """A member whose first decision takes five times as long as is between two renewals.

    It decides itself, since the others have just left.
    """
    at = 20.0 + random.Random(seed).random()
    history = few(
        seed,
        Event(at - 1.0, "stop", "p0"),
        Event(at - 1.0, "stop", "p1"),
        Event(at, "start", "p2"),
        Event(at + 0.001, "slow decision", "p2", 0.98),
    )
    specs = tuple(replace(spec, lag=0.0) for spec in history.processes)
    return replace(history, processes=specs, interval=0.2)


def stops(seed: int) -> GroupHistory:
    """Members that stop while their applications need some time to let go."""
    at = 20.0 + random.Random(seed).random()
    history = few(seed, Event(at, "stop", "p0"), Event(at + 5.0, "start", "p2"))
    return replace(history, handoff=1.0)


def overruns(seed: int) -> GroupHistory:
    """Members that may take twice as long as they have for what they are asked for."""
    history = few(seed, Event(20.0 + random.Random(seed).random(), "start", "p2"))
    return replace(history, handoff=6.0)


def requests(seed: int) -> GroupHistory:
    """The last member is asked to hand over again and again, and there is nobody to take over."""
    asked = (Event(25.0 + 10.0 * n, "hand over", "p0") for n in range(6))
    return few(seed, Event(20.0, "stop", "p1"), Event(20.0, "stop", "p2"), *asked)


def successors(seed: int) -> GroupHistory:
    """Processes that are killed, and started again under their names, twice each."""
    rng = random.Random(seed)
    history = few(seed)
    specs = [
        replace(spec, label=f"{spec.label}.{n}", lag=0.0)
        for spec in history.processes
        for n in range(2)
    ]
    events = [
        *(Event(10.0 + rng.random(), "kill", spec.label) for spec in history.processes),
        *(Event(10.0 + 2 * rng.random(), "start", spec.label) for spec in specs),
        # The next that happens: until then it is watched.
        Event(40.0, "lose reply", specs[0].label),
    ]
    return replace(
        history,
        processes=(*history.processes, *specs),
        events=(*history.events, *events),
    )


def losses(seed: int) -> GroupHistory:
    """Redis loses everything while a member cannot reach it for a moment."""
    at = 20.0 + random.Random(seed).random()
    return few(seed, Event(at, "cut", "p1", 2.0), Event(at + 0.2, "wipe"))


def older(seed: int) -> GroupHistory:
    """An older Redis does not know of the last renewals of a member that cannot reach it."""
    at = 20.0 + random.Random(seed).random()
    return few(seed, Event(at, "cut", "p1", 6.0), Event(at + 0.05, "failover", what="1.9 0"))


def rewinds(seed: int) -> GroupHistory:
    """Redis goes back to when a member had partitions that were emptied and granted anew since.

    Nobody notices: the run of the server is the same, and other members, which have seen nothing
    of what is lost, decide on until there are as many decisions as that member has seen.
    """
    rng = random.Random(seed)
    specs = (MemberSpec("p0", "m0"), MemberSpec("p1", "m1"))
    events = (
        Event(0.0, "start", "p0"),
        Event(0.01, "start", "p1"),
        Event(29.98, "cut", "p1", 1.3),
        Event(30.05, "resize", "p0", what="1"),
        Event(30.6, "resize", "p0", what="6"),
        Event(31.15, "cut", "p0", 1.5 + rng.random()),
        Event(31.2, "rewind", what="1.2 0"),
        *(Event(31.4 + 0.15 * n, "resize", "p1", what=str(7 + n)) for n in range(5)),
    )
    terms = Terms(6, rebalance_delay=0.0, ttl=6.0, handoffs=3)
    return GroupHistory(seed, specs, events, terms, handoff=0.1, drain=0.1)


def comebacks(seed: int) -> GroupHistory:
    """A member comes back, hears nothing of that, and is cut off until its new lease has ended.

    It asks again while another decides what to do with its partitions.
    """
    rng = random.Random(seed)
    awake = 25.0 + rng.random()
    there = awake + 0.3
    ended = there + 3.0
    history = few(
        seed,
        Event(awake - 3.5, "pause", "p0", 3.5),
        Event(awake - 0.1, "slow join", "p0", there - awake),
        Event(there - 0.1, "hole", "p0", 2.2 + rng.uniform(0.0, 1.5), "lost"),
        *(Event(ended, "slow decision", label, rng.uniform(1.0, 2.0)) for label in ("p1", "p2")),
    )
    specs = tuple(replace(spec, lag=0.0) for spec in history.processes)
    return replace(history, processes=specs)


def rare(seed: int) -> GroupHistory:
    """What chance draws, with rare events."""
    return with_rare_group_events(random_group_history(seed))


def forgotten(seed: int) -> GroupHistory:
    """Redis forgets who was granted what, and the members that had it are gone."""
    at = 30.0 + random.Random(seed).random()
    return few(
        seed,
        Event(at, "stop", "p2"),
        Event(at + 0.8, "kill", "p0"),
        Event(at + 0.81, "kill", "p1"),
        Event(at + 0.9, "rewind", what="1.2 0"),
        Event(at + 15.0, "start", "p3"),
        members=4,
    )


def found(
    rules: str, simulator: GroupSimulator | None = None, make: Make = random_group_history
) -> GroupHistory:
    return find_fault(simulator or GroupSimulator(), rules, make, FAULT_BUDGET, LATE)


@pytest.mark.parametrize(
    "make",
    [
        pauses,
        slowness,
        stops,
        overruns,
        requests,
        successors,
        losses,
        older,
        rewinds,
        comebacks,
        forgotten,
    ],
)
def test_histories_made_for_a_fault_break_no_rule_without_it(make: Make) -> None:
    for seed in range(5 if LONG else 2):
        assert GroupSimulator().broken_rule(make(seed)) is None


class CountsFromTheAnswer(GroupMemberMachine):
    """Its lease begins when it hears that it has one."""

    def heard(self, view: Any, asked_at: float, redis_now: float) -> None:
        super().heard(view, self.now, redis_now)


class AcceptsLateAnswers(GroupMemberMachine):
    """An answer that comes after its lease would have ended begins the lease anew."""

    def heard(self, view: Any, asked_at: float, redis_now: float) -> None:
        late = self.now >= asked_at + self.holdings.ttl
        super().heard(view, self.now if late else asked_at, redis_now)


class LeavesWhileItHolds(GroupMemberMachine):
    """It leaves before its application has let go."""

    def _leave(self, now: float) -> None:
        super()._leave(now)
        self._turn(Turn.LET_GO)


class PutsOffLeaving(GroupMemberMachine):
    """Asked to hand over once more, it begins to wait anew."""

    def stop(self, now: float, *, handover: bool = False, patient: bool = True) -> None:
        if handover and self.stage is Stage.HANDING_OVER:
            self._leave_at = now + self.hand_over()
        super().stop(now, handover=handover, patient=patient)


class HearsLateWords(GroupMemberMachine):
    """A word of its application's ends a partition whose time had ended, as if it were in time."""

    def release(self, partition: int, token: int, now: float) -> bool:
        held = self.holdings.holding.partitions.get(partition)
        in_time = -math.inf if held is not None and held.token == token else now
        return super().release(partition, token, in_time)


class WaitsForTheAssignor(GroupMemberMachine):
    """It is no member, and renews nothing, before the first decision after it joined."""

    def _begin_what_is_due(self, now: float) -> None:
        if self.stage is not Stage.JOINED or self._awaited is None:
            super()._begin_what_is_due(now)

    def _wait_until(self) -> float:
        return math.inf if self.stage is Stage.JOINED else super()._wait_until()


class WaitsForNoName(GroupMemberMachine):
    """Whoever has the name, it gives up at once."""

    def again_at(self, error: Exception, now: float) -> float | None:
        return None


class WaitsForAnyName(GroupMemberMachine):
    """It waits on for a name that another process renews."""

    def again_at(self, error: Exception, now: float) -> float | None:
        return now + NAME_POLL if isinstance(error, MemberExists) else None


class LeavesWithoutAGoodbye(GroupMemberMachine):
    """It leaves as if it had crashed."""

    def depart(self) -> Flow[None]:
        yield from ()


MACHINES: dict[str, tuple[type[GroupMemberMachine], Make]] = {
    "a lease from the time of the answer": (CountsFromTheAnswer, random_group_history),
    "an answer after its deadline": (AcceptsLateAnswers, pauses),
    "leaving while it holds": (LeavesWhileItHolds, stops),
    "leaving later each time": (PutsOffLeaving, requests),
    "a word after its time": (HearsLateWords, overruns),
    "waiting for a slow assignor": (WaitsForTheAssignor, slowness),
    "no waiting for a name": (WaitsForNoName, successors),
    "waiting for a name in use": (WaitsForAnyName, successors),
    "leaving without a goodbye": (LeavesWithoutAGoodbye, random_group_history),
}


LIKE_OTHERS = ("an answer after its deadline", "leaving later each time")
"""Faults that take long to be found, like "a word after its time" and "leaving while it holds"."""


@pytest.mark.parametrize(
    ("machine", "make"),
    [
        pytest.param(*planted, id=fault, marks=pytest.mark.long if fault in LIKE_OTHERS else ())
        for fault, planted in MACHINES.items()
    ],
)
def test_a_fault_in_the_member_is_found_with_a_story_of_a_few_events(
    machine: type[GroupMemberMachine], make: Make
) -> None:
    simulator = GroupSimulator(machine=machine)
    rules = "holder|once|renewal|prompt|goodbye|told"
    tells_a_short_story(simulator, found(rules, simulator, make), rules)


def forgets_a_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was let go of is never said."""
    words = MemberHoldings.words
    monkeypatch.setattr(MemberHoldings, "words", lambda self: replace(words(self), released={}))


def takes_up_what_it_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    def tick(self: MemberHoldings, now: float) -> list[Any]:
        # The lease is looked at when the group answers, and not before.
        for partition, held in list(self.holding.partitions.items()):
            if now >= held.until:
                self._drop(partition)
        return []

    monkeypatch.setattr(MemberHoldings, "tick", tick)
    monkeypatch.setattr(
        "hashring.core.groups.member_holdings.Holding.token",
        lambda self, partition, now: (
            held.token if isinstance(held := self.partitions.get(partition), Held) else None
        ),
    )


def answers_for_no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemberHoldings, "warm_at_once", lambda self: None)


def is_not_told_that_it_stands_by(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemberHoldings, "_with_activity", lambda self, changes: changes)


HOLDINGS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "forgets a release": (forgets_a_release, "rest"),
    "takes up what it lost": (takes_up_what_it_lost, "holder|once|rest"),
    "answers for no warm-up": (answers_for_no_warm_up, "rest"),
    "is not told that it stands by": (is_not_told_that_it_stands_by, "told"),
}


def grants_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(self: Any, partition: int, to: str, why: str) -> None:
        self._let_go(partition)
        self._grant(partition, to)

    monkeypatch.setattr(next_state._Step, "_ask", ask)


def grants_before_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    ends_by = Handoff.ends_by

    def early(self: Handoff, seen: int) -> float | None:
        ends = ends_by(self, seen)
        return None if ends is None else ends - 0.4

    monkeypatch.setattr(Handoff, "ends_by", early)


def forgets_who_has_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Handoff, "ends_by", lambda self, seen: self.deadline)


def begins_tokens_again(monkeypatch: pytest.MonkeyPatch) -> None:
    grant = next_state._Step._grant

    def counted(self: Any, *arguments: Any) -> None:
        now, self.now = self.now, 0.0
        grant(self, *arguments)
        self.now = now

    # A count that lives in Redis only begins again when Redis loses it.
    monkeypatch.setattr(next_state._Step, "_grant", counted)


def keeps_what_was_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Any) -> None:
        self.free &= {*range(self.terms.partitions), *self.draining}

    monkeypatch.setattr(next_state._Step, "_forget_drained", forget)


def ignores_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "hashring.core.assignors.learner_warmups.Warmth.members", lambda self, p: ()
    )


def takes_standbys_for_owners(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that warms up to keep a copy gets the partition itself."""
    monkeypatch.setattr(
        "hashring.core.assignors.learner._owner_to_be",
        lambda situation, partition: situation.warming.get(partition),
    )


def never_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    assign = BalancedAssignor.assign

    def rotating(self: BalancedAssignor, situation: Any) -> Any:
        return assign(self, replace(situation, previous=(*situation.previous[1:], None)))

    monkeypatch.setattr(BalancedAssignor, "assign", rotating)


def looks_at_no_access_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(next_state, "rule", lambda terms, assignor: assignor)


def keeps_those_who_know_of_no_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a loss members need not say what they hold."""
    run = next_state._Step.run
    monkeypatch.setattr(next_state._Step, "run", lambda self: replace(run(self), dismissed=()))


KERNELS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "grants at once": (grants_at_once, "holder"),
    "grants before the deadline": (grants_before_the_deadline, "holder"),
    "forgets who has not heard": (forgets_who_has_not_heard, "holder"),
    "begins tokens again": (begins_tokens_again, "tokens|decisions|once"),
    "keeps what was drained": (keeps_what_was_drained, "decisions"),
    "ignores copies": (ignores_copies, "standbys first"),
    "takes standbys for owners": (takes_standbys_for_owners, "needed"),
    "never rests": (never_rests, "rest|as before"),
    "looks at no access type": (looks_at_no_access_type, "rest"),
    "keeps those who know of no loss": (keeps_those_who_know_of_no_loss, "holder|rest|once"),
}


def test_tokens_that_begin_again_after_a_loss_of_decisions_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begins_tokens_again(monkeypatch)
    find_fault(GroupSimulator(), "tokens", forgotten, 20)


def renews_any_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal that does not look whose name it is."""
    plant(
        monkeypatch,
        (
            "local session, joined, report = record(ARGV[1])\n",
            "local session, joined, report = record(ARGV[1])\nARGV[2] = session or ARGV[2]\n",
        ),
        (
            "local held_by, joined, report = record(ARGV[1])\n",
            "local held_by, joined, report = record(ARGV[1])\nARGV[2] = held_by or ARGV[2]\n",
        ),
    )


def test_planted_a_join_that_renews_a_lease_that_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    # Who decides has seen its end, and gives to others what the session had.
    plant(monkeypatch, ("if held_by == ARGV[2] and lease <= now then", "if false then"))
    find_fault(GroupSimulator(), "holder", comebacks, 20)
    find_fault(GroupSimulator(), "holder", rare, FAULT_BUDGET, late=(194,))


def commits_blindly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that does not look what it is based on."""
    plant(monkeypatch, ("if tag ~= ARGV[1] or server() ~= ARGV[13]", "if server() ~= ARGV[13]"))


def counts_a_deadline_from_the_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that takes the time of a slow assignor from the owner's."""
    plant(monkeypatch, ("text(now + tonumber(ARGV[18]))", "text(ARGV[12] + ARGV[18])"))


def keeps_old_views(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that writes no views: members never hear what was decided."""
    head = "local function write_part(member, session, fresh, change)\n"
    asked = "local had_parts = redis.call('HLEN', KEYS[4]) > 0\n"
    plant(monkeypatch, (head, f"{asked}{head}  if had_parts then return end\n"))


def says_of_no_change_that_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that does not say which partitions it changed."""
    plant(monkeypatch, ("if not found[name] then", "if not string.find(name, '^%d+$') then"))


KEEPS_NO_CHANGES = ("local ROOM = 2048\n", "local ROOM = 0\n")
"""Not a fault: only the newest change of a member's part is kept."""


def takes_what_it_missed_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A renewal of a member that has missed too much, answered as if nothing had changed."""
    plant(monkeypatch, KEEPS_NO_CHANGES, (" changes or false, wait", " changes or '', wait"))


def test_members_that_read_the_decision_again_and_again_break_no_rule(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, KEEPS_NO_CHANGES)
    simulator = GroupSimulator()
    for seed in some(range(2000, 2020)):
        history = random_group_history(seed)
        assert simulator.broken_rule(history) is None, simulator.story(history)


def forgets_that_facts_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A report that makes no step due."""
    plant_at_the_beginning(monkeypatch, "changed()", "return")


def knows_no_other_run_of_redis(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that came back with older data, and is taken for the one before."""
    plant_at_the_beginning(monkeypatch, "server()", "return '0'")


SCRIPTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "renews any session": (renews_any_session, "holder|once|rest"),
    "commits blindly": (commits_blindly, "holder|decisions|tokens|once"),
    "counts a deadline from the reading": (counts_a_deadline_from_the_reading, "time to let go"),
    "keeps old views": (keeps_old_views, "holder|rest|once"),
    "says of no change that it is one": (
        says_of_no_change_that_it_is_one,
        "holder|decisions|tokens|rest|once|ends well",
    ),
    "takes what it missed for nothing": (takes_what_it_missed_for_nothing, "holder|rest|once"),
    "forgets that facts changed": (forgets_that_facts_changed, "rest"),
}

PLANTS = HOLDINGS | KERNELS | SCRIPTS

# The first seed that is tried is one that finds the fault at once, and is soon made smaller.
SHORT_STORIES = {"forgets a release": 58, "grants before the deadline": 1, "commits blindly": 2}


@pytest.mark.parametrize(
    ("plant", "rules"),
    [
        pytest.param(*plant, id=fault, marks=pytest.mark.long if fault in SHORT_STORIES else ())
        for fault, plant in PLANTS.items()
    ],
)
def test_a_fault_in_what_it_holds_decides_or_runs_in_redis_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found(rules)


@pytest.mark.parametrize(("fault", "seed"), SHORT_STORIES.items(), ids=SHORT_STORIES)
def test_such_a_fault_is_told_by_a_short_story(
    fault: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant, rules = PLANTS[fault]
    plant(monkeypatch)
    simulator = GroupSimulator()
    history = find_fault(simulator, rules, random_group_history, FAULT_BUDGET, (seed,))
    tells_a_short_story(simulator, history, rules, most=5)


def test_no_history_in_which_some_assignors_fail_breaks_a_rule() -> None:
    none_breaks_a_rule(GroupSimulator(), undecided_group_history, range(60))


def test_a_member_that_cannot_decide_and_takes_each_step_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(GroupMemberMachine, "_others_first", 0.0)
    find_fault(GroupSimulator(), "rest", undecided_group_history, 800, late=(313, 1863))


def test_no_history_in_which_what_redis_has_of_members_is_unreadable_breaks_a_rule() -> None:
    none_breaks_a_rule(GroupSimulator(), garbled_group_history, range(60))


def takes_an_unreadable_member_for_one_that_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GroupState, "frozen", lambda self, facts: {})


def keeps_what_it_has_without_a_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    """And the group takes it for one that left: two owners without end."""
    takes_an_unreadable_member_for_one_that_left(monkeypatch)
    heard = MemberHoldings.heard

    def deaf(self: MemberHoldings, view: MemberView, *times: float) -> list[Any]:
        self._seated = self._seated and view.seated
        return heard(self, view, *times)

    monkeypatch.setattr(MemberHoldings, "heard", deaf)


def counts_on_its_lease_without_a_seat(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a session claims that the group has not counted lasts as long as it renews."""
    heard = MemberHoldings.heard

    def hopeful(
        self: MemberHoldings, view: MemberView, asked_at: float, *times: float
    ) -> list[Any]:
        found = heard(self, view, asked_at, *times)
        if not view.seated and view.generation >= self.seen:
            self.holding = replace(self.holding, lease_until=asked_at + self.ttl)
        return found

    monkeypatch.setattr(MemberHoldings, "heard", hopeful)


def asks_a_frozen_member(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a member has whose report cannot be read is free once others should have it."""

    def frees(self: Any) -> None:
        inherit(self)
        for partition, owner in enumerate(self.owners):
            if owner in self.frozen:
                self._let_go(partition)

    inherit = next_state._Step._inherit
    monkeypatch.setattr(next_state._Step, "_inherit", frees)


def gives_a_name_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any process may take a name without an entry, also while another renews its lease."""
    plant(monkeypatch, ("held_by or part(ARGV[1])", "held_by or ARGV[2]"))


def gives_a_name_to_one_that_had_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process whose name another has taken may take it back, once that one has no entry."""
    plant(monkeypatch, ("held_by or part(ARGV[1])", "held_by or (ARGV[6] ~= '' and ARGV[6])"))


def takes_a_new_session_for_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member without a readable report, under a new session, holds nothing of before."""
    monkeypatch.setattr(next_state._Step, "_may_be_back", lambda self, member: False)


def leaves_a_view_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the decision that cannot be read stays so until the next decision."""
    plant(monkeypatch, ("ARGV[6] == tag and last ~= tag", "ARGV[6] == tag and whose ~= ARGV[2]"))


def refuses_a_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """A member that cannot read its part asks again, and reads nothing else."""

    def refused(text: bytes) -> ViewChange:
        try:
            return load_view_change(text)
        except GroupFormatError as error:
            raise StoreError(str(error)) from error

    monkeypatch.setattr("hashring.store.group.commands.load_view_change", refused)


UNREAD: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "takes an unreadable member for one that left": (
        takes_an_unreadable_member_for_one_that_left,
        "holder",
    ),
    "keeps what it has without a seat": (keeps_what_it_has_without_a_seat, "holder"),
    "counts on its lease without a seat": (counts_on_its_lease_without_a_seat, "holder"),
    "asks a frozen member": (asks_a_frozen_member, "holder"),
    "gives a name away": (gives_a_name_away, "holder"),
    "gives a name to one that had it": (gives_a_name_to_one_that_had_it, "holder"),
    "takes a new session for another process": (takes_a_new_session_for_another_process, "holder"),
    "leaves a view as it is": (leaves_a_view_as_it_is, "rest"),
    "refuses a view": (refuses_a_view, "rest|nothing escapes"),
}


@pytest.mark.parametrize(("plant", "rules"), UNREAD.values(), ids=UNREAD)
def test_a_fault_with_what_cannot_be_read_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    find_fault(GroupSimulator(), rules, garbled_group_history, FAULT_BUDGET)


def test_no_history_in_which_members_join_and_let_go_slowly_breaks_a_rule() -> None:
    none_breaks_a_rule(GroupSimulator(), joining_group_history, range(8, 72))


def test_a_handoff_that_stays_meant_for_another_than_the_owner_to_be_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(next_state._Step, "_redirect", lambda self, wanted: None)
    find_fault(GroupSimulator(), "steady", joining_group_history, FAULT_BUDGET, late=(11,))


def test_an_owner_that_has_to_warm_up_for_what_it_is_asked_for_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lags = next_state._Step._lags
    monkeypatch.setattr(next_state._Step, "_lags", lambda self, granted: lags(self, ()))
    find_fault(GroupSimulator(), "steady", joining_group_history, FAULT_BUDGET, late=(41,))


def test_a_recovery_that_does_not_wait_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    recover = next_state._Step._recover

    def hasty(self: Any) -> None:
        recover(self)
        self.recovering = None

    monkeypatch.setattr(next_state._Step, "_recover", hasty)
    found("holder|once|decisions|tokens", make=losses)


def test_an_older_redis_that_is_taken_for_the_one_before_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    knows_no_other_run_of_redis(monkeypatch)
    found("holder", make=older)


def test_a_member_that_takes_a_used_token_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = MemberHoldings.heard

    def forgetful(self: MemberHoldings, *arguments: Any) -> list[Any]:
        self._past.clear()
        return heard(self, *arguments)

    monkeypatch.setattr(MemberHoldings, "heard", forgetful)
    found("once", make=rewinds)


def asked_twice(seed: int) -> GroupHistory:
    """Redis is another while a partition is handed over, and then owners have less time for it."""
    rng = Random(f"{seed} asked twice")
    terms = Terms(4, ttl=4.0, rebalance_delay=0.0, max_handoff_time=60.0)
    specs = (MemberSpec("p0", "m0"), MemberSpec("p1", "m1"))
    joins = round(rng.uniform(5.0, 8.0), 3)
    fails_over = round(joins + rng.uniform(0.5, 3.0), 3)
    events = (
        Event(0.0, "start", "p0"),
        Event(joins, "start", "p1"),
        Event(fails_over, "failover", what="0.000 +0.0"),
        Event(
            round(fails_over + rng.uniform(0.0, 4.0), 3),
            "migrate",
            "p0",
            what="max_handoff_time 2.0",
        ),
    )
    return GroupHistory(seed, specs, events, terms, handoff=60.0)


def test_no_history_in_which_owners_are_asked_twice_breaks_a_rule() -> None:
    none_breaks_a_rule(GroupSimulator(), asked_twice, range(20))


def test_a_member_that_keeps_to_the_first_deadline_when_it_is_asked_again_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heard = MemberHoldings.heard
    first: dict[tuple[int, int], float] = {}

    def stubborn(self: MemberHoldings, view: MemberView, *times: float) -> list[Any]:
        revoked = {p: first.setdefault((p, view.held[p]), at) for p, at in view.revoked.items()}
        return heard(self, replace(view, revoked=revoked), *times)

    monkeypatch.setattr(MemberHoldings, "heard", stubborn)
    find_fault(GroupSimulator(), "once|holder", asked_twice, FAULT_BUDGET)


def leaves_during_a_handoff() -> GroupHistory:
    """A member begins to leave before it hears that it was asked for a partition."""
    terms = Terms(2, ttl=6.0, rebalance_delay=0.0, max_handoff_time=2.0)
    specs = (MemberSpec("p0", "m0"), MemberSpec("p1", "m1"))
    events = (
        Event(0.0, "start", "p0"),
        Event(4.9, "cut", "p0", 1.0),
        Event(5.0, "start", "p1"),
        Event(5.8, "stop", "p0"),
    )
    return GroupHistory(1, specs, events, terms, handoff=600.0, interval=0.5)


def test_a_member_that_leaves_ends_what_it_was_asked_for_when_the_group_counts_on() -> None:
    history = leaves_during_a_handoff()
    world = GroupSimulator().world(history)
    world.run(5.75)
    assert world.state().handoffs
    assert GroupSimulator().broken_rule(history) is None


def test_a_member_that_leaves_and_does_not_hear_what_it_is_asked_for_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    close = MemberHoldings.close

    def deaf(self: MemberHoldings, until: float) -> list[Any]:
        changes = close(self, until)
        # As if it had heard of whatever it is asked for, by any deadline.
        held = {p: replace(each, asked=ANY) for p, each in self.holding.partitions.items()}
        self.holding = replace(self.holding, partitions=PartitionMap(held))
        return changes

    monkeypatch.setattr(MemberHoldings, "close", deaf)
    assert GroupSimulator().broken_rule(leaves_during_a_handoff()) == "holder"


def test_a_member_gets_what_it_was_granted_before_somebody_deleted_that() -> None:
    specs = tuple(MemberSpec(f"p{number}", f"m{number}") for number in range(3))
    starts = (Event(0.1 * number, "start", spec.label) for number, spec in enumerate(specs))
    events = (
        *starts,
        Event(20.0, "pause", "p2", 2.0),
        Event(20.1, "stop", "p1"),
        Event(21.0, "delete", what="views"),
    )
    terms = Terms(2, ttl=6.0, rebalance_delay=0.0, max_handoff_time=1.0)
    history = GroupHistory(1, specs, events, terms, handoff=0.1)
    world = GroupSimulator().world(history)
    world.run(20.9)
    assert "m2" in map(world.state().holder, range(2))
    assert GroupSimulator().broken_rule(history) is None


def test_a_member_with_nothing_leaves_at_once_though_somebody_deleted_what_it_was_told() -> None:
    specs = tuple(MemberSpec(f"p{number}", f"m{number}") for number in range(3))
    starts = (Event(0.1 * number, "start", spec.label) for number, spec in enumerate(specs))
    events = (*starts, Event(20.0, "delete", what="views"), Event(23.0, "hand over", "p2"))
    terms = Terms(2, ttl=6.0, rebalance_delay=0.0, leave_timeout=30.0)
    world = GroupSimulator().world(GroupHistory(1, specs, events, terms))
    world.run(22.9)
    assert "m2" not in map(world.state().holder, range(2))
    world.run(24.0)
    assert world.processes["p2"].machine.stage is Stage.LEFT


def test_a_newcomer_that_takes_nobodys_place_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    terms = Terms(8, "contiguous", rebalance_delay=5.0)
    specs = tuple(MemberSpec(f"p{number}", f"m{number}") for number in range(4))
    events = [Event(0.1 * number, "start", spec.label) for number, spec in enumerate(specs[:3])]
    events += [Event(60.0, "stop", "p0"), Event(61.0, "start", "p3")]
    history = GroupHistory(0, specs, tuple(events), terms)
    assert GroupSimulator().broken_rule(history) is None
    monkeypatch.setattr(heirs, "heirs", lambda vacant, idle: {})
    assert GroupSimulator().broken_rule(history) == "as before"


# --- the simulator itself ---------------------------------------------------------------------


def test_a_history_is_a_function_of_its_seed() -> None:
    assert random_group_history(7) == random_group_history(7)
    assert random_group_history(7) != random_group_history(8)


def told(seed: int) -> list[str]:
    simulator = GroupSimulator()
    world = simulator.world(random_group_history(seed), story=True)
    simulator.run(world)
    assert world.story is not None
    return world.story


@pytest.mark.parametrize("seed", some(range(5)))
def test_a_run_is_a_function_of_its_history(seed: int) -> None:
    assert told(seed) == told(seed)


def test_every_kind_of_event_and_every_assignor_comes_up() -> None:
    histories = [random_group_history(seed) for seed in range(300)]
    assert {event.kind for history in histories for event in history.events} == {*KINDS, LOAD_KIND}
    assert {history.terms.assignor for history in histories} == set(RULES)


def test_histories_reach_what_they_are_for() -> None:
    missing = {
        "told: revoked", "told: lost", "told: drain", "told: warmup", "cannot decide",
        "has failed", "is started again", "group_join -> Taken", "hand over", "stall",
    }  # fmt: skip
    for seed in range(40):
        said = " ".join(told(seed))
        missing = {what for what in missing if what not in said}
        if not missing:
            return
    pytest.fail(f"nothing of {missing}")


def test_a_history_is_played_again_from_the_command_line() -> None:
    done = python("-m", "hashring.testing.simulator", "--groups", "--seed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("1 histories in ")


def test_the_story_says_how_to_play_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    grants_at_once(monkeypatch)
    history = found("holder")
    story = GroupSimulator().story(history)
    assert f"python -m hashring.testing.simulator --groups --seed {history.seed}" in story
    assert "BROKEN holder" in story
