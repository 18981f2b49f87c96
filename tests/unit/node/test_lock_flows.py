"""What users ask of locks, step by step: what waits, for how long, and what a cancel leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hashring.core.ranges import bounds_of
from hashring.errors import ConfigError, HoldTimeout, NotHeld, RedisUnavailable, WrongKeyType
from hashring.node.lock_flows import PIN_POLL, POLLED_AT_ONCE, Asking, Hold, TryAgain
from hashring.protocol.flow import Flow
from hashring.protocol.locks.key_lease import KeyLease
from hashring.protocol.node.node_states import NodeState
from hashring.store.command import Command
from tests.unit.node.bookworld import RETRY, Node, World, keys_of, point

IO_TIMEOUT = 2.0


@pytest.fixture
def world() -> World:
    return World("a", "b")


def asking(world: World, node: Node) -> Asking:
    config = SimpleNamespace(
        algorithm=SimpleNamespace(point_of_bytes=point), io_timeout=IO_TIMEOUT, follow=False
    )
    machine = SimpleNamespace(config=config, name=node.name, state=NodeState.LIVE, failing=False)
    bounds = bounds_of(world.ring.node_ranges(node.name))
    return Asking(
        machine=cast(Any, machine),
        book=cast(Any, node.book),
        window=lambda: (bounds, float("inf"), world.ring),
        clock=lambda: world.now,
        poke=lambda: None,
    )


class Holding:
    """A ``hold`` under way."""

    def __init__(
        self, world: World, node: Node, key: bytes, timeout: float, asks: Asking | None = None
    ) -> None:
        self.world = world
        self.node = node
        self.lease: KeyLease | None = None
        asks = asks or asking(world, node)
        self.hold: Hold = asks.hold(key, timeout, threading.Event)
        self.flow: Flow[KeyLease | TryAgain]
        self.step: Command[Any] | TryAgain | None = None
        self._try()

    def arrive(self) -> None:
        """Its call is made, and the answer arrives."""
        assert isinstance(self.step, Command)
        reply = self.node.run(self.step)
        self._go_on(lambda: self.flow.send(reply))

    def fail(self, error: BaseException, *, reached: bool) -> None:
        """Its call ends with an error."""
        assert isinstance(self.step, Command)
        if reached:
            self.node.run(self.step)
        self._go_on(lambda: self.flow.throw(error))

    def wait(self) -> None:
        """It waits, and tries again."""
        assert isinstance(self.step, TryAgain)
        self.world.now += self.step.seconds
        self._try()

    def _try(self) -> None:
        self.flow = self.hold.attempt()
        self._go_on(lambda: next(self.flow))

    def _go_on(self, go_on: Callable[[], Command[Any]]) -> None:
        try:
            self.step = go_on()
        except StopIteration as end:
            again = isinstance(end.value, TryAgain)
            self.step, self.lease = (end.value, None) if again else (None, end.value)


def cancelled(world: World, node: Node, key: bytes) -> None:
    """A ``hold`` whose caller is cancelled after its call was done."""
    with pytest.raises(asyncio.CancelledError):
        Holding(world, node, key, 0.0).fail(asyncio.CancelledError(), reached=True)


def test_a_hold_of_another_key_does_not_notice_that_one_was_cancelled(world: World) -> None:
    a = world.node("a")
    cancelled(world, a, b"a0")
    other = Holding(world, a, b"a1", 0.0)
    other.arrive()
    assert other.lease is not None


@pytest.mark.parametrize(
    "timeout",
    [
        pytest.param(10**400, id="huge"),
        -1,
        float("nan"),
        "1",
        None,
        True,
        np.float32(-1),
        np.zeros(2),
    ],
)
def test_a_timeout_that_is_no_number_of_seconds_is_refused(world: World, timeout: Any) -> None:
    with pytest.raises(ConfigError) as caught:
        Holding(world, world.node("a"), b"a0", timeout)
    assert caught.value.setting == "timeout"
    assert str(caught.value).endswith(": give a number of seconds, 0 not to wait")


@pytest.mark.parametrize("timeout", [np.float32(0.5), np.int64(2), Fraction(1, 2), float("inf")])
def test_a_timeout_is_any_number_of_seconds(world: World, timeout: Any) -> None:
    a = world.node("a")
    cancelled(world, a, b"a0")
    hold = Holding(world, a, b"a0", timeout)
    assert hold.step == TryAgain(PIN_POLL)
    assert type(hold.hold.timeout) in (int, float)


@pytest.mark.parametrize("timeout", [0.0, 5.0])
def test_a_hold_waits_while_it_is_found_out_what_came_of_a_cancelled_one_of_its_key(
    world: World, timeout: float
) -> None:
    a = world.node("a")
    cancelled(world, a, b"a0")
    again = Holding(world, a, b"a0", timeout)
    assert again.step == TryAgain(PIN_POLL)
    again.wait()
    assert again.step == TryAgain(PIN_POLL)
    assert a.loop() == ["locks_look"]
    again.wait()
    assert again.lease is not None
    assert again.lease.token == world.token(b"a0")


def test_a_hold_waits_for_its_timeout_while_redis_does_not_tell_what_came_of_its_call(
    world: World,
) -> None:
    a = world.node("a")
    hold = Holding(world, a, b"a0", 5.0)
    hold.fail(RedisUnavailable("lost"), reached=True)
    assert hold.step == TryAgain(PIN_POLL)
    assert a.lose(reached=False) == "locks_look"
    hold.wait()
    world.now += RETRY
    a.loop()
    hold.wait()
    assert hold.lease is not None


def test_a_hold_whose_call_was_lost_ends_with_its_timeout(world: World) -> None:
    a = world.node("a")
    hold = Holding(world, a, b"a0", PIN_POLL)
    hold.fail(RedisUnavailable("lost"), reached=False)
    assert a.lose(reached=False) == "locks_look"
    with pytest.raises(NotHeld, match="Redis did not answer"):
        hold.wait()


def test_a_hold_without_a_timeout_does_not_wait_for_a_redis_that_does_not_answer(
    world: World,
) -> None:
    a = world.node("a")
    with pytest.raises(NotHeld, match="Redis did not answer"):
        Holding(world, a, b"a0", 0.0).fail(RedisUnavailable("lost"), reached=False)


def test_a_hold_does_not_ask_a_redis_again_and_again_that_refuses_it(world: World) -> None:
    a = world.node("a")
    with pytest.raises(NotHeld):
        Holding(world, a, b"a0", 60.0).fail(WrongKeyType("the counter is a list"), reached=False)


class SoftTimeLimit(Exception):
    """Raised by a signal handler of the application's."""


def test_what_a_signal_handler_raises_in_a_hold_is_like_a_cancel(world: World) -> None:
    a = world.node("a")
    with pytest.raises(SoftTimeLimit):
        Holding(world, a, b"a0", 0.0).fail(SoftTimeLimit(), reached=True)
    assert a.contains(b"a1")
    assert a.loop() == ["locks_look"]
    assert a.held == {b"a0", b"a1"}


def shifted(items: list[bytes]) -> None:
    del items[0]


def grown(items: list[bytes]) -> None:
    items.insert(0, b"a9")


@pytest.mark.parametrize("change", [shifted, grown, list.clear])
@pytest.mark.parametrize("key", [None, bytes])
def test_a_selection_is_of_the_items_as_they_were_when_it_began(
    world: World, change: Callable[[list[bytes]], None], key: Callable[[bytes], bytes] | None
) -> None:
    """A call that takes locks waits for Redis, and others change the list meanwhile."""
    a, items = world.node("a"), [b"b0", b"a0", b"b1", b"a1"]
    flow = asking(world, a).select(items, key)
    taking = next(flow)
    change(items)
    with pytest.raises(StopIteration) as ended:
        flow.send(a.run(taking))
    assert ended.value.value == [b"a0", b"a1"]
    assert a.held == {b"a0", b"a1"}


def waiting(world: World, count: int) -> list[Holding]:
    """Holds of one node that wait for as many keys of another's."""
    world.set_ring("a")
    world.node("a").select(keys_of("b", count))
    world.set_ring("a", "b")
    b = asking(world, world.node("b"))
    holds = [Holding(world, world.nodes["b"], key, 60.0, b) for key in keys_of("b", count)]
    for hold in holds:
        hold.arrive()
    return holds


def test_many_holds_that_wait_look_no_more_often_than_a_few(world: World) -> None:
    few = waiting(world, POLLED_AT_ONCE)
    assert {hold.step for hold in few} == {TryAgain(PIN_POLL)}
    many = waiting(World("a", "b"), 10 * POLLED_AT_ONCE)
    assert many[-1].step == TryAgain(10 * PIN_POLL)
    for hold in many[POLLED_AT_ONCE:]:
        hold.hold.over()
    many[0].wait()
    assert many[0].step == TryAgain(PIN_POLL)


def test_a_hold_that_is_given_up_early_does_not_say_that_it_has_waited(world: World) -> None:
    (hold,) = waiting(world, 1)
    refusal = hold.hold.refusal(waited=False)
    assert (type(refusal), str(refusal)) == (NotHeld, "key 'b0' is not held: a holds it")
    assert type(hold.hold.refusal()) is HoldTimeout


def test_a_hold_says_why_redis_refuses_the_lock(world: World) -> None:
    a = world.node("a")
    with pytest.raises(NotHeld, match="Redis refuses its lock: the counter is a list"):
        Holding(world, a, b"a0", 0.0).fail(WrongKeyType("the counter is a list"), reached=False)


# --- why a key cannot be held -------------------------------------------------------------------


def why_not(asks: Asking, key: bytes) -> str:
    refusal = asks.hold(key, 0.0, threading.Event).refusal()
    start = f"key {key.decode()!r} is not held: "
    assert str(refusal).startswith(start)
    return str(refusal).removeprefix(start)


NO_ANSWER = "Redis did not answer, or it is just being let go: try again"


def test_a_node_says_who_owns_a_key(world: World) -> None:
    asks = asking(world, world.node("a"))
    asks.machine.config.follow = True
    for key in keys_of("a", 20):
        owner = world.ring.owner(key)
        assert why_not(asks, key) == (NO_ANSWER if owner == "a" else f"{owner} owns it")


def test_a_node_that_follows_no_ring_says_that_another_owns_a_key(world: World) -> None:
    asks = asking(world, world.node("a"))
    assert why_not(asks, b"a9") == NO_ANSWER
    assert why_not(asks, b"b0") == "another node owns it"


@pytest.mark.parametrize("follow", [True, False])
def test_a_drained_node_says_so_or_who_owns_the_key(world: World, follow: bool) -> None:
    asks = asking(world, world.node("a"))
    asks.machine.config.follow, asks.machine.state = follow, NodeState.DRAINED
    assert why_not(asks, b"b0") == (
        "b owns it" if follow else "this node is drained, and owns nothing"
    )
    world.set_ring()
    assert why_not(asks, b"b0") == "this node is drained, and owns nothing"


def test_a_node_that_sees_an_empty_ring_says_to_try_again(world: World) -> None:
    asks = asking(world, world.node("a"))
    asks.machine.config.follow = True
    world.set_ring()
    assert why_not(asks, b"a0") == "this node is not on the ring just now: try again"


def test_a_fenced_node_says_that_it_owns_nothing(world: World) -> None:
    asks = replace(asking(world, world.node("a")), window=lambda: ((), world.now, world.ring))
    assert why_not(asks, b"a0") == "this node is live, and owns nothing"


@pytest.mark.parametrize(
    ("seconds", "again"), [(4.0, "try again in 4.0 s"), (float("inf"), "try again")]
)
def test_a_node_says_for_how_long_no_lock_may_be_taken(
    world: World, seconds: float, again: str
) -> None:
    a = world.node("a")
    a.book.heartbeat(False, world.now, "one", seconds)
    assert why_not(asking(world, a), b"a0").endswith(f"may still work on it: {again}")


@pytest.mark.parametrize(("limit", "keys"), [(1, "1 key"), (2, "2 keys")])
def test_a_node_at_its_limit_says_so(world: World, limit: int, keys: str) -> None:
    a = world.node("a", limit=limit)
    a.select(keys_of("a", limit))
    assert why_not(asking(world, a), b"a9") == f"this node is at its limit of {keys}"


@pytest.mark.parametrize("timeout", [0.0, 3.0])
@pytest.mark.parametrize("waited", [True, False])
def test_a_timeout_is_over_only_where_there_was_one(
    world: World, timeout: float, waited: bool
) -> None:
    a = world.node("a")
    b = world.node("b")
    a.contains(b"a0")
    world.set_ring("b")
    b.contains(b"a0")
    refusal = asking(world, b).hold(b"a0", timeout, threading.Event).refusal(waited=waited)
    over = timeout > 0 and waited
    assert isinstance(refusal, HoldTimeout) is over
    assert str(refusal).endswith(f"a still held it after {timeout:g} s" if over else "a holds it")
