"""Keys on their way between nodes: what the ring moves, what is kept for others, what is awaited.

Overflow. A node at its limit that had to refuse a key is **full**, and says so on the ring. The
others treat the ring as if it had left: each of its keys goes to the node that would inherit it.
The full node keeps what it holds. An inheritor that finds such a lock held asks for it again after
ever longer waits: the holder may keep it, or may not have let go yet of what the ring took from it,
and no message tells an inheritor. The node has **room** again when a tenth of its limit is free
(one key at least), or when nobody has asked it for more than it holds for ``idle`` seconds.

What overflowed comes back key by key, and only as fast as there is room: the owner asks for the
lock, and keeps a place for it until it has it; only that makes the holder let go, once its loop
asks for the key again, and leave it to the owner for a ttl. Nobody but its owner waits for a key,
so a key never goes round.
"""

from __future__ import annotations

from hashring.protocol.locks.key_states import Key, KeyEvent, KeyState
from hashring.protocol.locks.leases import Leases
from hashring.protocol.locks.lock_book_parts import BookParts
from hashring.protocol.locks.ring_place import Surroundings
from hashring.store.locks.commands import LockNews

_S, _E = KeyState, KeyEvent


class KeysBetweenNodes:
    """The keys of one book that another node has, waits for, or is to have.

    Args:
        parts: those that all pieces of the book share.
        leases: the book's.
    """

    def __init__(self, parts: BookParts, leases: Leases) -> None:
        self._keys = parts.keys
        self._place = parts.place
        self._due_calls = parts.due_calls
        self._leases = leases

    def drain(self) -> None:
        """Keep no key for an owner that is full: what is held is to be handed over."""
        for held in self._keys.held.values():
            if held.state in (_S.KEPT, _S.WANTED):
                held.other = ""
                self._keys.enter(_E.DRAINED, held)

    def see(
        self, ring: Surroundings, bounds: tuple[int, ...], own_bounds: tuple[int, ...], now: float
    ) -> None:
        """The ring as it is now; see :meth:`.lock_book.LockBook.see`."""
        keys, place = self._keys, self._place
        changed = place.see(ring, bounds, own_bounds)
        if place.inherits:
            # Held for an owner that is full now: kept, until the owner asks for it.
            for held in keys.held.values():
                if held.state is _S.HELD and place.inherited(held.point):
                    keys.enter(_E.OWNER_FULL, held)
        self._leases.revoke_what_moved(now)
        if keys.count(_S.WANTED):
            for held in keys.held.values():
                if held.state is _S.WANTED and not place.nearer(held.other, held.point):
                    # The node that waited has gone.
                    held.other = ""
                    keys.enter(_E.OWNER_GONE, held)
        for key in keys.of(_S.AWAITED, _S.ELSEWHERE, _S.RELEASING):
            self._see_other(key, changed, now)

    def _see_other(self, key: Key, changed: bool, now: float) -> None:
        ring = self._place.ring
        own, gone = self._place.owns(key.point), key.other not in ring
        if key.state is _S.AWAITED:
            if not own:
                self._keys.enter(_E.FORGOTTEN, key)
            elif gone:
                key.until = now
        elif own or gone:
            if key.state is _S.ELSEWHERE:
                self._keys.enter(_E.FORGOTTEN, key)
            key.other = ""
        elif changed and ring.owner_of_point(key.point) != key.other:
            # It may not have it for much longer.
            retry = self._due_calls.retry
            key.until, key.wait = min(key.until, now + retry), retry

    def news(self, news: LockNews, now: float) -> None:
        """A message on the node's own channel."""
        if news.wanted_by is not None:
            held = self._keys.held.get(news.key)
            if held is not None:
                self.want(held, news.wanted_by, now)
            return
        known = self._keys.others.get(news.key)
        # The message and the answer that it is waited for come by two connections.
        if known is not None and known.state in (_S.AWAITED, _S.TAKING):
            # Not at once where two wait, each for a key that it takes for its own: they might
            # replace each other as fast as Redis answers.
            later = self._due_calls.retry if news.replaced else 0.0
            known.until = min(known.until, now + later)

    def want(self, held: Key, waiter: str, now: float) -> None:
        """Another node waits for a key that is held."""
        if held.state in (_S.KEPT, _S.WANTED) and self._place.nearer(waiter, held.point):
            held.other = waiter
            self._keys.enter(_E.OWNER_WAITS, held)
            self._leases.revoke(held, now)

    def ask_again(self, now: float, *states: KeyState) -> None:
        """Ask Redis again for the keys in these states."""
        for key in self._keys.of(*states):
            key.until = now

    def forget_idle(self, idle: float) -> None:
        """Forget the others' keys that nobody has asked for since a time."""
        for key in self._keys.of(_S.AWAITED, _S.ELSEWHERE):
            if key.until < idle:
                self._keys.enter(_E.FORGOTTEN, key)
