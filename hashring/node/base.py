"""What a node is and what it answers, whatever runs it."""

from __future__ import annotations

import logging
import os
import random
import socket
import threading
import time
import weakref
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import compress
from typing import Any, Final, TypeVar, cast

from hashring.core.bulk import cells_of, select_inside
from hashring.core.hashing import HashAlgorithm, key_bytes
from hashring.core.ring import Range, Ring
from hashring.errors import (
    ConfigError,
    HoldTimeout,
    NodeForked,
    NotHeld,
    RedisRefused,
    StoreError,
)
from hashring.node.locks import SharedLockBook
from hashring.node.machine import NodeMachine, NodeState, View, ownership_change
from hashring.node.settings import (
    DEFAULT_HEARTBEAT_INTERVAL,
    DEFAULT_REPLICAS,
    DEFAULT_TTL,
    NodeSettings,
    OnChange,
)
from hashring.node.status import NodeStatus, status_of
from hashring.protocol.locks.book import Asked, Verdict
from hashring.protocol.locks.key import KeyState
from hashring.protocol.locks.lease import Lease
from hashring.store.client import is_async
from hashring.store.command import Command
from hashring.store.locks.commands import LOCKS_A_CALL, MAX_LOCKED_KEY_BYTES, check_locked_key
from hashring.store.memory_store import MemoryStore

logger = logging.getLogger("hashring")

_HELD, _KEPT = KeyState.HELD, KeyState.KEPT

# How often `hold` looks whether the lock it waits for was freed, in seconds.
PIN_POLL: Final = 0.01

# Bounds, deadline, a table of the bounds (see `cells_of`), and the keys that are held (None without
# locks and limit). A plain sequence is unpacked fastest, and a list is unpacked, and replaced, in
# one piece.
_NodeLease = list[Any]

T = TypeVar("T")

Calls = Generator[Command[Any], Any, T]
"""Yields what Redis is to be asked, and is sent the answers; what goes wrong is thrown into it."""


def _one_of(setting: str, value: Any, alias: str, aliased: Any) -> Any:
    """An argument that redis-hashring has under another name."""
    if value is not None and aliased is not None:
        raise ConfigError(alias, aliased, f"{setting} is given as well: leave out one of the two")
    return aliased if value is None else value


_names: weakref.WeakValueDictionary[tuple[bytes, str], BaseNode] = weakref.WeakValueDictionary()
_names_lock = threading.Lock()


def _own_name(ring: bytes, node: BaseNode) -> str:
    """``host:pid``, with a number after it for further nodes of one process on one ring."""
    base = f"{socket.gethostname()}:{os.getpid()}"
    with _names_lock:
        name, number = base, 1
        while (ring, name) in _names:
            number += 1
            name = f"{base}.{number}"
        _names[ring, name] = node
    return name


class BaseNode:
    """The part of a node that needs no I/O: its settings, and what it answers about keys."""

    _asynchronous = False

    def __init__(
        self,
        redis: Any = None,
        ring: str | bytes | None = None,
        *,
        conn: Any = None,
        key: str | bytes | None = None,
        n_replicas: int = DEFAULT_REPLICAS,
        hash_algorithm: str | HashAlgorithm | None = None,
        name: str | None = None,
        weight: float = 1.0,
        ttl: float = DEFAULT_TTL,
        heartbeat_interval: float = DEFAULT_HEARTBEAT_INTERVAL,
        placement: str = "random",
        on_change: OnChange | None = None,
        lock: bool = False,
        limit: int | None = None,
        lock_ttl: float | None = None,
        idle: float | None = None,
        max_handoff_time: float | None = None,
        wire: str | None = None,
        zone: str | None = None,
    ) -> None:
        redis = _one_of("redis", redis, "conn", conn)
        ring = _one_of("ring", ring, "key", key)
        if not isinstance(redis, MemoryStore) and is_async(redis) is not self._asynchronous:
            kind, use = ("not an", "RingNode") if self._asynchronous else ("an", "AsyncRingNode")
            raise ConfigError("redis", type(redis), f"is {kind} asyncio client: use {use}")
        self._settings = settings = NodeSettings.checked(
            ring,
            name=name,
            n_replicas=n_replicas,
            weight=weight,
            ttl=ttl,
            heartbeat_interval=heartbeat_interval,
            algorithm=hash_algorithm,
            placement=placement,
            wire=wire,
            on_change=on_change,
            lock=lock,
            limit=limit,
            lock_ttl=lock_ttl,
            idle=idle,
            max_handoff_time=max_handoff_time,
            zone=zone,
        )
        self._redis = redis
        self._parent: int | None = None
        # Held while a start decides whether it is the only one. Reentrant: a signal handler may
        # run anywhere.
        self._launching = threading.RLock()
        self._setup(settings.name or _own_name(settings.keys.ring, self))
        _nodes.add(self)

    def _setup(self, name: str) -> None:
        """A machine of its own, of that name, which has not started."""
        config = self._settings.node(name)
        # Seeded by the operating system: forked or cloned processes must not place alike.
        self._machine = NodeMachine(config, random.SystemRandom())
        self._view = self._machine.view(monotonic())
        self._book = self._machine.book
        self._point_of_bytes = self._settings.algorithm.point_of_bytes
        # What `contains` reads, in one piece. Each run of the node writes into a list of its own,
        # and stop() puts `_nothing` here: what the run learns after that is written where nobody
        # looks. None in a forked child.
        held = self._book.held if self._book is not None else None
        self._nothing: _NodeLease = [(), float("-inf"), *cells_of(()), held]
        self._lease: _NodeLease | None = self._nothing

    # --- about keys ---------------------------------------------------------------------------

    def contains(self, key: str | bytes) -> bool:
        """Whether this node owns the key now; with locks or a limit, whether it holds it.

        No lock and no I/O: it reads the last view of the ring, and the node's own clock. Two
        nodes may both say yes for as long as a change takes to travel (milliseconds; one
        heartbeat when a message is lost). Where that must not be, use locks: then asking about a
        key of the node's that it does not hold takes its lock, by a call to Redis.

        Raises:
            KeyTypeError, KeyValueError: the key has no point, or is too long to be locked.
            NodeForked: the node was started in a parent process.
        """
        try:
            # Asked millions of times, each step counts: most answers need no search.
            bounds, deadline, cells, shift, held_keys = self._lease  # type: ignore[misc]
            if held_keys is None:
                if not key:
                    key_bytes(key)
                point = self._point_of_bytes(key.encode())  # type: ignore[union-attr]
                inside = cells[point >> shift]
                if inside is None:
                    inside = bisect_right(bounds, point) & 1
                if inside:
                    return monotonic() < deadline  # type: ignore[no-any-return]
                return False
            data = key.encode()  # type: ignore[union-attr]
        except (AttributeError, UnicodeEncodeError, TypeError):
            # Bytes, what is no key, or a forked child.
            self._refuse_if_forked()
            data = key_bytes(key)
            bounds, deadline, cells, shift, held_keys = self._lease or self._nothing
            if held_keys is None:
                point = self._point_of_bytes(data)
                return bisect_right(bounds, point) & 1 == 1 and monotonic() < deadline
        held = held_keys.get(data)
        if held is not None:
            # Written before the state is read: see LockBook on letting go of idle keys.
            held.asked = now = monotonic()
            if now < held.deadline and now < deadline:
                if held.state is _HELD:
                    inside = cells[held.point >> shift]
                    if inside is None:
                        inside = bisect_right(bounds, held.point) & 1
                    if inside:
                        return True
                elif held.state is _KEPT:
                    return True
        return self._ask_book(data)

    def _verdict(self, data: bytes, point: int) -> Verdict:
        """What the book says of a key; a node that is not running holds nothing."""
        self._refuse_if_forked()
        bounds, until, _, _, _ = self._lease or self._nothing
        verdict = cast(SharedLockBook, self._book).ask(data, point, bounds, until, monotonic())
        self._stir()
        return verdict

    def _ask_many(self, asked: Iterable[Asked]) -> tuple[list[Asked], list[Asked]]:
        """Those of the keys that may be worked on now, and those whose locks may be taken."""
        self._refuse_if_forked()
        bounds, until, _, _, _ = self._lease or self._nothing
        found = cast(SharedLockBook, self._book).ask_many(asked, bounds, until, monotonic())
        self._stir()
        return found

    def _selecting(
        self, items: list[T], key: Callable[[T], str | bytes] | None, found: list[T]
    ) -> Iterator[list[Asked]]:
        """Yield the locks that must be taken to select, a call's worth each.

        In the end it adds those of the items that may be worked on to ``found``.

        Raises:
            KeyTypeError, KeyValueError: a key has no point, or is too long to be locked.
        """
        keys = cast("list[str | bytes]", items if key is None else list(map(key, items)))
        held: list[Asked] = []
        waited = False
        for wanted in self._to_take(keys, held):
            yield wanted
            held += wanted
            waited = True
        mask = bytearray(len(items))
        for _, _, number in self._ask_again(held) if waited else held:
            mask[number] = 1
        found += compress(items, mask)

    def _to_take(self, keys: Sequence[str | bytes], held: list[Asked]) -> Iterator[list[Asked]]:
        """Ask about all keys: add those that are held, and yield what is to be taken."""
        locking = cast(SharedLockBook, self._book).config.locking
        to_take: list[Asked] = []
        for first in range(0, len(keys), LOCKS_A_CALL):
            part = [key_bytes(key) for key in keys[first : first + LOCKS_A_CALL]]
            if locking and max(map(len, part)) > MAX_LOCKED_KEY_BYTES:
                part = [check_locked_key(key) for key in part]
            points = map(self._point_of_bytes, part)
            numbers = range(first, first + len(part))
            yes, wanted = self._ask_many(zip(part, points, numbers, strict=True))
            held += yes
            to_take += wanted
            if len(to_take) >= LOCKS_A_CALL:
                yield to_take[:LOCKS_A_CALL]
                to_take = to_take[LOCKS_A_CALL:]
        if to_take:
            yield to_take

    def _ask_again(self, asked: Iterable[Asked]) -> list[Asked]:
        """What the ring, or time, did not take away while Redis was asked for other keys."""
        held = cast(SharedLockBook, self._book).held
        return self._ask_many([each for each in asked if each[0] in held])[0]

    def _taking(self, wanted: list[Asked]) -> Calls[None]:
        """Take locks whose verdict was ``TAKE``; :meth:`_ask_again` says of which they are held."""
        book = cast(SharedLockBook, self._book)
        take = None
        try:
            take = book.take(wanted, sent := monotonic())
            if take is not None:
                answers = yield take.command
                book.acquired(take, answers, sent, monotonic())
        except BaseException as error:
            refusal = error if isinstance(error, RedisRefused) else None
            if refusal is not None and not self._machine.failing:
                logger.warning("hashring %s: %s", self.name, error)
            if take is not None:
                book.acquire_failed(take, monotonic(), refusal)
            if not isinstance(error, StoreError):
                raise
            # Not ours then: the loop finds out, and says what is wrong with Redis.
            logger.debug("hashring %s: %s", self.name, error)
        finally:
            self._stir()

    def _letting_go(self, book: SharedLockBook) -> Calls[None]:
        """Let go of locks after the node has stopped, or while it does."""
        while (step := book.step(monotonic())) is not None:
            sent = monotonic()
            try:
                reply = yield step.command
            except StoreError as error:
                step.failed(error, monotonic())
                book.forget_releases()
                logger.warning("hashring %s: %s; its locks expire by themselves", self.name, error)
                return
            step.done(reply, sent, monotonic())

    def _pinning(
        self, key: str | bytes, timeout: float, event: Callable[[], Any]
    ) -> Generator[list[Asked] | float, bool | None, Lease]:
        """Pin a key: yield the lock that must be taken, or for how many seconds to wait.

        It is sent, after a wait, whether the node has stopped meanwhile.

        Raises:
            NotHeld, HoldTimeout, ConfigError, KeyTypeError, KeyValueError, NodeForked: as ``hold``.
        """
        data = self._lockable(key, timeout)
        point = self._point_of_bytes(data)
        book = cast(SharedLockBook, self._book)
        began = monotonic()
        while True:
            lease = book.pin_again(data, monotonic())
            if lease is None:
                verdict = self._verdict(data, point)
                ours = verdict is Verdict.YES
                if verdict is Verdict.TAKE:
                    wanted = [(data, point, 0)]
                    yield wanted
                    ours = bool(self._ask_again(wanted))
                lease = book.pin(data, monotonic, event) if ours else None
            if lease is not None:
                return lease
            # No call to Redis: the loop is told when the lock is freed, and knows its ttl.
            left = self._pin_again_in(data, began, timeout)
            if left <= 0 or (yield min(PIN_POLL, left)):
                raise self._not_held(data, waited=timeout)

    def _unpin(self, book: SharedLockBook, lease: Lease) -> bool:
        """Leave a lease; whether its lock is left to the caller to let go of."""
        # In a forked child the lock is the parent's.
        if book is not self._book or self._parent is not None or not book.unpin(lease, monotonic()):
            return False
        self._stir()
        return book.left or not self._loops

    @property
    def _loops(self) -> bool:
        """Whether the node has a loop."""
        raise NotImplementedError

    def _stir(self) -> None:
        """Wake the loop when the book has something new for it."""
        book = self._book
        if book is not None and book.stirred:
            book.stirred = False
            self._poke()

    def _poke(self) -> None:
        """Wake the loop."""
        raise NotImplementedError

    def _ask_book(self, data: bytes) -> bool:
        """Whether a key that is not known to be held may be worked on."""
        raise NotImplementedError

    def _checked(self, key: str | bytes) -> bytes:
        data = key_bytes(key)
        return check_locked_key(data) if cast(SharedLockBook, self._book).config.locking else data

    def _lockable(self, key: str | bytes, timeout: float) -> bytes:
        """A key's bytes, when it can be held."""
        if self._settings.locks is None or not self._settings.locks.locking:
            raise ConfigError("lock", False, "holding a key needs a node with lock=True")
        if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not timeout >= 0:
            raise ConfigError("timeout", timeout, "give a number of seconds, 0 not to wait")
        self._refuse_if_forked()
        return check_locked_key(key_bytes(key))

    def _pin_again_in(self, data: bytes, began: float, timeout: float) -> float:
        """For how many seconds to go on trying to hold a key; 0 to give up."""
        book = cast(SharedLockBook, self._book)
        if book.busy(data):
            # Being taken or let go by this node itself, which takes a call to Redis.
            timeout = max(timeout, self._machine.config.io_timeout)
        elif book.holder(data) is None and not book.held_off_for(monotonic()):
            return 0.0
        return began + timeout - monotonic()

    def _not_held(self, data: bytes, *, waited: float) -> NotHeld:
        """Why a key cannot be held now."""
        book = cast(SharedLockBook, self._book)
        shown = data.decode("utf-8", "replace")
        if monotonic() >= (self._lease or self._nothing)[1]:
            return NotHeld(shown, None, f"this node is {self.state.value}, and owns nothing")
        holder = book.holder(data)
        if holder is not None:
            if waited:
                return HoldTimeout(shown, holder, f"{holder} still held it after {waited:g} s")
            return NotHeld(shown, holder, f"{holder} holds it")
        if not self.get_node_count():
            # Everybody's ttl was over, and somebody else was the first to come back and say so.
            return NotHeld(shown, None, "this node is not on the ring just now: try again")
        owner = self.owner(data)
        if owner != self.name:
            return NotHeld(shown, owner, f"{owner} owns it")
        if left := book.held_off_for(monotonic()):
            return NotHeld(
                shown,
                None,
                "Redis lost the locks of the ring, and somebody may still work on it: "
                + (f"try again in {left:.1f} s" if left < float("inf") else "try again"),
            )
        if book.limit.reached(book.count):
            limit = book.limit.most
            return NotHeld(shown, None, f"this node is at its limit of {limit} keys")
        return NotHeld(shown, None, "Redis did not answer, or it is just being let go: try again")

    def _select_owned(self, items: Iterable[T], key: Callable[[T], str | bytes] | None) -> list[T]:
        """Those of the items whose keys this node owns now."""
        self._refuse_if_forked()
        bounds, deadline, _, _, _ = self._lease or self._nothing
        found = items if isinstance(items, list | tuple) else list(items)
        chosen = select_inside(found, key, bounds, self._settings.algorithm)
        # Hashing many keys takes a while; the answer is as of its end.
        return chosen if monotonic() < deadline else []

    def owner(self, key: str | bytes) -> str:
        """The name of the node that owns the key, on the ring as this node last saw it.

        However long ago that was: a node that is fenced answers from its last ring, and one that a
        forked child inherited from the last ring of the parent's.

        Raises:
            EmptyRingError: it has seen no node yet, or has left the ring.
            KeyTypeError, KeyValueError: the key has no point.
        """
        return self._view.ring.owner(key)

    def key_as_ring_point(self, key: str | bytes) -> int:
        """The key's point, in ``[0, 2**32)``.

        Raises:
            KeyTypeError, KeyValueError: the key has no point.
        """
        return self._settings.algorithm.point(key)

    # --- about the node and the ring ----------------------------------------------------------

    def get_ranges(self) -> tuple[Range, ...]:
        """The ranges this node owns now: rising, disjoint, neighbours merged; none once fenced."""
        view = self._shown()
        return view.ranges if monotonic() < view.deadline else ()

    def get_node_count(self) -> int:
        """How many nodes are on the ring, as this node last saw it; 0 once it has left the ring."""
        return self._view.ring.node_count

    @property
    def ring(self) -> Ring:
        """The ring as this node last saw it (see :meth:`owner`); frozen."""
        return self._view.ring

    @property
    def name(self) -> str:
        """The node's name on the ring."""
        return self._machine.name

    @property
    def state(self) -> NodeState:
        """The node's state; see the table in :mod:`hashring.node.machine`."""
        return self._machine.state

    @property
    def inherited(self) -> bool:
        """Whether it runs in a parent process, and not in this one."""
        return self._parent is not None

    @property
    def status(self) -> NodeStatus:
        """Everything the node can say of itself now."""
        return status_of(
            self._machine,
            self._shown(),
            monotonic(),
            self._settings.keys.ring.decode("utf-8", "replace"),
        )

    @property
    def weight(self) -> float:
        """The node's weight; it has ``n_replicas * weight`` points."""
        return self._settings.weight

    @property
    def zone(self) -> str | None:
        """Where the node runs, as it was given; ``None`` when it was not."""
        return self._settings.zone

    @property
    def n_replicas(self) -> int:
        """Replicas of an ordinary node; see :attr:`weight`."""
        return self._settings.n_replicas

    @property
    def ttl(self) -> float:
        """Seconds after its last heartbeat at which the node owns nothing."""
        return self._settings.ttl

    @property
    def heartbeat_interval(self) -> float:
        """Seconds between heartbeats."""
        return self._settings.heartbeat_interval

    @property
    def hash_algorithm(self) -> HashAlgorithm:
        """The function from key to point."""
        return self._settings.algorithm

    @property
    def placement(self) -> str:
        """How the node places its points."""
        return self._settings.placement

    def __repr__(self) -> str:
        ring = self._settings.ring_name
        return f"<{type(self).__name__} {self.name!r} on ring {ring!r}: {self.state.value}>"

    # --- for the runners ----------------------------------------------------------------------

    def _begin_lease(self) -> _NodeLease:
        """What a run that begins now is to show its ranges in; see :meth:`_publish`."""
        lease = self._lease = list(self._nothing)
        return lease

    def _publish(
        self, lease: _NodeLease | None
    ) -> tuple[tuple[Range, ...], tuple[Range, ...]] | None:
        """Show readers the machine's view; what was gained and lost, if anything was.

        Args:
            lease: what ``_lease`` was when the run began: readers look at it unless ``stop()``
                was called since.
        """
        before, after = self._view, self._machine.view(monotonic())
        if after is before:
            return None
        # The ring first, then the ranges: both are whole in themselves.
        self._view = after
        if lease is not None and lease is not self._nothing:
            # A heartbeat moves the deadline alone: the table is made when the bounds change.
            cells = lease[2:4] if lease[0] is after.bounds else cells_of(after.bounds)
            lease[:4] = (after.bounds, after.deadline, *cells)
        if after.ranges == before.ranges:
            return None
        return ownership_change(before, after)

    def _own_nothing(self) -> None:
        """From now on, until the next start, whatever the loop does."""
        if self._lease is not None:
            self._lease = self._nothing

    @property
    def _stopping(self) -> bool:
        """Whether ``stop()`` was called since the last start."""
        return self._lease is self._nothing

    def _shown(self) -> View:
        """The last view, without ranges once ``stop()`` was called."""
        view = self._view
        return View((), float("-inf"), (), view.ring) if self._stopping else view

    # --- fork ---------------------------------------------------------------------------------

    def _refuse_if_forked(self) -> None:
        if self._parent is not None:
            raise NodeForked(self.name, self._parent)

    def _abandon(self) -> None:
        """In a forked child: the node is the parent's, if it is anywhere."""
        self._launching = threading.RLock()
        if self._machine.state in _NOWHERE:
            self._setup(
                self.name if self._settings.name else _own_name(self._settings.keys.ring, self)
            )
            return
        self._parent = os.getppid()
        self._lease = None
        if self._book is not None:
            self._book.abandon()
        self._view = View((), float("-inf"), (), self._view.ring)

    def _adopt_in_child(self) -> None:
        """Become a node of this process, before it starts here."""
        if self._parent is None:
            return
        if self._settings.name:
            # The name is the parent's, and taking it would take the parent's points.
            raise NodeForked(self.name, self._parent)
        self._parent = None
        self._setup(_own_name(self._settings.keys.ring, self))


monotonic = time.monotonic


_NOWHERE: Final = (NodeState.NEW, NodeState.STOPPED, NodeState.FAILED)

_nodes: weakref.WeakSet[BaseNode] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    global _names_lock  # noqa: PLW0603 - another thread may have held it when the process forked
    _names_lock = threading.Lock()
    for node in list(_nodes):
        node._abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
