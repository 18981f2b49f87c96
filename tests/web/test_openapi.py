"""The API is as it is described, whatever it is asked."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from hypothesis import HealthCheck, Phase, given, settings
from redis import Redis

from hashring import PartitionGroup
from hashring.core.hashing import RING_SIZE
from hashring.store.embedded_server import RedisServer
from hashring.web import Access, Service, create_app
from hashring.web.openapi import document
from tests.conftest import ROOT, eventually
from tests.web.conftest import TOKEN, Visit, put

pytestmark = pytest.mark.one_server


# In a process of its own: a member that subscribes anew, as it does where a confirmation is late,
# begins a thread, and no test here may leave one behind.
MEMBER = """
import sys
from redis import Redis
from hashring import PartitionGroup
with PartitionGroup(
    Redis(unix_socket_path=sys.argv[1]), "0", partitions=3, member="m", rebalance_delay=0
):
    sys.stdin.read()
"""


@contextmanager
def member_of_0(server: RedisServer) -> Iterator[None]:
    program = [sys.executable, "-c", MEMBER, str(server.socket)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, cwd=ROOT) as process:
        try:
            yield
        finally:
            process.kill()


def described(app: Flask) -> Any:
    """The description, as schemathesis reads it. It takes long to import, in each worker."""
    import schemathesis  # noqa: PLC0415

    return schemathesis.openapi.from_wsgi("/openapi.json", app)


@pytest.fixture(scope="module")
def description(server_program: Path) -> Iterator[Any]:
    with (
        RedisServer(server_program) as server,
        Redis(unix_socket_path=str(server.socket)) as client,
    ):
        put(client, "a", 0, told={"ttl": 900, "held": 1, "limit": 2, "started": 1.5})
        put(client, "b", RING_SIZE // 2)
        put(client, "dead", 9, expires_in=-5)
        client.xadd("{ring}:events", {"kind": "odd", "by": "nobody"})
        service = Service(client, rings=["ring", "0"])
        app = create_app(service, access=Access(token=TOKEN))
        service.start()
        try:
            with member_of_0(server):
                # Before the first test, so that no watcher begins in the middle of one.
                eventually(lambda: service.group("0") is not None, "the group is there")
                yield described(app)
        finally:
            service.stop()


# The stream never ends: tests/web/test_serve.py reads it.
ENDLESS = "/api/changes/live"


@pytest.mark.parametrize(
    "operation",
    [
        (method.upper(), path)
        for path, methods in document("")["paths"].items()
        for method in methods
        if path != ENDLESS
    ],
    ids=" ".join,
)
def test_no_question_breaks_it_and_every_answer_is_as_described(
    description: Any, operation: tuple[str, str]
) -> None:
    from schemathesis.checks import not_a_server_error  # noqa: PLC0415
    from schemathesis.specs.openapi import checks  # noqa: PLC0415

    method, path = operation

    @given(description[path][method].as_strategy())
    @settings(
        max_examples=15,
        deadline=None,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def ask(case: Any) -> None:
        case.validate_response(
            case.call(),
            checks=[
                not_a_server_error,
                checks.response_schema_conformance,
                checks.status_code_conformance,
            ],
        )

    ask()


def test_every_path_of_the_api_is_described(visit: Visit) -> None:
    visitor = visit(token=TOKEN)
    served = {
        rule.rule.replace("<what>", "remove")
        for rule in visitor.app.url_map.iter_rules()
        if rule.rule.startswith("/api/")
    }
    assert served <= set(visitor.json("/openapi.json")["paths"])


def test_the_documentation_lists_every_status_of_a_refusal() -> None:
    described = {
        status
        for methods in document("")["paths"].values()
        for operation in methods.values()
        for status in operation["responses"]
        if status >= "400"
    }
    text = (ROOT / "docs" / "operations" / "service.rst").read_text()
    assert described <= set(re.findall(r"(?m)^([45]\d\d)  ", text))


@pytest.mark.parametrize("action", ["forget", "group-forget"])
def test_forgetting_what_lives_is_a_conflict_in_the_description(action: str) -> None:
    assert "409" in document("")["paths"][f"/api/act/{action}"]["post"]["responses"]


def test_answers_about_what_there_is_are_as_described(redis: Redis, visit: Visit) -> None:
    from schemathesis.specs.openapi.checks import response_schema_conformance  # noqa: PLC0415

    put(redis, "a", 0, told={"ttl": 900})
    put(redis, "b", 0)
    with PartitionGroup(redis, "group", partitions=3, member="m", rebalance_delay=0):
        visitor = visit(rings=["ring"])
        description = described(visitor.app)
        eventually(lambda: visitor.service.group("group"), "the group is found")
        eventually(lambda: visitor.service.searched, "all are found")
        for path, query in (
            ("/api/rings", {}),
            ("/api/ring", {"ring": "ring"}),
            ("/api/nodes", {"ring": "ring"}),
            ("/api/owner", {"ring": "ring", "key": "k"}),
            ("/api/changes", {"ring": "ring"}),
            ("/api/plan", {"ring": "ring", "join": ["c"], "leave": ["a"]}),
            ("/api/plan/drain", {"ring": "ring", "node": "a"}),
            ("/api/plan/undrain", {"ring": "ring", "node": "a"}),
            ("/api/plan/weight", {"ring": "ring", "node": "a", "weight": 2}),
            ("/api/groups", {}),
            ("/api/group", {"group": "group"}),
            ("/api/group/plan", {"group": "group", "join": ["n"], "partitions": 7}),
            ("/api/group/plan", {"group": "group", "access": "exclusive"}),
            ("/api/group/plan/drain", {"group": "group", "member": "m"}),
            ("/api/group/plan/undrain", {"group": "group", "member": "m"}),
            ("/api/group/plan/weight", {"group": "group", "member": "m", "weight": 2}),
            ("/readyz", {}),
        ):
            case = description[path]["GET"].Case(query=query)
            answer = case.call()
            assert answer.status_code == 200, answer.text
            case.validate_response(answer, checks=[response_schema_conformance])
