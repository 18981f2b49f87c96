"""Who is warm, who takes over now, which partitions wait for a warm-up, and who warms up now."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from itertools import compress, count
from operator import ne
from typing import Final

from hashring.core.assignors.situation import GroupMember, GroupSituation, Owners

WARM: Final = 0
"""Could take over at once."""
COPY: Final = 1
"""Has a copy that lags behind."""
_LEARNER: Final = 2
_COLD: Final = 3


class Warmth:
    """How soon each member could take over each partition.

    First the warm members; then those with a copy that lags behind, the least lag first, and
    standbys that have not reported yet; then a member whose warm-up has only begun; then the rest.
    """

    def __init__(self, situation: GroupSituation, acceptable_lag: float) -> None:
        self._everyone: Final = math.isinf(acceptable_lag)
        self._warming: Final = situation.warming
        self._places: dict[str, dict[int, tuple[int, float]]] = {}
        self._copies: dict[int, list[str]] = {}
        for partition, names in situation.standbys.items():
            for name in names:
                self._places.setdefault(name, {})[partition] = (COPY, math.inf)
        for name, lags in situation.lags.items():
            places = self._places.setdefault(name, {})
            for partition, lag in lags.items():
                places[partition] = (WARM, 0.0) if lag <= acceptable_lag else (COPY, lag)
        for name, places in self._places.items():
            for partition in places:
                self._copies.setdefault(partition, []).append(name)

    def place(self, member: str, partition: int) -> tuple[int, float]:
        """Sorts members by how soon they could take the partition over."""
        if self._everyone:
            return WARM, 0.0
        found = self._places.get(member, {}).get(partition)
        if found is not None:
            return found
        return (_LEARNER if self._warming.get(partition) == member else _COLD), 0.0

    def is_warm(self, member: str, partition: int) -> bool:
        """Whether the member could take the partition over at once."""
        return self.place(member, partition)[0] == WARM

    def partitions(self, member: str) -> Iterable[int]:
        """The partitions that the member has a copy of, warm or not, or has begun one of."""
        begun = (partition for partition, name in self._warming.items() if name == member)
        return dict.fromkeys((*self._places.get(member, ()), *begun))

    def members(self, partition: int) -> Iterable[str]:
        """The members that have a copy of the partition, or have begun one."""
        found = self._copies.get(partition, ())
        learner = self._warming.get(partition)
        return found if learner is None or learner in found else (*found, learner)


def warmup_interim(
    situation: GroupSituation,
    owners: list[str | None],
    members: Sequence[GroupMember],
    warmth: Warmth,
) -> tuple[Owners, list[int]]:
    """Who should own now, and which partitions wait for a warm-up.

    A warm member takes over; a live owner keeps its partition until the target is warm. Without a
    live owner, the best copy takes over, if the target has none.

    Args:
        owners: who should own in the end.
        members: those that may take partitions.
    """
    alive = {member.name for member in situation.members}
    takers = {member.name: order for order, member in enumerate(members)}
    before = situation.owners_before()
    interim = [*owners]
    waiting = []
    # Of thousands mostly a few: those that are not where they should end.
    for partition in compress(count(), map(ne, owners, before)):
        now, target = before[partition], owners[partition]
        if target is None or warmth.is_warm(target, partition):
            now = target
        elif now not in alive:
            best = min(
                (name for name in warmth.members(partition) if name in takers),
                key=lambda n, p=partition: (*warmth.place(n, p), takers[n]),  # type: ignore[misc]
                default=target,
            )
            kind = warmth.place(best, partition)[0]
            better = kind <= COPY and kind < warmth.place(target, partition)[0]
            now = best if better else target
        interim[partition] = now
        if now != target:
            waiting.append(partition)
    return tuple(interim), waiting


def chosen_warmups(
    situation: GroupSituation,
    owners: list[str | None],
    waiting: list[int],
    members: Sequence[GroupMember],
    budget: int,
) -> dict[int, str]:
    """The warm-ups to have under way: those that are first, then for owners that must go."""
    takers = {member.name for member in members}
    urgent = heapq.nsmallest(
        budget,
        waiting,
        key=lambda partition: (
            situation.warming.get(partition) != owners[partition],
            situation.owner_before(partition) in takers,
            partition,
        ),
    )
    chosen = sorted(urgent)
    return {partition: str(owners[partition]) for partition in chosen}
