"""When a silent subscription is asked whether it still stands; without I/O.

A connection can die without a sign: a firewall forgets it, or a machine is gone. Who waits for
messages sends nothing, so TCP never notices. Each loop therefore follows this rule: after some
time without any message it sends a ``PING`` on the subscription's own connection, and when no
answer comes, the subscription is lost. The ``SUBSCRIBE`` is the first such question.

{SUBSCRIPTION_LIFE}
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from hashring.core.state_table import StateTable, with_tables
from hashring.errors import RedisUnavailable
from hashring.protocol.machine_steps import Subscribe

# Seconds of the last look for an answer, when its time is over.
_LOOK: Final = 0.01


class SubscriptionState(str, Enum):
    """Where a subscription is in its life."""

    OPENING = "opening"
    LATE = "late"
    STANDING = "standing"
    ASKED = "asked"
    OVERDUE = "overdue"
    UNCONFIRMED = "unconfirmed"
    LOST = "lost"


class SubscriptionEvent(str, Enum):
    """What changes the state of a subscription."""

    HEARD = "something came"
    TIME_OVER = "time over"


_S, _E = SubscriptionState, SubscriptionEvent
_HEARD: Final = {_E.HEARD: _S.STANDING}

SUBSCRIPTION_LIFE: Final = StateTable(
    {
        _S.OPENING: "SUBSCRIBE was sent",
        _S.LATE: "not confirmed in time: looks once more",
        _S.STANDING: "stands, and messages may come",
        _S.ASKED: "was silent: PING was sent",
        _S.OVERDUE: "no answer in time: looks once more",
        _S.UNCONFIRMED: "given up; it has never stood",
        _S.LOST: "given up; it stood before",
    },
    {
        _S.OPENING: {**_HEARD, _E.TIME_OVER: _S.LATE},
        # A process or an event loop that was held up may find the answer waiting.
        _S.LATE: {**_HEARD, _E.TIME_OVER: _S.UNCONFIRMED},
        _S.STANDING: {**_HEARD, _E.TIME_OVER: _S.ASKED},
        _S.ASKED: {**_HEARD, _E.TIME_OVER: _S.OVERDUE},
        _S.OVERDUE: {**_HEARD, _E.TIME_OVER: _S.LOST},
    },
)

__doc__ = with_tables(__doc__, SUBSCRIPTION_LIFE=SUBSCRIPTION_LIFE)


class Silent(Enum):
    """What to do after a wait in which nothing came."""

    LISTEN = "listen on"
    ASK = "ask"
    LOST = "give it up"


_DO: Final = {
    _S.LATE: Silent.LISTEN,
    _S.ASKED: Silent.ASK,
    _S.OVERDUE: Silent.LISTEN,
    _S.UNCONFIRMED: Silent.LOST,
    _S.LOST: Silent.LOST,
}


class Silence:
    """The rule for one subscription. Times are monotonic seconds.

    Args:
        terms: how long it may be silent.
        now: when the subscription was asked for.

    Attributes:
        state: where the subscription is in its life.
    """

    def __init__(self, terms: Subscribe, now: float) -> None:
        self.state = SubscriptionState.OPENING
        self._terms = terms
        self._until = now + terms.patience

    @property
    def error(self) -> RedisUnavailable | None:
        """Why it is given up; ``None`` if it has never stood: the machine says why."""
        if self.state is SubscriptionState.LOST:
            return RedisUnavailable("Redis did not answer on the subscription in time")
        return None

    def heard(self, now: float) -> None:
        """Something came: the confirmation, a message, or an answer."""
        self._turn(SubscriptionEvent.HEARD)
        self._until = now + self._terms.ask_after

    def wait(self, now: float) -> float:
        """How many seconds to listen at most before :meth:`nothing` is asked."""
        return max(self._until - now, _LOOK)

    def nothing(self, now: float) -> Silent:
        """What to do, when nothing came in the wait that has just ended."""
        if now < self._until:
            return Silent.LISTEN
        self._turn(SubscriptionEvent.TIME_OVER)
        if self.state is SubscriptionState.ASKED:
            self._until = now + self._terms.patience
        return _DO[self.state]

    def _turn(self, event: SubscriptionEvent) -> None:
        self.state = SUBSCRIPTION_LIFE.after(self.state, event)
