"""The service as visitors meet it: its application in this process, or the command as a process."""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from flask import Flask
from flask.testing import FlaskClient
from redis import Redis
from werkzeug.test import TestResponse

from hashring import RingNode
from hashring.store.embedded_server import RedisServer
from hashring.web import Access, Service, create_app
from tests.conftest import PATIENCE, ROOT, eventually, know_their_ranges

SESSION = "0123456789abcdef"
TOKEN = "correct horse battery staple"

HOSTILE = [
    "<script>document.title='owned'</script>",
    "\"><img src=x onerror=document.title='owned'>",
    "'onmouseover='document.title=1'",
    "{{7*7}}${7*7}",
    "../../etc/passwd",
    "javascript:document.title='owned'",
    "a\u202eb\u0085c",
    "n" * 500,
]
"""Names that somebody might give a node, a ring or a member."""


@pytest.fixture
def redis(redis_server: RedisServer) -> Iterator[Redis]:
    with Redis(unix_socket_path=str(redis_server.socket)) as client:
        yield client


def put(
    client: Redis,
    node: str,
    *points: int,
    ring: str = "ring",
    expires_in: float = 900.0,
    told: dict[str, Any] | None = None,
) -> None:
    """Write a node into a ring by hand, as no node does."""
    seconds, microseconds = client.time()
    score = seconds + microseconds / 1e6 + expires_in
    with client.pipeline() as together:  # a service reads all of the node, or nothing
        together.zadd(ring, {f"{point}:{node}:{n}": score for n, point in enumerate(points)})
        together.hset(f"{{{ring}}}:nodes", node, SESSION + json.dumps(told or {}))
        together.execute()


class Visitor:
    """Asks a service in this process."""

    def __init__(self, service: Service, app: Flask) -> None:
        self.service = service
        self.app = app
        self.client: FlaskClient = app.test_client()

    def get(self, path: str, /, *, headers: dict[str, str] | None = None, **query: Any) -> Any:
        return self.client.get(path, query_string=urlencode(query, doseq=True), headers=headers)

    def json(self, path: str, /, status: int = 200, **query: Any) -> Any:
        answer = self.get(path, **query)
        assert answer.status_code == status, answer.text
        return answer.json

    def page(self, path: str, /, **query: Any) -> str:
        answer: TestResponse = self.get(path, **query)
        assert answer.status_code == 200, answer.text
        return answer.text


Visit = Callable[..., Visitor]


@pytest.fixture
def visit(redis: Redis) -> Iterator[Visit]:
    """Makes services that watch the test's own Redis."""
    with ExitStack() as stack:

        def make(rings: Sequence[str] = (), **settings: Any) -> Visitor:
            service = Service(redis, rings=rings)
            names = {each.name for each in fields(Access)}
            rights = {name: settings.pop(name) for name in names & settings.keys()}
            app = create_app(
                service, redis_shown="redis://test", access=Access(**rights), **settings
            )
            service.start()
            stack.callback(service.stop)
            return Visitor(service, app)

        yield make


@contextmanager
def nodes_on(client: Redis, ring: str, *names: str, **settings: Any) -> Iterator[list[RingNode]]:
    """Real nodes on a ring, which see each other."""
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(RingNode(client, ring, name=name, **settings)) for name in names
        ]
        if nodes:
            eventually(lambda: know_their_ranges(nodes), "all of them know the ring")
        yield nodes


@dataclass
class Running:
    """``hashring serve`` as a process."""

    process: subprocess.Popen[str]
    port: int
    said: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, **headers: str
    ) -> tuple[int, str]:
        """Status and body of one answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()


@contextmanager
def serving(
    url: str | None,
    *arguments: str,
    under: Sequence[str] = (),
    before: bool = False,
    **environment: str,
) -> Iterator[Running]:
    """``hashring serve`` on any free port, killed at the end whatever happens.

    Args:
        url: where Redis is; ``None`` for no ``--url``.
        under: a program that starts it.
        before: whether the address of Redis stands before the command.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HASHRING_")}
    program = [sys.executable, "-c", "from hashring.cli import main; main()"]
    given = ["--url", url] if url is not None else []
    of_redis = [*given, "serve"] if before else ["serve", *given]
    process = subprocess.Popen(
        [*under, *program, *of_redis, "--port", "0", *arguments],
        cwd=ROOT,
        env={**kept, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = []
        for line in process.stderr:
            said.append(line)
            found = re.search(r"serving on http://.*:(\d+)/", line)
            if found:
                yield Running(process, int(found[1]), said)
                break
        else:
            pytest.fail(f"it ended without serving: {''.join(said)}")
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def module_redis(server_program: Path) -> Iterator[RedisServer]:
    """A Redis that is not emptied between the module's tests, as ``running`` watches it."""
    with RedisServer(server_program) as server:
        yield server


@pytest.fixture
def client(module_redis: RedisServer) -> Iterator[Redis]:
    with Redis(unix_socket_path=str(module_redis.socket)) as found:
        yield found


@pytest.fixture(scope="module")
def running(module_redis: RedisServer) -> Iterator[Running]:
    with serving(module_redis.url) as found:
        yield found
