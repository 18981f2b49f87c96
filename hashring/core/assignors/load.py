"""Even loads with few moves: partitions go from the busiest members to the least busy ones.

A member's **level** is the load of its partitions divided by its weight; the **mean** is the load
of all partitions divided by the weight of all members, without partitions that are too hot
(below) and a member for each of them. Nothing moves for load while every level
is within ``factor`` of the mean: at most ``factor`` times it, and at least ``2 - factor`` times.
Once one is not, partitions move until all are within half of that distance, or no single move
helps. A group asks for each step anew, and says whether it is ``rebalancing`` already. The distance
between the two bounds is the hysteresis: from a state within the inner one, noise of up to
``(factor - 1) / (3 * factor + 1)`` of each load (5 % by default) moves nothing.

The rule is the weighted move of Slicer (Adya et al., "Slicer: Auto-Sharding for Datacenter
Applications", OSDI 2016, section 4.4): rank moves by the imbalance that they remove per churn, do
the best, and stop when the churn of one round is used up. What differs stands in
docs/howto/load.rst; so every move is one unit of churn, and the best move from a member is the one
that leaves the greater of the two levels lowest.

A partition that is busier than ``factor`` times the mean on the member with the greatest weight
is **too hot**: no assignment evens it out. It stays where it is, its member sheds others, and
:func:`too_hot` names it. Make such a partition smaller, or give a member more weight.

A load that nobody reports counts as the mean of those that are reported. A load below a hundredth
of the mean counts as that hundredth, so that idle partitions are spread as well. Partitions
without an owner are placed at once, the busiest first, each at the member with the lowest level.

Not guaranteed: the fewest moves that any method could find (that is a bin-packing problem), nor
that the bounds are reached when a few partitions make up most of the load.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from hashring.core.assignors.situation import GroupMember, GroupSituation
from hashring.core.assignors.target_assignment import TargetAssignment, setting_text
from hashring.core.value_checks import plain_number, plain_whole
from hashring.errors import ConfigError

_IDLE: Final = 0.01
"""The least load of a partition, as a part of the mean partition's."""

_EPSILON: Final = 1e-9
"""Relative: levels are sums of floats, and a difference this small is none."""


class LoadAssignor:
    """Loads as even as ``factor`` asks for, by few moves.

    Args:
        factor: how far a member's level may be from the mean before partitions move; above 1.
        moves: how many partitions may move for their load within one minute.

    Raises:
        ConfigError: a setting that cannot work.
    """

    def __init__(self, factor: float = 1.25, moves: int = 12) -> None:
        # Also numbers of numpy's.
        number, count = plain_number(factor), plain_whole(moves)
        if number is None or number <= 1:
            raise ConfigError("factor", factor, "give a number above 1, such as 1.25")
        if count is None or count < 1:
            raise ConfigError("moves", moves, "give a number of moves a minute, at least 1")
        self.factor = float(number)
        self.moves = count

    @property
    def name(self) -> str:
        """The rule and its settings."""
        if (self.factor, self.moves) == (1.25, 12):
            return "load"
        return f"load(factor={setting_text(self.factor)}, moves={self.moves})"

    def assign(self, situation: GroupSituation) -> TargetAssignment:
        """Who should own what: ``owners`` with even loads, ``interim`` as far as it may go now."""
        members = situation.candidates()
        names = {member.name for member in members}
        kept = [owner if owner in names else None for owner in situation.keepers()]
        levels = _Levels(members, _effective(situation), kept, self.factor)
        levels.place([p for p, owner in enumerate(kept) if owner is None])
        placed = list(levels.owners)
        levels.even_out(begun=situation.rebalancing)
        moved = [p for p in levels.moved if levels.owners[p] != placed[p]]
        interim = list(placed)
        for partition in moved[: max(0, self.moves - situation.recent_moves)]:
            interim[partition] = levels.owners[partition]
        # What had no owner is placed at once where it is to end: nobody has to let go of it.
        for partition, owner in enumerate(kept):
            if owner is None:
                interim[partition] = levels.owners[partition]
        for_load = frozenset(p for p in moved if kept[p] is not None)
        return TargetAssignment(tuple(levels.owners), tuple(interim), for_load=for_load)


def too_hot(situation: GroupSituation, factor: float) -> tuple[int, ...]:
    """The partitions that are too busy for any member, the busiest first."""
    members = situation.candidates()
    if len(members) < 2:
        return ()
    return _hot_and_mean(_effective(situation), members, factor)[0]


def _hot_and_mean(
    loads: list[float], members: tuple[GroupMember, ...], factor: float
) -> tuple[tuple[int, ...], float]:
    """The partitions that are too hot, the busiest first, and the mean level of the rest."""
    greatest = max(member.weight for member in members)
    weight = math.fsum(member.weight for member in members)
    left = math.fsum(loads)
    hot: list[int] = []
    # Mostly there is none, and there may be thousands to sort.
    busiest = max(loads) > factor * left / weight * greatest * (1 + _EPSILON)
    for partition in sorted(range(len(loads)), key=lambda p: (-loads[p], p)) if busiest else ():
        # The last member has to take all that is left.
        if len(hot) == len(members) - 1 or weight <= greatest:
            break
        if loads[partition] <= factor * left / weight * greatest * (1 + _EPSILON):
            break
        hot.append(partition)
        left -= loads[partition]
        weight -= greatest
    return tuple(hot), left / weight


def _effective(situation: GroupSituation) -> list[float]:
    """The load that each partition counts for."""
    known = [load for p, load in situation.loads.items() if 0 <= p < situation.partitions]
    mean = math.fsum(known) / len(known) if known else 0.0
    if mean <= 0:
        return [1.0] * situation.partitions
    return [max(situation.loads.get(p, mean), _IDLE * mean) for p in range(situation.partitions)]


@dataclass
class _Holder:
    """A member with what it has at the moment.

    Attributes:
        order: its place among the candidates.
        load: of its partitions together.
        loads: of its partitions, each once, in rising order.
        by_load: its partitions of each load, in rising order.
    """

    member: GroupMember
    order: int
    load: float = 0.0
    loads: list[float] = field(default_factory=list)
    by_load: dict[float, list[int]] = field(default_factory=dict)

    @property
    def level(self) -> float:
        return self.load / self.member.weight

    @property
    def hottest(self) -> float:
        """The load of its busiest partition."""
        return self.loads[-1] if self.loads else 0.0

    def begin(self, partitions: Iterable[int], loads: Sequence[float]) -> None:
        """Have these from the start; partitions in rising order."""
        for partition in partitions:
            self.by_load.setdefault(loads[partition], []).append(partition)
        self.loads = sorted(self.by_load)
        self.load = math.fsum(load for load, has in self.by_load.items() for _ in has)

    def add(self, partition: int, load: float) -> None:
        if load not in self.by_load:
            self.by_load[load] = []
            insort(self.loads, load)
        insort(self.by_load[load], partition)
        self.load += load

    def remove(self, partition: int, load: float) -> None:
        same = self.by_load[load]
        del same[bisect_left(same, partition)]
        if not same:
            del self.by_load[load]
            del self.loads[bisect_left(self.loads, load)]
        self.load = self.load - load if self.loads else 0.0


_Rank = tuple[float, int, _Holder]
"""What members are sorted by, the place among the candidates, which is unique, and the member."""


class _Levels:
    """Working copies of the assignment and of what follows from it."""

    def __init__(
        self,
        members: tuple[GroupMember, ...],
        loads: list[float],
        owners: list[str | None],
        factor: float,
    ) -> None:
        self.owners = owners[:]
        self.moved: dict[int, None] = {}
        self._loads = loads
        self._holders = {m.name: _Holder(m, order) for order, m in enumerate(members)}
        having: dict[str, list[int]] = {member.name: [] for member in members}
        for partition, owner in enumerate(owners):
            if owner is not None:
                having[owner].append(partition)
        for name, holder in self._holders.items():
            holder.begin(having[name], loads)
        _, self._mean = _hot_and_mean(loads, members, factor)
        self._outer = factor - 1
        self._inner = self._outer / 2
        # Members in the orders in which a move is looked for, each after what it is sorted by.
        self._busy: list[_Rank] = []
        self._idle: list[_Rank] = []
        self._givers: list[_Rank] = []
        self._alike: dict[float, list[_Rank]] = {m.weight: [] for m in members}

    def place(self, free: list[int]) -> None:
        """Give what nobody has to the least busy, the busiest partition first."""
        queue = [(holder.level, holder.order, name) for name, holder in self._holders.items()]
        heapq.heapify(queue)
        for partition in sorted(free, key=lambda p: (-self._loads[p], p)):
            _, order, name = queue[0]
            self._holders[name].add(partition, self._loads[partition])
            self.owners[partition] = name
            heapq.heapreplace(queue, (self._holders[name].level, order, name))

    def even_out(self, *, begun: bool) -> None:
        """Move partitions, best move first, until all levels are within the inner bounds.

        Args:
            begun: whether partitions are on the move already; else nothing moves unless a level is
                outside the outer bounds.
        """
        if not begun and not self._is_uneven():
            return
        for holder in self._holders.values():
            self._rank(holder)
        # Each move lowers the greater of two levels, so this ends; the bound is for floats alone.
        for _ in range(4 * len(self.owners) + 4):
            move = self._relief() or self._help()
            if move is None:
                return
            self._move(*move)

    def _move(self, partition: int, giver: _Holder, taker: _Holder) -> None:
        for holder in (giver, taker):
            self._unrank(holder)
        giver.remove(partition, self._loads[partition])
        taker.add(partition, self._loads[partition])
        for holder in (giver, taker):
            self._rank(holder)
        self.owners[partition] = taker.member.name
        self.moved[partition] = None

    def _rank(self, holder: _Holder) -> None:
        """Put a member where it belongs in each order."""
        for order, rank in self._ranks(holder):
            insort(order, rank)

    def _unrank(self, holder: _Holder) -> None:
        """Take a member, as it was put there, out of each order."""
        for order, rank in self._ranks(holder):
            del order[bisect_left(order, rank)]

    def _ranks(self, holder: _Holder) -> Iterator[tuple[list[_Rank], _Rank]]:
        """The orders that a member is in, with what it is there."""
        level, excess = holder.level, self._above(holder, self._inner)
        if excess > 0:
            yield self._busy, (-excess, holder.order, holder)
        yield self._idle, (level, holder.order, holder)
        yield self._alike[holder.member.weight], (level, holder.order, holder)
        # A member with a partition that is too hot has shed what it could.
        if not self._is_hot(holder):
            yield self._givers, (-level, holder.order, holder)

    def _is_uneven(self) -> bool:
        """Whether a level is outside the outer bounds."""
        everybody = list(self._holders.values())
        lowest = min(holder.level for holder in everybody)
        return any(
            self._above(holder, self._outer) > 0 for holder in everybody
        ) or lowest < self._mean * (1 - self._outer) * (1 - _EPSILON)

    def _relief(self) -> tuple[int, _Holder, _Holder] | None:
        """The best move from the member that is furthest above the inner bound.

        If no move from it helps, from the next one.
        """
        for _, _, giver in self._busy:
            if (best := self._best(giver, self._least_busy(giver))) is not None:
                return best
        return None

    def _help(self) -> tuple[int, _Holder, _Holder] | None:
        """The best move to the member that is furthest below the inner bound.

        If no move to it helps, to the next one.
        """
        least = self._mean * (1 - self._inner) * (1 - _EPSILON)
        for _, _, giver in self._givers[:1]:
            for level, _, taker in self._idle:
                if level >= least:
                    return None
                if taker is not giver and (best := self._best(giver, [taker])) is not None:
                    return best
        return None

    def _above(self, holder: _Holder, bound: float) -> float:
        """How far a level is above this bound; a partition that is too hot is not counted in."""
        allowed = self._mean * (1 + bound)
        if self._is_hot(holder):
            allowed = holder.hottest / holder.member.weight + self._mean * bound
        return holder.level - allowed * (1 + _EPSILON)

    def _is_hot(self, holder: _Holder) -> bool:
        """Whether one of its partitions alone is outside the outer bound."""
        return holder.hottest > self._mean * (1 + self._outer) * holder.member.weight

    def _least_busy(self, giver: _Holder) -> list[_Holder]:
        """Of the members of each weight the least busy one, the least busy first."""
        others = [
            alike[1] if alike[0][2] is giver else alike[0]
            for alike in self._alike.values()
            if alike[0][2] is not giver or alike[1:]
        ]
        return [holder for _, _, holder in sorted(others)]

    def _best(self, giver: _Holder, takers: list[_Holder]) -> tuple[int, _Holder, _Holder] | None:
        """The move that leaves the greater of the two levels lowest, if it helps at all.

        The more a partition weighs, the lower the giver's level after the move, and the higher the
        taker's. So the best load is on one of the two sides of where the one passes the other.
        """
        best: tuple[float, int, int] | None = None
        found: tuple[int, _Holder, _Holder] | None = None
        enough = giver.level * (1 - _EPSILON)
        # The giver's level without its busiest load, and without the next: no move leaves less.
        left = [(giver.load - load) / giver.member.weight for load in giver.loads[-2:]]
        differ = len(set(left)) == len(left)
        for taker in takers:
            # Members may all have other weights: most need no search for the best load.
            if best is not None and (
                _least_level(giver, taker) * (1 - _EPSILON) > best[0]
                or (differ and best[0] == left[-1] and taker.order > best[2])
            ):
                continue
            loads, end = giver.loads, len(giver.loads)
            if taker.member.weight <= giver.member.weight:
                # A busier one would be as much too hot there.
                most = self._mean * (1 + self._outer) * taker.member.weight
                end = bisect_right(loads, most)
            greater = partial(_greater_level, giver, taker)
            passed = bisect_left(loads, True, 0, end, key=partial(_is_taker_above, giver, taker))
            # Levels are rounded, so several loads may leave the same one.
            near = [greater(load) for load in loads[max(0, passed - 1) : min(passed + 1, end)]]
            if not near or min(near) >= enough:
                continue
            least = min(near)
            first = passed
            while first > 0 and greater(loads[first - 1]) == least:
                first -= 1
            while passed < end and greater(loads[passed]) == least:
                passed += 1
            same = loads[first:passed]
            partition = min(giver.by_load[load][0] for load in same)
            if best is None or (least, partition, taker.order) < best:
                best = least, partition, taker.order
                found = partition, giver, taker
        return found


def _least_level(giver: _Holder, taker: _Holder) -> float:
    """What the greater of the levels of the two is at least after any move: as if all were even."""
    return (giver.load + taker.load) / (giver.member.weight + taker.member.weight)


def _greater_level(giver: _Holder, taker: _Holder, load: float) -> float:
    """The greater of the levels of the two after a move of that load."""
    return max((giver.load - load) / giver.member.weight, (taker.load + load) / taker.member.weight)


def _is_taker_above(giver: _Holder, taker: _Holder, load: float) -> bool:
    """Whether a move of that load would leave the taker at a higher level than the giver."""
    after = (taker.load + load) / taker.member.weight
    return after > (giver.load - load) / giver.member.weight
