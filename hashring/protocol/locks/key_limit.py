"""How many keys a node may hold, and what it refuses for that reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from hashring.protocol.locks.key_states import NEVER, Key
from hashring.store.locks.commands import LOCKS_A_CALL

REFUSED_COUNTED: Final = 65_536
"""Refused keys are counted up to this many."""


class Limit:
    """The limit of one node.

    Args:
        most: how many keys it may hold; ``None`` for any number.
        idle: seconds for which a refused key counts after it was asked for.
        locking: whether others may hold what is refused.

    Attributes:
        full: whether it had to refuse keys, and has no room since.
        refused: keys of the node's own that it refused in the last ``idle`` seconds.
        unserved: of those, the ones that nobody holds, when every node is full.
        look_at: when to find out how many of the refused keys nobody holds, in monotonic seconds.
    """

    def __init__(self, most: int | None, idle: float, *, locking: bool) -> None:
        self.most = most
        self._idle = idle
        self._locking = locking
        self.forget()

    def forget(self) -> None:
        """Nothing has been refused so far."""
        self.full = False
        self.refused = self.unserved = 0
        self.look_at = NEVER
        self._refused: dict[int, float] = {}
        self._keys: dict[int, bytes] = {}
        self._refused_at = -NEVER

    def reached(self, count: int) -> bool:
        """Whether a node that holds ``count`` keys may hold no more."""
        return self.most is not None and count >= self.most

    def refuse(self, key: bytes, point: int, *, own: bool, now: float) -> None:
        """A key was asked for, and there is no place for it."""
        self._refused_at = now
        self.full = True
        if own and (point in self._refused or len(self._refused) < REFUSED_COUNTED):
            self._refused[point] = now
            if self._locking and len(self._keys) < LOCKS_A_CALL:
                self._keys[point] = key

    def took(self, keys: Iterable[Key]) -> None:
        """These keys are held after all."""
        for key in keys if self._refused else ():
            self._refused.pop(key.point, None)
            self._keys.pop(key.point, None)

    def recount(self, own: Callable[[int], bool], everyone_full: bool, now: float) -> None:
        """Count what was refused, and plan to look who has it.

        Args:
            own: whether a point is the node's.
            everyone_full: whether every node of the ring is full.
        """
        since = now - self._idle
        self._refused = {p: at for p, at in self._refused.items() if at >= since and own(p)}
        self._keys = {p: key for p, key in self._keys.items() if p in self._refused}
        self.refused = len(self._refused)
        self.look_at = NEVER
        if not self._locking:
            self.unserved = self.refused  # Nobody else takes them.
        elif not everyone_full or not self._keys:
            self.unserved = 0
        else:
            self.look_at = now

    def sample(self) -> list[bytes]:
        """Some of the refused keys."""
        self.look_at = NEVER
        return list(self._keys.values())

    def found(self, held: int, sample: int) -> None:
        """Note how many keys of a sample of refused ones are held."""
        # Of more than were looked up, the same part is taken to be held.
        self.unserved = round(self.refused * (1 - held / sample))

    def settle(self, count: int, now: float) -> None:
        """Say that there is room again, where it is so."""
        if (
            self.full
            and self.most is not None
            and (
                count <= self.most - max(1, self.most // 10) or self._refused_at < now - self._idle
            )
        ):
            self.full = False
