"""The rules of locks, limit and overflow, as the book keeps them: without I/O, in virtual time."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from hashring.core.ring import Ring
from hashring.errors import LeaseLost, RedisUnavailable, WrongKeyType
from hashring.protocol.locks.key_lease import LeaseHolder
from hashring.protocol.locks.key_limit import REFUSED_COUNTED, Limit
from hashring.protocol.locks.key_states import KeyState
from hashring.protocol.locks.lock_book import LockBook
from hashring.protocol.locks.lock_config import LockConfig
from hashring.protocol.locks.shared_lock_book import SharedLockBook
from hashring.protocol.locks.verdicts import Verdict
from hashring.protocol.machine_steps import Run
from hashring.store.locks.commands import LOCKS_A_CALL, RENEWED_A_CALL, HeldOff, acquire
from tests.unit.node import bookworld
from tests.unit.node.bookworld import KEYS, NODES, RETRY, SPAN, Node, World, keys_of, point

NO, YES, TAKE = Verdict.NO, Verdict.YES, Verdict.TAKE
MS = 0.0015
"""Redis counts milliseconds."""


@pytest.fixture
def world() -> World:
    return World("a", "b")


# --- taking -------------------------------------------------------------------------------------


def test_a_key_is_taken_when_it_is_first_asked_for_and_held_from_then_on(world: World) -> None:
    a = world.node("a")
    assert a.ask(b"a0") is TAKE
    take = a.take(b"a0")
    a.arrive(take)
    assert [a.ask(b"a0") for _ in range(3)] == [YES] * 3
    assert world.locks() == {b"a0": "a"}
    assert world.commands == ["locks_acquire"]


def test_a_key_of_another_node_is_not_asked_of_redis(world: World) -> None:
    a = world.node("a")
    assert not a.contains(b"b0")
    assert world.commands == []


def test_a_node_past_its_deadline_holds_nothing_and_takes_nothing(world: World) -> None:
    a = world.node("a")
    assert a.contains(b"a0")
    a.until = world.now
    assert a.ask(b"a0") is NO
    assert a.ask(b"a1") is NO


def test_one_caller_takes_a_key_while_others_are_told_no(world: World) -> None:
    a = world.node("a", limit=5)
    take = a.take(b"a0")
    assert a.ask(b"a0") is NO
    assert a.take(b"a0") is None
    a.arrive(take)
    assert a.ask(b"a0") is YES
    assert world.calls() == 1
    assert not a.book.limit.full


def test_of_two_callers_who_were_told_to_take_a_key_one_does(world: World) -> None:
    a = world.node("a")
    assert [a.ask(b"a0"), a.ask(b"a0")] == [TAKE, TAKE]
    a.arrive(a.take(b"a0"))
    assert a.take(b"a0") is None
    assert a.ask(b"a0") is YES


def test_a_key_wanted_twice_in_one_call_needs_one_place(world: World) -> None:
    a = world.node("a", limit=2)
    assert a.select([b"a0", b"a0", b"a1", b"a0"]) == [b"a0", b"a0", b"a1", b"a0"]
    assert not a.book.limit.full


def test_a_node_that_has_left_takes_nothing(world: World) -> None:
    a = world.node("a")
    a.book.leave(world.now)
    assert a.take(b"a0") is None


# --- keys that another node holds ---------------------------------------------------------------


def moved_to_b(world: World) -> tuple[Node, Node]:
    """``a`` holds b0, and learns that b owns it now; b waits for it."""
    world.set_ring("a")
    a, b = world.node("a"), world.node("b")
    assert a.contains(b"b0")
    world.set_ring("a", "b")
    assert not b.contains(b"b0")
    return a, b


def test_a_key_held_by_another_is_not_asked_of_redis_again_until_it_is_freed(world: World) -> None:
    a, b = moved_to_b(world)
    calls = world.calls()
    for _ in range(100):
        assert not b.contains(b"b0")
        b.loop()
    assert world.calls() == calls
    assert not a.contains(b"b0")
    assert a.loop() == ["locks_release"]
    b.deliver()
    assert b.contains(b"b0")
    assert world.calls() == calls + 2


def test_a_selection_leaves_out_what_another_holds(world: World) -> None:
    _, b = moved_to_b(world)
    assert not b.contains(b"b0")
    assert b.select([b"b0", b"b1"]) == [b"b1"]


def test_many_keys_have_the_verdicts_that_each_has_alone(world: World) -> None:
    a, b = moved_to_b(world)
    assert a.contains(b"a0")
    assert not b.contains(b"b0")
    keys = [b"a0", b"a1", b"b0", b"b1"]
    for node in (a, b):
        asked = [(key, point(key), number) for number, key in enumerate(keys)]
        verdicts = [node.ask(key) for key in keys]
        yes, to_take = node.ask_many(asked)
        assert yes == [each for each, v in zip(asked, verdicts, strict=True) if v is YES]
        assert to_take == [each for each, v in zip(asked, verdicts, strict=True) if v is TAKE]


def test_a_selection_leaves_out_a_held_key_that_is_another_nodes_now(world: World) -> None:
    a, _ = moved_to_b(world)
    assert a.select([b"a0", b"b0"]) == [b"a0"]


def test_a_key_that_is_freed_before_the_answer_that_another_holds_it_is_taken_at_once(
    world: World,
) -> None:
    world.set_ring("a")
    a, b = world.node("a"), world.node("b")
    assert a.contains(b"b0")
    world.set_ring("a", "b")
    take = b.take(b"b0")
    assert take is not None
    answer = b.run(take.command)
    assert not a.contains(b"b0")
    assert a.loop() == ["locks_release"]
    b.deliver()
    b.book.acquired(take, answer, world.now, world.now)
    assert b.contains(b"b0")


def all_but_b_know_of_c(world: World) -> tuple[Node, Node, Node]:
    """``a`` holds c0, which b takes for its own, as it was before c joined."""
    world.set_ring("a")
    a, b, c = (world.node(name) for name in "abc")
    assert a.contains(b"c0")
    world.set_ring("a", "b", tell="ab")
    world.set_ring("a", "b", "c", tell="ac")
    return a, b, c


def test_who_was_replaced_as_the_one_that_waits_asks_again_after_a_moment(world: World) -> None:
    a, b, c = all_but_b_know_of_c(world)
    assert not c.contains(b"c0")
    assert not b.contains(b"c0")
    c.deliver()
    calls = world.calls("acquire")
    # At once the two might replace each other as fast as Redis answers.
    assert not c.contains(b"c0")
    assert world.calls("acquire") == calls
    world.now += 0.5
    assert not c.contains(b"c0")
    assert world.calls("acquire") == calls + 1
    assert not a.contains(b"c0")
    a.loop()
    c.deliver()
    assert c.contains(b"c0")


def test_a_key_that_moved_on_before_the_answer_is_not_waited_for(world: World) -> None:
    _, b, _ = all_but_b_know_of_c(world)
    take = b.take(b"c0")
    assert take is not None
    answer = b.run(take.command)
    world.set_ring("a", "b", "c")
    b.book.acquired(take, answer, world.now, world.now)
    assert (b.book.waiting, b.book.count) == (0, 0)


def test_when_the_message_is_lost_it_is_asked_for_again_once_its_ttl_is_over(world: World) -> None:
    a, b = moved_to_b(world)
    b.silent = True
    a.contains(b"b0")
    a.loop()
    world.now += 59.0
    assert not b.contains(b"b0")
    world.now += 1.0 + MS
    assert b.contains(b"b0")


def test_who_waits_asks_again_at_once_where_redis_has_another_history(world: World) -> None:
    _, b = moved_to_b(world)
    b.book.heartbeat(False, world.now, "one", 0.0)
    b.contains(b"b0")
    for history, asks in (("one", 0), ("another", 1)):
        calls = world.calls("acquire")
        b.book.heartbeat(False, world.now, history, 0.0)
        assert not b.contains(b"b0")
        assert world.calls("acquire") == calls + asks


def test_the_holder_of_a_key_is_known_to_who_waits(world: World) -> None:
    _, b = moved_to_b(world)
    assert b.book.holder(b"b0") == "a"
    assert b.book.holder(b"b1") is None
    assert b.book.waiting == 1


def test_a_key_that_moved_on_is_not_waited_for(world: World) -> None:
    _, b = moved_to_b(world)
    world.set_ring("a", "b", "c")
    assert b.book.waiting == 1
    world.set_ring("a")
    assert b.book.waiting == 0


def test_a_key_whose_holder_left_the_ring_is_asked_for_at_once(world: World) -> None:
    world.set_ring("a", "b", "c")
    b, c = world.node("b"), world.node("c")
    assert c.contains(b"c0")
    world.set_ring("b")
    world.server.drop(KEYS.lock(b"c1"))
    assert not b.contains(b"c0")
    world.server.drop(KEYS.lock(b"c0"))
    world.set_ring("a", "b")
    assert b.contains(b"c0")


def test_a_freed_key_that_nobody_asks_for_is_not_waited_for_forever(world: World) -> None:
    a, b = moved_to_b(world)
    a.contains(b"b0")
    a.loop()
    b.deliver()
    world.now += 61.0
    b.heartbeat()
    assert b.book.waiting == 0


def test_news_of_a_key_that_is_not_waited_for_changes_nothing(world: World) -> None:
    a, b = moved_to_b(world)
    a.contains(b"b0")
    a.loop()
    b.begin()
    b.deliver()
    assert b.book.waiting == 0
    assert b.book.count == 0


# --- letting go ---------------------------------------------------------------------------------


def test_a_key_that_the_ring_moved_away_is_let_go_when_it_is_asked_for(world: World) -> None:
    world.set_ring("a")
    a = world.node("a")
    assert a.contains(b"b0")
    world.set_ring("a", "b")
    assert a.loop() == []  # The loop may be at work on it.
    assert world.locks() == {b"b0": "a"}
    assert not a.contains(b"b0")
    assert a.book.due_calls.stirred
    assert a.book.due() <= world.now
    assert a.loop() == ["locks_release"]
    assert world.locks() == {}


def test_a_thread_that_looked_at_older_ranges_lets_go_of_no_key_that_is_the_nodes_by_now(
    world: World,
) -> None:
    a = world.node("a")
    older = a.bounds
    world.set_ring("a")
    assert a.contains(b"b0")
    assert a.book.ask(b"b0", point(b"b0"), older, a.until, world.now) is NO
    assert a.contains(b"b0")
    assert a.loop() == []


def test_a_key_that_nobody_asks_for_is_let_go(world: World) -> None:
    a = world.node("a", idle=30.0)
    assert a.select([b"a0", b"a1"]) == [b"a0", b"a1"]
    for _ in range(4):
        world.now += 10.0
        assert a.contains(b"a1")
        a.heartbeat()
    assert world.locks() == {b"a1": "a"}
    assert a.held == {b"a1"}


def test_an_idle_key_is_not_let_go_in_the_moment_it_is_asked_for(world: World) -> None:
    a = world.node("a", idle=30.0)
    assert a.contains(b"a0")
    held = a.book.held[b"a0"]
    world.now += 31.0

    class Asks:
        """`contains` in another thread: it writes `asked`, then reads the state."""

        def __lt__(self, _: object) -> bool:
            held.asked = world.now
            return True

    held.asked = Asks()  # type: ignore[assignment]
    a.heartbeat()
    assert held.state is KeyState.HELD
    assert a.contains(b"a0")


def test_while_it_is_decided_whether_a_key_is_idle_it_is_not_held(world: World) -> None:
    a = world.node("a", idle=30.0)
    assert a.contains(b"a0")
    held = a.book.held[b"a0"]
    world.now += 31.0
    seen: list[KeyState] = []

    class Asked:
        """`contains` writes `asked`, which the loop does not see any more, and reads the state."""

        def __lt__(self, _: object) -> bool:
            return True

        def __ge__(self, _: object) -> bool:
            seen.append(held.state)
            return False

    held.asked = Asked()  # type: ignore[assignment]
    a.heartbeat()
    assert seen == [KeyState.IDLE]
    assert a.held == set()


def test_a_key_being_let_go_is_not_ours_until_redis_has_answered(world: World) -> None:
    world.set_ring("a")
    a = world.node("a")
    assert a.contains(b"b0")
    world.set_ring("a", "b")
    assert not a.contains(b"b0")
    world.set_ring("a")
    assert not a.contains(b"b0")
    assert a.book.busy(b"b0")
    a.loop()
    assert not a.book.busy(b"b0")
    assert a.contains(b"b0")


def test_a_key_is_busy_while_it_is_taken(world: World) -> None:
    a = world.node("a")
    take = a.take(b"a0")
    assert a.book.busy(b"a0")
    a.arrive(take)
    assert not a.book.busy(b"a0")


def test_no_key_is_busy_being_taken_while_redis_does_not_answer(world: World) -> None:
    a = world.node("a")
    lost, under_way = a.take(b"a0"), a.take(b"a1")
    assert a.book.busy(b"a1")
    a.fail(lost, reached=True)
    assert not a.book.busy(b"a0")
    assert not a.book.busy(b"a1")
    a.arrive(under_way)


def test_a_lock_that_lasts_longer_as_redis_clock_was_set_back_is_held_for_a_ttl(
    world: World,
) -> None:
    a = world.node("a")
    a.fail(a.take(b"a0"), reached=True)
    look = a.step()
    assert look is not None
    found = a.run(look.command)
    found[b"a0"] = replace(found[b"a0"], expires_in=100.0)
    look.done(found, world.now, world.now)
    world.now += 60.0 - MS
    assert a.ask(b"a0") is YES
    world.now += MS
    assert a.ask(b"a0") is not YES


def test_a_node_that_becomes_full_has_something_to_tell_at_once(world: World) -> None:
    a = world.node("a", limit=1)
    a.contains(b"a0")
    a.book.due_calls.stirred = False
    a.contains(b"a1")
    assert a.book.due_calls.stirred
    a.book.due_calls.stirred = False
    a.contains(b"a2")
    assert not a.book.due_calls.stirred


def test_a_limit_without_locks_lets_as_many_of_many_keys_in(world: World) -> None:
    a = world.node("a", locking=False, limit=2)
    asked = [(key, point(key), number) for number, key in enumerate((b"a0", b"a1", b"a2"))]
    assert a.ask_many(asked) == (asked[:2], [])


def test_a_key_that_moved_while_it_was_taken_is_let_go(world: World) -> None:
    world.set_ring("a")
    a = world.node("a")
    take = a.take(b"b0")
    world.set_ring("a", "b")
    a.arrive(take)
    assert a.ask(b"b0") is NO
    assert a.loop() == ["locks_release"]


def test_many_keys_are_let_go_a_few_thousand_a_call(world: World) -> None:
    world.set_ring("a")
    a = world.node("a")
    keys = keys_of("a", LOCKS_A_CALL) + keys_of("b", 10)
    assert a.select(keys) == keys
    a.book.leave(world.now)
    assert a.loop() == ["locks_release"] * 2
    assert world.locks() == {}


def test_a_release_that_failed_is_tried_again(world: World) -> None:
    a, b = moved_to_b(world)
    a.contains(b"b0")
    assert a.lose(reached=False) == "locks_release"
    assert a.step() is None
    assert a.book.due() == world.now + RETRY
    assert isinstance(a.book.error, RedisUnavailable)
    world.now += RETRY
    assert a.loop() == ["locks_release"]
    assert a.book.error is None
    b.deliver()
    assert b.contains(b"b0")


def test_a_release_that_arrives_late_leaves_the_lock_taken_since(world: World) -> None:
    world.set_ring("a")
    a = world.node("a")
    assert a.contains(b"b0")
    world.set_ring("a", "b")
    a.contains(b"b0")
    late = a.step()
    assert late is not None
    late.failed(RedisUnavailable("timed out"), world.now)  # It is on its way all the same.
    world.now += RETRY
    assert a.loop() == ["locks_release"]
    world.set_ring("a")
    assert a.contains(b"b0")
    a.run(late.command)
    assert world.locks() == {b"b0": "a"}


# --- the heartbeat ------------------------------------------------------------------------------


def test_the_heartbeat_renews_all_in_one_call(world: World) -> None:
    a = world.node("a", ttl=60.0)
    keys = keys_of("a", 900)
    a.select(keys)
    world.now += 50.0
    world.commands.clear()
    a.heartbeat()
    assert world.commands == ["locks_renew"]
    assert all(world.lock_ttl(key) > 59.9 for key in keys)
    world.now += 50.0
    assert a.select(keys) == keys


def test_very_many_are_renewed_in_several_calls() -> None:
    world = World("a")
    a = world.node("a")
    wanted = [(b"%d" % number, 1, 0) for number in range(RENEWED_A_CALL + 1)]
    take = a.book.take(wanted, world.now)
    assert take is not None
    a.book.acquired(take, [n + 1 for n in range(len(wanted))], world.now, world.now)
    a.book.heartbeat(False, world.now)
    sizes = []
    while (step := a.step()) is not None:
        sizes.append(len(step.command.keys) - 3)
        step.done(step.command.read([[], [], []]), world.now, world.now)
    assert sizes == [RENEWED_A_CALL, 1]


def test_a_node_without_locks_held_makes_no_call_at_a_heartbeat(world: World) -> None:
    a = world.node("a")
    a.heartbeat()
    assert world.commands == []


def test_a_renewal_that_failed_is_tried_again_before_the_next_heartbeat(world: World) -> None:
    a = world.node("a", ttl=60.0)
    a.contains(b"a0")
    world.now += 40.0
    a.heartbeat(renewed=False)
    assert a.lose(reached=False) == "locks_renew"
    assert a.book.due() == world.now + RETRY
    world.now += RETRY
    assert a.loop() == ["locks_renew"]
    assert world.lock_ttl(b"a0") > 59.9


def test_a_lock_that_is_gone_is_known_at_the_heartbeat_and_taken_anew(world: World) -> None:
    a = world.node("a")
    lease = a.pin(b"a0")
    first = world.token(b"a0")
    assert a.contains(b"a1")
    world.server.wipe()
    world.now += 1.0
    a.heartbeat()
    assert a.held == set()
    assert lease.lost.is_set()
    with pytest.raises(LeaseLost):
        lease.check()
    assert a.contains(b"a0")
    assert world.token(b"a0") > first


def test_while_no_lock_may_be_taken_none_is_asked_for(world: World) -> None:
    a = world.node("a")
    a.book.heartbeat(False, world.now, "another", held_off=5.0)
    assert a.select(keys_of("a", 3)) == []
    assert a.ask(b"a0") is NO
    assert world.calls() == 0


@pytest.mark.parametrize(("held_off", "put_back"), [(5.0, "0"), (0.0, "")])
def test_a_lock_may_be_put_back_while_none_may_be_taken(
    world: World, held_off: float, put_back: str
) -> None:
    a = world.node("a")
    assert a.contains(b"a0")
    a.book.heartbeat(False, world.now, "another", held_off=5.0)
    a.book.heartbeat(False, world.now, "another", held_off=held_off)
    step = a.step()
    assert step is not None
    # The last are the numbers of the locks that renew.lua may put back.
    assert step.command.arguments[2:6] == (a.session, "a", "another", put_back)


def test_a_lock_past_its_ttl_by_the_nodes_clock_is_not_held(world: World) -> None:
    a = world.node("a", ttl=60.0)
    a.contains(b"a0")
    world.now += 60.0
    assert a.ask(b"a0") is NO
    assert a.ask(b"a1") is TAKE


def test_it_still_has_its_place_until_redis_says_that_it_is_gone(world: World) -> None:
    # Redis got a renewal whose answer was lost, so the lock stands there longer than here.
    a = world.node("a", limit=1, ttl=60.0)
    a.contains(b"a0")
    world.now += 30.0
    a.heartbeat(renewed=False)
    assert a.lose(reached=True) == "locks_renew"
    world.now += 30.0
    assert not a.contains(b"a0")
    assert not a.contains(b"a1")
    assert world.locks() == {b"a0": "a"}
    a.heartbeat()
    assert a.contains(b"a0")
    assert a.held == {b"a0"}


def test_the_deadline_counts_from_before_the_call(world: World) -> None:
    a = world.node("a", ttl=60.0)
    take = a.take(b"a0")
    assert take is not None
    sent = world.now
    world.now += 5.0
    answers = a.run(take.command)
    world.now += 5.0
    a.book.acquired(take, answers, sent, world.now)
    assert a.book.held[b"a0"].deadline == sent + 60.0
    a.book.heartbeat(False, world.now)
    step = a.step()
    assert step is not None
    sent = world.now
    world.now += 5.0
    reply = a.run(step.command)
    step.done(reply, sent, world.now)
    assert a.book.held[b"a0"].deadline == sent + 60.0


# --- a failover that brings back what was let go of -----------------------------------------------


def moved(world: World, gap: float) -> tuple[Node, Node, object]:
    """A node has let go of a lock, and another one has the key.

    The two nodes, and the data of when the first one had it.
    """
    world.set_ring("a")
    a, b = world.node("a", limit=3), world.node("b")
    a.beat()
    b.beat()
    assert a.contains(b"b0")
    before = world.server.copy()
    world.now += gap
    world.set_ring("a", "b")
    assert not a.contains(b"b0")
    a.loop()
    b.pin(b"b0")
    world.set_ring("a")
    world.now += gap
    return a, b, before


def brought_back(world: World, gap: float = 1.0) -> tuple[Node, Node, int]:
    """A failover brings back a lock that a node let go of, while another one has the key.

    The two nodes, and the token of the other.
    """
    a, b, before = moved(world, gap)
    of_other = world.token(b"b0")
    world.server.restore(before)
    assert world.locks()[b"b0"] == "a"
    return a, b, of_other


def looks_and_reads_it_late(a: Node, seconds: float) -> None:
    """The loop asks what came of calls, and the process is paused before it reads the answer."""
    look, sent = a.step(), a.world.now
    assert look is not None
    reply = a.run(look.command)
    a.world.now += seconds
    look.done(reply, sent, a.world.now)


def taken_after_the_wait(a: Node) -> int:
    """The token of the key when it may be taken again, and before that nobody takes it."""
    assert not a.contains(b"b0")
    a.world.now += a.beat()
    a.loop()
    assert a.contains(b"b0")
    token = a.book.held[b"b0"].token
    assert token == a.world.token(b"b0")
    return token


def test_a_lock_that_a_failover_brought_back_is_taken_anew_under_a_greater_token(
    world: World,
) -> None:
    a, _, of_other = brought_back(world)
    assert not a.contains(b"b0")
    assert a.book.busy(b"b0")  # `hold` waits for it.
    assert a.loop() == ["locks_release"]
    assert taken_after_the_wait(a) > of_other
    assert a.book.count == 1


@pytest.mark.parametrize("reached", [True, False])
@pytest.mark.parametrize("known", [False, True], ids=["", "known"])
@pytest.mark.parametrize("torn", [False, True], ids=["", "torn"])
@pytest.mark.parametrize("times", [(1.0, 0.0), (1.0, 10.0), (0.3, 0.0), (0.3, 2.0)])
def test_it_is_taken_anew_whenever_and_however_a_call_about_it_is_left_unanswered(
    world: World, times: tuple[float, float], torn: bool, known: bool, reached: bool
) -> None:
    gap, paused = times
    a, _, of_other = brought_back(world, gap)
    if known:
        a.beat()
    a.interrupt(a.take(b"b0"), reached=reached)
    if torn:
        a.book.mend()
    looks_and_reads_it_late(a, paused)
    assert not a.contains(b"b0")
    assert a.loop() == ["locks_release"]
    assert taken_after_the_wait(a) > of_other
    assert a.book.count == 1


def test_it_is_taken_anew_if_its_node_learns_of_the_failover_before_the_answer(
    world: World,
) -> None:
    a, _, of_other = brought_back(world)
    a.interrupt(a.take(b"b0"), reached=True)
    look = a.step()
    assert look is not None
    a.beat()
    look.done(a.run(look.command), world.now, world.now)
    assert a.loop() == ["locks_release"]
    assert taken_after_the_wait(a) > of_other


def test_it_is_not_taken_for_that_of_a_call_that_was_given_up_and_is_answered_late(
    world: World,
) -> None:
    a, b, before = moved(world, 0.3)
    late = a.take(b"b0")
    a.interrupt(late, reached=False)
    assert a.loop() == ["locks_look"]
    world.server.restore(before)
    a.arrive(late)
    looks_and_reads_it_late(a, 2.0)
    assert a.loop() == ["locks_release"]
    assert (a.held, b.held) == (set(), {b"b0"})


def test_no_two_nodes_hold_its_key_after_the_clock_was_set_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    a = world.node("a")
    a.beat()
    assert a.contains(b"a0")
    # From now on tokens count on from the last, ahead of the clock.
    monkeypatch.setattr(bookworld, "START", bookworld.START - 3600)
    a, b, _ = brought_back(world)
    a.interrupt(a.take(b"b0"), reached=True)
    assert a.loop() == ["locks_look", "locks_release"]
    assert (a.held, b.held) == (set(), {b"b0"})


@pytest.mark.parametrize("torn", [False, True], ids=["", "torn"])
def test_after_a_failover_lost_answers_cost_no_locks_once_a_lock_was_taken(
    world: World, torn: bool
) -> None:
    a = world.node("a")
    a.beat()
    world.server.restore(world.server.copy())
    world.now += a.beat()
    assert a.contains(b"a0")
    a.interrupt(a.take(b"a1"), reached=True)
    if torn:
        a.book.mend()
    assert a.loop() == ["locks_look"]
    assert a.contains(b"a1")


def test_what_waits_for_a_lock_that_a_failover_brought_back_is_told_that_it_is_free(
    world: World,
) -> None:
    world.set_ring("a")
    a = world.node("a")
    assert a.contains(b"b0")
    before = world.server.copy()
    world.set_ring("a", "b")
    assert not a.contains(b"b0")
    a.loop()
    world.now += 1
    world.server.restore(before)
    b = world.node("b")
    assert not b.contains(b"b0")
    world.set_ring("a", tell="a")
    assert not a.contains(b"b0")
    a.loop()
    b.loop()
    assert b.contains(b"b0")
    assert not a.contains(b"b0")


# --- answers that are lost ----------------------------------------------------------------------


@pytest.mark.parametrize("reached", [True, False])
def test_what_came_of_a_call_without_an_answer_is_found_out(world: World, reached: bool) -> None:
    a = world.node("a", limit=2, ttl=60.0)
    a.fail(a.take(b"a0", b"a1"), reached=reached)
    assert a.ask(b"a0") is NO
    assert a.ask(b"a2") is NO
    assert not a.book.limit.full
    assert a.loop() == ["locks_look"]
    assert a.held == ({b"a0", b"a1"} if reached else set())
    assert a.contains(b"a0")
    assert a.contains(b"a1")
    assert a.book.held[b"a0"].deadline <= world.now + world.lock_ttl(b"a0")
    assert a.book.held[b"a0"].token == world.token(b"a0")
    assert not a.contains(b"a2")


def test_while_redis_does_not_answer_it_is_not_asked_for_each_key(world: World) -> None:
    a = world.node("a")
    a.fail(a.take(b"a0"), reached=False)
    assert [a.ask(key) for key in keys_of("a", 100)] == [NO] * 100
    a.lose(reached=False)
    assert a.step() is None
    assert a.book.due() == world.now + RETRY
    assert not a.book.busy(b"a0")  # Nobody should wait for this.
    world.now += RETRY
    a.loop()
    assert a.contains(b"a1")


@pytest.mark.parametrize("reached", [True, False])
def test_a_caller_that_is_interrupted_leaves_its_own_keys_in_doubt_and_no_others(
    world: World, reached: bool
) -> None:
    a = world.node("a")
    a.interrupt(a.take(b"a0"), reached=reached)
    assert a.ask(b"a0") is NO
    assert a.select([b"a0", b"a1"]) == [b"a1"]
    assert a.contains(b"a2")
    assert a.loop() == ["locks_look"]
    assert a.held == {b"a1", b"a2"} | ({b"a0"} if reached else set())
    assert a.contains(b"a0")


def test_what_interrupted_callers_may_have_taken_counts_until_it_is_known(world: World) -> None:
    a = world.node("a", limit=3)
    a.interrupt(a.take(b"a0", b"a1"), reached=True)
    assert a.select([b"a2", b"a3"]) == [b"a2"]
    assert a.book.count == 3
    assert not a.book.limit.full  # Places are kept, and may turn out to be free.
    a.loop()
    assert a.held == {b"a0", b"a1", b"a2"}
    assert set(world.locks()) == a.held


def test_all_doubts_are_resolved_by_one_call(world: World) -> None:
    a = world.node("a", limit=5)
    for number in range(5):
        a.interrupt(a.take(f"a{number}".encode()), reached=number % 2 == 0)
    assert a.loop() == ["locks_look"]
    assert a.held == {b"a0", b"a2", b"a4"}
    assert a.book.count == 3


def test_very_many_doubts_are_resolved_a_few_thousand_keys_a_call(world: World) -> None:
    world.set_ring("a")
    a = world.node("a")
    some = [keys_of(name, LOCKS_A_CALL // 2) for name in "ab"] + [[b"c0"]]
    for keys in some:
        a.interrupt(a.take(*keys), reached=True)
    assert a.loop() == ["locks_look"] * 2
    assert a.held == {key for keys in some for key in keys}


def test_callers_that_are_interrupted_all_the_time_do_not_keep_locks_from_being_renewed(
    world: World,
) -> None:
    a = world.node("a")
    assert a.contains(b"a0")
    a.heartbeat(renewed=False)
    done = []
    for number in range(1, 4):
        a.interrupt(a.take(f"a{number}".encode()), reached=True)
        step = a.step()
        assert step is not None
        done.append(step.command.script.name)
        step.done(a.run(step.command), world.now, world.now)
    assert done == ["locks_look", "locks_renew", "locks_look"]


def test_when_redis_does_not_tell_what_came_of_an_interrupted_call_it_is_not_asked_for_more(
    world: World,
) -> None:
    a = world.node("a")
    a.interrupt(a.take(b"a0"), reached=True)
    assert a.lose(reached=False) == "locks_look"
    assert [a.ask(key) for key in keys_of("a", 100)] == [NO] * 100
    assert a.ask_many([(b"a5", point(b"a5"), 0)]) == ([], [])
    world.now += RETRY
    assert a.loop() == ["locks_look"]
    assert a.held == {b"a0"}
    assert a.contains(b"a1")


def test_an_interrupted_caller_does_not_hide_that_redis_does_not_answer(world: World) -> None:
    a = world.node("a")
    lost, left_alone = a.take(b"a0"), a.take(b"a1")
    a.fail(lost, reached=False)
    a.interrupt(left_alone, reached=False)
    assert a.ask(b"a2") is NO
    a.loop()
    assert a.contains(b"a2")


def test_a_node_whose_user_was_interrupted_while_resolving_doubts_resolves_them_at_a_heartbeat(
    world: World,
) -> None:
    a = world.node("a")
    a.interrupt(a.take(b"a0"), reached=True)
    assert a.step() is not None  # A signal handler raised: nobody tells how it went.
    assert a.loop() == []
    a.heartbeat()
    assert a.held == {b"a0"}


def test_a_key_is_busy_while_it_is_found_out_what_came_of_an_interrupted_call(
    world: World,
) -> None:
    a = world.node("a")
    a.interrupt(a.take(b"a0"), reached=True)
    assert a.book.busy(b"a0")
    assert a.book.in_doubt(b"a0")
    a.loop()
    assert not a.book.busy(b"a0")
    assert not a.book.in_doubt(b"a0")


def test_a_key_is_in_doubt_but_not_busy_while_redis_does_not_answer(world: World) -> None:
    a = world.node("a")
    a.fail(a.take(b"a0"), reached=True)
    assert a.book.in_doubt(b"a0")
    assert not a.book.busy(b"a0")


@pytest.mark.parametrize(("seconds", "outdated"), [(None, True), (5.0, False)])
def test_a_heartbeat_learns_for_how_long_no_lock_may_be_taken_when_the_answer_does_not_say(
    world: World, seconds: float | None, outdated: bool
) -> None:
    a = world.node("a")
    take = a.take(b"a0")
    assert take is not None
    a.book.acquired(take, [HeldOff(seconds)], world.now, world.now)
    assert a.book.due_calls.outdated is outdated


def test_a_key_that_redis_refused_is_not_in_doubt_for_who_waits(world: World) -> None:
    a = world.node("a")
    a.fail(a.take(b"a0"), reached=False, refusal=WrongKeyType("the counter is a list"))
    assert not a.book.in_doubt(b"a0")


def test_why_redis_refuses_to_take_locks_is_known_until_it_takes_some(world: World) -> None:
    a = world.node("a")
    refusal = WrongKeyType("the counter is a list")
    a.fail(a.take(b"a0"), reached=False, refusal=refusal)
    assert a.book.error is refusal
    assert a.loop() == ["locks_look"]  # Which is not refused.
    assert a.book.error is refusal
    assert a.contains(b"a0")
    assert a.book.error is None


def test_a_refusal_is_forgotten_when_nobody_has_asked_for_a_while(world: World) -> None:
    a = world.node("a", idle=60.0)
    a.fail(a.take(b"a0"), reached=False, refusal=WrongKeyType("the counter is a list"))
    world.now += 60.0
    a.heartbeat()
    assert a.book.error is not None
    world.now += 1.0
    a.heartbeat()
    assert a.book.error is None


def test_an_answer_that_comes_after_it_was_given_up_is_looked_into(world: World) -> None:
    a = world.node("a", limit=1, ttl=60.0)
    take = a.take(b"a0")
    assert take is not None
    world.now += 61.0  # The thread that took it stands still.
    a.heartbeat()
    assert a.book.count == 0
    answers = a.run(take.command)
    a.book.acquired(take, answers, world.now, world.now)
    assert a.held == set()
    assert a.loop() == ["locks_look"]
    assert a.contains(b"a0")
    assert a.book.count == 1


def test_a_late_answer_about_a_key_that_another_had_in_between_is_looked_into() -> None:
    world, _, b = held_by_a_far_inheritor()
    slow = b.take(b"c1")
    assert slow is not None
    b.fail(slow, reached=False)
    b.loop()
    assert not b.contains(b"c1")
    world.server.drop(KEYS.lock(b"c1"))
    b.book.acquired(slow, b.run(slow.command), world.now, world.now)
    assert b.loop() == ["locks_look"]
    assert b"c1" in b.held


def test_a_late_answer_that_tells_nothing_new_takes_no_place(world: World) -> None:
    a = world.node("a", limit=2, ttl=60.0)
    take = a.take(b"a0", b"a1")
    assert take is not None
    world.now += 61.0
    a.heartbeat(renewed=False)
    answers = a.run(take.command)
    assert a.loop() == ["locks_look"]
    assert a.held == {b"a0", b"a1"}
    a.book.acquired(take, answers, world.now, world.now)
    assert a.book.count == 2
    assert a.loop() == []


def test_of_what_two_calls_took_no_more_is_held_than_the_limit(world: World) -> None:
    a = world.node("a", limit=1)
    late = a.take(b"a0")
    assert late is not None
    a.interrupt(late, reached=False)
    a.loop()
    a.run(late.command)
    a.interrupt(a.take(b"a1", b"a0"), reached=True)
    a.loop()
    assert a.held == {b"a1"}
    assert not a.book.in_doubt(b"a0")


def test_what_a_late_answer_tells_of_is_not_held_beyond_the_limit(world: World) -> None:
    a = world.node("a", limit=2, ttl=60.0)
    take = a.take(b"a0", b"a1")
    assert take is not None
    world.now += 61.0
    a.heartbeat()  # It was not done yet, and its places are others'.
    assert a.select([b"a2"]) == [b"a2"]
    answers = a.run(take.command)
    a.book.acquired(take, answers, world.now, world.now)
    assert a.book.count == 2
    assert a.loop() == ["locks_look"]
    assert a.held == {b"a0", b"a2"}
    # The other is in no book, and nobody renews it.
    assert world.locks() == dict.fromkeys([b"a0", b"a1", b"a2"], "a")
    world.now += 30.0
    a.heartbeat()
    world.now += 31.0
    assert b"a1" not in world.locks()


def test_a_caller_that_never_comes_back_does_not_keep_its_places(world: World) -> None:
    a = world.node("a", limit=1, ttl=60.0)
    a.take(b"a0")
    assert not a.contains(b"a1")
    world.now += 61.0
    a.heartbeat()
    assert a.contains(b"a1")


def test_two_answers_about_one_lock_make_one_hold(world: World) -> None:
    a = world.node("a", ttl=60.0)
    slow = a.take(b"a0")
    assert slow is not None
    answers = a.run(slow.command)
    world.now += 61.0
    a.heartbeat()
    lease = a.pin(b"a0")
    a.book.acquired(slow, answers, world.now, world.now)
    a.loop()
    assert a.book.held[b"a0"].lease is lease
    assert a.book.count == 1


def late_answer(world: World) -> tuple[Node, Callable[[], None]]:
    """b0 is held by a, from a call that was given up; the other lets its answer arrive."""
    world.set_ring("a")
    a = world.node("a")
    slow = a.take(b"b0")
    a.fail(slow, reached=True)
    a.loop()
    assert slow is not None
    assert a.contains(b"b0")
    return a, lambda: a.book.acquired(slow, [1], world.now, world.now)


def test_a_lock_whose_release_is_under_way_is_not_held_by_a_late_answer(world: World) -> None:
    a, arrive = late_answer(world)
    world.set_ring("a", "b")
    assert not a.contains(b"b0")
    assert a.lose(reached=False) == "locks_release"
    arrive()
    step = a.step()
    assert step is not None
    step.done(a.run(step.command), world.now, world.now)
    assert a.held == set()
    world.now += RETRY
    a.loop()
    assert world.locks() == {}


def test_a_release_that_was_answered_does_not_stand_for_a_later_one(world: World) -> None:
    a, arrive = late_answer(world)
    world.set_ring("a", "b")
    assert not a.contains(b"b0")
    release = a.step()
    assert release is not None
    answer = a.run(release.command)
    # The late call did take the lock once more, behind the release.
    world.now += 1.0
    world.server.run(
        acquire(KEYS, node="a", session=a.session, ttl=60.0, locked=[b"b0"], most=1, awaited=1)
    )
    arrive()
    look = a.step()
    assert look is not None
    look.done(a.run(look.command), world.now, world.now)
    assert a.held == {b"b0"}
    assert not a.contains(b"b0")
    release.done(answer, world.now, world.now)
    assert a.loop() == ["locks_release"]
    assert world.locks() == {}


def test_locks_taken_under_a_lost_name_are_not_held(world: World) -> None:
    a = world.node("a", limit=1)
    take = a.take(b"a0")
    assert take is not None
    answers = a.run(take.command)
    a.begin()
    a.book.acquired(take, answers, world.now, world.now)
    assert a.held == set()
    assert a.book.count == 0
    assert not a.contains(b"a0")
    assert a.book.holder(b"a0") == "a"


def test_what_a_call_took_that_failed_under_a_lost_name_is_let_go(world: World) -> None:
    a = world.node("a", limit=1)
    take = a.take(b"a0")
    a.begin()
    a.fail(take, reached=True)
    assert a.book.count == 0
    assert a.loop() == ["locks_look", "locks_release"]
    assert world.locks() == {}


# --- leaving ------------------------------------------------------------------------------------


def left(node: Node) -> list[str]:
    done = []
    while (step := node.book.leave(node.world.now)) is not None:
        done.append(step.command.script.name)
        step.done(node.run(step.command), node.world.now, node.world.now)
    return done


def test_a_node_that_leaves_lets_go_of_everything(world: World) -> None:
    a = world.node("a")
    a.select(keys_of("a", 10))
    assert left(a) == ["locks_release"]
    assert world.locks() == {}
    assert a.held == set()


def test_a_node_that_has_left_refuses_nothing_any_more(world: World) -> None:
    a, _ = overflowing(world)
    a.heartbeat()
    assert (a.book.limit.refused, a.book.limit.full) == (2, True)
    a.book.leave(world.now)
    assert (a.book.limit.refused, a.book.limit.unserved, a.book.limit.full) == (0, 0, False)


def test_a_node_that_leaves_finds_out_what_it_may_have(world: World) -> None:
    a = world.node("a")
    a.fail(a.take(b"a0", b"a1"), reached=True)
    assert left(a) == ["locks_look", "locks_release"]
    assert world.locks() == {}


def test_an_answer_that_comes_while_the_node_leaves_is_let_go(world: World) -> None:
    a = world.node("a")
    take = a.take(b"a0")
    assert left(a) == []
    a.arrive(take)
    assert a.book.left
    assert a.held == set()
    assert a.loop() == ["locks_release"]
    assert world.locks() == {}


def over(node: Node) -> list[str]:
    """Redis has heard that the session has ended: what the node does then."""
    node.book.session_ended(node.world.now)
    return left(node)


def test_what_a_call_took_is_let_go_although_its_caller_never_comes(world: World) -> None:
    a = world.node("a")
    take = a.take(b"a0", b"a1")
    assert take is not None
    a.run(take.command)
    assert left(a) == []
    assert over(a) == ["locks_look", "locks_release"]
    assert world.locks() == {}
    assert over(a) == ["locks_look"]


def test_an_answer_that_comes_after_the_lock_was_let_go_is_no_lock(world: World) -> None:
    a = world.node("a")
    take = a.take(b"a0")
    assert take is not None
    answers = a.run(take.command)
    left(a)
    over(a)
    a.book.acquired(take, answers, world.now, world.now)
    assert a.held == set()
    a.loop()
    assert world.locks() == {}
    assert a.step() is None


@pytest.mark.parametrize("end", ["fail", "interrupt"])
def test_a_call_that_was_on_its_way_while_redis_was_asked_about_it_leaves_no_lock(
    world: World, end: str
) -> None:
    a = world.node("a", ttl=60.0)
    take = a.take(b"a0", b"a1")
    assert take is not None
    getattr(a, end)(take, reached=False)
    assert a.loop() == ["locks_look"]
    a.run(take.command)
    world.now += 59.0
    a.heartbeat()
    assert left(a) == []
    assert over(a) == ["locks_look", "locks_release"]
    assert world.locks() == {}


def test_of_a_call_that_was_given_up_long_ago_nothing_is_asked(world: World) -> None:
    a = world.node("a", ttl=60.0)
    a.interrupt(a.take(b"a0"), reached=False)
    a.loop()
    world.now += 120.0
    a.heartbeat()
    assert left(a) + over(a) == []


def test_locks_for_which_there_was_no_place_are_let_go_when_the_node_leaves(world: World) -> None:
    a = world.node("a", limit=2)
    late = a.take(b"a0", b"a1")
    assert late is not None
    a.interrupt(late, reached=False)
    a.loop()
    a.select([b"a2", b"a3"])
    a.arrive(late)
    a.loop()
    assert len(world.locks()) == 4
    assert left(a) == ["locks_release"]
    assert over(a) == ["locks_look", "locks_release"]
    assert world.locks() == {}


def test_the_lock_of_a_lease_whose_work_goes_on_stands_whatever_became_of_calls(
    world: World,
) -> None:
    a = world.node("a")
    a.interrupt(a.take(b"a0"), reached=False)
    a.loop()
    lease = a.pin(b"a0")
    assert left(a) == []
    assert over(a) == ["locks_look"]
    assert world.locks() == {b"a0": "a"}
    a.unpin(lease)
    assert a.loop() == ["locks_release"]
    assert world.locks() == {}


def test_many_keys_of_calls_are_looked_at_a_few_thousand_a_call(world: World) -> None:
    world.set_ring("a")
    a = world.node("a")
    keys = keys_of("a", 2 * LOCKS_A_CALL)
    for some in (keys[:LOCKS_A_CALL], keys[LOCKS_A_CALL:]):
        take = a.take(*some)
        assert take is not None
        a.run(take.command)
    assert over(a) == ["locks_look"] * 2 + ["locks_release"] * 2
    assert world.locks() == {}


def test_a_lease_is_lost_when_its_node_leaves_but_its_lock_stands_until_it_is_done(
    world: World,
) -> None:
    a = world.node("a")
    lease = a.pin(b"a0")
    left(a)
    assert lease.lost.is_set()
    assert lease.revoked.is_set()
    assert world.locks() == {b"a0": "a"}
    assert a.unpin(lease)
    assert a.loop() == ["locks_release"]
    assert world.locks() == {}


def test_the_end_of_work_lets_go_of_its_lock_also_after_the_handoff_time(world: World) -> None:
    a = world.node("a", ttl=60.0, max_handoff_time=5.0)
    lease = a.pin(b"a0")
    left(a)
    world.now += 6.0
    assert a.loop() == []  # As another caller lets go of its own locks.
    assert world.locks() == {b"a0": "a"}
    assert a.unpin(lease)
    assert a.loop() == ["locks_release"]
    assert world.locks() == {}


def test_a_node_that_leaves_while_redis_is_silent_leaves_all_the_same(world: World) -> None:
    a = world.node("a")
    a.select(keys_of("a", 10))
    a.fail(a.take(b"a20"), reached=True)
    step = a.book.leave(world.now)
    assert step is not None
    a.book.forget_releases()
    assert a.book.leave(world.now) is None


def test_what_a_call_may_have_taken_is_not_looked_for_once_redis_is_silent(world: World) -> None:
    a = world.node("a")
    a.take(b"a0")
    assert left(a) == []
    assert a.book.session_ended(world.now)
    a.book.forget_releases()
    assert left(a) == []


def test_a_node_that_has_begun_anew_forgets_no_release(world: World) -> None:
    a = world.node("a", limit=2, idle=10.0)
    a.book.leave(world.now)
    a.begin()
    a.select(keys_of("a", 2))
    world.now += 11.0
    a.heartbeat(renewed=False)
    # Whoever let go of locks while the node left is told only now that Redis did not answer.
    a.book.forget_releases()
    assert a.book.count == 2
    assert "locks_release" in a.loop()
    assert world.locks() == {}


def test_after_a_restart_nothing_is_left_of_the_session_before(world: World) -> None:
    a = world.node("a", limit=3)
    a.select(keys_of("a", 9))
    assert a.book.limit.full
    while (step := a.book.leave(world.now)) is not None:
        step.done(a.run(step.command), world.now, world.now)
    a.begin()
    book, limit = a.book, a.book.limit
    assert (book.count, limit.full, limit.refused, book.due()) == (0, False, 0, float("inf"))
    assert a.step() is None


# --- leases -------------------------------------------------------------------------------------


def test_a_lease_has_the_locks_token_and_deadline(world: World) -> None:
    a = world.node("a", ttl=60.0)
    lease = a.pin(b"a0")
    assert (lease.key, lease.token) == (b"a0", world.token(b"a0"))
    assert lease.deadline == world.now + 60.0
    lease.check()
    world.now += 20.0
    a.heartbeat()
    assert lease.deadline == world.now + 60.0


def test_a_leased_key_is_not_let_go_for_being_idle(world: World) -> None:
    a = world.node("a", idle=30.0)
    lease = a.pin(b"a0")
    for _ in range(10):
        world.now += 20.0
        a.heartbeat()
    assert world.locks() == {b"a0": "a"}
    lease.check()
    assert not a.unpin(lease)
    assert a.contains(b"a0")  # Like any other key from now on.
    world.now += 31.0
    a.heartbeat()
    assert world.locks() == {}


def test_a_hold_inside_a_hold_is_the_same_lease(world: World) -> None:
    a = world.node("a")
    lease = a.pin(b"a0")
    again = a.pin_again(b"a0")
    assert again is lease
    assert not a.unpin(lease)
    world.set_ring("b")
    assert lease.revoked.is_set()
    # Inside it is the same lease even when it has been asked to finish.
    assert a.pin_again(b"a0") is lease
    a.unpin(lease)
    assert world.locks() == {b"a0": "a"}
    assert a.unpin(lease)
    a.loop()
    assert world.locks() == {}


def test_the_check_of_a_lease_says_that_the_last_of_its_blocks_has_ended(world: World) -> None:
    a = world.node("a")
    lease = a.pin(b"a0")
    a.pin_again(b"a0")
    a.unpin(lease)
    lease.check()  # The other block goes on.
    a.unpin(lease)
    with pytest.raises(LeaseLost, match="the block of the lease has ended"):
        lease.check()
    # It does not last again with a later one, nor is it lost.
    later = a.pin(b"a0")
    later.check()
    with pytest.raises(LeaseLost, match="the block of the lease has ended"):
        lease.check()
    assert not lease.lost.is_set()


def test_a_key_without_a_lease_has_none_to_be_held_by_again(world: World) -> None:
    a = world.node("a")
    a.contains(b"a0")
    assert a.pin_again(b"a0") is None
    assert a.pin_again(b"a1") is None


def test_a_lease_past_its_deadline_is_lost_by_the_clock_alone(world: World) -> None:
    a = world.node("a", ttl=60.0)
    lease = a.pin(b"a0")
    world.now += 60.0
    assert not lease.lost.is_set()  # Nobody has looked yet.
    with pytest.raises(LeaseLost) as caught:
        lease.check()
    assert (caught.value.key, caught.value.token) == ("a0", lease.token)
    assert str(caught.value) == (
        f"key 'a0' is not held: the lease has expired; its token {lease.token} may be refused "
        "from now on"
    )
    assert a.pin_again(b"a0") is None
    assert a.book.pin(b"a0", lambda: world.now, object, LeaseHolder()) is None


def test_the_loop_notices_a_lease_past_its_deadline_and_lets_go(world: World) -> None:
    a = world.node("a", ttl=60.0)
    lease = a.pin(b"a0")
    world.now += 30.0
    a.heartbeat(renewed=False)
    a.lose(reached=True)
    deadline = lease.deadline
    assert a.book.due() <= deadline
    world.now = deadline
    assert "locks_release" in a.loop()
    assert lease.lost.is_set()
    assert world.locks() == {}
    with pytest.raises(LeaseLost, match="the lease was lost"):
        lease.check()


def test_a_key_that_moved_between_the_question_and_the_pin_is_let_go(world: World) -> None:
    a, b = world.node("a"), world.node("b")
    assert a.contains(b"a0")
    world.set_ring("b")
    assert a.book.pin(b"a0", lambda: world.now, threading.Event, LeaseHolder()) is None
    assert "locks_release" in a.loop()
    assert b.contains(b"a0")


def test_a_lease_on_a_key_that_the_ring_moved_is_asked_to_finish(world: World) -> None:
    a, b = world.node("a"), world.node("b")
    lease = a.pin(b"a0")
    world.set_ring("b")
    assert lease.revoked.is_set()
    assert not lease.lost.is_set()
    lease.check()
    assert not a.contains(b"a0")
    assert not b.contains(b"a0")
    assert b.book.holder(b"a0") == "a"
    assert a.unpin(lease)
    a.loop()
    b.deliver()
    assert b.contains(b"a0")


def test_a_lease_is_not_asked_to_finish_because_its_node_cannot_renew_for_a_while(
    world: World,
) -> None:
    a = world.node("a")
    lease = a.pin(b"a0")
    a.until = world.now  # Fenced: the machine shows the book no ring.
    assert not lease.revoked.is_set()
    lease.check()


def test_a_revoked_lease_is_not_renewed_past_the_handoff_time(world: World) -> None:
    a, b = world.node("a", ttl=60.0, max_handoff_time=100.0), world.node("b")
    lease = a.pin(b"a0")
    world.set_ring("b")
    end = world.now + 100.0
    for _ in range(9):
        world.now += 10.0
        a.heartbeat()
        lease.check()
        assert lease.deadline <= end
        assert world.lock_ttl(b"a0") <= end - world.now + MS
    world.now = end
    a.loop()
    assert lease.lost.is_set()
    assert b.contains(b"a0")


def test_a_short_handoff_time_shortens_the_lock_at_once(world: World) -> None:
    a = world.node("a", ttl=60.0, max_handoff_time=5.0)
    a.contains(b"a1")
    lease = a.pin(b"a0")
    world.set_ring("b")
    assert lease.deadline == world.now + 5.0
    assert a.book.due() <= world.now
    assert a.loop() == ["locks_renew"]
    assert world.lock_ttl(b"a0") <= 5.0 + MS
    assert world.lock_ttl(b"a1") > 59.0


def test_a_lease_never_believes_in_a_lock_that_was_shortened(world: World) -> None:
    a, b = world.node("a", ttl=60.0, max_handoff_time=5.0), world.node("b")
    lease = a.pin(b"a0")
    world.set_ring("b")
    a.lose(reached=True)  # Redis has shortened the lock, and the node does not hear of it.
    world.now += 5.0 + MS
    assert b.contains(b"a0")
    with pytest.raises(LeaseLost):
        lease.check()


def test_a_renewal_on_its_way_does_not_lengthen_a_lease_revoked_since(world: World) -> None:
    a = world.node("a", ttl=60.0, max_handoff_time=5.0)
    lease = a.pin(b"a0")
    a.book.heartbeat(False, world.now)
    step = a.step()
    assert step is not None
    world.set_ring("b")
    step.done(a.run(step.command), world.now, world.now)
    assert lease.deadline == world.now + 5.0
    assert a.loop() == ["locks_renew"]
    assert world.lock_ttl(b"a0") <= 5.0 + MS


def test_leaving_a_lease_that_was_lost_does_not_touch_the_one_that_follows(world: World) -> None:
    a = world.node("a", ttl=60.0)
    old = a.pin(b"a0")
    world.server.wipe()
    world.now += 1.0
    a.heartbeat()
    new = a.pin(b"a0")
    assert new.token > old.token
    a.unpin(old)
    assert a.loop() == []
    assert world.locks() == {b"a0": "a"}
    # The loop still looks after the new one.
    assert a.book.due() <= new.deadline
    world.set_ring("b")
    assert new.revoked.is_set()


@pytest.mark.parametrize("leaves", [True, False], ids=["stopped and started", "lost its name"])
def test_a_lease_of_an_earlier_session_lets_go_of_its_lock_with_the_last_of_its_blocks(
    world: World, leaves: bool
) -> None:
    a = world.node("a")
    lease = a.pin(b"a0")
    a.pin_again(b"a0")
    if leaves:
        left(a)
    session = a.session
    a.begin()
    assert lease.lost.is_set()
    assert a.take(b"a0") is not None
    a.unpin(lease)
    assert a.loop() == []
    # Work on the key may go on.
    assert world.server.locks(KEYS)[b"a0"][1] == session
    assert a.unpin(lease)
    assert a.loop() == ["locks_release"]
    assert world.locks() == {}


def test_a_new_session_knows_of_no_failure_of_the_one_before(world: World) -> None:
    a = world.node("a")
    lease = a.pin(b"a0")
    a.begin()
    a.unpin(lease)
    a.lose(reached=False)
    assert a.book.error is not None
    a.begin()
    assert a.book.error is None


def test_a_release_for_an_earlier_session_that_failed_is_tried_again(world: World) -> None:
    a = world.node("a")
    lease = a.pin(b"a0")
    a.begin()
    a.unpin(lease)
    assert a.lose(reached=False) == "locks_release"
    assert a.step() is None
    world.now += RETRY
    assert a.loop() == ["locks_release"]
    assert world.locks() == {}


def test_a_release_for_an_earlier_session_outlasts_the_next_one(world: World) -> None:
    a = world.node("a")
    lease = a.pin(b"a0")
    a.begin()
    a.unpin(lease)
    a.lose(reached=False)
    a.begin()
    assert a.loop() == ["locks_release"]
    assert world.locks() == {}


def test_what_a_call_of_an_earlier_session_took_is_let_go(world: World) -> None:
    a = world.node("a")
    take = a.take(b"a0", b"a1")
    a.begin()
    a.arrive(take)
    assert a.held == set()
    assert a.loop() == ["locks_release"]
    assert world.locks() == {}


def test_what_an_interrupted_call_of_an_earlier_session_took_is_let_go(world: World) -> None:
    a = world.node("a")
    a.interrupt(a.take(b"a0"), reached=True)
    a.begin()
    assert a.loop() == ["locks_look", "locks_release"]
    assert world.locks() == {}
    assert a.contains(b"a0")


def test_a_call_that_was_given_up_and_ends_in_another_session_ends_no_open_block(
    world: World,
) -> None:
    a = world.node("a")
    take = a.take(b"a0")
    a.interrupt(take, reached=True)
    a.loop()
    lease = a.pin(b"a0")
    a.begin()
    a.interrupt(take, reached=False)
    assert a.loop() == []
    assert set(world.locks()) == {b"a0"}
    a.unpin(lease)
    assert a.loop() == ["locks_release"]


def test_doubts_of_an_earlier_session_are_looked_into_again_where_that_was_interrupted(
    world: World,
) -> None:
    a = world.node("a")
    a.interrupt(a.take(b"a0"), reached=True)
    a.begin()
    assert a.step() is not None  # A signal handler raised: nobody tells how it went.
    assert a.loop() == []
    a.heartbeat()
    a.loop()
    assert world.locks() == {}


def test_doubts_of_an_earlier_session_outlast_a_silent_redis_and_the_next_session(
    world: World,
) -> None:
    a = world.node("a")
    keys = keys_of("a", LOCKS_A_CALL + 1)
    a.interrupt(a.take(*keys), reached=True)
    a.begin()
    assert a.lose(reached=False) == "locks_look"
    assert a.step() is None
    a.begin()
    assert a.loop().count("locks_look") == 2
    assert world.locks() == {}


def test_a_session_that_begins_while_another_leaves_lets_go_of_no_lock_of_an_open_block(
    world: World,
) -> None:
    a = world.node("a")
    take = a.take(b"a1")
    a.interrupt(take, reached=False)
    a.loop()  # It has not come to Redis, and may be on its way for long.
    lease = a.pin(b"a1")
    left(a)
    assert a.book.session_ended(world.now)
    a.begin()
    assert "locks_release" not in a.loop()
    assert set(world.locks()) == {b"a1"}
    a.unpin(lease)
    assert a.loop() == ["locks_release"]
    assert world.locks() == {}


def test_a_child_process_has_none_of_the_locks(world: World) -> None:
    a = world.node("a")
    lease = a.pin(b"a0")
    a.contains(b"a1")
    a.book.abandon()
    with pytest.raises(LeaseLost):
        lease.check()
    assert [a.ask(key) for key in (b"a0", b"a1")] == [NO, NO]


# --- the limit ----------------------------------------------------------------------------------


def test_a_node_holds_no_more_than_its_limit_and_says_that_it_is_full(world: World) -> None:
    a = world.node("a", limit=3)
    keys = keys_of("a", 10)
    assert [key for key in keys if a.contains(key)] == keys[:3]
    assert a.book.limit.full
    assert len(world.locks()) == 3
    assert a.select(keys) == keys[:3]


def test_select_takes_up_to_the_limit_in_one_call(world: World) -> None:
    a = world.node("a", limit=3)
    assert a.select(keys_of("a", 500)) == keys_of("a", 3)
    assert world.commands == ["locks_acquire"]
    assert a.select(keys_of("a", 500)) == keys_of("a", 3)
    assert world.commands == ["locks_acquire"]


def test_a_node_at_its_limit_is_not_full_unless_it_refuses(world: World) -> None:
    a = world.node("a", limit=3)
    assert a.select(keys_of("a", 3)) == keys_of("a", 3)
    assert not a.book.limit.full


def test_keys_being_taken_count_but_do_not_make_it_full(world: World) -> None:
    a = world.node("a", limit=3)
    take = a.take(b"a0", b"a1", b"a2")
    assert not a.contains(b"a3")
    assert not a.book.limit.full
    a.fail(take, reached=False)
    assert not a.contains(b"a3")
    assert not a.book.limit.full
    a.loop()
    assert a.contains(b"a3")


def test_keys_being_let_go_count(world: World) -> None:
    world.set_ring("a")
    a = world.node("a", limit=1)
    assert a.contains(b"b0")
    world.set_ring("a", "b")
    assert not a.contains(b"b0")
    assert not a.contains(b"a0")
    assert world.locks() == {b"b0": "a"}
    a.loop()
    assert a.contains(b"a0")


def test_keys_waited_for_count(world: World) -> None:
    world.set_ring("a")
    a, b = world.node("a"), world.node("b", limit=2)
    held = keys_of("b", 5)
    assert a.select(held) == held
    world.set_ring("a", "b")
    assert b.select(held) == []
    # It waits for as many as it has places for, and refuses the rest, which stay where they are.
    assert b.book.waiting == 2
    assert b.book.limit.full
    b.announce()
    for _ in range(5):
        assert a.select(held) == [key for key in held if key in a.held]
        a.loop()
        b.loop()
        b.select(held)
    assert len(b.held) == 2
    assert len(a.held) == 3
    assert not a.held & b.held


def test_room_again_needs_a_tenth_of_the_limit(world: World) -> None:
    a = world.node("a", limit=30)
    a.select(keys_of("a", 40))
    assert a.book.limit.full
    for free in range(1, 4):
        world.server.drop(KEYS.lock(b"a%d" % free))
        a.heartbeat()
        assert len(a.held) == 30 - free
        assert a.book.limit.full is (free < 3)


@pytest.mark.parametrize("locking", [True, False])
def test_room_again_when_nobody_asks_for_more(world: World, locking: bool) -> None:
    a = world.node("a", locking=locking, limit=3, idle=50.0)
    a.select(keys_of("a", 10))
    assert a.book.limit.full
    for _ in range(3):
        world.now += 20.0
        a.select(keys_of("a", 3))
        a.heartbeat()
    assert len(a.held) == 3
    assert not a.book.limit.full


def test_refused_keys_are_counted_for_as_long_as_they_are_asked_for(world: World) -> None:
    a = world.node("a", limit=3, idle=50.0)
    counts = []
    for beat in range(12):
        if beat in (0, 4):
            a.select(keys_of("a", 10))  # A loop slower than the heartbeat.
        else:
            a.select(keys_of("a", 3))
        a.heartbeat()
        counts.append(a.book.limit.refused)
        world.now += 10.0
    assert counts == [7] * 10 + [0] * 2


def test_a_refused_key_that_is_held_after_all_is_not_counted(world: World) -> None:
    a = world.node("a", limit=3)
    a.select(keys_of("a", 4))
    a.heartbeat()
    assert a.book.limit.refused == 1
    world.server.drop(KEYS.lock(b"a0"))
    a.heartbeat()
    assert a.contains(b"a3")
    a.heartbeat()
    assert a.book.limit.refused == 0


def test_a_refused_key_that_moved_away_is_not_counted(world: World) -> None:
    a = world.node("a", limit=3)
    a.select(keys_of("a", 10))
    a.heartbeat()
    assert a.book.limit.refused == 7
    world.set_ring("b")
    a.heartbeat()
    assert a.book.limit.refused == 0


def test_the_memory_of_refused_keys_is_bounded(world: World) -> None:
    world.set_ring("a")
    a = world.node("a", limit=3)
    a.select(keys_of("a", 3))
    for number in range(SPAN, SPAN + REFUSED_COUNTED + 1000):
        assert a.book.ask(b"x%d" % number, number, a.bounds, a.until, world.now) is NO
    assert len(a.book.limit._keys) == LOCKS_A_CALL
    a.heartbeat()
    assert a.book.limit.refused == REFUSED_COUNTED


def test_what_a_full_memory_of_refused_keys_has_is_still_seen_to_be_refused() -> None:
    limit = Limit(3, idle=10.0, locking=False)
    for now in (0.0, 9.0):
        for number in range(REFUSED_COUNTED + 1):
            limit.refuse(b"%d" % number, number, own=True, now=now)
    limit.recount(lambda point: True, everyone_full=False, now=15.0)
    assert limit.refused == REFUSED_COUNTED


def test_without_locks_the_limit_is_kept_and_what_it_refuses_is_unserved(world: World) -> None:
    a = world.node("a", locking=False, limit=3)
    keys = keys_of("a", 10)
    assert [key for key in keys if a.ask(key) is YES] == keys[:3]
    a.heartbeat()
    assert (a.book.limit.refused, a.book.limit.unserved) == (7, 7)
    assert world.commands == []
    world.set_ring("b")
    assert a.ask(b"a0") is NO
    assert b"a0" not in a.held


def test_without_locks_long_keys_are_not_kept_when_they_are_refused(world: World) -> None:
    a = world.node("a", locking=False, limit=1)
    a.ask(b"a0")
    size = 1_000_000
    for number in range(50):
        a.book.ask(b"%d" % number * size, number, a.bounds, a.until, world.now)
    assert sum(sys.getsizeof(key) for key in a.book.limit._keys.values()) == 0


# --- overflow -----------------------------------------------------------------------------------


def overflowing(world: World, limit: int = 3, own: int = 5) -> tuple[Node, Node]:
    """``a`` is full, and b has what it refused."""
    a, b = world.node("a", limit=limit), world.node("b")
    keys = keys_of("a", own)
    assert a.select(keys) == keys[:limit]
    a.loop()
    assert world.full == {"a"}
    assert b.select(keys) == keys[limit:]
    return a, b


def test_what_a_full_node_refuses_is_held_by_who_would_inherit_it(world: World) -> None:
    a, b = overflowing(world)
    assert a.held | b.held == set(keys_of("a", 5))
    assert not a.held & b.held
    a.heartbeat()
    assert (a.book.limit.refused, a.book.limit.unserved) == (2, 0)


def test_an_inheritor_does_not_wait_for_what_the_full_node_holds(world: World) -> None:
    a, b = overflowing(world)
    assert a.inbox == []
    assert b.book.waiting == 0
    calls = world.calls()
    b.select(keys_of("a", 5))
    assert world.calls() == calls
    a.heartbeat()
    assert a.held == set(keys_of("a", 3))


def test_the_nearest_with_room_inherits() -> None:
    world = World("a", "b", "c", "d")
    nodes = {name: world.node(name, limit=2) for name in "abcd"}
    keys = keys_of("c", 8)
    for _ in range(4):
        for node in nodes.values():
            node.select(keys)
            node.loop()
    # The node before c on the circle has the next lower points.
    assert nodes["c"].held == {b"c0", b"c1"}
    assert nodes["b"].held == {b"c2", b"c3"}
    assert nodes["a"].held == {b"c4", b"c5"}
    assert nodes["d"].held == {b"c6", b"c7"}
    assert world.full == {"a", "b", "c"}


def test_no_node_looks_for_refused_keys_once_another_has_room() -> None:
    limit = Limit(1, 10.0, locking=True)
    limit.refuse(b"a0", 7, own=True, now=100.0)
    limit.recount(lambda point: True, everyone_full=True, now=101.0)
    assert limit.look_at == 101.0
    limit.recount(lambda point: True, everyone_full=False, now=102.0)
    assert limit.look_at == math.inf


def test_what_overflowed_stays_when_the_owner_has_room_until_it_asks(world: World) -> None:
    a, b = overflowing(world)
    world.server.drop(KEYS.lock(b"a0"))
    a.heartbeat()
    a.loop()
    assert world.full == set()
    for _ in range(3):
        assert b.select(keys_of("a", 5)) == [b"a3", b"a4"]
        b.heartbeat()


def come_back(a: Node, b: Node, keys: list[bytes], rounds: int = 6, b_asks: int = 1) -> int:
    """Both loops go round; how often a key changed hands."""
    moves, before = 0, a.world.locks()
    for _ in range(rounds):
        for _ in range(b_asks):
            b.select(keys)
            b.loop()
        a.select(keys)
        a.loop()
        after = a.world.locks()
        moves += sum(before.get(key) != after[key] for key in after)
        before = before | after
        assert not a.held & b.held
        assert a.book.count <= (a.book.config.limit or 10**9)
    return moves


@pytest.mark.parametrize("b_asks", [1, 10])
def test_what_overflowed_comes_back_one_key_for_each_free_place(world: World, b_asks: int) -> None:
    a, b = overflowing(world, limit=10, own=15)
    keys = keys_of("a", 15)
    # Two keys are not asked for any more, so a has two places.
    for key in keys[:2]:
        world.server.drop(KEYS.lock(key))
    a.heartbeat()
    assert come_back(a, b, keys[2:], b_asks=b_asks) == 2
    assert len(a.held) == 10
    assert len(b.held) == 3
    assert come_back(a, b, keys[2:], b_asks=b_asks) == 0


def left_to_its_owner(world: World) -> tuple[Node, Node, list[bytes]]:
    """``b`` has let go of a30 for ``a``, which has a place; and all that they ask for."""
    a, b = overflowing(world, limit=30, own=33)
    keys = keys_of("a", 33)[1:]
    world.server.drop(KEYS.lock(b"a0"))
    a.heartbeat()
    assert a.book.limit.full  # One place of thirty is no room yet.
    a.select(keys)
    b.deliver()
    b.select(keys)
    b.loop()
    assert b"a30" not in world.locks()
    return a, b, keys


def test_a_key_on_its_way_back_is_left_to_its_owner(world: World) -> None:
    # The owner's loop is slow, the inheritor's fast: it must not take back what it let go.
    a, b, keys = left_to_its_owner(world)
    for _ in range(20):
        b.select(keys)
        b.loop()
    assert b"a30" not in world.locks()
    a.deliver()
    a.select(keys)
    assert world.locks()[b"a30"] == "a"


def test_a_key_left_to_an_owner_that_never_comes_is_taken_again(world: World) -> None:
    _, b, keys = left_to_its_owner(world)
    world.now += 60.0 + MS
    b.select(keys)
    assert b"a30" in b.held


def test_a_key_left_to_an_owner_that_went_is_taken_again_at_once(world: World) -> None:
    _, b, keys = left_to_its_owner(world)
    world.set_ring("b")
    b.select(keys)
    assert b"a30" in b.held


@pytest.mark.parametrize("wanted", [False, True], ids=["kept", "wanted"])
@pytest.mark.parametrize("leased", [False, True], ids=["", "leased"])
def test_what_is_kept_for_another_is_lost_and_let_go_like_any_other_key(
    world: World, wanted: bool, leased: bool
) -> None:
    for leaves in (False, True):
        a, b = overflowing(world)
        lease = b.pin(b"a3") if leased else None
        if wanted:
            world.server.drop(KEYS.lock(b"a0"))
            a.heartbeat()
            a.contains(b"a3")
            b.deliver()
        assert (b.book.held[b"a3"].state is KeyState.WANTED) is wanted
        if leaves:
            left(b)
            assert (world.locks().get(b"a3") == "b") is leased
        else:
            world.server.drop(KEYS.lock(b"a3"))
            b.heartbeat()
        assert b"a3" not in b.held
        assert lease is None or lease.lost.is_set()
        world = World("a", "b")


@pytest.mark.parametrize("wanted", [False, True], ids=["kept", "wanted"])
@pytest.mark.parametrize("leased", [False, True], ids=["", "leased"])
def test_a_node_that_drains_hands_over_what_it_kept_for_another(
    world: World, wanted: bool, leased: bool
) -> None:
    a, b = overflowing(world)
    lease = b.pin(b"a3") if leased else None
    if wanted:
        world.server.drop(KEYS.lock(b"a0"))
        a.heartbeat()
        a.contains(b"a3")
        b.deliver()
    assert (b.book.held[b"a3"].state is KeyState.WANTED) is wanted
    b.book.drain()
    world.set_ring("a")
    assert lease is None or lease.revoked.is_set()
    # Whoever works on it asks again before it is let go.
    assert b"a3" in b.held
    assert not b.contains(b"a3")
    assert lease is None or b.unpin(lease)
    b.loop()
    assert b"a3" not in world.locks()


def test_a_lease_on_an_overflowed_key_is_asked_to_finish_when_its_owner_wants_it(
    world: World,
) -> None:
    a, b = overflowing(world)
    lease = b.pin(b"a3")
    world.server.drop(KEYS.lock(b"a0"))
    a.heartbeat()
    a.loop()
    assert not lease.revoked.is_set()
    assert not a.contains(b"a3")
    b.deliver()
    assert lease.revoked.is_set()
    lease.check()
    assert b.unpin(lease)
    b.loop()
    a.deliver()
    assert a.contains(b"a3")


def test_what_another_wants_is_told_again_at_the_heartbeat(world: World) -> None:
    a, b = overflowing(world)
    b.silent = True
    world.server.drop(KEYS.lock(b"a0"))
    a.heartbeat()
    assert not a.contains(b"a3")
    b.deliver()
    assert b.contains(b"a3")
    b.heartbeat()
    assert not b.contains(b"a3")


def test_only_who_is_nearer_gets_a_key(world: World) -> None:
    world = World("a", "b", "c")
    a, b = world.node("a", limit=1), world.node("b")
    c = world.node("c")
    a.select([b"a0", b"a1"])
    a.loop()
    assert c.contains(b"a1")
    held = c.book.held[b"a1"]
    for waiter, wanted in (("b", False), ("c", False), ("x", False), ("a", True)):
        c.book._keys_between.want(held, waiter, world.now)
        assert (held.state is KeyState.WANTED) is wanted
    assert not b.contains(b"a1")


def test_an_own_key_is_kept_whoever_wants_it(world: World) -> None:
    a, b = world.node("a"), world.node("b")
    assert a.contains(b"a0")
    b.take(b"a0")
    b.run(b.book._calls.takes[0].command)
    a.heartbeat()
    a.deliver()
    assert a.contains(b"a0")


def test_while_some_node_is_full_a_key_that_moved_to_one_with_room_is_let_go(
    world: World,
) -> None:
    world = World("a", "c")
    a = world.node("a")
    world.node("c", limit=1).select([b"c0", b"c1"])
    world.nodes["c"].loop()
    assert world.full == {"c"}
    lease = a.pin(b"b0")
    assert a.contains(b"b1")
    world.set_ring("a", "b", "c")
    b = world.node("b")
    assert lease.revoked.is_set()
    assert not a.contains(b"b1")
    a.loop()
    assert b.contains(b"b1")


def test_a_held_key_whose_new_owner_is_full_is_kept(world: World) -> None:
    world.set_ring("a")
    a = world.node("a")
    assert a.contains(b"b5")
    lease = a.pin(b"b6")
    world.full = {"b"}
    world.set_ring("a", "b")
    assert a.contains(b"b5")
    assert not lease.revoked.is_set()


def held_by_a_far_inheritor() -> tuple[World, Node, Node]:
    """``a`` has c1 for c, which is full; b is nearer, and knows that a has it."""
    world = World("a", "c")
    a, c = world.node("a"), world.node("c", limit=1)
    c.select([b"c0", b"c1"])
    c.loop()
    assert a.contains(b"c1")
    world.set_ring("a", "b", "c")
    b = world.node("b")
    assert not b.contains(b"c1")
    assert b.book.holder(b"c1") == "a"
    assert (a.inbox, b.book.waiting) == ([], 0)
    return world, a, b


def test_a_key_that_becomes_its_own_is_waited_for() -> None:
    world, a, b = held_by_a_far_inheritor()
    world.set_ring("a", "b")
    assert not b.contains(b"c1")
    assert [news.wanted_by for news in a.inbox if news] == ["b"]


def test_an_inherited_key_whose_holder_left_the_ring_is_asked_for_at_once() -> None:
    world, a, b = held_by_a_far_inheritor()
    left(a)
    assert not b.contains(b"c1")
    world.set_ring("b", "c")
    assert b.contains(b"c1")


def test_an_inheritor_asks_again_soon_for_what_its_holder_must_let_go() -> None:
    world = World("a")
    a = world.node("a")
    assert a.contains(b"c1")
    world.set_ring("a", "b", "c", tell="bc")
    b, c = world.node("b"), world.node("c", limit=1)
    c.select([b"c0", b"c1"])
    c.loop()
    assert not b.contains(b"c1")
    # Nobody tells b: it does not wait for c1, which might be what a has for c.
    world.set_ring("a", "b", "c")
    assert not a.contains(b"c1")
    a.loop()
    assert not b.contains(b"c1")
    world.now += RETRY
    assert b.contains(b"c1")


def test_the_longer_another_keeps_an_inherited_key_the_more_seldom_it_is_asked_for() -> None:
    world, _, b = held_by_a_far_inheritor()
    asked, begun = [], world.now
    while world.now < begun + 59.0:
        calls = world.calls()
        assert not b.contains(b"c1")
        if world.calls() > calls:
            asked.append(world.now - begun)
        world.now += RETRY
        b.heartbeat(renewed=False)
    assert asked == [0.5, 1.5, 3.5, 7.5, 15.5, 31.5]


def test_an_inherited_key_is_asked_for_soon_after_its_owner_changed() -> None:
    world = World("b", "c")
    world.full = {"c"}
    b, c = world.node("b"), world.node("c")
    assert c.contains(b"c600")
    for _ in range(6):
        assert not b.contains(b"c600")
        world.now += 8.0
    assert not b.contains(b"c600")
    # Between c and the key there is one more now, which is full as well: c has to let go.
    world.ring = Ring({"b": [SPAN], "c": [2 * SPAN], "d": [2 * SPAN + 500]})
    world.full = {"c", "d"}
    b.see()
    world.server.drop(KEYS.lock(b"c600"))
    assert not b.contains(b"c600")
    world.now += RETRY
    assert b.contains(b"c600")


def waiting(node: Node) -> set[bytes]:
    return {key.key for key in node.book._keys.of(KeyState.AWAITED)}


def test_what_a_node_waits_for_keeps_its_place_when_the_lock_outlasts_the_wait(
    world: World,
) -> None:
    a, b = overflowing(world, limit=30, own=33)
    keys = keys_of("a", 33)
    world.server.drop(KEYS.lock(b"a0"), KEYS.lock(b"a1"))
    a.heartbeat()
    assert a.select(keys[2:]) == keys[2:30]
    waited_for = waiting(a)
    assert len(waited_for) == 2
    world.now += 40.0
    for node in (a, b):
        node.book.heartbeat(everyone_full=False, now=world.now)
    a.loop()
    while (step := b.step()) is not None:
        step.done(b.run(step.command), world.now, world.now)
    world.now += 20.0 + MS
    # b's loop has not come round yet; and new keys appear, more than there are places for.
    a.select(keys_of("a", 60)[2:])
    assert waiting(a) == waited_for
    b.select(keys)
    b.loop()
    a.deliver()
    a.select(keys[2:])
    assert waited_for <= a.held


def test_a_key_is_not_let_go_for_who_waited_and_went(world: World) -> None:
    a, b = overflowing(world, limit=30, own=33)
    world.server.drop(KEYS.lock(b"a0"))
    a.heartbeat()
    a.select(keys_of("a", 33)[1:])
    b.deliver()
    assert [key.key for key in b.book.held.values() if key.state is KeyState.WANTED] == [b"a30"]
    world.set_ring("b")
    b.heartbeat()
    assert b.contains(b"a30")
    assert world.locks()[b"a30"] == "b"


# --- everyone is full ---------------------------------------------------------------------------


def test_with_every_node_full_the_rest_is_counted_as_unserved(world: World) -> None:
    a, b = world.node("a", limit=3), world.node("b", limit=3)
    keys = keys_of("a", 6) + keys_of("b", 4)
    for _ in range(3):
        for node in (a, b):
            node.select(keys)
            node.loop()
    assert world.full == {"a", "b"}
    for node in (a, b):
        node.heartbeat()
    assert len(world.locks()) == 6
    assert a.book.limit.unserved + b.book.limit.unserved == 4
    unserved = {key for key in keys if key not in world.locks()}
    assert a.book.limit.unserved == len([key for key in unserved if key.startswith(b"a")])


def test_unserved_keys_are_counted_from_a_sample_when_there_are_very_many() -> None:
    world = World("a")
    a = world.node("a", limit=10)
    keys = [b"a%d" % number for number in range(5 * LOCKS_A_CALL)]
    a.select(keys)
    a.loop()
    assert world.full == {"a"}
    a.heartbeat()
    assert a.book.limit.refused == a.book.limit.unserved == 5 * LOCKS_A_CALL - 10
    assert world.calls("look") == 1


def test_as_soon_as_one_has_room_nothing_counts_as_unserved(world: World) -> None:
    a = world.node("a", limit=1)
    world.node("b", limit=1)
    a.select(keys_of("a", 4))
    world.full = {"a", "b"}
    a.heartbeat()
    assert a.book.limit.unserved == 3
    world.full = {"a"}
    a.heartbeat()
    assert a.book.limit.unserved == 0


def test_a_look_that_failed_leaves_the_count_as_it_was(world: World) -> None:
    a = world.node("a", limit=1)
    a.select(keys_of("a", 4))
    world.full = {"a", "b"}
    a.heartbeat()
    a.heartbeat(renewed=False)
    while a.step() is not None and a.lose(reached=False) != "locks_look":
        pass
    assert a.book.limit.unserved == 3


def test_a_place_that_becomes_free_is_filled_by_whoever_asks_first(world: World) -> None:
    a, b = world.node("a", limit=3), world.node("b", limit=3)
    keys = keys_of("a", 8)
    for _ in range(3):
        for node in (a, b):
            node.select(keys)
            node.loop()
    world.server.drop(KEYS.lock(next(iter(b.held))))
    b.heartbeat()
    b.select(keys)
    assert len(world.locks()) == 6


@pytest.mark.parametrize("anew", [False, True])
def test_a_look_that_is_older_than_the_end_of_the_session_leaves_no_lock(
    world: World, anew: bool
) -> None:
    a = world.node("a")
    book = a.book
    take = a.take(b"a1")
    assert take is not None
    assert book.leave(world.now) is None
    a.interrupt(take, reached=False)
    late = book.step(world.now)
    assert isinstance(late, Run)
    # Redis plays the look, then the call, then the end of the session, and is heard in that order.
    seen = a.run(late.command)
    a.run(take.command)
    assert book.session_ended(world.now)
    again = book.leave(world.now) if anew else None
    fresh = a.run(again.command) if again is not None else None
    late.done(seen, world.now, world.now)
    if again is not None:
        again.done(fresh, world.now, world.now)
    while (step := book.leave(world.now)) is not None:
        step.done(a.run(step.command), world.now, world.now)
    assert world.locks() == {}


# --- small things -------------------------------------------------------------------------------


def test_a_signal_handler_can_tell_that_it_interrupted_the_book() -> None:
    book = SharedLockBook(KEYS, LockConfig(True, None, 1.0, 1.0, 1.0), RETRY)
    assert not book.entered
    with book._guard:
        assert book.entered
    assert not book.entered


def test_a_book_of_a_node_that_never_began_does_nothing() -> None:
    book = LockBook(KEYS, LockConfig(True, None, 1.0, 1.0, 1.0), RETRY)
    assert book.step(0.0) is None
    assert book.leave(0.0) is None
    assert book.ask(b"a0", 0, (), 1.0, 0.0) is NO


def test_the_points_of_this_test_are_where_their_names_say() -> None:
    assert [point(b"%b5" % name.encode()) for name in NODES] == [
        index * SPAN + 5 for index in range(len(NODES))
    ]
