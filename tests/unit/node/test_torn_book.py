"""A lock book that a signal handler has raised into, between any two lines."""

from __future__ import annotations

import sys
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import CodeType

import pytest

from hashring.protocol import locks
from hashring.protocol.locks import shared_lock_book
from hashring.protocol.locks.key_lease import LeaseHolder
from hashring.protocol.locks.key_states import HOLDING, KeyState
from hashring.protocol.locks.shared_lock_book import SharedLockBook
from tests.conftest import LONG
from tests.unit.node import bookworld
from tests.unit.node.bookworld import KEYS, NODES, SPAN, Node, World, keys_of, point
from tests.unit.node.raised_into import raised_into

PLACES = Path(locks.__file__).parent
"""The files of the book and of its pieces."""
AROUND = shared_lock_book.__file__
MINE, THEIRS = keys_of("a", 4), keys_of("b", 3)
STRIDE = 1 if LONG else 7
"""Of so many lines one is raised into."""
TTL = IDLE = MAX_HANDOFF_TIME = 60.0


def concerns(code: CodeType) -> bool:
    # Around them an answer is lost as in the loop: the next heartbeat asks again.
    return Path(code.co_filename).parent == PLACES and code.co_filename != AROUND


def whole(book: SharedLockBook) -> None:
    """What is true of a book between two calls."""
    book.ask(b"h0", NODES.index("h") * SPAN, (), 0.0, 0.0)  # Any call mends it.
    keys = book._keys
    known = [*book.held.values(), *keys.others.values()]
    assert all(key.state in HOLDING for key in book.held.values())
    assert not any(key.state in HOLDING for key in keys.others.values())
    counts = Counter(key.state for key in known)
    for state in set(KeyState) - {KeyState.FREE}:
        assert keys.count(state) == counts[state], state
    assert sorted(key.key for key in known) == sorted({key.key for key in known})
    taken = {key for take in book._calls.takes for key in take.keys}
    assert set(keys.of(KeyState.TAKING)) == taken
    doubted = [key for doubt in book._calls.doubts for key in doubt.keys]
    assert sorted(key.key for key in keys.of(KeyState.DOUBTED)) == sorted(k.key for k in doubted)
    assert {key for key in known if key.lease is not None} == book._leases.keys
    assert not counts[KeyState.IDLE]


def busy(world: World, *, locking: bool, limit: int | None) -> Node:
    """A node that holds keys of its own and another's, one of them pinned, and waits for more."""
    world.set_ring("a")
    a = world.node("a", locking=locking, limit=limit)
    a.select([*MINE, *THEIRS][:6])
    a.pin(MINE[0])
    a.pin(THEIRS[0])
    return a


def moved(world: World, a: Node) -> None:
    world.set_ring("a", "b")
    a.loop()


def idle(world: World, a: Node) -> None:
    world.now += IDLE / 2
    a.contains(MINE[1])
    world.now += IDLE / 2 + 1
    a.heartbeat()


def refused(world: World, a: Node) -> None:
    a.book.limit.most = 2
    a.select([*MINE, *THEIRS, *keys_of("a", 9)])
    a.announce()


def full(world: World, a: Node) -> None:
    """It keeps keys for an owner that is full, and the owner asks for them."""
    world.set_ring("a", "b")
    world.full = {"b"}
    a.see()
    a.select(THEIRS)
    world.full = set()
    b = world.node("b")
    b.select(THEIRS)
    a.loop()
    a.heartbeat()


def given_up(world: World, a: Node) -> None:
    """A caller is interrupted, and its answer comes late."""
    take = a.take(*keys_of("a", 8)[4:])
    a.interrupt(take, reached=True)
    a.loop()


def lost(world: World, a: Node) -> None:
    for key in MINE:
        world.server.drop(KEYS.lock(key))
    a.heartbeat()


def leave(world: World, a: Node) -> None:
    while (step := a.book.leave(world.now)) is not None:
        step.done(a.run(step.command), world.now, world.now)


def ask(world: World, a: Node) -> None:
    a.select([*MINE, *THEIRS, *keys_of("a", 9)])
    a.unpin(a.pin(MINE[0]))


def catches_up(world: World, a: Node) -> None:
    """The loop finds out at once what is not known; a heartbeat, what may have been missed."""
    a.loop()
    states = {key.state for key in a.book._keys.others.values()}
    assert not states & {KeyState.DOUBTED, KeyState.RELEASING}, states
    assert not a.book._calls.unanswered
    a.heartbeat()
    for key in a.book._leases.keys:
        assert key.lease is not None
        revoked = key.lease.revoked_at is not None
        assert key.lease.revoked.is_set() == revoked
        assert not revoked or key.deadline <= key.lease.last
        moved = (
            key.state is KeyState.HELD and bisect_right(a.book._place.bounds, key.point) & 1 == 0
        )
        assert revoked or not moved, key.key


def goes_on(world: World, a: Node) -> None:
    """What a node does next: all comes to rest, and it works, leaves and begins anew."""
    world.set_ring("a", "b")
    world.full = set()
    a.book.limit.most = None if a.book.limit.most is None else 7
    world.now += TTL + 1
    for _ in range(2):
        a.heartbeat()
        a.loop()
        world.now += 1
    states = {key.state for key in a.book._keys.others.values()}
    assert states <= {KeyState.AWAITED, KeyState.ELSEWHERE}, states
    assert a.book.left or a.select(MINE) == MINE
    if a.book.config.locking:
        assert {key for key, holder in world.locks().items() if holder == "a"} == a.held
    leave(world, a)
    a.begin()
    a.see()
    assert (a.book.count, a.book._leases.keys) == (0, set())
    world.now += TTL + 1
    assert a.select(MINE) == MINE


DEEDS = [ask, moved, idle, refused, full, given_up, lost, leave]


CASES = [
    pytest.param(
        deed,
        *config,
        id=f"{deed.__name__}-{name}",
        # With both, all lines run that run with one of them but for those of a key that moved.
        marks=() if name == "both" or deed is moved else pytest.mark.long,
    )
    for deed in DEEDS
    for name, config in {"locks": (True, None), "both": (True, 7), "limit": (False, 7)}.items()
    if name != "limit" or deed not in (full, given_up, lost)
]


@pytest.mark.parametrize(("deed", "locking", "limit"), CASES)
def test_a_book_is_whole_again_after_a_handler_raised_before_any_line(
    monkeypatch: pytest.MonkeyPatch,
    deed: Callable[[World, Node], None],
    locking: bool,
    limit: int | None,
) -> None:
    """And goes on: it asks what it does not know, takes, lets go, and can begin anew."""
    monkeypatch.setattr(bookworld, "LockBook", SharedLockBook)
    line = 0
    while True:
        line += STRIDE
        world = World("a", "b")
        a = busy(world, locking=locking, limit=limit)
        where = raised_into(line, concerns, partial(deed, world, a))
        if not where:
            break
        try:
            whole(a.book)
            catches_up(world, a)
            goes_on(world, a)
        except BaseException as error:
            error.add_note(f"raised before {where}") if sys.version_info >= (3, 11) else None
            raise
    assert line > 20


@pytest.mark.parametrize("deed", DEEDS)
def test_a_lease_may_be_left_before_any_line_of_another_call(
    monkeypatch: pytest.MonkeyPatch, deed: Callable[[World, Node], None]
) -> None:
    """The collector closes a generator that holds a key, in whatever call this thread is."""
    monkeypatch.setattr(bookworld, "LockBook", SharedLockBook)
    line = 0
    while True:
        line += STRIDE
        world = World("a", "b")
        a = busy(world, locking=True, limit=7)
        lease = a.book.held[MINE[0]].lease
        assert lease is not None
        where = raised_into(line, concerns, partial(deed, world, a), partial(a.unpin, lease))
        if not where:
            break
        try:
            whole(a.book)
            assert lease.pins == 0
            catches_up(world, a)
            goes_on(world, a)
        except BaseException as error:
            error.add_note(f"left before {where}") if sys.version_info >= (3, 11) else None
            raise
    assert line > 20


@pytest.mark.parametrize("deed", DEEDS)
def test_a_key_may_be_asked_for_and_held_before_any_line_of_another_call(
    monkeypatch: pytest.MonkeyPatch, deed: Callable[[World, Node], None]
) -> None:
    """A signal handler calls ``contains`` and ``hold``, in whatever call this thread is."""
    monkeypatch.setattr(bookworld, "LockBook", SharedLockBook)
    line = 0
    while True:
        line += STRIDE
        world = World("a", "b")
        a = busy(world, locking=True, limit=7)

        def asks(a: Node = a) -> None:
            for key in (*MINE, *THEIRS):
                if a.contains(key):
                    holder = LeaseHolder()
                    a.book.pin(key, lambda: 0.0, threading.Event, holder)
                    a.book.unpin(holder, 0.0)

        where = raised_into(line, concerns, partial(deed, world, a), asks)
        if not where:
            break
        try:
            whole(a.book)
            catches_up(world, a)
            goes_on(world, a)
        except BaseException as error:
            error.add_note(f"asked before {where}") if sys.version_info >= (3, 11) else None
            raise
    assert line > 20


def test_many_keys_asked_for_inside_of_a_call_are_those_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bookworld, "LockBook", SharedLockBook)
    a = World("a", "b").node("a")
    assert a.contains(MINE[0])
    held, free = [(key, point(key), number) for number, key in enumerate(MINE[:2])]
    with a.book._guard:  # As in a signal handler.
        assert a.ask_many([held, free]) == ([held], [])


# --- the end of a hold --------------------------------------------------------------------------


def concerns_all(code: CodeType) -> bool:
    return concerns(code) or code.co_filename == shared_lock_book.__file__


def lasts(world: World, a: Node) -> None:
    """The hold goes on."""


def told_to_finish(world: World, a: Node) -> None:
    """Its key belongs to another node."""
    world.set_ring("b")


BEFORE = [lasts, told_to_finish, leave]


def ended(world: World, a: Node, before: Callable[[World, Node], None]) -> None:
    """Nobody holds the key, and its lock is let go where it must be."""
    a.loop()
    a.heartbeat()
    assert not a.book._leases.keys
    known = a.book._keys.find(MINE[0])
    assert known is None or known.lease is None
    assert (MINE[0] in world.locks()) is (before is lasts)


def held(world: World, before: Callable[[World, Node], None]) -> tuple[Node, LeaseHolder]:
    """A node that holds a key, and what holds it."""
    a, holder = world.node("a"), LeaseHolder()
    assert a.contains(MINE[0])
    assert a.book.pin(MINE[0], lambda: world.now, threading.Event, holder) is not None
    before(world, a)
    return a, holder


@pytest.mark.parametrize("before", BEFORE)
def test_a_hold_that_ends_inside_of_a_call_has_ended_wherever_a_handler_raises_into_the_next(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[World, Node], None]
) -> None:
    monkeypatch.setattr(bookworld, "LockBook", SharedLockBook)
    line = 0
    while True:
        line += 1
        world = World("a", "b")
        a, holder = held(world, before)
        with a.book._guard:
            assert not a.book.unpin(holder, world.now)
        where = raised_into(line, concerns_all, lambda a=a: a.ask(MINE[1]))
        ended(world, a, before)
        if not where:
            break
    assert line > 20


@pytest.mark.parametrize("before", BEFORE)
def test_a_hold_has_ended_wherever_a_handler_raises_into_its_end(
    monkeypatch: pytest.MonkeyPatch, before: Callable[[World, Node], None]
) -> None:
    monkeypatch.setattr(bookworld, "LockBook", SharedLockBook)
    line = 1  # Before the first line nothing of it has begun.
    while True:
        line += 1
        world = World("a", "b")
        a, holder = held(world, before)
        end = partial(a.book.unpin, holder, world.now)
        where = raised_into(line, concerns_all, end)
        ended(world, a, before)
        if not where:
            break
    assert line > 20


def test_what_was_raised_into_while_it_began_to_hold_a_key_can_leave_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bookworld, "LockBook", SharedLockBook)
    line = 0
    while True:
        line += 1
        world = World("a", "b")
        a, holder = world.node("a"), LeaseHolder()
        assert a.contains(MINE[0])
        begin = partial(a.book.pin, MINE[0], lambda world=world: world.now, threading.Event, holder)
        where = raised_into(line, concerns_all, begin)
        a.book.unpin(holder, world.now)
        ended(world, a, lasts)
        if not where:
            break
    assert line > 20
