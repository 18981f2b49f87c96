"""The command line as users have it: run in this process for speed, or as a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from redis import Redis

from hashring import RingNode
from hashring.cli import main
from hashring.store import embedded_keeper as keeper
from hashring.store.embedded_server import RedisServer
from tests.conftest import PATIENCE, ROOT, know_their_ranges

SESSION = "0123456789abcdef"


@pytest.fixture(autouse=True)
def runtime_directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A shared server of this test's own; a short path, since it holds a socket."""
    for name in list(os.environ):
        if name.startswith("HASHRING_") and name != "HASHRING_REDIS_SERVER":
            monkeypatch.delenv(name)
    directory = Path(tempfile.mkdtemp(prefix="hashring-cli-"))
    monkeypatch.setenv("HASHRING_RUNTIME_DIR", str(directory / "run"))
    yield directory
    socket = directory / "run" / keeper.SOCKET
    until(lambda: not socket.exists(), "the shared server has ended with its last user")
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def client(redis_server: RedisServer) -> Iterator[Redis]:
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        yield client


@dataclass(frozen=True)
class Done:
    """What a command said."""

    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        return self.out.splitlines()

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def json_lines(self) -> list[Any]:
        return [json.loads(line) for line in self.lines]


Run = Callable[..., Done]


@pytest.fixture
def run(redis_server: RedisServer) -> Run:
    """Runs a command on the test's own Redis, and checks its exit status."""

    def run(*arguments: str, status: int = 0, stdin: bytes = b"", url: str = "") -> Done:
        environment = {"HASHRING_REDIS_URL": url or redis_server.url}
        result = CliRunner().invoke(main, arguments, input=stdin, env=environment)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.output
        assert result.exit_code == status, result.output
        return Done(result.stdout, result.stderr)

    return run


def spawn(*command: str, url: str | None = None, **more: Any) -> subprocess.Popen[str]:
    """A process: ``hashring ...`` or ``example.py ...``, its output piped."""
    program = (
        [str(ROOT / "example.py")]
        if command[0] == "example.py"
        else ["-c", "from hashring.cli import main; main()"]
    )
    environment = dict(os.environ)
    if url is not None:
        environment["HASHRING_REDIS_URL"] = url
    more = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | more
    more["env"] = environment | more.get("env", {})
    return subprocess.Popen([sys.executable, *program, *command[1:]], **more)


def finished(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit status, output and errors, once it has ended."""
    out, err = process.communicate(timeout=PATIENCE)
    return process.returncode, out or "", err or ""


@contextmanager
def ending(process: subprocess.Popen[str]) -> Iterator[subprocess.Popen[str]]:
    """The process, killed at the end whatever happens."""
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def line_with(process: subprocess.Popen[str], text: str, stream: str = "stdout") -> str:
    """The next line of its output that holds the text."""
    source = getattr(process, stream)
    seen = []
    impatience = threading.Timer(PATIENCE, process.kill)
    impatience.start()
    try:
        for line in source:
            seen.append(line)
            if text in line:
                return str(line)
    finally:
        impatience.cancel()
        impatience.join()
    pytest.fail(f"{process.args} ended without saying {text!r}: {''.join(seen)}")


@contextmanager
def nodes_on(client: Redis, *names: str, **settings: Any) -> Iterator[list[RingNode]]:
    """Real nodes on the ring ``ring``, by name."""
    settings = {"ring": "ring", **settings}
    ring = settings.pop("ring")
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(RingNode(client, ring, name=name, **settings)) for name in names
        ]
        if nodes:
            until(lambda: know_their_ranges(nodes), "all of them know the ring")
        yield nodes


def put(
    client: Redis,
    node: str,
    *points: int,
    expires_in: float = 60.0,
    told: dict[str, Any] | None = None,
) -> None:
    """Write a node into the ring ``ring`` by hand, as no node does."""
    seconds, microseconds = client.time()
    score = seconds + microseconds / 1e6 + expires_in
    client.zadd("ring", {f"{point}:{node}:{number}": score for number, point in enumerate(points)})
    client.hset("{ring}:nodes", node, SESSION + json.dumps(told or {}))


def until(holds: Callable[[], Any], what: str) -> Any:
    """What ``holds`` returns, once it is true."""
    deadline = time.monotonic() + PATIENCE
    while not (value := holds()):
        if time.monotonic() > deadline:
            pytest.fail(f"not within {PATIENCE} s: {what}")
        time.sleep(0.02)
    return value
