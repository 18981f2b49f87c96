"""Random fault histories in virtual time. A failure names its seed; ``history(seed).settle()``
plays it again."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from hashring.core.assignors import (
    ASSIGNORS,
    Assignor,
    Balanced,
    Contiguous,
    Learner,
    RingOwner,
    as_assignor,
)
from hashring.core.groups import kernel, simulate, succession
from hashring.core.groups.member import Held, Membership
from hashring.core.groups.simulate import (
    ALL_FAULTS,
    FAULTS,
    Fault,
    Habits,
    History,
    Violation,
    World,
)
from hashring.core.groups.state import Facts, GroupState, Handoff, Terms

SEEDS = 40
ASSIGNOR_CHOICE: Sequence[Assignor] = (
    Balanced(),
    Contiguous(),
    Learner(),
    Learner(1.0, standbys=1),
    RingOwner(8),
)


def history(
    seed: int,
    faults: Sequence[Fault] = ALL_FAULTS,
    assignor: Assignor | None = None,
    length: int = 25,
) -> History:
    """The history of that seed, played but not settled."""
    rng = random.Random(seed)
    chosen = assignor or rng.choice(ASSIGNOR_CHOICE)
    terms = Terms(
        rng.randint(1, 12),
        chosen.name,
        ttl=rng.choice([3.0, 6.0]),
        rebalance_delay=rng.choice([0.0, 2.0, 5.0]),
        max_handoff_time=rng.choice([0.5, 2.0]),
        handoffs=rng.choice([1, 1, 3]),
        leave_timeout=rng.choice([2.0, 10.0]),
    )
    habits = Habits(
        latency=rng.choice([0.01, 0.3]),
        handoff=rng.choice([0.1, 3.0]),
        drain=rng.choice([0.1, 3.0, 20.0]),
    )
    found = History(rng, World(rng, terms, chosen, habits))
    found.play(length, rng.choice([0.5, 3.0]), faults)
    return found


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_history_has_one_owner_at_a_time_and_comes_to_rest(seed: int, name: str) -> None:
    history(seed, assignor=as_assignor(name)).settle()


@pytest.mark.parametrize("seed", range(15))
def test_the_same_seed_plays_the_same_history(seed: int) -> None:
    assert history(seed).world.events == history(seed).world.events


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@pytest.mark.parametrize("seed", range(10))
def test_no_partition_is_without_an_owner_beyond_the_bound(seed: int, name: str) -> None:
    # One crash, join or leave at a time, and always somebody left: then the bound is the lease,
    # the delay, and a renewal each for noticing the end of the lease and for hearing of the grant.
    # The end of the delay needs none: a member waits for it.
    rng = random.Random(seed)
    terms = Terms(8, name, ttl=4.0, rebalance_delay=rng.choice([0.0, 3.0]), max_handoff_time=1.0)
    habits = Habits(interval=1.0, latency=0.05)
    found = World(rng, terms, as_assignor(name), habits)
    bound = terms.ttl + terms.rebalance_delay + 2 * habits.interval + 12 * habits.latency
    for number in range(3):
        found.join(f"m{number}")
    found.run(60)
    found.longest_unowned, found.unowned = 0.0, {}
    for number in range(3, 15):
        if rng.random() < 0.5:
            found.join(f"m{number}")
        if len(found.peers) > 2:
            victim = rng.choice(found.peers)
            rng.choice([victim.crash, victim.stop])()
        found.run(bound + rng.uniform(0, 30))
    assert 0 < found.longest_unowned <= bound
    found.run(100)
    found.at_rest()


# --- the simulation can fail ------------------------------------------------------------------


def finds(faults: Sequence[Fault] = ALL_FAULTS, wanted: str = "") -> str:
    """The first violation with that text that the histories find; empty when none does."""
    for seed in range(400):
        try:
            history(seed, faults).settle()
        except Violation as violation:
            if wanted in str(violation):
                return str(violation)
    return ""


def test_planted_a_grant_that_does_not_wait_for_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(self: Any, partition: int, to: str, why: str) -> None:
        self._let_go(partition)
        self._grant(partition, to)

    monkeypatch.setattr(kernel._Step, "_ask", ask)
    assert "is held by" in finds()


def test_planted_a_deadline_that_forgets_who_has_not_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Handoff, "ends_by", lambda self, seen: self.deadline)
    assert "is held by" in finds()


def test_planted_a_lease_that_counts_from_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    heard = Membership.heard
    monkeypatch.setattr(
        Membership, "heard", lambda self, view, asked, at, now: heard(self, view, now, at, now)
    )
    assert "is held by" in finds()


def view_without_sessions(self: GroupState, member: str, session: str) -> Any:
    seat = self.roster.get(member)
    return REAL_VIEW(self, member, session if seat is None else seat.session)


REAL_VIEW = GroupState.view


def test_planted_a_name_that_two_sessions_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate._Redis, "beat", beat_without_sessions)
    monkeypatch.setattr(simulate._Redis, "join", join_without_asking)
    monkeypatch.setattr(GroupState, "view", view_without_sessions)
    monkeypatch.setattr(History, "join", join_any_name)
    faults = tuple(join_any_name if fault is FAULTS[0] else fault for fault in FAULTS)
    assert "is held by" in finds(faults)


REAL_BEAT = simulate._Redis.beat


def beat_without_sessions(self: Any, name: str, session: str, words: Any) -> Any:
    known = self.records.get(name)
    return REAL_BEAT(self, name, session if known is None else known.session, words)


def join_without_asking(self: Any, facts: Any) -> bool:
    self.joins += 1
    expires = self.clock() + self.terms.ttl
    known = self.records.get(facts.name)
    session = facts.session if known is None else known.session
    self.records[facts.name] = replace(facts, joined=self.joins, expires=expires, session=session)
    self._changed()
    return True


def join_any_name(self: History) -> None:
    self.world.join(self.rng.choice(self.names))


def test_planted_a_commit_that_does_not_compare(monkeypatch: pytest.MonkeyPatch) -> None:
    commit = simulate._Redis.commit

    def blindly(self: Any, base: Any, outcome: Any, changes: int, facts: Any) -> bool:
        return commit(self, self.state, outcome, changes, facts)

    monkeypatch.setattr(simulate._Redis, "commit", blindly)
    assert finds(FAULTS)


def test_planted_tokens_that_begin_again(monkeypatch: pytest.MonkeyPatch) -> None:
    grant = kernel._Step._grant

    def counted(self: Any, partition: int, name: str) -> None:
        now, self.now = self.now, 0.0
        grant(self, partition, name)
        self.now = now

    # A count that lives in Redis only begins again when Redis loses it.
    monkeypatch.setattr(kernel._Step, "_grant", counted)
    assert "fell to" in finds()


def test_planted_a_lost_partition_taken_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def tick(self: Membership, now: float) -> list[Any]:
        # The lease is looked at when the group answers, and not before.
        for partition, held in list(self.holding.partitions.items()):
            if now >= held.until:
                self._drop(partition)
        return []

    monkeypatch.setattr(Membership, "tick", tick)
    monkeypatch.setattr(
        "hashring.core.groups.member.Holding.token",
        lambda self, partition, now: (
            held.token if isinstance(held := self.partitions.get(partition), Held) else None
        ),
    )
    assert "is held by" in finds(FAULTS)


def test_planted_a_recovery_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    recover = kernel._Step._recover

    def hasty(self: Any) -> None:
        recover(self)
        self.recovering = None

    monkeypatch.setattr(kernel._Step, "_recover", hasty)
    assert finds()


def test_planted_a_redis_from_before_that_nobody_notices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        simulate._Redis,
        "read",
        lambda self: (self.state, Facts(self.clock(), tuple(self.records.values())), self.changes),
    )
    commit = simulate._Redis.commit

    def unchecked(self: Any, base: Any, outcome: Any, changes: int, facts: Any) -> bool:
        return commit(self, base, outcome, changes, replace(facts, server=self.server))

    monkeypatch.setattr(simulate._Redis, "commit", unchecked)
    assert finds()


def test_planted_members_that_need_not_tell_what_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    run = kernel._Step.run

    def trusting(self: Any) -> Any:
        return replace(run(self), dismissed=())

    monkeypatch.setattr(kernel._Step, "run", trusting)
    assert finds()


def test_planted_an_assignor_that_never_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    assign = Balanced.assign

    def rotating(self: Balanced, situation: Any) -> Any:
        return assign(self, replace(situation, previous=(*situation.previous[1:], None)))

    monkeypatch.setattr(Balanced, "assign", rotating)
    # It hands off while nobody comes or goes, and goes on for ever.
    assert finds(wanted="as before")
    monkeypatch.setattr(World, "check_no_handoff", lambda *_: None)
    assert "no rest" in finds()


def test_planted_a_drained_partition_that_keeps_its_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    def forget(self: Any) -> None:
        self.free &= {*range(self.terms.partitions), *self.draining}

    monkeypatch.setattr(kernel._Step, "_forget_drained", forget)
    assert "does not exist, but is" in finds()


def test_planted_a_learner_that_ignores_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hashring.core.assignors.learner._Warmth.members", lambda self, p: ())
    assert "which is cold" in finds()


def test_planted_a_member_that_answers_for_no_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Membership, "warm_at_once", lambda self: None)
    assert "no rest" in finds()


def test_planted_a_member_that_takes_nobodys_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(succession, "heirs", lambda vacant, idle: {})
    assert "as before" in finds()


def test_planted_a_member_that_is_not_told_that_it_stands_by(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Membership, "_with_activity", lambda self, changes: changes)
    assert "active=False, wrongly" in finds()


def test_planted_an_access_type_that_nobody_looks_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "rule", lambda terms, assignor: assignor)
    assert "access is exclusive, but" in finds()


# --- due times ----------------------------------------------------------------------------------


def longest_pause(seed: int, what: str, lost_notices: float = 0.0) -> float:
    """Seconds that a partition is without an owner at most, where members hardly ever renew."""
    rng = random.Random(seed)
    terms = Terms(8, "balanced", ttl=400.0, rebalance_delay=2.0, max_handoff_time=1.0, handoffs=8)
    habits = Habits(interval=100.0, latency=0.05, handoff=0.1, lost_notices=lost_notices)
    found = World(rng, terms, Balanced(), habits)
    for number in range(4):
        found.join(f"m{number}")
        found.run(500)
    found.longest_unowned, found.unowned = 0.0, {}
    if what == "stop":
        rng.choice(found.peers).stop()
    elif what == "replace":
        # Whoever began the delay goes as well, and has to leave the wait for its end to another.
        rng.choice(found.peers).stop()
        found.run(1.0)
        rng.choice(found.peers).stop()
    elif what == "hand over":
        rng.choice(found.peers).hand_over()
    found.run(20)
    found.check()
    return found.longest_unowned


@pytest.mark.parametrize("what", ["stop", "replace", "hand over"])
@pytest.mark.parametrize("seed", range(10))
def test_a_due_time_is_noticed_without_a_renewal(seed: int, what: str) -> None:
    # Of what is said within: the delay, and messages; not the 100 s between two renewals.
    assert longest_pause(seed, what) <= 2.0 + 20 * 0.05


def test_planted_a_leaver_that_leaves_the_wait_to_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "deputies", lambda facts, after, by: ())
    assert max(longest_pause(seed, "stop") for seed in range(10)) > 10.0


def test_planted_a_member_that_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate.Peer, "wait", lambda self, seconds: None)
    assert max(longest_pause(seed, "stop") for seed in range(10)) > 10.0


def leave_during_a_handoff() -> None:
    """A member begins to leave before it hears that it was asked for a partition."""
    terms = Terms(2, ttl=6.0, rebalance_delay=0.0, max_handoff_time=2.0)
    habits = Habits(interval=0.5, latency=0.01, handoff=60.0, lost_notices=1.0)
    world = World(random.Random(1), terms, Balanced(), habits)
    owner = world.join("a")
    world.run(5.0)
    world.join("b")
    while not world.redis.state.handoffs:
        world.run(0.01)
    owner.cut(1.0)
    world.run(1.0)
    owner.finish()
    world.run(20.0)
    world.at_rest()


def test_a_member_that_leaves_ends_what_it_was_asked_for_when_the_group_counts_on() -> None:
    leave_during_a_handoff()


def test_planted_a_member_that_leaves_and_does_not_hear_what_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    close = Membership.close

    def deaf(self: Membership, until: float) -> list[Any]:
        changes = close(self, until)
        held = {p: replace(each, asked=True) for p, each in self.holding.partitions.items()}
        self.holding = replace(self.holding, partitions=held)
        return changes

    monkeypatch.setattr(Membership, "close", deaf)
    with pytest.raises(Violation, match="is held by"):
        leave_during_a_handoff()
