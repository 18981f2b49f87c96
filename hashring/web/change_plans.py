"""What a change would do to a ring or a group: computed, nothing touched."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from flask import abort
from markupsafe import Markup

from hashring.core.assignors.situation import GroupMember
from hashring.core.groups import group_foresight, member_orders
from hashring.core.groups.group_foresight import GroupForesight, assignor_of
from hashring.core.groups.state import GroupState
from hashring.core.readable_numbers import counted
from hashring.core.ring import Ring
from hashring.core.ring_plan import RingPlan, planned_counts, planned_ring, ring_plan
from hashring.drawing.ring_picture import ring_colors, ring_picture
from hashring.errors import ConfigError
from hashring.store.ring.ring_after_orders import split_idle
from hashring.web.api_queries import MOST_PARTITIONS, PlannedGroupChange, PlannedRingChange
from hashring.web.group_view import GroupView
from hashring.web.page_templates import shown
from hashring.web.ring_view import RingView

MOST_PLACED: Final = 500_000
"""Points that one plan may go through: for each node that gets some, all that are there then."""
PLANNING: Final = "plan"
"""Who gives the orders that are only planned."""


# --- rings ------------------------------------------------------------------------------------


def ring_after(view: RingView, change: PlannedRingChange) -> Ring:
    """The ring after the change: costly, so in its turn.

    Raises:
        HashringError: it cannot be made.
        HTTPException: it is too much work.
    """
    _check_joining(change)
    leave, weights, _ = split_idle(
        view.snapshot, view.ring, join=change.join, leave=change.leave, weights=change.weight
    )
    shapes = view.shapes
    n_replicas = change.replicas or view.usual_replicas
    counts = planned_counts(
        view.ring,
        join=change.join,
        leave=leave,
        weights=weights,
        n_replicas=n_replicas,
        shapes=shapes,
    )
    _check_work(view.ring, counts)
    return planned_ring(
        view.ring,
        join=change.join,
        leave=leave,
        weights=weights,
        n_replicas=n_replicas,
        placement=change.placement,
        shapes=shapes,
        rng_for=lambda node: random.Random(f"{view.ring.fingerprint}:{node}"),
    )


def _check_work(ring: Ring, counts: Mapping[str, int]) -> None:
    """Refuse a plan whose nodes go through too many points: each goes through all there are."""
    there, gone_through = len(ring), 0
    for node, count in counts.items():
        there += max(0, count - (len(ring.points_of(node)) if node in ring else 0))
        gone_through += there
    if gone_through > MOST_PLACED:
        abort(
            422,
            f"{counted(len(counts), 'node')} that would have {sum(counts.values()):,} points, on a "
            f"ring of {len(ring):,}, are too much work for one request: plan fewer at a time, or "
            "use hashring plan",
        )


def _check_joining(change: PlannedRingChange | PlannedGroupChange) -> None:
    """Refuse a name that may be a name and a weight, as the command line takes them.

    It is a name if it has a weight of its own.
    """
    for text in change.join:
        name, _, number = text.rpartition("=")
        if not name or text in change.weight:
            continue
        try:
            float(number)
        except ValueError:
            continue
        raise ConfigError(
            "join",
            shown(text),
            f"give the weight apart: join {shown(name)}, weight {shown(text)}. If it is the whole "
            f"name, give it a weight: {shown(text)}=1",
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


def group_after(view: GroupView, change: PlannedGroupChange) -> GroupForesight:
    """What would move: costly, so in its turn; see :func:`ring_after`."""
    _check_joining(change)
    state, terms = view.state, view.state.terms
    _check_size(max(change.partitions or 0, terms.partitions))
    for name, weight in change.weight.items():
        if name in change.leave:
            raise ConfigError("leave", shown(name), "cannot get a weight in the same plan")
        if name not in change.join:
            state = member_orders.weigh(state, name, weight, view.now, PLANNING).state
    return group_foresight.foresee(
        state,
        view.reading.facts,
        assignor_of(terms, change.access),
        join=[GroupMember(name, weight=change.weight.get(name, 1.0)) for name in change.join],
        leave=change.leave,
        partitions=change.partitions,
        access=change.access,
    )


def group_ordered(view: GroupView, state: GroupState) -> GroupForesight:
    """What would move after an order about a member: costly, so in its turn.

    Args:
        state: the group's, with the order.

    Raises:
        ConfigError: the assignor is none of this project's.
        HTTPException: it is too much work.
    """
    _check_size(state.terms.partitions)
    assignor = assignor_of(state.terms)
    return group_foresight.foresee(state, view.reading.facts, assignor)


def _check_size(partitions: int) -> None:
    if partitions > MOST_PARTITIONS:
        abort(
            422,
            f"a group of {partitions} partitions is too much work for one request: use "
            "hashring group plan",
        )
