"""The life of one key, as a node sees it that locks keys.

{KEY_LIFE}

A ``free`` key is in no book. In every state but ``free``, ``finishing`` and ``elsewhere`` it has
a place within the node's limit: a lock that Redis may have given counts until Redis says no.
"""

from __future__ import annotations

from enum import Enum
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

from hashring.core.state_table import StateTable, with_tables

if TYPE_CHECKING:
    from hashring.protocol.locks.key_lease import KeyLease

NEVER: Final = float("inf")


class KeyState(str, Enum):
    """Where a key is in its life."""

    FREE = "free"
    TAKING = "taking"
    DOUBTED = "doubted"
    HELD = "held"
    KEPT = "kept"
    WANTED = "wanted"
    IDLE = "idle"
    FINISHING = "finishing"
    RELEASING = "releasing"
    AWAITED = "awaited"
    ELSEWHERE = "elsewhere"


class KeyEvent(str, Enum):
    """What leads from one state to the next."""

    ASKED = "asked for"
    TAKEN = "taken"
    TAKEN_FOR_OWNER = "taken for its owner"
    OF_OTHER = "another has it"
    WAITED_FOR = "another has it, and will tell"
    NOT_TAKEN = "not taken"
    UNANSWERED = "no answer"
    ANSWERED_LATE = "answered late"
    STILL_OURS = "not let go of yet"
    OWNER_FULL = "its owner is full"
    OWNER_WAITS = "its owner waits"
    OWNER_GONE = "its owner waits no more"
    DRAINED = "to be handed over"
    NOT_ASKED = "not asked for"
    LET_GO = "let go"
    LOST = "lost"
    NODE_LEFT = "the node leaves"
    WORK_DONE = "the work is done"
    RELEASED = "released"
    PASSED_ON = "released for its owner"
    FORGOTTEN = "forgotten"


_S, _E = KeyState, KeyEvent

_OURS: Final = {
    _E.LET_GO: _S.RELEASING,
    _E.LOST: _S.FREE,
    _E.NODE_LEFT: _S.FINISHING,
}

KEY_LIFE: Final = StateTable(
    {
        _S.FREE: "nothing is known of it",
        _S.TAKING: "a call that takes it is under way",
        _S.DOUBTED: "what came of the call is asked",
        _S.HELD: "this node's, which may work on it",
        _S.KEPT: "the same, for an owner that is full",
        _S.WANTED: "kept, until its owner may have it",
        _S.IDLE: "to be let go, unless asked for now",
        _S.FINISHING: "the node left; work on it goes on",
        _S.RELEASING: "let go; Redis has not answered yet",
        _S.AWAITED: "another's, which tells when it is free",
        _S.ELSEWHERE: "another's, which may keep it",
    },
    {
        _S.FREE: {
            _E.ASKED: _S.TAKING,
            _E.ANSWERED_LATE: _S.DOUBTED,
        },
        _S.TAKING: {
            _E.TAKEN: _S.HELD,
            _E.TAKEN_FOR_OWNER: _S.KEPT,
            _E.OF_OTHER: _S.ELSEWHERE,
            _E.WAITED_FOR: _S.AWAITED,
            _E.STILL_OURS: _S.RELEASING,
            _E.NOT_TAKEN: _S.FREE,
            _E.UNANSWERED: _S.DOUBTED,
            _E.FORGOTTEN: _S.FREE,
        },
        _S.DOUBTED: {
            _E.TAKEN: _S.HELD,
            _E.TAKEN_FOR_OWNER: _S.KEPT,
            _E.STILL_OURS: _S.RELEASING,
            _E.NOT_TAKEN: _S.FREE,
            _E.FORGOTTEN: _S.FREE,
        },
        _S.HELD: {_E.OWNER_FULL: _S.KEPT, _E.NOT_ASKED: _S.IDLE, **_OURS},
        _S.KEPT: {
            _E.OWNER_WAITS: _S.WANTED,
            _E.DRAINED: _S.HELD,
            _E.NOT_ASKED: _S.IDLE,
            **_OURS,
        },
        _S.WANTED: {
            _E.OWNER_WAITS: _S.WANTED,
            _E.OWNER_GONE: _S.KEPT,
            _E.DRAINED: _S.HELD,
            **_OURS,
        },
        _S.IDLE: {
            _E.ASKED: _S.HELD,
            _E.LET_GO: _S.RELEASING,
        },
        _S.FINISHING: {
            _E.WORK_DONE: _S.RELEASING,
            _E.LOST: _S.FREE,
        },
        _S.RELEASING: {
            _E.RELEASED: _S.FREE,
            _E.PASSED_ON: _S.ELSEWHERE,
            _E.ANSWERED_LATE: _S.DOUBTED,
            _E.FORGOTTEN: _S.FREE,
        },
        _S.AWAITED: {_E.ASKED: _S.TAKING, _E.FORGOTTEN: _S.FREE},
        _S.ELSEWHERE: {
            _E.ASKED: _S.TAKING,
            _E.ANSWERED_LATE: _S.DOUBTED,
            _E.FORGOTTEN: _S.FREE,
        },
    },
)

__doc__ = with_tables(__doc__, KEY_LIFE=KEY_LIFE)

HOLDING: Final = frozenset({_S.HELD, _S.KEPT, _S.WANTED, _S.IDLE})
"""The states in which the node has the lock, as far as it knows."""


class Key:
    """A key of which a node knows something.

    Attributes:
        key, point: the key and its point.
        state: where it is in its life; changed by :class:`KeysByState` alone.
        token: the fencing token of the lock that is held, or let go.
        deadline: when that lock expires unless renewed, in monotonic seconds.
        asked: when somebody last asked for it. ``contains`` writes it without the book's lock.
        lease: what pins it.
        other: the node that has it, or waits for it; else empty.
        until: when to ask Redis for it again, in monotonic seconds.
        wait: after how many seconds that was to be.
    """

    __slots__ = (
        "asked",
        "deadline",
        "key",
        "lease",
        "other",
        "point",
        "state",
        "token",
        "until",
        "wait",
    )

    def __init__(self, key: bytes, point: int) -> None:
        self.key = key
        self.point = point
        self.state = KeyState.FREE
        self.token = 0
        self.deadline = self.asked = -NEVER
        self.lease: KeyLease[Any] | None = None
        self.other = ""
        self.until = -NEVER
        self.wait = 0.0

    def hold(self, token: int, deadline: float, now: float) -> None:
        """Its lock is this node's."""
        self.token, self.deadline, self.asked = token, deadline, now
        self.other, self.wait = "", 0.0


class KeysByState:
    """The keys of a book, each in one state.

    Attributes:
        held: those that the node has.
        others: those of which it knows something else.
    """

    def __init__(self) -> None:
        self.held: dict[bytes, Key] = {}
        self.others: dict[bytes, Key] = {}
        self._counts = dict.fromkeys(KeyState, 0)
        self._homes = {
            state: self.held if state in HOLDING else None if state is _S.FREE else self.others
            for state in KeyState
        }

    def find(self, key: bytes) -> Key | None:
        """What is known of a key."""
        return self.held.get(key) or self.others.get(key)

    def count(self, state: KeyState) -> int:
        """How many keys are in a state."""
        return self._counts[state]

    @property
    def in_places(self) -> int:
        """How many keys have a place within the limit, without those that calls are to take."""
        return len(self.held) + self._counts[_S.RELEASING] + self._counts[_S.AWAITED]

    def of(self, *states: KeyState) -> list[Key]:
        """The keys, other than held ones, that are in these states."""
        if not any(self._counts[state] for state in states):
            return []
        return [key for key in self.others.values() if key.state in states]

    def index(self) -> None:
        """Find each key a place by its state, whatever was left half done."""
        known = (*self.held.values(), *self.others.values())
        for key in known:
            home = self._homes[key.state]
            if home is not None:
                home[key.key] = key
            for other in (self.held, self.others):
                if other is not home:
                    other.pop(key.key, None)
        for state in self._counts:
            self._counts[state] = 0
        for key in (*self.held.values(), *self.others.values()):
            self._counts[key.state] += 1

    def enter(self, event: KeyEvent, *keys: Key) -> None:
        """Bring each of the keys to the state that follows its own and the event."""
        if len(keys) == 1:
            self._enter(event, keys[0].state, keys)
            return
        for before, some in groupby(keys, attrgetter("state")):
            self._enter(event, before, tuple(some))

    def _enter(self, event: KeyEvent, before: KeyState, keys: tuple[Key, ...]) -> None:
        after = KEY_LIFE.after(before, event)
        self._counts[before] -= len(keys)
        self._counts[after] += len(keys)
        home, new = self._homes[before], self._homes[after]
        for key in keys:
            key.state = after
        if new is not home:
            if new is not None:
                for key in keys:
                    new[key.key] = key
            if home is not None:
                for key in keys:
                    del home[key.key]
