"""The rules that are checked in a history of a ring, without locks or with them."""

from __future__ import annotations

from collections.abc import Sequence

from hashring.testing.simulator.ring.history import NodeHistory
from hashring.testing.simulator.ring.lock_rules import (
    Calm,
    LockDepartures,
    LockFreed,
    LockHandoff,
    LockHolder,
    LockLasts,
    LockLimit,
    LockRecovery,
    LockService,
    LockTokens,
    LockWaits,
    Sole,
)
from hashring.testing.simulator.ring.node_rules import (
    Departures,
    Drain,
    Ended,
    Exclusion,
    Freshness,
    Names,
    NodeRenewal,
    NodeReports,
    Own,
    Placement,
    Recovery,
    RingRest,
    Spares,
    Stays,
    Weight,
)
from hashring.testing.simulator.ring.stop_rules import Goodbye, node_stops
from hashring.testing.simulator.ring.world import RingRule
from hashring.testing.simulator.rules import Hears


def rules_of(history: NodeHistory) -> Sequence[RingRule]:
    """A fresh set of the rules that must hold in a history."""
    return all_rules() if history.locks is None else lock_rules()


def all_rules() -> list[RingRule]:
    """A fresh instance of each rule."""
    return [
        NodeRenewal(),
        Own(),
        NodeReports(),
        Exclusion(),
        Freshness(),
        Names(),
        Drain(),
        Placement(),
        Weight(),
        Spares(),
        Ended(),
        Departures(),
        Goodbye(),
        node_stops(),
        Stays(),
        Recovery(),
        RingRest(),
        Hears(),
    ]


def lock_rules() -> list[RingRule]:
    """A fresh instance of each rule for histories with locks.

    Of the ring's rules those that do not speak of who may claim which points: with locks the heirs
    of a full node may ask for its keys as well, and a node that becomes full changes the ring.
    """
    return [
        NodeRenewal(),
        Own(),
        NodeReports(),
        Freshness(),
        Names(),
        Drain(),
        Ended(),
        Departures(),
        Goodbye(),
        node_stops(),
        LockHolder(),
        Sole(),
        LockTokens(),
        LockLimit(),
        LockWaits(),
        LockFreed(),
        LockHandoff(),
        LockLasts(),
        LockDepartures(),
        LockRecovery(),
        LockService(),
        Calm(),
        Hears(),
    ]
