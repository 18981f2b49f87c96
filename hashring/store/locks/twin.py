"""The twin of the scripts about locks: a method for each, with the script's ARGV."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from hashring.store.ring.twin import RingData
from hashring.store.twin_keyspace import Twin


@dataclass
class LockState:
    """A lock. ``expires`` is the server's time in seconds since 1970."""

    token: int
    session: bytes
    node: bytes
    expires: float
    waiter: bytes = b""


@dataclass
class LocksData:
    """The locks of a server and the last tokens, by their names in Redis."""

    locks: dict[bytes, LockState] = field(default_factory=dict)
    tokens: dict[bytes, int] = field(default_factory=dict)


class LocksTwin(Twin):
    """The scripts about locks."""

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        held = self.keyspace.of(LocksData)
        self.locks, self.tokens = held.locks, held.tokens
        self.ring = self.keyspace.of(RingData, self.keys[1])
        self.counter, _, *self.names = self.keys

    def acquire(  # noqa: PLR0917 - ARGV of the script, in its order
        self,
        channel: bytes,
        prefix: int,
        node: str,
        session: str,
        ttl: int,
        room: int,
        awaited: int,
        kept: int,
        history: str,
    ) -> list[Any]:
        own = session.encode()
        held_off = self._held_off() if history == self.ring.began else -1
        first = token = self._first_token()
        letters = bytearray()
        details: list[Any] = []
        others: list[tuple[int, bytes, LockState]] = []
        expires = self.now + ttl / 1000

        def wait(number: int, name: bytes, lock: LockState) -> None:
            letters[number] = ord("w")
            if lock.waiter != node.encode():
                lock.waiter = node.encode()
                self._tell(channel, lock.node, b"wanted:" + lock.waiter, name[prefix:])

        for number, name in enumerate(self.names):
            lock = self._standing(name)
            if lock is None and held_off:
                letters += b"h"
            elif lock is None and room > 0:
                room -= 1
                self.locks[name] = LockState(token, own, node.encode(), expires)
                token += 1
                letters += b"n"
            elif lock is None or (lock.session == own and room <= 0):
                letters += b"f"
            elif lock.session == own:
                room -= 1
                lock.expires = expires
                letters += b"a"
                details.append(b"%d" % lock.token)
            else:
                letters += b"o"
                details += (lock.node, self._left(lock))
                if number < kept and room > 0:
                    room -= 1
                    wait(number, name, lock)
                elif number < awaited:
                    others.append((number, name, lock))
        if token > first:
            self.tokens[self.counter] = token - 1
        for other in others[: max(0, room)]:
            wait(*other)
        return [bytes(letters), first, details, held_off]

    def renew(  # noqa: PLR0917 - ARGV of the script, in its order
        self,
        channel: bytes,
        prefix: int,
        session: str,
        node: str,
        history: str,
        put_back: str,
        ttl: int,
        tokens: str,
        *rest: int,
    ) -> list[Any]:
        own = session.encode()
        lasting = dict(zip(rest[::2], rest[1::2], strict=True))
        known = history == self.ring.began
        may_put_back = known and self._held_off() > 0
        lost_locks = set(map(int, put_back.split()))
        lost: list[int] = []
        wanted: list[Any] = []
        unknown: list[int] = []
        for number, (name, text) in enumerate(zip(self.names, tokens.split(), strict=True)):
            token, lock = int(text), self._standing(name)
            expires = self.now + lasting.get(number, ttl) / 1000
            if lock is not None and (lock.token, lock.session) == (token, own):
                lock.expires = expires
                if lock.waiter:
                    wanted += [number, lock.waiter]
                    if number in lasting:
                        self._tell(channel, lock.waiter, b"freed", name[prefix:])
            elif lock is None and may_put_back and number in lost_locks:
                self.locks[name] = LockState(token, own, node.encode(), expires)
                last = self.tokens.get(self.counter, 0)
                self.tokens[self.counter] = max(last, token)
            else:
                (unknown if lock is None and not known else lost).append(number)
        return [lost, wanted, unknown]

    def release(self, channel: bytes, prefix: int, session: str, *tokens: int) -> int:
        released = 0
        for name, token in zip(self.names, tokens, strict=True):
            lock = self._standing(name)
            if lock is not None and (lock.token, lock.session) == (token, session.encode()):
                del self.locks[name]
                released += 1
                if lock.waiter:
                    self._tell(channel, lock.waiter, b"freed", name[prefix:])
        return released

    def look(self, channel: bytes, prefix: int) -> list[Any]:
        found = [self._standing(name) for name in self.names]
        return [
            [
                b"%d" % lock.token,
                lock.session,
                lock.node,
                lock.waiter,
                self._left(lock),
            ]
            if lock
            else []
            for lock in found
        ]

    def take_away(self, token: str | int, by: str, history: int, key: bytes, channel: bytes) -> int:
        name = self.keys[-1]
        lock = self._standing(name)
        if lock is None or token not in ("", lock.token):
            return 0
        del self.locks[name]
        event = {b"kind": b"release", b"by": by.encode(), b"keys": key}
        self.ring.events.add(self.now, event, history)
        if lock.waiter:
            self.publish(channel + lock.waiter, b"freed\n" + key)
        return 1

    def _first_token(self) -> int:
        """The least token that may be given now."""
        return max(self.tokens.get(self.counter, 0) + 1, round(self.now * 1e6))

    def _standing(self, name: bytes) -> LockState | None:
        """The lock of that name, unless it has expired."""
        lock = self.locks.get(name)
        return lock if lock is not None and lock.expires > self.now else None

    def _held_off(self) -> int:
        """For how many milliseconds no lock may be taken."""
        return max(0, math.ceil((self.ring.till - round(self.now * 1e6)) / 1000))

    def _left(self, lock: LockState) -> int:
        return int((lock.expires - self.now) * 1000)

    def _tell(self, channel: bytes, node: bytes, what: bytes, key: bytes) -> None:
        self.publish(channel + node, what + b"\n" + key)
