"""The partitions that are not yet where the target wants them, and who should have each.

To know them costs as much as has changed since the last decision.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import compress, count
from operator import ne
from typing import Final

from hashring.core.groups.partition_column import Column

_REBUILT_FROM: Final = 1 / 8
"""If a larger part of the partitions has changed, all of it is made anew, which costs less."""

Route = tuple[str | None, str | None]
"""The owner of a partition, and who should own it."""


class Wanted:
    """Who should have each partition now.

    Args:
        interim: the target, for the partitions that are counted.
        beyond: the same for removed ones that drain.
    """

    def __init__(self, interim: Sequence[str | None], beyond: Mapping[int, str | None]) -> None:
        self._interim = interim
        self._beyond = beyond

    def __getitem__(self, partition: int) -> str | None:
        if partition < len(self._interim):
            return self._interim[partition]
        return self._beyond.get(partition)


class Queue:
    """Partitions in rising order, taken from the front.

    Args:
        partitions: in rising order; they are read, and never changed.
        passed: those of them that are not to be taken.
    """

    def __init__(self, partitions: Sequence[int], passed: Collection[int] = ()) -> None:
        self._partitions = partitions
        self._passed = passed
        self._next = 0
        self._pass()

    def _pass(self) -> None:
        while self and self._partitions[self._next] in self._passed:
            self._next += 1

    def __bool__(self) -> bool:
        """Whether there is one to take."""
        return self._next < len(self._partitions)

    @property
    def first(self) -> int:
        """The next to be taken; there must be one."""
        return self._partitions[self._next]

    def take(self) -> int:
        """Take the next; there must be one."""
        taken = self.first
        self._next += 1
        self._pass()
        return taken

    def __iter__(self) -> Iterator[int]:
        """Take all of them."""
        while self:
            yield self.take()


class PendingMoves:
    """The partitions that are not where they should be.

    It follows the owners from decision to decision. Everything in it is a function of the
    arguments and of the owners that it followed last, whatever it saw in between.

    Args:
        start: who had each partition when the target was given.
        wanted: the target, for the same partitions.
        owners: who has them now; it may be longer.

    Attributes:
        owners: followed last.
        apart: the partitions that are not where they should be.
        routes: the same in rising order, by their owner and by who should have them.
        counts: how many partitions have each owner.
    """

    def __init__(
        self, start: Sequence[str | None], wanted: Sequence[str | None], owners: Column[str | None]
    ) -> None:
        self._start = start
        self._wanted = wanted
        self._write(owners)

    def _write(self, owners: Column[str | None]) -> None:
        self.owners = owners
        self.counts: Counter[str | None] = Counter(owners)
        self.apart = set(compress(count(), map(ne, owners, self._wanted)))
        self.routes: dict[Route, list[int]] = {}
        self._strayed = set()
        for partition in sorted(self.apart):
            route = owners[partition], self._wanted[partition]
            self.routes.setdefault(route, []).append(partition)
            if owners[partition] != self._start[partition]:
                self._strayed.add(partition)

    def follow(self, owners: Column[str | None]) -> None:
        """Take note of who owns the partitions now."""
        changed = owners.differing(self.owners)
        if len(changed) > _REBUILT_FROM * len(owners) or len(owners) != len(self.owners):
            self._write(owners)
            return
        for partition in changed:
            before, after = self.owners[partition], owners[partition]
            self.counts[before] -= 1
            self.counts[after] += 1
            if partition < len(self._wanted):
                self._note(partition, before, after)
        self.owners = owners

    def _note(self, partition: int, before: str | None, after: str | None) -> None:
        wanted = self._wanted[partition]
        if before != wanted:
            queue = self.routes[before, wanted]
            del queue[bisect_left(queue, partition)]
            if not queue:
                del self.routes[before, wanted]
            self.apart.discard(partition)
        if after != wanted:
            insort(self.routes.setdefault((after, wanted), []), partition)
            self.apart.add(partition)
        if after in (wanted, self._start[partition]):
            self._strayed.discard(partition)
        else:
            self._strayed.add(partition)

    def strays(self, granted: Mapping[int, str]) -> bool:
        """Whether a partition is neither where it was at the start nor where it should be.

        Args:
            granted: partitions that count as another member's than their owner's.
        """
        return not self._strayed <= granted.keys() or any(
            to not in (self._wanted[partition], self._start[partition])
            for partition, to in granted.items()
            if partition < len(self._wanted)
        )
