"""Move a partition only to a member that has warmed up: the learner tasks of Kafka Streams.

Two things are kept apart, as in KIP-441. The **target** says where every partition should end.
The **interim** assignment leaves a partition where it is until the member it should go to is
warm; meanwhile that member warms up, a few at a time.

The target, from what is there:

1. a partition that a member is warming up for goes to that member;
2. any other stays with its owner;
3. one whose owner is gone goes to a warm member that has room, or else to the member furthest
   below its quota;
4. then, while a member has less than its fair share divided by the balancing factor, it gets one
   from the member with the most; and while one has more than its share times the factor, it
   gives one to the member with the least.

The interim: who is warm takes over; a live owner keeps what nobody is warm for; and what has no
live owner goes to its target even when that one is cold, because waiting would help nobody.
That is the order of the design notes of Kafka Streams: ready learners, previous owners, unready
learners, members with capacity.

Ties are broken by the lower partition and by who joined first, so the same input gives the same
output, and once nobody is outside the bounds nothing moves any more.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from typing import Final

from hashring.core.assignors.balanced import by_need
from hashring.core.assignors.protocol import Member, Owners, Situation, Target
from hashring.core.assignors.quotas import fair_shares, quotas, round_down, round_up
from hashring.errors import ConfigError


class Learner:
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
        if not balancing_factor >= 1 or not math.isfinite(balancing_factor):
            raise ConfigError("balancing_factor", balancing_factor, "must be a number from 1 up")
        if warmups < 1:
            raise ConfigError("warmups", warmups, "without warm-ups nothing could ever move")
        if standbys < 0:
            raise ConfigError("standbys", standbys, "cannot be negative")
        if not acceptable_lag >= 0:
            raise ConfigError("acceptable_lag", acceptable_lag, "cannot be negative")
        self.balancing_factor = balancing_factor
        self.warmups = warmups
        self.standbys = standbys
        self.acceptable_lag = acceptable_lag

    @property
    def name(self) -> str:
        """The rule and its settings."""
        return (
            f"learner(balancing_factor={self.balancing_factor:g}, warmups={self.warmups}, "
            f"standbys={self.standbys}, acceptable_lag={self.acceptable_lag:g})"
        )

    def assign(self, situation: Situation) -> Target:
        """Who should own what, who should now, and who warms up."""
        warmth = _Warmth(situation, self.acceptable_lag)
        members = situation.candidates()
        owners = _Targeting(situation, members, warmth, self.balancing_factor).owners()
        interim, waiting = _interim(situation, owners, warmth)
        warmups = _warmups(situation, owners, waiting, members, self.warmups)
        standbys: dict[int, tuple[str, ...]] = {}
        if self.standbys and len(members) > 1:
            wanted = _standby_target(
                situation, owners, members, min(self.standbys, len(members) - 1)
            )
            standbys, moving = _standby_interim(wanted, interim, situation, warmth)
            for partition, member in moving:
                if len(warmups) >= self.warmups:
                    break
                if partition not in warmups:
                    warmups[partition] = member
        return Target(tuple(owners), interim, warmups, standbys)


class _Warmth:
    """Who is warm for what."""

    def __init__(self, situation: Situation, acceptable_lag: float) -> None:
        self._everyone: Final = math.isinf(acceptable_lag)
        self._by_member: dict[str, set[int]] = {}
        self._by_partition: dict[int, set[str]] = {}
        for member, lags in situation.lags.items():
            warm = {partition for partition, lag in lags.items() if lag <= acceptable_lag}
            self._by_member[member] = warm
            for partition in warm:
                self._by_partition.setdefault(partition, set()).add(member)

    def is_warm(self, member: str, partition: int) -> bool:
        return self._everyone or partition in self._by_member.get(member, ())

    def partitions(self, member: str) -> set[int]:
        """What the member reported itself warm for."""
        return self._by_member.get(member, set())

    def members(self, partition: int) -> set[str]:
        """Who reported itself warm for the partition."""
        return self._by_partition.get(partition, set())


class _Targeting:
    """The four steps to the target."""

    def __init__(
        self,
        situation: Situation,
        members: Sequence[Member],
        warmth: _Warmth,
        factor: float,
    ) -> None:
        self._situation = situation
        self._members = members
        self._warmth = warmth
        self._order = {member.name: order for order, member in enumerate(members)}
        self._fair = fair_shares(members, situation.partitions)
        self._least = {
            name: min(round_down(fair), round_up(fair / factor))
            for name, fair in self._fair.items()
        }
        self._most = {
            name: max(round_up(fair), round_down(fair * factor))
            for name, fair in self._fair.items()
        }
        self._owners: list[str | None] = [None] * situation.partitions
        self._having: dict[str, set[int]] = {member.name: set() for member in members}

    def owners(self) -> list[str | None]:
        homeless = self._keep()
        homeless = self._to_warm_members(homeless)
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
        warming = self._situation.warming
        for partition in range(self._situation.partitions):
            learner = warming.get(partition)
            owner = self._situation.owner_before(partition)
            if learner is not None and learner in self._having:
                self._give(partition, learner)
            elif owner is not None and owner in self._having:
                self._give(partition, owner)
            else:
                homeless.append(partition)
        return homeless

    def _to_warm_members(self, homeless: list[int]) -> list[int]:
        cold = []
        for partition in homeless:
            warm = [
                name
                for name in self._warmth.members(partition)
                if name in self._having and len(self._having[name]) < self._most[name]
            ]
            if warm:
                self._give(partition, min(warm, key=lambda n: (self._load(n), self._order[n])))
            else:
                cold.append(partition)
        return cold

    def _fill(self, homeless: list[int]) -> None:
        if not homeless:
            return
        having = {name: len(partitions) for name, partitions in self._having.items()}
        quota = quotas(self._members, self._situation.partitions, having)
        missing = {name: max(0, quota[name] - count) for name, count in having.items()}
        # Quotas add up to all partitions, so at least as many are missing as are homeless.
        for partition, name in zip(homeless, by_need(missing), strict=False):
            self._give(partition, name)

    def _even_out(self) -> None:
        names = list(self._having)
        short = sum(max(0, self._least[n] - len(self._having[n])) for n in names)
        self._move(short, self._least)
        over = sum(max(0, len(self._having[n]) - self._most[n]) for n in names)
        self._move(over, self._most)

    def _move(self, times: int, bound: Mapping[str, int]) -> None:
        """Move one from the member with the most above the bound to the least below it, often.

        There always are two such members: the lower bounds add up to at most all partitions, the
        upper ones to at least all. A donor never becomes a receiver on the way, nor the reverse,
        so an entry that is stale in the other heap never comes up wrongly.
        """
        donors = [(-self._load(n), self._order[n], n) for n in self._having]
        receivers = [(self._load(n), self._order[n], n) for n in self._having]
        heapq.heapify(donors)
        heapq.heapify(receivers)
        for _ in range(times):
            donor = heapq.heappop(donors)[2]
            while len(self._having[donor]) <= bound[donor]:
                donor = heapq.heappop(donors)[2]
            receiver = heapq.heappop(receivers)[2]
            while len(self._having[receiver]) >= bound[receiver]:
                receiver = heapq.heappop(receivers)[2]
            self._give(self._choose(donor, receiver), receiver)
            heapq.heappush(donors, (-self._load(donor), self._order[donor], donor))
            heapq.heappush(receivers, (self._load(receiver), self._order[receiver], receiver))

    def _choose(self, donor: str, receiver: str) -> int:
        # What the receiver is warm for, before what would end a warm-up under way.
        having = self._having[donor]
        warm = self._warmth.partitions(receiver) & having
        warming = self._situation.warming
        return min(warm or having, key=lambda p: (warming.get(p) == donor, p))


def _interim(
    situation: Situation, owners: list[str | None], warmth: _Warmth
) -> tuple[Owners, list[int]]:
    """Who should own now, and which partitions wait for a warm-up."""
    alive = {member.name for member in situation.members}
    interim: list[str | None] = []
    waiting = []
    for partition, target in enumerate(owners):
        owner = situation.owner_before(partition)
        if (
            owner == target
            or owner not in alive
            or target is None
            or warmth.is_warm(target, partition)
        ):
            interim.append(target)
        else:
            interim.append(owner)
            waiting.append(partition)
    return tuple(interim), waiting


def _warmups(
    situation: Situation,
    owners: list[str | None],
    waiting: list[int],
    members: Sequence[Member],
    budget: int,
) -> dict[int, str]:
    """The warm-ups to have under way: those that are first, then for owners that must go."""
    takers = {member.name for member in members}
    urgent = sorted(
        waiting,
        key=lambda partition: (
            situation.warming.get(partition) != owners[partition],
            situation.owner_before(partition) in takers,
            partition,
        ),
    )
    chosen = sorted(urgent[:budget])
    return {partition: str(owners[partition]) for partition in chosen}


def _standby_target(
    situation: Situation, owners: list[str | None], members: Sequence[Member], copies: int
) -> list[list[str]]:
    """For each partition the members that should end as its standbys, evenly spread.

    Who is a standby stays one; what is missing goes to whoever is furthest below its quota; then
    single moves go from members above their quota to members below. An owner is no standby of
    its own, so the quotas cannot always be met; as each move brings the counts nearer to them,
    it ends, and what it ends with is left alone the next time.
    """
    order = {member.name: place for place, member in enumerate(members)}
    load = dict.fromkeys(order, 0)
    wanted: list[list[str]] = []
    for partition, owner in enumerate(owners):
        had = [n for n in situation.standbys.get(partition, ()) if n in order and n != owner]
        wanted.append(sorted(had, key=order.__getitem__)[:copies])
        for name in wanted[-1]:
            load[name] += 1
    quota = quotas(members, len(owners) * copies, load)

    emptiest = [(load[name] - quota[name], order[name], name) for name in order]
    heapq.heapify(emptiest)
    for partition, owner in enumerate(owners):
        passed_over = []
        while len(wanted[partition]) < copies:
            beyond, place, name = heapq.heappop(emptiest)
            if name != owner and name not in wanted[partition]:
                wanted[partition].append(name)
                load[name] += 1
                beyond += 1
            passed_over.append((beyond, place, name))
        for entry in passed_over:
            heapq.heappush(emptiest, entry)
    _even_standbys(wanted, owners, load, quotas(members, len(owners) * copies, load))
    return wanted


def _even_standbys(
    wanted: list[list[str]],
    owners: list[str | None],
    load: dict[str, int],
    quota: Mapping[str, int],
) -> None:
    under = [name for name in load if load[name] < quota[name]]
    for partition, names in enumerate(wanted):
        for place, name in enumerate(names):
            if load[name] <= quota[name]:
                continue
            for other in under:
                if other != owners[partition] and other not in names:
                    names[place] = other
                    load[name] -= 1
                    load[other] += 1
                    if load[other] >= quota[other]:
                        under.remove(other)
                    break
        if not under:
            return


def _standby_interim(
    wanted: list[list[str]], interim: Owners, situation: Situation, warmth: _Warmth
) -> tuple[dict[int, tuple[str, ...]], list[tuple[int, str]]]:
    """The standbys to have now, and the copies that wait for a warm-up.

    A warm copy stays until the one that replaces it is warm; a partition with too few warm
    copies gets cold ones, since there is nothing to lose.
    """
    alive = {member.name for member in situation.members}
    standbys: dict[int, tuple[str, ...]] = {}
    moving: list[tuple[int, str]] = []
    for partition, names in enumerate(wanted):
        owner = interim[partition]
        final = [name for name in names if name != owner]
        copies = len(names)
        warm = [name for name in final if warmth.is_warm(name, partition)]
        kept = [
            name
            for name in (*situation.standbys.get(partition, ()), situation.owner_before(partition))
            if name is not None
            and name in alive
            and name != owner
            and name not in final
            and warmth.is_warm(name, partition)
        ]
        cold = [name for name in final if name not in warm]
        now = list(dict.fromkeys([*warm, *kept, *cold]))[:copies]
        standbys[partition] = tuple(sorted(now))
        moving.extend((partition, name) for name in cold if name not in now)
    return standbys, moving
