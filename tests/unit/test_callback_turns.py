"""The line of those that call the application back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from hashring.running.callback_turns import CallerTurn, CallerTurns, TaskTurns


def never() -> bool:
    return False


def joined(
    turns: CallerTurns, go: Callable[[], object], gone: Callable[[], bool] = never
) -> CallerTurn:
    turn = CallerTurn(go, gone)
    turns.join(turn)
    return turn


def test_each_goes_on_once_those_before_have_left() -> None:
    turns, gone_on = CallerTurns(), list[str]()
    a, b, c = (joined(turns, lambda name=name: gone_on.append(name)) for name in "abc")
    assert gone_on == ["a"]
    turns.leave(b)  # It has not waited.
    assert gone_on == ["a"]
    turns.leave(a)
    assert gone_on == ["a", "c"]
    turns.leave(c)
    joined(turns, lambda: gone_on.append("d"))
    assert gone_on == ["a", "c", "d"]


def test_nobody_waits_for_one_whose_thread_has_ended() -> None:
    turns, gone_on = CallerTurns(), list[str]()
    ended = False
    joined(turns, lambda: gone_on.append("a"), lambda: ended)
    ended = True
    joined(turns, lambda: gone_on.append("b"))
    assert gone_on == ["a", "b"]


def test_one_whose_hub_is_destroyed_while_it_is_told_is_passed_over() -> None:
    turns, gone_on = CallerTurns(), list[str]()
    first = joined(turns, lambda: gone_on.append("a"))
    joined(turns, lambda: gone_on.append("b"), lambda: "b" in gone_on)
    joined(turns, lambda: gone_on.append("c"))
    turns.leave(first)
    assert gone_on == ["a", "b", "c"]


def test_a_forked_child_tells_nobody() -> None:
    turns, gone_on = CallerTurns(), list[str]()
    first = joined(turns, lambda: gone_on.append("a"))
    joined(turns, lambda: gone_on.append("b"))
    turns.abandon()
    turns.leave(first)
    assert gone_on == ["a"]


def test_a_task_that_was_cancelled_while_it_waited_lets_nobody_pass() -> None:
    async def main() -> None:
        turns, returns = TaskTurns(), asyncio.Event()
        first, second, third = turns.join(), turns.join(), turns.join()
        first.task = asyncio.ensure_future(returns.wait())
        second.task = asyncio.ensure_future(second.come())
        third.task = asyncio.ensure_future(third.come())
        await asyncio.sleep(0)
        second.task.cancel()
        await asyncio.wait([second.task])
        await asyncio.sleep(0.05)
        assert not third.task.done()
        returns.set()
        await third.task

    asyncio.run(main())


def test_a_callback_that_goes_on_after_its_task_was_cancelled_is_waited_for() -> None:
    async def main() -> None:
        turns, returns = TaskTurns(), asyncio.Event()
        first, second = turns.join(), turns.join()
        first.task = asyncio.ensure_future(asyncio.sleep(0))
        first.callback = asyncio.ensure_future(returns.wait())
        second.task = asyncio.ensure_future(second.come())
        await asyncio.sleep(0.05)
        assert not second.task.done()
        returns.set()
        await second.task

    asyncio.run(main())


def test_nobody_waits_for_a_task_whose_event_loop_stands_still_and_it_calls_no_more() -> None:
    turns = TaskTurns()

    async def stands_still() -> None:
        turn = turns.join()
        turn.task = asyncio.ensure_future(asyncio.Event().wait())

    async def goes_on() -> bool:
        [before] = turns._line
        await turns.join().come()
        return before.passed

    other = asyncio.new_event_loop()
    other.run_until_complete(stands_still())
    assert asyncio.run(goes_on())
    for task in asyncio.all_tasks(other):
        task.cancel()
    other.run_until_complete(asyncio.sleep(0))
    other.close()
