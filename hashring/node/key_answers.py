"""The hot path of a node: questions about keys, answered from a snapshot that never changes."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from hashring.core.hashing import HashAlgorithm, key_bytes
from hashring.core.ranges import PointRange
from hashring.core.ring import Ring
from hashring.core.select_keys import cells_of, select_inside
from hashring.errors import ConfigError, KeyValueError, NodeForked
from hashring.protocol.locks.key_states import Key, KeyState
from hashring.protocol.node.node_machine import View
from hashring.running.forked import notice_fork

T = TypeVar("T")

monotonic = time.monotonic

_encoded: Final = str.encode
_HELD, _KEPT = KeyState.HELD, KeyState.KEPT

Shown = list[Any]
"""Bounds, deadline, a table of the bounds in two parts (see :func:`cells_of`), and the keys that
are held (``None`` without locks and limit). A plain sequence is unpacked fastest, and a list is
unpacked, and replaced, in one piece."""


def listed(items: Iterable[T], key: Callable[[T], str | bytes] | None) -> Sequence[T]:
    """The items that a user gave, as a sequence.

    Raises:
        ConfigError: they are one text, of which each letter would be a key; they are nothing to
            iterate over; or ``key`` cannot be called.
    """
    if key is not None and not callable(key):
        raise ConfigError("key", key, "give a function that returns the key of an item")
    if isinstance(items, list | tuple):
        return items
    if isinstance(items, str | bytes | bytearray | memoryview):
        raise ConfigError("items", items, "give a list of keys; contains() asks for one")
    try:
        iterator = iter(items)
    except TypeError:
        remedy = "give a list of keys, or of items whose keys the argument key returns"
        if hasattr(items, "__aiter__"):
            remedy = "is asynchronous: collect its items in a list first"
        raise ConfigError("items", items, remedy) from None
    return list(iterator)


class KeyAnswers:
    """What a node answers without I/O, and without a lock of its own.

    Nodes inherit it, though their other parts are objects of their own: handing each question on to
    such a part would be one more call, and subclasses may define ``contains``.

    Each run of the node shows its views in a list of its own (:meth:`_show`). ``stop()`` puts
    an empty one in its place: what the run learns after that is written where nobody looks.
    """

    _parent: int | None = None
    """In a forked child: the process that runs the node."""

    def _answer_from(
        self, view: View, held: dict[bytes, Key] | None, algorithm: HashAlgorithm
    ) -> None:
        """Begin with a view in which nothing is owned."""
        self._view = view
        self._algorithm = algorithm
        self._point_of_bytes = algorithm.point_of_bytes
        self._nothing: Shown = [(), float("-inf"), *cells_of(()), held]
        # None in a forked child.
        self._lease: Shown | None = self._nothing

    @property
    def name(self) -> str:
        """The node's name on the ring."""
        raise NotImplementedError

    def _refuse_if_forked(self) -> None:
        notice_fork()
        if self._parent is not None:
            raise NodeForked(self.name, self._parent, made_up=not self._is_named)

    @property
    def _is_named(self) -> bool:
        """Whether the application named the node."""
        raise NotImplementedError

    def _ask_book(self, data: bytes) -> bool:
        """Whether a key that is not known to be held may be worked on."""
        raise NotImplementedError

    # --- about keys ---------------------------------------------------------------------------

    def contains(self, key: str | bytes) -> bool:
        """Whether this node owns the key now; with locks or a limit, whether it holds it.

        No lock and no I/O: it reads the ranges that the node knows, and the node's own clock. Two
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
                # Not the key's own encode(): other things than texts have one.
                point = self._point_of_bytes(_encoded(key))  # type: ignore[arg-type]
                inside = cells[point >> shift]
                if inside is None:
                    inside = bisect_right(bounds, point) & 1
                if inside:
                    return monotonic() < deadline  # type: ignore[no-any-return]
                return False
            data = _encoded(key)  # type: ignore[arg-type]
        except KeyValueError:
            raise
        except (ValueError, TypeError):
            # Bytes, what is no key (an array is neither true nor false), or a forked child.
            if self._parent is not None:
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

    def _select_owned(self, items: Iterable[T], key: Callable[[T], str | bytes] | None) -> list[T]:
        """Those of the items whose keys this node owns now."""
        bounds, deadline, _ = self._window()
        found = listed(items, key)
        chosen = select_inside(found, key, bounds, self._algorithm)
        # Hashing many keys takes a while; the answer is as of its end.
        return chosen if monotonic() < deadline else []

    def owner(self, key: str | bytes) -> str:
        """The name of the node that owns the key.

        Each call asks Redis, unless the node was made with ``follow=True``. Then it answers
        without I/O, from the ring as this node last saw it, however long ago: a node that is
        fenced answers from its last ring, and a forked child from the parent's last one.

        Raises:
            EmptyRingError: no node is on the ring; with ``follow=True``, the node has seen none
                yet, or has left the ring.
            KeyTypeError, KeyValueError: the key has no point.
            RedisUnavailable, RedisRefused: without ``follow=True``, Redis could not be asked.
        """
        if self._follows:
            return self._view.ring.owner(key)
        return self._ask_owner(self.key_as_ring_point(key))

    @property
    def _follows(self) -> bool:
        """Whether the view has the whole ring."""
        raise NotImplementedError

    def _ask_owner(self, point: int) -> str:
        """Ask Redis for the owner of a point."""
        raise NotImplementedError

    def _ask_ring(self) -> Ring:
        """Ask Redis for the ring."""
        raise NotImplementedError

    def key_as_ring_point(self, key: str | bytes) -> int:
        """The key's point, in ``[0, 2**32)``.

        Raises:
            KeyTypeError, KeyValueError: the key has no point.
        """
        return self._algorithm.point(key)

    # --- about the ring -----------------------------------------------------------------------

    def get_ranges(self) -> tuple[PointRange, ...]:
        """The ranges this node owns now: rising, disjoint, neighbours merged; none once fenced."""
        view = self._shown()
        return view.ranges if monotonic() < view.deadline else ()

    def get_node_count(self) -> int:
        """How many nodes are on the ring, as this node last saw it; 0 once it has left the ring.

        It is as of the last heartbeat, or, with ``follow=True``, as of the last change.
        """
        return self._view.node_count

    @property
    def ring(self) -> Ring:
        """The ring, frozen, as Redis has it at each use; with ``follow=True``, as last seen.

        Raises:
            RedisUnavailable, RedisRefused: without ``follow=True``, Redis could not be asked.
        """
        return self._view.ring if self._follows else self._ask_ring()

    # --- what is shown ------------------------------------------------------------------------

    def _window(self) -> tuple[tuple[int, ...], float, Ring]:
        """Boundaries of what may be worked on, the time from which on nothing may, and the ring.

        Raises:
            NodeForked: the node was started in a parent process.
        """
        self._refuse_if_forked()
        bounds, until, _, _, _ = self._lease or self._nothing
        return bounds, until, self._view.ring

    def _begin_lease(self) -> Shown:
        """What a run that begins now is to show its ranges in; see :meth:`_show`."""
        lease = self._lease = list(self._nothing)
        return lease

    def _show(self, after: View, lease: Shown | None) -> None:
        """Show readers a view.

        Args:
            lease: what ``_lease`` was when the run began: readers look at it unless ``stop()``
                was called since.
        """
        if after is self._view:
            return
        # The ring first, then the ranges: both are whole in themselves.
        self._view = after
        if lease is not None and lease is not self._nothing:
            # A heartbeat moves the deadline alone: the table is made when the bounds change.
            cells = lease[2:4] if lease[0] is after.bounds else cells_of(after.bounds)
            lease[:4] = (after.bounds, after.deadline, *cells)

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
        return without_ranges(view) if self._stopping else view


def without_ranges(view: View) -> View:
    """The view of a node that owns nothing."""
    return replace(view, bounds=(), deadline=float("-inf"), ranges=())
