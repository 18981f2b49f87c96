"""A node's claim to its name, where another process may have the same.

Of two processes with a name that a user chose, the one that began later gets it. A failover may
bring back a record of the one that began earlier. So each tells whom it has followed and since when
it is on the ring, and both come to the same answer.
"""

from __future__ import annotations

from typing import Any, Final

from hashring.core.value_checks import is_finite
from hashring.protocol.node.node_states import CLAIM, ClaimEvent, ClaimState
from hashring.store.ring.node_entries import NodeRecord

# How many of the sessions that had its name before it a node tells of: a failover loses the last
# moments, in which a name has not changed hands more often.
_KEPT: Final = 4


class NameClaim:
    """How far a node is with its name and its points; see :data:`.node_states.CLAIM`.

    Args:
        named: whether the user chose the name. Only such a name is taken from another process.

    Attributes:
        state: how far it is.
        take_from: the session that has the name, and is to lose it; "" for none.
    """

    def __init__(self, *, named: bool) -> None:
        self.state = ClaimState.LOOKING
        self.take_from = ""
        self._named = named
        # The sessions that the node had itself in this run, and in those before, newest first.
        self._sessions: tuple[str, ...] = ()
        self._former: tuple[str, ...] = ()
        # Those that had the name before it, the newest first.
        self._replaced: tuple[str, ...] = ()
        # When it was first on the ring, in microseconds of Redis' clock; 0 is not yet.
        self._began = 0

    def start(self, session: str, state: ClaimState) -> None:
        """The node begins to join."""
        self._former = (*self._sessions, *self._former)[:_KEPT]
        self._sessions = (session,)
        self._replaced = ()
        self._began = 0
        self.begin_anew(state)

    def begin_anew(self, state: ClaimState) -> None:
        """Claim a name, another one if the node has to go on under another."""
        self.state = state

    def see(self, event: ClaimEvent) -> None:
        """Go to the state that follows the event."""
        self.state = CLAIM.after(self.state, event)

    def goes_on_as(self, session: str) -> None:
        """The node has a new session."""
        self._sessions = (session, *self._sessions)

    def began(self, at: int) -> None:
        """The node was on the ring, or about to join, at this moment of Redis' clock."""
        self._began = self._began or at

    def prevails(self, holder: NodeRecord | None) -> bool:
        """Whether the node may take the name from what holds it; false if that began later."""
        self.take_from = holder.session if holder and self._named else ""
        # A heartbeat of its own of before a stop may have come late, after Redis lost that stop.
        own = (*self._sessions, *self._former)
        if holder is None or self.take_from in ("", *own, *self._replaced):
            return True
        if self.state is ClaimState.CONTESTING and self._began_before(holder):
            return False
        self._replaced = (self.take_from, *_replaced(holder))[:_KEPT]
        return True

    def _began_before(self, holder: NodeRecord) -> bool:
        """Whether this process began before the one that has its name now."""
        if not set(_replaced(holder)).isdisjoint(self._sessions):
            return True
        started = holder.told.get("started")
        # A process of this package says when it began: without that it is an invalid entry.
        return is_finite(started) and started * 1e6 >= self._began

    def told(self) -> dict[str, Any]:
        """What the node tells of its claim, with each heartbeat."""
        told: dict[str, Any] = {}
        if self._replaced:
            told["replaced"] = self._replaced
        if self._began:
            told["started"] = self._began / 1e6
        return told


def _replaced(record: NodeRecord) -> tuple[str, ...]:
    """The sessions that had a name before its holder, as far as it tells."""
    told = record.told.get("replaced")
    if not isinstance(told, list):
        return ()
    return tuple(session for session in told if isinstance(session, str))
