"""Real processes that run nodes, one for each way to run them, driven from a test.

::

    with Host("greenlet") as host:
        node = host.node(url, "ring", ttl=2, heartbeat_interval=0.3)
        node.start()
        assert node.contains("key")
        host.kill()
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.conftest import PATIENCE

ROOT = Path(__file__).parents[1]

RUNNERS = ("thread", "greenlet", "greenlet-patched", "thread-patched", "asyncio")
"""Threads; greenlets, not patched and monkey-patched; monkey-patched ``start()``; asyncio."""


class HostError(Exception):
    """What a request raised in the host.

    Attributes:
        kinds: the names of the error's classes, nearest first.
    """

    def __init__(self, kinds: list[str], text: str) -> None:
        super().__init__(text)
        self.kinds = kinds


class Answer:
    """An answer that may still be on its way."""

    def __init__(self, host: Host, id_: int) -> None:
        self._host = host
        self._id = id_

    def arrived(self) -> bool:
        return self._host._receive_until(self._id, wait=False)

    def result(self) -> Any:
        self._host._receive_until(self._id, wait=True)
        answer = self._host._answers.pop(self._id)
        if "kinds" in answer:
            raise HostError(answer["kinds"], answer["error"])
        return answer["value"]


class Host:
    """A process that runs nodes in the given way."""

    def __init__(self, runner: str, environment: dict[str, str] | None = None) -> None:
        self.runner = runner
        self._ids = itertools.count(1)
        self._answers: dict[int, dict[str, Any]] = {}
        self._waiting = b""
        with tempfile.TemporaryDirectory(prefix="host-") as directory:
            path = str(Path(directory, "control"))
            with socket.socket(socket.AF_UNIX) as listener:
                listener.bind(path)
                listener.listen()
                listener.settimeout(PATIENCE)
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.host_process", runner, path],
                    cwd=ROOT,
                    env={**os.environ, **(environment or {})},
                    start_new_session=True,
                )
                self._control, _ = listener.accept()

    # --- the process --------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._process.pid

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP; returns when the process stands still."""
        os.kill(self.pid, signal.SIGSTOP)
        os.waitpid(self.pid, os.WUNTRACED)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL: a crash."""
        # Before its control is closed: that ends it in order, and its nodes leave.
        self._process.kill()
        self._process.wait()
        self._control.close()

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    # --- requests -----------------------------------------------------------------------------

    def ask(self, do: str, **arguments: Any) -> Answer:
        """Ask, and do not wait."""
        id_ = next(self._ids)
        line = json.dumps({"id": id_, "do": do, **arguments}).encode() + b"\n"
        self._control.settimeout(PATIENCE)
        self._control.sendall(line)
        return Answer(self, id_)

    def do(self, do: str, **arguments: Any) -> Any:
        return self.ask(do, **arguments).result()

    def _receive_until(self, id_: int, *, wait: bool) -> bool:
        self._control.settimeout(PATIENCE if wait else 0.0)
        while id_ not in self._answers:
            try:
                data = self._control.recv(1 << 16)
            except BlockingIOError:
                return False
            if not data:
                raise ConnectionError(f"the host {self.runner} has ended")
            *lines, self._waiting = (self._waiting + data).split(b"\n")
            for line in lines:
                answer = json.loads(line)
                self._answers[answer["id"]] = answer
        return True

    def node(self, url: str, ring: str, **settings: Any) -> HostedNode:
        """A node of this host; it has not started."""
        id_ = f"node-{next(self._ids)}"
        name = self.do("new", node=id_, url=url, ring=ring, **settings)
        return HostedNode(self, id_, name)


class HostedNode:
    """A node in a host."""

    def __init__(self, host: Host, id_: str, name: str) -> None:
        self.host = host
        self.id = id_
        self.first_name = name

    def do(self, do: str, **arguments: Any) -> Any:
        return self.host.do(do, node=self.id, **arguments)

    def ask(self, do: str, **arguments: Any) -> Answer:
        return self.host.ask(do, node=self.id, **arguments)

    def call(self, method: str, *arguments: Any) -> Any:
        """A method's result, or a property's value."""
        return self.do("call", method=method, arguments=list(arguments))

    def start(self) -> HostedNode:
        self.do("start")
        return self

    def stop(self, *, stay: bool = False) -> None:
        self.do("stop", stay=stay)

    def hold(self, key: str, timeout: float = 0.0) -> HostedLease:
        lease = f"lease-{next(self.host._ids)}"
        token = self.do("hold", lease=lease, key=key, timeout=timeout)
        return HostedLease(self.host, lease, token)

    def forget(self) -> None:
        self.do("forget")

    def contains(self, key: str) -> bool:
        return bool(self.call("contains", key))

    def owned(self, keys: Iterable[str]) -> set[str]:
        return set(self.do("owned", keys=list(keys)))

    @property
    def name(self) -> str:
        return str(self.call("name"))

    @property
    def state(self) -> str:
        return str(self.call("state"))

    @property
    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = self.call("status")
        return found

    @property
    def ranges(self) -> list[tuple[int, int]]:
        return [tuple(each) for each in self.call("get_ranges")]


class HostedLease:
    """A lease that a node in a host is inside of."""

    def __init__(self, host: Host, id_: str, token: int) -> None:
        self.host = host
        self.id = id_
        self.token = token

    def do(self, do: str, **arguments: Any) -> Any:
        return self.host.do(do, lease=self.id, **arguments)

    def wait(self, event: str) -> Answer:
        """Wait for ``lost`` or ``revoked`` in the host; the answer arrives when it happens."""
        return self.host.ask("wait", lease=self.id, event=event)

    @property
    def state(self) -> dict[str, Any]:
        found: dict[str, Any] = self.do("lease")
        return found

    def check(self) -> None:
        self.do("check")

    def finish(self) -> None:
        self.do("finish")
