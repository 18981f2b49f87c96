"""A process that runs nodes, and does what the test asks over a unix socket; see tests/hosts.py.

``python -m tests.host_process RUNNER SOCKET``: one JSON request a line, one answer a line, each
request in a thread, a greenlet or a task of its own, so that one may block for ever.
"""

from __future__ import annotations

import sys

RUNNER, SOCKET = sys.argv[1], sys.argv[2]
PATCHED = RUNNER.endswith("-patched")
if PATCHED:
    import gevent
    from gevent import monkey

    monkey.patch_all()
    # gevent installs this handler after the first fork: a child that has ended by then is never
    # noticed, and waitpid() waits for ever.
    gevent.get_hub().loop.install_sigchld()

import asyncio  # noqa: E402 - nothing may be imported before the patching
import gc  # noqa: E402
import importlib  # noqa: E402
import json  # noqa: E402
import logging  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402
from collections.abc import Awaitable, Callable  # noqa: E402
from enum import Enum  # noqa: E402
from typing import Any  # noqa: E402

from hashring import AsyncRingNode, NodeStatus, RingNode  # noqa: E402
from tests.group_requests import GroupRequests  # noqa: E402
from tests.lock_requests import LockRequests  # noqa: E402

ASYNC = RUNNER == "asyncio"
GEVENT = RUNNER.startswith("greenlet")


class Callback:
    """An ``on_change`` that records, and misbehaves when told to."""

    def __init__(self, how: str) -> None:
        self.how = how
        self.seen: list[tuple[Any, Any]] = []

    def __call__(self, gained: Any, lost: Any) -> Any:
        self.seen.append((gained, lost))
        if self.how == "raise":
            raise ValueError("planted in on_change")
        return block() if self.how == "block" else None


def block() -> Any:
    """Never return; a coroutine that does not where there are tasks."""
    if ASYNC:
        return asyncio.Event().wait()
    if RUNNER == "greenlet":
        importlib.import_module("gevent.event").Event().wait()
    return threading.Event().wait()


class Log(logging.Handler):
    """Keeps what was logged."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        trace = f" {record.exc_info[0].__name__}" if record.exc_info and record.exc_info[0] else ""
        self.lines.append(f"{record.levelname} {record.getMessage()}{trace}")


class Requests(LockRequests, GroupRequests):
    """What can be asked."""

    asynchronous = ASYNC
    greenlets = GEVENT

    def __init__(self) -> None:
        super().__init__()
        self.nodes: dict[str, Any] = {}
        self.callbacks: dict[str, Callback] = {}
        self.log = Log()
        logger = logging.getLogger("hashring")
        logger.addHandler(self.log)
        logger.setLevel(logging.INFO)
        self.to_stop = ""
        self.ticks = 0
        self.uncaught: list[str] = []
        threading.excepthook = lambda args: self.uncaught.append(repr(args.exc_value))

    def new(
        self,
        node: str,
        url: str,
        ring: str,
        *,
        package: str = "redis",
        client: dict[str, Any] | None = None,
        on_change: str | None = None,
        **settings: Any,
    ) -> str:
        module = importlib.import_module(f"{package}.asyncio" if ASYNC else package)
        kind = module.Valkey if package == "valkey" else module.Redis
        callback = self.callbacks[node] = Callback(on_change or "record")
        kind_of_node = AsyncRingNode if ASYNC else RingNode
        made = self.nodes[node] = kind_of_node(
            kind.from_url(url, **(client or {})), ring, on_change=callback, **settings
        )
        return made.name

    def spawn(self, target: Callable[[], None]) -> Any:
        if RUNNER == "greenlet":
            return importlib.import_module("gevent").spawn(target)
        thread = threading.Thread(target=target)
        thread.start()
        return thread

    def block(self) -> Any:
        return block()

    def sleep(self, seconds: float) -> None:
        if RUNNER == "greenlet":
            importlib.import_module("gevent").sleep(seconds)
        else:
            time.sleep(seconds)

    def forget(self, node: str) -> None:
        del self.nodes[node], self.callbacks[node]
        gc.collect()

    def start(self, node: str) -> Any:
        found = self.nodes[node]
        return found.gevent_start() if GEVENT else found.start()

    def stop(self, node: str, stay: bool = False) -> Any:
        found = self.nodes[node]
        return found.gevent_stop(stay=stay) if GEVENT else found.stop(stay=stay)

    def call(self, node: str, method: str, arguments: list[Any]) -> Any:
        # A plain call cannot wait for Redis in an event loop.
        method = "fetch_owner" if ASYNC and method == "owner" else method
        found = getattr(self.nodes[node], method)
        return found(*arguments) if callable(found) else found

    def assign(self, node: str, attribute: str, value: Any) -> None:
        setattr(self.nodes[node], attribute, value)

    def owned(self, node: str, keys: list[str]) -> list[str]:
        return [key for key in keys if self.nodes[node].contains(key)]

    def changes(self, node: str) -> list[Any]:
        return self.callbacks[node].seen

    def logged(self) -> list[str]:
        return self.log.lines

    def escaped(self) -> list[str]:
        return self.uncaught

    def tick_count(self) -> int:
        return self.ticks

    def resources(self) -> dict[str, int]:
        """What a leak would make grow: descriptors, threads, greenlets, tasks."""
        gc.collect()
        counts = {
            "descriptors": len(os.listdir("/proc/self/fd")),
            "threads": len(os.listdir("/proc/self/task")),
        }
        if ASYNC:
            counts["tasks"] = len(asyncio.all_tasks())
        if "greenlet" in sys.modules:
            greenlet = sys.modules["greenlet"].greenlet
            counts["greenlets"] = sum(
                isinstance(thing, greenlet) and not thing.dead for thing in gc.get_objects()
            )
        return counts

    def stop_on_signal(self, node: str) -> None:
        """Stop the node when SIGTERM comes, in the handler, as services do."""
        self.to_stop = node

    def signalled(self, *_: Any) -> Any:
        return self.stop(self.to_stop)

    def cycles(self, node: str, count: int) -> Any:
        """Start and stop that often."""
        if ASYNC:

            async def run() -> None:
                for _ in range(count):
                    await self.nodes[node].start()
                    await self.nodes[node].stop()

            return run()
        for _ in range(count):
            self.start(node)
            self.stop(node)
        return None


requests = Requests()


def plain(value: Any) -> Any:
    if isinstance(value, NodeStatus):
        return value.as_dict()
    if isinstance(value, Enum):
        return value.value
    return str(value)


def answer_of(id_: int, value: Any) -> bytes:
    return json.dumps({"id": id_, "value": value}, default=plain).encode() + b"\n"


def error_of(id_: int, error: BaseException) -> bytes:
    kinds = [kind.__name__ for kind in type(error).__mro__]
    return json.dumps({"id": id_, "kinds": kinds, "error": str(error)}).encode() + b"\n"


def serve_blocking(connect: Callable[[], Any], spawn: Callable[..., Any], lock: Any) -> None:
    control = connect()

    def answer(request: dict[str, Any]) -> None:
        id_ = request.pop("id")
        try:
            reply = answer_of(id_, getattr(requests, request.pop("do"))(**request))
        except BaseException as error:  # noqa: BLE001
            reply = error_of(id_, error)
        with lock:
            control.sendall(reply)

    waiting = b""
    while data := control.recv(1 << 16):
        *lines, waiting = (waiting + data).split(b"\n")
        for line in lines:
            spawn(answer, json.loads(line))


def tick(sleep: Callable[[float], Any]) -> None:
    while True:
        sleep(0.005)
        requests.ticks += 1


def serve_threads() -> None:
    def connect() -> socket.socket:
        control = socket.socket(socket.AF_UNIX)
        control.connect(SOCKET)
        return control

    def spawn(target: Any, *arguments: Any) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()

    spawn(tick, time.sleep)
    serve_blocking(connect, spawn, threading.Lock())


def serve_greenlets() -> None:
    import gevent  # noqa: PLC0415
    import gevent.lock  # noqa: PLC0415
    import gevent.socket  # noqa: PLC0415

    gevent.get_hub().print_exception = lambda _c, _k, error, _t: requests.uncaught.append(
        repr(error)
    )

    def connect() -> Any:
        control = gevent.socket.socket(gevent.socket.AF_UNIX)
        control.connect(SOCKET)
        return control

    gevent.spawn(tick, gevent.sleep)
    serve_blocking(connect, gevent.spawn, gevent.lock.RLock())


async def serve_tasks() -> None:
    reader, writer = await asyncio.open_unix_connection(SOCKET, limit=1 << 24)
    asyncio.get_running_loop().set_exception_handler(
        lambda _loop, context: requests.uncaught.append(repr(context))
    )

    async def answer(request: dict[str, Any]) -> None:
        id_ = request.pop("id")
        try:
            value = getattr(requests, request.pop("do"))(**request)
            if isinstance(value, Awaitable):
                value = await value
            reply = answer_of(id_, value)
        except BaseException as error:  # noqa: BLE001
            reply = error_of(id_, error)
        writer.write(reply)

    async def ticking() -> None:
        while True:
            await asyncio.sleep(0.005)
            requests.ticks += 1

    tasks = {asyncio.create_task(ticking())}
    asyncio.get_running_loop().add_signal_handler(
        signal.SIGTERM, lambda: tasks.add(asyncio.create_task(requests.signalled()))
    )
    while line := await reader.readline():
        task = asyncio.create_task(answer(json.loads(line)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, requests.signalled)
    if ASYNC:
        asyncio.run(serve_tasks())
    elif RUNNER == "greenlet":
        serve_greenlets()
    else:
        serve_threads()
