"""What a partition group does when the clock of Redis' machine is set back: its own goes on."""

from __future__ import annotations

import pytest
from redis import Redis

from hashring.core.assignors import BalancedAssignor
from hashring.core.groups import next_state
from hashring.core.groups.state import GroupState, MemberFacts, Terms
from hashring.errors import GroupNotEmpty
from hashring.protocol.flow import run_flow
from hashring.protocol.group.group_flows import forget
from hashring.store.group.commands import (
    NO_PART,
    Committed,
    Conflict,
    Joined,
    Taken,
    beat,
    commit,
    join,
    leave,
)
from hashring.store.group.key_names import group_keys
from hashring.store.group.reading import Reading, read
from hashring.store.memory_store import MemoryServer, MemoryStore
from hashring.store.redis_store import RedisStore
from hashring.testing.simulator.virtual_time import EPOCH
from tests.conftest import PATIENCE

KEYS = group_keys("orders")
TERMS = Terms(4, ttl=10.0, rebalance_delay=0.0)
A, B = "a" * 16, "b" * 16


def facts(name: str, session: str = A) -> MemberFacts:
    return MemberFacts(name, session, 0, 0.0)


class Group:
    """A group in a server in memory whose clock the test sets."""

    def __init__(self) -> None:
        self.clock = EPOCH
        self.server = MemoryServer(lambda: self.clock)
        self.store = MemoryStore(self.server)

    def join(self, name: str, session: str = A) -> Joined | Taken:
        return self.store.run(join(KEYS, facts(name, session), TERMS))

    def beat(self, name: str, session: str = A) -> bool:
        """Whether it is a member still."""
        asked = beat(KEYS, facts(name, session), TERMS.ttl, NO_PART, None)
        return self.store.run(asked) is not None

    def read(self) -> Reading:
        return self.store.run(read(KEYS))

    def step(self, reading: Reading | None = None) -> Committed | Conflict:
        reading = reading or self.read()
        outcome = next_state.step(standing(reading), reading.facts, BalancedAssignor())
        return self.store.run(commit(KEYS, reading, outcome, "test"))


def standing(reading: Reading) -> GroupState:
    state = reading.standing()
    assert state is not None
    return state


@pytest.fixture
def group() -> Group:
    return Group()


def test_a_groups_clock_goes_on_from_where_it_was(group: Group) -> None:
    group.join("a")
    before = group.read().facts.now
    group.clock -= 3600
    assert group.beat("a")
    assert group.read().facts.now == before
    group.clock += 4
    assert group.read().facts.now == pytest.approx(before + 4, abs=1e-5)
    group.clock += 7200
    assert group.read().facts.now == pytest.approx(before + 4 + 7200, abs=1e-5)


@pytest.mark.parametrize("does", ["join", "beat", "leave", "step", "forget"])
def test_whatever_changes_a_group_has_its_clock_go_on(group: Group, does: str) -> None:
    group.join("a")
    before = group.read().facts.now
    if does == "forget":
        group.server.drop(KEYS.leases)
    group.clock -= 3600
    if does == "join":
        group.join("b", B)
    elif does == "beat":
        group.beat("a")
    elif does == "leave":
        group.store.run(leave(KEYS, "a", A))
    elif does == "step":
        group.step()
    else:
        run_flow(group.store.run, forget("orders", KEYS, "test"))
    group.clock += 4
    assert group.read().facts.now == pytest.approx(before + 4, abs=1e-5)


def test_a_groups_clock_that_was_set_back_twice_is_ahead_by_both(group: Group) -> None:
    group.join("a")
    for _ in range(2):
        group.clock -= 3600
        assert group.beat("a")
        group.clock += 1
        assert group.beat("a")
    assert group.read().facts.now == pytest.approx(EPOCH + 2, abs=1e-5)


def test_a_crashed_member_is_gone_after_its_ttl(group: Group) -> None:
    group.join("a")
    group.join("b", B)
    group.step()
    group.clock -= 3600
    for _ in range(4):
        group.clock += 4
        assert group.beat("a")
    group.step()
    assert list(standing(group.read()).roster) == ["a"]
    assert not group.beat("b", B)


def test_a_name_is_free_after_its_ttl_though_nobody_is_left_to_renew(group: Group) -> None:
    group.join("a")
    group.clock -= 3600
    left = [group.join("a", B)]
    for _ in range(3):
        group.clock += 3
        left.append(group.join("a", B))
    assert [round(taken.expires_in) for taken in left if isinstance(taken, Taken)] == [10, 7, 4, 1]
    group.clock += 2
    assert isinstance(group.join("a", B), Joined)


def test_a_group_is_forgotten_after_the_ttl_of_its_last_member(group: Group) -> None:
    group.join("a")
    group.step()
    group.clock -= 3600
    with pytest.raises(GroupNotEmpty):
        run_flow(group.store.run, forget("orders", KEYS, "test"))
    group.clock += 11
    run_flow(group.store.run, forget("orders", KEYS, "test"))
    assert not group.read().facts.members


def test_a_decision_on_facts_of_before_is_refused(group: Group) -> None:
    group.join("a")
    group.join("b", B)
    group.step()
    group.clock += 9
    assert group.beat("a")
    group.clock += 2
    # By now the lease of b has ended.
    reading = group.read()
    group.clock -= 3600
    assert group.beat("b", B)
    assert isinstance(group.step(reading), Conflict)
    assert isinstance(group.step(), Committed)
    assert sorted(standing(group.read()).roster) == ["a", "b"]


@pytest.mark.parametrize("garbage", ["nobody wrote this", "17 -4", f"{10**18} 0", f"0 {10**18}"])
def test_a_clock_that_nobody_wrote_is_passed_over(group: Group, garbage: str) -> None:
    group.join("a")
    group.clock += 1
    group.server.edit(KEYS.state, b"clock", lambda _: garbage.encode())
    assert group.beat("a")
    assert group.read().facts.now == EPOCH + 1


def test_a_clock_is_no_group(group: Group) -> None:
    group.join("a")
    group.server.drop(KEYS.state)
    assert group.beat("a")
    assert not group.read().tag


def test_a_clock_that_is_ahead_goes_on_in_redis(redis: Redis) -> None:
    store = RedisStore(redis, PATIENCE)
    store.run(join(KEYS, facts("a"), TERMS))
    seconds, micros = redis.time()
    later = seconds + 3600 + micros / 1e6
    redis.hset(KEYS.state, "clock", f"{later * 1e6:.0f} 0")
    first = store.run(join(KEYS, facts("b", B), TERMS))
    assert isinstance(first, Joined)
    assert first.now == pytest.approx(later, abs=1e-5)
    second = store.run(beat(KEYS, facts("b", B), TERMS.ttl, NO_PART, None))
    assert second is not None
    assert later < second.now < later + 60
    store.close()
