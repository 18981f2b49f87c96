"""Letting go of keys: which, when, and that Redis learns of it."""

from __future__ import annotations

from collections.abc import Callable

from hashring.protocol.locks.key_states import NEVER, Key, KeyEvent, KeyState
from hashring.protocol.locks.lock_book_parts import BookParts
from hashring.protocol.machine_steps import Run
from hashring.store.locks.commands import LOCKS_A_CALL, release

_S, _E = KeyState, KeyEvent


class Releases:
    """The keys that one book lets go.

    Args:
        parts: those that all pieces of the book share.
    """

    def __init__(self, parts: BookParts) -> None:
        self._names = parts.names
        self._config = parts.config
        self._keys = parts.keys
        self._place = parts.place
        self._due_calls = parts.due_calls
        # Locks of no key that the book counts: session, key and token of each.
        self._unknown: dict[tuple[str, bytes, int], None] = {}

    def let_go_of_unknown(self, session: str, key: bytes, token: int, now: float) -> None:
        """Let go of a lock that no key of the book is held by, if it stands.

        Args:
            session: the one that took it, which may have been the node's before this one.
        """
        self._unknown[session, key, token] = None
        self._due_calls.release_soon(now)

    def begin(self) -> None:
        """The node gets another session; locks that it let go in this one are still released."""
        for key in self._keys.of(_S.RELEASING):
            self._unknown[self._place.session, key.key, key.token] = None

    def forget_unknown(self) -> bool:
        """Leave to expire what no key of the book is held by; whether there was any."""
        found = bool(self._unknown)
        self._unknown.clear()
        return found

    def let_go(self, now: float, *keys: Key) -> None:
        """Let go of keys that are held."""
        for held in keys:
            if held.other:
                # Its turn; else this node's loop would be back for the key before the waiter's.
                held.wait = self._config.ttl
                held.until = now + held.wait
        self._keys.enter(_E.LET_GO, *keys)
        if not self._config.locking:
            self._keys.enter(_E.RELEASED, *keys)
        elif keys:
            self._due_calls.release_soon(now)

    def let_go_if_idle(self, held: Key, idle: float, now: float) -> None:
        """Let go of a key that nobody has asked for since a time, if that is still so."""
        if held.state is not _S.WANTED:
            # `contains` asks in other threads: it writes `asked` and then reads the state, and
            # here it is the other way round, so one of the two sees what the other wrote. Else a
            # key might be let go just after `contains` said that its caller may work on it.
            kept = held.state is _S.KEPT
            self._keys.enter(_E.NOT_ASKED, held)
            if held.asked >= idle:
                self._keys.enter(_E.ASKED, held)
                if kept:
                    self._keys.enter(_E.OWNER_FULL, held)
                return
        self.let_go(now, held)

    @property
    def due(self) -> bool:
        """Whether Redis is to learn that keys were let go."""
        return self._keys.count(_S.RELEASING) > 0 or bool(self._unknown)

    def step(self, then: Callable[[float], None]) -> Run | None:
        """Release what was let go, if anything was.

        Args:
            then: called with the time when that is done.
        """
        keys, due_calls = self._keys, self._due_calls
        chosen = [(key, key.token) for key in keys.of(_S.RELEASING)[:LOCKS_A_CALL]]
        if not chosen:
            return self._step_of_unknown(then)

        def done(_: int, sent: float, now: float) -> None:
            still = [
                key for key, token in chosen if key.state is _S.RELEASING and key.token == token
            ]
            for key in still:
                key.token = 0
            keys.enter(_E.PASSED_ON, *(key for key in still if key.other))
            keys.enter(_E.RELEASED, *(key for key in still if not key.other))
            due_calls.release_at = now if self.due else NEVER
            then(now)

        locked = [(key.key, token) for key, token in chosen]
        command = release(self._names, session=self._place.session, locked=locked)
        return due_calls.run(command, done, self._failed)

    def _step_of_unknown(self, then: Callable[[float], None]) -> Run | None:
        """Release locks of no key that the book counts, those of one session."""
        session = next((session for session, _, _ in self._unknown), "")
        chosen = [each for each in self._unknown if each[0] == session][:LOCKS_A_CALL]
        if not chosen:
            return None

        def done(_: int, sent: float, now: float) -> None:
            for each in chosen:
                self._unknown.pop(each, None)
            self._due_calls.release_at = now if self.due else NEVER
            then(now)

        locked = [(key, token) for _, key, token in chosen]
        command = release(self._names, session=session, locked=locked)
        return self._due_calls.run(command, done, self._failed)

    def _failed(self, retry_at: float) -> None:
        self._due_calls.release_at = retry_at

    def mend(self) -> None:
        """Make whole again what was raised into."""
        for key in self._keys.of(_S.RELEASING) if not self._config.locking else ():
            self._keys.enter(_E.RELEASED, key)
        for key in list(self._keys.held.values()):
            if key.state is _S.IDLE:
                self._keys.enter(_E.ASKED, key)
