"""A partition group in virtual time, with everything that can go wrong.

The decisions (:mod:`.kernel`) and the member's side (:mod:`.member`) are the real ones. Redis is
a few dictionaries whose commands are atomic; between asking and answer lies time, in which
others act. A fault history is a function of its random generator's seed, so a history that finds
something can be played again.

What is checked after every event, by somebody who sees all processes at once:

- no two processes count the same partition as held, not even one that is paused or cut off;
- generations rise with every decision, and tokens with every grant of a partition;
- while there are as many members as when the group was Ready, nothing is handed off;
- a member is told in turns that it is active and that it is not;
- with ``learner``, what an owner that is gone had goes to no cold member while another is warm;

and by :meth:`World.at_rest` at the end: that the group is Ready, everything is held, and what
members believe is what was decided.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from hashring.core.assignors.learner import Learner
from hashring.core.assignors.protocol import Assignor
from hashring.core.assignors.ring import RingOwner
from hashring.core.groups import kernel
from hashring.core.groups.foresight import status
from hashring.core.groups.member import Change, ChangeKind, Membership, Words
from hashring.core.groups.state import (
    EXCLUSIVE,
    NON_EXCLUSIVE,
    Event,
    EventKind,
    Facts,
    GroupState,
    MemberFacts,
    Phase,
    Terms,
    View,
    changed_views,
)

WATCHERS = 3
"""How many members Redis asks to wait for the next step."""

T = TypeVar("T")
S = TypeVar("S")


class Random(Protocol):
    """The part of :class:`random.Random` that a history needs."""

    def random(self) -> float:
        """A number ``0 <= x < 1``."""

    def uniform(self, a: float, b: float, /) -> float:
        """A number ``a <= x <= b``."""

    def choice(self, seq: Sequence[S], /) -> S:
        """One of them."""


@dataclass(frozen=True)
class Answer:
    """What a renewal learns."""

    view: View
    now: float
    due: bool
    wait: float | None


@dataclass
class _Redis:
    """The group's part of Redis. Each method is one atomic command."""

    terms: Terms
    clock: Callable[[], float]
    state: GroupState
    records: dict[str, MemberFacts] = field(default_factory=dict)
    joins: int = 0
    changes: int = 0
    due: float | None = None
    looked: float = float("-inf")
    watched: tuple[float, int] = (0.0, 0)
    server: str = "run-0"

    def copy(self) -> _Redis:
        """What a snapshot on disk holds."""
        return replace(self, records=dict(self.records))

    def _changed(self) -> None:
        self.changes += 1
        self.due = self.clock()

    def join(self, facts: MemberFacts) -> bool:
        known = self.records.get(facts.name)
        if known is not None and known.expires > self.clock() and known.session != facts.session:
            return False
        self.joins += 1
        expires = self.clock() + self.terms.ttl
        self.records[facts.name] = replace(facts, joined=self.joins, expires=expires)
        if not self.state.server:
            self.state = replace(self.state, server=self.server)
        self._changed()
        return True

    def beat(self, name: str, session: str, words: Words) -> Answer | None:
        known = self.records.get(name)
        now = self.clock()
        if known is None or known.session != session or known.expires <= now:
            return None
        if words.seen > self.state.generation:
            return None
        fresh = replace(
            known,
            seen=max(known.seen, words.seen),
            released=words.released,
            drained=words.drained,
            lags=words.lags,
            stalled=words.stalled,
            expires=now + self.terms.ttl,
        )
        if self._news(known, fresh):
            self._changed()
        self.records[name] = fresh
        due = (self.due is not None and self.due <= now) or any(
            self.looked < each.expires <= now for each in self.records.values()
        )
        return Answer(self.state.view(name, session), now, due, self._wait(now))

    @staticmethod
    def _news(known: MemberFacts, fresh: MemberFacts) -> bool:
        """Whether a report asks for a step: not if a word is only taken back."""
        return known != replace(
            fresh,
            expires=known.expires,
            seen=known.seen,
            released=fresh.released or known.released,
            drained=fresh.drained or known.drained,
        )

    def _wait(self, now: float) -> float | None:
        """Seconds after which who asks is to ask again; ``None`` when enough others do."""
        if self.due is None or self.due <= now:
            return None
        count = self.watched[1] if self.watched[0] == self.due else 0
        if count >= WATCHERS:
            return None
        self.watched = self.due, count + 1
        return self.due - now

    def want_to_leave(self, name: str, session: str) -> None:
        known = self.records.get(name)
        if known is not None and known.session == session and known.leaving is None:
            self.records[name] = replace(known, leaving=self.clock())
            self._changed()

    def leave(self, name: str, session: str) -> None:
        known = self.records.get(name)
        if known is not None and known.session == session:
            del self.records[name]
            self._changed()

    def read(self) -> tuple[GroupState, Facts, int]:
        facts = Facts(self.clock(), tuple(self.records.values()), self.server)
        return self.state, facts, self.changes

    def commit(self, base: GroupState, outcome: kernel.Outcome, changes: int, facts: Facts) -> bool:
        if (base.generation, base.committed) != (self.state.generation, self.state.committed):
            return False
        if facts.server != self.server:
            return False
        for name, session in outcome.dismissed:
            if name in self.records and self.records[name].session == session:
                del self.records[name]
        self.looked = facts.now
        # A fact that changed since it was read is still to be acted on.
        self.due = outcome.due if changes == self.changes else self.clock()
        if outcome.state is not base:
            self.state = outcome.state.stamped(self.clock())
        return True


class Violation(AssertionError):
    """An invariant that does not hold."""


def check_decision(before: GroupState, after: GroupState, facts: Facts) -> None:
    """What must hold of every decision, whatever was decided.

    Args:
        before: the state that the decision was based on.
        facts: what it was based on.

    Raises:
        Violation: naming what does not hold.
    """
    existing = set(after.existing)
    if after.generation <= before.generation:
        raise Violation(f"generation {before.generation} -> {after.generation}")
    if not existing >= after.free | after.handoffs.keys():
        raise Violation(f"free {set(after.free)} or handed off {set(after.handoffs)} of {existing}")
    if any(partition < after.terms.partitions for partition in after.draining):
        raise Violation(f"{sorted(after.draining)} drain, of {after.terms.partitions} partitions")
    claims = {(m.name, p): token for m in facts.members for p, token in m.claims.items()}
    held: dict[str, set[int]] = {}
    for partition, owner in enumerate(after.owners):
        if partition not in existing and owner is not None:
            raise Violation(f"partition {partition} does not exist, but is {owner}'s")
        if owner is None or partition in after.free:
            continue
        token = after.tokens[partition]
        held.setdefault(owner, set()).add(partition)
        if token <= 0:
            raise Violation(f"{owner} holds partition {partition} under token {token}")
        same = before.holder(partition) == owner and before.tokens[partition] == token
        if not same and token <= before.token and claims.get((owner, partition)) != token:
            raise Violation(f"{owner} is granted partition {partition} under a used token {token}")
    seen = {name: set(view.held) for name, view in after.views().items() if view.held}
    if seen != held:
        raise Violation(f"members are to hold {held}, but their views say {seen}")
    told = status(after, facts)
    shown = sorted([*told.unowned, *(p for m in told.members for p in m.partitions)])
    if shown != sorted(existing):
        raise Violation(f"partitions {sorted(existing)} exist, but the status says {shown}")
    for partition, handoff in after.handoffs.items():
        if partition not in held.get(handoff.owner, ()):
            raise Violation(f"{handoff.owner} is to hand off {partition}, and does not hold it")


@dataclass
class Habits:
    """How the processes of a history behave.

    Attributes:
        interval: seconds between renewals.
        latency: the most seconds a message takes, each way.
        handoff: the most seconds an application takes to let go; it may exceed what it is given.
        drain: the most seconds an application takes to empty a removed partition.
        warm_up: the most seconds a warm-up takes.
        lost_notices: the share of notices that never arrive.
    """

    interval: float = 1.0
    latency: float = 0.02
    handoff: float = 1.0
    drain: float = 1.0
    warm_up: float = 2.0
    lost_notices: float = 0.1


class Peer:
    """A process that is a member.

    Args:
        warms_up: whether its application hears of what to warm up for.
    """

    def __init__(self, world: World, name: str, weight: float, warms_up: bool) -> None:
        self.world = world
        self.name = name
        self.weight = weight
        self.warms_up = warms_up
        self.active = False
        self.session = world.new_session()
        self.membership = Membership(world.terms.ttl)
        self.joined = False
        self.leaving = False
        self.dead = False
        self.paused_until = 0.0
        self.cut_until = 0.0
        self._beat_at = math.inf
        self._taken_up: dict[int, int] = {}
        self._stepping = False
        self._again = False
        self._step_number = 0

    # --- talking ------------------------------------------------------------------------------

    def _soon(self, delay: float, do: Callable[[], None]) -> None:
        """Do it in this process: not while it is paused, and never once it is dead."""

        def run() -> None:
            if self.dead:
                return
            if self.world.now < self.paused_until:
                self.world.at(self.paused_until, run)
                return
            self._apply(self.membership.tick(self.world.now))
            do()

        self.world.at(self.world.now + delay, run)

    def _ask(self, command: Callable[[], T], take: Callable[[T], None]) -> None:
        world = self.world

        def arrive() -> None:
            if world.now < self.cut_until:
                return
            answer = command()
            if world.now + (back := world.delay()) >= self.cut_until:
                self._soon(back, lambda: take(answer))

        if world.now >= self.cut_until:
            world.at(world.now + world.delay(), arrive)

    # --- the loop -----------------------------------------------------------------------------

    def start(self) -> None:
        """Join, and renew for ever."""
        self._join()
        self._schedule()

    def _join(self) -> None:
        # A new session each time: an entry that was lost or has expired does not come back.
        self.joined = False
        held = self.membership
        session = self.session = self.world.new_session()
        facts = MemberFacts(
            self.name,
            session,
            0,
            0,
            self.weight,
            seen=held.seen,
            claims=held.held(self.world.now),
        )

        def joined(ok: bool) -> None:
            if ok and session == self.session:
                self.joined = True
                self.step()

        self._ask(lambda: self.world.redis.join(facts), joined)

    def _schedule(self) -> None:
        self._beat_at = at = self.world.now + self.world.habits.interval

        def due() -> None:
            if at == self._beat_at:
                self.beat()
                self._schedule()

        self._soon(self.world.habits.interval, due)

    def beat(self) -> None:
        """Renew, and take up the answer."""
        if not self.joined:
            if not self.membership.closing:
                self._join()
            return
        asked_at, session = self.world.now, self.session
        words = self.membership.words()

        def answered(answer: Answer | None) -> None:
            if session != self.session:
                return
            if answer is None:
                if not self.membership.closing:
                    self._join()
                return
            now = self.world.now
            self._apply(self.membership.heard(answer.view, asked_at, answer.now, now))
            if not self.warms_up:
                self.membership.warm_at_once()
            if answer.wait is not None:
                self.wait(answer.wait)
            if answer.due:
                self.step()
            if self.leaving and not answer.view.held and answer.view.seated:
                self.stop()

        self._ask(lambda: self.world.redis.beat(self.name, session, words), answered)

    def wait(self, seconds: float) -> None:
        """Renew when the next step is due, if it still is by then."""
        at = self.world.now + seconds
        self.membership.watch(at)
        self._soon(max(0.0, seconds), lambda: self.beat() if self.joined else None)

    def step(self) -> None:
        """Compute the next decision, and try to commit it."""
        if self._stepping:
            self._again = True
            return
        self._stepping, self._again = True, False
        number = self._step_number = self._step_number + 1

        def decide(read: tuple[GroupState, Facts, int]) -> None:
            state, facts, changes = read
            outcome = kernel.step(state, facts, self.world.assignor)

            def committed(ok: bool) -> None:
                if number != self._step_number:
                    return
                self._stepping = False
                due = outcome.due
                if not ok or self._again or (due is not None and due <= self.world.now):
                    self.step()
                elif due is not None:
                    self.wait(due - self.world.now)

            def commit() -> bool:
                ok = self.world.redis.commit(state, outcome, changes, facts)
                if ok and outcome.state is not state:
                    self.world.decided(state, outcome, facts, self.name)
                return ok

            self._ask(commit, committed)

        def give_up() -> None:
            # An answer that never comes must not stop this process from deciding for ever.
            if number == self._step_number:
                self._stepping = False

        # Redis may be another one by the time the question arrives.
        self._ask(lambda: self.world.redis.read(), decide)  # noqa: PLW0108
        self._soon(2 * self.world.habits.interval, give_up)

    # --- the application ----------------------------------------------------------------------

    def _apply(self, changes: list[Change]) -> None:
        rng, habits = self.world.rng, self.world.habits
        for change in changes:
            if change.kind is ChangeKind.ASSIGNED:
                if change.token <= self._taken_up.get(change.partition, 0):
                    raise Violation(f"{self.name} takes partition {change.partition} up again")
                self._taken_up[change.partition] = change.token
            if change.kind in (ChangeKind.ACTIVE, ChangeKind.INACTIVE):
                active = change.kind is ChangeKind.ACTIVE
                if active is self.active:
                    raise Violation(f"{self.name} is told twice that it is {change.kind.value}")
                self.active = active
            elif change.kind is ChangeKind.REVOKED:
                wait = rng.uniform(0, habits.handoff)
                self._soon(wait, lambda c=change: self._said(self._release(c)))  # type: ignore[misc]
            elif change.kind is ChangeKind.WARMUP and self.warms_up:
                wait = rng.uniform(0, habits.warm_up)
                self._soon(wait, lambda c=change: self._said(self._warm(c)))  # type: ignore[misc]
            elif change.kind is ChangeKind.DRAIN:
                wait = rng.uniform(0, habits.drain)
                self._soon(wait, lambda c=change: self._said(self._drain(c)))  # type: ignore[misc]

    def _release(self, change: Change) -> bool:
        return self.membership.release(change.partition, change.token)

    def _warm(self, change: Change) -> bool:
        return self.membership.lag(change.partition, 0.0)

    def _drain(self, change: Change) -> bool:
        return self.membership.drained(change.partition)

    def _said(self, news: bool) -> None:
        if news:
            self.beat()

    # --- what happens to it -------------------------------------------------------------------

    def noticed(self) -> None:
        """A notice of a decision arrives."""
        if self.joined:
            self.beat()

    def hand_over(self) -> None:
        """Hand over everything, then leave."""
        self.leaving = True
        session = self.session
        self._ask(lambda: self.world.redis.want_to_leave(self.name, session), lambda _: self.step())
        self._soon(self.world.terms.leave_timeout, self.stop)

    def stop(self) -> None:
        """Leave at once."""
        if self.dead:
            return
        self.membership = Membership(self.world.terms.ttl, self.membership.seen)
        session = self.session
        world = self.world
        decides = world.rng.random() >= world.habits.lost_notices

        def left() -> None:
            world.redis.leave(self.name, session)
            if decides:
                world.at(world.now + world.delay(), lambda: world.last_step(self.name))

        world.at(world.now + world.delay(), left)
        self.crash()

    def finish(self) -> None:
        """Leave once the application has ended its work, or its time for that is over."""
        grace = self.world.redis.terms.max_handoff_time
        self._apply(self.membership.close(self.world.now + grace))
        self._soon(grace, self.stop)

    def crash(self) -> None:
        """Be gone."""
        self.dead = True
        self.world.peers.remove(self)

    def pause(self, seconds: float) -> None:
        """Stand still: SIGSTOP, a long garbage collection, a suspended machine."""
        self.paused_until = max(self.paused_until, self.world.now + seconds)

    def cut(self, seconds: float) -> None:
        """Lose every message."""
        self.cut_until = max(self.cut_until, self.world.now + seconds)


class World:
    """Processes, Redis, and time.

    Args:
        rng: decides everything that is not given.
    """

    def __init__(
        self, rng: Random, terms: Terms, assignor: Assignor, habits: Habits | None = None
    ) -> None:
        self.rng = rng
        self.terms = terms
        self.assignor = assignor
        self.habits = habits or Habits()
        # Redis time is not any process' clock; that of no process starts at zero either.
        self.now = 1_000_000.0
        self.redis = _Redis(terms, lambda: self.now, GroupState.new(terms))
        self.peers: list[Peer] = []
        self.events: list[tuple[float, Event]] = []
        self.moves = 0
        self.unowned: dict[int, float] = {}
        self.longest_unowned = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._sessions = itertools.count()
        self._runs = itertools.count(1)
        self._tokens: dict[int, int] = {}
        self._owners: dict[int, str] = {}
        # How many members there were when the group was Ready, while that counts.
        self._settled: int | None = None

    # --- time ---------------------------------------------------------------------------------

    def at(self, time: float, do: Callable[[], None]) -> None:
        """Do it at that time."""
        heapq.heappush(self._queue, (time, next(self._order), do))

    def delay(self) -> float:
        """How long a message takes."""
        return self.rng.uniform(0.0, self.habits.latency)

    def new_session(self) -> str:
        """A session nobody had before."""
        return f"s{next(self._sessions)}"

    def run(self, seconds: float) -> None:
        """Let time pass, checking after every event."""
        end = self.now + seconds
        while self._queue and self._queue[0][0] <= end:
            time, _, do = heapq.heappop(self._queue)
            self.now = max(self.now, time)
            do()
            self.check()
        self.now = end
        self.check()

    # --- processes ----------------------------------------------------------------------------

    def join(self, name: str, weight: float = 1.0, *, warms_up: bool = True) -> Peer:
        """A process starts."""
        peer = Peer(self, name, weight, warms_up)
        self.peers.append(peer)
        peer.start()
        return peer

    def resize(self, partitions: int) -> None:
        """Somebody changes the count."""
        base = self.redis.state
        outcome = kernel.resize(base, partitions)
        if outcome.state is base or not self.redis.joins:
            return
        outcome, facts = replace(outcome, due=self.now), self.redis.read()[1]
        self.redis.commit(base, outcome, self.redis.changes, facts)
        self.decided(base, outcome, facts, "an operator", stays=False)
        self.terms = self.redis.terms = self.redis.state.terms

    def lose_everything(self) -> None:
        """Redis comes back empty."""
        self.redis = replace(
            self.redis,
            state=GroupState.new(self.terms),
            records={},
            joins=0,
            changes=0,
            due=None,
            looked=float("-inf"),
        )

    def go_back(self, snapshot: _Redis) -> None:
        """Redis comes back as it was at an earlier time."""
        self.redis = replace(snapshot, server=f"run-{next(self._runs)}")
        self.terms = snapshot.terms

    def switch_access(self) -> None:
        """Somebody changes whether one member has everything."""
        base = self.redis.state
        if not self.redis.joins:
            return
        access = NON_EXCLUSIVE if base.terms.access == EXCLUSIVE else EXCLUSIVE
        outcome = kernel.migrate(base, replace(base.terms, access=access))
        outcome = replace(outcome, due=self.now)
        facts = self.redis.read()[1]
        self.redis.commit(base, outcome, self.redis.changes, facts)
        self.decided(base, outcome, facts, "an operator", stays=False)
        self.terms = self.redis.terms = self.redis.state.terms

    def last_step(self, by: str) -> None:
        """A process that has left decides once more, so that nobody has to notice it."""
        state, facts, changes = self.redis.read()
        outcome = kernel.step(state, facts, self.assignor)
        self.redis.commit(state, outcome, changes, facts)
        if outcome.state is not state:
            self.decided(state, outcome, facts, by, stays=False)

    def decided(
        self,
        before: GroupState,
        outcome: kernel.Outcome,
        facts: Facts,
        by: str,
        *,
        stays: bool = True,
    ) -> None:
        """A decision was committed, and the members that it concerns may hear of it.

        Args:
            stays: whether the one that decided waits for the next step.
        """
        after = outcome.state
        check_decision(before, after, facts)
        self.check_no_handoff(before, outcome, facts)
        self.check_standbys_first(before, outcome, facts)
        self.events.extend((self.now, event) for event in outcome.events)
        for partition in after.existing:
            token, owner = after.tokens[partition], after.holder(partition)
            if owner is None or token == self._tokens.get(partition, 0):
                continue
            if token < self._tokens.get(partition, 0):
                if partition < len(before.tokens) and before.tokens[partition] == token:
                    # A grant that Redis remembers from before it lost a later one.
                    continue
                raise Violation(f"token of partition {partition} fell to {token}")
            self.moves += self._owners.get(partition, owner) != owner
            self._tokens[partition], self._owners[partition] = token, owner
        concerned = {*changed_views(before, after)}
        if not stays and outcome.due is not None:
            concerned.update(kernel.deputies(facts, after, by))
        for peer in self.peers:
            if peer.name in concerned and self.rng.random() >= self.habits.lost_notices:
                peer._soon(self.delay(), peer.noticed)

    # --- what must hold -----------------------------------------------------------------------

    def check_no_handoff(self, before: GroupState, outcome: kernel.Outcome, facts: Facts) -> None:
        """What must hold of a decision that was computed from these facts."""
        present = [each for each in facts.members if each.expires > facts.now]
        same = len(present) == self._settled and not any(
            each.stalled or each.leaving is not None for each in present
        )
        asked = [event for event in outcome.events if event.kind is EventKind.REVOKED]
        # To `ring` only names count; and a copy comes before the number of members.
        places = not isinstance(self.assignor, RingOwner) and not outcome.state.standbys
        if asked and same and places and before.phase is not Phase.REBALANCING:
            raise Violation(
                f"partition {asked[0].partition} is handed off, though there are {len(present)} "
                f"members as before"
            )
        if outcome.state.phase is Phase.READY:
            quiet = all(each.leaving is None and not each.stalled for each in present)
            self._settled = len(present) if quiet else None
        elif outcome.state.phase is Phase.REBALANCING:
            self._settled = None

    def check_standbys_first(
        self, before: GroupState, outcome: kernel.Outcome, facts: Facts
    ) -> None:
        """What must hold of a decision that was computed from these facts."""
        if before.terms.access == EXCLUSIVE or not isinstance(self.assignor, Learner):
            return
        present = {each.name: each for each in facts.members if each.expires > facts.now}
        for event in outcome.events:
            partition = event.partition
            if event.kind is not EventKind.GRANTED or partition is None:
                continue
            if partition >= before.terms.partitions or before.owners[partition] in present:
                continue
            warm = [
                each.name
                for each in present.values()
                if each.leaving is None
                and not each.stalled
                and each.lags.get(partition, math.inf) <= self.assignor.acceptable_lag
            ]
            if warm and event.member not in warm and event.why != kernel.HELD_ALREADY:
                raise Violation(
                    f"partition {partition} went to {event.member}, which is cold, though "
                    f"{' and '.join(warm)} is warm"
                )

    def beliefs(self) -> dict[int, list[str]]:
        """For each partition the processes that count it as held now."""
        found: dict[int, list[str]] = {}
        for peer in self.peers:
            for partition in peer.membership.held(self.now):
                found.setdefault(partition, []).append(peer.name)
        return found

    def check(self) -> None:
        """What must hold at any instant."""
        beliefs = self.beliefs()
        for partition, names in beliefs.items():
            if len(names) > 1:
                raise Violation(f"partition {partition} is held by {' and '.join(names)}")
        for partition in range(self.redis.state.terms.partitions):
            if partition in beliefs:
                self.unowned.pop(partition, None)
            else:
                since = self.unowned.setdefault(partition, self.now)
                self.longest_unowned = max(self.longest_unowned, self.now - since)

    def at_rest(self) -> None:
        """What must hold once nothing has happened for long enough."""
        state = self.redis.state
        if not self.peers:
            return
        if state.phase is not Phase.READY or state.free or state.handoffs or state.draining:
            raise Violation(
                f"no rest: {state.phase.value}, free {sorted(state.free)}, handoffs "
                f"{dict(state.handoffs)}, warming {dict(state.warming)}, draining "
                f"{sorted(state.draining)}"
            )
        beliefs = self.beliefs()
        for partition in state.existing:
            if beliefs.get(partition) != [state.holder(partition)]:
                raise Violation(
                    f"partition {partition} is {state.holder(partition)}'s, but held by "
                    f"{beliefs.get(partition)}"
                )
        owners = {state.holder(partition) for partition in range(state.terms.partitions)}
        if state.terms.access == EXCLUSIVE and len(owners) > 1:
            raise Violation(f"access is exclusive, but {len(owners)} members have partitions")
        for peer in self.peers:
            if peer.active is not bool(peer.membership.held(self.now)):
                raise Violation(f"{peer.name} was told that active={peer.active}, wrongly")
        # That Redis was restarted is noticed by the next step, and nothing makes one due.
        facts = replace(self.redis.read()[1], server=state.server)
        again = kernel.step(state, facts, self.assignor)
        if again.state is not state:
            raise Violation(f"a step at rest decides {again.events}")


Fault = Callable[["History"], None]


class History:
    """A random fault history.

    Args:
        rng: its seed is the history's name.
        world: where it happens.
        names: how many different members may be there at once.
    """

    def __init__(self, rng: Random, world: World, names: int = 5) -> None:
        self.rng = rng
        self.world = world
        self.names = [f"m{number}" for number in range(names)]
        self._lost_at = -math.inf
        self._snapshot: _Redis | None = None

    def play(self, faults: int, gap: float, choices: Sequence[Fault]) -> None:
        """So many faults, at random times, on average ``gap`` seconds apart."""
        self.world.join(self.names[0])
        for _ in range(faults):
            self.world.run(self.rng.uniform(0, 2 * gap))
            self.rng.choice(choices)(self)

    def settle(self) -> None:
        """Let it come to rest, and check that it did."""
        terms = self.world.redis.state.terms
        for peer in self.world.peers:
            peer.membership.stalled = False
        habits = self.world.habits
        sizes = terms.partitions + len(self.world.redis.state.draining)
        each = terms.max_handoff_time + habits.warm_up + habits.interval
        patience = 3 * (terms.ttl + terms.rebalance_delay + terms.leave_timeout)
        pauses = max((p.paused_until - self.world.now for p in self.world.peers), default=0.0)
        cuts = max((p.cut_until - self.world.now for p in self.world.peers), default=0.0)
        self.world.run(max(0.0, pauses, cuts) + patience + 2 * sizes * each + 2 * habits.drain)
        self.world.at_rest()

    def _someone(self) -> Peer | None:
        peers = self.world.peers
        return self.rng.choice(peers) if peers else None

    def _may_join(self) -> bool:
        # A process that is new to a Redis that has just lost everything cannot know that others
        # are about to return: exclusion is not promised then, so it is not played.
        return self.world.now > self._lost_at + self.world.terms.ttl

    def join(self) -> None:
        """A process starts, perhaps under the name of one that is still counted as there."""
        here = {peer.name for peer in self.world.peers}
        away = [name for name in self.names if name not in here]
        if away and self._may_join():
            self.world.join(self.rng.choice(away), warms_up=self.rng.random() < 0.8)

    def crash(self) -> None:
        """A process dies without a word."""
        if peer := self._someone():
            peer.crash()

    def restart(self) -> None:
        """A process dies without a word, and another one starts under its name at once."""
        peer = self._someone()
        if peer and self._may_join():
            peer.crash()
            self.world.join(peer.name)

    def stop(self) -> None:
        """A process leaves at once."""
        if peer := self._someone():
            peer.stop()

    def finish(self) -> None:
        """A process ends its work, then leaves."""
        if peer := self._someone():
            peer.finish()

    def hand_over(self) -> None:
        """A process leaves once others have what it had."""
        if peer := self._someone():
            peer.hand_over()

    def pause(self) -> None:
        """A process stands still, for less or for longer than its lease."""
        if peer := self._someone():
            peer.pause(self.rng.uniform(0, 3 * self.world.terms.ttl))

    def cut(self) -> None:
        """A process loses its connection."""
        if peer := self._someone():
            peer.cut(self.rng.uniform(0, 3 * self.world.terms.ttl))

    def stall(self) -> None:
        """An application hangs, or goes on."""
        if peer := self._someone():
            peer.membership.stalled = not peer.membership.stalled

    def resize(self) -> None:
        """The count changes."""
        self.world.resize(1 + int(self.rng.random() * 12))

    def switch_access(self) -> None:
        """The access type changes."""
        self.world.switch_access()

    def lose(self) -> None:
        """Redis comes back empty."""
        settled_in = all(peer.membership.seen for peer in self.world.peers)
        if settled_in and self.world.now > self._lost_at + 3 * self.world.terms.ttl:
            self._lost_at = self.world.now
            self.world.lose_everything()

    def save(self) -> None:
        """Redis writes a snapshot to disk."""
        self._snapshot = self.world.redis.copy()

    def go_back(self) -> None:
        """Redis comes back from its last snapshot."""
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None and not snapshot.joins:
            self.lose()
        elif snapshot is not None:
            self.world.go_back(snapshot)


FAULTS: tuple[Fault, ...] = (
    History.join,
    History.join,
    History.join,
    History.crash,
    History.restart,
    History.stop,
    History.finish,
    History.hand_over,
    History.pause,
    History.cut,
    History.stall,
    History.resize,
    History.switch_access,
)
"""What can happen, while Redis keeps what it is told."""

ALL_FAULTS: tuple[Fault, ...] = (*FAULTS, History.lose, History.save, History.go_back)
"""What can happen."""
