"""Flows: generators of commands, run by a sync store, by an asyncio one, and in a machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from hashring.errors import RedisUnavailable, WriteConflict
from hashring.protocol.flow import (
    TRIES,
    Flow,
    FlowRun,
    committed,
    run_flow,
    run_flow_async,
)
from hashring.store.command import Command
from hashring.store.lua_scripts import script

LOST = RedisUnavailable("no answer")


def ask(what: str) -> Command[Any]:
    return Command(script("ring", "snapshot"), (b"ring",), (what,), lambda raw: raw)


def answer(command: Command[Any]) -> Any:
    (what,) = command.arguments
    if what == "fail":
        raise LOST
    return f"{what}!"


def two() -> Flow[list[str]]:
    return [(yield ask("a")), (yield ask("b"))]


def failing() -> Flow[str]:
    yield ask("a")
    yield ask("fail")
    return "not reached"


def handling() -> Flow[str]:
    try:
        yield ask("fail")
    except RedisUnavailable:
        return str((yield ask("again")))
    return "not reached"


def nothing() -> Flow[str]:
    return "at once"
    yield ask("never")


def in_sync(flow: Flow[Any]) -> Any:
    return run_flow(answer, flow)


def in_async(flow: Flow[Any]) -> Any:
    async def run(command: Command[Any]) -> Any:
        await asyncio.sleep(0)
        return answer(command)

    return asyncio.run(run_flow_async(run, flow))


def in_machine(flow: Flow[Any]) -> Any:
    results: list[Any] = []
    errors: list[Exception] = []
    run = FlowRun(
        flow, lambda result, now: results.append(result), lambda error, now: errors.append(error)
    )
    run.begin(0.0)
    while run.step is not None:
        step = run.step
        try:
            reply = answer(step.command)
        except RedisUnavailable as error:
            step.failed(error, 1.0)
        else:
            step.done(reply, 0.5, 1.0)
    if errors:
        raise errors[0]
    return results[0]


DRIVERS = pytest.mark.parametrize("drive", [in_sync, in_async, in_machine])


@DRIVERS
def test_a_flow_is_sent_each_reply_and_returns_its_result(drive: Callable[..., Any]) -> None:
    assert drive(two()) == ["a!", "b!"]


@DRIVERS
def test_a_failure_is_raised_where_the_command_was_yielded(drive: Callable[..., Any]) -> None:
    assert drive(handling()) == "again!"
    with pytest.raises(RedisUnavailable, match="no answer"):
        drive(failing())


@DRIVERS
def test_a_flow_without_commands_is_over_at_once(drive: Callable[..., Any]) -> None:
    assert drive(nothing()) == "at once"


def test_a_flow_is_closed_when_its_caller_is_interrupted() -> None:
    closed: list[bool] = []

    def flow() -> Flow[None]:
        try:
            yield ask("a")
        finally:
            closed.append(True)

    def interrupt(command: Command[Any]) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_flow(interrupt, flow())
    assert closed == [True]


def test_a_machine_knows_when_each_command_was_sent_and_answered() -> None:
    seen: list[tuple[float, float]] = []

    def flow() -> Flow[None]:
        yield ask("a")
        seen.append((run.sent, run.now))
        yield ask("b")
        seen.append((run.sent, run.now))

    run = FlowRun(flow(), lambda result, now: None, lambda error, now: None)
    run.begin(10.0)
    assert run.step is not None
    run.step.done("a!", 11.0, 12.0)
    run.step.done("b!", 13.0, 14.0)
    assert seen == [(11.0, 12.0), (13.0, 14.0)]


def test_a_flow_that_was_given_up_hears_of_nothing_more() -> None:
    ended: list[Any] = []
    run = FlowRun(two(), lambda result, now: ended.append(result), lambda e, now: ended.append(e))
    run.begin(0.0)
    step = run.step
    assert step is not None
    run.end()
    step.done("a!", 0.0, 1.0)
    step.failed(LOST, 2.0)
    assert run.step is None
    assert ended == []


def test_a_flow_that_is_given_up_cleans_up_at_once() -> None:
    cleaned: list[bool] = []

    def flow() -> Flow[None]:
        try:
            yield ask("a")
        finally:
            cleaned.append(True)

    run = FlowRun(flow(), lambda result, now: None, lambda error, now: None)
    run.begin(0.0)
    run.end()
    assert cleaned == [True]


# --- what others may change meanwhile -------------------------------------------------------------


@pytest.mark.parametrize("lost", [0, 1, TRIES - 1])
def test_a_commit_is_tried_again_until_nobody_was_faster(lost: int) -> None:
    tries: list[str] = []

    def attempt() -> Flow[str | None]:
        tries.append((yield ask("read")))
        return "done" if len(tries) > lost else None

    assert run_flow(answer, committed("group 'orders'", attempt)) == "done"
    assert len(tries) == lost + 1


def test_a_commit_for_which_others_are_always_faster_is_given_up() -> None:
    tries: list[str] = []

    def attempt() -> Flow[str | None]:
        tries.append((yield ask("read")))
        return None

    with pytest.raises(WriteConflict) as caught:
        run_flow(answer, committed("group 'orders'", attempt, tries=3))
    assert len(tries) == 3
    assert (caught.value.what, caught.value.tries) == ("group 'orders'", 3)
    assert str(caught.value) == (
        "group 'orders': not written, because others changed it before each of 3 tries; try again"
    )
