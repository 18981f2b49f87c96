"""The programs of the tutorials print what the tutorials show."""

from __future__ import annotations

import importlib.util
import re
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from redis import Redis

from hashring import GroupMember, GroupSituation, PartitionGroup
from hashring.core.assignors import as_assignor
from hashring.testing import RedisServer
from tests.conftest import PATIENCE, ROOT, eventually
from tests.programs import python

TUTORIALS = ROOT / "examples" / "tutorials"


def shown(name: str) -> list[str]:
    return (TUTORIALS / name).read_text().splitlines()


def run(name: str, url: str, member: str, lines: int) -> list[str]:
    """The first lines that a program prints."""
    process = subprocess.Popen(
        [sys.executable, TUTORIALS / name, url, member], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        return [process.stdout.readline().rstrip("\n") for _ in range(lines)]
    finally:
        process.kill()
        process.communicate(timeout=PATIENCE)


@pytest.mark.parametrize("name", ["worker.py", "worker_gevent.py", "worker_asyncio.py"])
def test_a_worker_prints_what_the_tutorial_shows(redis_server: RedisServer, name: str) -> None:
    assert run(name, redis_server.url, "alder", 1) == shown("worker.txt")


def test_the_server_of_the_tutorials_ends_at_ctrl_c_without_a_traceback() -> None:
    process = subprocess.Popen(
        [sys.executable, TUTORIALS / "server.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with Redis.from_url(process.stdout.readline().strip()) as redis:
        assert redis.ping()
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=PATIENCE) == ("", "")
    assert process.returncode == 0


def test_a_member_prints_what_the_tutorial_shows(redis_server: RedisServer) -> None:
    assert run("group.py", redis_server.url, "alder", 4) == shown("group.txt")


def test_the_tests_that_the_guide_shows_pass() -> None:
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", TUTORIALS / "memory.py")
    assert done.returncode == 0, done.stdout


def load(path: Path) -> object:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_assignor_of_the_guide_keeps_its_pinned_partitions_together(
    redis_server: RedisServer,
) -> None:
    rule = load(TUTORIALS / "rules.py").pinned_first  # type: ignore[attr-defined]
    members = tuple(GroupMember(name, joined) for joined, name in enumerate("abc"))
    target = as_assignor(rule).assign(GroupSituation(members, 8))
    assert [target.owners[number] for number in (0, 1)] == ["a", "a"]
    assert set(target.owners[2:]) == {"b", "c"}
    with (
        Redis.from_url(redis_server.url) as redis,
        PartitionGroup(redis, "g", 8, rule, member="one") as group,
    ):
        eventually(lambda: len(group.held) == 8, "a group takes the function as its assignor")


def test_the_sql_of_the_guide_refuses_an_older_token() -> None:
    statement = (TUTORIALS / "fenced.sql").read_text()
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE accounts (id, version DEFAULT 0, token DEFAULT 0)")
        database.execute("INSERT INTO accounts (id) VALUES ('a')")
        written = [
            database.execute(statement, {"account": "a", "token": token}).rowcount
            for token in (5, 7, 6, 7)
        ]
    assert written == [1, 1, 0, 1]


def test_pages_show_every_file_of_the_tutorials() -> None:
    pages = "".join(page.read_text() for page in (ROOT / "docs").rglob("*.rst"))
    for file in TUTORIALS.iterdir():
        if file.is_file():
            assert re.search(rf"examples/tutorials/{re.escape(file.name)}", pages), file.name
