"""What may be asked of the API in an address: a class for each kind of query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Final

from hashring.core.groups.state import EXCLUSIVE, NON_EXCLUSIVE
from hashring.core.point_placement import MAX_POINTS, PLACEMENTS
from hashring.web.parameter_kinds import (
    choice_parameter,
    name_parameter,
    names_parameter,
    text_parameter,
    weight_parameter,
    weights_parameter,
    whole_parameter,
)
from hashring.web.ring_watcher import EVENTS
from hashring.web.watchers_by_name import MOST

MOST_JOINING: Final = 100
"""How many nodes or members may join in one plan."""
MOST_LEAVING: Final = 1000
"""How many may leave in one plan."""
MOST_NODES: Final = 1000
"""How many nodes one answer lists."""
MOST_REPLICAS: Final = MAX_POINTS
"""How many points a node of a plan may have: as many as one may start with."""
MOST_PARTITIONS: Final = 100_000
"""Partitions that a group may have to be planned for."""
MOST_KEY_BYTES: Final = 16_384
"""The longest key that can be asked for in an address."""

_LAST_NAME: Final = text_parameter("The last name of the page before.")
_LAST_CHANGE: Final = text_parameter("The id of a change: those after it.")
_KEY: Final = text_parameter(f"The key; at most {MOST_KEY_BYTES:,} bytes of UTF-8.", minLength=1)
_MOST_RETURNED: Final = "The most to return."
_JOINING: Final = names_parameter("A name that joins; may come more than once.", MOST_JOINING)
_LEAVING: Final = names_parameter("A name that leaves; may come more than once.", MOST_LEAVING)
_NEW_WEIGHT: Final = weight_parameter("The new weight; its own unless given.")


@dataclass(frozen=True)
class NoQuery:
    """Nothing."""


@dataclass(frozen=True)
class PageQuery:
    """A page of a list."""

    after: Annotated[str, _LAST_NAME] = ""
    count: Annotated[int, whole_parameter(_MOST_RETURNED, 1, MOST)] = MOST


# --- rings ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RingQuery:
    """A ring."""

    ring: Annotated[str, name_parameter("The ring's name.")]


@dataclass(frozen=True)
class NodesQuery(RingQuery):
    """A page of a ring's nodes."""

    after: Annotated[str, _LAST_NAME] = ""
    count: Annotated[int, whole_parameter(_MOST_RETURNED, 1, MOST_NODES)] = MOST_NODES


@dataclass(frozen=True)
class OwnerQuery(RingQuery):
    """A key."""

    key: Annotated[str, _KEY]


@dataclass(frozen=True)
class ChangesQuery(RingQuery):
    """The end of a ring's history."""

    after: Annotated[str, _LAST_CHANGE] = ""
    count: Annotated[int, whole_parameter("How many of the last ones to return.", 1, EVENTS)] = 100


@dataclass(frozen=True)
class LiveChangesQuery(RingQuery):
    """A ring's history as it happens; without an id, what happens from now on."""

    after: Annotated[str, _LAST_CHANGE] = ""


@dataclass(frozen=True)
class NodeQuery(RingQuery):
    """A node."""

    node: Annotated[str, name_parameter("The node's name.")]


@dataclass(frozen=True)
class NodeWeightQuery(NodeQuery):
    """A node, and another weight of it."""

    weight: Annotated[float | None, _NEW_WEIGHT] = None


@dataclass(frozen=True)
class PlannedRingChange:
    """A change of a ring.

    Attributes:
        join, leave: names.
        weight: by name, of nodes that join or stay.
        replicas: points of a node of weight 1 that joins; ``None`` for as many as most have.
        placement: where nodes that join put their points.
    """

    join: Annotated[Sequence[str], _JOINING] = ()
    leave: Annotated[Sequence[str], _LEAVING] = ()
    weight: Annotated[
        Mapping[str, float],
        weights_parameter(
            "A node that joins or stays, and its new weight: worker-3=2; may come more than once.",
            MOST_LEAVING,
        ),
    ] = field(default_factory=dict)
    replicas: Annotated[
        int | None,
        whole_parameter(
            "Points of a node of weight 1 that joins; as most nodes of the ring have, unless "
            "given.",
            1,
            MOST_REPLICAS,
        ),
    ] = None
    placement: Annotated[
        str, choice_parameter("Where nodes that join put their points.", *PLACEMENTS)
    ] = PLACEMENTS[0]

    @property
    def empty(self) -> bool:
        """Whether nothing is to change."""
        return not (self.join or self.leave or self.weight)


@dataclass(frozen=True)
class RingPlanQuery(PlannedRingChange, RingQuery):
    """A change of a ring, and which one."""


# --- groups -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class GroupQuery:
    """A group."""

    group: Annotated[str, name_parameter("The group's name.")]


@dataclass(frozen=True)
class MemberQuery(GroupQuery):
    """A member."""

    member: Annotated[str, name_parameter("The member's name.")]


@dataclass(frozen=True)
class MemberWeightQuery(MemberQuery):
    """A member, and another weight of it."""

    weight: Annotated[float | None, _NEW_WEIGHT] = None


@dataclass(frozen=True)
class PlannedGroupChange:
    """A change of a group; ``None`` is as it is.

    Attributes:
        join, leave: names.
        weight: by name, of members that join or stay.
        partitions: how many there are to be.
        access: the access type.
    """

    join: Annotated[Sequence[str], _JOINING] = ()
    leave: Annotated[Sequence[str], _LEAVING] = ()
    weight: Annotated[
        Mapping[str, float],
        weights_parameter(
            "A member that joins or stays, and its new weight: worker-3=2; may come more than "
            "once.",
            MOST_LEAVING,
        ),
    ] = field(default_factory=dict)
    partitions: Annotated[
        int | None, whole_parameter("Another number of partitions.", 1, MOST_PARTITIONS)
    ] = None
    access: Annotated[
        str | None, choice_parameter("Another access type.", NON_EXCLUSIVE, EXCLUSIVE)
    ] = None

    @property
    def empty(self) -> bool:
        """Whether nothing is to change."""
        return not (self.join or self.leave or self.weight or self.partitions or self.access)


@dataclass(frozen=True)
class GroupPlanQuery(PlannedGroupChange, GroupQuery):
    """A change of a group, and which one."""
