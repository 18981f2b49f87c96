"""What is known of a key that somebody looks up: its owner, and its lock."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from hashring.core.hashing import key_bytes
from hashring.errors import KeyValueError, StoreError
from hashring.store.locks.commands import MAX_LOCKED_KEY_BYTES, Lock, look
from hashring.web.api_queries import MOST_KEY_BYTES
from hashring.web.ring_view import RingView
from hashring.web.ring_watcher import RingWatcher
from hashring.web.service import Service

_NEXT: Final = 4
"""How many nodes after the owner an answer names."""


@dataclass(frozen=True)
class Lookup:
    """What is known of a key.

    Attributes:
        key: the key.
        error: why it has no owner to be told of; empty when it has.
        point, owner, next, algorithm: where it is, whose it is, who comes next, by which hash.
        lock: who holds its lock, if anybody does.
        lock_error: why that is not known; empty when it is.
    """

    key: str
    error: str = ""
    point: int = 0
    owner: str | None = None
    next: tuple[str, ...] = ()
    algorithm: str = ""
    lock: Lock | None = None
    lock_error: str = ""


def looked_up(service: Service, watcher: RingWatcher, view: RingView, key: str) -> Lookup:
    """What is known of a key.

    Raises:
        KeyValueError: it is no key.
        UnknownHash: it is not known how the nodes hash it.
    """
    view.check_hashes()
    data = key_bytes(key)
    if len(data) > MOST_KEY_BYTES:
        raise KeyValueError(
            key[:32],
            f"begins a key of {len(data)} bytes; here at most {MOST_KEY_BYTES} can be looked up: "
            "hashring owner - takes longer ones",
        )
    ring = view.ring
    point = ring.hash_algorithm.point(data)
    owner, *following = [*ring.successors(point), None][: _NEXT + 1]
    lock, lock_error = None, ""
    if len(data) <= MAX_LOCKED_KEY_BYTES:
        try:
            lock = service.store.run(look(watcher.keys, locked=[data])).get(data)
        except StoreError as error:
            lock_error = str(error)
    return Lookup(
        key,
        point=point,
        owner=owner,
        next=tuple(node for node in following if node is not None),
        algorithm=ring.hash_algorithm.name,
        lock=lock,
        lock_error=lock_error,
    )
