"""The calls about locks that are under way, those in doubt, and the places kept for them.

A key that is being acquired or released counts against the limit until Redis has answered, so a
node never holds more than its limit, whatever gets lost on the way.
"""

from __future__ import annotations

from dataclasses import dataclass

from hashring.errors import StoreError
from hashring.protocol.locks.due_calls import DueCalls
from hashring.protocol.locks.key_states import NEVER, Key, KeyEvent, KeysByState, KeyState
from hashring.protocol.locks.limit import Limit
from hashring.protocol.locks.releases import Releases
from hashring.protocol.locks.ring_place import RingPlace
from hashring.store.command import Command
from hashring.store.locks.commands import AcquireAnswer

_E = KeyEvent

AskedKey = tuple[bytes, int, int]
"""A key, its point, and the caller's own number. A plain tuple: there are very many of them."""


@dataclass(eq=False)
class Take:
    """Locks to be taken.

    Attributes:
        command: what takes them.
        keys: their keys, in the order of the answers.
        places: how many places within the limit are kept for them.
        session: the session that they are taken under.
        began: when, in monotonic seconds.
    """

    command: Command[list[AcquireAnswer]]
    keys: tuple[Key, ...]
    places: int
    session: str
    began: float


@dataclass(eq=False)
class Doubt:
    """Keys of which the loop asks what came of a call about them.

    Attributes:
        keys: they are ``doubted``.
        places: how many places within the limit are kept for them.
        began: when the call began, in monotonic seconds.
    """

    keys: tuple[Key, ...]
    places: int
    began: float = -NEVER


class CallsUnderWay:
    """The calls of one book, and what they bring.

    Args:
        keys: the book's keys.
        place: the node's place on the ring.
        limit, releases, due_calls: the book's.

    Attributes:
        takes: the calls under way.
        doubts: those of which nobody knows what came.
        unanswered: whether Redis left one of them unanswered, and has answered none about them
            since.
        refusal: why Redis refuses to take locks, and since when; ``None`` when it does not.
    """

    def __init__(
        self,
        *,
        keys: KeysByState,
        place: RingPlace,
        limit: Limit,
        releases: Releases,
        due_calls: DueCalls,
    ) -> None:
        self._keys = keys
        self._place = place
        self._limit = limit
        self._releases = releases
        self._due_calls = due_calls
        self.forget()

    def forget(self) -> None:
        """No call is under way."""
        self.takes: list[Take] = []
        self.doubts: list[Doubt] = []
        self.unanswered = False
        self.refusal: tuple[StoreError, float] | None = None

    @property
    def count(self) -> int:
        """How many keys count against the limit."""
        keys = self._keys
        return (
            len(keys.held)
            + keys.count(KeyState.RELEASING)
            + keys.count(KeyState.AWAITED)
            + self._places
        )

    @property
    def _places(self) -> int:
        """How many places are kept for calls whose answers are not known."""
        takes = sum(take.places for take in self.takes)
        return takes + sum(doubt.places for doubt in self.doubts)

    def refuse(self, key: bytes, point: int, now: float) -> None:
        """There is no place for a key."""
        limit = self._limit
        if limit.most is None or self._place.left:
            return
        if (kept := self._places) and not limit.reached(self.count - kept):
            return  # Places are only kept, for calls that may need fewer: not full yet.
        self._due_calls.stirred = self._due_calls.stirred or not limit.full
        limit.refuse(key, point, own=self._place.owns(point), now=now)

    def granted(self, now: float, *keys: Key) -> None:
        """These keys are the node's now."""
        if not self._place.inherits:
            self._keys.enter(_E.TAKEN, *keys)
        else:
            for key in keys:
                own = not self._place.inherited(key.point)
                self._keys.enter(_E.TAKEN if own else _E.TAKEN_FOR_OWNER, key)
        self._limit.took(keys)
        for key in keys if self._place.left else ():
            self._releases.let_go(key, now)

    def take_anew(self, key: Key, token: int, now: float) -> None:
        """The lock is the node's, and not by the call that asked for it: let go of it first.

        A failover may have brought it back. Then another node may have had the key meanwhile, and
        what is written under this token is refused.
        """
        key.token, key.other = token, ""
        self._keys.enter(_E.STILL_OURS, key)
        self._due_calls.release_soon(now)
