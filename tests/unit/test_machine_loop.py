"""The loop that drives a machine: what it must do, whatever messages arrive."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

from hashring.errors import GroupFormatError, RedisRefused
from hashring.protocol.machine import Finished, Run, Step
from hashring.running.machine_loop import Loop
from hashring.running.threads_and_greenlets import ThreadBackend
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


def failures_told(error: Exception) -> list[Exception]:
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

    Loop(cast(Any, Asking()), Broken, ThreadBackend(), time.monotonic).run()
    return failures


def test_whatever_a_client_raises_in_a_loop_is_a_failed_call() -> None:
    error = OfAnotherLibrary("no password")
    for failure in failures_told(error):
        assert isinstance(failure, RedisRefused)
        assert "OfAnotherLibrary: no password" in str(failure)
        assert failure.__cause__ is error


def test_a_machine_is_told_the_errors_of_this_package_as_they_are() -> None:
    error = GroupFormatError("state", b"", "is of another version")
    assert failures_told(error) == [error, error]
