"""The weight of a node: what its own code gave it, unless another one was ordered since."""

from __future__ import annotations

from hashring.store.ring.node_orders import WeightOrder

OwnWeight = tuple[float, str]
"""A weight that the node's own code gave it, and the last order that it lifts ("" for none)."""


class OrderedWeight:
    """A node's weight. Its own one may be given by any thread; all else is the machine's.

    Args:
        weight: of its own.
    """

    def __init__(self, weight: float) -> None:
        # Swapped whole, since users assign it.
        self.given: OwnWeight = (weight, "")
        # That of which Redis has heard; None if it is to be told again.
        self._said: OwnWeight | None = self.given
        self._order: WeightOrder | None = None

    def start(self) -> None:
        """The node begins to join. What was given before is what it begins with, so that an order
        comes before it."""
        self.given = self._said = (self.given[0], "")
        self._order = None

    def give(self, weight: float) -> None:
        """Have another weight of its own, instead of any that was ordered so far."""
        order = self._order
        # A failover may bring back what an earlier one has lifted.
        self.given = (weight, order.id if order else self.given[1])

    @property
    def weight(self) -> float:
        """What counts: its own, unless another one was ordered since that was given."""
        own, ordered = self.given, self._order
        if ordered is None or ordered.id == own[1]:
            return own[0]
        return ordered.weight

    def lifted(self, given: OwnWeight) -> str | None:
        """The order that a heartbeat with this weight lifts; ``None`` if Redis has heard of it."""
        return None if given is self._said else given[1]

    def said(self, given: OwnWeight) -> None:
        """Redis has heard of this weight."""
        self._said = given

    def found(self, order: WeightOrder | None) -> None:
        """This was ordered for the node before it joined."""
        if order is not None and not order.session:
            self._order = order

    def ordered(self, order: WeightOrder | None) -> None:
        """The answer to a heartbeat says that this is ordered."""
        self._order = order
        if order is not None and order.id == self.given[1]:
            # A failover brought back what its own weight has lifted: it says so again.
            self._said = None
