"""Move a partition only to a member that has warmed up: the learner tasks of Kafka Streams.

Two things are kept apart, as in KIP-441. The **target** says where every partition should end.
The **interim** assignment leaves a partition where it is until the member it should go to is
warm; meanwhile that member warms up, a few at a time.

The target, from what is there:

1. a partition that a member is warming up for goes to that member, unless it warms up as a standby;
2. any other stays with its owner;
3. a partition whose owner is gone, or must go, goes to the member with room that could take over
   soonest (:class:`Warmth`); or else to the one that took the owner's place; or else to the member
   furthest below its quota. A warm-up under way for an owner that must go continues, unless
   another member is warm already;
4. then, while a member has less than its fair share divided by the balancing factor, it gets a
   partition from a member with more; and while a member has more than its share times the factor,
   it gives one away. A partition that the receiver has a copy of comes first, whichever member
   has to give it; without one, the member with the most gives, of those above that limit first.

The interim: a warm member takes over; a live owner keeps a partition until its target is warm. A
partition without a live owner cannot wait. It goes to its target; or to the member with the best
copy, if the target has none, and moves on once the target is warm.
That is the order of the design notes of Kafka Streams (ready learners, previous owners, unready
learners, members with capacity), with KIP-441's rule that standbys come before cold members.

Ties are broken by the lower partition and by who joined first, so the same input gives the same
output, and once nobody is outside the bounds nothing moves any more.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hashring.core.assignors.learner_standbys import standby_interim, standby_target
from hashring.core.assignors.learner_warmups import (
    COPY,
    WARM,
    Warmth,
    chosen_warmups,
    warmup_interim,
)
from hashring.core.assignors.quotas import by_need, fair_shares, quotas, round_down, round_up
from hashring.core.assignors.situation import GroupMember, GroupSituation
from hashring.core.assignors.target_assignment import TargetAssignment, setting_text
from hashring.core.value_checks import checked_whole, plain_number
from hashring.errors import ConfigError


class LearnerAssignor:
    """Warm up before taking over.

    Args:
        balancing_factor: a member's count may be between its fair share divided by and times
            this before anything moves for balance; at least 1, which is as even as possible.
        warmups: how many warm-ups may be under way in the whole group at once.
        standbys: how many other members keep a warm copy of each partition.
        acceptable_lag: how far behind a member may be and still count as warm, in the units of
            the lags that members report; infinite means that nobody has to warm up.

    Raises:
        ConfigError: a factor below 1, fewer than one warm-up, fewer than no standbys, or a
            negative lag.
    """

    def __init__(
        self,
        balancing_factor: float = 2.0,
        warmups: int = 2,
        standbys: int = 0,
        acceptable_lag: float = 0.0,
    ) -> None:
        factor = plain_number(balancing_factor)
        if factor is None or factor < 1:
            raise ConfigError("balancing_factor", balancing_factor, "must be a number from 1 up")
        self.warmups = checked_whole("warmups", warmups)
        self.standbys = checked_whole("standbys", standbys)
        if warmups < 1:
            raise ConfigError("warmups", warmups, "without warm-ups nothing could ever move")
        if standbys < 0:
            raise ConfigError("standbys", standbys, "cannot be negative")
        lag = math.inf if acceptable_lag == math.inf else plain_number(acceptable_lag)
        if lag is None or lag < 0:
            raise ConfigError("acceptable_lag", acceptable_lag, "must be a number from 0 up")
        self.balancing_factor = float(factor)
        self.acceptable_lag = float(lag)

    @property
    def name(self) -> str:
        """The rule and its settings."""
        return (
            f"learner(balancing_factor={setting_text(self.balancing_factor)}, "
            f"warmups={self.warmups}, standbys={self.standbys}, "
            f"acceptable_lag={setting_text(self.acceptable_lag)})"
        )

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        """Who should own what, who should now, and who warms up."""
        warmth = Warmth(situation, self.acceptable_lag)
        members = situation.candidates()
        owners = _Targeting(situation, members, warmth, self.balancing_factor).owners()
        interim, waiting = warmup_interim(situation, owners, members, warmth)
        warmups = chosen_warmups(situation, owners, waiting, members, self.warmups)
        standbys: dict[int, set[str]] = {}
        copies = min(self.standbys, len(members) - 1)
        if copies > 0:
            wanted = standby_target(situation, owners, members, copies, settled=not waiting)
            standbys, moving = standby_interim(wanted, interim, situation, warmth)
            names = {member.name for member in members}
            for partition in waiting:
                had = situation.standbys.get(partition, ())
                if partition not in warmups and owners[partition] in had:
                    # Its copy is why it is to be the owner. It waits for its turn to warm up.
                    # With another copy beside it, the next answer could be another.
                    standbys[partition] = names.intersection(had)
            for partition, member in moving:
                if len(warmups) >= self.warmups:
                    break
                if partition not in warmups:
                    warmups[partition] = member
                    standbys[partition].add(member)  # see _owner_to_be
        return TargetAssignment(
            tuple(owners), interim, warmups, {p: tuple(sorted(s)) for p, s in standbys.items()}
        )


def _owner_to_be(situation: GroupSituation, partition: int) -> str | None:
    """The member that warms up for a partition to own it.

    One that warms up to replace a standby is among the standbys already; one that is to be the
    owner is not.
    """
    learner = situation.warming.get(partition)
    return None if learner in situation.standbys.get(partition, ()) else learner


class _Copy(NamedTuple):
    """A copy of a partition that another member owns; less is better.

    Attributes:
        kind, lag: see :meth:`.Warmth.place`.
        ends: whether a warm-up for the owner ends if the partition moves.
        partition: its number.
    """

    kind: int
    ends: bool
    lag: float
    partition: int


class _Targeting:
    """The four steps to the target."""

    def __init__(
        self,
        situation: GroupSituation,
        members: Sequence[GroupMember],
        warmth: Warmth,
        factor: float,
    ) -> None:
        self._situation = situation
        self._members = members
        self._warmth = warmth
        self._order = {member.name: order for order, member in enumerate(members)}
        self._alive = {member.name for member in situation.members}
        self._fair = fair_shares(members, situation.partitions)
        self._least = {
            name: min(round_down(fair), round_up(fair / factor))
            for name, fair in self._fair.items()
        }
        self._most = {
            # The product may be infinite, which cannot be rounded.
            name: max(round_up(fair), round_down(min(fair * factor, situation.partitions)))
            for name, fair in self._fair.items()
        }
        self._owners: list[str | None] = []
        self._having: dict[str, set[int]] = {member.name: set() for member in members}

    def owners(self) -> list[str | None]:
        homeless = self._keep()
        homeless = self._to_copies(homeless)
        homeless = self._to_heirs(homeless)
        self._fill(homeless)
        self._even_out()
        return self._owners

    def _give(self, partition: int, member: str) -> None:
        before = self._owners[partition]
        if before is not None:
            self._having[before].discard(partition)
        self._owners[partition] = member
        self._having[member].add(partition)

    def _load(self, name: str) -> float:
        return len(self._having[name]) / self._fair[name]

    def _keep(self) -> list[int]:
        homeless = []
        for partition, owner in enumerate(self._situation.owners_before()):
            if owner is not None and owner in self._having:
                self._owners.append(owner)
                self._having[owner].add(partition)
            else:
                self._owners.append(None)
                homeless.append(partition)
        for partition in self._situation.warming:
            learner = _owner_to_be(self._situation, partition)
            if learner in self._having and self._owners[partition] is not None:
                self._give(partition, learner)
        return homeless

    def _to_copies(self, homeless: list[int]) -> list[int]:
        """Give away what members with room have a copy of; the rest."""
        cold = []
        for partition in homeless:
            near = [
                name
                for name in self._warmth.members(partition)
                if name in self._having and len(self._having[name]) < self._most[name]
            ]
            if near:
                self._give(partition, min(near, key=lambda n, p=partition: self._takeover(n, p)))  # type: ignore[misc]
            else:
                cold.append(partition)
        return cold

    def _takeover(self, name: str, partition: int) -> tuple[object, ...]:
        """Sorts members with a copy by who should take over from an owner that must go."""
        return *self._place(name, partition), self._load(name), self._order[name]

    def _place(self, name: str, partition: int) -> tuple[int, float]:
        """Sorts members with a copy by how soon they could take over from an owner."""
        place = self._warmth.place(name, partition)
        if place[0] != WARM and self._situation.owner_before(partition) in self._alive:
            # There is time: a warm-up under way is not given up for another that may lag less.
            under_way = self._situation.warming.get(partition) == name
            place = (COPY, -1.0) if under_way else place
        return place

    def _to_heirs(self, homeless: list[int]) -> list[int]:
        """Give away what a member has taken the owner's place of; the rest."""
        rest = []
        for partition in homeless:
            heir = self._situation.keeper(partition)
            if heir in self._having and len(self._having[heir]) < self._most[heir]:
                self._give(partition, heir)
            else:
                rest.append(partition)
        return rest

    def _fill(self, homeless: list[int]) -> None:
        if not homeless:
            return
        having = {name: len(partitions) for name, partitions in self._having.items()}
        # A member below its lower bound comes first: an owner would have to give it one otherwise.
        receivers = self._neediest(self._least, having, len(homeless))
        for name in receivers:
            having[name] += 1
        quota = quotas(self._members, self._situation.partitions, having)
        # Quotas add up to all partitions, so at least as many are missing as are homeless.
        receivers += self._neediest(quota, having, len(homeless) - len(receivers))
        gets = dict.fromkeys(having, 0) | Counter(receivers)
        for partition, name in zip(homeless, by_need(gets), strict=True):
            self._give(partition, name)

    @staticmethod
    def _neediest(bound: Mapping[str, int], having: Mapping[str, int], most: int) -> list[str]:
        """Those furthest below their bounds, each as often as it gets a partition."""
        missing = {name: max(0, bound[name] - count) for name, count in having.items()}
        return list(itertools.islice(by_need(missing), most))

    def _even_out(self) -> None:
        names = list(self._having)
        short = sum(max(0, self._least[n] - len(self._having[n])) for n in names)
        self._move(short, self._least)
        over = sum(max(0, len(self._having[n]) - self._most[n]) for n in names)
        self._move(over, self._most)

    def _move(self, times: int, bound: Mapping[str, int]) -> None:
        """Move ``times`` partitions, each from a member above the bound to the least below it.

        With weights, the member with the greatest load need not be above its upper bound. Members
        above theirs give first: so no move is made that another one makes superfluous.

        There always are two such members: the lower bounds add up to at most all partitions, the
        upper ones to at least all. A donor never becomes a receiver on the way, nor the reverse,
        so an entry that is stale in the other heap never comes up wrongly.
        """
        times -= self._move_copies(times, bound)
        donors = [self._donor(n) for n in self._having]
        receivers = [(self._load(n), self._order[n], n) for n in self._having]
        heapq.heapify(donors)
        heapq.heapify(receivers)
        # What each donor can give, the last first.
        gifts: dict[str, list[int]] = {}
        for _ in range(times):
            donor = heapq.heappop(donors)[-1]
            while len(self._having[donor]) <= bound[donor]:
                donor = heapq.heappop(donors)[-1]
            receiver = heapq.heappop(receivers)[2]
            while len(self._having[receiver]) >= bound[receiver]:
                receiver = heapq.heappop(receivers)[2]
            if donor not in gifts:
                gifts[donor] = self._gifts(donor)
            self._give(gifts[donor].pop(), receiver)
            heapq.heappush(donors, self._donor(donor))
            heapq.heappush(receivers, (self._load(receiver), self._order[receiver], receiver))

    def _move_copies(self, times: int, bound: Mapping[str, int]) -> int:
        """Like :meth:`_move`, of partitions that the receiver has a copy of; how many moved."""
        receivers = [(self._load(n), self._order[n], n) for n in self._having]
        heapq.heapify(receivers)
        copies: dict[str, dict[str, list[_Copy]]] = {}
        moved = 0
        while moved < times and receivers:
            receiver = heapq.heappop(receivers)[2]
            if len(self._having[receiver]) >= bound[receiver]:
                continue
            if receiver not in copies:
                copies[receiver] = self._copies(receiver)
            choices = []
            for donor, queue in copies[receiver].items():
                while queue and self._owners[queue[-1].partition] != donor:
                    queue.pop()  # another receiver has it
                if queue and len(self._having[donor]) > bound[donor]:
                    kind, ends, lag, partition = queue[-1]
                    choices.append((kind, ends, lag, -self._load(donor), partition))
            # Without a choice now there is none later: members above the bound only lose.
            if choices:
                self._give(min(choices)[-1], receiver)
                moved += 1
                heapq.heappush(receivers, (self._load(receiver), self._order[receiver], receiver))
        return moved

    def _copies(self, receiver: str) -> dict[str, list[_Copy]]:
        """By owner the partitions that a member has a copy of, the best one last."""
        found: dict[str, list[_Copy]] = {}
        for partition in self._warmth.partitions(receiver):
            owner = self._owners[partition] if partition < len(self._owners) else None
            if owner not in (None, receiver):
                kind, lag = self._place(receiver, partition)
                ends = self._ends_a_warm_up(partition, str(owner))
                found.setdefault(str(owner), []).append(_Copy(kind, ends, lag, partition))
        for queue in found.values():
            queue.sort(reverse=True)
        return found

    def _donor(self, name: str) -> tuple[bool, float, int, str]:
        """Sorts members by who gives next: those that have to give in any case come first."""
        has_to = len(self._having[name]) > self._most[name]
        return not has_to, -self._load(name), self._order[name], name

    def _gifts(self, donor: str) -> list[int]:
        """What a member has, in the order in which it would give it away, the first one last."""
        return sorted(
            self._having[donor], key=lambda p: (self._ends_a_warm_up(p, donor), p), reverse=True
        )

    def _ends_a_warm_up(self, partition: int, donor: str) -> bool:
        return self._situation.warming.get(partition) == donor
