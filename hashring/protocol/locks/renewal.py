"""Which locks a node renews, and until when they then last: all of them, with each heartbeat."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter

from hashring.protocol.locks.key_states import HOLDING, NEVER, Key
from hashring.store.locks.commands import RENEWED_A_CALL, Renewed


@dataclass(frozen=True)
class Batch:
    """Locks to be renewed by one call.

    Attributes:
        keys: their keys.
        lasting: for how many seconds, where it is not the ttl, by the keys' numbers.
        put_back: the numbers of those that Redis may have lost.
    """

    keys: list[Key]
    lasting: dict[int, float]
    put_back: list[int]


class Renewal:
    """The renewals of one book.

    Args:
        ttl: seconds that a lock lasts.

    Attributes:
        due: when the next call is to be made, in monotonic seconds.
    """

    def __init__(self, ttl: float) -> None:
        self._ttl = ttl
        # What Redis may have lost of what is held: put back by the next renewal.
        self._lost: set[Key] = set()
        self.forget()

    def forget(self) -> None:
        """Nothing is to be renewed."""
        # The next one is at the end.
        self._queue: list[Key] = []
        self.due = NEVER

    def renew_all(self, keys: Iterable[Key], now: float) -> None:
        """Renew all of these, those that end first before the others.

        What is still to be renewed of an earlier round comes before them: if a round takes longer
        than a heartbeat, each key gets its turn.
        """
        going_on = set(self._queue)
        others = [key for key in keys if key not in going_on]
        others.sort(key=attrgetter("deadline"), reverse=True)
        self._queue = others + self._queue
        self.due = now

    def renew_soon(self, key: Key, now: float) -> None:
        """Renew this one, too."""
        self._queue.append(key)
        self.due = min(self.due, now)

    def may_be_lost(self, keys: Iterable[Key]) -> None:
        """Redis may have lost the locks on these keys."""
        self._lost = set(keys)

    def next(self, now: float) -> Batch | None:
        """What to renew now."""
        self.due = NEVER
        batch = Batch([], {}, [])
        while self._queue and len(batch.keys) < RENEWED_A_CALL:
            key = self._queue.pop()
            if key.state not in HOLDING:
                continue
            number = len(batch.keys)
            if key.lease is not None and (left := key.lease.last - now) < self._ttl:
                if left <= 0:
                    continue
                batch.lasting[number] = left
            if key in self._lost and now < key.deadline:
                batch.put_back.append(number)
            batch.keys.append(key)
        return batch if batch.keys else None

    def done(self, batch: Batch, reply: Renewed, sent: float, now: float) -> list[Key]:
        """A batch was renewed; those of it whose locks are lost."""
        lost, unknown = set(reply.lost), set(reply.unknown)
        for number, key in enumerate(batch.keys):
            if number in lost or number in unknown:
                continue
            self._lost.discard(key)
            key.deadline = sent + batch.lasting.get(number, self._ttl)
            if key.lease is not None:
                # It may have been asked to finish since.
                key.deadline = min(key.deadline, key.lease.last)
        if self._queue:
            self.due = now
        return [batch.keys[number] for number in lost]

    def failed(self, batch: Batch, retry_at: float) -> None:
        """Nobody knows whether a batch was renewed."""
        self._queue += batch.keys
        self.due = retry_at
