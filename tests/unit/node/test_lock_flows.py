"""What users ask of locks, step by step: what waits, for how long, and what a cancel leaves."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from hashring.core.ranges import bounds_of
from hashring.errors import ConfigError, HoldTimeout, NotHeld, RedisUnavailable, WrongKeyType
from hashring.node.lock_flows import PIN_POLL, POLLED_AT_ONCE, Asking, Hold, TryAgain
from hashring.node.states import NodeState
from hashring.protocol.flow import Flow
from hashring.protocol.locks.key_lease import KeyLease
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
