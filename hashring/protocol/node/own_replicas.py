"""The replicas of one node: where it has points, where it will have them, what it gives up.

A heartbeat names the replicas that a node has from now on, and those that it drops. Its answer
confirms them. Until then nobody knows whether Redis has the old ones, the new ones or both, so what
was about to go may come back as it was, and what was about to come is dropped by name.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass

from hashring.core.point_placement import Random, free_points, kept_points
from hashring.core.replica import Replica
from hashring.core.ring_change_message import Stamp
from hashring.store.ring.node_entries import NodeRecord
from hashring.store.ring.node_orders import WeightOrder


@dataclass(frozen=True)
class BeforeJoin:
    """What a node found on the ring before it joined.

    Attributes:
        stamp: where the ring stood.
        record: what holds the node's name; ``None`` when nothing does.
        replicas: those under the node's name.
        remembered: points that the name had when it went.
        taken: points that other nodes have: of those under its name, and of the remembered, if not
            of all.
        ordered: the weight that was ordered for the node.
        even: makes the points of a balanced join.
    """

    stamp: Stamp
    record: NodeRecord | None
    replicas: tuple[Replica, ...]
    remembered: tuple[int, ...]
    taken: frozenset[int]
    ordered: WeightOrder | None
    even: Callable[[], tuple[int, ...]]


class OwnReplicas:
    """The replicas of one node, from heartbeat to heartbeat.

    Args:
        name: the node's.
        placement: ``"random"`` or ``"balanced"``.
        rng: where random points and the replicas' marks come from.

    Attributes:
        name: under which its next replicas are.
        replicas: those of its next heartbeat, rising.
        resized: whether its next heartbeat has others than the last for another weight.
    """

    def __init__(self, name: str, placement: str, rng: Random) -> None:
        self.name = name
        self.replicas: tuple[Replica, ...] = ()
        self.resized = False
        self._balanced = placement == "balanced"
        self._rng = rng
        self._drop: tuple[Replica, ...] = ()
        # Those of them that another session of its name had there before it joined.
        self._others: frozenset[Replica] = frozenset()
        # Those under a name that another node turned out to have, too.
        self._left_behind: tuple[Replica, ...] = ()
        # What the last answer confirmed, and what it had before it chose more points by the ring.
        self._settled: tuple[Replica, ...] = ()
        self._fewer: tuple[Replica, ...] | None = None
        # The replicas of the newest heartbeat, and how many times they were others than before.
        self._placed: tuple[tuple[Replica, ...], int] = ((), 0)

    @property
    def dropping(self) -> tuple[Replica, ...]:
        """What its next heartbeat takes off the ring, if it is there."""
        return (*self._drop, *self._left_behind)

    @property
    def given_up(self) -> tuple[Replica, ...]:
        """What it was about to give up for another weight, and may have on the ring still."""
        return tuple(each for each in self._drop if each not in self._others)

    @property
    def may_be_there(self) -> tuple[Replica, ...]:
        """Everything of it that may be on the ring, except what another session has there."""
        return (*self.given_up, *self._left_behind)

    def count_placed(self) -> int:
        """How many times it has had other replicas than before."""
        if self._placed[0] != self.replicas:
            self._placed = (self.replicas, self._placed[1] + 1)
        return self._placed[1]

    # --- told by the machine ------------------------------------------------------------------

    def start(self) -> None:
        """The node begins to join: what an earlier run had confirmed is confirmed no more."""
        self._settled = ()

    def confirmed(self, stayed: tuple[Replica, ...]) -> None:
        """A heartbeat was answered: the ring has its replicas, and no others of this node.

        Args:
            stayed: those that a node which stopped to come back had left there; else empty.
        """
        self.replicas = stayed or self.replicas
        self._drop = self._left_behind = ()
        self._fewer = None
        self.resized = False
        self._settled = self.replicas

    def rename(self, name: str) -> None:
        """Go on under another name, with none of the replicas of before.

        Those would count as the other node's until they expire, so the next heartbeat drops them.
        """
        self._left_behind = self.replicas
        self.name = name
        self.replicas = self._settled = ()

    # --- joining ------------------------------------------------------------------------------

    def choose(self, found: BeforeJoin, count: int) -> None:
        """Choose what to join with, beside what is on the ring.

        Args:
            count: how many points a node of its weight has.
        """
        # Two sessions of the name may have had one point, where a failover mixed them.
        points = sorted({replica.point for replica in found.replicas}) or list(found.remembered)
        # Its own of before may be on the ring besides, where another session had the name since.
        old = {*found.replicas, *self.replicas}
        free = [point for point in points if point not in found.taken][:count]
        missing = count - len(free)
        if missing and self._balanced:
            # Some points and not all: it adds the rest where they even the ring, once it is on it.
            free = free or list(found.even())
        elif missing:
            free += free_points({*found.taken, *free}, missing, self._rng)
        self.replicas = self._fresh(free)
        if found.record is not None and found.record.away:
            # It stopped to come back, and nothing of it changes.
            there = {replica.point: replica for replica in found.replicas}
            self.replicas = tuple(there.get(each.point, each) for each in self.replicas)
        self._others = frozenset(found.replicas).difference(self.replicas)
        kept = {replica.member for replica in self.replicas}
        self._drop = tuple(replica for replica in sorted(old) if replica.member not in kept)

    def draw(self, count: int) -> None:
        """Have so many random points, without a look at the ring."""
        self.replicas = self._fresh(free_points((), count, self._rng))

    # --- another weight -----------------------------------------------------------------------

    def fit(self, count: int, lengths: Callable[[], Mapping[int, int]]) -> int:
        """Give up what is too much, or take back what was about to go.

        Args:
            count: how many points a node of its weight has.
            lengths: how much each of its points owns, as far as it knows.

        Returns:
            How many points are still missing.
        """
        have = set(self.replicas)
        if len(have) > count:
            self._have(self._kept(count, lengths()))
            return 0
        # What it was about to give up is its own still.
        back = sorted(set(self._settled) - have)[: count - len(have)]
        if back:
            self._have([*self.replicas, *back])
        return count - len(self.replicas)

    def add_random(self, count: int, taken: Collection[int]) -> None:
        """Have so many random points besides.

        Args:
            taken: points that are not free.
        """
        self._have([*self.replicas, *self._fresh(free_points(taken, count, self._rng))])

    def add(self, points: Iterable[int]) -> None:
        """Have these points besides, which were chosen by the ring as it is."""
        self._fewer = self.replicas
        self._have([*self.replicas, *self._fresh(points)])

    def take_back(self) -> None:
        """Have no more what :meth:`add` added: the ring is not the one by which it was chosen."""
        if self._fewer is not None:
            self.replicas = self._fewer

    def _kept(self, count: int, lengths: Mapping[int, int]) -> Iterable[Replica]:
        """What it keeps of its replicas when it has too many."""
        confirmed = frozenset(self._settled)
        settled = {each.point: each for each in self.replicas if each in confirmed}
        if len(settled) < count:
            # Of what it was about to add, some.
            more = [each for each in self.replicas if each.point not in settled]
            return [*settled.values(), *more[: count - len(settled)]]
        kept = kept_points({point: lengths.get(point, 0) for point in settled}, count)
        return [settled[point] for point in kept]

    def _have(self, replicas: Iterable[Replica]) -> None:
        """Have these replicas from the next heartbeat on, and no others."""
        # An earlier heartbeat, of which nobody knows whether it came, may have put them there.
        before = {*self._drop, *self.replicas}
        self.replicas = tuple(sorted(replicas))
        self._drop = tuple(sorted(before.difference(self.replicas)))
        self.resized = True

    def _fresh(self, points: Iterable[int]) -> tuple[Replica, ...]:
        """New replicas at these points: no other node, and no earlier one, has the same."""
        return tuple(
            Replica(point, self.name, f"{self._rng.randrange(16**8):08x}")
            for point in sorted(points)
        )
