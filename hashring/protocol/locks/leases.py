"""The leases on the keys of one book: who holds a key by hand, and what a loss tells them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from hashring.protocol.locks.key_lease import KeyLease, LeaseHolder
from hashring.protocol.locks.key_states import HOLDING, Key, KeyEvent, KeyState
from hashring.protocol.locks.lock_book_parts import BookParts
from hashring.protocol.locks.releases import Releases

_S, _E = KeyState, KeyEvent


class Leases:
    """The leases on the keys of one book.

    Args:
        parts: those that all pieces of the book share.
        releases: the book's.

    Attributes:
        keys: those that have a lease.
    """

    def __init__(self, parts: BookParts, releases: Releases) -> None:
        self.keys: set[Key] = set()
        self._config = parts.config
        self._all = parts.keys
        self._place = parts.place
        self._renewal = parts.renewal
        self._due_calls = parts.due_calls
        self._releases = releases

    def pin(
        self, key: bytes, clock: Callable[[], float], event: Callable[[], Any], holder: LeaseHolder
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
                self._releases.let_go(now, held)
                return None
            held.lease = KeyLease(held, clock, event(), event())
            self.keys.add(held)
        return self._hold_by(held.lease, holder)

    def pin_again(self, key: bytes, now: float, holder: LeaseHolder) -> KeyLease[Any] | None:
        """The lease that a key is held by already; ``None`` when there is none."""
        held = self._all.held.get(key)
        if held is None or held.lease is None or now >= held.deadline:
            return None
        return self._hold_by(held.lease, holder)

    def _hold_by(self, lease: KeyLease[Any], holder: LeaseHolder) -> KeyLease[Any]:
        # First: whatever a signal handler raises, the holder can leave what counts it.
        holder.lease = lease
        lease.holders.add(holder)
        return lease

    def unpin(self, holder: LeaseHolder, now: float) -> bool:
        """Leave a lease; whether its key is to be let go now.

        It may be called again where a signal handler raised in it: each step is one that may be
        done twice, and the lease ends at last.
        """
        lease = holder.lease
        if lease is None:
            return False
        lease.holders.discard(holder)
        if lease.holders:
            return False
        held, let_go = lease.held, True
        if lease.former:
            # The lock stood until the work was done, and the book has forgotten its key.
            self._releases.let_go_of_unknown(lease.former, lease.key, lease.token, now)
            lease.former = ""
        elif held is None:
            return False
        elif held.state is _S.FINISHING:
            # The node has left meanwhile, and the lock stood until the work was done.
            self._all.enter(_E.WORK_DONE, held)
            self._due_calls.release_soon(now)
        elif held.state in HOLDING:
            held.asked, let_go = now, lease.revoked_at is not None
            if let_go:
                self._releases.let_go(now, held)
        if held is not None:
            self.keys.discard(held)
            lease.end()
        return let_go

    def begin(self) -> None:
        """The node gets another session: leases are lost; locks stay until the work is done."""
        for held in list(self.keys):
            self._end_as_former(held)

    def _end_as_former(self, held: Key) -> None:
        """The lease is lost, and the end of the work lets go of its lock, if that still stands."""
        lease = held.lease
        self.end(held)
        if lease is not None:
            lease.former = self._place.session

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
            self._renewal.renew_soon(held, now)
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
            if held.state is _S.FINISHING:
                self._end_as_former(held)
                self._all.enter(_E.LOST, held)
            else:
                self.end(held)
                self._releases.let_go(now, held)

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
        for key in known:
            lease = key.lease
            if lease is not None and not lease.holders and lease.revoked_at is None:
                lease.end()  # Nobody has it yet, or any more.
        self.keys = {key for key in known if key.lease is not None}
        for key in self.keys:
            lease = key.lease
            if lease is not None and lease.revoked_at is not None:
                key.deadline = min(key.deadline, lease.last)
                lease.revoked.set()
