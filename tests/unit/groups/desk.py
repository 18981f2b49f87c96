"""A group on a desk: facts and time are set by hand, every step is asked for."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hashring.core.assignors import Assignor, as_assignor
from hashring.core.groups import group_orders, member_orders, next_state
from hashring.core.groups.state import (
    EventKind,
    Facts,
    GroupEvent,
    GroupPhase,
    GroupState,
    MemberFacts,
    Terms,
)
from hashring.testing.simulator.groups.decision_rules import fault_of


class Desk:
    """A group, its members' facts, and the time; ``terms`` as for :class:`Terms`."""

    def __init__(
        self, partitions: int, assignor: str | Assignor = "balanced", **terms: Any
    ) -> None:
        self.assignor = as_assignor(assignor)
        terms = {"ttl": 100.0, "rebalance_delay": 0.0, "handoffs": 1} | terms
        self.state = GroupState.new(Terms(partitions, self.assignor.name, **terms))
        self.now = 1000.0
        self.members: dict[str, MemberFacts] = {}
        self.events: list[GroupEvent] = []
        self.due: float | None = None
        self.server = ""
        self.unreadable: set[str] = set()
        """The members whose reports cannot be read."""
        self._joins = 0

    # --- facts --------------------------------------------------------------------------------

    def join(self, *names: str, **facts: Any) -> Desk:
        """Members join, in this order, as new sessions."""
        for name in names:
            self._joins += 1
            session = f"{name}/{self._joins}"
            expires = self.now + self.state.terms.ttl
            self.members[name] = MemberFacts(name, session, self._joins, expires, **facts)
        return self

    def leave(self, *names: str) -> Desk:
        """Members are gone."""
        for name in names:
            del self.members[name]
        return self

    def set(self, name: str, **facts: Any) -> Desk:
        """A member reports something else."""
        self.members[name] = replace(self.members[name], **facts)
        return self

    def release(self, name: str, *partitions: int) -> Desk:
        """A member's word that it has let go, having seen the last decision."""
        words = {p: self.state.tokens[p] for p in partitions}
        return self.set(name, released=words, seen=self.state.generation)

    def warm(self, name: str, *partitions: int) -> Desk:
        """A member says that it is ready."""
        return self.set(name, lags=dict.fromkeys(partitions, 0.0))

    def wait(self, seconds: float) -> Desk:
        """Time passes, and every member renews its lease."""
        self.now += seconds
        for name in self.members:
            self.set(name, expires=self.now + self.state.terms.ttl)
        return self

    # --- decisions ----------------------------------------------------------------------------

    def step(self) -> Desk:
        """One step; its events replace those of the one before."""
        outcome = next_state.step(self.state, self.facts, self.assignor)
        if outcome.state is not self.state:
            assert not fault_of(self.state, outcome.state, self.facts)
            for name, session in outcome.dismissed:
                assert self.members[name].session == session
                self.leave(name)
            self.state = outcome.state.stamped(self.now)
        self.events, self.due = list(outcome.events), outcome.due
        return self

    def resize(self, partitions: int) -> Desk:
        """The count changes."""
        outcome = group_orders.resize(self.state, partitions)
        self.state = (
            outcome.state if outcome.state is self.state else outcome.state.stamped(self.now)
        )
        self.events = list(outcome.events)
        return self

    def migrate(self, **terms: Any) -> Desk:
        """The terms change."""
        outcome = group_orders.migrate(self.state, replace(self.state.terms, **terms))
        self.state, self.events = outcome.state.stamped(self.now), list(outcome.events)
        return self

    def settle(self) -> Desk:
        """Everybody does as it is asked, at once, until nothing is left to do."""
        for _ in range(10_000):
            for name in self.members:
                mine = [p for p, h in self.state.handoffs.items() if h.owner == name]
                self.release(name, *mine)
                self.warm(name, *(p for p, n in self.state.warming.items() if n == name))
            before = self.state
            self.step()
            if self.state is before:
                return self
        raise AssertionError("it never settles")

    # --- what to look at ----------------------------------------------------------------------

    @property
    def facts(self) -> Facts:
        """All facts, now."""
        read, unread = [], []
        for name, member in self.members.items():
            if name in self.unreadable:
                known = MemberFacts(name, member.session, member.joined, member.expires)
                unread.append(known)
            else:
                read.append(member)
        return Facts(self.now, tuple(read), self.server, tuple(unread))

    @property
    def phase(self) -> GroupPhase:
        """Where a rebalance stands."""
        return self.state.phase

    @property
    def having(self) -> dict[str, list[int]]:
        """What each member holds."""
        found: dict[str, list[int]] = {}
        for partition in self.state.existing:
            holder = self.state.holder(partition)
            if holder is not None:
                found.setdefault(holder, []).append(partition)
        return dict(sorted(found.items()))

    @property
    def sizes(self) -> dict[str, int]:
        """How many partitions each member holds."""
        return {name: len(partitions) for name, partitions in self.having.items()}

    @property
    def asked(self) -> dict[int, tuple[str, str]]:
        """Handoffs under way: who is asked, and for whom."""
        return {p: (h.owner, h.to) for p, h in self.state.handoffs.items()}

    def told(self, kind: EventKind) -> list[tuple[str | None, int | None]]:
        """Whom the last step's events of this kind are about."""
        return [(e.member, e.partition) for e in self.events if e.kind is kind]


def three() -> Desk:
    """Seven partitions on three members, at rest."""
    desk = Desk(7, rebalance_delay=5, max_handoff_time=3, ttl=50).join("a").step()
    return desk.join("b", "c").step().wait(5).settle()


def trouble(desk: Desk, rng: random.Random) -> None:
    """Something happens to members, perhaps to all of them; some let go of what they have."""
    going: list[dict[str, Any]] = [{"leaving": desk.now}, {"stopping": True}, {"stalled": True}, {}]
    weights = rng.choice([(1, 0, 0, 0), (3, 1, 0, 0), (1, 1, 1, 3)])
    for name in list(desk.members):
        desk.set(name, **rng.choices(going, weights)[0])
    for name in list(desk.members):
        if rng.random() < 0.3:
            desk.release(name, *desk.having.get(name, [])[: rng.randint(0, 2)])
        if rng.random() < 0.2 and len(desk.members) > 1:
            desk.leave(name)
        elif rng.random() < 0.2:
            order = member_orders.drain(desk.state, name, desk.now, "me", force=True)
            desk.state = order.state.stamped(desk.now)
        elif rng.random() < 0.2:
            desk.unreadable.add(name)
