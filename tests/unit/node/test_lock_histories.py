"""Random histories of nodes with locks and limits, around a Redis in memory.

Calls and answers take any time, overtake each other, arrive after they were given up, or never;
messages are lost; the ring changes and nodes hear of it late; clocks jump ahead. After each step
what must never happen has not; at the end, when all is well again, every key has its node.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hashring.errors import RedisUnavailable
from hashring.protocol.locks.calls_under_way import CallsUnderWay, Doubt, Take
from hashring.protocol.locks.key_lease import KeyLease
from hashring.protocol.locks.key_states import Key
from hashring.protocol.locks.leases import Leases
from hashring.protocol.locks.verdicts import Verdict
from hashring.protocol.machine_steps import Run
from tests.unit.node import planted_locks
from tests.unit.node.bookworld import KEYS, Node, World, keys_of, point
from tests.unit.planted_scripts import plant

TTL = 60.0
ALL = ("a", "b", "c")
ASKED = [key for name in ALL for key in keys_of(name, 5)]
STEPS = 80
HISTORIES = 80


@dataclass(eq=False)
class Call:
    """A call under way: sent, perhaps done, perhaps given up."""

    node: Node
    what: Take | Run
    sent: float
    raw: Any = None
    done: bool = False
    given_up: bool = False


class History:
    """One history; ``play`` makes it, from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.world = World(*ALL)
        self.calls: list[Call] = []
        self.leases: list[tuple[Node, KeyLease]] = []
        self.tokens: dict[bytes, list[tuple[int, str]]] = {}
        self.late_takes: dict[str, float] = {}
        self.told: list[str] = []
        handoff = self.rng.choice([10.0, 60.0, 200.0])
        # There is always room for all: one node has no limit.
        for name, limit in zip(ALL, (3, 6, None), strict=True):
            self.world.node(name, limit=limit, ttl=TTL, max_handoff_time=handoff)

    def play(self) -> None:
        happenings: list[tuple[Callable[[], None], int]] = [
            (self.ask, 10),
            (self.ask_all_at_once, 2),
            (self.hold, 3),
            (self.finish, 2),
            (self.heartbeat, 4),
            (self.loop, 12),
            (self.reach_redis, 20),
            (self.answer, 20),
            (self.give_up, 4),
            (self.time_passes, 6),
            (self.the_ring_changes, 2),
            (self.hear_of_the_ring, 3),
            (self.lose_messages, 1),
            (self.another_session, 1),
            (self.leave, 1),
        ]
        actions, weights = zip(*happenings, strict=True)
        for action in self.rng.choices(actions, weights, k=STEPS):
            self.told.append(action.__name__)
            action()
            self.check()
        self.all_is_well_again()

    # --- what happens ---------------------------------------------------------------------------

    def some_node(self) -> Node:
        return self.world.nodes[self.rng.choice(ALL)]

    def ask(self) -> None:
        node = self.some_node()
        keys = self.rng.sample(ASKED, self.rng.randint(1, 8))
        wanted = [key for key in keys if node.ask(key) is Verdict.TAKE]
        take = node.take(*wanted) if wanted else None
        if take is not None:
            self.calls.append(Call(node, take, self.world.now))

    def ask_all_at_once(self) -> None:
        self.some_node().select(ASKED)

    def hold(self) -> None:
        node, key = self.some_node(), self.rng.choice(ASKED)
        if node.contains(key):
            self.leases.append((node, node.pin(key)))

    def finish(self) -> None:
        if self.leases:
            node, lease = self.leases.pop(self.rng.randrange(len(self.leases)))
            node.unpin(lease)

    def heartbeat(self) -> None:
        self.some_node().heartbeat(renewed=False)

    def loop(self) -> None:
        node = self.some_node()
        node.deliver()
        if not any(call.node is node and isinstance(call.what, Run) for call in self.open()):
            step = node.step()
            if step is not None:
                self.calls.append(Call(node, step, self.world.now))
        node.announce()

    def open(self) -> list[Call]:
        return [call for call in self.calls if not call.given_up]

    def reach_redis(self) -> None:
        waiting = [call for call in self.calls if not call.done]
        if not waiting:
            return
        call = self.rng.choice(waiting)
        call.done = True
        call.raw = call.node.run(call.what.command)
        if call.given_up:
            self.calls.remove(call)
            if isinstance(call.what, Take):
                self.late_takes[call.node.session] = self.world.now

    def answer(self) -> None:
        answered = [call for call in self.open() if call.done]
        if not answered:
            return
        call = self.rng.choice(answered)
        self.calls.remove(call)
        if isinstance(call.what, Take):
            call.node.book.acquired(call.what, call.raw, call.sent, self.world.now)
        else:
            call.what.done(call.raw, call.sent, self.world.now)

    def give_up(self) -> None:
        calls = self.open()
        if not calls:
            return
        call = self.rng.choice(calls)
        self.fail(call)
        if call.done:
            self.calls.remove(call)
        else:
            call.given_up = True  # It may still arrive, as what a broken connection sent does.

    def fail(self, call: Call) -> None:
        if isinstance(call.what, Take):
            book = call.node.book
            tell = self.rng.choice([book.acquire_failed, book.interrupted])
            tell(call.what, self.world.now)
        else:
            call.what.failed(RedisUnavailable("timed out"), self.world.now)

    def time_passes(self) -> None:
        self.world.now += self.rng.choice([0.001, 0.5, 5.0, 20.0, 61.0])

    def the_ring_changes(self) -> None:
        names = self.rng.sample(ALL, self.rng.randint(1, 3))
        self.world.set_ring(*names, tell=self.rng.sample(ALL, self.rng.randint(0, 3)))

    def hear_of_the_ring(self) -> None:
        self.some_node().see()

    def lose_messages(self) -> None:
        node = self.some_node()
        node.silent = not node.silent
        node.inbox.clear()

    def leave(self) -> None:
        node = self.some_node()
        while (step := node.book.leave(self.world.now)) is not None:
            step.done(node.run(step.command), self.world.now, self.world.now)
        for user, lease in self.leases:
            if user is node and self.rng.random() < 0.5:
                node.unpin(lease)
        if self.rng.random() < 0.5:
            self.world.now += TTL
        node.loop()
        self.another_session(node)

    def another_session(self, node: Node | None = None) -> None:
        node = node or self.some_node()
        node.begin()
        self.leases = [(n, lease) for n, lease in self.leases if n is not node]
        self.calls = [c for c in self.calls if c.node is not node or not isinstance(c.what, Run)]
        node.see()

    # --- what must never happen -------------------------------------------------------------------

    def check(self) -> None:
        self.one_holder()
        self.limits()
        self.tokens_grow()
        self.handoffs_end()

    def one_holder(self) -> None:
        locks = self.world.server.locks(KEYS)
        holders: dict[bytes, str] = {}
        for node in self.world.nodes.values():
            for key, held in node.book.held.items():
                if self.world.now < held.deadline:
                    assert key not in holders, f"{key!r}: {holders[key]} and {node.name}"
                    holders[key] = node.name
                    assert locks.get(key, ())[:2] == (held.token, node.session)
        for node, lease in self.leases:
            if not lease.lost.is_set() and self.world.now < lease.deadline:
                assert locks.get(lease.key, ())[:2] == (lease.token, node.session)

    def limits(self) -> None:
        sessions = [session for _, session, _ in self.world.server.locks(KEYS).values()]
        for node in self.world.nodes.values():
            limit = node.book.config.limit
            if limit is not None:
                assert node.book.count <= limit
                # A call that arrives after it was given up takes locks of which nobody knows,
                # until they expire.
                late = self.late_takes.get(node.session, float("-inf"))
                if self.world.now > late + TTL:
                    assert sessions.count(node.session) <= limit

    def tokens_grow(self) -> None:
        for key, (token, session, _) in self.world.server.locks(KEYS).items():
            history = self.tokens.setdefault(key, [])
            if not history or history[-1] != (token, session):
                assert not history or token > history[-1][0]
                history.append((token, session))

    def handoffs_end(self) -> None:
        for node, lease in self.leases:
            if lease.revoked_at is not None:
                last = lease.revoked_at + node.book.config.max_handoff_time
                assert lease.deadline <= last

    # --- what must happen in the end --------------------------------------------------------------

    def all_is_well_again(self) -> None:
        """Every key has a node before long, and nothing moves any more."""
        world = self.world
        for call in self.open():
            self.fail(call)
        for node, lease in self.leases:
            node.unpin(lease)
        self.calls, self.leases = [], []
        world.set_ring(*ALL)
        for node in world.nodes.values():
            node.silent = False
        for _ in range(20):
            self.round()
        assert set(world.locks()) == set(ASKED), "every key is held, for there is room"
        tokens = {key: world.token(key) for key in ASKED}
        for _ in range(3):
            self.round()
        assert {key: world.token(key) for key in ASKED} == tokens, "nothing moves any more"
        for node in world.nodes.values():
            assert node.book.count == len(node.held)
            assert node.book.limit.unserved == 0
            own = [key for key in ASKED if world.ring.owner_of_point(point(key)) == node.name]
            limit = node.book.config.limit or len(own)
            # A place may be taken by what overflowed here before; a tenth is kept free of it.
            assert len(node.held) >= min(len(own), limit) - 1

    def round(self) -> None:
        self.world.now += 10.0
        for node in self.world.nodes.values():
            node.heartbeat()
        for _ in range(3):
            for node in self.world.nodes.values():
                node.select(ASKED)
                node.loop()
                self.check()


def play(first: int = 0, count: int = HISTORIES) -> None:
    for seed in range(first, first + count):
        history = History(seed)
        try:
            history.play()
        except AssertionError as error:
            raise AssertionError(f"history {seed}: {error}; {history.told}") from error


def test_in_any_history_what_must_never_happen_does_not() -> None:
    play()


# --- the histories find what they are for: a bug planted in each place ----------------------------


def no_places_for_calls_under_way(calls: CallsUnderWay) -> int:
    return len(calls._keys.held)


def revoked_without_a_new_deadline(leases: Leases, held: Key, now: float) -> None:
    if held.lease is not None and held.lease.revoked_at is None:
        held.lease.revoked_at = now
        held.lease.revoked.set()


def nothing_is_asked_about_lost_answers(calls: CallsUnderWay, doubt: Doubt, now: float) -> None:
    calls._due_calls.stirred = True


@pytest.mark.parametrize(
    ("place", "name", "bug"),
    [
        (CallsUnderWay, "count", property(no_places_for_calls_under_way)),
        (Leases, "revoke", revoked_without_a_new_deadline),
        (CallsUnderWay, "_doubt", nothing_is_asked_about_lost_answers),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_bug_is_found(
    monkeypatch: pytest.MonkeyPatch, place: type, name: str, bug: Any
) -> None:
    monkeypatch.setattr(place, name, bug)
    with pytest.raises(AssertionError):
        play()


@pytest.mark.parametrize(
    "bug",
    [
        "RELEASE_OF_ANY_HOLDER",
        "RELEASE_UNDER_ANY_TOKEN",
        "RENEWAL_THAT_MAKES_AN_EXPIRED_LOCK_ANEW",
    ],
)
def test_a_bug_in_a_script_is_found(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    plant(monkeypatch, getattr(planted_locks, bug))
    with pytest.raises(AssertionError):
        play()
