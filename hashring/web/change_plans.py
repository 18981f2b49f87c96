"""What a change would do to a ring or a group: asked by a request, computed, nothing touched."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from flask import abort, request
from markupsafe import Markup

from hashring.core.assignors import assignor_named
from hashring.core.groups import group_plan
from hashring.core.groups.group_plan import Foresight
from hashring.core.groups.state import GroupState
from hashring.core.ring import Ring
from hashring.core.ring_plan import RingPlan, planned_ring, ring_plan
from hashring.drawing.ring_picture import ring_colors, ring_picture
from hashring.errors import ConfigError
from hashring.web.group_view import GroupView
from hashring.web.request_parameters import (
    MOST_JOINING,
    MOST_LEAVING,
    MOST_PARTITIONS,
    MOST_REPLICAS,
    list_of,
    number_of,
)
from hashring.web.ring_view import RingView

MOST_PLACED: Final = 500_000
"""Points that one plan may go through: for each node that joins, all that are there by then."""

_LINES: Final = re.compile(r"[\r\n]+")


# --- rings ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlannedRingChange:
    """What may be asked about a ring.

    Attributes:
        join, leave: names.
        weights: by name, of nodes that join or stay.
        replicas: points of a node of weight 1.
        placement: where nodes that join put their points.
    """

    join: Sequence[str] = ()
    leave: Sequence[str] = ()
    weights: Mapping[str, float] = field(default_factory=dict)
    replicas: int = 16
    placement: str = "random"

    @property
    def empty(self) -> bool:
        """Whether nothing is to change."""
        return not (self.join or self.leave or self.weights)


def ring_change(*, lines: bool = False) -> PlannedRingChange:
    """What the request asks about a ring.

    Args:
        lines: whether its fields may have a name or a weight a line, as a form's have.

    Raises:
        ConfigError: a weight is none.
        HTTPException: there is too much of something.
    """
    join, weights = _many("join", MOST_JOINING, lines), _many("weight", MOST_LEAVING, lines)
    return PlannedRingChange(
        join,
        list_of(request, "leave", MOST_LEAVING),
        dict(_weight(text) for text in weights),
        number_of(request, "replicas", 16, 1, MOST_REPLICAS),
        request.args.get("placement", "random"),
    )


def _many(name: str, most: int, lines: bool) -> list[str]:
    values = list_of(request, name, most)
    if lines:
        values = [part.strip() for text in values for part in _LINES.split(text) if part.strip()]
    if len(values) > most:
        abort(422, f"{name}: at most {most} in one plan, and these are {len(values)}")
    return values


def _weight(text: str) -> tuple[str, float]:
    # A node's name may hold an equals sign.
    name, _, number = text.rpartition("=")
    try:
        return name.strip() or text, float(number)
    except ValueError:
        raise ConfigError(
            "weight", text, "give a node and its weight, such as worker-3=2"
        ) from None


def ring_after(view: RingView, change: PlannedRingChange) -> Ring:
    """The ring after the change: costly, so in its turn.

    Raises:
        HashringError: it cannot be made.
        HTTPException: it is too much work.
    """
    joining = len(change.join)
    placed = joining * (len(view.ring) + change.replicas * (joining + 1) // 2)
    if placed > MOST_PLACED:
        abort(
            422,
            f"{joining} nodes of {change.replicas} points on a ring of {len(view.ring)} are too "
            "much work for one request: plan fewer at a time, or use hashring spark plan",
        )
    return planned_ring(
        view.ring,
        join=change.join,
        leave=change.leave,
        weights=change.weights,
        n_replicas=change.replicas,
        placement=change.placement,
        rng_for=lambda node: random.Random(f"{view.ring.fingerprint}:{node}"),
    )


@dataclass(frozen=True)
class PicturedPlan(RingPlan):
    """What a change would do to a ring, and a picture of the ring after."""

    picture: Markup


def pictured_plan(view: RingView, after: Ring) -> PicturedPlan:
    """What becoming the other ring would do to a ring."""
    picture = ring_picture(
        after,
        title=f"{view.name}, after",
        colors=ring_colors(after, ring_colors(view.ring)),
        style=False,
    )
    return PicturedPlan(**vars(ring_plan(view.ring, after)), picture=Markup(picture))


# --- groups -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlannedGroupChange:
    """What may be asked about a group; ``None`` is as it is."""

    join: Sequence[str] = ()
    leave: Sequence[str] = ()
    partitions: int | None = None
    access: str | None = None


def group_change(*, lines: bool = False) -> PlannedGroupChange:
    """What the request asks about a group; see :func:`ring_change`."""
    partitions = None
    if request.args.get("partitions"):
        partitions = number_of(request, "partitions", 1, 1, MOST_PARTITIONS)
    return PlannedGroupChange(
        _many("join", MOST_JOINING, lines),
        list_of(request, "leave", MOST_LEAVING),
        partitions,
        request.args.get("access") or None,
    )


def group_after(view: GroupView, change: PlannedGroupChange) -> Foresight:
    """What would move: costly, so in its turn; see :func:`ring_after`."""
    terms = view.state.terms
    _check_size(max(change.partitions or 0, terms.partitions))
    return group_plan.foresee(
        view.state,
        view.reading.facts,
        assignor_named(terms.assignor),
        join=change.join,
        leave=change.leave,
        partitions=change.partitions,
        access=change.access,
    )


def group_ordered(view: GroupView, state: GroupState) -> Foresight:
    """What would move after an order about a member: costly, so in its turn.

    Args:
        state: the group's, with the order.

    Raises:
        ConfigError: the assignor is none of this project's.
        HTTPException: it is too much work.
    """
    _check_size(state.terms.partitions)
    assignor = assignor_named(state.terms.assignor)
    return group_plan.foresee(state, view.reading.facts, assignor)


def _check_size(partitions: int) -> None:
    if partitions > MOST_PARTITIONS:
        abort(
            422,
            f"a group of {partitions} partitions is too much work for one request: use "
            "hashring group plan",
        )
