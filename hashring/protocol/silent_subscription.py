"""When a silent subscription is asked whether it still stands; without I/O.

A connection can die without a sign: a firewall forgets it, or a machine is gone. Who waits for
messages sends nothing, so TCP never notices. Each loop therefore follows this rule: after some
time without any message it sends a ``PING`` on the subscription's own connection, and when no
answer comes, the subscription is lost. The ``SUBSCRIBE`` is the first such question.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from hashring.errors import RedisUnavailable
from hashring.protocol.machine import Subscribe

# Seconds of the last look for an answer, when its time is over.
_LOOK: Final = 0.01


class Silent(Enum):
    """What to do after a wait in which nothing came."""

    LISTEN = "listen on"
    ASK = "ask"
    LOST = "give it up"


class Silence:
    """The rule for one subscription. Times are monotonic seconds.

    Args:
        terms: how long it may be silent.
        now: when the subscription was asked for.
    """

    def __init__(self, terms: Subscribe, now: float) -> None:
        self._terms = terms
        self._heard = False
        self._asked = True
        self._until = now + terms.patience
        self._looked = False

    @property
    def error(self) -> RedisUnavailable | None:
        """Why it is given up; ``None`` while it has not stood yet."""
        if not self._heard:
            return None
        return RedisUnavailable("Redis did not answer on the subscription in time")

    def heard(self, now: float) -> None:
        """Something came: the confirmation, a message, or an answer."""
        self._heard, self._asked, self._looked = True, False, False
        self._until = now + self._terms.ask_after

    def wait(self, now: float) -> float:
        """How many seconds to listen at most before :meth:`nothing` is asked."""
        return max(self._until - now, _LOOK)

    def nothing(self, now: float) -> Silent:
        """What to do, when nothing came in the wait that has just ended."""
        if now < self._until:
            return Silent.LISTEN
        if not self._asked:
            self._asked = True
            self._until = now + self._terms.patience
            return Silent.ASK
        if not self._looked:
            # A process or an event loop that was held up may find the answer waiting.
            self._looked = True
            return Silent.LISTEN
        return Silent.LOST
