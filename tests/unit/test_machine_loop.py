"""The loops that drive a machine: what they must do, whatever messages arrive."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, cast

import pytest

from hashring.errors import GroupFormatError, RedisRefused, RedisUnavailable
from hashring.protocol.machine_steps import Finished, Run, Step, Wait
from hashring.running.async_machine_loop import AsyncLoop
from hashring.running.machine_loop import Loop, run_out, run_step
from hashring.running.native_threads import ThreadBackend
from hashring.store.async_memory_store import AsyncMemoryStore
from hashring.store.command import Command
from hashring.store.lua_scripts import script
from hashring.testing import MemoryStore
from tests.conftest import PATIENCE


class Machine:
    """A machine that ends when it is asked what to do."""

    def next(self, now: float) -> Step:
        return Finished()


def test_a_machine_is_asked_what_to_do_though_it_is_told_things_without_end() -> None:
    over = threading.Event()
    loop = Loop(cast(Any, Machine()), MemoryStore, ThreadBackend(), time.monotonic)

    def word(now: float) -> None:
        if not over.is_set():
            loop.tell(word)

    loop.tell(word)
    thread = threading.Thread(target=loop.run)
    thread.start()
    thread.join(PATIENCE / 6)
    ended = not thread.is_alive()
    over.set()
    thread.join()
    assert ended


class OfAnotherLibrary(Exception):
    """What a client raises that asks a library for its password."""


def in_thread(machine: Any, store: type[MemoryStore]) -> None:
    Loop(machine, store, ThreadBackend(), time.monotonic).run()


def in_task(machine: Any, store: type[MemoryStore]) -> None:
    async def run() -> None:
        await AsyncLoop(machine, AsyncMemoryStore(store()), time.monotonic).run()

    asyncio.run(run())


LOOPS = pytest.mark.parametrize("drive", [in_thread, in_task])


def failures_told(drive: Callable[..., None], error: Exception) -> list[Exception]:
    """What a machine is told whose first two calls raise an error."""

    class Broken(MemoryStore):
        def run(self, command: Command[Any]) -> Any:
            raise error

    failures: list[Exception] = []
    command = Command(script("locks", "look"), (b"ring",), (), int)
    run = Run(command, lambda *_: None, lambda told, _: failures.append(told))

    class Asking(Machine):
        def next(self, now: float) -> Step:
            return Finished() if len(failures) == 2 else run

    drive(Asking(), Broken)
    return failures


@LOOPS
def test_whatever_a_client_raises_in_a_loop_is_a_failed_call(drive: Callable[..., None]) -> None:
    error = OfAnotherLibrary("no password")
    for failure in failures_told(drive, error):
        assert isinstance(failure, RedisRefused)
        assert "OfAnotherLibrary: no password" in str(failure)
        assert failure.__cause__ is error


@LOOPS
def test_a_machine_is_told_the_errors_of_this_package_as_they_are(
    drive: Callable[..., None],
) -> None:
    error = GroupFormatError("state", b"", "is of another version")
    assert failures_told(drive, error) == [error, error]


def test_a_task_is_told_things_at_once_by_its_own_event_loop_and_soon_by_others() -> None:
    told: list[str] = []

    class Waiting(Machine):
        def next(self, now: float) -> Step:
            return Finished() if len(told) == 2 else Wait(float("inf"))

    async def run() -> None:
        store = AsyncMemoryStore(MemoryStore())
        loop = AsyncLoop(cast(Any, Waiting()), store, time.monotonic)
        task = asyncio.create_task(loop.run())
        loop.tell(lambda now: told.append("here"))
        assert told == ["here"]
        await asyncio.to_thread(loop.tell, lambda now: told.append("there"))
        await asyncio.wait_for(task, PATIENCE)

    asyncio.run(run())
    assert told == ["here", "there"]


def test_what_is_driven_by_hand_goes_on_after_a_failure_only_if_asked_to() -> None:
    lost, failed = RedisUnavailable("no answer"), list[Exception]()
    command = Command(script("locks", "look"), (b"ring",), (), int)

    def fails(command: Command[Any]) -> Any:
        raise lost

    def drive(failures: Callable[[Any], None] | None) -> list[Exception]:
        told: list[Exception] = []
        step = Run(command, lambda *_: None, lambda error, now: told.append(error))
        steps = iter([step, step, None])
        with nullcontext() if failures else pytest.raises(RedisUnavailable):
            run_out(
                lambda now: next(steps),
                lambda each: run_step(each, fails, time.monotonic),
                time.monotonic,
                failures,
            )
        return told

    assert drive(failed.append) == failed == [lost, lost]
    assert drive(None) == [lost]
