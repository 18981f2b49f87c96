"""What an order about a node or a member would do: for the page that asks, and for the API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from hashring.core.groups import member_orders
from hashring.core.groups.group_plan import Foresight
from hashring.core.groups.next_decision import StepOutcome
from hashring.core.groups.state import GroupState
from hashring.core.ring import Ring
from hashring.core.ring_plan import RingPlan, ring_plan
from hashring.errors import ConfigError, UnknownNodeError
from hashring.store.ring.commands import Snapshot, snapshot
from hashring.store.ring.node_orders import checked_weight
from hashring.store.ring.ring_after_orders import (
    drained_ring,
    known_nodes,
    undrained_ring,
    weighed_ring,
)
from hashring.web.change_plans import group_ordered
from hashring.web.group_view import GroupView
from hashring.web.page_templates import shown
from hashring.web.request_parameters import group_of, ring_of
from hashring.web.ring_view import RingView
from hashring.web.service import Service
from hashring.web.watchers import GroupWatcher, RingWatcher

_PLANNING: Final = "plan"  # who gives the orders that are only planned
_NO_ORDER: Final = "No order to drain it stands, so nothing moves."
_LAST: Final = "No other node is left: every key of the ring would be unserved."
_NOT_ON_RING: Final = "It is not on the ring, so nothing moves until it joins."


@dataclass(frozen=True)
class RingOrder:
    """An order about a node, not given yet.

    Attributes:
        watcher, view: the ring.
        after: computes the ring once the order is obeyed, which is costly, and whether all its
            points are known; ``None`` when nothing moves.
        note: why nothing moves, or what must be accepted; else empty.
    """

    watcher: RingWatcher
    view: RingView
    after: Callable[[], tuple[Ring, bool | None]] | None
    note: str = ""

    def plan(self) -> RingPlan:
        """What it would do. Costly, so in its turn.

        Raises:
            ConfigError: it cannot be computed.
        """
        after, exact = self.ring_after()
        return ring_plan(self.view.ring, after, exact=exact)

    def ring_after(self) -> tuple[Ring, bool | None]:
        """The ring then; see ``after``. ``None`` when the points themselves show it."""
        return self.after() if self.after else (self.view.ring, None)


@dataclass(frozen=True)
class GroupOrder:
    """An order about a member, not given yet.

    Attributes:
        watcher, view: the group.
        state: the group's, with the order.
        note: as in :class:`RingOrder`.
    """

    watcher: GroupWatcher
    view: GroupView
    state: GroupState
    note: str = ""

    def plan(self) -> Foresight:
        """What it would do; see :func:`hashring.web.change_plans.group_ordered`."""
        return group_ordered(self.view, self.state)


class OrderPlans:
    """Finds out what orders would do. All raise what is wrong with an order, as giving it does.

    Args:
        service: what the orders are about.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    # --- rings --------------------------------------------------------------------------------

    def drain(self, ring: str, node: str) -> RingOrder:
        """To drain a node."""
        watcher, view, seen = self._looked(ring, node)
        after = drained_ring(seen, view.ring, node)
        if after.node_count and node not in view.ring:
            return RingOrder(watcher, view, None, _NOT_ON_RING)
        return RingOrder(watcher, view, lambda: (after, None), "" if after.node_count else _LAST)

    def undrain(self, ring: str, node: str) -> RingOrder:
        """To drain a node no more."""
        watcher, view, seen = self._looked(ring, node)
        if node not in seen.drained:
            note = "It does not run, so nothing moves until it joins."
            return RingOrder(watcher, view, None, note if node in seen.drains else _NO_ORDER)
        return RingOrder(watcher, view, lambda: undrained_ring(seen, view.ring, node))

    def weight(self, ring: str, node: str, weight: float | None) -> RingOrder:
        """To give a node another weight; ``None`` for its own."""
        if weight is not None:
            checked_weight(weight)
        watcher, view, seen = self._looked(ring, node)
        if node not in view.ring:
            return RingOrder(watcher, view, None, _NOT_ON_RING)
        return RingOrder(
            watcher, view, lambda: (weighed_ring(seen, view.ring, {node: weight}), None)
        )

    def _looked(self, ring: str, node: str) -> tuple[RingWatcher, RingView, Snapshot]:
        """The ring as shown, and what Redis has about the node now.

        Raises:
            UnknownNodeError: there is no such node, and none of that name was there within a day.
        """
        watcher, view = ring_of(self._service, ring)
        look = snapshot(watcher.keys, scoring=self._service.scoring, remembered=node)
        seen = self._service.store.run(look)
        if not seen.remembered:
            _check_known(view, node)
        return watcher, view, seen

    # --- groups -------------------------------------------------------------------------------

    def group_drain(self, group: str, member: str) -> GroupOrder:
        """To drain a member."""
        found = self._ordered(
            group,
            lambda state, now: member_orders.drain(state, member, now, _PLANNING, force=True),
        )
        if member_orders.is_last(found.view.state, member, found.view.now):
            note = "No other member is left: drained ones keep the partitions until one joins."
            return GroupOrder(found.watcher, found.view, found.state, note)
        return found

    def group_undrain(self, group: str, member: str) -> GroupOrder:
        """To drain a member no more."""
        found = self._ordered(
            group, lambda state, now: member_orders.undrain(state, member, now, _PLANNING)
        )
        if found.state is found.view.state:
            return GroupOrder(found.watcher, found.view, found.state, _NO_ORDER)
        return found

    def group_weight(self, group: str, member: str, weight: float | None) -> GroupOrder:
        """To give a member another weight; ``None`` for its own."""
        return self._ordered(
            group, lambda state, now: member_orders.weigh(state, member, weight, now, _PLANNING)
        )

    def _ordered(self, group: str, order: Callable[[GroupState, float], StepOutcome]) -> GroupOrder:
        watcher, view = group_of(self._service, group)
        return GroupOrder(watcher, view, order(view.state, view.now).state)


def weight_of(text: str) -> float | None:
    """A weight in a form or an address; ``None`` when it is empty.

    Raises:
        ConfigError: it is none.
    """
    if not text:
        return None
    try:
        return float(text)
    except ValueError:
        raise ConfigError("weight", shown(text), "give a number above 0") from None


def _check_known(view: RingView, node: str) -> None:
    known = known_nodes(view.snapshot)
    if node not in known:
        raise UnknownNodeError(node, view.name, known)
