"""What every store must do for partition groups: the scripts on each real server of this machine,
and in memory. Nothing here waits for time to pass: leases that must have ended last no time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from redis import Redis

from hashring.core.assignors import BalancedAssignor, assignor_named
from hashring.core.groups import group_orders, next_state
from hashring.core.groups.json_codec import (
    dump_events,
    dump_facts,
    dump_state,
    load_events,
    load_facts,
    load_state,
    load_view_change,
)
from hashring.core.groups.member_orders import drain, weigh
from hashring.core.groups.partition_column import Column
from hashring.core.groups.state import (
    EventKind,
    Facts,
    GroupEvent,
    GroupPhase,
    GroupState,
    Handoff,
    MemberFacts,
    Terms,
)
from hashring.core.groups.view_changes import changed_views
from hashring.errors import GroupFormatError, PermissionDenied, WrongKeyType
from hashring.protocol.flow import run_flow
from hashring.protocol.group.group_flows import change
from hashring.store.command import Command
from hashring.store.embedded_server import RedisServer
from hashring.store.group import commands
from hashring.store.group.commands import (
    NO_PART,
    STEP,
    WATCHERS,
    Beat,
    Committed,
    Conflict,
    Joined,
    JoinEnded,
    Left,
    Taken,
    agreed,
    beat,
    commit,
    forget,
    join,
    leave,
)
from hashring.store.group.decision_history import read_decision
from hashring.store.group.key_names import GroupKeys, group_keys
from hashring.store.group.reading import Reading, Reports, read
from hashring.store.interface import Message, Store, Subscribed, Subscription
from hashring.store.memory_store import MemoryServer, MemoryStore
from hashring.store.redis_store import RedisStore
from hashring.testing.simulator import GroupSimulator, random_group_history
from tests.conftest import PATIENCE, servers
from tests.contract.places import Place, RealPlace

TERMS = Terms(4, ttl=1000.0, rebalance_delay=0.0)
A, B, C = "a" * 16, "b" * 16, "c" * 16
T = TypeVar("T")


@pytest.fixture
def own_redis() -> Iterator[Redis]:
    """A client of a server that no other test uses."""
    with RedisServer() as server, Redis(unix_socket_path=str(server.socket)) as client:
        yield client


@pytest.fixture
def own_store(own_redis: Redis) -> Iterator[RedisStore]:
    """A store on that server."""
    store = RedisStore(own_redis, PATIENCE)
    yield store
    store.close()


@pytest.fixture
def keys() -> GroupKeys:
    return group_keys("orders")


def facts(name: str, session: str = A, **more: object) -> MemberFacts:
    return MemberFacts(name, session, 0, 0.0, **more)  # type: ignore[arg-type]


def step(
    store: Store, keys: GroupKeys, by: str = "test", *, goes_on: bool = False
) -> Committed | Conflict:
    reading = store.run(read(keys))
    state = reading.standing()
    assert state is not None
    outcome = next_state.step(state, reading.facts, BalancedAssignor())
    return store.run(commit(keys, reading, outcome, by, goes_on=goes_on))


def beaten(store: Store, keys: GroupKeys, member: MemberFacts, known: Beat | None = None) -> Beat:
    before = (NO_PART, None) if known is None else (known.part, known.view)
    found = store.run(beat(keys, member, TERMS.ttl, *before))
    assert found is not None
    return found


def expired(store: Store, keys: GroupKeys, member: MemberFacts) -> None:
    """A member that has joined, and whose lease has ended."""
    store.run(join(keys, member, TERMS))
    store.run(beat(keys, member, 1e-6))


def test_the_first_member_brings_the_terms(store: Store, keys: GroupKeys) -> None:
    assert store.run(read(keys)).standing() is None
    joined = store.run(join(keys, facts("a"), TERMS))
    assert isinstance(joined, Joined)
    other = store.run(join(keys, facts("b", B), replace(TERMS, partitions=9)))
    assert isinstance(other, Joined)
    assert other.terms == joined.terms == TERMS


def test_a_name_in_use_is_not_given_away(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a"), TERMS))
    taken = store.run(join(keys, facts("a", B), TERMS))
    assert isinstance(taken, Taken)
    assert 900 < taken.expires_in <= 1000


def test_a_name_whose_lease_has_ended_can_be_taken(store: Store, keys: GroupKeys) -> None:
    expired(store, keys, facts("a"))
    assert isinstance(store.run(join(keys, facts("a", B), TERMS)), Joined)


def test_a_process_may_take_its_own_name_again(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a"), TERMS))
    assert isinstance(store.run(join(keys, facts("a", B), TERMS, A)), Joined)


def test_a_step_grants_and_a_renewal_learns_of_it(store: Store, keys: GroupKeys) -> None:
    joined = store.run(join(keys, facts("a"), TERMS))
    assert isinstance(joined, Joined)
    before = beaten(store, keys, facts("a"))
    assert (joined.due, before.view and before.view.seated) == (True, False)
    committed = step(store, keys)
    assert isinstance(committed, Committed)
    assert (committed.now, committed.again) == (pytest.approx(before.now, abs=60), False)
    after = beaten(store, keys, facts("a"))
    assert after.view is not None
    assert sorted(after.view.held) == [0, 1, 2, 3]
    assert after.view.phase is GroupPhase.READY
    assert after.tag.startswith("1:")
    assert not after.due


def test_a_join_that_is_sent_again_takes_nothing_away(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a"), TERMS))
    store.run(join(keys, facts("b", B), TERMS))
    step(store, keys)
    before = store.run(read(keys)).facts.members
    assert isinstance(store.run(join(keys, facts("a"), TERMS)), Joined)
    after = beaten(store, keys, facts("a"))
    assert after.view is not None
    assert sorted(after.view.held) == [0, 2]
    again = store.run(read(keys)).facts.members
    assert [(m.name, m.joined) for m in again] == [(m.name, m.joined) for m in before]


def test_a_join_that_is_sent_again_renews_no_lease_that_has_ended(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    store.run(join(keys, facts("b", B), TERMS))
    step(store, keys)
    store.run(beat(keys, facts("a"), 1e-6))
    # A decision that gives what it had to others is under way, and stands although it comes back.
    reading = store.run(read(keys))
    assert isinstance(store.run(join(keys, facts("a"), TERMS)), JoinEnded)
    assert store.run(beat(keys, facts("a"), TERMS.ttl)) is None
    assert isinstance(store.run(join(keys, facts("a", C), TERMS)), Joined)
    assert isinstance(store.run(commit(keys, reading, outcome_of(reading), "b")), Committed)
    back = beaten(store, keys, facts("a", C))
    assert back.view is not None
    assert not back.view.held


def test_a_renewal_that_knows_the_decision_is_not_told_it_again(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    step(store, keys)
    before = beaten(store, keys, facts("a"))
    after = beaten(store, keys, facts("a", seen=1), before)
    assert after.view is not None
    assert before.view is not None
    assert (after.part, after.view.held) == (before.part, before.view.held)
    assert after.view.held is before.view.held


def moved(store: Store, keys: GroupKeys, count: int) -> None:
    """Decide so often, each time that the member has to let go of a partition and may keep it."""
    for number in range(count):
        reading = store.run(read(keys))
        state = reading.standing()
        assert state is not None
        handoffs = {} if state.handoffs else {0: Handoff("a", "b", number, 1e10 + number, 2e10)}
        after = replace(state, generation=state.generation + 1, handoffs=handoffs)
        store.run(commit(keys, reading, next_state.StepOutcome(after, (), None), "test"))


@pytest.mark.parametrize("missed", [1, 2, 3, 60])
def test_a_part_of_the_group_follows_from_what_has_changed_or_has_to_be_read(
    store: Store, keys: GroupKeys, missed: int
) -> None:
    member = facts("a")
    store.run(join(keys, member, TERMS))
    step(store, keys)
    before = beaten(store, keys, member)
    moved(store, keys, missed)
    state = store.run(read(keys)).state
    after = beaten(store, keys, member, before)
    assert state is not None
    assert after.part == after.tag == store.run(read(keys)).tag
    # What is kept of a part's changes is bounded, whatever the member has missed.
    assert after.view == (None if missed == 60 else state.view("a", A))


def test_a_member_that_never_asked_has_to_read_what_is_not_kept_any_more(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    step(store, keys)
    moved(store, keys, 60)
    assert beaten(store, keys, facts("a")).view is None


def test_a_part_that_was_told_to_nobody_has_to_be_read(store: Store, keys: GroupKeys) -> None:
    member = facts("a")
    store.run(join(keys, member, TERMS))
    step(store, keys)
    lost = replace(beaten(store, keys, member), part="1:1")
    assert beaten(store, keys, member, lost).view is None


def test_a_decision_is_read_by_what_has_changed_since_a_known_one(
    store: Store, keys: GroupKeys
) -> None:
    terms = replace(TERMS, partitions=1000)
    store.run(join(keys, facts("a"), terms))
    committed = step(store, keys)
    assert isinstance(committed, Committed)
    moved(store, keys, 3)
    store.run(join(keys, facts("b", B), terms))
    # It takes over one partition.
    assert isinstance(step(store, keys), Committed)
    whole = store.run(read(keys))
    part = store.run(read(keys, committed.tag, committed.state))
    assert part.state == whole.state
    assert part.state is not None
    assert part.state.owners.buckets[1] is committed.state.owners.buckets[1]


def test_reports_that_are_known_are_those_that_stand(store: Store, keys: GroupKeys) -> None:
    reports: Reports = {}

    def told() -> dict[str, MemberFacts]:
        found = store.run(read(keys, reports=reports)).facts.members
        assert store.run(read(keys)).facts.members == found
        return {member.name: member for member in found}

    store.run(join(keys, facts("a"), TERMS))
    store.run(join(keys, facts("b", B), TERMS))
    before = told()
    beaten(store, keys, facts("b", B, stalled=True))
    after = told()
    assert after["a"] == before["a"]
    assert after["b"].stalled
    assert after["b"].expires > before["b"].expires
    store.run(leave(keys, "b", B))
    assert [*told()] == ["a"]
    assert [*reports] == [b"a"]


@pytest.mark.parametrize("known", ["1:1", "7:7", "-"])
def test_a_known_decision_that_redis_has_lost_is_no_base(
    store: Store, keys: GroupKeys, known: str
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    committed = step(store, keys)
    assert isinstance(committed, Committed)
    moved(store, keys, 2)
    other = replace(committed.state, owners=Column(["x"] * 4))
    assert store.run(read(keys, known, other)).state == store.run(read(keys)).state


def test_tokens_come_back_exactly(store: Store, keys: GroupKeys) -> None:
    # Lua's JSON writes 14 digits; a token has 16.
    store.run(join(keys, facts("a"), TERMS))
    step(store, keys)
    view = beaten(store, keys, facts("a")).view
    state = store.run(read(keys)).state
    assert view is not None
    assert state is not None
    assert tuple(view.held.values()) == state.tokens
    assert len(str(state.tokens[0])) == 16


def test_reports_come_back_as_they_were_given(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a"), TERMS))
    told = facts(
        "a",
        weight=2.5,
        leaving=12.5,
        stalled=True,
        released={3: 1_700_000_000_000_123},
        drained={1: 7},
        lags={2: 0.5},
        claims={0: 9},
    )
    beaten(store, keys, told)
    [found] = store.run(read(keys)).facts.members
    assert replace(found, joined=0, expires=0.0) == told
    assert found.joined == 1


def test_a_session_that_is_gone_is_told_so(store: Store, keys: GroupKeys) -> None:
    assert store.run(beat(keys, facts("a"), 1.0)) is None
    store.run(join(keys, facts("a"), TERMS))
    assert store.run(beat(keys, facts("a", B), 1.0)) is None


def test_a_renewal_brings_the_terms_if_they_are_others(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a"), TERMS))
    for known, told in ((TERMS, None), (replace(TERMS, partitions=5), TERMS)):
        found = store.run(beat(keys, facts("a"), TERMS.ttl, terms=known))
        assert found is not None
        assert found.terms == told


def test_an_ended_lease_is_not_renewed(store: Store, keys: GroupKeys) -> None:
    expired(store, keys, facts("a"))
    assert store.run(beat(keys, facts("a"), 1000.0)) is None


def seconds_left(store: Store, keys: GroupKeys) -> float:
    """How long the lease of the one member lasts."""
    facts = store.run(read(keys)).facts
    return facts.members[0].expires - facts.now


def test_a_renewal_that_comes_after_a_later_one_changes_nothing(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a", lease=1.0), replace(TERMS, ttl=1.0)))
    later = facts("a", turn=1, lease=TERMS.ttl, seen=0, stalled=True)
    store.run(beat(keys, later, TERMS.ttl))
    assert store.run(beat(keys, facts("a", lease=1.0), 1.0)) is not None
    assert seconds_left(store, keys) > 900
    (member,) = store.run(read(keys)).facts.members
    assert (member.turn, member.stalled) == (1, True)


def test_a_join_that_comes_after_a_renewal_shortens_no_lease(store: Store, keys: GroupKeys) -> None:
    short = replace(TERMS, ttl=1.0)
    store.run(join(keys, facts("a", lease=1.0), short))
    store.run(beat(keys, facts("a", turn=1, lease=TERMS.ttl), TERMS.ttl))
    assert isinstance(store.run(join(keys, facts("a", lease=1.0), short)), Joined)
    assert seconds_left(store, keys) > 900


def test_a_lease_is_as_long_as_its_member_may_count_on_when_the_ttl_is_lowered(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a", lease=TERMS.ttl), TERMS))
    store.run(beat(keys, facts("a", turn=1, lease=TERMS.ttl), 1.0))
    assert seconds_left(store, keys) > 900
    for _ in range(2):
        # The member counts on the shorter one alone since some time.
        store.run(beat(keys, facts("a", turn=1, lease=1.0), 1.0))
    assert seconds_left(store, keys) <= 1


def test_a_lease_is_renewed_by_a_clock_that_stepped_back(keys: GroupKeys) -> None:
    clock = [5000.0]
    store = MemoryStore(MemoryServer(lambda: clock[0]))
    store.run(join(keys, facts("a", lease=TERMS.ttl), TERMS))
    clock[0] -= 100
    store.run(beat(keys, facts("a", lease=TERMS.ttl), TERMS.ttl))
    assert seconds_left(store, keys) == TERMS.ttl


@pytest.mark.parametrize("step_back", [0.0, 50.0])
def test_a_lease_that_ends_is_noticed_though_the_clock_stepped_back(
    keys: GroupKeys, step_back: float
) -> None:
    clock = [5000.0]
    store = MemoryStore(MemoryServer(lambda: clock[0]))
    for name, session, ttl in (("a", A, 1000.0), ("b", B, 10.0)):
        store.run(join(keys, facts(name, session), replace(TERMS, ttl=ttl)))
    step(store, keys)
    clock[0] -= step_back
    store.run(beat(keys, facts("b", B), 10.0))
    assert not beaten(store, keys, facts("a")).due
    # Nobody looks before the clock shows again what it showed at the last step.
    clock[0] += step_back + 10
    assert beaten(store, keys, facts("a")).due
    step(store, keys)
    assert beaten(store, keys, facts("a")).due is False
    assert [m.name for m in store.run(read(keys)).facts.members] == ["a"]


@pytest.mark.parametrize("program", servers().values(), ids=servers().keys())
def test_a_server_that_is_full_renews_the_leases_that_stand(keys: GroupKeys, program: Path) -> None:
    with (
        RedisServer(program) as server,
        Redis(unix_socket_path=str(server.socket)) as client,
        closing(RedisStore(client, PATIENCE)) as found,
    ):
        found.run(join(keys, facts("a"), replace(TERMS, ttl=100.0)))
        client.config_set("maxmemory", 1)
        assert beaten(found, keys, facts("a")).view is not None
        assert seconds_left(found, keys) > 900


def test_a_member_that_knows_more_than_redis_has_to_join_anew(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    step(store, keys)
    assert store.run(beat(keys, facts("a", seen=2), 1000.0)) is None


def test_loads_are_reported_and_make_no_step_due(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a"), TERMS))
    step(store, keys)
    beaten(store, keys, facts("a", seen=1))
    assert not beaten(store, keys, facts("a", seen=1, loads={0: 2.5, 3: 0.0})).due
    assert not beaten(store, keys, facts("a", seen=1, loads={0: 3.5})).due
    assert store.run(read(keys)).facts.members[0].loads == {0: 3.5}
    assert beaten(store, keys, facts("a", seen=1, loads={0: 3.5}, stalled=True)).due


def test_of_two_decisions_on_one_reading_the_first_stands(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a"), TERMS))
    reading = store.run(read(keys))
    state = reading.standing()
    assert state is not None
    outcome = next_state.step(state, reading.facts, BalancedAssignor())
    assert isinstance(store.run(commit(keys, reading, outcome, "first")), Committed)
    assert store.run(commit(keys, reading, outcome, "second")) == Conflict(left=False)


@pytest.mark.parametrize("again", [True, False], ids=["joined again", "empty"])
@pytest.mark.parametrize("decided", [True, False], ids=["decided", "first"])
def test_a_decision_on_what_redis_has_lost_does_not_stand(
    place: Place, keys: GroupKeys, again: bool, decided: bool
) -> None:
    store = place.store
    store.run(join(keys, facts("a"), TERMS))
    if decided:
        step(store, keys)
        store.run(join(keys, facts("b", B), TERMS))
    reading = store.run(read(keys))
    state = reading.standing()
    assert state is not None
    outcome = next_state.step(state, reading.facts, BalancedAssignor())
    assert outcome.state is not state
    place.wipe()
    if again:
        store.run(join(keys, facts("c", B), TERMS))
    assert isinstance(store.run(commit(keys, reading, outcome, "test")), Conflict)
    assert store.run(read(keys)).state is None


def test_a_decider_that_knows_a_group_without_a_decision_writes_the_first_one_whole(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    reading = store.run(read(keys))
    state = reading.standing()
    assert state is not None
    nothing = next_state.StepOutcome(state, (), None)
    found = store.run(commit(keys, reading, nothing, "test"))
    assert isinstance(found, Committed)
    assert (found.tag, found.state) == (reading.tag, state)
    again = store.run(read(keys, found.tag, found.state))
    assert again.state is None
    outcome = next_state.step(state, again.facts, BalancedAssignor())
    done = store.run(commit(keys, again, outcome, "test"))
    assert isinstance(done, Committed)
    assert store.run(read(keys)).state == done.state
    assert store.run(read(keys, found.tag, found.state)).state == done.state


def dismissal(reading: Reading) -> next_state.StepOutcome:
    """As if another server had been read: each member has to tell what it holds."""
    state = reading.standing()
    assert state is not None
    elsewhere = replace(reading.facts, server=reading.facts.server + "0")
    return next_state.step(replace(state, server="1"), elsewhere, BalancedAssignor())


def test_a_dismissed_member_has_to_join_anew(store: Store, keys: GroupKeys) -> None:
    member = facts("a")
    store.run(join(keys, member, TERMS))
    step(store, keys)
    store.run(join(keys, facts("b", B), TERMS))
    reading = store.run(read(keys))
    outcome = dismissal(reading)
    assert outcome.dismissed == (("a", A), ("b", B))
    assert isinstance(store.run(commit(keys, reading, outcome, "test")), Committed)
    assert store.run(read(keys)).facts.members == ()
    assert store.run(beat(keys, member, TERMS.ttl)) is None


def test_dismissed_members_are_told(store: Store, keys: GroupKeys) -> None:
    names = "abcdef"
    for name in names:
        store.run(join(keys, facts(name), TERMS))
    step(store, keys)
    reading = store.run(read(keys))
    with contextlib.closing(listening(store, keys, *names)) as subscription:
        done = store.run(commit(keys, reading, dismissal(reading), "test"))
        assert isinstance(done, Committed)
        messages = [subscription.wait(PATIENCE) for _ in names]
    assert {m.channel for m in messages if isinstance(m, Message)} == {
        keys.member_channel(name) for name in names
    }


def test_a_decision_on_what_another_run_of_redis_said_does_not_stand(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    reading = store.run(read(keys))
    assert reading.server == reading.facts.server != ""
    state = reading.standing()
    assert state is not None
    outcome = next_state.step(state, reading.facts, BalancedAssignor())
    other = replace(reading, facts=replace(reading.facts, server="0123456789abcdef"))
    assert isinstance(store.run(commit(keys, other, outcome, "test")), Conflict)
    assert isinstance(store.run(commit(keys, reading, outcome, "test")), Committed)


@pytest.mark.parametrize("program", servers().values(), ids=servers().keys())
def test_where_info_is_refused_nobody_joins_or_decides_but_all_may_look(
    keys: GroupKeys, program: Path
) -> None:
    with (
        RedisServer(program) as server,
        Redis(unix_socket_path=str(server.socket)) as client,
        closing(RedisStore(client, PATIENCE)) as found,
    ):
        found.run(join(keys, facts("a"), TERMS))
        client.execute_command("ACL", "SETUSER", "default", "-info")
        with pytest.raises(PermissionDenied, match=r"documentation: reference/redis-layout"):
            found.run(join(keys, facts("b", B), TERMS))
        with pytest.raises(PermissionDenied):
            step(found, keys)
        reading = found.run(read(keys))
        assert [member.name for member in reading.facts.members] == ["a"]
        assert (reading.state, reading.facts.server) == (None, "")


def test_a_fact_that_changes_between_reading_and_decision_makes_the_next_step_due(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    reading = store.run(read(keys))
    store.run(join(keys, facts("b", B), TERMS))
    state = reading.standing()
    assert state is not None
    outcome = next_state.step(state, reading.facts, BalancedAssignor())
    done = store.run(commit(keys, reading, outcome, "test"))
    assert isinstance(done, Committed)
    assert done.again
    assert beaten(store, keys, facts("b", B)).due


def test_a_step_is_asked_of_one_member_at_a_time(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a"), TERMS))
    step(store, keys)
    assert is_due(store, keys, "b")
    assert not beaten(store, keys, facts("a", seen=1)).due
    assert not beaten(store, keys, facts("b", B, stalled=True)).due


@pytest.mark.parametrize("words", ["released", "drained"])
def test_a_word_that_is_given_asks_for_a_step_and_one_that_is_taken_back_for_none(
    store: Store, keys: GroupKeys, words: str
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    step(store, keys)
    assert beaten(store, keys, facts("a", **{words: {3: 17}})).due
    step(store, keys)
    assert not beaten(store, keys, facts("a")).due
    assert beaten(store, keys, facts("a", stalled=True)).due


LATER = replace(TERMS, rebalance_delay=500.0)


def holding_down(store: Store, keys: GroupKeys) -> None:
    """Of three members the last has joined, and the delay of 500 s has begun."""
    for number, name in enumerate("abc"):
        store.run(join(keys, facts(name), LATER))
        if number != 1:
            step(store, keys)


def test_a_few_members_wait_for_the_next_step_and_no_more(store: Store, keys: GroupKeys) -> None:
    holding_down(store, keys)
    waits = [beaten(store, keys, facts(name)).wait for name in "abcabc"]
    assert [wait is not None for wait in waits] == [True, True, True, False, False, False]
    assert all(wait is not None and 400 < wait <= 500 for wait in waits[:WATCHERS])


def test_the_next_decision_makes_others_wait(store: Store, keys: GroupKeys) -> None:
    holding_down(store, keys)
    for _ in range(WATCHERS):
        assert beaten(store, keys, facts("a")).wait is not None
    assert beaten(store, keys, facts("a")).wait is None
    # A member that is to leave makes a time of its own: that of the end of its patience.
    reading = store.run(read(keys))
    outcome = replace(
        next_state.step(reading.standing(), reading.facts, BalancedAssignor()), due=1e12
    )  # type: ignore[arg-type]
    store.run(commit(keys, reading, outcome, "test"))
    waits = [beaten(store, keys, facts("a")).wait for _ in range(WATCHERS + 1)]
    assert [wait is not None for wait in waits] == [True] * WATCHERS + [False]


def test_nobody_waits_when_no_step_is_due(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a"), TERMS))
    step(store, keys)
    assert beaten(store, keys, facts("a")).wait is None


def test_who_asks_shortly_before_the_time_waits_for_it_in_any_case(
    store: Store, keys: GroupKeys
) -> None:
    # A clock that runs a little fast brings a member too early; it must not sleep on.
    holding_down(store, keys)
    reading = store.run(read(keys))
    soon = reading.facts.now + 30.0
    outcome = replace(
        next_state.step(reading.standing(), reading.facts, BalancedAssignor()), due=soon
    )  # type: ignore[arg-type]
    store.run(commit(keys, reading, outcome, "test"))
    asks = beat(keys, facts("a"), TERMS.ttl)
    within = replace(asks, arguments=(*asks.arguments[:6], 60.0, *asks.arguments[7:]))
    waits = [store.run(within) for _ in range(2 * WATCHERS)]
    assert all(found is not None and found.wait is not None for found in waits)


@pytest.mark.parametrize(("stays", "told"), [(True, frozenset()), (False, frozenset("bc"))])
def test_a_decision_of_one_that_does_not_stay_is_told_to_two_that_do(
    store: Store, keys: GroupKeys, stays: bool, told: frozenset[str]
) -> None:
    holding_down(store, keys)
    reading = store.run(read(keys))
    state = reading.standing()
    assert state is not None
    # A decision that changes nobody's view, and that is to be followed by another.
    outcome = next_state.StepOutcome(
        replace(state, generation=state.generation + 1), (), reading.facts.now + 500
    )
    subscription = listening(store, keys, *"abc")
    with contextlib.closing(subscription):
        committed = store.run(commit(keys, reading, outcome, "a", stays=stays))
        assert isinstance(committed, Committed)
        # What is sent later comes later: a step that is asked of the first member.
        step(store, keys, "a", goes_on=True)
        store.run(join(keys, facts("d", B), LATER))
        messages = [subscription.wait(PATIENCE)]
        while messages[-1] is not None and messages[-1].payload != STEP:  # type: ignore[union-attr]
            messages.append(subscription.wait(PATIENCE))
    tag = committed.tag.encode()
    to = {m.channel for m in messages if isinstance(m, Message) and m.payload == tag}
    assert to == {keys.member_channel(name) for name in told}


def test_a_renewal_without_news_writes_no_report(
    own_store: RedisStore, own_redis: Redis, keys: GroupKeys
) -> None:
    own_store.run(join(keys, facts("a"), TERMS))
    step(own_store, keys)
    written = []
    for seen in (1, 1, 0):
        own_redis.config_resetstat()
        beaten(own_store, keys, facts("a", seen=seen))
        stats = own_redis.info("commandstats")
        written.append(stats.get("cmdstat_hset", {"calls": 0})["calls"])  # type: ignore[union-attr]
    assert written[0] == written[2] == written[1] + 1


def test_a_lease_that_ends_makes_one_step_due(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a"), TERMS))
    store.run(join(keys, facts("b", B), TERMS))
    step(store, keys)
    assert not beaten(store, keys, facts("a")).due
    store.run(beat(keys, facts("b", B), 1e-6))
    assert beaten(store, keys, facts("a")).due
    step(store, keys)
    assert not beaten(store, keys, facts("a")).due


def test_a_view_for_an_earlier_session_is_none_of_the_next_ones(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    reading = store.run(read(keys))
    store.run(leave(keys, "a", A))
    store.run(join(keys, facts("a", B), TERMS))
    state = reading.standing()
    assert state is not None
    # Decided for the session that has left meanwhile.
    store.run(
        commit(keys, reading, next_state.step(state, reading.facts, BalancedAssignor()), "test")
    )
    view = beaten(store, keys, facts("a", B)).view
    assert view is not None
    assert not view.seated
    assert view.held == {}


def test_who_leaves_is_gone_at_once(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a"), TERMS))
    assert not store.run(leave(keys, "a", B))
    assert store.run(leave(keys, "a", A))
    assert not store.run(leave(keys, "a", A))
    assert store.run(read(keys)).facts.members == ()


def test_a_member_is_removed_by_hand_without_its_session(store: Store, keys: GroupKeys) -> None:
    assert not store.run(leave(keys, "a"))
    store.run(join(keys, facts("a"), TERMS))
    assert store.run(leave(keys, "a"))
    assert not store.run(leave(keys, "a"))


def test_members_whose_lease_has_ended_are_forgotten_with_the_decision(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    expired(store, keys, facts("b", B))
    step(store, keys)
    assert [member.name for member in store.run(read(keys)).facts.members] == ["a"]


def test_nothing_is_left_of_what_an_expired_member_was_told(
    real: RealPlace, keys: GroupKeys
) -> None:
    store = real.store
    store.run(join(keys, facts("a"), TERMS))
    store.run(join(keys, facts("b", B), TERMS))
    step(store, keys)
    assert set(real.client.hkeys(keys.views)) == {b"a", b"b"}
    store.run(beat(keys, facts("b", B), 1e-6))
    step(store, keys)
    assert set(real.client.hkeys(keys.views)) == {b"a"}


def test_nothing_is_left_of_what_a_member_was_told_that_left_during_the_decision(
    real: RealPlace, keys: GroupKeys
) -> None:
    store = real.store
    store.run(join(keys, facts("a"), TERMS))
    store.run(join(keys, facts("b", B), TERMS))
    reading = store.run(read(keys))
    state = reading.standing()
    assert state is not None
    store.run(leave(keys, "b", B))
    outcome = next_state.step(state, reading.facts, BalancedAssignor())
    store.run(commit(keys, reading, outcome, "test"))
    assert set(real.client.hkeys(keys.views)) == {b"a", b"b"}
    step(store, keys)
    assert set(real.client.hkeys(keys.views)) == {b"a"}


def test_a_decision_is_told_to_the_members_it_concerns_and_to_those_who_watch(
    store: Store, keys: GroupKeys
) -> None:
    channels = keys.channel, keys.member_channel("a"), keys.member_channel("b")
    with contextlib.closing(store.subscribe(*channels)) as subscription:
        for _ in channels:
            assert isinstance(subscription.wait(PATIENCE), Subscribed)
        for name in "ab":
            store.run(join(keys, facts(name), TERMS))
            step(store, keys)
        found = [subscription.wait(PATIENCE) for _ in range(5)]
    assert all(isinstance(message, Message) for message in found)
    # The second member joins. The decision asks the first to let go: each gets one message of it.
    to = [message.channel for message in found if isinstance(message, Message)]
    assert to[:2] == [channels[0], channels[1]]
    assert sorted(to[2:]) == sorted(channels)
    assert found[4].payload.decode() == store.run(read(keys)).tag  # type: ignore[union-attr]


def test_a_renewal_that_is_to_take_the_next_step_brings_what_it_goes_by(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    known = step(store, keys)
    assert isinstance(known, Committed)
    assert renewed(store, keys, facts("a"), known.tag).brought is None
    told = renewed(store, keys, facts("a", stalled=True), known.tag)
    assert told.due
    assert told.brought is not None
    brought, whole = told.brought.reading(known.state, {}), store.run(read(keys))
    assert replace(brought, facts=replace(brought.facts, now=whole.facts.now)) == whole
    assert isinstance(store.run(commit(keys, brought, outcome_of(brought), "a")), Committed)


@pytest.mark.parametrize("known", ["", "1:1"])
def test_a_renewal_brings_nothing_for_a_decision_that_is_not_known(
    store: Store, keys: GroupKeys, known: str
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    step(store, keys)
    told = renewed(store, keys, facts("a", stalled=True), known)
    assert (told.due, told.brought) == (True, None)


def renewed(store: Store, keys: GroupKeys, member: MemberFacts, decided: str) -> Beat:
    found = store.run(beat(keys, member, TERMS.ttl, decided=decided))
    assert found is not None
    return found


def outcome_of(reading: Reading) -> next_state.StepOutcome:
    state = reading.standing()
    assert state is not None
    return next_state.step(state, reading.facts, BalancedAssignor())


@pytest.mark.parametrize(("goes_on", "told"), [(True, "b"), (False, "ab")])
def test_a_member_whose_decider_decides_gets_the_answer_and_no_message(
    store: Store, keys: GroupKeys, goes_on: bool, told: str
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    before = step(store, keys, "a")
    store.run(join(keys, facts("b", B), TERMS))
    with contextlib.closing(listening(store, keys, *"ab")) as subscription:
        after = step(store, keys, "a", goes_on=goes_on)
        assert isinstance(after, Committed)
        # What is sent later comes later: the other leaves, and the first is asked for a step.
        store.run(leave(keys, "b", B))
        messages = [subscription.wait(PATIENCE)]
        while messages[-1] is not None and messages[-1].payload != STEP:  # type: ignore[union-attr]
            messages.append(subscription.wait(PATIENCE))
    assert isinstance(before, Committed)
    assert after.own == changed_views(before.state, after.state)["a"]
    to = {m.channel for m in messages if isinstance(m, Message) and m.payload != STEP}
    assert to == {keys.member_channel(name) for name in told}


# --- whose the next step is -----------------------------------------------------------------------


def listening(store: Store, keys: GroupKeys, *members: str) -> Subscription:
    subscription = store.subscribe(*map(keys.member_channel, members))
    for _ in members:
        assert isinstance(subscription.wait(PATIENCE), Subscribed)
    return subscription


def decided_by(store: Store, keys: GroupKeys, member: str) -> None:
    """A group of that member, which took the last step."""
    joined = store.run(join(keys, facts(member), TERMS))
    assert isinstance(joined, Joined)
    assert joined.due
    step(store, keys, member, goes_on=True)


def is_due(store: Store, keys: GroupKeys, member: str) -> bool:
    """Whether a member that joins is to take the next step."""
    joined = store.run(join(keys, facts(member, B), TERMS))
    assert isinstance(joined, Joined)
    return joined.due


def test_a_step_is_left_to_the_member_that_took_the_last(store: Store, keys: GroupKeys) -> None:
    decided_by(store, keys, "a")
    with contextlib.closing(listening(store, keys, "a")) as subscription:
        assert not is_due(store, keys, "b")
        message = subscription.wait(PATIENCE)
    assert isinstance(message, Message)
    assert message.payload == STEP
    # It is at work on it.
    assert not is_due(store, keys, "c")


def test_a_step_is_not_left_to_a_member_that_receives_no_messages(
    store: Store, keys: GroupKeys
) -> None:
    decided_by(store, keys, "a")
    assert is_due(store, keys, "b")


def test_a_step_is_not_left_to_a_member_that_has_left(store: Store, keys: GroupKeys) -> None:
    decided_by(store, keys, "a")
    with contextlib.closing(listening(store, keys, "a")):
        store.run(leave(keys, "a", A))
        assert is_due(store, keys, "b")


def test_a_step_is_not_left_to_a_member_whose_lease_has_ended(
    store: Store, keys: GroupKeys
) -> None:
    decided_by(store, keys, "a")
    store.run(beat(keys, facts("a", seen=1), 1e-6))
    with contextlib.closing(listening(store, keys, "a")):
        assert is_due(store, keys, "b")


def test_a_step_is_not_left_to_a_later_session_of_that_name(store: Store, keys: GroupKeys) -> None:
    decided_by(store, keys, "a")
    store.run(leave(keys, "a", A))
    with contextlib.closing(listening(store, keys, "a")):
        store.run(with_claim(join(keys, facts("a", B), TERMS), 0.0))
        step(store, keys)
        assert is_due(store, keys, "b")


def test_a_step_that_was_left_to_a_member_and_not_taken_is_taken_by_another(
    store: Store, keys: GroupKeys
) -> None:
    decided_by(store, keys, "a")
    with contextlib.closing(listening(store, keys, "a")):
        joined = store.run(with_claim(join(keys, facts("b", B), TERMS), 1e-6))
        assert isinstance(joined, Joined)
        assert not joined.due
        assert beaten(store, keys, facts("b", B)).due


def test_a_report_of_a_shorter_lease_asks_for_no_step(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a", lease=2 * TERMS.ttl), TERMS))
    step(store, keys)
    told = beaten(store, keys, facts("a", turn=1, lease=TERMS.ttl))
    assert (told.due, told.left) == (False, False)


@pytest.mark.parametrize("leases", [(2.0, 1.0), (1.0, 2.0)])
def test_a_lease_gets_no_shorter_than_its_member_may_have_had_it_lately(
    store: Store, keys: GroupKeys, leases: tuple[float, float]
) -> None:
    before, after = (factor * TERMS.ttl for factor in leases)
    store.run(join(keys, facts("a", lease=before), TERMS))
    store.run(beat(keys, facts("a", lease=before), 2 * TERMS.ttl))
    [longer] = store.run(read(keys)).facts.members
    store.run(beat(keys, facts("a", turn=1, lease=after), TERMS.ttl))
    [found] = store.run(read(keys)).facts.members
    assert found.expires == longer.expires


def due_to_last(store: Store, keys: GroupKeys, member: str, seconds: float) -> bool:
    """Whether a member that leaves steps to the others for so long is to take the next one."""
    found = store.run(beat(keys, facts(member), TERMS.ttl, others_first=seconds))
    assert found is not None
    return found.due


def test_a_step_that_nobody_took_is_left_to_the_others_for_a_while(
    store: Store, keys: GroupKeys
) -> None:
    decided_by(store, keys, "a")
    store.run(with_claim(join(keys, facts("b", B), TERMS), 1e-6))
    assert not due_to_last(store, keys, "a", TERMS.ttl)
    assert due_to_last(store, keys, "a", 1e-6)


def test_a_lease_that_ended_is_left_to_the_others_for_a_while(
    store: Store, keys: GroupKeys
) -> None:
    decided_by(store, keys, "a")
    store.run(join(keys, facts("b", B), TERMS))
    step(store, keys, "a", goes_on=True)
    store.run(beat(keys, facts("b", B), 1e-6))
    assert not due_to_last(store, keys, "a", TERMS.ttl)
    assert due_to_last(store, keys, "a", 1e-6)


def test_a_report_that_asks_for_a_step_says_that_it_was_left_to_another(
    store: Store, keys: GroupKeys
) -> None:
    decided_by(store, keys, "a")
    is_due(store, keys, "b")
    step(store, keys, "a", goes_on=True)
    with contextlib.closing(listening(store, keys, "a")):
        assert not beaten(store, keys, facts("b", B)).left
        told = beaten(store, keys, facts("b", B, stalled=True))
        assert (told.due, told.left) == (False, True)


def test_a_conflict_with_a_member_that_is_at_work_leaves_the_step_to_it(
    store: Store, keys: GroupKeys
) -> None:
    decided_by(store, keys, "a")
    store.run(join(keys, facts("b", B), TERMS))
    reading = store.run(read(keys))
    state = reading.standing()
    assert state is not None
    outcome = next_state.step(state, reading.facts, BalancedAssignor())
    step(store, keys, "a", goes_on=True)
    store.run(join(keys, facts("c", "c" * 16), TERMS))
    assert store.run(commit(keys, reading, outcome, "b")) == Conflict(left=True)
    assert store.run(commit(keys, reading, outcome, "c")) == Conflict(left=False)


@pytest.mark.parametrize("decider", ["a", "b"])
def test_a_leave_asks_a_member_that_stays_for_the_next_step(
    store: Store, keys: GroupKeys, decider: str
) -> None:
    # The one that decided last; if it is the one that leaves, another.
    sessions = {name: name * 16 for name in "abc"}
    for name, session in sessions.items():
        store.run(join(keys, facts(name, session), TERMS))
    step(store, keys, decider, goes_on=True)
    with contextlib.closing(listening(store, keys, "a", "b")) as subscription:
        asks = with_claim(leave(keys, "b", sessions["b"]), 1000.0)
        assert store.run(asks) == Left(due=False)
        message = subscription.wait(PATIENCE)
    assert isinstance(message, Message)
    assert (message.channel, message.payload) == (keys.member_channel("a"), STEP)
    # It is at work on it: the next that leaves asks nobody, and takes no step itself.
    assert store.run(leave(keys, "c", sessions["c"])) == Left(due=False)


def test_one_that_leaves_takes_the_next_step_if_nobody_else_can_be_asked(
    store: Store, keys: GroupKeys
) -> None:
    decided_by(store, keys, "a")
    store.run(join(keys, facts("b", B), TERMS))
    step(store, keys, "b", goes_on=True)
    assert store.run(leave(keys, "b", B)) == Left(due=True)
    assert store.run(leave(keys, "a", A)) == Left(due=True)
    # Its claim is not in the way of the next one.
    assert is_due(store, keys, "c")


def test_a_leave_does_not_ask_a_member_that_was_asked_before_and_did_nothing(
    store: Store, keys: GroupKeys
) -> None:
    decided_by(store, keys, "a")
    store.run(join(keys, facts("b", B), TERMS))
    step(store, keys, "a", goes_on=True)
    with contextlib.closing(listening(store, keys, "a")):
        store.run(with_claim(join(keys, facts("c", "c" * 16), TERMS), 1e-6))
        assert store.run(leave(keys, "b", B)) == Left(due=True)


def with_claim(command: Command[T], seconds: float) -> Command[T]:
    """A join, or a departure, whose claim of the next step lasts that long."""
    return replace(command, arguments=(*command.arguments[:-1], seconds))


def test_the_terms_are_read_alone(store: Store, keys: GroupKeys) -> None:
    assert store.run(agreed(keys)) is None
    store.run(join(keys, facts("a"), TERMS))
    assert store.run(agreed(keys)) == TERMS


def test_a_group_is_bounded_in_what_it_leaves_behind(store: Store, keys: GroupKeys) -> None:
    for number in range(30):
        session = f"{number:016x}"
        store.run(join(keys, facts(f"m{number}", session), TERMS))
        step(store, keys)
        store.run(leave(keys, f"m{number}", session))
    step(store, keys)
    reading = store.run(read(keys))
    assert reading.facts.members == ()
    assert reading.state is not None
    assert reading.state.roster == {}


def ordered(store: Store, keys: GroupKeys, order: Callable[..., next_state.StepOutcome]) -> None:
    run_flow(store.run, change("orders", keys, "ops", order))


def test_a_group_is_bounded_in_what_it_leaves_behind_of_orders(
    store: Store, keys: GroupKeys
) -> None:
    for number in range(30):
        name, session = f"host:{number}:0a1b2c", f"{number:016x}"
        store.run(join(keys, facts(name, session), TERMS))
        step(store, keys)
        if number % 2:
            ordered(store, keys, lambda s, now, m=name: drain(s, m, now, "ops", force=True))
        ordered(store, keys, lambda s, now, m=name: weigh(s, m, 2.0, now, "ops"))
        store.run(leave(keys, name, session))
    step(store, keys)
    state = store.run(read(keys)).state
    assert state is not None
    assert (state.roster, state.orders) == ({}, {})


def test_nothing_is_left_of_partitions_that_are_no_more(
    keys: GroupKeys, own_redis: Redis, own_store: RedisStore
) -> None:
    own_store.run(join(keys, facts("a"), replace(TERMS, partitions=200)))
    step(own_store, keys)
    ordered(own_store, keys, lambda state, now: group_orders.resize(state, 10))
    state = own_store.run(read(keys)).standing()
    assert state is not None
    drained = {partition: state.tokens[partition] for partition in state.draining}
    beaten(own_store, keys, facts("a", seen=state.generation, drained=drained))
    step(own_store, keys)
    state = own_store.run(read(keys)).standing()
    assert state is not None
    assert len(state.owners) == 10
    fields = {field for field in own_redis.hkeys(keys.state.decode()) if field.startswith(b"=")}
    assert fields == {f"={name}".encode() for name in dump_state(state)}


def test_an_order_takes_no_lease_that_ended_for_a_departure(store: Store, keys: GroupKeys) -> None:
    name = "host:1:0a1b2c"
    store.run(join(keys, facts("a"), TERMS))
    store.run(join(keys, facts(name, B), TERMS))
    step(store, keys)
    ordered(store, keys, lambda state, now: drain(state, name, now, "ops"))
    store.run(beat(keys, facts(name, B), 1e-6))
    ordered(store, keys, lambda state, now: weigh(state, "a", 2.0, now, "ops"))
    step(store, keys)
    state = store.run(read(keys)).state
    assert state is not None
    assert (state.roster.keys(), state.orders.keys()) == ({"a"}, {"a", name})


def test_a_deadline_counts_from_the_commit_and_stands_in_redis_as_a_time(
    store: Store, keys: GroupKeys
) -> None:
    store.run(join(keys, facts("a"), TERMS))
    step(store, keys)
    known = beaten(store, keys, facts("a"))
    store.run(join(keys, facts("b", B), TERMS))
    done = step(store, keys, "a", goes_on=True)
    assert isinstance(done, Committed)
    deadline = round(done.now + TERMS.max_handoff_time, 6)
    asked = beaten(store, keys, facts("a"), known)
    assert asked.view is not None
    assert done.own is not None
    assert [*asked.view.revoked.values()] == [*done.own.revoked.values()] == [deadline]
    state = store.run(read(keys)).state
    assert state == done.state
    assert [handoff.deadline for handoff in done.state.handoffs.values()] == [deadline]
    stored = store.run(replace(read(keys), read=lambda raw: raw[3]))
    assert not any(b"deadline" in text for text in stored)


def test_a_report_that_cannot_be_read_is_left_out_and_named(
    keys: GroupKeys, own_redis: Redis, own_store: RedisStore
) -> None:
    own_store.run(join(keys, facts("a"), TERMS))
    own_redis.hset(keys.members.decode(), "x", "nonsense")
    own_redis.hset(keys.members.decode(), "y", f"{A} 3 not json")
    reading = own_store.run(read(keys))
    assert [member.name for member in reading.facts.members] == ["a"]
    assert sorted(reading.garbage) == ["x", "y"]
    assert reading.facts.unreadable == ()


def test_of_a_report_that_cannot_be_read_redis_itself_has_the_session_and_the_lease(
    keys: GroupKeys,
    own_redis: Redis,
    own_store: RedisStore,
) -> None:
    own_store.run(join(keys, facts("a"), TERMS))
    own_store.run(join(keys, facts("b", B), TERMS))
    step(own_store, keys)
    (known, _) = sorted(own_store.run(read(keys)).facts.members, key=lambda m: m.name)
    for entry, session, garbage in (
        (f"{A} {known.joined} {{}}", A, ("a",)),
        ("nonsense", "", ("a",)),
        (None, "", ()),
    ):
        if entry is None:
            own_redis.hdel(keys.members.decode(), "a")
        else:
            own_redis.hset(keys.members.decode(), "a", entry)
        reading = own_store.run(read(keys))
        assert [member.name for member in reading.facts.members] == ["b"]
        (found,) = reading.facts.unreadable
        assert (found.name, found.session, found.expires) == ("a", session, known.expires)
        assert reading.garbage == garbage
        state = reading.standing()
        assert state is not None
        assert state.present(reading.facts).keys() == {"a", "b"}
        # Its part stands as well, and nobody else may have its name.
        step(own_store, keys)
        assert own_redis.hexists(keys.views.decode(), "a")
        assert isinstance(own_store.run(join(keys, facts("a", "c" * 16), TERMS)), Taken)


def test_a_name_without_a_readable_entry_is_for_the_session_that_the_decision_names(
    keys: GroupKeys,
    own_redis: Redis,
    own_store: RedisStore,
) -> None:
    own_store.run(join(keys, facts("a"), TERMS))
    step(own_store, keys)
    own_redis.hset(keys.members.decode(), "a", "nonsense")
    # One that had the name before, and one that has it.
    assert isinstance(own_store.run(join(keys, facts("a", "c" * 16), TERMS, B)), Taken)
    assert isinstance(own_store.run(join(keys, facts("a", "c" * 16), TERMS, A)), Joined)


@pytest.mark.parametrize("entry", [None, "nonsense"])
def test_a_dismissed_member_without_a_readable_entry_may_join_anew(
    keys: GroupKeys, own_redis: Redis, own_store: RedisStore, entry: str | None
) -> None:
    own_store.run(join(keys, facts("a"), TERMS))
    step(own_store, keys)
    own_redis.delete(keys.members.decode())
    if entry is not None:
        own_redis.hset(keys.members.decode(), "a", entry)
    reading = own_store.run(read(keys))
    outcome = dismissal(reading)
    assert outcome.dismissed == (("a", A),)
    assert isinstance(own_store.run(commit(keys, reading, outcome, "test")), Committed)
    assert isinstance(own_store.run(join(keys, facts("a", C), TERMS)), Taken)
    assert isinstance(own_store.run(join(keys, facts("a", C), TERMS, A)), Joined)


def test_a_part_that_somebody_wrote_into_is_read_from_the_decision_once(
    keys: GroupKeys, own_redis: Redis, own_store: RedisStore
) -> None:
    own_store.run(join(keys, facts("a"), TERMS))
    step(own_store, keys)
    known = beaten(own_store, keys, facts("a"))
    own_store.run(join(keys, facts("b", B), TERMS))
    step(own_store, keys)
    views = keys.views.decode()
    own_redis.hset(views, "a", (own_redis.hget(views, "a") or b"") + b"\nnonsense {\nnonsense {")
    lost = beaten(own_store, keys, facts("a"), known)
    assert (lost.view, lost.part) == (None, NO_PART)
    reading = own_store.run(read(keys))
    state = reading.standing()
    assert state is not None
    again = replace(lost, part=reading.tag, view=state.view("a", A))
    for _ in range(2):
        found = beaten(own_store, keys, facts("a"), again)
        assert (found.view, found.part) == (again.view, reading.tag)
    assert own_redis.hget(views, "a") == f"{A} {reading.tag}".encode()


def test_a_member_whose_part_somebody_deleted_reads_the_decision_once(
    keys: GroupKeys, own_redis: Redis, own_store: RedisStore
) -> None:
    own_store.run(join(keys, facts("a"), TERMS))
    step(own_store, keys)
    known = beaten(own_store, keys, facts("a"))
    own_store.run(join(keys, facts("b", B), TERMS))
    step(own_store, keys)
    own_redis.delete(keys.views.decode())
    lost = beaten(own_store, keys, facts("a"), known)
    assert (lost.view, lost.part) == (None, NO_PART)
    assert beaten(own_store, keys, facts("a"), lost).view is not None
    reading = own_store.run(read(keys))
    state = reading.standing()
    assert state is not None
    again = replace(lost, part=reading.tag, view=state.view("a", A))
    found = beaten(own_store, keys, facts("a"), again)
    assert (found.view, found.part) == (again.view, reading.tag)


def test_a_part_that_somebody_deleted_is_there_again_once_its_member_renews(
    keys: GroupKeys,
    own_redis: Redis,
    own_store: RedisStore,
) -> None:
    own_store.run(join(keys, facts("a"), TERMS))
    step(own_store, keys)
    known = beaten(own_store, keys, facts("a"))
    own_redis.delete(keys.views.decode())
    same = beaten(own_store, keys, facts("a"), known)
    assert (same.view, same.part) == (known.view, known.part)
    # It gets the next decision as it would have.
    own_store.run(join(keys, facts("b", B), TERMS))
    step(own_store, keys)
    state = own_store.run(read(keys)).standing()
    assert state is not None
    assert beaten(own_store, keys, facts("a"), same).view == state.view("a", A)


@pytest.mark.parametrize("key", group_keys("orders").script_keys(), ids=bytes.decode)
def test_a_key_of_another_type_is_an_error_and_nothing_is_changed(
    keys: GroupKeys, own_redis: Redis, own_store: RedisStore, key: bytes
) -> None:
    own_store.run(join(keys, facts("a"), TERMS))
    step(own_store, keys)
    own_store.run(join(keys, facts("b", B), TERMS))
    reading = own_store.run(read(keys))
    state = reading.standing()
    assert state is not None
    own_redis.delete(key)
    own_redis.set(key, "not ours")

    def stored() -> dict[bytes, object]:
        return {name: own_redis.dump(name) for name in own_redis.keys("*")}

    before = stored()
    for command in (
        join(keys, facts("c", B), TERMS),
        beat(keys, facts("a"), TERMS.ttl),
        leave(keys, "a"),
        read(keys),
        agreed(keys),
        commit(keys, reading, outcome_of(reading), "test"),
        forget(keys, reading, group_orders.forget(state, reading.facts), "test"),
    ):
        with pytest.raises(WrongKeyType):
            own_store.run(command)
    assert stored() == before


def test_a_history_of_another_type_stops_a_decision_before_it_changes_anything(
    keys: GroupKeys,
    own_redis: Redis,
    own_store: RedisStore,
) -> None:
    own_store.run(join(keys, facts("a"), TERMS))
    reading = own_store.run(read(keys))
    own_redis.set(keys.control.decode(), "somebody's text")
    before = own_redis.hgetall(keys.state.decode())
    with pytest.raises(WrongKeyType):
        own_store.run(commit(keys, reading, outcome_of(reading), "test"))
    assert own_redis.get(keys.control.decode()) == b"somebody's text"
    assert own_redis.hgetall(keys.state.decode()) == before


def test_the_history_has_the_numbers_and_phases_of_the_state(
    keys: GroupKeys, own_redis: Redis, own_store: RedisStore
) -> None:
    told = []
    for name, session in (("a", A), ("b", B), ("c", "c" * 16)):
        own_store.run(join(keys, facts(name, session), TERMS))
        step(own_store, keys)
        state = own_store.run(read(keys)).standing()
        assert state is not None
        told.append((state.generation, state.phase.value))
    found = map(read_decision, own_redis.xrange(keys.control.decode()))
    assert [(decision.generation, decision.phase) for decision in found] == told


def test_a_history_of_large_decisions_keeps_fewer_of_them(
    keys: GroupKeys, own_redis: Redis, own_store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "HISTORY_BYTES", 200_000)
    terms = replace(TERMS, partitions=200)
    # A program that fails as soon as it has its partitions, and starts again.
    for start in range(60):
        own_store.run(join(keys, facts("a", f"{start:016x}"), terms))
        step(own_store, keys)
        own_store.run(leave(keys, "a"))
    kept = own_redis.xrange(keys.control.decode())
    assert 100_000 < sum(len(entry[b"events"]) for _, entry in kept) < 300_000


# --- the texts --------------------------------------------------------------------------------


def test_a_state_survives_its_text() -> None:
    for seed in range(20):
        history = random_group_history(seed)
        world = GroupSimulator().world(history)
        world.run(history.faults_end)
        # A decision that was never text: the one that is due when everybody is gone.
        state = next_state.step(
            world.state(), Facts(world.redis_time()), assignor_named(history.terms.assignor)
        ).state.stamped(world.redis_time())
        # Which server it was read from stands beside it.
        state = replace(state, server="")
        assert state.committed is None or load_state(dump_state(state), state.committed) == state


def test_text_that_is_no_state_is_refused_by_name() -> None:
    whole = dump_state(GroupState.new(TERMS))
    for text in ("", "[]", "{}", '{"v": 1}', '{"v": 2}', whole["core"][:-9]):
        with pytest.raises(GroupFormatError, match=r"^state of the group"):
            load_state({**whole, "core": text}, 0.0)
    with pytest.raises(GroupFormatError, match="report of member 'a'"):
        load_facts("a", 1, 2.0, "{}")
    with pytest.raises(GroupFormatError, match=r"^view of the group"):
        load_view_change("[]")
    assert dump_facts(facts("a")).startswith("{")


def test_events_of_kinds_to_come_are_left_out() -> None:
    known = (GroupEvent(EventKind.GRANTED, "a", 3, why="was b's"), GroupEvent(EventKind.READY))
    text = dump_events(known)
    assert load_events(text) == known
    assert load_events(text.replace('"ready"', '"tomorrow"')) == known[:1]


def test_a_tag_that_is_none_is_refused_by_name(
    keys: GroupKeys, own_redis: Redis, own_store: RedisStore
) -> None:
    own_store.run(join(keys, facts("a"), TERMS))
    own_redis.hset(keys.state.decode(), "tag", "one:two")
    with pytest.raises(GroupFormatError, match="tag of the group is none: 'one:two'"):
        own_store.run(read(keys))
    with pytest.raises(GroupFormatError, match="tag of the group is none"):
        own_store.run(beat(keys, facts("a"), 1000.0))


def test_terms_that_cannot_be_read_are_no_matter_for_a_renewal(
    keys: GroupKeys, own_redis: Redis, own_store: RedisStore
) -> None:
    own_store.run(join(keys, facts("a"), TERMS))
    for spoil in (
        lambda: own_redis.hset(keys.state.decode(), "terms", '{"partitions": 0'),
        lambda: own_redis.hdel(keys.state.decode(), "terms"),
    ):
        spoil()
        found = own_store.run(beat(keys, facts("a"), TERMS.ttl, terms=TERMS))
        assert found is not None
        assert found.terms is None


def test_a_decision_that_is_known_is_not_read_again(store: Store, keys: GroupKeys) -> None:
    store.run(join(keys, facts("a"), TERMS))
    committed = step(store, keys)
    assert isinstance(committed, Committed)
    whole = store.run(read(keys))
    assert (whole.tag, whole.state) == (committed.tag, committed.state)
    assert store.run(read(keys, committed.tag, committed.state)).state is committed.state
    store.run(join(keys, facts("b", B), TERMS))
    step(store, keys)
    later = store.run(read(keys, committed.tag, committed.state))
    assert later.state is not None
    assert sorted(later.state.roster) == ["a", "b"]
