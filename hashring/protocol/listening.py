"""The subscription of one machine, whatever is under it: whether messages arrive; without I/O.

{LISTENING}
"""

from __future__ import annotations

import math
from enum import Enum
from typing import Final

from hashring.core.state_table import StateTable, with_tables
from hashring.protocol.machine_steps import Subscribe


class ListeningState(str, Enum):
    """How far a machine is with its subscription."""

    WANTED = "wanted"
    ASKED = "asked for"
    STANDING = "standing"


class ListeningEvent(str, Enum):
    """What changes how far it is."""

    ASKED = "asked for"
    CONFIRMED = "confirmed"
    ENDED = "ended or refused"
    ANEW = "to be made anew"


_S, _E = ListeningState, ListeningEvent
_GONE: Final = {_E.ENDED: _S.WANTED, _E.ANEW: _S.WANTED}

LISTENING: Final = StateTable(
    {
        _S.WANTED: "there is none; asks for one, perhaps after a pause",
        _S.ASKED: "the loop makes one; it is not confirmed yet",
        _S.STANDING: "messages arrive",
    },
    {
        _S.WANTED: {_E.ASKED: _S.ASKED, **_GONE},
        _S.ASKED: {_E.ASKED: _S.ASKED, _E.CONFIRMED: _S.STANDING, **_GONE},
        _S.STANDING: {_E.CONFIRMED: _S.STANDING, **_GONE},
    },
)

__doc__ = with_tables(__doc__, LISTENING=LISTENING)


class Listening:
    """The subscription of one machine. Times are monotonic seconds.

    Attributes:
        state: how far it is.
        number: of the newest subscription; reports about older ones do not count.
        at: when to ask for one; ``inf`` while one stands.
        failed: how many have failed or ended since the last one was confirmed.
    """

    def __init__(self) -> None:
        self.state = ListeningState.WANTED
        self.number = 0
        self.at = 0.0
        self.failed = 0

    @property
    def stands(self) -> bool:
        """Whether messages arrive."""
        return self.state is ListeningState.STANDING

    def anew(self, now: float) -> None:
        """Ask for another one at once."""
        self._turn(ListeningEvent.ANEW)
        self.at, self.failed = now, 0

    def ask(self, ask_after: float, patience: float, again_at: float = math.inf) -> Subscribe:
        """What the loop is asked for; see :class:`Subscribe`.

        Args:
            again_at: when to ask once more, if the loop reports nothing.
        """
        self._turn(ListeningEvent.ASKED)
        self.number += 1
        self.at = again_at
        return Subscribe(self.number, ask_after, patience)

    def confirmed(self, number: int) -> bool:
        """The subscription of that number stands (again); whether that counts."""
        if number != self.number or not LISTENING.may(self.state, ListeningEvent.CONFIRMED):
            return False
        self._turn(ListeningEvent.CONFIRMED)
        self.at, self.failed = math.inf, 0
        return True

    def ended(self, number: int) -> bool:
        """The subscription of that number is gone, or could not be made; whether that counts.

        If it does, the machine says :attr:`at` when to ask for the next one.
        """
        if number != self.number:
            return False
        self._turn(ListeningEvent.ENDED)
        self.failed += 1
        return True

    def _turn(self, event: ListeningEvent) -> None:
        self.state = LISTENING.after(self.state, event)
