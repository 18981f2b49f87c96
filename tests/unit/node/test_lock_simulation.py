"""Histories of faults in virtual time with locks and limits: whole nodes, and users who ask them.

The rules, and what they promise, are in :mod:`hashring.testing.simulator.ring.lock_rules`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from hashring.node.lock_flows import Hold
from hashring.protocol.locks.calls_under_way import CallsUnderWay, Take
from hashring.protocol.locks.hold_off import HoldOff
from hashring.protocol.locks.key_states import Key, KeyState
from hashring.protocol.locks.leases import Leases
from hashring.protocol.locks.renewal import Batch, Renewal
from hashring.protocol.locks.taking import Taking
from hashring.protocol.machine_steps import Run
from hashring.protocol.node.node_machine import NodeMachine
from hashring.store.locks.commands import Renewed
from hashring.store.memory_store import MemoryServer
from hashring.testing.simulator import (
    Event,
    RingSimulator,
    random_history,
    random_lock_history,
    with_returns,
)
from hashring.testing.simulator.ring.history import (
    HEARTBEAT,
    TTL,
    LockTerms,
    NodeHistory,
    ProcessSpec,
)
from hashring.testing.simulator.ring.lock_rules import believed
from hashring.testing.simulator.ring.random_histories import KINDS, LOCK_KINDS
from hashring.testing.simulator.ring.world import KEYS as RING
from hashring.testing.simulator.ring.world import RingWorld
from tests.conftest import some
from tests.programs import python
from tests.unit.histories import find_fault, none_breaks_a_rule, tells_a_short_story
from tests.unit.node import planted_locks
from tests.unit.planted_scripts import plant

HISTORIES = 300
BATCH = 100

FAULT_BUDGET = 800
"""A planted fault must be found within this many histories."""

LATE = (388, 390, 380, 452, 46, 14, 66, 246)
"""The seeds that are tried first."""

PAIR = tuple(ProcessSpec(label, label, False, "random", 4, False, False, 0.0) for label in "ab")


@pytest.mark.parametrize("first", range(0, HISTORIES, BATCH))
def test_no_history_breaks_a_rule(first: int) -> None:
    none_breaks_a_rule(RingSimulator(), random_lock_history, range(first, first + BATCH))


# --- how soon all is held -----------------------------------------------------------------------

NODES, KEYS = 20, 300
LIMIT = KEYS * 5 // 4 // NODES
JOIN, CRASH = 8.0, 12.0
SOON = 3 * HEARTBEAT


def fleet(seed: int) -> NodeHistory:
    """Nodes with little room to spare; one more joins, and one of them all dies."""
    labels = [f"n{number:02}" for number in range(NODES + 1)]
    rng = Random(seed)
    crash = CRASH + rng.random()
    victim = rng.choice((labels[-1], rng.choice(labels)))
    events = [Event(rng.random() * 0.2, "start", label) for label in labels[:-1]]
    events += [Event(JOIN, "start", labels[-1]), Event(crash, "kill", victim)]
    if seed % 2:
        # Nobody asks for anything from shortly before the crash until the dead node expires.
        events += [Event(crash - 0.1, "idle user", label, 2.9) for label in labels]
    keys = tuple(b"key-%d" % number for number in range(KEYS))
    terms = LockTerms(keys, ttl=TTL, idle=2 * TTL, max_handoff_time=TTL)
    specs = tuple(
        ProcessSpec(label, label, False, "random", 16, False, False, 0.0, LIMIT) for label in labels
    )
    return NodeHistory(seed, specs, tuple(events), terms)


def waited(world: RingWorld, since: float) -> float:
    """Seconds, from then on, until every key is held by somebody who lives."""
    world.run(max(world.now, since))
    while len({key for node in world.alive for key, _, _ in believed(world, node)}) < KEYS:
        world.run(world.now + 0.05)
        assert world.now < since + 4 * SOON, "for a long time some key has been held by nobody"
    return world.now - since


@pytest.mark.parametrize("seed", some(range(12)))
def test_within_three_heartbeats_of_a_join_or_of_a_dead_nodes_end_all_keys_are_held(
    seed: int,
) -> None:
    history = fleet(seed)
    world = RingSimulator().world(history)
    assert waited(world, 0.5) <= SOON
    world.run(JOIN + 0.5)
    assert waited(world, JOIN) <= SOON
    (crash,) = (event for event in history.events if event.kind == "kill")
    world.run(crash.at - 0.001)
    victim = world.processes[crash.who]
    ends = [deadline for _, _, deadline in believed(world, victim)]
    assert waited(world, max(victim.deadline, *ends)) <= SOON


def unfinished(seed: int) -> NodeHistory:
    """Work on all keys goes on for long after some of them have moved to a node that joins."""
    rng = Random(seed)
    keys = tuple(b"key-%d" % number for number in range(20))
    events = [Event(0.0, "start", "a"), Event(8.0 + rng.random(), "start", "b")]
    events += [Event(5.0, "hold", "a", 60.0, key.decode()) for key in keys]
    terms = LockTerms(keys, ttl=60.0, idle=120.0, max_handoff_time=1.0)
    specs = tuple(
        ProcessSpec(label, label, False, "random", 16, False, False, 0.0) for label in "ab"
    )
    return NodeHistory(seed, specs, tuple(events), terms)


def test_the_handoff_time_is_kept_however_long_locks_last() -> None:
    # The joiner may ask before the lock is shortened, and is told of its end nevertheless.
    for seed in some(range(50)):
        history = unfinished(seed)
        world = RingSimulator().world(history)
        world.run(14.0)
        joiner = world.processes["b"]
        assert history.locks is not None
        own = {key for key in history.locks.keys if joiner.machine.sight.ring.owner(key) == "b"}
        assert own <= {key for key, _, _ in believed(world, joiner)}, seed


# --- planted faults ---------------------------------------------------------------------------


def found(
    rules: str,
    simulator: RingSimulator | None = None,
    histories: Callable[[int], NodeHistory] = random_lock_history,
) -> NodeHistory:
    return find_fault(simulator or RingSimulator(), rules, histories, FAULT_BUDGET, LATE)


@pytest.mark.parametrize(
    ("bug", "rules"),
    [
        ("LOCKS_TAKEN_WHILE_NOBODY_MAY", "sole"),
        ("LOCKS_TAKEN_IN_THE_DATA_OF_ANOTHER_SERVER", "sole"),
        ("ANOTHER_SERVER_WITHOUT_ANOTHER_HISTORY", "sole"),
        ("LOCKS_PUT_BACK_AT_ANY_TIME", "tokens|sole|holder"),
        ("RELEASE_OF_ANY_HOLDER", "holder"),
        ("RENEWAL_THAT_MAKES_AN_EXPIRED_LOCK_ANEW", "holder|tokens"),
        ("RENEWAL_THAT_MAKES_A_FREE_LOCK_ANEW", "tokens"),
        ("LATE_CALL_THAT_FREES_WHAT_IT_HAS_NO_PLACE_FOR", "holder"),
        ("TOKENS_OF_THE_COUNTER_ALONE", "tokens"),
        ("WAITER_THAT_IS_REPLACED_AND_NOT_TOLD", "freed"),
    ],
)
def test_a_fault_in_redis_scripts_is_found(
    monkeypatch: pytest.MonkeyPatch, bug: str, rules: str
) -> None:
    plant(monkeypatch, getattr(planted_locks, bug))
    found(rules)


def newcomer(seed: int) -> NodeHistory:
    """A node is cut off, Redis comes back with older data, and a new node returns first."""
    rng = Random(seed)
    keys = tuple(b"key-%d" % number for number in range(16))
    away = 4.0 + rng.random()
    lag = rng.uniform(2.5, 3.5)
    events = [
        Event(0.0, "start", "a"),
        Event(away, "hole", "a", 4.0, "lost"),
        Event(away + 0.1, "failover", what=f"{lag:.3f} 0"),
        Event(away + 0.2, "start", "b"),
    ]
    # It asks for nothing until the copy has been made.
    events.append(Event(0.1, "idle user", "a", away - lag + 0.2))
    terms = LockTerms(keys, ttl=3.0, idle=3.0, max_handoff_time=1.5)
    return NodeHistory(seed, PAIR, tuple(events), terms)


def test_no_newcomer_to_older_data_breaks_a_rule() -> None:
    none_breaks_a_rule(RingSimulator(), newcomer, range(50))


def test_a_newcomer_to_older_data_that_is_not_held_off_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, planted_locks.ANOTHER_SERVER_THAT_HOLDS_NOBODY_OFF)
    tells_a_short_story(RingSimulator(), found("sole", histories=newcomer), "sole", most=5)


def test_a_fault_in_redis_scripts_is_told_by_a_short_story(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, planted_locks.RELEASE_OF_ANY_HOLDER)
    tells_a_short_story(RingSimulator(), found("holder"), "holder", most=5)


def doubts(seed: int) -> NodeHistory:
    """Redis comes back with older data while a node asks for keys that it has let go of.

    Another node, which is drained and cut off, is at work on them.
    """
    rng = Random(seed)
    keys = tuple(b"key-%d" % number for number in range(16))
    moves = 3.0 + rng.random()
    back = moves + rng.uniform(0.7, 0.9)
    fails = back + rng.uniform(0.3, 0.7)
    events = [
        Event(0.0, "start", "a"),
        Event(moves, "start", "b"),
        *(Event(moves + 0.2, "hold", "b", 4.0, key.decode()) for key in keys),
        Event(back, "drain", "b"),
        *(Event(back + 0.02, "slow command", "a", rng.uniform(0.3, 0.8)) for _ in range(2)),
        Event(fails - 0.05, "hole", "b", 4.0, "lost"),
        Event(fails, "failover", what=f"{fails - moves + 0.05:.3f} 0"),
        # Whether it first asks what came of its call, or first learns of the failover.
        Event(fails + rng.uniform(0.0, 0.3), "cut", "a", rng.uniform(0.0, 0.5)),
    ]
    terms = LockTerms(keys, ttl=3.0, idle=3.0, max_handoff_time=3.0)
    return NodeHistory(seed, PAIR, tuple(events), terms)


def test_no_doubt_about_older_data_breaks_a_rule() -> None:
    none_breaks_a_rule(RingSimulator(), doubts, range(50))


learns = HoldOff.heartbeat


def of_its_call_whatever_was_before(
    hold_off: HoldOff, history: str, seconds: float, now: float
) -> None:
    learns(hold_off, history, seconds, now)
    hold_off.given_from = 0


def test_a_node_that_takes_a_lock_of_older_data_for_that_of_its_call_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(HoldOff, "heartbeat", of_its_call_whatever_was_before)
    found("sole", histories=doubts)


def test_a_question_that_does_not_look_at_the_history_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, planted_locks.ANY_LOCK_IN_THE_HISTORY)
    found("sole", histories=doubts)


def no_places_for_calls_under_way(calls: CallsUnderWay) -> int:
    return len(calls._keys.held)


acquired = Taking.acquired


def deadline_from_the_answer(
    taking: Taking, take: Take, answers: Any, sent: float, now: float
) -> None:
    acquired(taking, take, answers, now, now)


def revoked_without_a_new_deadline(leases: Leases, held: Key, now: float) -> None:
    if held.lease is not None and held.lease.revoked_at is None:
        held.lease.revoked_at = now
        held.lease.revoked.set()


@pytest.mark.parametrize(
    ("piece", "name", "bug", "rules"),
    [
        (CallsUnderWay, "count", property(no_places_for_calls_under_way), "limit"),
        (Taking, "acquired", deadline_from_the_answer, "holder"),
        (Leases, "revoke", revoked_without_a_new_deadline, "handoff|holder"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_fault_in_the_book_is_found(
    monkeypatch: pytest.MonkeyPatch, piece: type, name: str, bug: Any, rules: str
) -> None:
    monkeypatch.setattr(piece, name, bug)
    found(rules)


def stopping(seed: int) -> NodeHistory:
    """Questions are cancelled in the middle of their calls, and nodes stop soon after."""
    history = random_lock_history(seed)
    rng = Random(f"{seed} stopping")
    events = [*history.events]
    window = max(event.at for event in events) + 1.0
    for _ in range(rng.randint(1, 3)):
        at, who = rng.uniform(0.3, window), rng.choice(history.processes).label
        for _ in range(rng.randint(0, 3)):
            events.append(Event(at, "cancel", who, rng.choice((0.0, 0.001, 0.02)) * rng.random()))
        events.append(Event(at + rng.random(), rng.choice(("stop", "stop", "stay")), who))
    return replace(history, events=tuple(events))


def test_no_history_of_nodes_that_stop_in_the_middle_of_calls_breaks_a_rule() -> None:
    none_breaks_a_rule(RingSimulator(), stopping, range(BATCH))


def test_a_call_that_takes_locks_after_its_node_has_stopped_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plant(monkeypatch, planted_locks.LOCKS_TAKEN_FOR_A_SESSION_THAT_HAS_ENDED)
    tells_a_short_story(RingSimulator(), found("left behind", histories=stopping), "left behind")


CALLED_LATE = (
    Event(0.0, "start", "a"),
    Event(0.1, "pause unsent", "a", 1.85),
    Event(0.159, "cut", "a", 0.557),
    Event(0.381, "slow command", "a", 0.302),
    Event(0.381, "slow command", "a", 0.249),
    Event(2.093, "drain", "a", 4.69),
    Event(4.52, "pause unsent", "a", 4.425),
    Event(4.751, "stop", "a"),
)


def test_a_lock_may_be_left_that_lasts_longer_because_the_clock_was_set_back() -> None:
    # Its call was given up, and came late. Of that the node asks nothing after two ttls.
    spec = ProcessSpec("a", "host:0", False, "random", 1, False, True, 0.0, follow=False)
    terms = LockTerms((b"key-0", b"key-1"), ttl=3.0, idle=3.0, max_handoff_time=3.0)
    events = (*CALLED_LATE, Event(4.687, "set back", what="30.0"))
    assert RingSimulator().broken_rule(NodeHistory(8405498, (spec,), events, terms)) is None


def nothing(*_: Any) -> None:
    pass


@pytest.mark.parametrize("name", ["session_ended", "_give_up"])
def test_a_node_that_leaves_a_lock_behind_is_found_and_told_by_a_short_story(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(CallsUnderWay, name, nothing)
    tells_a_short_story(RingSimulator(), found("left behind", histories=stopping), "left behind")


renewed, renews = Renewal.done, Renewal.next


def renewed_from_the_answer_on(
    renewal: Renewal, batch: Batch, reply: Renewed, sent: float, now: float
) -> list[Key]:
    return renewed(renewal, batch, reply, now, now)


def renewed_though_lost(
    renewal: Renewal, batch: Batch, reply: Renewed, sent: float, now: float
) -> list[Key]:
    return renewed(renewal, batch, replace(reply, lost=()), sent, now)


def renewed_past_the_handoff_time(
    renewal: Renewal, batch: Batch, reply: Renewed, sent: float, now: float
) -> list[Key]:
    lost = renewed(renewal, batch, reply, sent, now)
    for key in batch.keys:
        key.deadline = sent + renewal._ttl
    return lost


def slow_answer(seed: int) -> NodeHistory:
    """The network goes silent for a node that a slow answer has just reached, or is to reach."""
    rng = Random(seed)
    keys = tuple(b"key-%d" % number for number in range(16))
    slow = 4.0 + rng.random()
    events = [Event(0.0, "start", label) for label in "ab"]
    events += [
        Event(slow, "slow reply", "a", 0.9),
        Event(slow + 2 * rng.random(), "hole", "a", 4.0, "lost"),
    ]
    terms = LockTerms(keys, ttl=2.0, idle=3.0, max_handoff_time=1.5)
    return NodeHistory(seed, PAIR, tuple(events), terms)


def test_no_slow_answer_breaks_a_rule() -> None:
    simulator = RingSimulator()
    for seed in some(range(50)):
        assert not simulator.fails(slow_answer(seed)), simulator.story(slow_answer(seed))


def put_back_after_its_deadline(renewal: Renewal, now: float) -> Batch | None:
    batch = renews(renewal, now)
    if batch is not None:
        batch.put_back[:] = [n for n, key in enumerate(batch.keys) if key in renewal._lost]
    return batch


@pytest.mark.parametrize(
    ("name", "bug", "rules", "histories"),
    [
        ("done", renewed_from_the_answer_on, "holder", slow_answer),
        ("done", renewed_though_lost, "holder", random_lock_history),
        ("done", renewed_past_the_handoff_time, "holder|handoff", random_lock_history),
        ("next", put_back_after_its_deadline, "tokens|sole|holder", random_lock_history),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_fault_in_renewals_is_found_and_told_by_a_short_story(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    bug: Any,
    rules: str,
    histories: Callable[[int], NodeHistory],
) -> None:
    monkeypatch.setattr(Renewal, name, bug)
    tells_a_short_story(RingSimulator(), found(rules, histories=histories), rules, most=6)


def left_from_the_last_try_on(hold: Hold) -> float:
    """It never gives up, as its timeout begins anew with each try."""
    return left(hold) and hold.timeout


def left_for_one_try(hold: Hold) -> float:
    """It gives up at once, whatever its timeout."""
    return left(hold) if hold.asking.book.busy(hold.key) else 0.0


left = Hold._left


@pytest.mark.parametrize("bug", [left_from_the_last_try_on, left_for_one_try])
def test_a_hold_that_waits_for_too_long_or_not_at_all_is_found_and_told_by_a_short_story(
    monkeypatch: pytest.MonkeyPatch, bug: Callable[[Hold], float]
) -> None:
    monkeypatch.setattr(Hold, "_left", bug)
    tells_a_short_story(RingSimulator(), found("waits"), "waits", most=6)


def renews_no_lease(renewal: Renewal, now: float) -> Batch | None:
    renewal._queue = [key for key in renewal._queue if key.lease is None]
    return renews(renewal, now)


def test_a_node_that_renews_no_lease_is_found_and_told_by_a_short_story(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Renewal, "next", renews_no_lease)
    tells_a_short_story(RingSimulator(), found("lasts"), "lasts", most=4)


class GivesUpForLong(NodeMachine):
    """After a few failures it tries once a minute."""

    def _backoff(self, tries: int) -> float:
        return super()._backoff(tries) if tries < 3 else 60.0


def test_a_node_that_does_not_recover_is_found_and_told_by_a_short_story() -> None:
    simulator = RingSimulator(machine=GivesUpForLong)
    tells_a_short_story(simulator, found("recovery", simulator), "recovery", most=5)


class ForgetsTheHistory(NodeMachine):
    """It does not tell Redis which history it knows: nobody learns that the locks were lost."""

    def beat_step(self) -> Run:
        step = super().beat_step()
        if step.command.script.name != "beat":
            return step
        arguments = list(step.command.arguments)
        arguments[9] = ""
        return replace(step, command=replace(step.command, arguments=tuple(arguments)))


def test_a_node_that_does_not_tell_of_a_loss_is_found() -> None:
    found("sole", RingSimulator(machine=ForgetsTheHistory))


class ForgetsTheHistoryWhenItStarts(NodeMachine):
    """A node that is started again takes a ring that was lost meanwhile for one that it knows."""

    def start(self, now: float, *, strict: bool) -> None:
        super().start(now, strict=strict)
        self.history = ""


def returning(seed: int) -> NodeHistory:
    return with_returns(random_lock_history(seed))


def test_no_history_of_nodes_that_are_started_again_breaks_a_rule() -> None:
    none_breaks_a_rule(RingSimulator(), returning, range(BATCH))


def test_a_node_that_forgets_the_history_over_a_restart_is_found() -> None:
    simulator = RingSimulator(machine=ForgetsTheHistoryWhenItStarts)
    story = simulator.story(found("sole", simulator, returning))
    assert "python -m hashring.testing.simulator --locks --returns --seed" in story


class KeepsWhatMoved(NodeMachine):
    """It takes all that it has for its own for ever, whoever waits for it."""

    def view(self, now: float) -> Any:
        view = super().view(now)
        assert self.book is not None
        for held in self.book.held.values():
            held.state = KeyState.KEPT
        return view


def test_a_fault_in_the_node_is_found() -> None:
    found("served", RingSimulator(machine=KeepsWhatMoved))


# --- the simulator itself ---------------------------------------------------------------------


def test_a_history_with_locks_is_a_function_of_its_seed() -> None:
    assert random_lock_history(7) == random_lock_history(7)
    assert random_lock_history(7) != random_lock_history(8)
    assert random_history(7).locks is None


def test_every_kind_of_event_comes_up() -> None:
    drawn = {event.kind for seed in range(300) for event in random_lock_history(seed).events}
    assert drawn == {*KINDS, *LOCK_KINDS}


def test_keys_are_held_leases_are_asked_to_finish_and_nodes_are_full() -> None:
    """The histories reach what they are for."""
    said = ""
    full = False
    for seed in range(30):
        simulator = RingSimulator()
        world = simulator.world(random_lock_history(seed), story=True)
        simulator.run(world)
        said += " ".join(world.story or ())
        full = full or any(
            event[b"kind"] == b"room" for _, event in world.server.events(b"accounts")
        )
    for what in (
        "holds key-",
        "waits to hold key-",
        "still held it",
        "may work on",
        "locks_release",
        "locks_look",
        "idle user",
    ):
        assert what in said, what
    assert full


def test_a_history_with_locks_is_played_again_from_the_command_line() -> None:
    done = python("-m", "hashring.testing.simulator", "--locks", "--seed", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("1 histories in ")


def test_the_story_says_how_to_play_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, planted_locks.RELEASE_OF_ANY_HOLDER)
    history = found("holder")
    story = RingSimulator().story(history)
    assert f"python -m hashring.testing.simulator --locks --seed {history.seed}" in story
    assert "BROKEN holder" in story


def test_a_server_may_be_planted_too() -> None:
    class Forgetful(MemoryServer):
        def run(self, command: Any) -> Any:
            if command.script.name == "locks_renew":
                self.drop(*(RING.lock(key) for key in self.locks(RING)))
            return super().run(command)

    found("holder|calm", RingSimulator(server=Forgetful))
