"""From what was decided and what is reported to the next decision.

:func:`step` is a pure function that any member may run at any time. Whoever commits its result
first, wins; everybody else reads that result and goes on from there. Run twice on the same facts
it decides nothing the second time.

In one step, in this order:

1. who is gone loses everything: a lease that ended, a member that left, a name that came back as
   another session; its place and its partitions are for a member that holds nothing, if there is
   one of its weight (:mod:`.heirs`). A member whose report cannot be read keeps what it has, and
   gets nothing, until its report can be read or its lease ends (:meth:`.state.GroupState.frozen`);
2. owners' words are heard: a partition let go of is free; so is one whose handoff is overdue
   (:meth:`Handoff.ends_by`) and a removed one that is drained is forgotten;
3. the assignor says where everything should be;
4. Solace's controls decide whether that may begin now (below);
5. what nobody holds is granted, to whom it should go, under a new fencing token;
6. owners of what should go elsewhere are asked to let go, within the budget of handoffs, those
   with the most partitions first. Whatever is held and stays is not touched.

A partition is granted only when it is free, and becomes free only by 1 and 2. So two members
never hold one partition, whatever an assignor says.

The phases of a group:

{PHASES}

What begins and ends each, docs/explanation/groups.rst says. During a holddown, what nobody holds
is granted to members that have nothing (spares take over at once): what a member that is gone had,
all of it to the one that took its place.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from hashring.core.assignors.exclusive import ExclusiveAssignor
from hashring.core.assignors.situation import GroupMember, GroupSituation, MemberState
from hashring.core.assignors.target_assignment import Assignor, TargetAssignment, checked_target
from hashring.core.groups import heirs, reported_loads
from hashring.core.groups.draining_partitions import draining_owners
from hashring.core.groups.made_up_names import is_made_up
from hashring.core.groups.partition_column import Column, Draft
from hashring.core.groups.pending_moves import PendingMoves, Queue, Wanted
from hashring.core.groups.state import (
    EXCLUSIVE,
    PHASES,
    EventKind,
    Facts,
    GroupEvent,
    GroupPhase,
    GroupState,
    Handoff,
    Holddown,
    MemberFacts,
    MemberOrder,
    PhaseTurn,
    Seat,
    Terms,
)
from hashring.core.state_table import with_tables

__doc__ = with_tables(__doc__, PHASES=PHASES)

HELD_ALREADY: Final = "held it already"
"""Why a member is granted what it claims after Redis lost what was decided."""

FOR_LOAD: Final = "for its load"
"""Why an owner is asked for a partition that moves for its load alone."""


@dataclass(frozen=True)
class StepOutcome:
    """The result of a step.

    Attributes:
        state: what is decided; the very same object when nothing changes.
        events: what the change consists of, for the history.
        due: when the next step is due even if no fact changes and no lease ends; ``None`` for
            never.
        dismissed: members, with the session of each, that have to join anew and say what they
            hold, since Redis may have lost what it told them.
        plan: what the assignor wants; for the next step, which may go on with it.
    """

    state: GroupState
    events: tuple[GroupEvent, ...]
    due: float | None
    dismissed: tuple[tuple[str, str], ...] = ()
    plan: Rebalance | None = None


@dataclass(frozen=True)
class Rebalance:
    """A target that is being carried out.

    Attributes:
        assignor: whose target it is.
        situation: for which it was given.
        target: the target.
        pending_moves: what of it is still to be done. Every step brings it up to date; it changes
            nothing of what a step decides.
    """

    assignor: Assignor
    situation: GroupSituation
    target: TargetAssignment
    pending_moves: PendingMoves


def step(
    state: GroupState,
    facts: Facts,
    assignor: Assignor,
    plan: Rebalance | None = None,
    *,
    at_once: bool = False,
) -> StepOutcome:
    """The next decision.

    Args:
        state: the last one, as it was committed.
        facts: read at the same instant as the state, or later.
        plan: of an earlier step. While parts of it are carried out, it spares asking an assignor
            again whose answers are ``lasting``.
        at_once: whether handoffs take no time: owners are asked for all that is to move, whatever
            the budget, and have let go of it by the next step. For :mod:`.rehearsal` only.

    Raises:
        AssignorError: the assignor gave a wrong answer; nothing is decided.
    """
    return _Step(state, facts, assignor, plan, at_once=at_once).run()


def rule(terms: Terms, assignor: Assignor) -> Assignor:
    """What says where partitions should be: the assignor, unless access is exclusive."""
    return ExclusiveAssignor() if terms.access == EXCLUSIVE else assignor


def member_state(member: MemberFacts, order: MemberOrder | None) -> MemberState:
    """What an assignor is to think of a member with this order, if there is one."""
    if member.goes:
        return MemberState.LEAVING
    if order is not None and order.drained:
        return MemberState.DRAINED
    return MemberState.STALLED if member.stalled else MemberState.ACTIVE


def takers(members: Collection[GroupMember]) -> frozenset[str]:
    """The members that may be granted anything.

    None that is about to go, even if all are; a drained one only if nobody else is left.
    """
    staying = [member for member in members if member.state is not MemberState.LEAVING]
    undrained = [member for member in staying if member.state is not MemberState.DRAINED]
    return frozenset(member.name for member in undrained or staying)


def deputies(facts: Facts, after: GroupState, by: str) -> tuple[str, ...]:
    """Two members to wait for the next step, if the one that decided does not stay.

    Different ones with each decision.
    """
    names = sorted(m.name for m in facts.members if m.expires > facts.now and m.name != by)
    first = after.generation % len(names) if names else 0
    return tuple((names[first:] + names[:first])[:2])


def _vacated(seat: Seat) -> Seat:
    """The place in the order of joining, without whoever had it."""
    return replace(seat, session="", sheds_after=0.0)


class _Step:
    """One step, on working copies. Methods are called once each, in the order of :meth:`run`."""

    def __init__(
        self,
        state: GroupState,
        facts: Facts,
        assignor: Assignor,
        plan: Rebalance | None,
        *,
        at_once: bool,
    ) -> None:
        self.before = state
        self.now = facts.now
        self.terms = state.terms
        self.assignor = rule(self.terms, assignor)
        self.plan = plan
        self.at_once = at_once
        self.facts = facts
        self.orders = state.orders_at(facts.now)
        self.present = state.present(facts)
        self.frozen = state.frozen(facts).keys()
        self.generation = state.generation + 1
        self.owners = Draft(state.owners)
        self.tokens = Draft(state.tokens)
        self.free = set(state.free)
        self.handoffs = dict(state.handoffs)
        self.roster = dict(state.roster)
        self.draining = set(state.draining)
        self.warming = dict(state.warming)
        self.standbys = dict(state.standbys)
        self.phase = state.phase
        self.holddown = state.holddown
        self.settled = state.settled
        self.token = state.token
        self.recovering = state.recovering
        self.longest_ttl, self.longest_until = state.longest_ttl, state.longest_until
        self.server = facts.server or state.server
        self.dismissed: tuple[tuple[str, str], ...] = ()
        self.events: list[GroupEvent] = []
        self.load_moves = state.load_moves
        self.for_load: frozenset[int] = frozenset()
        # Whom a partition was on its way to when its owner let go of it in this step.
        self.destined: dict[int, str] = {}
        # For members that are gone, who took their place in this step.
        self.heirs: dict[str, str] = {}
        # Where the partitions were, against the target, when it was known.
        self.pending_moves: PendingMoves | None = None
        self.goes_on = False

    def run(self) -> StepOutcome:
        for name, order in self.before.orders.items():
            if order.drained and not (name in self.orders and self.orders[name].drained):
                self._tell(EventKind.UNDRAIN, name, why="its time is up")
        self._recover()
        self._seat()
        self._hear()
        self._inherit()
        self.members = self._members()
        self.takers = takers(self.members.values())
        target, wanted = self._target()
        if self.recovering is None:
            self._control(target, wanted)
            self._act(target, wanted)
            self._rest(target, wanted)
        return self._outcome()

    def _tell(
        self,
        kind: EventKind,
        member: str | None = None,
        partition: int | None = None,
        to: str | None = None,
        why: str = "",
    ) -> None:
        self.events.append(GroupEvent(kind, member, partition, to, why))

    def _turn(self, turn: PhaseTurn) -> None:
        self.phase = PHASES.after(self.phase, turn)
        if self.phase is not GroupPhase.HOLDDOWN:
            self.holddown = None

    # --- 0: when Redis has lost what was decided ----------------------------------------------

    def _loss(self) -> str:
        """Why Redis may have lost decisions or facts; empty when it has not.

        Redis came back empty or older than it was: after a restart, after a failover to a replica
        that lagged behind, or after somebody deleted keys.
        """
        before = self.before
        latest = max((member.seen for member in self.present.values()), default=0)
        if latest > before.generation:
            return f"members have seen generation {latest}"
        if self._elsewhere:
            return "Redis was restarted, or another server took its place"
        if self.recovering is None:
            for member in self.present.values():
                if self._claims(member):
                    # Redis keeps an entry longer than its member relies on it.
                    return f"{member.name} still holds what it had, but its entry was gone"
        for member in self.facts.unreadable:
            if self._may_be_back(member):
                return f"{member.name} joined anew, and its report cannot be read"
        return ""

    @property
    def _elsewhere(self) -> bool:
        """Whether Redis was restarted since the last step, or another server took its place."""
        return bool(self.before.server) and self.server != self.before.server

    def _claims(self, member: MemberFacts) -> Mapping[int, int]:
        """What the member held when it joined; it says so until it has a seat.

        The join may have come late. What has a newer token is another's since.
        """
        if self._is_seated(member):
            return {}
        known = self.before.tokens
        return {
            partition: token
            for partition, token in member.claims.items()
            if not 0 <= partition < len(known) or token >= known[partition]
        }

    def _may_be_back(self, member: MemberFacts) -> bool:
        """Whether it may be the process that had the seat, and hold what it had for a lease."""
        seat = self.roster.get(member.name)
        had_one = seat is not None and seat.session not in ("", member.session)
        return had_one and bool(member.session) and member.expires > self.now

    def _is_seated(self, member: MemberFacts) -> bool:
        seat = self.roster.get(member.name)
        return seat is not None and seat.session == member.session

    def _recover(self) -> None:
        why = self._loss()
        everybody = self.present
        if why:
            # Nothing recorded here can be relied on; members say what they hold, and what nobody
            # claims waits until every lease of then has ended. A member that knows nothing of the
            # loss has to join anew: what it holds may have been granted by a lost decision. In
            # another run of Redis every report may be from before the loss, and so may those be
            # that outlasted all decisions.
            latest = max((member.seen for member in self.present.values()), default=0)
            told = {
                name: member
                for name, member in self.present.items()
                if not self._elsewhere
                and (0 < self.before.generation < member.seen or self._claims(member))
            }
            self.dismissed = tuple(
                (name, member.session)
                for name, member in sorted(self.present.items())
                if name not in told
            )
            self.present = told
            self.generation = max(self.before.generation, latest) + 1
            self.free = set(self.before.existing)
            # Each may be claimed under the last token that is known, once, or under a later one.
            self.tokens = Draft(Column([max(0, token - 1) for token in self.before.tokens]))
            self.handoffs = {}
            self.warming = {}
            self.standbys = {}
            # A member that returns gets its place in the order of joining back.
            self.roster = {n: _vacated(seat) for n, seat in self.roster.items()}
            # From the commit on: until then members renew what they may hold.
            self.recovering = math.inf
            self._turn(PhaseTurn.LOSS)
            self._tell(EventKind.RECOVERING, why=why)
        if self.recovering is None:
            return
        # The ttl may have been raised by a decision that is lost: others may have such leases.
        leases = [m.lease for m in everybody.values() if not self._is_seated(m)]
        if (longest := max(leases, default=0.0)) > self.before.longest_lease:
            self.recovering = max(self.recovering, self.now + longest)
            self.longest_ttl, self.longest_until = longest, math.inf
        claims = sorted(
            (
                (token, member.name, partition)
                for member in self.present.values()
                for partition, token in self._claims(member).items()
                if 0 <= partition < len(self.owners)
            ),
            reverse=True,
        )
        for token, name, partition in claims:
            self.token = max(self.token, token)
            if partition in self.free and token > self.tokens[partition]:
                self.owners[partition] = name
                self.tokens[partition] = token
                self.free.discard(partition)
                self._tell(EventKind.GRANTED, name, partition, why=HELD_ALREADY)
        if self.now >= self.recovering:
            self.recovering = None

    # --- 1: who is there ----------------------------------------------------------------------

    def _seat(self) -> None:
        every = (*self.facts.members, *self.facts.unreadable)
        expired = {m.name for m in every if m.expires <= self.now}
        gone = set()
        for name, seat in list(self.roster.items()):
            member = self.present.get(name)
            if not seat.session or (member is not None and member.session == seat.session):
                continue
            gone.add(name)
            self._tell(EventKind.EXPIRED if name in expired else EventKind.LEFT, name)
            if name not in expired and name not in self.present and is_made_up(name):
                self._lift_orders_about(name)
            # The place is kept for one that returns during the holddown; see _outcome.
            self.roster[name] = _vacated(seat)
        if gone:
            for partition, owner in enumerate(self.owners):
                if owner in gone and partition not in self.free and not self._kept(partition):
                    self._let_go(partition)
        place = max((seat.place for seat in self.roster.values()), default=-1)
        for member in sorted(self.present.values(), key=lambda m: (m.joined, m.name)):
            known = self.roster.get(member.name)
            if known is None:
                place += 1
                known = Seat(place, "")
            if known.session != member.session:
                self.roster[member.name] = replace(
                    known, session=member.session, weight=member.weight
                )
                self._tell(EventKind.JOINED, member.name)
            elif known.weight != member.weight:
                self.roster[member.name] = replace(known, weight=member.weight)

    def _kept(self, partition: int) -> bool:
        """Whether the owner's new session still holds what the one before it had.

        Without a recovery under way that is a loss: see :meth:`_loss`.
        """
        owner = self.present.get(str(self.owners[partition]))
        return owner is not None and owner.claims.get(partition) == self.tokens[partition]

    def _lift_orders_about(self, name: str) -> None:
        """Nobody starts again under the name. One whose lease ended may be back."""
        order = self.orders.pop(name, None)
        if order is not None and order.drained:
            self._tell(EventKind.UNDRAIN, name, why="it left, and its name was made up")

    def _let_go(self, partition: int) -> None:
        self.free.add(partition)
        handoff = self.handoffs.pop(partition, None)
        if handoff is not None:
            self.destined[partition] = handoff.to

    # --- 2: words -----------------------------------------------------------------------------

    def _hear(self) -> None:
        if self.at_once:
            for partition in [*self.handoffs]:
                self._let_go(partition)
        for member in self.present.values():
            for partition, token in member.released.items():
                if self._holds(member, partition, token):
                    self._let_go(partition)
                    self._tell(EventKind.RELEASED, member.name, partition)
            for partition, token in member.drained.items():
                if not self._holds(member, partition, token):
                    continue
                self._let_go(partition)
                if partition in self.draining:
                    self.draining.discard(partition)
                    self._tell(EventKind.DRAINED, member.name, partition)
                else:
                    # The count has grown again meanwhile: it is granted anew.
                    self._tell(EventKind.RELEASED, member.name, partition)
        for partition, handoff in list(self.handoffs.items()):
            ends = handoff.ends_by(self.present[handoff.owner].seen)
            if ends is not None and self.now >= ends:
                self._let_go(partition)
                self._tell(
                    EventKind.FORCED,
                    handoff.owner,
                    partition,
                    why=f"no word within {self.terms.max_handoff_time:g} s",
                )
        self._forget_drained()

    def _forget_drained(self) -> None:
        """Partitions that are neither counted nor draining do not exist any more.

        Such a partition may have a number below one that still drains. Its last owner is
        forgotten, too: otherwise that member's view would still hold the partition.
        """
        for partition in range(self.terms.partitions, len(self.owners)):
            if partition not in self.draining:
                self.free.discard(partition)
                self.owners[partition], self.tokens[partition] = None, 0

    def _holds(self, member: MemberFacts, partition: int, token: int) -> bool:
        return (
            0 <= partition < len(self.owners)
            and partition not in self.free
            and self.owners[partition] == member.name
            and self.tokens[partition] == token
        )

    def _inherit(self) -> None:
        """Members that hold nothing take the places of those that are gone."""
        if self.recovering is not None:
            return
        # What members had that are gone, or that are back and have nothing yet.
        estates = {self.owners[p] for p in self.free}
        if estates <= self.present.keys():
            return
        busy = {
            *self._having(),
            *(handoff.to for handoff in self.handoffs.values()),
            *self.destined.values(),
            *self.warming.values(),
        }
        vacant = []
        idle = []
        for name, seat in self.roster.items():
            place = heirs.Place(seat.place, name, seat.weight)
            member = self.present.get(name)
            if member is None and name in estates:
                vacant.append(place)
            elif (
                member is not None
                and name not in self.frozen
                and name not in busy
                and name not in estates
                and member_state(member, self.orders.get(name)) is MemberState.ACTIVE
            ):
                idle.append(place)
        self.heirs = heirs.heirs(vacant, idle)
        for name, heir in self.heirs.items():
            seat = self.roster.pop(name)
            self.roster[heir] = replace(self.roster[heir], place=seat.place)

    # --- 3: what should be --------------------------------------------------------------------

    def _members(self) -> dict[str, GroupMember]:
        """The members as the assignor sees them.

        One that stops, or whose time to leave is over, is not among them, as long as somebody else
        is: so the assignor gives what it has to others at once, warm or not. A frozen one is not
        among them either: nobody can say what may be given to it.
        """
        found: dict[str, GroupMember] = {}
        overdue: dict[str, GroupMember] = {}
        for name, facts in self.present.items():
            if name in self.frozen:
                continue
            kind = member_state(facts, self.orders.get(name))
            member = GroupMember(name, self.roster[name].place, facts.weight, kind)
            ends = self._leave_end(facts)
            stays = not facts.stopping and (ends is None or ends > self.now)
            (found if stays else overdue)[name] = member
        return found or overdue

    def _stops(self, name: str | None) -> bool:
        return name in self.present and self.present[name].stopping

    def _leave_end(self, member: MemberFacts) -> float | None:
        return None if member.leaving is None else member.leaving + self.terms.leave_timeout

    def _target(self) -> tuple[TargetAssignment, Wanted]:
        """The assignor's target, and for every existing partition who should have it now."""
        for partition, handoff in self.handoffs.items():
            self.destined[partition] = handoff.to
        warming = dict(self.warming)
        # The partitions that count as another member's than their owner's.
        granted: dict[int, str] = {}
        for partition, to in self.destined.items():
            if to not in self.members:
                continue
            if self.owners[partition] not in self.members and self._may_be_warm(partition):
                # The owner is gone, and another may be warm: the assignor decides.
                warming[partition] = to
            else:
                granted[partition] = to
        target = self._planned(granted, warming)
        self.for_load = target.for_load
        draining = {p: granted.get(p, self.owners[p]) for p in sorted(self.draining)}
        beyond = draining_owners(draining, target, tuple(self.members.values()), self.terms)
        return self._without_frozen(target), Wanted(target.interim, beyond)

    def _without_frozen(self, target: TargetAssignment) -> TargetAssignment:
        """The target, but what frozen members have stays with them, and so do the copies of that.

        The assignor counts such an owner as gone. Warm-ups and copies for another owner, which does
        not come, would make it answer differently in the next step, and so on.
        """
        if not self.frozen:
            return target
        stuck = {
            partition: owner
            for partition, owner in zip(range(self.terms.partitions), self.owners, strict=False)
            if owner in self.frozen and partition not in self.free
        }
        owners, interim = [*target.owners], [*target.interim]
        for partition, owner in stuck.items():
            owners[partition] = interim[partition] = owner
        return replace(
            target,
            owners=tuple(owners),
            interim=tuple(interim),
            warmups={p: name for p, name in target.warmups.items() if p not in stuck},
            standbys=self._standbys(target, stuck.keys()),
        )

    def _standbys(
        self, target: TargetAssignment, kept: Collection[int]
    ) -> dict[int, tuple[str, ...]]:
        """The standbys of a target, but some partitions keep those that they have."""
        standbys = {p: names for p, names in target.standbys.items() if p not in kept}
        for partition in self.standbys.keys() & kept:
            standbys[partition] = tuple(n for n in self.standbys[partition] if n in self.members)
        return standbys

    def _may_be_warm(self, partition: int) -> bool:
        """Whether a member keeps a copy of a partition, or says how far behind it is."""
        if self.standbys.get(partition):
            return True
        return any(partition in facts.lags for facts in self.present.values())

    def _planned(self, granted: Mapping[int, str], warming: Mapping[int, str]) -> TargetAssignment:
        """The assignor's target: that of an earlier step as long as it lasts.

        It does as long as nothing happens but that a part of it is carried out.
        """
        size, owners = self.terms.partitions, self.owners.column
        members = tuple(self.members.values())
        warming = {p: name for p, name in warming.items() if p < size}
        standbys = {p: names for p, names in self.standbys.items() if p < size}
        plan = self.plan
        if plan is not None:
            plan.pending_moves.follow(owners)
            if (
                plan.assignor.name == self.assignor.name
                and plan.situation.members == members
                and plan.situation.partitions == size
                and not (warming or standbys or self.heirs)
                and not plan.pending_moves.strays(granted)
            ):
                self.pending_moves = plan.pending_moves
                return plan.target
        previous = [*owners[:size]]
        for partition in self.free:
            owner = previous[partition] if partition < size else None
            if owner in self.members and owner not in self.takers:
                # It had the partition, and may not have it again: another takes over at once, also
                # one that is not warm.
                previous[partition] = None
        for partition, to in granted.items():
            if partition < size:
                previous[partition] = to
        situation = GroupSituation(
            members,
            size,
            tuple(previous),
            warming,
            standbys,
            self._lags(granted),
            self.heirs,
            reported_loads.reported(self.present.values(), self.owners.__getitem__, size),
            len(reported_loads.recent(self.load_moves, self.now)),
            self.phase is GroupPhase.REBALANCING,
        )
        target = checked_target(self.assignor, situation)
        self.pending_moves = PendingMoves(situation.previous, target.interim, owners)
        lasting = getattr(self.assignor, "lasting", False)
        self.plan = (
            Rebalance(self.assignor, situation, target, self.pending_moves) if lasting else None
        )
        return target

    def _lags(self, granted: Collection[int]) -> dict[str, Mapping[int, float]]:
        """How far each member is behind; not at all where it is asked to let go, or just has.

        Members report no lag of what they hold. So an owner would have to warm up for its own
        partition when the assignor prefers it to the member that the handoff is for.
        """
        lags = {name: member.lags for name, member in self.present.items() if member.lags}
        for partition in granted:
            owner = self.owners[partition]
            if owner in self.members:
                lags[owner] = {**lags.get(owner, {}), partition: 0.0}
        return lags

    # --- 4: whether it may begin --------------------------------------------------------------

    def _moves(self, wanted: Wanted) -> list[int]:
        """Held partitions that should go elsewhere, and have not been asked for yet."""
        assert self.pending_moves is not None
        apart = {*self.pending_moves.apart, *self.owners.changes, *self.draining}
        return sorted(partition for partition in apart if self._is_to_move(partition, wanted))

    def _is_to_move(self, partition: int, wanted: Wanted) -> bool:
        to = wanted[partition]
        return (
            to in self.takers
            and partition not in self.free
            and partition not in self.handoffs
            and (partition < self.terms.partitions or partition in self.draining)
            and to != self.owners[partition]
            and self.owners[partition] not in self.frozen
        )

    def _having(self) -> Counter[str | None]:
        """How many partitions each member holds that holds any."""
        if self.pending_moves is None:
            having = Counter(self.owners)
        else:
            having = self.pending_moves.counts.copy()
            having.subtract(
                self.pending_moves.owners[partition] for partition in self.owners.changes
            )
            having.update(self.owners.changes.values())
        having.subtract(self.owners[partition] for partition in self.free)
        return +having

    def _active(self) -> int:
        return sum(member.state is MemberState.ACTIVE for member in self.members.values())

    def _control(self, target: TargetAssignment, wanted: Wanted) -> None:
        if self.phase is GroupPhase.REBALANCING:
            return
        moves = self._moves(wanted)
        if not moves and not self.free and target.settled:
            if self.phase is GroupPhase.HOLDDOWN:
                self._tell(EventKind.CANCELLED, why="nothing is left to move")
                self._turn(PhaseTurn.NOTHING_LEFT)
            return
        if self.holddown is None:
            self.holddown = Holddown(self.now, self.now + self.terms.rebalance_delay)
        why = self._begins(moves, target)
        if why:
            if self.phase is GroupPhase.HOLDDOWN and self.now < self.holddown.until:
                self._tell(EventKind.CANCELLED, why=why)
            self._turn(PhaseTurn.BEGIN)
            self._tell(EventKind.REBALANCING, why=why)
        elif self.phase is GroupPhase.READY:
            self._turn(PhaseTurn.CHANGED)
            self._tell(EventKind.HOLDDOWN, why=f"for {self.terms.rebalance_delay:g} s")

    def _begins(self, moves: list[int], target: TargetAssignment) -> str:
        """Why partitions may move now, or be warmed up for; empty when they may not."""
        assert self.holddown is not None
        if self.now >= self.holddown.until:
            uneven = self.for_load and self.for_load.issuperset(moves)
            return "loads are uneven" if uneven else "the members have changed"
        warmed_for = [
            partition
            for partition, to in target.warmups.items()
            if target.owners[partition] == to in self.takers and partition not in self.free
        ]
        for partition in (*moves, *warmed_for):
            if self._stops(self.owners[partition]) or self.owners[partition] in self.frozen:
                # As after its end: it may be back at once.
                continue
            owner = self.members.get(self.owners[partition] or "")
            if owner is None or owner.state is not MemberState.ACTIVE:
                kind = "leaving" if owner is None else owner.state.value
                return f"{self.owners[partition]} is {kind}"
        if not moves and self.free and self._active() >= max(1, self.settled):
            return "as many members as before, and nothing to hand off"
        return ""

    # --- 5 and 6: grant and revoke ------------------------------------------------------------

    def _act(self, target: TargetAssignment, wanted: Wanted) -> None:
        if self.phase is GroupPhase.HOLDDOWN:
            having = self._having()
            # Members that hold nothing, but are back, or have taken the place of another.
            back = {*self.heirs.values(), *(self.owners[p] for p in self.free)}
            entitled = {
                name
                for name, member in self.members.items()
                if name in back and not having[name] and member.state is MemberState.ACTIVE
            }
            for partition in sorted(self.free):
                name = wanted[partition]
                owner = self.owners[partition] or ""
                keeper = self.heirs.get(owner, owner)
                if keeper in entitled:
                    # All of it, whatever would be even for those who are there now: others may
                    # be about to return. But a copy comes first.
                    if name == keeper or name not in self.standbys.get(partition, ()):
                        self._grant(partition, keeper)
                elif name is not None and not having[name] and name not in entitled:
                    self._grant(partition, name)
            self.warming = {p: n for p, n in self.warming.items() if n in self.members}
            return
        for partition in sorted(self.free):
            name = wanted[partition]
            if name is not None:
                self._grant(partition, name)
        if self.phase is GroupPhase.REBALANCING:
            self._revoke(wanted)
        self._redirect(wanted)
        waiting = self._waiting_warm(wanted)
        warmups = {
            # A new copy waits until the partition has moved: the owner to be would count as cold.
            p: name
            for p, name in target.warmups.items()
            if name in self.takers and p not in waiting
        }
        for partition, name in warmups.items():
            if self.warming.get(partition) != name:
                self._tell(EventKind.WARMUP, name, partition)
        self.warming = waiting | warmups
        # If no member may be granted anything, a copy has no use. It would only make the assignor
        # answer differently in the next step, and so on.
        # Until an owner that is no member any more has let go, the assignor says who is to have the
        # partition: another copy would make that answer differ, too.
        going = {p for p, handoff in self.handoffs.items() if handoff.owner not in self.members}
        self.standbys = self._standbys(target, going) if self.takers else {}

    def _redirect(self, wanted: Wanted) -> None:
        """Hand over to the member with a copy that the assignor prefers meanwhile.

        Were the handoff still meant for another, that member would count as the owner to be. So the
        copy would be given up, and the next step would choose another one for the same reason.
        """
        for partition, handoff in self.handoffs.items():
            to = wanted[partition]
            if to in self.takers and to != handoff.owner and to in self._copies(partition):
                self.handoffs[partition] = replace(handoff, to=str(to))

    def _waiting_warm(self, wanted: Wanted) -> dict[int, str]:
        """The members that are warm for partitions whose owners have not been asked for them yet.

        They stay warm while the handoff waits for others.
        """
        return {
            partition: str(wanted[partition])
            for partition in {*self.warming, *self.standbys}
            if wanted[partition] in self._copies(partition) and self._is_to_move(partition, wanted)
        }

    def _copies(self, partition: int) -> tuple[str, ...]:
        """The members that keep a copy of a partition, or warm up for it."""
        warming = self.warming.get(partition)
        copies = self.standbys.get(partition, ())
        return copies if warming is None else (warming, *copies)

    def _grant(self, partition: int, name: str) -> None:
        if name not in self.takers:
            return
        # Above every token before it, also when Redis has forgotten those.
        self.token = max(self.token + 1, int(self.now * 1e6))
        last, self.owners[partition] = self.owners[partition], name
        self.tokens[partition] = self.token
        self.free.discard(partition)
        why = f"was {last}'s" if last not in (None, name) else ""
        self._tell(EventKind.GRANTED, name, partition, why=why)

    def _revoke(self, wanted: Wanted) -> None:
        if self.at_once:
            for partition in self._moves(wanted):
                # A stalled member is given the time that it has for the one before.
                if self.roster[str(self.owners[partition])].sheds_after <= self.now:
                    why = FOR_LOAD if partition in self.for_load else ""
                    self._ask(partition, str(wanted[partition]), why)
            return
        if len(self.handoffs) >= self.terms.handoffs and self.present.keys() == self.members.keys():
            return
        having = self._having()
        for handoff in self.handoffs.values():
            having[handoff.owner] -= 1
            having[handoff.to] += 1
        pending = self._pending(wanted)
        for owner in [name for name in pending if name not in self.members]:
            # Its time to leave is over: no budget, no order.
            why = "it stops" if self._stops(owner) else "its time to leave is over"
            takers = pending.pop(owner)
            for to in sorted(takers, key=lambda name: takers[name].first):
                for partition in takers[to]:
                    self._ask(partition, to, why)
        busy = {handoff.owner for handoff in self.handoffs.values()}
        for owner in list(pending):
            member = self.members[owner]
            if member.state is MemberState.STALLED:
                takers = pending.pop(owner)
                if owner not in busy and self.roster[owner].sheds_after <= self.now:
                    # One at a time, and the next not before this one had all its time.
                    to = min(takers, key=lambda name: takers[name].first)
                    pending[owner] = {to: Queue([takers[to].first])}
        turns = [self._turn_of(name, having) for name in pending]
        heapq.heapify(turns)
        while pending and len(self.handoffs) < self.terms.handoffs:
            turn = heapq.heappop(turns)
            owner = turn[-1]
            if owner not in pending or turn != self._turn_of(owner, having):
                continue  # It has had another turn, or has more or less since.
            takers = pending[owner]
            to = min(takers, key=lambda name: (self._load(name, having), takers[name].first))
            partition = takers[to].take()
            if not takers[to]:
                del takers[to]
            if not takers:
                del pending[owner]
            having[owner] -= 1
            having[to] += 1
            for name in pending.keys() & {owner, to}:
                heapq.heappush(turns, self._turn_of(name, having))
            state = self.members[owner].state
            why = "" if state is MemberState.ACTIVE else f"is {state.value}"
            if partition in self.for_load:
                self.load_moves = (*reported_loads.recent(self.load_moves, self.now), self.now)
                why = FOR_LOAD
            self._ask(partition, to, why)
            if state is MemberState.STALLED:
                sheds_after = self.now + self.terms.max_handoff_time
                self.roster[owner] = replace(self.roster[owner], sheds_after=sheds_after)

    def _pending(self, wanted: Wanted) -> dict[str, dict[str, Queue]]:
        """For each owner and taker the partitions that are to go from the one to the other."""
        assert self.pending_moves is not None
        # Those that are not among the pending moves: few, but in a step that grants many.
        more: dict[tuple[str, str], list[int]] = {}
        for partition in {*self.owners.changes, *self.draining}:
            if self._is_to_move(partition, wanted):
                route = str(self.owners[partition]), str(wanted[partition])
                more.setdefault(route, []).append(partition)
        passed = {*self.owners.changes, *self.free, *self.handoffs}
        pending: dict[str, dict[str, Queue]] = {}
        for (owner, to), partitions in self.pending_moves.routes.items():
            queue = Queue(partitions, passed)
            if owner in self.frozen:
                continue
            if queue and owner is not None and to is not None and to in self.takers:
                pending.setdefault(owner, {})[to] = queue
        for (owner, to), partitions in more.items():
            takers = pending.setdefault(owner, {})
            takers[to] = Queue(sorted([*partitions, *takers.get(to, ())]))
        return pending

    def _place(self, name: str) -> int:
        return self.roster[name].place

    def _load(self, name: str, having: Counter[str | None]) -> float:
        return having[name] / self.members[name].weight

    def _turn_of(self, name: str, having: Counter[str | None]) -> tuple[bool, float, int, str]:
        """When an owner gives, the least first: it leaves or is stalled, or has the most."""
        active = self.members[name].state is MemberState.ACTIVE
        return active, -self._load(name, having), self._place(name), name

    def _ask(self, partition: int, to: str, why: str) -> None:
        owner = str(self.owners[partition])
        self.handoffs[partition] = Handoff(owner, to, self.generation, math.inf)
        self._tell(EventKind.REVOKED, owner, partition, to, why)

    # --- the end ------------------------------------------------------------------------------

    def _rest(self, target: TargetAssignment, wanted: Wanted) -> None:
        """Ready, when nothing is left to do."""
        if self.free or self.handoffs or not target.settled or self._moves(wanted):
            return
        if self.phase is GroupPhase.HOLDDOWN:
            self._tell(EventKind.CANCELLED, why="spare members took over")
            # Copies and warm-ups wait in a holddown: the next step is for them.
            self.goes_on = True
        if self.phase is not GroupPhase.READY:
            self._tell(EventKind.READY)
            self._turn(PhaseTurn.NOTHING_LEFT)
        self.settled = self._active()

    def _outcome(self) -> StepOutcome:
        if self.phase is not GroupPhase.HOLDDOWN and self.recovering is None:
            self.roster = {name: seat for name, seat in self.roster.items() if seat.session}
        size = max(self.draining, default=self.terms.partitions - 1) + 1
        after = replace(
            self.before,
            phase=self.phase,
            holddown=self.holddown,
            roster=self.roster,
            settled=self.settled,
            owners=self.owners.column.sized(size, None),
            tokens=self.tokens.column.sized(size, 0),
            free=frozenset(self.free),
            handoffs=self.handoffs,
            warming=self.warming,
            standbys=self.standbys,
            draining=frozenset(self.draining),
            token=self.token,
            recovering=self.recovering,
            longest_ttl=self.longest_ttl,
            longest_until=self.longest_until,
            server=self.server,
            load_moves=self.load_moves,
            orders=self.orders,
        )
        if after == self.before:
            return StepOutcome(self.before, (), self._due(self.before), plan=self.plan)
        after = replace(after, generation=self.generation, committed=None)
        if self.now >= after.longest_until:
            after = replace(after, longest_ttl=0.0, longest_until=0.0)
        return StepOutcome(after, tuple(self.events), self._due(after), self.dismissed, self.plan)

    def _due(self, state: GroupState) -> float | None:
        if self.goes_on:
            return self.now
        return min((at for at in self._times(state) if at > self.now), default=None)

    def _times(self, state: GroupState) -> Iterable[float]:
        for order in state.orders.values():
            if order.until is not None:
                yield order.until
        if self.present and reported_loads.looks(rule(self.terms, self.assignor)):
            yield self.now + reported_loads.LOOKED_AT_EVERY
        for member in self.present.values():
            if (ends := self._leave_end(member)) is not None:
                yield ends
            if member.stalled:
                yield state.roster[member.name].sheds_after
        if state.holddown is not None:
            yield state.holddown.until
        if state.recovering is not None:
            yield min(state.recovering, self.now + state.longest_lease)
        for handoff in state.handoffs.values():
            deadline, unheard = handoff.deadline, handoff.lease_end
            # Not committed yet: it will be a moment from now. The step then finds the time itself.
            if deadline == math.inf:
                deadline = self.now + state.terms.max_handoff_time
            yield deadline
            yield max(deadline, self.now + state.longest_lease if unheard is None else unheard)
