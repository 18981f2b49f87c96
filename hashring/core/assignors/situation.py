"""What an assignor is asked: the situation of a group.

An assignment is a tuple indexed by partition: ``("a", "b", "a")`` gives partitions 0 and 2 to
``a``. ``None`` stands where a partition has no owner.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from hashring.core.value_checks import checked_whole, is_finite, plain_number
from hashring.errors import ConfigError

Owners = tuple[str | None, ...]
"""For each partition its member, or ``None``."""


# So that no assignor that divides by weights, or adds them, gets 0 or infinity.
LEAST_WEIGHT: Final = 0.001
GREATEST_WEIGHT: Final = 1000.0


def is_weight(value: object) -> bool:
    """Whether a member may have this weight."""
    return is_finite(value) and LEAST_WEIGHT <= value <= GREATEST_WEIGHT


class MemberState(str, Enum):
    """What may be given to a member."""

    ACTIVE = "active"
    """Takes its share."""
    STALLED = "stalled"
    """Its lease is renewed, but its application makes no progress. It gets nothing new and sheds
    what it has."""
    DRAINED = "drained"
    """Somebody ordered it to hand over what it has. It gets nothing new until that is lifted."""
    LEAVING = "leaving"
    """Hands over what it has, and goes."""


@dataclass(frozen=True)
class GroupMember:
    """A member of a group.

    Attributes:
        name: unique in the group.
        joined: its place in the order of joining; unique in the group.
        weight: its share relative to the others'; from :data:`LEAST_WEIGHT` to
            :data:`GREATEST_WEIGHT`.
        state: what may be given to it.
    """

    name: str
    joined: int = 0
    weight: float = 1.0
    state: MemberState = MemberState.ACTIVE

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise ConfigError("name", self.name, "a member's name is a non-empty str")
        if is_weight(self.weight):
            return
        # Also a number of numpy's.
        weight = plain_number(self.weight)
        if not is_weight(weight):
            raise ConfigError(
                "weight",
                self.weight,
                f"of member {self.name!r} must be a number from {LEAST_WEIGHT:g} to "
                f"{GREATEST_WEIGHT:g}; 1 is an ordinary member",
            )
        object.__setattr__(self, "weight", weight)


@dataclass(frozen=True)
class GroupSituation:
    """Everything an assignor may look at.

    Attributes:
        members: in any order; an answer must not depend on it.
        partitions: how many; they are numbered from 0.
        previous: who owns each partition, or owned it last. It may name members that are gone,
            and be shorter than ``partitions`` when the count has grown.
        warming: for each partition that a member is warming up for, that member.
        standbys: for each partition the members that keep a warm copy of it.
        lags: for each member how far it is behind on partitions it does not own, in units of the
            application's; absent means unknown, 0 means caught up. An owner that hands a partition
            over, which ``previous`` gives to the next owner, has not fallen behind.
        heirs: for members that are gone the member that has taken the place of each. It has the
            same weight and holds nothing. If it gets what its predecessor had, nothing has to be
            handed off.
        loads: how busy each partition is, in a unit of the application's; absent means unknown.
        recent_moves: how many partitions were moved for their load within the last minute.
        rebalancing: whether partitions are on the move already. A rule that leaves small
            differences alone finishes then what it began.

    Raises:
        ConfigError: two members of one name or one place in the order, or ``partitions`` is no
            whole number from 1 up.
    """

    members: tuple[GroupMember, ...]
    partitions: int
    previous: Owners = ()
    warming: Mapping[int, str] = field(default_factory=dict)
    standbys: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    lags: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    heirs: Mapping[str, str] = field(default_factory=dict)
    loads: Mapping[int, float] = field(default_factory=dict)
    recent_moves: int = 0
    rebalancing: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "partitions", checked_whole("partitions", self.partitions))
        if self.partitions < 1:
            raise ConfigError("partitions", self.partitions, "a group has at least one partition")
        for what in ("name", "joined"):
            seen = set()
            for member in self.members:
                value = getattr(member, what)
                if value in seen:
                    raise ConfigError(
                        "members", value, f"two members have this {what}; it must be unique"
                    )
                seen.add(value)

    def owner_before(self, partition: int) -> str | None:
        """Who owned the partition last."""
        return self.previous[partition] if partition < len(self.previous) else None

    def keeper(self, partition: int) -> str | None:
        """Who owned the partition last, or the member that has taken that one's place."""
        owner = self.owner_before(partition)
        return owner if owner is None else self.heirs.get(owner, owner)

    def owners_before(self) -> Owners:
        """The :meth:`owner_before` of every partition."""
        grown = (None,) * (self.partitions - len(self.previous))
        return (*self.previous[: self.partitions], *grown)

    def keepers(self) -> Owners:
        """The :meth:`keeper` of every partition."""
        known = self.owners_before()
        if not self.heirs:
            return known
        return tuple(None if owner is None else self.heirs.get(owner, owner) for owner in known)

    def candidates(self) -> tuple[GroupMember, ...]:
        """The members that may be given something, in order of joining.

        The active ones; when there is none, the stalled ones, for a slow owner is better than
        none; when there is none of these either, the drained ones, and then the leaving ones.
        """
        for state in MemberState:
            found = [member for member in self.members if member.state is state]
            if found:
                return tuple(sorted(found, key=lambda member: member.joined))
        return ()
