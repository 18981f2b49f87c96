"""What a test may ask of a host about partition groups; a part of ``tests.host_process``."""

from __future__ import annotations

import importlib
import inspect
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final

from hashring import AsyncPartitionGroup, PartitionGroup
from hashring.errors import HashringError

_KINDS: Final[dict[str, tuple[str, ...]]] = {"silent": (), "work": ("assigned",)}
"""The callbacks of a member that has not all of them."""


class Recorder:
    """Callbacks that record, and misbehave when told to."""

    def __init__(self, requests: GroupRequests, how: str) -> None:
        self.requests = requests
        self.how = how
        self.group: Any = None
        self.seen: list[tuple[str, int]] = []

    def callback(self, kind: str) -> Any:
        def call(partition: int, *_: Any) -> Any:
            self.seen.append((kind, partition))
            if self.how == "raise":
                raise ValueError("planted in a callback")
            if self.how in ("block", "work"):
                return self.requests.block()
            if self.how == "stop" and kind == "revoked":
                return self.group.stop()
            return None

        return call


class GroupRequests:
    """See the module's text. The host says how it spawns and blocks."""

    asynchronous: bool
    greenlets: bool

    def __init__(self) -> None:
        super().__init__()
        self.groups: dict[str, Any] = {}
        self.said: dict[str, list[tuple[str, int]]] = {}
        self.heard: dict[str, Recorder] = {}

    def spawn(self, target: Any) -> Any:
        raise NotImplementedError

    def block(self) -> Any:
        """Never return, or as a coroutine."""
        raise NotImplementedError

    def group(self, group: str, url: str, name: str, how: str, **settings: Any) -> str:
        module = importlib.import_module("redis.asyncio" if self.asynchronous else "redis")
        told = self.heard[group] = Recorder(self, how)
        kind: Any = AsyncPartitionGroup if self.asynchronous else PartitionGroup
        kinds = _KINDS.get(how, ("assigned", "revoked", "lost", "warmup"))
        callbacks = {f"on_{kind}": told.callback(kind) for kind in kinds}
        made = kind(module.Redis.from_url(url), name, **settings, **callbacks)
        told.group = self.groups[group] = made
        return str(made.member)

    def group_start(self, group: str, wait: bool = True) -> Any:
        found = self.groups[group]
        return found.gevent_start(wait=wait) if self.greenlets else found.start(wait=wait)

    def group_stop(self, group: str, handover: bool = False) -> Any:
        return self.groups[group].stop(handover=handover)

    def group_call(self, group: str, method: str, *arguments: Any) -> Any:
        found = getattr(self.groups[group], method)
        return found(*arguments) if callable(found) else found

    def group_phase(self, group: str) -> Any:
        found = self.groups[group].status()
        if not inspect.isawaitable(found):
            return found.phase.value

        async def phase() -> Any:
            return (await found).phase.value

        return phase()

    def group_told(self, group: str) -> list[tuple[str, int]]:
        return self.heard[group].seen

    def group_iterate(self, group: str) -> Any:
        """Run the iterator to its end; what it said. Answers when the member has left."""
        changes = self.groups[group].changes()
        said = self.said[group] = []
        if not self.asynchronous:
            for change in changes:
                said.append((change.kind.value, change.partition))
            return said

        async def iterate() -> Any:
            async for change in changes:
                said.append((change.kind.value, change.partition))
            return said

        return iterate()

    def group_said(self, group: str) -> int:
        """How often the iterator has said something so far."""
        return len(self.said.get(group, ()))

    def group_fork(self, group: str) -> dict[str, Any]:
        """What the group is in a forked child."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            found = self.groups[group]
            errors = [self._error(call) for call in (found.start, found.drain)]
            os.write(writer, " ".join([str(len(found.held)), *errors]).encode())
            os._exit(0)
        os.close(writer)
        held, *errors = os.read(reader, 100).decode().split(" ")
        os.close(reader)
        os.waitpid(child, 0)
        return {"held": int(held), "errors": errors}

    def _error(self, call: Callable[[], Any]) -> str:
        try:
            begun = call()
            if self.asynchronous:
                begun.send(None)
        except HashringError as failure:
            return type(failure).__name__
        return ""

    def group_fork_in_changes(self, group: str) -> Any:
        """What a loop over the changes does in a child that is forked in its body."""
        changes = self.groups[group].changes()
        if self.asynchronous:
            return self._fork_in_async_changes(changes)
        next(changes)
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            self._answer(writer, lambda: sum(1 for _ in changes))
        changes.close()
        return self._answered(child, reader, writer)

    async def _fork_in_async_changes(self, changes: Any) -> dict[str, Any]:
        await anext(changes)
        reader, writer = os.pipe()
        if (child := os.fork()) == 0:
            step = changes.__anext__()

            def go_on() -> int:
                try:
                    step.send(None)
                except StopAsyncIteration:
                    return 0
                return 1

            self._answer(writer, go_on)
        await changes.aclose()
        return self._answered(child, reader, writer)

    @staticmethod
    def _answer(writer: int, count: Any) -> None:
        error, more = "", 0
        try:
            more = count()
        except Exception as failure:  # noqa: BLE001 - the parent is to see it
            error = type(failure).__name__
        os.write(writer, f"{more} {error}".encode())
        os._exit(0)

    @staticmethod
    def _answered(child: int, reader: int, writer: int) -> dict[str, Any]:
        os.close(writer)
        more, error = os.read(reader, 100).decode().split(" ")
        os.close(reader)
        os.waitpid(child, 0)
        return {"error": error, "more": int(more)}

    def burn(self, seconds: float) -> None:
        """Compute in every thread, greenlet or task, and give way to nobody."""
        until = time.monotonic() + seconds

        def compute() -> None:
            while time.monotonic() < until:
                sum(range(1000))

        if not self.asynchronous and not self.greenlets:
            for _ in range(2):
                threading.Thread(target=compute, daemon=True).start()
        compute()
