"""The leases on the keys of one book: who holds a key by hand, and what a loss tells them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from hashring.protocol.locks.book_facts import BookFacts
from hashring.protocol.locks.key_states import Key, KeyEvent, KeyState
from hashring.protocol.locks.lease import KeyLease
from hashring.protocol.locks.releases import Releases

_S, _E = KeyState, KeyEvent


class Pins:
    """The keys of one book that are pinned.

    Args:
        facts: what all pieces of the book know.
        releases: the book's.

    Attributes:
        keys: those that have a lease.
    """

    def __init__(self, facts: BookFacts, releases: Releases) -> None:
        self.keys: set[Key] = set()
        self._config = facts.config
        self._all = facts.keys
        self._place = facts.place
        self._renewal = facts.renewal
        self._due_calls = facts.due_calls
        self._releases = releases

    def pin(
        self, key: bytes, clock: Callable[[], float], event: Callable[[], Any]
    ) -> KeyLease[Any] | None:
        """A lease on a key that is held; the same one again inside itself."""
        held = self._all.held.get(key)
        if held is None or (now := clock()) >= held.deadline:
            return None
        if held.lease is None:
            if held.state is _S.WANTED:
                return None
            if held.state is _S.HELD and not self._place.reaches(held.point):
                # It moved since it was asked about, and only leases that stand are revoked.
                self._releases.let_go(held, now)
                return None
            held.lease = KeyLease(held, clock, event(), event())
            self.keys.add(held)
        held.lease.pins += 1
        return held.lease

    def pin_again(self, key: bytes, now: float) -> KeyLease[Any] | None:
        """The lease that a key is held by already; ``None`` when there is none."""
        held = self._all.held.get(key)
        if held is None or held.lease is None or now >= held.deadline:
            return None
        held.lease.pins += 1
        return held.lease

    def unpin(self, lease: KeyLease[Any], now: float) -> bool:
        """Leave a lease; whether the key is to be let go now."""
        lease.pins -= 1
        if lease.pins or (held := lease.end()) is None:
            return False
        self.keys.discard(held)
        held.asked = now
        if held.state is _S.FINISHING:
            # The node has left meanwhile, and the lock stood until the work was done.
            self._all.enter(_E.WORK_DONE, held)
            self._due_calls.release_soon(now)
        elif lease.revoked_at is None:
            return False
        else:
            self._releases.let_go(held, now)
        return True

    def revoke(self, held: Key, now: float) -> None:
        """Ask a key's lease to finish, if it has one: the key belongs to another node."""
        lease = held.lease
        if lease is None or lease.revoked_at is not None:
            return
        lease.revoked_at, lease.last = now, now + self._config.max_handoff_time
        if held.deadline > lease.last:
            # The deadline changes here first, and in Redis with the next renewal. So the node never
            # takes the lease to last longer than the lock, even if that renewal is lost.
            held.deadline = lease.last
            self._renewal.soon(held, now)
        lease.revoked.set()

    def revoke_what_moved(self, now: float) -> None:
        """Ask the leases to finish whose keys the ring has moved."""
        bounds = self._place.bounds
        for held in self.keys:
            if held.state is _S.HELD and bisect_right(bounds, held.point) & 1 == 0:
                self.revoke(held, now)

    def end(self, *keys: Key) -> None:
        """The leases on these keys are lost, where there are any."""
        for key in keys:
            if key.lease is not None:
                key.lease.lost.set()
                key.lease.end()
                self.keys.discard(key)

    def end_what_expired(self, now: float) -> None:
        """The leases are lost whose time is over by this clock; Redis may count a moment longer."""
        for held in [held for held in self.keys if now >= held.deadline]:
            self.end(held)
            if held.state is _S.FINISHING:
                self._all.enter(_E.LOST, held)
            else:
                self._releases.let_go(held, now)

    def leave(self, held: Key, now: float) -> None:
        """The node leaves: the lease is lost, and its lock stays until the work is done."""
        assert held.lease is not None
        self.revoke(held, now)
        held.lease.lost.set()
        self._all.enter(_E.NODE_LEFT, held)

    def due(self) -> list[float]:
        """When leases end, in monotonic seconds."""
        return [held.deadline for held in self.keys]

    def mend(self) -> None:
        """Make whole again what was raised into: look over all leases."""
        known = (*self._all.held.values(), *self._all.others.values())
        self.keys = {key for key in known if key.lease is not None}
        for key in self.keys:
            lease = key.lease
            if lease is not None and lease.revoked_at is not None:
                key.deadline = min(key.deadline, lease.last)
                lease.revoked.set()
