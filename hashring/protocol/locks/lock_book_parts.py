"""The parts of a book that all its pieces work on."""

from __future__ import annotations

from dataclasses import dataclass

from hashring.protocol.locks.due_calls import DueCalls
from hashring.protocol.locks.hold_off import HoldOff
from hashring.protocol.locks.key_limit import Limit
from hashring.protocol.locks.key_states import KeysByState
from hashring.protocol.locks.lock_config import LockConfig
from hashring.protocol.locks.renewal import Renewal
from hashring.protocol.locks.ring_place import RingPlace
from hashring.store.ring.key_names import RingKeys


@dataclass(frozen=True)
class BookParts:
    """Shared by all pieces of one book. Which they are never changes; what they say does.

    Attributes:
        names: the ring's keys in Redis.
        config: how the node locks.
        keys: the keys of which the node knows something, each in its state.
        place: who the node is on the ring, and which points are its own.
        limit: how many keys the node may hold.
        hold_off: until when no lock may be taken after a loss.
        renewal: which locks are renewed, and when.
        due_calls: what the node's loop has to do next.
    """

    names: RingKeys
    config: LockConfig
    keys: KeysByState
    place: RingPlace
    limit: Limit
    hold_off: HoldOff
    renewal: Renewal
    due_calls: DueCalls

    @classmethod
    def of(cls, names: RingKeys, config: LockConfig, retry: float) -> BookParts:
        """Those of a node that has not begun; see :class:`.lock_book.LockBook`."""
        return cls(
            names,
            config,
            keys=KeysByState(),
            place=RingPlace(),
            limit=Limit(config.limit, config.idle, locking=config.locking),
            hold_off=HoldOff(),
            renewal=Renewal(config.ttl),
            due_calls=DueCalls(retry),
        )

    def begin(self, node: str, session: str) -> None:
        """Forget all but the keys: the node has this name and session from now on."""
        self.place.begin(node, session)
        self.limit.forget()
        self.hold_off.forget()
        self.renewal.forget()
        self.due_calls.forget()
