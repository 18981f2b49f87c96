"""Histories of faults in virtual time: the protocol breaks no rule, and every planted fault does.

The rules, and what they promise, are in :mod:`hashring.testing.simulator.ring.node_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from hashring.core.ring import Ring
from hashring.core.ring_change_message import RingChange, Stamp
from hashring.protocol.machine_steps import Finished, Run, Step, Wait
from hashring.protocol.node.node_machine import NodeMachine, View
from hashring.protocol.node.node_states import NodeState
from hashring.protocol.node.own_replicas import BeforeJoin
from hashring.protocol.node.ring_sight import RingSight
from hashring.store.memory_store import MemoryServer
from hashring.testing.simulator import (
    Event,
    RingSimulator,
    random_history,
    random_lock_history,
    with_returns,
)
from hashring.testing.simulator.ring.history import NodeHistory, ProcessSpec
from hashring.testing.simulator.ring.random_histories import KINDS
from hashring.testing.simulator.shrinking import smallest
from tests.programs import python
from tests.unit.histories import find_fault, none_breaks_a_rule, tells_a_short_story
from tests.unit.planted_scripts import plant, plant_at_the_beginning

HISTORIES = 1600
BATCH = 200

FAULT_BUDGET = 2000
"""A planted fault must be found within this many histories."""

LATE = (683, 120)
"""The seeds that are tried first."""


@pytest.mark.parametrize("first", range(0, HISTORIES, BATCH))
def test_no_history_breaks_a_rule(first: int) -> None:
    none_breaks_a_rule(RingSimulator(), random_history, range(first, first + BATCH))


# --- planted faults ---------------------------------------------------------------------------


class NeverFences(NodeMachine):
    """It believes to the end of days that it owns what it once owned."""

    def fence_when_due(self, now: float) -> None:
        pass

    def view(self, now: float) -> View:
        view = super().view(now)
        return replace(view, deadline=float("inf")) if view.ranges else view


class DeadlineFromTheAnswer(NodeMachine):
    """Its ttl counts from when it heard that it has one."""

    def beat_step(self) -> Run:
        step = super().beat_step()
        return replace(step, done=lambda reply, sent, now: step.done(reply, now, now))


class SeesNoGaps(RingSight):
    """It takes every change for the next one."""

    def is_news(self, change: RingChange) -> bool:
        return self.stamp is not None and change.stamp.tag != self.stamp.tag

    def is_whole(self, ring: Ring, stamp: Stamp) -> bool:
        return True


class IgnoresGaps(NodeMachine):
    """It applies every change that it hears to what it has."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sight = SeesNoGaps(self.config.algorithm)

    def _change(self, change: RingChange, now: float) -> None:
        if self.sight.stamp is not None:
            change = replace(change, prev=self.sight.stamp.tag, was=None)
        super()._change(change, now)


class IgnoresHeartbeatsTags(NodeMachine):
    """It does not look where the ring stands, and so trusts every message to come."""

    def _catch_up(self, reply: Any, now: float) -> None:
        pass


class GivesUpForLong(NodeMachine):
    """After a few failures it tries once a minute."""

    def _backoff(self, tries: int) -> float:
        return super()._backoff(tries) if tries < 3 else 60.0


class EndsForAnybody(NodeMachine):
    """It ends for whoever has its name, without a look."""

    def _lose_name(self, now: float) -> None:
        super()._lose_name(now)
        if self.config.named:
            self._give_up_name()


class JoinsUnseen(NodeMachine):
    """A balanced join on whatever ring there is by now."""

    def beat_step(self) -> Run:
        self._expect = None
        return super().beat_step()


class ComesBackAsAnother(NodeMachine):
    """A node that stopped to come back joins with fresh replicas."""

    def _choose(self, found: BeforeJoin) -> None:
        super()._choose(replace(found, record=found.record and replace(found.record, away=False)))


class LeavesWithoutAGoodbye(NodeMachine):
    """It stops as if it had crashed."""

    def _next_of_leaving(self, now: float) -> Step:
        self._may_be_on_ring = False
        return super()._next_of_leaving(now)


class NeverStops(NodeMachine):
    """Asked to stop, it waits for ever."""

    def _next_of_leaving(self, now: float) -> Step:
        return Wait(float("inf")) if self.state is NodeState.LEAVING else Finished()


MACHINES = {
    "no self-fencing": (NeverFences, "renewal"),
    "deadline from the time of the answer": (DeadlineFromTheAnswer, "renewal"),
    "gaps in the history ignored": (IgnoresGaps, "told"),
    "the heartbeat's tag ignored": (IgnoresHeartbeatsTags, "freshness|recovery"),
    "retries once a minute": (GivesUpForLong, "recovery"),
    "ends for a process that is gone": (EndsForAnybody, "names"),
    "a balanced join that is not serialised": (JoinsUnseen, "placement"),
    "fresh replicas after a restart in place": (ComesBackAsAnother, "stays"),
}


def found(simulator: RingSimulator, rules: str) -> NodeHistory:
    return find_fault(simulator, rules, random_history, FAULT_BUDGET, LATE)


@pytest.mark.parametrize(("machine", "rules"), MACHINES.values(), ids=MACHINES)
def test_a_fault_in_the_node_is_found(machine: type[NodeMachine], rules: str) -> None:
    found(RingSimulator(machine=machine), rules)


@pytest.mark.parametrize("histories", [random_history, random_lock_history])
@pytest.mark.parametrize(
    ("machine", "rule"), [(LeavesWithoutAGoodbye, "goodbye"), (NeverStops, "stops")]
)
def test_a_fault_in_stopping_is_found_and_told_by_a_short_story(
    machine: type[NodeMachine], rule: str, histories: Callable[[int], NodeHistory]
) -> None:
    simulator = RingSimulator(machine=machine)
    history = find_fault(simulator, rule, histories, FAULT_BUDGET)
    tells_a_short_story(simulator, history, rule, most=3)


def _renews_any_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat that does not look whose name it is."""
    plant(
        monkeypatch,
        ("local function holder_of(entry)\n", "local function holder_of()\n  do return '' end\n"),
        ("local function drop_others()\n", "local function drop_others()\n  do return end\n"),
    )


def _sweeps_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    """What expired is taken away, and nobody is told."""
    beginning = "local function announce(body, growth, by, history)\n"
    plant(monkeypatch, (beginning, f"{beginning}  if body.kind == 'expire' then return end\n"))


def _never_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    plant_at_the_beginning(monkeypatch, "sweep(horizon, by, history)", "return 0")


def _numbers_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tag is the epoch's number, which repeats after a failover."""
    digest = "string.sub(redis.sha1hex(prev .. cjson.encode(body)), 1, 16)"
    plant(monkeypatch, (digest, "string.format('%016x', body.epoch)"))


def _keeps_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that stops to come back goes on having its name, as after a crash."""
    ends = "ARGV[5]\nend_session(session)\n"
    plant(monkeypatch, (ends, "ARGV[5]\ndo return 'ok' end\n"))


def _joins_with_what_it_saw(monkeypatch: pytest.MonkeyPatch) -> None:
    """A join that saw the holder before it stopped to come back changes what that left."""
    plant(monkeypatch, ("elseif away and ARGV[4] ~= '' then", "elseif false then"))


def _obeys_ended_sessions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A heartbeat that comes after its node left puts the node back."""
    plant_at_the_beginning(monkeypatch, "has_ended(session)", "return false")


SERVERS = {
    "renewal without a look at the session": (_renews_any_session, "exclusion|names|ended"),
    "a sweep that is not announced": (_sweeps_in_silence, "told"),
    "no sweep": (_never_sweeps, "recovery|rest"),
    "epochs told apart by their number": (_numbers_alone, "told|freshness|exclusion"),
    "a restart in place as after a crash": (_keeps_the_name, "stays"),
    "a join by what was seen before the stop": (_joins_with_what_it_saw, "stays"),
    "a heartbeat of a session that has ended": (_obeys_ended_sessions, "ended"),
}


@pytest.mark.parametrize(("plant", "rules"), SERVERS.values(), ids=SERVERS)
def test_a_fault_in_redis_scripts_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    found(RingSimulator(), rules)


def test_an_entry_that_a_node_leaves_under_its_former_name_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = with_returns(random_history(121))
    assert RingSimulator().broken_rule(history) is None
    plant_at_the_beginning(monkeypatch, "free_former_names(node, dropped)", "return")
    assert RingSimulator().broken_rule(history) == "recovery"


def test_a_fault_in_redis_scripts_is_told_by_a_short_story(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _sweeps_in_silence(monkeypatch)
    tells_a_short_story(RingSimulator(), found(RingSimulator(), "told"), "told", most=5)


# --- back in time, whoever else has the name ----------------------------------------------------

A_START_GIVEN_UP = (
    Event(0.5, "stay", "a"),
    Event(1.0, "start", "strict"),
    Event(1.0, "slow join", "strict", 1.5),
    Event(2.3, "start", "b"),
)
A_LATE_AWAKENING = (
    Event(0.5, "pause", "a", 4.6),
    Event(4.0, "start", "b"),
    Event(4.8, "stay", "b"),
    Event(5.5, "start", "c"),
)
LEAVES_FOR_WHO_IS_AWAY = (
    "and (holder ~= '' or is_away(entry)) then",
    "and holder ~= '' then",
)
BEATS_FOR_WHO_IS_AWAY = ("elseif (other or away) and not joining", "elseif other and not joining")


@pytest.mark.parametrize(
    ("events", "edit"),
    [(A_START_GIVEN_UP, LEAVES_FOR_WHO_IS_AWAY), (A_LATE_AWAKENING, BEATS_FOR_WHO_IS_AWAY)],
    ids=["a start that was given up", "a process that wakes up"],
)
def test_what_a_node_left_to_come_back_is_there_whatever_others_of_its_name_do(
    events: tuple[Event, ...], edit: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = tuple(
        ProcessSpec(label, "node-a", True, "random", 4, False, strict, 100.0, follow=strict)
        for label, strict in (("a", False), ("strict", True), ("b", False), ("c", False))
    )
    history = NodeHistory(17, specs, (Event(0.0, "start", "a"), *events))
    assert RingSimulator().broken_rule(history) is None
    plant(monkeypatch, edit)
    assert RingSimulator().broken_rule(history) == "stays"


# --- nobody knows the name of who stops to come back ---------------------------------------------

STAYS = (Event(0.0, "start", "a"), Event(1.5, "stay", "a"))
NAMES_DELETED = Event(1.45, "delete", what="nodes")
NAMES_DELETED_EARLY = Event(0.5, "delete", what="nodes")


def _of_one_node(*events: Event) -> NodeHistory:
    spec = ProcessSpec("a", "node-a", True, "random", 4, True, True, 1.0)
    return NodeHistory(700187, (spec,), events)


def test_points_are_left_where_somebody_deleted_the_name_since_the_last_heartbeat() -> None:
    assert RingSimulator().broken_rule(_of_one_node(*STAYS, NAMES_DELETED)) is None


@pytest.mark.parametrize(
    "events",
    [STAYS, (*STAYS, NAMES_DELETED_EARLY), (STAYS[0], Event(1.5, "stop", "a"), NAMES_DELETED)],
    ids=["nothing deleted", "a heartbeat since", "for good"],
)
def test_a_goodbye_that_is_due_and_forgotten_is_found(events: tuple[Event, ...]) -> None:
    history = _of_one_node(*events)
    assert RingSimulator().broken_rule(history) is None
    assert RingSimulator(machine=LeavesWithoutAGoodbye).broken_rule(history) == "goodbye"


# --- a failover brings back a process that began before, but not by Redis' clock -----------------

BROUGHT_BACK = (
    Event(0.0, "start", "a"),
    Event(4.2, "kill", "a"),
    Event(5.7, "wipe"),
    Event(6.0, "start", "b"),
    Event(6.2, "failover", what="0.8 +0.0"),
)
SET_BACK = Event(4.0, "set back", what="30.0")
TAKEN_WHILE_PAUSED = (
    Event(0.0, "start", "a"),
    Event(0.5, "pause", "a", 1.7),
    Event(1.2, "start", "b"),
    Event(1.8, "kill", "b"),
)


def _of_one_name(*events: Event) -> NodeHistory:
    specs = (ProcessSpec(label, "node-a", True, "random", 1, True, False, 1.0) for label in "ab")
    return NodeHistory(8301032, tuple(specs), events)


@pytest.mark.parametrize(
    "events",
    [(*BROUGHT_BACK, SET_BACK), (*TAKEN_WHILE_PAUSED, replace(SET_BACK, at=0.8))],
    ids=["by Redis' clock", "by the true time"],
)
def test_a_node_may_end_for_one_that_began_later(events: tuple[Event, ...]) -> None:
    assert RingSimulator().broken_rule(_of_one_name(*events)) is None


@pytest.mark.parametrize("events", [BROUGHT_BACK, (*BROUGHT_BACK, replace(SET_BACK, at=6.1))])
def test_a_node_that_ends_for_one_that_began_before_it_is_found(events: tuple[Event, ...]) -> None:
    history = _of_one_name(*events)
    assert RingSimulator(machine=EndsForAnybody).broken_rule(history) == "names"


# --- the simulator itself ---------------------------------------------------------------------


def test_a_history_is_a_function_of_its_seed() -> None:
    assert random_history(7) == random_history(7)
    assert random_history(7) != random_history(8)


def test_a_run_is_a_function_of_its_history() -> None:
    stories = [RingSimulator(machine=NeverFences).story(_broken()) for _ in range(2)]
    assert stories[0] == stories[1]


def test_every_kind_of_event_comes_up() -> None:
    drawn = {event.kind for seed in range(300) for event in random_history(seed).events}
    assert drawn == set(KINDS)


def _broken() -> NodeHistory:
    return found(RingSimulator(machine=NeverFences), "renewal")


def test_the_story_of_a_failing_history_is_short_and_says_how_to_play_it_again() -> None:
    history = _broken()
    story = RingSimulator(machine=NeverFences).story(history)
    assert f"python -m hashring.testing.simulator --seed {history.seed}" in story
    assert "BROKEN renewal" in story
    events = [line for line in story.splitlines() if line.endswith("<--")]
    assert len(events) <= 3
    assert " start" in events[0]


def test_no_event_of_a_smallest_history_can_be_spared() -> None:
    def fails(history: NodeHistory) -> bool:
        kinds = [event.kind for event in history.events]
        return kinds.count("start") >= 2 and "wipe" in kinds

    events = tuple(Event(float(i), kind, "a") for i, kind in enumerate(["start", "kill"] * 8))
    history = NodeHistory(0, (), (*events, Event(20.0, "wipe"), Event(21.0, "stop", "a")))
    least = smallest(history, fails)
    assert [event.kind for event in least.events] == ["start", "start", "wipe"]


def test_the_story_of_a_history_that_fails_no_more_is_an_error() -> None:
    with pytest.raises(ValueError, match="breaks no rule"):
        RingSimulator().story(random_history(0))


def test_a_history_is_played_again_from_the_command_line() -> None:
    done = python("-m", "hashring.testing.simulator", "--seed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("1 histories in ")


@pytest.mark.parametrize("count", ["0", "-5"])
def test_no_history_at_all_is_refused(count: str) -> None:
    done = python("-m", "hashring.testing.simulator", "--count", count)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(f"--count {count} plays nothing: give 1 or more\n")


def test_what_escapes_the_machine_is_a_broken_rule() -> None:
    class Raises(NodeMachine):
        def view(self, now: float) -> View:
            raise ZeroDivisionError

    assert RingSimulator(machine=Raises).broken_rule(random_history(0)) == "nothing escapes"


def test_a_server_may_be_planted_too() -> None:
    class Forgetful(MemoryServer):
        def run(self, command: Any) -> Any:
            self.wipe()
            return super().run(command)

    assert RingSimulator(server=Forgetful).broken_rule(random_history(0)) is not None
