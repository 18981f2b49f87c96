"""Faults of the scripts about locks, planted in their twin: each stands in for one script."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hashring.store.locks.twin import LockState, LocksTwin

renew = LocksTwin.renew


def release_of_any_holder(call: LocksTwin, *argv: Any) -> int:
    for name in call.names:
        call.locks.pop(name, None)
    return len(call.names)


def release_under_any_token(
    call: LocksTwin, channel: bytes, prefix: int, session: str, *tokens: int
) -> int:
    for name in call.names:
        lock = call.locks.get(name)
        if lock is not None and lock.session == session.encode():
            del call.locks[name]
    return len(tokens)


def renewal_that_makes_an_expired_lock_anew(call: LocksTwin, *argv: Any) -> list[Any]:
    _make_anew(call, call.names, *argv)
    return [[], [], []]


def renewal_that_makes_a_free_lock_anew(call: LocksTwin, *argv: Any) -> list[Any]:
    _make_anew(call, [name for name in call.names if call._standing(name) is None], *argv)
    return renew(call, *argv)


def _make_anew(call: LocksTwin, names: Iterable[bytes], *argv: Any) -> None:
    _, _, session, _, _, _, ttl, tokens, *_ = argv
    for name, token in zip(call.names, tokens.split(), strict=True):
        if name in names:
            expires = call.now + ttl / 1000
            call.locks[name] = LockState(int(token), session.encode(), b"?", expires)
