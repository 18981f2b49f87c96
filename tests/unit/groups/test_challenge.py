"""Leases by race. Sources: the lease challenge article (L); the research notes on rebalancing,
section 4 (N 4)."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hashring.core.groups import lease_challenge
from hashring.core.groups.faithful_challenge import FaithfulChallengeSpans
from hashring.core.groups.lease_challenge import (
    LeaseChallengeRules,
    LeaseTable,
    PartitionLease,
    beat,
    leave,
    recover,
)
from hashring.errors import ConfigError
from hashring.protocol.flow import Flow
from hashring.protocol.group import lease_challenge_machine
from hashring.protocol.group.base_member_machine import Stage
from hashring.protocol.group.lease_challenge_machine import LeaseChallengeMachine, TableSight
from hashring.protocol.machine_steps import Step, Wait
from hashring.store.command import Command
from hashring.store.lease_challenge.commands import ChallengeKeys, TableReading
from hashring.testing.simulator import (
    ChallengeSimulator,
    Event,
    random_challenge_history,
    with_returns,
)
from hashring.testing.simulator.challenge.history import ChallengeHistory, ChallengerSpec
from hashring.testing.simulator.challenge.world import ChallengeWorld
from tests.conftest import some
from tests.unit.histories import find_fault, none_breaks_a_rule
from tests.unit.planted_scripts import plant

SPANS = FaithfulChallengeSpans()
RULES = LeaseChallengeRules(ttl=60, interval=15, max_handoff_time=10, residency=30)
CHALLENGES = pytest.mark.parametrize(
    "terms", [SPANS, LeaseChallengeRules()], ids=["faithful", "lease"]
)
PROMPT = {"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}

# --- time spans -------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [None, "5", b"5", True, 10**400, float("nan")])
@pytest.mark.parametrize("kind", [LeaseChallengeRules, FaithfulChallengeSpans])
def test_a_span_that_is_no_number_is_refused_by_its_own_name(
    kind: type[LeaseChallengeRules | FaithfulChallengeSpans], value: Any
) -> None:
    for setting in fields(kind):
        with pytest.raises(ConfigError, match="must be a finite number of seconds") as raised:
            kind(**{setting.name: value})
        assert raised.value.setting == setting.name


# --- both challenges, everybody prompt --------------------------------------------------------


def world_of(  # noqa: PLR0917 - what a history is made of
    terms: LeaseChallengeRules | FaithfulChallengeSpans,
    seed: int,
    partitions: int,
    late: Mapping[str, float] = PROMPT,
    events: Sequence[Event] = (),
    drain: float = 0.2,
) -> ChallengeWorld:
    """Members that start at once unless an event starts them; ``late`` in seconds for each."""
    specs = tuple(ChallengerSpec(label, each) for label, each in late.items())
    later = {event.who for event in events if event.kind == "start"}
    begin = [Event(0.0, "start", label) for label in late if label not in later]
    history = ChallengeHistory(seed, specs, (*begin, *events), terms, partitions, drain)
    return ChallengeSimulator().world(history)


@CHALLENGES
@pytest.mark.parametrize("seed", some(range(3)))
def test_seven_over_three_settle_at_three_two_two(terms: Any, seed: int) -> None:
    # N 4.
    world = world_of(terms, seed, 7, {"a": 0.0, "b": 0.0, "c": 0.0})
    world.run(1800)
    assert sorted(world.counts().values()) == [2, 2, 3]


@pytest.mark.long
@CHALLENGES
@pytest.mark.parametrize("seed", some(range(3)))
def test_sixteen_over_four_do_not_move_once_level(terms: Any, seed: int) -> None:
    # N 4.
    world = world_of(terms, seed, 16)
    world.run(1800)
    world.measure_anew()
    world.run(1800 + 3600)
    world.measure_time()
    found = world.measured
    assert (found.moves, found.unowned, found.doubled) == (0, 0.0, 0.0)
    assert set(world.counts().values()) == {4}


@CHALLENGES
@pytest.mark.parametrize("seed", some(range(3)))
def test_one_partition_never_moves(terms: Any, seed: int) -> None:
    # L: "squarely lands on one node and stays there"; N 4.
    world = world_of(terms, seed, 1)
    world.run(300)
    world.measure_anew()
    world.run(300 + 3600)
    assert world.measured.moves == 0


@CHALLENGES
@pytest.mark.parametrize("seed", some(range(3)))
def test_a_new_node_gets_its_share(terms: Any, seed: int) -> None:
    # L: "Once a new node comes online ... the workload has been distributed evenly".
    world = world_of(terms, seed, 16, PROMPT, [Event(1800.0, "start", "d")])
    world.run(2400)
    assert set(world.counts().values()) == {4}


@CHALLENGES
@pytest.mark.parametrize("seed", some(range(3)))
def test_after_a_kill_all_is_redistributed(terms: Any, seed: int) -> None:
    # L: "after roughly maximum lease time"; N 4.
    world = world_of(terms, seed, 16, PROMPT, [Event(1800.0, "kill", "a")])
    world.run(2100)
    assert sum(world.counts().values()) == 16
    world.run(3900)
    assert sorted(world.counts().values()) == [5, 5, 6]


# --- a loaded member --------------------------------------------------------------------------


@pytest.mark.parametrize("late", [pytest.param(0.5, marks=pytest.mark.long), 1.0])
def test_the_articles_race_moves_partitions_of_a_loaded_member_for_ever(late: float) -> None:
    # L: "causing partitions to jump between hosts"; N 4: 152 and 193 moves an hour.
    world = world_of(SPANS, 1, 16, PROMPT | {"a": late})
    world.run(1200)
    world.measure_anew()
    world.run(1200 + 3600)
    assert world.measured.moves > 20


@pytest.mark.parametrize(
    "late", [*(pytest.param(each, marks=pytest.mark.long) for each in (0.15, 0.5, 1.0)), 2.0]
)
def test_it_moves_nothing_of_a_loaded_member(late: float) -> None:
    # N 4: 0 moves up to 2 s mean lag.
    world = world_of(LeaseChallengeRules(), 1, 16, PROMPT | {"a": late})
    world.run(1200)
    world.measure_anew()
    world.run(1200 + 2 * 3600)
    world.measure_time()
    found = world.measured
    assert (found.moves, found.unowned, found.doubled) == (0, 0.0, 0.0)


@pytest.mark.parametrize("seed", some(range(6)))
def test_it_never_has_two_owners_even_while_members_come_and_go(seed: int) -> None:
    rng = random.Random(seed)
    late = PROMPT | {"a": 2.0, "b": 1.0}
    here, events, at = list(late), [], 0.0
    for number in range(12):
        at += rng.uniform(0, 300)
        if rng.random() < 0.6:
            here.append(f"n{number}")
            late[here[-1]] = rng.choice([0.0, 2.0])
            events.append(Event(at, "start", here[-1]))
        if len(here) > 2 and rng.random() < 0.6:
            events.append(Event(at, "kill", here.pop(rng.randrange(len(here)))))
    world = world_of(
        LeaseChallengeRules(), seed, 16, late, events, drain=rng.choice([0.2, 5.0, 20.0])
    )
    world.run(at + 600)
    world.measure_time()
    assert world.measured.doubled == 0.0


# --- histories of faults ----------------------------------------------------------------------


def test_no_history_breaks_a_rule() -> None:
    none_breaks_a_rule(ChallengeSimulator(), random_challenge_history, range(60))


class CountsFromTheAnswer(LeaseChallengeMachine):
    """Its leases begin when it hears that it has them."""

    def heard(self, view: Any, asked_at: float, redis_now: float) -> None:
        super().heard(view, self.now, redis_now)


def with_the_longest_handoffs(seed: int) -> ChallengeHistory:
    history = random_challenge_history(seed, faithful=False)
    assert isinstance(history.terms, LeaseChallengeRules)
    longest = history.terms.ttl - history.terms.interval
    return replace(history, terms=replace(history.terms, max_handoff_time=longest))


class LeavesAsIfItRenewed(LeaseChallengeMachine):
    """When it leaves, its work has the whole handoff time, however little its lease has left."""

    renews_to_the_end = True


def takes_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lease is free for others a moment before it ends."""
    real = lease_challenge.beat

    def early(table: LeaseTable, member: str, now: float, *rest: Any) -> LeaseTable:
        leases = {
            p: replace(lease, expires=lease.expires - 0.4 * (lease.owner != member))
            for p, lease in table.leases.items()
        }
        return real(replace(table, leases=leases), member, now, *rest)

    monkeypatch.setattr(lease_challenge, "beat", early)


def writes_blindly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table is written whatever it was based on."""
    plant(monkeypatch, ("if tag ~= ARGV[1] or server() ~= ARGV[4] then", "if false then"))


def planted(rules: str, simulator: ChallengeSimulator) -> ChallengeHistory:
    """A history that breaks one of the rules."""

    def unfaithful(seed: int) -> ChallengeHistory:
        return random_challenge_history(seed, faithful=False)

    return find_fault(simulator, rules, unfaithful, 200)


def test_a_lease_that_counts_from_the_answer_is_found_with_a_story() -> None:
    simulator = ChallengeSimulator(table=CountsFromTheAnswer)
    story = simulator.story(planted("renewal|holder", simulator))
    assert 1 <= sum(line.endswith("<--") for line in story.splitlines()) <= 8, story
    assert "python -m hashring.testing.simulator --challenge --seed" in story


def test_no_member_is_told_a_deadline_beyond_its_lease() -> None:
    none_breaks_a_rule(ChallengeSimulator(), with_the_longest_handoffs, range(20))
    hasty = ChallengeSimulator(table=LeavesAsIfItRenewed)
    history = hasty.find(range(20), with_the_longest_handoffs)
    assert history is not None
    assert hasty.broken_rule(history) == "deadline"


def counts_tokens_from_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next token follows the table's last, however many were granted before a loss."""
    text = inspect.getsource(lease_challenge.beat)
    grant = "token = max(token + 1, int(now * 1e6))"
    assert grant in text
    changed = dict(vars(lease_challenge))
    exec(text.replace(grant, "token = token + 1"), changed)
    monkeypatch.setattr(lease_challenge, "beat", changed["beat"])


def takes_each_server_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody sees that a table was written on another run of Redis."""
    real = lease_challenge_machine.read_table

    def read_table(keys: ChallengeKeys) -> Command[TableReading]:
        command = real(keys)
        return replace(command, read=lambda raw: replace(command.read(raw), elsewhere=False))

    monkeypatch.setattr(lease_challenge_machine, "read_table", read_table)


class LeavesWithoutAWord(LeaseChallengeMachine):
    """It lets its entry and its leases end by themselves."""

    def depart(self) -> Flow[None]:
        return
        yield


def test_tokens_that_begin_again_after_a_loss_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    counts_tokens_from_one(monkeypatch)
    planted("tokens", ChallengeSimulator())


def test_a_restart_or_failover_that_nobody_sees_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    takes_each_server_for_the_same(monkeypatch)
    planted("holder|tokens", ChallengeSimulator())


def test_a_stop_that_sends_nothing_is_found() -> None:
    planted("goodbye", ChallengeSimulator(table=LeavesWithoutAWord))


class StaysForEver(LeaseChallengeMachine):
    """A member that stops waits for its application without a deadline."""

    def next(self, now: float) -> Step:
        step = super().next(now)
        return Wait(math.inf) if self.stage is Stage.DEPARTING else step


def test_a_stop_that_does_not_end_is_found() -> None:
    planted("stops", ChallengeSimulator(table=StaysForEver))


def two_members(events: tuple[Event, ...]) -> ChallengeHistory:
    return ChallengeHistory(
        1,
        (ChallengerSpec("p0"), ChallengerSpec("p1")),
        events,
        LeaseChallengeRules(ttl=6.0, interval=1.0, max_handoff_time=0.5, residency=0.0),
        partitions=6,
    )


class LeavesItsEntryBehind(LeaseChallengeMachine):
    """A start that fails leaves its entry to end by itself."""

    def enter(self) -> Flow[None]:
        self._me = f"{self.member}#{self._new_suffix()}"
        yield from self.renew()


def test_an_entry_of_a_start_that_failed_is_found() -> None:
    # The answer to its first write is lost.
    events = (
        Event(0.0, "start", "p0"),
        Event(10.0, "start", "p1"),
        Event(10.001, "lose reply", "p1"),
        Event(20.0, "stop", "p1"),
    )
    history = two_members(events)
    assert ChallengeSimulator().broken_rule(history) is None
    assert ChallengeSimulator(table=LeavesItsEntryBehind).broken_rule(history) == "nobody"


class LeavesAnEmptyTableAsItIs(LeaseChallengeMachine):
    """A start that fails on a table without members does not keep its write from coming late."""

    def _departure(self) -> Flow[bool | None]:
        reading = yield lease_challenge_machine.read_table(self._keys)
        if reading.table is None:
            return True
        return (yield from super()._departure())


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_an_entry_that_comes_after_its_start_has_failed_is_found(end: str) -> None:
    events = (
        Event(1.0, "start", "p0"),
        Event(1.0075, "slow command", "p0", 2.04),
        Event(3.045, end, "p0"),
        Event(3.2, "start", "p1"),
    )
    history = two_members(events)
    assert isinstance(history.terms, LeaseChallengeRules)
    history = replace(history, terms=replace(history.terms, interval=0.5))
    assert ChallengeSimulator().broken_rule(history) is None
    assert ChallengeSimulator(table=LeavesAnEmptyTableAsItIs).broken_rule(history) == "nobody"


class TakesItsAbsenceForALoss(LeaseChallengeMachine):
    """Outside the table it asks all others to wait, also if its own lease has ended."""

    def _renewal(self) -> Any:
        if self.sight is TableSight.INSIDE and self.now >= self.holdings.holding.lease_until:
            self.holdings.holding = replace(self.holdings.holding, lease_until=math.inf)
        return super()._renewal()


def test_a_wait_without_a_loss_is_found() -> None:
    events = (
        Event(0.0, "start", "p0"),
        Event(0.0, "start", "p1"),
        Event(10.0, "pause", "p0", 8.0),
        Event(17.0, "stop", "p1"),
    )
    history = two_members(events)
    assert ChallengeSimulator().broken_rule(history) is None
    assert ChallengeSimulator(table=TakesItsAbsenceForALoss).broken_rule(history) == "nobody"


@pytest.mark.parametrize(
    ("plant", "rules"),
    [
        (takes_before_the_end, "holder|level|renewal"),
        (writes_blindly, "holder|level|renewal|tokens"),
    ],
)
def test_a_fault_in_the_table_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], rules: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    planted(rules, ChallengeSimulator())


# --- the table ----------------------------------------------------------------------------------


def wiped_while_a_member_enters(seed: int) -> ChallengeHistory:
    """Redis loses everything between two looks of a newcomer, while another holds all."""
    rng = random.Random(seed)
    specs = (ChallengerSpec("p0"), ChallengerSpec("p1", late=0.1))
    at = 20.0 + rng.random()
    events = (
        Event(0.0, "start", "p0"),
        Event(at, "start", "p1"),
        Event(at + rng.uniform(0.05, 0.25), "wipe"),
    )
    return ChallengeHistory(
        seed,
        specs,
        events,
        LeaseChallengeRules(ttl=3.0, interval=1.0, max_handoff_time=2.0),
        partitions=3,
    )


class ForgetsThatThereWasATable(LeaseChallengeMachine):
    """To a newcomer an empty Redis is a new one, also when it has just read a table there."""

    def _renewal(self) -> Any:
        self.sight = TableSight.NONE
        return super()._renewal()


def test_a_newcomer_that_has_read_the_table_before_it_was_lost_takes_nothing_at_once() -> None:
    none_breaks_a_rule(ChallengeSimulator(), wiped_while_a_member_enters, range(60))
    hasty = ChallengeSimulator(table=ForgetsThatThereWasATable)
    find_fault(hasty, "holder", wiped_while_a_member_enters, 60)


def returning(seed: int) -> ChallengeHistory:
    return with_returns(random_challenge_history(seed, faithful=False))


class ForgetsTheTableWhenItStarts(LeaseChallengeMachine):
    """A member that is started again takes an empty Redis for a new one."""

    def enter(self) -> Any:
        self.sight = TableSight.NONE
        return super().enter()


def test_a_member_that_is_started_again_after_the_table_was_lost_takes_nothing_at_once() -> None:
    none_breaks_a_rule(ChallengeSimulator(), returning, range(20))
    hasty = ChallengeSimulator(table=ForgetsTheTableWhenItStarts)
    history = hasty.find(range(20), returning)
    assert history is not None
    assert hasty.broken_rule(history) == "holder"
    assert hasty.again(history) == "--challenge --returns "


def test_a_ttl_counts_as_long_as_a_member_of_it_is_alive() -> None:
    table = beat(LeaseTable(2), "a", 0.0, RULES)
    assert table.other_ttl(1.5, 59.9) == 60.0
    assert table.other_ttl(60.0, 59.9) is None
    assert table.other_ttl(1.5, 60.0) is None
    assert leave(table, "a", 1.0).other_ttl(1.5, 1.0) is None
    assert beat(table, "b", 60.0, LeaseChallengeRules(1.5, 0.5, 1.0)).other_ttl(60.0, 61.0) == 1.5


def test_a_member_without_any_lease_counts() -> None:
    table = beat(LeaseTable(4), "a", 0.0, RULES)
    assert len(table.held("a", 0.0)) == 4
    table = beat(table, "b", 31.0, RULES)
    assert set(table.members) == {"a", "b"}
    assert [lease.wanted_by for lease in table.leases.values()].count("b") == 1


def test_a_partition_is_taken_only_once_it_is_let_go_of() -> None:
    table = beat(beat(LeaseTable(2), "a", 0.0, RULES), "b", 31.0, RULES)
    assert table.held("b", 31.0) == {}
    table = beat(table, "a", 32.0, RULES, released=[0])
    assert table.holder(0, 32.0) is None
    table = beat(table, "b", 33.0, RULES)
    assert table.holder(0, 33.0) == "b"
    assert table.leases[0].token > table.leases[1].token


def test_a_lease_that_was_asked_for_is_not_renewed_beyond_the_deadline() -> None:
    table = beat(beat(LeaseTable(2), "a", 0.0, RULES), "b", 55.0, RULES)
    assert table.leases[0].deadline == 65.0
    table = beat(table, "a", 58.0, RULES)
    assert table.leases[0].expires == 65.0
    assert table.leases[1].expires == 118.0
    assert beat(table, "b", 64.9, RULES).holder(0, 64.9) == "a"
    assert beat(table, "b", 65.0, RULES).holder(0, 65.0) == "b"


def test_who_is_asked_has_the_longest_handoff_time_with_its_next_renewal() -> None:
    rules = replace(RULES, max_handoff_time=45)
    table = beat(beat(LeaseTable(2), "a", 0.0, rules), "b", 31.0, rules)
    assert beat(table, "a", 31.1, rules).leases[0].expires == 31.0 + 45


def test_what_was_promised_before_is_not_taken_back() -> None:
    table = beat(beat(LeaseTable(2), "a", 0.0, RULES), "b", 31.0, RULES)
    assert table.leases[0].deadline == 41.0
    # Its owner was told that it may go on until 60.
    assert beat(table, "b", 59.9, RULES).holder(0, 59.9) == "a"


def test_a_member_asks_for_one_partition_at_a_time_and_not_before_it_has_settled() -> None:
    table = beat(beat(LeaseTable(8), "a", 0.0, RULES), "b", 29.0, RULES)
    assert all(lease.wanted_by is None for lease in table.leases.values())
    for now in (30.0, 31.0, 32.0):
        table = beat(table, "b", now, RULES)
        assert [lease.wanted_by for lease in table.leases.values()].count("b") == 1


def test_who_has_one_less_does_not_ask() -> None:
    leases = {
        0: PartitionLease("a", 1, 100.0, 0.0),
        1: PartitionLease("a", 2, 100.0, 0.0),
        2: PartitionLease("b", 3, 100.0, 0.0),
    }
    table = LeaseTable(3, leases, {"a": 100.0, "b": 100.0}, 3)
    assert beat(table, "b", 50.0, RULES).leases[0].wanted_by is None


def test_after_a_loss_what_members_bring_back_stays_theirs_and_nothing_is_taken() -> None:
    table = recover(LeaseTable(3), "a", 100.0, RULES, {0: 7}, newest=7, lost_by=100.0)
    table = beat(table, "a", 100.0, RULES)
    assert sorted(table.held("a", 100.0)) == [0]
    table = beat(
        recover(table, "b", 101.0, RULES, {1: 8}, newest=8, lost_by=100.0), "b", 101.0, RULES
    )
    assert sorted(table.held("b", 101.0)) == [1]
    # What nobody brought back is free once every lease of before has ended.
    assert table.holder(2, 159.0) is None
    table = beat(table, "a", 160.0, RULES)
    assert table.holder(2, 160.0) == "a"
    assert table.leases[2].token > 8


def test_after_a_loss_tokens_are_greater_than_any_that_a_member_had() -> None:
    later = int(5000.0 * 1e6)
    # Redis' clock was set back, too, and it holds nothing any more.
    table = recover(LeaseTable(1), "a", 100.0, RULES, {}, newest=later, lost_by=0.0)
    assert beat(table, "a", 100.0, RULES).leases[0].token > later


def test_of_two_claims_the_one_with_the_greater_token_counts() -> None:
    table = recover(LeaseTable(1), "a", 100.0, RULES, {0: 7}, newest=7, lost_by=100.0)
    assert (
        recover(table, "b", 100.0, RULES, {0: 6}, newest=6, lost_by=100.0).holder(0, 100.0) == "a"
    )
    assert (
        recover(table, "b", 100.0, RULES, {0: 8}, newest=8, lost_by=100.0).holder(0, 100.0) == "b"
    )


def test_who_leaves_lets_go_of_everything() -> None:
    table = leave(beat(LeaseTable(2), "a", 0.0, RULES), "a", 1.0)
    assert table.members == {}
    assert beat(table, "b", 1.0, RULES).held("b", 1.0).keys() == {0, 1}


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"ttl": 40}, "ttl=40: must be at least three intervals of 15 s"),
        ({"interval": 0}, "interval=0: must be a finite number of seconds above 0"),
        ({"residency": -1}, "residency=-1: must be a finite number of seconds, 0 or more"),
        (
            {"max_handoff_time": 45.5},
            "max_handoff_time=45.5: must be at most the ttl less one interval, 45 s: a member that",
        ),
        ({"ttl": 0.001}, "ttl=0.001: must be at least 0.1 s: a shorter lease ends while its"),
    ],
)  # fmt: skip
def test_rules_that_contradict_each_other_are_refused(settings: Any, text: str) -> None:
    with pytest.raises(ConfigError) as raised:
        LeaseChallengeRules(**settings)
    assert str(raised.value).startswith(text)


@pytest.mark.parametrize(
    "settings", [{"ttl": 45}, {"max_handoff_time": 45}, {"residency": 0}, {"interval": 20}]
)
def test_rules_that_just_do_not_contradict_each_other_stand(settings: dict[str, float]) -> None:
    rules = LeaseChallengeRules(**settings)
    assert {name: getattr(rules, name) for name in settings} == settings


@given(
    beats=st.lists(
        st.tuples(st.sampled_from("abc"), st.floats(0, 40), st.sets(st.integers(0, 5), max_size=2)),
        max_size=30,
    )
)
def test_a_partition_changes_hands_only_when_it_is_free_and_under_a_greater_token(
    beats: list[tuple[str, float, set[int]]],
) -> None:
    table, now = LeaseTable(6), 1000.0
    for member, wait, released in beats:
        before, now = table, now + wait
        table = beat(before, member, now, RULES, released)
        for partition, lease in table.leases.items():
            was = before.leases.get(partition)
            if was is None:
                continue
            if lease.token != was.token:
                assert lease.token > was.token
                freed = was.owner == member and partition in released
                assert was.expires <= now or freed
            elif lease.owner is not None:
                assert lease.expires >= was.expires


# --- when the clock of Redis' machine was set back ----------------------------------------------


def test_what_was_left_of_a_lease_is_left_when_the_clock_is_set_back() -> None:
    table = beat(LeaseTable(2), "a", 5000.0, RULES)
    table = recover(table, "b", 5000.0, RULES, {}, newest=0, lost_by=5000.0)
    before = table.at(5010.0)
    assert before == table
    after = table.at(1400.0)
    assert after.members == {"a": 1400.0 + RULES.ttl}
    assert after.quiet_until == 1400.0 + RULES.ttl
    assert {lease.expires for lease in after.leases.values()} == {1400.0 + RULES.ttl}
    assert after.at(1500.0) == after


def test_a_crashed_members_leases_end_though_the_clock_is_set_back_an_hour() -> None:
    table = beat(beat(LeaseTable(4), "a", 5000.0, RULES), "b", 5000.0, RULES)
    assert set(table.held("a", 5000.0)) == {0, 1, 2, 3}
    table = beat(table, "b", 1400.0, RULES)
    assert not table.held("b", 1400.0)
    table = beat(table, "b", 1400.0 + RULES.ttl - 1, RULES)
    assert not table.held("b", 1400.0 + RULES.ttl - 1)
    table = beat(table, "b", 1401.0 + RULES.ttl, RULES)
    assert set(table.held("b", 1401.0 + RULES.ttl)) == {0, 1, 2, 3}
